//! Replication under a central controller, cycle by cycle.
//!
//! The controller is the one that real agents are to obey; only its servers are simulated. A server
//! carries its orders out as they stand: it sends the blocks of each subtask in order, at the
//! ordered rate, and passes over those that it has not yet. Where orders together are above what the
//! network carries at the moment, all that share the overdrawn resource are slowed down in
//! proportion. Blocks take the time of their bytes and no more: propagation delays, losses and
//! the start of connections are not simulated, and reports and orders take no time.
//!
//! State is kept in runs of blocks, so it grows with how scattered they are and not with how many
//! there are.

mod bound;
mod servers;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outpour_controller::{
    Config, ConfigError, Controller, Decision, Destinations, Input, InputError, Job, JobError,
    JobId, NamedJob, Notice,
};
use outpour_core::network::{ClusterId, Network};
use outpour_core::{NodeId, Time};
use serde::Serialize;

use servers::Servers;

/// Into how many steps a cycle is divided: what arrives in one of them can be passed on in the next.
const STEPS: u32 = 8;
/// For how many cycles nothing may move before the simulation gives up.
const IDLE_CYCLES_MAX: u32 = 100;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct ReplicateConfig {
    /// Sites, servers and links.
    pub network: Network,
    /// What is to be moved.
    pub jobs: Vec<NamedJob>,
    /// How the controller decides.
    pub controller: Config,
}

/// One job in a [`ReplicateReport`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// When it could begin, in seconds after the simulation did.
    pub start_s: f64,
    /// When the last destination had everything.
    pub finish_s: f64,
    /// A bound that no method beats, for this job alone.
    pub limit_s: f64,
    /// Whether its deadline was met, if it had one.
    pub in_time: Option<bool>,
}

/// One site in a [`ReplicateReport`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteReport {
    /// Its name.
    pub site: String,
    /// When the last of its servers had the last that it was to get.
    pub finish_s: f64,
    /// What its servers received.
    pub received_bytes: u64,
    /// What of it came from other sites.
    pub wan_bytes: u64,
}

/// Of the times that decisions took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DecisionTimes {
    /// In the middle.
    pub median: f64,
    /// The longest.
    pub max: f64,
}

/// What a simulation found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicateReport {
    /// When all jobs were complete, in seconds.
    pub finish_s: f64,
    /// A bound that no method beats.
    pub limit_s: f64,
    /// `finish_s` over `limit_s`.
    pub ratio: f64,
    /// How many cycles were decided.
    pub cycles: u64,
    /// How long the controller took for one of them on this machine, in seconds.
    pub decision_s: DecisionTimes,
    /// In the order of the file.
    pub jobs: Vec<JobReport>,
    /// Sites that were to get something.
    pub sites: Vec<SiteReport>,
    /// What people should know, in order.
    pub notices: Vec<String>,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicateError {
    /// The controller cannot run like this.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A job that is refused.
    #[error("{name}: {why}")]
    Job {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: JobError,
    },
    /// Nothing moves any more.
    #[error("{name} is stuck after {seconds:.1} s: nothing moved for {IDLE_CYCLES_MAX} cycles")]
    Stuck {
        /// The name of the first job that is not complete.
        name: String,
        /// When.
        seconds: f64,
    },
    /// The controller does not understand the servers.
    #[error("the controller refuses what a server says: {0}")]
    Refused(#[from] InputError),
}

/// Simulates jobs under the controller until all are complete. `clock` says how long the process has
/// run: only the times of decisions are taken from it, and nothing depends on them.
///
/// # Errors
/// If the controller's configuration or a job is refused, or nothing moves any more.
pub fn replicate(
    config: ReplicateConfig,
    clock: &mut dyn FnMut() -> Duration,
) -> Result<ReplicateReport, ReplicateError> {
    let mut run = Run::new(config)?;
    while run.cycle(clock)? {}
    Ok(run.report())
}

/// A job that was submitted.
struct Submitted {
    /// Its place in the file.
    place: usize,
    job: Job,
}

struct Run {
    config: ReplicateConfig,
    controller: Controller,
    servers: Servers,
    now: Time,
    /// Places of jobs that are not submitted yet, in the order of their starts.
    waiting: VecDeque<usize>,
    submitted: BTreeMap<JobId, Submitted>,
    asks: Vec<NodeId>,
    cycles: u64,
    idle: u32,
    decision_s: Vec<f64>,
    notices: Vec<String>,
}

impl Run {
    fn new(config: ReplicateConfig) -> Result<Self, ReplicateError> {
        let mut controller = Controller::new(config.network.clone(), config.controller.clone())?;
        for node in config.network.nodes() {
            controller.handle(Input::Came { node })?;
        }
        let mut waiting: Vec<usize> = (0..config.jobs.len()).collect();
        waiting.sort_by_key(|place| config.jobs[*place].job.start);
        let mut run = Self {
            controller,
            servers: Servers::new(config.network.clone(), config.controller.epoch),
            now: Time::ZERO,
            waiting: waiting.into(),
            submitted: BTreeMap::new(),
            asks: Vec::new(),
            cycles: 0,
            idle: 0,
            decision_s: Vec::new(),
            notices: Vec::new(),
            config,
        };
        run.submit()?;
        Ok(run)
    }

    /// Submits the jobs that begin within a cycle.
    fn submit(&mut self) -> Result<(), ReplicateError> {
        let soon = self.now + 2 * self.config.controller.cycle;
        while let Some(place) = self.waiting.front().copied() {
            if self.config.jobs[place].job.start > soon {
                break;
            }
            self.waiting.pop_front();
            let NamedJob { name, job } = self.config.jobs[place].clone();
            let admitted = self.controller.submit(self.now, job.clone());
            let admitted = admitted.map_err(|why| {
                let name = name.clone();
                ReplicateError::Job { name, why }
            })?;
            if let Some(earliest) = admitted.late {
                let job = admitted.job;
                self.note(Notice::Late { job, earliest }, name);
            }
            self.servers.add(admitted.job, &job);
            self.submitted
                .insert(admitted.job, Submitted { place, job });
        }
        Ok(())
    }

    /// One cycle; false if there is nothing more to do.
    fn cycle(&mut self, clock: &mut dyn FnMut() -> Duration) -> Result<bool, ReplicateError> {
        let Some(due) = self.controller.due_at() else {
            let Some(place) = self.waiting.front() else {
                return Ok(false);
            };
            self.now = self.now.max(self.config.jobs[*place].job.start);
            self.submit()?;
            return Ok(true);
        };
        let mut moved = self.advance(due);
        for report in self.servers.reports(&std::mem::take(&mut self.asks)) {
            self.controller.handle(report)?;
        }
        self.submit()?;
        let begun = clock();
        let decision = self.controller.decide(self.now);
        let took = clock().saturating_sub(begun);
        self.decision_s.push(took.as_secs_f64());
        self.cycles += 1;
        moved |= self.advance(decision.from);
        self.carry_out(decision);
        self.idle = if moved { 0 } else { self.idle + 1 };
        let begins = self.waiting.is_empty()
            && self
                .submitted
                .values()
                .all(|submitted| submitted.job.start <= self.now);
        if self.idle > IDLE_CYCLES_MAX && begins {
            return Err(self.stuck());
        }
        Ok(true)
    }

    fn stuck(&self) -> ReplicateError {
        let first = self.controller.jobs().next();
        let first = first.and_then(|job| self.submitted.get(&job));
        let name = first.map(|it| self.config.jobs[it.place].name.clone());
        ReplicateError::Stuck {
            name: name.unwrap_or_default(),
            seconds: self.now.as_secs_f64(),
        }
    }

    /// Lets servers send on until `until`, in steps; whether anything arrived.
    fn advance(&mut self, until: Time) -> bool {
        let step = self.config.controller.cycle / STEPS;
        let mut moved = false;
        while self.now < until {
            let next = until.min(self.now + step);
            moved |= self.servers.advance(self.now, next);
            self.now = next;
        }
        moved
    }

    fn carry_out(&mut self, decision: Decision) {
        self.servers.obey(&decision.orders);
        self.asks = decision.asks;
        for notice in decision.notices {
            let job = match &notice {
                Notice::Complete { .. } => continue,
                Notice::Late { job, .. } | Notice::Lost { job, .. } => self.submitted.get(job),
                _ => None,
            };
            let name = job.map(|it| self.config.jobs[it.place].name.clone());
            self.note(notice, name.unwrap_or_default());
        }
    }

    fn note(&mut self, notice: Notice, name: String) {
        let said = match notice {
            Notice::Late { earliest, .. } => {
                format!("{name} cannot meet its deadline: it ends at {earliest} at the earliest")
            }
            Notice::Lost { blocks, .. } => {
                format!("{name} waits: no server has {blocks} of its blocks")
            }
            other => other.to_string(),
        };
        self.notices.push(said);
    }

    fn report(mut self) -> ReplicateReport {
        let mut jobs: Vec<Option<JobReport>> = vec![None; self.config.jobs.len()];
        let mut limit_s: f64 = 0.0;
        let mut finish_s: f64 = 0.0;
        for (id, Submitted { place, job }) in &self.submitted {
            let finish = self.servers.finish(*id);
            let start_s = job.start.as_secs_f64();
            let alone = bound::alone(&self.config.network, self.config.controller.separation, job);
            limit_s = limit_s.max(start_s + alone);
            finish_s = finish_s.max(finish.as_secs_f64());
            jobs[*place] = Some(JobReport {
                name: self.config.jobs[*place].name.clone(),
                start_s,
                finish_s: finish.as_secs_f64(),
                limit_s: alone,
                in_time: job.deadline.map(|deadline| finish <= deadline),
            });
        }
        let all = self.submitted.values().map(|submitted| &submitted.job);
        let separation = self.config.controller.separation;
        limit_s = limit_s.max(bound::together(&self.config.network, separation, all));
        self.decision_s.sort_by(f64::total_cmp);
        let middle = self.decision_s.len() / 2;
        ReplicateReport {
            finish_s,
            limit_s,
            ratio: if limit_s > 0.0 {
                finish_s / limit_s
            } else {
                1.0
            },
            cycles: self.cycles,
            decision_s: DecisionTimes {
                median: self.decision_s.get(middle).copied().unwrap_or_default(),
                max: self.decision_s.last().copied().unwrap_or_default(),
            },
            jobs: jobs.into_iter().flatten().collect(),
            sites: self.sites(),
            notices: self.notices,
        }
    }

    fn sites(&self) -> Vec<SiteReport> {
        let network = &self.config.network;
        let mut wanting: BTreeMap<ClusterId, Time> = BTreeMap::new();
        for (id, submitted) in &self.submitted {
            let sites: Vec<ClusterId> = match &submitted.job.destinations {
                Destinations::Sites(sites) => sites.clone(),
                Destinations::Nodes(nodes) => {
                    nodes.iter().map(|node| network.cluster_of(*node)).collect()
                }
            };
            for site in sites {
                let finish = self.servers.finish_at(*id, site);
                let known = wanting.entry(site).or_insert(Time::ZERO);
                *known = finish.max(*known);
            }
        }
        let site = |(site, finish): (ClusterId, Time)| {
            let received = self.servers.received(site);
            SiteReport {
                site: network.clusters()[site.index()].name.clone(),
                finish_s: finish.as_secs_f64(),
                received_bytes: received.all,
                wan_bytes: received.wan,
            }
        };
        wanting.into_iter().map(site).collect()
    }
}

#[cfg(test)]
mod tests;
