//! Which node sends to which: a list of random permutations, drawn from the transfer's seed.
//!
//! In a permutation every node has one successor and one predecessor. The successors in the first
//! few permutations are a node's *partners*, which it sends to as long as it has anything for them:
//! all nodes have as many, and are as many nodes' partners, so that all rates are divided alike without
//! any node knowing what the others do. What partners cannot use is offered to the
//! successors in the other permutations, one after the other.

use std::collections::BTreeSet;

use outpour_core::NodeId;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Up to this many nodes all nodes are neighbours: the permutations are the rotations of
/// one ring in random order, so that each node is a node's successor once.
const FULL_MESH_MAX: usize = 64;
/// How many permutations are drawn for more nodes: the neighbours are the successors and
/// predecessors in them.
const ROUNDS_MANY: u64 = 24;

/// What a node has to know of the list: its neighbours and its successors, in turn.
#[derive(Debug)]
pub(super) struct Topology {
    successors: Vec<NodeId>,
    predecessors: Vec<NodeId>,
    /// The nodes that this node calls.
    pub(super) neighbours: BTreeSet<NodeId>,
    turn: usize,
}

impl Topology {
    pub(super) fn new(me: NodeId, members: usize, seed: u64) -> Self {
        let list = if members <= FULL_MESH_MAX {
            rotations(me, members, seed)
        } else {
            let round = |round| around(me, &permutation(members, seed, round), 1);
            (0..ROUNDS_MANY).map(round).collect()
        };
        let (predecessors, successors): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        let neighbours: BTreeSet<_> = successors.iter().chain(&predecessors).copied().collect();
        debug_assert!(!neighbours.contains(&me));
        debug_assert!(members > FULL_MESH_MAX || neighbours.len() + 1 == members);
        Self {
            successors,
            predecessors,
            neighbours,
            turn: 0,
        }
    }

    /// The nodes that a node with `count` partners sends to.
    pub(super) fn partners(&self, count: usize) -> &[NodeId] {
        &self.successors[..count.min(self.successors.len())]
    }

    /// Whether a node that has `count` partners has this one among them.
    pub(super) fn is_partner_of(&self, node: NodeId, count: usize) -> bool {
        self.predecessors.iter().take(count).any(|it| *it == node)
    }

    /// The next successor that will do, and after the last the first again.
    pub(super) fn next(&mut self, will_do: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let len = self.successors.len();
        debug_assert!(self.turn < len.max(1));
        for step in 0..len {
            let at = (self.turn + step) % len;
            if will_do(self.successors[at]) {
                self.turn = (at + 1) % len;
                return Some(self.successors[at]);
            }
        }
        None
    }
}

/// The nodes so many steps before and behind a node in a ring.
fn around(me: NodeId, ring: &[u32], steps: usize) -> (NodeId, NodeId) {
    let len = ring.len();
    debug_assert!(ring.contains(&me.0));
    debug_assert!(steps > 0, "a node is next to itself");
    debug_assert!(steps < len);
    let at = ring.iter().position(|node| *node == me.0).unwrap_or(0);
    let node = |at: usize| NodeId(ring[at % len]);
    (node(at + len - steps), node(at + steps))
}

/// Predecessor and successor in each rotation of a ring but the one that leaves all as they are.
fn rotations(me: NodeId, members: usize, seed: u64) -> Vec<(NodeId, NodeId)> {
    let ring = permutation(members, seed, 0);
    let mut steps = permutation(members, seed, 1);
    steps.retain(|steps| *steps != 0);
    let rotation = |steps: &u32| around(me, &ring, *steps as usize);
    steps.iter().map(rotation).collect()
}

/// A random order of the nodes, the same for the same seed and round.
fn permutation(members: usize, seed: u64, round: u64) -> Vec<u32> {
    let mut random =
        Pcg64Mcg::seed_from_u64(seed ^ (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut ring: Vec<u32> = (0..members as u32).collect();
    for last in (1..ring.len()).rev() {
        ring.swap(last, random.next_u64() as usize % (last + 1));
    }
    ring
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(members: usize, seed: u64) -> Vec<Topology> {
        let node = |me| Topology::new(NodeId(me), members, seed);
        (0..members as u32).map(node).collect()
    }

    #[test]
    fn in_every_round_each_node_has_one_predecessor() {
        for members in [2, 3, 20, 100] {
            let nodes = all(members, 7);
            let rounds = nodes[0].successors.len();
            for round in 0..rounds {
                let reached: BTreeSet<NodeId> =
                    nodes.iter().map(|node| node.successors[round]).collect();
                assert_eq!(reached.len(), members);
            }
        }
    }

    #[test]
    fn partners_know_of_each_other() {
        for members in [2, 20, 100] {
            let nodes = all(members, 5);
            for count in [1, 6, 16] {
                let mut of = vec![0; members];
                for (me, node) in nodes.iter().enumerate() {
                    let me = NodeId(me as u32);
                    for partner in node.partners(count) {
                        of[partner.index()] += 1;
                        assert!(nodes[partner.index()].is_partner_of(me, count));
                    }
                    let partners: BTreeSet<_> = node.partners(count).iter().collect();
                    let strangers = nodes.iter().enumerate().filter(|(other, node)| {
                        let other = NodeId(*other as u32);
                        !partners.contains(&other) && node.is_partner_of(me, count)
                    });
                    assert_eq!(strangers.count(), 0);
                }
                let most = of.iter().max();
                assert_eq!(most, of.iter().min(), "all are as many nodes' partner");
            }
        }
    }

    #[test]
    fn few_nodes_are_all_neighbours_and_many_have_a_few() {
        assert_eq!(all(64, 1)[5].neighbours.len(), 63);
        let nodes = all(300, 1);
        for (me, node) in nodes.iter().enumerate() {
            assert!((24..=48).contains(&node.neighbours.len()));
            let me = NodeId(me as u32);
            let mut others = node.neighbours.iter();
            assert!(others.all(|other| nodes[other.index()].neighbours.contains(&me)));
        }
    }

    #[test]
    fn a_walk_passes_over_those_that_will_not_do() {
        let mut topology = Topology::new(NodeId(0), 5, 3);
        for _ in 0..20 {
            let next = topology.next(|node| node.0 % 2 == 0).unwrap();
            assert!(next == NodeId(2) || next == NodeId(4));
        }
        assert_eq!(topology.next(|_| false), None);
        assert_eq!(Topology::new(NodeId(0), 1, 3).next(|_| true), None);
    }
}
