//! `outpour plan shuffle`: where reducers go.

pub(super) mod simulate;

use std::time::Instant;

use outpour_core::network::Network;
use outpour_core::text::escape;
use outpour_core::{Bytes, NodeId, Rate};
use outpour_planner::shuffle::file::{FileError, Shuffle, ShuffleFile, TEXT_BYTES_MAX};
use outpour_planner::shuffle::schedule::{RpcOptions, Scheme};
use outpour_planner::shuffle::{self, Placement};
use outpour_sim::shuffle::{Arrival, Overheads, simulate};
use serde::Serialize;

use super::{plan, sim};
use crate::args::plan::PlanShuffleArgs;
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// How many reducers are printed for people; the rest is summed up.
const REDUCERS_SHOWN_MAX: usize = 40;

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    placements: Vec<Placed<'a>>,
    flows: Vec<Rated<'a>>,
    /// How long the coflow takes.
    cct_s: f64,
    /// No placement takes less.
    lower_bound_s: f64,
    /// The first over the second, if a bound is known.
    factor: Option<f64>,
    solve_s: f64,
    /// What every scheduler reaches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compared: Vec<Reached>,
}

/// What a scheduler reaches with the same shuffle.
#[derive(Serialize)]
struct Reached {
    scheduler: &'static str,
    /// None if it never ends.
    cct_s: Option<f64>,
    /// Over the bound, if one is known.
    factor: Option<f64>,
}

#[derive(Serialize)]
struct Placed<'a> {
    reducer: &'a str,
    host: &'a str,
    finish_s: f64,
}

#[derive(Serialize)]
struct Rated<'a> {
    mapper: &'a str,
    reducer: &'a str,
    host: &'a str,
    bytes: f64,
    rate_bytes_per_s: f64,
}

/// Plans the shuffle of a file.
///
/// # Errors
/// If a file cannot be read, says what cannot be, or a reducer can be nowhere.
pub(super) fn run(args: &PlanShuffleArgs) -> Result<(), Failure> {
    let network = sim::network(&args.network)?;
    let (file, text) = sim::text(&args.job, "shuffle", TEXT_BYTES_MAX)?;
    let failed = |error: FileError| Failure::Failed(error.to_string());
    let parsed = ShuffleFile::parse(&text, &file).map_err(failed)?;
    let matrix = match &parsed.matrix {
        Some(name) => {
            let path = args.job.with_file_name(name);
            Some(sim::text(&path, "matrix", TEXT_BYTES_MAX)?.1)
        }
        None => None,
    };
    let shuffle = parsed
        .resolve(&network, matrix.as_deref())
        .map_err(failed)?;
    let begun = Instant::now();
    let placed = shuffle::place(&shuffle.coflow, &shuffle.hosts, &shuffle.started);
    let solve_s = begun.elapsed().as_secs_f64();
    let placement = placed.map_err(|error| {
        let why = shuffle.explain(&network, &error);
        Failure::Failed(format!("{file}: {why}"))
    })?;
    if let Some(path) = &args.svg {
        let name = |host: usize| network.name(NodeId(host as u32)).to_owned();
        let Shuffle {
            coflow,
            hosts,
            reducers,
            ..
        } = &shuffle;
        let drawing = shuffle::svg::draw(coflow, hosts, &placement, &name, reducers);
        plan::write(path, &drawing)?;
    }
    let compared = match args.compare {
        true => compare(&shuffle, &placement, args.seed),
        false => Vec::new(),
    };
    if args.output.json {
        let plan = printed(&network, &shuffle, &placement, solve_s);
        out::json(&Printed { compared, ..plan });
    } else if !args.output.quiet {
        let mut text = for_people(&network, &shuffle, &placement, solve_s);
        if !compared.is_empty() {
            let mut rows = vec![["SCHEDULER", "TIME", "OVER THE BOUND"].map(str::to_owned)];
            rows.extend(compared.iter().map(|reached| {
                let none = || "-".to_owned();
                let factor = reached.factor.map(|factor| format!("{factor:.2}"));
                let time = reached.cct_s.map_or_else(|| "never".to_owned(), seconds);
                let factor = factor.unwrap_or_else(none);
                [reached.scheduler.to_owned(), time, factor]
            }));
            text.push_str("\n\n");
            text.push_str(&table(&rows));
        }
        out::result(text);
    }
    Ok(())
}

/// What every scheduler reaches if the shuffle has all hosts to itself.
fn compare(shuffle: &Shuffle, placement: &Placement, seed: u64) -> Vec<Reached> {
    let reached = Scheme::ALL.map(|scheme| {
        let mut scheduler = scheme.scheduler(RpcOptions {
            seed,
            ..RpcOptions::default()
        });
        let arrival = [Arrival {
            started: shuffle.started.clone(),
            ..Arrival::new(0.0, shuffle.coflow.clone())
        }];
        let none = Overheads::default();
        let report = simulate(&shuffle.hosts, arrival, &mut *scheduler, &none, |_| {});
        let cct_s = report.ok().map(|report| report.average_cct_s);
        let bound = placement.lower_bound_s;
        let over = cct_s.map(|cct| if cct == 0.0 { 1.0 } else { cct / bound });
        Reached {
            scheduler: scheme.name(),
            cct_s,
            factor: over.filter(|over| over.is_finite()),
        }
    });
    reached.into()
}

fn printed<'a>(
    network: &'a Network,
    shuffle: &'a Shuffle,
    placement: &Placement,
    solve_s: f64,
) -> Printed<'a> {
    let host = |host: usize| network.name(NodeId(host as u32));
    let reducers = shuffle.reducers.iter().zip(&placement.hosts).enumerate();
    let mut flows = Vec::new();
    let mut placements = Vec::with_capacity(placement.hosts.len());
    for (index, (reducer, place)) in reducers {
        placements.push(Placed {
            reducer,
            host: host(*place),
            finish_s: placement.reducer_s[index],
        });
        flows.extend(shuffle.coflow.flows(index).map(|flow| Rated {
            mapper: host(flow.mapper),
            reducer,
            host: host(*place),
            bytes: flow.bytes,
            rate_bytes_per_s: placement.rate(index, &flow),
        }));
    }
    Printed {
        placements,
        flows,
        cct_s: placement.seconds,
        lower_bound_s: placement.lower_bound_s,
        factor: placement.factor(),
        solve_s,
        compared: Vec::new(),
    }
}

fn for_people(network: &Network, shuffle: &Shuffle, placement: &Placement, solve_s: f64) -> String {
    let mut rows = vec![["REDUCER", "HOST", "FETCHES", "RATE", "TIME"].map(str::to_owned)];
    let reducers = shuffle.reducers.iter().zip(&placement.hosts).enumerate();
    for (index, (reducer, place)) in reducers.take(REDUCERS_SHOWN_MAX) {
        let flows = shuffle.coflow.flows(index);
        let fetched = flows.filter(|flow| flow.mapper != *place);
        let (mut bytes, mut rate) = (0.0, 0.0);
        for flow in fetched {
            bytes += flow.bytes;
            rate += placement.rate(index, &flow);
        }
        rows.push([
            escape(reducer).into_owned(),
            escape(network.name(NodeId(*place as u32))).into_owned(),
            Bytes(bytes.round() as u64).to_string(),
            Rate::from_bytes_per_s(rate)
                .unwrap_or(Rate::ZERO)
                .to_string(),
            match bytes > 0.0 {
                true => seconds(placement.reducer_s[index]),
                false => "-".to_owned(),
            },
        ]);
    }
    let more = placement.hosts.len().saturating_sub(REDUCERS_SHOWN_MAX);
    let more = match more {
        0 => String::new(),
        more => format!("\nand {more} more; --json has all"),
    };
    let factor = placement.factor();
    let known = factor.map(|factor| format!(", at most {factor:.2} times the least"));
    let known = known.unwrap_or_default();
    format!(
        "{}{more}\n\nthe shuffle of {} takes {}{known}; placed in {}",
        table(&rows),
        Bytes(shuffle.coflow.bytes().round() as u64),
        match placement.seconds > 0.0 {
            true => seconds(placement.seconds),
            false => "0 s".to_owned(),
        },
        seconds(solve_s),
    )
}
