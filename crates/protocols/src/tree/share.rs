//! Which block travels in which tree.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use outpour_core::plan::Tree;
use outpour_core::{BlockId, NodeId, Plan};

/// After how many blocks the pattern repeats: two bytes each is what it takes on every node.
const PATTERN_MAX: u32 = 1 << 20;
const _: () = assert!(outpour_core::plan::TREES_MAX - 1 <= u16::MAX as usize);

/// Blocks dealt out to the trees in proportion to their rates.
///
/// Every node computes the same from the plan, so nothing is sent. Each tree takes the next block
/// when that is due at its rate. Where nodes keep to the rates, a block is due when it would
/// arrive at the end of its tree's longest way, a time of its own at each edge at which its rate is kept, so that a
/// long slow tree ends when the others do. Otherwise it is due when it would leave the root.
#[derive(Debug)]
pub(super) struct Share {
    pattern: Vec<u16>,
    blocks: u32,
}

impl Share {
    /// `hops` says over how many edges on its longest way a tree's rate is kept, one at least.
    pub(super) fn new(plan: &Plan, blocks: u32, hops: impl Fn(&Tree) -> u64) -> Self {
        let gap = |tree: usize| {
            let rate = plan.trees[tree].rate;
            if rate.is_unlimited() {
                0.0
            } else {
                1.0 / rate.bytes_per_s()
            }
        };
        debug_assert!(plan.trees.len() <= outpour_core::plan::TREES_MAX);
        let gaps: Vec<f64> = (0..plan.trees.len()).map(gap).collect();
        let least = gaps
            .iter()
            .copied()
            .filter(|gap| *gap > 0.0)
            .fold(f64::INFINITY, f64::min);
        // In whole numbers time does not depend on the order in which it is added up.
        let ticks = |gap: &f64| {
            let relative = if least.is_finite() { gap / least } else { 1.0 };
            ((relative * f64::from(1 << 20)).min(1e15) as u64).max(1)
        };
        let gaps: Vec<u64> = gaps.iter().map(ticks).collect();
        let first = |(tree, gap): (usize, &u64)| {
            let hops = hops(&plan.trees[tree]);
            debug_assert!(hops >= 1, "a tree has an edge");
            Reverse((gap.saturating_mul(hops) - *gap / 2, tree as u16))
        };
        let mut due: BinaryHeap<_> = gaps.iter().enumerate().map(first).collect();
        let mut pattern = Vec::with_capacity(blocks.min(PATTERN_MAX) as usize);
        for _ in 0..blocks.min(PATTERN_MAX) {
            if let Some(mut next) = due.peek_mut() {
                let Reverse((at, tree)) = *next;
                pattern.push(tree);
                *next = Reverse((at.saturating_add(gaps[usize::from(tree)]), tree));
            }
        }
        debug_assert_eq!(pattern.len(), blocks.min(PATTERN_MAX) as usize);
        Self { pattern, blocks }
    }

    /// The tree that a block travels in.
    pub(super) fn tree(&self, block: BlockId) -> usize {
        debug_assert!(block < self.blocks);
        usize::from(self.pattern[block as usize % self.pattern.len()])
    }

    /// The blocks of each tree.
    pub(super) fn lists(&self, trees: usize) -> Vec<Vec<BlockId>> {
        let mut lists = vec![Vec::new(); trees];
        (0..self.blocks).for_each(|block| lists[self.tree(block)].push(block));
        lists
    }

    /// How many blocks each tree has.
    pub(super) fn counts(&self, trees: usize) -> Vec<u32> {
        let mut counts = vec![0; trees];
        (0..self.blocks).for_each(|block| counts[self.tree(block)] += 1);
        debug_assert_eq!(counts.iter().sum::<u32>(), self.blocks);
        counts
    }
}

/// How many edges the longest way of a tree has, at least one.
pub(super) fn depth(tree: &Tree) -> u64 {
    longest(tree, |_, _| true)
}

/// How many of the edges that count the way of a tree has that has most of them, at least one.
pub(super) fn longest(tree: &Tree, counts: impl Fn(NodeId, NodeId) -> bool) -> u64 {
    let mut depths: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (from, to) in &tree.edges {
        // A parent's own edge comes before those to its children; a root has none.
        let above = depths.get(from).copied().unwrap_or(0);
        depths.insert(*to, above + u64::from(counts(*from, *to)));
    }
    depths.into_values().max().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use outpour_core::Rate;

    use super::*;

    fn plan(rates: &[f64]) -> Plan {
        let tree = |rate: &f64| Tree {
            rate: Rate::from_bytes_per_s(*rate).unwrap(),
            edges: vec![(NodeId(0), NodeId(1))],
        };
        Plan {
            roots: vec![NodeId(0)],
            trees: rates.iter().map(tree).collect(),
        }
    }

    #[test]
    fn every_first_part_is_shared_in_proportion() {
        let rates = [4e6, 1e6, 4e6, 0.3e6];
        let share = Share::new(&plan(&rates), 10_000, depth);
        let mut counts = [0.0; 4];
        for block in 0..10_000 {
            counts[share.tree(block)] += 1.0;
            for (count, rate) in counts.iter().zip(rates) {
                let exact = f64::from(block + 1) * rate / 9.3e6;
                assert!(
                    (count - exact).abs() <= 1.5,
                    "{count} of {exact} at {block}"
                );
            }
        }
        assert_eq!(share.counts(4), counts.map(|count: f64| count as u32));
    }

    #[test]
    fn a_long_way_counts_where_its_rate_is_kept() {
        let mut plan = plan(&[4e6, 1e6]);
        plan.trees[1].edges = (0..5).map(|at| (NodeId(at), NodeId(at + 1))).collect();
        // The last block of the second tree arrives four of its gaps after it has left.
        let shaped = Share::new(&plan, 1000, depth).counts(2);
        assert_eq!(shaped, [803, 197]);
        let end = |tree: usize, hops: u32| f64::from(shaped[tree] + hops) / [4.0, 1.0][tree];
        assert!((end(0, 0) - end(1, 4)).abs() <= 1.0);
        let free = Share::new(&plan, 1000, |_| 1).counts(2);
        assert_eq!(free, [800, 200]);
    }

    #[test]
    fn lists_hold_every_block_once() {
        let share = Share::new(&plan(&[1.0, 2.5, 1e9]), 500, depth);
        let mut all: Vec<_> = share.lists(3).concat();
        all.sort_unstable();
        assert_eq!(all, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn unlimited_rates_share_equally() {
        let mut plan = plan(&[1.0, 1.0]);
        plan.trees
            .iter_mut()
            .for_each(|tree| tree.rate = Rate::UNLIMITED);
        assert_eq!(Share::new(&plan, 10, depth).counts(2), [5, 5]);
    }
}
