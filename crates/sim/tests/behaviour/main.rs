//! Behaviour of the simulator and of the real protocols in it.

#![allow(clippy::unwrap_used)]

mod backpressure;
mod central;
mod coding;
mod determinism;
mod faults;
mod flows;
mod fluid;
mod gossip;
mod known_answers;
mod mob;
mod random_runs;
mod rates;
mod refusals;
mod relays;
mod rogues;
mod scripts;
mod shuffle;
mod slow_disks;
mod tasks;
mod toy;
mod transport;
mod trees;

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Rate};
use outpour_protocols::registry::{Configured, by_name};
use outpour_protocols::{Member, Role};
use outpour_sim::cast::CastConfig;
use outpour_terms::{Asked, Terms};

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
        asked: asked(protocol, MIB),
        ..CastConfig::new(network, NodeId(0), Bytes(blocks * MIB))
    }
}

/// Two sources that together send what each of five receivers takes.
fn two_sources() -> Network {
    Network::from_toml(
        r#"
        [[cluster]]
        name = "s"
        members = ["a1", "a2", "b1", "b2", "b3", "b4", "b5"]
        node_out = "100 Mbit/s"
        node_in = "100 Mbit/s"

        [[node]]
        name = "a1"
        out = "10 Mbit/s"

        [[node]]
        name = "a2"
        out = "90 Mbit/s"
        "#,
        "two.toml",
    )
    .unwrap()
}

/// A protocol, or `auto`, and the size of blocks.
fn asked(protocol: &str, block: u64) -> Asked {
    Asked {
        protocol: (protocol != "auto").then(|| by_name(protocol).unwrap()),
        block_bytes: Some(block.try_into().unwrap()),
        ..Asked::default()
    }
}

/// What the nodes of a star have agreed on, the first of which has the object.
fn terms(protocol: Configured, nodes: u32, seed: u64) -> Terms {
    let member = |node| Member {
        cluster: 0,
        role: Role::source_if(node == 0),
    };
    Terms::new(protocol, (0..nodes).map(member).collect(), seed)
}

#[track_caller]
fn assert_within(actual: f64, expected: f64, share: f64) {
    let error = (actual / expected - 1.0).abs();
    assert!(
        error <= share,
        "{actual}, expected {expected} within {share}, off by {error}"
    );
}
