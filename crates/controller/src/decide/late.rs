//! What has come by the end of the running cycle, and what has not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use outpour_core::Time;
use outpour_core::network::Resource;

use super::Cycle;
use crate::controller::Controller;
use crate::job::JobId;
use crate::order::Key;
use crate::task::{Due, Task};

/// For how many cycles blocks may be late before they are sent again.
const LATE_CYCLES: u32 = 2;
/// The same where links may be explored. Senders are faster there than ordered, so a block that is late all the
/// same is on a link that became slow.
const LATE_EXPLORED_CYCLES: u32 = 1;
/// ... but where a cycle carries fewer blocks than this over the way: with one or two lanes beside it, a lane
/// that is not slow is late by a cycle with a single block.
const LATE_EXPLORED_BLOCKS: f64 = 4.0;
/// Where less is planned than this part of the most that ever was, the network is idle: then blocks
/// are sent again as soon as they are late by the second, in cycles.
const IDLE_SHARE: f64 = 0.2;
const LATE_IDLE_CYCLES: f64 = 0.5;

impl Controller {
    /// Takes as done what is due by `from`, and gives up what is late [BDS §5.1].
    pub(super) fn settle(&mut self, from: Time, heard: Time) -> BTreeMap<Key, Vec<Range<u32>>> {
        for ((agent, to, job), subtask) in &mut self.ledger.subtasks {
            let Some(task) = self.tasks.get_mut(job) else {
                continue;
            };
            let (a, b) = (task.member(*agent), task.member(*to));
            let (Some(a), Some(b)) = (a, b) else {
                debug_assert!(false, "orders are between members");
                continue;
            };
            debug_assert!(subtask.since <= from, "time goes forward");
            let done = subtask.advance(from, task.block());
            task.release(*to, &subtask.list);
            for run in done {
                task.expect(a, b, run, from);
            }
        }
        let late = self.give_up_late(heard);
        let passed = self
            .span
            .map_or(Duration::ZERO, |(last, _)| from.since(last));
        for severed in self.severed.values_mut() {
            severed.left = severed.left.saturating_sub(passed);
        }
        late
    }

    /// Gives up what is late for too long; who was to send it.
    fn give_up_late(&mut self, heard: Time) -> BTreeMap<Key, Vec<Range<u32>>> {
        let idle = self.planned.0 < self.planned.1 * IDLE_SHARE;
        let cycle = self.config.cycle;
        let usual = match idle {
            true => cycle.mul_f64(LATE_IDLE_CYCLES),
            false => cycle * LATE_CYCLES,
        };
        let explored = cycle * LATE_EXPLORED_CYCLES;
        let is_explored = self.config.explore && !idle;
        let mut late: BTreeMap<Key, Vec<Range<u32>>> = BTreeMap::new();
        // Reports of a whole cycle have come since. What is given up is doubted before, as others may
        // have been promised it.
        let before = heard - cycle.min(usual);
        for (job, task) in &mut self.tasks {
            task.doubt(before);
            let members = task.partition.shape().members.clone();
            let node = |member: u32| members[member as usize];
            let few = LATE_EXPLORED_BLOCKS * task.block() / cycle.as_secs_f64();
            let is_few = |from, to| {
                let path = self.network.path(from, to);
                let rate = |resource: &Resource| self.network.capacity(*resource).bytes_per_s();
                path.resources().iter().map(rate).any(|rate| rate < few)
            };
            for to in 0..task.dues.len() as u32 {
                let over = |due: &Due| {
                    let soon = is_explored && due.at + explored <= heard;
                    due.at + usual <= heard || soon && !is_few(node(due.from), node(to))
                };
                for due in task.revoke(to, over) {
                    let key = (node(due.from), node(to), *job);
                    late.entry(key).or_default().push(due.run);
                }
            }
        }
        late
    }
}

/// Leaves room for what is late: its senders are still at it, and would fall behind further with each
/// cycle that takes no notice of that.
pub(super) fn make_up(tasks: &BTreeMap<JobId, Task>, cycle: &mut Cycle) {
    for task in tasks.values() {
        let node = |member: u32| task.partition.shape().members[member as usize];
        for (to, dues) in task.dues.iter().enumerate() {
            for due in dues.iter().filter(|due| due.late && due.at < cycle.from) {
                let (from, to) = (node(due.from), node(to as u32));
                debug_assert!(!due.run.is_empty(), "something is late");
                let bytes = f64::from(due.run.end - due.run.start) * task.block();
                let bytes = bytes.min(cycle.room.left(from, to));
                cycle.room.take(from, to, bytes);
                *cycle.behind.entry((from, to, task.id)).or_insert(0.0) += bytes;
            }
        }
    }
}
