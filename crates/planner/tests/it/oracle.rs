//! The limit of random small networks against a program that is slow and plain: one flow per
//! ordered pair of nodes and per receiver, no classes, no cuts.

use std::collections::BTreeMap;

use crate::random::any_network;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem};
use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId};
use outpour_planner::{LimitError, limit_for};
use proptest::prelude::*;

/// The largest rate at which `receivers` are served, in MB/s; at most `most`.
fn oracle(network: &Network, sources: &[NodeId], receivers: &[NodeId], most: f64) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let rate = problem.add_var(1.0, (0.0, most));
    let mut shared: BTreeMap<_, LinearExpr> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (from, to) in network
        .nodes()
        .flat_map(|a| network.nodes().map(move |b| (a, b)))
    {
        if from != to {
            let flow = problem.add_var(0.0, (0.0, f64::INFINITY));
            pairs.push((from, to, flow));
            for resource in network.path(from, to).resources() {
                let sum = shared.entry(*resource).or_insert_with(LinearExpr::empty);
                sum.add(flow, 1.0);
            }
        }
    }
    for (resource, sum) in shared {
        let capacity = network.capacity(resource).bytes_per_s() / 1e6;
        problem.add_constraint(sum, ComparisonOp::Le, capacity);
    }
    for receiver in receivers {
        let mut balance = vec![LinearExpr::empty(); network.node_count() as usize];
        for (from, to, flow) in &pairs {
            let useful = problem.add_var(0.0, (0.0, f64::INFINITY));
            problem.add_constraint([(useful, 1.0), (*flow, -1.0)], ComparisonOp::Le, 0.0);
            balance[from.index()].add(useful, -1.0);
            balance[to.index()].add(useful, 1.0);
        }
        for (node, mut sum) in network.nodes().zip(balance) {
            if node == *receiver {
                sum.add(rate, -1.0);
                problem.add_constraint(sum, ComparisonOp::Ge, 0.0);
            } else if !sources.contains(&node) {
                problem.add_constraint(sum, ComparisonOp::Eq, 0.0);
            }
        }
    }
    let solution = problem.solve().unwrap().into_solution().unwrap();
    solution.var_value(rate)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_limit_is_what_the_plain_program_finds(
        network in any_network(),
        sources in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        wanted in prop::collection::vec(prop::bool::weighted(0.8), 12),
    ) {
        let nodes: Vec<NodeId> = network.nodes().collect();
        let sources: Vec<NodeId> = sources.iter().map(|source| *source.get(&nodes)).collect();
        let receivers: Vec<_> = (nodes.iter().copied())
            .filter(|node| wanted[node.index()] && !sources.contains(node))
            .collect();
        const MOST: f64 = 1e4;
        let truth = oracle(&network, &sources, &receivers, MOST);
        match limit_for(&network, &sources, &receivers, Bytes(1_000_000)) {
            Ok(limit) => {
                let found = limit.throughput.bytes_per_s() / 1e6;
                prop_assert!(limit.exact);
                prop_assert!(!limit.bottleneck.is_empty());
                prop_assert!(found.min(MOST) >= truth * (1.0 - 1e-9), "{found} below {truth}");
                prop_assert!(found.min(MOST) <= truth * (1.0 + 1e-5), "{found} above {truth}");
                prop_assert!(limit.seconds <= 1.0 / truth * (1.0 + 1e-9));
            }
            Err(LimitError::Unreachable { .. }) => prop_assert!(truth < 1e-9, "{truth}"),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
