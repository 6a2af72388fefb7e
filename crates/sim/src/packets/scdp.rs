//! A sender and a receiver of SCDP, packet by packet: coded symbols from several sources that the receiver
//! asks for one by one [Alasmar, Parisis and Crowcroft 2019].
//!
//! As described there: every source begins with a window of symbols on its own, and sends one more for
//! each pull. The receiver owes a pull for every symbol that comes, whole or with its payload cut off by a
//! full port ([`Load::trim`](outpour_packets::Load::trim)), and sends pulls of all sessions of its host
//! at the rate of its link, so that what it asked for arrives without a queue. Symbols are systematic: a
//! source sends its part of the source symbols of a block before any repair symbol, so that nothing has to
//! be decoded when nothing was lost. A session sinks to lower priorities the more of it has arrived (multi-level
//! feedback queueing). Headers, pulls and requests have the highest.
//!
//! Left open there and decided here: a pull names the block that a symbol is to be of, the first that
//! misses more than is on its way; and a session that has neither heard nor asked for anything for a while
//! starts again: it takes what it asked for as lost, and asks every source that it has heard since the last
//! time, or all if none, for a window.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outpour_core::Time;
use outpour_push::{ChanceDecoder, Decoder as _, Layout, SYMBOL_NUMBERS};

/// So many blocks are asked for at a time.
const AHEAD_MAX: u32 = 64;
/// Waiting for a session doubles so often at most.
const BACKOFF_MAX: u32 = 10;

/// After so many symbols a session sinks to the next priority [PPUSH §V-B].
pub const THRESHOLDS: [u64; 4] = [20, 204, 2048, 20480];
/// How many queues a port needs: one for headers, pulls and requests, and one for each priority.
pub const CLASSES: usize = THRESHOLDS.len() + 2;

/// The priority of a session of which so many symbols have passed, from 0.
fn level(symbols: u64, thresholds: &[u64]) -> u8 {
    thresholds.iter().filter(|it| symbols >= **it).count() as u8
}

/// A symbol, or its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Which session it is of.
    pub session: u32,
    /// Which of the session's sources sent it.
    pub seat: u32,
    /// The block.
    pub block: u32,
    /// Which symbol of the block; those below its number of symbols are source symbols.
    pub symbol: u32,
    /// Its priority, from 0.
    pub level: u8,
}

/// Asks a source to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which session is meant.
    pub session: u32,
    /// Which of its sources is asked.
    pub seat: u32,
}

/// Asks a source for one symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Which session is meant.
    pub session: u32,
    /// Which of its sources is asked.
    pub seat: u32,
    /// What the symbol is to be of.
    pub block: u32,
    /// All blocks before are decoded.
    pub floor: u32,
    /// The priority that it is to have.
    pub level: u8,
}

/// What both ends of a session know.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Its number.
    pub id: u32,
    /// How its object is cut.
    pub layout: Layout,
    /// How many sources it has, at least one.
    pub seats: u32,
    /// How many symbols each source sends on its own.
    pub window: u32,
}

impl Session {
    /// What a source sends on its own: of each block its part of the source symbols, block after block.
    fn opening(&self, seat: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let Self {
            layout,
            seats,
            mut window,
            ..
        } = *self;
        let blocks = 0..layout.blocks().min(AHEAD_MAX);
        blocks.map_while(move |block| {
            let part = layout.symbols_of(block).saturating_sub(seat);
            let count = part.div_ceil(seats).min(window);
            let has_room = window > 0;
            window -= count;
            has_room.then_some((block, count))
        })
    }
}

/// One source of a session.
#[derive(Debug)]
pub struct Sender {
    session: Session,
    seat: u32,
    thresholds: Vec<u64>,
    /// How many symbols of each block were sent.
    sent: BTreeMap<u32, u32>,
    /// What is to be sent: block and priority.
    asked: VecDeque<(u32, u8)>,
    has_begun: bool,
}

impl Sender {
    /// A source that was not asked yet; its priority sinks at these numbers of symbols.
    pub fn new(session: Session, seat: u32, thresholds: &[u64]) -> Self {
        debug_assert!(seat < session.seats);
        Self {
            session,
            seat,
            thresholds: thresholds.to_vec(),
            sent: BTreeMap::new(),
            asked: VecDeque::new(),
            has_begun: false,
        }
    }

    /// The receiver asks it to begin; a second time changes nothing.
    pub fn handle_request(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut before = 0;
        for (block, count) in self.session.opening(self.seat) {
            for _ in 0..count {
                self.asked
                    .push_back((block, level(before, &self.thresholds)));
                before += 1;
            }
        }
    }

    /// The receiver asks for a symbol; for a block that there is not, it gets none.
    pub fn handle_pull(&mut self, pull: &Pull) {
        self.has_begun = true;
        while let Some(entry) = self.sent.first_entry()
            && *entry.key() < pull.floor
        {
            entry.remove();
        }
        if pull.block < self.session.layout.blocks() && pull.block >= pull.floor {
            self.asked.push_back((pull.block, pull.level));
        }
    }

    /// The next symbol to send.
    pub fn poll_send(&mut self) -> Option<Symbol> {
        let Session { id, seats, .. } = self.session;
        while let Some((block, level)) = self.asked.pop_front() {
            let sent = self.sent.entry(block).or_insert(0);
            let symbol = u64::from(*sent) * u64::from(seats) + u64::from(self.seat);
            if symbol >= SYMBOL_NUMBERS.into() {
                continue;
            }
            *sent += 1;
            return Some(Symbol {
                session: id,
                seat: self.seat,
                block,
                symbol: symbol as u32,
                level,
            });
        }
        None
    }
}

/// What a receiver wants sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// To a source.
    Request(Request),
    /// To a source.
    Pull(Pull),
}

/// All sessions of one host.
#[derive(Debug)]
pub struct Receiver {
    /// How far pulls are apart: the time of a packet on the host's link.
    interval: Duration,
    thresholds: Vec<u64>,
    /// The first silence after which a session starts again.
    rto: Duration,
    next_pull: Time,
    /// Those under way.
    sessions: BTreeMap<u32, Fetch>,
    /// Of those that are complete, when they were, and what each source has delivered.
    complete: BTreeMap<u32, (Time, Vec<u64>)>,
    requests: VecDeque<Request>,
    /// Pulls that are owed, session and seat, by priority; of equals, first come first served.
    owed: Vec<VecDeque<(u32, u32)>>,
    timeouts: u64,
}

/// A session at its receiver.
#[derive(Debug)]
struct Fetch {
    session: Session,
    decoder: ChanceDecoder,
    floor: u32,
    open: VecDeque<Block>,
    received: u64,
    delivered: Vec<u64>,
    /// Who was heard since the timer ran out.
    heard: Vec<bool>,
    /// How many pulls wait for their turn; as long as there are any, its silence says nothing.
    owed: u32,
    /// When something was heard or asked for, and how often the timer ran out since something was heard.
    silent_since: Time,
    backoff: u32,
    /// How often it has started again.
    restarts: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    asked: u32,
    got: u32,
    repairs: u32,
    /// How many symbols it takes, as far as is known.
    needs: u32,
    is_decoded: bool,
}

impl Receiver {
    /// A host whose link carries a packet in this time; a session starts again after a silence of `rto`.
    pub fn new(interval: Duration, thresholds: &[u64], rto: Duration) -> Self {
        Self {
            interval,
            thresholds: thresholds.to_vec(),
            rto,
            next_pull: Time::ZERO,
            sessions: BTreeMap::new(),
            complete: BTreeMap::new(),
            requests: VecDeque::new(),
            owed: vec![VecDeque::new(); thresholds.len() + 1],
            timeouts: 0,
        }
    }

    /// A session begins; whether repair symbols do is drawn from `seed`.
    pub fn begin(&mut self, session: Session, seed: u64, now: Time) {
        let mut decoder = ChanceDecoder::new(seed);
        decoder.begin(&session.layout);
        let mut fetch = Fetch {
            session,
            decoder,
            floor: 0,
            open: VecDeque::new(),
            received: 0,
            delivered: vec![0; session.seats as usize],
            heard: vec![false; session.seats as usize],
            owed: 0,
            silent_since: now,
            backoff: 0,
            restarts: 0,
        };
        for seat in 0..session.seats {
            let id = session.id;
            self.requests.push_back(Request { session: id, seat });
            for (block, count) in session.opening(seat) {
                if let Some(block) = fetch.block(block) {
                    block.asked += count;
                }
            }
        }
        self.sessions.insert(session.id, fetch);
    }

    /// When a session was complete, if it is.
    pub fn done(&self, session: u32) -> Option<Time> {
        self.complete.get(&session).map(|(at, _)| *at)
    }

    /// How many symbols each source of a session has delivered, those left out that came too late.
    pub fn delivered(&self, session: u32) -> &[u64] {
        let under_way = self.sessions.get(&session).map(|it| &it.delivered);
        let complete = || self.complete.get(&session).map(|(_, it)| it);
        under_way.or_else(complete).map_or(&[], |it| it)
    }

    /// How often sessions have started again.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// A symbol arrives, or its header.
    pub fn handle_symbol(&mut self, now: Time, symbol: &Symbol, is_trimmed: bool) {
        let Some(fetch) = self.sessions.get_mut(&symbol.session) else {
            return;
        };
        if symbol.seat >= fetch.session.seats {
            return;
        }
        fetch.heard[symbol.seat as usize] = true;
        (fetch.silent_since, fetch.backoff) = (now, 0);
        fetch.take(symbol, is_trimmed);
        if fetch.floor == fetch.session.layout.blocks() {
            let delivered = std::mem::take(&mut fetch.delivered);
            self.sessions.remove(&symbol.session);
            self.complete.insert(symbol.session, (now, delivered));
            return;
        }
        fetch.owed += 1;
        let level = level(fetch.received, &self.thresholds);
        self.owed[usize::from(level)].push_back((symbol.session, symbol.seat));
    }

    /// The time of [`Receiver::wake_at`] has come; does nothing before.
    pub fn handle_wake(&mut self, now: Time) {
        for (id, fetch) in &mut self.sessions {
            if fetch.silent_at(self.rto).is_none_or(|at| at > now) {
                continue;
            }
            self.timeouts += 1;
            fetch.silent_since = now;
            fetch.backoff = (fetch.backoff + 1).min(BACKOFF_MAX);
            for block in &mut fetch.open {
                block.asked = 0;
            }
            let level = level(fetch.received, &self.thresholds);
            for seat in fetch.again() {
                fetch.owed += 1;
                self.owed[usize::from(level)].push_back((*id, seat));
            }
        }
    }

    /// When to call [`Receiver::handle_wake`] and [`Receiver::poll_send`] although nothing has arrived.
    pub fn wake_at(&self) -> Option<Time> {
        let silent = self
            .sessions
            .values()
            .filter_map(|it| it.silent_at(self.rto));
        let owes = self.owed.iter().any(|it| !it.is_empty());
        silent.chain(owes.then_some(self.next_pull)).min()
    }

    /// What to send now; call it until it returns nothing.
    pub fn poll_send(&mut self, now: Time) -> Option<Output> {
        if let Some(request) = self.requests.pop_front() {
            return Some(Output::Request(request));
        }
        if self.next_pull > now {
            return None;
        }
        for level in 0..self.owed.len() {
            while let Some((id, seat)) = self.owed[level].pop_front() {
                // It may be complete by now.
                let Some(fetch) = self.sessions.get_mut(&id) else {
                    continue;
                };
                fetch.owed -= 1;
                let Some(block) = fetch.want() else {
                    // All that is missing is on its way; what of that is lost will be owed again.
                    continue;
                };
                fetch.silent_since = now;
                self.next_pull = now + self.interval;
                return Some(Output::Pull(Pull {
                    session: id,
                    seat,
                    block,
                    floor: fetch.floor,
                    level: level as u8,
                }));
            }
        }
        None
    }
}

impl Fetch {
    /// When it has been silent for too long, if it asks for nothing until then.
    fn silent_at(&self, rto: Duration) -> Option<Time> {
        (self.owed == 0).then(|| self.silent_since + rto * (1 << self.backoff))
    }

    /// Whom to ask once all that was asked for is taken as lost: a window from each source that was heard, or
    /// what is missing if that is less.
    fn again(&mut self) -> Vec<u32> {
        let all = !self.heard.contains(&true);
        let seats = (0..).zip(&self.heard).filter(|(_, heard)| all || **heard);
        let seats: Vec<u32> = seats.map(|(seat, _)| seat).collect();
        self.heard.fill(false);
        let most = u64::from(self.session.window) * seats.len() as u64;
        let count = self.missing().min(most);
        // In turns, and with another first each time: what is missing may be less than a symbol from each, and the
        // first one dead.
        let first = self.restarts % seats.len().max(1);
        self.restarts += 1;
        let turns = seats.into_iter().cycle().skip(first);
        turns.take(count as usize).collect()
    }

    /// How many symbols are missing at least, up to a bit more than is asked for at a time.
    fn missing(&mut self) -> u64 {
        let blocks = self.floor..self.session.layout.blocks();
        let missing = blocks.take(AHEAD_MAX as usize).filter_map(|at| {
            let block = *self.block(at)?;
            let is_open = !block.is_decoded;
            Some(u64::from(block.needs.saturating_sub(block.got)) * u64::from(is_open))
        });
        missing.sum()
    }

    /// What is known of a block that is not behind the floor, nor too far ahead.
    fn block(&mut self, block: u32) -> Option<&mut Block> {
        let index = block.checked_sub(self.floor).filter(|it| *it < AHEAD_MAX)?;
        if block >= self.session.layout.blocks() {
            return None;
        }
        while self.open.len() <= index as usize {
            let next = self.floor + self.open.len() as u32;
            self.open.push_back(Block {
                needs: self.session.layout.symbols_of(next),
                ..Block::default()
            });
        }
        self.open.get_mut(index as usize)
    }

    fn take(&mut self, symbol: &Symbol, is_trimmed: bool) {
        self.received += u64::from(!is_trimmed);
        let symbols = self.session.layout.symbols_of(symbol.block);
        let Some(block) = self.block(symbol.block) else {
            return;
        };
        block.asked = block.asked.saturating_sub(1);
        if is_trimmed || block.is_decoded {
            return;
        }
        block.got += 1;
        block.repairs += u32::from(symbol.symbol >= symbols);
        let Block { got, repairs, .. } = *block;
        self.delivered[symbol.seat as usize] += 1;
        if got < symbols {
            return;
        }
        // All source symbols need no decoding.
        let is_decoded = repairs == 0 || (self.decoder).add(symbol.block, symbol.symbol, got, &[]);
        if let Some(block) = self.block(symbol.block) {
            block.is_decoded = is_decoded;
            block.needs = got + u32::from(!is_decoded);
        }
        while self.open.front().is_some_and(|it| it.is_decoded) {
            self.open.pop_front();
            self.floor += 1;
        }
    }

    /// The first block that misses more than is on its way; counts as asked for.
    fn want(&mut self) -> Option<u32> {
        for index in 0..AHEAD_MAX {
            let at = self.floor + index;
            let block = self.block(at)?;
            if !block.is_decoded && block.got + block.asked < block.needs {
                block.asked += 1;
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const GAP: Duration = Duration::from_micros(5);
    const RTO: Duration = Duration::from_millis(10);

    fn session(symbols: u64, seats: u32, window: u32) -> Session {
        Session {
            id: 7,
            layout: Layout::new(symbols, 10).unwrap(),
            seats,
            window,
        }
    }

    /// Two ends that answer each other at once, but for what `passes` takes away: 0 nothing, 1 the payload, 2 all.
    fn fetch(
        session: Session,
        mut passes: impl FnMut(&Symbol) -> u8,
    ) -> (Receiver, Vec<u32>, Time) {
        let mut senders: Vec<_> = (0..session.seats)
            .map(|seat| Sender::new(session, seat, &THRESHOLDS))
            .collect();
        let mut receiver = Receiver::new(GAP, &THRESHOLDS, RTO);
        let (mut now, mut sent) = (Time::ZERO, vec![0; senders.len()]);
        receiver.begin(session, 1, now);
        for _ in 0..100_000 {
            while let Some(output) = receiver.poll_send(now) {
                match output {
                    Output::Request(it) => senders[it.seat as usize].handle_request(),
                    Output::Pull(it) => senders[it.seat as usize].handle_pull(&it),
                }
            }
            for sender in &mut senders {
                while let Some(symbol) = sender.poll_send() {
                    sent[symbol.seat as usize] += 1;
                    match passes(&symbol) {
                        2 => {}
                        trimmed => receiver.handle_symbol(now, &symbol, trimmed == 1),
                    }
                }
            }
            if receiver.done(session.id).is_some() {
                break;
            }
            now = receiver.wake_at().unwrap().max(now);
            receiver.handle_wake(now);
        }
        (receiver, sent, now)
    }

    #[test]
    fn without_losses_every_source_symbol_is_sent_once() {
        for (symbols, seats, window) in [(1, 3, 4), (35, 3, 4), (35, 1, 100), (64, 8, 1)] {
            let (receiver, sent, _) = fetch(session(symbols, seats, window), |_| 0);
            assert!(receiver.done(7).is_some(), "{symbols} from {seats}");
            let all: u32 = sent.iter().sum();
            // One more at most for each block with a repair symbol that failed to decode.
            assert!(
                (symbols as u32..=symbols as u32 + 3).contains(&all),
                "{sent:?}"
            );
        }
    }

    #[test]
    fn trimmed_symbols_are_replaced_without_a_timeout() {
        let mut count = 0;
        let (receiver, sent, _) = fetch(session(100, 2, 8), |_| {
            count += 1;
            u8::from(count % 4 == 0)
        });
        assert!(receiver.done(7).is_some());
        assert_eq!(receiver.timeouts(), 0);
        assert!(sent.iter().sum::<u32>() >= 133, "{sent:?}");
    }

    #[test]
    fn a_source_that_dies_is_made_up_for() {
        let mut count = 0;
        let (receiver, sent, at) = fetch(session(100, 2, 8), |symbol| {
            count += 1;
            if symbol.seat == 1 && count > 30 { 2 } else { 0 }
        });
        assert!(receiver.done(7).is_some(), "{sent:?}");
        assert!(receiver.timeouts() > 0 && receiver.timeouts() < 20);
        assert!(at > Time::ZERO + RTO, "{at:?}");
        assert!(receiver.delivered(7)[0] > receiver.delivered(7)[1]);
    }

    fn due<T>(queue: &mut VecDeque<(Time, T)>, now: Time) -> Option<T> {
        let is_due = queue.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| queue.pop_front().unwrap().1)
    }

    /// How long a fetch takes over a way with a delay, of which everything on its way is lost once.
    fn with_a_blackout(window: u32) -> Time {
        const DELAY: Duration = Duration::from_millis(1);
        let session = session(2000, 1, window);
        let mut sender = Sender::new(session, 0, &THRESHOLDS);
        let mut receiver = Receiver::new(GAP, &THRESHOLDS, RTO);
        let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
        receiver.begin(session, 1, Time::ZERO);
        let dark = Time::ZERO + DELAY * 3..Time::ZERO + DELAY * 6;
        let mut now = Time::ZERO;
        while receiver.done(session.id).is_none() {
            while let Some(output) = receiver.poll_send(now) {
                back.push_back((now + DELAY, output));
            }
            while let Some(output) = due(&mut back, now) {
                match output {
                    Output::Request(_) => sender.handle_request(),
                    Output::Pull(it) => sender.handle_pull(&it),
                }
            }
            while let Some(symbol) = sender.poll_send() {
                if !dark.contains(&now) {
                    there.push_back((now + DELAY, symbol));
                }
            }
            while let Some(symbol) = due(&mut there, now) {
                receiver.handle_symbol(now, &symbol, false);
            }
            let [sends, hears] = [back.front().map(|it| it.0), there.front().map(|it| it.0)];
            let next = receiver
                .wake_at()
                .into_iter()
                .chain(sends)
                .chain(hears)
                .min();
            now = next.unwrap_or(now).max(now);
            receiver.handle_wake(now);
        }
        assert!(receiver.timeouts() > 0, "nothing was lost");
        now
    }

    #[test]
    fn after_a_silence_as_much_is_on_its_way_as_before() {
        // 2000 symbols take 40 round trips of 2 ms with a window of 50, and 2000 with one packet.
        let took = with_a_blackout(50).since(Time::ZERO);
        assert!(took < Duration::from_millis(130), "{took:?}");
    }

    #[test]
    fn the_last_symbol_is_asked_of_each_source_until_one_answers() {
        for seats in [2, 8, 30] {
            let mut count = 0;
            let (receiver, ..) = fetch(session(60, seats, 1), |symbol| {
                count += 1;
                // Only the last one is alive in the end.
                let is_dead = count > 25 && symbol.seat + 1 < seats;
                if is_dead { 2 } else { 0 }
            });
            assert!(receiver.done(7).is_some(), "{seats} sources");
        }
    }

    #[test]
    fn pulls_are_as_far_apart_as_packets_on_the_link() {
        let (_, _, at) = fetch(session(1000, 4, 2), |_| 0);
        // All but the opening is pulled.
        let least = GAP * (1000 - 8 - 1);
        assert!(
            at.since(Time::ZERO) >= least && at.since(Time::ZERO) < least * 11 / 10,
            "{at:?}"
        );
    }

    #[test]
    fn sessions_sink_as_they_grow() {
        let levels = [0, 19, 20, 204, 2048, 20_480].map(|it| level(it, &THRESHOLDS));
        assert_eq!(levels, [0, 0, 1, 2, 3, 4]);
        let mut seen = Vec::new();
        fetch(session(300, 2, 16), |symbol| {
            seen.push(symbol.level);
            0
        });
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(seen.last(), Some(&2));
    }
}
