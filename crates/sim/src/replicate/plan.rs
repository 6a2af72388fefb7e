//! What jobs take at least, and what the controller decides first.

use std::time::Duration;

use outpour_controller::{Change, Controller, Input, JobId, cannot_meet};
use outpour_core::Time;
use serde::Serialize;

use super::report::{JobLimit, limits};
use super::{ReplicateConfig, ReplicateError, admit};

/// What one server is told to send another in the first cycle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedSubtask {
    /// The name of the sender.
    pub from: String,
    /// The name of the receiver.
    pub to: String,
    /// The job.
    pub job: String,
    /// How fast.
    pub rate_bytes_per_s: f64,
    /// How many blocks.
    pub blocks: u64,
    /// Which: first and one after the last of each run.
    pub runs: Vec<(u32, u32)>,
}

/// What the servers of one site send those of another in the first cycle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedFlow {
    /// The name of the sending site.
    pub from: String,
    /// The name of the receiving site.
    pub to: String,
    /// How fast, all together.
    pub rate_bytes_per_s: f64,
    /// By how many servers' orders.
    pub subtasks: u64,
}

/// Least times, and the first decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicatePlan {
    /// A bound that no method beats, for all jobs.
    pub limit_s: f64,
    /// The same for each job, in the order of the file.
    pub jobs: Vec<JobLimit>,
    /// How long the decision holds.
    pub cycle_s: f64,
    /// How long the controller took for it on this machine, in seconds.
    pub decision_s: f64,
    /// What is to get through in the first cycle.
    pub planned_bytes: f64,
    /// Between sites, and inside them.
    pub flows: Vec<PlannedFlow>,
    /// By senders.
    pub subtasks: Vec<PlannedSubtask>,
    /// What people should know.
    pub notices: Vec<String>,
}

/// Works out least times, and has the controller decide on the first cycle: for the jobs that begin
/// with it. `clock` says how long the process has run.
///
/// # Errors
/// If the controller's configuration or a job is refused.
pub fn plan(
    config: &ReplicateConfig,
    clock: &mut dyn FnMut() -> Duration,
) -> Result<ReplicatePlan, ReplicateError> {
    let mut controller = Controller::new(config.network.clone(), config.controller.clone())?;
    for node in config.network.nodes() {
        controller.handle(Input::Came { node })?;
    }
    let mut notices = Vec::new();
    let mut names: Vec<(JobId, &str)> = Vec::new();
    for named in &config.jobs {
        let admitted = admit(&mut controller, Time::ZERO, named)?;
        if let Some(earliest) = admitted.late {
            notices.push(cannot_meet(&named.name, earliest));
        }
        names.push((admitted.job, &named.name));
    }
    let begun = clock();
    let decision = controller.decide(Time::ZERO);
    let decision_s = clock().saturating_sub(begun).as_secs_f64();
    let network = &config.network;
    let mut subtasks = Vec::new();
    let mut flows: Vec<PlannedFlow> = Vec::new();
    for order in &decision.orders {
        for change in &order.changes {
            let Change::Send {
                job, to, rate, add, ..
            } = change
            else {
                continue;
            };
            let site = |node| {
                network.clusters()[network.cluster_of(node).index()]
                    .name
                    .clone()
            };
            let (here, there) = (site(order.to), site(*to));
            let same = |flow: &&mut PlannedFlow| flow.from == here && flow.to == there;
            match flows.iter_mut().find(same) {
                Some(flow) => {
                    flow.rate_bytes_per_s += rate.bytes_per_s();
                    flow.subtasks += 1;
                }
                None => flows.push(PlannedFlow {
                    from: here,
                    to: there,
                    rate_bytes_per_s: rate.bytes_per_s(),
                    subtasks: 1,
                }),
            }
            let name = names.iter().find(|(id, _)| id == job);
            subtasks.push(PlannedSubtask {
                from: network.name(order.to).to_owned(),
                to: network.name(*to).to_owned(),
                job: name.map_or_else(String::new, |(_, name)| (*name).to_owned()),
                rate_bytes_per_s: rate.bytes_per_s(),
                blocks: add.iter().map(|run| u64::from(run.end - run.start)).sum(),
                runs: add.iter().map(|run| (run.start, run.end)).collect(),
            });
        }
    }
    let (limit_s, jobs) = limits(config);
    Ok(ReplicatePlan {
        limit_s,
        jobs,
        cycle_s: config.controller.cycle.as_secs_f64(),
        decision_s,
        planned_bytes: decision.planned_bytes,
        flows,
        subtasks,
        notices,
    })
}
