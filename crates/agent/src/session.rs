//! The agent's end of a control channel: one destination of one cast.

use std::net::IpAddr;
use std::path::PathBuf;

/// What the host's owner allows an agent.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Destinations must lie beneath one of these; `None` leaves it to the file permissions.
    pub roots: Option<Vec<PathBuf>>,
    /// The address on which the data plane listens; the port is the system's choice.
    pub listen: IpAddr,
}
