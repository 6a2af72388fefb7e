//! Why an emulation cannot be started, entered or spoken to.

use std::io;
use std::path::PathBuf;

use outpour_core::text::excerpt;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmuError {
    /// The caller may not make network namespaces.
    #[error("emulating a network needs root: it makes network namespaces and TUN devices")]
    NotRoot,
    /// There is no `/dev/net/tun`.
    #[error("emulating a network needs TUN devices, and {path} cannot be opened")]
    NoTun {
        /// Where it should be.
        path: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// More nodes than one emulator handles.
    #[error("the network has {nodes} nodes; an emulation has at most {max}")]
    TooManyNodes {
        /// How many there are.
        nodes: u32,
        /// How many there may be.
        max: u32,
    },
    /// More clusters than addresses are made for.
    #[error("the network has {clusters} clusters; an emulation has at most {max}")]
    TooManyClusters {
        /// How many there are.
        clusters: usize,
        /// How many there may be.
        max: usize,
    },
    /// A node that is not there.
    #[error("no node `{}`; there are {known}", excerpt(name))]
    UnknownNode {
        /// The name.
        name: String,
        /// The first of those there are.
        known: String,
    },
    /// No emulation runs where one was expected.
    #[error("no emulation runs at {}: start one with `outpour emulate`", path.display())]
    NotRunning {
        /// Where it was looked for.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// None, or several, and none was named.
    #[error(
        "{found} emulations run on this machine: name one in the environment variable {variable}"
    )]
    Which {
        /// How many there are.
        found: usize,
        /// The variable.
        variable: &'static str,
    },
    /// The emulator refused.
    #[error("{0}")]
    Refused(String),
    /// The system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl EmuError {
    /// For `map_err`: what was tried when the system refused.
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |error| Self::System {
            what,
            source: error.into(),
        }
    }
}
