//! What can go wrong before the data plane runs.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// A key could not be made, or a certificate not be issued.
    #[error("cannot issue a certificate for {name}: {why}")]
    Issue {
        /// Whom it was for.
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
