//! List scheduling: the largest reducer first, each where it would end first.
//!
//! It is not known to be within twice the best where loads are given, but it often is nearer to it
//! than what rounding finds. Hosts of one bandwidth are kept in order of their loads, so it takes
//! O((N + M) log (N + M)) for each bandwidth that there is.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Coflow, HostId, Hosts, loads_of, slots_left};

/// How many different bandwidths are looked at, the highest first; more are rarely of use, and each
/// costs time.
const BANDWIDTHS_MAX: usize = 64;

/// A host in the order of its load, the least first.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loaded {
    load: f64,
    host: HostId,
}

impl Eq for Loaded {}

impl Ord for Loaded {
    fn cmp(&self, other: &Self) -> Ordering {
        let load = other.load.total_cmp(&self.load);
        load.then(other.host.cmp(&self.host))
    }
}

impl PartialOrd for Loaded {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The hosts of all reducers, some of which are fixed. `None` if a reducer finds no host.
pub(super) fn list(
    coflow: &Coflow,
    hosts: &Hosts,
    fixed: &[Option<HostId>],
) -> Option<Vec<HostId>> {
    let mut left = slots_left(hosts, fixed);
    let loads = loads_of(coflow, hosts, fixed);
    let size = |reducer: usize| coflow.reducers[reducer].bytes;
    let mut classes: BTreeMap<u64, BinaryHeap<Loaded>> = BTreeMap::new();
    for host in (0..left.len()).filter(|host| left[*host] > 0 && hosts.into[*host] > 0.0) {
        let load = loads[host];
        // The order of positive numbers is that of their bits.
        let class = classes.entry(hosts.into[host].to_bits()).or_default();
        class.push(Loaded { load, host });
    }
    let mut order: Vec<usize> = (0..fixed.len()).filter(|it| fixed[*it].is_none()).collect();
    order.sort_by(|a, b| size(*b).total_cmp(&size(*a)).then(a.cmp(b)));
    let mut places = fixed.to_vec();
    for reducer in order {
        let ends = classes.iter().rev().take(BANDWIDTHS_MAX);
        let ends = ends.filter_map(|(bandwidth, class)| {
            let load = class.peek()?.load;
            Some((
                (load + size(reducer)) / f64::from_bits(*bandwidth),
                *bandwidth,
            ))
        });
        let (_, bandwidth) = ends.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let class = classes.get_mut(&bandwidth)?;
        let Loaded { load, host } = class.pop()?;
        places[reducer] = Some(host);
        left[host] -= 1;
        if left[host] > 0 {
            let load = load + size(reducer);
            class.push(Loaded { load, host });
        }
        if class.is_empty() {
            classes.remove(&bandwidth);
        }
    }
    places.into_iter().collect()
}
