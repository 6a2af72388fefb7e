//! Placing the reducers of a coflow when it arrives, one after the other.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::{Coflow, Flow, HostId, Hosts};
use super::Running;

/// How reducers are placed that do not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Where they were; by a seed if that is not known.
    Recorded(u64),
    /// Anywhere, by a seed.
    Random(u64),
    /// Where all coflows together end soonest, one reducer after the other, the largest first, as NEAT does.
    Neat,
    /// Mappers, too, whose data is fetched first: the largest goes to the host that would send all of its
    /// own first; reducers as by `Neat` [2D-Placement].
    TwoD,
}

/// A number below `below`, from a seed.
fn draw(seed: u64, coflow: usize, reducer: usize, below: usize) -> usize {
    let place = (coflow as u64) << 32 | reducer as u64;
    let word = Pcg64Mcg::seed_from_u64(seed ^ place.rotate_left(17)).next_u64();
    ((u128::from(word) * below as u128) >> 64) as usize
}

/// Hosts that may start reducers: so many more each.
fn open(hosts: &Hosts, free: &[u32]) -> Vec<HostId> {
    let may = |host: &HostId| free[*host] > 0 && hosts.into[*host] > 0.0;
    (0..free.len()).filter(may).collect()
}

/// Starts what waits of a coflow where it was, at random if that is not known; what finds its host taken
/// goes on waiting.
pub(super) fn as_recorded(
    seed: u64,
    hosts: &Hosts,
    running: &mut [Running],
    index: usize,
    free: &mut [u32],
) {
    let coflow = &mut running[index];
    if coflow.recorded.len() != coflow.coflow().reducers() {
        return at_random(seed, hosts, running, index, free);
    }
    for reducer in 0..coflow.recorded.len() {
        let host = coflow.recorded[reducer];
        if coflow.places()[reducer].is_none() && free[host] > 0 {
            free[host] -= 1;
            coflow.start(reducer, host);
        }
    }
}

/// Starts what waits of a coflow at random, as far as there are hosts for it.
pub(super) fn at_random(
    seed: u64,
    hosts: &Hosts,
    running: &mut [Running],
    index: usize,
    free: &mut [u32],
) {
    let mut open = open(hosts, free);
    let coflow = &mut running[index];
    for reducer in 0..coflow.coflow().reducers() {
        if open.is_empty() {
            return;
        }
        if coflow.places()[reducer].is_some() {
            continue;
        }
        let drawn = draw(seed, coflow.number, reducer, open.len());
        let host = open[drawn];
        free[host] -= 1;
        if free[host] == 0 {
            open.remove(drawn);
        }
        coflow.start(reducer, host);
    }
}

/// What coflows have at a host.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Bytes of those that come before the new one.
    before: f64,
    /// How many come after it: each byte more delays all of them.
    after: f64,
    /// Bytes of the new one.
    own: f64,
}

/// Starts what waits of a coflow, each reducer where its end and what it delays others are least in sum, with
/// the shortest coflow first, as far as there are hosts for it.
pub(super) fn neat(hosts: &Hosts, running: &mut [Running], index: usize, free: &mut [u32]) {
    let mut open = open(hosts, free);
    let alone = running[index].alone_s(hosts);
    let mut loads = vec![Load::default(); hosts.into.len()];
    for (at, other) in running.iter_mut().enumerate() {
        if at == index {
            for (reducer, host) in other.fetching() {
                loads[host].own += other.left(reducer);
            }
            continue;
        }
        if other.alone_s(hosts) <= alone {
            for part in other.parts() {
                loads[part.host].before += part.left;
            }
        } else {
            for host in other.busy().iter() {
                loads[host].after += 1.0;
            }
        }
    }
    let coflow = &mut running[index];
    let waiting: Vec<usize> = coflow.waiting().collect();
    for reducer in waiting {
        let costs = open.iter().map(|host| {
            let load = loads[*host];
            let fetched = coflow.coflow().fetches(reducer, *host);
            let own = load.before + load.own + fetched;
            (own + load.after * fetched) / hosts.into[*host]
        });
        let least = costs.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((at, _)) = least else {
            return;
        };
        let host = open[at];
        loads[host].own += coflow.coflow().fetches(reducer, host);
        coflow.start(reducer, host);
        free[host] -= 1;
        if free[host] == 0 {
            open.remove(at);
        }
    }
}

/// Moves mappers: what each holds goes to another host, the largest first, each to the one that would have sent
/// all soonest. Returns the coflow as it is then and the one that brings the data there, whose reducers are
/// the mappers.
pub(super) fn moved(hosts: &Hosts, running: &[Running]) -> Option<(Coflow, Running)> {
    let coflow = running.last()?;
    let count = hosts.out.len();
    let mut queued = vec![0.0; count];
    for other in &running[..running.len() - 1] {
        let places: Option<Vec<HostId>> = other.places().iter().copied().collect();
        if let Some(places) = places {
            other.add_out(&places, &mut queued);
        }
    }
    let mut holds = vec![0.0; count];
    let reducers = coflow.coflow().reducers();
    for reducer in 0..reducers {
        for flow in coflow.coflow().flows(reducer) {
            holds[flow.mapper] += flow.bytes;
        }
    }
    // A mapper goes where there are mappers: hosts that send and can be sent to.
    let mappers: Vec<HostId> = (0..count).filter(|host| holds[*host] > 0.0).collect();
    let first = *mappers.first()?;
    let may = |host: &HostId| hosts.out[*host] > 0.0 && hosts.into[*host] > 0.0;
    let places: Vec<HostId> = (0..count)
        .filter(|host| may(host) && hosts.out[*host] >= hosts.out[first] / 2.0)
        .filter(|host| hosts.slots[*host] == 0 || mappers.contains(host))
        .collect();
    if places.is_empty() {
        return None;
    }
    let mut order = mappers;
    order.sort_by(|a, b| holds[*b].total_cmp(&holds[*a]).then(a.cmp(b)));
    let mut to: Vec<HostId> = (0..count).collect();
    for mapper in &order {
        let ends = places
            .iter()
            .map(|host| (queued[*host] + holds[*mapper]) / hosts.out[*host]);
        // Where it is as soon, it stays.
        let soonest = ends.zip(&places).min_by(|a, b| {
            let moves = |host: &HostId| host != mapper;
            a.0.total_cmp(&b.0).then(moves(a.1).cmp(&moves(b.1)))
        })?;
        to[*mapper] = *soonest.1;
        queued[*soonest.1] += holds[*mapper];
    }
    let flows = (0..reducers).map(|reducer| {
        let moved = coflow.coflow().flows(reducer).map(|flow| Flow {
            mapper: to[flow.mapper],
            ..flow
        });
        moved.collect()
    });
    let after = match coflow.coflow().shares() {
        [] => Coflow::new(flows.collect()).ok()?,
        shares => {
            let sizes: Vec<f64> = (0..reducers).map(|it| coflow.coflow().size(it)).collect();
            let moved = shares.iter().map(|flow| Flow {
                mapper: to[flow.mapper],
                ..*flow
            });
            Coflow::split(&sizes, moved.collect()).ok()?
        }
    };
    let moving: Vec<HostId> = order.into_iter().filter(|it| to[*it] != *it).collect();
    let brought = moving.iter().map(|mapper| {
        let bytes = holds[*mapper];
        let mapper = *mapper;
        vec![Flow { mapper, bytes }]
    });
    let before = Coflow::new(brought.collect()).ok()?;
    let mut before = Running::new(0, coflow.arrived_s, before);
    before.moves_mappers = true;
    for (reducer, mapper) in moving.iter().enumerate() {
        before.start(reducer, to[*mapper]);
    }
    Some((after, before))
}
