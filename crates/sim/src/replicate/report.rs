//! What a simulation of replication found.

use std::collections::BTreeMap;

use outpour_controller::NamedJob;
use outpour_core::Time;
use outpour_core::network::ClusterId;
use serde::Serialize;

use super::servers::Received;
use super::watch::{LinkReport, Moment};
use super::{ReplicateConfig, System, bound};

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
    /// The time from its start to its finish over `limit_s`.
    pub ratio: f64,
    /// Whether its deadline was met, if it had one.
    pub in_time: Option<bool>,
}

/// What one job takes at least.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobLimit {
    /// Its name.
    pub name: String,
    /// When it can begin, in seconds.
    pub start_s: f64,
    /// A bound that no method beats, for this job alone.
    pub limit_s: f64,
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

/// How long a controller had to do with one cycle on this machine, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControlTime {
    /// With taking note of what servers reported.
    pub heeding_s: f64,
    /// With the decision.
    pub deciding_s: f64,
}

/// What a simulation found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicateReport {
    /// What moved it.
    pub system: System,
    /// Of how many equal shards one was simulated: bytes are those of one.
    pub shards: u32,
    /// When all jobs were complete, in seconds.
    pub finish_s: f64,
    /// A bound that no method beats.
    pub limit_s: f64,
    /// `finish_s` over `limit_s`.
    pub ratio: f64,
    /// How many cycles were decided; none without a controller.
    pub cycles: u64,
    /// How long the controller took for one of them on this machine, in seconds.
    pub decision_s: DecisionTimes,
    /// In the order of the file.
    pub jobs: Vec<JobReport>,
    /// Sites that were to get something.
    pub sites: Vec<SiteReport>,
    /// Links that had latency-sensitive traffic beside a controller.
    pub links: Vec<LinkReport>,
    /// What people should know, in order.
    pub notices: Vec<String>,
    /// What happened over time, if there was a script and a controller.
    #[serde(skip)]
    pub moments: Vec<Moment>,
    /// Of each cycle that was decided, in order.
    #[serde(skip)]
    pub control: Vec<ControlTime>,
    /// Servers that got something, in no particular order.
    #[serde(skip)]
    pub servers: Vec<ServerReport>,
}

/// One server in a [`ReplicateReport`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerReport {
    /// When the last of what it was to get arrived.
    pub finish_s: f64,
    /// Which share of it came from a source.
    pub origin: f64,
}

/// What became of the jobs.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// When all of a job had arrived, by its place in the file.
    pub(super) finishes: BTreeMap<usize, Time>,
    /// When the sites that were to get something had it.
    pub(super) sites: Vec<(ClusterId, Time)>,
    pub(super) received: BTreeMap<ClusterId, Received>,
    pub(super) servers: Vec<ServerReport>,
    pub(super) links: Vec<LinkReport>,
    pub(super) moments: Vec<Moment>,
}

/// What a controller did.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// How long it took for each cycle.
    pub(super) control: Vec<ControlTime>,
    pub(super) notices: Vec<String>,
}

/// Compares what became of the jobs with what the network allows.
pub(super) fn report(
    config: &ReplicateConfig,
    outcome: Outcome,
    decided: Decided,
) -> ReplicateReport {
    let (limit_s, each) = limits(config);
    let mut finish_s: f64 = 0.0;
    let mut jobs = Vec::with_capacity(config.jobs.len());
    for (place, finish) in &outcome.finishes {
        let limit = &each[*place];
        let deadline = config.jobs[*place].job.deadline;
        finish_s = finish_s.max(finish.as_secs_f64());
        jobs.push(JobReport {
            name: limit.name.clone(),
            start_s: limit.start_s,
            finish_s: finish.as_secs_f64(),
            limit_s: limit.limit_s,
            ratio: over(finish.as_secs_f64() - limit.start_s, limit.limit_s),
            in_time: deadline.map(|deadline| *finish <= deadline),
        });
    }
    ReplicateReport {
        system: config.system,
        shards: config.shards,
        finish_s,
        limit_s,
        ratio: over(finish_s, limit_s),
        cycles: decided.control.len() as u64,
        decision_s: DecisionTimes::of(&decided.control),
        jobs,
        sites: sites(config, &outcome),
        links: outcome.links,
        notices: decided.notices,
        moments: outcome.moments,
        control: decided.control,
        servers: outcome.servers,
    }
}

/// A time over the least; 1 if there was nothing to move.
fn over(seconds: f64, limit_s: f64) -> f64 {
    match limit_s > 0.0 {
        true => seconds / limit_s,
        false => 1.0,
    }
}

/// What all jobs together, and each of them alone, take at least.
pub(super) fn limits(config: &ReplicateConfig) -> (f64, Vec<JobLimit>) {
    let separation = config.controller.separation;
    let limit = |named: &NamedJob| JobLimit {
        name: named.name.clone(),
        start_s: named.job.start.as_secs_f64(),
        limit_s: bound::alone(&config.network, separation, &named.job),
    };
    let each: Vec<JobLimit> = config.jobs.iter().map(limit).collect();
    let all = config.jobs.iter().map(|named| &named.job);
    let together = bound::together(&config.network, separation, all);
    let ends = each.iter().map(|limit| limit.start_s + limit.limit_s);
    (ends.fold(together, f64::max), each)
}

fn sites(config: &ReplicateConfig, outcome: &Outcome) -> Vec<SiteReport> {
    let mut wanting: BTreeMap<ClusterId, Time> = BTreeMap::new();
    for (site, finish) in &outcome.sites {
        let known = wanting.entry(*site).or_insert(Time::ZERO);
        *known = (*finish).max(*known);
    }
    let site = |(site, finish): (ClusterId, Time)| {
        let received = outcome.received.get(&site).copied().unwrap_or_default();
        SiteReport {
            site: config.network.clusters()[site.index()].name.clone(),
            finish_s: finish.as_secs_f64(),
            received_bytes: received.all,
            wan_bytes: received.wan,
        }
    };
    wanting.into_iter().map(site).collect()
}

impl DecisionTimes {
    fn of(control: &[ControlTime]) -> Self {
        let mut seconds: Vec<f64> = control.iter().map(|cycle| cycle.deciding_s).collect();
        seconds.sort_by(f64::total_cmp);
        Self {
            median: seconds.get(seconds.len() / 2).copied().unwrap_or_default(),
            max: seconds.last().copied().unwrap_or_default(),
        }
    }
}
