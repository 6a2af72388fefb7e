//! The limit of random networks that change against a program that is slow and plain: the network unrolled
//! in time, with one flow per situation, ordered pair of nodes and receiver, and storage between situations.

use std::collections::BTreeMap;

use crate::random::any_network;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem};
use outpour_core::network::{Change, ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Time};
use outpour_planner::limit_over_for;
use proptest::prelude::*;

const MB: f64 = 1e6;
/// No more than this is brought, in MB.
const MOST: f64 = 1e3;

/// How many MB all receivers can get while each network lasts as long as it is said, in seconds.
fn oracle(situations: &[(Network, f64)], source: NodeId, receivers: &[NodeId]) -> f64 {
    let nodes: Vec<NodeId> = situations[0].0.nodes().collect();
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let amount = problem.add_var(1.0, (0.0, MOST));
    let open = (0.0, f64::INFINITY);
    // What each receiver's share of the data was with each node at the end of the last situation.
    let mut stored = vec![vec![None; nodes.len()]; receivers.len()];
    for (network, seconds) in situations {
        let mut shared: BTreeMap<Resource, LinearExpr> = BTreeMap::new();
        let mut flows = Vec::new();
        for (from, to) in nodes.iter().flat_map(|a| nodes.iter().map(|b| (*a, *b))) {
            if from != to {
                let flow = problem.add_var(0.0, open);
                flows.push((from, to, flow));
                for resource in network.path(from, to).resources() {
                    let sum = shared.entry(*resource).or_insert_with(LinearExpr::empty);
                    sum.add(flow, 1.0);
                }
            }
        }
        for (resource, sum) in shared {
            let capacity = network.capacity(resource);
            if !capacity.is_unlimited() {
                let most = capacity.bytes_per_s() / MB * seconds;
                problem.add_constraint(sum, ComparisonOp::Le, most);
            }
        }
        for stored in &mut stored {
            let mut balance = vec![LinearExpr::empty(); nodes.len()];
            for (from, to, flow) in &flows {
                let useful = problem.add_var(0.0, open);
                problem.add_constraint([(useful, 1.0), (*flow, -1.0)], ComparisonOp::Le, 0.0);
                balance[from.index()].add(useful, -1.0);
                balance[to.index()].add(useful, 1.0);
            }
            for (node, mut sum) in nodes.iter().zip(balance) {
                if *node == source {
                    continue;
                }
                let after = problem.add_var(0.0, open);
                let before = stored[node.index()].replace(after);
                before.into_iter().for_each(|before| sum.add(before, 1.0));
                sum.add(after, -1.0);
                problem.add_constraint(sum, ComparisonOp::Eq, 0.0);
            }
        }
    }
    for (receiver, stored) in receivers.iter().zip(stored) {
        let had = stored[receiver.index()].expect("a situation has passed");
        problem.add_constraint([(had, 1.0), (amount, -1.0)], ComparisonOp::Ge, 0.0);
    }
    let solution = problem.solve().unwrap().into_solution().unwrap();
    solution.var_value(amount)
}

/// The rate of a link from some time on, in half MB/s.
type Drawn = (f64, [prop::sample::Index; 2], u32);

/// The changes that a script makes, each with its time, and the network of each stretch in between
/// with how long it lasts, in s.
struct Unrolled {
    changes: Vec<(Time, Vec<Change>)>,
    situations: Vec<(Network, f64)>,
}

/// What becomes of a network until `end`.
fn unroll(network: &Network, drawn: &[Drawn], end: f64) -> Unrolled {
    let sites: Vec<ClusterId> = (0..network.clusters().len() as u32)
        .map(ClusterId)
        .collect();
    let (mut network, mut now) = (network.clone(), 0.0);
    let (mut changes, mut situations) = (Vec::new(), Vec::new());
    for (lasts, [from, to], halves) in drawn {
        let (from, to) = (*from.get(&sites), *to.get(&sites));
        let rate = Rate::from_bytes_per_s(f64::from(*halves) * 0.5 * MB).unwrap();
        situations.push((network.clone(), *lasts));
        now += lasts;
        let resource = Resource::Link(from, to);
        if from != to {
            let change = Change::Capacity { resource, rate };
            network.apply(&change);
            changes.push((Time::from_secs_f64(now), vec![change]));
        }
    }
    situations.push((network, end - now));
    Unrolled {
        changes,
        situations,
    }
}

/// What can be brought until `end`, and the limit for so much.
fn both(network: &Network, drawn: &[Drawn], end: f64) -> Option<(f64, f64)> {
    let source = NodeId(0);
    let receivers: Vec<NodeId> = network.nodes().filter(|node| *node != source).collect();
    let Unrolled {
        changes,
        situations,
    } = unroll(network, drawn, end);
    if receivers.is_empty() {
        return None;
    }
    let amount = oracle(&situations, source, &receivers);
    if !(0.01..MOST * 0.99).contains(&amount) {
        return None;
    }
    let size = Bytes((amount * MB) as u64);
    let limit = limit_over_for(network, &[source], &receivers, size, changes).unwrap();
    Some((amount, limit.seconds))
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let one = (1..10_u32, any::<[prop::sample::Index; 2]>(), 0..40_u32);
    let one = one.prop_map(|(lasts, link, halves)| (f64::from(lasts), link, halves));
    prop::collection::vec(one, 1..5)
}

const END: f64 = 50.0;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nothing_beats_the_limit_of_a_network_that_changes(
        network in any_network(),
        drawn in drawn(),
    ) {
        if let Some((amount, seconds)) = both(&network, &drawn, END) {
            prop_assert!(seconds <= END * (1.0 + 1e-4), "{amount} MB: {seconds} s");
        }
    }

    #[test]
    fn where_only_links_limit_it_is_reached(
        rates in prop::collection::vec(1..40_u32, 12),
        drawn in drawn(),
    ) {
        let clusters = ["a", "b", "c", "d"];
        let pairs = clusters.iter().flat_map(|a| clusters.iter().map(move |b| (a, b)));
        let pairs = pairs.filter(|(a, b)| a != b).zip(rates);
        let links = pairs.map(|((a, b), halves)| {
            format!("[[link]]\nfrom='{a}'\nto='{b}'\nrate='{} kB/s'\n", halves * 500)
        });
        let clusters = clusters.iter().map(|it| format!("[[cluster]]\nname='{it}'\nnodes=1\n"));
        let text: String = clusters.chain(links).collect();
        let network = Network::from_toml(&text, "test.toml").unwrap();
        if let Some((amount, seconds)) = both(&network, &drawn, END) {
            prop_assert!((seconds / END - 1.0).abs() < 1e-3, "{amount} MB: {seconds} s");
        }
    }
}
