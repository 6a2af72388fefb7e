//! What agents are told, and what the controller remembers of it.
//!
//! A *subtask* is everything one server sends another for one job: blocks merged by source and
//! destination [BDS §5.1]. An agent is told only how its subtasks change; it goes on with what it
//! has until it is told otherwise, so no transfer waits for a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use outpour_core::blocks::BlockId;
use outpour_core::{NodeId, Rate, Time};
use serde::{Deserialize, Serialize};

use crate::blocks::runs::{append, count, strike};
use crate::job::JobId;

/// When an order was given; later is greater.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    /// The epoch of the controller.
    pub epoch: u64,
    /// Which of its orders to this agent it is; the first has 1.
    pub seq: u64,
}

/// How one subtask of an agent changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// It is there from now on, or goes on in another way.
    Send {
        /// The job.
        job: JobId,
        /// Who gets the blocks.
        to: NodeId,
        /// How fast they are sent from now on.
        rate: Rate,
        /// How fast they may be sent by one that is behind, or whose network carries more than is known: not less.
        most: Rate,
        /// Blocks that are not to be sent any more; one that is being sent is broken off.
        drop: Vec<Range<BlockId>>,
        /// Blocks to send behind those that are left, in this order.
        add: Vec<Range<BlockId>>,
    },
    /// It is over: what was not sent is not to be sent. A block that is being sent is broken off.
    End {
        /// The job.
        job: JobId,
        /// Who got the blocks.
        to: NodeId,
        /// Whether all was to be sent by now: an agent that is a little behind may send the rest, if
        /// nothing else needs the network as much.
        done: bool,
    },
}

impl Change {
    /// Who gets the blocks.
    pub const fn to(&self) -> NodeId {
        match self {
            Self::Send { to, .. } | Self::End { to, .. } => *to,
        }
    }

    /// The same towards another: for a host that calls nodes by other numbers.
    #[must_use]
    pub fn towards(mut self, other: NodeId) -> Self {
        match &mut self {
            Self::Send { to, .. } | Self::End { to, .. } => *to = other,
        }
        self
    }
}

/// What an agent is told in one cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Who is told: the sender, which enforces the rates.
    pub to: NodeId,
    /// When it was given.
    pub stamp: Stamp,
    /// Whether all earlier subtasks are forgotten first.
    pub whole: bool,
    /// How its subtasks change.
    pub changes: Vec<Change>,
}

/// Who sends whom for which job.
pub(crate) type Key = (NodeId, NodeId, JobId);

/// A subtask as the agent has it, as far as that can be known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Subtask {
    /// Blocks that are not due yet, in order.
    pub(crate) list: Vec<Range<u32>>,
    /// Bytes per second at which these blocks leave.
    pub(crate) rate: f64,
    /// What the agent was told: more if it is behind with blocks of before.
    pub(crate) told: f64,
    /// How fast it may be, which it was told, too.
    pub(crate) most: f64,
    /// Bytes of the first block that were sent before `since`.
    pub(crate) carried: f64,
    /// From when on the rate holds.
    pub(crate) since: Time,
}

/// What is less than a byte is the error of a computation.
const BYTE: f64 = 1.0;

impl Subtask {
    /// Blocks that are through by `until`; they leave the list.
    pub(crate) fn advance(&mut self, until: Time, block: f64) -> Vec<Range<u32>> {
        debug_assert!(block > 0.0, "blocks have bytes");
        let sent = self.carried + self.rate * until.since(self.since).as_secs_f64();
        self.since = until.max(self.since);
        let whole = ((sent + BYTE) / block).floor();
        let listed = count(&self.list);
        let mut left = if whole >= listed as f64 {
            listed
        } else {
            whole as u64
        };
        self.carried = match left == listed {
            true => 0.0,
            false => (sent - whole * block).max(0.0),
        };
        debug_assert!(self.carried < block, "a block that is through is done");
        let mut done = Vec::new();
        while left > 0 {
            let run = self
                .list
                .first()
                .cloned()
                .expect("so many blocks are listed");
            let taken = run.start..run.start + left.min(u64::from(run.end - run.start)) as u32;
            left -= u64::from(taken.end - taken.start);
            self.list[0].start = taken.end;
            if self.list[0].is_empty() {
                self.list.remove(0);
            }
            append(&mut done, taken);
        }
        done
    }

    /// The block that has begun, if one has.
    pub(crate) fn begun(&self) -> Option<u32> {
        let first = self.list.first()?;
        (self.carried >= BYTE).then_some(first.start)
    }
}

/// What is new about a subtask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// All it has to send, in order.
    pub(crate) list: Vec<Range<u32>>,
    /// Bytes that are to get through this cycle.
    pub(crate) bytes: f64,
    /// Bytes that could get through at the ordered rate, if there were more: not less.
    pub(crate) speed: f64,
    /// How much faster than ordered it may be, relative.
    pub(crate) beyond: f64,
    /// Bytes of the first block that are through already.
    pub(crate) carried: f64,
    /// Bytes of late blocks that its agent still has to send before.
    pub(crate) behind: f64,
    /// Blocks that the agent may still have from before and is to forget.
    pub(crate) forget: Vec<Range<u32>>,
}

impl Plan {
    /// Bytes that get through in the cycle at the ordered rate, if there are so many.
    pub(crate) fn through(&self) -> f64 {
        self.speed.max(self.bytes)
    }
}

/// All subtasks of all agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) subtasks: BTreeMap<Key, Subtask>,
    /// Subtasks that agents still have and that are over, whatever comes after them.
    ended: BTreeSet<Key>,
}

impl Ledger {
    /// Replaces the subtasks by `plans` from `from` on, for a cycle of `seconds`; how they change,
    /// agent by agent. Of those for whom `whole` is true, everything is told.
    pub(crate) fn turn(
        &mut self,
        plans: &BTreeMap<Key, Plan>,
        from: Time,
        seconds: f64,
        whole: impl Fn(NodeId) -> bool,
    ) -> BTreeMap<NodeId, Vec<Change>> {
        let mut changes: BTreeMap<NodeId, Vec<Change>> = BTreeMap::new();
        let before = std::mem::take(&mut self.subtasks);
        let over = before.iter().filter(|(key, _)| !plans.contains_key(key));
        let over = over.map(|(key, subtask)| (*key, subtask.list.is_empty()));
        let mut ended: BTreeMap<Key, bool> = over.collect();
        let broken = std::mem::take(&mut self.ended);
        ended.extend(broken.into_iter().map(|key| (key, false)));
        for ((agent, to, job), done) in ended {
            if !whole(agent) {
                let end = Change::End { job, to, done };
                changes.entry(agent).or_default().push(end);
            }
        }
        for (key, plan) in plans {
            debug_assert!(!plan.list.is_empty(), "a subtask has something to send");
            let (agent, to, job) = *key;
            debug_assert!(agent != to && plan.bytes > 0.0, "something goes somewhere");
            let old = before.get(key).filter(|_| !whole(agent));
            let rate = plan.through() / seconds;
            let told = rate + plan.behind / seconds;
            debug_assert!(plan.beyond >= 0.0, "nothing is to be slower");
            let most = told * (1.0 + plan.beyond);
            let (drop, add) = match old {
                Some(old) => (minus(&old.list, &plan.list), minus(&plan.list, &old.list)),
                None => (Vec::new(), plan.list.clone()),
            };
            // What was ordered again is not forgotten: that it is listed says so.
            let forget = old.map_or_else(Vec::new, |old| minus(&plan.forget, &old.list));
            let drop: Vec<Range<u32>> = drop.into_iter().chain(forget).collect();
            // Agents send what they have before what is added, whatever the order of the plan.
            let mut list = old.map_or_else(Vec::new, |old| old.list.clone());
            for run in &drop {
                strike(&mut list, run);
            }
            list.extend(add.iter().cloned());
            debug_assert_eq!(count(&list), count(&plan.list), "it is what was planned");
            let same = old.is_some_and(|old| old.told == told && old.most == most);
            if !same || !drop.is_empty() || !add.is_empty() {
                let rate = Rate::from_bytes_per_s(told).unwrap_or(Rate::ZERO);
                let most = Rate::from_bytes_per_s(most).unwrap_or(Rate::ZERO);
                let send = Change::Send {
                    job,
                    to,
                    rate,
                    most,
                    drop,
                    add,
                };
                changes.entry(agent).or_default().push(send);
            }
            let carried = plan.carried;
            let since = from;
            self.subtasks.insert(
                *key,
                Subtask {
                    list,
                    rate,
                    told,
                    most,
                    carried,
                    since,
                },
            );
        }
        debug_assert_eq!(self.subtasks.len(), plans.len(), "nothing else goes on");
        debug_assert!(self.ended.is_empty(), "all that ended was told");
        changes
    }

    /// What is not due yet of a job, but for blocks that have begun: from, to and block, as agents have them.
    pub(crate) fn listed(&self, job: JobId) -> impl Iterator<Item = (NodeId, NodeId, u32)> {
        let of_job = self.subtasks.iter().filter(move |(key, _)| key.2 == job);
        of_job.flat_map(|(key, subtask)| {
            let (from, to, begun) = (key.0, key.1, subtask.begun());
            let blocks = subtask.list.iter().cloned().flatten();
            let blocks = blocks.filter(move |block| begun != Some(*block));
            blocks.map(move |block| (from, to, block))
        })
    }

    /// Has agents told that subtasks are over of which they may still have something to send.
    pub(crate) fn break_off(&mut self, over: Vec<Key>) {
        self.ended.extend(over);
    }

    /// Ends the subtasks that `over` is true of; what was left of them. Their agents are told with
    /// the next decision.
    pub(crate) fn end(&mut self, over: impl Fn(&Key) -> bool) -> Vec<(Key, Vec<Range<u32>>)> {
        let keys: Vec<Key> = self
            .subtasks
            .keys()
            .filter(|key| over(key))
            .copied()
            .collect();
        let mut ended = Vec::with_capacity(keys.len());
        for key in keys {
            let subtask = self.subtasks.remove(&key).expect("the key is of this map");
            self.ended.insert(key);
            ended.push((key, subtask.list));
        }
        ended
    }
}

/// The runs of `list` that are not in `other`, in order.
fn minus(list: &[Range<u32>], other: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut left = list.to_vec();
    for run in other {
        strike(&mut left, run);
    }
    left
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;

    const BLOCK: f64 = 100.0;
    const KEY: Key = (NodeId(0), NodeId(1), JobId(0));

    fn subtask(list: &[Range<u32>], rate: f64) -> Subtask {
        let list = list.to_vec();
        Subtask {
            list,
            rate,
            ..Subtask::default()
        }
    }

    #[test]
    fn blocks_are_due_when_their_bytes_are_through() {
        let mut running = subtask(&[5..7, 0..2], 100.0);
        assert_eq!(running.advance(Time::from_secs_f64(2.5), BLOCK), [5..7]);
        assert_eq!((running.begun(), running.carried), (Some(0), 50.0));
        assert_eq!(running.advance(Time::from_secs_f64(3.0), BLOCK), [0..1]);
        assert_eq!(running.begun(), None);
        // More time than there are blocks for.
        assert_eq!(running.advance(Time::from_secs_f64(9.0), BLOCK), [1..2]);
        assert_eq!((running.list.len(), running.carried), (0, 0.0));
        let mut still = subtask(&[0..9], 0.0);
        assert!(still.advance(Time::MAX, BLOCK).is_empty());
    }

    #[test]
    fn who_is_behind_is_told_to_send_faster() {
        let mut ledger = Ledger::default();
        let plan = Plan {
            list: vec![0..4],
            bytes: 400.0,
            behind: 100.0,
            ..Plan::default()
        };
        let told = ledger.turn(&BTreeMap::from([(KEY, plan)]), Time::ZERO, 2.0, |_| false);
        let rates = told[&NodeId(0)].iter().map(|change| match change {
            Change::Send { rate, .. } => rate.bytes_per_s(),
            Change::End { .. } => 0.0,
        });
        assert_eq!(rates.collect::<Vec<_>>(), [250.0]);
        assert_eq!(
            ledger.subtasks[&KEY].rate, 200.0,
            "these blocks come no sooner"
        );
    }

    #[test]
    fn what_an_agent_has_comes_before_what_is_added() {
        let mut ledger = Ledger::default();
        for list in [vec![4..5, 8..9], vec![4..5, 1..3, 8..9]] {
            let bytes = 300.0;
            let plan = Plan {
                list,
                bytes,
                ..Plan::default()
            };
            ledger.turn(&BTreeMap::from([(KEY, plan)]), Time::ZERO, 3.0, |_| false);
        }
        let running = ledger.subtasks.get_mut(&KEY).expect("it was planned");
        let done = running.advance(Time::from_secs_f64(2.0), BLOCK);
        assert_eq!(done, [4..5, 8..9], "the agent was told to add 1..3 behind");
    }

    #[test]
    fn what_was_ordered_again_is_not_forgotten() {
        let mut ledger = Ledger::default();
        let mut turn = |forget: Vec<Range<u32>>| {
            let plan = Plan {
                list: vec![4..6],
                bytes: 200.0,
                forget,
                ..Plan::default()
            };
            let plans = BTreeMap::from([(KEY, plan)]);
            ledger.turn(&plans, Time::ZERO, 2.0, |_| false)
        };
        turn(Vec::new());
        assert!(turn(vec![5..6]).is_empty(), "it is to be sent still");
        let told = turn(vec![7..8]);
        assert!(
            matches!(&told[&NodeId(0)][..], [Change::Send { drop, .. }] if drop == &[7..8]),
            "{told:?}"
        );
    }

    #[test]
    fn only_differences_are_told() {
        let mut ledger = Ledger::default();
        let plan = |list: &[Range<u32>], bytes| {
            let plan = Plan {
                list: list.to_vec(),
                bytes,
                ..Plan::default()
            };
            BTreeMap::from([(KEY, plan)])
        };
        let send = |rate, drop: &[Range<u32>], add: &[Range<u32>]| Change::Send {
            job: JobId(0),
            to: NodeId(1),
            rate: Rate::from_bytes_per_s(rate).expect("it is a rate"),
            most: Rate::from_bytes_per_s(rate).expect("it is a rate"),
            drop: drop.to_vec(),
            add: add.to_vec(),
        };
        let mut turn = |plans: &BTreeMap<Key, Plan>, whole: bool| {
            let mut told = ledger.turn(plans, Time::ZERO, 2.0, |_| whole);
            told.remove(&NodeId(0)).unwrap_or_default()
        };
        assert_eq!(
            turn(&plan(&[0..4], 400.0), false),
            [send(200.0, &[], &[0..4])]
        );
        assert_eq!(turn(&plan(&[0..4], 400.0), false), [], "nothing is new");
        let next = plan(&[2..4, 9..10], 400.0);
        assert_eq!(turn(&next, false), [send(200.0, &[0..2], &[9..10])]);
        assert_eq!(turn(&next, true), [send(200.0, &[], &[2..4, 9..10])]);
        let (job, to) = (JobId(0), NodeId(1));
        let done = false;
        let end = Change::End { job, to, done };
        assert_eq!(turn(&BTreeMap::new(), false), [end]);
        assert_eq!(turn(&BTreeMap::new(), false), []);
    }
}
