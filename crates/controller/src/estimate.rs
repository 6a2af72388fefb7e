//! What the network turned out to carry, where that is less than it is known to.
//!
//! Senders say what they achieved while they had something to send all the time. Where less gets
//! through a resource than was to, and no other resource explains it better, its rate is taken down to
//! what did; it is raised again step by step while all that is ordered gets through.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::{Network, Resource};
use outpour_core::{NodeId, Rate, Time};

/// A resource that carries no more of what it is to than this is slower than known...
const SHORT: f64 = 0.75;
/// ... if that is less by so many blocks: servers send whole ones, so what they achieve in a second
/// varies.
const SHORT_BLOCKS: f64 = 4.0;
/// It has to be so for so many looks in a row.
const LOOKS: u32 = 2;
/// One that was found slow is as slow as what gets through while less than this part does of what is
/// to; and if this part of what it is thought to carry gets through, it may carry more...
const ENOUGH: f64 = 0.95;
/// ... and is tried with so much more, with twice as much more each time that this was enough...
const RAISE: f64 = 0.05;
/// ... up to this.
const RAISE_MAX: f64 = 1.0;
/// A resource is used up if it carries so much of what it is known to.
const USED_UP: f64 = 0.75;
/// If neither is so it recovers by so much at each look, relative to what is known of it.
const FORGET: f64 = 0.05;
/// None is thought to carry less than this, relative to what is known of it.
const LEAST: f64 = 0.05;
/// The same in bytes per second where nothing is known.
const LEAST_OPEN: f64 = 1e3;
/// A look takes what was heard for so long.
const LOOK: Duration = Duration::from_secs(1);
/// How many pairs are heard of between two looks; further ones are not heeded.
const PAIRS_MAX: usize = 1 << 16;

/// What pairs of servers achieved, bytes per second.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// All that was sent.
    rate: f64,
    /// What was sent, and what was to be, by those that had something to send all the time.
    busy: f64,
    ordered: f64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.rate += other.rate;
        self.busy += other.busy;
        self.ordered += other.ordered;
    }

    fn ratio(&self) -> f64 {
        if self.ordered > 0.0 {
            (self.busy / self.ordered).min(1.0)
        } else {
            1.0
        }
    }

    /// Whether so much less got through than was to that it is not the size of blocks alone.
    fn is_short_by(&self, block: f64) -> bool {
        self.ordered - self.busy >= block * SHORT_BLOCKS / LOOK.as_secs_f64()
    }

    /// How much a resource explains: what did not get through, and how clearly.
    fn weight(&self) -> f64 {
        let ratio = self.ratio();
        (self.ordered * (1.0 - ratio)) * (1.0 - ratio)
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    heard: BTreeMap<(NodeId, NodeId), Sum>,
    looked: Option<Time>,
    /// For how many looks in a row a resource was short.
    short: BTreeMap<Resource, u32>,
    rates: BTreeMap<Resource, Found>,
}

/// What a resource was found to carry.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Bytes per second.
    rate: f64,
    /// By how much it is raised next, relative.
    raise: f64,
}

impl Estimate {
    pub(crate) fn heard(&mut self, from: NodeId, to: NodeId, rate: Rate, ordered: Option<Rate>) {
        let room = self.heard.len() < PAIRS_MAX || self.heard.contains_key(&(from, to));
        let open = rate.is_unlimited() || ordered.is_some_and(Rate::is_unlimited);
        if from == to || open || !room {
            return;
        }
        let rate = rate.bytes_per_s();
        let sum = match ordered.map(Rate::bytes_per_s) {
            Some(ordered) => Sum {
                rate,
                busy: rate,
                ordered,
            },
            None => Sum {
                rate,
                ..Sum::default()
            },
        };
        debug_assert!(sum.busy <= sum.rate, "some of all that was sent");
        self.heard.insert((from, to), sum);
        debug_assert!(self.heard.len() <= PAIRS_MAX, "what is heard is bounded");
    }

    /// What a resource carries, bytes per second; infinite if nothing else is known than the network.
    pub(crate) fn of(&self, resource: Resource) -> f64 {
        let found = self.rates.get(&resource);
        debug_assert!(
            found.is_none_or(|found| found.rate > 0.0),
            "none is given up"
        );
        found.map_or(f64::INFINITY, |found| found.rate)
    }

    /// The network says what a resource carries.
    pub(crate) fn forget(&mut self, resource: Resource) {
        self.rates.remove(&resource);
        self.short.remove(&resource);
    }

    /// Makes of what was heard what resources carry; `block` is the bytes of the largest blocks.
    pub(crate) fn look(&mut self, now: Time, network: &Network, block: f64) {
        if self.looked.is_some_and(|last| now.since(last) < LOOK) {
            return;
        }
        self.looked = Some(now);
        let mut flows: Vec<(Vec<Resource>, Sum)> = std::mem::take(&mut self.heard)
            .into_iter()
            .map(|((from, to), sum)| {
                let mut path = network.path(from, to).resources().to_vec();
                path.retain(|resource| may_be_slow(network, *resource));
                (path, sum)
            })
            .collect();
        self.follow(&mut flows, network, block);
        leave_used_up(&mut flows, network);
        let mut short = BTreeMap::new();
        while let Some(resource) = worst(&flows, block) {
            let sum = sum_over(&flows, resource);
            let looks = self.short.get(&resource).copied().unwrap_or(0) + 1;
            if looks >= LOOKS && !self.rates.contains_key(&resource) {
                let known = network.capacity(resource).bytes_per_s();
                let (rate, raise) = (sum.rate.max(least(known)), RAISE);
                self.rates.insert(resource, Found { rate, raise });
            }
            short.insert(resource, looks);
            flows.retain(|(path, _)| !path.contains(&resource));
        }
        debug_assert!(short.keys().all(|resource| may_be_slow(network, *resource)));
        debug_assert!(self.heard.is_empty(), "each word counts once");
        self.short = short;
    }

    /// Those that were found slow before follow what is measured; what they explain no other has to.
    fn follow(&mut self, flows: &mut Vec<(Vec<Resource>, Sum)>, network: &Network, block: f64) {
        let mut explained = Vec::new();
        self.rates.retain(|resource, found| {
            let sum = sum_over(flows, *resource);
            let known = network.capacity(*resource).bytes_per_s();
            let Found { rate, raise } = found;
            if sum.ratio() < ENOUGH && sum.is_short_by(block) {
                // It carries all it can, and that is this.
                *rate = sum.rate.max(least(known));
                *raise = RAISE;
                explained.push(*resource);
            } else if sum.rate >= *rate * ENOUGH {
                *rate *= 1.0 + *raise;
                *raise = (*raise * 2.0).min(RAISE_MAX);
            } else {
                // Nothing says that it is slow still.
                let known = if known.is_finite() { known } else { *rate };
                *rate += known * FORGET;
            }
            debug_assert!(*raise >= RAISE && *raise <= RAISE_MAX, "steps are bounded");
            // What is known as nothing has no part.
            *rate < known && *rate < f64::MAX
        });
        let open = |path: &[Resource]| path.iter().all(|resource| !explained.contains(resource));
        flows.retain(|(path, _)| open(path));
        debug_assert!(
            explained
                .iter()
                .all(|found| sum_over(flows, *found).ordered == 0.0),
            "what is explained is left out"
        );
    }
}

/// Takes out what passes a resource that carries about what it is known to: if more was ordered, that
/// is no wonder, and says nothing about the others on the way.
fn leave_used_up(flows: &mut Vec<(Vec<Resource>, Sum)>, network: &Network) {
    let sums = sums(flows);
    let used_up = |resource: &Resource| {
        let known = network.capacity(*resource).bytes_per_s();
        sums.get(resource)
            .is_some_and(|sum| sum.rate >= known * USED_UP)
    };
    flows.retain(|(path, _)| !path.iter().any(used_up));
}

fn sums(flows: &[(Vec<Resource>, Sum)]) -> BTreeMap<Resource, Sum> {
    let mut sums: BTreeMap<Resource, Sum> = BTreeMap::new();
    for (path, sum) in flows {
        path.iter()
            .for_each(|resource| sums.entry(*resource).or_default().add(*sum));
    }
    sums
}

/// What a resource carries at least: else nothing would be sent over one that stood still for a moment,
/// and nothing would be learned of it any more.
fn least(known: f64) -> f64 {
    match known.is_finite() {
        true => known * LEAST,
        false => LEAST_OPEN,
    }
}

/// Whether a resource is there to be slow: what a network leaves open inside a site, or in front of one,
/// is not; a link between sites is there even if nothing is known of it.
fn may_be_slow(network: &Network, resource: Resource) -> bool {
    let known = !network.capacity(resource).is_unlimited();
    match resource {
        Resource::Link(..) | Resource::NodeOut(_) | Resource::NodeIn(_) => true,
        Resource::ClusterOut(_) | Resource::ClusterIn(_) | Resource::Local(..) => known,
    }
}

fn sum_over(flows: &[(Vec<Resource>, Sum)], resource: Resource) -> Sum {
    let mut all = Sum::default();
    let over = flows.iter().filter(|(path, _)| path.contains(&resource));
    over.for_each(|(_, sum)| all.add(*sum));
    all
}

/// The resource that explains most of what did not get through, if any is short.
fn worst(flows: &[(Vec<Resource>, Sum)], block: f64) -> Option<Resource> {
    let short = sums(flows).into_iter();
    let short = short.filter(|(_, sum)| sum.ratio() < SHORT && sum.is_short_by(block));
    debug_assert!(block >= 0.0, "a block has a size");
    let worst = short.max_by(|(_, a), (_, b)| a.weight().total_cmp(&b.weight()));
    worst.map(|(resource, _)| resource)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_core::network::ClusterId;

    use super::*;

    /// Two sites of two nodes each, joined at 10 MB/s.
    fn network() -> Network {
        Network::from_toml(
            "[[cluster]]\nname = \"a\"\nnodes = 2\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n\
             [[cluster]]\nname = \"b\"\nnodes = 2\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n\
             [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"10 MB/s\"",
            "test",
        )
        .unwrap()
    }

    fn mb(rate: f64) -> Rate {
        Rate::from_bytes_per_s(rate * 1e6).unwrap()
    }

    #[test]
    fn a_slow_link_is_found_and_not_its_ends() {
        let network = network();
        let mut estimate = Estimate::default();
        let link = Resource::Link(ClusterId(0), ClusterId(1));
        let hear = |estimate: &mut Estimate, share: f64| {
            for (from, to, ordered, over) in [
                (0, 2, 5.0, true),
                (0, 3, 3.0, true),
                (0, 1, 2.0, false),
                (1, 3, 2.0, true),
                (2, 3, 4.0, false),
            ] {
                let rate = if over { ordered * share } else { ordered };
                estimate.heard(NodeId(from), NodeId(to), mb(rate), Some(mb(ordered)));
            }
        };
        hear(&mut estimate, 0.5);
        estimate.look(Time::from_secs_f64(1.0), &network, 1e5);
        assert_eq!(estimate.of(link), f64::INFINITY, "once may be chance");
        hear(&mut estimate, 0.5);
        estimate.look(Time::from_secs_f64(2.0), &network, 1e5);
        assert_eq!(estimate.of(link), 5e6);
        assert_eq!(estimate.rates.len(), 1, "{:?}", estimate.rates);
        // It is tried with more while all gets through, and is forgotten once it is as it was.
        for second in 3..9 {
            hear(&mut estimate, 1.0);
            estimate.look(Time::from_secs_f64(f64::from(second)), &network, 1e5);
        }
        assert!(estimate.rates.is_empty(), "{:?}", estimate.rates);
    }

    #[test]
    fn what_no_network_says_is_measured() {
        let open = Rate::UNLIMITED;
        let network = Network::uniform(2, open, open, Duration::ZERO).unwrap();
        let mut estimate = Estimate::default();
        for second in 1..4 {
            estimate.heard(NodeId(0), NodeId(1), mb(3.0), Some(mb(9.0)));
            estimate.look(Time::from_secs_f64(f64::from(second)), &network, 1e5);
        }
        let found = estimate.rates.values().next();
        assert!(found.is_some_and(|found| found.rate <= 3e6), "{found:?}");
    }
}
