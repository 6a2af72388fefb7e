//! `push`: a few holders push different blocks to each receiver, those that lack least first.
//!
//! The push of many sources [PPUSH §III] as far as blocks over ordinary links go. A receiver has blocks of
//! three nodes that have everything at a time, besides sources that have not given each block once; receivers in
//! the middle of it push as well, as many as have something new. A holder divides its slots among the receivers that
//! wait for it by weights that Algorithm 1 [PPUSH §III-C] gives their flows on its way out: the one that lacks least
//! gets nearly all that it can take. What is left is for the others.
//!
//! Weights are for receivers that compete. Those that lack about as much as the first are even with it, and share what
//! it gets; and while a source gives out each block once, and one receiver passes on to another what both want, it serves in
//! turn. So one object takes as long as with `swarm` (`cargo run --release -p outpour-sim --example push_blocks`).
//! Receivers of different blocks of one source are done sooner on average, the smallest first.
//!
//! Everything else is as in [`swarm`](crate::swarm): what holders say they have, how much is under way, a
//! source that gives each block once before it gives any twice, and what is done about nodes that fall silent.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::{NodeId, Time};
use outpour_push::LinkId;
use outpour_push::theta::{self, Demand, THETA_MIN};

use crate::Protocol;
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::swarm::{Kind, Swarm};

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "push",
    about: "three full holders at a time push to each receiver, those that lack least first",
    baseline: true,
    plan: PlanFrom::Nowhere,
    selective: true,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    promise: crate::swarm::PROMISE,
    build: |setup, _| Box::new(Swarm::new(Kind::Push, setup)) as Box<dyn Protocol>,
};

/// How many nodes push to a receiver at a time: more add little, and bursts [PPUSH §V-B].
pub(crate) const PUSHERS: usize = 3;
/// Weights are computed anew after so long.
const PERIOD: Duration = Duration::from_millis(100);
/// Who lacks up to so many blocks more than another, or a sixteenth more, is behind by chance and not by what it wants.
const EVEN: u32 = 32;
/// The sum of weights that the way out of a node carries. Without a round-trip time in packets this is what the
/// controller of [`outpour_push`] takes when it is told nothing.
const THETA_MAX: f64 = 50.0;
/// The way out of this node: the one link that it knows its flows to share.
const OUT: [LinkId; 1] = [LinkId(0)];

/// The weights of the flows that leave a node, and whose turn it is by them.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    thetas: BTreeMap<NodeId, f64>,
    /// How much each was served, in blocks by weight.
    served: BTreeMap<NodeId, f64>,
    /// How much those that wait were served at least: who begins to wait begins there.
    floor: f64,
    computed: Option<Time>,
}

impl Weights {
    /// Computes weights anew if it is time: of all receivers with how many blocks each lacks.
    pub(crate) fn refresh(&mut self, now: Time, lacking: impl Iterator<Item = (NodeId, u32)>) {
        if self.computed.is_some_and(|it| now.since(it) < PERIOD) {
            return;
        }
        self.computed = Some(now);
        let mut lacking: Vec<(NodeId, u32)> = lacking.filter(|it| it.1 > 0).collect();
        lacking.sort_by_key(|it| (it.1, it.0));
        let least = lacking.first().map_or(0, |it| it.1);
        let even = least.saturating_add(EVEN.max(least / 16));
        let first = lacking.partition_point(|it| it.1 <= even);
        // Those that are even with the first count as one task with it, whose flows share what it gets.
        let (first, others) = lacking.split_at(first);
        let groups = std::iter::once(first).chain(others.chunks(1));
        let demands: Vec<Demand<'_>> = groups
            .filter_map(|group| {
                Some(Demand {
                    remaining: f64::from(group.first()?.1),
                    priority: 1.0,
                    paths: vec![&OUT; group.len()],
                })
            })
            .collect();
        let thetas = theta::assign(&demands, THETA_MIN, |_| THETA_MAX);
        let nodes = lacking.iter().map(|(node, _)| *node);
        self.thetas = nodes.zip(thetas.into_iter().flatten()).collect();
        self.served.retain(|node, _| self.thetas.contains_key(node));
        debug_assert_eq!(self.thetas.len(), lacking.len());
        debug_assert!(self.thetas.values().all(|it| *it > 0.0));
    }

    /// Which of those that wait was served least for its weight.
    pub(crate) fn next(&self, waiting: impl Iterator<Item = NodeId>) -> Option<NodeId> {
        let served = |node: &NodeId| {
            self.served
                .get(node)
                .map_or(self.floor, |it| it.max(self.floor))
        };
        waiting.min_by(|a, b| {
            served(a)
                .total_cmp(&served(b))
                .then_with(|| self.heavier(*a, *b))
        })
    }

    /// Orders those who were served alike: the one of more weight first.
    fn heavier(&self, a: NodeId, b: NodeId) -> std::cmp::Ordering {
        self.theta(b)
            .total_cmp(&self.theta(a))
            .then_with(|| a.cmp(&b))
    }

    /// A node that is not known yet has the weight of one without priority.
    fn theta(&self, node: NodeId) -> f64 {
        self.thetas.get(&node).copied().unwrap_or(THETA_MIN)
    }

    /// A block is on its way to a node, which was [next](Self::next).
    pub(crate) fn serve(&mut self, node: NodeId) {
        let step = 1.0 / self.theta(node);
        let served = self.served.entry(node).or_insert(self.floor);
        debug_assert!(step.is_finite() && step > 0.0);
        self.floor = self.floor.max(*served);
        *served = self.floor + step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(lacking: &[(u32, u32)], waiting: &[u32], blocks: u32) -> Vec<u32> {
        let mut weights = Weights::default();
        let nodes = lacking.iter().map(|(node, lacks)| (NodeId(*node), *lacks));
        weights.refresh(Time::ZERO, nodes);
        let mut counts = vec![0; waiting.len()];
        for _ in 0..blocks {
            let next = weights.next(waiting.iter().map(|it| NodeId(*it)));
            for (count, node) in counts.iter_mut().zip(waiting) {
                if next == Some(NodeId(*node)) {
                    *count += 1;
                    weights.serve(NodeId(*node));
                }
            }
        }
        counts
    }

    #[test]
    fn blocks_are_divided_by_the_weights_of_algorithm_1() {
        // The first of two has 50 - 0.5, the other 0.5.
        assert_eq!(shares(&[(1, 100), (2, 200)], &[1, 2], 1000), [990, 10]);
        assert_eq!(shares(&[(1, 200), (2, 100)], &[1, 2], 1000), [10, 990]);
        // Who does not wait leaves its part to the others, evenly.
        assert_eq!(
            shares(&[(1, 100), (2, 200), (3, 300)], &[2, 3], 1000),
            [500, 500]
        );
    }

    #[test]
    fn who_is_behind_by_chance_gets_as_much_as_the_first() {
        assert_eq!(shares(&[(1, 100), (2, 132)], &[1, 2], 1000), [500, 500]);
        assert_eq!(shares(&[(1, 1600), (2, 1700)], &[1, 2], 1000), [500, 500]);
        // Each of the first two has half of 50 - 0.5, and the third, just as far behind the second, 0.5.
        let three = [(1, 100), (2, 132), (3, 164)];
        assert_eq!(shares(&three, &[1, 2, 3], 1000), [495, 495, 10]);
        assert_eq!(shares(&[(1, 100), (2, 133)], &[1, 2], 1000), [990, 10]);
    }

    #[test]
    fn who_begins_to_wait_is_not_owed_what_others_got_before() {
        let mut weights = Weights::default();
        let lacking = [(1, 30), (2, 30), (3, 1)].map(|(node, lacks)| (NodeId(node), lacks));
        weights.refresh(Time::ZERO, lacking.into_iter());
        for _ in 0..1000 {
            assert_eq!(weights.next([NodeId(1)].into_iter()), Some(NodeId(1)));
            weights.serve(NodeId(1));
        }
        let mut second = 0;
        for _ in 0..100 {
            let Some(next) = weights.next([NodeId(1), NodeId(2)].into_iter()) else {
                continue;
            };
            second += u32::from(next == NodeId(2));
            weights.serve(next);
        }
        assert!((45..=55).contains(&second), "{second} of 100");
    }

    #[test]
    fn weights_follow_what_is_lacking_every_period() {
        let mut weights = Weights::default();
        let (a, b) = (NodeId(1), NodeId(2));
        weights.refresh(Time::ZERO, [(a, 50), (b, 90)].into_iter());
        assert!(weights.theta(a) > weights.theta(b));
        weights.refresh(Time::ZERO + PERIOD / 2, [(a, 50), (b, 10)].into_iter());
        assert!(weights.theta(a) > weights.theta(b));
        weights.refresh(Time::ZERO + PERIOD, [(a, 50), (b, 10)].into_iter());
        assert!(weights.theta(a) < weights.theta(b));
        // Who lacks nothing is no flow, and weighs on nobody.
        weights.refresh(Time::ZERO + 2 * PERIOD, [(a, 50), (b, 0)].into_iter());
        assert_eq!((weights.theta(a), weights.theta(b)), (THETA_MAX, THETA_MIN));
    }
}
