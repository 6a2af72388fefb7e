//! Arguments of `outpour trust`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use outpour_net::trust::Lifetime;

use super::{EXIT_CODES, Output};

/// Where the identities are that running agents are called with.
#[derive(Debug, Args)]
pub struct TrustDir {
    /// Directory with the operator's identity [default: ~/.config/outpour/trust]
    #[arg(long = "trust", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

#[allow(
    missing_docs,
    reason = "documentation is help, and these have that of what they hold"
)]
#[derive(Debug, Subcommand)]
pub enum TrustCommand {
    /// Create the authorities and an operator that may do everything, once
    Init {
        #[command(flatten)]
        trust: TrustDir,
    },
    Issue(IssueArgs),
    Operator(OperatorArgs),
    Renew(RenewArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
    Signer(SignerArgs),
}

/// For how long an identity is valid.
#[derive(Clone, Copy, Debug, Args)]
pub struct Days {
    /// Days for which the identity is valid, and each that renews it
    #[arg(long, value_name = "N", default_value_t = Lifetime::DAYS_USUAL)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(Lifetime::DAYS_MAX)))]
    pub(crate) days: u32,
}

/// Create the identity of a host's agent
///
/// An operator whose directory has the agents' authority renews it when it casts to the host and a third
/// of its life or less is left, as does `outpour trust renew`. One that has expired is issued again.
#[derive(Debug, Args)]
pub struct IssueArgs {
    /// The host, by the name or address that operators use
    pub(crate) host: String,

    /// Write the identity to this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) days: Days,

    #[command(flatten)]
    pub(crate) trust: TrustDir,
}

/// Create the identity of an operator, for `outpour cast --trust`
///
/// Agents refuse what it does not cover: what is to be written, and also what is to be read as a source,
/// outside of its directories, and everything on other hosts. The same command renews the identity in
/// place: what is not given again stays as it was.
#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// The operator's name: letters, digits and . - _ @
    pub(crate) name: String,

    /// Let it read and write only beneath this directory of each host; repeat for several [default: as
    /// before; of a new operator: wherever the agents may]
    #[arg(long = "root", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) roots: Vec<PathBuf>,

    /// Let it use only hosts whose identity has such a name, in which * stands for any characters;
    /// repeat for several [default: as before; of a new operator: all]
    #[arg(long = "host", value_name = "PATTERN")]
    pub(crate) hosts: Vec<String>,

    /// Lift the restrictions that it had and that are not given again
    #[arg(long)]
    pub(crate) unrestricted: bool,

    /// Write the identity into this directory, which is created
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) days: Days,

    #[command(flatten)]
    pub(crate) trust: TrustDir,
}

/// Renew identities now: the operator's, and those of agents
///
/// Calls each agent, which makes a new key and uses it from the next connection on, and tells it which
/// operators were revoked. For a timer, where identities are short-lived and casts rare.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct RenewArgs {
    /// The hosts, host[:port]; ranges are allowed [default: all that have an identity]
    #[arg(value_name = "HOST", value_hint = ValueHint::Other)]
    pub(crate) hosts: Vec<OsString>,

    #[command(flatten)]
    pub(crate) trust: TrustDir,
}

/// List the identities that are valid: operators, then agents
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub(crate) trust: TrustDir,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Revoke every identity of an operator or a host
///
/// Tells the agents which operators were revoked. They refuse such an operator at once, and end what it
/// does within seconds. An agent that was not told goes on to obey it, until this command is repeated,
/// `outpour trust renew` calls it, or the file operator-ca.crl of the directory is copied beside its
/// identity: beside agent.pem as agent.pem.crl. Operators of this directory refuse a host that was revoked;
/// other directories need its agent-ca.crl.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct RevokeArgs {
    /// The operator or the host
    pub(crate) name: String,

    /// Tell these hosts, host[:port]; ranges are allowed [default: all that have an identity]
    #[arg(long, value_name = "HOST", value_hint = ValueHint::Other, num_args = 1..)]
    pub(crate) tell: Vec<OsString>,

    /// Tell no host
    #[arg(long, conflicts_with = "tell")]
    pub(crate) no_tell: bool,

    #[command(flatten)]
    pub(crate) trust: TrustDir,
}

/// Create a key pair that vouches for objects, and print its public key
///
/// The secret key is for `outpour cast --sign`, the public one, also in FILE.pub, for `outpour agent
/// --accept-signed-by`. Where agents ask for signatures, neither a stolen operator's identity nor a host
/// between can change what arrives.
#[derive(Debug, Args)]
pub struct SignerArgs {
    /// Write the secret key to this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
}
