//! `bittorrent`: the plain swarm that the others are measured against.
//!
//! As in [Burger §4.2.1, §4.5.5]. Nodes announce their blocks, request random blocks, five at once,
//! from peers that let them, and let five peers request: the four that gave most of late, and one that
//! is drawn every 30 s, newcomers three times as likely. A node that has everything lets the peers
//! request that took most. Which peers may request is decided every 10 s; at the start five random
//! peers may, so that no node waits for the first decision.
//!
//! Clusters mean nothing to it. The thesis does not say how many names its tracker returned; here
//! each node calls five random others, the number of connections that is taken there to
//! saturate a node, and is called by as many on average. The draw is repeated until the graph is
//! connected. A request that comes from a peer that may not ask any more is refused, so that
//! the peer does not wait for it. Peers that leave are replaced, which the thesis left out.

use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockId, BlockSet, NodeId, Time};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::interest::{Interest, Metal, Offers};
use crate::peers::Peers;
use crate::promise::Promise;
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::requests::{Requests, TOO_MANY};
use crate::team::random_graph;
use crate::{Action, Actions, Event, Protocol, Setup, TimerId};

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "bittorrent",
    about: "a mesh in which peers that give most receive most",
    baseline: true,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    promise: Promise::NEVER,
    build: |setup, _| Box::new(Torrent::new(setup)) as Box<dyn Protocol>,
};

/// How many others each node calls.
const TRACKER: usize = 5;
/// How many peers may ask, one of them drawn at random.
const UNCHOKED: usize = 5;
/// How often it is decided which peers may request.
const ROUND: Duration = Duration::from_secs(10);
const _: () = assert!(UNCHOKED > 1, "one is drawn, and the others earn it");
/// The random one stays for so many rounds.
const OPTIMISTIC_ROUNDS: u32 = 3;
/// How much more likely a peer without a block is drawn.
const NEWCOMER_WEIGHT: u32 = 3;
/// When nothing came for so many rounds, the tracker is asked for so many more names.
const BORED_ROUNDS: u32 = 2;
const CALLS_MORE: usize = 3;

const ROUNDS: TimerId = TimerId(0);

#[derive(Serialize, Deserialize)]
enum Message {
    /// The sender got this block.
    Have { block: BlockId },
    /// Send me this block.
    Request { block: BlockId },
    /// This block will not come.
    Refuse { block: BlockId },
    /// What the sender has, first of all.
    Bitfield { have: WireBlocks },
    /// The receiver has blocks that the sender lacks, or has none any more.
    Interested { yes: bool },
    /// The receiver may not ask any more, or may now.
    Choke { yes: bool },
}

#[derive(Debug)]
struct Peer {
    theirs: BlockSet,
    /// It said as a set what it has, which it does once.
    told: bool,
    offers: Offers,
    requests: Requests,
    /// It lacks blocks that are here.
    interested: bool,
    /// It was told that it has blocks this node lacks.
    interesting: bool,
    /// It may not ask.
    choked: bool,
    /// It lets this node not ask.
    choking: bool,
    /// Blocks it gave and took in this round and the one before.
    gave: [u32; 2],
    took: [u32; 2],
    /// It was asked for something when the last round ended.
    owed: bool,
}

/// One node of the swarm.
#[derive(Debug)]
struct Torrent {
    me: NodeId,
    seed: u64,
    have: BlockSet,
    interest: Interest,
    peers: Peers<Peer>,
    /// Peers that may request as soon as they come up.
    first: Vec<NodeId>,
    called: Vec<bool>,
    gone: Vec<bool>,
    /// Members that held back what they were asked for: they are asked for nothing while others are.
    shunned: Vec<bool>,
    /// The peer that was drawn.
    optimistic: Option<NodeId>,
    round: u32,
    /// The round in which the last fresh block came.
    fed: u32,
    ticking: bool,
    random: Pcg64Mcg,
}

impl Torrent {
    fn new(setup: Setup) -> Self {
        let count = setup.members.len();
        Self {
            me: setup.me,
            seed: setup.seed,
            interest: Interest::new(&setup.have),
            have: setup.have,
            peers: Peers::default(),
            first: Vec::new(),
            called: vec![false; count],
            gone: vec![false; count],
            shunned: vec![false; count],
            optimistic: None,
            round: 0,
            fed: 0,
            ticking: false,
            random: Pcg64Mcg::seed_from_u64(setup.seed ^ u64::from(setup.me.0) << 32),
        }
    }

    /// What holds after every event.
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(!self.peers.contains(self.me));
        debug_assert!(!self.called[self.me.index()]);
        debug_assert!(!self.first.contains(&self.me));
        debug_assert!(self.first.len() <= UNCHOKED);
        debug_assert!(self.optimistic != Some(self.me));
        debug_assert!(
            self.have.is_full() || self.ticking,
            "it would wait for ever"
        );
        debug_assert!(
            self.interest.gold().is_empty(),
            "clusters mean nothing here"
        );
        let open = self.interest.open().count() as usize;
        let asked = self.peers.iter().flat_map(|(_, it)| it.requests.asked());
        let lacking = asked.filter(|block| !self.have.contains(**block)).count();
        let missing = self.have.missing() as usize;
        debug_assert_eq!(open + lacking, missing, "each is open, or asked of one");
        for (node, peer) in self.peers.iter() {
            let asks = !peer.requests.asked().is_empty();
            debug_assert!(
                !asks || peer.interesting,
                "{node} does not know that it is asked"
            );
        }
    }

    // ---- choosing peers

    fn start(&mut self, now: Time, out: &mut Actions) {
        let nodes: Vec<NodeId> = (0..self.gone.len() as u32).map(NodeId).collect();
        let calls = random_graph(&nodes, TRACKER, self.seed);
        let mut linked = Vec::new();
        for (from, to) in calls {
            if from == self.me {
                self.call(to, out);
                linked.push(to);
            } else if to == self.me {
                linked.push(from);
            }
        }
        linked.sort_unstable();
        linked.dedup();
        while self.first.len() < UNCHOKED && !linked.is_empty() {
            let node = self.draw(&mut linked);
            self.first.push(node);
        }
        self.tick_on(now, out);
    }

    /// Takes a random one out of a list that is not empty.
    fn draw(&mut self, nodes: &mut Vec<NodeId>) -> NodeId {
        debug_assert!(!nodes.is_empty());
        let index = self.random.next_u32() as usize % nodes.len();
        nodes.swap_remove(index)
    }

    fn call(&mut self, node: NodeId, out: &mut Actions) {
        self.called[node.index()] = true;
        out.push(Action::Connect(node));
    }

    fn call_more(&mut self, count: usize, out: &mut Actions) {
        let all = (0..self.gone.len() as u32).map(NodeId);
        let mut strangers: Vec<NodeId> = all
            .filter(|node| *node != self.me && !self.peers.contains(*node))
            .filter(|node| !self.gone[node.index()] && !self.called[node.index()])
            .filter(|node| !self.shunned[node.index()])
            .collect();
        for _ in 0..count.min(strangers.len()) {
            let node = self.draw(&mut strangers);
            self.call(node, out);
        }
    }

    fn on_up(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        let choked = !self.first.contains(&node);
        let peer = Peer::new(self.have.len(), choked);
        self.peers.insert(node, peer);
        let have = self.have.to_wire();
        out.send(node, &Message::Bitfield { have });
        if !choked {
            out.send(node, &Message::Choke { yes: false });
        }
        self.tick_on(now, out);
    }

    fn on_down(&mut self, node: NodeId, out: &mut Actions) {
        let Some(peer) = self.peers.remove(node) else {
            return;
        };
        for block in peer.requests.asked() {
            self.reopen(*block);
        }
        self.fill_all(out);
        let needs_us = !(self.have.is_full() && peer.theirs.is_full());
        if self.called[node.index()] && !self.gone[node.index()] && needs_us {
            out.push(Action::Connect(node));
        }
    }

    fn on_gone(&mut self, node: NodeId, out: &mut Actions) {
        let first = !std::mem::replace(&mut self.gone[node.index()], true);
        let linked = self.peers.contains(node) || self.called[node.index()];
        if std::mem::take(&mut self.called[node.index()]) {
            out.push(Action::Disconnect(node));
        }
        self.on_down(node, out);
        if first && linked && !self.have.is_full() {
            self.call_more(1, out);
        }
    }

    fn accuse(&mut self, peer: NodeId, offence: &'static str, out: &mut Actions) {
        self.gone[peer.index()] = true;
        out.push(Action::Accuse { peer, offence });
    }

    // ---- asking

    fn learn(&mut self, node: NodeId, block: BlockId) {
        if let Some(peer) = self.peers.get_mut(node)
            && peer.theirs.insert(block)
            && self.interest.wants(block, Metal::Any)
        {
            peer.offers.add(block, false, &self.interest);
        }
    }

    fn reopen(&mut self, block: BlockId) {
        if self.have.contains(block) {
            return;
        }
        debug_assert!(
            !self.interest.open().contains(block),
            "it was asked of no node"
        );
        self.interest.reopen(block, false);
        for (_, peer) in self.peers.iter_mut() {
            if peer.theirs.contains(block) {
                peer.offers.add(block, false, &self.interest);
            }
        }
    }

    /// Says whether a peer is of interest, if that has changed, and asks it for blocks.
    fn fill(&mut self, node: NodeId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(node) else {
            return;
        };
        if !peer.interesting && peer.has_more_than(&self.have) {
            peer.interesting = true;
            out.send(node, &Message::Interested { yes: true });
        }
        while !peer.choking && !self.shunned[node.index()] && peer.requests.has_room() {
            let random = || self.random.next_u32();
            let Some(block) = self.interest.take(&mut peer.offers, Metal::Any, random) else {
                break;
            };
            peer.requests.ask(block);
            out.send(node, &Message::Request { block });
        }
        if peer.interesting && peer.requests.asked().is_empty() && !peer.has_more_than(&self.have) {
            peer.interesting = false;
            out.send(node, &Message::Interested { yes: false });
        }
    }

    fn fill_all(&mut self, out: &mut Actions) {
        for node in self.peers.pick(|_| true) {
            self.fill(node, out);
        }
    }

    fn on_block(&mut self, from: NodeId, block: BlockId, fresh: bool, out: &mut Actions) {
        self.interest.close(block);
        if let Some(peer) = self.peers.get_mut(from) {
            peer.requests.answered(block);
            peer.gave[0] += 1;
        }
        if fresh && self.have.insert(block) {
            self.fed = self.round;
            let told = self.peers.pick(|peer| !peer.theirs.contains(block));
            out.send_all(told, &Message::Have { block });
        }
        if self.have.is_full() {
            self.fill_all(out);
        } else {
            self.fill(from, out);
        }
    }

    // ---- letting others ask

    fn on_request(&mut self, from: NodeId, block: BlockId, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        if peer.choked || !self.have.contains(block) {
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
        if !peer.choking {
            peer.theirs.remove(block);
        }
        self.reopen(block);
        self.fill_all(out);
    }

    /// Decides which peers may request until the next round.
    fn rechoke(&mut self, out: &mut Actions) {
        let seed = self.have.is_full();
        let mut wanting: Vec<(u32, NodeId)> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.interested)
            .map(|(node, peer)| (peer.merit(seed), node))
            .collect();
        if wanting.is_empty() {
            return;
        }
        // Of peers with equal merit a random one: shuffle, then sort by merit alone.
        for last in (1..wanting.len()).rev() {
            wanting.swap(last, self.random.next_u32() as usize % (last + 1));
        }
        wanting.sort_by_key(|(merit, _)| std::cmp::Reverse(*merit));
        let mut may: Vec<NodeId> = wanting.iter().map(|(_, node)| *node).collect();
        let others = may.split_off(may.len().min(UNCHOKED - 1));
        debug_assert!(!others.iter().any(|node| may.contains(node)));
        if self.round.is_multiple_of(OPTIMISTIC_ROUNDS)
            || !self.optimistic.is_some_and(|node| others.contains(&node))
        {
            self.optimistic = self.draw_optimistic(&others);
        }
        may.extend(self.optimistic);
        debug_assert!(may.len() <= UNCHOKED);
        for (node, peer) in self.peers.iter_mut() {
            let choked = !may.contains(&node);
            if peer.choked != choked {
                peer.choked = choked;
                out.send(node, &Message::Choke { yes: choked });
            }
            peer.gave = [0, peer.gave[0]];
            peer.took = [0, peer.took[0]];
        }
    }

    fn draw_optimistic(&mut self, among: &[NodeId]) -> Option<NodeId> {
        let weight = |node: &NodeId| {
            let newcomer = self
                .peers
                .get(*node)
                .is_some_and(|peer| peer.theirs.is_empty());
            if newcomer { NEWCOMER_WEIGHT } else { 1 }
        };
        let total: u32 = among.iter().map(weight).sum();
        let mut lot = self.random.next_u32() % total.max(1);
        let drawn = among.iter().find(|node| {
            let weight = weight(node);
            let hit = lot < weight;
            lot = lot.saturating_sub(weight);
            hit
        });
        debug_assert_eq!(drawn.is_none(), among.is_empty());
        drawn.copied()
    }

    // ---- clocks and messages

    fn tick_on(&mut self, now: Time, out: &mut Actions) {
        if !self.ticking {
            self.ticking = true;
            let at = now + ROUND;
            let timer = ROUNDS;
            out.push(Action::SetTimer { timer, at });
        }
    }

    fn on_round(&mut self, now: Time, out: &mut Actions) {
        self.ticking = false;
        self.round = self.round.wrapping_add(1);
        self.part_from_the_late(out);
        self.rechoke(out);
        let hungry = !self.have.is_full();
        let waits = self
            .peers
            .iter()
            .any(|(_, peer)| !peer.requests.asked().is_empty());
        if hungry && !waits {
            self.pardon(out);
        }
        if hungry && !waits && self.round.wrapping_sub(self.fed) >= BORED_ROUNDS {
            self.fed = self.round;
            self.call_more(CALLS_MORE, out);
        }
        if hungry || self.peers.iter().any(|(_, peer)| peer.interested) {
            self.tick_on(now, out);
        }
    }

    /// Parts from peers that owed something for a whole round and gave nothing, and asks them no more: others
    /// may have it. The thesis has no such peers.
    fn part_from_the_late(&mut self, out: &mut Actions) {
        let late =
            |peer: &Peer| peer.owed && peer.gave[0] == 0 && !peer.requests.asked().is_empty();
        for node in self.peers.pick(late) {
            self.called[node.index()] = false;
            self.shunned[node.index()] = true;
            out.push(Action::Disconnect(node));
        }
        for (_, peer) in self.peers.iter_mut() {
            peer.owed = !peer.requests.asked().is_empty();
        }
    }

    /// Nobody else has what is missing: those that were late may just be slow.
    fn pardon(&mut self, out: &mut Actions) {
        for index in 0..self.shunned.len() {
            if !std::mem::take(&mut self.shunned[index]) || self.gone[index] {
                continue;
            }
            let node = NodeId(index as u32);
            if self.peers.contains(node) {
                self.fill(node, out);
            } else {
                self.call(node, out);
            }
        }
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Actions) {
        let Ok(message) = postcard::from_bytes(body) else {
            return self.accuse(from, "sent an invalid message", out);
        };
        let blocks = self.have.len();
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        match message {
            Message::Have { block } | Message::Request { block } | Message::Refuse { block }
                if block >= blocks =>
            {
                self.accuse(from, "named blocks the object lacks", out);
            }
            Message::Have { block } => {
                self.learn(from, block);
                self.fill(from, out);
            }
            Message::Request { block } => self.on_request(from, block, out),
            Message::Refuse { block } => self.on_refuse(from, block, out),
            Message::Bitfield { .. } if std::mem::replace(&mut peer.told, true) => {
                self.accuse(from, "says as a set what it has again", out);
            }
            Message::Bitfield { have } => match BlockSet::from_wire(&have, blocks) {
                Some(have) => {
                    have.iter().for_each(|block| self.learn(from, block));
                    self.fill(from, out);
                }
                None => self.accuse(from, "named blocks the object lacks", out),
            },
            Message::Interested { yes } => {
                peer.interested = yes;
                self.tick_on(now, out);
            }
            Message::Choke { yes } => {
                peer.choking = yes;
                self.fill(from, out);
            }
        }
    }
}

impl Peer {
    fn new(blocks: u32, choked: bool) -> Self {
        Self {
            told: false,
            theirs: BlockSet::new(blocks),
            offers: Offers::default(),
            requests: Requests::default(),
            interested: false,
            interesting: false,
            choked,
            choking: true,
            gave: [0; 2],
            took: [0; 2],
            owed: false,
        }
    }

    /// Whether it has a block that is not here.
    fn has_more_than(&self, have: &BlockSet) -> bool {
        !self.theirs.is_subset(have)
    }

    /// What speaks for letting it ask.
    const fn merit(&self, seed: bool) -> u32 {
        let [now, before] = if seed { self.took } else { self.gave };
        now + before
    }
}

impl Protocol for Torrent {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Coded(_) | Event::Achieved { .. } | Event::Foreground(_) => {}
            Event::Start => self.start(now, out),
            Event::PeerUp(peer) => self.on_up(now, peer, out),
            Event::PeerDown(peer) => self.on_down(peer, out),
            Event::Left(peer) => self.on_gone(peer, out),
            Event::Message { from, body } => self.on_message(now, from, body, out),
            Event::Arrived { from, block, fresh } => self.on_block(from, block, fresh, out),
            Event::Rejected { from, .. } => self.gone[from.index()] = true,
            Event::Sent { to, .. } => {
                if let Some(peer) = self.peers.get_mut(to) {
                    peer.requests.sent();
                    peer.took[0] += 1;
                }
            }
            Event::Timer(_) => self.on_round(now, out),
        }
        self.check();
    }
}
