//! One cycle: what is due by then is taken as done, what has begun goes on, the rest is decided.

mod beyond;
mod earliest;
mod late;
mod stock;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use outpour_core::network::Resource;
use outpour_core::{NodeId, Time};

use crate::blocks::runs::{append, count};
use crate::controller::Controller;
use crate::demand::{Bounds, Way, demand, groups};
use crate::fill::{Filler, Move, earlier};
use crate::job::JobId;
use crate::notice::{Decision, Notice};
use crate::order::{Key, Order, Plan, Stamp};
use crate::room::{Room, residual};
use crate::task::Task;

/// What of a block has to get through in the cycle for its transfer to go on.
const GO_ON_SHARE: f64 = 1e-5;
/// How often the rates of transfers are raised where the network has room, by how much at most, and
/// what is worth it.
const HASTEN_ROUNDS: usize = 16;
const HASTEN_STEP: f64 = 0.25;
const HASTEN_MIN: f64 = 0.002;
/// The part of a cycle into which the last blocks are pressed at most.
const SPREAD_MIN: f64 = 1.0 / 32.0;
/// By how much a job with a deadline is ahead of what it needs at least, relative.
const AHEAD: f64 = 1.05;

/// A job while a cycle is decided.
#[derive(Default)]
struct Part {
    groups: Vec<u32>,
    /// Bytes that it may still move.
    left: f64,
    moves: Vec<Move>,
}

/// How far a job is served in one step.
struct Step<'a> {
    share: f64,
    needs: Option<&'a [f64]>,
    /// Whether it also takes what the router leaves.
    rest: bool,
}

/// What a cycle is made of.
struct Cycle {
    from: Time,
    seconds: f64,
    room: Room,
    plans: BTreeMap<Key, Plan>,
    /// Blocks that were late and that their senders are to forget.
    late: BTreeMap<Key, Vec<Range<u32>>>,
    /// Bytes of late blocks for which there is room, and whose senders may still be at it.
    behind: BTreeMap<Key, f64>,
    parts: BTreeMap<JobId, Part>,
}

impl Controller {
    /// Decides the next cycle: from the end of the running one on, or from now on if there is none
    /// or something broke. Does nothing while the last decision is still to take effect, unless
    /// something broke since.
    pub fn decide(&mut self, now: Time) -> Decision {
        if let Some(epoch) = self.deposed {
            return self.silence(now, epoch);
        }
        let from = match self.span {
            Some((from, until)) if now < from && !self.urgent && !self.ahead => {
                return Decision {
                    from,
                    until,
                    ..Decision::default()
                };
            }
            Some((from, _)) if self.urgent => now.max(from),
            Some((_, until)) => now.max(until),
            None => now,
        };
        self.urgent = false;
        self.ahead = false;
        self.heed_stated();
        debug_assert!(from >= now, "nothing is decided for the past");
        let seconds = self.cycle().as_secs_f64();
        debug_assert!(seconds > 0.0, "the configuration was checked");
        // What was not heard of by now says nothing of what is due later.
        let heard = from.min(now + self.config.cycle / 10);
        debug_assert!(heard <= from, "what is heard of later is not late");
        let late = self.settle(from, heard);
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in tasks.values_mut().filter(|task| task.stale) {
            self.refresh(task);
        }
        let block = tasks.values().map(Task::block).fold(0.0, f64::max);
        self.estimate.look(now, &self.network, block);
        let rate = |resource: Resource| {
            let known = residual(&self.network, &self.config, &self.foreground, resource);
            self.estimate.of(resource, known) * (1.0 - self.config.margin)
        };
        let mut cycle = Cycle {
            from,
            seconds,
            room: Room::new(&self.network, seconds, rate),
            plans: BTreeMap::new(),
            late,
            behind: BTreeMap::new(),
            parts: BTreeMap::new(),
        };
        for task in tasks.values().filter(|task| task.job.start <= from) {
            let left = task.job.limit.bytes_per_s() * seconds;
            cycle.parts.insert(
                task.id,
                Part {
                    left,
                    ..Part::default()
                },
            );
        }
        late::make_up(&tasks, &mut cycle);
        self.go_on(&mut tasks, &mut cycle);
        self.serve(&mut tasks, &mut cycle);
        self.stock_relays(&mut tasks, &mut cycle);
        let over = collect(&tasks, &mut cycle);
        self.ledger.break_off(over);
        self.speed_up(&tasks, &mut cycle);
        hasten(&mut cycle);
        let margin = self.config.margin;
        debug_assert!(margin < 1.0, "something is planned");
        if self.config.explore {
            self.go_beyond(&mut tasks, &mut cycle);
        } else {
            let plans = cycle.plans.values_mut();
            plans.for_each(|plan| plan.beyond = margin / (1.0 - margin));
        }
        for (key, bytes) in std::mem::take(&mut cycle.behind) {
            // Where rates are followed to the letter, what is late is lost more often than behind.
            let real = self.config.explore || margin > 0.0;
            if let Some(plan) = cycle.plans.get_mut(&key).filter(|_| real) {
                plan.behind = bytes;
            }
        }
        self.tasks = tasks;
        self.tell(cycle)
    }

    /// Heeds what members said that they have, of each job all at once.
    pub(crate) fn heed_stated(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in tasks.values_mut().filter(|task| !task.is_settled()) {
            // First, while there are few classes: all of them enter their groups anew.
            if task.stale {
                self.refresh(task);
            }
            task.settle();
            debug_assert!(task.is_settled(), "all is heeded");
        }
        self.tasks = tasks;
    }

    /// Another controller has taken over: nothing more is ordered.
    fn silence(&mut self, now: Time, epoch: u64) -> Decision {
        self.tasks.clear();
        self.ledger.subtasks.clear();
        let mut notices = std::mem::take(&mut self.notices);
        if self.span.take().is_some() {
            notices.push(Notice::Deposed { epoch });
        }
        Decision {
            from: now,
            until: now,
            notices,
            ..Decision::default()
        }
    }

    /// Transfers of blocks that have begun go on before anything else begins.
    fn go_on(&self, tasks: &mut BTreeMap<JobId, Task>, cycle: &mut Cycle) {
        for (key, subtask) in &self.ledger.subtasks {
            let (from, to, job) = *key;
            let (Some(block), Some(task)) = (subtask.begun(), tasks.get_mut(&job)) else {
                continue;
            };
            let Some(part) = cycle.parts.get_mut(&job) else {
                continue;
            };
            let (a, b) = (task.member(from), task.member(to));
            let (Some(a), Some(b)) = (a, b) else {
                continue;
            };
            if !task.is_wanted(a, b, block) || self.are_severed(from, to) {
                continue;
            }
            let wants = task.block() - subtask.carried;
            debug_assert!(wants > 0.0, "a block that is through has left the list");
            let bytes = wants.min(cycle.room.left(from, to)).min(part.left);
            if bytes < task.block() * GO_ON_SHARE && bytes < wants {
                continue;
            }
            debug_assert!(bytes > 0.0, "a block that has begun is not through");
            cycle.room.take(from, to, bytes);
            part.left -= bytes;
            task.note(b, block..block + 1);
            let carried = subtask.carried;
            let mut plan = Plan {
                bytes,
                carried,
                ..Plan::default()
            };
            append(&mut plan.list, block..block + 1);
            let before = cycle.plans.insert(*key, plan);
            debug_assert!(before.is_none(), "a subtask has begun one block");
        }
    }

    /// Shares the network among the jobs: what deadlines need, then each job its share, then what
    /// is left, the highest priority first.
    fn serve(&self, tasks: &mut BTreeMap<JobId, Task>, cycle: &mut Cycle) {
        for (id, part) in &mut cycle.parts {
            let task = tasks.get_mut(id).expect("parts are of tasks");
            part.groups = groups(&task.partition, &cycle.room, task.block());
            task.cursors.retain(|group, _| part.groups.contains(group));
        }
        let busy = |(_, part): &(&JobId, &Part)| !part.groups.is_empty() && part.left > 0.0;
        let mut order: Vec<JobId> = cycle.parts.iter().filter(busy).map(|(id, _)| *id).collect();
        let all = Step {
            share: 1.0,
            needs: None,
            rest: true,
        };
        if let [only] = order[..] {
            let task = tasks.get_mut(&only).expect("it is one of them");
            return self.serve_one(task, cycle, &all);
        }
        let deadline = |id: &JobId| tasks[id].job.deadline.unwrap_or(Time::MAX);
        let mut pressed: Vec<JobId> = order.clone();
        pressed.retain(|id| deadline(id) < Time::MAX);
        pressed.sort_by_key(|id| (deadline(id), *id));
        for id in pressed {
            let task = tasks.get_mut(&id).expect("it is one of them");
            let needs = needs(task, cycle);
            let step = Step {
                share: 1.0,
                needs: Some(&needs),
                rest: false,
            };
            self.serve_one(task, cycle, &step);
        }
        let weight = |id: &JobId| tasks[id].job.priority.weight();
        let mut weights: f64 = order.iter().map(|id| f64::from(weight(id))).sum();
        order.sort_by_key(|id| (std::cmp::Reverse(weight(id)), *id));
        let shares: Vec<(JobId, f64)> = order
            .iter()
            .map(|id| (*id, f64::from(weight(id))))
            .collect();
        for (id, weight) in shares {
            // A share of what is left to it and to those after it is a share of all.
            debug_assert!(weights >= weight * 0.999, "shares are of what is left");
            let step = Step {
                share: weight / weights,
                needs: None,
                rest: false,
            };
            weights -= weight;
            self.serve_one(tasks.get_mut(&id).expect("it is one of them"), cycle, &step);
        }
        for id in order {
            self.serve_one(tasks.get_mut(&id).expect("it is one of them"), cycle, &all);
        }
    }

    fn serve_one(&self, task: &mut Task, cycle: &mut Cycle, step: &Step<'_>) {
        let part = cycle.parts.get_mut(&task.id).expect("it takes part");
        let block = task.block();
        let mut bounds = Bounds {
            share: step.share,
            job: part.left.max(0.0),
            needs: step.needs,
        };
        let severed = self.is_severed(task);
        let (partition, room) = (&task.partition, &cycle.room);
        let mut demand_of = |share: f64| {
            bounds.share = share;
            demand(partition, &part.groups, room, block, bounds, &severed)
        };
        let mut demand = demand_of(step.share);
        let mut found = task.router.route(&demand.problem);
        // The last blocks should not queue at a few servers while others are idle: as long as all
        // fits into a part of the cycle, it is spread as if there were no more.
        let mut share = step.share;
        while step.rest && share > SPREAD_MIN && demand.is_all(&found) {
            share /= 2.0;
            let less = demand_of(share);
            let amounts = task.router.route(&less.problem);
            if !less.is_all(&amounts) {
                break;
            }
            (demand, found) = (less, amounts);
        }
        debug_assert_eq!(found.len(), demand.ways.len(), "an amount for each flow");
        debug_assert!(demand.problem.fits(&found), "no capacity is overdrawn");
        let mut amounts: BTreeMap<Way, f64> = BTreeMap::new();
        for (way, amount) in demand.ways.iter().zip(found) {
            *amounts.entry(*way).or_insert(0.0) += amount;
        }
        let severed = self.is_severed(task);
        let mut filler = Filler::new(
            &task.partition,
            &mut task.coming,
            &mut cycle.room,
            block,
            part.left,
            &severed,
        );
        filler.cursors = std::mem::take(&mut task.cursors);
        for ((from, to, _), plan) in cycle.plans.iter().filter(|(key, _)| key.2 == task.id) {
            let shape = task.partition.shape();
            if let Some((from, to)) = shape.member(*from).zip(shape.member(*to)) {
                plan.list.iter().for_each(|run| filler.note(from, to, run));
            }
        }
        // With replication nearly nothing is left of what was listed.
        let listed = self.config.explore.then(|| self.ledger.listed(task.id));
        let listed = listed.into_iter().flatten();
        let earlier = earlier(&task.partition, listed, &severed);
        filler.routed_evenly(&part.groups, &mut amounts, &earlier);
        if step.rest {
            filler.rest(&part.groups, false);
            filler.rest(&part.groups, true);
        }
        part.left = filler.job;
        part.moves.extend(filler.moves);
        task.cursors = filler.cursors;
    }

    fn is_severed(&self, task: &Task) -> impl Fn(u32, u32) -> bool + use<> {
        let members = task.partition.shape().members.clone();
        let severed = self.severed.iter().filter(|(_, it)| !it.left.is_zero());
        let pairs: BTreeSet<(NodeId, NodeId)> = severed.map(|(pair, _)| *pair).collect();
        move |from: u32, to: u32| {
            let node = |member: u32| members[member as usize];
            !pairs.is_empty() && pairs.contains(&(node(from), node(to)))
        }
    }

    fn are_severed(&self, from: NodeId, to: NodeId) -> bool {
        let severed = self.severed.get(&(from, to));
        severed.is_some_and(|severed| !severed.left.is_zero())
    }

    /// Blocks that have begun get what is still free, so that they are through sooner.
    fn speed_up(&self, tasks: &BTreeMap<JobId, Task>, cycle: &mut Cycle) {
        for ((from, to, job), plan) in &mut cycle.plans {
            let (Some(task), Some(part)) = (tasks.get(job), cycle.parts.get_mut(job)) else {
                continue;
            };
            let blocks = count(&plan.list) as f64;
            let wants = blocks * task.block() - plan.carried - plan.bytes;
            debug_assert!(wants >= -1.0, "no more gets through than there is");
            let more = wants.min(cycle.room.left(*from, *to)).min(part.left);
            if more > 0.0 {
                cycle.room.take(*from, *to, more);
                part.left -= more;
                plan.bytes += more;
            }
        }
    }

    /// Makes orders of the plans, and says what is to be said.
    fn tell(&mut self, cycle: Cycle) -> Decision {
        let from = cycle.from;
        let until = from + self.cycle();
        debug_assert!(until > from, "a cycle takes time");
        self.span = Some((from, until));
        let nodes = &self.nodes;
        let whole = |node: NodeId| nodes[node.index()].fresh;
        let mut changes = self.ledger.turn(&cycle.plans, from, cycle.seconds, whole);
        let fresh = (0..self.nodes.len() as u32).map(NodeId).filter(|node| {
            let node = &self.nodes[node.index()];
            node.fresh && node.present
        });
        for node in fresh {
            changes.entry(node).or_default();
        }
        let mut orders = Vec::with_capacity(changes.len());
        for (to, changes) in changes {
            let node = &mut self.nodes[to.index()];
            if !node.present {
                continue;
            }
            node.told += 1;
            debug_assert!(node.fresh || !changes.is_empty(), "an order says something");
            let stamp = Stamp {
                epoch: self.config.epoch,
                seq: node.told,
            };
            let whole = std::mem::take(&mut node.fresh);
            orders.push(Order {
                to,
                stamp,
                whole,
                changes,
            });
        }
        let behind = |node: &NodeId| {
            let node = &self.nodes[node.index()];
            node.present && node.behind
        };
        let asks = (0..self.nodes.len() as u32)
            .map(NodeId)
            .filter(behind)
            .collect();
        self.take_stock(from);
        let planned = cycle.plans.values().map(|plan| plan.bytes).sum();
        self.planned = (planned, self.planned.1.max(planned));
        debug_assert!(self.planned.0 <= self.planned.1, "the most is the most");
        Decision {
            from,
            until,
            orders,
            asks,
            notices: std::mem::take(&mut self.notices),
            planned_bytes: planned,
        }
    }

    /// Which jobs are complete, late or stuck.
    fn take_stock(&mut self, from: Time) {
        let complete: Vec<JobId> = self
            .tasks
            .values()
            .filter(|task| task.is_complete())
            .map(|task| task.id)
            .collect();
        for job in complete {
            let task = self.tasks.remove(&job);
            debug_assert!(
                task.is_some_and(|task| task.nowhere() == 0),
                "nothing is missing"
            );
            self.ledger.end(|key| key.2 == job);
            self.notice(Notice::Complete { job });
        }
        let mut said = Vec::new();
        for task in self.tasks.values() {
            let job = task.id;
            let lost = task.nowhere();
            if lost > 0 && !task.lost_said {
                said.push(Notice::Lost { job, blocks: lost });
            }
            if !task.late_said
                && let Some(earliest) = self.late(task, from.max(task.job.start), false)
            {
                said.push(Notice::Late { job, earliest });
            }
        }
        for notice in said {
            match notice {
                Notice::Lost { job, .. } => {
                    self.tasks.get_mut(&job).expect("it is there").lost_said = true
                }
                Notice::Late { job, .. } => {
                    self.tasks.get_mut(&job).expect("it is there").late_said = true
                }
                _ => {}
            }
            self.notice(notice);
        }
    }
}

/// What each target of a job has to get this cycle to meet the deadline, bytes.
fn needs(task: &Task, cycle: &Cycle) -> Vec<f64> {
    let deadline = task.job.deadline.unwrap_or(Time::MAX);
    let left = deadline.since(cycle.from).as_secs_f64();
    // The last blocks of a cycle come at its end, which has to be before the deadline.
    let share = match left > 2.0 * cycle.seconds {
        true => (cycle.seconds * AHEAD / (left - cycle.seconds)).min(1.0),
        false => 1.0,
    };
    let targets = 0..task.partition.shape().targets.len() as u32;
    debug_assert!(
        share > 0.0 && share <= 1.0,
        "it is a part of what is lacking"
    );
    let lacks = |target| task.partition.lacking(target) as f64 * task.block();
    // At least a block, or nothing whole would ever fit.
    targets
        .map(|target| (lacks(target) * share).max(task.block()))
        .collect()
}

/// Spreads what is still free over all transfers, so that those of the last blocks end before the
/// cycle does. Rates grow in small steps, so that each gets about the same part of what is free.
fn hasten(cycle: &mut Cycle) {
    for _ in 0..HASTEN_ROUNDS {
        let mut grew = false;
        for ((from, to, job), plan) in &mut cycle.plans {
            let Some(part) = cycle.parts.get_mut(job) else {
                continue;
            };
            let speed = plan.through();
            debug_assert!(
                speed.is_finite() && speed > 0.0,
                "a subtask sends something"
            );
            let more = (speed * HASTEN_STEP)
                .min(cycle.room.left(*from, *to))
                .min(part.left);
            if more > speed * HASTEN_MIN {
                cycle.room.take(*from, *to, more);
                part.left -= more;
                plan.speed = speed + more;
                grew = true;
            }
        }
        if !grew {
            break;
        }
    }
}

/// Makes plans of moves: blocks merged by source and destination; the subtasks that are over for good.
fn collect(tasks: &BTreeMap<JobId, Task>, cycle: &mut Cycle) -> Vec<Key> {
    for (id, part) in &mut cycle.parts {
        let members = &tasks[id].partition.shape().members;
        for Move {
            from,
            to,
            run,
            bytes,
        } in std::mem::take(&mut part.moves)
        {
            let key = (members[from as usize], members[to as usize], *id);
            debug_assert!(key.0 != key.1 && bytes > 0.0, "something goes somewhere");
            let plan = cycle.plans.entry(key).or_default();
            let run: Range<u32> = run;
            append(&mut plan.list, run);
            plan.bytes += bytes;
        }
    }
    let mut over = Vec::new();
    for (key, runs) in std::mem::take(&mut cycle.late) {
        match cycle.plans.get_mut(&key) {
            Some(plan) => plan.forget = runs,
            // It was done but for what is late: that is not to come any more.
            None => over.push(key),
        }
    }
    over
}

#[cfg(test)]
mod tests;
