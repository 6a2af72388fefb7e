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
//! misses more than is on its way; and a receiver that has heard nothing for a while starts again with one
//! pull to each source that it has heard since the last time, to all if none.

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
    sessions: BTreeMap<u32, Fetch>,
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
    /// When something was heard, and how often the timer ran out since.
    heard_at: Time,
    backoff: u32,
    done: Option<Time>,
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
            heard_at: now,
            backoff: 0,
            done: None,
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
        self.sessions.get(&session)?.done
    }

    /// How many symbols each source of a session has delivered.
    pub fn delivered(&self, session: u32) -> &[u64] {
        self.sessions.get(&session).map_or(&[], |it| &it.delivered)
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
        if fetch.done.is_some() || symbol.seat >= fetch.session.seats {
            return;
        }
        fetch.heard[symbol.seat as usize] = true;
        (fetch.heard_at, fetch.backoff) = (now, 0);
        fetch.take(symbol, is_trimmed);
        if fetch.floor == fetch.session.layout.blocks() {
            fetch.done = Some(now);
            fetch.open = VecDeque::new();
            return;
        }
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
            fetch.heard_at = now;
            fetch.backoff = (fetch.backoff + 1).min(BACKOFF_MAX);
            for block in &mut fetch.open {
                block.asked = 0;
            }
            let all = !fetch.heard.contains(&true);
            let level = level(fetch.received, &self.thresholds);
            for (seat, heard) in fetch.heard.iter_mut().enumerate() {
                if all || *heard {
                    self.owed[usize::from(level)].push_back((*id, seat as u32));
                }
                *heard = false;
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
                let fetch = self.sessions.get_mut(&id).filter(|it| it.done.is_none());
                let Some((fetch, block)) = fetch.and_then(|it| it.want().map(|at| (it, at))) else {
                    // All that is missing is on its way; what of that is lost will be owed again.
                    continue;
                };
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
    /// When it has been silent for too long, if it is not complete.
    fn silent_at(&self, rto: Duration) -> Option<Time> {
        let is_open = self.done.is_none();
        is_open.then(|| self.heard_at + rto * (1 << self.backoff))
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
        self.delivered[symbol.seat as usize] += u64::from(!is_trimmed);
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
