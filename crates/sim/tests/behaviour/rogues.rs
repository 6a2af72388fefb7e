//! One of eleven members deceives the others: what that costs them, by each protocol.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId};
use outpour_protocols::registry::by_name;
use outpour_sim::cast::{CastConfig, simulate, trace};
use outpour_sim::rogue::Deceit;
use outpour_terms::Asked;

use super::rate;

/// The member that deceives: the first of the second cluster, before most of the others in a line.
const BAD: u32 = 4;
const SIZE: Bytes = Bytes(20_000_000);
/// How much longer the others may take.
const LONGER_MAX: f64 = 1.2;

/// Members that are alike, of one cluster.
fn star(nodes: u32) -> Network {
    let rate = rate("20 Mbit/s");
    Network::uniform(nodes, rate, rate, Duration::from_millis(1)).unwrap()
}

/// The same in three clusters, of which the second has so many nodes.
pub(super) fn clusters(second: u32) -> Network {
    let cluster = |name: &str, nodes: u32| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\n\
             node_out = \"20 Mbit/s\"\nnode_in = \"20 Mbit/s\"\n"
        )
    };
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"60 Mbit/s\"\ndelay = \"2 ms\"\n";
    let all = [
        &cluster("a", 4),
        &cluster("b", second),
        &cluster("c", 3),
        link,
    ];
    Network::from_toml(&all.concat(), "three.toml").unwrap()
}

/// A cast in which a member deceives, or in which that member is not.
fn config(protocol: &str, is_star: bool, deceit: Option<Deceit>, seed: u64) -> CastConfig {
    let network = match (is_star, deceit.is_some()) {
        (true, bad) => star(10 + u32::from(bad)),
        (false, bad) => clusters(3 + u32::from(bad)),
    };
    CastConfig {
        asked: Asked {
            protocol: Some(by_name(protocol).unwrap()),
            seed: Some(seed),
            ..Asked::default()
        },
        rogue: deceit.map(|deceit| (NodeId(BAD), deceit)),
        ..CastConfig::new(network, NodeId(0), SIZE)
    }
}

/// When the last of the honest had everything, in seconds.
#[track_caller]
fn time(protocol: &str, is_star: bool, deceit: Option<Deceit>, seed: u64) -> f64 {
    let what = format!("{protocol}, {deceit:?}, star {is_star}, seed {seed}");
    let report = simulate(config(protocol, is_star, deceit, seed));
    let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
    // The first node is the source, which is not in the report.
    let is_honest = |(node, _): &(u32, _)| deceit.is_none() || *node != BAD;
    let honest = (1..).zip(&report.nodes).filter(is_honest);
    let times = honest.map(|(_, node)| node.finish_s.unwrap_or(f64::INFINITY));
    let last = times.fold(0.0, f64::max);
    assert!(last.is_finite(), "{what}: not all have it");
    last
}

/// By these no deceit costs the others more than it may.
#[test]
fn who_deceives_costs_the_others_little() {
    use Deceit::{Claim, Hoard, Mute};
    let all = &[Claim, Hoard, Mute][..];
    let bounded = [
        ("chain", true, all),
        ("chain", false, all),
        ("swarm", true, &[Claim, Mute]),
        ("swarm", false, all),
        ("push", true, &[Claim, Mute]),
        ("push", false, all),
        ("mob", true, all),
        ("mob", false, all),
        ("robber", true, all),
        ("robber", false, &[Claim, Mute]),
        ("coded-gossip", true, all),
        ("coded-gossip", false, all),
        ("random-block", true, all),
        ("optimal", true, &[Claim, Mute]),
        ("optimal", false, &[Claim, Mute]),
        ("central", true, &[Mute]),
        ("central", false, &[Mute]),
    ];
    for (protocol, is_star, deceits) in bounded {
        let honest = time(protocol, is_star, None, 1);
        for deceit in deceits {
            let deceived = time(protocol, is_star, Some(*deceit), 1);
            assert!(
                deceived <= LONGER_MAX * honest,
                "{protocol}, {deceit:?}, star {is_star}: {deceived:.2} s, without {honest:.2} s"
            );
        }
    }
}

/// By every protocol the others have everything in the end, though nobody tells them who deceives.
#[test]
fn who_deceives_keeps_nobody_from_the_object() {
    let protocols = [
        "direct",
        "chain",
        "swarm",
        "bittorrent",
        "mob",
        "robber",
        "push",
        "adaptive",
        "central",
        "coded-gossip",
        "random-block",
        "optimal",
        "fpfr",
        "binary",
    ];
    for protocol in protocols {
        for is_star in [true, false] {
            for deceit in Deceit::ALL {
                let honest = time(protocol, is_star, None, 1);
                let deceived = time(protocol, is_star, Some(deceit), 1);
                let bound = 8.0 * honest;
                assert!(
                    deceived < bound,
                    "{protocol}, {deceit:?}: {deceived}, {honest}"
                );
            }
        }
    }
}

#[test]
fn a_deceit_has_the_same_trace_each_time() {
    for deceit in Deceit::ALL {
        let play = || {
            trace(config("swarm", true, Some(deceit), 7), None)
                .unwrap()
                .1
        };
        assert_eq!(play(), play());
    }
}
