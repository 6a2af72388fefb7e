//! The worked examples of the paper.

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId};

use super::world::{World, full, job, to_nodes};

const GB: u64 = 1_000_000_000;

/// Three sites of one server, with these links in GB/s.
fn sites(links: &[(&str, &str, f64)]) -> Network {
    let mut text = String::new();
    for name in ["A", "B", "C"] {
        text += &format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
    }
    for (from, to, rate) in links {
        text += &format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate} GB/s\"\n");
    }
    Network::from_toml(&text, "figure").unwrap()
}

fn seconds(network: Network, cycle_s: f64, blocks: u64, block: u64) -> f64 {
    let mut world = World::new(network, full(cycle_s));
    world.submit(job(blocks, block, 0, to_nodes([1, 2])));
    world.finish(2000)
}

fn close(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 0.01,
        "{found} s instead of {expected} s"
    );
}

/// [BDS figure 1]: 3 GB from A to B and C, 1 GB/s between any two.
#[test]
fn figure_1_takes_what_the_paper_says() {
    let direct = [("A", "B", 1.0), ("A", "C", 1.0)];
    close(seconds(sites(&direct), 1.0, 3, GB), 3.0);
    let all = [("*", "*", 1.0)];
    for cycle in [0.5, 1.0] {
        close(seconds(sites(&all), cycle, 3, GB), 2.0);
    }
    let network = sites(&all);
    let limit = outpour_planner::limit(&network, &[NodeId(0)], Bytes(3 * GB)).unwrap();
    close(limit.seconds, 1.5);
}

/// The same as a fluid: a hundred times as much, so that a cycle does not count.
#[test]
fn figure_1_as_a_fluid_takes_half_of_direct() {
    let found = seconds(sites(&[("*", "*", 1.0)]), 0.5, 3000, GB / 10);
    assert!(
        (150.0..151.5).contains(&found),
        "{found} s instead of 150 s"
    );
}

/// [BDS figure 3]: 36 GB in blocks of 6 GB; A to C directly at 2 GB/s, through b at 6 and 3.
#[test]
fn figure_3_takes_what_the_paper_says() {
    let (direct, first, second) = (("A", "C", 2.0), ("A", "B", 6.0), ("B", "C", 3.0));
    for cycle in [0.5, 1.0] {
        close(seconds(sites(&[direct, first]), cycle, 6, 6 * GB), 18.0);
        close(seconds(sites(&[first, second]), cycle, 6, 6 * GB), 13.0);
        close(
            seconds(sites(&[direct, first, second]), cycle, 6, 6 * GB),
            9.0,
        );
    }
}

/// The same where b keeps nothing.
#[test]
fn a_relay_is_as_good_as_a_destination() {
    let links = [("A", "C", 2.0), ("A", "B", 6.0), ("B", "C", 3.0)];
    let mut world = World::new(sites(&links), full(1.0));
    let mut relayed = job(6, 6 * GB, 0, to_nodes([2]));
    relayed.relays = vec![NodeId(1)];
    world.submit(relayed);
    let found = world.finish(50);
    assert!(found <= 10.0, "{found} s; 18 s without the relay");
}

/// Each of two relays has to get other blocks than the other one, and than those that come directly.
#[test]
fn two_relays_help_twice_as_much_as_one() {
    let mut text = String::new();
    for name in ["A", "B", "C", "D"] {
        text += &format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
    }
    text += "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 GB/s\"\n";
    let seconds = |relays: &[u32]| {
        let network = Network::from_toml(&text, "relays").unwrap();
        let mut world = World::new(network, full(1.0));
        let mut relayed = job(300, GB / 10, 0, to_nodes([3]));
        relayed.relays = relays.iter().copied().map(NodeId).collect();
        world.submit(relayed);
        world.finish(50)
    };
    close(seconds(&[]), 30.0);
    let (one, two) = (seconds(&[1]), seconds(&[1, 2]));
    assert!(one <= 16.5, "{one} s by one relay, 15 s at best");
    assert!(two <= 11.5, "{two} s by two relays, 10 s at best");
}
