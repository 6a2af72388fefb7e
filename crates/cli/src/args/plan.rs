//! The arguments of `outpour plan`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand, ValueHint};
use outpour_core::Bytes;
use outpour_planner::multicast::Method;

use super::replicate::{Replication, file_of_jobs};
use super::{EXIT_CODES, Output};
use crate::values;

/// Every method, to compare them.
pub(crate) const ALL: &str = "all";

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    Multicast(PlanMulticastArgs),
    Replicate(Box<PlanReplicateArgs>),
    Shuffle(PlanShuffleArgs),
}

/// Plan the trees along which an object gets from its sources to all other nodes
///
/// Prints the trees and their rates, their total throughput, and the bound that no plan can exceed.
/// The plan can be drawn, and executed by `outpour cast` and `outpour sim cast` with --plan.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = EXAMPLES)]
pub(crate) struct PlanMulticastArgs {
    /// The network, a TOML file of clusters and links [default: the clusters of the script]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "script")]
    pub(crate) network: Option<PathBuf>,

    /// A node that has the object; repeat for several. A cluster's name stands for its first node
    #[arg(long = "root", value_name = "NODE", required = true)]
    pub(crate) roots: Vec<String>,

    /// Method by which the trees are found
    #[arg(short, long, value_name = "NAME", default_value = "optimal", value_parser = methods())]
    pub(crate) method: String,

    /// Plan for the network as this script leaves it at the start of a transfer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) script: Option<PathBuf>,

    /// Also print the least possible time for an object of this size while the script continues
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) size: Option<Bytes>,

    /// Draw the plan to this file
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Write the plan to this file as JSON, for --plan of other commands
    #[arg(short, long, value_name = "FILE.json", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Print least times of jobs between sites, and the central controller's first decision
///
/// The first decision is that for the first cycle and the jobs that begin with it: who sends whom how
/// much and how fast. Later ones depend on what was received; `outpour sim replicate` makes them.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = file_of_jobs("0 done; 1 failed"))]
pub(crate) struct PlanReplicateArgs {
    #[command(flatten)]
    pub(crate) replication: Replication,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Plan where the reducers of a shuffle go and how fast its flows are
///
/// Prints the host of each reducer, the rates of all flows, how long the shuffle takes, and a bound that
/// no placement can beat. Hosts' own rates are taken for the only limits, as in a network whose switches
/// carry everything.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = SHUFFLE)]
pub(crate) struct PlanShuffleArgs {
    /// What mappers hold for reducers, a TOML file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) job: PathBuf,

    /// The network, a TOML file of clusters of hosts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) network: PathBuf,

    /// Also simulate the shuffle by every scheduler of `outpour sim shuffle`
    #[arg(long)]
    pub(crate) compare: bool,

    /// Draw the plan to this file
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Seed of places that are drawn, with --compare
    #[arg(long, value_name = "N", default_value_t = 1, requires = "compare")]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) output: Output,
}

const SHUFFLE: &str = "\
A file of a shuffle:

  hosts = [\"d\", \"e\", \"f\"]   # may run reducers; a cluster stands for its hosts; default: all
  per_host = 2              # so many reducers each at most; default: no limit
  reducers = [\"x\", \"y\"]     # names; default: r0, r1, ...
  matrix = \"sizes.csv\"      # what mappers hold; the first line is `host,x,y`; or:

  [[mapper]]
  host = \"a\"
  sends = [\"200 MB\", \"1 GB\"]  # to each reducer

  [limits]                  # of reducers on single hosts
  e = 1

  [started]                 # reducers that run already stay
  x = \"d\"

Exit codes: 0 done; 1 failed, the message says why; 2 the command line is wrong.";

const EXAMPLES: &str = "\
Examples:
  outpour plan multicast --network grid.toml --root fs0 --method all
  outpour plan multicast --network grid.toml --root fs0 --svg plan.svg --output plan.json
  outpour sim cast --network grid.toml --root fs0 --size \"2 GB\" --protocol tree --plan plan.json

Exit codes: 0 done; 1 failed, the message says why; 2 the command line is wrong.";

/// The methods by name, each with its line in the help.
fn methods() -> PossibleValuesParser {
    let named = Method::ALL.map(|method| PossibleValue::new(method.name()).help(method.about()));
    let all = PossibleValue::new(ALL).help("every method, to compare them");
    PossibleValuesParser::new(named.into_iter().chain([all]))
}
