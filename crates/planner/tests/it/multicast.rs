//! Plans whose throughput is known, from papers or by hand.

use std::fmt::Write;

use crate::random::any_network;
use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Rate};
use outpour_planner::multicast::{Method, PlanError, Planned, json, plan, svg};
use outpour_planner::{LimitError, limit};
use proptest::prelude::*;

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
    let planned = plan(network, &[network.node(root).unwrap()], method).unwrap();
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
        if capacity.is_infinite() {
            continue;
        }
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
    assert_eq!(planned.plan.throughput(), planned.throughput);
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

/// [Burger §3.2.3], tables 3.1 and 3.2, MB/s: host, in, out, then to each other host in order.
const GRIDLAB: &str = "\
fs0      10.54  9.32  1.03 1.06 0.45 1.02 1.15 0.51 1.15
n0        1.36  1.20  1.11 0    0.37 0.92 0    0    0
cluster3  1.23  1.47  1.19 0    0.36 0.92 1.08 0.37 1.09
helix    10.60 11.00  0.80 0.62 0.52 0.57 0.65 4.76 0.65
eltoro    1.18  0.95  1.01 0.92 0.84 0.38 1.15 0.36 1.15
ia64      1.20  1.20  1.15 0    0.94 0.35 1.10 0.41 0
mike4    11.00 10.60  0.86 0.93 0.57 6.39 0.61 0.63 0.63
pegasos   1.20  1.20  1.15 0    0.94 0.35 1.10 0    0.41";

fn gridlab() -> Network {
    let rows: Vec<Vec<&str>> = GRIDLAB
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let mut text = String::new();
    for row in &rows {
        let (host, into, out) = (row[0], row[1], row[2]);
        writeln!(
            text,
            "[[cluster]]\nname='{host}'\nnodes=1\nin='{into} MB/s'\nout='{out} MB/s'"
        )
        .unwrap();
    }
    for row in &rows {
        let others = rows.iter().filter(|other| other[0] != row[0]);
        for (other, rate) in others.zip(&row[3..]) {
            let ends = format!("from='{}'\nto='{}'", row[0], other[0]);
            writeln!(text, "[[link]]\n{ends}\nrate='{rate} MB/s'").unwrap();
        }
    }
    Network::from_toml(&text, "gridlab").unwrap()
}

#[test]
fn the_gridlab_testbed_from_every_root() {
    let network = gridlab();
    for cluster in network.clusters() {
        let root = cluster.name.as_str();
        let optimum = if root == "eltoro" { 0.95 } else { 1.18 };
        let optimal = planned(&network, root, Method::Optimal);
        assert_near(optimal.throughput.bytes_per_s() / MB, optimum);
        assert!(optimal.exact && optimal.plan.trees.len() <= 10);
        let balanced = rate(&network, root, Method::Balanced);
        assert!(balanced <= optimum * 1.000_001);
        // What a linear program makes of the same trees is never worse.
        assert!(
            balanced >= rate(&network, root, Method::Fpfr) * 0.999_999,
            "{root}"
        );
        for method in [Method::Direct, Method::MaxBottleneck] {
            assert!(
                rate(&network, root, method) < balanced,
                "{method} from {root}"
            );
        }
    }
}

#[test]
fn semi_flat_trees_are_as_low_as_dead_links_allow_and_as_fast() {
    let network = gridlab();
    // From n0 only fs0, helix and eltoro can be reached at once.
    let planned = planned(&network, "n0", Method::Direct);
    let edges = &planned.plan.trees[0].edges;
    let root = planned.plan.roots[0];
    let first: Vec<NodeId> = edges
        .iter()
        .filter(|edge| edge.0 == root)
        .map(|edge| edge.1)
        .collect();
    assert!(
        edges
            .iter()
            .all(|(from, _)| *from == root || first.contains(from))
    );
    // All ways to put the other four below those three.
    let names = ["fs0", "helix", "eltoro"].map(|name| network.node(name).unwrap());
    let others = ["cluster3", "ia64", "mike4", "pegasos"].map(|name| network.node(name).unwrap());
    let mut best: f64 = 0.0;
    for below in 0..8_u32 {
        let direct: Vec<NodeId> = (0..3)
            .filter(|i| below >> i & 1 == 1)
            .map(|i| names[i as usize])
            .collect();
        let rest: Vec<NodeId> = names
            .iter()
            .filter(|n| !direct.contains(n))
            .chain(&others)
            .copied()
            .collect();
        for way in 0..direct.len().pow(rest.len() as u32) {
            let mut digits = way;
            let mut edges: Vec<_> = direct.iter().map(|to| (root, *to)).collect();
            for to in &rest {
                edges.push((direct[digits % direct.len()], *to));
                digits /= direct.len();
            }
            best = best.max(throughput(&network, &edges));
        }
    }
    assert_near(planned.throughput.bytes_per_s(), best);
}

/// What a single tree carries.
fn throughput(network: &Network, edges: &[(NodeId, NodeId)]) -> f64 {
    let mut uses = std::collections::BTreeMap::new();
    for (from, to) in edges {
        for resource in network.path(*from, *to).resources() {
            *uses.entry(*resource).or_insert(0.0) += 1.0;
        }
    }
    let rates = uses
        .iter()
        .map(|(resource, uses)| network.capacity(*resource).bytes_per_s() / uses);
    rates.fold(f64::INFINITY, f64::min)
}

/// [Burger §4.6.3]: cards of 100 Mbit/s, of which `slow` have 10, and links of 1 Gbit/s.
fn local_bottleneck(clusters: usize, nodes: u32, slow: u32) -> Network {
    let mut text = String::new();
    for cluster in 0..clusters {
        let keys = "node_out='100 Mbit/s'\nnode_in='100 Mbit/s'\nout='1 Gbit/s'\nin='1 Gbit/s'";
        let name = format!("{}", (b'a' + cluster as u8) as char);
        writeln!(
            text,
            "[[cluster]]\nname='{name}'\nnodes={nodes}\n{keys}\ninterconnect=true"
        )
        .unwrap();
        for node in nodes - slow..nodes {
            writeln!(
                text,
                "[[node]]\nname='{name}{node}'\nout='10 Mbit/s'\nin='10 Mbit/s'"
            )
            .unwrap();
        }
    }
    text += "[[link]]\nfrom='*'\nto='*'\nrate='1 Gbit/s'\n";
    Network::from_toml(&text, "local").unwrap()
}

#[test]
fn members_send_in_parallel_as_their_cards_allow() {
    for clusters in [2, 4] {
        // Test case 7: all cards add up, until the links are full.
        for nodes in [2, 4, 8, 16] {
            let network = local_bottleneck(clusters, nodes, 0);
            let expected = f64::from(nodes * 100).min(1000.0) / 8.0;
            for method in [Method::Chain, Method::Balanced, Method::Optimal] {
                assert_near(rate(&network, "a", method), expected);
            }
        }
        // Test case 8: half of the cards are slow.
        for nodes in [2, 4, 8, 16] {
            let network = local_bottleneck(clusters, nodes, nodes / 2);
            let expected = f64::from(nodes * 55).min(1000.0) / 8.0;
            for method in [Method::Chain, Method::Balanced, Method::Optimal] {
                assert_near(rate(&network, "a", method), expected);
            }
        }
    }
}

#[test]
fn plans_stay_small() {
    // One lane per tree between clusters, or little more.
    let network = four_clusters([16; 4], 8.0);
    let planned = planned(&network, "A", Method::Optimal);
    assert!(planned.routes.len() <= 5, "{:?}", planned.routes);
    assert!(
        planned.plan.trees.len() <= 16,
        "{}",
        planned.plan.trees.len()
    );
    // Sixteen clusters of as many nodes on four continents, test case 4: all links are used up, and
    // there are no more trees than links.
    let names: Vec<String> = (0..16).map(|i| format!("c{i}-")).collect();
    let clusters: Vec<_> = names.iter().map(|name| (name.as_str(), 16)).collect();
    let pairs = (0..16)
        .flat_map(|a| (0..16).map(move |b| (a, b)))
        .filter(|(a, b)| a != b);
    let links: Vec<_> = pairs
        .map(|(a, b): (usize, usize)| {
            let rate = if a / 4 == b / 4 { 5.0 } else { 0.5 };
            (names[a].as_str(), names[b].as_str(), rate)
        })
        .collect();
    let keys = "node_out='100 MB/s'\nnode_in='100 MB/s'";
    let network = self::network(&clusters, keys, &links, false);
    let planned = self::planned(&network, "c0-", Method::Optimal);
    assert_near(planned.throughput.bytes_per_s() / MB, 21.0);
    assert!(
        planned.plan.trees.len() <= 240,
        "{}",
        planned.plan.trees.len()
    );
}

#[test]
fn many_sites_come_within_one_per_cent() {
    // More than are solved to the end; half of them send little.
    let mut text = String::new();
    for site in 0..44 {
        let out = if site % 2 == 0 {
            5.0
        } else {
            12.0 + f64::from(site) / 10.0
        };
        let keys = format!("nodes=1\nout='{out} MB/s'\nin='{} MB/s'", 20 + site % 7);
        writeln!(text, "[[cluster]]\nname='s{site}'\n{keys}").unwrap();
    }
    for (from, rate) in [("*", 1.5), ("s2*", 0.4), ("s1*", 3.0)] {
        writeln!(text, "[[link]]\nfrom='{from}'\nto='*'\nrate='{rate} MB/s'").unwrap();
    }
    let network = Network::from_toml(&text, "many").unwrap();
    let planned = planned(&network, "s1", Method::Optimal);
    assert!(planned.gap() < 0.01, "{}", planned.gap());
    // What is said to be the optimum is no less than a bound that is plain to see.
    let out: f64 = network
        .clusters()
        .iter()
        .map(|c| c.cluster_out.bytes_per_s())
        .sum();
    assert!(planned.throughput.bytes_per_s() <= out / 43.0);
    assert!(!planned.exact || planned.gap() < 1e-5);
}

#[test]
fn one_cluster_of_any_size() {
    for nodes in [1, 2, 20, 64, 65, 1000] {
        let rate: Rate = "15 Mbit/s".parse().unwrap();
        let network = Network::uniform(nodes, rate, rate, std::time::Duration::ZERO).unwrap();
        for method in Method::ALL {
            planned(&network, "n", method);
        }
        if nodes > 1 {
            for method in [Method::Chain, Method::Optimal, Method::Balanced] {
                assert_near(self::rate(&network, "n", method), 1.875);
            }
        }
    }
}

#[test]
fn what_cannot_be_planned_is_said() {
    let network = network(
        &[("A", 1), ("B", 1), ("C", 1)],
        "",
        &[("A", "B", 1.0), ("C", "B", 1.0)],
        false,
    );
    let error = plan(&network, &[NodeId(0)], Method::Optimal).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no path from `A` to `C`: every path has a link or a node of rate 0"
    );
    let error = plan(&network, &[NodeId(7)], Method::Fpfr).unwrap_err();
    assert!(matches!(
        error,
        PlanError::Limit(LimitError::UnknownNode { .. })
    ));
    assert_eq!(
        "tree".parse::<Method>().unwrap_err().to_string(),
        "no method is called `tree`; there are direct, chain, binary, binomial, magpie, \
         max-bottleneck, fpfr, balanced, optimal"
    );
}

#[test]
fn documents_and_drawings_hold_the_plan() {
    let network = gridlab();
    let planned = planned(&network, "fs0", Method::Optimal);
    let document = json::Document::new(&network, &planned, 0.5);
    assert_eq!(document.trees.len(), planned.plan.trees.len());
    assert_eq!(document.trees[0].edges[0][0], "fs0");
    assert!(
        document
            .saturated
            .contains(&"incoming capacity of cluster `eltoro`".to_owned())
    );
    let drawing = svg::draw(&network, &planned);
    for cluster in network.clusters() {
        assert!(drawing.contains(&format!(">{}</text>", cluster.name)));
    }
    let edges: usize = planned.routes.iter().map(|route| route.edges.len()).sum();
    assert_eq!(drawing.matches("marker-end").count(), edges);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every method gives a plan that fits, or no node can be reached; the optimal one carries what
    /// flows through every boundary [Edmonds' theorem on branchings].
    #[test]
    fn plans_fit_and_the_optimal_one_reaches_the_limit(
        network in any_network(),
        sources in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let nodes: Vec<NodeId> = network.nodes().collect();
        let sources: Vec<NodeId> = sources.iter().map(|source| *source.get(&nodes)).collect();
        match limit(&network, &sources, Bytes::ZERO) {
            Ok(limit) => {
                for method in Method::ALL {
                    let planned = plan(&network, &sources, method).unwrap();
                    check(&network, &planned);
                    if method == Method::Optimal {
                        prop_assert!(planned.fallback.is_none());
                        prop_assert!(planned.gap() < 1e-5, "{} of {}", planned.throughput, limit.throughput);
                    }
                }
            }
            Err(_) => {
                for method in Method::ALL {
                    prop_assert!(plan(&network, &sources, method).is_err());
                }
            }
        }
    }
}
