//! What an endpoint and its sessions are started with, and told about peers.

use std::net::SocketAddr;

use outpour_core::{Bytes, NodeId, Priority, Rate};

use crate::identity::{EndpointKey, KeyDigest, SessionId};

/// Least memory for block buffers that makes sense.
pub(crate) const MEMORY_MIN: u64 = 4 << 20;
/// Most connections for blocks that one side opens to a peer.
pub const CONNECTIONS_MAX: u8 = 5;
/// Most connections of a trunk: where there are several for blocks, messages have one of their own.
pub(crate) const TRUNK_MAX: u8 = CONNECTIONS_MAX + 1;

/// Configuration of a [`crate::Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// By what peers know it.
    pub key: EndpointKey,
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// How fast data may move, over all sessions.
    pub limits: Limits,
    /// Budget of block buffers of all sessions: half for blocks on their way in, a quarter for
    /// blocks on their way out, a quarter for recently used blocks. Of a part that is smaller than
    /// a block each session still gets one block at a time.
    pub memory: Bytes,
}

impl EndpointConfig {
    /// No limits, 128 MiB of buffers.
    pub fn new(key: EndpointKey, listen: SocketAddr) -> Self {
        Self {
            key,
            listen,
            limits: Limits::default(),
            memory: Bytes(128 << 20),
        }
    }
}

/// How fast data may move, counted on the wire with the overhead of TLS and frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Out of this host, over all its connections.
    pub outgoing: Rate,
    /// Into this host, over all its connections.
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

/// Configuration of a [`crate::Session`].
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Which session; the same at all members.
    pub id: SessionId,
    /// Which member this is.
    pub node: NodeId,
    /// Its share of what the endpoint's sessions compete for.
    pub priority: Priority,
    /// How fast its data may move, beneath the endpoint's limits.
    pub limits: SessionLimits,
    /// How many connections to use per peer.
    pub connections: Connections,
}

impl SessionConfig {
    /// Normal priority, no limits, connections by delay.
    pub fn new(id: SessionId, node: NodeId) -> Self {
        Self {
            id,
            node,
            priority: Priority::default(),
            limits: SessionLimits::default(),
            connections: Connections::Auto,
        }
    }
}

/// How fast the data of a session may move, counted on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionLimits {
    /// Out of this node.
    pub outgoing: Rate,
    /// Into this node.
    pub incoming: Rate,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            outgoing: Rate::UNLIMITED,
            incoming: Rate::UNLIMITED,
        }
    }
}

/// How many TCP connections for blocks join two endpoints; the side that dialled decides and opens them.
/// If these are several, messages have one more. Where several sessions share them there are as many as
/// the one has that wants most.
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
    /// Where its endpoint may be reached, best first.
    pub addrs: Vec<SocketAddr>,
    /// Digest of its endpoint's key.
    pub key: KeyDigest,
}
