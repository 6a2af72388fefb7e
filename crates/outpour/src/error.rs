//! Why a cast did not take place.

use std::path::PathBuf;

use outpour_agent::cast::CastError;
use outpour_core::network::NetworkError;
use outpour_core::text::escape;
use outpour_terms::DecideError;

use crate::{HostsError, PlaceError, ReachError};

/// Why a cast did not take place; failures of single hosts are in its report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The destinations make no sense.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// The source is not there, or must not be read.
    #[error("{}: cannot read the source: {error}", escape(&path.display().to_string()))]
    Source {
        /// The source.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// There is no such protocol.
    #[error("{0}")]
    Protocol(String),
    /// The protocol does not go together with the plan, the relays or the options of coding.
    #[error(transparent)]
    Plan(#[from] DecideError),
    /// The hosts and the described network do not go together.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// What the hosts have of the network makes no network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The hosts cannot be reached in the way that was asked for.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The cast could not begin, or was interrupted before it did.
    #[error(transparent)]
    Cast(#[from] CastError),
    /// The runtime was shut down before the end.
    #[error("the runtime ended before the cast")]
    Stopped,
}
