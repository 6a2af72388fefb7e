//! What sources of a swarm give before they take requests comes once.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use outpour_core::{BlockId, BlockSet, NodeId, Time};
use outpour_protocols::registry::find;
use outpour_protocols::{Action, Actions, Event, Member, Protocol, Role, Setup};

const BLOCKS: u32 = 60;
const SOURCE: NodeId = NodeId(0);
const RECEIVER: NodeId = NodeId(1);
const HOLDER: NodeId = NodeId(2);

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Source,
    /// It lacks everything.
    Receiver,
    /// It is no source, and has everything.
    Holder,
}

/// Nodes whose messages take no time, while blocks stay on their way until they are let through.
struct Swarm {
    nodes: Vec<Box<dyn Protocol>>,
    messages: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    /// Blocks on their way: from whom, to whom.
    blocks: VecDeque<(NodeId, NodeId, BlockId)>,
    have: Vec<BlockSet>,
    times: BTreeMap<(NodeId, BlockId), u32>,
    /// What the first source sent, in order.
    given: Vec<BlockId>,
}

impl Swarm {
    fn new(parts: &[Part]) -> Self {
        let have = |part: &Part| match part {
            Part::Receiver => BlockSet::new(BLOCKS),
            Part::Source | Part::Holder => BlockSet::full(BLOCKS),
        };
        let member = |part: &Part| Member {
            cluster: 0,
            role: Role::source_if(*part == Part::Source),
        };
        let node = |(me, part): (u32, &Part)| {
            find("swarm").unwrap().by_default().build(Setup {
                me: NodeId(me),
                members: parts.iter().map(member).collect(),
                block_bytes: 1024,
                want: BlockSet::full(BLOCKS),
                have: have(part),
                seed: 1,
                plan: None,
                batches: None,
            })
        };
        let mut swarm = Self {
            nodes: (0..).zip(parts).map(node).collect(),
            messages: VecDeque::new(),
            blocks: VecDeque::new(),
            have: parts.iter().map(have).collect(),
            times: BTreeMap::new(),
            given: Vec::new(),
        };
        (0..parts.len() as u32).for_each(|node| swarm.tell(NodeId(node), Event::Start));
        swarm
    }

    fn tell(&mut self, node: NodeId, event: Event<'_>) {
        let mut actions = Actions::default();
        self.nodes[node.index()].handle(Time::ZERO, event, &mut actions);
        let mut sent = Vec::new();
        for action in actions.drain() {
            match action {
                Action::Send { to, body } => self.messages.push_back((node, to, body.to_vec())),
                Action::SendBlock { to, block } => {
                    *self.times.entry((to, block)).or_default() += 1;
                    if node == SOURCE {
                        self.given.push(block);
                    }
                    self.blocks.push_back((node, to, block));
                    sent.push(Event::Sent { to, block });
                }
                Action::Connect(_) | Action::SetTimer { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        for event in sent {
            self.tell(node, event);
        }
    }

    fn connect(&mut self, a: NodeId, b: NodeId) {
        self.tell(a, Event::PeerUp(b));
        self.tell(b, Event::PeerUp(a));
        self.deliver_messages();
    }

    fn deliver_messages(&mut self) {
        while let Some((from, to, body)) = self.messages.pop_front() {
            self.tell(to, Event::Message { from, body: &body });
        }
    }

    fn deliver_block(&mut self) -> bool {
        let Some((from, to, block)) = self.blocks.pop_front() else {
            return false;
        };
        let fresh = self.have[to.index()].insert(block);
        self.tell(to, Event::Arrived { from, block, fresh });
        self.deliver_messages();
        true
    }

    /// Lets everything through: all have everything, and nobody got a block twice.
    #[track_caller]
    fn assert_each_comes_once(mut self) {
        while self.deliver_block() {}
        assert!(self.have.iter().all(BlockSet::is_full));
        self.assert_none_again();
    }

    /// Nobody got a block twice.
    #[track_caller]
    fn assert_none_again(&self) {
        let again = self.times.iter().filter(|(_, times)| **times > 1);
        assert_eq!(again.count(), 0, "{:?}", self.times);
    }
}

#[test]
fn a_source_that_learns_of_a_holder_says_what_it_gave() {
    let mut swarm = Swarm::new(&[Part::Source, Part::Receiver, Part::Holder]);
    swarm.connect(SOURCE, RECEIVER);
    // So that the receiver asks for more.
    assert!(swarm.deliver_block());
    assert!(!swarm.blocks.is_empty());
    swarm.connect(SOURCE, HOLDER);
    swarm.connect(RECEIVER, HOLDER);
    swarm.assert_each_comes_once();
}

/// So many sources and then receivers, all connected.
fn mesh(sources: usize, receivers: usize) -> Swarm {
    let mut parts = vec![Part::Source; sources];
    parts.resize(sources + receivers, Part::Receiver);
    let mut swarm = Swarm::new(&parts);
    for a in 0..parts.len() as u32 {
        (0..a).for_each(|b| swarm.connect(NodeId(a), NodeId(b)));
    }
    swarm
}

#[test]
fn what_several_sources_give_comes_once() {
    for (sources, receivers) in [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (2, 4), (3, 3)] {
        mesh(sources, receivers).assert_each_comes_once();
    }
}

#[test]
fn a_source_gives_each_block_once_before_any_twice() {
    for receivers in 2..6 {
        let mut swarm = mesh(1, receivers);
        while swarm.deliver_block() {}
        assert!(swarm.have.iter().all(BlockSet::is_full));
        let mut first = swarm.given[..BLOCKS as usize].to_vec();
        first.sort_unstable();
        assert!(first.into_iter().eq(0..BLOCKS), "{:?}", swarm.given);
    }
}

#[test]
fn what_a_source_gave_it_does_not_send_on_request() {
    // A second source that never comes.
    let parts = [Part::Source, Part::Receiver, Part::Receiver, Part::Source];
    let mut swarm = Swarm::new(&parts);
    swarm.connect(SOURCE, RECEIVER);
    while swarm.deliver_block() {}
    assert!(swarm.have[RECEIVER.index()].is_full());
    swarm.assert_none_again();
}
