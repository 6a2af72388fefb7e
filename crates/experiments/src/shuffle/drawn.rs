//! Shuffles drawn from the public trace, the trace itself, and how long decisions take.

use outpour_core::Rate;
use outpour_planner::shuffle::schedule::{RpcOptions, Scheme};
use outpour_planner::shuffle::{Coflow, Flow, Hosts, place};
use outpour_sim::shuffle::benchmark::TraceCoflow;
use outpour_sim::shuffle::jobs::Generated;
use outpour_sim::shuffle::{Arrival, Overheads, ShuffleReport, simulate, stepped};

use super::{Bench, examples};
use crate::sweep::{Figure, Row, distribution, quantile, sorted};
use crate::{ExperimentError, machine};

pub(super) const SETUP: &str = "\
sizes are drawn from the distribution of the jobs of the trace that move more than 20 Gbit (of 2^30 bits: 96 jobs), split at \
random over mappers and reducers, one of each on every host. Hosts that may run reducers have 0.1, 0.2, 0.5, 1, 10 or \
40 Gbit/s, drawn; mappers are on as many others of 40. Where nothing else is said there are 200 of each and 20 coflows \
arrive per second. `below_neat` is how much less the average is than that of `neat`, in percent, `later` how many percent \
of the coflows take longer than by it. Means over the seeds, with the least and the most; the paper has \
1,000 coflows and 20 trials.";
pub(super) const AS_FOR_WIDTH: &str = "as for `width`.";
/// What all drawn shuffles have in common.
pub(super) const WHY: &str = "\
The trace's 96 jobs move 3,070 Gbit on average, so one takes 1.8 s alone on 200 hosts, where the paper says \
0.141 s: its jobs are not these, and here they wait for each other at every rate. If mappers had the same mix of \
hosts, those of 0.1 Gbit/s would hold up every scheduler alike, so that cannot be meant. How far RPC is below \
NEAT grows with the number of coflows. A coflow that has started on slow hosts cannot move, so all that have \
started are compared with those that are to start; when only the four shortest alone were compared, 23 coflows went to \
hosts of at most 1 Gbit/s one before the other, and RPC took 182.7 s with 200 hosts and seed 3 instead of 124.4. \
NEAT here takes what it delays into account, largest reducers first. With the paper's 1,000 coflows RPC is 29.1 % below NEAT \
with 100 hosts (20.9 to 37.6) and 35.2 to 37.3 % with 200 to 500, where the paper has 46.5 to 65; 14.3 % of the coflows take longer \
with 100 hosts, 6.1 to 8.7 % with more; with 500 and seed 1 two of a hundred take more than 52 % longer, and one eight times as long, where the \
paper has at most 15 %. RPC is 98.8 % below Varys with 100 hosts, 99.1 to 99.3 % with more, and 99.5 to 99.7 % below \
random places. 2D-Placement takes 1.02 to 1.15 times as long as NEAT, as 20 coflows per second are a high rate here (`rate`).";
pub(super) const WHY_RATE: &str = "\
As for `width`. RPC is 2.3 % below NEAT at 0.2 coflows per second, 8.5 at 0.5, 22.0 at 1, 32.8 at 10, 34.7, 38.7 and 42.1 at 20 to \
40, and 45.3 % at 50 (40.5 to 50.5), where the paper has 46.5 to 65. 2D-Placement takes 1.4 times as long as \
NEAT at 0.2 per second, 5.1 times at 0.5, 2.3 times at 1, and at most 1.2 times at high rates, where the paper, too, \
has less than its two to three times; at 30 and more per second it takes less than NEAT with some seeds, which the paper \
does not have, for the reason that `number` gives. Smaller sizes and a higher rate are the same as more time: were the paper's jobs these, but so small \
that one takes 0.141 s alone, its 20 per second would be 1.6 per second here, between the rows of 1 and 10.";
pub(super) const WHY_THOUSAND: &str = "\
As for `width`. RPC is 34.7 % below NEAT (95 % interval 30.2 to 39.3) and 9.2 % of the coflows take longer (7.3 to 11.1), with seed \
1 two of a hundred by more than 49 %, where the paper has at most 15 %.";
pub(super) const WHY_NUMBER: &str = "\
As for `width`. RPC is 9.3 % below NEAT with 50 at once (7.9 to 13.0) and 40.5 % with 500 (33.3 to 50.8), where the paper has up to \
56.5; 10 to 32 % of the coflows take longer, where it has about 20. 2D-Placement takes 1.29 times as long as NEAT with 50 at once; from 200 on it takes less with some seeds, which the paper does not \
have. The cause is the order in which NEAT \
here counts coflows as it places one, by how long each takes alone: the new one on the best places, the others \
on those they got, where the median takes 4.6 times as long as if all hosts shared its bytes by their rates. \
With 500 at once and seed 1 a new coflow counts 70 % of the others as later, though 49 % are larger, and of \
later ones NEAT sees how many are on a host, not how much they have to receive. So seven of the 35 hosts of 40 \
Gbit/s have to receive for 1,093 to 1,205 s, and half of the 35 for at most 591 s. 2D-Placement orders by other \
times, because small coflows whose mappers moved to few hosts take longer alone: there 56 % count as later, and \
the fullest host has 854 s. NEAT with that order, and nothing else changed, gives every host the load that it \
has by 2D-Placement, and takes 62.9 s on average instead of 92.0 s (seed 2: 86.2 instead of 93.3 s). The ten \
coflows that gain most, of 12 to 17 Tbit, make 38 % of the difference; they put 50 to 59 % of their bytes on \
those seven hosts before, and 20 to 28 % then. 2D-Placement takes 71.2 s (96.8 s), and with NEAT's order 99.6 s: \
with the same order it is above NEAT, as in the paper. A NEAT that finds the time of the new coflow on the \
places that this one gets, and places it anew by that, takes 51.6 s, and RPC 45.2 s: 12 % less, not 51 % (seed \
2: 68.2 and 57.9 s, 15 %, not 38 %). The rows below are by NEAT without that.";
pub(super) const COLUMNS: &[&str] = &["average_cct_s", "below_neat", "later", "longest_cct_s"];

/// Bytes of 20 Gbit of 2^30 bits.
const LEAST: f64 = 20.0 * 1_073_741_824.0 / 8.0;
const NICS: [f64; 6] = [0.1, 0.2, 0.5, 1.0, 10.0, 40.0];
const HOSTS: usize = 200;
const ARRIVALS: f64 = 20.0;
/// In a trial of the paper.
const COFLOWS: usize = 1000;
/// Jobs of `figure4b`.
const JOBS: usize = 10;
/// How often a decision is timed.
const TIMES: usize = 100;

const COMPARED: [Scheme; 5] = [
    Scheme::Rpc,
    Scheme::Neat,
    Scheme::TwoD,
    Scheme::Varys,
    Scheme::Random,
];

fn generated(bench: &Bench<'_>) -> Result<Generated, ExperimentError> {
    let trace = bench.trace()?;
    let sizes = trace.coflows.iter().map(TraceCoflow::bytes);
    let observed = sorted(sizes.filter(|size| *size >= LEAST));
    if observed.is_empty() {
        let why = "no job of the trace moves 20 Gbit";
        return Err(ExperimentError::Setup(why.to_owned()));
    }
    let hosts = if bench.options.short { 10 } else { HOSTS };
    Ok(Generated {
        count: if bench.options.short {
            10
        } else {
            bench.options.count
        },
        observed,
        mappers: hosts,
        reducers: hosts,
        hosts,
        nics: NICS
            .iter()
            .filter_map(|gbit| Rate::from_bytes_per_s(gbit * 1e9 / 8.0))
            .collect(),
        arrivals_per_s: Some(ARRIVALS),
    })
}

/// A scheduler with some seed at a point.
struct Case {
    at: f64,
    scheme: Scheme,
    seed: u64,
    jobs: Generated,
}

fn run(case: &Case) -> Result<ShuffleReport, String> {
    let hosts = case.jobs.hosts(case.seed);
    let mut scheduler = case.scheme.scheduler(RpcOptions {
        seed: case.seed,
        ..RpcOptions::default()
    });
    let none = Overheads::default();
    let arrivals = case.jobs.arrivals(case.seed);
    let report = simulate(&hosts, arrivals, &mut *scheduler, &none, |_| {});
    report.map_err(|error| error.to_string())
}

/// Every scheduler at every point, with every seed.
fn sweep(bench: &Bench<'_>, points: Vec<(f64, Generated)>, schemes: &[Scheme]) -> Vec<Row> {
    let mut cases = Vec::new();
    for scheme in schemes {
        for (at, jobs) in &points {
            cases.extend(bench.seeds().into_iter().map(|seed| Case {
                at: *at,
                scheme: *scheme,
                seed,
                jobs: jobs.clone(),
            }));
        }
    }
    let found = bench.each(&cases, |case| {
        let found = run(case);
        let said = match &found {
            Ok(report) => format!("{:.3} s on average", report.average_cct_s),
            Err(error) => error.clone(),
        };
        let line = format!(
            "{} {} seed {}: {said}",
            case.scheme.name(),
            case.at,
            case.seed
        );
        (line, found)
    });
    let of = |scheme: Scheme, at: f64| -> Result<Vec<&ShuffleReport>, String> {
        let each = cases.iter().zip(&found);
        let each = each.filter(|(case, _)| case.scheme == scheme && case.at == at);
        let each = each.map(|(_, found)| found.as_ref().map_err(Clone::clone));
        each.collect()
    };
    let last = points.last().map_or(0.0, |(at, _)| *at);
    let mut rows = Vec::new();
    for scheme in schemes {
        for (at, _) in &points {
            let row = match of(*scheme, *at) {
                Ok(reports) => {
                    let neat = of(Scheme::Neat, *at).unwrap_or_default();
                    let rpc = of(Scheme::Rpc, *at).unwrap_or_default();
                    let curves = *at == last;
                    row(
                        *scheme,
                        *at,
                        &reports,
                        &neat,
                        rpc.first().filter(|_| curves),
                    )
                }
                Err(error) => Row::failed(scheme.name(), Some(*at), error),
            };
            rows.push(row);
        }
    }
    rows
}

fn row(
    scheme: Scheme,
    at: f64,
    reports: &[&ShuffleReport],
    neat: &[&ShuffleReport],
    rpc: Option<&&ShuffleReport>,
) -> Row {
    let mut row = Row::new(scheme.name(), Some(at));
    let mut figure = |name: &str, values: &mut dyn Iterator<Item = f64>| {
        row.figures.insert(name.to_owned(), Figure::of(values));
    };
    figure(
        "average_cct_s",
        &mut reports.iter().map(|it| it.average_cct_s),
    );
    let longest = |it: &&ShuffleReport| it.ccts_s.iter().copied().fold(0.0, f64::max);
    figure("longest_cct_s", &mut reports.iter().map(longest));
    if scheme != Scheme::Neat && !neat.is_empty() {
        let both = || reports.iter().zip(neat);
        let below = both().map(|(it, neat)| 100.0 * (1.0 - it.average_cct_s / neat.average_cct_s));
        figure("below_neat", &mut below.into_iter());
        let later = both().map(|(it, neat)| {
            let pairs = it.ccts_s.iter().zip(&neat.ccts_s);
            let later = pairs
                .filter(|(it, neat)| **it > **neat * (1.0 + 1e-9))
                .count();
            100.0 * later as f64 / it.ccts_s.len() as f64
        });
        figure("later", &mut later.into_iter());
    }
    if let (Some(rpc), Some(first)) = (rpc, reports.first()) {
        let ccts = sorted(first.ccts_s.iter().copied());
        row.curves.insert("ccts".to_owned(), distribution(&ccts));
        if scheme != Scheme::Rpc {
            let pairs = rpc.ccts_s.iter().zip(&first.ccts_s);
            let better = sorted(pairs.map(|(rpc, other)| 100.0 * (1.0 - rpc / other)));
            row.curves
                .insert("better".to_owned(), distribution(&better));
        }
    }
    row
}

pub(super) fn width(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let jobs = generated(bench)?;
    let widths: &[usize] = if bench.options.short {
        &[5, 10]
    } else {
        &[100, 200, 300, 400, 500]
    };
    let points = widths.iter().map(|hosts| {
        let jobs = Generated {
            mappers: *hosts,
            reducers: *hosts,
            hosts: *hosts,
            ..jobs.clone()
        };
        (*hosts as f64, jobs)
    });
    Ok(sweep(bench, points.collect(), &COMPARED))
}

fn rates(bench: &Bench<'_>) -> Result<Vec<(f64, Generated)>, ExperimentError> {
    let jobs = generated(bench)?;
    let rates: &[f64] = if bench.options.short {
        &[10.0, 50.0]
    } else {
        &[0.2, 0.5, 1.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    };
    let points = rates.iter().map(|rate| {
        let arrivals_per_s = Some(*rate);
        (
            *rate,
            Generated {
                arrivals_per_s,
                ..jobs.clone()
            },
        )
    });
    Ok(points.collect())
}

pub(super) fn rate(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    Ok(sweep(bench, rates(bench)?, &COMPARED))
}

pub(super) fn conservation(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let points = rates(bench)?.into_iter().step_by(2).collect();
    Ok(sweep(bench, points, &[Scheme::Rpc, Scheme::RpcConserving]))
}

pub(super) fn number(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let jobs = generated(bench)?;
    let numbers: &[usize] = if bench.options.short {
        &[5, 10]
    } else {
        &[50, 100, 200, 300, 400, 500]
    };
    let points = numbers.iter().map(|count| {
        let jobs = Generated {
            count: *count,
            arrivals_per_s: None,
            ..jobs.clone()
        };
        (*count as f64, jobs)
    });
    Ok(sweep(bench, points.collect(), &COMPARED))
}

/// As many coflows as the paper has, and as many hosts and arrivals as it has where it says nothing else.
pub(super) fn thousand(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let count = if bench.options.short { 10 } else { COFLOWS };
    let jobs = Generated {
        count,
        ..generated(bench)?
    };
    Ok(sweep(bench, vec![(count as f64, jobs)], &COMPARED))
}

pub(super) fn figure4b(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let drawn = generated(bench)?;
    let drawn = Generated {
        count: JOBS,
        mappers: 3,
        reducers: 3,
        hosts: 3,
        arrivals_per_s: None,
        ..drawn
    };
    let hosts = examples::testbed();
    let run = |scheme: Scheme, seed: u64| -> Result<f64, String> {
        let mut scheduler = scheme.scheduler(RpcOptions {
            seed,
            ..RpcOptions::default()
        });
        let arrivals: Vec<Arrival> = drawn.arrivals(seed).collect();
        let report = simulate(
            &hosts,
            arrivals,
            &mut *scheduler,
            &Overheads::default(),
            |_| {},
        );
        report
            .map(|report| report.average_cct_s)
            .map_err(|e| e.to_string())
    };
    let rows = bench.each(&COMPARED, |scheme| {
        let runs = bench
            .seeds()
            .into_iter()
            .map(|seed| Ok((run(*scheme, seed)?, run(Scheme::Neat, seed)?)));
        let runs: Result<Vec<(f64, f64)>, String> = runs.collect();
        let row = match runs {
            Ok(runs) => {
                let mut row = Row::new(scheme.name(), None);
                let average = Figure::of(runs.iter().map(|(it, _)| *it));
                row.figures.insert("average_cct_s".to_owned(), average);
                let over = Figure::of(runs.iter().map(|(it, neat)| it / neat));
                row.figures.insert("over_neat".to_owned(), over);
                row
            }
            Err(error) => Row::failed(scheme.name(), None, error),
        };
        (row.in_words(), row)
    });
    Ok(rows)
}

pub(super) fn time(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let sizes: &[usize] = if bench.options.short {
        &[10]
    } else {
        &[100, 200, 300, 400, 500]
    };
    let mut rows = Vec::new();
    for hosts in sizes {
        let mut times = Vec::with_capacity(TIMES);
        for seed in 0..TIMES as u64 {
            let jobs = Generated {
                count: 1,
                observed: vec![LEAST],
                mappers: *hosts,
                reducers: *hosts,
                hosts: *hosts,
                nics: NICS
                    .iter()
                    .filter_map(|gbit| Rate::from_bytes_per_s(gbit * 1e9 / 8.0))
                    .collect(),
                arrivals_per_s: None,
            };
            let all = jobs.hosts(bench.options.seed.wrapping_add(seed));
            // Every flow for itself, as a planner gets it that knows nothing of how jobs were drawn.
            let arrival = jobs.arrivals(bench.options.seed.wrapping_add(seed)).next();
            let Some(coflow) = arrival.and_then(|arrival| with_flows(&arrival.coflow)) else {
                continue;
            };
            let begun = machine::now();
            let placed = place(&coflow, &all, &[]);
            let took = begun.elapsed().as_secs_f64();
            if placed.is_ok() {
                times.push(took * 1e3);
            }
        }
        let times = sorted(times.into_iter());
        let mut row = Row::new("rpc", Some(*hosts as f64));
        for (name, share) in [("median_ms", 0.5), ("longest_ms", 1.0)] {
            let figure = Figure::of(std::iter::once(quantile(&times, share)));
            row.figures.insert(name.to_owned(), figure);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn with_flows(coflow: &Coflow) -> Option<Coflow> {
    let reducers =
        (0..coflow.reducers()).map(|reducer| coflow.flows(reducer).collect::<Vec<Flow>>());
    Coflow::new(reducers.collect()).ok()
}

pub(super) fn trace(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let mut trace = bench.trace()?;
    if bench.options.short {
        trace.coflows.truncate(20);
    }
    let port = stepped::PORT_BITS_PER_S / 8.0;
    let hosts: Hosts = trace.hosts(port);
    let exact = Scheme::ALL.map(|scheme| (scheme.name().to_owned(), Some(scheme), None));
    let rules = [
        ("varys, coflowsim", stepped::Rule::SmallestBottleneck),
        ("fair, coflowsim", stepped::Rule::Fair),
    ];
    let rules = rules.map(|(name, rule)| (name.to_owned(), None, Some(rule)));
    let cases: Vec<_> = rules.into_iter().chain(exact).collect();
    let rows = bench.each(&cases, |(name, scheme, rule)| {
        let begun = machine::now();
        let report = match (scheme, rule) {
            (_, Some(rule)) => {
                let report = stepped::simulate(&trace, *rule, port * 8.0, |_| {});
                report.map_err(|error| error.to_string())
            }
            (scheme, None) => {
                let arrivals = trace.arrivals().into_iter().map(|(_, arrival)| arrival);
                let scheme = scheme.unwrap_or(Scheme::Rpc);
                let mut scheduler = scheme.scheduler(RpcOptions::default());
                let none = Overheads::default();
                let report = simulate(&hosts, arrivals, &mut *scheduler, &none, |_| {});
                report.map_err(|error| error.to_string())
            }
        };
        let took = begun.elapsed().as_secs_f64();
        let row = match report {
            Ok(report) => {
                let mut row = Row::new(name, None);
                let ccts = sorted(report.ccts_s.iter().copied());
                for (name, value) in [
                    ("average_cct_s", report.average_cct_s),
                    ("median_cct_s", quantile(&ccts, 0.5)),
                    ("longest_cct_s", quantile(&ccts, 1.0)),
                    ("simulated_in_s", took),
                ] {
                    row.figures
                        .insert(name.to_owned(), Figure::of(std::iter::once(value)));
                }
                row.curves.insert("ccts".to_owned(), distribution(&ccts));
                row
            }
            Err(error) => Row::failed(name, None, error),
        };
        (row.in_words(), row)
    });
    Ok(rows)
}
