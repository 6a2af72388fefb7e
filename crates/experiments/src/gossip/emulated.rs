//! The experiments with real agents in the emulator.

use std::fs;
use std::path::PathBuf;

use outpour_core::{Bytes, NodeId};

use super::cast::{CAST_MAX, COPIES, Cast};
use super::liar::{HONEST, LYING, WRONG, judge};
use super::report::Trial;
use super::stage::Stage;
use super::{Context, Found, need, node, peer, plain, simulated};
use crate::ExperimentError;
use crate::lab::{Lab, median, once, repeat, sound};

type Outcome<T> = Result<T, ExperimentError>;

/// The paper's rates, Mbit/s.
const RATE: f64 = 15.0;
const LOW_RATE: f64 = 10.0;
/// The paper's nodes and object, and those of a short run.
const NODES: usize = 20;
const NODES_SHORT: usize = 6;
const SIZE: Bytes = Bytes(100_000_000);
const SIZE_SHORT: Bytes = Bytes(4_000_000);
/// That of a short run in which processes are killed: time enough to see when.
const SIZE_CHURN: Bytes = Bytes(16_000_000);
/// Blocks of 2 MiB that make an object of `objects`.
const OBJECT_BLOCKS: u64 = 16;
/// How often the casts are made that a promise speaks of; the median counts.
const REPEATS: u64 = 3;
/// The receivers at half rate in `half`, counted from the last.
const SLOW: usize = 3;
/// The receivers that are killed in `churn`, and in a short run.
const VICTIMS: [usize; 2] = [5, 11];
const VICTIMS_SHORT: [usize; 2] = [2, 4];

/// Nodes of `liar`, and the one that lies.
const LIAR_NODES: usize = 10;
const LIAR: usize = 4;

/// What the series are called.
pub(crate) const PLAIN: &str = "plain TCP copy";
pub(crate) const DEFAULT: &str = "coded, default settings";
pub(crate) const BEST: &str = "coded, best settings";
pub(crate) const ONE: &str = "coded, one batch, one encoder";
pub(crate) const TWO: &str = "coded, one batch, two encoders";
pub(crate) const THREE: &str = "coded, three batches, overlap-2";
pub(crate) const RANDOM: &str = "random block";
pub(crate) const CHAIN: &str = "chain";
pub(crate) const CHAIN_BEST: &str = "chain, best settings";
pub(crate) const SWARM: &str = "swarm";
/// Those of `blocks`.
pub(crate) const ONE_ENCODER: &str = "one encoder, 15 Mbit/s";
pub(crate) const TWO_ENCODERS: &str = "two encoders, 15 Mbit/s";
pub(crate) const SLOWER: &str = "one encoder, 10 Mbit/s";
pub(crate) const SMALL: &str = "small batches, 15 Mbit/s";
pub(crate) const UNCODED: &str = "random block, 15 Mbit/s";

/// Options of a cast: by protocol and what follows.
fn options(protocol: &str, more: &[&str]) -> Vec<String> {
    let first = ["--protocol", protocol];
    let all = first.iter().chain(more);
    all.map(ToString::to_string).collect()
}

/// A network of equal nodes, of which some may be slower.
fn network(nodes: usize, rate: f64, slow: usize) -> String {
    let mut toml = format!(
        "[[cluster]]\nname = \"n\"\nnodes = {nodes}\nnode_out = \"{rate} Mbit/s\"\n\
         node_in = \"{rate} Mbit/s\"\n"
    );
    for index in nodes - slow..nodes {
        let half = rate / 2.0;
        toml.push_str(&format!(
            "[[node]]\nname = \"{}\"\nout = \"{half} Mbit/s\"\nin = \"{half} Mbit/s\"\n",
            node(index)
        ));
    }
    toml
}

/// What the casts of an experiment share.
struct Bench<'a> {
    context: &'a Context<'a>,
    lab: Lab,
    nodes: usize,
    size: Bytes,
    source: PathBuf,
    found: Found,
}

impl<'a> Bench<'a> {
    fn new(context: &'a Context<'a>) -> Outcome<Self> {
        Self::with(context, SIZE_SHORT)
    }

    /// With an object of that size in a short run.
    fn with(context: &'a Context<'a>, short: Bytes) -> Outcome<Self> {
        let options = context.options;
        let lab = Lab::new(&options.program, "outpour-gossip-")?;
        let size = if options.short { short } else { SIZE };
        let home = lab.path("home");
        fs::create_dir_all(&home).map_err(|e| ExperimentError::file(&home, &e))?;
        let nodes = if options.short { NODES_SHORT } else { NODES };
        Ok(Self {
            source: lab.object("home/object", size, options.seed)?,
            context,
            lab,
            nodes,
            size,
            found: Found::default(),
        })
    }

    /// Keeps what was measured, or why it was not.
    fn keep(&mut self, trial: Trial, measured: Outcome<Trial>) {
        let trial = measured.unwrap_or_else(|error| trial.failed(&error));
        (self.context.progress)(format_args!("{}", trial.in_words()));
        self.found.trials.push(trial);
    }

    fn cast<'b>(&'b self, network: &'b str, options: Vec<String>, seed: u64) -> Cast<'b> {
        Cast {
            network,
            mode: self.context.options.mode,
            nodes: self.nodes,
            source: &self.source,
            size: self.size,
            options,
            seed,
            traced: false,
            liar: None,
        }
    }

    /// Casts so often; the trial of the median counts.
    fn measure(&mut self, trial: Trial, rate: f64, slow: usize, options: &[String], times: u64) {
        let network = network(self.nodes, rate, slow);
        let seed = self.context.options.seed;
        let seeds = seed..seed + if self.context.options.short { 1 } else { times };
        let done = repeat(seeds, |seed| {
            let cast = self.cast(&network, options.to_vec(), seed);
            cast.run(&self.lab, trial.clone())
        });
        let done = done.and_then(|trials| {
            let times = trials.iter().filter_map(|it| it.finish_s).collect();
            let middle = median(times);
            let mut chosen = trials.iter().find(|it| it.finish_s == middle).cloned();
            if let Some(chosen) = &mut chosen {
                spread(chosen, &trials);
            }
            chosen.ok_or_else(|| ExperimentError::Setup("nothing was cast".to_owned()))
        });
        self.keep(trial, done);
    }

    /// One plain copy.
    fn plain(&mut self) {
        let trial = Trial::new(PLAIN, None);
        let network = network(self.nodes, RATE, 0);
        let measured = once(|| {
            let stage = Stage::open(&self.lab, &network, self.context.options.mode)?;
            let ends = [&*node(0), &*node(1)];
            let seconds = plain::copy(&self.lab, &stage, ends, self.size, CAST_MAX)?;
            sound(stage.close()?.as_deref(), seconds)?;
            let mut trial = trial.clone();
            trial.finish_s = Some(seconds);
            Ok(trial)
        });
        self.keep(trial, measured);
    }

    fn peer(&mut self) {
        if !self.context.options.peer {
            let why = "the BitTorrent client: give --peer aria2 to compare with it";
            return self.found.left_out.push(why.to_owned());
        }
        let trial = Trial::new("BitTorrent: aria2", None);
        let network = network(self.nodes, RATE, 0);
        let measured = once(|| {
            let stage = Stage::open(&self.lab, &network, self.context.options.mode)?;
            let measured = peer::race(&self.lab, &stage, &self.source, self.nodes, CAST_MAX);
            let emulation = stage.close()?;
            self.lab.clear(COPIES)?;
            let trial = measured?;
            sound(emulation.as_deref(), trial.finish_s.unwrap_or_default())?;
            Ok(trial)
        });
        self.keep(trial, measured);
    }
}

/// Notes how far the others were from the one that counts.
fn spread(chosen: &mut Trial, all: &[Trial]) {
    let times = || all.iter().filter_map(|it| it.finish_s);
    chosen.set("min_s", times().fold(f64::INFINITY, f64::min));
    chosen.set("max_s", times().fold(0.0, f64::max));
    chosen.set("casts", all.len() as f64);
}

/// The default settings: nothing is said but the protocol.
fn default() -> Vec<String> {
    options("coded-gossip", &[])
}

/// Figures 9 to 15.
pub(super) fn blocks(context: &Context<'_>) -> Outcome<Found> {
    let mut bench = Bench::new(context)?;
    let whole = [
        ("8 MiB", 12),
        ("4 MiB", 24),
        ("2 MiB", 48),
        ("1 MiB", 96),
        ("512 KiB", 191),
    ];
    let short = context.options.short;
    let of = |which: &[usize]| -> Vec<(&str, u16)> {
        if short {
            return vec![("128 KiB", 31)];
        }
        let which = which.iter();
        which.filter_map(|at| whole.get(*at).copied()).collect()
    };
    let plan = [
        (ONE_ENCODER, RATE, "1", of(&[0, 2, 3, 4])),
        (TWO_ENCODERS, RATE, "2", of(&[2, 4])),
        (SLOWER, LOW_RATE, "1", of(&[2, 4])),
    ];
    for (series, rate, encoders, sizes) in plan {
        for (block, k) in sizes {
            let trial = Trial::new(series, Some(f64::from(k)));
            let k = k.to_string();
            let more = [
                "--block",
                block,
                "--batch-blocks",
                &k,
                "--encoders",
                encoders,
            ];
            let mut more = options("coded-gossip", &more);
            more.extend(["--schedule", "sequential"].map(str::to_owned));
            bench.measure(trial, rate, 0, &more, 1);
        }
    }
    let small = [("256 KiB", 16_u16), ("64 KiB", 64), ("16 KiB", 256)];
    for (block, k) in small.into_iter().take(if short { 1 } else { small.len() }) {
        let trial = Trial::new(SMALL, Some(f64::from(k)));
        let k = k.to_string();
        let more = ["--block", block, "--batch-blocks", &k];
        bench.measure(trial, RATE, 0, &options("coded-gossip", &more), 1);
    }
    for (block, k) in of(&[2, 4]) {
        let trial = Trial::new(UNCODED, Some(f64::from(k)));
        bench.measure(
            trial,
            RATE,
            0,
            &options("random-block", &["--block", block]),
            1,
        );
    }
    Ok(bench.found)
}

/// Figures 16 and 17.
pub(super) fn compare(context: &Context<'_>) -> Outcome<Found> {
    need(plain::PROGRAM, plain::PACKAGE)?;
    if context.options.peer {
        need(peer::PROGRAM, peer::PACKAGE)?;
    }
    let mut bench = Bench::new(context)?;
    let coded = |more: &[&str]| options("coded-gossip", more);
    // What fits beneath the rate with all headers, so that queues stay short and nothing is dropped.
    let limit = format!("{} Mbit/s", RATE * 0.95);
    let small = ["--block", "32KiB", "--batch-blocks", "64"];
    let best = [&small[..], &["--limit", &limit]].concat();
    // Here the acknowledgements of what a node sends have to find room beside what it receives.
    let chain_limit = format!("{} Mbit/s", RATE * 0.935);
    let chain_best = ["--block", "32KiB", "--limit", &chain_limit];
    let one = [
        "--block",
        "512 KiB",
        "--batch-blocks",
        "191",
        "--schedule",
        "sequential",
    ];
    let three = [
        "--block",
        "2 MiB",
        "--batch-blocks",
        "16",
        "--schedule",
        "overlap-2",
    ];
    bench.plain();
    let casts = [
        (DEFAULT, default(), REPEATS),
        (BEST, coded(&best), REPEATS),
        (ONE, coded(&one), 1),
        (TWO, coded(&[&one[..], &["--encoders", "2"]].concat()), 1),
        (THREE, coded(&three), 1),
        (RANDOM, options("random-block", &["--block", "1 MiB"]), 1),
        (CHAIN, options("chain", &[]), 1),
        (CHAIN_BEST, options("chain", &chain_best), REPEATS),
        (SWARM, options("swarm", &[]), 1),
    ];
    for (series, options, times) in casts {
        bench.measure(Trial::new(series, None), RATE, 0, &options, times);
        if context.options.short {
            break;
        }
    }
    bench.peer();
    Ok(bench.found)
}

/// Figures 18 to 21.
pub(super) fn objects(context: &Context<'_>) -> Outcome<Found> {
    let mut bench = Bench::new(context)?;
    let block = if context.options.short {
        64 << 10
    } else {
        2 << 20
    };
    let name = format!("{:#}", Bytes(block));
    let network = network(bench.nodes, RATE, 0);
    let all: &[u64] = if context.options.short { &[2] } else { &[2, 3] };
    for objects in all {
        let directory = bench.lab.path(&format!("objects-{objects}"));
        fs::create_dir_all(&directory).map_err(|e| ExperimentError::file(&directory, &e))?;
        for object in 0..*objects {
            let path = format!("objects-{objects}/{object}");
            let seed = context.options.seed + object;
            bench
                .lab
                .object(&path, Bytes(OBJECT_BLOCKS * block), seed)?;
        }
        for schedule in ["sequential", "overlap-1", "overlap-2", "stream"] {
            let trial = Trial::new(schedule, Some(*objects as f64));
            let k = OBJECT_BLOCKS.to_string();
            let more = [
                "--block",
                &name,
                "--batch-blocks",
                &k,
                "--schedule",
                schedule,
            ];
            let done = once(|| {
                let cast = Cast {
                    source: &directory,
                    size: Bytes(OBJECT_BLOCKS * block * objects),
                    traced: *objects == 2,
                    ..bench.cast(
                        &network,
                        options("coded-gossip", &more),
                        context.options.seed,
                    )
                };
                cast.run(&bench.lab, trial.clone())
            });
            bench.keep(trial, done);
        }
    }
    Ok(bench.found)
}

/// Three receivers at half rate.
pub(super) fn half(context: &Context<'_>) -> Outcome<Found> {
    need(plain::PROGRAM, plain::PACKAGE)?;
    let mut bench = Bench::new(context)?;
    bench.plain();
    bench.measure(Trial::new(DEFAULT, None), RATE, SLOW, &default(), 1);
    let fast = 1..bench.nodes - SLOW;
    if let Some(trial) = bench.found.trials.last_mut() {
        let times = fast.map(|index| trial.value(&format!("finish_{}_s", node(index))));
        let times: Option<Vec<f64>> = times.collect();
        let last = times.map(|times| times.into_iter().fold(0.0, f64::max));
        if let Some(last) = last {
            trial.set("others_finish_s", last);
        }
    }
    Ok(bench.found)
}

/// Two receivers and the source are killed.
pub(super) fn churn(context: &Context<'_>) -> Outcome<Found> {
    let mut bench = Bench::with(context, SIZE_CHURN)?;
    let network = network(bench.nodes, RATE, 0);
    let victims = if context.options.short {
        VICTIMS_SHORT
    } else {
        VICTIMS
    };
    let trial = Trial::new(DEFAULT, None);
    let done = once(|| {
        let cast = bench.cast(&network, default(), context.options.seed);
        cast.survive(&bench.lab, victims, trial.clone())
    });
    bench.keep(trial, done);
    Ok(bench.found)
}

/// One node sends wrong packets.
pub(super) fn liar(context: &Context<'_>) -> Outcome<Found> {
    let mut bench = Bench::with(context, SIZE_CHURN)?;
    if !context.options.short {
        bench.nodes = LIAR_NODES;
    }
    let network = network(bench.nodes, RATE, 0);
    let seed = context.options.seed;
    let name = node(LIAR);
    for (series, liar) in [(HONEST, None), (LYING, Some((LIAR, WRONG)))] {
        let trial = Trial::new(series, None);
        let seeds = seed..seed + if context.options.short { 1 } else { REPEATS };
        let runs = repeat(seeds, |seed| {
            let cast = Cast {
                liar,
                ..bench.cast(&network, default(), seed)
            };
            cast.beware(&bench.lab, LIAR)
        });
        let judged = runs.map(|runs| judge(trial.clone(), &runs, liar.map(|_| &*name)));
        bench.keep(trial, judged);
    }
    let liar = NodeId(LIAR as u32);
    for trial in simulated::liar(context, bench.nodes as u32, bench.size, liar)? {
        bench.keep(trial.clone(), Ok(trial));
    }
    Ok(bench.found)
}
