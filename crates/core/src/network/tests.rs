//! Networks as people write them, and the errors they get.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Four clusters as in [Burger §4.6.1, figure 4.15].
const FOUR: &str = r#"
[[cluster]]
name = "ca"
nodes = 16
node_out = "100 MB/s"
node_in = "100 MB/s"
out = "90 MB/s"
in = "80 MB/s"
interconnect = true

[[cluster]]
name = "cb"
nodes = 1
local = "1 GB/s"

[[cluster]]
name = "cc"
members = ["fs0", "n0"]
local_delay = "0.1 ms"

[[link]]
from = "*"
to = "*"
delay = "10 ms"
rate = "1 MB/s"
queue = "100 packets"

[[link]]
from = "ca"
to = "c*"
rate = "10 MB/s"
ecn = "30 packets"
loss = 0.01

[[link]]
from = "cb"
to = "cc"
rate = "0 B/s"
both = true
"#;

fn read(text: &str) -> Network {
    Network::from_toml(text, "net.toml").unwrap()
}

fn error(text: &str) -> String {
    Network::from_toml(text, "net.toml")
        .unwrap_err()
        .to_string()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

#[test]
fn nodes_are_named_and_found() {
    let network = read(FOUR);
    let names: Vec<_> = network.nodes().map(|node| network.name(node)).collect();
    assert_eq!(names[..3], ["ca0", "ca1", "ca2"]);
    assert_eq!(names[15..], ["ca15", "cb", "fs0", "n0"]);
    assert_eq!(network.node_count(), 19);
    assert_eq!(network.node("ca3"), Some(NodeId(3)));
    assert_eq!(network.node("ca"), Some(NodeId(0)), "a cluster's first");
    assert_eq!(network.node("cb"), Some(NodeId(16)));
    assert_eq!(network.node("cc"), Some(NodeId(17)));
    assert_eq!(network.node("ca16"), None);
    assert_eq!(network.cluster_of(NodeId(15)), ClusterId(0));
    assert_eq!(network.cluster_of(NodeId(16)), ClusterId(1));
    let of_cc: Vec<_> = network.nodes_of(ClusterId(2)).collect();
    assert_eq!(of_cc, [NodeId(17), NodeId(18)]);
}

#[test]
fn paths_name_what_they_share() {
    let network = read(FOUR);
    let (a, b) = (NodeId(0), NodeId(16));
    let (ca, cb) = (ClusterId(0), ClusterId(1));
    let path = network.path(a, b);
    let resources = [
        (Resource::NodeOut(a), rate("100 MB/s")),
        (Resource::ClusterOut(ca), rate("90 MB/s")),
        (Resource::Link(ca, cb), rate("10 MB/s")),
        (Resource::ClusterIn(cb), Rate::UNLIMITED),
        (Resource::NodeIn(b), Rate::UNLIMITED),
    ];
    assert_eq!(path.resources(), resources.map(|(resource, _)| resource));
    for (resource, capacity) in resources {
        assert_eq!(network.capacity(resource), capacity, "{resource:?}");
    }
    assert_eq!(path.delay, ms(10));

    let back = network.path(b, a);
    assert_eq!(network.capacity(back.resources()[2]), rate("1 MB/s"));
    assert_eq!(network.capacity(back.resources()[3]), rate("80 MB/s"));

    let (fs0, n0) = (NodeId(17), NodeId(18));
    let local = network.path(fs0, n0);
    assert_eq!(
        local.resources(),
        [
            Resource::NodeOut(fs0),
            Resource::Local(fs0, n0),
            Resource::NodeIn(n0)
        ]
    );
    assert_eq!(local.delay, Duration::from_micros(100));
    assert_eq!(network.capacity(Resource::Local(fs0, n0)), Rate::UNLIMITED);
    // Cluster ca has an interconnect.
    let apart = network.path(a, NodeId(1));
    assert_eq!(apart.resources(), [Resource::Local(a, NodeId(1))]);
    assert!(network.path(a, a).resources().is_empty());
}

#[test]
fn later_links_change_what_they_say_and_leave_the_rest() {
    let network = read(FOUR);
    let link = network.link(ClusterId(0), ClusterId(2));
    assert_eq!(
        link,
        Link {
            rate: rate("10 MB/s"),
            delay: ms(10),
            queue: Some(Backlog::Packets(100)),
            ecn: Some(Backlog::Packets(30)),
            loss: 0.01,
            burst: 1.0,
        }
    );
    let back = network.link(ClusterId(2), ClusterId(0));
    assert_eq!((back.rate, back.ecn), (rate("1 MB/s"), None));
    for (from, to) in [(1, 2), (2, 1)] {
        assert!(network.link(ClusterId(from), ClusterId(to)).rate.is_zero());
    }
}

#[test]
fn a_pair_no_link_names_is_dead_once_there_are_links() {
    let clusters = "[[cluster]]\nname='A'\nnodes=1\n[[cluster]]\nname='B'\nnodes=1\n";
    let open = read(clusters);
    assert_eq!(open.link(ClusterId(0), ClusterId(1)), Link::OPEN);
    let one_way = read(&format!(
        "{clusters}[[link]]\nfrom='A'\nto='B'\ndelay='5 ms'"
    ));
    let there = one_way.link(ClusterId(0), ClusterId(1));
    assert_eq!((there.rate, there.delay), (Rate::UNLIMITED, ms(5)));
    assert_eq!(one_way.link(ClusterId(1), ClusterId(0)), Link::DEAD);
    assert_eq!(one_way.link(ClusterId(1), ClusterId(1)), Link::OPEN);
}

#[test]
fn uniform_networks_have_one_cluster() {
    let network = Network::uniform(3, rate("2 MB/s"), rate("1 MB/s"), ms(7)).unwrap();
    assert_eq!(network.clusters().len(), 1);
    assert_eq!(network.name(NodeId(2)), "n2");
    let path = network.path(NodeId(0), NodeId(2));
    assert_eq!(path.delay, ms(7));
    assert_eq!(network.capacity(path.resources()[0]), rate("1 MB/s"));
    assert_eq!(network.capacity(path.resources()[2]), rate("2 MB/s"));
    assert_eq!(read(&network.to_toml()), network);
    let none = Network::uniform(0, Rate::ZERO, Rate::ZERO, ms(0)).unwrap_err();
    assert_eq!(
        none.to_string(),
        "cluster 1: `nodes`: cluster `n` has no nodes, expected at least one"
    );
}

#[test]
fn what_is_written_reads_back() {
    let network = read(FOUR);
    assert_eq!(read(&network.to_toml()), network);
    let inline = read("cluster = [{ name = 'A', nodes = 2 }]\nlink = []");
    assert_eq!(read(&inline.to_toml()), inline);
}

#[test]
fn messages_name_line_key_found_and_expected() {
    let head = "[[cluster]]\nname = \"A\"\nnodes = 1\n\n";
    for (tail, message) in [
        (
            "node_out = 10",
            "net.toml:5:12: `node_out`: expected a rate such as `\"10 MB/s\"`, found `10`",
        ),
        (
            "node_out = \"10\"",
            "net.toml:5:12: `node_out`: rate `10` has no unit: \
             write e.g. `10 Mbit/s` or `10 MB/s`",
        ),
        (
            "node_outt = \"10 MB/s\"",
            "net.toml:5:1: `node_outt`: unknown key, expected one of `name`, `nodes`, `members`, \
             `node_out`, `node_in`, `node_queue`, `node_ecn`, `out`, `in`, `local`, \
             `local_delay`, `interconnect`",
        ),
        (
            "local_delay = \"10\"",
            "net.toml:5:15: `local_delay`: duration `10` has no unit: \
             write e.g. `10 ms` or `10 s`",
        ),
        (
            "members = [\"x\"]",
            "net.toml:5:11: `members`: expected either `nodes` or `members`, found `both`",
        ),
        (
            "[[cluster]]\nname = \"A\"\nnodes = 1",
            "net.toml:6:8: `name`: a cluster `A` exists already",
        ),
        (
            "[[cluster]]\nname = \"B\"\nnodes = 0",
            "net.toml:7:9: `nodes`: cluster `B` has no nodes, expected at least one",
        ),
        (
            "[[cluster]]\nname = \"B\"\nnodes = -1",
            "net.toml:7:9: `nodes`: expected a number of nodes such as `16`, found `-1`",
        ),
        (
            "[[cluster]]\nname = \"B\"\nnodes = 100000",
            "net.toml:7:9: `nodes`: more than 100000 nodes in the network",
        ),
        (
            "[[cluster]]\nname = \"B\"",
            "net.toml:5:1: a [[cluster]] needs `nodes = 16` or `members = [\"...\"]`",
        ),
        (
            "[[cluster]]\nname = \"B C\"\nnodes = 1",
            "net.toml:6:8: `name`: `B C` is not a name: expected 1 to 255 bytes of visible text \
             without spaces or `*`",
        ),
        (
            "[[cluster]]\nname = \"B\"\nmembers = [\"x\", \"A\"]",
            "net.toml:7:11: `members`: a node `A` exists already in cluster `A`",
        ),
        (
            "[[cluster]]\nname = \"B\"\nmembers = [\"x\", \"B\"]",
            "net.toml:7:11: `members`: node `B` has the name of a cluster, which stands for that \
             cluster's first node",
        ),
        (
            "[[cluster]]\nname = \"B\"\nmembers = [\"x\", 1]",
            "net.toml:7:11: `members`: expected names such as `[\"fs0\", \"n0\"]`, \
             found `[\"x\", 1]`",
        ),
        (
            "[[link]]\nfrom = \"A\"\nto = \"X\"",
            "net.toml:7:6: `to`: no cluster matches `X`: there is `A`",
        ),
        (
            "[[link]]\nfrom = \"A\"\nto = \"A\"",
            "net.toml:7:6: `to`: a link joins two clusters, this one joins `A` with itself: \
             set `local` and `local_delay` of the cluster instead",
        ),
        (
            "[[link]]\nfrom = \"A\"",
            "net.toml:5:1: a [[link]] needs `from = \"...\"` and `to = \"...\"`",
        ),
        (
            "[[link]]\nfrom = \"A\"\nto = \"*\"\nboth = \"yes\"",
            "net.toml:8:8: `both`: expected `true` or `false`, found `\"yes\"`",
        ),
        (
            "[[link]]\nfrom = \"A\"\nto = \"*\"\nqueue = 100",
            "net.toml:8:9: `queue`: expected packets or bytes such as `\"100 packets\"` or \
             `\"64 KiB\"`, found `100`",
        ),
        (
            "node_queue = 100",
            "net.toml:5:14: `node_queue`: expected packets or bytes such as `\"100 packets\"` or \
             `\"64 KiB\"`, found `100`",
        ),
        (
            "node_queue = \"0 packets\"",
            "net.toml:5:14: `node_queue`: expected at least one packet, and a threshold for marks \
             (ecn) not above the limit (queue); found ecn not set, queue 0 packets",
        ),
        (
            "node_queue = \"10 packets\"\nnode_ecn = \"11 packets\"",
            "net.toml:6:12: `node_ecn`: expected at least one packet, and a threshold for marks \
             (ecn) not above the limit (queue); found ecn 11 packets, queue 10 packets",
        ),
        (
            "[link]\nfrom = \"A\"",
            "net.toml:5:1: `link`: expected tables headed `[[link]]`, found `[link]`",
        ),
        (
            "[[clusters]]\nname = \"B\"",
            "net.toml:5:3: `clusters`: unknown key, expected one of `limit`, `cluster`, `node`, `link`",
        ),
    ] {
        assert_eq!(error(&format!("{head}{tail}")), message);
    }
}

#[test]
fn a_receiving_node_has_a_queue_of_its_own() {
    let network = read(
        "[[cluster]]\nname='A'\nnodes=2\nnode_in='10 MB/s'\nnode_queue='40 packets'\n\
         node_ecn='40 packets'\nlocal='1 MB/s'\n[[cluster]]\nname='B'\nnodes=1\nnode_ecn='2 KiB'",
    );
    let port = |resource| {
        let Link {
            rate, queue, ecn, ..
        } = network.port(resource);
        (rate, queue, ecn)
    };
    let forty = Some(Backlog::Packets(40));
    let into = |node| Resource::NodeIn(NodeId(node));
    assert_eq!(port(into(1)), (rate("10 MB/s"), forty, forty));
    let bytes = Some(Backlog::Bytes(crate::Bytes(2048)));
    assert_eq!(port(into(2)), (Rate::UNLIMITED, None, bytes));
    // No other port of a node has it.
    assert_eq!(
        port(Resource::NodeOut(NodeId(1))),
        (Rate::UNLIMITED, None, None)
    );
    let local = Resource::Local(NodeId(0), NodeId(1));
    assert_eq!(port(local), (rate("1 MB/s"), None, None));
    assert_eq!(read(&network.to_toml()), network);
}

#[test]
fn links_are_checked_as_they_end_up() {
    let two = "[[cluster]]\nname='A'\nnodes=1\n[[cluster]]\nname='B'\nnodes=1\n";
    let link = |rest: &str| error(&format!("{two}[[link]]\nfrom='A'\nto='B'\n{rest}"));
    for loss in ["1.0", "-0.1", "nan", "inf", "2"] {
        let said = link(&format!("loss = {loss}"));
        assert!(
            said.starts_with("net.toml:10:8: `loss`: expected a share"),
            "{said}"
        );
    }
    assert!(link("queue = '0 packets'").contains("`queue`: expected at least one packet"));
    assert!(link("queue = '20 packets'\necn = '21 packets'").contains(":11:7: `ecn`"));
    let split = "queue = '20 packets'\n[[link]]\nfrom='*'\nto='*'\necn = '21 packets'";
    assert!(link(split).contains(":14:7: `ecn`"));
    let fits = "queue = '20 packets'\necn = '20 packets'\nloss = 0";
    read(&format!("{two}[[link]]\nfrom='A'\nto='B'\n{fits}"));
}

#[test]
fn syntax_and_emptiness_are_placed() {
    assert_eq!(
        error(""),
        "net.toml:1:1: a network needs at least one `[[cluster]]`"
    );
    let said = error("[[cluster]]\nname = ");
    assert!(said.starts_with("net.toml:2:"), "{said}");
    assert!(said.contains("not valid TOML"), "{said}");
    let said = error("[[cluster]]\nname = \"A\"\nname = \"B\"");
    assert!(said.starts_with("net.toml:3:1: not valid TOML"), "{said}");
}

#[test]
fn hostile_text_is_quoted_safely() {
    let said = error("[[cluster]]\nname = \"\\u001b[2J\"\nnodes = 1");
    assert!(
        !said.contains('\u{1b}') && said.contains(r"\u{1b}[2J"),
        "{said}"
    );
    let said = error(&format!(
        "[[cluster]]\nname = \"{}\"\nnodes = 1",
        "x".repeat(9999)
    ));
    assert!(said.len() < 300, "{said}");
}

#[test]
fn sizes_are_bounded_from_both_sides() {
    let cluster = |name: String, nodes| Cluster::new(name, Members::Count(nodes));
    let of = |count: usize| (0..count).map(|i| cluster(format!("c{i}-"), 1)).collect();
    assert!(Network::new(of(CLUSTERS_MAX), vec![]).is_ok());
    assert!(Network::new(of(CLUSTERS_MAX + 1), vec![]).is_err());
    let most = Network::uniform(NODES_MAX as u32, Rate::ZERO, Rate::ZERO, ms(0)).unwrap();
    assert_eq!(most.node("n99999"), Some(NodeId(99_999)));
    assert!(Network::uniform(NODES_MAX as u32 + 1, Rate::ZERO, Rate::ZERO, ms(0)).is_err());
    assert!(Network::uniform(u32::MAX, Rate::ZERO, Rate::ZERO, ms(0)).is_err());

    let all = LinkRule {
        from: "*".to_owned(),
        to: "*".to_owned(),
        both: true,
        ..LinkRule::default()
    };
    let fits = LINK_MATCHES_MAX / (2 * CLUSTERS_MAX * CLUSTERS_MAX);
    assert!(Network::new(of(CLUSTERS_MAX), vec![all.clone(); fits]).is_ok());
    let said = Network::new(of(CLUSTERS_MAX), vec![all; fits + 1])
        .unwrap_err()
        .to_string();
    assert!(said.contains("more than 20000000 pairs"), "{said}");
    let long = "#".repeat(TEXT_BYTES_MAX + 1);
    assert!(error(&long).contains("bytes, more than"));
}

#[test]
fn generated_names_that_collide_are_refused() {
    let error = Network::new(
        vec![
            Cluster::new("A", Members::Count(11)),
            Cluster::new("A1", Members::Count(2)),
        ],
        vec![],
    )
    .unwrap_err();
    // Cluster A1 has A10 and A11, and so has cluster A the first of them.
    assert_eq!(
        error.to_string(),
        "cluster 2: `name`: a node `A10` exists already in cluster `A`"
    );
}

fn any_rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        Just(Rate::UNLIMITED),
        Just(Rate::ZERO),
        (0.0..1e18).prop_map(|rate| Rate::from_bytes_per_s(rate).unwrap()),
    ]
}

#[test]
fn a_limit_of_hosts_covers_both_their_networks() {
    let rate = |text: &str| text.parse::<Rate>().unwrap();
    let open = read(FOUR);
    let node = |network: &Network, name| network.node(name).unwrap();
    let (a, b, c) = (node(&open, "ca0"), node(&open, "ca1"), node(&open, "fs0"));
    let limited = open.clone().limited(rate("95 MB/s"));
    let names = |network: &Network, from, to| -> Vec<String> {
        let path = network.path(from, to);
        let resources = path.resources().iter();
        resources.map(|it| network.describe(*it)).collect()
    };
    assert_eq!(names(&open, a, b), ["local link `ca0` -> `ca1`"]);
    assert_eq!(
        names(&limited, a, b),
        [
            "limit of what `ca0` sends",
            "local link `ca0` -> `ca1`",
            "limit of what `ca1` receives"
        ]
    );
    // Where there is no interconnect, the access link says it all.
    assert_eq!(limited.path(a, c).resources().len(), 6);
    assert_eq!(open.path(a, c).resources().len(), 5);
    for resource in [
        Resource::NodeOut(a),
        Resource::LimitIn(b),
        Resource::NodeIn(c),
    ] {
        assert_eq!(limited.capacity(resource), rate("95 MB/s"));
    }
    // All of it may go either way, unless an access link is narrower.
    let (ca, cc) = (open.cluster_of(a), open.cluster_of(c));
    assert!(open.is_apart(ca) && !open.is_apart(cc) && !limited.is_apart(ca));
    assert!(!limited.clone().joined().clusters()[ca.index()].interconnect);
    let mut narrow = limited.clone();
    let resource = Resource::NodeIn(b);
    narrow.apply(&Change::Capacity {
        resource,
        rate: rate("94 MB/s"),
    });
    assert!(narrow.is_apart(ca));
    assert_eq!(narrow.clone().joined(), narrow);
    // A change above it does not lift it.
    narrow.apply(&Change::Capacity {
        resource,
        rate: rate("99 MB/s"),
    });
    assert_eq!(narrow.capacity(resource), rate("95 MB/s"));
    assert_eq!(limited.clone().limited(rate("96 MB/s")), limited);
    assert_eq!(
        read("limit = \"5 MB/s\"\n[[cluster]]\nname = \"a\"\nnodes = 2\n").limit(),
        rate("5 MB/s")
    );
    assert!(error("limit = 5\n[[cluster]]\nname = \"a\"\nnodes = 2\n").contains("limit"));
}

fn any_cluster(index: usize) -> impl Strategy<Value = Cluster> {
    let rates = (any_rate(), any_rate(), any_rate(), any_rate(), any_rate());
    let flags = (any::<bool>(), any::<bool>());
    (1..5_u32, flags, any::<u32>(), rates).prop_map(
        move |(
            nodes,
            (named, interconnect),
            delay,
            (node_out, node_in, cluster_out, cluster_in, local),
        )| {
            let name = format!("c{index}-");
            let members = if named {
                let names = (0..nodes).map(|node| format!("host\"{node}@{index}"));
                Members::Names(names.collect())
            } else {
                Members::Count(nodes)
            };
            Cluster {
                node_out,
                node_in,
                cluster_out,
                cluster_in,
                local,
                local_delay: Duration::from_nanos(delay.into()),
                node_queue: (delay % 3 > 0).then_some(Backlog::Packets(1 + nodes)),
                node_ecn: (delay % 3 > 1).then_some(Backlog::Packets(nodes)),
                interconnect,
                ..Cluster::new(name, members)
            }
        },
    )
}

fn any_rule() -> impl Strategy<Value = LinkRule> {
    let optional = proptest::option::of::<BoxedStrategy<u32>>;
    (
        any::<bool>(),
        proptest::option::of(any_rate()),
        proptest::option::of(any::<u32>()),
        optional((50..100_u32).boxed()),
        optional((1..50_u32).boxed()),
        proptest::option::of(0.0..1.0),
    )
        .prop_map(|(both, rate, delay, queue, ecn, loss)| LinkRule {
            from: "c0*".to_owned(),
            to: "*".to_owned(),
            both,
            rate,
            delay: delay.map(|nanos| Duration::from_nanos(nanos.into())),
            queue: queue.map(Backlog::Packets),
            ecn: ecn.map(Backlog::Packets),
            loss,
            burst: None,
        })
}

proptest! {
    #[test]
    fn any_network_reads_back_as_it_was_written(
        clusters in (any_cluster(0), any_cluster(1), any_cluster(2)),
        rules in proptest::collection::vec(any_rule(), 0..4),
        limit in any_rate(),
    ) {
        let clusters = vec![clusters.0, clusters.1, clusters.2];
        let network = Network::new(clusters, rules).unwrap().limited(limit);
        prop_assert_eq!(read(&network.to_toml()), network);
    }

    #[test]
    fn no_text_makes_the_reader_panic(cut in 0..FOUR.len(), insert in ".{0,6}") {
        let text = format!("{}{insert}{}", &FOUR[..cut], &FOUR[cut..]);
        if let Err(error) = Network::from_toml(&text, "net.toml") {
            prop_assert!(error.to_string().starts_with("net.toml:"));
        }
    }
}
