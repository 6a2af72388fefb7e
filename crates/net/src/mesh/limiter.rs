//! Rate limits of a node and of its connections, and how they shape sockets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::{Rate, Time};
use socket2::SockRef;

use super::portion::Portion;
use crate::bucket::Bucket;

/// At a limited rate, data moves in portions of about this long, so that the connections of a
/// node take turns often and pauses are short.
const PORTION: Duration = Duration::from_millis(8);
const PORTION_MIN: usize = 4 << 10;
/// A limited socket's kernel buffers hold this much of the rate: a path of that delay is filled,
/// and a peer that stopped reading swallows no more.
const KERNEL_BUFFER: Duration = Duration::from_millis(250);
const KERNEL_BUFFER_MIN: usize = 64 << 10;
/// The kernel paces a limited socket at this multiple of the rate: bursts are spread, and what it
/// adds to the delay of a portion stays small. At 1.25 a chain of 20 took 2 % longer.
const PACING: f64 = 4.0;
/// Data unacknowledged for so long means that the path is dead, whatever the peer is.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time as the buckets see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts late enough for a full burst to lie in its past.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time::from_secs_f64(3600.0) + self.0.elapsed()
    }

    /// The instant of a time; a time that never comes is a year away.
    pub(crate) fn instant(self, time: Time) -> tokio::time::Instant {
        let wait = time
            .since(Time::from_secs_f64(3600.0))
            .min(Duration::from_secs(31_536_000));
        tokio::time::Instant::from_std(self.0 + wait)
    }
}

/// The limits of one direction as one connection meets them: its own, and the node's, which all
/// connections share.
pub(crate) struct Limiter {
    node: Option<Arc<Mutex<Bucket>>>,
    own: Option<Bucket>,
    clock: Clock,
    rate: Rate,
    /// Since when there was always something to pass.
    busy: Option<Time>,
}

impl Limiter {
    /// When `bytes` may pass; `None` means at once.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<tokio::time::Instant> {
        self.ask(|bucket, now, since| bucket.reserve(now, since, bytes))
    }

    /// Counts `bytes` that passed; when the next may pass, `None` for at once.
    pub(crate) fn charge(&mut self, bytes: usize) -> Option<tokio::time::Instant> {
        self.ask(|bucket, now, since| bucket.charge(now, since, bytes))
    }

    /// There is nothing to pass for now: from here on no time is made up for.
    pub(crate) const fn pause(&mut self) {
        self.busy = None;
    }

    fn ask(
        &mut self,
        mut question: impl FnMut(&mut Bucket, Time, Time) -> Time,
    ) -> Option<tokio::time::Instant> {
        if self.node.is_none() && self.own.is_none() {
            return None;
        }
        let now = self.clock.now();
        let since = *self.busy.get_or_insert(now);
        let mut at = now;
        if let Some(node) = &self.node {
            let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
            at = question(&mut node, now, since);
        }
        if let Some(own) = &mut self.own {
            at = at.max(question(own, now, since));
        }
        (at > now).then(|| self.clock.instant(at))
    }

    /// How much to move at a time, at most `most`.
    pub(crate) fn portion(&self, most: usize) -> usize {
        portion(self.rate, most)
    }
}

fn portion(rate: Rate, most: usize) -> usize {
    let bytes = amount(rate, PORTION).map(|bytes| bytes.min(most).next_multiple_of(PORTION_MIN));
    bytes.map_or(most, |bytes| bytes.clamp(PORTION_MIN, most))
}

fn amount(rate: Rate, time: Duration) -> Option<usize> {
    (!rate.is_unlimited()).then(|| (rate.bytes_per_s() * time.as_secs_f64()) as usize)
}

/// The limits of a node.
pub(crate) struct NodeLimits {
    config: crate::Limits,
    outgoing: Option<Arc<Mutex<Bucket>>>,
    incoming: Option<Arc<Mutex<Bucket>>>,
    pub(crate) clock: Clock,
}

impl NodeLimits {
    pub(crate) fn new(config: crate::Limits) -> Self {
        let shared =
            |rate: Rate| (!rate.is_unlimited()).then(|| Arc::new(Mutex::new(Bucket::new(rate))));
        let (outgoing, incoming) = (shared(config.outgoing), shared(config.incoming));
        Self {
            config,
            outgoing,
            incoming,
            clock: Clock::start(),
        }
    }

    pub(crate) fn outgoing(&self) -> Limiter {
        self.limiter(&self.outgoing, self.config.outgoing)
    }

    pub(crate) fn incoming(&self) -> Limiter {
        self.limiter(&self.incoming, self.config.incoming)
    }

    fn limiter(&self, node: &Option<Arc<Mutex<Bucket>>>, rate: Rate) -> Limiter {
        let own = self.config.per_connection;
        Limiter {
            node: node.clone(),
            own: (!own.is_unlimited()).then(|| Bucket::new(own)),
            clock: self.clock,
            rate: least(rate, own),
            busy: None,
        }
    }

    /// Sets the options of a socket that must be set before it is connected or listens. What
    /// cannot be set leaves the system's default, which works too.
    pub(crate) fn shape_early(&self, socket: SockRef<'_>) {
        let incoming = least(self.config.incoming, self.config.per_connection);
        if let Some(size) = amount(incoming, KERNEL_BUFFER) {
            let _ = socket.set_recv_buffer_size(size.max(KERNEL_BUFFER_MIN));
        }
    }

    /// Sets the options of a connected socket.
    pub(crate) fn shape(&self, socket: SockRef<'_>) {
        let outgoing = least(self.config.outgoing, self.config.per_connection);
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_user_timeout(Some(USER_TIMEOUT));
        let _ = socket.set_tcp_notsent_lowat(Portion::start().unsent());
        if let Some(size) = amount(outgoing, KERNEL_BUFFER) {
            let _ = socket.set_send_buffer_size(size.max(KERNEL_BUFFER_MIN));
            let pace = (outgoing.bytes_per_s() * PACING) as u64;
            let _ = outpour_system::pacing::set_max_pacing_rate(&*socket, pace.max(1));
        }
    }
}

fn least(a: Rate, b: Rate) -> Rate {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_follow_the_rate() {
        let rate = |bytes_per_s| Rate::from_bytes_per_s(bytes_per_s).unwrap_or_default();
        assert_eq!(portion(Rate::UNLIMITED, 65_536), 65_536);
        assert_eq!(portion(rate(1e9), 65_536), 65_536);
        assert_eq!(portion(rate(1e300), 65_536), 65_536);
        assert_eq!(portion(rate(1.875e6), 65_536), 16_384);
        assert_eq!(portion(rate(1.0), 65_536), PORTION_MIN);
        assert_eq!(portion(Rate::ZERO, 65_536), PORTION_MIN);
    }
}
