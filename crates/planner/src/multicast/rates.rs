//! What lanes can carry together, by all capacities of the network.

use std::collections::BTreeMap;

use outpour_core::Rate;
use outpour_core::network::{Network, Resource};

use super::lanes::Lane;

/// A resource counts as used up from this share of its capacity on.
const SATURATED_MIN: f64 = 1.0 - 1e-6;

/// Lanes at rates that fit.
pub(super) struct Rated {
    pub(super) lanes: Vec<Lane>,
    /// What they use up.
    pub(super) saturated: Vec<Resource>,
}

/// What each limited resource carries when the lanes have their rates.
pub(super) fn loads(network: &Network, lanes: &[Lane]) -> BTreeMap<Resource, f64> {
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

/// Raises or lowers all rates in proportion, as far as the capacities allow.
pub(super) fn scale(network: &Network, mut lanes: Vec<Lane>) -> Rated {
    let loads = loads(network, &lanes);
    let room = |(resource, load): (&Resource, &f64)| {
        let capacity = network.capacity(*resource).bytes_per_s();
        (*load > 0.0).then_some(capacity / load)
    };
    let factor = loads.iter().filter_map(room).fold(f64::INFINITY, f64::min);
    if factor.is_infinite() {
        // One tree without a limit is as good as many, and can be executed.
        lanes.truncate(1);
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
