//! With as many blocks as an object can have, of which every node has some here and there, what nodes say
//! still fits a message.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use outpour_core::blocks::wire_bytes_max;
use outpour_core::manifest::BLOCKS_MAX;
use outpour_core::{Batches, BlockSet, NodeId, Time};
use outpour_protocols::registry::{ENTRIES, Entry};
use outpour_protocols::{
    Action, Actions, Event, MESSAGE_BYTES_MAX, Member, Protocol, Role, Setup, TimerId,
};

const NODES: usize = 5;
const SOURCE: usize = 4;
/// How many events are played.
const EVENTS: usize = 40;

struct Node {
    protocol: Box<dyn Protocol>,
    have: BlockSet,
    up: [bool; NODES],
    timers: Vec<(Time, TimerId)>,
}

/// Every second block, and none of some longer stretches; other ones for each node.
fn some(node: usize) -> BlockSet {
    let mut have = BlockSet::new(BLOCKS_MAX);
    if node == SOURCE {
        return BlockSet::full(BLOCKS_MAX);
    }
    for block in (node as u32..BLOCKS_MAX).step_by(2) {
        if block / 50_000 % 4 != node as u32 {
            have.insert(block);
        }
    }
    have
}

fn nodes(entry: &'static Entry) -> Vec<Node> {
    let member = |(node, cluster)| Member {
        cluster,
        role: Role::source_if(node == SOURCE),
    };
    let members: Vec<Member> = (0..).zip([0, 0, 1, 1, 2]).map(member).collect();
    let build = |me| Node {
        protocol: entry.by_default().build(Setup {
            me: NodeId(me as u32),
            members: members.clone(),
            block_bytes: 1024,
            want: BlockSet::full(BLOCKS_MAX),
            have: some(me),
            seed: 3,
            plan: None,
            batches: entry.coding.map(|_| Batches::new(BLOCKS_MAX, 8).unwrap()),
        }),
        have: some(me),
        up: [false; NODES],
        timers: Vec::new(),
    };
    (0..NODES).map(build).collect()
}

enum Due {
    Up(usize, usize),
    Message(usize, usize, Vec<u8>),
    Block(usize, usize, u32),
}

/// Nodes that hear each other at once.
struct Play {
    nodes: Vec<Node>,
    due: VecDeque<Due>,
    now: Time,
    actions: Actions,
    /// The length of the longest message.
    longest: usize,
}

impl Play {
    fn run(entry: &'static Entry) -> usize {
        let mut play = Self {
            nodes: nodes(entry),
            due: VecDeque::new(),
            now: Time::ZERO,
            actions: Actions::default(),
            longest: 0,
        };
        (0..NODES).for_each(|node| play.handle(node, Event::Start));
        for _ in 0..EVENTS {
            let more = match play.due.pop_front() {
                Some(due) => {
                    play.happen(due);
                    true
                }
                None => play.fire(),
            };
            if !more {
                break;
            }
        }
        play.longest
    }

    /// Lets the next timer be due; false if there is none.
    fn fire(&mut self) -> bool {
        let nodes = self.nodes.iter().enumerate();
        let timers = nodes.filter_map(|(node, state)| {
            let next = state.timers.iter().min().copied();
            next.map(|(at, timer)| (at, node, timer))
        });
        let Some((at, node, timer)) = timers.min() else {
            return false;
        };
        self.now = self.now.max(at);
        self.nodes[node].timers.retain(|(_, other)| *other != timer);
        self.handle(node, Event::Timer(timer));
        true
    }

    fn happen(&mut self, due: Due) {
        let id = |node: usize| NodeId(node as u32);
        match due {
            Due::Up(a, b) => {
                self.handle(a, Event::PeerUp(id(b)));
                self.handle(b, Event::PeerUp(id(a)));
            }
            Due::Message(from, to, body) => {
                let (from, body) = (id(from), &body[..]);
                self.handle(to, Event::Message { from, body });
            }
            Due::Block(sender, receiver, block) => {
                let fresh = self.nodes[receiver].have.insert(block);
                let (from, to) = (id(sender), id(receiver));
                self.handle(receiver, Event::Arrived { from, block, fresh });
                self.handle(sender, Event::Sent { to, block });
            }
        }
    }

    fn handle(&mut self, node: usize, event: Event<'_>) {
        let Self {
            nodes,
            due,
            actions,
            ..
        } = self;
        nodes[node].protocol.handle(self.now, event, actions);
        for action in actions.drain() {
            match action {
                Action::Connect(peer) => {
                    let peer = peer.index();
                    if !nodes[node].up[peer] {
                        (nodes[node].up[peer], nodes[peer].up[node]) = (true, true);
                        due.push_back(Due::Up(node, peer));
                    }
                }
                Action::Send { to, body } => {
                    assert!(body.len() <= MESSAGE_BYTES_MAX, "{} bytes", body.len());
                    self.longest = body.len().max(self.longest);
                    due.push_back(Due::Message(node, to.index(), body));
                }
                Action::SendBlock { to, block } => {
                    due.push_back(Due::Block(node, to.index(), block));
                }
                Action::SetTimer { timer, at } => {
                    nodes[node].timers.retain(|(_, other)| *other != timer);
                    nodes[node].timers.push((at, timer));
                }
                Action::Accuse { offence, .. } => panic!("an honest node is accused: {offence}"),
                Action::Disconnect(_) | Action::SendPacket { .. } | Action::SetRate { .. } => {}
            }
        }
    }
}

#[test]
fn sets_of_the_largest_objects_in_pieces_fit_a_message() {
    let mut sets = 0;
    for entry in ENTRIES.iter().filter(|entry| !entry.plan.is_made_before()) {
        let longest = Play::run(entry);
        println!("{}: {longest}", entry.name);
        sets += usize::from(longest >= wire_bytes_max(BLOCKS_MAX) / 2);
    }
    // Those that say what they have as a set; the others count, or say it run by run.
    assert!(sets >= 7, "{sets} protocols sent a large set");
}
