//! Rate limits of a host, its sessions, peers and connections, and how they shape sockets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use outpour_core::{Rate, Time};
use socket2::SockRef;
use tokio::sync::{Notify, watch};

use super::portion::Portion;
use crate::Limits;
use crate::bucket::Bucket;
use crate::shares::Shares;

/// At a limited rate, data moves in portions of about this long, so that connections and sessions
/// take turns often and pauses are short.
const PORTION: Duration = Duration::from_millis(8);
const PORTION_MIN: usize = 4 << 10;
/// A limited socket's kernel buffers hold this much of the rate: a path of that delay is filled,
/// and a peer that stopped reading swallows no more.
const KERNEL_BUFFER: Duration = Duration::from_millis(250);
const KERNEL_BUFFER_MIN: usize = 64 << 10;
/// What the kernel's buffers may grow to where there was a limit and is none any more; once they
/// were set, the kernel does not choose for itself again.
const KERNEL_BUFFER_MAX: usize = 4 << 20;
/// The kernel paces a limited socket at this multiple of the rate: bursts are spread, and what it
/// adds to the delay of a portion stays small. At 1.25 a chain of 20 took 2 % longer.
const PACING: f64 = 4.0;
/// The kernel never paces a socket more slowly, in bytes per second: once it has sent a segment it
/// waits for as long as that takes at the rate of that moment, also if the limit is raised
/// meanwhile, and nothing passes until then, not even a sign of life. So what its buffer holds at
/// least is gone in [`KERNEL_BUFFER`].
const PACE_MIN: u64 = KERNEL_BUFFER_MIN as u64 * 1000 / KERNEL_BUFFER.as_millis() as u64;
/// Data unacknowledged for so long means that the path is dead, whatever the peer is.
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the pacer sleeps if nothing waits.
const IDLE: Duration = Duration::from_secs(3600);

const _: () = assert!(KERNEL_BUFFER_MIN <= KERNEL_BUFFER_MAX);
// The kernel takes what passes at once, and does not hold it back below the limit.
const _: () = assert!(PORTION_MIN <= KERNEL_BUFFER_MIN);
const _: () = assert!(PACING > 1.0);

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

/// A bucket that several connections draw from.
pub(crate) struct SharedBucket(Mutex<Bucket>);

impl SharedBucket {
    pub(crate) fn new(rate: Rate) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Bucket::new(rate))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rate(&self) -> Rate {
        self.lock().rate()
    }
}

/// A request for the host's rate that waits for its turn.
pub(crate) struct Ticket {
    granted: AtomicBool,
    wake: Arc<Notify>,
}

impl Ticket {
    pub(crate) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }
}

/// The host's limit in one direction, shared by sessions.
pub(crate) struct Direction {
    shares: Mutex<Shares<Weak<Ticket>>>,
    /// Wakes the pacer.
    wake: Notify,
    clock: Clock,
}

impl Direction {
    fn new(rate: Rate, clock: Clock) -> Self {
        Self {
            shares: Mutex::new(Shares::new(rate)),
            wake: Notify::new(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shares<Weak<Ticket>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a session's turn; `None` if there is nothing to wait for.
    pub(crate) fn ask(
        &self,
        since: Time,
        session: u64,
        bytes: usize,
        wake: &Arc<Notify>,
    ) -> Option<Arc<Ticket>> {
        let mut shares = self.lock();
        if shares.rate().is_unlimited() {
            return None;
        }
        let ticket = Arc::new(Ticket {
            granted: AtomicBool::new(false),
            wake: wake.clone(),
        });
        let weak = Arc::downgrade(&ticket);
        let now = self.clock.now();
        let passed = shares.ask(now, since, session, bytes, weak);
        if passed.is_some() {
            return None;
        }
        // A late request finds what has become due, and does not wait for the pacer.
        let (granted, _) = shares.grant(now, |ticket| ticket.strong_count() > 0);
        drop(shares);
        Self::tell(&granted);
        self.wake.notify_one();
        (!ticket.is_granted()).then_some(ticket)
    }

    fn tell(granted: &[Weak<Ticket>]) {
        for ticket in granted.iter().filter_map(Weak::upgrade) {
            debug_assert!(!ticket.is_granted(), "granted twice");
            ticket.granted.store(true, Ordering::Release);
            ticket.wake.notify_one();
        }
    }

    /// How much of a portion a session may ask for at a time. However late all of them come, one
    /// request of each passes then, so these are in the ratio of the weights, too.
    pub(crate) fn portion(&self, weight: u32, bytes: usize) -> usize {
        debug_assert!(bytes > 0);
        debug_assert!(weight > 0);
        let shares = self.lock();
        if shares.rate().is_unlimited() {
            return bytes;
        }
        let heaviest = shares.heaviest().max(weight) as usize;
        let part = (bytes * weight as usize / heaviest).max(PORTION_MIN.min(bytes));
        debug_assert!(part > 0, "nothing would ever pass");
        debug_assert!(part <= bytes);
        part
    }

    /// Counts what passes without having asked.
    pub(crate) fn charge(&self, since: Time, session: u64, bytes: usize) {
        let now = self.clock.now();
        self.lock().charge(now, since, session, bytes);
    }

    pub(crate) fn set_flow(&self, session: u64, weight: u32) {
        debug_assert_ne!(session, 0, "that is the number of no session");
        self.lock().set_flow(session, weight);
    }

    pub(crate) fn remove_flow(&self, session: u64) {
        self.lock().remove_flow(session);
    }

    fn set_rate(&self, rate: Rate) {
        let now = self.clock.now();
        self.lock().set_rate(now, rate);
        self.wake.notify_one();
    }

    /// Gives turns to waiting requests, for as long as the endpoint lives.
    pub(crate) async fn pace(&self) {
        loop {
            let now = self.clock.now();
            let (granted, next) = self.lock().grant(now, |ticket| ticket.strong_count() > 0);
            Self::tell(&granted);
            let idle = || tokio::time::Instant::now() + IDLE;
            let next = next.map_or_else(idle, |next| self.clock.instant(next));
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.wake.notified() => {}
            }
        }
    }
}

/// The limits of a host, and word of every change of a limit here or of a session.
pub(crate) struct HostLimits {
    config: Mutex<Limits>,
    pub(crate) outgoing: Direction,
    pub(crate) incoming: Direction,
    pub(crate) clock: Clock,
    changed: watch::Sender<u64>,
}

impl HostLimits {
    pub(crate) fn new(config: Limits) -> Self {
        let clock = Clock::start();
        Self {
            outgoing: Direction::new(config.outgoing, clock),
            incoming: Direction::new(config.incoming, clock),
            config: Mutex::new(config),
            clock,
            changed: watch::Sender::new(0),
        }
    }

    pub(crate) fn get(&self) -> Limits {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, limits: Limits) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        self.outgoing.set_rate(limits.outgoing);
        self.incoming.set_rate(limits.incoming);
        self.note_change();
    }

    /// Wakes all that wait for a limit.
    pub(crate) fn note_change(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What one connection may move out and in, where its sessions together may move so much.
    pub(crate) fn of_connection(&self, outgoing: Rate, incoming: Rate) -> (Rate, Rate) {
        let limits = self.get();
        let own = limits.per_connection;
        (
            limits.outgoing.min(own).min(outgoing),
            limits.incoming.min(own).min(incoming),
        )
    }
}

/// What a session's data may be held back by on one connection.
pub(crate) struct Gate {
    pending: Pending,
    /// Since when there was always something to pass.
    busy: Option<Time>,
}

enum Pending {
    Nothing,
    /// The session's, peer's and connection's limits let it pass from then on, as they were at this
    /// change.
    Own {
        at: Time,
        bytes: usize,
        change: u64,
    },
    /// It waits for the session's turn on this host.
    Turn {
        ticket: Arc<Ticket>,
        bytes: usize,
    },
}

/// Whether data may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// So many bytes of payload may pass.
    Now(usize),
    /// Not before then.
    At(tokio::time::Instant),
    /// When its turn comes; the connection is woken.
    Turn,
}

/// What a gate asks.
pub(crate) struct Way<'a> {
    pub(crate) host: &'a Direction,
    pub(crate) session: u64,
    /// The session's limit and the peer's.
    pub(crate) shared: [&'a SharedBucket; 2],
    pub(crate) connection: &'a mut Bucket,
    pub(crate) clock: Clock,
    /// Number of the last change of a limit.
    pub(crate) change: u64,
    pub(crate) wake: &'a Arc<Notify>,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self {
            pending: Pending::Nothing,
            busy: None,
        }
    }

    fn check(&self) {
        if let Pending::Own { bytes, .. } | Pending::Turn { bytes, .. } = self.pending {
            debug_assert!(bytes > 0);
            debug_assert!(self.busy.is_some(), "it waits with nothing to pass");
        }
    }

    /// Whether `bytes` of payload, which are `wire` bytes on the wire, may pass. What was asked for
    /// once is what passes in the end.
    pub(crate) fn pass(&mut self, way: &mut Way<'_>, bytes: usize, wire: usize) -> Passage {
        debug_assert!(bytes > 0);
        debug_assert!(wire > bytes, "what passes has headers");
        self.check();
        let now = way.clock.now();
        let since = *self.busy.get_or_insert(now);
        debug_assert!(since <= now);
        if let Pending::Own { change, .. } = self.pending
            && change != way.change
        {
            debug_assert!(change < way.change, "limits change in order");
            self.pending = Pending::Nothing;
        }
        if matches!(self.pending, Pending::Nothing) {
            let at = way
                .shared
                .map(|bucket| bucket.lock().reserve(now, since, wire));
            let at = at.into_iter().max().unwrap_or(now);
            let at = at.max(way.connection.reserve(now, since, wire));
            let change = way.change;
            self.pending = Pending::Own { at, bytes, change };
        }
        if let Pending::Own { at, bytes, .. } = self.pending {
            if at > now {
                return Passage::At(way.clock.instant(at));
            }
            let turn = way.host.ask(since, way.session, wire, way.wake);
            let Some(ticket) = turn else {
                self.pending = Pending::Nothing;
                return Passage::Now(bytes);
            };
            self.pending = Pending::Turn { ticket, bytes };
        }
        match &self.pending {
            Pending::Turn { ticket, bytes } if ticket.is_granted() => {
                let bytes = *bytes;
                self.pending = Pending::Nothing;
                Passage::Now(bytes)
            }
            _ => Passage::Turn,
        }
    }

    /// Counts bytes that pass without having asked.
    pub(crate) fn charge(&mut self, way: &mut Way<'_>, wire: usize) {
        debug_assert!(wire > 0);
        let now = way.clock.now();
        let since = self.busy.unwrap_or(now);
        for bucket in way.shared {
            bucket.lock().charge(now, since, wire);
        }
        way.connection.charge(now, since, wire);
        way.host.charge(since, way.session, wire);
    }

    /// There is nothing to pass for now: from here on no time is made up for.
    pub(crate) fn rest(&mut self) {
        self.busy = None;
        self.pending = Pending::Nothing;
    }
}

/// How much to move at a time at a rate, at most `most`.
pub(crate) fn portion(rate: Rate, most: usize) -> usize {
    debug_assert!(most >= PORTION_MIN);
    let bytes = amount(rate, PORTION).map(|bytes| bytes.min(most).next_multiple_of(PORTION_MIN));
    bytes.map_or(most, |bytes| bytes.clamp(PORTION_MIN, most))
}

fn amount(rate: Rate, time: Duration) -> Option<usize> {
    (!rate.is_unlimited()).then(|| (rate.bytes_per_s() * time.as_secs_f64()) as usize)
}

/// Sets the options of a socket that must be set before it is connected or listens. What cannot be
/// set leaves the system's default, which works too.
pub(crate) fn shape_early(socket: SockRef<'_>, incoming: Rate) {
    if let Some(size) = amount(incoming, KERNEL_BUFFER) {
        let _ = socket.set_recv_buffer_size(size.max(KERNEL_BUFFER_MIN));
    }
}

/// Sets the options of a connected socket that do not depend on rates.
pub(crate) fn prepare(socket: SockRef<'_>) {
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_user_timeout(Some(USER_TIMEOUT));
    let _ = socket.set_tcp_notsent_lowat(Portion::start().unsent());
}

/// Has the kernel hold what these rates need, and pace what goes out. `was` is what it was told
/// last, unlimited at first.
pub(crate) fn shape(socket: SockRef<'_>, was: (Rate, Rate), rates: (Rate, Rate)) {
    let buffer = |was: Rate, rate: Rate| match amount(rate, KERNEL_BUFFER) {
        Some(size) if was != rate => Some(size.max(KERNEL_BUFFER_MIN)),
        None if !was.is_unlimited() => Some(KERNEL_BUFFER_MAX),
        _ => None,
    };
    if let Some(size) = buffer(was.0, rates.0) {
        let _ = socket.set_send_buffer_size(size);
        let pace = match rates.0.is_unlimited() {
            true => u64::MAX,
            false => ((rates.0.bytes_per_s() * PACING) as u64).max(PACE_MIN),
        };
        let _ = outpour_system::pacing::set_max_pacing_rate(&*socket, pace);
    }
    if let Some(size) = buffer(was.1, rates.1) {
        let _ = socket.set_recv_buffer_size(size);
    }
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

    /// What a gate says to a portion just after another one, if the host, the session, the peer and the
    /// connection have these limits; the first is counted without having asked, or has.
    fn second(limits: [Rate; 4], charged: bool) -> Passage {
        const PORTION: usize = 1_000_000;
        let [host, session, peer, connection] = limits;
        let clock = Clock::start();
        let host = Direction::new(host, clock);
        host.set_flow(1, 4);
        let shared = [session, peer].map(SharedBucket::new);
        let wake = Arc::new(Notify::new());
        let mut connection = Bucket::new(connection);
        let mut way = Way {
            host: &host,
            session: 1,
            shared: [&shared[0], &shared[1]],
            connection: &mut connection,
            clock,
            change: 0,
            wake: &wake,
        };
        let mut gate = Gate::new();
        match charged {
            true => gate.charge(&mut way, PORTION),
            false => assert_eq!(
                gate.pass(&mut way, PORTION, PORTION + 1),
                Passage::Now(PORTION)
            ),
        }
        gate.pass(&mut way, PORTION, PORTION + 1)
    }

    #[test]
    fn each_limit_holds_whatever_the_others_are() {
        let rate = |bytes_per_s| Rate::from_bytes_per_s(bytes_per_s).unwrap_or_default();
        for wide in [Rate::UNLIMITED, rate(1e9)] {
            for charged in [true, false] {
                assert_eq!(second([wide; 4], charged), Passage::Now(1_000_000));
                for narrow in 0..4 {
                    let before = Instant::now();
                    let mut limits = [wide; 4];
                    limits[narrow] = rate(1e4);
                    let passage = second(limits, charged);
                    match passage {
                        // Of the host, which has its own queue.
                        Passage::Turn if narrow == 0 => {}
                        Passage::At(at) if narrow > 0 => {
                            let wait = at.into_std() - before;
                            assert!(wait > Duration::from_secs(90), "{wait:?} of limit {narrow}");
                        }
                        _ => panic!("{passage:?} by limit {narrow}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_socket_is_shaped_by_the_least_limit() {
        let rate = |mbyte: f64| Rate::from_bytes_per_s(mbyte * 1e6).unwrap_or_default();
        let of = |host: (f64, f64), own: f64, sessions: (f64, f64)| {
            let limits = HostLimits::new(Limits {
                outgoing: rate(host.0),
                incoming: rate(host.1),
                per_connection: rate(own),
            });
            limits.of_connection(rate(sessions.0), rate(sessions.1))
        };
        for (least, limits) in [
            ((1.0, 2.0), ((1.0, 2.0), 3.0, (4.0, 5.0))),
            ((3.0, 3.0), ((4.0, 5.0), 3.0, (6.0, 7.0))),
            ((1.0, 2.0), ((3.0, 4.0), 5.0, (1.0, 2.0))),
        ] {
            let (host, own, sessions) = limits;
            assert_eq!(of(host, own, sessions), (rate(least.0), rate(least.1)));
        }
    }
}
