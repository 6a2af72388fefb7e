//! What strangers say is answered by an accusation or not at all, never by a panic.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use outpour_core::{Batches, BlockSet, NodeId, Time};
use outpour_protocols::registry::find;
use outpour_protocols::{
    Action, Actions, Coded, Event, MESSAGE_BYTES_MAX, Member, Protocol, Role, SEND_QUEUE_MAX, Setup,
};
use proptest::prelude::*;

const BLOCKS: u32 = 90;
const PROTOCOLS: [&str; 12] = [
    "direct",
    "chain",
    "swarm",
    "push",
    "mob",
    "robber",
    "bittorrent",
    "tree",
    "adaptive",
    "central",
    "coded-gossip",
    "random-block",
];
/// Stands for a packet where blocks are counted.
const PACKET: u32 = u32::MAX;

/// A node with half of the blocks among two of its cluster, itself included, and three others.
fn node(protocol: &str) -> Box<dyn Protocol> {
    build(protocol, BlockSet::full(BLOCKS), 5)
}

/// The same, which wants these blocks, with a source if a member has that number.
fn build(protocol: &str, want: BlockSet, source: usize) -> Box<dyn Protocol> {
    let member = |(node, cluster)| Member {
        cluster,
        role: Role::source_if(node == source),
    };
    let mut have = BlockSet::new(BLOCKS);
    have.insert_range(20..65);
    find(protocol).unwrap().by_default().build(Setup {
        me: NodeId(1),
        members: (0..).zip([0, 0, 1, 1, 2]).map(member).collect(),
        block_bytes: 1024,
        want,
        have,
        seed: 3,
        plan: None,
        batches: (protocol == "coded-gossip").then(|| Batches::new(BLOCKS, 8).unwrap()),
    })
}

#[derive(Clone, Debug)]
enum Step {
    Say(u32, Vec<u8>),
    Up(u32),
    Down(u32),
    Left(u32),
    Arrive(u32, u32),
    Sent(u32),
    Timer(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let peer = prop_oneof![Just(0_u32), Just(2), Just(3), Just(4)];
    // Mostly what begins like a message and has small numbers in it.
    let body = prop_oneof![
        8 => (0_u8..14, prop::collection::vec(0_u8..100, 0..12)).prop_map(|(tag, mut rest)| {
            rest.insert(0, tag);
            rest
        }),
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ];
    prop_oneof![
        12 => (peer.clone(), body).prop_map(|(peer, body)| Step::Say(peer, body)),
        2 => peer.clone().prop_map(Step::Up),
        1 => peer.clone().prop_map(Step::Down),
        1 => peer.clone().prop_map(Step::Left),
        2 => (peer.clone(), 0..BLOCKS).prop_map(|(peer, block)| Step::Arrive(peer, block)),
        2 => peer.prop_map(Step::Sent),
        2 => (0_u32..3).prop_map(Step::Timer),
    ]
}

/// The driver's side: what is up, queued and here.
struct Driver {
    up: [bool; 5],
    left: [bool; 5],
    have: BlockSet,
    queued: BTreeMap<NodeId, Vec<u32>>,
}

impl Driver {
    fn carry_out(&mut self, actions: &mut Actions) -> Vec<NodeId> {
        let mut accused = Vec::new();
        for action in actions.drain() {
            match action {
                Action::Send { to, body } => {
                    assert!(self.up[to.index()], "a message to {to}, which is not up");
                    assert!(body.len() <= MESSAGE_BYTES_MAX);
                }
                Action::SendBlock { to, block } => {
                    assert!(self.up[to.index()], "a block to {to}, which is not up");
                    assert!(self.have.contains(block));
                    let queued = self.queued.entry(to).or_default();
                    queued.push(block);
                    assert!(queued.len() <= SEND_QUEUE_MAX);
                }
                Action::Accuse { peer, .. } => accused.push(peer),
                Action::Connect(node) | Action::Disconnect(node) => {
                    assert!(node != NodeId(1) && node.index() < 5);
                }
                Action::SendPacket { to, batch, .. } => {
                    assert!(self.up[to.index()], "a packet to {to}, which is not up");
                    let mut blocks = batch * 8..(batch * 8 + 8).min(BLOCKS);
                    assert!(blocks.any(|block| self.have.contains(block)));
                    let queued = self.queued.entry(to).or_default();
                    queued.push(PACKET);
                    assert!(queued.len() <= SEND_QUEUE_MAX);
                }
                Action::SetRate { .. } | Action::SetTimer { .. } => {}
            }
        }
        accused
    }
}

fn play(mut node: Box<dyn Protocol>, steps: &[Step]) {
    let mut driver = Driver {
        up: [false; 5],
        left: [false; 5],
        have: BlockSet::new(BLOCKS),
        queued: BTreeMap::new(),
    };
    driver.have.insert_range(20..65);
    let mut actions = Actions::default();
    node.handle(Time::ZERO, Event::Start, &mut actions);
    driver.carry_out(&mut actions);
    for (step, tick) in steps.iter().zip(0..) {
        let now = Time::from_secs_f64(f64::from(tick) * 0.7);
        let mut lost = Vec::new();
        match step {
            Step::Say(from, body) if driver.up[*from as usize] => {
                let from = NodeId(*from);
                node.handle(now, Event::Message { from, body }, &mut actions);
            }
            Step::Up(peer) if !driver.up[*peer as usize] && !driver.left[*peer as usize] => {
                driver.up[*peer as usize] = true;
                node.handle(now, Event::PeerUp(NodeId(*peer)), &mut actions);
            }
            Step::Down(peer) => lost.push(NodeId(*peer)),
            Step::Left(peer) => {
                driver.left[*peer as usize] = true;
                driver.up[*peer as usize] = false;
                driver.queued.remove(&NodeId(*peer));
                node.handle(now, Event::Left(NodeId(*peer)), &mut actions);
            }
            Step::Arrive(from, block) if driver.up[*from as usize] => {
                let (from, block) = (NodeId(*from), *block);
                let fresh = driver.have.insert(block);
                let event = Event::Arrived { from, block, fresh };
                node.handle(now, event, &mut actions);
            }
            Step::Sent(to) => {
                let to = NodeId(*to);
                if let Some(block) = driver.queued.get_mut(&to).and_then(Vec::pop) {
                    let event = match block {
                        PACKET => Event::Coded(Coded::Sent { to, batch: 0 }),
                        block => Event::Sent { to, block },
                    };
                    node.handle(now, event, &mut actions);
                }
            }
            Step::Timer(timer) => {
                let timer = outpour_protocols::TimerId(*timer);
                node.handle(now, Event::Timer(timer), &mut actions);
            }
            Step::Say(..) | Step::Up(_) | Step::Arrive(..) => {}
        }
        lost.extend(driver.carry_out(&mut actions));
        for peer in lost {
            if std::mem::take(&mut driver.up[peer.index()]) {
                driver.queued.remove(&peer);
                node.handle(now, Event::PeerDown(peer), &mut actions);
                driver.carry_out(&mut actions);
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_a_peer_says_breaks_the_contract(steps in prop::collection::vec(step(), 0..120)) {
        for protocol in PROTOCOLS {
            play(node(protocol), &steps);
        }
    }

    #[test]
    fn nothing_that_a_leader_says_breaks_the_contract(steps in prop::collection::vec(step(), 0..120)) {
        play(build("central", BlockSet::full(BLOCKS), 0), &steps);
    }

    #[test]
    fn nothing_that_is_said_to_who_wants_little_breaks_the_contract(
        steps in prop::collection::vec(step(), 0..120),
        wanted in 0..30_u32,
    ) {
        let mut want = BlockSet::new(BLOCKS);
        want.insert_range(0..wanted);
        for protocol in ["direct", "chain", "swarm"] {
            play(build(protocol, want.clone(), 0), &steps);
            play(build(protocol, BlockSet::new(BLOCKS), 0), &steps);
        }
    }
}

#[test]
fn nonsense_is_accused() {
    // No such message; a block out of range in three kinds; sets with blocks out of range.
    let bodies: [&[u8]; 8] = [
        &[],
        &[200],
        &[0, 90],
        &[1, 200, 1],
        &[2, 255, 255, 255, 255, 15],
        &[3, 0, 1, 0, 91, 0, 0],
        &[3, 1, 3, 0, 0, 0],
        &[4, 0, 1, 89, 2],
    ];
    for protocol in ["mob", "robber", "bittorrent"] {
        for body in bodies {
            let mut node = node(protocol);
            let mut actions = Actions::default();
            let from = NodeId(0);
            node.handle(Time::ZERO, Event::Start, &mut actions);
            node.handle(Time::ZERO, Event::PeerUp(from), &mut actions);
            actions.drain().for_each(drop);
            node.handle(Time::ZERO, Event::Message { from, body }, &mut actions);
            let accused = |action| matches!(action, Action::Accuse { peer, .. } if peer == from);
            // The sets are other messages of bittorrent.
            let sound = protocol == "bittorrent" && matches!(body, [3 | 4, 0 | 1, ..]);
            let accused = actions.drain().any(accused);
            assert!(accused || sound, "{protocol} {body:?}");
        }
    }
}

#[test]
fn who_asks_for_more_than_may_be_queued_is_accused() {
    for protocol in ["mob", "robber"] {
        let mut node = node(protocol);
        let mut actions = Actions::default();
        let (from, body) = (NodeId(2), &[1, 30]);
        node.handle(Time::ZERO, Event::Start, &mut actions);
        node.handle(Time::ZERO, Event::PeerUp(from), &mut actions);
        for _ in 0..=SEND_QUEUE_MAX {
            node.handle(Time::ZERO, Event::Message { from, body }, &mut actions);
        }
        let last = actions.drain().last();
        assert!(matches!(last, Some(Action::Accuse { .. })), "{last:?}");
    }
}

#[test]
fn only_a_cluster_s_own_nodes_meddle_with_its_work() {
    for protocol in ["mob", "robber"] {
        for tag in [5, 7, 10] {
            let mut node = node(protocol);
            let mut actions = Actions::default();
            node.handle(Time::ZERO, Event::Start, &mut actions);
            for (from, expected) in [(NodeId(0), false), (NodeId(3), true)] {
                let body = &[tag];
                node.handle(Time::ZERO, Event::PeerUp(from), &mut actions);
                actions.drain().for_each(drop);
                node.handle(Time::ZERO, Event::Message { from, body }, &mut actions);
                let accused = |action| matches!(action, Action::Accuse { .. });
                assert_eq!(actions.drain().any(accused), expected, "{protocol} {tag}");
            }
        }
    }
}
