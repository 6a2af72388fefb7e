//! A coflow under way.

use super::super::{Coflow, HostId, Hosts, Placement, ShuffleError, place, time};
use super::host_set::HostSet;

/// Not started yet.
const NOWHERE: HostId = HostId::MAX;

/// A reducer with what schedulers look at for each decision, side by side in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) reducer: usize,
    /// Where it runs, or [`NOWHERE`].
    pub(super) host: HostId,
    /// What it has yet to fetch, bytes.
    pub(super) left: f64,
}

impl Part {
    /// Whether it has started and has not all its data.
    #[inline]
    pub(super) fn is_fetching(&self) -> bool {
        self.left > 0.0 && self.host != NOWHERE
    }
}

/// A coflow that has arrived and is not complete.
#[derive(Clone, Debug)]
pub struct Running {
    /// Numbers grow with arrivals.
    pub number: usize,
    /// When it arrived, seconds.
    pub arrived_s: f64,
    /// How much sooner than others it should be complete: it is scheduled as if it took so many times
    /// less; positive.
    pub weight: f64,
    /// When it should be complete, seconds.
    pub deadline_s: Option<f64>,
    /// When it last got any bandwidth, or arrived, seconds.
    pub served_s: f64,
    /// Where its reducers were, if that is known.
    pub recorded: Vec<HostId>,
    /// Another coflow that has to be complete before this one begins.
    pub after: Option<usize>,
    /// Whether it brings data to mappers that have moved: its ends are no reducers.
    pub moves_mappers: bool,
    coflow: Coflow,
    places: Vec<Option<HostId>>,
    /// What each reducer has yet to fetch, bytes.
    left: Vec<f64>,
    /// What each reducer that has started fetches in all, bytes.
    fetches: Vec<f64>,
    /// The mapper of each reducer, if each fetches from one, which is not where it runs and sends to no other;
    /// empty if not.
    only: Vec<HostId>,
    /// Reducers that have not all their data.
    open: usize,
    /// How many reducers are fetching on each host; only as many hosts as were ever needed.
    fetching_at: Vec<u32>,
    /// Hosts where any is.
    busy: HostSet,
    /// Reducers with the largest first; those that have all their data are taken out now and then.
    order: Vec<Part>,
    /// Where each reducer is in `order`, if it is there.
    at: Vec<usize>,
    /// How many of them have all their data.
    ended: usize,
    /// Reducers that wait for a later wave; empty if none does.
    later: Vec<bool>,
    /// How many reducers a wave has.
    per_wave: usize,
    /// Whether every reducer that has started fetches the same shares from the same mappers.
    alike: bool,
    sent: f64,
    started: usize,
    /// How long its slowest mapper takes for each byte that all reducers fetch, seconds, once that is known.
    byte_s: Option<f64>,
    /// How long the rest of it takes alone, seconds, if that is known and nothing has changed.
    alone: Option<f64>,
    /// Where its reducers would go if it had all hosts to itself.
    best: Option<Vec<HostId>>,
}

impl Running {
    /// A coflow that arrives at a time, seconds.
    pub fn new(number: usize, arrived_s: f64, coflow: Coflow) -> Self {
        let left: Vec<f64> = (0..coflow.reducers())
            .map(|reducer| coflow.size(reducer))
            .collect();
        let mut order: Vec<usize> = (0..left.len()).collect();
        order.sort_by(|a, b| left[*b].total_cmp(&left[*a]).then(a.cmp(b)));
        let mut at = vec![0; order.len()];
        for (index, reducer) in order.iter().enumerate() {
            at[*reducer] = index;
        }
        let order = order.into_iter().map(|reducer| Part {
            reducer,
            host: NOWHERE,
            left: left[reducer],
        });
        let order = order.collect();
        let only = own_mappers(&coflow);
        Self {
            number,
            arrived_s,
            weight: 1.0,
            deadline_s: None,
            served_s: arrived_s,
            recorded: Vec::new(),
            after: None,
            moves_mappers: false,
            places: vec![None; left.len()],
            open: left.iter().filter(|left| **left > 0.0).count(),
            fetching_at: Vec::new(),
            busy: HostSet::default(),
            order,
            at,
            ended: 0,
            later: Vec::new(),
            per_wave: 0,
            alike: !coflow.shares().is_empty(),
            sent: 0.0,
            started: 0,
            byte_s: None,
            alone: None,
            best: None,
            fetches: left.clone(),
            only,
            left,
            coflow,
        }
    }

    /// Its mappers have moved before it began.
    pub(super) fn fetch_instead(&mut self, coflow: Coflow) {
        let fresh = Self::new(self.number, self.arrived_s, coflow);
        let before = std::mem::replace(self, fresh);
        self.weight = before.weight;
        self.deadline_s = before.deadline_s;
        for (reducer, place) in before.places.into_iter().enumerate() {
            if let Some(host) = place {
                self.start(reducer, host);
            }
        }
    }

    /// Only so many reducers, the largest, start in the first wave [RPC §IV-D].
    pub(super) fn divide(&mut self, per_wave: usize) {
        let first: Vec<usize> = self.waiting().take(per_wave).collect();
        self.later = self.places.iter().map(Option::is_none).collect();
        for reducer in first {
            self.later[reducer] = false;
        }
        self.per_wave = per_wave;
    }

    /// If all reducers of a wave have started, those of the next may. Says whether there is a next.
    pub(super) fn next_wave(&mut self) -> bool {
        if self.later.is_empty() || self.waiting().next().is_some() {
            return false;
        }
        let later = self.order.iter().map(|part| part.reducer);
        let next: Vec<usize> = later
            .filter(|it| self.later[*it])
            .take(self.per_wave)
            .collect();
        for reducer in &next {
            self.later[*reducer] = false;
        }
        if !self.later.contains(&true) {
            self.later.clear();
        }
        self.alone = None;
        self.best = None;
        !next.is_empty()
    }

    /// Whether no reducer waits for a later wave.
    pub(super) const fn is_last_wave(&self) -> bool {
        self.later.is_empty()
    }

    /// Whether a reducer waits for a later wave.
    pub(super) fn is_later(&self, reducer: usize) -> bool {
        self.later.get(reducer).is_some_and(|later| *later)
    }

    /// Whether any reducer has started.
    pub(super) const fn has_started(&self) -> bool {
        self.started > 0
    }

    /// Whether any reducer has not started.
    pub(super) const fn has_waiting(&self) -> bool {
        self.started < self.places.len()
    }

    /// What it is.
    pub const fn coflow(&self) -> &Coflow {
        &self.coflow
    }

    /// Where reducers run that have started.
    pub fn places(&self) -> &[Option<HostId>] {
        &self.places
    }

    /// What a reducer has yet to fetch, bytes; if it has not started, as much as if nothing of it were
    /// where it will run.
    ///
    /// # Panics
    /// If there is no such reducer.
    #[inline]
    pub fn left(&self, reducer: usize) -> f64 {
        self.left[reducer]
    }

    /// What it has sent so far, bytes.
    pub const fn sent(&self) -> f64 {
        self.sent
    }

    /// How many reducers have not all their data.
    pub const fn open(&self) -> usize {
        self.open
    }

    /// Whether all reducers have all their data.
    pub const fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Starts a reducer on a host, where it stays. If it finds all its data there it is complete.
    ///
    /// # Panics
    /// If it has started already.
    pub fn start(&mut self, reducer: usize, host: HostId) {
        assert!(self.places[reducer].is_none(), "a reducer starts once");
        self.places[reducer] = Some(host);
        self.started += 1;
        self.alone = None;
        let local = self.coflow.local(reducer, host);
        if local > 0.0 {
            self.alike = false;
            self.only.clear();
            self.open -= usize::from(self.left[reducer] > 0.0);
            self.fetches[reducer] = self.coflow.fetches(reducer, host);
            self.left[reducer] = self.fetches[reducer];
            self.open += usize::from(self.left[reducer] > 0.0);
        }
        let part = &mut self.order[self.at[reducer]];
        part.host = host;
        part.left = self.left[reducer];
        if self.left[reducer] > 0.0 {
            if self.fetching_at.len() <= host {
                self.fetching_at.resize(host + 1, 0);
            }
            self.fetching_at[host] += 1;
            self.busy.insert(host);
        }
    }

    /// A reducer has all its data.
    fn end(&mut self, reducer: usize) {
        self.open -= 1;
        self.ended += 1;
        if self.ended > self.order.len() / 2 {
            let open = |part: &Part| part.left > 0.0 || part.host == NOWHERE;
            self.order.retain(open);
            for (index, part) in self.order.iter().enumerate() {
                self.at[part.reducer] = index;
            }
            self.ended = 0;
        }
        let Some(host) = self.places[reducer] else {
            return;
        };
        self.fetching_at[host] -= 1;
        if self.fetching_at[host] == 0 {
            self.busy.remove(host);
        }
    }

    /// The hosts where reducers are fetching.
    pub(super) const fn busy(&self) -> &HostSet {
        &self.busy
    }

    /// A reducer has fetched so many bytes more; a rest of less than a billionth of all is nothing.
    #[inline]
    pub fn fetched(&mut self, reducer: usize, bytes: f64) {
        let left = self.left[reducer];
        if left <= 0.0 {
            return;
        }
        self.alone = None;
        let rest = left - bytes;
        if rest > self.coflow.size(reducer) * 1e-9 {
            self.left[reducer] = rest;
            self.order[self.at[reducer]].left = rest;
            self.sent += bytes;
        } else {
            self.left[reducer] = 0.0;
            self.order[self.at[reducer]].left = 0.0;
            self.sent += left;
            self.end(reducer);
        }
    }

    /// Reducers that have started and have not all their data, with their hosts, the largest first.
    pub fn fetching(&self) -> impl Iterator<Item = (usize, HostId)> + '_ {
        self.parts().map(|part| (part.reducer, part.host))
    }

    /// The same, with what each has yet to fetch.
    #[inline]
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> + '_ {
        self.order.iter().filter(|part| part.is_fetching())
    }

    /// The largest first, of which those count that [`Part::is_fetching`]: the same without iterators, for what
    /// is done at every event.
    #[inline]
    pub(super) fn order(&self) -> &[Part] {
        &self.order
    }

    /// Reducers that have not started and may, the largest first.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let order = self.order.iter().filter(|part| part.host == NOWHERE);
        let order = order.map(|part| part.reducer);
        order.filter(|reducer| !self.is_later(*reducer))
    }

    /// The shares of all reducers' data that are on each mapper, if all that have started fetch the same.
    pub(super) fn alike(&self) -> Option<&[super::super::Flow]> {
        self.alike.then(|| self.coflow.shares())
    }

    /// The mapper of each reducer, if each has one of its own that is not where it runs.
    pub(super) fn only(&self) -> Option<&[HostId]> {
        (!self.only.is_empty()).then_some(&self.only[..])
    }

    /// Looks at every flow from now on.
    #[cfg(test)]
    pub(super) fn forget_own_mappers(&mut self) {
        self.only.clear();
    }

    /// How many flows a reducer has.
    pub(super) fn flow_count(&self, reducer: usize) -> usize {
        self.coflow.flows(reducer).len()
    }

    /// The mappers of a reducer and what share of its rate each of them sends, once it has started.
    pub(super) fn shares(&self, reducer: usize) -> impl Iterator<Item = (HostId, f64)> + '_ {
        let place = self.places[reducer];
        let fetches = self.fetches[reducer];
        let flows = self.coflow.flows(reducer);
        let flows = flows.filter(move |flow| Some(flow.mapper) != place && flow.bytes > 0.0);
        flows.map(move |flow| (flow.mapper, flow.bytes / fetches))
    }

    /// What its mappers have yet to send, bytes, added to those of `out`, if its waiting reducers go to these
    /// hosts.
    pub(super) fn add_out(&self, places: &[HostId], out: &mut [f64]) {
        let local = |reducer: usize| self.coflow.local(reducer, places[reducer]) > 0.0;
        if !self.coflow.shares().is_empty() && !(0..places.len()).any(local) {
            let now = (0..places.len()).filter(|reducer| !self.is_later(*reducer));
            let all: f64 = now.map(|reducer| self.left[reducer]).sum();
            for flow in self.coflow.shares() {
                out[flow.mapper] += flow.bytes * all;
            }
            return;
        }
        for (reducer, place) in places.iter().enumerate() {
            let size = self.coflow.fetches(reducer, *place);
            let left = match self.places[reducer] {
                Some(_) => self.left[reducer] / size,
                None if self.is_later(reducer) => 0.0,
                None => 1.0,
            };
            if size <= 0.0 || left <= 0.0 {
                continue;
            }
            for flow in self.coflow.flows(reducer) {
                if flow.mapper != *place {
                    out[flow.mapper] += flow.bytes * left;
                }
            }
        }
    }

    /// What its hosts have yet to receive, bytes, added to those of `into`, if its waiting reducers go to
    /// these hosts.
    pub(super) fn add_into(&self, places: &[HostId], into: &mut [f64]) {
        for (reducer, place) in places.iter().enumerate() {
            into[*place] += match self.places[reducer] {
                Some(_) => self.left[reducer],
                None if self.is_later(reducer) => 0.0,
                None => self.coflow.fetches(reducer, *place),
            };
        }
    }

    /// How long the rest of it takes if it had all hosts to itself, seconds; infinite if it never ends. With
    /// several waves, the rest of those that may start.
    pub fn alone_s(&mut self, hosts: &Hosts) -> f64 {
        if let Some(alone) = self.alone {
            return alone;
        }
        let alone = if !self.has_waiting() {
            self.placed_s(hosts)
        } else {
            let places = self.best_places(hosts);
            places.map_or(f64::INFINITY, |places| self.seconds(&places, hosts))
        };
        self.alone = Some(alone);
        alone
    }

    /// The same where all reducers have started: only what is left is looked at.
    fn placed_s(&mut self, hosts: &Hosts) -> f64 {
        let mut into = vec![0.0; hosts.into.len()];
        let mut all = 0.0;
        for part in &self.order {
            if part.is_fetching() {
                into[part.host] += part.left;
                all += part.left;
            }
        }
        let mut received: f64 = 0.0;
        for host in self.busy.iter() {
            received = received.max(time(into[host], 0.0, hosts.into[host]));
        }
        if !self.alike {
            return self.sent_s(hosts).max(received);
        }
        let byte_s = *self.byte_s.get_or_insert_with(|| {
            let shares = self.coflow.shares().iter();
            let sent = shares.map(|flow| time(flow.bytes, 0.0, hosts.out[flow.mapper]));
            sent.fold(0.0, f64::max)
        });
        received.max(byte_s * all)
    }

    /// How long its slowest mapper has to send to reducers that have started, seconds.
    fn sent_s(&self, hosts: &Hosts) -> f64 {
        if let Some(only) = self.only() {
            let mut slowest: f64 = 0.0;
            for part in &self.order {
                if part.is_fetching() {
                    slowest = slowest.max(part.left / hosts.out[only[part.reducer]]);
                }
            }
            return slowest;
        }
        let mut out = vec![0.0; hosts.out.len()];
        let mut slowest: f64 = 0.0;
        for &Part { reducer, left, .. } in self.parts() {
            for (mapper, share) in self.shares(reducer) {
                out[mapper] += left * share;
                // Of what grows, the last is the longest.
                slowest = slowest.max(time(out[mapper], 0.0, hosts.out[mapper]));
            }
        }
        slowest
    }

    /// How long the rest of it takes alone if its waiting reducers go to these hosts, seconds.
    pub(super) fn seconds(&self, places: &[HostId], hosts: &Hosts) -> f64 {
        let (out, into) = self.loads(places, hosts);
        slowest(&out, &hosts.out).max(slowest(&into, &hosts.into))
    }

    /// Where all its reducers go if it has all hosts to itself; if hosts cannot run all of them at once, one after
    /// the other on each. Where those go that wait for a later wave is not said: any host.
    pub(super) fn best_places(&mut self, hosts: &Hosts) -> Option<Vec<HostId>> {
        if !self.has_waiting() {
            return self.places.iter().copied().collect();
        }
        if self.best.is_none() {
            // If all may start, and those that have ended do not stand in the way of others.
            let found = match self.later.is_empty() {
                true => place(&self.coflow, hosts, &self.places).ok(),
                false => None,
            };
            self.best = match found {
                Some(Placement { hosts, .. }) => Some(hosts),
                None => self.place_now(hosts),
            };
        }
        let best = self.best.as_ref()?;
        let merged = self.places.iter().zip(best);
        Some(merged.map(|(place, best)| place.unwrap_or(*best)).collect())
    }

    /// The best places of those that have not all their data and may start: as many at once as hosts run, if
    /// these are no more; and if they are, as if hosts ran any number.
    fn place_now(&self, hosts: &Hosts) -> Option<Vec<HostId>> {
        let counts = |it: &usize| self.left[*it] > 0.0 || self.places[*it].is_none();
        let now = (0..self.left.len()).filter(|it| counts(it) && !self.is_later(*it));
        let now: Vec<usize> = now.collect();
        let part = self.coflow.part(&now);
        let fixed: Vec<Option<HostId>> = now.iter().map(|it| self.places[*it]).collect();
        let found = match place(&part, hosts, &fixed) {
            Err(ShuffleError::Slots { .. } | ShuffleError::Started { .. }) => {
                let any = |slots: &u32| if *slots > 0 { u32::MAX } else { 0 };
                let hosts = Hosts {
                    slots: hosts.slots.iter().map(any).collect(),
                    ..hosts.clone()
                };
                place(&part, &hosts, &fixed)
            }
            found => found,
        };
        let found = found.ok()?.hosts;
        let mut places = vec![*found.first()?; self.places.len()];
        for (reducer, host) in now.into_iter().zip(found) {
            places[reducer] = host;
        }
        Some(places)
    }

    /// What every host has to send and to receive for it, bytes.
    pub(super) fn loads(&self, places: &[HostId], hosts: &Hosts) -> (Vec<f64>, Vec<f64>) {
        let mut out = vec![0.0; hosts.out.len()];
        let mut into = vec![0.0; hosts.into.len()];
        self.add_out(places, &mut out);
        self.add_into(places, &mut into);
        (out, into)
    }
}

/// The mapper of each reducer, if each fetches from one that sends to no other; none if not.
fn own_mappers(coflow: &Coflow) -> Vec<HostId> {
    let mut seen = HostSet::default();
    let mut mappers = Vec::with_capacity(coflow.reducers());
    for reducer in 0..coflow.reducers() {
        let mut flows = coflow.flows(reducer);
        match (flows.next(), flows.next()) {
            (Some(flow), None) if flow.bytes > 0.0 && seen.insert(flow.mapper) => {
                mappers.push(flow.mapper);
            }
            _ => return Vec::new(),
        }
    }
    mappers
}

/// The longest that any host needs for its bytes, seconds.
pub(super) fn slowest(bytes: &[f64], rates: &[f64]) -> f64 {
    let each = bytes.iter().zip(rates);
    each.map(|(bytes, rate)| time(*bytes, 0.0, *rate))
        .fold(0.0, f64::max)
}
