//! `outpour sim`: the protocols in virtual time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use outpour_core::Bytes;
use outpour_core::manifest::default_block_bytes;
use outpour_core::network::Network;
use outpour_core::text::escape;
use outpour_sim::cast::{CastConfig, Report, simulate};
use outpour_sim::fuzz::{FuzzConfig, FuzzReport};

use crate::args::{SimCastArgs, SimFuzzArgs};
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// How large a network file may be.
const NETWORK_BYTES_MAX: u64 = 16 << 20;

/// How many node names a message lists.
const NAMES_MAX: usize = 8;

/// Simulates a cast.
///
/// # Errors
/// If the network cannot be read, or the cast makes no sense on it or does not end.
pub(super) fn cast(args: &SimCastArgs) -> Result<(), Failure> {
    let network = network(&args.network)?;
    let root = network.node(&args.root).ok_or_else(|| {
        let names: Vec<_> = network
            .nodes()
            .take(NAMES_MAX)
            .map(|node| network.name(node))
            .collect();
        let more = if network.node_count() as usize > NAMES_MAX {
            ", ..."
        } else {
            ""
        };
        let names = escape(&names.join(", ")).into_owned();
        Failure::Usage(format!(
            "--root {}: no such node; there are {names}{more}",
            escape(&args.root)
        ))
    })?;
    let block = args.block.unwrap_or_else(|| default_block_bytes(args.size));
    let config = CastConfig {
        network,
        root,
        size: args.size,
        block: Bytes(block.into()),
        protocol: args.protocol.clone(),
        seed: args.seed,
        faults: Vec::new(),
    };
    let report = simulate(config).map_err(|error| Failure::from_error(&error))?;
    if args.output.json {
        out::json(&report);
    } else if !args.output.quiet {
        out::result(for_people(args, &report));
    }
    Ok(())
}

/// Reads a network from a file.
///
/// # Errors
/// If it cannot be read or describes none.
pub(super) fn network(path: &std::path::Path) -> Result<Network, Failure> {
    let shown = path.display().to_string();
    let shown = escape(&shown);
    let fail = |why| Failure::Failed(format!("{shown}: cannot read the network: {why}"));
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(NETWORK_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| fail(error.to_string()))?;
    if text.len() as u64 > NETWORK_BYTES_MAX {
        return Err(fail(format!(
            "it is larger than {:#}",
            Bytes(NETWORK_BYTES_MAX)
        )));
    }
    Network::from_toml(&text, &shown).map_err(|error| Failure::Failed(error.to_string()))
}

fn for_people(args: &SimCastArgs, report: &Report) -> String {
    let mut rows = vec![["NODE", "TIME"].map(str::to_owned)];
    rows.extend(report.nodes.iter().map(|node| {
        let time = node.finish_s.map_or_else(|| "-".to_owned(), seconds);
        [escape(&node.node).into_owned(), time]
    }));
    format!(
        "{}\n\n{} by {} in {}, {:.2} x the limit of {}; {} between clusters",
        table(&rows),
        args.size,
        report.protocol,
        seconds(report.finish_s),
        report.ratio,
        seconds(report.limit_s),
        Bytes(report.wan_bytes),
    )
}

/// Runs random cases.
///
/// # Errors
/// If one of them goes wrong; each is printed with the command that repeats it.
pub(super) fn fuzz(args: &SimFuzzArgs) -> Result<(), Failure> {
    let report = outpour_sim::fuzz::fuzz(FuzzConfig {
        first: args.seed,
        seeds: args.seeds,
        threads: args.threads,
        protocol: None,
    });
    if args.output.json {
        out::json(&report);
    } else if !args.output.quiet {
        out::result(fuzzed(&report));
    }
    if report.failures.is_empty() {
        return Ok(());
    }
    for failure in &report.failures {
        out::complain(format!(
            "seed {}, {}: {}; repeat it with: {}",
            failure.seed,
            failure.protocol,
            escape(&failure.what),
            failure.command
        ));
    }
    Err(Failure::Reported)
}

fn fuzzed(report: &FuzzReport) -> String {
    let counts = |counts: &BTreeMap<&'static str, u64>| {
        let shown = counts.iter().map(|(name, count)| format!("{name} {count}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    format!(
        "runs of each protocol: {}\nruns that met each fault: {}\n{} of {} seeds failed, in {}",
        counts(&report.protocols),
        counts(&report.faults),
        report.failures.len(),
        report.seeds,
        seconds(report.took_s),
    )
}
