//! What of hosts' bandwidth is not given away, and ways to give it.

use super::super::{HostId, Hosts};
use super::host_set::HostSet;
use super::{Grant, Running};

/// Less than this share of a host's bandwidth is nothing: an error of arithmetic.
const NOTHING: f64 = 1e-9;

/// Bandwidth that is free, bytes per second.
#[derive(Clone, Debug)]
pub struct Room {
    /// What each host may yet send.
    pub out: Vec<f64>,
    /// What each host may yet receive.
    pub into: Vec<f64>,
    /// Less is nothing, for what each host receives and sends.
    least: Vec<f64>,
    least_out: Vec<f64>,
    /// Hosts that may yet receive something.
    roomy: HostSet,
    /// Whether a host is counted in `receiving`.
    counted: Vec<bool>,
    /// Hosts with reducers that may yet receive something.
    receiving: usize,
}

/// A coflow that is being given bandwidth.
pub(super) struct Serving<'a> {
    room: &'a mut Room,
    running: &'a Running,
    index: usize,
    /// If all reducers fetch the same shares: how much they may fetch together, and how much was given.
    alike: Option<(f64, f64)>,
    /// Bytes per second of each reducer.
    rates: Vec<(usize, f64)>,
}

impl Room {
    /// All of it. Only hosts that may run reducers, and those where some coflow is fetching, are looked at to
    /// see whether it is used up.
    pub fn new(hosts: &Hosts, running: &[Running]) -> Self {
        let mut counted: Vec<bool> = hosts.slots.iter().map(|slots| *slots > 0).collect();
        // Mappers that were moved are where no reducer may run.
        let moves = running.iter().filter_map(|coflow| coflow.after);
        for before in moves {
            let index = running.binary_search_by_key(&before, |coflow| coflow.number);
            let busy = index.ok().map(|index| running[index].busy().iter());
            for host in busy.into_iter().flatten() {
                counted[host] = true;
            }
        }
        let receiving = hosts.into.iter().zip(&counted);
        let receiving = receiving.filter(|(rate, counted)| **rate > 0.0 && **counted);
        let receiving = receiving.count();
        let mut roomy = HostSet::default();
        for (host, rate) in hosts.into.iter().enumerate() {
            if *rate > 0.0 {
                roomy.insert(host);
            }
        }
        Self {
            roomy,
            counted,
            receiving,
            out: hosts.out.clone(),
            into: hosts.into.clone(),
            least: hosts.into.iter().map(|rate| rate * NOTHING).collect(),
            least_out: hosts.out.iter().map(|rate| rate * NOTHING).collect(),
        }
    }

    /// Whether any host may receive more.
    pub(super) const fn is_used_up(&self) -> bool {
        self.receiving == 0
    }

    /// Whether a host may receive more.
    pub(super) fn has_room(&self, host: HostId) -> bool {
        self.into[host] > self.least[host]
    }

    /// Whether a coflow is fetching on any host that may receive more.
    pub(super) fn has_room_for(&self, running: &Running) -> bool {
        running.busy().meets(&self.roomy)
    }

    /// Whether every host where a coflow is fetching may receive more.
    pub(super) fn has_room_for_all(&self, running: &Running) -> bool {
        running.busy().is_within(&self.roomy)
    }

    fn take_into(&mut self, host: HostId, rate: f64) {
        let had = self.has_room(host);
        self.into[host] -= rate;
        if !self.has_room(host) {
            self.into[host] = 0.0;
            self.roomy.remove(host);
            self.receiving -= usize::from(had && self.counted[host]);
        }
    }

    fn take_out(&mut self, host: HostId, rate: f64) {
        let rest = self.out[host] - rate;
        self.out[host] = if rest > self.least_out[host] {
            rest
        } else {
            0.0
        };
    }

    /// Begins to give bandwidth to a coflow, the `index`th.
    pub(super) fn serve<'a>(&'a mut self, index: usize, running: &'a Running) -> Serving<'a> {
        let alike = running.alike().map(|shares| {
            let most = shares.iter().map(|flow| self.out[flow.mapper] / flow.bytes);
            (most.fold(f64::INFINITY, f64::min), 0.0)
        });
        Serving {
            room: self,
            running,
            index,
            alike,
            rates: Vec::new(),
        }
    }
}

impl Serving<'_> {
    /// How much more a reducer may fetch on a host, bytes per second.
    pub(super) fn most(&self, reducer: usize, host: HostId) -> f64 {
        if !self.room.has_room(host) {
            return 0.0;
        }
        let sent = match (self.alike, self.running.only()) {
            (Some((most, given)), _) if most - given > most * NOTHING => most - given,
            (Some(_), _) => 0.0,
            (None, Some(only)) => self.room.out[only[reducer]],
            (None, None) => {
                let shares = self.running.shares(reducer);
                let most = shares.map(|(mapper, share)| self.room.out[mapper] / share);
                most.fold(f64::INFINITY, f64::min)
            }
        };
        sent.min(self.room.into[host])
    }

    /// Gives a reducer on a host so much more; not more than [`Self::most`].
    pub(super) fn give(&mut self, reducer: usize, host: HostId, rate: f64) {
        if rate <= 0.0 {
            return;
        }
        self.room.take_into(host, rate);
        match (&mut self.alike, self.running.only()) {
            (Some((_, given)), _) => *given += rate,
            (None, Some(only)) => self.room.take_out(only[reducer], rate),
            (None, None) => {
                for (mapper, share) in self.running.shares(reducer) {
                    self.room.take_out(mapper, rate * share);
                }
            }
        }
        self.rates.push((reducer, rate));
    }

    /// Gives every reducer that has started what brings the coflow to its end soonest with all of
    /// them at the same time [Varys: MADD]; nothing if one of them can get nothing.
    pub(super) fn give_together(&mut self) {
        let running = self.running;
        let hosts = self.room.into.len();
        let mut into = vec![0.0; hosts];
        let mut all = 0.0;
        for (reducer, host) in running.fetching() {
            let left = running.left(reducer);
            into[host] += left;
            all += left;
        }
        let mut seconds: f64 = match self.alike {
            Some((most, _)) if all > 0.0 => all / most,
            Some(_) => 0.0,
            None => self.sent_s(),
        };
        for host in running.busy().iter() {
            seconds = seconds.max(into[host] / self.room.into[host]);
        }
        if !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        for (reducer, host) in running.fetching() {
            self.give(reducer, host, running.left(reducer) / seconds);
        }
    }

    /// How long its mappers take with what they may yet send, seconds.
    fn sent_s(&self) -> f64 {
        let (running, room) = (self.running, &self.room.out);
        if let Some(only) = running.only() {
            let sent = running
                .fetching()
                .map(|(it, _)| running.left(it) / room[only[it]]);
            return sent.fold(0.0, f64::max);
        }
        let mut out = vec![0.0; self.room.out.len()];
        let mut slowest: f64 = 0.0;
        for (reducer, _) in self.running.fetching() {
            let left = self.running.left(reducer);
            for (mapper, share) in self.running.shares(reducer) {
                out[mapper] += left * share;
                // Of what grows, the last is the longest.
                slowest = slowest.max(out[mapper] / self.room.out[mapper]);
            }
        }
        slowest
    }

    /// Gives every reducer that has started as much as its host may receive, so that those of one host end
    /// together; less where mappers cannot send as much [RPC algorithm 3].
    pub(super) fn give_hosts(&mut self) {
        let running = self.running;
        self.give_by(|reducer| running.left(reducer));
    }

    /// Gives every reducer that has started as much as its host may receive, every flow as much as every
    /// other there; less where mappers cannot send as much.
    pub(super) fn give_flows(&mut self) {
        let running = self.running;
        self.give_by(|reducer| running.flow_count(reducer) as f64);
    }

    /// Divides what hosts may receive among their reducers by weights.
    fn give_by(&mut self, weight: impl Fn(usize) -> f64) {
        let fetching: Vec<(usize, HostId)> = self.running.fetching().collect();
        let mut loads = vec![0.0; self.room.into.len()];
        for (reducer, host) in &fetching {
            loads[*host] += weight(*reducer);
        }
        let wanted = |room: &Room, reducer: usize, host: HostId| match room.has_room(host) {
            true => weight(reducer) / loads[host] * room.into[host],
            false => 0.0,
        };
        let mut rates: Vec<f64> = fetching
            .iter()
            .map(|(reducer, host)| wanted(self.room, *reducer, *host))
            .collect();
        self.scale(&fetching, &mut rates);
        for ((reducer, host), rate) in fetching.iter().zip(rates) {
            self.give(*reducer, *host, rate);
        }
        self.give_rest();
    }

    /// Makes rates smaller until mappers can send them.
    fn scale(&self, fetching: &[(usize, HostId)], rates: &mut [f64]) {
        if let Some((most, given)) = self.alike {
            let all: f64 = rates.iter().sum();
            if all > most - given {
                let times = (most - given).max(0.0) / all;
                rates.iter_mut().for_each(|rate| *rate *= times);
            }
            return;
        }
        let mut sent = vec![0.0; self.room.out.len()];
        for ((reducer, _), rate) in fetching.iter().zip(rates.iter()) {
            for (mapper, share) in self.running.shares(*reducer) {
                sent[mapper] += share * rate;
            }
        }
        for ((reducer, _), rate) in fetching.iter().zip(rates) {
            let times = self.running.shares(*reducer).map(|(mapper, _)| {
                let room = self.room.out[mapper];
                if sent[mapper] > room {
                    room / sent[mapper]
                } else {
                    1.0
                }
            });
            *rate *= times.fold(1.0, f64::min);
        }
    }

    /// Gives the reducers that have started what else there is, the largest first.
    pub(super) fn give_rest(&mut self) {
        if matches!(self.alike, Some((most, given)) if given >= most) {
            return;
        }
        let running = self.running;
        for (reducer, host) in running.fetching() {
            if self.room.has_room(host) {
                let most = self.most(reducer, host);
                self.give(reducer, host, most);
            }
        }
    }

    /// The grants.
    pub(super) fn end(self, grants: &mut Vec<Grant>) {
        let given = self.alike.map_or(0.0, |(_, given)| given);
        for flow in self
            .running
            .alike()
            .filter(|_| given > 0.0)
            .unwrap_or_default()
        {
            self.room.take_out(flow.mapper, flow.bytes * given);
        }
        let mut rates = self.rates;
        rates.sort_by_key(|(reducer, _)| *reducer);
        for (reducer, bytes_per_s) in rates {
            match grants.last_mut() {
                Some(last) if last.coflow == self.index && last.reducer == reducer => {
                    last.bytes_per_s += bytes_per_s;
                }
                _ => grants.push(Grant {
                    coflow: self.index,
                    reducer,
                    bytes_per_s,
                }),
            }
        }
    }
}
