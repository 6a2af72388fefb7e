//! What the mappers of a job hold for its reducers.

use super::{Flow, HOSTS_MAX, HostId, Hosts, ShuffleError, Times, is_amount, time};

/// What the mappers of a job hold for its reducers, summed up once: decisions do not look at every
/// flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coflow {
    pub(super) reducers: Vec<Reducer>,
    /// What each host holds; only as many hosts as hold anything.
    pub(super) holds: Vec<Held>,
    /// The share of every reducer's data that is on each mapper, in order, if all reducers have the same;
    /// they have no flows of their own then.
    shares: Vec<Flow>,
}

/// What a host holds for all reducers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub(super) bytes: f64,
    /// What it holds for a reducer over what that fetches elsewhere, at most: no reducer that runs there
    /// saves more for what it receives.
    pub(super) saves: f64,
}

impl Held {
    /// Counts what a host holds for a reducer that fetches so many bytes in all.
    fn count(&mut self, bytes: f64, all: f64) {
        self.bytes += bytes;
        self.saves = self.saves.max(bytes / (all - bytes).max(0.0));
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reducer {
    /// In the order of mappers, one for each; none if the coflow is split alike.
    flows: Vec<Flow>,
    pub(super) bytes: f64,
    /// The largest flow.
    pub(super) largest: Option<Flow>,
}

impl Coflow {
    /// A coflow of the flows of each reducer. Those of one mapper to one reducer are one.
    ///
    /// # Errors
    /// If a flow is negative or not finite, or a host's number is [`HOSTS_MAX`] or more.
    pub fn new(reducers: Vec<Vec<Flow>>) -> Result<Self, ShuffleError> {
        let mut coflow = Self::default();
        for (reducer, mut flows) in reducers.into_iter().enumerate() {
            flows.sort_by_key(|flow| flow.mapper);
            let mut merged: Vec<Flow> = Vec::with_capacity(flows.len());
            for flow in flows {
                let mapper = flow.mapper;
                if mapper >= HOSTS_MAX {
                    let host = mapper;
                    return Err(ShuffleError::NoHost { reducer, host });
                }
                if !is_amount(flow.bytes) {
                    return Err(ShuffleError::Flow { reducer, mapper });
                }
                if coflow.holds.len() <= mapper {
                    coflow.holds.resize(mapper + 1, Held::default());
                }
                match merged.last_mut().filter(|last| last.mapper == mapper) {
                    Some(last) => last.bytes += flow.bytes,
                    None => merged.push(flow),
                }
            }
            let largest = merged.iter().copied();
            let largest = largest.max_by(|a, b| a.bytes.total_cmp(&b.bytes));
            let bytes: f64 = merged.iter().map(|flow| flow.bytes).sum();
            for flow in merged.iter().filter(|flow| flow.bytes > 0.0) {
                coflow.holds[flow.mapper].count(flow.bytes, bytes);
            }
            coflow.reducers.push(Reducer {
                bytes,
                largest,
                flows: merged,
            });
        }
        Ok(coflow)
    }

    /// A coflow in which every reducer fetches the same share of its data from each mapper: `sizes` are
    /// the bytes of each reducer, `weights` how much of them each mapper holds in relation to the others.
    /// Takes no memory for single flows.
    ///
    /// # Errors
    /// As [`Self::new`], or if all weights together are zero or no number.
    ///
    /// ```
    /// use outpour_planner::shuffle::{Coflow, Flow};
    /// let weight = |mapper, bytes| Flow { mapper, bytes };
    /// let coflow = Coflow::split(&[80.0], vec![weight(0, 3.0), weight(1, 1.0)])?;
    /// assert_eq!(coflow.flows(0).nth(1), Some(weight(1, 20.0)));
    /// # Ok::<(), outpour_planner::shuffle::ShuffleError>(())
    /// ```
    pub fn split(sizes: &[f64], weights: Vec<Flow>) -> Result<Self, ShuffleError> {
        // One reducer with the weights for flows is checked and merged as any other.
        let mut coflow = Self::new(vec![weights])?;
        let Some(Reducer { flows, bytes, .. }) = coflow.reducers.pop() else {
            return Ok(coflow);
        };
        if !bytes.is_finite() || bytes <= 0.0 {
            return Err(ShuffleError::Weights);
        }
        let share = |flow: &Flow| Flow {
            mapper: flow.mapper,
            bytes: flow.bytes / bytes,
        };
        let shares = flows.iter().filter(|flow| flow.bytes > 0.0).map(share);
        coflow.shares = shares.collect();
        let largest = coflow.shares.iter().copied();
        let largest = largest.max_by(|a, b| a.bytes.total_cmp(&b.bytes));
        for (reducer, size) in sizes.iter().enumerate() {
            if !is_amount(*size) {
                let mapper = flows.first().map_or(0, |flow| flow.mapper);
                return Err(ShuffleError::Flow { reducer, mapper });
            }
            coflow.reducers.push(Reducer {
                bytes: *size,
                largest: largest.map(|flow| Flow {
                    mapper: flow.mapper,
                    bytes: flow.bytes * size,
                }),
                flows: Vec::new(),
            });
        }
        let all: f64 = sizes.iter().sum();
        for held in &mut coflow.holds {
            held.bytes *= all / bytes;
        }
        Ok(coflow)
    }

    /// Some of its reducers, in the order in which they are named, as a coflow.
    pub(super) fn part(&self, reducers: &[usize]) -> Self {
        let picked = reducers.iter().map(|it| self.reducers[*it].clone());
        let mut part = Self {
            reducers: picked.collect(),
            holds: vec![Held::default(); self.holds.len()],
            shares: self.shares.clone(),
        };
        for reducer in 0..part.reducers.len() {
            let bytes = part.size(reducer);
            let flows: Vec<Flow> = part.flows(reducer).collect();
            for flow in flows.into_iter().filter(|flow| flow.bytes > 0.0) {
                part.holds[flow.mapper].count(flow.bytes, bytes);
            }
        }
        part
    }

    /// How many reducers there are.
    pub fn reducers(&self) -> usize {
        self.reducers.len()
    }

    /// The flows of a reducer, one for each mapper that holds something for it, in order.
    ///
    /// # Panics
    /// If there is no such reducer.
    pub fn flows(&self, reducer: usize) -> impl ExactSizeIterator<Item = Flow> + '_ {
        let Reducer { bytes, flows, .. } = &self.reducers[reducer];
        let (list, times) = match self.shares.is_empty() {
            true => (flows, 1.0),
            false => (&self.shares, *bytes),
        };
        list.iter().map(move |flow| Flow {
            mapper: flow.mapper,
            bytes: flow.bytes * times,
        })
    }

    /// What a reducer fetches from all mappers, bytes.
    ///
    /// # Panics
    /// If there is no such reducer.
    pub fn size(&self, reducer: usize) -> f64 {
        self.reducers[reducer].bytes
    }

    /// The share of every reducer's data that is on each mapper, in order; empty if reducers differ.
    pub(super) fn shares(&self) -> &[Flow] {
        &self.shares
    }

    /// What all reducers fetch together, bytes.
    pub fn bytes(&self) -> f64 {
        self.reducers.iter().map(|reducer| reducer.bytes).sum()
    }

    /// How long it takes with its reducers on these hosts, seconds; infinite if it never ends. What a
    /// host holds itself is not sent.
    ///
    /// # Panics
    /// If there are not as many places as reducers, or no such hosts.
    pub fn seconds(&self, hosts: &Hosts, places: &[HostId]) -> f64 {
        self.times(hosts, places).slowest()
    }

    /// What of a reducer's data is on a host already, bytes. Does not look at flows where the host holds nothing.
    pub(super) fn local(&self, reducer: usize, host: HostId) -> f64 {
        let held = self.holds.get(host).filter(|held| held.bytes > 0.0);
        let Some(_) = held else {
            return 0.0;
        };
        let Reducer { bytes, flows, .. } = &self.reducers[reducer];
        let (list, times) = match self.shares.is_empty() {
            true => (flows, 1.0),
            false => (&self.shares, *bytes),
        };
        // Where every host is a mapper, that is its place.
        let guess = list.get(host).filter(|flow| flow.mapper == host);
        let search = || {
            let found = list.binary_search_by_key(&host, |flow| flow.mapper);
            found.ok().map(|index| &list[index])
        };
        guess.or_else(search).map_or(0.0, |flow| flow.bytes * times)
    }

    /// What a reducer fetches if it runs on a host, bytes.
    pub(super) fn fetches(&self, reducer: usize, host: HostId) -> f64 {
        (self.reducers[reducer].bytes - self.local(reducer, host)).max(0.0)
    }

    /// How long it takes at each end with its reducers on these hosts.
    pub(super) fn times(&self, hosts: &Hosts, places: &[HostId]) -> Times {
        assert_eq!(self.reducers.len(), places.len(), "each reducer has a host");
        let mut out: Vec<f64> = self.holds.iter().map(|held| held.bytes).collect();
        let mut into = vec![0.0; hosts.into.len()];
        for (index, (reducer, place)) in self.reducers.iter().zip(places).enumerate() {
            let local = self.local(index, *place);
            if local > 0.0 {
                out[*place] -= local;
            }
            into[*place] += (reducer.bytes - local).max(0.0);
        }
        // What is left of a difference of equal sums is nothing.
        let sent = out.iter().zip(&self.holds).zip(&hosts.out);
        let sent = sent.map(|((out, held), rate)| time(*out, held.bytes, *rate));
        let sending = sent.fold(0.0, f64::max);
        let all = self.bytes();
        let received = into.iter().zip(&hosts.into);
        let receiving = received.map(|(into, rate)| time(*into, all, *rate));
        Times {
            sending,
            receiving: receiving.collect(),
        }
    }
}
