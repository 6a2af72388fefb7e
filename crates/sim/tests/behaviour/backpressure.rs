//! `adaptive` finds its way without a plan, and around nodes that are lost.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Time};
use outpour_sim::cast::{CastConfig, SimReport, simulate};
use outpour_sim::fault::{Fault, FaultKind};

use super::{asked, cast};

/// Four hosts with the links of [Burger figure 4.16a].
const FOUR: &str = r#"
    cluster = [
        { name = "a", nodes = 1, node_out = "100 MB/s", node_in = "100 MB/s" },
        { name = "b", nodes = 1, node_out = "100 MB/s", node_in = "100 MB/s" },
        { name = "c", nodes = 1, node_out = "100 MB/s", node_in = "100 MB/s" },
        { name = "d", nodes = 1, node_out = "100 MB/s", node_in = "100 MB/s" },
    ]
    link = [
        { from = "*", to = "*", delay = "10 ms" },
        { from = "a", to = "b", rate = "10 MB/s", both = true },
        { from = "a", to = "c", rate = "3 MB/s", both = true },
        { from = "a", to = "d", rate = "8 MB/s", both = true },
        { from = "b", to = "c", rate = "8 MB/s", both = true },
        { from = "b", to = "d", rate = "2 MB/s", both = true },
        { from = "c", to = "d", rate = "6 MB/s", both = true },
    ]
"#;

fn run(faults: Vec<Fault>) -> SimReport {
    let network = Network::from_toml(FOUR, "four.toml").unwrap();
    simulate(CastConfig {
        size: Bytes(100_000_000),
        asked: asked("adaptive", 32_768),
        faults,
        ..cast(network, "adaptive", 0)
    })
    .unwrap()
}

#[test]
fn several_routes_are_used_at_once() {
    let report = run(Vec::new());
    // One tree alone reaches 6 MB/s at most, so 2.7 times the limit.
    assert!(report.ratio < 1.5, "{}", report.ratio);
}

#[test]
fn the_rest_finish_without_a_node_that_is_lost() {
    let crash = Fault {
        at: Time::from_secs_f64(3.0),
        lasts: None,
        kind: FaultKind::Crash {
            node: NodeId(1),
            unjournaled: Duration::ZERO,
            silent: false,
        },
    };
    let report = run(vec![crash]);
    let finished = |name: &str| {
        let mut nodes = report.nodes.iter();
        nodes.find(|node| node.node == name).unwrap().finish_s
    };
    assert_eq!(finished("b"), None);
    assert!(finished("c").is_some() && finished("d").is_some());
}
