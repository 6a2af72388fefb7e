//! What can go wrong in a group.

use std::io;
use std::net::SocketAddr;

use crate::ticket::TicketError;

/// Why a group cannot be joined or an operation not be carried out.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The ticket is none.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// An address that cannot be listened on or reached.
    #[error("{what} {addr}: {why}")]
    Address {
        /// What was tried.
        what: &'static str,
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        why: String,
    },
    /// The rendezvous does not let this member in.
    #[error("the rendezvous refuses member {rank}: {why}")]
    Refused {
        /// Which member asked.
        rank: u32,
        /// Why.
        why: String,
    },
    /// Not all members came, or not all could be reached.
    #[error("the group is not complete after {seconds:.0} s: {missing}")]
    Incomplete {
        /// How long was waited.
        seconds: f64,
        /// Which members are missing.
        missing: String,
    },
    /// A member is out, and operations cannot go on without it.
    #[error("member {rank} of the group is lost: {why}")]
    Lost {
        /// The node.
        rank: u32,
        /// Why.
        why: String,
    },
    /// An operation that makes no sense.
    #[error("{0}")]
    Misuse(String),
    /// The data plane cannot be used.
    #[error("{0}")]
    Network(String),
    /// The group was left, or its runtime is gone.
    #[error("the group has ended")]
    Ended,
}

impl GroupError {
    pub(crate) fn address(what: &'static str, addr: SocketAddr, why: &io::Error) -> Self {
        Self::Address {
            what,
            addr,
            why: why.to_string(),
        }
    }
}

impl From<outpour_net::Error> for GroupError {
    fn from(error: outpour_net::Error) -> Self {
        Self::Network(error.to_string())
    }
}
