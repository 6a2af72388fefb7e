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
    let mut order: Vec<usize> = (0..fixed.len()).filter(|it| fixed[*it].is_none()).collect();
    order.sort_by(|a, b| size(*b).total_cmp(&size(*a)).then(a.cmp(b)));
    let wanted = order.into_iter().map(|reducer| Wanted {
        reducer,
        bytes: size(reducer),
        not_before_s: 0.0,
    });
    fill(wanted, fixed, &loads, &hosts.into, &mut left)
}

/// A reducer that needs a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) reducer: usize,
    /// What it fetches.
    pub(super) bytes: f64,
    /// Its mappers have nothing for it before that, seconds.
    pub(super) not_before_s: f64,
}

/// The hosts of all reducers: those wanted, one after the other, each where it would end first after the
/// bytes that each host has in `loads` and those of reducers before it; the others are fixed. `left` is how
/// many more each host may run. `None` if a reducer finds no host.
pub(super) fn fill(
    wanted: impl IntoIterator<Item = Wanted>,
    fixed: &[Option<HostId>],
    loads: &[f64],
    into: &[f64],
    left: &mut [u32],
) -> Option<Vec<HostId>> {
    let mut classes: BTreeMap<u64, Vec<Loaded>> = BTreeMap::new();
    for host in (0..left.len()).filter(|host| left[*host] > 0 && into[*host] > 0.0) {
        let load = loads[host];
        // The order of positive numbers is that of their bits.
        let class = classes.entry(into[host].to_bits()).or_default();
        class.push(Loaded { load, host });
    }
    let fastest = classes.into_iter().rev().take(BANDWIDTHS_MAX);
    let classes = fastest.map(|(bits, class)| (f64::from_bits(bits), BinaryHeap::from(class)));
    let mut classes: Vec<(f64, BinaryHeap<Loaded>)> = classes.collect();
    let mut places = fixed.to_vec();
    for wanted in wanted {
        let end = |load: f64, rate: f64| load.max(wanted.not_before_s * rate) + wanted.bytes;
        let ends = classes.iter_mut().filter_map(|(rate, class)| {
            let load = class.peek()?.load;
            Some((end(load, *rate) / *rate, *rate, class))
        });
        let (_, rate, class) = ends.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let Loaded { load, host } = class.pop()?;
        places[wanted.reducer] = Some(host);
        left[host] -= 1;
        if left[host] > 0 {
            let load = end(load, rate);
            class.push(Loaded { load, host });
        }
    }
    places.into_iter().collect()
}
