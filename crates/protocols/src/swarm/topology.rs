//! Which nodes are neighbours.
//!
//! Up to [`FULL_MESH_MAX`] nodes all are. Beyond that, the neighbours are the two next to a node
//! on each of several rings, random orders of the nodes drawn from the transfer's seed. So every
//! node has the same number of neighbours and all nodes know both ends of every link; with
//! neighbours called at random, nodes that happen to have few finish long after the others.

use std::collections::BTreeSet;

use outpour_core::NodeId;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Member;

/// Up to this many nodes all nodes are neighbours.
const FULL_MESH_MAX: usize = 25;
/// Rings through the nodes of a cluster, or through all if there is only one.
const RINGS: u64 = 10;
/// If there are several clusters, as many of the rings go through all nodes.
const RINGS_ABROAD: u64 = 3;
const _: () = assert!(RINGS_ABROAD > 0);
const _: () = assert!(RINGS_ABROAD < RINGS);

/// The neighbours of `me`, in order.
pub(super) fn neighbours(members: &[Member], me: NodeId, seed: u64) -> BTreeSet<NodeId> {
    let all: Vec<NodeId> = (0..members.len() as u32).map(NodeId).collect();
    let mut found: BTreeSet<NodeId> = if all.len() <= FULL_MESH_MAX {
        all.into_iter().collect()
    } else {
        let cluster = members[me.index()].cluster;
        let home = |node: &NodeId| members[node.index()].cluster == cluster;
        let near: Vec<NodeId> = all.iter().copied().filter(home).collect();
        let abroad = if near.len() < all.len() {
            RINGS_ABROAD
        } else {
            0
        };
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let rings_near = (0..RINGS - abroad)
            .flat_map(|ring| next_to(me, &near, seed ^ (u64::from(cluster) << 32 | ring)));
        let rings_far = (0..abroad).flat_map(|ring| next_to(me, &all, seed ^ (u64::MAX - ring)));
        rings_near.chain(rings_far).collect()
    };
    found.remove(&me);
    debug_assert!(found.len() < FULL_MESH_MAX.max(2 * RINGS as usize + 1));
    debug_assert!(!found.is_empty() || members.len() == 1, "{me} is alone");
    found
}

/// The two nodes next to `me` on a ring of `nodes` in an order drawn from `seed`.
fn next_to(me: NodeId, nodes: &[NodeId], seed: u64) -> [NodeId; 2] {
    debug_assert!(nodes.contains(&me), "{me} is on its rings");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut ring = nodes.to_vec();
    for last in (1..ring.len()).rev() {
        ring.swap(last, random.next_u64() as usize % (last + 1));
    }
    let at = ring.iter().position(|node| *node == me).unwrap_or(0);
    [
        ring[(at + 1) % ring.len()],
        ring[(at + ring.len() - 1) % ring.len()],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(clusters: &[usize]) -> Vec<Member> {
        let cluster = |(cluster, size): (usize, &usize)| {
            std::iter::repeat_n(
                Member {
                    cluster: cluster as u32,
                    role: crate::Role::Receiver,
                },
                *size,
            )
        };
        clusters.iter().enumerate().flat_map(cluster).collect()
    }

    fn all(members: &[Member], seed: u64) -> Vec<BTreeSet<NodeId>> {
        (0..members.len() as u32)
            .map(|me| neighbours(members, NodeId(me), seed))
            .collect()
    }

    #[test]
    fn links_have_two_ends_and_reach_everybody() {
        for (clusters, seed) in [(vec![25], 1), (vec![200], 2), (vec![40, 1, 30], 3)] {
            let members = members(&clusters);
            let found = all(&members, seed);
            for (me, set) in found.iter().enumerate() {
                assert!(!set.contains(&NodeId(me as u32)));
                assert!(
                    set.iter()
                        .all(|other| found[other.index()].contains(&NodeId(me as u32)))
                );
            }
            let mut reached = BTreeSet::from([NodeId(0)]);
            let mut frontier = vec![NodeId(0)];
            while let Some(node) = frontier.pop() {
                frontier.extend(
                    found[node.index()]
                        .iter()
                        .filter(|other| reached.insert(**other)),
                );
            }
            assert_eq!(reached.len(), members.len());
        }
    }

    #[test]
    fn in_a_large_mesh_all_have_about_as_many() {
        for set in all(&members(&[200]), 5) {
            assert!((14..=20).contains(&set.len()), "{}", set.len());
        }
    }

    #[test]
    fn most_neighbours_are_near() {
        let members = members(&[60, 60, 60]);
        let found = all(&members, 7);
        let far = |me: usize, node: &&NodeId| members[node.index()].cluster != members[me].cluster;
        let abroad: usize = found
            .iter()
            .enumerate()
            .map(|(me, set)| set.iter().filter(|n| far(me, n)).count())
            .sum();
        let total: usize = found.iter().map(BTreeSet::len).sum();
        assert!(abroad > 0 && 4 * abroad < total, "{abroad} of {total}");
    }
}
