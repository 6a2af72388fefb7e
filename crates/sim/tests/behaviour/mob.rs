//! Clusters that fetch each block once: `mob` and `robber`, and `bittorrent` beside them.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{BlockSet, Bytes, NodeId, Time};
use outpour_protocols::registry::by_name;
use outpour_protocols::{Member, Role};
use outpour_sim::cast::{CastConfig, SimReport, simulate};
use outpour_sim::fault::{Fault, FaultKind};
use outpour_sim::object::Object;
use outpour_sim::world::{Scenario, World};
use outpour_terms::Terms;

use super::{asked, assert_within, cast};

const KIB: u64 = 1 << 10;
const TEAMS: [&str; 2] = ["mob", "robber"];

/// Clusters of these sizes, all pairs joined by links of these rates in MB/s and 5 ms.
fn clusters(sizes: &[u32], nodes: &str, link: impl Fn(usize, usize) -> f64) -> Network {
    let mut toml = String::new();
    for (index, size) in sizes.iter().enumerate() {
        toml += &format!("[[cluster]]\nname = \"k{index}-\"\nnodes = {size}\n{nodes}\n");
        toml += "local_delay = \"0.2 ms\"\n";
    }
    for from in 0..sizes.len() {
        for to in (0..sizes.len()).filter(|to| *to != from) {
            let rate = link(from, to);
            toml += &format!(
                "[[link]]\nfrom = \"k{from}-\"\nto = \"k{to}-\"\nrate = \"{rate} MB/s\"\n\
                 delay = \"5 ms\"\n"
            );
        }
    }
    Network::from_toml(&toml, "clusters").unwrap()
}

fn equal(sizes: &[u32]) -> Network {
    clusters(
        sizes,
        "node_out = \"20 MB/s\"\nnode_in = \"20 MB/s\"",
        |_, _| 4.0,
    )
}

fn run(network: Network, protocol: &str, blocks: u64, faults: Vec<Fault>) -> SimReport {
    simulate(CastConfig {
        size: Bytes(blocks * 32 * KIB),
        asked: asked(protocol, 32 * KIB),
        faults,
        ..cast(network, protocol, 0)
    })
    .unwrap()
}

#[test]
fn each_block_enters_each_cluster_once() {
    let shapes: [&[u32]; 9] = [
        &[2],
        &[9],
        &[1, 1],
        &[1, 1, 1, 1, 1, 1, 1],
        &[2, 2, 2],
        &[1, 2, 16],
        &[4, 4, 4, 4],
        &[16, 4, 12, 5],
        &[3, 1, 4, 1, 5, 9, 2, 6],
    ];
    for sizes in shapes {
        for protocol in TEAMS {
            let report = run(equal(sizes), protocol, 400, Vec::new());
            let copies = sizes.len() as u64 - 1;
            assert_eq!(report.wan_repeats, 0, "{protocol} {sizes:?}");
            let bytes = copies * 400 * 32 * KIB;
            assert_eq!(report.wan_bytes, bytes, "{protocol} {sizes:?}");
        }
    }
}

#[test]
fn more_nodes_than_blocks_are_served_too() {
    for protocol in ["mob", "robber", "bittorrent"] {
        for blocks in [0, 1, 3] {
            let report = run(equal(&[5, 9]), protocol, blocks, Vec::new());
            assert!(report.nodes.iter().all(|node| node.finish_s.is_some()));
        }
    }
}

/// Lets a world with this possession run to its end and returns how many blocks entered a cluster
/// twice.
fn repeats(network: &Network, protocol: &str, have: Vec<BlockSet>, object: Object) -> u64 {
    let member = |(node, have): (NodeId, &BlockSet)| Member {
        cluster: network.cluster_of(node).0,
        role: Role::source_if(have.is_full()),
    };
    let members = network.nodes().zip(&have).map(member).collect();
    let entry = by_name(protocol).unwrap();
    let mut world = World::new(Scenario {
        terms: Terms::new(entry.by_default(), members, 3),
        have,
        want: Vec::new(),
        starts: Vec::new(),
        network: network.clone(),
        batches: None,
        object,
        faults: Vec::new(),
        timeline: None,
        orders: Vec::new(),
        patience: None,
        checked: true,
        sink: None,
    });
    while !world.is_complete() {
        assert!(
            world.step(Time::from_secs_f64(600.0)),
            "{protocol} is stuck"
        );
    }
    assert_eq!(world.audit().violations(), []);
    world.totals().wan_repeats
}

fn object(blocks: u32) -> Object {
    Object::new(Bytes(u64::from(blocks) * 32 * KIB), Bytes(32 * KIB), 1).unwrap()
}

/// The blocks of `0..blocks` that `share` picks.
fn pick(blocks: u32, share: impl Fn(u32) -> bool) -> BlockSet {
    let mut have = BlockSet::new(blocks);
    (0..blocks).filter(|block| share(*block)).for_each(|block| {
        have.insert(block);
    });
    have
}

#[test]
fn several_roots_serve_together() {
    let network = equal(&[4, 6, 5]);
    for protocol in TEAMS {
        let full = |node: NodeId| [1, 2, 7].contains(&node.0);
        let have = network
            .nodes()
            .map(|node| pick(500, |_| full(node)))
            .collect();
        assert_eq!(repeats(&network, protocol, have, object(500)), 0);
    }
}

#[test]
fn a_cluster_with_stripes_is_a_root() {
    // The object is in the second cluster, a quarter with each node.
    let network = equal(&[4, 4, 6]);
    for protocol in TEAMS {
        let stripe = |node: NodeId| {
            let rank = node.0.checked_sub(4).filter(|rank| *rank < 4);
            pick(500, |block| rank == Some(block % 4))
        };
        let have = network.nodes().map(stripe).collect();
        assert_eq!(repeats(&network, protocol, have, object(500)), 0);
    }
}

#[test]
fn blocks_scattered_over_clusters_come_together() {
    // No cluster has everything, where the thesis expects a deadlock of robbers.
    let network = equal(&[2, 3, 2, 1, 2]);
    let count = network.node_count();
    for protocol in TEAMS {
        let part = |node: NodeId| pick(300, |block| block % count == node.0);
        let have = network.nodes().map(part).collect();
        assert_eq!(repeats(&network, protocol, have, object(300)), 0);
    }
}

#[test]
fn a_crash_costs_at_most_one_block_in_a_hundred() {
    const BLOCKS: u64 = 1200;
    for protocol in TEAMS {
        let normal = run(equal(&[4, 8, 12]), protocol, BLOCKS, Vec::new());
        for (node, silent) in [(9, false), (17, false), (4, true)] {
            let kind = FaultKind::Crash {
                node: NodeId(node),
                unjournaled: Duration::ZERO,
                silent,
            };
            let fault = Fault {
                at: Time::from_secs_f64(2.0),
                lasts: None,
                kind,
            };
            let report = run(equal(&[4, 8, 12]), protocol, BLOCKS, vec![fault]);
            let missing = report.nodes.iter().filter(|node| node.finish_s.is_none());
            assert_eq!(missing.count(), 1);
            assert!(
                report.wan_repeats <= 2 * BLOCKS / 100,
                "{protocol}: {}",
                report.wan_repeats
            );
            let wait = if silent { 12.0 } else { 2.0 };
            assert!(
                report.finish_s <= 1.2 * normal.finish_s + wait,
                "{protocol}: {} after {}",
                report.finish_s,
                normal.finish_s
            );
        }
    }
}

#[test]
fn a_lost_cluster_or_source_leaves_the_rest_whole() {
    let crash = |at: f64, node: u32| Fault {
        at: Time::from_secs_f64(at),
        lasts: None,
        kind: FaultKind::Crash {
            node: NodeId(node),
            unjournaled: Duration::ZERO,
            silent: false,
        },
    };
    for protocol in ["mob", "robber", "bittorrent"] {
        // The second cluster at once; then the source, when others have had everything for long.
        let mut faults: Vec<Fault> = (3..6).map(|node| crash(2.0, node)).collect();
        let normal = run(equal(&[3, 3, 3]), protocol, 1000, Vec::new());
        let copies = normal.nodes.iter().filter_map(|node| node.finish_s);
        faults.push(crash(copies.fold(0.0, f64::max) + 60.0, 0));
        let report = run(equal(&[3, 3, 3]), protocol, 1000, faults);
        let finished = report.nodes.iter().filter(|node| node.finish_s.is_some());
        assert_eq!(finished.count(), 5, "{protocol}");
    }
}

#[test]
fn a_source_that_is_gone_is_done_without_if_its_cluster_has_everything() {
    // The source has given its cluster everything long before the slow links have carried it.
    let network = || {
        clusters(
            &[3, 4],
            "node_out = \"20 MB/s\"\nnode_in = \"20 MB/s\"",
            |_, _| 0.5,
        )
    };
    for protocol in TEAMS {
        let fault = Fault {
            at: Time::from_secs_f64(20.0),
            lasts: None,
            kind: FaultKind::Crash {
                node: NodeId(0),
                unjournaled: Duration::ZERO,
                silent: false,
            },
        };
        let normal = run(network(), protocol, 1000, Vec::new());
        let report = run(network(), protocol, 1000, vec![fault]);
        assert!(normal.finish_s > 60.0);
        assert!(
            report.finish_s < 1.1 * normal.finish_s,
            "{}",
            report.finish_s
        );
        assert!(report.wan_repeats <= 10, "{}", report.wan_repeats);
    }
}

#[test]
fn a_robber_does_what_a_slow_node_cannot() {
    // In each cluster two nodes have a tenth of the rate of the others.
    let mut toml = String::new();
    for cluster in ["a", "b", "c"] {
        toml += &format!(
            "[[cluster]]\nname = \"{cluster}\"\nnodes = 4\ninterconnect = true\n\
             node_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\nlocal_delay = \"0.1 ms\"\n"
        );
    }
    for node in ["a1", "a3", "b1", "b3", "c1", "c3"] {
        toml += &format!("[[node]]\nname = \"{node}\"\nout = \"1 MB/s\"\nin = \"1 MB/s\"\n");
    }
    toml += "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"100 MB/s\"\ndelay = \"5 ms\"\n";
    let network = Network::from_toml(&toml, "slow").unwrap();
    let mob = run(network.clone(), "mob", 4000, Vec::new());
    let robber = run(network, "robber", 4000, Vec::new());
    assert!(mob.finish_s > 3.0 * robber.finish_s, "{}", mob.ratio);
    assert!(robber.ratio < 1.0 / 0.8, "{}", robber.ratio);
    assert_eq!((mob.wan_repeats, robber.wan_repeats), (0, 0));
}

/// Megabytes per second of a cast of 60 MB from the first of three hosts.
fn throughput(protocol: &str, link: impl Fn(usize, usize) -> f64) -> f64 {
    let hosts = "node_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"";
    let report = simulate(CastConfig {
        size: Bytes(60_000_000),
        asked: asked(protocol, 32 * KIB),
        ..cast(clusters(&[1, 1, 1], hosts, link), protocol, 0)
    })
    .unwrap();
    60.0 / report.finish_s
}

#[test]
fn random_order_makes_receivers_exchange() {
    // [Burger §4.1, figure 4.1]: in the same order both take everything from the root.
    let link = |from: usize, to: usize| match from + to {
        1 => 10.0,
        2 => 8.0,
        _ => 4.0,
    };
    assert_within(throughput("direct", link), 5.0, 0.03);
    for protocol in ["robber", "mob", "bittorrent"] {
        assert_within(throughput(protocol, link), 9.0, 0.04);
    }
}

#[test]
fn receivers_cannot_tell_the_root_whom_to_favour() {
    // [Burger §4.1, figure 4.2, eq. 4.5]: at most 10 / (3/2 - 1/10), where trees reach 10. It is
    // less because the slower receiver asks the root for blocks, too, that the other has already.
    let link = |from: usize, to: usize| if (from, to) == (2, 1) { 1.0 } else { 9.0 };
    let most = 10.0 / 1.4;
    for protocol in ["robber", "mob"] {
        let found = throughput(protocol, link);
        assert!((0.9 * most..most).contains(&found), "{protocol}: {found}");
    }
}

#[test]
fn plain_bittorrent_carries_blocks_into_clusters_again_and_again() {
    let report = run(equal(&[8, 8, 8]), "bittorrent", 1000, Vec::new());
    assert!(report.wan_repeats > 2000, "{}", report.wan_repeats);
}
