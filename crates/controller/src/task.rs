//! A job under way: what its members have, what they are about to have, and what was promised.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use outpour_core::{NodeId, Time};

use crate::blocks::runs::strike;
use crate::blocks::{Partition, Runs, Shape};
use crate::config::Method;
use crate::fill::{Cursor, destination, destinations};
use crate::job::{Job, JobId};
use crate::route::{Mixed, Program, Router};

/// Blocks that should have arrived by now, or soon, and that no report confirms yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Due {
    pub(crate) from: u32,
    pub(crate) run: Range<u32>,
    pub(crate) at: Time,
    /// Whether it should have been confirmed by now: it still may come, but nothing rests on it.
    pub(crate) late: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: JobId,
    pub(crate) job: Job,
    pub(crate) blocks: u32,
    /// Who has what, as of when the next decision takes effect, but for those in `stated`.
    pub(crate) partition: Partition,
    /// What members have that have said so since the last decision, and of whom nothing is due: it
    /// takes much less time to heed all of them together. [`Task::settle`] does.
    stated: BTreeMap<u32, Runs>,
    /// How many runs wait there at most.
    stated_runs: usize,
    /// What is on its way to each destination; see [`destination`].
    pub(crate) coming: Vec<Runs>,
    /// Per member.
    pub(crate) dues: Vec<Vec<Due>>,
    /// From where each group's blocks are given away next, so that all its holders have their turn.
    pub(crate) cursors: BTreeMap<u32, Cursor>,
    pub(crate) router: Box<dyn Router + Send>,
    /// Whether somebody came or went since the groups were made.
    pub(crate) stale: bool,
    /// Whether it was said that the deadline cannot be met, and that blocks are nowhere.
    pub(crate) late_said: bool,
    pub(crate) lost_said: bool,
    speculate: bool,
}

impl Task {
    pub(crate) fn new(
        id: JobId,
        job: Job,
        blocks: u32,
        shape: Shape,
        method: Method,
        speculate: bool,
    ) -> Self {
        let members = shape.members.len();
        let mut task = Self {
            id,
            blocks,
            coming: vec![Runs::default(); destinations(&shape)],
            dues: vec![Vec::new(); members],
            router: match method {
                Method::Prices => Box::new(Mixed::default()),
                Method::Program => Box::new(Program::default()),
            },
            partition: Partition::new(shape, blocks),
            stated: BTreeMap::new(),
            stated_runs: 0,
            cursors: BTreeMap::new(),
            stale: true,
            late_said: false,
            lost_said: false,
            speculate,
            job,
        };
        let sources = std::mem::take(&mut task.job.sources);
        for source in &sources {
            let member = task.member(source.node).expect("sources are members");
            for run in &source.blocks {
                task.partition.gain(member, run.clone());
            }
        }
        task.job.sources = sources;
        debug_assert_eq!(task.partition.shape().members.len(), task.dues.len());
        debug_assert_eq!(
            task.coming.len(),
            members + task.partition.shape().targets.len()
        );
        task
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> f64 {
        self.job.block.as_f64()
    }

    pub(crate) fn member(&self, node: NodeId) -> Option<u32> {
        self.partition.shape().member(node)
    }

    fn place(&self, member: u32) -> usize {
        destination(self.partition.shape(), member)
    }

    /// Heeds what members have said that they have; has to come before anything is decided.
    pub(crate) fn settle(&mut self) {
        if self.is_settled() {
            return;
        }
        let stated = std::mem::take(&mut self.stated);
        self.stated_runs = 0;
        if self.partition.restate(&stated) {
            // They point to classes.
            self.cursors.clear();
        }
    }

    /// Whether there is nothing to settle.
    pub(crate) fn is_settled(&self) -> bool {
        self.stated.is_empty()
    }

    /// How many runs of those that said what they have wait at most.
    pub(crate) const fn stated_runs(&self) -> usize {
        self.stated_runs
    }

    /// Who has what, all that was said included. Takes as long as to heed it.
    pub(crate) fn known(&self) -> Cow<'_, Partition> {
        if self.is_settled() {
            return Cow::Borrowed(&self.partition);
        }
        let mut partition = self.partition.clone();
        partition.restate(&self.stated);
        Cow::Owned(partition)
    }

    /// How many blocks a member has.
    pub(crate) fn held(&self, member: u32) -> u64 {
        let stated = self.stated.get(&member);
        stated.map_or_else(|| self.partition.held(member), Runs::blocks)
    }

    /// A member has blocks.
    fn gain(&mut self, member: u32, run: Range<u32>) {
        if let Some(stated) = self.stated.get_mut(&member) {
            stated.insert(run);
            self.stated_runs += 1;
        } else {
            self.partition.gain(member, run);
        }
    }

    /// A member has blocks no more.
    pub(crate) fn lose(&mut self, member: u32, run: Range<u32>) {
        if let Some(stated) = self.stated.get_mut(&member) {
            stated.remove(run);
            self.stated_runs += 1;
        } else {
            self.partition.lose(member, run);
        }
    }

    /// A member has verified blocks.
    pub(crate) fn arrived(&mut self, member: u32, run: Range<u32>) {
        debug_assert!(run.end <= self.blocks, "runs were checked where they came");
        self.gain(member, run.clone());
        self.confirm(member, &run);
        let place = self.place(member);
        self.coming[place].remove(run);
    }

    /// Strikes blocks off what is due from a member.
    fn confirm(&mut self, member: u32, run: &Range<u32>) {
        let dues = &mut self.dues[member as usize];
        if dues
            .iter()
            .all(|due| due.run.end <= run.start || run.end <= due.run.start)
        {
            return;
        }
        let old = std::mem::take(dues);
        for due in old {
            let mut left = vec![due.run.clone()];
            strike(&mut left, run);
            dues.extend(left.into_iter().map(|run| Due { run, ..due.clone() }));
        }
    }

    /// Blocks are to be with `to` at a time, if nothing goes wrong.
    pub(crate) fn expect(&mut self, from: u32, to: u32, run: Range<u32>, at: Time) {
        debug_assert!(from != to && !run.is_empty(), "something was on its way");
        debug_assert!(self.is_settled(), "all that was said is heeded");
        let place = self.place(to);
        let fresh = if self.speculate {
            // They can be passed on, so they need not be noted as on their way any more.
            self.coming[place].remove(run.clone());
            self.partition.gain(to, run)
        } else {
            let mut fresh = vec![run.clone()];
            for had in self.partition.held_within(to, run) {
                strike(&mut fresh, &had);
            }
            fresh
        };
        let late = !self.speculate;
        let dues = fresh.into_iter().map(|run| Due {
            from,
            run,
            at,
            late,
        });
        self.dues[to as usize].extend(dues);
    }

    /// Gives up what is due at a member as far as `hopeless` says; who was to send it.
    pub(crate) fn revoke(&mut self, member: u32, hopeless: impl Fn(&Due) -> bool) -> Vec<Due> {
        let dues = std::mem::take(&mut self.dues[member as usize]);
        let (gone, kept) = dues.into_iter().partition(|due| hopeless(due));
        self.dues[member as usize] = kept;
        let gone: Vec<Due> = gone;
        let place = self.place(member);
        for due in &gone {
            debug_assert!(due.from != member, "nobody sends to oneself");
            debug_assert!(!self.stated.contains_key(&member), "nothing is due of it");
            if !due.late {
                self.partition.lose(member, due.run.clone());
            }
            self.coming[place].remove(due.run.clone());
        }
        gone
    }

    /// What was due before `before` and is not confirmed is late. What others were to get of that is
    /// late as well, or two servers could go on promising each other what neither has.
    pub(crate) fn doubt(&mut self, before: Time) {
        let mut open: Vec<(u32, Range<u32>)> = Vec::new();
        for member in 0..self.dues.len() as u32 {
            open.extend(self.suspend(member, |due| due.at <= before));
        }
        while let Some((from, run)) = open.pop() {
            for member in 0..self.dues.len() as u32 {
                let rests_on = |due: &Due| {
                    due.from == from && due.run.start < run.end && run.start < due.run.end
                };
                open.extend(self.suspend(member, rests_on));
            }
        }
    }

    /// Lets nothing rest any more on what is due at a member and `which` says; what that was.
    fn suspend(&mut self, member: u32, which: impl Fn(&Due) -> bool) -> Vec<(u32, Range<u32>)> {
        let place = self.place(member);
        let mut found = Vec::new();
        for due in &mut self.dues[member as usize] {
            if !due.late && which(due) {
                debug_assert!(self.speculate, "otherwise nothing ever rested on it");
                due.late = true;
                self.partition.lose(member, due.run.clone());
                self.coming[place].insert(due.run.clone());
                found.push((member, due.run.clone()));
            }
        }
        found
    }

    /// A member has blocks no more.
    pub(crate) fn lost(&mut self, member: u32, run: Range<u32>) {
        // What is only due was not there to be lost.
        let mut left = vec![run];
        for due in self.dues[member as usize].iter().filter(|due| !due.late) {
            strike(&mut left, &due.run);
        }
        for run in left {
            self.lose(member, run);
        }
    }

    /// A member's disk is gone, and with it what was under way to it.
    pub(crate) fn lost_all(&mut self, member: u32) {
        self.revoke(member, |_| true);
        self.stated.remove(&member);
        if self.is_settled() {
            self.stated_runs = 0;
        }
        self.partition.lose_all(member);
        debug_assert!(self.dues[member as usize].is_empty(), "nothing is due");
    }

    /// A member has exactly these blocks, and those that are due.
    pub(crate) fn recounted(&mut self, member: u32, runs: &[Range<u32>]) {
        debug_assert!(
            runs.iter().all(|run| run.end <= self.blocks),
            "runs were checked"
        );
        let mut listed = Runs::default();
        runs.iter().for_each(|run| listed.insert(run.clone()));
        if self.dues[member as usize].is_empty() {
            return self.state(member, listed);
        }
        debug_assert!(
            !self.stated.contains_key(&member),
            "nothing is due of those"
        );
        let mut at = 0;
        while let Some(absent) = listed.next_absent(at, self.blocks) {
            at = absent.end;
            self.lost(member, absent);
        }
        listed.iter().for_each(|run| self.arrived(member, run));
    }

    /// The same of a member of which nothing is due; it waits for others that do so.
    fn state(&mut self, member: u32, listed: Runs) {
        let place = self.place(member);
        if self.coming[place].blocks() > 0 {
            for run in listed.iter() {
                self.coming[place].remove(run);
            }
        }
        self.stated_runs += listed.count();
        self.stated.insert(member, listed);
    }

    /// A member that is to get blocks wants these. Relays of the job want none anyway.
    pub(crate) fn wants(&mut self, member: u32, runs: &[Range<u32>]) {
        debug_assert!(
            runs.iter().all(|run| run.end <= self.blocks),
            "runs were checked"
        );
        if self.partition.shape().target_of[member as usize].is_none() {
            return;
        }
        let mut wanted = Runs::default();
        runs.iter().for_each(|run| wanted.insert(run.clone()));
        let mut at = 0;
        while let Some(absent) = wanted.next_absent(at, self.blocks) {
            at = absent.end;
            self.partition.want(member, absent, false);
        }
        wanted
            .iter()
            .for_each(|run| self.partition.want(member, run, true));
        let nothing = wanted.blocks() == 0;
        debug_assert!(wanted.blocks() <= u64::from(self.blocks), "runs are a set");
        if self.partition.shape().relays[member as usize] != nothing {
            self.partition
                .reshape(|shape| shape.relays[member as usize] = nothing);
        }
    }

    /// The parts of a run that a member claimed to have, which is more than that they are due.
    pub(crate) fn claimed(&self, member: u32, run: Range<u32>) -> Vec<Range<u32>> {
        let mut claimed = match self.stated.get(&member) {
            Some(stated) => stated.within(run),
            None => self.partition.held_within(member, run),
        };
        for due in self.dues[member as usize].iter().filter(|due| !due.late) {
            strike(&mut claimed, &due.run);
        }
        claimed
    }

    /// Blocks of a subtask that will not be sent are on their way no more.
    pub(crate) fn release(&mut self, to: NodeId, runs: &[Range<u32>]) {
        let Some(member) = self.member(to) else {
            return;
        };
        let place = self.place(member);
        for run in runs {
            self.coming[place].remove(run.clone());
        }
    }

    /// Whether every destination is there and has everything, by its own word.
    pub(crate) fn is_complete(&self) -> bool {
        let shape = self.partition.shape();
        let due = self
            .dues
            .iter()
            .enumerate()
            .any(|(member, dues)| shape.target_of[member].is_some() && !dues.is_empty());
        let served = (0..shape.targets.len()).all(|target| {
            let wants = |member: &u32| shape.target_of[*member as usize].is_some();
            let there = |member: u32| shape.takes[member as usize];
            let mut members = shape.targets[target].members.clone().filter(wants);
            let there = match shape.targets[target].each {
                true => members.all(there),
                false => members.any(there),
            };
            there && self.partition.lacking(target as u32) == 0
        });
        debug_assert!(!shape.targets.is_empty(), "somebody is to get something");
        served && !due
    }

    /// How many blocks some target lacks and nobody has who could send them.
    pub(crate) fn nowhere(&self) -> u64 {
        self.partition.orphaned()
    }

    /// Whether a transfer that has begun is still of use.
    pub(crate) fn is_wanted(&self, from: u32, to: u32, block: u32) -> bool {
        debug_assert!(from != to, "nobody sends to oneself");
        let shape = self.partition.shape();
        if !shape.gives[from as usize] || !shape.takes[to as usize] {
            return false;
        }
        if !self.partition.has(from, block) || self.partition.has(to, block) {
            return false;
        }
        let target = shape.target_of[to as usize];
        target.is_some_and(|target| self.partition.copies(target, block) > 0)
            || self.partition.may_relay(to, block)
    }

    /// Adds a run to what is on its way.
    pub(crate) fn note(&mut self, to: u32, run: Range<u32>) {
        debug_assert!(self.is_settled(), "all that was said is heeded");
        debug_assert!(!self.partition.has(to, run.start), "it is not there yet");
        let place = self.place(to);
        self.coming[place].insert(run);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use outpour_core::network::Network;
    use outpour_core::{Bytes, Rate};

    use super::*;
    use crate::job::{Destinations, resolve};

    /// One source and two receivers of ten blocks, all of them there.
    fn task() -> Task {
        let open = Rate::UNLIMITED;
        let network = Network::uniform(3, open, open, std::time::Duration::ZERO);
        let to = Destinations::Nodes(vec![NodeId(1), NodeId(2)]);
        let job = Job::new(Bytes(10), Bytes(1), [NodeId(0)], to);
        let network = network.expect("it is a network");
        let (blocks, shape) = resolve(&job, &network).expect("the job can be");
        let mut task = Task::new(JobId(0), job, blocks, shape, Method::Prices, true);
        task.partition.reshape(|shape| {
            shape.gives.fill(true);
            shape.takes.fill(true);
        });
        task
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn doubts_reach_all_that_rests_on_a_promise() {
        let mut task = task();
        task.expect(0, 1, 0..5, at(3.0));
        task.expect(1, 2, 0..5, at(6.0));
        task.expect(0, 2, 5..9, at(6.0));
        assert_eq!((task.partition.held(1), task.partition.held(2)), (5, 9));
        task.doubt(at(3.0));
        // Only what the source itself is to bring is still counted on.
        assert_eq!((task.partition.held(1), task.partition.held(2)), (0, 4));
        // It may come all the same, and is not ordered again meanwhile.
        assert_eq!(task.coming[2].blocks(), 5);
        task.arrived(2, 0..5);
        assert_eq!((task.partition.held(2), task.coming[2].blocks()), (9, 0));
        assert!(!task.is_complete());
    }

    #[test]
    fn what_was_said_counts_before_it_is_heeded() {
        let mut task = task();
        task.expect(0, 2, 0..3, at(3.0));
        task.recounted(2, &[5..6]);
        assert_eq!(task.held(2), 4, "what is due stays");
        task.recounted(1, &[0..5]);
        assert_eq!((task.held(1), task.partition.held(1)), (5, 0));
        task.arrived(1, 5..6);
        task.lost(1, 0..2);
        assert_eq!(task.claimed(1, 0..10), [2..6]);
        let known = task.known().into_owned();
        task.settle();
        assert!(task.is_settled());
        assert_eq!((task.held(1), task.partition.held(1)), (4, 4));
        for block in 0..10 {
            assert_eq!(task.partition.has(1, block), (2..6).contains(&block));
            assert_eq!(known.has(1, block), task.partition.has(1, block));
        }
        // The last word counts, and a lost disk more.
        task.recounted(1, &[8..9]);
        task.recounted(1, &[7..9]);
        assert_eq!(task.held(1), 2);
        task.recounted(0, &[0..1]);
        task.lost_all(0);
        task.settle();
        assert_eq!(task.partition.held_within(1, 0..10), [7..9]);
        assert_eq!((task.partition.held(0), task.partition.held(2)), (0, 4));
    }
}
