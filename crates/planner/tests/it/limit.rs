//! Limits of networks whose answers are known, from papers or by hand.

use std::fmt::Write;

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId};
use outpour_planner::{Limit, LimitError, limit, limit_for};

const MB: f64 = 1e6;

fn read(text: &str) -> Network {
    Network::from_toml(text, "test.toml").unwrap()
}

/// Clusters of `nodes` nodes each, all with the `keys`, and links both ways in MB/s.
fn network(names: &[&str], nodes: u32, keys: &str, links: &[(&str, &str, f64)]) -> Network {
    let mut text = String::new();
    for name in names {
        writeln!(
            text,
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\n{keys}"
        )
        .unwrap();
    }
    for (from, to, rate) in links {
        writeln!(
            text,
            "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate} MB/s\"\nboth = true"
        )
        .unwrap();
    }
    read(&text)
}

fn limit_of(network: &Network, root: &str, size: Bytes) -> Limit {
    limit(network, &[network.node(root).unwrap()], size).unwrap()
}

fn throughput(network: &Network, root: &str) -> f64 {
    let limit = limit_of(network, root, Bytes(1));
    assert!(limit.exact);
    limit.throughput.bytes_per_s() / MB
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    let error = (found / expected - 1.0).abs();
    assert!(error < 3e-6, "found {found}, expected {expected}");
}

/// [Burger §4.6.2], figure 4.16: 16 nodes in each of four clusters.
fn four_clusters(a_d_and_b_c: f64) -> Network {
    network(
        &["A", "B", "C", "D"],
        16,
        "node_out = '100 MB/s'\nnode_in = '100 MB/s'\nout = '100 MB/s'\nin = '100 MB/s'",
        &[
            ("A", "B", 10.0),
            ("A", "C", 3.0),
            ("B", "D", 2.0),
            ("C", "D", 6.0),
            ("A", "D", a_d_and_b_c),
            ("B", "C", a_d_and_b_c),
        ],
    )
}

#[test]
fn four_clusters_with_fast_links() {
    let network = four_clusters(8.0);
    assert_near(throughput(&network, "A"), 16.0);
    let limit = limit_of(&network, "A", Bytes(600_000_000));
    assert_near(limit.seconds, 37.5);
    assert_eq!(limit.bottleneck, "links into cluster `D`");
}

#[test]
fn four_clusters_with_slow_links() {
    let network = four_clusters(0.8);
    let limit = limit_of(&network, "A", Bytes(600_000_000));
    assert_near(limit.throughput.bytes_per_s() / MB, 6.6);
    // The slow links into clusters C and D together.
    for link in ["`A` -> `C`", "`A` -> `D`", "`B` -> `C`", "`B` -> `D`"] {
        assert!(limit.bottleneck.contains(link), "{}", limit.bottleneck);
    }
}

#[test]
fn sixteen_clusters_on_four_continents() {
    // [Burger §4.6.2, test case 4]: 5 MB/s inside a continent, 0.5 MB/s between continents.
    let local = "node_out='100 MB/s'\nnode_in='100 MB/s'";
    let names: Vec<String> = ["eu", "us", "as", "af"]
        .iter()
        .flat_map(|continent| (0..4).map(move |i| format!("{continent}{i}-")))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let pairs = names
        .iter()
        .flat_map(|a| names.iter().map(move |b| (*a, *b)));
    let links: Vec<_> = pairs
        .filter(|(a, b)| a < b)
        .map(|(a, b)| (a, b, if a[..2] == b[..2] { 5.0 } else { 0.5 }))
        .collect();
    let network = network(&names, 16, local, &links);
    // Into one cluster: 3 links of 5 and 12 of 0.5. Into a continent: 48 of 0.5.
    assert_near(throughput(&network, "eu0-"), 21.0);
}

/// [Burger §3.2.3], tables 3.1 and 3.2, MB/s: host, in, out, then to each other host in order.
const GRIDLAB: &[(&str, f64, f64, [f64; 7])] = &[
    (
        "fs0",
        10.54,
        9.32,
        [1.03, 1.06, 0.45, 1.02, 1.15, 0.51, 1.15],
    ),
    ("n0", 1.36, 1.2, [1.11, 0.0, 0.37, 0.92, 0.0, 0.0, 0.0]),
    (
        "cluster3",
        1.23,
        1.47,
        [1.19, 0.0, 0.36, 0.92, 1.08, 0.37, 1.09],
    ),
    (
        "helix",
        10.6,
        11.0,
        [0.80, 0.62, 0.52, 0.57, 0.65, 4.76, 0.65],
    ),
    (
        "eltoro",
        1.18,
        0.95,
        [1.01, 0.92, 0.84, 0.38, 1.15, 0.36, 1.15],
    ),
    ("ia64", 1.2, 1.2, [1.15, 0.0, 0.94, 0.35, 1.10, 0.41, 0.0]),
    (
        "mike4",
        11.0,
        10.6,
        [0.86, 0.93, 0.57, 6.39, 0.61, 0.63, 0.63],
    ),
    (
        "pegasos",
        1.2,
        1.2,
        [1.15, 0.0, 0.94, 0.35, 1.10, 0.0, 0.41],
    ),
];

#[test]
fn the_gridlab_testbed_from_every_root() {
    let mut text = String::new();
    for (host, into, out, _) in GRIDLAB {
        writeln!(
            text,
            "[[cluster]]\nname='{host}'\nnodes=1\nin='{into} MB/s'\nnode_out='{out} MB/s'"
        )
        .unwrap();
    }
    for (host, _, _, rates) in GRIDLAB {
        let others = GRIDLAB.iter().filter(|other| other.0 != *host);
        for ((other, ..), rate) in others.zip(rates) {
            writeln!(
                text,
                "[[link]]\nfrom='{host}'\nto='{other}'\nrate='{rate} MB/s'"
            )
            .unwrap();
        }
    }
    let network = read(&text);
    for (host, ..) in GRIDLAB {
        let limit = limit_of(&network, host, Bytes(1));
        let (rate, bottleneck) = match *host {
            "eltoro" => (0.95, "outgoing capacity of the root `eltoro`"),
            _ => (1.18, "incoming capacity of node `eltoro`"),
        };
        assert!(limit.exact);
        assert_near(limit.throughput.bytes_per_s() / MB, rate);
        assert_eq!(limit.bottleneck, bottleneck, "{host}");
    }
}

#[test]
fn three_datacenters_share_two_ways() {
    // [BDS §2.2, figure 1]: 3 GB to B and C over links of 1 GB/s.
    let links = [("A", "B", 1000.0), ("A", "C", 1000.0), ("B", "C", 1000.0)];
    let network = network(&["A", "B", "C"], 1, "", &links);
    let limit = limit_of(&network, "A", Bytes(3_000_000_000));
    assert_near(limit.seconds, 1.5);
    assert!(limit.exact);
}

#[test]
fn balanced_trees_on_three_and_four_hosts() {
    // [Burger §3.2.1, figures 3.3 and 3.4]: 10 in and out of each host.
    let local = "node_out = '10 MB/s'\nnode_in = '10 MB/s'";
    let links = [("x", "y", 10.0), ("x", "z", 8.0), ("y", "z", 4.0)];
    let three = network(&["x", "y", "z"], 1, local, &links);
    let limit = limit_of(&three, "x", Bytes(1));
    assert_near(limit.throughput.bytes_per_s() / MB, 9.0);
    // 18 to receive: 10 from the root and 4 each way between the receivers.
    assert!(limit.bottleneck.contains("the root `x`"));
    assert!(limit.bottleneck.contains("link `y` -> `z`"));
    assert!(limit.bottleneck.contains("link `z` -> `y`"));
    // [Burger §3.2.1, figure 3.5]: four hosts, links of 5.
    let names = ["A", "B", "C", "D"];
    let pairs = names
        .iter()
        .flat_map(|a| names.iter().map(move |b| (*a, *b, 5.0)));
    let links: Vec<_> = pairs.filter(|(a, b, _)| a < b).collect();
    let four = network(&names, 1, local, &links);
    assert_near(throughput(&four, "A"), 10.0);
}

#[test]
fn equal_nodes_on_one_switch() {
    let rate = "15 Mbit/s".parse().unwrap();
    for nodes in [2, 20, 200, 100_000] {
        let delay = std::time::Duration::from_millis(20);
        let network = Network::uniform(nodes, rate, rate, delay).unwrap();
        let limit = limit_of(&network, "n0", Bytes(100_000_000));
        assert_eq!(limit.throughput, rate, "{nodes}");
        assert_near(limit.seconds, 100e6 / 1.875e6 + 0.02);
        assert_eq!(limit.bottleneck, "outgoing capacity of the root `n0`");
        assert!(limit.exact);
    }
}

#[test]
fn one_cluster_binds_at_its_tightest_part() {
    for (keys, rate, bottleneck) in [
        (
            "node_out='5 MB/s'",
            5.0,
            "outgoing capacity of the root `A0`",
        ),
        (
            "node_out='5 MB/s'\nnode_in='3 MB/s'",
            3.0,
            "incoming capacity of the nodes of cluster `A`",
        ),
        ("local='2 MB/s'", 6.0, "links inside cluster `A`"),
    ] {
        let network = network(&["A"], 4, keys, &[]);
        assert_near(throughput(&network, "A"), rate);
        assert_eq!(limit_of(&network, "A", Bytes(1)).bottleneck, bottleneck);
    }
}

#[test]
fn equal_clusters_of_one_node_are_one_class() {
    // A thousand hosts on one switch, each a cluster of its own: no program of a million flows.
    let names: Vec<String> = (0..1000).map(|i| format!("host{i}-")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut network = network(&names, 1, "out = '20 MB/s'\nin = '10 MB/s'", &[]);
    let limit = limit_of(&network, "host7-", Bytes(20_000_000));
    assert!(limit.exact);
    assert_eq!(
        limit.bottleneck,
        "incoming capacity of 999 nodes like `host0-`"
    );
    assert_near(limit.seconds, 2.0);
    // Each pair joined by a thin link: 999 of them end at a receiver.
    let mut thin = network.to_toml();
    thin.push_str("[[link]]\nfrom='*'\nto='*'\nrate='1 kB/s'");
    network = read(&thin);
    assert_near(throughput(&network, "host7-"), 0.999);
}

#[test]
fn hosts_that_differ_only_towards_each_other_are_told_apart() {
    // B sends to C but not the other way round: B has the root's link alone.
    let text = "[[cluster]]\nname='A'\nnodes=1\n[[cluster]]\nname='B'\nnodes=1\n\
                [[cluster]]\nname='C'\nnodes=1\n\
                [[link]]\nfrom='A'\nto='*'\nrate='4 MB/s'\n\
                [[link]]\nfrom='B'\nto='C'\nrate='4 MB/s'";
    let limit = limit_of(&read(text), "A", Bytes(1));
    assert_near(limit.throughput.bytes_per_s() / MB, 4.0);
    assert_eq!(limit.bottleneck, "link `A` -> `B`");
}

#[test]
fn receivers_pass_on_what_each_has_from_the_root() {
    // A thin link to each of three hosts that exchange without limit: the links add up.
    let names = ["A", "B", "C", "D"];
    let text = network(&names, 1, "", &[]).to_toml()
        + "[[link]]\nfrom='*'\nto='*'\n[[link]]\nfrom='A'\nto='*'\nrate='1 MB/s'";
    let limit = limit_of(&read(&text), "A", Bytes(1));
    assert_near(limit.throughput.bytes_per_s() / MB, 3.0);
    assert_eq!(limit.bottleneck, "links like `A` -> `B`");
}

#[test]
fn senders_share_what_all_have_to_send() {
    // Two receivers that send nothing themselves: the root sends everything twice.
    let network = read(
        "[[cluster]]\nname='root'\nnodes=1\nout='10 MB/s'\n\
         [[cluster]]\nname='R'\nnodes=2\nnode_out='0 B/s'",
    );
    let limit = limit_of(&network, "root", Bytes(10_000_000));
    assert_near(limit.seconds, 2.0);
    assert_eq!(limit.bottleneck, "outgoing capacity of all nodes together");
}

#[test]
fn relays_help_though_they_receive_nothing_for_themselves() {
    let links = [("A", "R", 4.0), ("R", "B", 4.0), ("A", "B", 1.0)];
    let network = network(&["A", "R", "B"], 1, "", &links);
    let id = |name| network.node(name).unwrap();
    let only_b = limit_for(&network, &[id("A")], &[id("B"), id("A"), id("B")], Bytes(1)).unwrap();
    assert_near(only_b.throughput.bytes_per_s() / MB, 5.0);
    assert_eq!(only_b.bottleneck, "links into cluster `B`");
}

#[test]
fn delay_overlaps_with_sending() {
    // The far receiver can be served first, so its delay does not come on top of both copies.
    let network = read(
        "[[cluster]]\nname='root'\nnodes=1\nout='1 MB/s'\n\
         [[cluster]]\nname='near'\nnodes=1\nout='0 B/s'\n\
         [[cluster]]\nname='far'\nnodes=1\nout='0 B/s'\n\
         [[link]]\nfrom='*'\nto='*'\n\
         [[link]]\nfrom='*'\nto='far'\ndelay='10 s'",
    );
    let limit_of = |size| limit_of(&network, "root", Bytes(size)).seconds;
    assert_near(limit_of(5_000_000), 15.0); // far: 10 s and 5 s; both: 10 s
    assert_near(limit_of(20_000_000), 40.0); // far: 10 s and 20 s; both: 40 s
    assert_eq!(limit_of(0), 0.0);
}

#[test]
fn the_shortest_delay_may_lead_over_a_relay() {
    let network = read(
        "[[cluster]]\nname='a'\nnodes=1\n[[cluster]]\nname='b'\nnodes=1\n\
         [[cluster]]\nname='c'\nnodes=1\n\
         [[link]]\nfrom='a'\nto='b'\ndelay='10 ms'\n\
         [[link]]\nfrom='b'\nto='c'\ndelay='20 ms'\n\
         [[link]]\nfrom='a'\nto='c'\ndelay='90 ms'",
    );
    let limit = limit_of(&network, "a", Bytes(1_000_000_000));
    assert!(limit.throughput.is_unlimited());
    assert_near(limit.seconds, 0.03);
    assert_eq!(
        limit.bottleneck,
        "nothing: the network has a path without a limit"
    );
}

#[test]
fn without_receivers_there_is_nothing_to_do() {
    let network = network(&["A"], 1, "out='1 MB/s'", &[]);
    let limit = limit_of(&network, "A", Bytes(1_000_000));
    assert_eq!(limit.seconds, 0.0);
}

#[test]
fn what_cannot_be_is_said() {
    let links = [("A", "B", 1.0), ("B", "C", 0.0)];
    let network = network(&["A", "B", "C"], 2, "", &links);
    let root = network.node("A").unwrap();
    assert_eq!(
        limit(&network, &[root], Bytes(1)).unwrap_err().to_string(),
        "no path from `A0` to `C0`: every path has a link or a node of rate 0"
    );
    assert_eq!(
        limit(&network, &[NodeId(6)], Bytes(1)),
        Err(LimitError::UnknownNode {
            node: NodeId(6),
            count: 6
        })
    );
}

#[test]
fn extreme_rates_side_by_side() {
    // One bit a second behind a terabyte a second.
    let network = read(
        "[[cluster]]\nname='A'\nnodes=8\nnode_out='1 TB/s'\n\
         [[cluster]]\nname='B'\nnodes=8\nnode_in='1 TB/s'\n\
         [[link]]\nfrom='A'\nto='B'\nrate='1 bit/s'",
    );
    let limit = limit_of(&network, "A", Bytes(1));
    assert_near(limit.seconds, 8.0);
    assert_eq!(limit.bottleneck, "link `A` -> `B`");
}

#[test]
fn behind_an_interconnect_nodes_fetch_different_parts() {
    // [Burger §4.6.3, test case 7]: every node's card carries 100 Mbit/s, the interconnect more.
    let clusters = |local: &str| {
        let local = format!("node_out='12.5 MB/s'\nnode_in='12.5 MB/s'\n{local}");
        network(&["A", "B"], 4, &local, &[("A", "B", 125.0)])
    };
    assert_near(throughput(&clusters(""), "A"), 12.5);
    assert_near(throughput(&clusters("interconnect=true"), "A"), 50.0);
    // Each node passes on what it fetched: 3 of 4 parts come over local links of 5 MB/s.
    let slow = clusters("interconnect=true\nlocal='5 MB/s'");
    assert_near(throughput(&slow, "A"), 27.5);
    // A limit of hosts leaves none of them more than that, whichever network it comes over.
    let with = |rate: &str| clusters("interconnect=true").limited(rate.parse().unwrap());
    assert_near(throughput(&with("5 MB/s"), "A"), 5.0);
    // Above the cards' rate: eight nodes send what seven are to have.
    assert_near(throughput(&with("20 MB/s"), "A"), 20.0);
    let limit = limit_of(&with("20 MB/s"), "A", Bytes(40_000_000));
    assert_near(limit.seconds, 2.0);
    assert_eq!(limit.bottleneck, "limit of what the root `A0` sends");
}
