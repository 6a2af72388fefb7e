//! Everything about one random run, drawn from its seed.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::network::{Change, Cluster, ClusterId, LinkRule, Members, Network, Resource};
use outpour_core::plan::{Plan, Tree};
use outpour_core::script::Script;
use outpour_core::{Batches, BlockSet, Bytes, NodeId, Rate, Time};
use outpour_planner::multicast::{self, Method};
use outpour_protocols::registry::{ENTRIES, EncodedOptions, Entry, PlanFrom};
use outpour_protocols::{Member, Role, gossip};
use outpour_terms::Terms;

use super::loss::Loss;
use crate::dice::{Dice, mix};
use crate::fault::{Fault, FaultKind};
use crate::object::Object;
use crate::pacer::RateOrder;
use crate::world::Scenario;

/// How many nodes take part at most.
const NODES_MAX: u64 = 8;
/// How many where each has a disk that is simulated as well.
const FEW_NODES_MAX: u64 = 5;
const CLUSTERS_MAX: u64 = 3;
/// How many blocks the object has at most.
pub const BLOCKS_MAX: u64 = 64;
/// How many faults there are at most.
pub const FAULTS_MAX: u64 = 5;
/// How long a fault lasts at most that does not last for good.
pub(super) const FAULT_MAX: Duration = Duration::from_secs(30);
pub(super) const FAULT_MIN: Duration = Duration::from_millis(10);
/// A coordinator is no less patient than this, which is longer than any fault that passes.
const PATIENCE_MIN: Duration = Duration::from_secs(60);
/// The lowest of the drawn rates, in bytes per second, and how many times that the highest is.
pub(super) const RATE_MIN: f64 = 1e6;
pub(super) const RATE_SPREAD: f64 = 50.0;
/// Bytes of blocks that cores code in a second, in every other case: so slowly that work piles up
/// and faults strike in the middle of it. In the others coding takes no time.
const SLOW_CODING_BYTES_PER_S: f64 = 50e6;

/// One random run.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it was drawn from.
    pub seed: u64,
    /// The network, all of whose nodes take part.
    pub network: Network,
    /// The protocol.
    pub protocol: &'static Entry,
    /// What is moved.
    pub object: Object,
    /// Which nodes are sources.
    pub sources: Vec<bool>,
    /// What each node has from the start.
    pub have: Vec<BlockSet>,
    /// What each node is to get.
    pub want: Vec<Want>,
    /// When each node's part begins.
    pub starts: Vec<Time>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Which nodes are lost for good, in the cases that are about that.
    pub loss: Option<Loss>,
    /// What changes about the network, besides.
    pub script: Option<Script>,
    /// What nodes are told about rates towards their peers.
    pub orders: Vec<RateOrder>,
    /// The plan, if the protocol executes one: a planner's, perhaps for another network, or any.
    pub plan: Option<Arc<Plan>>,
    /// How blocks are grouped, if the protocol codes.
    pub batches: Option<Batches>,
    /// What the protocol is told.
    pub options: EncodedOptions,
    /// Whether a coordinator runs the transfer.
    pub attended: bool,
    /// The lowest capacity anywhere but during faults.
    pub rate_min: Rate,
    /// The session that it is of its hosts, the first or the second.
    pub session: u8,
    /// The session's weight, and what it changes to when.
    pub weight: u32,
    /// See there.
    pub shares: Vec<(Time, u32)>,
    /// Another transfer at the same time, in the cases that have two.
    pub beside: Option<Box<Self>>,
}

impl Case {
    /// Draws a case; with `protocol`, of that one only.
    ///
    /// # Panics
    /// Never: the networks drawn are sound.
    pub fn draw(seed: u64, protocol: Option<&'static Entry>) -> Self {
        let mut case = Self::draw_alone(seed, protocol);
        case.draw_wants(&mut Dice::new(mix(seed, 5)));
        case.draw_rates(&mut Dice::new(mix(seed, 6)));
        case.draw_beside(&mut Dice::new(mix(seed, 7)));
        case
    }

    /// The same without wants, rates that change or another transfer beside it.
    ///
    /// # Panics
    /// Never: the networks drawn are sound.
    pub fn draw_alone(seed: u64, protocol: Option<&'static Entry>) -> Self {
        let mut dice = Dice::new(mix(seed, 2));
        let drawn = &ENTRIES[dice.below(ENTRIES.len() as u64) as usize];
        let network = beyond_cards(network(&mut dice, NODES_MAX), &mut Dice::new(mix(seed, 8)));
        let mut case = Self::draw_on(network, &mut dice, seed, protocol.unwrap_or(drawn));
        case.draw_loss();
        case
    }

    /// A transfer of a given object among few nodes, of which only sources have anything, with a coordinator.
    pub fn draw_of(seed: u64, protocol: Option<&'static Entry>, object: Object) -> Self {
        let mut dice = Dice::new(mix(seed, 2));
        let drawn = &ENTRIES[dice.below(ENTRIES.len() as u64) as usize];
        let network = network(&mut dice, FEW_NODES_MAX);
        let mut case = Self::draw_with(network, &mut dice, seed, protocol.unwrap_or(drawn), object);
        case.attended = true;
        for (have, source) in case.have.iter_mut().zip(&case.sources) {
            if !source {
                *have = BlockSet::new(object.blocks());
            }
        }
        case
    }

    /// The same with other draws of the protocols, and nothing that goes wrong or changes.
    pub fn undisturbed(&self, seed: u64) -> Self {
        Self {
            seed,
            faults: Vec::new(),
            script: None,
            ..self.clone()
        }
    }

    /// Draws a transfer on a network.
    pub(super) fn draw_on(
        network: Network,
        dice: &mut Dice,
        seed: u64,
        protocol: &'static Entry,
    ) -> Self {
        let block = Bytes(1 << dice.between(14, 21));
        let blocks = dice.between(1, BLOCKS_MAX);
        let size = Bytes(blocks * block.0 - dice.below(block.0));
        let object = Object::new(size, block, mix(seed, 3)).expect("few blocks of a few MiB");
        Self::draw_with(network, dice, seed, protocol, object)
    }

    fn draw_with(
        network: Network,
        dice: &mut Dice,
        seed: u64,
        protocol: &'static Entry,
        object: Object,
    ) -> Self {
        let count = network.node_count();
        let mut sources = vec![false; count as usize];
        sources[dice.below(u64::from(count)) as usize] = true;
        while dice.chance(0.3) {
            sources[dice.below(u64::from(count)) as usize] = true;
        }
        let have = sources
            .iter()
            .map(|source| possession(dice, *source, object))
            .collect();
        let late = if dice.chance(0.3) {
            Duration::from_secs(5)
        } else {
            FAULT_MIN
        };
        let starts = (0..count)
            .map(|_| Time::ZERO + late.mul_f64(dice.unit()))
            .collect();
        let mut case = Self {
            seed,
            network,
            protocol,
            object,
            sources,
            have,
            want: vec![Want::All; count as usize],
            starts,
            faults: Vec::new(),
            loss: None,
            script: None,
            orders: Vec::new(),
            plan: None,
            batches: None,
            options: EncodedOptions::default(),
            attended: false,
            rate_min: Rate::UNLIMITED,
            session: 0,
            weight: 1,
            shares: Vec::new(),
            beside: None,
        };
        case.rate_min = case.slowest();
        case.draw_faults(dice);
        case.attended = dice.chance(0.3);
        case.draw_more(&mut Dice::new(mix(seed, 4)));
        case
    }

    /// What the nodes have agreed on.
    fn terms(&self) -> Terms {
        let member = |(node, source): (NodeId, &bool)| Member {
            cluster: self.network.cluster_of(node).0,
            role: match self.want[node.index()] {
                Want::Nothing => Role::Relay,
                _ => Role::source_if(*source),
            },
        };
        let members = self.network.nodes().zip(&self.sources).map(member);
        let protocol = self.protocol.with(self.options.clone());
        let protocol = protocol.expect("no options but those it takes");
        Terms {
            plan: self.plan.clone(),
            ..Terms::new(protocol, members.collect(), self.seed)
        }
    }

    /// The run as the simulator takes it.
    pub fn scenario(&self) -> Scenario {
        Scenario {
            network: self.network.clone(),
            terms: self.terms(),
            have: self.have.clone(),
            want: self.want.clone(),
            starts: self.starts.clone(),
            object: self.object,
            batches: self.batches,
            timeline: self
                .script
                .as_ref()
                .and_then(|script| script.timeline(&self.network).ok()),
            orders: self.orders.clone(),
            faults: self.faults.clone(),
            patience: self.attended.then(|| self.patience()),
            checked: true,
            sink: None,
        }
    }

    /// Bytes of blocks that the core of a node codes in a second.
    pub fn coding_speed(&self) -> Rate {
        if self.seed % 2 == 1 {
            rate(SLOW_CODING_BYTES_PER_S)
        } else {
            Rate::UNLIMITED
        }
    }

    /// What it takes to make as many packets as there are blocks, and to decode them.
    pub(super) fn coding_time(&self) -> Duration {
        let Some(batches) = self.batches else {
            return Duration::ZERO;
        };
        let blocks = u64::from(self.object.blocks());
        let combined = u64::from(batches.size()) * u64::from(self.object.block_bytes());
        self.coding_speed().time_for(Bytes(2 * blocks * combined))
    }

    /// What it takes to move this object and the other one, if there are two.
    pub fn serial(&self) -> Duration {
        let beside = self.beside.as_ref().map(|other| other.alone());
        self.alone() + beside.unwrap_or_default()
    }

    /// What it takes to send the object to every node one after the other at the lowest rate, coded
    /// for each anew, and at the rate of the plan, which is kept even if the network could do more.
    fn alone(&self) -> Duration {
        let size = Bytes(u64::from(self.object.blocks()) * u64::from(self.object.block_bytes()));
        let planned = self
            .plan
            .as_ref()
            .map_or(Duration::ZERO, |plan| plan.throughput().time_for(size));
        let each = self.rate_min.time_for(size) + self.coding_time();
        each * self.network.node_count() + planned
    }

    /// How long a coordinator waits when no node gets anything.
    pub fn patience(&self) -> Duration {
        self.serial() + PATIENCE_MIN
    }

    fn slowest(&self) -> Rate {
        let mut least = Rate::UNLIMITED;
        for from in self.network.nodes() {
            for to in self.network.nodes() {
                for resource in self.network.path(from, to).resources() {
                    least = least.min(self.network.capacity(*resource));
                }
            }
        }
        // Where nothing is limited nothing takes long.
        if least.is_unlimited() {
            rate(RATE_MIN * RATE_SPREAD)
        } else {
            least
        }
    }

    fn draw_faults(&mut self, dice: &mut Dice) {
        // Most of them while the transfer is likely to be on.
        let size = u64::from(self.object.blocks()) * u64::from(self.object.block_bytes());
        let span = self.rate_min.time_for(Bytes(size)) * 2 + Duration::from_secs(1);
        for _ in 0..dice.below(FAULTS_MAX + 1) {
            let at = Time::ZERO + span.mul_f64(dice.unit());
            let kind = self.draw_kind(dice);
            let may_stay = match &kind {
                FaultKind::Crash { .. } | FaultKind::Stall { .. } => true,
                FaultKind::NodeRate { out, into, .. } => !out.is_zero() && !into.is_zero(),
                FaultKind::LinkRate { rate, .. } => !rate.is_zero(),
                _ => false,
            };
            let stays = may_stay && dice.chance(0.3);
            let lasts = (!stays).then(|| dice.duration(FAULT_MIN, FAULT_MAX));
            if stays {
                let rates = kind.capacities();
                rates
                    .iter()
                    .for_each(|(_, rate)| self.rate_min = self.rate_min.min(*rate));
            }
            self.faults.push(Fault { at, lasts, kind });
        }
    }

    fn draw_kind(&self, dice: &mut Dice) -> FaultKind {
        let count = u64::from(self.network.node_count());
        let node = NodeId(dice.below(count) as u32);
        let clusters = self.network.clusters().len() as u64;
        let mut some_rate = |low: f64| match dice.below(4) {
            0 => Rate::ZERO,
            _ => rate(low * dice.spread(RATE_SPREAD)),
        };
        let (first, second) = (some_rate(RATE_MIN / 5.0), some_rate(RATE_MIN / 5.0));
        match dice.below(9) {
            0 | 1 => FaultKind::Crash {
                node,
                unjournaled: Duration::from_millis(dice.below(2000)),
                silent: dice.chance(0.3),
            },
            2 | 3 => FaultKind::Stall { node },
            4 => FaultKind::NodeRate {
                node,
                out: first,
                into: second,
            },
            5 if clusters > 1 => {
                let from = dice.below(clusters);
                let to = (from + dice.between(1, clusters - 1)) % clusters;
                let (from, to) = (ClusterId(from as u32), ClusterId(to as u32));
                FaultKind::LinkRate {
                    from,
                    to,
                    rate: first,
                }
            }
            5 | 6 => FaultKind::MessageDelay {
                node,
                extra: dice.duration(Duration::from_millis(1), Duration::from_secs(3)),
            },
            // A source whose bytes are wrong is refused by those that saw it, so nothing could be
            // asked of them afterwards.
            7 if !self.sources[node.index()] => FaultKind::WrongBytes {
                node,
                share: 0.3,
                packets_only: false,
            },
            _ => {
                let other = (u64::from(node.0) + dice.between(1, count - 1)) % count;
                FaultKind::Partition {
                    one: node,
                    other: NodeId(other as u32),
                }
            }
        }
    }
}

/// What needs several clusters, and what only some protocols need.
impl Case {
    fn draw_more(&mut self, dice: &mut Dice) {
        let clusters = self.network.clusters().len() as u64;
        if clusters > 1 && dice.chance(0.15) {
            let cluster = ClusterId(dice.below(clusters) as u32);
            self.lose_cluster(dice, cluster);
        }
        if clusters > 1 && dice.chance(0.25) {
            self.draw_script(dice);
        }
        if self.begins_with_plan(dice) {
            self.plan = Some(Arc::new(self.draw_plan(dice)));
        }
        if let PlanFrom::Network { .. } = self.protocol.plan {
            let believed = self.believed(dice);
            self.describe(&believed);
        }
        self.draw_batches(dice, 1, BLOCKS_MAX);
    }

    /// Which node wants what, if the protocol asks.
    pub(super) fn draw_wants(&mut self, dice: &mut Dice) {
        let asks = self.protocol.selective && self.loss.is_none();
        if !asks || dice.chance(0.5) {
            return;
        }
        let blocks = self.object.blocks();
        for node in 0..self.sources.len() {
            let drawn = dice.below(4);
            let share = dice.unit();
            let mut some = BlockSet::new(blocks);
            (0..blocks)
                .filter(|_| dice.chance(share))
                .for_each(|block| {
                    some.insert(block);
                });
            self.want[node] = match drawn {
                _ if self.sources[node] => Want::All,
                0 => Want::Nothing,
                1 => Want::Blocks(some.to_wire()),
                2 => {
                    let first = dice.below(u64::from(blocks)) as u32;
                    let mut run = BlockSet::new(blocks);
                    run.insert_range(first..blocks);
                    Want::Blocks(run.to_wire())
                }
                _ => Want::All,
            };
        }
    }

    /// How blocks are grouped and moved, if the protocol codes.
    pub(super) fn draw_batches(&mut self, dice: &mut Dice, least: u64, most: u64) {
        if self.protocol.coding.is_none() {
            return;
        }
        let size = dice.between(least, most) as u16;
        self.batches = Batches::new(self.object.blocks(), size);
        let schedules = gossip::Schedule::ALL;
        let drawn = dice.below(2 * schedules.len() as u64) as usize;
        let options = EncodedOptions::of(&gossip::GossipOptions {
            schedule: *schedules.get(drawn).unwrap_or(&gossip::Schedule::Stream),
            slack: dice.below(3) as u32,
            ..gossip::GossipOptions::default()
        });
        if (self.protocol.takes)(&options) {
            self.options = options;
        }
    }

    /// All nodes of a cluster crash together, for good or for a while.
    fn lose_cluster(&mut self, dice: &mut Dice, cluster: ClusterId) {
        let size = u64::from(self.object.blocks()) * u64::from(self.object.block_bytes());
        let span = self.rate_min.time_for(Bytes(size)) + Duration::from_secs(1);
        let at = Time::ZERO + span.mul_f64(dice.unit());
        let silent = dice.chance(0.5);
        let lasts = dice
            .chance(0.5)
            .then(|| dice.duration(FAULT_MIN, FAULT_MAX));
        for node in self.network.nodes_of(cluster) {
            let unjournaled = Duration::from_millis(dice.below(2000));
            let kind = FaultKind::Crash {
                node,
                unjournaled,
                silent,
            };
            self.faults.push(Fault { at, lasts, kind });
        }
    }

    /// Links between clusters change their rate and delay every now and then, for ever.
    fn draw_script(&mut self, dice: &mut Dice) {
        let clusters = self.network.clusters().len() as u64;
        let mut text = String::from("forever\n");
        for _ in 0..dice.between(1, 4) {
            let from = dice.below(clusters);
            let to = (from + dice.between(1, clusters - 1)) % clusters;
            let new = rate(RATE_MIN * dice.spread(RATE_SPREAD)).bytes_per_s();
            self.rate_min = self.rate_min.min(rate(new));
            let (pause, delay) = (dice.between(100, 5000), dice.below(200));
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "sleep {pause} ms\nsetBandwidth c{from} c{to} {new} B/s\nsetDelay c{from} c{to} {delay} ms\n"
            );
        }
        self.script = Some(Script::parse(&text, "drawn").expect("drawn scripts are sound"));
    }

    /// Whether there is a plan: always where the protocol executes one, at times where it can do without.
    pub(super) fn begins_with_plan(&self, dice: &mut Dice) -> bool {
        let plan = self.protocol.plan;
        plan.is_made_before() || (plan.may_be_made_before() && dice.chance(0.5))
    }

    fn draw_plan(&self, dice: &mut Dice) -> Plan {
        let source = |node: &NodeId| self.sources[node.index()];
        let roots: Vec<NodeId> = self.network.nodes().filter(source).collect();
        let method = self.draw_method(dice);
        if dice.chance(0.3) {
            return any_plan(dice, roots, self.network.node_count());
        }
        let believed = self.believed(dice);
        multicast::plan(&believed, &roots, method)
            .expect("drawn networks are connected")
            .plan
    }

    /// The network as it is thought to be: as it is, or quite another.
    fn believed(&self, dice: &mut Dice) -> Network {
        let mut believed = self.network.clone();
        if dice.chance(0.3) {
            for node in believed.nodes() {
                for resource in [Resource::NodeOut(node), Resource::NodeIn(node)] {
                    let rate = rate(RATE_MIN * dice.spread(RATE_SPREAD));
                    believed.apply(&Change::Capacity { resource, rate });
                }
            }
        }
        believed
    }

    /// Tells a protocol about a network that plans itself.
    pub(super) fn describe(&mut self, network: &Network) {
        if let PlanFrom::Network { describe, .. } = self.protocol.plan {
            let nodes: Vec<NodeId> = network.nodes().collect();
            self.options = describe(network, &nodes, None);
        }
    }

    fn draw_method(&self, dice: &mut Dice) -> Method {
        match self.protocol.plan {
            PlanFrom::Method(name) => name.parse().unwrap_or(Method::Direct),
            _ => Method::ALL[dice.below(Method::ALL.len() as u64) as usize],
        }
    }

    /// A planner's plan for the network as it is, from its first node.
    pub(super) fn true_plan(&self, dice: &mut Dice) -> Plan {
        multicast::plan(&self.network, &[NodeId(0)], self.draw_method(dice))
            .expect("drawn networks are connected")
            .plan
    }
}

/// Trees of any shape at any rates.
fn any_plan(dice: &mut Dice, roots: Vec<NodeId>, nodes: u32) -> Plan {
    let mut trees = Vec::new();
    for _ in 0..dice.between(1, 5) {
        let mut reached = roots.clone();
        let mut edges = Vec::new();
        let mut left: Vec<NodeId> = (0..nodes)
            .map(NodeId)
            .filter(|node| !roots.contains(node))
            .collect();
        while !left.is_empty() {
            let to = left.swap_remove(dice.below(left.len() as u64) as usize);
            edges.push((reached[dice.below(reached.len() as u64) as usize], to));
            reached.push(to);
        }
        let rate = rate(RATE_MIN * dice.spread(RATE_SPREAD));
        trees.push(Tree { rate, edges });
    }
    Plan { roots, trees }
}

pub(super) fn rate(bytes_per_s: f64) -> Rate {
    Rate::from_bytes_per_s(bytes_per_s).expect("positive")
}

fn possession(dice: &mut Dice, source: bool, object: Object) -> BlockSet {
    if source {
        return BlockSet::full(object.blocks());
    }
    let mut have = BlockSet::new(object.blocks());
    if dice.chance(0.25) {
        // An interrupted transfer is resumed.
        let share = dice.unit();
        (0..object.blocks())
            .filter(|_| dice.chance(share))
            .for_each(|block| {
                have.insert(block);
            });
    }
    have
}

/// In some networks, some clusters have an interconnect, and hosts a limit.
fn beyond_cards(network: Network, dice: &mut Dice) -> Network {
    if dice.chance(0.7) {
        return network;
    }
    let mut clusters = network.clusters().to_vec();
    for cluster in &mut clusters {
        cluster.interconnect = dice.chance(0.5);
    }
    let network = Network::new(clusters, network.rules().to_vec());
    let network = network.expect("drawn networks are sound");
    if dice.chance(0.5) {
        network.limited(rate(RATE_MIN * dice.spread(RATE_SPREAD)))
    } else {
        network
    }
}

/// One to three clusters with two to eight nodes, joined by links of any rate and delay.
fn network(dice: &mut Dice, nodes_max: u64) -> Network {
    let nodes = dice.between(2, nodes_max);
    let clusters = dice.between(1, CLUSTERS_MAX.min(nodes));
    let some = |dice: &mut Dice, unlimited: f64| {
        if dice.chance(unlimited) {
            Rate::UNLIMITED
        } else {
            rate(RATE_MIN * dice.spread(RATE_SPREAD))
        }
    };
    let delay = |dice: &mut Dice| {
        if dice.chance(0.2) {
            Duration::ZERO
        } else {
            dice.duration(Duration::from_micros(50), Duration::from_millis(200))
        }
    };
    let mut left = nodes;
    let mut list = Vec::new();
    for index in 0..clusters {
        let others = clusters - index - 1;
        let members = if others == 0 {
            left
        } else {
            dice.between(1, left - others)
        };
        left -= members;
        let equal = some(dice, 0.1);
        list.push(Cluster {
            node_out: equal,
            node_in: if dice.chance(0.5) {
                equal
            } else {
                some(dice, 0.3)
            },
            cluster_out: some(dice, 0.5),
            cluster_in: some(dice, 0.5),
            local: some(dice, 0.8),
            local_delay: delay(dice),
            ..Cluster::new(format!("c{index}"), Members::Count(members as u32))
        });
    }
    let mut rules = Vec::new();
    for from in 0..clusters {
        for to in (0..clusters).filter(|to| *to != from) {
            rules.push(LinkRule {
                from: format!("c{from}"),
                to: format!("c{to}"),
                rate: Some(some(dice, 0.3)),
                delay: Some(delay(dice)),
                ..LinkRule::default()
            });
        }
    }
    Network::new(list, rules).expect("drawn networks are sound")
}
