//! The command line as it is typed; `commands` turns it into what is meant.

// The documentation of arguments is their help text, where brackets are no links.
#![allow(rustdoc::broken_intra_doc_links)]

pub(crate) mod agent;
pub mod emulate;
pub(crate) mod flows;
pub(crate) mod fluid;
pub(crate) mod moving;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod push;
pub(crate) mod replicate;
pub(crate) mod shuffle;
pub mod trust;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use outpour_core::{Bytes, Priority, Rate};
use outpour_protocols::registry;

use crate::out::Failure;
use crate::{CommandLine, commands, values};
pub use agent::AgentArgs;
use moving::Moving;

/// What exit codes mean, for the help of commands.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done, and verified everywhere; 1 failed, the report says where and why; \
2 the command line is wrong.";

/// Copies files and trees to many hosts in close to the least time the network allows.
#[derive(Debug, Parser)]
#[command(name = "outpour", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(
    arg_required_else_help = true,
    propagate_version = true,
    infer_subcommands = false
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Log to standard error; repeat for full detail
    ///
    /// The environment variable OUTPOUR_LOG overrides this with a filter such as `outpour_net=trace`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Cast(Box<CastArgs>),
    /// Plan multicast trees and their rates, replication, and shuffles
    #[command(subcommand, arg_required_else_help = true)]
    Plan(plan::PlanCommand),
    /// Simulate casts, replication, shuffles, and flows that share a link
    #[command(subcommand, arg_required_else_help = true)]
    Sim(SimCommand),
    Probe(Box<probe::ProbeArgs>),
    Hash(HashArgs),
    Verify(VerifyArgs),
    Protocols(ProtocolsArgs),
    Agent(AgentArgs),
    Demo(DemoArgs),
    Emulate(emulate::EmulateArgs),
    Exec(emulate::ExecArgs),
    Tell(emulate::TellArgs),
    /// Create the identities of agents and their operators
    #[command(subcommand, arg_required_else_help = true)]
    Trust(trust::TrustCommand),
    /// Print shell completions
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one page per command
    Man {
        /// Write the pages to this directory instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        output: Option<PathBuf>,
    },
}

/// What a command prints.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// Print exactly one JSON document on standard output
    ///
    /// It is printed whenever the exit code is 0 or 1. If the command failed before it had anything
    /// to report, the document is {"error": "..."}.
    #[arg(long)]
    pub json: bool,

    /// Print only errors, and JSON if requested
    #[arg(short, long)]
    pub quiet: bool,
}

/// Copy a file or a tree to many hosts
///
/// Starts an agent on each host through the system's ssh and ends it when the cast is over. A host
/// that lacks this version of outpour receives a copy first, so nothing has to be installed. After an
/// interruption, the same command continues the cast. A host that already has the object is verified
/// and receives only the blocks that differ.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = CAST_EXAMPLES)]
#[command(override_usage = "outpour cast [OPTIONS] <SOURCE>... <DESTINATION>...")]
pub struct CastArgs {
    /// The file or directory to cast; on another host: [user@]host[:port]:/path
    ///
    /// Several files and directories of this host go into one directory, each under its own name. An
    /// object on another host does not pass through this one. In a range of hosts, the first determines
    /// the object and the others are further sources, as with --from.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) source: OsString,

    /// Where to copy it: [user@]host[:port]:/path
    ///
    /// A directory is cast to the path itself: `host:/srv/model` becomes the copy. So is a file, unless
    /// the path is a directory on the host or ends in a slash: then the file goes inside. Ranges name
    /// several hosts: node[01-19], node[1,3,5-7], r[1-4]n[1-8]. IPv6 addresses are written in brackets:
    /// [fe80::1%eth0]:/srv/model. `{host}` in the path stands for the host's name,
    /// `{{host}}` for the text {host}.
    #[arg(value_name = "DESTINATION", value_hint = ValueHint::Other)]
    pub(crate) destinations: Vec<OsString>,

    /// A further source that has the same object: [user@]host[:port]:/path
    ///
    /// Its copy is read first; a source whose copy differs is left out with a notice. Receivers fetch
    /// from all sources at once and continue without those that are lost.
    #[arg(long, value_name = "SOURCE", value_hint = ValueHint::Other)]
    pub(crate) from: Vec<OsString>,

    /// A relay, a host that forwards blocks and keeps none: [user@]host[:port]:/path
    ///
    /// It stores blocks below the path until the cast is over. Protocols direct, chain, swarm, push
    /// and central take relays.
    #[arg(long = "relay", value_name = "RELAY", value_hint = ValueHint::Other)]
    pub(crate) relays: Vec<OsString>,

    /// Also cast to the hosts of a file: FILE:/path
    ///
    /// The file has one host per line; ranges are allowed, and `#` starts a comment. After a host,
    /// `cluster=NAME` names the fast local network that it belongs to, and `node=NAME` its node in the
    /// file of --network.
    #[arg(long, value_name = "FILE:/PATH", value_hint = ValueHint::FilePath)]
    pub(crate) hosts: Vec<OsString>,

    /// The network between the hosts, a TOML file of clusters and links
    ///
    /// It determines which hosts share a cluster and the least possible time. Protocols that plan
    /// require it. Each host is the node of the same name; the file may have further nodes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) network: Option<PathBuf>,

    /// The node that stands for this host [default: the node of this host's name]
    #[arg(long, value_name = "NODE", requires = "network")]
    pub(crate) root: Option<String>,

    /// Execute this plan, as printed by `outpour plan multicast --json`, with protocol tree
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) moving: Moving,

    /// What was measured of other traffic between clusters, for --threshold and --peak
    ///
    /// A file with a line for each link that has any: `ams nyc 3 MB/s` or, if there was more before, `ams nyc 3
    /// MB/s, peak 9 MB/s`. It is read again whenever it changes: let whatever measures links replace it
    /// every second or so. Without the file, links count as free of other traffic.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "network")]
    pub(crate) traffic: Option<PathBuf>,

    /// The cast's share on hosts that take part in several casts
    ///
    /// Casts share rates and memory in the ratio of their weights: 1 for low, 4 for normal, 16 for
    /// high. What one cast leaves unused goes to the others.
    #[arg(long, value_name = "NAME", default_value = "normal", value_parser = values::priority())]
    pub(crate) priority: Priority,

    /// Print the protocol, the least possible time and what each host lacks; move nothing
    ///
    /// Sources and the copies in place are read; blocks staged by an interrupted cast do not count.
    /// A host that has too little room, or whose destination cannot be written, is named, and the exit
    /// code is 1. Nothing changes on any host.
    #[arg(long, conflicts_with_all = ["wait", "verify_after", "progress"])]
    pub(crate) dry_run: bool,

    /// Sign the object with this key, for agents that ask for that with --accept-signed-by
    ///
    /// The file is one that `outpour trust signer` has made. Only an object of this host is signed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) sign: Option<PathBuf>,

    /// Wait until other casts to the same destinations are over, instead of being refused
    ///
    /// A destination has one writer at a time; nested trees count as one destination. No data moves
    /// before all hosts are free. Without this option a host waits 5 to 7 s for another cast to end, 15
    /// to 17 s for one of the same object, and then the cast is refused.
    #[arg(long)]
    pub(crate) wait: bool,

    /// Keep owners, groups, setgid, access control lists, extended attributes, hard links and holes
    ///
    /// Each is kept where the destination can: to give files to others takes root there, and the file
    /// system has to know the attribute. What a host could not keep is reported, and the cast succeeds
    /// all the same. Owners go by name where the host knows the name, else by number. Setuid is never
    /// kept. docs/attributes.md has a table of all that a cast keeps.
    #[arg(long)]
    pub(crate) archive: bool,

    /// Read everything back from disk, past the page cache, before a host counts as verified
    ///
    /// Only this detects a disk that alters data; everything else is verified without it.
    #[arg(long)]
    pub(crate) verify_after: bool,

    /// Give up on a stalled host this long after all others stop making progress
    ///
    /// A host whose disk makes no progress is given up after the same time.
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = values::patience)]
    pub(crate) patience: Duration,

    /// Write progress to this file, one line of JSON per change
    ///
    /// Each line is an event. A `progress` event has elapsed_s since the command started, the phase
    /// (hashing, starting, moving, done), size_bytes, new notices, and for each host its state,
    /// have_bytes (of the object), received_bytes (sent to it) and more. The last line is `done`, with
    /// the document that --json prints, or `failed`, with the error.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) progress: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) reach: Reach,

    #[command(flatten)]
    pub(crate) output: Output,
}

const CAST_EXAMPLES: &str = "\
Examples:
  outpour cast ./model node[01-19]:/srv/model
  outpour cast a.bin b.bin logs/ node[01-09]:/srv/in
  outpour cast node01:/srv/model node[02-19]:/srv/model
  outpour cast ./model --from node01:/srv/model node[02-19]:/srv/model
  outpour cast image.qcow2 --hosts hosts.txt:/var/img/ --limit \"200 Mbit/s\" --json

Exit codes: 0 every host has verified every byte; 1 failed, the report says which host and why; \
2 the command line or the hosts file is wrong.";

/// Whether an object or a place is on another host: written with a host before the path. A file of
/// this host whose name looks like that is written with `./` before it.
pub(crate) fn is_elsewhere(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let host = bytes.windows(2).position(|pair| pair == b":/");
    host.is_some_and(|end| !bytes[..end].contains(&b'/'))
}

impl CastArgs {
    /// The sources, and the destinations after them: what is written without a host before the first
    /// that has one is a source, if the object is on this host. The last word is a destination, unless
    /// there are hosts of a file and something is there.
    pub(crate) fn sources(&self) -> (Vec<&OsStr>, &[OsString]) {
        let mut sources = vec![self.source.as_os_str()];
        if is_elsewhere(&self.source) {
            return (sources, &self.destinations);
        }
        let mut rest = self.destinations.as_slice();
        while let [word, more @ ..] = rest {
            let last = more.is_empty() && (self.hosts.is_empty() || !Path::new(word).exists());
            if is_elsewhere(word) || last {
                break;
            }
            sources.push(word);
            rest = more;
        }
        (sources, rest)
    }

    /// What the command prints.
    pub fn output(&self) -> Output {
        self.output
    }
}

/// How the agents of the hosts are reached.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// An option for ssh, as in ssh_config(5): Port=2222, ConnectTimeout=60
    #[arg(short = 'o', long, value_name = "OPTION", conflicts_with = "agents")]
    pub(crate) ssh_option: Vec<OsString>,

    /// The ssh program
    #[arg(long, value_name = "PROGRAM", default_value = "ssh", value_hint = ValueHint::CommandName)]
    #[arg(conflicts_with = "agents")]
    pub(crate) ssh: OsString,

    /// Call agents that run on the hosts as a service, instead of using ssh
    ///
    /// The default port is 7741.
    #[arg(long)]
    pub(crate) agents: bool,

    #[command(flatten)]
    pub(crate) trust: trust::TrustDir,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    Cast(Box<SimCastArgs>),
    Replicate(Box<replicate::SimReplicateArgs>),
    Shuffle(Box<shuffle::SimShuffleArgs>),
    Fluid(Box<fluid::SimFluidArgs>),
    Flows(Box<flows::SimFlowsArgs>),
    Push(Box<push::SimPushArgs>),
    Fuzz(SimFuzzArgs),
}

/// Simulate a cast on a described network
///
/// Runs the protocols of `outpour cast` in virtual time, on a flow-level network.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SimCastArgs {
    /// The network, a TOML file of clusters and links; optional if the script defines them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "script")]
    pub(crate) network: Option<PathBuf>,

    /// A script that changes the network during the transfer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) script: Option<PathBuf>,

    /// Execute this plan, as printed by `outpour plan multicast --json`, with protocol tree
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,

    /// The network as the planner sees it, to study wrong measurements: a TOML file with the same
    /// nodes [default: the network as it is at the start]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan_network: Option<PathBuf>,

    /// A node that has the object; repeat for several. A cluster's name stands for its first node
    #[arg(long = "root", value_name = "NODE", required = true)]
    pub(crate) roots: Vec<String>,

    /// A relay, a node that forwards blocks and does not get the object; repeat for several
    #[arg(long = "relay", value_name = "NODE")]
    pub(crate) relays: Vec<String>,

    /// The size of the object: "10 GB"
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) size: Bytes,

    #[command(flatten)]
    pub(crate) moving: Moving,

    /// Bytes of blocks that one core multiplies and adds per second; a node has as many cores as
    /// --encoders [default: 10 GB/s]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) coding_speed: Option<Rate>,

    /// Write a trace to this file, one line per event: time, node, event, peer, number (of a block,
    /// if the event has one), bytes of a message
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,

    /// Transport model: the ideal that limits and plans assume, or TCP with its overhead, handshakes
    /// and slow start
    #[arg(long, value_name = "NAME", value_enum, default_value_t = SimTransport::Ideal)]
    pub(crate) transport: SimTransport,

    /// The largest packet of transport tcp, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u32).range(576..=65_521))]
    pub(crate) mtu: u32,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// What carries the blocks of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimTransport {
    /// Rates and delays of the network, without overhead
    Ideal,
    /// TCP with TLS, as the data plane uses it
    Tcp,
}

/// Test the protocols on random networks with random faults
///
/// Each seed determines a topology, a protocol, sizes and faults. The run checks that every live node
/// ends with the right bytes. A failing seed is printed as the command that repeats it.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SimFuzzArgs {
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = values::count)]
    pub(crate) seeds: u64,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of threads; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Print the hashes of files, or write the manifest of a file or tree
///
/// Prints the BLAKE3 hash of every file, as b3sum does, and the id of the object.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct HashArgs {
    /// A file or directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// Write the manifest to this file, for `outpour verify`
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Block size, a power of two [default: by object size]
    #[arg(long, value_name = "SIZE", value_parser = values::block)]
    pub(crate) block: Option<u32>,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Compare a file or tree with its manifest
///
/// Lists everything that differs or is missing. Files that the manifest does not name are ignored.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct VerifyArgs {
    /// The file or directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// The manifest, as written by `outpour hash --output`
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) manifest: PathBuf,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Demonstrate casts: copy a tree to eight agents on this machine
///
/// Makes a tree and casts it with each protocol to agents that run as processes of their own, all
/// limited to the same rate. Compares every copy with the source, and prints how close each protocol
/// came to the least time possible at that rate. Needs no network and no root privileges, takes less
/// than two minutes and 2.3 GB of space in the temporary directory, and leaves nothing behind.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DemoArgs {
    /// Use a small tree and four agents
    #[arg(long)]
    pub(crate) short: bool,

    /// Limit every node in each direction
    #[arg(long, value_name = "RATE", default_value = "200 Mbit/s", value_parser = values::rate)]
    pub(crate) limit: Rate,

    /// Seed of the tree and of the protocols' random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// List the protocols
#[derive(Debug, Args)]
pub(crate) struct ProtocolsArgs {
    #[command(flatten)]
    pub(crate) output: Output,
}

impl CommandLine for Cli {
    fn verbose(&self) -> u8 {
        self.verbose
    }

    fn output(&self) -> Option<Output> {
        match &self.command {
            Command::Cast(args) => Some(args.output),
            Command::Plan(plan::PlanCommand::Multicast(args)) => Some(args.show),
            Command::Plan(plan::PlanCommand::Replicate(args)) => Some(args.output),
            Command::Plan(plan::PlanCommand::Shuffle(args)) => Some(args.output),
            Command::Sim(SimCommand::Cast(args)) => Some(args.output),
            Command::Sim(SimCommand::Replicate(args)) => Some(args.output),
            Command::Sim(SimCommand::Shuffle(args)) => Some(args.output),
            Command::Sim(SimCommand::Fluid(args)) => Some(args.output),
            Command::Sim(SimCommand::Flows(args)) => Some(args.output),
            Command::Sim(SimCommand::Push(args)) => Some(args.output),
            Command::Sim(SimCommand::Fuzz(args)) => Some(args.output),
            Command::Probe(args) => Some(args.show),
            Command::Hash(args) => Some(args.show),
            Command::Verify(args) => Some(args.output),
            Command::Demo(args) => Some(args.output),
            Command::Trust(trust::TrustCommand::List(args)) => Some(args.output),
            _ => None,
        }
    }

    fn run(self) -> Result<(), Failure> {
        commands::run(self.command)
    }
}

/// The protocols by name; those to choose from have their line in the help.
fn protocols() -> PossibleValuesParser {
    let auto = PossibleValue::new("auto").help("outpour chooses one and reports why");
    let named = registry::ENTRIES.iter().map(|entry| {
        let value = PossibleValue::new(entry.name).help(entry.about);
        value.hide(entry.baseline)
    });
    PossibleValuesParser::new(std::iter::once(auto).chain(named))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Cli::command().debug_assert();
    }
}
