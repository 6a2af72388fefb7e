//! Times that follow from arithmetic.

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId};
use outpour_sim::cast::{CastConfig, simulate};

use super::{MIB, asked, assert_within, cast, star, two_sources};

#[test]
fn direct_takes_one_copy_per_receiver() {
    let report = simulate(cast(star(11), "direct", 100)).unwrap();
    let copy = 100.0 * MIB as f64 / 10e6;
    assert_within(report.finish_s, 10.0 * copy, 0.01);
    assert_within(report.limit_s, copy, 0.01);
    assert_within(report.ratio, 10.0, 0.01);
    assert_eq!(report.nodes.len(), 10);
    assert_eq!(report.wan_bytes, 0);
}

#[test]
fn chain_takes_one_copy_and_a_block_per_hop() {
    let report = simulate(cast(star(11), "chain", 100)).unwrap();
    let block = MIB as f64 / 10e6;
    assert_within(report.finish_s, 109.0 * block, 0.01);
    let first = report.nodes[0].finish_s.unwrap();
    assert_within(first, 100.0 * block, 0.01);
}

#[test]
fn one_receiver_gets_the_whole_rate_and_the_last_block_is_short() {
    let mut config = cast(star(2), "direct", 0);
    config.size = Bytes(50 * MIB + MIB / 2);
    let report = simulate(config).unwrap();
    assert_within(report.finish_s, 50.5 * MIB as f64 / 10e6, 0.01);
}

#[test]
fn an_empty_object_is_there_at_once() {
    for protocol in ["direct", "chain", "swarm"] {
        let report = simulate(cast(star(4), protocol, 0)).unwrap();
        assert_eq!(
            (report.finish_s, report.limit_s, report.ratio),
            (0.0, 0.0, 1.0)
        );
    }
}

#[test]
fn a_small_swarm_is_near_the_limit() {
    let report = simulate(cast(star(20), "swarm", 400)).unwrap();
    assert!((1.0..1.15).contains(&report.ratio), "{}", report.ratio);
}

/// Each tells the other what it gives, so hardly a block comes from both.
#[test]
fn two_sources_of_a_swarm_give_each_block_once() {
    for seed in 1..=3 {
        let mut asked = asked("swarm", 64 << 10);
        asked.seed = Some(seed);
        let report = simulate(CastConfig {
            sources: vec![NodeId(0), NodeId(1)],
            size: Bytes(100_000_000),
            asked,
            ..cast(two_sources(), "swarm", 0)
        });
        let report = report.unwrap();
        let received = 5.0 * 100e6 / f64::from(64 << 10);
        let share = report.repeats as f64 / received;
        assert!(share < 0.005, "seed {seed}: {share}");
        assert!(report.ratio < 1.06, "seed {seed}: {}", report.ratio);
    }
}

const TWO_CLUSTERS: &str = r#"
    [[cluster]]
    name = "A"
    nodes = 3
    node_out = "20 MB/s"
    node_in = "20 MB/s"
    [[cluster]]
    name = "B"
    nodes = 3
    node_out = "20 MB/s"
    node_in = "20 MB/s"
    [[link]]
    from = "A"
    to = "B"
    rate = "2 MB/s"
    delay = "20 ms"
    both = true
"#;

fn between_clusters(protocol: &str) -> CastConfig {
    let network = Network::from_toml(TWO_CLUSTERS, "two.toml").unwrap();
    CastConfig {
        sources: vec![NodeId(0)],
        ..cast(network, protocol, 64)
    }
}

#[test]
fn chain_crosses_between_clusters_once() {
    let report = simulate(between_clusters("chain")).unwrap();
    assert_eq!(report.wan_bytes, 64 * MIB);
    assert_within(report.finish_s, 64.0 * MIB as f64 / 2e6, 0.03);
    assert_within(report.limit_s, 64.0 * MIB as f64 / 2e6, 0.01);
}

#[test]
fn direct_crosses_between_clusters_once_per_receiver_there() {
    let report = simulate(between_clusters("direct")).unwrap();
    assert_eq!(report.wan_bytes, 3 * 64 * MIB);
    assert_within(report.finish_s, 3.0 * 64.0 * MIB as f64 / 2e6, 0.01);
}

#[test]
fn the_report_has_the_documented_keys() {
    let report = simulate(between_clusters("chain")).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let keys: Vec<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "finish_s",
        "limit_s",
        "nodes",
        "protocol",
        "ratio",
        "repeats",
        "wan_bytes",
        "wan_repeats",
    ];
    assert_eq!(keys, expected);
    let node = json["nodes"][0].as_object().unwrap();
    assert_eq!(
        node.keys().map(String::as_str).collect::<Vec<_>>(),
        ["finish_s", "node"]
    );
    assert_eq!(json["nodes"][0]["node"], "A1");
}
