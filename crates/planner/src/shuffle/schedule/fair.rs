//! Max-min fairness among flows.

use super::super::{HostId, Hosts};
use super::{Decision, Grant, Room, Running};

/// Decisions are made anew when one of so many reducers has ended.
const ENDED: usize = 200;
/// Fewer flows than this are an error of arithmetic.
const NONE: f64 = 1e-9;

/// A reducer and its rate.
struct Share {
    coflow: usize,
    reducer: usize,
    host: HostId,
    /// How many flows it has.
    flows: f64,
    /// Bytes per second, once it is known.
    rate: Option<f64>,
}

/// Flows whose rates may still grow, at each host.
struct Filling {
    room: Room,
    into: Vec<f64>,
    out: Vec<f64>,
}

/// All rates grow alike until a host has no more, whose flows stay as they are. Flows of one reducer end
/// together, which is good for them.
pub(super) fn share(hosts: &Hosts, running: &[Running]) -> Decision {
    let (mut filling, mut shares) = begin(hosts, running);
    if !filling.receivers_only(&mut shares, running) {
        filling.in_rounds(&mut shares, running);
    }
    let rates = shares.iter().filter_map(|share| {
        Some(Grant {
            coflow: share.coflow,
            reducer: share.reducer,
            bytes_per_s: share.rate.filter(|rate| *rate > 0.0)?,
        })
    });
    let grants: Vec<Grant> = rates.collect();
    Decision {
        ends: 1 + grants.len() / ENDED,
        grants,
        again_s: None,
    }
}

/// All reducers that fetch, and how many flows there are at each receiver.
fn begin(hosts: &Hosts, running: &[Running]) -> (Filling, Vec<Share>) {
    let count = hosts.into.len();
    let mut filling = Filling {
        room: Room::new(hosts, running),
        into: vec![0.0; count],
        out: vec![0.0; count],
    };
    let mut shares = Vec::new();
    for (index, coflow) in running.iter().enumerate() {
        if coflow.after.is_some() {
            continue;
        }
        for (reducer, host) in coflow.fetching() {
            let share = Share {
                coflow: index,
                reducer,
                host,
                flows: coflow.flow_count(reducer) as f64,
                rate: None,
            };
            filling.into[host] += share.flows;
            shares.push(share);
        }
    }
    (filling, shares)
}

impl Filling {
    /// Rates grow alike, until a host has no more.
    fn in_rounds(&mut self, shares: &mut [Share], running: &[Running]) {
        while let Some(least) = self.least() {
            if !self.freeze(shares, running, least) {
                break;
            }
        }
    }

    /// Every flow gets as much as every other at its receiver, if all mappers can send that: then each has a
    /// host that has no more where none gets more, so no rate may grow. False if some cannot; then nothing has
    /// changed but that flows are counted at mappers, too.
    fn receivers_only(&mut self, shares: &mut [Share], running: &[Running]) -> bool {
        let rates = self.room.into.iter().zip(&self.into);
        let rates: Vec<f64> = rates.map(|(room, flows)| room / flows).collect();
        let mut sent = vec![0.0; self.out.len()];
        for of_coflow in shares.chunk_by(|a, b| a.coflow == b.coflow) {
            let coflow = &running[of_coflow[0].coflow];
            if let Some(parts) = coflow.alike() {
                let rate: f64 = of_coflow.iter().map(|it| it.flows * rates[it.host]).sum();
                let flows: f64 = of_coflow.iter().map(|it| it.flows).sum();
                for part in parts {
                    sent[part.mapper] += rate * part.bytes;
                    self.out[part.mapper] += flows * part.bytes;
                }
                continue;
            }
            for share in of_coflow {
                let rate = share.flows * rates[share.host];
                for (mapper, part) in coflow.shares(share.reducer) {
                    sent[mapper] += rate * part;
                    self.out[mapper] += share.flows * part;
                }
            }
        }
        let mut sent = sent.iter().zip(&self.room.out);
        let can_send = sent.all(|(sent, room)| sent <= room);
        if can_send {
            for share in shares {
                share.rate = Some(share.flows * rates[share.host]);
            }
        }
        can_send
    }

    /// Counts so many flows more of a reducer.
    fn count(&mut self, share: &Share, coflow: &Running, flows: f64) {
        self.into[share.host] += flows;
        for (mapper, part) in coflow.shares(share.reducer) {
            self.out[mapper] += flows * part;
        }
    }

    /// How fast a flow is where flows are slowest.
    fn least(&self) -> Option<f64> {
        let ends = [(&self.room.into, &self.into), (&self.room.out, &self.out)];
        let each = ends
            .into_iter()
            .flat_map(|(room, flows)| room.iter().zip(flows));
        let rates = each.filter(|(_, flows)| **flows > NONE);
        let rates = rates.map(|(room, flows)| room / flows);
        rates.min_by(f64::total_cmp)
    }

    /// Fixes the rates of flows at hosts that have no more than this for each. False if there are none.
    fn freeze(&mut self, shares: &mut [Share], running: &[Running], least: f64) -> bool {
        let most = least * (1.0 + 1e-9);
        let full = |room: &[f64], flows: &[f64]| -> Vec<bool> {
            let each = room.iter().zip(flows);
            each.map(|(room, flows)| *flows > NONE && room / flows <= most)
                .collect()
        };
        let full_into = full(&self.room.into, &self.into);
        let full_out = full(&self.room.out, &self.out);
        let any_out = full_out.iter().any(|full| *full);
        let mut any = false;
        for share in shares.iter_mut().filter(|share| share.rate.is_none()) {
            let coflow = &running[share.coflow];
            let mut mappers = coflow.shares(share.reducer);
            let is_full = full_into[share.host] || any_out && mappers.any(|(it, _)| full_out[it]);
            if !is_full {
                continue;
            }
            let rate = least * share.flows;
            share.rate = Some(rate);
            any = true;
            self.count(share, coflow, -share.flows);
            let into = &mut self.room.into[share.host];
            *into = (*into - rate).max(0.0);
            for (mapper, part) in coflow.shares(share.reducer) {
                let out = &mut self.room.out[mapper];
                *out = (*out - rate * part).max(0.0);
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::tests::world;
    use super::*;

    fn rates(shares: Vec<Share>) -> Vec<f64> {
        shares.into_iter().map(|it| it.rate.unwrap()).collect()
    }

    #[test]
    fn shares_are_as_fair_without_rounds() {
        let (mut short, mut long) = (0, 0);
        for seed in 0..500 {
            let (hosts, running) = world(seed);
            let (mut filling, mut shares) = begin(&hosts, &running);
            match filling.receivers_only(&mut shares, &running) {
                true => short += 1,
                false => {
                    long += 1;
                    filling.in_rounds(&mut shares, &running);
                }
            }
            let (mut filling, mut again) = begin(&hosts, &running);
            for share in &again {
                let coflow = &running[share.coflow];
                for (mapper, part) in coflow.shares(share.reducer) {
                    filling.out[mapper] += share.flows * part;
                }
            }
            filling.in_rounds(&mut again, &running);
            for (one, other) in rates(shares).into_iter().zip(rates(again)) {
                assert!(
                    (one / other - 1.0).abs() < 1e-6,
                    "seed {seed}: {one} {other}"
                );
            }
        }
        assert!(short > 20 && long > 20, "both happen: {short} {long}");
    }
}
