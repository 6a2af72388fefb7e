//! Behaviour of the simulator and of the real protocols in it.

#![allow(clippy::unwrap_used)]

mod backpressure;
mod coding;
mod determinism;
mod faults;
mod gossip;
mod known_answers;
mod mob;
mod random_runs;
mod refusals;
mod scripts;
mod transport;
mod trees;

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Rate};
use outpour_sim::cast::{CastConfig, Coding};

const MIB: u64 = 1 << 20;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// `nodes` equal nodes of 10 MB/s, half a millisecond apart.
fn star(nodes: u32) -> Network {
    let rate = rate("10 MB/s");
    Network::uniform(nodes, rate, rate, Duration::from_micros(500)).unwrap()
}

fn cast(network: Network, protocol: &str, blocks: u64) -> CastConfig {
    CastConfig {
        network,
        root: NodeId(0),
        size: Bytes(blocks * MIB),
        block: Some(Bytes(MIB)),
        protocol: protocol.to_owned(),
        seed: 1,
        faults: Vec::new(),
        plan: None,
        believed: None,
        coding: Coding::default(),
        script: None,
    }
}

#[track_caller]
fn assert_within(actual: f64, expected: f64, share: f64) {
    let error = (actual / expected - 1.0).abs();
    assert!(
        error <= share,
        "{actual}, expected {expected} within {share}, off by {error}"
    );
}
