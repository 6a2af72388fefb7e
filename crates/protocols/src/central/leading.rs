//! What the node does that leads: it hosts the controller, and knows its servers as members.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use outpour_controller::{
    Blocks, Change, Config, Controller, Decision, Destinations, Input, Job, JobId, Separation,
};
use outpour_core::{BlockSet, Bytes, NodeId, Time};

use super::{CentralOptions, Report};
use crate::{Role, Setup};

/// Nodes that come are heeded this long after the first of them: together, and soon.
const HURRY_AFTER: Duration = Duration::from_millis(100);

/// At the beginning and at the end, for so many cycles, so many decisions are made in each.
const EDGE_CYCLES: u32 = 2;
const EDGE_PARTS: u32 = 4;

/// Changes of a member's lanes, and whether all earlier ones are forgotten.
pub(super) type Order = (NodeId, bool, Vec<Change>);

/// See the module.
#[derive(Debug)]
pub(super) struct Leading {
    controller: Controller,
    job: Job,
    id: JobId,
    me: NodeId,
    blocks: u32,
    /// The most that was planned for a cycle, in bytes.
    most: f64,
    /// When the first member came.
    came: Option<Time>,
    /// The node of each member in the network.
    nodes: Vec<NodeId>,
    /// Members that can be reached.
    present: BTreeSet<NodeId>,
    /// Decisions that are still to take effect, in order.
    coming: VecDeque<Decision>,
    /// Members that came when all was done: what they were ordered before is to be forgotten.
    done: Vec<NodeId>,
    /// Members whose reports are missing.
    asks: Vec<NodeId>,
    /// When nodes that came are to be heeded.
    hurry: Option<Time>,
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
    ) -> Option<Self> {
        let network = options.network()?;
        let nodes = options.nodes.clone();
        if nodes.len() != setup.members.len() {
            return None;
        }
        let config = Config {
            epoch,
            cycle: options.cycle(),
            // Nothing else is known to use the links; what does is found by what lanes achieve.
            separation: Separation::Threshold { percent: 100.0 },
            ..Config::default()
        };
        let block = Bytes(u64::from(setup.block_bytes));
        let size = Bytes(block.0 * u64::from(setup.have.len()));
        let with = |role: Role| {
            let members = setup.members.iter().zip(&nodes);
            let those = members.filter(move |(member, _)| member.role == role);
            those.map(|(_, node)| *node)
        };
        let to = Destinations::Nodes(with(Role::Receiver).collect());
        let job = Job::new(size, block, with(Role::Source), to);
        let mut controller = Controller::new(network, config).ok()?;
        let id = controller.submit(now, job.clone()).ok()?.job;
        Some(Self {
            controller,
            job,
            id,
            me: setup.me,
            blocks: setup.have.len(),
            most: 0.0,
            came: None,
            nodes,
            present: BTreeSet::new(),
            coming: VecDeque::new(),
            done: Vec::new(),
            asks: Vec::new(),
            hurry: None,
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

    /// A member reports; `gained` is what it has, or has got.
    pub(super) fn report(&mut self, now: Time, from: NodeId, report: &Report, gained: &BlockSet) {
        let (node, epoch) = (self.node(from), report.epoch);
        if epoch < self.epoch() {
            return;
        }
        if report.whole && epoch == self.epoch() {
            self.present.insert(from);
            self.tell(Input::Came { node });
            if from != self.me {
                self.came.get_or_insert(now);
            }
            self.hurry.get_or_insert(now + HURRY_AFTER);
            if self.controller.jobs().next().is_none() {
                if !gained.is_full() {
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

    /// A node has lost blocks after all had everything: all are asked what they have.
    fn begin_again(&mut self, now: Time) {
        if let Ok(admitted) = self.controller.submit(now, self.job.clone()) {
            self.id = admitted.job;
            self.asks = (0..self.nodes.len() as u32).map(NodeId).collect();
        }
    }

    /// Decides if it is time; the orders that take effect now.
    pub(super) fn decide(&mut self, now: Time) -> Vec<Order> {
        if self.hurry.is_some_and(|at| at <= now) {
            self.hurry = None;
            self.controller.hurry();
        }
        // At most one decision a call: the next is for later.
        if !self.deposed && self.controller.due_at().is_some_and(|due| due <= now) {
            let decision = self.controller.decide(now);
            let asks = decision.asks.iter().filter_map(|node| self.member(*node));
            let asks: Vec<NodeId> = asks.collect();
            self.asks.extend(asks);
            self.shorten(now, &decision);
            self.coming.push_back(decision);
        }
        let done = std::mem::take(&mut self.done).into_iter();
        let mut orders: Vec<Order> = done.map(|to| (to, true, Vec::new())).collect();
        while self
            .coming
            .front()
            .is_some_and(|decision| decision.from <= now)
        {
            let Some(decision) = self.coming.pop_front() else {
                break;
            };
            orders.extend(self.unchanged(&decision));
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

    /// Empty orders for members that lack something and of whose lanes nothing changes, and for sources
    /// as long as there are such members: they have to hear that somebody leads.
    fn unchanged(&self, decision: &Decision) -> Vec<Order> {
        let told = |node: NodeId| decision.orders.iter().any(|order| order.to == node);
        let lacks = |node: NodeId| {
            let held = self.controller.held(self.id, node);
            held.is_some_and(|held| held < u64::from(self.blocks))
        };
        let is_source = |node: NodeId| self.job.sources.iter().any(|it| it.node == node);
        let there = || self.present.iter().filter(|member| **member != self.me);
        if !there().any(|member| lacks(self.node(*member))) {
            return Vec::new();
        }
        let unchanged = there().filter(|member| {
            let node = self.node(**member);
            (lacks(node) || is_source(node)) && !told(node)
        });
        unchanged
            .map(|member| (*member, false, Vec::new()))
            .collect()
    }

    /// Lets a cycle end early where blocks should be passed on sooner than in a cycle: at first, when
    /// few nodes have any, and when what is left takes hardly more than two.
    fn shorten(&mut self, now: Time, decision: &Decision) {
        self.most = self.most.max(decision.planned_bytes);
        let lacks = |node: &NodeId| {
            let held = self.controller.held(self.id, *node)?;
            Some(u64::from(self.blocks).saturating_sub(held) as f64)
        };
        let Destinations::Nodes(receivers) = &self.job.destinations else {
            return;
        };
        let left: f64 = receivers.iter().filter_map(lacks).sum();
        let left = left * self.job.block.as_f64();
        let cycle = self.controller.config().cycle;
        let begins = self
            .came
            .is_some_and(|came| now < came + cycle * EDGE_CYCLES);
        if left > 0.0 && (begins || left < f64::from(EDGE_CYCLES) * self.most) {
            let at = decision.from.max(now) + cycle / EDGE_PARTS;
            self.hurry = Some(self.hurry.map_or(at, |before| before.min(at)));
        }
    }

    /// Members that are to say what they have.
    pub(super) fn take_asks(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.asks)
    }

    /// When to look again.
    pub(super) fn wake_at(&self) -> Option<Time> {
        let effect = self.coming.front().map(|decision| decision.from);
        let times = [effect, self.hurry, self.controller.due_at()];
        times.into_iter().flatten().min()
    }
}
