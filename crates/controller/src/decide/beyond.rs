//! What lanes may send beyond what is planned, where links may be explored: rates change in the middle of a cycle,
//! and a lane that runs dry then is idle until the next decision takes effect.

use std::collections::{BTreeMap, BTreeSet};

use outpour_core::NodeId;

use super::Cycle;
use crate::blocks::runs::append;
use crate::controller::Controller;
use crate::fill::{Filler, Move, earlier, way};
use crate::job::JobId;
use crate::order::{Key, Plan};
use crate::room::{Room, residual};
use crate::task::Task;

/// How much faster than ordered lanes may be where links may be explored, relative: so they make up for a moment
/// in which they could not send, and show that a link carries more than is known of it. Between sites they get
/// as much more to send, so that one that becomes faster goes on with that until the next decision.
const BEYOND: f64 = 1.0;
/// ... if so many blocks are planned for it: one or two more would make much of it late.
const BEYOND_BLOCKS: f64 = 4.0;
/// At most so much where a way became slow.
const BEYOND_MAX: f64 = 7.0;

impl Controller {
    /// Gives lanes between sites more than is planned. Nobody else is told to send that meanwhile, and nothing
    /// rests on it: what is not sent by the next decision is free again.
    pub(super) fn go_beyond(&self, tasks: &mut BTreeMap<JobId, Task>, cycle: &mut Cycle) {
        let Cycle {
            room, plans, parts, ..
        } = cycle;
        let many = |(key, plan): &(&Key, &Plan)| {
            let block = tasks.get(&key.2).map_or(f64::INFINITY, Task::block);
            plan.bytes >= BEYOND_BLOCKS * block
        };
        let cards = Cards::new(tasks, plans, room);
        for ((from, to, _), plan) in plans.iter_mut() {
            let most = cards.spare(room, *from, *to);
            plan.beyond = self.beyond(*from, *to).min(most);
        }
        let planned = plans.iter().filter(many);
        let more = planned.map(|(key, plan)| (key.0, key.1, plan.bytes * plan.beyond));
        let mut room = room.for_more(more);
        for (id, part) in parts {
            let task = tasks.get_mut(id).expect("parts are of tasks");
            let members = &task.partition.shape().members;
            let key = |from: u32, to: u32| (members[from as usize], members[to as usize], *id);
            let severed = self.is_severed(task);
            let apart = |from, to| severed(from, to) || !plans.contains_key(&key(from, to));
            let (block, left) = (task.job.block.as_f64(), part.left);
            let coming = &mut task.coming;
            let mut filler = Filler::new(&task.partition, coming, &mut room, block, left, &apart);
            filler.cursors = std::mem::take(&mut task.cursors);
            let earlier = earlier(&task.partition, self.ledger.listed(*id), &apart);
            let shape = task.partition.shape();
            let ends = |(from, to, job): &Key| {
                let ends = shape.member(*from).zip(shape.member(*to));
                ends.filter(|_| job == id)
            };
            let ends = plans.keys().filter_map(ends);
            let ways = ends.filter_map(|(from, to)| way(shape, from, to));
            let mut amounts = ways.map(|way| (way, f64::INFINITY)).collect();
            filler.routed(&part.groups, &mut amounts, &earlier);
            task.cursors = filler.cursors;
            for Move { from, to, run, .. } in filler.moves {
                let plan = plans.get_mut(&key(from, to)).expect("all others are apart");
                append(&mut plan.list, run);
            }
        }
    }

    /// How much faster than ordered a lane may be, relative: one whose way became slow may be as fast as
    /// the way is known to be, as it may be that again.
    fn beyond(&self, from: NodeId, to: NodeId) -> f64 {
        let (mut known, mut found) = (f64::INFINITY, f64::INFINITY);
        for resource in self.network.path(from, to).resources() {
            let rate = residual(&self.network, &self.config, &self.foreground, *resource);
            known = known.min(rate);
            found = found.min(self.estimate.of(*resource, rate));
        }
        let more = known / found - 1.0;
        // Where nothing is known, or nothing is left, there is nothing to compare.
        match more.is_nan() {
            true => BEYOND,
            false => more.clamp(BEYOND, BEYOND_MAX),
        }
    }
}

/// What the access links of each site's servers carry by plan, and what they have left, bytes of a cycle.
struct Cards {
    out: Vec<[f64; 2]>,
    into: Vec<[f64; 2]>,
}

impl Cards {
    fn new(tasks: &BTreeMap<JobId, Task>, plans: &BTreeMap<Key, Plan>, room: &Room) -> Self {
        let none = vec![[0.0; 2]; room.clusters()];
        let (mut out, mut into) = (none.clone(), none);
        for ((from, to, _), plan) in plans {
            if room.pass_cards(*from, *to) {
                out[room.cluster(*from)][0] += plan.through();
                into[room.cluster(*to)][0] += plan.through();
            }
        }
        let members = tasks.values().map(|task| task.partition.shape());
        let members = members.flat_map(|shape| &shape.members);
        for node in members.copied().collect::<BTreeSet<NodeId>>() {
            out[room.cluster(node)][1] += room.out(node);
            into[room.cluster(node)][1] += room.into(node);
        }
        Self { out, into }
    }

    /// How much faster than planned all that the servers of two sites send and receive could be, relative, as
    /// far as their access links go. Lanes that are faster where these are full take it from others.
    fn spare(&self, room: &Room, from: NodeId, to: NodeId) -> f64 {
        if !room.pass_cards(from, to) {
            return f64::INFINITY;
        }
        let ends = [self.out[room.cluster(from)], self.into[room.cluster(to)]];
        let spare = ends.map(|[used, left]| {
            if used > 0.0 {
                left / used
            } else {
                f64::INFINITY
            }
        });
        debug_assert!(
            spare.iter().all(|it| *it >= 0.0),
            "no access link is overdrawn"
        );
        spare[0].min(spare[1])
    }
}
