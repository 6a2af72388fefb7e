//! What the network turned out to carry, where that is less than it is known to.
//!
//! Senders say what they achieved while they had something to send all the time. Where less gets
//! through a resource than was to, and no other resource explains it better, its rate is taken down to
//! what did; it is raised again step by step while all that is ordered gets through. If that is allowed,
//! links that carry all that is known of them are now and then tried with more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_core::network::{Network, Resource};
use outpour_core::{NodeId, Rate, Time};

/// A resource that carries no more of what it is to than this is slower than known...
const SHORT: f64 = 0.75;
/// ... if that is less by so many blocks: servers send whole ones, so what they achieve varies.
const SHORT_BLOCKS: f64 = 4.0;
/// It has to be so for so many looks in a row, unless it carries less than this part.
const LOOKS: u32 = 2;
const SHORT_AT_ONCE: f64 = 0.5;
/// One that was found slow is as slow as what gets through while less than this part does of what is
/// to; and if this part of what it is thought to carry gets through, it may carry more...
const ENOUGH: f64 = 0.95;
/// ... and is tried with so much more, with twice as much more each time that this was enough...
const RAISE: f64 = 0.05;
/// The same where links may be explored, as more than they carry does no harm there.
const RAISE_BOLD: f64 = 0.5;
/// ... up to this.
const RAISE_MAX: f64 = 1.0;
const RAISE_BOLD_MAX: f64 = 2.0;
/// A resource is used up if it carries so much of what it is known to.
const USED_UP: f64 = 0.75;
/// If neither is so it recovers by so much at each look, relative to what is known of it.
const FORGET: f64 = 0.05;
/// None is thought to carry less than this, relative to what is known of it.
const LEAST: f64 = 0.05;
/// The same in bytes per second where nothing is known.
const LEAST_OPEN: f64 = 1e3;
/// A link may carry more than is known of it if that much more came through...
const MORE: f64 = 1.06;
/// ... or if it was used up and yet all but this part was sent by servers that ran out of what to send:
/// twice in a row, as servers take turns. Blocks use a link up with this part of what is known of it, as
/// frames and packets need room, too. Then it is tried with so much more...
const FULL: f64 = 0.9;
const DRY: f64 = 0.2;
const IN_USE: f64 = 0.3;
const EXPLORE: f64 = 1.0;
/// ... and at once where so many times as much came through, whatever was in vain before. Lanes are faster
/// than ordered, so that it can; and it is more than what buffers on the way take in can look like.
const PROVED: f64 = 1.5;
/// A try was in vain if less than this came through, relative to what is known of the link...
const WORTH: f64 = 1.25;
/// ... and then it is tried again after this long, twice as long each time, up to the second.
const EXPLORE_AFTER: Duration = Duration::from_secs(4);
const EXPLORE_AFTER_MAX: Duration = Duration::from_secs(20);
/// For so long what was ordered beyond its capacity is late, which says nothing about others.
const SETTLES_AFTER: Duration = Duration::from_secs(3);
/// How often servers say what they achieved since.
const SAID_EVERY: Duration = Duration::from_millis(500);
/// A look takes what was heard for so long: less than that, as a decision may come a moment early, and
/// a look that it skips costs a cycle.
const LOOK: Duration = Duration::from_millis(400);
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

    /// The same of all that was sent: what ran out had all that it was to send get through.
    fn share(&self) -> f64 {
        let all = self.ordered + self.rate - self.busy;
        debug_assert!(!all.is_nan(), "rates without limit are not heeded");
        if all > 0.0 {
            (self.rate / all).min(1.0)
        } else {
            1.0
        }
    }

    /// Whether a resource of that rate is in use and yet those that use it run out of what to send. What is
    /// ordered takes effect a while later, so it may not be all that was ordered last.
    fn has_room(&self, rate: f64) -> bool {
        debug_assert!(rate >= 0.0, "a rate is not negative");
        self.rate >= rate * IN_USE && self.busy <= self.rate * DRY
    }

    /// Whether so much less got through than was to that it is not the size of blocks alone.
    fn is_short_by(&self, block: f64) -> bool {
        self.ordered - self.busy >= some_blocks(block)
    }

    /// Whether so many times as much came through as is known, and not only for the size of blocks.
    fn is_above(&self, known: f64, times: f64, block: f64) -> bool {
        debug_assert!(times > 1.0, "above is more");
        self.rate >= known * times && self.rate - known >= some_blocks(block)
    }

    /// How much a resource explains: what did not get through, and how clearly.
    fn weight(&self) -> f64 {
        let ratio = self.ratio();
        (self.ordered * (1.0 - ratio)) * (1.0 - ratio)
    }
}

/// What servers achieve varies by so much, bytes per second, as they send whole blocks.
fn some_blocks(block: f64) -> f64 {
    block * SHORT_BLOCKS / SAID_EVERY.as_secs_f64()
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    heard: BTreeMap<(NodeId, NodeId), Sum>,
    looked: Option<Time>,
    /// For how many looks in a row a resource was short.
    short: BTreeMap<Resource, u32>,
    rates: BTreeMap<Resource, Found>,
    /// Whether links may be tried with more than is known of them.
    explores: bool,
    /// Links that carried all that is known of them at the last look, and seemed to have room for more.
    full: BTreeSet<Resource>,
    /// When a link was tried in vain.
    tries: BTreeMap<Resource, Try>,
}

/// A link that was tried with more than is known of it.
#[derive(Clone, Copy, Debug)]
struct Try {
    /// When that ended.
    ended: Time,
    /// How long after that it is tried again.
    wait: Duration,
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
    /// Nothing is known but the network. `explores` says whether links may be tried with more than that.
    pub(crate) fn new(explores: bool) -> Self {
        Self {
            explores,
            ..Self::default()
        }
    }

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

    /// What a resource carries of which the network says `known`, bytes per second.
    pub(crate) fn of(&self, resource: Resource, known: f64) -> f64 {
        match self.rates.get(&resource) {
            // What is known as nothing, or is to be left to others, stays so.
            Some(found) if self.explores && known > 0.0 => found.rate,
            Some(found) => found.rate.min(known),
            None => known,
        }
    }

    /// The network says what a resource carries.
    pub(crate) fn forget(&mut self, resource: Resource) {
        self.rates.remove(&resource);
        self.short.remove(&resource);
        self.tries.remove(&resource);
    }

    /// By how much what was found slow is raised, at first and at most, relative.
    const fn raise(&self) -> (f64, f64) {
        match self.explores {
            true => (RAISE_BOLD, RAISE_BOLD_MAX),
            false => (RAISE, RAISE_MAX),
        }
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
                path.retain(|resource| may_be_slow(network, *resource, self.explores));
                (path, sum)
            })
            .collect();
        if self.explores {
            self.explore(now, &flows, network, block);
        }
        // What gets through elsewhere says what is not the cause.
        let all = self.explores.then(|| flows.clone());
        self.follow(now, &mut flows, network, block);
        leave_used_up(&mut flows, network);
        let settles = |resource: &Resource| {
            let last = self.tries.get(resource);
            last.is_some_and(|last| now < last.ended + SETTLES_AFTER)
        };
        flows.retain(|(path, _)| !path.iter().any(settles));
        let mut short = BTreeMap::new();
        while let Some(resource) = worst(&flows, all.as_deref(), block) {
            let sum = sum_over(&flows, resource);
            let looks = self.short.get(&resource).copied().unwrap_or(0) + 1;
            let link = matches!(resource, Resource::Link(..));
            let at_once = self.explores && link && sum.ratio() < SHORT_AT_ONCE;
            let clear = looks >= LOOKS || at_once;
            if clear && !self.rates.contains_key(&resource) {
                let known = network.capacity(resource).bytes_per_s();
                let (rate, raise) = (sum.rate.max(least(known)), self.raise().0);
                self.rates.insert(resource, Found { rate, raise });
            }
            short.insert(resource, looks);
            flows.retain(|(path, _)| !path.contains(&resource));
        }
        debug_assert!(
            short
                .keys()
                .all(|it| may_be_slow(network, *it, self.explores))
        );
        debug_assert!(self.heard.is_empty(), "each word counts once");
        self.short = short;
    }

    /// Those that were found slow before follow what is measured; what they explain no other has to.
    fn follow(
        &mut self,
        now: Time,
        flows: &mut Vec<(Vec<Resource>, Sum)>,
        network: &Network,
        block: f64,
    ) {
        let mut explained = Vec::new();
        let (first, most) = self.raise();
        let (explores, tries) = (self.explores, &mut self.tries);
        self.rates.retain(|resource, found| {
            let sum = sum_over(flows, *resource);
            let known = network.capacity(*resource).bytes_per_s();
            let Found { rate, raise } = found;
            let above = explores && *rate > known;
            if sum.ratio() < ENOUGH && sum.is_short_by(block) {
                // It carries all it can, and that is this.
                *rate = sum.rate.max(least(known));
                *raise = first;
                explained.push(*resource);
                let worth = sum.is_above(known, WORTH, block);
                if above && *rate >= known * ENOUGH && !worth {
                    let wait = tries
                        .get(resource)
                        .map_or(EXPLORE_AFTER, |last| last.wait * 2);
                    let (ended, wait) = (now, wait.min(EXPLORE_AFTER_MAX));
                    tries.insert(*resource, Try { ended, wait });
                    // It is over, and does not fail again at the next look.
                    *rate = known;
                }
            } else if sum.rate >= *rate * ENOUGH || explores && sum.has_room(*rate) {
                *rate *= 1.0 + *raise;
                *raise = (*raise * 2.0).min(most);
            } else if !above {
                // Nothing says that it is slow still.
                let known = if known.is_finite() { known } else { *rate };
                *rate += known * FORGET;
            }
            debug_assert!(*raise >= first && *raise <= most, "steps are bounded");
            // What is known as nothing has no part.
            (*rate < known || above && *rate > known) && *rate < f64::MAX
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

impl Estimate {
    /// Tries links with more that carry all that is known of them.
    fn explore(
        &mut self,
        now: Time,
        flows: &[(Vec<Resource>, Sum)],
        network: &Network,
        block: f64,
    ) {
        let before = std::mem::take(&mut self.full);
        for (resource, sum) in sums(flows) {
            let known = network.capacity(resource).bytes_per_s();
            let is_link = matches!(resource, Resource::Link(..)) && known.is_finite();
            let dry = sum.rate >= known * FULL && sum.has_room(known);
            let full = dry || sum.rate >= known * MORE;
            if !is_link || known <= 0.0 || !full || self.rates.contains_key(&resource) {
                continue;
            }
            self.full.insert(resource);
            let last = self.tries.get(&resource);
            let again = last.is_none_or(|last| last.ended + last.wait <= now);
            let (rate, raise) = if sum.is_above(known, PROVED, block) {
                self.tries.remove(&resource);
                (sum.rate * (1.0 + RAISE_BOLD_MAX), RAISE_BOLD_MAX)
            } else if before.contains(&resource) && again {
                (known * (1.0 + EXPLORE), RAISE_BOLD_MAX)
            } else {
                continue;
            };
            debug_assert!(rate > known, "it is tried with more");
            self.rates.insert(resource, Found { rate, raise });
        }
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
fn may_be_slow(network: &Network, resource: Resource, explores: bool) -> bool {
    let known = !network.capacity(resource).is_unlimited();
    match resource {
        Resource::Link(..) | Resource::NodeOut(_) | Resource::NodeIn(_) => true,
        // What links explain as well they are taken for, where they may be explored again.
        Resource::ClusterOut(_) | Resource::ClusterIn(_) => known && !explores,
        Resource::Local(..) => known,
        // A limit is what it was set to.
        Resource::LimitOut(_) | Resource::LimitIn(_) => false,
    }
}

fn sum_over(flows: &[(Vec<Resource>, Sum)], resource: Resource) -> Sum {
    let mut all = Sum::default();
    let over = flows.iter().filter(|(path, _)| path.contains(&resource));
    over.for_each(|(_, sum)| all.add(*sum));
    all
}

/// The resource that explains most of what did not get through, if any is short.
fn worst(
    flows: &[(Vec<Resource>, Sum)],
    all: Option<&[(Vec<Resource>, Sum)]>,
    block: f64,
) -> Option<Resource> {
    let short = sums(flows).into_iter();
    let short = short.filter(|(_, sum)| sum.ratio() < SHORT && sum.is_short_by(block));
    let short = short.filter(|(resource, _)| all.is_none_or(|all| explains(all, *resource)));
    debug_assert!(block >= 0.0, "a block has a size");
    let worst = short.max_by(|(_, a), (_, b)| a.weight().total_cmp(&b.weight()));
    worst.map(|(resource, _)| resource)
}

/// Whether what does not get through may be due to this resource and not to the links between sites. A site
/// whose own capacity is the limit is found as links that carry less, which comes to the same. A node is the
/// cause only if over each link it is short and all others are not.
fn explains(flows: &[(Vec<Resource>, Sum)], resource: Resource) -> bool {
    match resource {
        Resource::Link(..) => return sum_over(flows, resource).share() < SHORT,
        Resource::Local(..) => return true,
        Resource::ClusterOut(_) | Resource::ClusterIn(_) => return false,
        Resource::LimitOut(_) | Resource::LimitIn(_) => return false,
        Resource::NodeOut(_) | Resource::NodeIn(_) => {}
    }
    let mut links: BTreeMap<Option<Resource>, (Sum, Sum)> = BTreeMap::new();
    for (path, sum) in flows {
        let link = path.iter().find(|it| matches!(it, Resource::Link(..)));
        let (mine, others) = links.entry(link.copied()).or_default();
        let of = if path.contains(&resource) {
            mine
        } else {
            others
        };
        of.add(*sum);
    }
    links.retain(|_, (mine, _)| mine.ordered > 0.0);
    links.iter().all(|(link, (mine, others))| {
        let rest = link.is_none() || others.rate > 0.0 && others.share() >= SHORT;
        mine.ratio() < SHORT && rest
    })
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
        assert_eq!(estimate.of(link, 1e7), 1e7, "once may be chance");
        hear(&mut estimate, 0.5);
        estimate.look(Time::from_secs_f64(2.0), &network, 1e5);
        assert_eq!(estimate.of(link, 1e7), 5e6);
        assert_eq!(estimate.rates.len(), 1, "{:?}", estimate.rates);
        // It is tried with more while all gets through, and is forgotten once it is as it was.
        for second in 3..9 {
            hear(&mut estimate, 1.0);
            estimate.look(Time::from_secs_f64(f64::from(second)), &network, 1e5);
        }
        assert!(estimate.rates.is_empty(), "{:?}", estimate.rates);
    }

    #[test]
    fn links_are_found_slow_and_not_the_site_that_all_lead_to() {
        let network = Network::from_toml(
            "[[cluster]]\nname = \"a\"\nnodes = 2\nout = \"100 MB/s\"\nin = \"100 MB/s\"\n\
             [[cluster]]\nname = \"b\"\nnodes = 2\nout = \"100 MB/s\"\nin = \"100 MB/s\"\n\
             [[cluster]]\nname = \"c\"\nnodes = 2\nout = \"100 MB/s\"\nin = \"100 MB/s\"\n\
             [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"10 MB/s\"",
            "test",
        )
        .unwrap();
        let mut estimate = Estimate::new(true);
        // Both links to c are slow, and so is node 1, which is found only where others get through.
        for second in 1..4 {
            for (from, to, rate) in [(0, 4, 1.0), (2, 5, 1.0), (0, 2, 4.0), (1, 3, 0.5)] {
                estimate.heard(NodeId(from), NodeId(to), mb(rate), Some(mb(4.0)));
            }
            estimate.look(Time::from_secs_f64(f64::from(second)), &network, 1e5);
        }
        let link = |from, to| Resource::Link(ClusterId(from), ClusterId(to));
        assert!(estimate.of(link(0, 2), 1e7) < 2e6);
        assert!(estimate.of(link(1, 2), 1e7) < 2e6);
        assert_eq!(estimate.of(link(0, 1), 1e7), 1e7);
        let found: Vec<_> = estimate.rates.keys().collect();
        assert_eq!(found.len(), 3, "{found:?}");
        let slow = |it: &&Resource| {
            matches!(
                it,
                Resource::NodeOut(NodeId(1)) | Resource::NodeIn(NodeId(3))
            )
        };
        assert!(estimate.rates.keys().any(|it| slow(&it)), "{found:?}");
    }

    #[test]
    fn a_link_that_became_faster_is_tried_only_if_that_is_allowed() {
        let network = network();
        let link = Resource::Link(ClusterId(0), ClusterId(1));
        for explores in [false, true] {
            let mut estimate = Estimate::new(explores);
            // A link of 30 MB/s that is known as one of 10: a tenth more is sent than ordered.
            for second in 1..12 {
                let ordered = estimate.of(link, 1e7) / 1e6;
                let carried = (ordered * 1.1).min(30.0);
                estimate.heard(NodeId(0), NodeId(2), mb(carried), Some(mb(ordered)));
                estimate.look(Time::from_secs_f64(f64::from(second)), &network, 1e5);
            }
            let found = estimate.of(link, 1e7);
            match explores {
                false => assert_eq!(found, 1e7),
                true => assert!((25e6..60e6).contains(&found), "{found}"),
            }
        }
        // One that is as fast as known is tried in vain, and ever more seldom.
        let mut estimate = Estimate::new(true);
        let mut tries = 0;
        for second in 1..60 {
            let ordered = estimate.of(link, 1e7) / 1e6;
            tries += u32::from(ordered > 10.0);
            let busy = (ordered > 10.0).then_some(mb(ordered));
            estimate.heard(NodeId(0), NodeId(2), mb(10.0), busy);
            estimate.look(Time::from_secs_f64(f64::from(second)), &network, 1e5);
        }
        assert!((3..10).contains(&tries), "{tries}");
    }

    #[test]
    fn a_try_that_is_in_vain_counts_once_and_not_where_much_more_comes_through() {
        let network = network();
        let link = Resource::Link(ClusterId(0), ClusterId(1));
        let mut estimate = Estimate::new(true);
        let (mut tries, mut told) = (Vec::new(), 10.0);
        let mut look = |estimate: &mut Estimate, at: f64, carries: f64| {
            // What is ordered takes effect a look later, and lanes are faster than that.
            let ordered = std::mem::replace(&mut told, estimate.of(link, 1e7) / 1e6);
            let carried = (ordered * 3.0).min(carries);
            estimate.heard(NodeId(0), NodeId(2), mb(carried), Some(mb(ordered)));
            let before = estimate.of(link, 1e7);
            estimate.look(Time::from_secs_f64(at), &network, 1e5);
            (before <= 1e7 && estimate.of(link, 1e7) > 1e7).then_some(at)
        };
        // It seems to carry a little more than is known, and does not.
        for at in 0..16 {
            tries.extend(look(&mut estimate, f64::from(at) * 0.5, 10.8));
        }
        let [first, second] = tries[..] else {
            panic!("tried at {tries:?}");
        };
        assert!((4.0..6.0).contains(&(second - first)), "{tries:?}");
        // Where so much more comes through that it is worth it, it stays so.
        let mut fair = Estimate::new(true);
        let after = (0..12).filter(|at| {
            look(&mut fair, f64::from(*at) * 0.5, 14.0);
            *at >= 6 && fair.of(link, 1e7) < 1.35e7
        });
        assert_eq!(after.count(), 0, "{:?}", fair.rates);
        // It would not be tried for long now, but what came through leaves no doubt.
        assert_eq!(look(&mut estimate, 8.0, 10.0), None);
        assert_eq!(look(&mut estimate, 8.5, 30.0), Some(8.5));
        assert!(estimate.of(link, 1e7) >= 3e7, "{:?}", estimate.rates);
        // Once it paid off, what was in vain before is forgotten.
        for (at, carries) in [(9.0, 30.0), (9.5, 10.0)] {
            assert_eq!(look(&mut estimate, at, carries), None);
        }
        let mut later = (20..40).map(|at| look(&mut estimate, f64::from(at) * 0.5, 10.8));
        let tried = later.find_map(|tried| tried);
        assert!(tried.is_some_and(|at| at < 16.0), "{tried:?}");
    }

    #[test]
    fn a_link_is_full_with_less_than_all_of_it_in_blocks() {
        let network = network();
        let link = Resource::Link(ClusterId(0), ClusterId(1));
        for (carried, tried) in [(9.2, true), (8.0, false)] {
            let mut estimate = Estimate::new(true);
            for look in 1..4 {
                estimate.heard(NodeId(0), NodeId(2), mb(carried), None);
                estimate.look(Time::from_secs_f64(f64::from(look) * 0.45), &network, 1e5);
            }
            assert_eq!(estimate.of(link, 1e7) > 1e7, tried, "{carried} MB/s");
        }
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
