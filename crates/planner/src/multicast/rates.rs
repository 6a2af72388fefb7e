//! What lanes can carry together, by all capacities of the network.

use std::collections::BTreeMap;

use outpour_core::Rate;
use outpour_core::network::{Network, Resource};

use super::lanes::Lane;
use super::packing::{Column, rates};

/// A resource counts as used up from this share of its capacity on.
const SATURATED_MIN: f64 = 1.0 - 1e-6;

/// How many lanes a linear program may have; the rates of more are only scaled.
const LANES_SOLVED_MAX: usize = 1_000;

/// A rate below this share of all is due to rounding.
const RATE_MIN: f64 = 1e-9;

/// Lanes at rates that fit.
pub(super) struct Rated {
    pub(super) lanes: Vec<Lane>,
    /// What they use up.
    pub(super) saturated: Vec<Resource>,
}

impl Rated {
    /// The sum of all rates.
    pub(super) fn throughput(&self) -> Rate {
        self.lanes.iter().map(|lane| lane.tree.rate).sum()
    }
}

/// What each limited resource carries when the lanes have their rates.
fn loads(network: &Network, lanes: &[Lane]) -> BTreeMap<Resource, f64> {
    let mut loads = BTreeMap::new();
    for lane in lanes {
        for (from, to) in &lane.tree.edges {
            for resource in network.path(*from, *to).resources() {
                if !network.capacity(*resource).is_unlimited() {
                    *loads.entry(*resource).or_default() += lane.tree.rate.bytes_per_s();
                }
            }
        }
    }
    loads
}

/// Raises or lowers all rates in proportion, as far as the capacities allow. Where that lowers the
/// rates of lanes that are `shaped`, so that each can have any rate, the best rates are sought.
pub(super) fn fit(network: &Network, mut lanes: Vec<Lane>, shaped: bool) -> Rated {
    let loads = loads(network, &lanes);
    let factor = factor(network, &loads);
    if factor.is_infinite() {
        // One tree without a limit is as good as many, and can be executed.
        lanes.truncate(1);
    }
    let before: f64 = lanes.iter().map(|lane| lane.tree.rate.bytes_per_s()).sum();
    if shaped && factor < SATURATED_MIN {
        let rates =
            best(network, &lanes).filter(|rates| rates.iter().sum::<f64>() > before * factor);
        if let Some(rates) = rates {
            for (lane, rate) in lanes.iter_mut().zip(rates) {
                lane.tree.rate = Rate::from_bytes_per_s(rate).unwrap_or(Rate::ZERO);
            }
            lanes.retain(|lane| lane.tree.rate.bytes_per_s() > before * RATE_MIN);
            return fit(network, lanes, false);
        }
    }
    for lane in &mut lanes {
        let rate = lane.tree.rate.bytes_per_s() * factor;
        lane.tree.rate = Rate::from_bytes_per_s(rate).unwrap_or(Rate::ZERO);
    }
    let used_up = |(resource, load): (Resource, f64)| {
        let capacity = network.capacity(resource).bytes_per_s();
        (load * factor >= capacity * SATURATED_MIN).then_some(resource)
    };
    Rated {
        lanes,
        saturated: loads.into_iter().filter_map(used_up).collect(),
    }
}

/// By which factor the loads fit best.
fn factor(network: &Network, loads: &BTreeMap<Resource, f64>) -> f64 {
    let room = |(resource, load): (&Resource, &f64)| {
        let capacity = network.capacity(*resource).bytes_per_s();
        (*load > 0.0).then_some(capacity / load)
    };
    loads.iter().filter_map(room).fold(f64::INFINITY, f64::min)
}

/// The rates of the lanes with the largest sum. `None` if there are too many for that.
fn best(network: &Network, lanes: &[Lane]) -> Option<Vec<f64>> {
    if lanes.len() > LANES_SOLVED_MAX {
        return None;
    }
    let mut index = BTreeMap::new();
    let mut capacities = Vec::new();
    let columns: Vec<Column> = (lanes.iter())
        .map(|lane| {
            let mut uses = BTreeMap::new();
            for (from, to) in &lane.tree.edges {
                for resource in network.path(*from, *to).resources() {
                    let capacity = network.capacity(*resource);
                    if !capacity.is_unlimited() {
                        let row = *index.entry(*resource).or_insert_with(|| {
                            capacities.push(capacity.bytes_per_s());
                            capacities.len() - 1
                        });
                        *uses.entry(row).or_insert(0.0) += 1.0;
                    }
                }
            }
            uses.into_iter().collect()
        })
        .collect();
    rates(&columns, &capacities)
}
