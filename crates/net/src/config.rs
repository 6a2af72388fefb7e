//! What a mesh is started with and told about its peers.

use std::net::SocketAddr;

use outpour_core::{Bytes, Rate};

use crate::identity::NodeIdentity;

/// Least memory for block buffers that makes sense.
pub(crate) const MEMORY_MIN: u64 = 4 << 20;
/// Most connections that one side opens to a peer.
pub const CONNECTIONS_MAX: u8 = 5;

/// Configuration of a [`crate::Mesh`].
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// Who this node is, in which cast, and how it proves it.
    pub identity: NodeIdentity,
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// How fast data may move.
    pub limits: Limits,
    /// How many connections to use per peer.
    pub connections: Connections,
    /// Budget of block buffers: half for blocks on their way in, a quarter for blocks on their
    /// way out, a quarter for recently used blocks. A budget smaller than a block still lets one
    /// block pass at a time.
    pub memory: Bytes,
}

impl MeshConfig {
    /// No limits, connections by delay, 128 MiB of buffers.
    pub fn new(identity: NodeIdentity, listen: SocketAddr) -> Self {
        Self {
            identity,
            listen,
            limits: Limits::default(),
            connections: Connections::Auto,
            memory: Bytes(128 << 20),
        }
    }
}

/// How fast data may move, counted on the wire with the overhead of TLS and frames.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Out of this node, over all its connections.
    pub outgoing: Rate,
    /// Into this node, over all its connections.
    pub incoming: Rate,
    /// Per connection and direction.
    pub per_connection: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            outgoing: Rate::UNLIMITED,
            incoming: Rate::UNLIMITED,
            per_connection: Rate::UNLIMITED,
        }
    }
}

/// How many TCP connections a link uses; the side that dialled decides and opens them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// One where the connection was set up in less than 5 ms, because there one connection fills
    /// the path; five over longer paths, where a single loss would halve the rate of all.
    #[default]
    Auto,
    /// This many (1 to 5; others count as the nearest).
    Fixed(u8),
}

/// What the coordinator says about a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it may be reached, best first.
    pub addrs: Vec<SocketAddr>,
    /// BLAKE3 of the DER of its certificate.
    pub certificate: [u8; 32],
}
