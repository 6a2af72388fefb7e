//! `central`: one node decides for all, and they help themselves without it.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::script::Script;
use outpour_core::{Bytes, NodeId, Separation, Time};
use outpour_sim::cast::{CastConfig, SimReport, simulate};
use outpour_sim::fault::{Fault, FaultKind};

use super::{asked, cast};

const KIB: u64 = 1 << 10;
const BLOCK: u64 = 64 * KIB;

/// Sites of so many nodes at 20 Mbit/s, joined at 40 Mbit/s each way.
fn sites(count: u32, nodes: u32) -> Network {
    joined(count, nodes, "40 Mbit/s")
}

fn joined(count: u32, nodes: u32, rate: &str) -> Network {
    let mut toml = String::new();
    for site in 0..count {
        toml += &format!(
            "[[cluster]]\nname = \"s{site}-\"\nnodes = {nodes}\nnode_out = \"20 Mbit/s\"\n\
             node_in = \"20 Mbit/s\"\n"
        );
    }
    toml += &format!("[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"{rate}\"\ndelay = \"10 ms\"\n");
    Network::from_toml(&toml, "sites").unwrap()
}

fn config(network: Network, megabytes: u64) -> CastConfig {
    CastConfig {
        size: Bytes(megabytes * 1_000_000),
        asked: asked("central", BLOCK),
        ..cast(network, "central", 0)
    }
}

fn all_finished(report: &SimReport, but: &[usize]) {
    for (index, node) in report.nodes.iter().enumerate() {
        assert!(
            node.finish_s.is_some() || but.contains(&index),
            "{} has not got all",
            node.node
        );
    }
}

fn at(seconds: f64, lasts: Option<f64>, kind: FaultKind) -> Fault {
    Fault {
        at: Time::from_secs_f64(seconds),
        lasts: lasts.map(Duration::from_secs_f64),
        kind,
    }
}

#[test]
fn what_the_network_carries_is_nearly_used_up() {
    let report = simulate(config(sites(3, 4), 60)).unwrap();
    all_finished(&report, &[]);
    // The limit is one copy through the source; the edges of a cast cost two cycles at least.
    let limit = 60e6 / 2.5e6;
    assert!(report.finish_s < limit * 1.1, "{} s", report.finish_s);
    // What was late may have been sent twice.
    assert!(report.repeats < 11 * 916 / 20, "{}", report.repeats);
}

#[test]
fn a_link_that_gets_slower_is_found_by_what_it_achieves() {
    let script = "sleep 6 s\nsetBandwidth s0- s1- 1 MB/s\nsetBandwidth s1- s0- 1 MB/s\n";
    let report = simulate(CastConfig {
        script: Some(Script::parse(script, "test.script").unwrap()),
        ..config(sites(2, 4), 60)
    })
    .unwrap();
    all_finished(&report, &[]);
    // One copy has to pass the link: 2.5 MB/s for 6 s, then 1 MB/s.
    let limit = 6.0 + (60e6 - 6.0 * 2.5e6) / 1e6;
    assert!(
        report.finish_s < limit * 1.12,
        "{} s of {limit}",
        report.finish_s
    );
    // Blocks that are ordered over a link that is thought to be faster are late, and come twice: 271 do.
    assert!(report.repeats < 150, "{}", report.repeats);
}

/// Two sites of four nodes with fast cards, joined at 1 MB/s as far as is known.
fn slowly_joined() -> Network {
    let site = |name| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = 4\nnode_out = \"100 MB/s\"\nnode_in = \"100 MB/s\"\n"
        )
    };
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 MB/s\"\ndelay = \"10 ms\"\n";
    Network::from_toml(&format!("{}{}{link}", site("s0-"), site("s1-")), "sites").unwrap()
}

#[test]
fn a_link_that_gets_faster_is_used() {
    let script = "sleep 10 s\nsetBandwidth s0- s1- 8 MB/s\nsetBandwidth s1- s0- 8 MB/s\n";
    let report = simulate(CastConfig {
        script: Some(Script::parse(script, "test.script").unwrap()),
        ..config(slowly_joined(), 60)
    })
    .unwrap();
    all_finished(&report, &[]);
    // 1 MB/s for 10 s, then 8 MB/s; as described it would take 60 s.
    let limit = 10.0 + (60e6 - 10.0 * 1e6) / 8e6;
    assert!(report.finish_s < limit + 8.0, "{} s", report.finish_s);
}

#[test]
fn each_block_comes_into_a_site_once_and_is_passed_on_there() {
    let report = simulate(config(slowly_joined(), 20)).unwrap();
    all_finished(&report, &[]);
    assert!(report.finish_s < 20.0 * 1.06, "{} s", report.finish_s);
    let copies = report.wan_bytes as f64 / 20e6;
    assert!(copies < 1.02, "{copies} copies");
}

/// Four continents of two sites of two nodes, joined at 5 MB/s inside and at 0.5 MB/s with each other.
fn continents() -> Network {
    let mut toml = String::new();
    for continent in ["eu", "us", "as", "af"] {
        for site in 0..2 {
            toml += &format!(
                "[[cluster]]\nname = \"{continent}{site}-\"\nnodes = 2\nnode_out = \"100 MB/s\"\n\
                 node_in = \"100 MB/s\"\n"
            );
        }
    }
    toml += "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"0.5 MB/s\"\ndelay = \"10 ms\"\n";
    for continent in ["eu", "us", "as", "af"] {
        toml += &format!(
            "[[link]]\nfrom = \"{continent}*\"\nto = \"{continent}*\"\nrate = \"5 MB/s\"\ndelay = \"1 ms\"\n"
        );
    }
    Network::from_toml(&toml, "continents").unwrap()
}

#[test]
fn each_block_comes_to_a_continent_once() {
    let report = simulate(config(continents(), 60)).unwrap();
    all_finished(&report, &[]);
    // Each continent takes in 6 MB/s, if nothing comes twice; it took 1.4 times as long when both
    // of its sites were sent the same blocks.
    let limit = 60e6 / 6e6;
    assert!(report.finish_s < limit * 1.2, "{} s", report.finish_s);
}

#[test]
fn mates_that_do_not_reach_each_other_are_helped_by_others() {
    // Nodes 5, 6 and 7 do not reach node 4, which has what nobody else of their site gets.
    let cut = [5, 6, 7].map(|node| {
        let (one, other) = (NodeId(4), NodeId(node));
        at(0.5, None, FaultKind::Partition { one, other })
    });
    let report = simulate(CastConfig {
        faults: cut.to_vec(),
        ..config(slowly_joined(), 10)
    })
    .unwrap();
    all_finished(&report, &[]);
    // The limit is 10 s; they wait for ten more before they ask others.
    assert!(report.finish_s < 45.0, "{} s", report.finish_s);
}

#[test]
fn who_cannot_hear_the_leader_is_helped_by_others() {
    let one = NodeId(0);
    let cut = [1, 4].map(|node| {
        let other = NodeId(node);
        at(2.0, None, FaultKind::Partition { one, other })
    });
    let report = simulate(CastConfig {
        faults: cut.to_vec(),
        ..config(sites(2, 3), 30)
    })
    .unwrap();
    all_finished(&report, &[]);
    // The limit is 12 s; three are waited for a leader, and what comes then comes by pieces.
    assert!(report.finish_s < 40.0, "{} s", report.finish_s);
}

#[test]
fn the_next_source_takes_over() {
    let node = NodeId(0);
    let crash = FaultKind::Crash {
        node,
        unjournaled: Duration::ZERO,
        silent: false,
    };
    // A leader that is only stopped keeps its connections, and is noticed by its silence.
    for (lasts, kind) in [(None, crash), (Some(300.0), FaultKind::Stall { node })] {
        let report = simulate(CastConfig {
            sources: vec![NodeId(0), NodeId(3)],
            faults: vec![at(3.0, lasts, kind)],
            ..config(sites(2, 3), 30)
        })
        .unwrap();
        all_finished(&report, &[]);
        // Detecting it takes some seconds, and half of the sources are gone.
        assert!(report.finish_s < 26.0, "{} s", report.finish_s);
    }
}

#[test]
fn nodes_help_themselves_if_nothing_can_move_as_described() {
    use outpour_core::Rate;
    use outpour_core::network::{Change, ClusterId, Resource};
    use outpour_protocols::registry::PlanFrom;
    let mut believed = sites(2, 2);
    for (from, to) in [(0, 1), (1, 0)] {
        let resource = Resource::Link(ClusterId(from), ClusterId(to));
        believed.apply(&Change::Capacity {
            resource,
            rate: Rate::ZERO,
        });
    }
    let mut config = config(sites(2, 2), 10);
    let entry = config.asked.protocol.unwrap();
    let PlanFrom::Network { describe, .. } = entry.plan else {
        panic!("it plans from the network");
    };
    let nodes: Vec<NodeId> = believed.nodes().collect();
    config.asked.options = vec![(entry.name, describe(&believed, &nodes, None))];
    let report = simulate(config).unwrap();
    all_finished(&report, &[]);
}

/// As [`sites`], with links that carry ten times as much as a card: these are the limit.
fn carded(count: u32, nodes: u32) -> Network {
    joined(count, nodes, "200 Mbit/s")
}

fn seconds(network: &Network, protocol: &str, script: Option<&str>) -> SimReport {
    let report = simulate(CastConfig {
        asked: asked(protocol, BLOCK),
        script: script.map(|script| Script::parse(script, "test.script").unwrap()),
        ..config(network.clone(), 60)
    })
    .unwrap();
    all_finished(&report, &[]);
    report
}

#[test]
fn where_cards_are_the_limit_a_cast_begins_with_a_plan() {
    let network = carded(4, 4);
    let limit = 60e6 / 2.5e6;
    let report = seconds(&network, "central", None);
    // Orders alone take 1.06 of it.
    assert!(report.finish_s < limit * 1.02, "{} s", report.finish_s);
    assert_eq!(report.repeats, 0, "trees bring each block once");
}

#[test]
fn a_plan_that_does_not_hold_ends() {
    // What leaves the first site has to pass links that become slow, but half as much is possible.
    let script = "sleep 6 s\nsetBandwidth s0- s1- 1 MB/s\nsetBandwidth s0- s2- 0.25 MB/s\n";
    let network = carded(3, 4);
    let led = seconds(&network, "central", Some(script));
    let planned = seconds(&network, "optimal", Some(script));
    assert!(
        led.finish_s < 0.85 * planned.finish_s,
        "{} s, by trees alone {} s",
        led.finish_s,
        planned.finish_s
    );
    // What was on its way when the plan ended, and what is late later.
    assert!(led.repeats < 11 * 916 / 10, "{}", led.repeats);
}

#[test]
fn a_plan_survives_a_node_that_is_lost() {
    let lost = at(
        6.0,
        None,
        FaultKind::Crash {
            node: NodeId(6),
            unjournaled: Duration::ZERO,
            silent: false,
        },
    );
    let report = simulate(CastConfig {
        faults: vec![lost],
        ..config(carded(3, 4), 60)
    })
    .unwrap();
    all_finished(&report, &[5]);
    assert!(report.finish_s < 24.0 * 1.2, "{} s", report.finish_s);
}

/// A cast over two sites joined at 1 MB/s with other traffic in steps, under a rule.
fn beside(script: &str, rule: Option<Separation>) -> SimReport {
    let mut config = config(slowly_joined(), 20);
    config.asked.separation = rule;
    config.script = Some(Script::parse(script, "test.script").unwrap());
    let report = simulate(config).unwrap();
    all_finished(&report, &[]);
    report
}

#[test]
fn room_is_left_for_other_traffic() {
    let script = "setForeground s0- s1- 100 kB/s\nsleep 5 s\nsetForeground s0- s1- 500 kB/s\n\
                  sleep 10 s\nsetForeground s0- s1- 300 kB/s\n";
    // What is left in each stretch under each rule, and for how long; 20 MB have to pass.
    let least =
        |left: [f64; 3]| 15.0 + (20e6 - (left[0] * 5.0 + left[1] * 10.0) * 1e6) / (left[2] * 1e6);
    let threshold = Some(Separation::Threshold { percent: 80.0 });
    for (rule, left) in [
        (None, [0.9, 0.5, 0.7]),
        (threshold, [0.7, 0.3, 0.5]),
        (Some(Separation::Peak), [0.9, 0.5, 0.5]),
    ] {
        let report = beside(script, rule);
        let (took, least) = (report.finish_s, least(left));
        // A twentieth is left for headers, which simulated packets do not have.
        let longest = least * if rule.is_some() { 1.13 } else { 1.1 };
        assert!(took < longest, "{rule:?}: {took} s of {least}");
        if rule.is_some() {
            assert!(
                took > least * 1.03,
                "{rule:?}: {took} s of {least}, more than its part"
            );
        }
        assert!(took >= report.clairvoyant_s.unwrap_or_default(), "{took} s");
    }
}
