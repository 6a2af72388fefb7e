//! Lets a script change the network while the transfer runs.

use outpour_core::network::{Change, ClusterId, Resource};
use outpour_core::script::Timeline;
use outpour_core::{NodeId, Traffic};

use outpour_protocols::coordinator::{Input, Order};
use outpour_protocols::node;

use super::{Happening, State, World};

impl World {
    /// Takes the script's next moment from the timeline and waits for it.
    pub(super) fn follow_script(&mut self) {
        if let Some((at, changes)) = self.timeline.as_mut().and_then(Timeline::next) {
            self.changes = changes;
            self.queue.push(at, Happening::Script);
        }
    }

    pub(super) fn on_script(&mut self) {
        self.trace.record(self.now, "script", [0; 3], &[]);
        let mut measured = false;
        for change in std::mem::take(&mut self.changes) {
            self.wires.apply(&change);
            if let Change::Foreground { from, to, rate } = change {
                self.wires.take_up(Resource::Link(from, to), rate);
                let before = self
                    .traffic
                    .iter()
                    .position(|it| (it.from, it.to) == (from, to));
                let peak = before.map_or(rate, |at| self.traffic[at].peak.max(rate));
                before.map(|at| self.traffic.remove(at));
                self.traffic.push(Traffic {
                    from,
                    to,
                    rate,
                    peak,
                });
                measured = true;
            }
            if let Change::Delay { from, to, .. } = change {
                self.refresh_delays(from, to);
            }
        }
        if measured {
            self.tell_traffic();
        }
        self.follow_script();
    }

    /// A monitor tells the command what other traffic there is, and that tells the sources.
    fn tell_traffic(&mut self) {
        if self.is_attended() {
            return self.tell_desk(Input::Foreground(self.traffic.clone()));
        }
        for index in 0..self.nodes.len() {
            self.tell_source(NodeId(index as u32));
        }
    }

    /// A source that is there is told what other traffic there is, if there is any.
    pub(super) fn tell_source(&mut self, node: NodeId) {
        let up = self.nodes[node.index()].state == State::Up;
        if up && !self.traffic.is_empty() && self.terms.members[node.index()].is_source() {
            let traffic = self.traffic.clone();
            self.tell(
                node,
                node::Input::Order(Box::new(Order::Foreground { traffic })),
            );
        }
    }

    pub(super) fn refresh_all_delays(&mut self) {
        let clusters = || (0..self.wires.network.clusters().len() as u32).map(ClusterId);
        let pairs: Vec<_> = clusters()
            .flat_map(|from| clusters().map(move |to| (from, to)))
            .collect();
        for (from, to) in pairs {
            self.refresh_delays(from, to);
        }
    }

    fn refresh_delays(&mut self, from: ClusterId, to: ClusterId) {
        let network = &self.wires.network;
        for sender in network.nodes_of(from) {
            for receiver in network.nodes_of(to) {
                if let Some(end) = self.ends.get_mut(sender, receiver) {
                    end.delay = network.path(sender, receiver).delay;
                }
            }
        }
    }
}
