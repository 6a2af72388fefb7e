//! Two transfers at once among the same hosts, as two sessions of their endpoints.
//!
//! They share the network and nothing else: each has its own nodes, connections, faults of nodes
//! and coordinator. One world leads: it has the wires, lends them to the other when something
//! happens there, and takes both through time. Which of the two leads makes no difference.
//!
//! A session's share is its weight: a flow of weight 4 is four equal flows that share a piece, so
//! that max-min fairness gives it four times as much where it competes.

use outpour_core::{NodeId, Time};

use super::{Happening, World};
use crate::flow::FlowId;

/// The route of a flow that is the other transfer's.
const OTHERS: (NodeId, NodeId) = (NodeId(u32::MAX), NodeId(u32::MAX));

/// What a session is among those of its hosts.
#[derive(Debug)]
pub(super) struct Session {
    /// Of what happens at the same time that of the lower number comes first.
    number: u8,
    /// How many flows one of its flows is made of.
    weight: u32,
}

impl Session {
    pub(super) const ALONE: Self = Self {
        number: 0,
        weight: 1,
    };
}

impl World {
    /// Makes this the first or second of two transfers, with a weight, and changes of it to come;
    /// to be said at the start.
    pub fn set_session(&mut self, number: u8, weight: u32, changes: &[(Time, u32)]) {
        debug_assert!(weight > 0);
        self.session = Session { number, weight };
        for &(at, weight) in changes {
            self.queue.push(at, Happening::Share { weight });
        }
    }

    /// Lets another transfer run at the same time on this one's network, from the start on.
    pub fn set_beside(&mut self, other: Self) {
        debug_assert!(self.session.number != other.session.number && other.beside.is_none());
        self.wires.expect_changes_of(&other.wires);
        self.beside = Some(Box::new(other));
    }

    /// The other transfer.
    pub fn beside(&self) -> Option<&Self> {
        self.beside.as_deref()
    }

    pub(super) fn time_beside(&self) -> Option<Time> {
        self.beside.as_ref()?.queue.next_time()
    }

    /// Lets something happen now, in either transfer.
    pub(super) fn step_both(&mut self) {
        let now = Some(self.now);
        if self.wires.flows.next_time() == now {
            let Some((_, flow)) = self.wires.flows.pop() else {
                return;
            };
            let route = self.routes.get(flow.0 as usize);
            if route.is_some_and(|route| *route != OTHERS) {
                self.on_transmitted(flow);
            } else {
                self.lend(|other| other.on_transmitted(flow));
            }
            return;
        }
        let number = |world: &Self| world.session.number;
        let is_first = self.beside().is_none_or(|it| number(self) < number(it));
        if self.queue.next_time() == now && (is_first || self.time_beside() != now) {
            if let Some((_, happening)) = self.queue.pop() {
                let delays = matches!(happening, Happening::Script);
                self.happen(happening);
                if delays {
                    self.lend(Self::refresh_all_delays);
                }
            }
            return;
        }
        let mut delays = false;
        self.lend(|other| {
            if let Some((_, happening)) = other.queue.pop() {
                delays = matches!(happening, Happening::Script);
                other.happen(happening);
            }
        });
        if delays {
            self.refresh_all_delays();
        }
    }

    /// Has the other transfer do something with the wires, now.
    pub(super) fn lend(&mut self, act: impl FnOnce(&mut Self)) {
        let Some(mut other) = self.beside.take() else {
            return;
        };
        std::mem::swap(&mut self.wires, &mut other.wires);
        other.now = self.now;
        act(&mut other);
        std::mem::swap(&mut self.wires, &mut other.wires);
        self.beside = Some(other);
    }

    // ---- flows of a weight

    /// The flows that a flow is made of.
    fn strands(&self, flow: FlowId) -> impl Iterator<Item = FlowId> + use<> {
        (flow.0..flow.0 + self.session.weight).map(FlowId)
    }

    /// Notes whose the flow is that was made last, and makes what else it is made of.
    pub(super) fn own_flow(&mut self, flow: FlowId, route: (NodeId, NodeId)) {
        self.routes.resize(flow.0 as usize, OTHERS);
        self.routes.push(route);
        for _ in 1..self.session.weight {
            self.wires.flows.add_twin(flow);
            self.routes.push(route);
        }
    }

    pub(super) fn load(&mut self, flow: FlowId, bytes: u32) {
        let each = bytes.div_ceil(self.session.weight);
        for strand in self.strands(flow) {
            self.wires.flows.load(self.now, strand, each);
        }
    }

    pub(super) fn unload(&mut self, flow: FlowId) {
        for strand in self.strands(flow) {
            self.wires.flows.unload(self.now, strand);
        }
    }

    /// One of the flows that a flow is made of is through, and so are all, as they are equal; the
    /// flow.
    pub(super) fn end_together(&mut self, flow: FlowId, (from, to): (NodeId, NodeId)) -> FlowId {
        if self.session.weight == 1 {
            return flow;
        }
        let whole = self.end(from, to).flow.unwrap_or(flow);
        self.unload(whole);
        whole
    }

    pub(super) fn set_paused(&mut self, flow: FlowId, paused: bool) {
        for strand in self.strands(flow) {
            self.wires.flows.set_paused(self.now, strand, paused);
        }
    }

    pub(super) fn add_own(&mut self, flow: FlowId, own: crate::flow::ResourceId) {
        for strand in self.strands(flow) {
            self.wires.flows.add_hop(self.now, strand, own);
        }
    }

    /// Bytes that are left of what a flow sends.
    pub(super) fn left(&self, flow: FlowId) -> f64 {
        self.wires.flows.left(self.now, flow) * f64::from(self.session.weight)
    }

    /// Bytes per second.
    pub(super) fn rate(&self, flow: FlowId) -> f64 {
        self.wires.flows.rate(flow) * f64::from(self.session.weight)
    }

    /// The session's share changes: what is under way goes on with the new one.
    pub(super) fn on_share(&mut self, weight: u32) {
        self.trace.record(self.now, "share", [weight, 0, 0], &[]);
        let mut moved = Vec::new();
        for (from, to) in self.routes.clone() {
            let end = (from, to) != OTHERS;
            let end = end.then(|| self.end(from, to));
            let Some(flow) = end.and_then(|end| end.flow.take()) else {
                continue;
            };
            self.end(from, to).own = None;
            let loaded = self.wires.flows.is_loaded(flow);
            let left = loaded.then(|| self.left(flow).ceil().max(1.0) as u32);
            self.unload(flow);
            moved.push((from, to, left));
        }
        self.session.weight = weight;
        for (from, to, left) in moved {
            let flow = self.open_flow(from, to);
            if let Some(left) = left {
                self.load(flow, left);
            }
        }
    }
}
