//! The relaxed problem: reducers that may be split over hosts [RPC problem (6)].
//!
//! Hosts are sorted by what they receive, reducers by what they fetch. With all times below a scale
//! `T`, a reducer of size `r` may go to the hosts of bandwidth `r / T` and more, which are the first
//! few, and a smaller one may go to all of these and perhaps others. So the problem can be solved if
//! and only if, for every `k`, the `k` largest reducers fit into the hosts of the `k`-th. That is
//! checked in one pass, and the least scale found by halving.

use super::HostId;

/// How often the range of the scale is halved: to the precision of the numbers.
const HALVINGS: usize = 64;

/// What of a reducer a host serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// By its index among the sizes.
    pub reducer: usize,
    /// Where.
    pub host: HostId,
    /// In the unit of the sizes; above zero unless the reducer fetches nothing.
    pub amount: f64,
}

/// A solution of the relaxed problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Relaxed {
    /// The time of the slowest host, if what it serves and its load go through its bandwidth.
    pub scale: f64,
    /// Who serves what: at most one more than there are reducers and hosts.
    pub shares: Vec<Share>,
}

/// Splits reducers of `sizes` over the `open` hosts of bandwidth `into` that have `loads` already,
/// such that the slowest host is as fast as it can be and a reducer alone would be no slower on any
/// host that serves a share of it. Takes O((N + M) log (N + M)). `None` if there is nowhere to go.
///
/// Loads count for the scale on all hosts, open or not.
pub fn relax(sizes: &[f64], into: &[f64], open: &[HostId], loads: &[f64]) -> Option<Relaxed> {
    debug_assert_eq!(into.len(), loads.len(), "each host has a load");
    let mut floor: f64 = 0.0;
    for (rate, load) in into.iter().zip(loads).filter(|(_, load)| **load > 0.0) {
        floor = floor.max(load / rate);
    }
    let mut hosts: Vec<HostId> = open
        .iter()
        .copied()
        .filter(|host| into[*host] > 0.0)
        .collect();
    hosts.sort_by(|a, b| into[*b].total_cmp(&into[*a]).then(a.cmp(b)));
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|a, b| sizes[*b].total_cmp(&sizes[*a]).then(a.cmp(b)));
    let largest = order.first().map_or(0.0, |reducer| sizes[*reducer]);
    if largest > 0.0 && hosts.is_empty() || !floor.is_finite() {
        return None;
    }
    if largest == 0.0 {
        // Those that fetch nothing go anywhere.
        let host = hosts.first().or_else(|| open.first());
        if host.is_none() && !sizes.is_empty() {
            return None;
        }
        let share = |reducer| {
            host.map(|host| Share {
                reducer,
                host: *host,
                amount: 0.0,
            })
        };
        let shares = order.into_iter().filter_map(share).collect();
        let scale = floor;
        return Some(Relaxed { scale, shares });
    }
    let sorted = Sorted {
        sizes: order.iter().map(|reducer| sizes[*reducer]).collect(),
        into: hosts.iter().map(|host| into[*host]).collect(),
        loads: hosts.iter().map(|host| loads[*host]).collect(),
    };
    let scale = sorted.least(floor);
    let shares = sorted.fill(scale);
    let named = shares.into_iter().map(|share| Share {
        reducer: order[share.reducer],
        host: hosts[share.host],
        ..share
    });
    Some(Relaxed {
        scale,
        shares: named.collect(),
    })
}

/// Reducers and hosts in order, the largest and the fastest first.
struct Sorted {
    sizes: Vec<f64>,
    into: Vec<f64>,
    loads: Vec<f64>,
}

impl Sorted {
    /// The least scale that is not below `floor`.
    fn least(&self, floor: f64) -> f64 {
        let (bandwidth, load): (f64, f64) = (self.into.iter().sum(), self.loads.iter().sum());
        let all: f64 = self.sizes.iter().sum();
        let mut low = floor
            .max((all + load) / bandwidth)
            .max(self.sizes[0] / self.into[0]);
        if let Some(exact) = self.reached(low) {
            return exact.max(floor);
        }
        // Everything on the fastest host is a solution.
        let mut high = low.max((all + self.loads[0]) / self.into[0]);
        for _ in 0..HALVINGS {
            let middle = low + (high - low) / 2.0;
            match self.reached(middle) {
                Some(exact) => high = exact.max(floor).min(middle),
                None => low = middle,
            }
            if high <= low {
                break;
            }
        }
        high
    }

    /// If everything fits below `scale`: the least scale at which the same hosts are enough for the
    /// same reducers.
    fn reached(&self, scale: f64) -> Option<f64> {
        let (mut count, mut bandwidth, mut load) = (0, 0.0, 0.0);
        let (mut sum, mut least): (f64, f64) = (0.0, 0.0);
        for size in &self.sizes {
            while count < self.into.len() && *size <= scale * self.into[count] {
                bandwidth += self.into[count];
                load += self.loads[count];
                count += 1;
            }
            sum += size;
            if count == 0 || sum + load > scale * bandwidth {
                return None;
            }
            least = least
                .max((sum + load) / bandwidth)
                .max(size / self.into[count - 1]);
        }
        Some(least)
    }

    /// Reducers fill one host after the other, the largest first: none gets beyond the hosts where
    /// it may go, as those before it and itself fit into these.
    fn fill(&self, scale: f64) -> Vec<Share> {
        let last = self.into.len() - 1;
        let room = |host: usize| (scale * self.into[host] - self.loads[host]).max(0.0);
        let mut shares = Vec::with_capacity(self.sizes.len() + self.into.len());
        let (mut host, mut left) = (0, room(0));
        // What is less than this is an error of arithmetic.
        let none = scale * self.into[0] * 1e-12;
        for (reducer, size) in self.sizes.iter().enumerate() {
            let mut rest = *size;
            loop {
                let over = host == last || self.into[host + 1] * scale * (1.0 + 1e-9) < *size;
                let amount = if over { rest } else { rest.min(left.max(0.0)) };
                if amount > none || amount >= rest {
                    shares.push(Share {
                        reducer,
                        host,
                        amount,
                    });
                }
                left -= amount;
                rest -= amount;
                if rest <= none {
                    break;
                }
                host += 1;
                left = room(host);
            }
        }
        shares
    }
}
