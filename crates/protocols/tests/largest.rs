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
    wants: [bool; NODES],
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
        wants: [false; NODES],
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

/// Plays nodes that hear each other at once; returns the length of the longest message.
fn play(entry: &'static Entry) -> usize {
    let mut nodes = nodes(entry);
    let mut due = VecDeque::new();
    let mut longest = 0;
    let mut now = Time::ZERO;
    let mut actions = Actions::default();
    for node in 0..NODES {
        handle(
            &mut nodes,
            node,
            now,
            Event::Start,
            &mut actions,
            &mut due,
            &mut longest,
        );
    }
    for _ in 0..EVENTS {
        let Some(event) = due.pop_front() else {
            let timers = |(node, state): (usize, &Node)| {
                let next = state.timers.iter().min().copied();
                next.map(|(at, timer)| (at, node, timer))
            };
            let Some((at, node, timer)) = nodes.iter().enumerate().filter_map(timers).min() else {
                break;
            };
            now = now.max(at);
            nodes[node].timers.retain(|(_, other)| *other != timer);
            let event = Event::Timer(timer);
            handle(
                &mut nodes,
                node,
                now,
                event,
                &mut actions,
                &mut due,
                &mut longest,
            );
            continue;
        };
        match event {
            Due::Up(a, b) => {
                for (node, peer) in [(a, b), (b, a)] {
                    let event = Event::PeerUp(NodeId(peer as u32));
                    handle(
                        &mut nodes,
                        node,
                        now,
                        event,
                        &mut actions,
                        &mut due,
                        &mut longest,
                    );
                }
            }
            Due::Message(from, to, body) => {
                let from = NodeId(from as u32);
                let event = Event::Message { from, body: &body };
                handle(
                    &mut nodes,
                    to,
                    now,
                    event,
                    &mut actions,
                    &mut due,
                    &mut longest,
                );
            }
            Due::Block(sender, receiver, block) => {
                let fresh = nodes[receiver].have.insert(block);
                let from = NodeId(sender as u32);
                let arrived = Event::Arrived { from, block, fresh };
                handle(
                    &mut nodes,
                    receiver,
                    now,
                    arrived,
                    &mut actions,
                    &mut due,
                    &mut longest,
                );
                let to = NodeId(receiver as u32);
                let sent = Event::Sent { to, block };
                handle(
                    &mut nodes,
                    sender,
                    now,
                    sent,
                    &mut actions,
                    &mut due,
                    &mut longest,
                );
            }
        }
    }
    longest
}

fn handle(
    nodes: &mut [Node],
    node: usize,
    now: Time,
    event: Event<'_>,
    actions: &mut Actions,
    due: &mut VecDeque<Due>,
    longest: &mut usize,
) {
    nodes[node].protocol.handle(now, event, actions);
    for action in actions.drain() {
        match action {
            Action::Connect(peer) => {
                let peer = peer.index();
                nodes[node].wants[peer] = true;
                if !nodes[node].up[peer] {
                    (nodes[node].up[peer], nodes[peer].up[node]) = (true, true);
                    due.push_back(Due::Up(node, peer));
                }
            }
            Action::Send { to, body } => {
                assert!(body.len() <= MESSAGE_BYTES_MAX, "{} bytes", body.len());
                *longest = body.len().max(*longest);
                due.push_back(Due::Message(node, to.index(), body));
            }
            Action::SendBlock { to, block } => due.push_back(Due::Block(node, to.index(), block)),
            Action::SetTimer { timer, at } => {
                nodes[node].timers.retain(|(_, other)| *other != timer);
                nodes[node].timers.push((at, timer));
            }
            Action::Accuse { offence, .. } => panic!("an honest node is accused: {offence}"),
            Action::Disconnect(_) | Action::SendPacket { .. } | Action::SetRate { .. } => {}
        }
    }
}

#[test]
fn sets_of_the_largest_objects_in_pieces_fit_a_message() {
    let mut sets = 0;
    for entry in ENTRIES.iter().filter(|entry| !entry.plan.is_made_before()) {
        let longest = play(entry);
        println!("{}: {longest}", entry.name);
        sets += usize::from(longest >= wire_bytes_max(BLOCKS_MAX) / 2);
    }
    // Those that say what they have as a set; the others count, or say it run by run.
    assert!(sets >= 7, "{sets} protocols sent a large set");
}
