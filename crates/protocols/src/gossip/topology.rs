//! Who sends to whom: a list of random permutations, drawn from the transfer's seed.
//!
//! In a permutation every node has one successor and one predecessor. Each node walks the list at
//! its own pace and offers what it has to its successor in one permutation after the other, so
//! that all nodes are offered as much without anybody knowing what the others do.

use std::collections::BTreeSet;

use outpour_core::NodeId;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Up to this many nodes everybody is everybody's neighbour.
const FULL_MESH_MAX: usize = 64;
/// How many permutations are drawn then.
const ROUNDS: u64 = 256;
/// How many are drawn for more nodes: the neighbours are the successors and predecessors in them.
const ROUNDS_MANY: u64 = 24;

/// What a node has to know of the list: its neighbours and its successors, in turn.
#[derive(Debug)]
pub(super) struct Topology {
    successors: Vec<NodeId>,
    /// Whom this node calls.
    pub(super) neighbours: BTreeSet<NodeId>,
    turn: usize,
}

impl Topology {
    pub(super) fn new(me: NodeId, members: usize, seed: u64) -> Self {
        let full = members <= FULL_MESH_MAX;
        let rounds = if full { ROUNDS } else { ROUNDS_MANY };
        let mut successors = Vec::with_capacity(rounds as usize);
        let mut neighbours = BTreeSet::new();
        for round in 0..rounds {
            let ring = permutation(members, seed, round);
            let at = ring.iter().position(|node| *node == me.0).unwrap_or(0);
            let next = NodeId(ring[(at + 1) % members]);
            let before = NodeId(ring[(at + members - 1) % members]);
            successors.push(next);
            neighbours.extend([next, before]);
        }
        if full {
            neighbours = (0..members as u32).map(NodeId).collect();
        }
        neighbours.remove(&me);
        successors.retain(|node| *node != me);
        Self {
            successors,
            neighbours,
            turn: 0,
        }
    }

    /// The next successor that will do, and after the last the first again.
    pub(super) fn next(&mut self, will_do: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let len = self.successors.len();
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
