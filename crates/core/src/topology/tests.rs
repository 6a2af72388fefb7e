//! Topologies against counts worked out by hand, and paths against what a path is.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Bytes;
use crate::network::{Backlog, Network};

const B4: &str = include_str!("../../tests/b4.csv");

fn link() -> Link {
    Link {
        rate: packets_per_s(2e5, 1500).unwrap(),
        delay: Duration::from_micros(10),
        ..Link::OPEN
    }
}

fn fabric() -> Link {
    Link {
        rate: packets_per_s(8e5, 1500).unwrap(),
        ..link()
    }
}

/// Hops and ways between two hosts.
fn hops_and_ways(paths: &mut Paths, from: u32, to: u32) -> (u32, u64) {
    let (from, to) = (NodeId(from), NodeId(to));
    (paths.distance(from, to).hops, paths.count(from, to))
}

#[test]
fn fat_trees_have_the_hosts_and_ways_their_shape_says() {
    for k in [2, 4, 6, 8] {
        let (half, pod) = (k / 2, k * k / 4);
        let topology = Topology::fat_tree(k, link(), fabric()).unwrap();
        assert_eq!(topology.host_count(), k * k * k / 4);
        assert_eq!(
            topology.vertex_count() - topology.host_count(),
            5 * k * k / 4
        );
        // Hosts, lower to upper and upper to core switches: k^3 / 4 each, and both ways.
        assert_eq!(topology.wires().len() as u32, 2 * 3 * k * k * k / 4);
        let mut paths = Paths::new(topology, Metric::Hops);
        let hosts = paths.topology().host_count();
        for (from, to) in [(0, 1), (0, half), (0, pod), (0, hosts - 1), (hosts - 1, 0)] {
            let expected = match (from / half == to / half, from / pod == to / pod) {
                (true, _) => (2, 1),
                (false, true) => (4, u64::from(half)),
                (false, false) => (6, u64::from(half * half)),
            };
            assert_eq!(
                hops_and_ways(&mut paths, from, to),
                expected,
                "k {k}: {from} to {to}"
            );
        }
    }
}

#[test]
fn leaves_and_spines_have_a_way_for_each_spine() {
    let topology = Topology::leaf_spine(5, 20, 4, link(), fabric()).unwrap();
    assert_eq!((topology.host_count(), topology.vertex_count()), (100, 109));
    let mut paths = Paths::new(topology, Metric::Hops);
    assert_eq!(hops_and_ways(&mut paths, 0, 19), (2, 1));
    assert_eq!(hops_and_ways(&mut paths, 0, 20), (4, 4));
    assert_eq!(hops_and_ways(&mut paths, 99, 0), (4, 4));
    let all = paths.all(NodeId(0), NodeId(20), 100);
    let rates = |path: &Vec<WireId>| {
        let rate = |wire: &WireId| paths.topology().wire(*wire).link.rate;
        path.iter().map(rate).collect::<Vec<_>>()
    };
    let (edge, fabric) = (link().rate, fabric().rate);
    assert!(
        all.iter()
            .all(|path| rates(path) == [edge, fabric, fabric, edge])
    );
    assert_eq!(paths.all(NodeId(0), NodeId(20), 3).len(), 3);
}

#[test]
fn one_big_switch_is_two_wires_from_anywhere() {
    let mut paths = Paths::new(Topology::one_big_switch(7, link()).unwrap(), Metric::Hops);
    for (from, to) in (0..7).flat_map(|from| (0..7).map(move |to| (from, to))) {
        let expected = if from == to { (0, 1) } else { (2, 1) };
        assert_eq!(hops_and_ways(&mut paths, from, to), expected);
    }
    let alone = Topology::one_big_switch(1, link()).unwrap();
    assert_eq!(alone.host_count(), 1);
}

#[test]
fn choices_spread_over_all_ways_alike_and_stay() {
    let mut paths = Paths::new(
        Topology::fat_tree(8, link(), fabric()).unwrap(),
        Metric::Hops,
    );
    let (from, to) = (NodeId(3), NodeId(100));
    let all = paths.all(from, to, 100);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 16);
    let mut counts = [0; 16];
    for choice in 0..16_000 {
        let path = paths.pick(from, to, choice);
        assert_eq!(path, paths.pick(from, to, choice));
        counts[all.iter().position(|other| *other == path).unwrap()] += 1;
    }
    // Five standard deviations of a fair draw are 153.
    assert!(
        counts.iter().all(|count| (850..1150).contains(count)),
        "{counts:?}"
    );
}

/// How far it is between all vertices by another algorithm, hosts being ends only.
fn floyd(topology: &Topology, metric: Metric) -> Vec<Vec<Option<(u64, u32)>>> {
    let count = topology.vertex_count() as usize;
    let mut far = vec![vec![None; count]; count];
    (0..count).for_each(|vertex| far[vertex][vertex] = Some((0, 0)));
    for wire in topology.wires() {
        let delay = match metric {
            Metric::Hops => 0,
            Metric::Delay => wire.link.delay.as_nanos() as u64,
        };
        let cell = &mut far[wire.from.index()][wire.to.index()];
        *cell = Some(cell.map_or((delay, 1), |old: (u64, u32)| old.min((delay, 1))));
    }
    for over in topology.host_count() as usize..count {
        for from in 0..count {
            for to in 0..count {
                if let (Some(a), Some(b)) = (far[from][over], far[over][to]) {
                    let sum = (a.0 + b.0, a.1 + b.1);
                    let cell = &mut far[from][to];
                    *cell = Some(cell.map_or(sum, |old| old.min(sum)));
                }
            }
        }
    }
    far
}

/// Checks that a way is one: in one piece, without loops, not over hosts; gives its length.
fn walk(topology: &Topology, from: NodeId, to: NodeId, path: &[WireId]) -> (u64, u32) {
    let (mut at, mut seen, mut delay) = (Vertex::from(from), BTreeSet::new(), 0);
    for wire in path {
        let wire = topology.wire(*wire);
        assert_eq!(wire.from, at);
        assert!(seen.insert(at), "a loop at {at:?}");
        assert!(
            at == from.into() || !topology.is_host(at),
            "over host {at:?}"
        );
        delay += wire.link.delay.as_nanos() as u64;
        at = wire.to;
    }
    assert_eq!(at, to.into());
    assert!(!seen.contains(&at));
    (delay, path.len() as u32)
}

/// Checks all ways between all hosts; `both` if wires are the same in both directions.
fn check_paths(topology: Topology, metric: Metric, both: bool) {
    let far = floyd(&topology, metric);
    let mut paths = Paths::new(topology.clone(), metric);
    for (from, to) in topology
        .hosts()
        .flat_map(|a| topology.hosts().map(move |b| (a, b)))
    {
        let expected = far[from.index()][to.index()].unwrap();
        let Distance { delay_nanos, hops } = paths.distance(from, to);
        assert_eq!((delay_nanos, hops), expected, "{from} to {to}");
        if both {
            assert_eq!(paths.distance(from, to), paths.distance(to, from));
        }
        let length = |path: &[WireId]| match (metric, walk(&topology, from, to, path)) {
            (Metric::Hops, (_, hops)) => (0, hops),
            (Metric::Delay, length) => length,
        };
        let all = paths.all(from, to, 1000);
        let count = paths.count(from, to);
        assert_eq!(all.len() as u64, count.min(1000));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|path| length(path) == expected));
        for choice in 0..4 {
            let path = paths.pick(from, to, choice);
            assert_eq!(length(&path), expected);
            assert!(count > 1000 || all.contains(&path));
        }
    }
}

fn b4() -> Topology {
    Topology::from_csv(B4, "b4.csv", Link::OPEN, link()).unwrap()
}

#[test]
fn a_backbone_has_its_shortest_ways() {
    let topology = b4();
    assert_eq!((topology.host_count(), topology.vertex_count()), (18, 36));
    assert_eq!(topology.wires().len(), 2 * (18 + 40));
    check_paths(topology.clone(), Metric::Hops, true);
    check_paths(topology.clone(), Metric::Delay, true);
    let sites = |paths: &mut Paths, from, to| {
        let path = paths.pick(NodeId(from), NodeId(to), 0);
        let name = |wire: &WireId| {
            let topology = paths.topology();
            topology.name(topology.wire(*wire).to).to_owned()
        };
        path.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    let mut quick = Paths::new(topology, Metric::Delay);
    // By hand: 12.654 + 51.17 + 10.193 + 34.565 + 6.935 ms, which no detour beats.
    assert_eq!(
        sites(&mut quick, 0, 17),
        "site0 site1 site5 site7 site16 site17 h17"
    );
    assert_eq!(
        quick.distance(NodeId(0), NodeId(17)).delay_nanos,
        115_517_000
    );
    // By hand: 0-2-1-3 is 31.418 ms, 0-1-3 is 25.563, and the direct link 24.862.
    assert_eq!(sites(&mut quick, 0, 3), "site0 site3 h3");
}

#[test]
fn links_can_follow_from_where_their_ends_are() {
    let inside = |vertex: Vertex| (vertex.0 - 18) / 6;
    let delays = b4().with_links(|topology, wire| {
        if topology.is_host(wire.from) || topology.is_host(wire.to) {
            return wire.link;
        }
        let near = inside(wire.from) == inside(wire.to);
        let delay = Duration::from_millis(if near { 1 } else { 10 });
        Link { delay, ..wire.link }
    });
    check_paths(delays.unwrap(), Metric::Delay, true);
    let negative = b4().with_links(|_, wire| Link {
        loss: -0.5,
        ..wire.link
    });
    let text = "wire from `h0` to `site0`: `loss`: expected a share of packets from 0 to below 1, found -0.5";
    assert_eq!(negative.unwrap_err().to_string(), text);
}

/// Switches joined by a random tree and further links, and hosts on some of them.
fn drawn() -> impl Strategy<Value = Topology> {
    let sizes = (1_usize..12, 1_usize..8);
    sizes.prop_flat_map(|(switches, hosts)| {
        let tree = prop::collection::vec((any::<prop::sample::Index>(), 0_u64..4), switches - 1);
        let more = prop::collection::vec((0..switches, 0..switches, 0_u64..4), 0..12);
        // A host with two homes joins them, but nothing passes it.
        let homes = prop::collection::vec((0..switches, 0..switches), hosts);
        (tree, more, homes).prop_map(move |(tree, more, homes)| {
            let switch = |index: usize| Vertex((hosts + index) as u32);
            let mut wires = Vec::new();
            let mut join = |from, to, ms| {
                let delay = Duration::from_millis(ms);
                let link = Link { delay, ..link() };
                wires.push(Wire { from, to, link });
                wires.push(Wire {
                    from: to,
                    to: from,
                    link,
                });
            };
            for (index, (parent, ms)) in tree.iter().enumerate() {
                join(switch(index + 1), switch(parent.index(index + 1)), *ms);
            }
            for (a, b, ms) in more.iter().filter(|(a, b, _)| a != b) {
                join(switch(*a), switch(*b), *ms);
            }
            for (host, (home, other)) in homes.iter().enumerate() {
                join(Vertex(host as u32), switch(*home), 0);
                if home != other {
                    join(Vertex(host as u32), switch(*other), 0);
                }
            }
            let names = |what: &str, count| (0..count).map(|i| format!("{what}{i}")).collect();
            Topology::new(names("h", hosts), names("s", switches), wires).unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ways_are_loop_free_shortest_and_lead_back(topology in drawn(), by_delay: bool) {
        let metric = if by_delay { Metric::Delay } else { Metric::Hops };
        check_paths(topology, metric, true);
    }

    #[test]
    fn no_table_makes_the_reader_panic(lines in prop::collection::vec("[-0-9a-z,.# ]{0,12}", 0..8)) {
        let text = format!("site_a,site_b,delay_ms\n{}", lines.join("\n"));
        if let Ok(topology) = Topology::from_csv(&text, "t.csv", Link::OPEN, link()) {
            check_paths(topology, Metric::Delay, true);
        }
    }
}

#[test]
fn tables_that_are_none_are_refused_with_the_line() {
    let head = "# sites\nsite_a,site_b,delay_ms\n";
    for (rows, message) in [
        ("", "t.csv:2: the table has no links"),
        ("0,1\n", "t.csv:3: expected 3 columns, found 2"),
        ("0,1,2,3\n", "t.csv:3: expected 3 columns, found 4"),
        (
            "0,1,5\n0,x,5\n",
            "t.csv:4: `site_b`: expected the number of a site below 4096, found `x`",
        ),
        (
            "-1,1,5\n",
            "t.csv:3: `site_a`: expected the number of a site below 4096, found `-1`",
        ),
        (
            "0,4096,5\n",
            "t.csv:3: `site_b`: expected the number of a site below 4096, found `4096`",
        ),
        (
            "0,1,-5\n",
            "t.csv:3: `delay_ms`: expected milliseconds from 0 to 10000, found `-5`",
        ),
        (
            "0,1,1e9\n",
            "t.csv:3: `delay_ms`: expected milliseconds from 0 to 10000, found `1e9`",
        ),
        (
            "0,1,NaN\n",
            "t.csv:3: `delay_ms`: expected milliseconds from 0 to 10000, found `NaN`",
        ),
        (
            "2,2,5\n",
            "t.csv:3: a link joins two sites, this one joins 2 with itself",
        ),
        (
            "0,1,5\n# again\n1,0,6\n",
            "t.csv:5: sites 0 and 1 are joined in line 3 already",
        ),
        (
            "0,1,5\n1,3,5\n",
            "t.csv:4: site 2 has no link, although sites are numbered from 0 to 3",
        ),
        (
            "0,1,5\n3,4,5\n2,0,5\n",
            "t.csv:4: no way leads from site 0 to sites 3 and 4",
        ),
    ] {
        let read = Topology::from_csv(&format!("{head}{rows}"), "t.csv", Link::OPEN, link());
        assert_eq!(read.unwrap_err().to_string(), message);
    }
    let read = Topology::from_csv("a;b\n", "t.csv", Link::OPEN, link());
    let text = "t.csv:1: expected the header `site_a,site_b,delay_ms`, found `a;b`";
    assert_eq!(read.unwrap_err().to_string(), text);
}

#[test]
fn shapes_that_are_none_are_refused() {
    let dead = Link {
        rate: Rate::ZERO,
        ..link()
    };
    let marks = Link {
        queue: Some(Backlog::Packets(10)),
        ecn: Some(Backlog::Packets(11)),
        ..link()
    };
    let late = Link {
        delay: DELAY_MAX + Duration::from_nanos(1),
        ..link()
    };
    for (made, message) in [
        (
            Topology::fat_tree(5, link(), link()),
            "k of a fat tree: expected an even number from 2 to 64, found 5",
        ),
        (
            Topology::fat_tree(0, link(), link()),
            "k of a fat tree: expected an even number from 2 to 64, found 0",
        ),
        (
            Topology::fat_tree(66, link(), link()),
            "k of a fat tree: expected an even number from 2 to 64, found 66",
        ),
        (
            Topology::one_big_switch(0, link()),
            "hosts: expected at least one, found 0",
        ),
        (
            Topology::one_big_switch(u32::MAX, link()),
            "more than 100000 hosts",
        ),
        (
            Topology::leaf_spine(2, 2, 0, link(), link()),
            "spines: expected at least one, found 0",
        ),
        (
            Topology::leaf_spine(1 << 16, 1 << 16, 2, link(), link()),
            "more than 100000 hosts",
        ),
        (
            Topology::leaf_spine(1 << 16, 1, 1 << 16, link(), link()),
            "more than 1048576 wires",
        ),
        (
            Topology::one_big_switch(2, dead),
            "link of hosts: `rate`: expected more than zero",
        ),
        (
            Topology::leaf_spine(2, 2, 2, link(), dead),
            "link of the fabric: `rate`: expected more than zero",
        ),
        (
            Topology::one_big_switch(2, late),
            "link of hosts: `delay`: expected at most 3600 s",
        ),
        (
            Topology::one_big_switch(2, marks),
            "link of hosts: `ecn`: expected at least one packet, and a threshold for marks (ecn) \
             not above the limit (queue); found ecn 11 packets, queue 10 packets",
        ),
        (
            Topology::new(Vec::new(), Vec::new(), Vec::new()),
            "a topology needs at least one host",
        ),
    ] {
        assert_eq!(made.unwrap_err().to_string(), message);
    }
}

#[test]
fn wires_that_lead_nowhere_or_one_way_are_refused() {
    let names = |count| (0..count).map(|i| format!("v{i}")).collect::<Vec<_>>();
    let wire = |from, to| Wire {
        from: Vertex(from),
        to: Vertex(to),
        link: link(),
    };
    let make = |hosts, switches, wires: &[Wire]| {
        let made = Topology::new(names(hosts), names(switches), wires.to_vec());
        made.map(drop).map_err(|error| error.to_string())
    };
    let bad = "wire 1: expected two different vertices of the topology".to_owned();
    assert_eq!(make(2, 0, &[wire(0, 2)]), Err(bad.clone()));
    assert_eq!(make(2, 0, &[wire(1, 1)]), Err(bad));
    let apart = "no way leads from `v1` to `v0`".to_owned();
    assert_eq!(make(2, 0, &[wire(0, 1)]), Err(apart));
    assert_eq!(make(2, 0, &[wire(0, 1), wire(1, 0)]), Ok(()));
    // A host is no way: 0 to 2 would have to pass 1.
    let line = [wire(0, 1), wire(1, 0), wire(1, 2), wire(2, 1)];
    assert_eq!(
        make(3, 0, &line),
        Err("no way leads from `v0` to `v2`".to_owned())
    );
    assert_eq!(
        make(2, 1, &line[2..]),
        Err("no way leads from `v0` to `v1`".to_owned())
    );
}

#[test]
fn switches_that_lead_nowhere_are_found() {
    let names = |count| (0..count).map(|i| format!("v{i}")).collect::<Vec<_>>();
    let wires = [(2, 0), (2, 1), (2, 3), (0, 3), (1, 3)].map(|(from, to)| Wire {
        from: Vertex(from),
        to: Vertex(to),
        link: link(),
    });
    // The first switch reaches everything, and no host reaches it.
    let error = Topology::new(names(2), names(2), wires.to_vec()).unwrap_err();
    assert_eq!(error.to_string(), "no way leads from `v0` to `v1`");
}

#[test]
fn hosts_with_two_homes_are_no_way() {
    let names = |count| (0..count).map(|i| format!("v{i}")).collect::<Vec<_>>();
    // Host 1 hangs on switches 3 and 4, as hosts 0 and 2 do on one of them; switch 5 is between.
    let ends = [(0, 3), (1, 3), (1, 4), (2, 4), (3, 5), (5, 4)];
    let wires = ends.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
    let wires = wires.map(|(from, to)| Wire {
        from: Vertex(from),
        to: Vertex(to),
        link: link(),
    });
    let topology = Topology::new(names(3), names(3), wires.collect()).unwrap();
    let mut paths = Paths::new(topology.clone(), Metric::Hops);
    assert_eq!(hops_and_ways(&mut paths, 0, 2), (4, 1));
    let path = paths.pick(NodeId(0), NodeId(2), 1);
    assert_eq!(walk(&topology, NodeId(0), NodeId(2), &path), (40_000, 4));
}

/// Clusters of all kinds: with and without an interconnect, limited local links, one node.
const CLUSTERS: &str = "[[cluster]]\nname='a'\nnodes=3\nlocal_delay='1 ms'\nnode_out='5 MB/s'\n\
    node_in='4 MB/s'\nnode_queue='20 packets'\nnode_ecn='5 packets'\n\
    [[cluster]]\nname='b'\nnodes=2\nlocal='3 MB/s'\nout='7 MB/s'\nin='6 MB/s'\nnode_in='2 MB/s'\n\
    [[cluster]]\nname='c'\nnodes=2\ninterconnect=true\nlocal='1 MB/s'\nnode_out='1 MB/s'\n\
    [[cluster]]\nname='d'\nnodes=3\ninterconnect=true\nlocal_delay='2 ms'\nnode_out='1 MB/s'\n\
    [[cluster]]\nname='e'\nnodes=1\n\
    [[link]]\nfrom='*'\nto='*'\ndelay='10 ms'\n\
    [[link]]\nfrom='a'\nto='b'\nrate='2 MB/s'\nqueue='9 packets'\necn='3 packets'\nloss=0.01\n";

#[test]
fn networks_of_clusters_keep_their_resources() {
    let network = Network::from_toml(CLUSTERS, "net.toml").unwrap();
    let topology = Topology::from_network(&network).unwrap();
    let mut paths = Paths::new(topology.clone(), Metric::Hops);
    let counted = |links: Vec<Link>| {
        let counts = links.into_iter().filter(|link| *link != Link::OPEN);
        counts.collect::<Vec<_>>()
    };
    for (from, to) in network
        .nodes()
        .flat_map(|a| network.nodes().map(move |b| (a, b)))
    {
        assert_eq!(topology.name(from.into()), network.name(from));
        assert_eq!(paths.count(from, to), 1);
        let wires = paths.pick(from, to, 3);
        walk(&topology, from, to, &wires);
        let passed = wires.iter().map(|wire| topology.wire(*wire).link).collect();
        let resources = network.path(from, to);
        let expected = resources.resources().iter().map(|r| network.port(*r));
        assert_eq!(
            counted(passed),
            counted(expected.collect()),
            "{from} to {to}"
        );
    }
    // The receiving port of a0.
    let port = topology.wire(topology.incoming(Vertex(0))[0]).link;
    assert_eq!(port.rate.bytes_per_s(), 4e6);
    assert_eq!(
        port.queue.zip(port.ecn),
        Some((Backlog::Packets(20), Backlog::Packets(5)))
    );
    let dead = format!("{CLUSTERS}[[link]]\nfrom='d'\nto='e'\nrate='0 B/s'\n");
    let dead = Network::from_toml(&dead, "net.toml").unwrap();
    let apart = Topology::from_network(&dead).unwrap_err().to_string();
    assert_eq!(apart, "no way leads from `d0` to `e`");
    let large = "[[cluster]]\nname='a'\nnodes=2000\nlocal='1 MB/s'\n";
    let large = Network::from_toml(large, "net.toml").unwrap();
    let large = Topology::from_network(&large).unwrap_err().to_string();
    assert_eq!(large, "more than 1048576 wires");
}

#[test]
fn papers_that_count_packets_have_rates_too() {
    assert_eq!(packets_per_s(2e5, 1500).unwrap().to_string(), "300 MB/s");
    assert_eq!(
        packets_per_s(1e4, 1500)
            .unwrap()
            .amount_in(Duration::from_secs(1)),
        Bytes(15_000_000)
    );
    assert_eq!(packets_per_s(-1.0, 1500), None);
}
