//! The command's end of a cast: source, coordinator and control channels.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use outpour_core::Rate;

/// One destination of a cast.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// As the user wrote it; used in every message.
    pub name: String,
    /// Where the object is to be.
    pub path: PathBuf,
    /// The cluster the host is in, if the user said so; hosts without one form one cluster.
    pub cluster: Option<String>,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct CastRequest {
    /// File or directory to cast.
    pub source: PathBuf,
    /// Where to.
    pub hosts: Vec<HostSpec>,
    /// Name of a protocol; `None` lets Outpour choose.
    pub protocol: Option<String>,
    /// Limit of every node, the source too, in each direction.
    pub limit: Rate,
    /// Block size; `None` goes by the size of the object.
    pub block_bytes: Option<u32>,
    /// Connections per pair of nodes; `None` goes by the path's delay.
    pub connections: Option<u8>,
    /// Seed of the protocols' random choices; `None` draws one.
    pub seed: Option<u64>,
    /// How long a silent host is waited for once the others are done.
    pub patience: Duration,
    /// The address on which the source's data plane listens.
    pub listen: IpAddr,
}
