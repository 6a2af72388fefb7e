//! Emulated networks on one machine: a network namespace per node, joined by links that keep the
//! rates, delays, queues, marks and losses of a network description.
//!
//! Real programs run in the namespaces, and real packets leave them through TUN devices. One
//! thread of the emulator moves them along the resources of their path, at times computed in
//! virtual time, so that the result does not depend on a queueing discipline the system may lack.
//! A script changes the network while it runs.
//!
//! Two modes: packet by packet, where queues, marks and losses act on single packets; and bulk,
//! where they act on bundles of up to 64 KiB that TCP hands over whole, at a fraction of the cost.
//! A rate counts IP packets with their headers, in bulk mode those the bundles stand for.
//!
//! It is IPv4 from end to end in one hop: there is no IPv6, no Ethernet and no router that counts
//! time to live. A dead link swallows packets silently, as a cut cable does.
//!
//! Everything ends with the emulator: its namespaces and devices exist only as its open
//! descriptors, and its processes under a first one that dies with it.

mod address;
mod control;
mod director;
mod emulation;
mod engine;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod inside;
mod lateness;
mod mover;
mod nodes;
mod packet;
mod process;
mod report;
mod running;
mod samples;
mod state;

use std::time::Duration;

use outpour_core::Network;
use outpour_core::script::Script;

pub use address::{CLUSTERS_MAX, NODES_MAX};
pub use control::Client;
pub use director::Told;
pub use emulation::Emulation;
pub use error::EmuError;
pub use inside::{SIGNALLED, Started, exec, init};
pub use lateness::{MEDIAN_MAX, MISSED_SHARE_MAX, P99_MAX, Verdict, WORST_MAX};
pub use report::EmulationReport;
pub use running::{Killer, Running};
pub use samples::{Carried, LinkCarried, SAMPLES_MAX};
pub use state::{NODE_VARIABLE, VARIABLE};

/// How many nodes a message names.
const NODES_NAMED_MAX: usize = 10;

/// What queues, marks and losses act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Single packets.
    Packet,
    /// Bundles of up to 64 KiB.
    Bulk,
}

impl Mode {
    /// The largest packet unless something else is asked for: that of the internet packet by
    /// packet, that of fast local networks in bulk.
    pub const fn usual_mtu(self) -> u32 {
        match self {
            Self::Packet => 1500,
            Self::Bulk => 9000,
        }
    }

    /// How long packets are collected under load: the price is as much lateness.
    const fn pause(self) -> Duration {
        match self {
            Self::Packet => Duration::from_micros(200),
            Self::Bulk => Duration::from_micros(500),
        }
    }
}

/// What to emulate.
#[derive(Clone, Debug)]
pub struct Config {
    /// The network at the start.
    pub network: Network,
    /// What changes it.
    pub script: Option<Script>,
    /// What queues, marks and losses act on.
    pub mode: Mode,
    /// The largest packet, bytes with its IP header.
    pub mtu: u32,
    /// Seed of random losses.
    pub seed: u64,
    /// How long each sample is of what links between clusters carried; `None` for no samples.
    pub sample: Option<Duration>,
}

/// Says which nodes there are instead.
pub fn unknown_node(network: &Network, name: &str) -> EmuError {
    let mut known: Vec<_> = (network.nodes().take(NODES_NAMED_MAX))
        .map(|node| network.name(node))
        .collect();
    if network.node_count() as usize > NODES_NAMED_MAX {
        known.push("...");
    }
    EmuError::UnknownNode {
        name: name.to_owned(),
        known: known.join(", "),
    }
}
