//! The protocols by name: a new one is a new file and a line here.

use crate::promise::Promise;
use crate::{Protocol, Setup};

/// A protocol that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in commands, JSON and on the wire.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What the plan has to come from that drivers put into the [`Setup`], if it executes one.
    pub plan: PlanFrom,
    /// What it promises about blocks that come more than once; the simulator holds it to that.
    pub promise: Promise,
    /// Builds one node's part.
    pub build: fn(Setup) -> Box<dyn Protocol>,
}

/// Where a protocol's plan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFrom {
    /// It needs none.
    Nowhere,
    /// A planner's method of this name, applied to the network.
    Method(&'static str),
    /// The user.
    User,
}

/// Every protocol.
pub const ENTRIES: &[Entry] = &[
    crate::direct::ENTRY,
    crate::chain::ENTRY,
    crate::swarm::ENTRY,
    crate::bittorrent::ENTRY,
    crate::mob::ENTRY,
    crate::robber::ENTRY,
    crate::adaptive::ENTRY,
    crate::gossip::CODED,
    crate::gossip::RANDOM_BLOCK,
    crate::tree::TREE,
    crate::tree::BALANCED,
    crate::tree::OPTIMAL,
    crate::tree::FPFR,
    crate::tree::MAX_BOTTLENECK,
    crate::tree::BINOMIAL,
    crate::tree::BINARY,
    crate::tree::MAGPIE,
];

/// The protocol called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}
