//! The arguments of `outpour-lab bench`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use outpour_cli::args::emulate::EmulateMode;
use outpour_cli::args::{EXIT_CODES, Output};
use outpour_core::Rate;
use outpour_core::units::parse_duration;
use outpour_experiments::{
    ENTRIES, gossip, methods, push as pushes, replicate as replication, shuffle as shuffles,
    trust as trusts,
};

/// All experiments, and the page of them.
pub(crate) const ALL: &str = "all";
/// The page alone.
pub(crate) const PAGE: &str = "page";
/// The names of jobs.
pub(crate) const JOBS: &str = "jobs";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Grid(BenchGridArgs),
    Gossip(BenchGossipArgs),
    Replicate(BenchReplicateArgs),
    Shuffle(BenchShuffleArgs),
    Push(BenchPushArgs),
    Trust(BenchTrustArgs),
    /// Call others as a stranger does, as told on standard input
    #[command(hide = true)]
    Stranger,
    Foreground(ForegroundArgs),
    /// Run the tracker of a BitTorrent client in an emulated network
    #[command(hide = true)]
    Tracker,
}

/// Be latency-sensitive traffic between two nodes: send packets, or answer them
///
/// The sender sends at the high and at the low rate in turn until its input ends. It says in a file of
/// traffic what it sends, as a monitor of the link would, and in the end in another file when it sent
/// how much and how long each answer took.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ForegroundArgs {
    /// Answer what comes here
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    pub(crate) listen: Option<SocketAddr>,

    /// Send to who listens there
    #[arg(long, value_name = "ADDRESS", requires_all = ["high", "low", "traffic", "link", "output"])]
    pub(crate) to: Option<String>,

    /// The high rate, headers included
    #[arg(long, value_name = "RATE")]
    pub(crate) high: Option<Rate>,

    /// The low rate
    #[arg(long, value_name = "RATE")]
    pub(crate) low: Option<Rate>,

    /// How long each rate lasts
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5 s")]
    pub(crate) turn: Duration,

    /// The clusters that the traffic file names, as in `A D`
    #[arg(long, value_name = "FROM TO")]
    pub(crate) link: Option<String>,

    /// The file of traffic
    #[arg(long, value_name = "FILE")]
    pub(crate) traffic: Option<PathBuf>,

    /// Write what was measured to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Measure transfers between clusters, by every method
///
/// Repeats the experiments of the thesis on Balanced Multicasting, MOB and Robber, and compares every
/// method with the optimum. Each experiment writes a JSON file and plots.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchGridArgs {
    /// The experiments, or the page
    #[arg(required = true, value_name = "EXPERIMENT", value_parser = grid())]
    pub(crate) names: Vec<String>,

    /// Make everything small, to check that it works; the results mean nothing
    #[arg(long)]
    pub(crate) short: bool,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write the JSON files and plots to this directory
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    /// Only these methods, separated by commas
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(methods()))]
    pub(crate) only: Vec<String>,

    /// Another table of capacities for `gridlab`, in MB/s
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data: Option<PathBuf>,

    /// Number of simulations that run at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    /// Write the page to this file
    #[arg(long, value_name = "FILE", default_value = "docs/experiments/grid.md")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) page: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Measure coded gossip against its paper, other protocols and a BitTorrent client
///
/// Repeats the experiments of the paper on coded gossip, with real agents in the emulator, and compares
/// the results with the requirements. Each experiment writes a JSON file and plots. Needs root for the
/// emulator, and iperf3 for the plain copy.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchGossipArgs {
    /// The experiments, or the page
    #[arg(required = true, value_name = "EXPERIMENT", value_parser = gossip())]
    pub(crate) names: Vec<String>,

    /// Make everything small, to check that it works; the results mean nothing
    #[arg(long)]
    pub(crate) short: bool,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Also measure a BitTorrent client, which has to be installed
    #[arg(long, value_name = "CLIENT", value_enum)]
    pub(crate) peer: Option<Peer>,

    /// The unit on which the emulator's queues act
    #[arg(long, value_name = "MODE", value_enum, default_value_t = EmulateMode::Packet)]
    pub(crate) mode: EmulateMode,

    /// Write the JSON files and plots to this directory
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    /// Write the page to this file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "docs/experiments/gossip.md"
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) page: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Measure replication between sites under the central controller and other systems
///
/// Repeats the experiments of the paper on central scheduling in the simulator. Each experiment writes
/// a JSON file and plots.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchReplicateArgs {
    /// The experiments, or the page
    #[arg(required = true, value_name = "EXPERIMENT", value_parser = replicate())]
    pub(crate) names: Vec<String>,

    /// Make everything small, to check that it works; the results mean nothing
    #[arg(long)]
    pub(crate) short: bool,

    /// The first seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of simulations that run at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    /// Write the JSON files and plots to this directory
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    /// Write the page to this file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "docs/experiments/replicate.md"
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) page: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Measure shuffles against their paper, by every scheduler
///
/// Repeats the experiments of the paper on joint placement of reducers and scheduling of coflows, in the
/// simulator. Each experiment writes a JSON file and plots.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchShuffleArgs {
    /// The experiments, or the page
    #[arg(required = true, value_name = "EXPERIMENT", value_parser = shuffle())]
    pub(crate) names: Vec<String>,

    /// The public trace, in the format of the coflow benchmark
    #[arg(long, value_name = "FILE", default_value = "FB2010-1Hr-150-0.txt")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,

    /// Make everything small, to check that it works; the results mean nothing
    #[arg(long)]
    pub(crate) short: bool,

    /// Draw what is drawn this often
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) trials: u64,

    /// Number of shuffles at a time
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,

    /// The first seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of simulations that run at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    /// Write the JSON files and plots to this directory
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    /// Write the page to this file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "docs/experiments/shuffle.md"
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) page: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Measure parallel push from many sources against its paper and other protocols
///
/// Repeats the experiments of the paper on parallel push, packet by packet in the simulator. Each experiment
/// writes a JSON file and plots. It consists of jobs, which are independent of each other: what was done
/// before with the same settings is not done again, so that an experiment can be stopped and taken up, or
/// spread over machines that share the directory of jobs.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchPushArgs {
    /// The experiments, or the page; with `jobs`, only print the names of their jobs
    #[arg(required_unless_present = "job", value_name = "EXPERIMENT", value_parser = push())]
    pub(crate) names: Vec<String>,

    /// Run the job of this name alone, and write what it finds to the directory of jobs
    #[arg(long, value_name = "NAME", conflicts_with = "names")]
    pub(crate) job: Option<String>,

    /// Make everything small, to check that it works; the results mean nothing
    #[arg(long)]
    pub(crate) short: bool,

    /// The first seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of tasks of an instance
    #[arg(long, value_name = "N", default_value_t = pushes::PAPER_TASKS)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=18_000))]
    pub(crate) tasks: u32,

    /// Draw tasks this often, instead of as often as the paper: 20 times, and 50 for figure14b
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) instances: Option<u64>,

    /// Multiply the sizes of objects of tasks
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub(crate) size_factor: f64,

    /// The distribution of sizes: in each line packets and a cumulative probability
    #[arg(long, value_name = "FILE", default_value = "websearch.cdf")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) sizes: PathBuf,

    /// The links of a backbone: a table of `site_a,site_b,delay_ms`
    #[arg(long, value_name = "FILE", default_value = "b4-2018.csv")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) links: PathBuf,

    /// Number of jobs that run at a time; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    /// Keep what jobs find in this directory
    #[arg(long, value_name = "DIR", default_value = "push-jobs", value_hint = ValueHint::DirPath)]
    pub(crate) jobs: PathBuf,

    /// Write the JSON files and plots to this directory
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    /// Write the page to this file
    #[arg(long, value_name = "FILE", default_value = "docs/experiments/push.md")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) page: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Measure what strangers, rogues and long days cost
///
/// Real agents in the emulator, with and without what disturbs them, in turn. Each experiment writes a JSON
/// file. Needs root.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct BenchTrustArgs {
    /// The experiments
    #[arg(required = true, value_name = "EXPERIMENT", value_parser = trust())]
    pub(crate) names: Vec<String>,

    /// Make everything small, to check that it works; the results mean nothing
    #[arg(long)]
    pub(crate) short: bool,

    /// The first seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Make each cast this often; medians count
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) rounds: u64,

    /// Only these protocols or attacks of `rogue`, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(trusts::selectable()))]
    pub(crate) only: Vec<String>,

    /// How long `soak` takes
    #[arg(long, value_name = "TIME", default_value = "6 h", value_parser = duration)]
    pub(crate) soak: Duration,

    /// Write the JSON files and plots to this directory
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// A third-party program to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// aria2, package aria2 of Debian
    Aria2,
}

fn shuffle() -> PossibleValuesParser {
    experiments(
        shuffles::ENTRIES
            .iter()
            .map(|entry| (entry.name, entry.about)),
        None,
    )
}

fn trust() -> PossibleValuesParser {
    let named = trusts::ENTRIES.iter();
    let named = named.map(|entry| PossibleValue::new(entry.name).help(entry.about));
    let all = PossibleValue::new(ALL).help("all of them; what fails is reported at the end");
    PossibleValuesParser::new(named.chain([all]))
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.trim().parse().ok();
    let factor = factor.filter(|it: &f64| (1e-6..=1e6).contains(it));
    factor.ok_or_else(|| "expected a number from 0.000001 to 1000000".to_owned())
}

fn push() -> PossibleValuesParser {
    let entries = pushes::ENTRIES.iter();
    let jobs =
        PossibleValue::new(JOBS).help("print the names of jobs; of all if no experiment is named");
    experiments(entries.map(|entry| (entry.name, entry.about)), Some(jobs))
}

fn grid() -> PossibleValuesParser {
    experiments(ENTRIES.iter().map(|entry| (entry.name, entry.about)), None)
}

fn gossip() -> PossibleValuesParser {
    let entries = gossip::ENTRIES.iter();
    experiments(entries.map(|entry| (entry.name, entry.about)), None)
}

fn replicate() -> PossibleValuesParser {
    let entries = replication::ENTRIES.iter();
    experiments(entries.map(|entry| (entry.name, entry.about)), None)
}

/// Experiments by name, each with its line in the help, and what else may be asked for.
fn experiments(
    named: impl Iterator<Item = (&'static str, &'static str)>,
    besides: Option<PossibleValue>,
) -> PossibleValuesParser {
    let named = named.map(|(name, about)| PossibleValue::new(name).help(about));
    let more = [
        PossibleValue::new(ALL).help("all of them; what fails is reported at the end"),
        PossibleValue::new(PAGE).help("write the page that compares their findings"),
    ];
    PossibleValuesParser::new(named.chain(more).chain(besides))
}
