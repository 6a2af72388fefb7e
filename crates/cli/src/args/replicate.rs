//! The arguments of `outpour sim replicate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use outpour_core::Rate;
use outpour_sim::replicate::System;

use super::{EXIT_CODES, Output};
use crate::values;

/// Simulate replication between sites under the central controller, or by a system without one
///
/// Every few seconds the controller decides which server sends which blocks where and how fast. The
/// servers are simulated; the controller is not. The other systems are baselines: they decide nothing
/// centrally, share links as TCP does, and use no more of them than the controller may.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = file_of_jobs("0 all jobs are complete; 1 failed"))]
pub(crate) struct SimReplicateArgs {
    #[command(flatten)]
    pub(crate) replication: Replication,

    /// What moves the jobs
    ///
    /// Baselines heed limits and start times of jobs, but neither priorities nor relays.
    #[arg(long, value_name = "NAME", default_value = "central", value_parser = systems())]
    pub(crate) system: System,

    /// The seed of systems that choose at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// A script that changes the network while jobs run
    ///
    /// It may also set latency-sensitive traffic on links, which goes first (`setForeground FROM TO
    /// RATE`), and, under `central`, lose servers and the controller and bring them back (`lose NODES`,
    /// `restore NODES`, `loseController`, `restoreController`). The controller hears of links and their
    /// traffic once a cycle; what hosts carry it finds by what they achieve.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) script: Option<PathBuf>,

    /// Divide the servers of each site into so many equal shards, and simulate one of them
    ///
    /// One shard has its part of what servers share and of each job's blocks. Sites have to be of servers that are
    /// alike, and jobs have to go from whole sites to whole sites. Bytes are those of one shard.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "script",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) shards: u32,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Jobs, the network, and how the controller decides.
#[derive(Debug, Args)]
pub(crate) struct Replication {
    /// The jobs, a TOML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) jobs: PathBuf,

    /// The network, a TOML file of clusters and links; clusters are sites
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) network: PathBuf,

    /// How long the decisions of a cycle hold; 0.5 to 95 s
    #[arg(long, value_name = "TIME", default_value = "3 s", value_parser = values::duration)]
    pub(crate) cycle: Duration,

    /// Share of links between sites that data and other traffic may fill together, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0)]
    pub(crate) threshold: f64,

    /// Leave room on links for the most traffic that there ever was, instead of a threshold
    #[arg(long, conflicts_with = "threshold")]
    pub(crate) peak: bool,

    /// Limit what each host sends and receives for all jobs together
    #[arg(long, value_name = "RATE", default_value = "unlimited", value_parser = values::rate)]
    pub(crate) limit: Rate,
}

fn systems() -> impl TypedValueParser<Value = System> {
    let named = System::ALL.map(|system| {
        PossibleValue::new(system.name()).help(match system {
            System::Central => "one controller decides for all, every few seconds",
            System::Gingko => "receivers choose among the few servers that they know of",
            System::Bullet => "a tree, and a mesh of servers that have little in common",
            System::Akamai => "sources send to reflectors and those to all others, in order",
            System::Direct => "every site gets everything from the sources",
            System::Chain => "every site gets everything from the one before it",
            System::Robber => "servers fetch their share anywhere and help others when done",
        })
    });
    PossibleValuesParser::new(named).try_map(|name| name.parse::<System>())
}

/// Shown below the help, with what the exit codes are.
pub(crate) fn file_of_jobs(codes: &str) -> String {
    format!("{FILES}\n\nExit codes: {codes}; 2 the command line is wrong.")
}

const FILES: &str = "\
A file of jobs:

  [[job]]
  name = \"model\"            # for messages
  size = \"10 TB\"
  block = \"2 MB\"            # default: 2 MB
  from = [\"ams\"]            # nodes that have it, or sites over whose servers it is striped
  sites = [\"nyc\", \"tok\"]    # each gets one copy, striped over its servers; or:
  # nodes = [\"nyc1\"]        # each of these gets a copy; a site stands for all its nodes
  relays = [\"lon\"]          # may pass blocks on; default: none
  start = \"30 s\"            # default: at once
  deadline = \"2 h\"          # after the beginning; default: none
  priority = \"high\"         # low, normal or high; default: normal
  limit = \"10 Gbit/s\"       # of all its transfers together; default: none";
