//! What a source of a swarm gives before it takes requests is not requested as well.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use outpour_core::{BlockId, BlockSet, NodeId, Time};
use outpour_protocols::registry::find;
use outpour_protocols::{Action, Actions, Event, Member, Protocol, Role, Setup};

const BLOCKS: u32 = 60;
const SOURCE: NodeId = NodeId(0);
const RECEIVER: NodeId = NodeId(1);
const HOLDER: NodeId = NodeId(2);

/// A source, a receiver that lacks everything, and a holder that has everything. Messages take no
/// time, blocks stay on their way until they are let through.
struct Swarm {
    nodes: Vec<Box<dyn Protocol>>,
    messages: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    /// Blocks on their way to the receiver.
    blocks: VecDeque<(NodeId, BlockId)>,
    times: Vec<u32>,
}

impl Swarm {
    fn new() -> Self {
        let node = |me| {
            let have = if me == RECEIVER {
                BlockSet::new(BLOCKS)
            } else {
                BlockSet::full(BLOCKS)
            };
            let member = |node| Member {
                cluster: 0,
                role: Role::source_if(node == SOURCE),
            };
            find("swarm").unwrap().by_default().build(Setup {
                me,
                members: [SOURCE, RECEIVER, HOLDER].map(member).to_vec(),
                block_bytes: 1024,
                want: BlockSet::full(BLOCKS),
                have,
                seed: 1,
                plan: None,
                batches: None,
            })
        };
        Self {
            nodes: [SOURCE, RECEIVER, HOLDER].map(node).into(),
            messages: VecDeque::new(),
            blocks: VecDeque::new(),
            times: vec![0; BLOCKS as usize],
        }
    }

    fn tell(&mut self, node: NodeId, event: Event<'_>) {
        let mut actions = Actions::default();
        self.nodes[node.index()].handle(Time::ZERO, event, &mut actions);
        let mut sent = Vec::new();
        for action in actions.drain() {
            match action {
                Action::Send { to, body } => self.messages.push_back((node, to, body.to_vec())),
                Action::SendBlock { to, block } => {
                    assert_eq!(to, RECEIVER);
                    self.times[block as usize] += 1;
                    self.blocks.push_back((node, block));
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
        let Some((from, block)) = self.blocks.pop_front() else {
            return false;
        };
        let fresh = true;
        self.tell(RECEIVER, Event::Arrived { from, block, fresh });
        self.deliver_messages();
        true
    }
}

/// Connects source and receiver, and lets one block through, so that the receiver asks for more.
fn given_some() -> Swarm {
    let mut swarm = Swarm::new();
    (0..3).for_each(|node| swarm.tell(NodeId(node), Event::Start));
    swarm.connect(SOURCE, RECEIVER);
    assert!(swarm.deliver_block());
    assert!(!swarm.blocks.is_empty());
    swarm
}

fn assert_each_comes_once(mut swarm: Swarm) {
    while swarm.deliver_block() {}
    assert_eq!(swarm.times, vec![1; BLOCKS as usize]);
}

#[test]
fn a_source_that_learns_of_a_holder_says_what_it_gave() {
    let mut swarm = given_some();
    swarm.connect(SOURCE, HOLDER);
    swarm.connect(RECEIVER, HOLDER);
    assert_each_comes_once(swarm);
}
