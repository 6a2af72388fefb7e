//! What a node is asked to measure, what it answers, and what nodes tell each other meanwhile.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use outpour_core::NodeId;
use serde::{Deserialize, Serialize};

use crate::estimate::RoundTrip;

/// How to reach a node's data plane and recognise it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Addresses to try, best first.
    pub addrs: Vec<SocketAddr>,
    /// BLAKE3 of its endpoint's public key.
    pub key: [u8; 32],
}

/// What the command tells a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOrder {
    /// All nodes are here; their addresses.
    Begin {
        /// Node and contact, the receiving node's own included.
        contacts: Vec<(NodeId, Contact)>,
    },
    /// Measure something; answered by one [`ProbeReport`] of the same number.
    Run {
        /// Number of the order.
        id: u32,
        /// What to measure.
        task: Task,
    },
    /// It is over.
    Finish,
}

/// What a node is to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Nothing yet: connect to peers, so that what is to begin together does.
    Connect {
        /// The peers.
        to: Vec<NodeId>,
    },
    /// The round trip to a peer.
    RoundTrip {
        /// The peer.
        to: NodeId,
    },
    /// What the data plane achieves to several peers at once.
    Rate {
        /// The peers.
        to: Vec<NodeId>,
        /// For how long.
        time: Duration,
    },
    /// How packets to a peer are spread on the way.
    Packets {
        /// The peer.
        to: NodeId,
    },
    /// The routers on the way to a peer.
    Hops {
        /// The peer.
        to: NodeId,
    },
}

/// What a node answers to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Number of the order.
    pub id: u32,
    /// What came of it, or why nothing did.
    pub outcome: Result<Outcome, String>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// All are connected.
    Connected,
    /// A round trip, and whether packets of UDP made it; else it was messages on the data plane.
    RoundTrip {
        /// The times.
        times: RoundTrip,
        /// Whether by UDP.
        udp: bool,
    },
    /// To each peer, bytes per second or why there are none.
    Rate {
        /// In the order of the task.
        peers: Vec<(NodeId, Result<f64, String>)>,
    },
    /// By dispersion, bytes per second.
    Packets(Packets),
    /// The routers on the way; `None` for one that does not answer.
    Hops {
        /// In order; the peer itself is the last if it was reached.
        hops: Vec<Option<IpAddr>>,
    },
}

/// What the spread of packets says about a path, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    /// Of the narrowest link.
    pub capacity: Option<f64>,
    /// At which long trains come through.
    pub dispersion: Option<f64>,
    /// What other traffic leaves free.
    pub available: Option<f64>,
}

/// The secret a peer has to put into its packets.
pub type Token = [u8; 16];

/// A packet's number in its train, and when it came by the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Its number.
    pub seq: u32,
    /// When.
    pub at: Duration,
}

/// What nodes tell each other on the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// First word: where packets go, and the token that makes them welcome.
    Hello { port: u16, token: Token },
    /// The blocks that follow are measured, as this stream; answered by `Came` with nothing.
    Stream { stream: u32 },
    /// So much of the stream has come, by the receiver's clock since its first word.
    Came {
        stream: u32,
        bytes: u64,
        at: Duration,
    },
    /// What came of a train?
    Gather { train: u32 },
    /// This came.
    Gathered { train: u32, came: Vec<Arrival> },
    /// To be answered at once.
    Ping { nonce: u64 },
    /// The answer.
    Pong { nonce: u64 },
}
