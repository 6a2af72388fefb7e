//! Plans are pushed at nearly their own rate, and orphans get what they miss.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::plan::{Plan, Tree};
use outpour_core::script::Script;
use outpour_core::{Bytes, NodeId, Time};
use outpour_sim::cast::{CastConfig, SimReport, simulate};
use outpour_sim::fault::{Fault, FaultKind};

use super::{asked, cast, rate, star, two_sources};

/// The four clusters of [Burger figure 4.15], with members in the given numbers.
fn four_clusters(sizes: [u32; 4], delay: &str, fast: bool) -> Network {
    let between = if fast { "8 MB/s" } else { "0.8 MB/s" };
    let mut text = String::new();
    let mut next = 0;
    for (name, size) in ["ca", "cb", "cc", "cd"].into_iter().zip(sizes) {
        let nodes: Vec<String> = (next..next + size).map(|node| node.to_string()).collect();
        text += &format!("defineCluster {} {name}\n", nodes.join(" "));
        next += size;
    }
    text += "setAllCapacityIn 100 MB/s\nsetAllCapacityOut 100 MB/s\n";
    text += "setCapacityIn c.* 100 MB/s\nsetCapacityOut c.* 100 MB/s\n";
    text += &format!("setDelay c.* c.* {delay}\n");
    let links = [
        ("ca", "cb", "10 MB/s"),
        ("ca", "cc", "3 MB/s"),
        ("cb", "cd", "2 MB/s"),
        ("cc", "cd", "6 MB/s"),
        ("ca", "cd", between),
        ("cb", "cc", between),
    ];
    for (one, other, rate) in links {
        text += &format!("setBandwidth {one} {other} {rate}\nsetBandwidth {other} {one} {rate}\n");
    }
    Script::parse(&text, "four").unwrap().network(None).unwrap()
}

fn push(network: Network, protocol: &str) -> SimReport {
    simulate(CastConfig {
        size: Bytes(150_000_000),
        asked: asked(protocol, 32_768),
        ..cast(network, protocol, 0)
    })
    .unwrap()
}

#[test]
fn trees_are_pushed_at_the_rate_of_their_plan() {
    let cases = [
        ([4; 4], "10 ms", true, 0.98),
        ([4; 4], "10 ms", false, 0.98),
        ([1, 3, 4, 8], "10 ms", true, 0.98),
        // The way through all clusters and back takes its time in so short a transfer.
        ([4; 4], "50 ms", true, 0.94),
    ];
    for (sizes, delay, fast, least) in cases {
        for protocol in ["balanced", "optimal"] {
            let report = push(four_clusters(sizes, delay, fast), protocol);
            let case = format!("{protocol}, {sizes:?}, {delay}, fast {fast}");
            assert!(report.ratio < 1.0 / least, "{case}: {}", report.ratio);
            assert_eq!(
                (report.wan_bytes, report.wan_repeats),
                (450_000_000, 0),
                "{case}"
            );
        }
    }
}

/// All links and nearly all cards are used up, by trees of which some are three times as wide as others.
#[test]
fn a_plan_that_cards_limit_loses_nothing_to_bursts_of_thin_trees() {
    let cluster = |name: char| {
        let card = "node_out = \"11.2 MB/s\"\nnode_in = \"11.2 MB/s\"\n";
        let local = "interconnect = true\nlocal = \"29 MB/s\"\n";
        format!("[[cluster]]\nname = \"{name}\"\nnodes = 4\n{card}{local}")
    };
    let links = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"16 MB/s\"\ndelay = \"1 ms\"\n\
                 [[link]]\nfrom = \"d\"\nto = \"*\"\nrate = \"14.5 MB/s\"\nboth = true\n";
    let text = ('a'..='d').map(cluster).collect::<String>() + links;
    let network = Network::from_toml(&text, "full.toml").unwrap();
    // With bursts 1.2.
    let ratio = push(network, "central").ratio;
    assert!(ratio < 1.05, "{ratio}");
}

/// A slow tree beside a fast one: everything they need is used up, so none may take the other's.
#[test]
fn two_sources_of_unequal_rates_lose_nothing_to_bursts() {
    let report = simulate(CastConfig {
        sources: vec![NodeId(0), NodeId(1)],
        size: Bytes(100_000_000),
        asked: asked("optimal", 65_536),
        ..cast(two_sources(), "optimal", 0)
    });
    // 1.09 if only the sources keep to the rates of the trees.
    let ratio = report.unwrap().ratio;
    assert!(ratio < 1.03, "{ratio}");
}

#[test]
fn a_plan_made_for_another_network_is_pushed_at_its_own_rate() {
    // Shaped by the sender, it does not use what it does not know of [Burger §4.6.2].
    let config = CastConfig {
        size: Bytes(150_000_000),
        asked: asked("balanced", 32_768),
        believed: Some(four_clusters([2; 4], "10 ms", false)),
        ..cast(four_clusters([2; 4], "10 ms", true), "balanced", 0)
    };
    let report = simulate(config).unwrap();
    let slow = push(four_clusters([2; 4], "10 ms", false), "balanced");
    super::assert_within(report.finish_s, slow.finish_s, 0.02);
}

/// Two chains through seven nodes, in opposite directions.
fn two_chains() -> Plan {
    let chain = |nodes: [u32; 7]| Tree {
        rate: rate("5 MB/s"),
        edges: nodes
            .windows(2)
            .map(|pair| (NodeId(pair[0]), NodeId(pair[1])))
            .collect(),
    };
    Plan {
        roots: vec![NodeId(0)],
        trees: vec![chain([0, 1, 2, 3, 4, 5, 6]), chain([0, 6, 5, 4, 3, 2, 1])],
    }
}

fn chains() -> CastConfig {
    let mut config = cast(star(7), "tree", 64);
    config.asked.plan = Some(two_chains());
    config
}

fn chains_with(faults: Vec<Fault>) -> SimReport {
    simulate(CastConfig { faults, ..chains() }).unwrap()
}

fn crash(node: u32, at_s: f64, lasts_s: Option<f64>) -> Fault {
    Fault {
        at: Time::from_secs_f64(at_s),
        lasts: lasts_s.map(Duration::from_secs_f64),
        kind: FaultKind::Crash {
            node: NodeId(node),
            unjournaled: Duration::ZERO,
            silent: false,
        },
    }
}

#[test]
fn the_trees_go_on_around_a_dead_node() {
    let calm = chains_with(Vec::new());
    let report = chains_with(vec![crash(3, 2.0, None)]);
    assert_eq!(report.nodes[2].finish_s, None);
    let late = report.finish_s / calm.finish_s;
    assert!(
        late < 1.5,
        "{} instead of {}",
        report.finish_s,
        calm.finish_s
    );
}

#[test]
fn a_node_that_comes_back_gets_what_it_missed() {
    let report = chains_with(vec![crash(3, 2.0, Some(3.0))]);
    assert!(report.nodes.iter().all(|node| node.finish_s.is_some()));
    assert!(report.finish_s < 20.0, "{}", report.finish_s);
}

#[test]
fn receivers_finish_without_the_source_if_together_they_have_everything() {
    // All blocks are out, each with the first of a chain; the rest of the chain lacks some.
    let report = chains_with(vec![crash(0, 6.95, None)]);
    assert!(report.finish_s > 6.95, "{}", report.finish_s);
    assert!(report.nodes.iter().all(|node| node.finish_s.is_some()));
}

#[test]
fn nobody_finishes_if_the_source_took_blocks_with_it() {
    let error = simulate(CastConfig {
        faults: vec![crash(0, 3.0, None)],
        ..chains()
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("6 nodes incomplete"), "{error}");
}
