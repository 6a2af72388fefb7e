//! What `mob` and `robber` have in common: the nodes of a cluster fetch an object together.
//!
//! Each block has one node per cluster that fetches it from another cluster; once it is there the
//! nodes of the cluster pass it on among themselves. So each block enters each cluster once, by as
//! many access links as there are nodes ([Burger §4.3]).
//!
//! - *Desire*: a node tells each peer what it wants. From local peers it wants all it lacks, so
//!   its desire also tells them what it has. From foreign peers it wants its *work*: the blocks it
//!   is to fetch. They answer with a *bitfield*, the part of it they have, and say *have* when
//!   they get more of it.
//! - *Request*: a random block of those that a peer has, five at once per peer; the module
//!   [`preference`] says which first.
//! - *Steal*, *work*, *found-work*: a robber without work takes half of a local peer's.
//! - *Done*, *stop*: a node has everything, and so have both.
//!
//! # Beyond the thesis
//!
//! The thesis has every node stay until the end. Here nodes come late, stall, crash, lose blocks
//! and lie. What was asked of a peer that is lost is wanted again; lost peers are replaced; and
//! the work of a lost node goes back to its cluster by a [`census`]. A node that gets nothing and
//! waits for nothing calls further peers, until in the end it has called all nodes.
//!
//! A node may want a part of the object, or nothing; the module [`loner`] says what it does.
//!
//! A cluster that holds a source has no work: all its blocks are there. In the thesis its nodes
//! have their share and might fetch parts of it from abroad.

mod census;
mod loner;
mod peer;
mod peers;
mod preference;
mod repair;
mod work;

use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::interest::Interest;
use crate::peers::Peers;
use crate::promise::Promise;
use crate::requests::TOO_MANY;
use crate::{Action, Actions, Event, Protocol, Role, Setup, TimerId};
pub(crate) use peers::random_graph;

use census::Census;
use peer::Peer;
use peers::{Clusters, links};
use preference::Preference;
use repair::Repair;
use work::Steal;

/// How long a node waits for word from its local peers before it asks foreign ones: they may have
/// what it would fetch, or fetch it already if it came late.
const GREETINGS_MAX: Duration = Duration::from_millis(500);
/// How often clocks are looked at.
const TICK: Duration = Duration::from_millis(500);

/// What each cluster fetches it fetches once.
pub(crate) const PROMISE: Promise = Promise {
    once_per_cluster: true,
    ..Promise::NEVER
};

const TICKER: TimerId = TimerId(0);
const STEALER: TimerId = TimerId(1);
const GREETER: TimerId = TimerId(2);

const NONSENSE: &str = "sent an invalid message";
const UNKNOWN_BLOCK: &str = "named blocks the object lacks";

/// How work is divided in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each node keeps its share.
    Mob,
    /// Nodes without work take some from others.
    Robber,
    /// No node fetches anything from abroad: blocks come into the cluster in another way, and its nodes
    /// pass them on among themselves.
    Mates,
}

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The sender got this block.
    Have { block: BlockId },
    /// Send me this block.
    Request { block: BlockId },
    /// What you requested is not here.
    Refuse { block: BlockId },
    /// What the sender wants from the receiver. Between nodes of a cluster: all that it lacks; and
    /// `work` says what it fetches, or is about to, and `spurned` what it neither has nor wants.
    Desire {
        want: WireBlocks,
        work: WireBlocks,
        spurned: WireBlocks,
    },
    /// What the sender has of what the receiver desires.
    Bitfield { have: WireBlocks },
    /// Give me half of your work.
    Steal,
    /// Work for the receiver; nothing if the sender has none.
    Work { blocks: WireBlocks },
    /// The sender has work.
    FoundWork,
    /// The sender has all that it wants, which is all but this.
    Done { lacks: WireBlocks },
    /// Both have what they want: the last word.
    Stop,
    /// To the first of the cluster: check whether any node fetches what we lack.
    Alarm,
    /// What do you have or fetch?
    Census { round: u32 },
    /// The answer, and whether the sender takes no work.
    Holds {
        round: u32,
        blocks: WireBlocks,
        loner: bool,
    },
    /// To one that wants nothing: the sender gets this nowhere else.
    Fetch { blocks: WireBlocks },
}

/// One node of a team.
#[derive(Debug)]
pub(crate) struct Team {
    kind: Kind,
    me: NodeId,
    clusters: Clusters,
    have: BlockSet,
    /// What this node is to get, and does not have.
    lacking: BlockSet,
    /// Whether it wants nothing itself.
    relay: bool,
    /// Who else does not.
    relays: Vec<bool>,
    /// Whether it fetches for itself alone, as it does not want everything.
    loner: bool,
    interest: Interest,
    preference: Preference,
    peers: Peers<Peer>,
    /// Peers by the draw.
    drawn: Vec<bool>,
    /// Peers this node calls.
    called: Vec<bool>,
    /// Members that left or broke the protocol.
    gone: Vec<bool>,
    /// Local peers that have not greeted yet; none once it is too late for that.
    awaited: Vec<NodeId>,
    ticking: bool,
    /// The time of the event that is handled.
    now: Time,
    seed: u64,
    steal: Steal,
    census: Census,
    repair: Repair,
    random: Pcg64Mcg,
}

impl Team {
    /// Of nodes that all get everything, whatever they want.
    pub(crate) fn of_all(kind: Kind, setup: Setup) -> Self {
        let want = BlockSet::full(setup.have.len());
        Self::new(kind, Setup { want, ..setup })
    }

    pub(crate) fn new(kind: Kind, setup: Setup) -> Self {
        let count = setup.members.len();
        let blocks = setup.have.len();
        let clusters = Clusters::new(&setup.members);
        let mates = clusters.mates(setup.me);
        debug_assert!(mates.contains(&setup.me));
        let share = loner::share_of(&setup, mates);
        let mut lacking = setup.want.clone();
        lacking.subtract(&setup.have);
        let (relay, loner) = (setup.want.is_empty(), loner::is_loner(&setup));
        let relays = setup.members.iter().map(|it| it.role == Role::Relay);
        let relays = relays.collect();
        let at_source = |nodes: &[NodeId]| {
            nodes
                .iter()
                .any(|node| setup.members[node.index()].is_source())
        };
        let at_home = at_source(mates);
        let preference = {
            let fetches = |nodes: &&Vec<NodeId>| !at_source(nodes);
            let before = clusters.list.iter().take(clusters.cluster(setup.me));
            Preference {
                share: share.clone(),
                part: before.filter(fetches).count() as u64,
                parts: clusters.list.iter().filter(fetches).count() as u64,
                seed: setup.seed,
            }
        };
        let mut interest = Interest::of(lacking.clone());
        if !at_home && kind != Kind::Mates {
            let own = if loner { 0..blocks } else { share };
            own.for_each(|block| {
                interest.gild(block);
            });
        }
        Self {
            kind,
            me: setup.me,
            have: setup.have,
            lacking,
            relay,
            relays,
            loner,
            interest,
            preference,
            peers: Peers::default(),
            drawn: vec![false; count],
            called: vec![false; count],
            gone: vec![false; count],
            awaited: Vec::new(),
            ticking: false,
            now: Time::ZERO,
            seed: setup.seed,
            steal: Steal::default(),
            census: Census::default(),
            repair: Repair::new(setup.block_bytes),
            random: Pcg64Mcg::seed_from_u64(setup.seed ^ u64::from(setup.me.0) << 32),
            clusters,
        }
    }

    fn start(&mut self, now: Time, out: &mut Actions) {
        let blocks = self.have.len();
        let links = links(self.kind, &self.clusters, blocks, self.seed, self.me);
        for node in links.called_by {
            self.drawn[node.index()] = true;
        }
        for node in &links.calls {
            self.drawn[node.index()] = true;
            self.call(*node, out);
        }
        let is_mate = |node: &NodeId| self.clusters.are_mates(self.me, *node);
        self.awaited = links.calls.into_iter().filter(is_mate).collect();
        if !self.lacking.is_empty() {
            let at = now + GREETINGS_MAX;
            let timer = GREETER;
            out.push(Action::SetTimer { timer, at });
            self.repair.restart(now);
            self.tick_on(now, out);
        }
    }

    /// What holds after every event.
    fn check(&self, now: Time) {
        if !cfg!(debug_assertions) {
            return;
        }
        let me = self.me;
        debug_assert!(!self.peers.contains(me));
        debug_assert!(!self.called[me.index()]);
        debug_assert!(!self.drawn[me.index()]);
        let is_mate = |node: &NodeId| self.clusters.are_mates(me, *node);
        debug_assert!(self.awaited.iter().all(is_mate));
        debug_assert!(!self.awaited.contains(&me));
        let (open, gold) = (self.interest.open().count(), self.interest.gold().count());
        debug_assert!(gold <= open);
        let asked = self.peers.iter().flat_map(|(_, it)| it.requests.asked());
        let lacking = asked.filter(|block| !self.have.contains(**block)).count();
        let missing = self.lacking.count() as usize;
        debug_assert_eq!(
            open as usize + lacking,
            missing,
            "each is open, or asked of one"
        );
        for (node, peer) in self.peers.iter() {
            debug_assert_eq!(peer.local, is_mate(&node));
            debug_assert!(peer.told <= self.have.count());
            debug_assert!(peer.local || !peer.works, "nothing is stolen abroad");
            let early = !peer.local && !self.awaited.is_empty();
            debug_assert!(!early || peer.requests.asked().is_empty());
        }
        debug_assert!(
            self.lacking.is_empty() || self.ticking,
            "it would wait for ever"
        );
        self.check_steal();
        self.check_census();
        self.check_repair(now);
    }

    // ---- choosing peers

    fn call(&mut self, node: NodeId, out: &mut Actions) {
        debug_assert!(node != self.me);
        self.called[node.index()] = true;
        out.push(Action::Connect(node));
    }

    fn on_up(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        let blocks = self.have.len();
        let local = self.clusters.are_mates(self.me, node);
        let relay = self.relays[node.index()];
        self.peers
            .insert(node, Peer::new(now, local, relay, blocks));
        if self.drawn[node.index()] || self.called[node.index()] {
            self.greet(node, out);
        }
        if local {
            self.census_up(node, out);
        }
    }

    /// Tells a peer what this node wants from it.
    fn greet(&mut self, node: NodeId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(node) else {
            return;
        };
        debug_assert!(!peer.greeted, "{node} is greeted twice");
        peer.greeted = true;
        peer.told = self.have.count();
        if self.lacking.is_empty() {
            out.send(node, &self.done());
        } else if peer.local {
            self.desire_at_home([node], out);
            if self.kind == Kind::Robber && !self.loner && !self.interest.gold().is_empty() {
                out.send(node, &Message::FoundWork);
            }
        } else {
            self.desire([node], out);
        }
    }

    fn done(&self) -> Message {
        let mut lacks = BlockSet::full(self.have.len());
        lacks.subtract(&self.have);
        let lacks = lacks.to_wire();
        Message::Done { lacks }
    }

    /// Tells local peers what this node lacks, and what it fetches of that for all.
    fn desire_at_home(&self, nodes: impl IntoIterator<Item = NodeId>, out: &mut Actions) {
        let work = match self.loner {
            true => BlockSet::new(self.have.len()),
            false => self.fetching(),
        };
        let (want, work) = (self.lacking.to_wire(), work.to_wire());
        let spurned = self.spurned().to_wire();
        let desire = Message::Desire {
            want,
            work,
            spurned,
        };
        out.send_all(nodes, &desire);
    }

    /// Tells foreign peers what this node's work is now.
    fn desire(&self, nodes: impl IntoIterator<Item = NodeId>, out: &mut Actions) {
        let want = self.interest.gold().to_wire();
        let nothing = || WireBlocks::Runs(Vec::new());
        let (work, spurned) = (nothing(), nothing());
        let desire = Message::Desire {
            want,
            work,
            spurned,
        };
        out.send_all(nodes, &desire);
    }

    fn desire_all(&self, out: &mut Actions) {
        self.desire(self.peers.pick(|peer| !peer.local && peer.greeted), out);
    }

    fn on_down(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        let Some(peer) = self.peers.remove(node) else {
            return;
        };
        for block in peer.requests.asked() {
            self.reopen(*block, !peer.local);
        }
        self.awaited.retain(|other| *other != node);
        self.steal_lost(node, out);
        self.census_lost(now, node, out);
        let needs_us = !(self.lacking.is_empty() && peer.done);
        if self.called[node.index()] && !self.gone[node.index()] && needs_us {
            out.push(Action::Connect(node));
        }
        self.run_errands(now, out);
        self.fill_all(out);
    }

    fn on_gone(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        let first = !std::mem::replace(&mut self.gone[node.index()], true);
        let linked = self.called[node.index()] || self.drawn[node.index()];
        if std::mem::take(&mut self.called[node.index()]) {
            out.push(Action::Disconnect(node));
        }
        self.on_down(now, node, out);
        if first && linked {
            self.replace(node, out);
        }
        if first && self.clusters.are_mates(self.me, node) {
            self.mate_lost(now, out);
        }
    }

    fn accuse(&mut self, peer: NodeId, offence: &'static str, out: &mut Actions) {
        self.gone[peer.index()] = true;
        out.push(Action::Accuse { peer, offence });
    }

    // ---- what peers have and what to ask of them

    /// A peer has a block.
    fn learn(&mut self, node: NodeId, block: BlockId) {
        let Some(peer) = self.peers.get_mut(node) else {
            return;
        };
        if !peer.theirs.insert(block) {
            return;
        }
        if peer.local && !self.repair.distrusts(node) {
            // It is in the cluster: no node need fetch it.
            self.interest.devalue(block);
        }
        peer.offer(block, &self.interest, &self.preference);
    }

    fn learn_set(&mut self, node: NodeId, blocks: &BlockSet) {
        blocks.iter().for_each(|block| self.learn(node, block));
    }

    /// A requested block will not come; another node may have it.
    fn reopen(&mut self, block: BlockId, golden: bool) {
        if self.have.contains(block) {
            return;
        }
        debug_assert!(
            !self.interest.open().contains(block),
            "it was asked of no node"
        );
        debug_assert!(self.lacking.contains(block), "it was asked for");
        let golden = golden || self.loner && self.kind != Kind::Mates;
        let golden = golden && !self.is_near(block);
        self.interest.reopen(block, golden);
        let (interest, preference) = (&self.interest, &self.preference);
        for (_, peer) in self.peers.iter_mut() {
            if peer.theirs.contains(block) {
                peer.offer(block, interest, preference);
            }
        }
    }

    /// Whether a local peer has the block.
    fn is_near(&self, block: BlockId) -> bool {
        self.peers.iter().any(|(node, peer)| {
            peer.local && !self.repair.distrusts(node) && peer.theirs.contains(block)
        })
    }

    /// Keeps as many requests at a peer as there may be.
    fn fill(&mut self, node: NodeId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(node) else {
            return;
        };
        if !peer.local && !self.awaited.is_empty() || self.repair.shuns(node) {
            return;
        }
        let metal = peer.metal();
        while peer.requests.has_room() {
            let random = || self.random.next_u32();
            let Some(block) = self.interest.take(&mut peer.offers, metal, random) else {
                return;
            };
            if peer.requests.asked().is_empty() {
                peer.waited_for = self.now;
            }
            peer.requests.ask(block);
            if !peer.local {
                self.steal.paid_off();
            }
            out.send(node, &Message::Request { block });
        }
    }

    fn fill_all(&mut self, out: &mut Actions) {
        for node in self.peers.pick(|peer| peer.requests.has_room()) {
            self.fill(node, out);
        }
    }

    /// What this node fetches for its cluster or is about to.
    fn fetching(&self) -> BlockSet {
        let mut blocks = self.interest.gold().clone();
        for (_, peer) in self.peers.iter().filter(|(_, peer)| !peer.local) {
            peer.requests.asked().iter().for_each(|block| {
                blocks.insert(*block);
            });
        }
        blocks
    }

    fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        block: BlockId,
        fresh: bool,
        out: &mut Actions,
    ) {
        self.interest.close(block);
        if let Some(peer) = self.peers.get_mut(from) {
            if peer.requests.answered(block) {
                let waited = now.since(peer.waited_for);
                self.repair.note_wait(peer.local, waited);
            }
            (peer.waited_for, peer.delivered) = (now, true);
            peer.theirs.insert(block);
        }
        self.repair.redeem(from);
        if fresh && self.have.insert(block) {
            self.repair.restart(now);
            let told = self.peers.iter().filter(|(_, peer)| peer.cares_for(block));
            out.send_all(told.map(|(node, _)| node), &Message::Have { block });
            if self.lacking.remove(block) && self.lacking.is_empty() {
                self.finish(out);
            }
        }
        self.fill(from, out);
    }

    /// This node has all that it wants.
    fn finish(&self, out: &mut Actions) {
        debug_assert!(self.interest.open().is_empty());
        out.send_all(self.peers.pick(|peer| peer.greeted), &self.done());
        out.send_all(self.peers.pick(|peer| peer.done), &Message::Stop);
    }

    // ---- messages

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let Ok(message) = postcard::from_bytes(body) else {
            return self.accuse(from, NONSENSE, out);
        };
        if !self.peers.contains(from) {
            return;
        }
        let blocks = self.have.len();
        let read = |wire: &WireBlocks| BlockSet::from_wire(wire, blocks);
        match message {
            Message::Have { block } | Message::Request { block } | Message::Refuse { block }
                if block >= blocks =>
            {
                self.accuse(from, UNKNOWN_BLOCK, out);
            }
            Message::Have { block } => {
                self.learn(from, block);
                self.run_errands(now, out);
                self.fill(from, out);
            }
            Message::Request { block } => self.on_request(from, block, out),
            Message::Refuse { block } => self.on_refuse(from, block, out),
            Message::Desire {
                want,
                work,
                spurned,
            } => match (read(&want), read(&work), read(&spurned)) {
                (Some(want), Some(work), Some(spurned)) => {
                    self.on_desire(from, want, &work, &spurned, out);
                }
                _ => self.accuse(from, UNKNOWN_BLOCK, out),
            },
            Message::Bitfield { have } => match read(&have) {
                Some(have) => {
                    self.learn_set(from, &have);
                    self.fill(from, out);
                }
                None => self.accuse(from, UNKNOWN_BLOCK, out),
            },
            Message::Done { lacks } => match read(&lacks) {
                Some(lacks) => self.on_done(now, from, &lacks, out),
                None => self.accuse(from, UNKNOWN_BLOCK, out),
            },
            Message::Stop => {}
            Message::Fetch { blocks } => match read(&blocks) {
                Some(blocks) => self.on_fetch(now, from, blocks, out),
                None => self.accuse(from, UNKNOWN_BLOCK, out),
            },
            message => self.on_home_message(now, from, message, out),
        }
    }

    /// What only nodes of the same cluster may say to each other.
    fn on_home_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Actions) {
        if !self.clusters.are_mates(self.me, from) {
            return self.accuse(from, "meddled with another cluster's work", out);
        }
        let blocks = self.have.len();
        let read = |wire: &WireBlocks| BlockSet::from_wire(wire, blocks);
        match message {
            Message::Steal => self.on_steal(from, out),
            Message::Work { blocks } => match read(&blocks) {
                Some(blocks) => self.on_work(now, from, &blocks, out),
                None => self.accuse(from, UNKNOWN_BLOCK, out),
            },
            Message::FoundWork => {
                if let Some(peer) = self.peers.get_mut(from) {
                    peer.works = true;
                }
            }
            Message::Alarm => self.take_census(now, out),
            Message::Census { round } => self.on_census(from, round, out),
            Message::Holds {
                round,
                blocks,
                loner,
            } => match read(&blocks) {
                Some(blocks) => self.on_holds(now, from, round, &blocks, loner, out),
                None => self.accuse(from, UNKNOWN_BLOCK, out),
            },
            _ => {}
        }
    }

    fn on_desire(
        &mut self,
        from: NodeId,
        want: BlockSet,
        work: &BlockSet,
        spurned: &BlockSet,
        out: &mut Actions,
    ) {
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        (peer.spoke, peer.done) = (true, false);
        peer.loner = !spurned.is_empty();
        let greeted = peer.greeted;
        // A local peer that was greeted knows what was here then, and is told the rest from now on.
        if !self.have.is_full() && (!peer.local || greeted && peer.told < self.have.count()) {
            let mut have = self.have.clone();
            have.intersect(&want);
            let have = have.to_wire();
            out.send(from, &Message::Bitfield { have });
        }
        if peer.local {
            let mut theirs = BlockSet::full(want.len());
            theirs.subtract(&want);
            theirs.subtract(spurned);
            self.learn_set(from, &theirs);
            if !self.repair.distrusts(from) {
                self.yield_work(from, work);
            }
            self.greeted_by(from, out);
        } else {
            peer.wants = want;
        }
        if !greeted {
            self.greet(from, out);
        }
        self.fill(from, out);
    }

    fn on_done(&mut self, now: Time, from: NodeId, lacks: &BlockSet, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        (peer.done, peer.loner) = (true, !lacks.is_empty());
        // It may want nothing, whatever it was to be; one that wants something ignores errands.
        peer.relay |= peer.loner;
        peer.errand = None;
        let greeted = peer.greeted;
        let mut theirs = BlockSet::full(self.have.len());
        theirs.subtract(lacks);
        self.learn_set(from, &theirs);
        self.greeted_by(from, out);
        if !greeted {
            self.greet(from, out);
        }
        self.run_errands(now, out);
        if self.lacking.is_empty() {
            out.send(from, &Message::Stop);
        }
        self.fill(from, out);
    }

    /// A local peer has spoken; when all have, foreign ones can be asked.
    fn greeted_by(&mut self, node: NodeId, out: &mut Actions) {
        let before = self.awaited.len();
        self.awaited.retain(|other| *other != node);
        if before > 0 && self.awaited.is_empty() {
            self.fill_all(out);
        }
    }

    fn on_request(&mut self, from: NodeId, block: BlockId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        if !self.have.contains(block) {
            out.send(from, &Message::Refuse { block });
        } else if !peer.requests.serve() {
            self.accuse(from, TOO_MANY, out);
        } else {
            out.push(Action::SendBlock { to: from, block });
        }
    }

    fn on_refuse(&mut self, from: NodeId, block: BlockId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        if !peer.requests.answered(block) {
            return;
        }
        peer.theirs.remove(block);
        let local = peer.local;
        self.reopen(block, !local);
        self.fill_all(out);
    }

    // ---- clocks

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if !self.ticking {
            self.ticking = true;
            let at = now + TICK;
            let timer = TICKER;
            out.push(Action::SetTimer { timer, at });
        }
    }

    fn on_tick(&mut self, now: Time, out: &mut Actions) {
        self.ticking = false;
        self.census_tick(now, out);
        self.run_errands(now, out);
        if !self.lacking.is_empty() {
            self.mend(now, out);
        }
        if !self.lacking.is_empty() || self.census.is_running() {
            self.tick_on(now, out);
        }
    }
}

impl Protocol for Team {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        self.now = now;
        match event {
            Event::Coded(_) | Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Start => self.start(now, out),
            Event::PeerUp(peer) => self.on_up(now, peer, out),
            Event::PeerDown(peer) => self.on_down(now, peer, out),
            Event::Left(peer) => self.on_gone(now, peer, out),
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(now, from, block, fresh, out),
            Event::Rejected { from, .. } => self.gone[from.index()] = true,
            Event::Sent { to, .. } => {
                if let Some(peer) = self.peers.get_mut(to) {
                    peer.requests.sent();
                }
            }
            Event::Timer(GREETER) => {
                self.awaited.clear();
                self.fill_all(out);
            }
            Event::Timer(STEALER) => self.steal.timer_set = false,
            Event::Timer(_) => self.on_tick(now, out),
        }
        self.seek_work(now, out);
        self.check(now);
    }
}
