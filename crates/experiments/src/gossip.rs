//! The experiments of `outpour-lab bench gossip`: coded gossip, measured.
//!
//! Each repeats one of [Cooper §6] or puts a figure to a promise of this project: real agents in
//! the emulator, or the simulator where that is said. It leaves a JSON file and its plots; the page
//! that holds them against the paper is written from these files.

pub(crate) mod cast;
mod emulated;
mod facts;
mod liar;
pub mod page;
mod paper;
mod peer;
mod plain;
mod plots;
pub(crate) mod processor;
mod report;
mod simulated;
pub(crate) mod stage;
pub mod tracker;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{ExperimentError, draw, machine};

pub use report::{GossipReport, Trial};
pub use stage::Mode;

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct BenchGossipOptions {
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// Whether to make everything small, to see that it works.
    pub short: bool,
    /// Whether to compare with a BitTorrent client, aria2.
    pub peer: bool,
    /// How the emulator treats packets.
    pub mode: Mode,
    /// The program that is tried.
    pub program: PathBuf,
}

/// An experiment by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What is set up.
    pub setup: &'static str,
    run: fn(&Context<'_>) -> Result<Found, ExperimentError>,
}

/// What an experiment needs to run.
pub(crate) struct Context<'a> {
    pub(crate) options: &'a BenchGossipOptions,
    pub(crate) progress: &'a (dyn Fn(fmt::Arguments<'_>) + Sync),
}

/// What an experiment found.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) trials: Vec<Trial>,
    pub(crate) left_out: Vec<String>,
}

/// Every experiment, in the order of the paper.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "rounds",
        about: "gossip in rounds against what the analysis says of it",
        setup: "`outpour-lab sim gossip` with real coefficient vectors over GF(2^8): k = 200 blocks, 20 \
                to 300 nodes, 200 seeds; random blocks likewise with 20 seeds. Several batches have \
                40 blocks each. `hindsight` is the schedule that Theorem 2 speaks of, which knows \
                when a batch will be finished.",
        run: simulated::rounds,
    },
    Entry {
        name: "blocks",
        about: "finish time over the number of blocks, encoders and rates",
        setup: "20 nodes, 100 MB, 15 and 10 Mbit/s, real agents in the emulator. Blocks of this \
                project are powers of two, so k is 12, 24, 48, 96 or 191 where the whole file is one \
                batch. `small batches` are those of 4 MiB that this project codes in, with as many \
                blocks as stand on the axis. Transfer time is the finish time over the number of blocks.",
        run: emulated::blocks,
    },
    Entry {
        name: "compare",
        about: "coded gossip, other protocols, a plain copy and a BitTorrent client",
        setup: "the same network at 15 Mbit/s. `plain TCP copy` is iperf3 from the source to one \
                receiver, and what all ratios are relative to. One batch means k = 191 blocks of \
                512 KiB, three batches 16 blocks of 2 MiB each. The default settings are what Outpour \
                chooses; the best add `--block 32KiB --batch-blocks 64 --limit \"14.25 Mbit/s\"` \
                for coded gossip, `--block 32KiB --limit \"14.025 Mbit/s\"` for the chain: smaller \
                pieces can be passed on sooner, and nodes send no faster than the network takes it. \
                Processor use is user and system time of a node's process in each second, of one \
                core.",
        run: emulated::compare,
    },
    Entry {
        name: "objects",
        about: "two and three objects: sequential, overlap-1, overlap-2 and stream",
        setup: "objects of 32 MiB in one cast, each one batch of 16 blocks of 2 MiB, a third of the \
                paper's 100 MB: what counts is k and the number of nodes.",
        run: emulated::objects,
    },
    Entry {
        name: "half",
        about: "three of nineteen receivers at half rate",
        setup: "as compare, default settings; n17, n18 and n19 have 7.5 Mbit/s each way.",
        run: emulated::half,
    },
    Entry {
        name: "churn",
        about: "two receivers killed at half time, and then the source",
        setup: "as compare, default settings. The processes of n5 and n11 are killed when receivers \
                have received half of the file on average, the process of the source when the first \
                receiver's rank is full. Every copy of the survivors is compared with the source, \
                byte by byte.",
        run: emulated::churn,
    },
    Entry {
        name: "liar",
        about: "one of ten nodes sends 5 % wrong packets",
        setup: "10 nodes at 15 Mbit/s, 100 MB, coded gossip with default settings, real agents in the \
                emulator. n4's agent is that of the others but for this: of the packets it sends, one \
                in twenty has a wrong byte. What it takes, asks for and says is true. Every copy of the \
                others is compared with the source, byte by byte. Medians of three casts; the slowest \
                naming and all accusations count. Beside it the simulator, five seeds.",
        run: emulated::liar,
    },
    Entry {
        name: "gigabit",
        about: "eight nodes at 1 Gbit/s",
        setup: "the simulator, with TCP and coding taking time: one core per node multiplies and \
                adds 10 GB of blocks per second. The plain copy is simulated too, to one receiver.",
        run: simulated::gigabit,
    },
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// Runs the experiment; `progress` is told each measurement as it is made.
    ///
    /// # Errors
    /// If nothing could be measured. A trial that fails is part of the report.
    pub fn run(
        &self,
        options: &BenchGossipOptions,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Result<GossipReport, ExperimentError> {
        let begun = machine::now();
        let Found { trials, left_out } = (self.run)(&Context { options, progress })?;
        Ok(GossipReport {
            name: self.name.to_owned(),
            title: self.about.to_owned(),
            short: options.short,
            seed: options.seed,
            mode: options.mode.name().to_owned(),
            date: machine::date(),
            machine: machine::describe(),
            wall_s: begun.elapsed().as_secs_f64(),
            left_out,
            trials,
        })
    }
}

impl GossipReport {
    /// The facts as people read them in a terminal.
    pub fn for_people(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.title);
        for fact in facts::of(self) {
            let held = match fact.held {
                Some(true) => ", reached",
                Some(false) => ", missed",
                None => "",
            };
            text.push_str(&format!("  {}: {}{held}\n", fact.what, fact.ours));
        }
        for trial in &self.trials {
            text.push_str(&format!("  {}\n", trial.in_words()));
        }
        for reason in &self.left_out {
            text.push_str(&format!("  left out: {reason}\n"));
        }
        text + &format!("{:.0} s", self.wall_s)
    }
}

/// What the files of an experiment begin with.
fn file_name(experiment: &str) -> String {
    format!("gossip-{experiment}")
}

/// Writes a report and its plots into a directory, which is made if it is missing.
///
/// # Errors
/// If they cannot be written.
pub fn save(report: &GossipReport, output: &Path) -> Result<(), ExperimentError> {
    std::fs::create_dir_all(output).map_err(|e| ExperimentError::file(output, &e))?;
    let mut text = serde_json::to_string(report).map_err(|e| ExperimentError::file(output, &e))?;
    text.push('\n');
    let write = |name: String, text: &str| {
        let path = output.join(name);
        std::fs::write(&path, text).map_err(|e| ExperimentError::file(&path, &e))
    };
    write(format!("{}.json", file_name(&report.name)), &text)?;
    for plot in plots::of(report) {
        write(format!("{}.svg", plot.name), &draw::draw(&plot))?;
    }
    Ok(())
}

/// A node of the emulated networks, the source being the first.
fn node(index: usize) -> String {
    format!("n{index}")
}

/// All nodes but the source.
fn receivers(nodes: usize) -> impl Iterator<Item = String> {
    (1..nodes).map(node)
}

/// Refuses where a program is not installed, before anything is measured in vain.
pub(crate) fn need(program: &str, package: &str) -> Result<(), ExperimentError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
        return Ok(());
    }
    Err(ExperimentError::Setup(format!(
        "no {program} here, which this is compared with: apt-get install {package}"
    )))
}
