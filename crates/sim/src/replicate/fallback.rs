//! What servers do while there is no controller [BDS §5.3]: they go on with the orders they have until
//! these run dry, and then fetch what their site lacks as Robber does, see [`super::overlay`]: each
//! its share from random servers that have something of it, and when that is done, or nobody has
//! any of it, something of the shares of others.
//!
//! Nobody orders rates then; what is fetched shares max-min fairly what orders leave of the network,
//! and keeps below the share of links that bulk may use.

use std::collections::BTreeMap;
use std::ops::Range;

use outpour_controller::{JobId, Runs};
use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{NodeId, Rate, Separation, Time};

use super::bound;
use super::servers::{Key, Servers, Stream, Target};
use crate::dice::Dice;
use crate::flow::{FlowId, Flows, ResourceId};

/// From how many others a server fetches at a time, as Robber does.
const PARALLEL: usize = 5;
/// Whoever fetches asks for as much at a time as takes so many steps.
const STEPS: f64 = 4.0;
/// Where nothing says how fast a server is, it asks for such a part of its share.
const PARTS: u32 = 200;

/// One who fetches, and which blocks are its share.
struct Seeker {
    node: NodeId,
    share: Range<u32>,
}

impl Servers {
    /// Has those fetch something whose orders ran dry; `step` is in seconds.
    pub(super) fn pull(&mut self, dice: &mut Dice, now: Time, step: f64) {
        self.drop_dry();
        let mut claimed: BTreeMap<(JobId, Target), Runs> = BTreeMap::new();
        let mut busy: BTreeMap<NodeId, usize> = BTreeMap::new();
        for ((_, to, job), stream) in &self.streams {
            *busy.entry(*to).or_default() += 1;
            let site = self.network.cluster_of(*to);
            for target in [Target::Node(*to), Target::Site(site)] {
                let claimed = claimed.entry((*job, target)).or_default();
                stream
                    .list
                    .iter()
                    .for_each(|run| claimed.insert(run.clone()));
            }
        }
        let mut holders: BTreeMap<JobId, Vec<NodeId>> = BTreeMap::new();
        for ((node, job), runs) in &self.has {
            if runs.blocks() > 0 && !self.absent.contains(node) {
                holders.entry(*job).or_default().push(*node);
            }
        }
        let none = Vec::new();
        let mut begun: Vec<(Key, Range<u32>)> = Vec::new();
        for (id, wanted) in self.wanted.iter().filter(|(_, it)| it.job.start <= now) {
            let holders = holders.get(id).unwrap_or(&none);
            for (target, (has, _)) in &wanted.targets {
                let mut free = Runs::default();
                let claimed = claimed.remove(&(*id, *target)).unwrap_or_default();
                absent(has, 0..wanted.blocks, |run| {
                    absent(&claimed, run, |run| free.insert(run));
                });
                let block = wanted.job.block.as_f64();
                let seekers = self.seekers(*target, wanted.blocks);
                for seeker in (0..PARALLEL).flat_map(|_| &seekers) {
                    if busy
                        .get(&seeker.node)
                        .is_some_and(|count| *count >= PARALLEL)
                    {
                        continue;
                    }
                    if free.blocks() == 0 {
                        break;
                    }
                    let taken = |from| {
                        let key = (from, seeker.node, *id);
                        self.streams.contains_key(&key) || begun.iter().any(|it| it.0 == key)
                    };
                    let found = self.find(dice, seeker, *id, holders, &free, taken);
                    if let Some((from, run)) = found {
                        let most = self.ask(seeker, step, block);
                        let run = run.start..run.end.min(run.start.saturating_add(most));
                        free.remove(run.clone());
                        begun.push(((from, seeker.node, *id), run));
                        *busy.entry(seeker.node).or_default() += 1;
                    }
                }
            }
        }
        for (key, run) in begun {
            self.streams.insert(key, Stream::fetching(run));
        }
        self.share();
    }

    /// Orders with nothing to send any more are no use: what they wait for was never sent.
    fn drop_dry(&mut self) {
        let has = &self.has;
        self.streams.retain(|(from, _, job), stream| {
            let has = has.get(&(*from, *job));
            has.is_some_and(|has| stream.is_busy(has))
        });
    }

    /// Who is to get what a target lacks: the servers of a site share it evenly.
    fn seekers(&self, target: Target, blocks: u32) -> Vec<Seeker> {
        let nodes: Vec<NodeId> = match target {
            Target::Node(node) => vec![node],
            Target::Site(site) => self.network.nodes_of(site).collect(),
        };
        let count = nodes.len().max(1) as u64;
        let cut = |place: usize| (place as u64 * u64::from(blocks) / count) as u32;
        let seeker = |(place, node)| Seeker {
            node,
            share: cut(place)..cut(place + 1),
        };
        let there = |seeker: &Seeker| !self.absent.contains(&seeker.node);
        nodes
            .into_iter()
            .enumerate()
            .map(seeker)
            .filter(there)
            .collect()
    }

    /// How many blocks one asks for at a time.
    fn ask(&self, seeker: &Seeker, step: f64, block: f64) -> u32 {
        let into = self.network.capacity(Resource::NodeIn(seeker.node));
        if into.is_unlimited() {
            return ((seeker.share.end - seeker.share.start) / PARTS).max(1);
        }
        let bytes = into.bytes_per_s() / PARALLEL as f64 * step * STEPS;
        ((bytes / block).ceil() as u32).max(1)
    }

    /// Whom to ask, and for which free blocks.
    fn find(
        &self,
        dice: &mut Dice,
        seeker: &Seeker,
        job: JobId,
        holders: &[NodeId],
        free: &Runs,
        taken: impl Fn(NodeId) -> bool,
    ) -> Option<(NodeId, Range<u32>)> {
        let last = free.iter().last()?.end;
        for within in [seeker.share.clone(), 0..last] {
            if within.is_empty() || free.next_present(within.start, within.end).is_none() {
                continue;
            }
            let length = u64::from(within.end - within.start);
            let from = within.start + dice.below(length) as u32;
            let turn = dice.below(holders.len().max(1) as u64) as usize;
            let (before, after) = holders.split_at(turn.min(holders.len()));
            for holder in after.iter().chain(before) {
                let Some(has) = self.has.get(&(*holder, job)) else {
                    continue;
                };
                if *holder == seeker.node || taken(*holder) || !self.is_open(*holder, seeker.node) {
                    continue;
                }
                let found = common(has, free, from..within.end)
                    .or_else(|| common(has, free, within.start..from));
                if let Some(run) = found {
                    return Some((*holder, run));
                }
            }
        }
        None
    }

    /// Whether anything gets through from a server to another.
    fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        let path = self.network.path(from, to);
        let mut resources = path.resources().iter();
        resources.all(|resource| self.carries(*resource) > 0.0)
    }

    /// The rates of what is fetched, where orders take `loads` of resources.
    pub(super) fn fetch(&mut self, loads: &BTreeMap<Resource, f64>) {
        let fetching = |(_, stream): &(&Key, &Stream)| stream.fetches;
        let keys: Vec<Key> = self
            .streams
            .iter()
            .filter(fetching)
            .map(|it| *it.0)
            .collect();
        if keys.is_empty() {
            return;
        }
        let mut flows = Flows::default();
        let mut resources: BTreeMap<Resource, ResourceId> = BTreeMap::new();
        let mut limits: BTreeMap<JobId, ResourceId> = BTreeMap::new();
        let mut ids: Vec<(Key, FlowId)> = Vec::with_capacity(keys.len());
        for key in keys {
            let (from, to, job) = key;
            let mut hops = Vec::with_capacity(6);
            for resource in self.network.path(from, to).resources() {
                let id = resources.entry(*resource).or_insert_with(|| {
                    let load = loads.get(resource).copied().unwrap_or_default();
                    flows.add_resource((self.may_carry(*resource) - load).max(0.0))
                });
                hops.push(*id);
            }
            let limit = self.wanted.get(&job).map(|it| it.job.limit);
            if let Some(limit) = limit.filter(|limit| !limit.is_unlimited()) {
                let id = limits.entry(job);
                hops.push(*id.or_insert_with(|| flows.add_resource(limit.bytes_per_s())));
            }
            let flow = flows.add_flow(&hops);
            flows.load(Time::ZERO, flow, u32::MAX);
            ids.push((key, flow));
        }
        flows.settle(Time::ZERO);
        for (key, flow) in ids {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.pace = flows.rate(flow);
            }
        }
    }

    /// What a resource carries at most of what nobody orders, bytes per second.
    fn may_carry(&self, resource: Resource) -> f64 {
        let foreground = self.foreground_on(resource);
        bulk_may_use(
            &self.network,
            self.separation,
            self.host_limit,
            resource,
            foreground,
        )
    }
}

/// What bulk may use of a resource if nobody decides, beside so much latency-sensitive traffic.
pub(super) fn bulk_may_use(
    network: &Network,
    separation: Separation,
    host: Rate,
    resource: Resource,
    foreground: f64,
) -> f64 {
    let rate = network.capacity(resource);
    let rate = match resource {
        Resource::NodeOut(_) | Resource::NodeIn(_) => rate.min(host),
        Resource::Local(..) | Resource::LimitOut(_) | Resource::LimitIn(_) => rate,
        _ => bound::shared(rate, separation),
    };
    (rate.bytes_per_s() - foreground).max(0.0)
}

/// Calls `each` with what is not in `runs` of a range.
fn absent(runs: &Runs, within: Range<u32>, mut each: impl FnMut(Range<u32>)) {
    let mut at = within.start;
    while let Some(run) = runs.next_absent(at, within.end) {
        at = run.end;
        each(run);
    }
}

/// The first run of a range that is in both.
fn common(a: &Runs, b: &Runs, within: Range<u32>) -> Option<Range<u32>> {
    let mut at = within.start;
    while at < within.end {
        let mine = a.next_present(at, within.end)?;
        if let Some(both) = b.next_present(mine.start, mine.end) {
            return Some(both);
        }
        // Nothing before where the other has something again.
        at = b.next_present(mine.end, within.end)?.start;
    }
    None
}

impl Servers {
    /// The latency-sensitive traffic on a resource, bytes per second.
    pub(super) fn foreground_on(&self, resource: Resource) -> f64 {
        match resource {
            Resource::Link(from, to) => self.foreground.get(&(from, to)).copied().unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// What a resource carries of blocks: what latency-sensitive traffic leaves.
    pub(super) fn carries(&self, resource: Resource) -> f64 {
        let capacity = self.network.capacity(resource).bytes_per_s();
        (capacity - self.foreground_on(resource)).max(0.0)
    }

    /// What blocks used of each link between sites in the last step, bytes per second.
    pub(super) fn used(&self) -> BTreeMap<(ClusterId, ClusterId), f64> {
        let mut used = BTreeMap::new();
        for ((from, to, _), stream) in &self.streams {
            let sites = (self.network.cluster_of(*from), self.network.cluster_of(*to));
            if sites.0 != sites.1 {
                *used.entry(sites).or_default() += stream.used;
            }
        }
        used
    }
}
