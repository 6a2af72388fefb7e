//! How a cast reaches its hosts: something else opens a control channel, this crate speaks on it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// An open, authenticated control channel to the agent of one host.
pub struct ControlStream {
    /// What the agent says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What the agent hears.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Addresses by which this host was reached, most useful first; peers try them.
    pub host_addrs: Vec<IpAddr>,
    /// The address of this end as the host sees it.
    pub seen_from: Option<IpAddr>,
    /// Keeps the launch alive; dropping it ends the agent.
    pub guard: Box<dyn Any + Send>,
}

/// Why a host's agent could not be started: one line that names the host's trouble.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(pub String);

/// The future of a launch.
pub type Launching = Pin<Box<dyn Future<Output = Result<ControlStream, LaunchError>> + Send>>;

/// Starts the agents of a cast: over SSH, as child processes, or by calling running services.
pub trait Launcher: Send + Sync + 'static {
    /// Starts the agent of the host with index `host` in the request's list.
    fn launch(&self, host: usize) -> Launching;
}

impl fmt::Debug for ControlStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlStream")
            .field("host_addrs", &self.host_addrs)
            .finish_non_exhaustive()
    }
}
