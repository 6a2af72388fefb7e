//! A coflow under way.

use super::super::{Coflow, HostId, Hosts, Placement, place, time};

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
    coflow: Coflow,
    places: Vec<Option<HostId>>,
    /// What each reducer has yet to fetch, bytes.
    left: Vec<f64>,
    /// Reducers that have not all their data.
    open: usize,
    /// Reducers with the largest first.
    order: Vec<usize>,
    /// Whether every reducer that has started fetches the same shares from the same mappers.
    alike: bool,
    sent: f64,
    started: usize,
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
        Self {
            number,
            arrived_s,
            weight: 1.0,
            deadline_s: None,
            served_s: arrived_s,
            recorded: Vec::new(),
            after: None,
            places: vec![None; left.len()],
            open: left.iter().filter(|left| **left > 0.0).count(),
            order,
            alike: !coflow.shares().is_empty(),
            sent: 0.0,
            started: 0,
            alone: None,
            best: None,
            left,
            coflow,
        }
    }

    /// Its mappers have moved before it began.
    pub(super) fn fetch_instead(&mut self, coflow: Coflow) {
        let fresh = Self::new(self.number, self.arrived_s, coflow);
        *self = Self {
            weight: self.weight,
            deadline_s: self.deadline_s,
            ..fresh
        };
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
            self.open -= usize::from(self.left[reducer] > 0.0);
            self.left[reducer] = self.coflow.fetches(reducer, host);
            self.open += usize::from(self.left[reducer] > 0.0);
        }
    }

    /// A reducer has fetched so many bytes more; a rest of less than a billionth of all is nothing.
    pub fn fetched(&mut self, reducer: usize, bytes: f64) {
        let left = self.left[reducer];
        if left <= 0.0 {
            return;
        }
        self.alone = None;
        let rest = left - bytes;
        if rest > self.coflow.size(reducer) * 1e-9 {
            self.left[reducer] = rest;
            self.sent += bytes;
        } else {
            self.left[reducer] = 0.0;
            self.sent += left;
            self.open -= 1;
        }
    }

    /// Reducers that have started and have not all their data, with their hosts, the largest first.
    pub fn fetching(&self) -> impl Iterator<Item = (usize, HostId)> + '_ {
        let order = self.order.iter();
        let open = order.filter(|reducer| self.left[**reducer] > 0.0);
        open.filter_map(|reducer| Some((*reducer, self.places[*reducer]?)))
    }

    /// Reducers that have not started, the largest first.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let order = self.order.iter().copied();
        order.filter(|reducer| self.places[*reducer].is_none())
    }

    /// All reducers, the largest first.
    pub(super) fn order(&self) -> &[usize] {
        &self.order
    }

    /// The shares of all reducers' data that are on each mapper, if all that have started fetch the same.
    pub(super) fn alike(&self) -> Option<&[super::super::Flow]> {
        self.alike.then(|| self.coflow.shares())
    }

    /// How many flows a reducer has.
    pub(super) fn flow_count(&self, reducer: usize) -> usize {
        self.coflow.flows(reducer).len()
    }

    /// The mappers of a reducer and what share of its rate each of them sends, once it has started.
    pub(super) fn shares(&self, reducer: usize) -> impl Iterator<Item = (HostId, f64)> + '_ {
        let place = self.places[reducer];
        let fetches = match place {
            Some(host) => self.coflow.fetches(reducer, host),
            None => self.coflow.size(reducer),
        };
        let flows = self.coflow.flows(reducer);
        let flows = flows.filter(move |flow| Some(flow.mapper) != place && flow.bytes > 0.0);
        flows.map(move |flow| (flow.mapper, flow.bytes / fetches))
    }

    /// What its mappers have yet to send, bytes, added to those of `out`, if its waiting reducers go to these
    /// hosts.
    pub(super) fn add_out(&self, places: &[HostId], out: &mut [f64]) {
        let local = |reducer: usize| self.coflow.local(reducer, places[reducer]) > 0.0;
        if !self.coflow.shares().is_empty() && !(0..places.len()).any(local) {
            let all: f64 = self.left.iter().sum();
            for flow in self.coflow.shares() {
                out[flow.mapper] += flow.bytes * all;
            }
            return;
        }
        for (reducer, place) in places.iter().enumerate() {
            let size = self.coflow.fetches(reducer, *place);
            let left = match self.places[reducer] {
                Some(_) => self.left[reducer] / size,
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
                None => self.coflow.fetches(reducer, *place),
            };
        }
    }

    /// How long the rest of it takes if it had all hosts to itself, seconds; infinite if it never ends.
    pub fn alone_s(&mut self, hosts: &Hosts) -> f64 {
        if let Some(alone) = self.alone {
            return alone;
        }
        let alone = match self.best_places(hosts) {
            Some(places) => self.seconds(&places, hosts),
            None => f64::INFINITY,
        };
        self.alone = Some(alone);
        alone
    }

    /// How long the rest of it takes alone if its waiting reducers go to these hosts, seconds.
    pub(super) fn seconds(&self, places: &[HostId], hosts: &Hosts) -> f64 {
        let (out, into) = self.loads(places, hosts);
        slowest(&out, &hosts.out).max(slowest(&into, &hosts.into))
    }

    /// Where all its reducers go if it has all hosts to itself.
    pub(super) fn best_places(&mut self, hosts: &Hosts) -> Option<Vec<HostId>> {
        if self.started == self.places.len() {
            return self.places.iter().copied().collect();
        }
        if self.best.is_none() {
            let found = place(&self.coflow, hosts, &self.places);
            self.best = found.ok().map(|Placement { hosts, .. }| hosts);
        }
        let best = self.best.as_ref()?;
        let merged = self.places.iter().zip(best);
        Some(merged.map(|(place, best)| place.unwrap_or(*best)).collect())
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

/// The longest that any host needs for its bytes, seconds.
pub(super) fn slowest(bytes: &[f64], rates: &[f64]) -> f64 {
    let each = bytes.iter().zip(rates);
    each.map(|(bytes, rate)| time(*bytes, 0.0, *rate))
        .fold(0.0, f64::max)
}
