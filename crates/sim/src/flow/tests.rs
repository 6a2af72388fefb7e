//! Incremental rates against exact water-filling.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::dice::Dice;

/// Water filling from the textbook: raise all rates together, freeze what meets a full resource.
fn water_filling(capacities: &[f64], paths: &[Vec<usize>]) -> Vec<f64> {
    let mut rates = vec![0.0; paths.len()];
    let mut frozen = vec![false; paths.len()];
    let mut level = 0.0;
    loop {
        let mut step = f64::INFINITY;
        for (resource, capacity) in capacities.iter().enumerate() {
            let passing = |flow: &usize| paths[*flow].contains(&resource);
            let used: f64 = (0..paths.len())
                .filter(passing)
                .map(|flow| rates[flow])
                .sum();
            let free = (0..paths.len())
                .filter(passing)
                .filter(|flow| !frozen[*flow])
                .count();
            if free > 0 {
                step = step.min(((capacity - used) / free as f64).max(0.0));
            }
        }
        if step.is_infinite() {
            // Nothing limits the others.
            (0..paths.len())
                .filter(|flow| !frozen[*flow])
                .for_each(|f| rates[f] = step);
            return rates;
        }
        level += step;
        (0..paths.len())
            .filter(|flow| !frozen[*flow])
            .for_each(|f| rates[f] = level);
        for (resource, capacity) in capacities.iter().enumerate() {
            let passing = |flow: &usize| paths[*flow].contains(&resource);
            let used: f64 = (0..paths.len())
                .filter(passing)
                .map(|flow| rates[flow])
                .sum();
            if used >= capacity * (1.0 - 1e-12) {
                (0..paths.len())
                    .filter(passing)
                    .for_each(|flow| frozen[flow] = true);
            }
        }
        if frozen.iter().all(|frozen| *frozen) {
            return rates;
        }
    }
}

/// Nodes with capacities in and out, in clusters with capacities and links between them.
struct Net {
    capacities: Vec<f64>,
    nodes: usize,
    clusters: usize,
}

impl Net {
    fn random(dice: &mut Dice) -> Self {
        let nodes = dice.between(2, 30) as usize;
        let clusters = dice.between(1, 4) as usize;
        let count = 2 * nodes + 2 * clusters + clusters * clusters;
        let equal = dice.chance(0.3);
        let capacities = (0..count)
            .map(|_| match dice.below(10) {
                0 => f64::INFINITY,
                1 => 10.0 * dice.spread(1000.0),
                _ if equal => 100.0,
                _ => 100.0 * dice.spread(20.0),
            })
            .collect();
        Self {
            capacities,
            nodes,
            clusters,
        }
    }

    fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let (a, b) = (from % self.clusters, to % self.clusters);
        let (out, into) = (from, self.nodes + to);
        if a == b {
            return vec![out, into];
        }
        let first = 2 * self.nodes;
        let link = first + 2 * self.clusters + a * self.clusters + b;
        vec![out, first + a, link, first + self.clusters + b, into]
    }
}

/// How many rates are not within 1 % of the fair ones, and of how many; none is beyond 2 %.
fn unfair(
    flows: &Flows,
    ids: &[FlowId],
    working: &[bool],
    net: &Net,
    paths: &[Vec<usize>],
) -> (usize, usize) {
    assert_eq!(flows.overload(), None);
    let active: Vec<usize> = (0..ids.len()).filter(|index| working[*index]).collect();
    let active_paths: Vec<_> = active.iter().map(|index| paths[*index].clone()).collect();
    let expected = water_filling(&net.capacities, &active_paths);
    let mut far = 0;
    for (index, expected) in active.iter().zip(expected) {
        let rate = flows.rate(ids[*index]);
        let error = if rate == expected {
            0.0
        } else {
            (rate / expected - 1.0).abs()
        };
        assert!(error < 0.02, "flow {index} has {rate}, fair is {expected}");
        far += usize::from(error > 0.01);
    }
    (far, active.len())
}

/// Random networks, random changes; after each the rates are those of water filling.
#[test]
fn rates_are_max_min_fair() {
    let mut dice = Dice::new(11);
    let (mut far, mut all) = (0, 0);
    for _ in 0..40 {
        let mut net = Net::random(&mut dice);
        let mut flows = Flows::default();
        let resources: Vec<_> = net
            .capacities
            .iter()
            .map(|c| flows.add_resource(*c))
            .collect();
        let mut paths = Vec::new();
        let mut ids = Vec::new();
        for from in 0..net.nodes {
            for to in (0..net.nodes).filter(|to| *to != from) {
                let path = net.path(from, to);
                let hops: Vec<_> = path.iter().map(|index| resources[*index]).collect();
                ids.push(flows.add_flow(&hops));
                paths.push(path);
            }
        }
        let mut working = vec![false; ids.len()];
        let density = 3.0 / net.nodes as f64;
        for step in 0..60 {
            for _ in 0..=dice.below(3) {
                let flow = dice.below(ids.len() as u64) as usize;
                working[flow] = dice.chance(density.max(0.3));
                if working[flow] {
                    flows.load(Time(step), ids[flow], 1 << 30);
                } else {
                    flows.unload(Time(step), ids[flow]);
                }
            }
            if dice.chance(0.1) {
                let resource = dice.below(resources.len() as u64) as usize;
                let capacity = if dice.chance(0.2) {
                    0.0
                } else {
                    50.0 * dice.spread(100.0)
                };
                net.capacities[resource] = capacity;
                flows.set_capacity(resources[resource], capacity);
            }
            flows.settle(Time(step));
            let (some, of) = unfair(&flows, &ids, &working, &net, &paths);
            (far, all) = (far + some, all + of);
        }
    }
    assert!(
        all > 10_000 && 200 * far < all,
        "{far} of {all} rates are off by more than 1 %"
    );
}

/// A flow alone on its way takes size / rate to the nanosecond, through pauses and rate changes.
#[test]
fn bytes_are_accounted_through_pauses_and_rate_changes() {
    let mut flows = Flows::default();
    let wire = flows.add_resource(1000.0);
    let flow = flows.add_flow(&[wire]);
    flows.load(Time::ZERO, flow, 1000);
    flows.settle(Time::ZERO);
    assert_eq!(flows.next_time(), Some(Time(1_000_000_000)));
    flows.set_capacity(wire, 500.0);
    flows.settle(Time(200_000_000));
    assert_eq!(flows.next_time(), Some(Time(1_800_000_000)));
    flows.set_paused(Time(1_000_000_000), flow, true);
    flows.settle(Time(1_000_000_000));
    assert_eq!(flows.next_time(), None);
    flows.set_paused(Time(5_000_000_000), flow, false);
    flows.settle(Time(5_000_000_000));
    assert_eq!(flows.pop(), Some((Time(5_800_000_000), flow)));
    flows.settle(Time(5_800_000_000));
    assert_eq!((flows.rate(flow), flows.pop()), (0.0, None));
}

/// Nothing passes a dead link, and what passes no limited resource takes no time.
#[test]
fn dead_links_pass_nothing_and_unlimited_ways_take_no_time() {
    let mut flows = Flows::default();
    let (dead, open) = (flows.add_resource(0.0), flows.add_resource(f64::INFINITY));
    let (stuck, free) = (flows.add_flow(&[open, dead]), flows.add_flow(&[open]));
    flows.load(Time(5), stuck, 1);
    flows.load(Time(5), free, 1 << 30);
    flows.settle(Time(5));
    assert_eq!(flows.pop(), Some((Time(5), free)));
    flows.settle(Time(6));
    assert_eq!(flows.pop(), None);
}

#[test]
fn a_flow_passes_one_more_resource_from_now_on() {
    let mut flows = Flows::default();
    let link = flows.add_resource(100.0);
    let (one, other) = (flows.add_flow(&[link]), flows.add_flow(&[link]));
    for flow in [one, other] {
        flows.load(Time::ZERO, flow, 1000);
    }
    flows.settle(Time::ZERO);
    assert_eq!((flows.rate(one), flows.rate(other)), (50.0, 50.0));
    let now = Time::from_secs_f64(2.0);
    let own = flows.add_resource(20.0);
    flows.add_hop(now, one, own);
    let twin = flows.add_twin(one);
    flows.settle(now);
    assert_eq!((flows.rate(one), flows.rate(other)), (20.0, 80.0));
    assert_eq!(
        (flows.left(now, one), flows.left(now, other)),
        (900.0, 900.0)
    );
    flows.load(now, twin, 1000);
    flows.settle(now);
    assert_eq!((flows.rate(one), flows.rate(twin)), (10.0, 10.0));
    assert!(flows.is_loaded(twin));
}
