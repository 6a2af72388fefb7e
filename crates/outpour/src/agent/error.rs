//! Why an agent did not start, or ended before its time.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use outpour_agent::EpochsError;
use outpour_agent::session::SessionError;
use outpour_core::text::escape;

/// Why an agent did not start, or ended before its time. What befalls single casts of a service is
/// told by its events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A service is confined to its roots, and has none.
    #[error("a service needs a root, a directory beneath which it may read and write")]
    NoRoot,
    /// A root is not an absolute path.
    #[error("{}: expected an absolute path", escape(&root.display().to_string()))]
    RelativeRoot {
        /// The root.
        root: PathBuf,
    },
    /// There is no directory where a root is said to be.
    #[error("{}: there is no such directory", escape(&root.display().to_string()))]
    MissingRoot {
        /// The root.
        root: PathBuf,
    },
    /// A file on which the service's own safety rests lies where operators may write.
    #[error(
        "{}: it lies beneath {}, where operators may write; put it elsewhere",
        escape(&path.display().to_string()),
        escape(&root.display().to_string())
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The root.
        root: PathBuf,
    },
    /// A root cannot be opened.
    #[error(transparent)]
    Root(#[from] outpour_store::Error),
    /// What a service remembers of earlier casts cannot be read.
    #[error(transparent)]
    Epochs(#[from] EpochsError),
    /// The identity of a service cannot be used.
    #[error("cannot use the identity: {0}")]
    Identity(#[source] outpour_net::Error),
    /// The address on which operators are to call cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The file of audits cannot be opened.
    #[error("{}: cannot write the audit: {error}", escape(&path.display().to_string()))]
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The data plane did not start.
    #[error("data plane: {0}")]
    DataPlane(#[from] outpour_net::Error),
    /// The one cast of an agent without a service ended before its time.
    #[error(transparent)]
    Session(#[from] SessionError),
}
