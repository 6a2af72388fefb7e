//! `outpour sim replicate` and `outpour plan replicate`: jobs between sites.

use std::time::Instant;

use outpour_controller::{Config, TEXT_BYTES_MAX, read_jobs};
use outpour_core::text::escape;
use outpour_core::{Bytes, Rate, Separation};
use outpour_sim::replicate::{
    self, ReplicateConfig, ReplicateError, ReplicatePlan, ReplicateReport, ShardError, System,
};

use serde::Serialize;

use super::sim;
use crate::args::Output;
use crate::args::plan::PlanReplicateArgs;
use crate::args::replicate::{Replication, SimReplicateArgs};
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// Simulates the jobs of a file.
///
/// # Errors
/// If a file cannot be read, a value is out of range, a job is refused, or the jobs do not end.
pub(super) fn run(args: &SimReplicateArgs) -> Result<(), Failure> {
    let (file, mut config, mut refused) = config(&args.replication)?;
    config.system = args.system;
    config.seed = args.seed;
    config.script = args.script.as_deref().map(sim::script).transpose()?;
    refuse(&file, &mut config, &mut refused)?;
    let shard = config.shard(args.shards);
    let config = shard.map_err(|error| no_shard(&file, &error))?;
    let begun = Instant::now();
    let simulated = replicate::replicate(config, &mut || begun.elapsed());
    let report = simulated.map_err(|error| failure(&file, &error))?;
    show(&args.output, &report, for_people, &refused)
}

/// Prints what the jobs of a file take at least, and the first decision.
///
/// # Errors
/// If a file cannot be read, a value is out of range, or a job is refused.
pub(super) fn plan(args: &PlanReplicateArgs) -> Result<(), Failure> {
    let (file, mut config, mut refused) = config(&args.replication)?;
    refuse(&file, &mut config, &mut refused)?;
    let begun = Instant::now();
    let planned = replicate::plan(&config, &mut || begun.elapsed());
    let plan = planned.map_err(|error| failure(&file, &error))?;
    show(&args.output, &plan, plan_for_people, &refused)
}

/// A document, and which jobs are not in it.
#[derive(Serialize)]
struct Without<'a, T> {
    #[serde(flatten)]
    document: &'a T,
    /// What is wrong with jobs that were refused.
    refused: &'a [String],
}

/// Prints a result; a failure if jobs were refused, of which people have read already.
fn show<T: Serialize>(
    output: &Output,
    document: &T,
    for_people: fn(&T) -> String,
    refused: &[String],
) -> Result<(), Failure> {
    if output.json {
        out::json(&Without { document, refused });
    } else if !output.quiet {
        out::result(for_people(document));
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(Failure::Reported),
    }
}

/// Takes out jobs that cannot be moved, and says of all that are refused what is wrong with them.
fn refuse(
    file: &str,
    config: &mut ReplicateConfig,
    refused: &mut Vec<String>,
) -> Result<(), Failure> {
    refused.iter().for_each(out::complain);
    for error in replicate::refuse(config).map_err(|error| failure(file, &error))? {
        if let Failure::Failed(why) = failure(file, &error) {
            out::complain(&why);
            refused.push(why);
        }
    }
    Ok(())
}

/// The name of the file of jobs, what it and the other options say, and what is wrong with jobs that cannot
/// be.
fn config(args: &Replication) -> Result<(String, ReplicateConfig, Vec<String>), Failure> {
    let controller = Config {
        cycle: args.cycle,
        separation: match args.peak {
            true => Separation::Peak,
            false => Separation::Threshold {
                percent: args.threshold,
            },
        },
        host_limit: args.limit,
        ..Config::default()
    };
    let checked = controller.check();
    checked.map_err(|error| Failure::Usage(error.to_string()))?;
    // Only jobs use hosts here, so their limit is one of hosts, which holds over an interconnect, too.
    let network = sim::network(&args.network)?.limited(args.limit);
    sim::tell_of_queues(&network);
    let (file, text) = sim::text(&args.jobs, "jobs", TEXT_BYTES_MAX)?;
    let read = read_jobs(&text, &file, &network);
    let read = read.map_err(|error| Failure::Failed(error.to_string()))?;
    let refused = read.refused.iter().map(ToString::to_string).collect();
    let config = ReplicateConfig {
        network,
        jobs: read.jobs,
        controller,
        system: System::default(),
        seed: 0,
        script: None,
        shards: 1,
    };
    Ok((file, config, refused))
}

fn no_shard(file: &str, error: &ShardError) -> Failure {
    let said = escape(&error.to_string()).into_owned();
    Failure::Failed(match error {
        ShardError::Job { .. } => format!("{file}: {said}"),
        _ => said,
    })
}

fn failure(file: &str, error: &ReplicateError) -> Failure {
    match error {
        ReplicateError::Job { name, why } => {
            Failure::Failed(format!("{file}: {}: {why}", escape(name)))
        }
        ReplicateError::System { name, system, why } => Failure::Failed(format!(
            "{file}: {}: `{system}` does not move it: {why}",
            escape(name)
        )),
        ReplicateError::Faults { file, line, system } => Failure::Failed(format!(
            "{}:{line}: `{system}` has no servers or controller to lose, only `central` has",
            escape(file)
        )),
        ReplicateError::Stuck { name, seconds } => Failure::Failed(format!(
            "{} is stuck after {seconds:.0} s: nothing moves any more",
            escape(name)
        )),
        other => Failure::from_error(other),
    }
}

/// A start time; zero is printed as `0 s`.
fn start(start_s: f64) -> String {
    if start_s > 0.0 {
        return seconds(start_s);
    }
    "0 s".to_owned()
}

fn for_people(report: &ReplicateReport) -> String {
    let mut jobs = vec![["JOB", "START", "END", "RATIO", "DEADLINE"].map(str::to_owned)];
    jobs.extend(report.jobs.iter().map(|job| {
        let met = match job.in_time {
            Some(true) => "met",
            Some(false) => "missed",
            None => "-",
        };
        [
            escape(&job.name).into_owned(),
            start(job.start_s),
            seconds(job.finish_s),
            format!("{:.2}", job.ratio),
            met.to_owned(),
        ]
    }));
    let mut sites = vec![["SITE", "END", "RECEIVED", "FROM OTHER SITES"].map(str::to_owned)];
    sites.extend(report.sites.iter().map(|site| {
        [
            escape(&site.site).into_owned(),
            seconds(site.finish_s),
            Bytes(site.received_bytes).to_string(),
            Bytes(site.wan_bytes).to_string(),
        ]
    }));
    let mut links = vec![["LINK", "BUSIEST", "CYCLES ABOVE", "LONGEST"].map(str::to_owned)];
    links.extend(report.links.iter().map(|link| {
        [
            escape(&link.link).into_owned(),
            format!("{:.0} %", link.peak_share * 100.0),
            link.cycles_above.to_string(),
            start(link.longest_above_s),
        ]
    }));
    let links = match report.links.is_empty() {
        true => String::new(),
        false => format!("{}\n\n", table(&links)),
    };
    let moved: u64 = report.sites.iter().map(|site| site.received_bytes).sum();
    let rate = Rate::from_bytes_per_s(moved as f64 / report.finish_s.max(1e-9));
    let notices = report
        .notices
        .iter()
        .map(|notice| format!("{}\n", escape(notice)));
    let longest = seconds(report.decision_s.max);
    let decisions = match report.cycles {
        1 => format!("; 1 decision, in {longest} on this machine"),
        many => format!(
            "; {many} decisions, half of them in at most {} on this machine, the longest in {longest}",
            seconds(report.decision_s.median),
        ),
    };
    let shards = match report.shards {
        1 => String::new(),
        shards => format!("one of {shards} shards: "),
    };
    format!(
        "{}\n\n{}\n\n{links}{}{shards}all complete by {} after {}, {:.2} x the limit of {}; {} on average{}",
        table(&jobs),
        table(&sites),
        notices.collect::<String>(),
        report.system,
        seconds(report.finish_s),
        report.ratio,
        seconds(report.limit_s),
        rate.unwrap_or(Rate::ZERO),
        if report.cycles > 0 { &decisions } else { "" },
    )
}

fn plan_for_people(plan: &ReplicatePlan) -> String {
    let mut jobs = vec![["JOB", "START", "TAKES AT LEAST"].map(str::to_owned)];
    jobs.extend(plan.jobs.iter().map(|job| {
        [
            escape(&job.name).into_owned(),
            start(job.start_s),
            seconds(job.limit_s),
        ]
    }));
    let rate = |bytes_per_s| Rate::from_bytes_per_s(bytes_per_s).unwrap_or(Rate::ZERO);
    let mut flows = vec![["FROM", "TO", "RATE", "SUBTASKS"].map(str::to_owned)];
    flows.extend(plan.flows.iter().map(|flow| {
        [
            escape(&flow.from).into_owned(),
            escape(&flow.to).into_owned(),
            rate(flow.rate_bytes_per_s).to_string(),
            flow.subtasks.to_string(),
        ]
    }));
    let notices = plan.notices.iter();
    let notices = notices.map(|notice| format!("{}\n", escape(notice)));
    format!(
        "{}\n\n{}\n\n{}the first {} move {}, decided in {} on this machine; all jobs take at least {}",
        table(&jobs),
        table(&flows),
        notices.collect::<String>(),
        seconds(plan.cycle_s),
        Bytes(plan.planned_bytes as u64),
        seconds(plan.decision_s),
        seconds(plan.limit_s),
    )
}
