//! Carries out faults and undoes them when they are over.

use outpour_core::{NodeId, Time};

use super::{Happening, KEEP_ALIVE, LEFT_AFTER, State, World};
use crate::fault::{Fault, FaultKind};

impl World {
    /// A fault that was not foreseen strikes at its time. It must not change capacities: those that
    /// may change have to be known at the start.
    pub fn strike(&mut self, fault: Fault) {
        debug_assert!(fault.kind.capacities().is_empty());
        let index = self.faults.len() as u32;
        self.queue.push(fault.at, Happening::Fault { index });
        self.faults.push(fault);
    }

    pub(super) fn on_fault(&mut self, index: u32) {
        let fault = self.faults[index as usize].clone();
        self.trace.record(self.now, "fault", [index, 0, 0], &[]);
        match fault.kind {
            FaultKind::Crash { node, .. } | FaultKind::Stall { node }
                if self.nodes[node.index()].state != State::Up =>
            {
                // It lies on the ground already.
                return;
            }
            FaultKind::Crash {
                node,
                unjournaled,
                silent,
            } => {
                self.stop_disk(node, silent);
                self.crash(node, self.now - unjournaled, silent);
                self.lose_control(node, silent);
            }
            FaultKind::Stall { node } => self.set_state(node, State::Stalled),
            FaultKind::MessageDelay { node, extra } => {
                self.nodes[node.index()].message_delay = extra;
            }
            FaultKind::Partition { one, other } => {
                let until = fault.end().unwrap_or(Time::MAX);
                self.partitions.push((one, other, until));
                self.refresh_pair(one, other);
            }
            FaultKind::WrongBytes {
                node,
                share,
                packets_only,
            } => {
                let node = &mut self.nodes[node.index()];
                (node.lies, node.lied) = (Some((share, packets_only)), true);
            }
            FaultKind::NodeRate { .. } | FaultKind::LinkRate { .. } => {
                for (resource, rate) in fault.kind.capacities() {
                    self.wires.set_capacity(resource, Some(rate.bytes_per_s()));
                }
            }
        }
        self.foresee(index, &fault);
    }

    /// Puts what follows from a fault that took hold into the queue.
    fn foresee(&mut self, index: u32, fault: &Fault) {
        self.totals.faults[fault.kind.index()] += u32::from(!self.is_complete());
        if let Some(end) = fault.end() {
            self.queue.push(end, Happening::FaultOver { index });
        }
        if matches!(
            fault.kind,
            FaultKind::Stall { .. } | FaultKind::Partition { .. }
        ) {
            self.queue
                .push(self.now + KEEP_ALIVE, Happening::KeepAlive { index });
        }
        if let FaultKind::Crash { node, silent, .. } = fault.kind
            && fault.lasts.is_none()
            && self.desk.is_none()
        {
            let noticed = if silent {
                KEEP_ALIVE
            } else {
                std::time::Duration::ZERO
            };
            self.expel(node, self.now + noticed + LEFT_AFTER);
        }
    }

    pub(super) fn on_fault_over(&mut self, index: u32) {
        self.trace.record(self.now, "over", [index, 0, 0], &[]);
        let fault = self.faults[index as usize].clone();
        match fault.kind {
            FaultKind::Crash { node, .. } => self.start(node),
            FaultKind::Stall { node } => self.wake(node),
            FaultKind::MessageDelay { node, .. } => {
                self.nodes[node.index()].message_delay = std::time::Duration::ZERO;
            }
            FaultKind::Partition { one, other } => {
                let now = self.now;
                self.partitions.retain(|(_, _, until)| *until > now);
                self.refresh_pair(one, other);
            }
            FaultKind::WrongBytes { node, .. } => self.nodes[node.index()].lies = None,
            FaultKind::NodeRate { .. } | FaultKind::LinkRate { .. } => {
                for (resource, _) in fault.kind.capacities() {
                    self.wires.set_capacity(resource, None);
                }
            }
        }
    }

    fn set_state(&mut self, id: NodeId, state: State) {
        self.nodes[id.index()].state = state;
        for peer in self.ids() {
            self.refresh_pair(id, peer);
        }
    }

    fn refresh_pair(&mut self, one: NodeId, other: NodeId) {
        self.refresh(one, other);
        self.refresh(other, one);
    }

    /// The node's process dies: all it knew is gone but for the journal.
    pub(super) fn crash(&mut self, id: NodeId, journaled: Time, silent: bool) {
        let now = self.now;
        let node = &mut self.nodes[id.index()];
        node.processor.stop(now);
        node.life += 1;
        node.machine = None;
        node.armed = Time::MAX;
        node.queued.clear();
        node.measures = false;
        node.inbox.clear();
        node.collected = None;
        while let Some((at, block)) = node.journal.pop() {
            if at <= journaled {
                node.journal.push((at, block));
                break;
            }
            node.have.remove(block);
            if node.want.contains(block) {
                node.lacks += 1;
                node.finished = None;
            }
        }
        self.count_incomplete();
        self.set_state(id, State::Down);
        for peer in self.ids() {
            if let Some(end) = self.ends.get_mut(id, peer) {
                (end.up, end.wanted, end.calling, end.banned) = (false, false, false, false);
                self.clear(id, peer);
            }
            self.sever(peer, id, silent);
        }
    }

    /// The peer's end of a connection to a node that died: it is told after a while.
    fn sever(&mut self, peer: NodeId, dead: NodeId, silent: bool) {
        let now = self.now;
        let Some(end) = self
            .ends
            .get_mut(peer, dead)
            .filter(|end| end.connection != 0)
        else {
            return;
        };
        end.broken = true;
        let wait = if silent { KEEP_ALIVE } else { end.delay * 2 };
        let connection = end.connection;
        self.refresh(peer, dead);
        self.queue.push(
            now + wait,
            Happening::Down {
                at: peer,
                peer: dead,
                connection,
            },
        );
    }

    /// The node goes on with what waited for it.
    fn wake(&mut self, id: NodeId) {
        if self.nodes[id.index()].state != State::Stalled {
            return;
        }
        self.set_state(id, State::Up);
        while let Some(happening) = self.nodes[id.index()].inbox.pop_front() {
            self.happen(happening);
        }
    }

    /// The time for a sign of life is over: a node that is still silent loses its connections.
    pub(super) fn on_keep_alive(&mut self, index: u32) {
        let fault = &self.faults[index as usize];
        if fault.end().is_some_and(|end| end <= self.now) {
            return;
        }
        let for_good = fault.lasts.is_none() && self.desk.is_none();
        match fault.kind {
            FaultKind::Stall { node } if self.nodes[node.index()].state == State::Stalled => {
                for peer in self.ids() {
                    self.lose(peer, node);
                    self.lose(node, peer);
                }
                if for_good {
                    self.expel(node, self.now + LEFT_AFTER);
                }
            }
            FaultKind::Partition { one, other } => {
                self.lose(one, other);
                self.lose(other, one);
            }
            _ => {}
        }
    }

    /// This end gives its connection up.
    fn lose(&mut self, node: NodeId, peer: NodeId) {
        let connection = self.ends.connection(node, peer);
        if connection != 0 {
            self.queue.push(
                self.now,
                Happening::Down {
                    at: node,
                    peer,
                    connection,
                },
            );
        }
    }

    /// Tells all others at time `at` that the node is out for good.
    fn expel(&mut self, node: NodeId, at: Time) {
        self.nodes[node.index()].state = State::Gone;
        self.count_incomplete();
        self.left.push(node);
        for other in self.ids().filter(|other| *other != node) {
            self.queue.push(at, Happening::Left { at: other, node });
        }
    }
}
