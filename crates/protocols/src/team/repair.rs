//! What a node does when peers are lost or nothing comes any more.

use std::collections::BTreeSet;
use std::time::Duration;

use outpour_core::{BlockSet, NodeId, Time};
use rand_core::RngCore;

use super::{Kind, Message, Team};
use crate::Actions;

/// A node that waits for no block and got none for so long does something about it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Patience grows each time nothing came of it, up to this.
const PATIENCE_MAX: Duration = Duration::from_secs(12);
/// How many more nodes are then called, at home and abroad.
const CALLS_HOME: usize = 1;
const CALLS_ABROAD: usize = 3;

/// Where a node is with its troubles.
#[derive(Debug)]
pub(super) struct Repair {
    /// When the last fresh block came, or when something was last done about it.
    since: Time,
    patience: Duration,
    /// The node that was told of the last alarm, or called for it, and was not heard since.
    called: BTreeSet<NodeId>,
    /// Nodes that were not heard after an alarm.
    deaf: BTreeSet<NodeId>,
}

impl Default for Repair {
    fn default() -> Self {
        Self {
            since: Time::ZERO,
            patience: PATIENCE,
            called: BTreeSet::new(),
            deaf: BTreeSet::new(),
        }
    }
}

impl Repair {
    /// All is well.
    pub(super) const fn restart(&mut self, now: Time) {
        self.since = now;
        self.patience = PATIENCE;
    }

    /// A node of the cluster shows that it is there.
    pub(super) fn heard(&mut self, node: NodeId) {
        self.called.remove(&node);
        self.deaf.remove(&node);
    }
}

impl Team {
    /// What holds of troubles after every event.
    pub(super) fn check_repair(&self, now: Time) {
        let repair = &self.repair;
        debug_assert!(repair.since <= now);
        debug_assert!(repair.patience >= PATIENCE);
        debug_assert!(repair.patience <= PATIENCE_MAX);
        debug_assert!(repair.called.is_disjoint(&repair.deaf));
        debug_assert!(!repair.called.contains(&self.me));
        debug_assert!(!repair.deaf.contains(&self.me));
    }

    /// Calls another node in place of one that is lost.
    pub(super) fn replace(&mut self, lost: NodeId, out: &mut Actions) {
        debug_assert!(self.gone[lost.index()]);
        let cluster = self.clusters.cluster(lost);
        let nodes = &self.clusters.list[cluster];
        let rank = self.clusters.rank(lost);
        // The next in rank, so that peers that lost the same node agree on another.
        let next = (1..nodes.len())
            .map(|step| nodes[(rank + step) % nodes.len()])
            .find(|node| self.is_stranger(*node));
        if let Some(node) = next {
            self.befriend(node, out);
        }
    }

    /// Whether a node could be called and was not.
    fn is_stranger(&self, node: NodeId) -> bool {
        let known =
            self.called[node.index()] || self.peers.get(node).is_some_and(|peer| peer.greeted);
        node != self.me && !self.gone[node.index()] && !known
    }

    fn call_strangers(&mut self, at_home: bool, count: usize, out: &mut Actions) -> usize {
        let all = (0..self.gone.len() as u32).map(NodeId);
        let mut strangers: Vec<NodeId> = all
            .filter(|node| self.clusters.are_mates(self.me, *node) == at_home)
            .filter(|node| self.is_stranger(*node))
            .collect();
        let count = count.min(strangers.len());
        for _ in 0..count {
            let index = self.random.next_u32() as usize % strangers.len();
            let node = strangers.swap_remove(index);
            self.befriend(node, out);
        }
        count
    }

    /// Makes a node a peer, whether it is up already or not.
    fn befriend(&mut self, node: NodeId, out: &mut Actions) {
        debug_assert!(node != self.me);
        debug_assert!(!self.gone[node.index()], "no node can call {node}");
        if self.peers.get(node).is_some_and(|peer| !peer.greeted) {
            self.called[node.index()] = true;
            self.greet(node, out);
        } else if !self.called[node.index()] {
            self.call(node, out);
        }
    }

    /// A node of the cluster has left: the first of the others sees to its work.
    pub(super) fn mate_lost(&mut self, now: Time, out: &mut Actions) {
        debug_assert!(!self.gone[self.me.index()]);
        if self.kind == Kind::Mates {
            return;
        }
        let mates = self.clusters.mates(self.me);
        if mates.iter().find(|mate| !self.gone[mate.index()]) == Some(&self.me) {
            self.take_census(now, out);
        }
    }

    /// Tells the first of the cluster that can be reached that something is amiss.
    ///
    /// A node that is not connected is called and has until the next time to come up. Until then no
    /// node behind it is told, or several would take a census: so each is taken for deaf only once
    /// it was told something itself, or called in vain.
    fn raise_alarm(&mut self, now: Time, out: &mut Actions) {
        let unheard = std::mem::take(&mut self.repair.called);
        self.repair.deaf.extend(unheard);
        let mates: Vec<NodeId> = self.clusters.mates(self.me).to_vec();
        for mate in mates {
            if mate == self.me {
                if self.repair.called.is_empty() {
                    self.take_census(now, out);
                }
                return;
            }
            if self.gone[mate.index()] || self.repair.deaf.contains(&mate) {
                continue;
            }
            self.befriend(mate, out);
            if !self.peers.contains(mate) {
                self.repair.called.insert(mate);
                continue;
            }
            if self.repair.called.is_empty() {
                self.repair.called.insert(mate);
                out.send(mate, &Message::Alarm);
            }
            return;
        }
    }

    /// Sees to it that blocks come again if none do.
    pub(super) fn mend(&mut self, now: Time, out: &mut Actions) {
        let waits = self
            .peers
            .iter()
            .any(|(_, peer)| !peer.requests.asked().is_empty());
        if waits || now.since(self.repair.since) < self.repair.patience {
            return;
        }
        self.repair.since = now;
        self.repair.patience = (self.repair.patience * 2).min(PATIENCE_MAX);
        let home = self.call_strangers(true, CALLS_HOME, out);
        if self.kind == Kind::Mates {
            return;
        }
        let abroad = self.call_strangers(false, CALLS_ABROAD, out);
        let has_work = !self.interest.gold().is_empty();
        let fends = self.fend_for_itself(home + abroad == 0);
        if !self.interest.gold().is_empty() {
            self.desire_all(out);
        }
        if home + abroad == 0 {
            self.send_out(out);
        }
        if fends {
            self.fill_all(out);
        }
        if self.loner {
            return;
        }
        if has_work && home + abroad == 0 {
            self.hand_over(out);
        }
        if self.kind == Kind::Robber {
            let mates = self.peers.iter_mut().filter(|(_, peer)| peer.local);
            mates.for_each(|(_, peer)| peer.works = peer.greeted && !peer.done && !peer.loner);
        }
        self.raise_alarm(now, out);
    }

    /// This node knows all nodes and none has what it is to fetch: perhaps another can.
    fn hand_over(&mut self, out: &mut Actions) {
        let mates = self
            .peers
            .pick(|peer| peer.local && peer.greeted && !peer.done && !peer.loner);
        if mates.is_empty() {
            return;
        }
        let to = mates[self.random.next_u32() as usize % mates.len()];
        let mut given = BlockSet::new(self.have.len());
        while !self.interest.gold().is_empty() {
            given.union(&self.interest.devalue_first_half());
        }
        debug_assert!(!given.is_empty(), "there was no work to hand over");
        self.give(to, &given, out);
    }
}
