//! What of hosts' bandwidth is not given away, and ways to give it.

use super::super::{Flow, HostId, Hosts};
use super::host_set::HostSet;
use super::running::Part;
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
        let mut moved = HostSet::default();
        for coflow in running.iter().filter(|coflow| coflow.moves_mappers) {
            moved.extend(coflow.busy());
        }
        for host in moved.iter() {
            counted[host] = true;
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
    #[inline]
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

    #[inline]
    fn take_into(&mut self, host: HostId, rate: f64) {
        let had = self.has_room(host);
        self.into[host] -= rate;
        if !self.has_room(host) {
            self.into[host] = 0.0;
            self.roomy.remove(host);
            self.receiving -= usize::from(had && self.counted[host]);
        }
    }

    #[inline]
    fn take_out(&mut self, host: HostId, rate: f64) {
        let rest = self.out[host] - rate;
        self.out[host] = if rest > self.least_out[host] {
            rest
        } else {
            0.0
        };
    }

    /// How much reducers may fetch together that have these shares on each mapper.
    fn most_sent(&self, shares: &[Flow]) -> f64 {
        let mut most = f64::INFINITY;
        for flow in shares {
            let out = self.out[flow.mapper];
            if out <= 0.0 {
                return 0.0;
            }
            most = most.min(out / flow.bytes);
        }
        most
    }

    /// Begins to give bandwidth to a coflow, the `index`th.
    pub(super) fn serve<'a>(&'a mut self, index: usize, running: &'a Running) -> Serving<'a> {
        let alike = running.alike().map(|shares| (self.most_sent(shares), 0.0));
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
    /// Whether mappers that send the same shares to all reducers can send nothing more to any.
    #[inline]
    fn is_sent_up(&self) -> bool {
        self.alike
            .is_some_and(|(most, given)| most - given <= most * NOTHING)
    }

    /// How much more a reducer may fetch on a host, bytes per second.
    #[inline]
    pub(super) fn most(&self, reducer: usize, host: HostId) -> f64 {
        if !self.room.has_room(host) {
            return 0.0;
        }
        let sent = match (self.alike, self.running.only()) {
            (Some(_), _) if self.is_sent_up() => 0.0,
            (Some((most, given)), _) => most - given,
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
    #[inline]
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
        if matches!(self.alike, Some((most, _)) if most <= 0.0) {
            return;
        }
        let running = self.running;
        let hosts = self.room.into.len();
        let mut into = vec![0.0; hosts];
        let mut all = 0.0;
        for part in running.order() {
            if part.is_fetching() {
                into[part.host] += part.left;
                all += part.left;
            }
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
        self.rates.reserve(running.open());
        for part in running.order() {
            if part.is_fetching() {
                self.give(part.reducer, part.host, part.left / seconds);
            }
        }
    }

    /// How long its mappers take with what they may yet send, seconds.
    fn sent_s(&self) -> f64 {
        let (running, room) = (self.running, &self.room.out);
        if let Some(only) = running.only() {
            let mut slowest: f64 = 0.0;
            for part in running.order() {
                if part.is_fetching() {
                    slowest = slowest.max(part.left / room[only[part.reducer]]);
                }
            }
            return slowest;
        }
        let mut out = vec![0.0; self.room.out.len()];
        let mut slowest: f64 = 0.0;
        for &Part { reducer, left, .. } in running.parts() {
            for (mapper, share) in running.shares(reducer) {
                out[mapper] += left * share;
                // Of what grows, the last is the longest.
                slowest = slowest.max(out[mapper] / room[mapper]);
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
        let running = self.running;
        // Hosts of it that may yet receive something: without any, no reducer gets more.
        let mut open = self.room.roomy.shared(running.busy());
        for part in running.order() {
            if open == 0 || self.is_sent_up() {
                return;
            }
            if part.is_fetching() && self.room.has_room(part.host) {
                let most = self.most(part.reducer, part.host);
                self.give(part.reducer, part.host, most);
                open -= u32::from(!self.room.has_room(part.host));
            }
        }
    }

    /// The grants in the order in which they were given, if each reducer was given to once.
    pub(super) fn end_once(self, grants: &mut Vec<Grant>) {
        let (coflow, rates) = self.settle();
        grants.extend(rates.into_iter().map(|(reducer, bytes_per_s)| Grant {
            coflow,
            reducer,
            bytes_per_s,
        }));
    }

    /// What was given besides grants of the same coflow from `from` on, which are in the order of
    /// [`Running::fetching`], as what was given now is.
    pub(super) fn end_more(self, grants: &mut [Grant], from: usize) {
        let (coflow, rates) = self.settle();
        let mut before = grants.iter_mut().skip(from);
        for (reducer, rate) in rates {
            let same = before.find(|grant| (grant.coflow, grant.reducer) == (coflow, reducer));
            if let Some(grant) = same {
                grant.bytes_per_s += rate;
            }
        }
    }

    /// Takes what reducers were given together from their mappers, and says what each was given.
    fn settle(self) -> (usize, Vec<(usize, f64)>) {
        let given = self.alike.map_or(0.0, |(_, given)| given);
        let shares = self.running.alike().filter(|_| given > 0.0);
        for flow in shares.unwrap_or_default() {
            self.room.take_out(flow.mapper, flow.bytes * given);
        }
        (self.index, self.rates)
    }

    /// The grants.
    pub(super) fn end(self, grants: &mut Vec<Grant>) {
        let (coflow, mut rates) = self.settle();
        rates.sort_by_key(|(reducer, _)| *reducer);
        for (reducer, bytes_per_s) in rates {
            match grants.last_mut() {
                Some(last) if last.coflow == coflow && last.reducer == reducer => {
                    last.bytes_per_s += bytes_per_s;
                }
                _ => grants.push(Grant {
                    coflow,
                    reducer,
                    bytes_per_s,
                }),
            }
        }
    }
}
