//! Replication between sites: under a central controller, cycle by cycle, and by systems without
//! one, for comparison: see [`System`].
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
mod day;
mod fallback;
mod overlay;
mod plan;
mod report;
mod scripted;
mod servers;
mod shard;
mod system;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outpour_controller::{
    Admitted, Config, ConfigError, Controller, Decision, Input, InputError, Job, JobError, JobId,
    NamedJob, Notice, cannot_meet,
};
use outpour_core::network::{ClusterId, Network};
use outpour_core::script::{Script, ScriptError};
use outpour_core::{NodeId, Time};

pub use plan::{PlannedFlow, PlannedSubtask, ReplicatePlan, plan};
pub use report::{
    ControlTime, DecisionTimes, JobLimit, JobReport, ReplicateReport, ServerReport, SiteReport,
};
pub use shard::ShardError;
pub use system::System;
pub use watch::{LinkReport, LinkUse, Moment};

use crate::dice::Dice;
use day::Day;
use report::{Decided, Outcome};
use servers::Servers;
use watch::Watch;

/// Into how many steps a cycle is divided: what arrives in one of them can be passed on in the next.
const STEPS: u32 = 8;
/// For how many cycles nothing may move before the simulation gives up.
const IDLE_CYCLES_MAX: u32 = 100;
/// The same from one thing that happens to the next.
const IDLE_CYCLES_SCRIPTED_MAX: u32 = 100_000;
/// What servers achieve is measured over such a part of a cycle at least.
const MEASURED: f64 = 0.25;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct ReplicateConfig {
    /// Sites, servers and links.
    pub network: Network,
    /// What is to be moved.
    pub jobs: Vec<NamedJob>,
    /// How the controller decides, and which share of links bulk may use under any system.
    pub controller: Config,
    /// What moves it.
    pub system: System,
    /// The seed of what servers choose at random.
    pub seed: u64,
    /// What happens meanwhile: see [`Script::timeline_of_sites`].
    pub script: Option<Script>,
    /// Of how many equal shards this is one: see [`ReplicateConfig::shard`].
    pub shards: u32,
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
    /// A job that a system does not move.
    #[error("{name}: `{system}` does not move it: {why}")]
    System {
        /// Its name.
        name: String,
        /// The system.
        system: System,
        /// Why.
        why: &'static str,
    },
    /// Nothing moves any more.
    #[error("{name} is stuck after {seconds:.1} s: nothing moves any more")]
    Stuck {
        /// The name of the first job that is not complete.
        name: String,
        /// When.
        seconds: f64,
    },
    /// A script that does not fit the network.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A script that loses servers or the controller, for a system that does not simulate it.
    #[error("{file}:{line}: `{system}` has no servers or controller to lose, only `central` has")]
    Faults {
        /// The name of the script.
        file: String,
        /// Which line.
        line: usize,
        /// The system.
        system: System,
    },
    /// The controller does not understand the servers.
    #[error("the controller refuses what a server says: {0}")]
    Refused(#[from] InputError),
}

/// Simulates jobs until all are complete. `clock` says how long the process has
/// run: only the times of decisions are taken from it, and nothing depends on them.
///
/// # Errors
/// If the controller's configuration or a job is refused, or nothing moves any more.
pub fn replicate(
    config: ReplicateConfig,
    clock: &mut dyn FnMut() -> Duration,
) -> Result<ReplicateReport, ReplicateError> {
    if config.system != System::Central {
        let decided = Decided {
            notices: check(&config)?,
            ..Decided::default()
        };
        let (outcome, most) = overlay::run(&config)?;
        let config = ReplicateConfig {
            network: most,
            ..config
        };
        return Ok(report::report(&config, outcome, decided));
    }
    let mut run = Run::new(config)?;
    while run.cycle(clock)? {}
    Ok(run.report())
}

/// Takes out the jobs that are refused, and says why each is: the others go on without them.
///
/// # Errors
/// If no job is left: why the first is refused. If the controller's configuration is refused.
pub fn refuse(config: &mut ReplicateConfig) -> Result<Vec<ReplicateError>, ReplicateError> {
    let mut refused = Vec::new();
    for named in std::mem::take(&mut config.jobs) {
        let mut controller = Controller::new(config.network.clone(), config.controller.clone())?;
        let admitted = admit(&mut controller, named.job.start, &named);
        let moved = admitted.and_then(|_| match config.system {
            System::Central => Ok(()),
            system => overlay::check(&named, system),
        });
        match moved {
            Ok(()) => config.jobs.push(named),
            Err(why) => refused.push(why),
        }
    }
    match (config.jobs.is_empty(), refused.is_empty()) {
        (true, false) => Err(refused.swap_remove(0)),
        _ => Ok(refused),
    }
}

/// Refuses what the controller would refuse, whatever moves it; what people should know of the jobs.
fn check(config: &ReplicateConfig) -> Result<Vec<String>, ReplicateError> {
    if let Some(script) = &config.script
        && let Some(line) = script.loses()
    {
        return Err(ReplicateError::Faults {
            file: script.file().to_owned(),
            line,
            system: config.system,
        });
    }
    let mut notices = Vec::new();
    for named in &config.jobs {
        let mut controller = Controller::new(config.network.clone(), config.controller.clone())?;
        let admitted = admit(&mut controller, named.job.start, named)?;
        if let Some(earliest) = admitted.late {
            notices.push(cannot_meet(&named.name, earliest));
        }
    }
    Ok(notices)
}

fn admit(
    controller: &mut Controller,
    now: Time,
    NamedJob { name, job }: &NamedJob,
) -> Result<Admitted, ReplicateError> {
    let admitted = controller.submit(now, job.clone());
    admitted.map_err(|why| ReplicateError::Job {
        name: name.clone(),
        why,
    })
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
    /// Jobs that are not complete. Of the others only results are kept.
    submitted: BTreeMap<JobId, Submitted>,
    finishes: BTreeMap<usize, Time>,
    /// When each site had the last that it was to get so far.
    sites: BTreeMap<ClusterId, Time>,
    asks: Vec<NodeId>,
    idle: u32,
    control: Vec<ControlTime>,
    notices: Vec<String>,
    day: Day,
    watch: Watch,
    /// Whether there is no controller.
    away: bool,
    /// What the controller is told at the end of the cycle, in order.
    news: Vec<Input>,
    dice: Dice,
}

impl Run {
    fn new(config: ReplicateConfig) -> Result<Self, ReplicateError> {
        let (day, network) = Day::new(&config)?;
        let mut controller = Controller::new(network.clone(), config.controller.clone())?;
        for node in config.network.nodes() {
            controller.handle(Input::Came { node })?;
        }
        let mut waiting: Vec<usize> = (0..config.jobs.len()).collect();
        waiting.sort_by_key(|place| config.jobs[*place].job.start);
        let mut run = Self {
            controller,
            servers: Servers::new(network, &config.controller),
            now: Time::ZERO,
            waiting: waiting.into(),
            submitted: BTreeMap::new(),
            finishes: BTreeMap::new(),
            sites: BTreeMap::new(),
            asks: Vec::new(),
            idle: 0,
            control: Vec::new(),
            notices: Vec::new(),
            day,
            watch: Watch::default(),
            away: false,
            news: Vec::new(),
            dice: Dice::new(config.seed),
            config,
        };
        run.submit()?;
        run.happen()?;
        run.measure()?;
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
            let named = &self.config.jobs[place];
            let admitted = admit(&mut self.controller, self.now, named)?;
            let NamedJob { name, job } = named.clone();
            if let Some(earliest) = admitted.late {
                let job = admitted.job;
                self.say(Notice::Late { job, earliest }, name);
            }
            self.servers.add(admitted.job, &job);
            self.submitted
                .insert(admitted.job, Submitted { place, job });
        }
        Ok(())
    }

    /// One cycle; false if there is nothing more to do.
    fn cycle(&mut self, clock: &mut dyn FnMut() -> Duration) -> Result<bool, ReplicateError> {
        if self.away {
            return self.alone();
        }
        let epoch = self.controller.config().epoch;
        let Some(due) = self.controller.due_at() else {
            let Some(place) = self.waiting.front() else {
                return Ok(false);
            };
            self.now = self.now.max(self.config.jobs[*place].job.start);
            self.submit()?;
            self.happen()?;
            return Ok(true);
        };
        let mut moved = self.advance(due)?;
        if self.is_cut_off(epoch) {
            return Ok(true);
        }
        self.tell()?;
        let reports = self.servers.reports(&std::mem::take(&mut self.asks));
        let begun = clock();
        for report in reports {
            self.controller.handle(report)?;
        }
        let heeded = clock().saturating_sub(begun);
        self.submit()?;
        let begun = clock();
        let decision = self.controller.decide(self.now);
        let decided = clock().saturating_sub(begun);
        self.control.push(ControlTime {
            heeding_s: heeded.as_secs_f64(),
            deciding_s: decided.as_secs_f64(),
        });
        moved |= self.advance(decision.from)?;
        if self.is_cut_off(epoch) {
            return Ok(true);
        }
        self.carry_out(decision);
        self.measure()?;
        self.go_on(moved)
    }

    /// Goes on unless nothing moves any more.
    fn go_on(&mut self, moved: bool) -> Result<bool, ReplicateError> {
        self.idle = if moved { 0 } else { self.idle + 1 };
        let begins = self.waiting.is_empty()
            && self
                .submitted
                .values()
                .all(|submitted| submitted.job.start <= self.now);
        let most = match self.day.next_at() {
            Some(_) => IDLE_CYCLES_SCRIPTED_MAX,
            None => IDLE_CYCLES_MAX,
        };
        if self.idle > most && (begins || self.away) {
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

    /// Lets servers send on until `until`, in steps; whether anything arrived. Ends early when the
    /// controller is lost or comes back.
    fn advance(&mut self, until: Time) -> Result<bool, ReplicateError> {
        let step = self.config.controller.cycle / STEPS;
        let before = (self.away, self.controller.config().epoch);
        let mut moved = false;
        while self.now < until && before == (self.away, self.controller.config().epoch) {
            if self.away {
                let (dice, seconds) = (&mut self.dice, step.as_secs_f64());
                self.servers.pull(dice, self.now, seconds);
            }
            let next = until.min(self.now + step);
            let next = self.day.next_at().map_or(next, |at| next.min(at));
            let blocks = self.servers.advance(self.now, next);
            moved |= blocks > 0;
            self.note(self.now, next, blocks);
            self.now = next;
            self.happen()?;
        }
        Ok(moved)
    }

    fn carry_out(&mut self, decision: Decision) {
        self.servers.obey(&decision.orders);
        self.watch.cycle += 1;
        self.asks = decision.asks;
        for notice in decision.notices {
            let job = match &notice {
                Notice::Complete { job } => {
                    self.complete(*job);
                    continue;
                }
                Notice::Late { job, .. } | Notice::Lost { job, .. } => self.submitted.get(job),
                _ => None,
            };
            let name = job.map(|it| self.config.jobs[it.place].name.clone());
            self.say(notice, name.unwrap_or_default());
        }
    }

    /// Keeps what is to be reported of a job, and forgets the rest.
    fn complete(&mut self, job: JobId) {
        if let Some(submitted) = self.submitted.remove(&job) {
            let finish = self.servers.finish(job);
            self.finishes.insert(submitted.place, finish);
        }
        for (site, finish) in self.servers.finishes_at(job) {
            let last = self.sites.entry(site).or_insert(finish);
            *last = finish.max(*last);
        }
        self.servers.forget(job);
    }

    fn say(&mut self, notice: Notice, name: String) {
        let said = match notice {
            Notice::Late { earliest, .. } => cannot_meet(&name, earliest),
            Notice::Lost { blocks, .. } => {
                format!("{name} waits: no server has {blocks} of its blocks")
            }
            other => other.to_string(),
        };
        self.notices.push(said);
    }

    fn report(mut self) -> ReplicateReport {
        // While there was no controller, nobody noticed.
        let unnoticed: Vec<JobId> = self.submitted.keys().copied().collect();
        unnoticed.into_iter().for_each(|job| self.complete(job));
        let outcome = Outcome {
            finishes: self.finishes,
            sites: self.sites.into_iter().collect(),
            received: self.servers.received(),
            servers: self.servers.each(),
            links: self.watch.report(&self.config.network),
            moments: self.watch.moments,
        };
        let decided = Decided {
            control: self.control,
            notices: self.notices,
        };
        let config = ReplicateConfig {
            network: self.day.into_most(),
            ..self.config
        };
        report::report(&config, outcome, decided)
    }
}

#[cfg(test)]
mod tests;
