//! What the node does that leads: it hosts the controller, and knows its servers as members.
//!
//! Its job is that each site gets one copy of what its nodes want, each block to one of those that want it
//! or to a relay: these pass it on among themselves, see [`super::aid`]. Relays that are where nobody
//! wants anything may be brought what other sites lack. What a node wants it says with its first report.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use outpour_controller::{
    Blocks, Change, Config, Controller, Decision, Destinations, Input, Job, JobId,
};
use outpour_core::network::{Change as NetworkChange, ClusterId, Network, Resource};
use outpour_core::{BlockSet, Bytes, NodeId, Rate, Separation, Time, Traffic};

use super::planned::Watch;
use super::room::BLOCKS_SHARE;
use super::{CentralOptions, Report};
use crate::{Role, Setup};

/// Nodes that come are heeded this long after the first of them: together, and soon.
const HURRY_AFTER: Duration = Duration::from_millis(20);
/// ... and, as a decision takes longer with more of them, at least so long for each member.
const HURRY_AFTER_EACH: Duration = Duration::from_micros(100);

/// At the beginning and at the end, for so many cycles, so many decisions are made in each.
const EDGE_CYCLES: u32 = 2;
const EDGE_PARTS: u32 = 4;

/// The part of what is left to a cast that is not planned, where room is left for others: lanes are hardly
/// faster than ordered there, and one that falls behind would never catch up.
const MARGIN: f64 = 0.05;
/// Traffic that takes so much more of a link than before is heeded at once, not with the next cycle.
const MUCH_MORE: f64 = 0.05;

/// Changes of a member's lanes, and whether all earlier ones are forgotten.
pub(super) type Order = (NodeId, bool, Vec<Change>);

/// See the module.
#[derive(Debug)]
pub(super) struct Leading {
    controller: Controller,
    job: Job,
    id: JobId,
    me: NodeId,
    /// What each member was last known to have.
    held: Vec<BlockSet>,
    /// What each member wants: everything until it says so.
    wants: Vec<BlockSet>,
    /// The most that was planned for a cycle, in bytes.
    most: f64,
    /// When the first member came.
    came: Option<Time>,
    /// The node of each member in the network.
    nodes: Vec<NodeId>,
    /// How members get on by the plan, until that ends.
    watch: Option<Watch>,
    /// Members that can be reached.
    present: BTreeSet<NodeId>,
    /// Decisions that are still to take effect, in order.
    coming: VecDeque<Decision>,
    /// Members that came when all was done: what they were ordered before is to be forgotten.
    done: Vec<NodeId>,
    /// Members whose reports are missing.
    asks: Vec<NodeId>,
    /// When to decide before the end of the cycle.
    hurry: Option<Time>,
    /// What was measured last of latency-sensitive traffic, on the links where there was some.
    shared: BTreeMap<Resource, Rate>,
    deposed: bool,
}

impl Leading {
    /// Leads the cast of a setup; `None` if nothing can be decided, as nothing reaches some member in
    /// the network as it is described, or it is not described.
    pub(super) fn new(
        now: Time,
        epoch: u64,
        options: &CentralOptions,
        setup: &Setup,
        by_plan: bool,
    ) -> Option<Self> {
        let mut network = options.network()?.joined();
        let nodes = options.nodes.clone();
        if nodes.len() != setup.members.len() {
            return None;
        }
        let config = Config {
            epoch,
            cycle: options.cycle(),
            // If nothing else is said to use the links, what does is found by what lanes achieve.
            separation: (options.separation).unwrap_or(Separation::Threshold { percent: 100.0 }),
            explore: options.separation.is_none(),
            margin: options.separation.map_or(0.0, |_| MARGIN),
            ..Config::default()
        };
        let block = Bytes(u64::from(setup.block_bytes));
        let size = Bytes(block.0 * u64::from(setup.have.len()));
        let with = |role: Role| {
            let members = setup.members.iter().zip(&nodes);
            let those = members.filter(move |(member, _)| member.role == role);
            those.map(|(_, node)| *node)
        };
        let receivers: Vec<NodeId> = with(Role::Receiver).collect();
        let relays: Vec<NodeId> = with(Role::Relay).collect();
        let others = receivers.iter().chain(&relays);
        let sites: BTreeSet<ClusterId> = others.map(|node| network.cluster_of(*node)).collect();
        let to = Destinations::Sites(sites.iter().copied().collect());
        let job = Job {
            beside_sources: true,
            ..Job::new(size, block, with(Role::Source), to)
        };
        let sources: Vec<NodeId> = with(Role::Source).collect();
        for site in sites {
            leave_room_inside(&mut network, site, &receivers, &relays);
        }
        hold_back_at_home(&mut network, &sources, &receivers, &relays);
        if options.separation.is_some() {
            leave_room_for_headers(&mut network);
        }
        let plan = setup.plan.as_deref().filter(|_| by_plan);
        let watch = plan.map(|plan| Watch::new(now, plan, setup.block_bytes));
        let mut controller = Controller::new(network, config).ok()?;
        let id = controller.submit(now, job.clone()).ok()?.job;
        Some(Self {
            controller,
            job,
            id,
            me: setup.me,
            held: vec![BlockSet::new(setup.have.len()); nodes.len()],
            wants: vec![BlockSet::full(setup.have.len()); nodes.len()],
            most: 0.0,
            came: None,
            nodes,
            watch,
            present: BTreeSet::new(),
            coming: VecDeque::new(),
            done: Vec::new(),
            asks: Vec::new(),
            hurry: None,
            shared: BTreeMap::new(),
            deposed: false,
        })
    }

    pub(super) fn epoch(&self) -> u64 {
        self.controller.config().epoch
    }

    /// Whether another leader has taken over.
    pub(super) const fn is_deposed(&self) -> bool {
        self.deposed
    }

    /// Whether no orders are given, as all goes by the plan.
    pub(super) const fn goes_by_plan(&self) -> bool {
        self.watch.is_some()
    }

    /// From now on orders are given.
    pub(super) fn end_plan(&mut self) {
        self.watch = None;
    }

    fn node(&self, member: NodeId) -> NodeId {
        self.nodes[member.index()]
    }

    fn member(&self, node: NodeId) -> Option<NodeId> {
        let at = self.nodes.iter().position(|other| *other == node)?;
        Some(NodeId(at as u32))
    }

    /// Tells the controller something; what it does not accept is old.
    fn tell(&mut self, input: Input) {
        if let Err(outpour_controller::InputError::Deposed { .. }) = self.controller.handle(input) {
            self.deposed = true;
        }
    }

    pub(super) fn went(&mut self, member: NodeId) {
        let node = self.node(member);
        self.present.remove(&member);
        self.tell(Input::Left { node });
    }

    /// A member was lost: if all was done, it may have been the only one of its site to have something.
    pub(super) fn lost(&mut self, now: Time, member: NodeId) {
        self.went(member);
        let site = self.site(member);
        if self.controller.jobs().next().is_none() && self.site_lacks(site) {
            self.begin_again(now);
        }
    }

    fn is_source(&self, member: NodeId) -> bool {
        let node = self.node(member);
        self.job.sources.iter().any(|source| source.node == node)
    }

    fn site(&self, member: NodeId) -> ClusterId {
        self.controller.network().cluster_of(self.node(member))
    }

    /// Whether those of a site that are there, but for sources, want something that none of them has.
    fn site_lacks(&self, site: ClusterId) -> bool {
        let here = |member: &&NodeId| self.site(**member) == site && !self.is_source(**member);
        let mut all: Option<(BlockSet, BlockSet)> = None;
        for member in self.present.iter().filter(here) {
            let (held, wanted) = (&self.held[member.index()], &self.wants[member.index()]);
            match &mut all {
                Some((all, of)) => {
                    all.union(held);
                    of.union(wanted);
                }
                None => all = Some((held.clone(), wanted.clone())),
            }
        }
        all.is_some_and(|(all, of)| !of.is_subset(&all))
    }

    /// Whether a member wants something that it is not known to have.
    fn lacks(&self, member: NodeId) -> bool {
        !self.wants[member.index()].is_subset(&self.held[member.index()])
    }

    /// Tells the controller what a member wants.
    fn tell_wants(&mut self, member: NodeId) {
        let (node, job) = (self.node(member), self.id);
        let runs = self.wants[member.index()].ranges().collect();
        let blocks = Blocks { job, runs };
        self.tell(Input::Wants { node, blocks });
    }

    /// A member reports; `gained` is what it has, or has got.
    pub(super) fn report(
        &mut self,
        now: Time,
        from: NodeId,
        report: &Report,
        gained: &BlockSet,
        want: BlockSet,
    ) {
        let (node, epoch) = (self.node(from), report.epoch);
        if epoch < self.epoch() {
            return;
        }
        let held = &mut self.held[from.index()];
        if report.whole {
            *held = gained.clone();
        } else {
            held.union(gained);
        }
        if report.whole && epoch == self.epoch() {
            self.present.insert(from);
            self.tell(Input::Came { node });
            if !want.is_full() && !self.is_source(from) {
                self.end_plan();
            }
            let wants = &mut self.wants[from.index()];
            let told = wants.is_full() && want.is_full();
            *wants = want;
            if !told {
                self.tell_wants(from);
            }
            if from != self.me {
                self.came.get_or_insert(now);
            }
            let each = HURRY_AFTER_EACH * self.nodes.len() as u32;
            self.hurry_by(now + HURRY_AFTER.max(each));
            if self.controller.jobs().next().is_none() {
                if self.site_lacks(self.site(from)) {
                    return self.begin_again(now);
                }
                self.done.push(from);
            }
        }
        let runs = gained.ranges().collect();
        let job = self.id;
        let gained = vec![Blocks { job, runs }];
        let (seq, whole, lost) = (report.seq, report.whole, Vec::new());
        self.tell(Input::Report {
            node,
            report: outpour_controller::Report {
                epoch,
                seq,
                whole,
                gained,
                lost,
            },
        });
        for lost in &report.severed {
            let (node, by) = (self.node(*lost), self.node(from));
            self.tell(Input::Severed { node, by });
        }
        for lane in &report.achieved {
            let (from, to) = (self.node(from), self.node(lane.to));
            let (rate, ordered) = (lane.rate, lane.ordered);
            self.tell(Input::Achieved {
                from,
                to,
                rate,
                ordered,
            });
        }
    }

    /// What was measured of latency-sensitive traffic; on all other links there is none.
    pub(super) fn measured(&mut self, now: Time, traffic: &[Traffic]) {
        let of = |it: &Traffic| (Resource::Link(it.from, it.to), (it.rate, it.peak));
        let measured: BTreeMap<Resource, (Rate, Rate)> = traffic.iter().map(of).collect();
        let rates = measured
            .iter()
            .map(|(resource, (rate, _))| (*resource, *rate));
        let before = std::mem::replace(&mut self.shared, rates.collect());
        let is_over = |resource: &&Resource| !measured.contains_key(*resource);
        let over = before.keys().filter(is_over);
        let over = over.map(|resource| (*resource, (Rate::ZERO, Rate::ZERO)));
        for (resource, (rate, peak)) in over.chain(measured.clone()) {
            self.tell(Input::Foreground {
                resource,
                rate,
                peak,
            });
        }
        let network = self.controller.network();
        let more = measured.iter().any(|(resource, (rate, _))| {
            let was = before.get(resource).copied().unwrap_or(Rate::ZERO);
            let all = network.capacity(*resource).bytes_per_s();
            rate.bytes_per_s() - was.bytes_per_s() > all * MUCH_MORE
        });
        if more {
            self.hurry_by(now);
        }
    }

    /// A node has lost blocks after all had everything: all are asked what they have.
    fn begin_again(&mut self, now: Time) {
        if let Ok(admitted) = self.controller.submit(now, self.job.clone()) {
            self.id = admitted.job;
            let members = (0..self.nodes.len() as u32).map(NodeId);
            let some = members.filter(|member| !self.wants[member.index()].is_full());
            let some: Vec<NodeId> = some.collect();
            some.into_iter().for_each(|member| self.tell_wants(member));
            self.asks = (0..self.nodes.len() as u32).map(NodeId).collect();
        }
    }

    /// While all goes by the plan: empty orders, if it is time; `None` once it has ended.
    fn watch(&mut self, now: Time) -> Option<Vec<Order>> {
        let watch = self.watch.as_mut()?;
        if now < watch.next {
            return Some(Vec::new());
        }
        watch.next = now + self.controller.config().cycle;
        let blocks = self.held.first().map_or(0, BlockSet::len);
        let held = (0..self.held.len()).map(|index| {
            let there = self.present.contains(&NodeId(index as u32));
            there.then(|| self.held[index].count())
        });
        if watch.is_behind(now, held.collect(), blocks) {
            self.end_plan();
            return None;
        }
        Some(self.unchanged(|_| false))
    }

    /// Decides if it is time; the orders that take effect now.
    pub(super) fn decide(&mut self, now: Time) -> Vec<Order> {
        if let Some(orders) = self.watch(now) {
            self.done.clear();
            return orders;
        }
        if self.hurry.is_some_and(|at| at <= now) {
            self.hurry = None;
            self.controller.hurry();
        }
        // At most one decision a call: the next is for later. Only at first ...
        let at_first = self.begins(now) && self.all_came_with_nothing();
        if !self.deposed && self.controller.due_at().is_some_and(|due| due <= now) {
            let from = self.decide_once(now);
            if at_first {
                self.look_ahead(now, from);
            }
        }
        // ... orders go out before they take effect: what is not there yet is waited for where it is to be sent.
        let until = match at_first {
            true => now + self.controller.config().cycle,
            false => now,
        };
        let done = std::mem::take(&mut self.done).into_iter();
        let mut orders: Vec<Order> = done.map(|to| (to, true, Vec::new())).collect();
        while self
            .coming
            .front()
            .is_some_and(|decision| decision.from <= until)
        {
            let Some(decision) = self.coming.pop_front() else {
                break;
            };
            let told = |node: NodeId| decision.orders.iter().any(|order| order.to == node);
            orders.extend(self.unchanged(told));
            for order in decision.orders {
                let Some(to) = self.member(order.to) else {
                    continue;
                };
                let changes = order.changes.into_iter().filter_map(|change| {
                    let peer = self.member(change.to())?;
                    Some(change.towards(peer))
                });
                orders.push((to, order.whole, changes.collect()));
            }
        }
        orders
    }

    /// Makes a decision, which waits until it takes effect; when that is.
    fn decide_once(&mut self, now: Time) -> Time {
        let decision = self.controller.decide(now);
        let asks = decision.asks.iter().filter_map(|node| self.member(*node));
        let asks: Vec<NodeId> = asks.collect();
        self.asks.extend(asks);
        self.shorten(now, &decision);
        let from = decision.from;
        self.coming.push_back(decision);
        from
    }

    /// Decides a whole cycle ahead, in parts that rest on what is due by the end of those before them: each hop
    /// of the first blocks would else wait for reports, a decision and orders, half a second over the
    /// wide area. `from` is when the last decision takes effect.
    fn look_ahead(&mut self, now: Time, mut from: Time) {
        let cycle = self.controller.config().cycle;
        for _ in 0..EDGE_PARTS {
            if from >= now + cycle {
                break;
            }
            self.controller.end_cycle_at(from + cycle / EDGE_PARTS);
            from = self.decide_once(now);
        }
    }

    /// Whether the first members came so recently that few have blocks to pass on.
    fn begins(&self, now: Time) -> bool {
        let few = self.controller.config().cycle * EDGE_CYCLES;
        self.came.is_some_and(|came| now < came + few)
    }

    /// Whether all members are there, and none abroad is known to have anything but a source; and there are
    /// several sites abroad, as one passes nothing on to others.
    fn all_came_with_nothing(&self) -> bool {
        let home = self.site(self.me);
        let receives = |member: &&NodeId| self.site(**member) != home && !self.is_source(**member);
        let abroad: Vec<NodeId> = self.present.iter().filter(receives).copied().collect();
        let sites: BTreeSet<ClusterId> = abroad.iter().map(|member| self.site(*member)).collect();
        self.present.len() == self.nodes.len()
            && sites.len() > 1
            && abroad
                .iter()
                .all(|member| self.held[member.index()].is_empty())
    }

    /// Empty orders for members that lack something and of whose lanes nothing changes, and for sources
    /// as long as there are such members: they have to hear that somebody leads.
    fn unchanged(&self, told: impl Fn(NodeId) -> bool) -> Vec<Order> {
        let there = || self.present.iter().filter(|member| **member != self.me);
        if !there().any(|member| self.lacks(*member)) {
            return Vec::new();
        }
        let unchanged = there().filter(|member| {
            let node = self.node(**member);
            (self.lacks(**member) || self.is_source(**member)) && !told(node)
        });
        unchanged
            .map(|member| (*member, false, Vec::new()))
            .collect()
    }

    /// Lets a cycle end early where blocks should be passed on sooner than in a cycle: at first, when
    /// few nodes have any, and when what is left takes hardly more than two.
    fn shorten(&mut self, now: Time, decision: &Decision) {
        self.most = self.most.max(decision.planned_bytes);
        let left = self.controller.lacking(self.id).unwrap_or(0) as f64;
        let left = left * self.job.block.as_f64();
        let cycle = self.controller.config().cycle;
        if left > 0.0 && (self.begins(now) || left < f64::from(EDGE_CYCLES) * self.most) {
            self.hurry_by(decision.from.max(now) + cycle / EDGE_PARTS);
        }
    }

    /// Decides at this time, if nothing has it do so before.
    fn hurry_by(&mut self, at: Time) {
        self.hurry = Some(self.hurry.map_or(at, |before| before.min(at)));
    }

    /// Members that are to say what they have.
    pub(super) fn take_asks(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.asks)
    }

    /// When to look again.
    pub(super) fn wake_at(&self) -> Option<Time> {
        if let Some(watch) = &self.watch {
            let lacking = self.present.iter().any(|member| self.lacks(*member));
            return lacking.then_some(watch.next);
        }
        let effect = self.coming.front().map(|decision| decision.from);
        let times = [effect, self.hurry, self.controller.due_at()];
        times.into_iter().flatten().min()
    }
}

/// Takes down what members of a site can take in and send by order, as each byte is to reach all of them:
/// each has to take in what comes to the others too, and to pass on to them what comes to it, which of
/// what it can send leaves it as much as it may take in.
fn leave_room_inside(
    network: &mut Network,
    site: ClusterId,
    receivers: &[NodeId],
    relays: &[NodeId],
) {
    let here = |nodes: &[NodeId]| -> Vec<NodeId> {
        let here = nodes
            .iter()
            .filter(|node| network.cluster_of(**node) == site);
        here.copied().collect()
    };
    let (receivers, relays) = (here(receivers), here(relays));
    let members: Vec<NodeId> = receivers.iter().chain(&relays).copied().collect();
    let [first, second, ..] = members[..] else {
        return;
    };
    if receivers.is_empty() {
        // They pass nothing on inside.
        return;
    }
    let cards = network
        .path(first, second)
        .resources()
        .contains(&Resource::NodeOut(first));
    if !cards {
        // They have a network of their own.
        return;
    }
    let into = receivers
        .iter()
        .map(|node| network.capacity(Resource::NodeIn(*node)));
    let slowest = into.fold(
        Rate::UNLIMITED,
        |least, rate| if rate < least { rate } else { least },
    );
    lower(network, Resource::ClusterIn(site), slowest);
    for node in members {
        // Itself, and those to which it passes on.
        let count = (receivers.len() + usize::from(relays.contains(&node))) as f64;
        if count < 2.0 {
            continue;
        }
        let out = network.capacity(Resource::NodeOut(node)).bytes_per_s();
        let rate = Rate::from_bytes_per_s(out / count).unwrap_or(Rate::UNLIMITED);
        lower(network, Resource::NodeIn(node), rate);
        lower(network, Resource::NodeOut(node), rate);
    }
}

fn lower(network: &mut Network, resource: Resource, rate: Rate) {
    if rate < network.capacity(resource) {
        network.apply(&NetworkChange::Capacity { resource, rate });
    }
}

/// Rates of lanes count blocks, what links carry counts packets.
fn leave_room_for_headers(network: &mut Network) {
    let sites = || (0..network.clusters().len() as u32).map(ClusterId);
    let links = sites().flat_map(|from| sites().map(move |to| (from, to)));
    let links = links.filter(|(from, to)| from != to);
    let links = links.map(|(from, to)| Resource::Link(from, to));
    let ends = sites().flat_map(|it| [Resource::ClusterOut(it), Resource::ClusterIn(it)]);
    let wide: Vec<Resource> = links.chain(ends).collect();
    for resource in wide {
        let all = network.capacity(resource).bytes_per_s();
        let rate = Rate::from_bytes_per_s(all * BLOCKS_SHARE).unwrap_or(Rate::UNLIMITED);
        lower(network, resource, rate);
    }
}

/// Takes down what the receivers in sources' sites take in, as they would slow down what sources send
/// abroad: they need not be faster than the fastest other site, nor take more than half of what is left.
fn hold_back_at_home(
    network: &mut Network,
    sources: &[NodeId],
    receivers: &[NodeId],
    relays: &[NodeId],
) {
    let sites = |network: &Network, nodes: &[NodeId]| -> BTreeSet<ClusterId> {
        nodes.iter().map(|node| network.cluster_of(*node)).collect()
    };
    let homes = sites(network, sources);
    let abroad: Vec<ClusterId> = sites(network, receivers)
        .difference(&homes)
        .copied()
        .collect();
    let rate = |network: &Network, resource| network.capacity(resource).bytes_per_s();
    let all = 0..network.clusters().len() as u32;
    let intake = |to: ClusterId| {
        let from = all.clone().map(ClusterId).filter(|from| *from != to);
        let links = from.map(|from| rate(network, Resource::Link(from, to)));
        let most = rate(network, Resource::ClusterIn(to));
        links.sum::<f64>().min(most)
    };
    let fastest = abroad.iter().map(|to| intake(*to)).fold(0.0, f64::max);
    if abroad.is_empty() {
        return;
    }
    for home in homes {
        let at_home = |node: &&NodeId| network.cluster_of(**node) == home;
        if !receivers.iter().any(|node| at_home(&node)) {
            // What relays are brought goes abroad.
            continue;
        }
        let mates = receivers.iter().chain(relays).filter(at_home);
        let mates: Vec<NodeId> = mates.copied().collect();
        let mine = sources.iter().filter(at_home);
        let out: f64 = mine
            .map(|node| rate(network, Resource::NodeOut(*node)))
            .sum();
        let links = abroad
            .iter()
            .map(|to| rate(network, Resource::Link(home, *to)));
        let left = out - links.sum::<f64>();
        // No number where both are without limit.
        let most = if left.is_nan() {
            f64::INFINITY
        } else {
            fastest.max(left / 2.0)
        };
        let share = Rate::from_bytes_per_s(most / mates.len().max(1) as f64);
        for node in mates {
            let share = share.unwrap_or(Rate::UNLIMITED);
            lower(network, Resource::NodeIn(node), share);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Member;

    const BLOCKS: u32 = 64;

    /// A source and a receiver at one site, and two receivers at another.
    fn leading() -> Leading {
        let text = "[[cluster]]\nname = \"a\"\nnodes = 2\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n\
                    [[cluster]]\nname = \"b\"\nnodes = 2\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n\
                    [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"4 MB/s\"\ndelay = \"40 ms\"\n";
        let options = CentralOptions {
            network: text.into(),
            nodes: (0..4).map(NodeId).collect(),
            cycle_ms: 0,
            separation: None,
        };
        let member = |node: u32| Member {
            cluster: node / 2,
            role: Role::source_if(node == 0),
        };
        let setup = Setup {
            me: NodeId(0),
            members: (0..4).map(member).collect(),
            block_bytes: 1 << 15,
            have: BlockSet::full(BLOCKS),
            want: BlockSet::full(BLOCKS),
            seed: 1,
            plan: None,
            batches: None,
        };
        Leading::new(Time::ZERO, 1, &options, &setup, false).unwrap()
    }

    #[test]
    fn what_the_first_blocks_make_possible_is_ordered_with_them() {
        // A source, and two receivers that get little from it and much from each other.
        let text = "[[cluster]]\nname = \"a\"\nnodes = 1\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
                    [[cluster]]\nname = \"c\"\nnodes = 1\n\
                    [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"4 MB/s\"\ndelay = \"40 ms\"\n";
        let orders = |late: bool| {
            let options = CentralOptions {
                network: text.into(),
                nodes: (0..3).map(NodeId).collect(),
                cycle_ms: 0,
                separation: None,
            };
            let member = |node: u32| Member {
                cluster: node,
                role: Role::source_if(node == 0),
            };
            let setup = Setup {
                me: NodeId(0),
                members: (0..3).map(member).collect(),
                block_bytes: 1 << 15,
                have: BlockSet::full(8 * BLOCKS),
                want: BlockSet::full(8 * BLOCKS),
                seed: 1,
                plan: None,
                batches: None,
            };
            let mut leading = Leading::new(Time::ZERO, 1, &options, &setup, false).unwrap();
            for node in 0..if late { 2 } else { 3 } {
                comes(&mut leading, Time::ZERO, node);
            }
            let mut lanes: BTreeSet<(u32, u32)> = BTreeSet::new();
            for (from, _, changes) in leading.decide(Time::ZERO) {
                lanes.extend(changes.iter().map(|change| (from.0, change.to().0)));
            }
            lanes
        };
        let all = [(0, 1), (0, 2), (1, 2), (2, 1)];
        assert_eq!(orders(false), all.into_iter().collect());
        let one = [(0, 1)];
        assert_eq!(orders(true), one.into_iter().collect(), "one is missing");
    }

    fn comes(leading: &mut Leading, now: Time, node: u32) {
        let blocks = leading.held[0].len();
        let has = match node {
            0 => BlockSet::full(blocks),
            _ => BlockSet::new(blocks),
        };
        let report = Report {
            epoch: 1,
            seq: 1,
            whole: true,
            gained: has.to_wire(),
            want: None,
            achieved: Vec::new(),
            severed: Vec::new(),
        };
        leading.report(now, NodeId(node), &report, &has, BlockSet::full(blocks));
    }

    #[test]
    fn a_node_that_comes_a_little_later_is_heeded_as_soon() {
        let mut leading = leading();
        let (mut now, mut told) = (Time::ZERO, Vec::new());
        comes(&mut leading, now, 0);
        comes(&mut leading, now, 1);
        let late = Time::ZERO + Duration::from_millis(45);
        let mut due = vec![(late, 2)];
        while now < Time::from_secs_f64(0.2) {
            while let Some((at, node)) = due.first().copied().filter(|(at, _)| *at <= now) {
                due.remove(0);
                comes(&mut leading, at, node);
            }
            for (_, _, changes) in leading.decide(now) {
                let to = changes.iter().map(Change::to);
                told.extend(to.map(|to| (now, to)));
            }
            let next = due.first().map(|(at, _)| *at);
            let wakes = leading.wake_at().into_iter().chain(next);
            now = wakes.min().unwrap().max(now + Duration::from_micros(1));
        }
        let first = |node: u32| told.iter().find(|(_, to)| *to == NodeId(node)).unwrap().0;
        let within = |node: u32, since: Time| {
            let after = first(node).since(since);
            assert!(after <= Duration::from_millis(25), "{node} after {after:?}");
        };
        within(1, Time::ZERO);
        within(2, late);
    }
}
