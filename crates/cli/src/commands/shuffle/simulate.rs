//! `outpour sim shuffle`: shuffles that share a cluster.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::toml_lines::Step;
use outpour_planner::shuffle::Hosts;
use outpour_planner::shuffle::schedule::{RpcOptions, Scheme};
use outpour_sim::parallel::in_parallel;
use outpour_sim::shuffle::benchmark::{self, Trace};
use outpour_sim::shuffle::jobs::{self, Generated, JobsFile};
use outpour_sim::shuffle::{Overheads, ShuffleReport, simulate, stepped};
use serde::Serialize;

use super::super::sim;
use crate::args::shuffle::{Rules, SimShuffleArgs, WaveRule};
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// Mappers and reducers of all generated shuffles at most: they may all be under way at once.
const TASKS_MAX: usize = 1 << 25;
/// How often the display changes.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// What one scheduler reached, as JSON.
#[derive(Serialize)]
struct Simulated {
    scheduler: &'static str,
    /// Mean over all shuffles and trials.
    average_cct_s: f64,
    /// How far the mean of so many trials may be from that of all, with a probability of 95 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_ci95_s: Option<f64>,
    /// How long each shuffle took, seconds: in the order of the trace, or of arrival, trial after trial.
    ccts_s: Vec<f64>,
    /// From the first arrival until the last shuffle is complete; the mean of all trials.
    makespan_s: f64,
    trials: usize,
    decisions: u64,
    /// How long it took to simulate, in real time.
    wall_s: f64,
}

#[derive(Serialize)]
struct Compared {
    schedulers: Vec<Simulated>,
}

/// What is simulated.
enum Work {
    Trace(Trace),
    Jobs(Generated),
}

/// Simulates shuffles.
///
/// # Errors
/// If a file cannot be read or makes no sense, or some shuffle never ends.
pub(crate) fn run(args: &SimShuffleArgs) -> Result<(), Failure> {
    if args.rules == Rules::Coflowsim {
        let known = |it: &Scheme| matches!(it, Scheme::Varys | Scheme::Fair);
        if args.trace.is_none() || !args.scheduler.iter().all(known) {
            let fault = "--rules coflowsim: the public simulator plays traces, by varys or fair";
            return Err(Failure::Usage(fault.to_owned()));
        }
        if args.overheads != Overheads::default() {
            let fault = "--rules coflowsim: the public simulator knows no overheads";
            return Err(Failure::Usage(fault.to_owned()));
        }
        if args.per_host.is_some() {
            let fault =
                "--rules coflowsim: the public simulator knows no limit of reducers per host";
            return Err(Failure::Usage(fault.to_owned()));
        }
    }
    let planned = [Scheme::Rpc, Scheme::RpcConserving];
    if args.waves != WaveRule::Planned && !args.scheduler.iter().any(|it| planned.contains(it)) {
        let fault = "--waves: only rpc and rpc-conserving plan waves";
        return Err(Failure::Usage(fault.to_owned()));
    }
    let work = work(args)?;
    let results = args.scheduler.iter().map(|it| simulated(args, &work, *it));
    let mut results: Vec<Simulated> = results.collect::<Result<_, _>>()?;
    if args.output.json {
        match results.len() {
            1 => out::json(&results.remove(0)),
            _ => out::json(&Compared {
                schedulers: results,
            }),
        }
    } else if !args.output.quiet {
        out::result(for_people(&results));
    }
    Ok(())
}

fn work(args: &SimShuffleArgs) -> Result<Work, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::Failed(error.to_string());
    let trace = |path: &Path| {
        let (file, text) = sim::text(path, "trace", benchmark::TEXT_BYTES_MAX)?;
        Trace::parse(&text, &file).map_err(|error| failed(&error))
    };
    if let Some(path) = &args.trace {
        return trace(path).map(Work::Trace);
    }
    let Some(path) = &args.jobs else {
        return Err(Failure::Usage("--trace or --jobs is needed".to_owned()));
    };
    let (file, text) = sim::text(path, "file of shuffles", jobs::TEXT_BYTES_MAX)?;
    let parsed = JobsFile::parse(&text, &file).map_err(|error| failed(&error))?;
    let observed = match &parsed.trace {
        Some(name) => trace(&path.with_file_name(name))?.coflows,
        None => Vec::new(),
    };
    let observed: Vec<f64> = observed.iter().map(benchmark::TraceCoflow::bytes).collect();
    let hosts = args.hosts as usize;
    let generated = Generated {
        count: parsed.count,
        mappers: parsed.mappers.unwrap_or(hosts),
        reducers: parsed.reducers.unwrap_or(hosts),
        hosts,
        nics: args.nics.0.clone(),
        arrivals_per_s: args.arrivals,
        observed: parsed
            .observed(&file, &observed)
            .map_err(|error| failed(&error))?,
    };
    if generated.mappers > hosts {
        let why = format!(
            "`mappers` is {}, each on a host of its own, and --hosts says {hosts}",
            generated.mappers
        );
        let wrong = parsed.wrong(&file, &[Step::Key("mappers")], &why);
        return Err(failed(&wrong));
    }
    let tasks = generated
        .count
        .saturating_mul(generated.mappers + generated.reducers);
    if tasks > TASKS_MAX {
        let fault = format!(
            "{file}: {} shuffles of {} mappers and {} reducers; the most is {TASKS_MAX} tasks in all",
            generated.count, generated.mappers, generated.reducers
        );
        return Err(Failure::Failed(fault));
    }
    Ok(Work::Jobs(generated))
}

/// Tells people how far it is.
struct Display {
    begun: Instant,
    shown: Mutex<Instant>,
    done: AtomicUsize,
    all: usize,
    is_on: bool,
}

impl Display {
    fn one_more(&self, scheme: Scheme) {
        let done = 1 + self.done.fetch_add(1, Ordering::Relaxed);
        if !self.is_on {
            return;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = done >= self.all;
        if !is_last && shown.elapsed() < SHOW_EVERY {
            return;
        }
        *shown = Instant::now();
        let passed = self.begun.elapsed().as_secs_f64();
        let left = passed / done as f64 * self.all.saturating_sub(done) as f64;
        let line = format!(
            "\r{}: {done} of {} shuffles are complete, {} left   ",
            scheme.name(),
            self.all,
            seconds(left)
        );
        let mut to = std::io::stderr();
        // If nobody can read it, nobody misses it.
        let _ = to.write_all(if is_last {
            b"\r\x1b[K"
        } else {
            line.as_bytes()
        });
    }
}

fn simulated(args: &SimShuffleArgs, work: &Work, scheme: Scheme) -> Result<Simulated, Failure> {
    let (trials, count) = match work {
        Work::Trace(trace) => (args.trials as usize, trace.coflows.len()),
        Work::Jobs(jobs) => (args.trials as usize, jobs.count),
    };
    let display = Display {
        begun: Instant::now(),
        shown: Mutex::new(Instant::now()),
        done: AtomicUsize::new(0),
        all: trials * count,
        is_on: !args.output.quiet && !args.output.json && std::io::stderr().is_terminal(),
    };
    let all: Vec<u64> = (0..trials as u64).collect();
    let reports = in_parallel(&all, args.threads, |trial| {
        let seed = args.seed.wrapping_add(*trial);
        one(args, work, scheme, seed, &|| display.one_more(scheme))
    });
    let reports: Vec<ShuffleReport> = reports.into_iter().collect::<Result<_, _>>()?;
    let averages: Vec<f64> = reports.iter().map(|report| report.average_cct_s).collect();
    Ok(Simulated {
        scheduler: scheme.name(),
        average_cct_s: mean(&averages),
        average_ci95_s: outpour_sim::shuffle::confidence(&averages),
        makespan_s: mean(&reports.iter().map(|it| it.makespan_s).collect::<Vec<_>>()),
        decisions: reports.iter().map(|report| report.decisions).sum(),
        ccts_s: reports.into_iter().flat_map(|it| it.ccts_s).collect(),
        trials,
        wall_s: display.begun.elapsed().as_secs_f64(),
    })
}

fn one(
    args: &SimShuffleArgs,
    work: &Work,
    scheme: Scheme,
    seed: u64,
    one_more: &dyn Fn(),
) -> Result<ShuffleReport, Failure> {
    let mut scheduler = scheme.scheduler(RpcOptions {
        starvation_s: args.starvation.as_secs_f64(),
        background_bytes: args.background.as_f64(),
        waves: args.waves.waves(),
        seed,
        ..RpcOptions::default()
    });
    let overheads = &args.overheads;
    let stuck = |error: &dyn std::error::Error| Failure::Failed(error.to_string());
    match work {
        Work::Trace(trace) => {
            let port = args.port.map(|rate| rate.bytes_per_s());
            let port = port.unwrap_or(stepped::PORT_BITS_PER_S / 8.0);
            if args.rules == Rules::Coflowsim {
                let rule = match scheme {
                    Scheme::Fair => stepped::Rule::Fair,
                    _ => stepped::Rule::SmallestBottleneck,
                };
                let report = stepped::simulate(trace, rule, port * 8.0, |_| one_more());
                return report.map_err(|error| stuck(&error));
            }
            let hosts = limited(trace.hosts(port), args.per_host);
            let (order, arrivals): (Vec<usize>, Vec<_>) = trace.arrivals().into_iter().unzip();
            let report = simulate(&hosts, arrivals, &mut *scheduler, overheads, |_| one_more());
            let mut report = report.map_err(|mut error| {
                for coflow in &mut error.coflows {
                    *coflow = order[*coflow];
                }
                stuck(&error)
            })?;
            let mut ccts = vec![0.0; order.len()];
            for (index, cct) in order.into_iter().zip(&report.ccts_s) {
                ccts[index] = *cct;
            }
            report.ccts_s = ccts;
            Ok(report)
        }
        Work::Jobs(jobs) => {
            let hosts = limited(jobs.hosts(seed), args.per_host);
            let arrivals = jobs.arrivals(seed);
            let report = simulate(&hosts, arrivals, &mut *scheduler, overheads, |_| one_more());
            report.map_err(|error| stuck(&error))
        }
    }
}

/// Hosts that run so many reducers at a time at most.
fn limited(mut hosts: Hosts, per_host: Option<u32>) -> Hosts {
    for slots in &mut hosts.slots {
        *slots = (*slots).min(per_host.unwrap_or(u32::MAX));
    }
    hosts
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The value below which such a share of sorted ones is.
fn share(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn for_people(results: &[Simulated]) -> String {
    let head = [
        "SCHEDULER",
        "AVERAGE",
        "+-",
        "MEDIAN",
        "95 %",
        "LONGEST",
        "ALL",
        "SIMULATED IN",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for result in results {
        let mut sorted = result.ccts_s.clone();
        sorted.sort_by(f64::total_cmp);
        rows.push([
            result.scheduler.to_owned(),
            seconds(result.average_cct_s),
            result
                .average_ci95_s
                .map_or_else(|| "-".to_owned(), seconds),
            seconds(share(&sorted, 0.5)),
            seconds(share(&sorted, 0.95)),
            seconds(share(&sorted, 1.0)),
            seconds(result.makespan_s),
            seconds(result.wall_s),
        ]);
    }
    let trials = results.first().map_or(0, |result| result.trials);
    let count = results
        .first()
        .map_or(0, |it| it.ccts_s.len() / trials.max(1));
    let times = match trials {
        1 => String::new(),
        trials => format!(", {trials} times"),
    };
    let shuffles = if count == 1 { "shuffle" } else { "shuffles" };
    format!("{}\n\n{count} {shuffles}{times}", table(&rows))
}
