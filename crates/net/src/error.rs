//! What can go wrong before the data plane runs, and why links end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use outpour_core::NodeId;

use crate::frame::Refusal;

/// An error of this crate; trouble with single peers comes as events instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address to listen on cannot be had.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The endpoint takes part in as many sessions as it can.
    #[error(
        "this host takes part in {max} casts already, which is the most; try again when one has \
         ended"
    )]
    Full {
        /// How many there are.
        max: usize,
    },
    /// The endpoint takes part in the session as this member already.
    #[error("this host takes part in the cast as {node} already")]
    Taken {
        /// Which member.
        node: NodeId,
    },
    /// The endpoint has been shut down.
    #[error("the data plane of this host has ended")]
    Ended,
    /// A key could not be made, or a certificate not be issued.
    #[error("cannot issue a certificate for {name}: {why}")]
    Issue {
        /// The host it was for.
        name: String,
        /// Why.
        why: String,
    },
    /// A certificate, key or authority is not usable.
    #[error("{what} is not usable: {why}")]
    Credentials {
        /// Which one.
        what: String,
        /// Why.
        why: String,
    },
    /// A file of a trust directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A file that would hold a secret is there already.
    #[error("{} exists already; it is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// Why a link, or the trunk beneath it, has ended; it decides what becomes of the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer broke the rules. It is cut off for the rest of the session.
    #[error("the peer broke the rules: {0}")]
    Peer(String),
    /// This node is at fault: its disk, or an error of its own. The link is made anew if it is
    /// wanted.
    #[error("{0}")]
    Local(String),
    /// The network is at fault, or the peer has gone. The link is made anew if it is wanted.
    #[error("{0}")]
    Network(String),
    /// One side wanted it so.
    #[error("{0}")]
    Parted(&'static str),
    /// The peer does not take part in the session with us.
    #[error("{0}")]
    Refused(Refusal),
}
