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
/// Starts agents on the hosts, as a cast does. They measure in turns: round-trip times, the rate of
/// the data plane between nodes, the total rates of nodes and clusters, capacity and available
/// bandwidth as estimated from the dispersion of packets, and routes. Prints the results, and writes
/// the network in the format of `outpour plan`, `outpour sim` and `outpour cast`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// The hosts: [user@]host[:port], with ranges as for a cast; a path is ignored
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub(crate) destinations: Vec<OsString>,

    /// Also the hosts of a file
    ///
    /// One host per line. After a host, `cluster=NAME` names the fast local network that it belongs
    /// to, and `node=NAME` its node in the network. Hosts without a cluster are grouped by round-trip
    /// time.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hosts: Vec<OsString>,

    /// Write the network to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Add the measurements to this file, and forecast from its history
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) history: Option<PathBuf>,

    /// Duration of each measurement of a rate
    #[arg(long, value_name = "TIME", default_value = "1.5 s", value_parser = values::duration)]
    pub(crate) time: Duration,

    /// Do not estimate capacity and available bandwidth from packets
    #[arg(long)]
    pub(crate) no_packets: bool,

    /// Do not trace routes
    #[arg(long)]
    pub(crate) no_hops: bool,

    /// Name of this host's node in the network [default: the host's name]
    #[arg(long, value_name = "NODE", conflicts_with = "others_only")]
    pub(crate) name: Option<String>,

    /// Cluster of this host [default: by round-trip time]
    #[arg(long, value_name = "NAME", conflicts_with = "others_only")]
    pub(crate) cluster: Option<String>,

    /// Measure between the hosts only, not to or from this one
    #[arg(long)]
    pub(crate) others_only: bool,

    /// TCP connections for blocks between each pair of nodes; if these are several, messages have one
    /// more [default: by round-trip time]
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
