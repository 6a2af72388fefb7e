//! `adaptive`: blocks find their way by backpressure alone [Burger §3.3.3].
//!
//! A message is a block and the set of nodes that still have to get it. A node that receives one hands
//! it to a *connector*, one or several of these destinations at once, which leaves less for those
//! (`connectors`); while a connector's queues have room it is used, then the next is tried, so
//! routes appear where the network has room. If all are congested, one is picked at random and
//! waited for, which holds up those before. What goes to several destinations reaches some nodes
//! more than once, and has to be forwarded even so, because each copy may be the only one for some
//! node [Burger §3.3.4]; that is the price of the method, and it grows with the number of
//! nodes.
//!
//! Messages with different numbers of destinations left never wait for each other (`connections`),
//! which keeps full queues from forming circles. Blocks and what is said about them may overtake
//! each other on the way; the receiver puts them together again.
//!
//! Beyond the thesis, a node that has everything says so and is sent nothing more, and nodes may fail.
//! What a dead peer may not have forwarded goes back to the node that sent it to that peer, and takes
//! another path; what got lost even so is pulled (`mend`).

mod connections;
mod connectors;
mod dests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use serde::{Deserialize, Serialize};

use crate::mend::{self, Around, MendMessage, Mender, Wrap};
use crate::promise::{Promise, Supply};
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::{Action, Actions, Event, Protocol, SEND_QUEUE_MAX, Setup, TimerId};
use connections::{CREDIT, Connections, Key, Parcel};
use connectors::{Choice, Connectors};
use dests::{Dests, WireDests};

/// How often all nodes look at their clocks.
const TICK: Duration = Duration::from_millis(500);
/// How long a destination has to come up before it is left out; it may pull what it misses.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A node that gets nothing new for this long pulls, unless blocks are known to take longer.
const STALL_MIN: Duration = Duration::from_secs(5);
/// How many times the usual gap between blocks is long.
const GAPS_LONG: f64 = 4.0;
/// A node that wakes up this much too late did not run, and has not waited for its peers.
const LATE: Duration = Duration::from_secs(1);
/// Blocks in the driver's queue per peer.
const QUEUE: u32 = 8;
const _: () = assert!(QUEUE as usize <= SEND_QUEUE_MAX);
/// How many of a peer's blocks and words may wait for each other.
const UNPAIRED_MAX: usize = 1 << 16;

const TICKER: TimerId = TimerId(0);

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "adaptive",
    about: "blocks are routed by backpressure, without a plan",
    baseline: false,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    // What goes to several destinations reaches some nodes by several ways.
    promise: Promise {
        copies: 1,
        ahead: QUEUE,
        turn: 2 * QUEUE,
        pulled: mend::OWED_MAX as u32,
        supply: Supply::Anybody,
        once_per_cluster: false,
    },
    build: |setup, _| Box::new(Adaptive::new(&setup)) as Box<dyn Protocol>,
};

#[derive(Serialize, Deserialize)]
enum Message {
    /// I have these: said to begin with, and when I have everything.
    Hello { have: WireBlocks },
    /// About a block that is on its way: which nodes still have to get it after the recipient.
    Parcel { block: BlockId, left: WireDests },
    /// About a block that is on its way: you asked for it.
    Errand { block: BlockId },
    /// So many of your messages with so many destinations left are handed on.
    Credit { left: u32, count: u32 },
    /// Between any two.
    Mend(MendMessage),
}

/// Where messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// What the source has, block by block.
    Source,
    /// What peers did not forward before they were gone.
    Orphans,
    /// A peer's connection.
    Peer(Key),
}

/// Something to be looked at.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// There may be something to forward.
    Run(Origin),
    /// There may be room in the driver's queue to a peer.
    Pump(NodeId),
    /// There may be room in a connection.
    Wake(Key),
}

/// What is known of a block that a peer sends: its arrivals and its words may overtake each other.
#[derive(Debug, Default)]
struct Pair {
    arrived: u32,
    /// Destinations; none for an errand.
    words: VecDeque<Option<Dests>>,
}

/// One node's part.
#[derive(Debug)]
struct Adaptive {
    me: NodeId,
    members: usize,
    have: BlockSet,
    up: Vec<bool>,
    gone: Vec<bool>,
    /// Sources, which need nothing, and nodes that did not come up in time.
    left_out: Vec<bool>,
    /// Since when a connection to each member is waited for.
    called: Vec<Option<Time>>,
    /// What peers had from the start.
    theirs: BTreeMap<NodeId, BlockSet>,
    connectors: Connectors,
    connections: Connections,
    /// At the source: the next block.
    next: Option<BlockId>,
    orphans: VecDeque<Parcel>,
    inboxes: BTreeMap<Key, VecDeque<Parcel>>,
    /// Origins whose first message waits for a connection, with its connector.
    waiting: BTreeMap<Key, VecDeque<(Origin, usize)>>,
    blocked: BTreeSet<Origin>,
    credits: BTreeMap<Key, u32>,
    pairs: BTreeMap<(NodeId, BlockId), Pair>,
    queued: Vec<u32>,
    tasks: VecDeque<Task>,
    mender: Mender,
    random: u64,
    started: Time,
    /// When something new came last.
    last: Time,
    came: u32,
    /// When the next tick is due, if one is.
    ticking: Option<Time>,
}

impl Adaptive {
    fn new(setup: &Setup) -> Self {
        let members = setup.members.len();
        let source = |member: &crate::Member| member.is_source();
        let is_first = setup.members.iter().position(source) == Some(setup.me.index());
        let next = (is_first && setup.have.is_full() && !setup.have.is_empty()).then_some(0);
        Self {
            me: setup.me,
            members,
            up: vec![false; members],
            gone: vec![false; members],
            left_out: setup.members.iter().map(source).collect(),
            called: vec![None; members],
            theirs: BTreeMap::new(),
            connectors: Connectors::new(members),
            connections: Connections::default(),
            next,
            orphans: VecDeque::new(),
            inboxes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            blocked: BTreeSet::new(),
            credits: BTreeMap::new(),
            pairs: BTreeMap::new(),
            queued: vec![0; members],
            tasks: VecDeque::new(),
            mender: Mender::new(setup.me, setup.have.len()),
            random: setup.seed ^ (u64::from(setup.me.0) << 32),
            started: Time::ZERO,
            last: Time::ZERO,
            came: 0,
            ticking: None,
            have: setup.have.clone(),
        }
    }

    /// What holds after every event.
    fn check(&self, now: Time) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(!self.up[self.me.index()]);
        debug_assert!(self.tasks.is_empty());
        debug_assert!(self.credits.is_empty(), "credit was not given back");
        debug_assert!(
            self.is_done() || self.ticking.is_some(),
            "it would wait for ever"
        );
        debug_assert!(self.next.is_none_or(|block| block < self.have.len()));
        debug_assert!(self.started <= self.last);
        debug_assert!(self.last <= now);
        for (index, up) in self.up.iter().enumerate() {
            debug_assert!(self.queued[index] <= QUEUE);
            debug_assert!(*up || self.queued[index] == 0);
            debug_assert!(
                !up || self.called[index].is_none(),
                "it waits for a node that is up"
            );
        }
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        debug_assert_eq!(waiting, self.blocked.len(), "an origin waits once");
        for (key, origins) in self.waiting.iter().filter(|(_, list)| !list.is_empty()) {
            debug_assert!(
                !self.connections.has_room(*key),
                "{key:?} has room for others"
            );
            let blocked = |(origin, _): &(Origin, usize)| self.blocked.contains(origin);
            debug_assert!(origins.iter().all(blocked));
        }
        self.connections.check(self.me);
    }

    // ---- handing on

    /// Does what is to be done until nothing is.
    fn drive(&mut self, now: Time, out: &mut Actions) {
        while let Some(task) = self.tasks.pop_front() {
            match task {
                Task::Run(origin) => self.run(now, origin, out),
                Task::Pump(peer) => self.pump(peer, out),
                Task::Wake(key) => self.wake(now, key, out),
            }
        }
        for ((peer, left), count) in std::mem::take(&mut self.credits) {
            if self.up[peer.index()] && !self.is_over(peer) {
                out.send(peer, &Message::Credit { left, count });
            }
        }
        if !self.is_done() {
            self.tick_on(now, out);
        }
    }

    fn is_done(&self) -> bool {
        let is_over = |peer| self.is_over(peer);
        self.have.is_full() && self.connections.is_idle(is_over) && self.blocked.is_empty()
    }

    /// Whether this node and a peer have everything, and know it of each other.
    fn is_over(&self, peer: NodeId) -> bool {
        self.have.is_full() && self.theirs.get(&peer).is_some_and(BlockSet::is_full)
    }

    /// The first message of an origin, with the destinations that still count.
    fn head(&self, origin: Origin) -> Option<Parcel> {
        let (block, left) = match origin {
            Origin::Source => {
                let all = (0..self.members as u32).map(NodeId);
                (self.next?, Dests::of(all, self.members))
            }
            Origin::Orphans => self.orphans.front().map(|it| (it.block, it.left.clone()))?,
            Origin::Peer(key) => {
                let first = self.inboxes.get(&key)?.front();
                first.map(|it| (it.block, it.left.clone()))?
            }
        };
        let counts = |node: &NodeId| {
            *node != self.me
                && !self.gone[node.index()]
                && !self.left_out[node.index()]
                && self
                    .theirs
                    .get(node)
                    .is_none_or(|theirs| !theirs.contains(block))
        };
        debug_assert!(self.have.contains(block), "only what is here is handed on");
        let left = if left.iter().all(|node| counts(&node)) {
            left
        } else {
            Dests::of(left.iter().filter(counts), self.members)
        };
        Some(Parcel { block, left })
    }

    /// An origin's first message has been handed on.
    fn pop(&mut self, origin: Origin) {
        match origin {
            Origin::Source => {
                let more = self.next.map(|block| block + 1);
                self.next = more.filter(|block| *block < self.have.len());
            }
            Origin::Orphans => {
                self.orphans.pop_front();
            }
            Origin::Peer(key) => {
                if self
                    .inboxes
                    .get_mut(&key)
                    .and_then(VecDeque::pop_front)
                    .is_some()
                {
                    *self.credits.entry(key).or_default() += 1;
                }
            }
        }
    }

    /// Hands on what an origin has until it has to wait.
    fn run(&mut self, now: Time, origin: Origin, out: &mut Actions) {
        while !self.blocked.contains(&origin)
            && let Some(parcel) = self.head(origin)
        {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            debug_assert!(!parcel.left.contains(self.me));
            let connections = &self.connections;
            let has_room = |node, left: usize| connections.has_room((node, left as u32));
            match self
                .connectors
                .choose(&parcel.left, self.random >> 33, has_room)
            {
                None => self.pop(origin),
                Some(Choice::Free(connector)) => {
                    self.hand(now, &parcel, connector, out);
                    self.pop(origin);
                }
                Some(Choice::Congested(connector)) => self.wait(origin, &parcel, connector),
            }
        }
    }

    fn keys(&self, parcel: &Parcel, connector: usize) -> (Dests, Vec<Key>) {
        let connector = self.connectors.get(connector);
        debug_assert!(parcel.left.covers(&connector.set));
        let left = parcel.left.without(&connector.set);
        let count = left.len() as u32;
        (
            left,
            connector.nodes.iter().map(|node| (*node, count)).collect(),
        )
    }

    fn hand(&mut self, now: Time, parcel: &Parcel, connector: usize, out: &mut Actions) {
        let (left, keys) = self.keys(parcel, connector);
        for key in keys {
            debug_assert!(key.0 != self.me);
            debug_assert!(!self.gone[key.0.index()]);
            self.connections.push(
                key,
                Parcel {
                    block: parcel.block,
                    left: left.clone(),
                },
            );
            let peer = key.0;
            if self.up[peer.index()] {
                self.tasks.push_back(Task::Pump(peer));
            } else if self.called[peer.index()].is_none() {
                self.called[peer.index()] = Some(now);
                out.push(Action::Connect(peer));
            }
        }
    }

    fn wait(&mut self, origin: Origin, parcel: &Parcel, connector: usize) {
        let (_, keys) = self.keys(parcel, connector);
        debug_assert!(keys.iter().any(|key| !self.connections.has_room(*key)));
        if let Some(key) = keys
            .into_iter()
            .find(|key| !self.connections.has_room(*key))
        {
            let runs = self.blocked.insert(origin);
            debug_assert!(runs, "{origin:?} waits already");
            self.waiting
                .entry(key)
                .or_default()
                .push_back((origin, connector));
        }
    }

    /// Wakes messages that wait for a connection.
    fn wake(&mut self, now: Time, key: Key, out: &mut Actions) {
        while self.connections.has_room(key)
            && let Some((origin, connector)) =
                self.waiting.get_mut(&key).and_then(VecDeque::pop_front)
        {
            self.blocked.remove(&origin);
            if let Some(parcel) = self.head(origin)
                && parcel.left.covers(&self.connectors.get(connector).set)
            {
                let (_, keys) = self.keys(&parcel, connector);
                if keys.iter().all(|key| self.connections.has_room(*key)) {
                    self.hand(now, &parcel, connector, out);
                    self.pop(origin);
                } else {
                    self.wait(origin, &parcel, connector);
                }
            }
            self.tasks.push_back(Task::Run(origin));
        }
        if self.waiting.get(&key).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&key);
        }
    }

    /// Keeps the driver's queue to a peer filled.
    fn pump(&mut self, peer: NodeId, out: &mut Actions) {
        while self.up[peer.index()] && self.queued[peer.index()] < QUEUE {
            let block = if let Some(block) = self.mender.next_errand(peer) {
                out.send(peer, &Message::Errand { block });
                block
            } else if let Some((key, parcel)) = self.connections.next(peer) {
                self.tasks.push_back(Task::Wake(key));
                let (block, left) = (parcel.block, parcel.left.to_wire());
                out.send(peer, &Message::Parcel { block, left });
                block
            } else {
                return;
            };
            debug_assert!(self.have.contains(block));
            self.queued[peer.index()] += 1;
            out.push(Action::SendBlock { to: peer, block });
        }
    }

    // ---- receiving

    fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        if fresh && self.have.insert(block) {
            self.last = now;
            self.came += 1;
            self.mend(|mender, around, wrap| mender.on_arrived(now, block, around, wrap, out));
            if self.have.is_full() {
                let up = (0..).map(NodeId).zip(&self.up).filter(|(_, up)| **up);
                out.send_all(
                    up.map(|(node, _)| node),
                    &Message::Hello {
                        have: self.have.to_wire(),
                    },
                );
            }
        }
        let pair = self.pairs.entry((from, block)).or_default();
        pair.arrived += 1;
        self.match_up(from, block);
    }

    fn on_words(
        &mut self,
        from: NodeId,
        block: BlockId,
        words: Option<Dests>,
    ) -> Result<(), &'static str> {
        if block >= self.have.len() {
            return Err("named a block the object lacks");
        }
        if self.pairs.len() >= UNPAIRED_MAX {
            return Err("announced more blocks than it sends");
        }
        self.pairs
            .entry((from, block))
            .or_default()
            .words
            .push_back(words);
        self.match_up(from, block);
        Ok(())
    }

    /// Takes a message in of which both parts are here.
    fn match_up(&mut self, from: NodeId, block: BlockId) {
        let Some(pair) = self.pairs.get_mut(&(from, block)) else {
            return;
        };
        if pair.arrived == 0 || pair.words.is_empty() {
            return;
        }
        pair.arrived -= 1;
        let words = pair.words.pop_front().flatten();
        debug_assert!(
            pair.arrived == 0 || pair.words.is_empty(),
            "some were not put together"
        );
        if pair.arrived == 0 && pair.words.is_empty() {
            self.pairs.remove(&(from, block));
        }
        if let Some(left) = words {
            let key = (from, left.len() as u32);
            self.inboxes
                .entry(key)
                .or_default()
                .push_back(Parcel { block, left });
            self.tasks.push_back(Task::Run(Origin::Peer(key)));
        }
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let said = match postcard::from_bytes(body) {
            Ok(message) => self.hear(now, from, message, out),
            Err(_) => Err("sent an invalid message"),
        };
        if let Err(offence) = said {
            out.push(Action::Accuse {
                peer: from,
                offence,
            });
        }
    }

    fn hear(
        &mut self,
        now: Time,
        from: NodeId,
        message: Message,
        out: &mut Actions,
    ) -> Result<(), &'static str> {
        match message {
            Message::Hello { have } => {
                let have = BlockSet::from_wire(&have, self.have.len())
                    .ok_or("named blocks the object lacks")?;
                let is_full = have.is_full();
                self.theirs.insert(from, have);
                if is_full {
                    // Others may still need to be reached with what was meant for it first.
                    self.orphans.extend(self.connections.take_queued(from));
                    self.tasks.push_back(Task::Run(Origin::Orphans));
                    self.free_waiting(from);
                }
            }
            Message::Parcel { block, left } => {
                let left = Dests::from_wire(&left, self.members)
                    .ok_or("named destinations that are no members")?;
                let inbox = self.inboxes.get(&(from, left.len() as u32));
                if inbox.is_some_and(|inbox| inbox.len() >= CREDIT) {
                    return Err("sent more than it had credit for");
                }
                self.on_words(from, block, Some(left))?;
            }
            Message::Errand { block } => self.on_words(from, block, None)?,
            Message::Credit { left, count } => {
                self.connections.credit((from, left), count);
                self.tasks.push_back(Task::Pump(from));
            }
            Message::Mend(message) => {
                self.mend(|mender, around, wrap| {
                    mender.on_message(now, from, message, around, wrap, out)
                })?;
                self.tasks.push_back(Task::Pump(from));
            }
        }
        Ok(())
    }

    /// Calls `work` with the mender and what it needs.
    fn mend<T>(&mut self, work: impl FnOnce(&mut Mender, Around<'_>, &mut Wrap<'_>) -> T) -> T {
        let gap = self.gap();
        let around = Around {
            up: &self.up,
            gone: &self.gone,
            have: &self.have,
            gap,
        };
        let mut wrap = |to, message, out: &mut Actions| out.send(to, &Message::Mend(message));
        work(&mut self.mender, around, &mut wrap)
    }

    /// Seconds from one new block to the next, on average.
    fn gap(&self) -> f64 {
        self.last.since(self.started).as_secs_f64() / f64::from(self.came.max(1))
    }

    // ---- peers and clocks

    fn on_up(&mut self, peer: NodeId, out: &mut Actions) {
        self.up[peer.index()] = true;
        self.called[peer.index()] = None;
        if self.have.count() > 0 {
            out.send(
                peer,
                &Message::Hello {
                    have: self.have.to_wire(),
                },
            );
        }
        if !self.have.is_full() {
            self.mend(|mender, _, wrap| mender.on_up(peer, wrap, out));
        }
        self.tasks.push_back(Task::Pump(peer));
    }

    fn on_down(&mut self, peer: NodeId) {
        self.up[peer.index()] = false;
        self.queued[peer.index()] = 0;
        self.theirs.remove(&peer);
        self.mender.on_down(peer);
        self.pairs.retain(|(from, _), _| *from != peer);
        self.credits.retain(|(to, _), _| *to != peer);
        // What it sent is here and has to go on, even if no node waits for that any more.
        let keys: Vec<Key> = self
            .inboxes
            .range((peer, 0)..=(peer, u32::MAX))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.orphans
                .extend(self.inboxes.remove(&key).into_iter().flatten());
            self.blocked.remove(&Origin::Peer(key));
        }
        let gone = |origin: &Origin| matches!(origin, Origin::Peer((from, _)) if *from == peer);
        self.waiting
            .values_mut()
            .for_each(|list| list.retain(|(origin, _)| !gone(origin)));
        self.give_up(peer);
    }

    /// What a peer was to forward takes another path, and waiting for it ends.
    fn give_up(&mut self, peer: NodeId) {
        for parcel in self.connections.close(peer) {
            debug_assert!(!parcel.left.contains(peer));
            self.orphans.push_back(Parcel {
                left: parcel.left.with(peer),
                ..parcel
            });
        }
        self.tasks.push_back(Task::Run(Origin::Orphans));
        self.free_waiting(peer);
    }

    /// No message needs to wait for a connection to this peer.
    fn free_waiting(&mut self, peer: NodeId) {
        let keys: Vec<Key> = self
            .waiting
            .range((peer, 0)..=(peer, u32::MAX))
            .map(|(key, _)| *key)
            .collect();
        for (origin, _) in keys
            .iter()
            .filter_map(|key| self.waiting.remove(key))
            .flatten()
        {
            self.blocked.remove(&origin);
            self.tasks.push_back(Task::Run(origin));
        }
    }

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if self.ticking.is_none() {
            self.ticking = Some(now + TICK);
            out.push(Action::SetTimer {
                timer: TICKER,
                at: now + TICK,
            });
        }
    }

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        let late = self
            .ticking
            .take()
            .map_or(Duration::ZERO, |due| now.since(due));
        if late > LATE {
            (self.started, self.last) = (self.started + late, now);
            debug_assert!(self.started <= now);
        }
        for node in (0..self.members as u32).map(NodeId) {
            let called = &mut self.called[node.index()];
            if called.is_some_and(|since| now.since(since) >= CONNECT_MAX) {
                *called = None;
                self.left_out[node.index()] = true;
                self.give_up(node);
            }
        }
        if !self.have.is_full() {
            let patience = Duration::from_secs_f64((GAPS_LONG * self.gap()).min(1e9));
            let stalled = now.since(self.last) >= STALL_MIN.max(patience);
            let missed = stalled.then(|| {
                let mut missed = BlockSet::full(self.have.len());
                missed.subtract(&self.have);
                missed
            });
            self.mend(|mender, around, wrap| mender.on_tick(now, missed, around, wrap, out));
        }
    }
}

impl Protocol for Adaptive {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Coded(_) | Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Start => {
                (self.started, self.last) = (now, now);
                self.tasks.push_back(Task::Run(Origin::Source));
            }
            Event::PeerUp(peer) => self.on_up(peer, out),
            Event::PeerDown(peer) => self.on_down(peer),
            Event::Left(node) => {
                self.gone[node.index()] = true;
                self.on_down(node);
            }
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => self.gone[from.index()] = true,
            Event::Sent { to, .. } => {
                let queued = &mut self.queued[to.index()];
                *queued = queued.saturating_sub(1);
                self.tasks.push_back(Task::Pump(to));
            }
            Event::Timer(_) => self.on_tick(now, out),
        }
        self.drive(now, out);
        self.check(now);
    }
}
