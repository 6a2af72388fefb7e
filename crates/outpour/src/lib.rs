//! Outpour as a library: puts a file or a directory tree on many hosts in close to the least time
//! the network allows.
//!
//! ```no_run
//! # async fn cast() -> Result<(), outpour::Error> {
//! let report = outpour::Cast::new("./model")
//!     .to("node[01-19]:/srv/model")
//!     .run()
//!     .await?;
//! for host in report.hosts.iter().filter(|host| !host.verified) {
//!     println!("{}: {}", host.host, host.error.as_deref().unwrap_or("has not finished"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Cast`] says what is to go where, and how its hosts are reached: by default through `ssh`, with
//! the agent's program `outpour` from the path, which is copied to hosts that lack it. [`Cast::start`]
//! gives a [`Running`] cast that is followed by its [`Event`]s. They are what the command's live
//! picture, its `--progress` file and its `--json` are made of, and serialise with serde.
//!
//! An [`agent::Agent`] is the other end: it takes part in a cast that starts it, or, as a service, in
//! those of operators it trusts.
//!
//! The errors of [`Error`] are those that keep a cast from taking place. What befalls single hosts is
//! in the report; a cast is done when [`CastReport::verified`] says so, and only then.
//!
//! Nothing here prints, ends the process or handles signals. Everything runs on the tokio runtime
//! around it, which needs its drivers of I/O and time; blocks are moved on threads of their own.

pub mod agent;
mod cast;
mod error;
mod event;
#[doc(hidden)]
pub mod fuzzing;
pub mod hosts;
pub mod launch;
pub mod place;

pub use cast::{Cast, Interrupter, Running};
pub use error::Error;
pub use event::{Event, Events, HostProgress, Progress};
pub use hosts::{Destination, Destinations, HostFault, HostRange, HostsError};
pub use launch::{Reach, ReachError, Ssh};
pub use outpour_agent::cast::CastError;
pub use outpour_agent::view::{
    CastReport, CodingReport, DryRelay, DryRun, DrySource, HostLook, HostReport, HostState,
    NotKept, Phase,
};
pub use outpour_core::network::{Network, NetworkError};
pub use outpour_core::plan::Tree;
pub use outpour_core::{Bytes, NodeId, Plan, Priority, Rate, Separation, Traffic};
pub use outpour_net::Error as NetError;
pub use outpour_net::trust::{PublicKey, Signer};
pub use outpour_protocols::registry::{EncodedOptions, Entry};
pub use outpour_store::Error as StoreError;
pub use outpour_terms::{Asked, DecideError, TermsError};
pub use place::PlaceError;
