//! Arguments of `outpour agent`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use outpour::PublicKey;
use outpour::launch::AGENT_PORT;
use outpour_core::{Bytes, Rate};

use super::EXIT_CODES;
use crate::values;

/// Run an agent: as a service, or for one cast
///
/// As a service it takes part in the casts of operators it trusts (see `outpour trust`), and reads and
/// writes only beneath the directories given as --root, for each operator only beneath those that its
/// identity names. What operators ask for and what comes of it is logged, a line each.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct AgentArgs {
    /// Take part in one cast, controlled over standard input and output
    #[arg(long, conflicts_with_all = ["listen", "identity"])]
    pub(crate) stdio: bool,

    /// Address on which operators call the service
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0; 16], AGENT_PORT)))]
    pub(crate) listen: SocketAddr,

    /// This host's identity, as written by `outpour trust issue`
    ///
    /// An operator that calls renews it in time, so the agent must be able to replace the file. Beside
    /// it, in FILE.crl, is the list of revoked operators. Both are read again when they change.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "stdio")]
    pub(crate) identity: Option<PathBuf>,

    /// Read and write only beneath this directory; repeat for several
    ///
    /// The directory is opened when the agent starts. Symlinks beneath it are not followed.
    #[arg(long = "root", value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "stdio")]
    pub(crate) roots: Vec<PathBuf>,

    /// Address on which blocks are received [default: all]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) data_listen: Option<IpAddr>,

    /// Limit this host in each direction, over all casts: "200 Mbit/s"
    ///
    /// Casts share it by priority; the limit of each cast applies as well.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) limit: Option<Rate>,

    /// Memory for all casts at once
    ///
    /// A cast that finds no room is refused; an operator's casts may have three quarters of two thirds of it.
    /// The program takes up to 96 MiB besides: a unit's MemoryMax= has to allow for both.
    #[arg(long, value_name = "SIZE", default_value = "384 MiB", value_parser = values::memory)]
    #[arg(conflicts_with = "stdio")]
    pub(crate) memory: Bytes,

    /// Take part only in casts of what the holder of this key has signed; repeat for several
    ///
    /// The key is what `outpour trust signer` prints. A cast without a signature by one of them (see
    /// `outpour cast --sign`) is refused before data moves.
    #[arg(long, value_name = "PUBLIC-KEY", value_parser = values::public_key)]
    pub(crate) accept_signed_by: Vec<PublicKey>,

    /// Add what operators ask for and what comes of it to this file, a line of JSON each
    ///
    /// A line has time, operator, serial (of its certificate), address, task, object, id, path, verdict
    /// and why. A task that is accepted has a second line when it is over.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "stdio")]
    pub(crate) audit: Option<PathBuf>,
}
