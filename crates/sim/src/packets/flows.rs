//! A handful of flows over given links, packet by packet, with all that they do.
//!
//! [`Flows`] says which links and flows there are and what changes when; [`Flows::run`] plays it and
//! gives back means of flows and ports, and samples over time. [`file::parse`] reads it
//! from TOML.
//!
//! Nodes pass packets on and may be ends of flows as well. Acknowledgements take the way of the data
//! back. Nothing is random but the losses that a link is said to have,
//! and the jitter of senders if there is to be such.

mod check;
mod ends;
pub mod file;
mod play;
mod report;
pub mod svg;

use std::time::Duration;

use outpour_congestion::OptionError;
use outpour_core::Time;
use outpour_core::text::excerpt;
use outpour_core::topology::TopologyError;
use outpour_packets::WiringError;

pub use play::{FlowSample, Run, Sample};
pub use report::{FlowMeans, FlowReport, Packets, Phase, PhaseFlow, PhasePort, PortReport};

/// How many links there may be.
pub const LINKS_MAX: usize = 1000;
/// How many flows there may be.
pub const FLOWS_MAX: usize = 1000;
/// How many changes may be ordered: of weights, of rates, and losses.
pub const CHANGES_MAX: usize = 10_000;
/// How many packets may wait in a queue, at most.
pub const QUEUE_MAX: u32 = 1_000_000;
/// How many packets a link may have on its way, and how many it may carry in all.
const LINK_PACKETS_MAX: (f64, f64) = (1e6, 1e10);
/// How many values may be sampled: of every flow and every port each time.
const VALUES_MAX: f64 = 4e6;

/// Which machines a flow has at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// [`outpour_push`] with weighted fair congestion control.
    Push,
    /// TCP with [`outpour_congestion::Dctcp`].
    Dctcp,
    /// TCP with [`outpour_congestion::Reno`].
    Reno,
    /// TCP with [`outpour_congestion::Cubic`].
    Cubic,
    /// DCCP with [`outpour_congestion::Dccp`].
    Dccp,
}

impl Scheme {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Push, Self::Dctcp, Self::Reno, Self::Cubic, Self::Dccp];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Dctcp => "dctcp",
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Dccp => "dccp",
        }
    }

    /// Whether flows have weights.
    pub fn is_weighted(self) -> bool {
        self == Self::Push
    }
}

/// A link in one direction, or in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// How many data packets it carries in a second.
    pub packets_per_s: f64,
    /// How long a packet is on its way, without its transmission and queues.
    pub delay: Duration,
    /// How many packets wait, besides the one that is sent, before more are dropped.
    pub queue_packets: u32,
    /// A packet that finds so many waiting gets a congestion mark; none if not said.
    pub mark_packets: Option<u32>,
    /// The share of packets that is lost at random.
    pub loss: f64,
    /// How many of these are lost in a row on average, from 1.
    pub burst: f64,
    /// From when on it carries how many data packets in a second.
    pub rates: Vec<(Time, f64)>,
    /// When how many packets in a row are lost that would have entered it.
    pub lose: Vec<(Time, u64)>,
    /// Whether there is the same way back: the same rates, delay and queue, without losses.
    pub is_both: bool,
}

impl Line {
    /// A link in both directions without a delay, marks, losses and changes.
    pub fn new(from: &str, to: &str, packets_per_s: f64, queue_packets: u32) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            packets_per_s,
            delay: Duration::ZERO,
            queue_packets,
            mark_packets: None,
            loss: 0.0,
            burst: 1.0,
            rates: Vec::new(),
            lose: Vec::new(),
            is_both: true,
        }
    }
}

/// A flow from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The node that sends data.
    pub from: String,
    /// The node that receives it.
    pub to: String,
    /// What is at both ends.
    pub scheme: Scheme,
    /// From when on it has which weight, the first from 0 s on; none has [`Scheme`] without weights.
    pub theta: Vec<(Time, f64)>,
    /// When it starts.
    pub start: Time,
    /// When it stops sending, if before the end.
    pub stop: Option<Time>,
    /// How many packets it has; it does not end by itself if not said.
    pub packets: Option<u64>,
    /// The window at the start, packets; that of the scheme if not said.
    pub initial_window: Option<f64>,
    /// The weight of a new window in the running average of marks; that of the scheme if not said.
    pub g: Option<f64>,
    /// No mark makes the window of DCTCP smaller, packets; 1 if not said.
    pub window_min: Option<f64>,
    /// Whether acknowledgements with marks let the window of DCTCP grow as well.
    pub grows_when_marked: bool,
    /// Whether the sender of DCTCP rounds windows up as often as their part of a packet says, as that of Parallel Push
    /// does, rather than cut the part off.
    pub has_parts: bool,
    /// No retransmission timeout is shorter; that of the scheme if not said.
    pub rto_min: Option<Duration>,
}

impl Flow {
    /// A flow from 0 s to the end as the scheme usually is.
    pub fn new(from: &str, to: &str, scheme: Scheme) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            scheme,
            theta: Vec::new(),
            start: Time::ZERO,
            stop: None,
            packets: None,
            initial_window: None,
            g: None,
            window_min: None,
            grows_when_marked: false,
            has_parts: false,
            rto_min: None,
        }
    }
}

/// Links, flows, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Flows {
    /// The links.
    pub lines: Vec<Line>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// The size of a data packet, headers included.
    pub packet_bytes: u32,
    /// The size of an acknowledgement, headers included.
    pub ack_bytes: u32,
    /// When it ends.
    pub duration: Duration,
    /// How far samples are apart.
    pub sample: Duration,
    /// A sender takes up to so long from an acknowledgement to what it sends then, each time drawn anew.
    /// Without it flows may lock in phase: if all packets take equally long, it may always be the same
    /// flow's that find the queue full, or short of its threshold, as no hosts ever do
    /// [Floyd and Jacobson 1991]. A packet's time at the bottleneck is enough.
    pub jitter: Duration,
    /// What losses and jitter are drawn from.
    pub seed: u64,
}

/// The size of a data packet if nothing else is said [PPUSH §IV-B].
pub const PACKET_BYTES: u32 = 1210;
/// The size of an acknowledgement if nothing else is said: headers of IP and TCP.
pub const ACK_BYTES: u32 = 40;

impl Flows {
    /// Flows over links for so long, sampled 400 times.
    pub fn new(lines: Vec<Line>, flows: Vec<Flow>, duration: Duration) -> Self {
        Self {
            lines,
            flows,
            packet_bytes: PACKET_BYTES,
            ack_bytes: ACK_BYTES,
            duration,
            sample: duration / 400,
            jitter: Duration::ZERO,
            seed: 0,
        }
    }
}

/// What cannot be about flows and links.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowsError {
    /// Something out of range.
    #[error("{what}`{key}` is {found}: expected {expected}")]
    Range {
        /// Of which link or flow, with a colon behind; empty if of all.
        what: String,
        /// What it is called in a file.
        key: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// A flow from or to a node without a link.
    #[error("flow {flow}: `{key}`: there is no link to a node `{}`", excerpt(name))]
    NoNode {
        /// Which flow, from 1.
        flow: usize,
        /// Which end.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// Two links from one node to another.
    #[error(
        "link {link}: there is another link from `{}` to `{}`",
        excerpt(from),
        excerpt(to)
    )]
    Twice {
        /// Which link, from 1.
        link: usize,
        /// Where it begins.
        from: String,
        /// Where it ends.
        to: String,
    },
    /// A flow to which nothing can be acknowledged.
    #[error(
        "flow {flow}: acknowledgements have no way back: a link of its way has no other direction"
    )]
    NoWayBack {
        /// Which flow, from 1.
        flow: usize,
    },
    /// Links that do not join the nodes of flows.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A link that cannot be.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// Congestion control that cannot be.
    #[error(transparent)]
    Congestion(#[from] OptionError),
    /// A flow of Parallel Push that cannot be.
    #[error(transparent)]
    Push(#[from] outpour_push::Error),
}
