//! Memory for blocks, packets and messages that are under way, and who holds it.
//!
//! A peer decides how fast it sends and reads, so it decides how long it holds memory. Three bounds keep
//! that from becoming the loss of others. Where there are several peers, one has at most half of what its
//! session may hold under way. What comes or goes at less than [`RATE_MIN`] is given up. And while
//! somebody waits for memory, what moves at less than [`RATE_LEAST`] gives way, the slowest first; its
//! peer has to wait before it may begin something again, each time twice as long. Only time spent
//! waiting for the peer counts: what a limit or a disk of this node takes is not its fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use outpour_core::NodeId;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::link::Link;
use crate::LinkError;
use crate::endpoint::{Account, Hold};

/// So long somebody waits for memory before the slowest gives way.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long a peer is waited for before it counts as slow.
const GRACE: Duration = Duration::from_secs(5);
/// What is slower than this gives way while others wait: bytes per second.
const RATE_LEAST: u64 = 32 << 10;
/// So long a peer is waited for before it is given up as too slow even if nobody waits.
const STALL_MAX: Duration = Duration::from_secs(30);
/// What is slower than this, in bytes per second, is given up.
const RATE_MIN: u64 = 2 << 10;
/// How long a peer that gave way begins nothing, the first time and at most.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(60);

const _: () = assert!(RATE_MIN < RATE_LEAST);
const _: () = assert!(GRACE.as_millis() < STALL_MAX.as_millis());

/// How long one end of a connection has waited for its peer, in all.
#[derive(Default)]
pub(crate) struct Waited(Mutex<(Duration, Option<Instant>)>);

impl Waited {
    pub(crate) fn begin(&self, now: Instant) {
        let mut waited = self.lock();
        debug_assert!(waited.1.is_none(), "it waits already");
        waited.1 = Some(now);
    }

    pub(crate) fn end(&self, now: Instant) {
        let mut waited = self.lock();
        if let Some(since) = waited.1.take() {
            waited.0 += now.saturating_duration_since(since);
        }
    }

    fn so_far(&self, now: Instant) -> Duration {
        let (total, since) = *self.lock();
        total + since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn lock(&self) -> MutexGuard<'_, (Duration, Option<Instant>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a peer had to give way, and until when it begins nothing.
#[derive(Default)]
pub(crate) struct Penalty(Mutex<(u32, Option<Instant>)>);

impl Penalty {
    fn add(&self, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = PAUSE_MIN
            .saturating_mul(1 << state.0.min(16))
            .min(PAUSE_MAX);
        *state = (state.0.saturating_add(1), Some(now + pause));
    }

    /// When it is over, if it is not.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.filter(|until| *until > now)
    }
}

/// What is under way in one direction of a session.
pub(crate) struct Holders {
    memory: Arc<Account>,
    state: Mutex<State<Weak<Link>>>,
    /// Told when a peer has less under way.
    freed: Notify,
}

/// Which peer has how much under way, and how it moves. `L` is what is to be closed.
struct State<L> {
    last: u64,
    moving: BTreeMap<u64, Moving<L>>,
    by_peer: BTreeMap<NodeId, usize>,
    /// Who was refused a place, and waits for one.
    refused: Vec<L>,
}

struct Moving<L> {
    link: L,
    bytes: u64,
    waited: Arc<Waited>,
    /// How long its connection had waited when it began.
    before: Duration,
}

impl<L> Moving<L> {
    fn waited(&self, now: Instant) -> Duration {
        self.waited.so_far(now).saturating_sub(self.before)
    }

    fn is_slower(&self, waited: Duration, rate: u64) -> bool {
        u128::from(self.bytes) * 1000 < u128::from(rate) * waited.as_millis()
    }
}

impl<L> State<L> {
    const fn new() -> Self {
        Self {
            last: 0,
            moving: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Notes that a peer is to have so much more under way, if it may.
    fn place(&mut self, peer: NodeId, bytes: usize, (used, limit): (usize, usize)) -> bool {
        let held = self.by_peer.entry(peer).or_default();
        let may = *held == 0 || *held + bytes <= limit / 2 || used + bytes <= limit / 4 * 3;
        *held += if may { bytes } else { 0 };
        may
    }

    fn unplace(&mut self, peer: NodeId, bytes: usize) {
        let held = self.by_peer.remove(&peer).unwrap_or(0);
        debug_assert!(held >= bytes, "more is given back than was taken");
        if held > bytes {
            self.by_peer.insert(peer, held - bytes);
        }
    }

    /// What moves slowest of all that is too slow to go on while others wait.
    fn slowest(&self, now: Instant) -> Option<&L> {
        let slow = self.moving.values().filter_map(|moving| {
            let waited = moving.waited(now);
            let slow = waited >= GRACE && moving.is_slower(waited, RATE_LEAST);
            slow.then(|| (moving.bytes as f64 / waited.as_secs_f64(), &moving.link))
        });
        slow.min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, link)| link)
    }

    /// What is too slow even if nobody waits.
    fn overdue(&self, now: Instant) -> impl Iterator<Item = &L> {
        self.moving.values().filter_map(move |moving| {
            let waited = moving.waited(now);
            let overdue = waited >= STALL_MAX && moving.is_slower(waited, RATE_MIN);
            overdue.then_some(&moving.link)
        })
    }
}

impl Holders {
    pub(crate) fn new(memory: Arc<Account>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            state: Mutex::new(State::new()),
            freed: Notify::new(),
        })
    }

    /// The memory that is held.
    pub(crate) const fn memory(&self) -> &Arc<Account> {
        &self.memory
    }

    /// Takes memory for what a peer begins; waits while the peer has to, or has its share, and then for
    /// others. `None` once the session ends.
    pub(crate) async fn take(self: &Arc<Self>, link: &Arc<Link>, bytes: u32) -> Option<Held> {
        if let Some(until) = link.peering.penalty.until(Instant::now()) {
            sleep_until(until).await;
        }
        let place = self.wait_for_place(link, bytes).await;
        if let Some(memory) = self.memory.try_take(bytes) {
            return Some(place.hold(memory));
        }
        let taking = self.memory.take(bytes);
        tokio::pin!(taking);
        loop {
            tokio::select! {
                memory = &mut taking => return Some(place.hold(memory?)),
                () = sleep(PATIENCE) => self.press(),
            }
        }
    }

    async fn wait_for_place(self: &Arc<Self>, link: &Arc<Link>, bytes: u32) -> Place {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // What is freed from here on is noticed.
            freed.as_mut().enable();
            if let Some(place) = self.place(link, bytes) {
                return place;
            }
            freed.await;
        }
    }

    /// A place for what a peer begins, if it may have that much under way.
    pub(crate) fn place(self: &Arc<Self>, link: &Arc<Link>, bytes: u32) -> Option<Place> {
        let room = if link.session.many_links() {
            self.memory.used_and_limit()
        } else {
            (0, usize::MAX)
        };
        let bytes = bytes as usize;
        let placed = self.lock().place(link.peer, bytes, room);
        placed.then(|| Place {
            holders: self.clone(),
            link: Arc::downgrade(link),
            peer: link.peer,
            bytes,
        })
    }

    /// Takes memory with a place for it if both are to be had now; `spare` leaves half to others.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        link: &Arc<Link>,
        bytes: u32,
        spare: bool,
    ) -> Option<Held> {
        let place = self.place_or_wake(link, bytes)?;
        let memory = if spare {
            self.memory.try_take_spare(bytes)?
        } else {
            self.memory.try_take(bytes)?
        };
        Some(place.hold(memory))
    }

    /// As [`Self::place`]; wakes the connections of the link once there may be one.
    pub(crate) fn place_or_wake(self: &Arc<Self>, link: &Arc<Link>, bytes: u32) -> Option<Place> {
        let place = self.place(link, bytes);
        if place.is_none() {
            let mut state = self.lock();
            let known = |other: &Weak<Link>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(link));
            if !state.refused.iter().any(known) {
                state.refused.push(Arc::downgrade(link));
            }
        }
        place
    }

    /// Somebody has waited for memory: the slowest that holds some gives way.
    pub(crate) fn press(&self) {
        let now = Instant::now();
        let slowest = self.lock().slowest(now).and_then(Weak::upgrade);
        let Some(link) = slowest else { return };
        link.peering.penalty.add(now);
        let why = "it is too slow while others wait for memory";
        link.close(LinkError::Network(why.into()));
    }

    /// Gives up what is slower than anything may be.
    pub(crate) fn give_up_overdue(&self) {
        let state = self.lock();
        let overdue = state.overdue(Instant::now()).filter_map(Weak::upgrade);
        let links: Vec<Arc<Link>> = overdue.collect();
        drop(state);
        for link in links {
            let why = format!("it moved less than {RATE_MIN} bytes in a second");
            link.close(LinkError::Network(why));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<Weak<Link>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to have something under way, before there is memory for it.
pub(crate) struct Place {
    holders: Arc<Holders>,
    link: Weak<Link>,
    peer: NodeId,
    bytes: usize,
}

impl Place {
    pub(crate) fn hold(self, memory: Hold) -> Held {
        Held {
            memory: Some(memory),
            moving: None,
            place: self,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.holders.lock();
        state.unplace(self.peer, self.bytes);
        let refused = std::mem::take(&mut state.refused);
        drop(state);
        self.holders.freed.notify_waiters();
        for link in refused.iter().filter_map(Weak::upgrade) {
            link.trunk.wake_all();
        }
    }
}

/// Memory that was asked for, with the place that it is for.
pub(crate) struct Asked {
    place: Place,
    memory: oneshot::Receiver<Hold>,
    since: Instant,
}

impl Asked {
    /// Asks for memory; `wake` is told when it is here.
    pub(crate) fn new(place: Place, wake: Arc<Notify>) -> Self {
        let holders = &place.holders;
        let memory = holders.memory.ask(place.bytes as u32, Some(wake));
        Self {
            place,
            memory,
            since: Instant::now(),
        }
    }

    /// The memory if it is here.
    ///
    /// # Errors
    /// Itself if it is not; who has waited long has the slowest give way.
    pub(crate) fn given(mut self) -> Result<Held, Self> {
        match self.memory.try_recv() {
            Ok(memory) => Ok(self.place.hold(memory)),
            Err(_) => {
                if self.since.elapsed() >= PATIENCE {
                    self.place.holders.press();
                }
                Err(self)
            }
        }
    }
}

/// Memory of what is under way.
pub(crate) struct Held {
    memory: Option<Hold>,
    /// Its number once it moves.
    moving: Option<u64>,
    place: Place,
}

impl Held {
    /// From now on the peer decides how fast it moves; `waited` is how long the connection has waited
    /// for it.
    pub(crate) fn begin(&mut self, waited: &Arc<Waited>) {
        debug_assert!(self.moving.is_none(), "it moves already");
        let before = waited.so_far(Instant::now());
        let mut state = self.place.holders.lock();
        state.last += 1;
        let number = state.last;
        let moving = Moving {
            link: self.place.link.clone(),
            bytes: 0,
            waited: waited.clone(),
            before,
        };
        state.moving.insert(number, moving);
        self.moving = Some(number);
    }

    /// So many bytes have come or gone.
    pub(crate) fn moved(&self, bytes: usize) {
        let mut state = self.place.holders.lock();
        let moving = self.moving.and_then(|number| state.moving.get_mut(&number));
        debug_assert!(moving.is_some(), "it has not begun to move");
        if let Some(moving) = moving {
            moving.bytes += bytes as u64;
        }
    }

    /// Whether it is enough for so many bytes.
    pub(crate) fn suffices(&self, bytes: u32) -> bool {
        let holders = &self.place.holders;
        let memory = self.memory.as_ref();
        memory.is_some_and(|memory| holders.memory.suffices(memory, bytes))
    }

    /// It is all here: what becomes of it does not depend on the peer any more.
    pub(crate) fn complete(mut self) -> Option<Hold> {
        self.memory.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(number) = self.moving {
            self.place.holders.lock().moving.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins what is to be closed under a name.
    fn begin(state: &mut State<&'static str>, link: &'static str, bytes: u64) -> Arc<Waited> {
        let waited = Arc::<Waited>::default();
        state.last += 1;
        let moving = Moving {
            link,
            bytes,
            waited: waited.clone(),
            before: Duration::ZERO,
        };
        state.moving.insert(state.last, moving);
        waited
    }

    #[test]
    fn the_slowest_gives_way_and_nobody_who_is_fast_or_new() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut state = State::new();
        let slow = begin(&mut state, "slow", 100_000);
        let slowest = begin(&mut state, "slowest", 50_000);
        let fast = begin(&mut state, "fast", 10 << 20);
        for waited in [&slow, &slowest, &fast] {
            waited.begin(start);
        }
        assert_eq!(state.slowest(after(4)), None, "all are new");
        assert_eq!(state.slowest(after(6)), Some(&"slowest"));
        slowest.end(after(6));
        // It waits no more, so its rate stays; the other one's falls below.
        assert_eq!(state.slowest(after(15)), Some(&"slow"));
        assert_eq!(state.overdue(after(29)).count(), 0);
        assert_eq!(state.overdue(after(60)).collect::<Vec<_>>(), [&"slow"]);
    }

    #[test]
    fn time_before_the_piece_or_with_ourselves_is_not_the_peer_s() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut state = State::new();
        let waited = begin(&mut state, "peer", 10);
        // The piece begins when the connection has waited for 100 s already.
        waited.begin(start);
        waited.end(after(100));
        for moving in state.moving.values_mut() {
            moving.before = Duration::from_secs(100);
        }
        assert_eq!(state.slowest(after(300)), None, "this node took the time");
        waited.begin(after(300));
        assert_eq!(state.slowest(after(304)), None);
        assert_eq!(state.slowest(after(305)), Some(&"peer"));
    }

    #[test]
    fn a_peer_has_half_or_what_nobody_else_needs_and_always_one_piece() {
        let mut state: State<()> = State::new();
        let (a, b) = (NodeId(1), NodeId(2));
        assert!(state.place(a, 80, (0, 100)), "one piece however large");
        assert!(!state.place(a, 1, (80, 100)), "more than half");
        assert!(state.place(b, 50, (80, 100)), "one piece of another");
        state.unplace(a, 80);
        assert!(state.place(a, 25, (50, 100)) && state.place(a, 25, (75, 100)));
        assert!(!state.place(a, 1, (100, 100)));
        assert!(state.place(a, 1, (60, 100)), "nobody needs it");
        state.unplace(a, 51);
        state.unplace(b, 50);
        assert!(state.by_peer.is_empty(), "peers are forgotten");
    }

    #[test]
    fn who_gives_way_again_waits_longer_each_time() {
        let (penalty, now) = (Penalty::default(), Instant::now());
        assert_eq!(penalty.until(now), None);
        for seconds in [5, 10, 20, 40, 60, 60] {
            penalty.add(now);
            assert_eq!(penalty.until(now), Some(now + Duration::from_secs(seconds)));
        }
        assert_eq!(penalty.until(now + PAUSE_MAX), None);
    }
}
