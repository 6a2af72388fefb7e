//! The experiments in the simulator.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Rate, Time};
use outpour_protocols::{direct, gossip};
use outpour_sim::cast::{CastConfig, NodeReport, SimReport, simulate_over};
use outpour_sim::fault::{Fault, FaultKind};
use outpour_sim::parallel::in_parallel;
use outpour_sim::rounds::{BatchOrder, Config, Scheme, run};
use outpour_sim::transport::{Tcp, Transport};
use outpour_terms::Asked;

use super::emulated::PLAIN;
use super::liar::{Accusation, HONEST_SIMULATED, LYING_SIMULATED, Run, WRONG, judge};
use super::report::Trial;
use super::{Context, Found};
use crate::ExperimentError;

type Outcome<T> = Result<T, ExperimentError>;

/// Blocks of a batch where there is one, and where there are several.
const BLOCKS: u16 = 200;
const BATCH_BLOCKS: u16 = 40;
/// Nodes where there are several batches.
const BATCH_NODES: [u32; 2] = [100, 300];
const SEEDS: u32 = 200;
/// Seeds where only an average counts.
const SEEDS_FEW: u32 = 20;

/// What the series are called.
pub(crate) const CODED: &str = "coded";
pub(crate) const RANDOM: &str = "random block";
pub(crate) const GIGABIT: &str = "coded, default settings";

/// The orders in which batches go, with what they are called.
pub(crate) const ORDERS: [(&str, BatchOrder); 4] = [
    ("sequential", BatchOrder::Sequential),
    ("overlap-1", BatchOrder::Overlap1),
    ("overlap-2", BatchOrder::Overlap2),
    ("hindsight", BatchOrder::Hindsight),
];

/// Gossip in rounds.
pub(super) fn rounds(context: &Context<'_>) -> Outcome<Found> {
    let short = context.options.short;
    let seeds = |full: u32| if short { 3 } else { full };
    let nodes: &[u32] = if short {
        &[20, 50]
    } else {
        &[20, 50, 100, 200, 300]
    };
    let usual = Config {
        nodes: 0,
        blocks: BLOCKS,
        batches: 1,
        scheme: Scheme::Rlnc,
        order: BatchOrder::Sequential,
        slack: 1,
        seeds: seeds(SEEDS),
        seed: context.options.seed,
    };
    let mut jobs = Vec::new();
    for nodes in nodes.iter().rev() {
        let coded = Config {
            nodes: *nodes,
            ..usual
        };
        let random = Config {
            scheme: Scheme::RandomBlock,
            seeds: seeds(SEEDS_FEW),
            ..coded
        };
        let at = Some(f64::from(*nodes));
        jobs.push((Trial::new(CODED, at), coded));
        jobs.push((Trial::new(RANDOM, at), random));
    }
    let batches: &[u32] = if short { &[2, 3] } else { &[2, 3, 5, 8] };
    for nodes in BATCH_NODES.iter().take(if short { 1 } else { 2 }) {
        for (name, order) in ORDERS {
            for batches in batches {
                let config = Config {
                    nodes: *nodes,
                    blocks: BATCH_BLOCKS,
                    batches: *batches,
                    order,
                    seeds: seeds(SEEDS_FEW),
                    ..usual
                };
                let name = format!("{nodes} nodes, {name}");
                jobs.push((Trial::new(name, Some(f64::from(*batches))), config));
            }
        }
    }
    let mut trials = in_parallel(&jobs, 0, |(trial, config)| {
        let trial = play(trial.clone(), *config);
        (context.progress)(format_args!("{}", trial.in_words()));
        trial
    });
    trials.sort_by(|one, other| one.at.unwrap_or(0.0).total_cmp(&other.at.unwrap_or(0.0)));
    Ok(Found {
        trials,
        left_out: Vec::new(),
    })
}

fn play(mut trial: Trial, config: Config) -> Trial {
    let report = match run(config) {
        Ok(report) => report,
        Err(error) => return trial.failed(&ExperimentError::Setup(error.to_string())),
    };
    trial.set("mean_rounds", report.rounds.mean);
    trial.set("min_rounds", f64::from(report.rounds.min));
    trial.set("p95_rounds", f64::from(report.rounds.p95));
    trial.set("max_rounds", f64::from(report.rounds.max));
    trial.set("bound_rounds", f64::from(report.bound_rounds));
    trial.set("within_slack", report.within_slack);
    trial.set("saving_rounds", report.saving_rounds);
    trial.set("saving_bound_rounds", report.saving_bound_rounds);
    trial
}

/// The same rate as is emulated, and how often casts with a liar are simulated.
const LIAR_RATE: f64 = 15e6 / 8.0;
const LIAR_SEEDS: u64 = 5;
/// The largest packet where TCP carries the blocks.
const MTU: u32 = 1500;

/// All of so many nodes are honest, and then one sends wrong packets.
pub(super) fn liar(
    context: &Context<'_>,
    nodes: u32,
    size: Bytes,
    liar: NodeId,
) -> Outcome<Vec<Trial>> {
    let network = uniform(nodes, LIAR_RATE)?;
    let name = network.name(liar).to_owned();
    let options = context.options;
    let seeds = options.seed..options.seed + if options.short { 1 } else { LIAR_SEEDS };
    let seeds: Vec<u64> = seeds.collect();
    let both = [(HONEST_SIMULATED, false), (LYING_SIMULATED, true)];
    let trials = both.map(|(series, lies)| {
        let runs = in_parallel(&seeds, 0, |seed| {
            let mut config = config(&network, size, *seed);
            let kind = FaultKind::WrongBytes {
                node: liar,
                share: WRONG,
                packets_only: true,
            };
            let fault = Fault {
                at: Time::ZERO,
                lasts: None,
                kind,
            };
            config.faults.extend(lies.then_some(fault));
            cast(config).map(|report| seen(&report, &name))
        });
        let runs: Outcome<Vec<Run>> = runs.into_iter().collect();
        let trial = Trial::new(series, None);
        match runs {
            Err(error) => trial.failed(&error),
            Ok(runs) => judge(trial, &runs, lies.then_some(&name)),
        }
    });
    Ok(trials.into())
}

/// A simulated cast as it went for all but the liar.
fn seen(report: &SimReport, liar: &str) -> Run {
    let others = report.nodes.iter().filter(|it| it.node != liar);
    let last = |it: &NodeReport| it.finish_s.unwrap_or(f64::INFINITY);
    let accusations = report.accusations.iter().map(|it| Accusation {
        at_s: it.at_s,
        peer: it.peer.clone(),
    });
    Run {
        others_s: others.map(last).fold(0.0, f64::max),
        all_s: Some(report.finish_s),
        accusations: accusations.collect(),
        wrong_copies: 0,
    }
}

/// Nodes of `gigabit`, their rate and what is cast.
const FAST_NODES: u32 = 8;
const FAST_RATE: f64 = 1e9 / 8.0;
const FAST_SIZE: Bytes = Bytes(1_000_000_000);

/// Eight nodes with fast links.
pub(super) fn gigabit(context: &Context<'_>) -> Outcome<Found> {
    let size = if context.options.short {
        Bytes(FAST_SIZE.0 / 20)
    } else {
        FAST_SIZE
    };
    let mut found = Found::default();
    for (series, nodes, protocol) in [
        (PLAIN, 2, &direct::ENTRY),
        (GIGABIT, FAST_NODES, &gossip::CODED),
    ] {
        let network = uniform(nodes, FAST_RATE)?;
        let mut config = config(&network, size, context.options.seed);
        config.asked.protocol = Some(protocol);
        let trial = Trial::new(series, None);
        let trial = match cast(config) {
            Err(error) => trial.failed(&error),
            Ok(report) => coding(trial, &report),
        };
        (context.progress)(format_args!("{}", trial.in_words()));
        found.trials.push(trial);
    }
    Ok(found)
}

/// How long it took, and what of that coding kept a processor busy.
fn coding(mut trial: Trial, report: &SimReport) -> Trial {
    trial.finish_s = Some(report.finish_s);
    trial.set("limit_s", report.limit_s);
    if let Some(coding) = &report.coding {
        trial.set("batch_blocks", f64::from(coding.batch_blocks));
        trial.set("busy_share", coding.busy_share);
        if let Some(speed) = coding.speed_bytes_per_s {
            trial.set("speed_bytes_per_s", speed);
        }
    }
    trial
}

fn uniform(nodes: u32, bytes_per_s: f64) -> Outcome<Network> {
    let rate = Rate::from_bytes_per_s(bytes_per_s).unwrap_or(Rate::UNLIMITED);
    Ok(Network::uniform(nodes, rate, rate, Duration::ZERO)?)
}

fn config(network: &Network, size: Bytes, seed: u64) -> CastConfig {
    CastConfig {
        asked: Asked {
            protocol: Some(&gossip::CODED),
            seed: Some(seed),
            ..Asked::default()
        },
        ..CastConfig::new(network.clone(), NodeId(0), size)
    }
}

/// Simulates a cast over TCP.
fn cast(config: CastConfig) -> Outcome<SimReport> {
    let transport = Transport::Tcp(Tcp { mtu: MTU });
    simulate_over(transport, config).map_err(|error| ExperimentError::Setup(error.to_string()))
}
