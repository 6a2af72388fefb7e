//! Limits of a transfer while a script changes the network.
//!
//! Two questions are asked. [`clairvoyant`] is what a method reaches that adapts to the best plan in
//! every new situation at once [Burger §4.6.2]: it moves the optimum of each situation for as long
//! as that lasts. [`limit_over`] is what no method beats. The two differ because data can be sent
//! ahead: a node may receive over a link that is fast early on, and pass it on over another that is
//! fast later. What every resource carries until some moment is its capacity on average, so no more
//! than the optimum of the average network can have arrived by then; nor more than boundaries between
//! sites let in that are drawn ever closer.

mod boundaries;

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::{Change, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Time};

use crate::{Limit, LimitError, limit_for};
use boundaries::Boundaries;

/// How many situations are looked at. A transfer that is not over by then is taken to go on as it
/// did on average.
pub const SITUATIONS_MAX: usize = 20_000;

/// How many situations are remembered, as scripts repeat themselves.
const REMEMBERED_MAX: usize = 64;

/// How close to the moment in question a search for it has to come, relative.
const PRECISION: f64 = 1e-6;

/// The time a transfer takes while its network changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Over {
    /// From its beginning, in seconds.
    pub seconds: f64,
    /// The object's size over that time.
    pub throughput: Rate,
    /// Whether the throughput of every situation was solved for, and all of them were looked at.
    pub exact: bool,
}

impl Over {
    fn new(seconds: f64, size: Bytes, exact: bool) -> Self {
        let throughput = Rate::from_bytes_per_s(size.as_f64() / seconds);
        Self {
            seconds,
            throughput: throughput.unwrap_or(Rate::UNLIMITED),
            exact,
        }
    }
}

/// The time in which `size` bytes get from `sources` to every other node of `network`, if the best plan
/// is followed in every situation. `changes` come in order of their time, which counts from the
/// beginning of the transfer.
///
/// # Errors
/// If there is no source or one is no node of the network, or some node cannot be reached and never will be.
pub fn clairvoyant(
    network: &Network,
    sources: &[NodeId],
    size: Bytes,
    changes: impl IntoIterator<Item = (Time, Vec<Change>)>,
) -> Result<Over, LimitError> {
    let all: Vec<NodeId> = network.nodes().collect();
    clairvoyant_for(network, sources, &all, size, changes)
}

/// As [`clairvoyant`], to `receivers`; other nodes may pass data on.
///
/// # Errors
/// As [`clairvoyant`].
pub fn clairvoyant_for(
    network: &Network,
    sources: &[NodeId],
    receivers: &[NodeId],
    size: Bytes,
    changes: impl IntoIterator<Item = (Time, Vec<Change>)>,
) -> Result<Over, LimitError> {
    let mut optima = Optima::new(sources, receivers);
    let mut moved = 0.0;
    let mut exact = true;
    for (index, situation) in situations(network, changes).enumerate() {
        let optimum = optima.of(&situation.network);
        let rate = match (&optimum, situation.lasts) {
            (Ok(limit), _) => limit.throughput,
            (Err(error), None) => return Err(error.clone()),
            (Err(LimitError::Unreachable { .. }), Some(_)) => Rate::ZERO,
            (Err(error), Some(_)) => return Err(error.clone()),
        };
        exact &= optimum.map_or(true, |limit| limit.exact);
        let left = size.as_f64() - moved;
        let needs = if left > 0.0 {
            left / rate.bytes_per_s()
        } else {
            0.0
        };
        let lasts = situation
            .lasts
            .map_or(f64::INFINITY, |time| time.as_secs_f64());
        let begins = situation.begins.as_secs_f64();
        if needs <= lasts {
            return Ok(Over::new(begins + needs, size, exact));
        }
        moved += rate.bytes_per_s() * lasts;
        if index + 1 == SITUATIONS_MAX {
            let seconds = (begins + lasts) * size.as_f64() / moved;
            return Ok(Over::new(seconds, size, false));
        }
    }
    // The last situation lasts for ever, and has returned.
    Ok(Over::new(0.0, size, exact))
}

/// The least time in which `size` bytes can get from `sources` to every other node of `network`, by any
/// method. `changes` as for [`clairvoyant`].
///
/// # Errors
/// As [`clairvoyant`].
pub fn limit_over(
    network: &Network,
    sources: &[NodeId],
    size: Bytes,
    changes: impl IntoIterator<Item = (Time, Vec<Change>)>,
) -> Result<Over, LimitError> {
    let all: Vec<NodeId> = network.nodes().collect();
    limit_over_for(network, sources, &all, size, changes)
}

/// As [`limit_over`], to `receivers`; other nodes may pass data on.
///
/// # Errors
/// As [`clairvoyant`].
pub fn limit_over_for(
    network: &Network,
    sources: &[NodeId],
    receivers: &[NodeId],
    size: Bytes,
    changes: impl IntoIterator<Item = (Time, Vec<Change>)>,
) -> Result<Over, LimitError> {
    let limit = |network: &Network, size| limit_for(network, sources, receivers, size);
    let mut past = Past::new(network);
    let mut boundaries = Boundaries::new(network, sources, receivers);
    let mut exact = true;
    for (index, situation) in situations(network, changes).enumerate() {
        let begins = situation.begins.as_secs_f64();
        if index == 0 && situation.lasts.is_none() {
            // Nothing ever changes.
            let limit = limit(&situation.network, size)?;
            return Ok(Over::new(limit.seconds, size, limit.exact));
        }
        let waits = boundaries.as_ref();
        let waits = waits.map_or(0.0, |all| all.waits(&situation.network, size));
        // Whether all can have arrived when the situation has lasted for `time`.
        let mut arrived = |time: f64| {
            if time < waits {
                return Ok(false);
            }
            match limit(&past.average(&situation, time), Bytes::ZERO) {
                Ok(limit) => {
                    exact &= limit.exact;
                    Ok(limit.throughput.bytes_per_s() * (begins + time) >= size.as_f64())
                }
                Err(LimitError::Unreachable { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        let mut end = situation.lasts.map_or(1.0, |lasts| lasts.as_secs_f64());
        let mut all_arrived = arrived(end)?;
        if situation.lasts.is_none() {
            for _ in 0..DOUBLINGS_MAX {
                if all_arrived {
                    break;
                }
                end *= 2.0;
                all_arrived = arrived(end)?;
            }
            if !all_arrived {
                // It says which node never gets all of it.
                limit(&situation.network, Bytes::ZERO)?;
            }
        }
        if all_arrived || situation.lasts.is_none() {
            let (mut low, mut high) = (0.0, end);
            while high - low > PRECISION * (begins + low) && high > f64::MIN_POSITIVE {
                let middle = f64::midpoint(low, high);
                if arrived(middle)? {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            return Ok(Over::new(begins + low, size, exact));
        }
        past.add(&situation, end);
        if let Some(boundaries) = &mut boundaries {
            boundaries.add(&situation.network, end);
        }
        if index + 1 == SITUATIONS_MAX {
            // So long at least.
            return Ok(Over::new(begins + end, size, false));
        }
    }
    Ok(Over::new(0.0, size, exact))
}

/// How often a time of a second is doubled until a transfer is over in the last situation.
const DOUBLINGS_MAX: usize = 60;

/// A network as it is for a while.
struct Situation {
    network: Network,
    begins: Duration,
    /// For ever, if not said.
    lasts: Option<Duration>,
    /// What differs from the network at the beginning.
    differs: Vec<Resource>,
}

/// The situations one after the other; the last, if there is one, lasts for ever.
fn situations(
    network: &Network,
    changes: impl IntoIterator<Item = (Time, Vec<Change>)>,
) -> impl Iterator<Item = Situation> {
    let mut changes = changes.into_iter().fuse().peekable();
    let mut network = network.clone();
    let mut differs: Vec<Resource> = Vec::new();
    let mut begins = Some(Duration::ZERO);
    std::iter::from_fn(move || {
        let now = begins?;
        while let Some((_, made)) = changes.next_if(|(time, _)| since_start(*time) <= now) {
            for change in made {
                network.apply(&change);
                if let Change::Capacity { resource, .. } = change {
                    let resource = whole(&network, resource);
                    if let Err(place) = differs.binary_search(&resource) {
                        differs.insert(place, resource);
                    }
                }
            }
        }
        begins = changes.peek().map(|(time, _)| since_start(*time));
        Some(Situation {
            network: network.clone(),
            begins: now,
            lasts: begins.map(|next| next - now),
            differs: differs.clone(),
        })
    })
}

/// Local links change together, so one of them stands for all.
fn whole(network: &Network, resource: Resource) -> Resource {
    match resource {
        Resource::Local(node, _) => {
            let cluster = network.cluster_of(node);
            Resource::Link(cluster, cluster)
        }
        other => other,
    }
}

fn since_start(time: Time) -> Duration {
    time.since(Time::ZERO)
}

/// What resources that change have carried so far, in bytes.
struct Past<'n> {
    start: &'n Network,
    seconds: f64,
    carried: BTreeMap<Resource, f64>,
}

impl<'n> Past<'n> {
    const fn new(start: &'n Network) -> Self {
        Self {
            start,
            seconds: 0.0,
            carried: BTreeMap::new(),
        }
    }

    /// What a resource can have carried `more` seconds into the situation.
    fn of(&self, situation: &Situation, resource: Resource, more: f64) -> f64 {
        // Nothing passes an unlimited resource in no time.
        let in_time = |rate: Rate, time: f64| {
            if time > 0.0 {
                rate.bytes_per_s() * time
            } else {
                0.0
            }
        };
        let before = self.carried.get(&resource).copied();
        // One that changes for the first time was until now as it was at the start.
        let before = before.unwrap_or_else(|| in_time(self.start.capacity(resource), self.seconds));
        before + in_time(situation.network.capacity(resource), more)
    }

    /// The network with every capacity as it was on average, `more` seconds into the situation.
    fn average(&self, situation: &Situation, more: f64) -> Network {
        let mut network = situation.network.clone();
        let seconds = self.seconds + more;
        for resource in situation.differs.iter().filter(|_| seconds > 0.0) {
            let rate = self.of(situation, *resource, more) / seconds;
            if let Some(rate) = Rate::from_bytes_per_s(rate) {
                let resource = *resource;
                network.apply(&Change::Capacity { resource, rate });
            }
        }
        network
    }

    /// The situation is over after `lasted` seconds.
    fn add(&mut self, situation: &Situation, lasted: f64) {
        let carried = situation.differs.iter();
        let carried: Vec<_> = carried
            .map(|resource| (*resource, self.of(situation, *resource, lasted)))
            .collect();
        self.carried.extend(carried);
        self.seconds += lasted;
    }
}

/// Optima of situations that may come back.
struct Optima {
    sources: Vec<NodeId>,
    receivers: Vec<NodeId>,
    known: Vec<(Network, Result<Limit, LimitError>)>,
}

impl Optima {
    fn new(sources: &[NodeId], receivers: &[NodeId]) -> Self {
        Self {
            sources: sources.to_vec(),
            receivers: receivers.to_vec(),
            known: Vec::new(),
        }
    }

    fn of(&mut self, network: &Network) -> Result<Limit, LimitError> {
        if let Some((_, optimum)) = self.known.iter().find(|(known, _)| known == network) {
            return optimum.clone();
        }
        let optimum = limit_for(network, &self.sources, &self.receivers, Bytes::ZERO);
        if self.known.len() == REMEMBERED_MAX {
            drop(self.known.remove(0));
        }
        self.known.push((network.clone(), optimum.clone()));
        optimum
    }
}
