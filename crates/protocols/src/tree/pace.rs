//! Sender-side shaping: when the root lets each tree have its next block.
//!
//! Each tree is a token bucket of its own: blocks become due at the tree's rate, and a tree that
//! could not be given its blocks in time may catch up [`BURST`] of its rate, or [`BURST_BLOCKS`],
//! at once. What it could not take beyond that is lost, as for a sender that sleeps between
//! messages [Burger §3.2.2]. Due times are absolute, so a timer that fires late costs nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use outpour_core::{BlockId, Plan, Time};

use super::share::Share;

/// How much of a tree's rate may be caught up at once.
pub(super) const BURST: Duration = Duration::from_millis(250);
/// At least so many blocks may be.
const BURST_BLOCKS: u32 = 2;
/// The shortest time that a timer is set for; what is due within it comes in one go.
const TIMER_MIN: Duration = Duration::from_millis(1);

/// The buckets of all trees.
#[derive(Debug)]
pub(super) struct Pacer {
    trees: Vec<Bucket>,
    /// The trees that wait for nothing but their time.
    waiting: BinaryHeap<Reverse<(Time, u32)>>,
}

#[derive(Debug)]
struct Bucket {
    blocks: Vec<BlockId>,
    next: usize,
    due: Time,
    /// From one block to the next, in seconds, at the tree's rate.
    gap_s: f64,
    /// Its time has come, but no child could take a block.
    parked: bool,
}

impl Pacer {
    pub(super) fn new(plan: &Plan, share: &Share, block_bytes: u32, now: Time) -> Self {
        let total: f64 = plan.throughput().bytes_per_s();
        let bucket = |(blocks, tree): (Vec<BlockId>, &outpour_core::plan::Tree)| {
            let gap_s = f64::from(block_bytes) / tree.rate.bytes_per_s();
            // Equal trees would all send at once: they start one after the other.
            let due = blocks.first().map_or(now, |first| {
                let phase = f64::from(*first) * f64::from(block_bytes) / total;
                now + Duration::from_secs_f64(phase.min(gap_s))
            });
            Bucket {
                blocks,
                next: 0,
                due,
                gap_s,
                parked: false,
            }
        };
        let lists = share.lists(plan.trees.len());
        debug_assert!(lists.iter().all(|blocks| blocks.is_sorted()));
        let trees: Vec<Bucket> = lists.into_iter().zip(&plan.trees).map(bucket).collect();
        let waiting = (0..)
            .zip(&trees)
            .map(|(tree, bucket)| Reverse((bucket.due, tree)))
            .collect();
        Self { trees, waiting }
    }

    /// Whether a tree waits for its time.
    fn is_waiting(&self, tree: usize) -> bool {
        self.waiting
            .iter()
            .any(|Reverse((_, it))| *it as usize == tree)
    }

    /// A tree whose next block is due; it has to be answered by [`Self::advance`] or
    /// [`Self::park`].
    pub(super) fn take_due(&mut self, now: Time) -> Option<usize> {
        let Reverse((due, tree)) = *self.waiting.peek()?;
        if due > now {
            return None;
        }
        self.waiting.pop();
        debug_assert!(!self.trees[tree as usize].parked);
        debug_assert!(!self.is_waiting(tree as usize), "{tree} waits twice");
        Some(tree as usize)
    }

    /// The next block of a tree, if it is not through.
    pub(super) fn next_block(&self, tree: usize) -> Option<BlockId> {
        let bucket = &self.trees[tree];
        bucket.blocks.get(bucket.next).copied()
    }

    /// The tree's next block was let go for nothing, because all children had it.
    pub(super) fn skip(&mut self, tree: usize) {
        debug_assert!(self.next_block(tree).is_some());
        self.trees[tree].next += 1;
    }

    /// The tree's next block was let go.
    pub(super) fn advance(&mut self, tree: usize, now: Time) {
        debug_assert!(self.next_block(tree).is_some());
        debug_assert!(!self.is_waiting(tree));
        let bucket = &mut self.trees[tree];
        debug_assert!(bucket.due <= now);
        debug_assert!(!bucket.parked);
        bucket.next += 1;
        let gap = bucket.gap_s;
        let burst = BURST.as_secs_f64().max(f64::from(BURST_BLOCKS) * gap);
        let earliest = now - Duration::from_secs_f64(burst.min(1e9));
        bucket.due = bucket.due.max(earliest) + Duration::from_secs_f64(gap.min(1e9));
        self.waiting.push(Reverse((bucket.due, tree as u32)));
    }

    /// No child can take the tree's next block now.
    pub(super) fn park(&mut self, tree: usize) {
        debug_assert!(!self.is_waiting(tree));
        debug_assert!(!self.trees[tree].parked);
        self.trees[tree].parked = true;
    }

    /// A child can take blocks of the tree again; returns whether it was parked.
    pub(super) fn unpark(&mut self, tree: usize) -> bool {
        let bucket = &mut self.trees[tree];
        let parked = std::mem::take(&mut bucket.parked);
        if parked {
            self.waiting.push(Reverse((bucket.due, tree as u32)));
        }
        parked
    }

    /// When to look again, if anything waits for its time.
    pub(super) fn wake(&self, now: Time) -> Option<Time> {
        let Reverse((due, _)) = self.waiting.peek()?;
        debug_assert!(self.waiting.len() <= self.trees.len());
        Some((*due).max(now + TIMER_MIN))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use outpour_core::plan::Tree;
    use outpour_core::{NodeId, Rate};

    use super::super::share::depth;
    use super::*;

    /// One tree of 100 blocks, one of which is due every 10 ms.
    fn pacer() -> Pacer {
        let tree = Tree {
            rate: Rate::from_bytes_per_s(100_000.0).unwrap(),
            edges: vec![(NodeId(0), NodeId(1))],
        };
        let plan = Plan {
            roots: vec![NodeId(0)],
            trees: vec![tree],
        };
        Pacer::new(&plan, &Share::new(&plan, 100, depth), 1000, Time::ZERO)
    }

    /// How many blocks may go at that time.
    fn let_go(pacer: &mut Pacer, now: Time) -> u32 {
        let mut count = 0;
        while let Some(tree) = pacer.take_due(now) {
            if pacer.next_block(tree).is_some() {
                pacer.advance(tree, now);
                count += 1;
            }
        }
        count
    }

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn blocks_go_at_the_rate_however_late_the_timer_is() {
        let mut pacer = pacer();
        assert_eq!(let_go(&mut pacer, ms(0)), 1);
        assert_eq!(pacer.wake(ms(0)), Some(ms(10)));
        assert_eq!(let_go(&mut pacer, ms(9)), 0);
        assert_eq!(let_go(&mut pacer, ms(36)), 3);
        assert_eq!(let_go(&mut pacer, ms(40)), 1);
    }

    #[test]
    fn what_could_not_go_in_time_is_made_up_for_within_the_burst() {
        let mut pacer = pacer();
        let tree = pacer.take_due(ms(0)).unwrap();
        pacer.park(tree);
        assert_eq!(pacer.wake(ms(0)), None);
        assert!(pacer.unpark(tree) && !pacer.unpark(tree));
        // One that is due, and 250 ms of those that were.
        assert_eq!(let_go(&mut pacer, ms(700)), 26);
    }

    #[test]
    fn a_tree_that_is_through_waits_for_nothing() {
        let mut pacer = pacer();
        let mut count = 0;
        for at in 0..2000 {
            count += let_go(&mut pacer, ms(at));
        }
        assert_eq!((count, pacer.wake(ms(2000))), (100, None));
    }
}
