//! The controller: what it knows, and what changes that.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use outpour_core::network::{Change, Network, Resource};
use outpour_core::{NodeId, Time};

use crate::config::{Config, ConfigError};
use crate::estimate::Estimate;
use crate::input::{Blocks, Input, InputError, RUNS_MAX, Report};
use crate::job::{JOBS_MAX, Job, JobError, JobId, resolve};
use crate::notice::Notice;
use crate::order::{Key, Ledger};
use crate::room::{Foreground, residual};
use crate::task::Task;

/// For how many cycles a pair of servers is not used after one of them could not reach the other;
/// twice as long each time it was tried again in vain, up to the second.
const SEVERED_CYCLES: u32 = 10;
const SEVERED_CYCLES_MAX: u32 = 320;
/// How many such pairs are remembered; further ones are tried again.
pub const SEVERED_MAX: usize = 4096;
/// Sums of rates are compared up to this relative error of arithmetic.
const ROUNDING: f64 = 1e-6;
/// How many runs of whole reports, of all jobs together, wait at most for the next decision; beyond, they
/// are heeded at once.
const STATED_MAX: usize = 1 << 22;
/// How many notices wait for the next decision; further ones are dropped.
pub const NOTICES_MAX: usize = 1024;

/// For how long a pair is not used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Severed {
    pub(crate) left: Duration,
    length: Duration,
}

/// What is known about a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) present: bool,
    /// Whether it claimed blocks that it did not have.
    pub(crate) liar: bool,
    /// The number of its last order.
    pub(crate) told: u64,
    /// The number of its last report that was heeded.
    pub(crate) reported: u64,
    /// Whether its next order must not rest on earlier ones.
    pub(crate) fresh: bool,
    /// Whether it has to report everything, as some of its reports are missing.
    pub(crate) behind: bool,
}

/// A job that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its number.
    pub job: JobId,
    /// If the deadline cannot be met, when the job can be complete at the earliest. It goes on all
    /// the same, as fast as it can.
    pub late: Option<Time>,
}

/// Decides every few seconds which server sends which blocks to which, and how fast.
///
/// It has no clock, socket or thread. Its host submits jobs, passes what it hears to
/// [`Controller::handle`] as it comes, and calls [`Controller::decide`] at [`Controller::due_at`];
/// then it passes each order to its agent, to be carried out from the decision's beginning on.
/// Time never goes back. Two controllers that are told the same give the same orders.
#[derive(Debug)]
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) foreground: BTreeMap<Resource, Foreground>,
    pub(crate) tasks: BTreeMap<JobId, Task>,
    pub(crate) ledger: Ledger,
    next_job: u32,
    /// When the last decision takes effect, and until when it holds.
    pub(crate) span: Option<(Time, Time)>,
    /// Whether the next decision is for after the last one, though that is still to take effect.
    pub(crate) ahead: bool,
    /// Whether something broke, so that a decision cannot wait for the end of the cycle.
    pub(crate) urgent: bool,
    pub(crate) severed: BTreeMap<(NodeId, NodeId), Severed>,
    /// What the network turned out to carry.
    pub(crate) estimate: Estimate,
    /// Bytes that were planned for the last cycle, and at most for any.
    pub(crate) planned: (f64, f64),
    pub(crate) notices: Vec<Notice>,
    /// The epoch of the controller that took over.
    pub(crate) deposed: Option<u64>,
}

impl Controller {
    /// A controller of all nodes of a network, none of which is there yet.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(network: Network, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let nodes = vec![Node::default(); network.node_count() as usize];
        Ok(Self {
            estimate: Estimate::new(config.explore),
            config,
            network,
            nodes,
            foreground: BTreeMap::new(),
            tasks: BTreeMap::new(),
            ledger: Ledger::default(),
            next_job: 0,
            span: None,
            ahead: false,
            urgent: false,
            severed: BTreeMap::new(),
            planned: (0.0, 0.0),
            notices: Vec::new(),
            deposed: None,
        })
    }

    /// The network as it is now.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The jobs that are not complete.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.tasks.keys().copied()
    }

    /// When to decide next: a tenth of a cycle before the last decision ends, so that orders are
    /// there when it does, at once if something broke, and not at all without jobs.
    pub fn due_at(&self) -> Option<Time> {
        if self.tasks.is_empty() && self.ledger.subtasks.is_empty() {
            return None;
        }
        match self.span {
            Some((from, _)) if self.urgent => Some(from),
            Some((_, until)) => Some(until - self.config.cycle / 10),
            None => Some(Time::ZERO),
        }
    }

    /// Lets the next decision come at once: something is better than what was decided.
    pub const fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Has the cycle that was decided last end at this time, if it would end later, so that the next decision
    /// is for then. It may be made at once, even if the last is still to take effect, and rests on
    /// what is due by then.
    pub fn end_cycle_at(&mut self, at: Time) {
        if let Some((from, until)) = &mut self.span {
            debug_assert!(*from <= *until, "a cycle ends after it begins");
            *until = at.max(*from).min(*until);
            self.ahead = true;
        }
    }

    /// How many blocks a node has of a job, those included that are due when the next decision
    /// takes effect; `None` if it has no part in it.
    pub fn held(&self, job: JobId, node: NodeId) -> Option<u64> {
        let task = self.tasks.get(&job)?;
        Some(task.held(task.member(node)?))
    }

    /// How many blocks the destinations of a job lack, those not counted that are due when the next
    /// decision takes effect; `None` if there is no such job.
    pub fn lacking(&self, job: JobId) -> Option<u64> {
        let partition = self.tasks.get(&job)?.known();
        let targets = 0..partition.shape().targets.len() as u32;
        Some(targets.map(|target| partition.lacking(target)).sum())
    }

    /// How many runs of equal state the blocks of a job are in: what memory and time grow with.
    pub fn runs(&self, job: JobId) -> Option<usize> {
        Some(self.tasks.get(&job)?.known().run_count())
    }

    /// Takes a job on.
    ///
    /// # Errors
    /// Says what is wrong with the job; nothing else is affected.
    pub fn submit(&mut self, now: Time, job: Job) -> Result<Admitted, JobError> {
        if self.tasks.len() >= JOBS_MAX {
            return Err(JobError::TooMany);
        }
        let (blocks, shape) = resolve(&job, &self.network)?;
        let id = JobId(self.next_job);
        self.next_job += 1;
        let Config {
            method, speculate, ..
        } = self.config;
        let mut task = Task::new(id, job, blocks, shape, method, speculate);
        self.refresh(&mut task);
        let late = self.late(&task, now.max(task.job.start), true);
        task.late_said = late.is_some();
        let before = self.tasks.insert(id, task);
        debug_assert!(before.is_none(), "numbers are not used again");
        debug_assert!(self.tasks.len() <= JOBS_MAX, "there is room for it");
        Ok(Admitted { job: id, late })
    }

    /// Has the next job get this number, if that is more than it would be: those before it were another
    /// controller's.
    pub fn number_from(&mut self, next: JobId) {
        self.next_job = self.next_job.max(next.0);
        debug_assert!(
            self.tasks.keys().all(|job| job.0 < self.next_job),
            "numbers are not used again"
        );
    }

    /// Gives a job up. Agents are told with the next decision and keep what they have.
    ///
    /// # Errors
    /// If there is no such job.
    pub fn cancel(&mut self, job: JobId) -> Result<(), InputError> {
        let known = self.tasks.remove(&job).is_some();
        self.ledger.end(|key| key.2 == job);
        debug_assert!(
            self.ledger.subtasks.keys().all(|key| key.2 != job),
            "all are over"
        );
        known.then_some(()).ok_or(InputError::UnknownJob { job })
    }

    /// Takes note of what happened.
    ///
    /// # Errors
    /// If it cannot be; then the controller is as it was, but that a gap in an agent's reports makes
    /// it ask for everything, and that a later controller's epoch makes it fall silent.
    pub fn handle(&mut self, input: Input) -> Result<(), InputError> {
        match input {
            Input::Came { node } => self.came(node),
            Input::Left { node } => self.left(node),
            Input::DiskLost { node } => self.disk_lost(node),
            Input::Dead { node, by } => self.dead(node, by),
            Input::Severed { node, by } => self.cut(node, by),
            Input::Achieved {
                from,
                to,
                rate,
                ordered,
            } => {
                self.check_node(from)?;
                self.check_node(to)?;
                self.estimate.heard(from, to, rate, ordered);
                Ok(())
            }
            Input::Missing { node, by, blocks } => self.missing(node, by, &blocks),
            Input::Report { node, report } => self.report(node, &report),
            Input::Wants { node, blocks } => self.wants(node, &blocks),
            Input::Foreground {
                resource,
                rate,
                peak,
            } => {
                self.check_resource(resource)?;
                let resource = self.measured(resource);
                let before = self.foreground.get(&resource).copied();
                let peak = before
                    .map_or(rate, |before| before.peak.max(rate))
                    .max(peak);
                let now = Foreground { rate, peak };
                self.foreground.insert(resource, now);
                // What was ordered beside less must not last until the end of the cycle.
                self.urgent |= before != Some(now) && self.is_overdrawn(resource);
                Ok(())
            }
            Input::Network(change) => self.changed(&change),
        }
    }

    fn check_node(&self, node: NodeId) -> Result<(), InputError> {
        let count = self.network.node_count();
        match node.0 < count {
            true => Ok(()),
            false => Err(InputError::UnknownNode { node, count }),
        }
    }

    fn check_resource(&self, resource: Resource) -> Result<(), InputError> {
        let node = |node: NodeId| node.0 < self.network.node_count();
        let site =
            |site: outpour_core::network::ClusterId| site.index() < self.network.clusters().len();
        let known = match resource {
            Resource::NodeOut(id) | Resource::NodeIn(id) => node(id),
            Resource::LimitOut(id) | Resource::LimitIn(id) => node(id),
            Resource::ClusterOut(id) | Resource::ClusterIn(id) => site(id),
            Resource::Link(a, b) => site(a) && site(b),
            Resource::Local(a, b) => {
                node(a) && node(b) && self.network.cluster_of(a) == self.network.cluster_of(b)
            }
        };
        known
            .then_some(())
            .ok_or(InputError::UnknownResource { resource })
    }

    /// Whether more was ordered through a resource than bulk may use of it.
    fn is_overdrawn(&self, resource: Resource) -> bool {
        let passes = |key: &Key| {
            let path = self.network.path(key.0, key.1);
            path.resources().contains(&resource)
        };
        // What is ordered inside a site is not noted pair by pair.
        if matches!(resource, Resource::Local(..)) {
            return false;
        }
        let over = self.ledger.subtasks.iter().filter(|(key, _)| passes(key));
        let ordered: f64 = over.map(|(_, subtask)| subtask.rate).sum();
        let left = residual(&self.network, &self.config, &self.foreground, resource);
        ordered > left * (1.0 + ROUNDING)
    }

    /// Under which resource traffic is noted: local links of a site are one, as in the network.
    fn measured(&self, resource: Resource) -> Resource {
        let Resource::Local(node, _) = resource else {
            return resource;
        };
        let site = self.network.cluster_of(node);
        let mut nodes = self.network.nodes_of(site);
        match (nodes.next(), nodes.next()) {
            (Some(a), Some(b)) => Resource::Local(a, b),
            _ => resource,
        }
    }

    fn changed(&mut self, change: &Change) -> Result<(), InputError> {
        match *change {
            Change::Capacity { resource, rate } => {
                self.check_resource(resource)?;
                // Orders above the new capacity must not last until the end of the cycle.
                self.urgent |= rate < self.network.capacity(resource);
                self.estimate.forget(resource);
            }
            Change::Delay { from, to, .. }
            | Change::Queue { from, to, .. }
            | Change::Ecn { from, to, .. }
            | Change::Loss { from, to, .. } => {
                self.check_resource(Resource::Link(from, to))?;
            }
            _ => {}
        }
        self.network.apply(change);
        Ok(())
    }

    fn came(&mut self, node: NodeId) -> Result<(), InputError> {
        self.check_node(node)?;
        if self.nodes[node.index()].present {
            // It has begun anew and knows of no orders.
            self.cut_off(node);
        }
        let known = &mut self.nodes[node.index()];
        (known.present, known.fresh) = (true, true);
        (known.reported, known.behind) = (0, false);
        debug_assert!(!self.is_busy(node), "it knows of no subtasks");
        self.turned(node);
        Ok(())
    }

    fn left(&mut self, node: NodeId) -> Result<(), InputError> {
        self.check_node(node)?;
        self.nodes[node.index()].present = false;
        self.turned(node);
        self.cut_off(node);
        debug_assert!(!self.is_busy(node), "nothing goes to it or comes from it");
        Ok(())
    }

    /// Who is present has changed: groups have to follow, once, before the next decision.
    fn turned(&mut self, node: NodeId) {
        for task in self.tasks.values_mut() {
            task.stale |= task.member(node).is_some();
        }
    }

    /// Ends all transfers from and to a node, and gives up what was due of them.
    fn cut_off(&mut self, node: NodeId) {
        let ended = self.ledger.end(|key| key.0 == node || key.1 == node);
        self.urgent |= !ended.is_empty();
        self.released(&ended);
        for task in self.tasks.values_mut() {
            let Some(member) = task.member(node) else {
                continue;
            };
            task.revoke(member, |_| true);
            debug_assert!(task.dues[member as usize].is_empty(), "nothing is due");
            for other in 0..task.dues.len() as u32 {
                task.revoke(other, |due| due.from == member);
            }
        }
    }

    /// Whether a node sends or receives anything.
    fn is_busy(&self, node: NodeId) -> bool {
        let mut keys = self.ledger.subtasks.keys();
        keys.any(|key| key.0 == node || key.1 == node)
    }

    /// What ended subtasks had left is on its way no more.
    fn released(&mut self, ended: &[(Key, Vec<Range<u32>>)]) {
        for ((_, to, job), list) in ended {
            if let Some(task) = self.tasks.get_mut(job) {
                task.release(*to, list);
            }
        }
    }

    fn disk_lost(&mut self, node: NodeId) -> Result<(), InputError> {
        self.check_node(node)?;
        self.cut_off(node);
        for task in self.tasks.values_mut() {
            if let Some(member) = task.member(node) {
                task.lost_all(member);
                debug_assert_eq!(task.held(member), 0, "nothing is left");
                task.lost_said = false;
            }
        }
        Ok(())
    }

    /// A reader's word takes a server off the sources until that speaks for itself [BDS §5.3].
    fn dead(&mut self, node: NodeId, by: NodeId) -> Result<(), InputError> {
        self.check_node(by)?;
        self.left(node)?;
        self.sever(node, by);
        debug_assert!(
            !self.nodes[node.index()].present,
            "it has to come back by itself"
        );
        Ok(())
    }

    /// Two servers cannot reach each other.
    fn cut(&mut self, node: NodeId, by: NodeId) -> Result<(), InputError> {
        self.check_node(node)?;
        self.check_node(by)?;
        self.sever(node, by);
        let both = |key: &Key| (key.0, key.1) == (node, by) || (key.0, key.1) == (by, node);
        let ended = self.ledger.end(both);
        self.urgent |= !ended.is_empty();
        self.released(&ended);
        for task in self.tasks.values_mut() {
            if let (Some(a), Some(b)) = (task.member(node), task.member(by)) {
                task.revoke(a, |due| due.from == b);
                task.revoke(b, |due| due.from == a);
            }
        }
        Ok(())
    }

    fn sever(&mut self, a: NodeId, b: NodeId) {
        let most = self.config.cycle * SEVERED_CYCLES_MAX;
        for pair in [(a, b), (b, a)] {
            let room = self.severed.len() < SEVERED_MAX;
            if let Some(severed) = self.severed.get_mut(&pair) {
                let again = severed.left.is_zero();
                severed.length *= if again { 2 } else { 1 };
                severed.length = severed.length.min(most);
                severed.left = severed.length;
                debug_assert!(severed.left <= most, "every pair is tried again");
            } else if room {
                let left = self.config.cycle * SEVERED_CYCLES;
                self.severed.insert(pair, Severed { left, length: left });
            }
        }
        debug_assert!(self.severed.len() <= SEVERED_MAX + 1, "the list is bounded");
    }

    fn missing(&mut self, node: NodeId, by: NodeId, blocks: &Blocks) -> Result<(), InputError> {
        self.check_node(node)?;
        self.check_node(by)?;
        self.check_blocks(node, blocks)?;
        let Some(task) = self.tasks.get_mut(&blocks.job) else {
            return Ok(());
        };
        let member = task.member(node).expect("it has part in the job");
        let mut lied = false;
        for run in blocks.runs.iter().filter(|run| !run.is_empty()) {
            // What only was to be there by now was never claimed: it is late, not a lie.
            for claimed in task.claimed(member, run.clone()) {
                task.lose(member, claimed.clone());
                debug_assert!(task.claimed(member, claimed).is_empty(), "it is gone");
                lied = true;
            }
            task.revoke(member, |due| {
                due.run.start < run.end && run.start < due.run.end
            });
        }
        task.lost_said = false;
        if lied && !self.nodes[node.index()].liar {
            self.nodes[node.index()].liar = true;
            self.notice(Notice::Distrusted { node, by });
            self.turned(node);
            let ended = self.ledger.end(|key| key.0 == node);
            self.released(&ended);
        }
        self.urgent = true;
        Ok(())
    }

    fn wants(&mut self, node: NodeId, blocks: &Blocks) -> Result<(), InputError> {
        self.check_node(node)?;
        self.check_blocks(node, blocks)?;
        if let Some(task) = self.tasks.get_mut(&blocks.job) {
            let member = task.member(node).expect("it was checked");
            task.wants(member, &blocks.runs);
        }
        Ok(())
    }

    /// Whether blocks are of a job that is or was there, and of a member of it.
    fn check_blocks(&self, node: NodeId, blocks: &Blocks) -> Result<(), InputError> {
        let job = blocks.job;
        let Some(task) = self.tasks.get(&job) else {
            // Who reports may not know yet that the job is over.
            let over = job.0 < self.next_job;
            return over.then_some(()).ok_or(InputError::UnknownJob { job });
        };
        if task.member(node).is_none() {
            return Err(InputError::Stranger { node, job });
        }
        let known = |run: &&Range<u32>| run.start > run.end || run.end > task.blocks;
        match blocks.runs.iter().find(known) {
            Some(run) => {
                let (first, end, blocks) = (run.start, run.end, task.blocks);
                Err(InputError::UnknownBlocks {
                    node,
                    job,
                    first,
                    end,
                    blocks,
                })
            }
            None => Ok(()),
        }
    }

    /// Everything is checked before anything is heeded.
    fn report(&mut self, node: NodeId, report: &Report) -> Result<(), InputError> {
        self.check_node(node)?;
        let (epoch, ours) = (report.epoch, self.config.epoch);
        if epoch < ours {
            return Err(InputError::OldEpoch { node, epoch, ours });
        }
        if epoch > ours {
            self.deposed = Some(epoch);
            return Err(InputError::Deposed { epoch, ours });
        }
        let known = &self.nodes[node.index()];
        let (seq, last) = (report.seq, known.reported);
        // Who was only said to be dead is back as soon as it speaks; its reports went on meanwhile.
        if !known.present && last == 0 {
            return Err(InputError::Absent { node });
        }
        if seq <= last {
            return Err(InputError::Late { node, seq, last });
        }
        let all = || report.gained.iter().chain(&report.lost);
        let runs = all().map(|blocks| blocks.runs.len()).sum();
        if runs > RUNS_MAX {
            return Err(InputError::TooLong { node, runs });
        }
        all().try_for_each(|blocks| self.check_blocks(node, blocks))?;
        if seq != last + 1 && !report.whole {
            self.nodes[node.index()].behind = true;
            return Err(InputError::Gap { node, seq, last });
        }
        if !self.nodes[node.index()].present {
            self.came(node)?;
        }
        let known = &mut self.nodes[node.index()];
        debug_assert!(known.present, "who speaks is there");
        debug_assert!(known.reported < seq, "reports go forward");
        known.reported = seq;
        known.behind &= !report.whole;
        if report.whole {
            self.recounted(node, report);
        } else {
            self.heeded(node, report);
        }
        self.bound_stated(STATED_MAX);
        Ok(())
    }

    /// Heeds what waits for the next decision if it is more than `most` runs.
    pub(crate) fn bound_stated(&mut self, most: usize) {
        let runs =
            |tasks: &BTreeMap<JobId, Task>| tasks.values().map(Task::stated_runs).sum::<usize>();
        if runs(&self.tasks) > most {
            self.heed_stated();
        }
        debug_assert!(runs(&self.tasks) <= most, "memory is bounded");
    }

    fn recounted(&mut self, node: NodeId, report: &Report) {
        for task in self.tasks.values_mut() {
            let Some(member) = task.member(node) else {
                continue;
            };
            let of_job = report.gained.iter().filter(|blocks| blocks.job == task.id);
            let runs: Vec<_> = of_job
                .flat_map(|blocks| blocks.runs.iter().cloned())
                .collect();
            task.recounted(member, &runs);
            task.lost_said = false;
        }
    }

    fn heeded(&mut self, node: NodeId, report: &Report) {
        for (list, gained) in [(&report.lost, false), (&report.gained, true)] {
            for blocks in list {
                let Some(task) = self.tasks.get_mut(&blocks.job) else {
                    continue;
                };
                let member = task.member(node).expect("reports were checked");
                task.lost_said &= gained;
                for run in blocks.runs.iter().filter(|run| !run.is_empty()) {
                    debug_assert!(run.end <= task.blocks, "reports were checked");
                    match gained {
                        true => task.arrived(member, run.clone()),
                        false => task.lost(member, run.clone()),
                    }
                }
            }
        }
    }

    /// Tells a task who is there and trusted.
    pub(crate) fn refresh(&self, task: &mut Task) {
        let nodes = &self.nodes;
        task.partition.reshape(|shape| {
            for (member, node) in shape.members.iter().enumerate() {
                let node = &nodes[node.index()];
                let each = shape.target_of[member]
                    .is_some_and(|target| shape.targets[target as usize].each);
                shape.gives[member] = node.present && !node.liar;
                shape.takes[member] = node.present && (!node.liar || each);
            }
        });
        let shape = task.partition.shape();
        let mut both = shape.gives.iter().zip(&shape.takes);
        debug_assert!(
            both.all(|(gives, takes)| *takes || !gives),
            "who sends may receive"
        );
        task.stale = false;
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
        debug_assert!(self.notices.len() <= NOTICES_MAX, "the queue is bounded");
    }

    /// How long a cycle is.
    pub(crate) fn cycle(&self) -> Duration {
        self.config.cycle
    }
}
