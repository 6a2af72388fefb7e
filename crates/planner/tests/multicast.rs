//! Plans whose throughput is known, from papers or by hand.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use outpour_core::network::Network;
use outpour_planner::multicast::{Method, Planned, plan};

const MB: f64 = 1e6;

/// Clusters of `nodes` nodes each with `keys`, and links from, to, MB/s.
fn network(names: &[(&str, u32)], keys: &str, links: &[(&str, &str, f64)], both: bool) -> Network {
    let mut text = String::new();
    for (name, nodes) in names {
        writeln!(
            text,
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\n{keys}"
        )
        .unwrap();
    }
    for (from, to, rate) in links {
        let ends = format!("from = \"{from}\"\nto = \"{to}\"");
        writeln!(
            text,
            "[[link]]\n{ends}\nrate = \"{rate} MB/s\"\nboth = {both}"
        )
        .unwrap();
    }
    Network::from_toml(&text, "test.toml").unwrap()
}

#[track_caller]
fn planned(network: &Network, root: &str, method: Method) -> Planned {
    let planned = plan(network, network.node(root).unwrap(), method).unwrap();
    check(network, &planned);
    planned
}

/// A plan is one, fits, and says what it carries.
#[track_caller]
fn check(network: &Network, planned: &Planned) {
    planned.plan.check(network.node_count()).unwrap();
    let mut loads = std::collections::BTreeMap::new();
    for tree in &planned.plan.trees {
        for (from, to) in &tree.edges {
            for resource in network.path(*from, *to).resources() {
                *loads.entry(*resource).or_insert(0.0) += tree.rate.bytes_per_s();
            }
        }
    }
    for (resource, load) in &loads {
        let capacity = network.capacity(*resource).bytes_per_s();
        assert!(
            *load <= capacity * (1.0 + 1e-6),
            "{} over its capacity",
            network.describe(*resource)
        );
        assert_eq!(
            planned.saturated.contains(resource),
            *load >= capacity * (1.0 - 1e-6)
        );
    }
    let sum = planned.plan.throughput().bytes_per_s();
    assert!((sum / planned.throughput.bytes_per_s() - 1.0).abs() < 1e-9);
    assert!(planned.throughput <= planned.optimum);
}

#[track_caller]
fn rate(network: &Network, root: &str, method: Method) -> f64 {
    planned(network, root, method).throughput.bytes_per_s() / MB
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    let error = (found / expected - 1.0).abs();
    assert!(error < 1e-5, "found {found}, expected {expected}");
}

#[test]
fn three_hosts() {
    // [Burger §3.1.2, figures 3.3 and 3.4].
    let network = network(
        &[("x", 1), ("y", 1), ("z", 1)],
        "node_out = '10 MB/s'\nnode_in = '10 MB/s'",
        &[("x", "y", 10.0), ("x", "z", 8.0), ("y", "z", 4.0)],
        true,
    );
    assert_near(rate(&network, "x", Method::Fpfr), 7.5);
    let balanced = planned(&network, "x", Method::Balanced);
    assert_near(balanced.throughput.bytes_per_s() / MB, 9.0);
    let rates: Vec<f64> = balanced
        .routes
        .iter()
        .map(|route| route.rate.bytes_per_s() / MB)
        .collect();
    assert_eq!(rates.len(), 3);
    for (found, expected) in rates.into_iter().zip([4.0, 4.0, 1.0]) {
        assert_near(found, expected);
    }
    assert_near(rate(&network, "x", Method::Optimal), 9.0);
    assert_near(rate(&network, "x", Method::Direct), 5.0);
    // Two streams of the root, where one link alone would carry 8.
    assert_near(rate(&network, "x", Method::MaxBottleneck), 5.0);
}

#[test]
fn four_hosts_for_which_fpfr_makes_too_many_trees() {
    // [Burger §3.2.1, figure 3.5].
    let links = [
        ("A", "B", 10.0),
        ("A", "C", 10.0),
        ("A", "D", 10.0),
        ("B", "C", 5.0),
        ("B", "D", 5.0),
        ("C", "D", 5.0),
    ];
    let hosts = [("A", 1), ("B", 1), ("C", 1), ("D", 1)];
    let keys = "node_out = '10 MB/s'\nnode_in = '10 MB/s'";
    let network = network(&hosts, keys, &links, true);
    let fpfr = planned(&network, "A", Method::Fpfr);
    assert_eq!(fpfr.plan.trees.len(), 4);
    assert_near(fpfr.throughput.bytes_per_s() / MB, 20.0 / 3.0);
    for method in [Method::Balanced, Method::Optimal] {
        let planned = planned(&network, "A", method);
        assert_eq!(planned.plan.trees.len(), 2, "{method}");
        assert_near(planned.throughput.bytes_per_s() / MB, 10.0);
    }
}

/// [Burger §4.6.2], figure 4.16.
fn four_clusters(nodes: [u32; 4], a_d_and_b_c: f64) -> Network {
    let names = ["A", "B", "C", "D"];
    let clusters: Vec<_> = names.into_iter().zip(nodes).collect();
    network(
        &clusters,
        "node_out = '100 MB/s'\nnode_in = '100 MB/s'\nout = '100 MB/s'\nin = '100 MB/s'",
        &[
            ("A", "B", 10.0),
            ("A", "C", 3.0),
            ("B", "D", 2.0),
            ("C", "D", 6.0),
            ("A", "D", a_d_and_b_c),
            ("B", "C", a_d_and_b_c),
        ],
        true,
    )
}

#[test]
fn four_clusters_reach_the_optimum() {
    for nodes in [[16; 4], [4, 12, 16, 32], [1; 4]] {
        for (links, optimum) in [(8.0, 16.0), (0.8, 6.6)] {
            let network = four_clusters(nodes, links);
            let optimal = planned(&network, "A", Method::Optimal);
            assert_near(optimal.throughput.bytes_per_s() / MB, optimum);
            assert_near(optimal.optimum.bytes_per_s() / MB, optimum);
            for method in Method::ALL {
                planned(&network, "A", method);
            }
        }
    }
}
