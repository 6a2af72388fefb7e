//! A small cast of which one member lies.
//!
//! Four nodes move an object by a protocol of the registry, message by message. What one of them says is
//! changed on its way as the input tells: bytes are turned, cut off, put in, said twice or not at all, blocks
//! are wrong or withheld. The others are held to the contract of drivers, and may not accuse each other.
//! Without input all of them are honest, and everyone gets everything (see the tests).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use outpour_coding::{Span, Worth as Found};
use outpour_core::plan::Tree;
use outpour_core::{
    BatchId, Batches, BlockId, BlockSet, Holding, NodeId, Plan, Rate, Support, Time, Worth,
};
use outpour_protocols::registry::{ENTRIES, Entry, PlanFrom};
use outpour_protocols::{
    Action, Actions, Coded, Event, MESSAGE_BYTES_MAX, Member, Protocol, Role, SEND_QUEUE_MAX,
    Setup, TimerId,
};

use crate::input::Input;

const NODES: usize = 4;
const BLOCKS: u32 = 20;
const BATCH: u16 = 5;
const BLOCK_BYTES: u32 = 1024;
/// What a message or a block takes.
const STEP: Duration = Duration::from_millis(2);
/// How often nodes are told what they achieve.
const ACHIEVED: Duration = Duration::from_millis(500);
/// Nobody wants more than this done about one event.
const ACTIONS_MAX: usize = 2000;
/// A cast of so few blocks is over by then, unless the liar keeps it from that.
const EVENTS_MAX: usize = 6000;
const TIME_MAX: Duration = Duration::from_secs(240);

/// Input: which protocol, who lies, how the roles are; then what is done to what the liar sends.
pub(crate) fn play(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let entry = &ENTRIES[usize::from(input.byte()) % ENTRIES.len()];
    let header = input.byte();
    let liar = usize::from(header) % NODES;
    let mut world = World::new(entry, liar, header >> 2);
    world.run(&mut input);
}

/// What is under way.
#[derive(Debug)]
enum Due {
    Up,
    Down,
    Left,
    Message(Vec<u8>),
    /// A block, and whether it is what it should be.
    Block(BlockId, bool),
    Packet(BatchId, Vec<u8>),
    SentBlock(BlockId),
    SentPacket(BatchId),
}

struct Node {
    protocol: Box<dyn Protocol>,
    have: BlockSet,
    /// What is here of each batch.
    spans: Vec<Span>,
    up: [bool; NODES],
    queued: [usize; NODES],
    timers: BTreeMap<TimerId, Time>,
    rates: [bool; NODES],
}

pub(crate) struct World {
    liar: usize,
    now: Time,
    nodes: Vec<Node>,
    wants: Vec<bool>,
    batches: Option<Batches>,
    /// To whom, from whom, over which connection of the two, what.
    due: VecDeque<(usize, usize, u32, Due)>,
    /// The number of the connection of each pair, and whether it is there.
    links: [[(u32, bool); NODES]; NODES],
    barred: [[bool; NODES]; NODES],
    events: usize,
    drawn: u64,
}

impl World {
    pub(crate) fn new(entry: &'static Entry, liar: usize, roles: u8) -> Self {
        let role = |node| match node {
            0 => Role::Source,
            1 if roles & 1 == 1 && !entry.plan.is_made_before() => Role::Source,
            3 if roles & 2 == 2 && entry.selective => Role::Relay,
            _ => Role::Receiver,
        };
        let member = |(node, cluster)| Member {
            cluster,
            role: role(node),
        };
        let members: Vec<Member> = (0..).zip([0, 0, 1, 1]).map(member).collect();
        let batches = entry.coding.and_then(|_| Batches::new(BLOCKS, BATCH));
        let plan = matches!(entry.plan, PlanFrom::Method(_) | PlanFrom::User).then(|| {
            let edges = [(0, 1), (0, 2), (2, 3)].map(|(from, to)| (NodeId(from), NodeId(to)));
            let rate = Rate::from_bytes_per_s(1e6).expect("a rate");
            let trees = vec![Tree {
                rate,
                edges: edges.to_vec(),
            }];
            Arc::new(Plan {
                roots: vec![NodeId(0)],
                trees,
            })
        });
        let node = |(me, member): (u32, &Member)| {
            let have = match member.role {
                Role::Source => BlockSet::full(BLOCKS),
                _ => BlockSet::new(BLOCKS),
            };
            let want = match member.role {
                Role::Relay => BlockSet::new(BLOCKS),
                _ => BlockSet::full(BLOCKS),
            };
            let setup = Setup {
                me: NodeId(me),
                members: members.clone(),
                block_bytes: BLOCK_BYTES,
                have: have.clone(),
                want,
                seed: 5,
                plan: plan.clone(),
                batches,
            };
            let span = |batch| match (batches, member.role) {
                (Some(batches), Role::Source) => Span::full(batches.rank_of(batch).into()),
                (Some(batches), _) => Span::new(batches.rank_of(batch).into()),
                (None, _) => Span::new(1),
            };
            Node {
                protocol: entry.by_default().build(setup),
                have,
                spans: (0..batches.map_or(0, |it| it.count()))
                    .map(|batch| span(batch).expect("batches of 1 to 256 blocks"))
                    .collect(),
                up: [false; NODES],
                queued: [0; NODES],
                timers: BTreeMap::new(),
                rates: [false; NODES],
            }
        };
        Self {
            liar,
            now: Time::ZERO,
            nodes: (0..).zip(&members).map(node).collect(),
            wants: members.iter().map(|it| it.role != Role::Relay).collect(),
            batches,
            due: VecDeque::new(),
            links: [[(0, false); NODES]; NODES],
            barred: [[false; NODES]; NODES],
            events: 0,
            drawn: 0,
        }
    }

    /// Whether everyone has what it wants.
    pub(crate) fn is_complete(&self) -> bool {
        let nodes = self.nodes.iter().zip(&self.wants);
        nodes
            .into_iter()
            .all(|(node, wants)| !wants || node.have.is_full())
    }

    pub(crate) fn run(&mut self, input: &mut Input<'_>) {
        for node in 0..NODES {
            self.tell(node, Event::Start, input);
        }
        let mut achieved = self.now + ACHIEVED;
        while self.events < EVENTS_MAX && self.now.since(Time::ZERO) < TIME_MAX {
            if self.is_complete() && (input.is_empty() || self.due.is_empty()) {
                return;
            }
            if self.now >= achieved {
                achieved = self.now + ACHIEVED;
                self.achieve(input);
            }
            self.fire(input);
            match self.due.pop_front() {
                Some((to, from, link, due)) => {
                    self.now += STEP;
                    self.deliver(to, from, link, due, input);
                }
                None => {
                    let next = self
                        .nodes
                        .iter()
                        .flat_map(|node| node.timers.values().copied());
                    let Some(next) = next.min() else {
                        return;
                    };
                    self.now = self.now.max(next.min(achieved));
                }
            }
        }
    }

    fn achieve(&mut self, input: &mut Input<'_>) {
        for (node, to) in pairs() {
            if self.nodes[node].rates[to] && self.nodes[node].up[to] {
                let rate = Rate::from_bytes_per_s(1e5).expect("a rate");
                let event = Event::Achieved { to: id(to), rate };
                self.tell(node, event, input);
            }
        }
    }

    fn fire(&mut self, input: &mut Input<'_>) {
        for node in 0..NODES {
            let timers = self.nodes[node].timers.iter();
            let due = timers
                .filter(|(_, at)| **at <= self.now)
                .map(|(timer, _)| *timer);
            for timer in due.collect::<Vec<_>>() {
                if self.nodes[node]
                    .timers
                    .get(&timer)
                    .is_some_and(|at| *at <= self.now)
                {
                    self.nodes[node].timers.remove(&timer);
                    self.tell(node, Event::Timer(timer), input);
                }
            }
        }
    }

    fn tell(&mut self, node: usize, event: Event<'_>, input: &mut Input<'_>) {
        self.events += 1;
        let mut actions = Actions::default();
        self.nodes[node]
            .protocol
            .handle(self.now, event, &mut actions);
        let actions: Vec<Action> = actions.drain().collect();
        assert!(actions.len() < ACTIONS_MAX, "{} actions", actions.len());
        for action in actions {
            self.carry_out(node, action, input);
        }
    }

    fn deliver(&mut self, to: usize, from: usize, link: u32, due: Due, input: &mut Input<'_>) {
        let is_there = self.links[to][from] == (link, true);
        let peer = id(from);
        match due {
            Due::Up if is_there && !self.nodes[to].up[from] => {
                self.nodes[to].up[from] = true;
                self.tell(to, Event::PeerUp(peer), input);
            }
            Due::Down if self.nodes[to].up[from] => {
                self.nodes[to].up[from] = false;
                self.nodes[to].queued[from] = 0;
                self.nodes[to].rates[from] = false;
                self.tell(to, Event::PeerDown(peer), input);
            }
            Due::Left => self.tell(to, Event::Left(peer), input),
            _ if !is_there || !self.nodes[to].up[from] => {}
            Due::Message(body) => {
                let event = Event::Message {
                    from: peer,
                    body: &body,
                };
                self.tell(to, event, input);
            }
            Due::Block(block, true) => self.arrive(to, from, block, input),
            Due::Block(block, false) => {
                self.tell(to, Event::Rejected { from: peer, block }, input);
                self.part_for_good(to, from);
            }
            Due::Packet(batch, coefficients) => self.take(to, from, batch, &coefficients, input),
            Due::SentBlock(block) => {
                self.nodes[to].queued[from] -= 1;
                self.tell(to, Event::Sent { to: peer, block }, input);
            }
            Due::SentPacket(batch) => {
                self.nodes[to].queued[from] -= 1;
                self.tell(to, Event::Coded(Coded::Sent { to: peer, batch }), input);
            }
            Due::Up | Due::Down => {}
        }
    }

    fn arrive(&mut self, to: usize, from: usize, block: BlockId, input: &mut Input<'_>) {
        let fresh = self.nodes[to].have.insert(block);
        let event = Event::Arrived {
            from: id(from),
            block,
            fresh,
        };
        self.tell(to, event, input);
        if let Some(batches) = self.batches.filter(|_| fresh) {
            let batch = batches.batch_of(block);
            let mut unit = vec![0; batches.rank_of(batch).into()];
            unit[(block - batches.range(batch).start) as usize] = 1;
            self.take(to, from, batch, &unit, input);
        }
    }

    /// A piece of a batch that is not whole yet.
    fn take(
        &mut self,
        to: usize,
        from: usize,
        batch: BatchId,
        vector: &[u8],
        input: &mut Input<'_>,
    ) {
        let Some(batches) = self.batches else {
            return;
        };
        let node = &mut self.nodes[to];
        let span = &mut node.spans[batch as usize];
        if span.is_full() {
            return;
        }
        let worth = match span.insert(vector).expect("as long as the batch") {
            Found::Innovative => Worth::Innovative,
            Found::Dependent => Worth::Dependent,
            Found::Zero => Worth::Zero,
        };
        let holding = Holding {
            rank: span.rank() as u16,
            support: Support::from_words(span.support()),
        };
        let (is_full, from) = (span.is_full(), id(from));
        let packet = Coded::Packet {
            from,
            batch,
            worth,
            holding,
        };
        self.tell(to, Event::Coded(packet), input);
        if is_full {
            for block in batches.range(batch) {
                if self.nodes[to].have.insert(block) {
                    let fresh = true;
                    self.tell(to, Event::Arrived { from, block, fresh }, input);
                }
            }
            self.tell(to, Event::Coded(Coded::Decoded { batch }), input);
        }
    }

    fn carry_out(&mut self, node: usize, action: Action, input: &mut Input<'_>) {
        match action {
            Action::Connect(peer) => self.connect(node, peer.index()),
            Action::Disconnect(peer) => self.part(node, peer.index()),
            Action::Send { to, body } => {
                assert!(
                    self.nodes[node].up[to.index()],
                    "a message to {to}, which is not up"
                );
                assert!(body.len() <= MESSAGE_BYTES_MAX);
                match node == self.liar {
                    true => self.lie(to.index(), body, input),
                    false => self.send(to.index(), node, Due::Message(body)),
                }
            }
            Action::SendBlock { to, block } => {
                self.queue(node, to.index());
                assert!(
                    self.nodes[node].have.contains(block),
                    "a block that is not here"
                );
                let what = if node == self.liar { input.byte() } else { 0 };
                match what {
                    250..=252 => self.send(to.index(), node, Due::Block(block, false)),
                    253..=255 => {}
                    _ => self.send(to.index(), node, Due::Block(block, true)),
                }
                self.send(node, to.index(), Due::SentBlock(block));
            }
            Action::SendPacket { to, batch, .. } => {
                self.queue(node, to.index());
                let vector = self.make(node, batch);
                self.send(to.index(), node, Due::Packet(batch, vector));
                self.send(node, to.index(), Due::SentPacket(batch));
            }
            Action::SetRate { to, rate } => {
                assert!(
                    self.nodes[node].up[to.index()],
                    "a rate to {to}, which is not up"
                );
                self.nodes[node].rates[to.index()] = !rate.is_unlimited();
            }
            Action::SetTimer { timer, at } => {
                // A timer that is set anew for the past would fire without end.
                let at = at.max(self.now + Duration::from_micros(1));
                self.nodes[node].timers.insert(timer, at);
            }
            Action::Accuse { peer, offence } => {
                let is_sound = node == self.liar || peer.index() == self.liar;
                assert!(
                    is_sound,
                    "{node} accuses {peer} of `{offence}`, but {} lies",
                    self.liar
                );
                self.part_for_good(node, peer.index());
            }
        }
    }

    fn queue(&mut self, node: usize, to: usize) {
        assert!(self.nodes[node].up[to], "data to {to}, which is not up");
        let queued = &mut self.nodes[node].queued[to];
        *queued += 1;
        assert!(*queued <= SEND_QUEUE_MAX, "{queued} blocks are queued");
    }

    /// A packet of what a node has of a batch.
    fn make(&mut self, node: usize, batch: BatchId) -> Vec<u8> {
        let span = &self.nodes[node].spans[batch as usize];
        assert!(
            span.rank() > 0,
            "a packet of a batch of which nothing is here"
        );
        let weights: Vec<u8> = (0..span.rank())
            .map(|_| {
                let drawn = self
                    .drawn
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                self.drawn = drawn;
                (drawn >> 56) as u8 | 1
            })
            .collect();
        let mut vector = vec![0; span.blocks()];
        span.combine(&weights, &mut vector).expect("sizes fit");
        vector
    }

    fn send(&mut self, to: usize, from: usize, due: Due) {
        let (link, is_there) = self.links[to][from];
        if is_there {
            self.due.push_back((to, from, link, due));
        }
    }

    /// Sends what the liar makes of its message.
    fn lie(&mut self, to: usize, mut body: Vec<u8>, input: &mut Input<'_>) {
        let liar = self.liar;
        let place = |byte: u8, len: usize| usize::from(byte) % len.max(1);
        let mut twice = false;
        match input.byte() {
            0..=31 => {}
            32..=95 if !body.is_empty() => {
                let at = place(input.byte(), body.len());
                body[at] ^= input.byte();
            }
            96..=127 if !body.is_empty() => {
                let at = place(input.byte(), body.len());
                body[at] = input.byte();
            }
            128..=143 => body.truncate(place(input.byte(), body.len() + 1)),
            144..=159 => {
                let at = place(input.byte(), body.len() + 1);
                let len = usize::from(input.byte() % 16);
                body.splice(at..at, input.take(len).iter().copied());
            }
            160..=191 => {
                let len = usize::from(input.byte() % 64);
                body = input.take(len).to_vec();
            }
            192..=223 => {
                let len = usize::from(input.byte() % 64);
                let more = input.take(len).to_vec();
                self.send(to, liar, Due::Message(more));
            }
            224..=231 => twice = true,
            232..=239 => return,
            240..=247 => self.part(liar, to),
            _ => {
                let other = (to + 1) % NODES;
                if other != liar && self.nodes[liar].up[other] {
                    self.send(other, liar, Due::Message(body.clone()));
                }
            }
        }
        if twice {
            self.send(to, liar, Due::Message(body.clone()));
        }
        self.send(to, liar, Due::Message(body));
    }

    fn connect(&mut self, a: usize, b: usize) {
        assert!(a != b, "it connects to itself");
        if self.barred[a][b] || self.links[a][b].1 {
            return;
        }
        let link = self.links[a][b].0 + 1;
        for (to, from) in [(a, b), (b, a)] {
            self.links[to][from] = (link, true);
            self.due.push_back((to, from, link, Due::Up));
        }
    }

    fn part(&mut self, a: usize, b: usize) {
        let (link, is_there) = self.links[a][b];
        if !is_there {
            return;
        }
        for (to, from) in [(a, b), (b, a)] {
            self.links[to][from].1 = false;
            // What is said once the connection is gone reaches nobody.
            self.due.push_back((to, from, link, Due::Down));
        }
    }

    /// A node has nothing more to do with a peer.
    fn part_for_good(&mut self, node: usize, peer: usize) {
        if std::mem::replace(&mut self.barred[node][peer], true) {
            return;
        }
        let link = self.links[node][peer].0;
        self.part(node, peer);
        self.due.push_back((node, peer, link, Due::Left));
        if !std::mem::replace(&mut self.barred[peer][node], true) {
            self.due.push_back((peer, node, link, Due::Left));
        }
    }
}

fn id(node: usize) -> NodeId {
    NodeId(node as u32)
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..NODES).flat_map(|a| (0..NODES).map(move |b| (a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else it would not be known whether liars meet anything.
    #[test]
    fn among_honest_nodes_everyone_gets_everything() {
        for entry in ENTRIES {
            for roles in 0..4 {
                let mut world = World::new(entry, NODES - 1, roles);
                world.run(&mut Input::new(&[]));
                assert!(
                    world.is_complete(),
                    "{} {roles}: {:?}",
                    entry.name,
                    world.now
                );
            }
        }
    }
}
