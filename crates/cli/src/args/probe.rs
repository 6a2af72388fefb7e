//! The arguments of `outpour probe`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use outpour_net::CONNECTIONS_MAX;

use super::{Output, Reach};
use crate::values;

/// Measure the network between hosts
///
/// Starts agents on the hosts as a cast does, and has them measure by turns: round trips, what the
/// data plane achieves from node to node, what nodes and clusters send and receive in all, what
/// the spread of packets says about capacities and about bandwidth that is free, and routes. Prints
/// what it found, and writes the network as `outpour plan`, `outpour sim` and `outpour cast` read
/// it.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// The hosts: [user@]host[:port], with ranges as for a cast; a path is passed over
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub(crate) destinations: Vec<OsString>,

    /// Also the hosts of a file
    ///
    /// One host per line; `cluster=NAME` after it says which hosts share a fast local network,
    /// `node=NAME` what the host is called in the network. Hosts without a cluster are grouped by
    /// how near they are.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hosts: Vec<OsString>,

    /// Write the network to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Keep what is measured in this file, and forecast from what it held
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) history: Option<PathBuf>,

    /// How long each rate is measured
    #[arg(long, value_name = "TIME", default_value = "1.5 s", value_parser = values::duration)]
    pub(crate) time: Duration,

    /// Leave out what the spread of packets says
    #[arg(long)]
    pub(crate) no_packets: bool,

    /// Leave out routes
    #[arg(long)]
    pub(crate) no_hops: bool,

    /// What this host is called in the network [default: its name]
    #[arg(long, value_name = "NODE", conflicts_with = "others_only")]
    pub(crate) name: Option<String>,

    /// The cluster this host is in [default: by how near it is]
    #[arg(long, value_name = "NAME", conflicts_with = "others_only")]
    pub(crate) cluster: Option<String>,

    /// Measure between the hosts only, not to and from this one
    #[arg(long)]
    pub(crate) others_only: bool,

    /// Connections between each pair of nodes [default: by the path]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub(crate) connections: Option<u8>,

    #[command(flatten)]
    pub(crate) reach: Reach,

    #[command(flatten)]
    pub(crate) show: Output,
}

const EXAMPLES: &str = "\
Examples:
  outpour probe node[01-04] --output net.toml
  outpour probe --hosts hosts.txt --history history.json --output net.toml --json

Exit codes: 0 every host took part; 1 failed, or some host did not; 2 the command line or the hosts
file is wrong.";
