//! The command line as it is typed; `commands` turns it into what is meant.

// The documentation of arguments is their help text, where brackets are no links.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod emulate;
pub(crate) mod moving;
pub(crate) mod plan;
pub(crate) mod probe;

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use outpour::launch::AGENT_PORT;
use outpour_core::{Bytes, Priority, Rate};
use outpour_protocols::registry;

use crate::out::Failure;
use crate::{CommandLine, commands, values};
use moving::Moving;

/// What exit codes mean, for the help of commands.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done, and verified everywhere; 1 failed, the report says where and why; \
2 the command line is wrong.";

/// Moves files and trees to many hosts in close to the least time the network allows.
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

    /// Log what happens inside to standard error; twice for every detail
    ///
    /// The environment variable OUTPOUR_LOG takes a filter such as `outpour_net=trace`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Cast(Box<CastArgs>),
    /// Plan: along which trees, at which rates?
    #[command(subcommand, arg_required_else_help = true)]
    Plan(plan::PlanCommand),
    /// Simulate: what would it take?
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
    /// Make the identities by which running agents know their operators
    #[command(subcommand, arg_required_else_help = true)]
    Trust(TrustCommand),
    /// Print the completions of a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual, or write one page per command
    Man {
        /// Write the pages into this directory instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        output: Option<PathBuf>,
    },
}

/// What a command prints.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// Print exactly one JSON document on standard output
    ///
    /// It is printed whenever the exit code is 0 or 1; if the command failed before there was
    /// anything to report, the document is {"error": "..."}.
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors, and JSON if asked for
    #[arg(short, long)]
    pub quiet: bool,
}

/// Put a file or a tree on many hosts
///
/// Starts an agent on each host through the system's ssh, first copying outpour there if this
/// version of it is missing, and ends them when it is done. Nothing has to be installed on the
/// hosts. When the command was interrupted, the same command continues it; a host that already
/// holds the object is verified and gets only the blocks that differ.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = CAST_EXAMPLES)]
#[command(override_usage = "outpour cast [OPTIONS] <SOURCE>... <DESTINATION>...")]
pub struct CastArgs {
    /// The file or directory to cast; on another host: [user@]host[:port]:/path
    ///
    /// Several files and directories of this host go into one directory, each under its own name. Of an
    /// object on another host nothing passes through this one. Of a range of hosts the first says what
    /// the object is, and the others are sources too, as with --from.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) source: OsString,

    /// Where to: [user@]host[:port]:/path
    ///
    /// A directory is cast to the path itself: `host:/srv/model` becomes the copy of it. A file is
    /// too, unless the path is a directory there or ends in a slash: then it goes inside. Ranges
    /// name several hosts: node[01-19], node[1,3,5-7], r[1-4]n[1-8]. An IPv6 address is written in
    /// brackets: [fe80::1%eth0]:/srv/model. `{host}` in the path stands for the host's name.
    #[arg(value_name = "DESTINATION", value_hint = ValueHint::Other)]
    pub(crate) destinations: Vec<OsString>,

    /// A host that has the same object and serves it, too: [user@]host[:port]:/path
    ///
    /// It is read first, and left out with a notice if it has another version. Receivers get the
    /// object from all sources at once, and go on without those that are lost.
    #[arg(long, value_name = "SOURCE", value_hint = ValueHint::Other)]
    pub(crate) from: Vec<OsString>,

    /// A host that passes blocks on and keeps nothing: [user@]host[:port]:/path
    ///
    /// It holds what it passes on below the path until the cast is over. Protocols direct, chain and
    /// swarm take relays.
    #[arg(long = "relay", value_name = "RELAY", value_hint = ValueHint::Other)]
    pub(crate) relays: Vec<OsString>,

    /// Also cast to the hosts of a file: FILE:/path
    ///
    /// The file has one host per line, with ranges if you like; `#` begins a comment, and
    /// `cluster=NAME` after a host says which hosts share a fast local network, `node=NAME` what
    /// the host is called in the file of --network.
    #[arg(long, value_name = "FILE:/PATH", value_hint = ValueHint::FilePath)]
    pub(crate) hosts: Vec<OsString>,

    /// The network between the hosts, a TOML file of clusters and links
    ///
    /// Says which hosts share a cluster and what can be reached at most. Protocols that plan need
    /// it. Hosts are nodes of the same name; the file may hold more nodes than take part.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) network: Option<PathBuf>,

    /// The node of the network that this host is [default: the one of this host's name]
    #[arg(long, value_name = "NODE", requires = "network")]
    pub(crate) root: Option<String>,

    /// Execute this plan, as `outpour plan multicast --json` prints it, by protocol tree
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) moving: Moving,

    /// The cast's share where a host takes part in several at a time
    ///
    /// Casts get rates and memory in the ratio of their weights: 1 for low, 4 for normal, 16 for
    /// high. What one does not use the others get.
    #[arg(long, value_name = "NAME", default_value = "normal", value_parser = values::priority())]
    pub(crate) priority: Priority,

    /// Say what the cast would come to and what each host lacks; move nothing
    ///
    /// Sources are read, and so is what the hosts have in place; what an interrupted cast has staged
    /// there does not count. Nothing is changed at any host.
    #[arg(long, conflicts_with_all = ["wait", "verify_after", "progress"])]
    pub(crate) dry_run: bool,

    /// Wait for the end of other casts to the same destinations, instead of being refused
    ///
    /// A destination has one writer at a time, and trees inside one another count as one. Nothing is
    /// moved before all hosts are free.
    #[arg(long)]
    pub(crate) wait: bool,

    /// Read everything back from the disks, past the page cache, before a host is verified
    ///
    /// What is on a disk is known to be right without that, unless the disk itself changes it.
    #[arg(long)]
    pub(crate) verify_after: bool,

    /// Give up on a stalled host this long after all others stop making progress
    ///
    /// A host whose disk does nothing is given up after as long.
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = values::duration)]
    pub(crate) patience: Duration,

    /// Write how it goes to this file, a line of JSON whenever something changed
    ///
    /// Each line is an event. A `progress` has elapsed_s since the command began, the phase
    /// (hashing, starting, moving, done), size_bytes, for each host its state, the have_bytes that
    /// it has of the object, the received_bytes that it was sent and more, and the notices that are
    /// new. The last line is `done`, with what --json prints, or `failed`, with the error.
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
    /// An option for ssh, as ssh_config(5) has it: Port=2222, ConnectTimeout=60
    #[arg(short = 'o', long, value_name = "OPTION", conflicts_with = "agents")]
    pub(crate) ssh_option: Vec<OsString>,

    /// The ssh program
    #[arg(long, value_name = "PROGRAM", default_value = "ssh", value_hint = ValueHint::CommandName)]
    #[arg(conflicts_with = "agents")]
    pub(crate) ssh: OsString,

    /// Use agents that run on the hosts as a service, instead of ssh
    ///
    /// A host without a port is called on port 7741.
    #[arg(long)]
    pub(crate) agents: bool,

    #[command(flatten)]
    pub(crate) trust: TrustDir,
}

/// Where the identities are that running agents are called with.
#[derive(Debug, Args)]
pub(crate) struct TrustDir {
    /// Directory of the operator's identity [default: ~/.config/outpour/trust]
    #[arg(long = "trust", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    Cast(Box<SimCastArgs>),
    Fuzz(SimFuzzArgs),
}

/// Simulate a cast on a described network
///
/// Runs the protocols that `outpour cast` runs, in virtual time on a flow-level network.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SimCastArgs {
    /// The network, a TOML file of clusters and links; not needed if the script defines them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "script")]
    pub(crate) network: Option<PathBuf>,

    /// A script that changes the network while the object travels
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) script: Option<PathBuf>,

    /// Execute this plan, as `outpour plan multicast --json` prints it, by protocol tree
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,

    /// What a planner believes the network to be, if its measurements are wrong: a TOML file
    /// with the same nodes [default: the network as it is at the start]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan_network: Option<PathBuf>,

    /// A node that has the object; may be given several times. A cluster's name means its first node
    #[arg(long = "root", value_name = "NODE", required = true)]
    pub(crate) roots: Vec<String>,

    /// A node that passes blocks on and is not to get the object; may be given several times
    #[arg(long = "relay", value_name = "NODE")]
    pub(crate) relays: Vec<String>,

    /// The size of the object: "10 GB"
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) size: Bytes,

    #[command(flatten)]
    pub(crate) moving: Moving,

    /// Bytes of blocks that a core multiplies and adds in a second; a node has a core for each of its
    /// --encoders [default: 10 GB/s]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) coding_speed: Option<Rate>,

    /// Write what happens to this file, a line per event: time, node, event, peer, number (of a
    /// block, if the event has one), bytes of a message
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,

    /// What carries the blocks: the ideal that limits and plans speak of, or TCP with its
    /// overhead, handshakes and slow start
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

/// Try the protocols on random networks with random faults
///
/// Each seed draws a topology, a protocol, sizes and faults, and checks that every live node ends
/// with the right bytes. A seed that fails is printed as the command that repeats it.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SimFuzzArgs {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) seeds: u64,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many threads; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Print the hashes of files, or write the manifest of a file or tree
///
/// Prints the BLAKE3 hash of every file as b3sum does, and the id of the object.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct HashArgs {
    /// A file or directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// Write the manifest to this file, for `outpour verify`
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Size of a block, a power of two [default: by the size of the object]
    #[arg(long, value_name = "SIZE", value_parser = values::block)]
    pub(crate) block: Option<u32>,

    #[command(flatten)]
    pub(crate) show: Output,
}

/// Compare a file or tree with its manifest
///
/// Lists everything that differs or is missing. Files that the manifest does not name are none of
/// its business.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct VerifyArgs {
    /// The file or directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// The manifest, as `outpour hash --output` wrote it
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) manifest: PathBuf,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Run an agent: as a service, or for one cast
///
/// As a service it takes part in the casts of operators it trusts (`outpour trust`), and writes
/// only beneath the directories given as --root.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct AgentArgs {
    /// Take part in one cast, spoken to on standard input and output
    #[arg(long, conflicts_with_all = ["listen", "identity"])]
    pub(crate) stdio: bool,

    /// Where operators call
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0; 16], AGENT_PORT)))]
    pub(crate) listen: SocketAddr,

    /// This host's identity, as `outpour trust issue` wrote it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "stdio")]
    pub(crate) identity: Option<PathBuf>,

    /// Write only beneath this directory; may be given several times
    ///
    /// It is opened when the agent starts. No symlink beneath it is followed.
    #[arg(long = "root", value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "stdio")]
    pub(crate) roots: Vec<PathBuf>,

    /// The address on which blocks are received [default: all]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) data_listen: Option<IpAddr>,

    /// Limit this host in each direction, over all casts: "200 Mbit/s"
    ///
    /// Casts share it by their priorities; each keeps its own limit, too.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) limit: Option<Rate>,
}

/// See it work: cast a tree to eight agents on this machine
///
/// Makes a tree, casts it with each protocol to agents that run as processes of their own and are
/// all limited to the same rate, compares every copy with the source, and prints how close each
/// protocol came to the least time that rate allows. Needs no network and no root, takes less than
/// two minutes, and leaves nothing behind.
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

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Make the authority and the operator's identity, once
    Init {
        #[command(flatten)]
        trust: TrustDir,
    },
    /// Make the identity of a host's agent
    Issue {
        /// The host, as operators will name it
        host: String,
        /// Where to write the identity
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: PathBuf,
        #[command(flatten)]
        trust: TrustDir,
    },
}

/// List the protocols: how blocks can travel
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
            Command::Sim(SimCommand::Cast(args)) => Some(args.output),
            Command::Sim(SimCommand::Fuzz(args)) => Some(args.output),
            Command::Probe(args) => Some(args.show),
            Command::Hash(args) => Some(args.show),
            Command::Verify(args) => Some(args.output),
            Command::Demo(args) => Some(args.output),
            _ => None,
        }
    }

    fn run(self) -> Result<(), Failure> {
        commands::run(self.command)
    }
}

/// The protocols by name; those to choose from have their line in the help.
fn protocols() -> PossibleValuesParser {
    let auto = PossibleValue::new("auto").help("let outpour choose, and say why");
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
