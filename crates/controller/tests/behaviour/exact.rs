//! The exact formulation [BDS §4.1] as an oracle for instances so small that it can be solved.
//!
//! A block is sent within one cycle, be it from several servers, and passed on in a later one. For
//! each number of cycles a mixed program says whether they are enough; the least is the oracle's.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use outpour_core::NodeId;
use outpour_core::network::{Network, Resource};
use rand_core::{RngCore, SeedableRng};

use super::world::{World, full, job, to_nodes};

const BLOCK: f64 = 1e6;
/// Of one second each; no instance below takes more.
const CYCLES_MAX: usize = 12;

/// How many cycles of a second are enough to bring `blocks` from node 0 to all others.
fn least_cycles(network: &Network, blocks: u32) -> Option<usize> {
    (1..=CYCLES_MAX).find(|cycles| are_enough(network, blocks, *cycles))
}

fn are_enough(network: &Network, blocks: u32, cycles: usize) -> bool {
    let mut program = Problem::new(OptimizationDirection::Minimize);
    let nodes = network.node_count();
    let receivers = 1..nodes;
    // Whether a server gets a block in a cycle, and which part of it from whom.
    let mut gets: BTreeMap<(u32, u32, usize), Variable> = BTreeMap::new();
    let mut parts: BTreeMap<(u32, u32, u32, usize), Variable> = BTreeMap::new();
    for (block, to) in (0..blocks).flat_map(|block| receivers.clone().map(move |to| (block, to))) {
        for cycle in 0..cycles {
            gets.insert((block, to, cycle), program.add_binary_var(0.0));
            for from in (0..nodes).filter(|from| *from != to) {
                let part = program.add_var(0.0, (0.0, 1.0));
                parts.insert((block, from, to, cycle), part);
            }
        }
        let once: Vec<_> = (0..cycles)
            .map(|cycle| (gets[&(block, to, cycle)], 1.0))
            .collect();
        program.add_constraint(&once, ComparisonOp::Eq, 1.0);
    }
    // All of it comes in that cycle.
    for ((block, to, cycle), whole) in &gets {
        let senders = (0..nodes).filter(|from| from != to);
        let mut sum: Vec<_> = senders
            .map(|from| (parts[&(*block, from, *to, *cycle)], 1.0))
            .collect();
        sum.push((*whole, -1.0));
        program.add_constraint(&sum, ComparisonOp::Eq, 0.0);
    }
    // Nobody sends what it did not get in an earlier cycle.
    for ((block, from, _, cycle), part) in parts.iter().filter(|(key, _)| key.1 != 0) {
        let before = (0..*cycle).map(|earlier| (gets[&(*block, *from, earlier)], -1.0));
        let mut sum: Vec<_> = before.collect();
        sum.push((*part, 1.0));
        program.add_constraint(&sum, ComparisonOp::Le, 0.0);
    }
    // Nothing carries more than it can.
    let mut loads: BTreeMap<(Resource, usize), Vec<(Variable, f64)>> = BTreeMap::new();
    for ((_, from, to, cycle), part) in &parts {
        for resource in network.path(NodeId(*from), NodeId(*to)).resources() {
            let load = loads.entry((*resource, *cycle)).or_default();
            load.push((*part, 1.0));
        }
    }
    for ((resource, _), load) in loads {
        let capacity = network.capacity(resource).bytes_per_s() / BLOCK;
        if capacity.is_finite() {
            program.add_constraint(&load, ComparisonOp::Le, capacity);
        }
    }
    program.solve().is_ok()
}

/// Servers of one site each, whose rates are whole blocks a cycle.
fn instance(seed: u64) -> (Network, u32) {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut draw = |low: u32, high: u32| low + random.next_u32() % (high - low + 1);
    let servers = draw(3, 4);
    let mut text = String::new();
    for server in 0..servers {
        let (out, into) = (draw(1, 3), draw(1, 3));
        text += &format!(
            "[[cluster]]\nname = \"s{server}\"\nnodes = 1\nnode_out = \"{out} MB/s\"\n\
             node_in = \"{into} MB/s\"\n"
        );
    }
    for (a, b) in (0..servers).flat_map(|a| (0..servers).map(move |b| (a, b))) {
        if a != b {
            let rate = draw(1, 2);
            text += &format!("[[link]]\nfrom = \"s{a}\"\nto = \"s{b}\"\nrate = \"{rate} MB/s\"\n");
        }
    }
    (Network::from_toml(&text, "tiny").unwrap(), draw(2, 4))
}

#[test]
fn the_oracle_knows_the_example_of_the_paper() {
    let text = ["A", "B", "C"].map(|name| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n"));
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 MB/s\"\n";
    let network = Network::from_toml(&(text.concat() + link), "figure").unwrap();
    // One block by each way first; then the third to both, while they pass on what they have.
    assert_eq!(least_cycles(&network, 1), Some(1));
    assert_eq!(least_cycles(&network, 3), Some(2));
    assert_eq!(least_cycles(&network, 4), Some(3));
}

#[test]
fn tiny_instances_take_hardly_longer_than_the_best_possible() {
    let (mut ours, mut best) = (0.0, 0);
    for seed in 0..24 {
        let (network, blocks) = instance(seed);
        let least = least_cycles(&network, blocks).expect("all rates are a block a cycle");
        let mut world = World::new(network.clone(), full(1.0));
        let all = to_nodes(1..network.node_count());
        world.submit(job(u64::from(blocks), BLOCK as u64, 0, all));
        let end = world.finish(60);
        println!("seed {seed}: {end} s, {least} cycles at least");
        // Blocks need not end with a cycle, so it may even be less.
        assert!(
            end <= least as f64 + 1.0,
            "seed {seed}: {end} s, not {least}"
        );
        ours += end;
        best += least;
    }
    assert!(ours <= 1.05 * best as f64, "{ours} s in all, not {best}");
}
