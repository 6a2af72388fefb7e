//! What the simulator costs, and that random faults find nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::context::Context;
use crate::process::{Ended, Process};
use crate::result::Measured;

const NODES: u64 = 200;
const BLOCKS: u64 = 10_000;
const BLOCK: u64 = 65_536;

/// Seconds of one core the largest simulation may take.
const LIMIT_S: f64 = 10.0;

const SEEDS: u32 = 2_000;

/// What a fuzzing run reports, what of it is needed here.
#[derive(Debug, Deserialize)]
struct Fuzzed {
    seeds: u64,
    events: u64,
    protocols: BTreeMap<String, u64>,
    failures: Vec<serde_json::Value>,
}

/// Seeds an hour.
const SEEDS_REQUIRED: f64 = 20_000.0;

const PATIENCE: Duration = Duration::from_secs(1800);

pub(super) fn cost(context: &Context) -> anyhow::Result<Measured> {
    let ended = simulate(context, NODES, BLOCKS)?;
    let cpu_s = *context.simulation_s.get_or_init(|| ended.cpu_s);
    Ok(Measured {
        baseline: format!("{LIMIT_S:.1} s"),
        ours: format!("{cpu_s:.2} s"),
        ratio: cpu_s / LIMIT_S,
        detail: format!(
            "{:.0} ns per node and block; {:.2} s of wall-clock time, at most {} resident",
            cpu_s * 1e9 / (NODES * BLOCKS) as f64,
            ended.wall_s,
            ended.peak
        ),
        command: ended.command,
    })
}

pub(super) fn growth(context: &Context) -> anyhow::Result<Measured> {
    let whole_s = match context.simulation_s.get() {
        Some(seconds) => *seconds,
        None => simulate(context, NODES, BLOCKS)?.cpu_s,
    };
    let half_nodes = simulate(context, NODES / 2, BLOCKS)?;
    let half_blocks = simulate(context, NODES, BLOCKS / 2)?;
    let (nodes_s, blocks_s) = (half_nodes.cpu_s, half_blocks.cpu_s);
    let least = nodes_s.min(blocks_s);
    let each = |seconds: f64, share: u64| {
        let nanoseconds = seconds * 1e9 * share as f64 / (NODES * BLOCKS) as f64;
        format!("{nanoseconds:.0} ns")
    };
    Ok(Measured {
        baseline: each(least, 2),
        ours: each(whole_s, 1),
        ratio: whole_s / (2.0 * least),
        detail: format!(
            "{NODES} nodes x {BLOCKS} blocks {whole_s:.2} s, {} x {BLOCKS} {nodes_s:.2} s, \
             {NODES} x {} {blocks_s:.2} s of processor time",
            NODES / 2,
            BLOCKS / 2
        ),
        command: half_nodes.command,
    })
}

pub(super) fn fuzz(context: &Context) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let seeds = SEEDS.to_string();
    let args = ["sim", "fuzz", "--seeds", &seeds, "--json"];
    let process = Process::start(&context.outpour, &args, place.path(), "fuzz")?;
    // A seed that fails makes the command fail, and the row with it.
    let ended = process.wait(PATIENCE)?.success()?;
    let fuzzed: Fuzzed = serde_json::from_str(&ended.stdout)
        .with_context(|| format!("`{}`: {}", ended.command, ended.stdout))?;
    ensure!(
        fuzzed.seeds == u64::from(SEEDS) && fuzzed.failures.is_empty(),
        "`{}`: {} seeds were run, {} failed",
        ended.command,
        fuzzed.seeds,
        fuzzed.failures.len()
    );
    let protocols: Vec<&str> = fuzzed.protocols.keys().map(String::as_str).collect();
    let rate = f64::from(SEEDS) / ended.wall_s * 3600.0;
    Ok(Measured {
        baseline: format!("{SEEDS_REQUIRED:.0}/h"),
        ours: format!("{rate:.0}/h"),
        ratio: rate / SEEDS_REQUIRED,
        detail: format!(
            "{SEEDS} seeds of {} with {} events in {:.2} s, {:.2} s of processor time, all clean",
            protocols.join(", "),
            fuzzed.events,
            ended.wall_s,
            ended.cpu_s
        ),
        command: ended.command,
    })
}

/// Casts `blocks` blocks by swarm among `nodes` equal nodes in virtual time.
fn simulate(context: &Context, nodes: u64, blocks: u64) -> anyhow::Result<Ended> {
    let place = context.place()?;
    let network = place.path().join("network.toml");
    std::fs::write(
        &network,
        format!(
            "[[cluster]]\nname = \"a\"\nnodes = {nodes}\nnode_out = \"100 MB/s\"\n\
             node_in = \"100 MB/s\"\n"
        ),
    )?;
    let (network, size) = (
        network.display().to_string(),
        format!("{} B", blocks * BLOCK),
    );
    let block = format!("{} KiB", BLOCK / 1024);
    let args = [
        "sim",
        "cast",
        "--network",
        &network,
        "--root",
        "a",
        "--size",
        &size,
        "--block",
        &block,
        "--protocol",
        "swarm",
        "--json",
    ];
    let process = Process::start(&context.outpour, &args, place.path(), "sim")?;
    let mut ended = process.wait(PATIENCE)?.success()?;
    ended.command = ended.command.replace(&network, "network.toml");
    Ok(ended)
}
