//! One of ten receivers takes a hundredth of what the others do, as its disk is slow: what that costs the others.

use outpour_core::{Bytes, NodeId, Time};
use outpour_protocols::registry::by_name;
use outpour_sim::cast::{CastConfig, simulate};
use outpour_sim::fault::{Fault, FaultKind};
use outpour_terms::Asked;

use super::{rate, rogues};

/// The slow one: the first of the second cluster.
const SLOW: u32 = 4;
const SIZE: Bytes = Bytes(20_000_000);
const RATE: &str = "20 Mbit/s";
const SLOW_RATE: &str = "200 kbit/s";
/// How much longer the others may take.
const LONGER_MAX: f64 = 1.05;

/// When the last of the others had everything, in seconds.
#[track_caller]
fn time(protocol: &str, slow: bool, seed: u64) -> f64 {
    // What a disk does not take its host does not take from the network.
    let kind = FaultKind::NodeRate {
        node: NodeId(SLOW),
        out: rate(RATE),
        into: rate(SLOW_RATE),
    };
    let (at, lasts) = (Time::ZERO, None);
    let fault = Fault { at, lasts, kind };
    let config = CastConfig {
        asked: Asked {
            protocol: Some(by_name(protocol).unwrap()),
            seed: Some(seed),
            ..Asked::default()
        },
        faults: slow.then_some(fault).into_iter().collect(),
        ..CastConfig::new(rogues::clusters(4), NodeId(0), SIZE)
    };
    let what = format!("{protocol}, slow {slow}, seed {seed}");
    let report = simulate(config).unwrap_or_else(|error| panic!("{what}: {error}"));
    // The first node is the source, which is not in the report.
    let others = (1..).zip(&report.nodes).filter(|(node, _)| *node != SLOW);
    let times = others.map(|(_, node)| node.finish_s.unwrap_or(f64::INFINITY));
    let last = times.fold(0.0, f64::max);
    assert!(last.is_finite(), "{what}: not all have it");
    last
}

#[test]
fn a_slow_disk_costs_the_others_little() {
    for protocol in ["swarm", "robber", "push", "coded-gossip", "random-block"] {
        let mean = |slow| (1..=3).map(|seed| time(protocol, slow, seed)).sum::<f64>() / 3.0;
        let (sound, slow) = (mean(false), mean(true));
        let bound = LONGER_MAX * sound;
        assert!(slow <= bound, "{protocol}: {slow:.2} s, else {sound:.2} s");
    }
}
