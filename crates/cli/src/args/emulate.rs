//! The arguments of `outpour emulate`, `outpour exec` and `outpour tell`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use crate::values;

/// Run a command in an emulated network on this machine
///
/// Creates a network namespace for each node, connects them with the rates, delays, queues and losses
/// of the description, and runs the command in one of them. Inside, nodes reach each other by name,
/// and `outpour exec` runs commands on other nodes. Everything is removed when the command ends.
/// Needs root.
///
/// Rates count IP packets with their headers. A queue without a limit in the description holds what
/// its rate carries in a round trip plus 25 ms, at least 16 of the largest packets and at most
/// 64 MiB. TCP uses cubic congestion control unless a program asks for another.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = EXAMPLES)]
pub struct EmulateArgs {
    /// The network, a TOML file of clusters and links [default: the clusters of the script]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "script")]
    pub(crate) network: Option<PathBuf>,

    /// A script that changes the network while the command runs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) script: Option<PathBuf>,

    /// The node on which the command runs; a cluster's name stands for its first node
    /// [default: the first node]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    /// The unit on which queues, marks and losses act
    #[arg(long, value_name = "MODE", value_enum, default_value_t = EmulateMode::Packet)]
    pub(crate) mode: EmulateMode,

    /// Largest packet, in bytes [default: 1500, in bulk mode 9000]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_521))]
    pub(crate) mtu: Option<u32>,

    /// Seed of random losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write a report on the traffic and on lateness to this file, as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,

    /// Report what each link between clusters carried in each interval of this length
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "report")]
    pub(crate) sample: Option<Duration>,

    /// Fail if the machine was too slow for the run to be valid
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print a summary even if all went well
    #[arg(long)]
    pub(crate) summary: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How an emulation treats packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EmulateMode {
    /// Single packets, exactly
    Packet,
    /// Bundles of up to 64 KiB, as TCP hands them over; needs much less processor time
    Bulk,
}

const EXIT_CODES: &str = "\
Exit codes: that of the command, or 128 plus the signal that ended it; 1 if the emulation \
failed, or was too slow and --strict is given; 2 the command line is wrong.";

const EXAMPLES: &str = "\
Examples:
  outpour emulate --network net.toml -- outpour cast ./model b[0-3]:/tmp/{host}/model
  outpour emulate --network net.toml --node B --mode bulk -- sh -c 'outpour exec A iperf3 -s -1 &
      sleep 1; iperf3 -c A'

Exit codes: that of the command, or 128 plus the signal that ended it; 1 if the emulation \
failed, or was too slow and --strict is given; 2 the command line is wrong.";

/// Run a command on another node of an emulated network
///
/// Works inside an emulation; outside, if only one runs on this machine or the environment variable
/// OUTPOUR_EMULATION names one. Input, output and the exit code are those of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: that of the command; 1 if it could not be started.")]
pub struct ExecArgs {
    /// Run as the first process of an emulation
    #[arg(long, hide = true)]
    pub(crate) init: bool,

    /// The node on which the command runs; a cluster's name stands for its first node
    pub(crate) node: String,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Send a word to the script of an emulated network
///
/// The script waits for the word with `hear WORD`. A script that has not got there yet receives the
/// word when it does. Works where `outpour exec` works.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 the word was sent; 1 the script never hears it.")]
pub(crate) struct TellArgs {
    /// The word
    pub(crate) word: String,

    /// Wait at most this long for the script to hear the word, and fail if it does not
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) wait: Option<Duration>,
}
