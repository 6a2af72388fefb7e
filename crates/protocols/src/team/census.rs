//! The census of a cluster: work that no node has any more is given out again.
//!
//! The first of a cluster's nodes that can be reached asks all others what they have or fetch, and
//! deals what is missing to the nodes that answered. It does so when a node of the cluster has left,
//! and when one that gets nothing any more raises the alarm. A node to which stolen work may be on
//! its way answers when it is there, so work on the move is counted at one place at least; blocks
//! are fetched twice only if a node that fetches them cannot be reached.

use std::time::Duration;

use outpour_core::{BlockSet, NodeId, Time};

use super::{Message, Team};
use crate::{Action, Actions};

/// How long answers are waited for.
const ANSWERS_MAX: Duration = Duration::from_secs(5);
/// Between two censuses passes at least so long.
const PAUSE: Duration = Duration::from_secs(1);

/// What a node knows of censuses.
#[derive(Debug, Default)]
pub(super) struct Census {
    round: u32,
    running: Option<Running>,
    /// There is no other before this.
    next_at: Time,
    /// A node asked for one too early.
    wanted: bool,
    /// The nodes to which this node owes an answer, and in which round.
    owed: Vec<(NodeId, u32)>,
}

#[derive(Debug)]
struct Running {
    until: Time,
    waiting: Vec<NodeId>,
    answered: Vec<NodeId>,
    held: BlockSet,
}

impl Census {
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some() || self.wanted
    }
}

impl Team {
    /// What holds of censuses after every event.
    pub(super) fn check_census(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let census = &self.census;
        debug_assert!(census.owed.is_empty() || self.steal.is_under_way());
        for (node, _) in &census.owed {
            debug_assert!(self.peers.contains(*node));
            debug_assert!(self.clusters.are_mates(self.me, *node));
        }
        if let Some(running) = &census.running {
            debug_assert!(self.ticking, "it would never end");
            debug_assert!(!running.waiting.is_empty());
            debug_assert!(self.loner || running.answered.first() == Some(&self.me));
            let has_answered = |mate: &NodeId| running.answered.contains(mate);
            debug_assert!(!running.waiting.iter().any(has_answered));
        }
    }

    /// Asks all nodes in the cluster what they have or fetch.
    pub(super) fn take_census(&mut self, now: Time, out: &mut Actions) {
        if self.have.is_full() {
            // Nothing is missing here, and a node that lacks something asks this one.
            return;
        }
        if self.census.running.is_some() || now < self.census.next_at {
            self.census.wanted |= self.census.running.is_none();
            return self.tick_on(now, out);
        }
        self.census.wanted = false;
        self.census.round = self.census.round.wrapping_add(1);
        let counts = |mate: NodeId| !self.gone[mate.index()] && !self.repair.distrusts(mate);
        let others = |mate: &&NodeId| **mate != self.me && counts(**mate);
        let waiting: Vec<NodeId> = self
            .clusters
            .mates(self.me)
            .iter()
            .filter(others)
            .copied()
            .collect();
        let round = self.census.round;
        for mate in &waiting {
            if self.peers.contains(*mate) {
                out.send(*mate, &Message::Census { round });
            } else {
                out.push(Action::Connect(*mate));
            }
        }
        self.census.running = Some(Running {
            until: now + ANSWERS_MAX,
            waiting,
            answered: (!self.loner).then_some(self.me).into_iter().collect(),
            held: self.holds(),
        });
        self.tick_on(now, out);
        self.census_tick(now, out);
    }

    /// What this node has or fetches for its cluster.
    fn holds(&self) -> BlockSet {
        if self.loner {
            return self.have.clone();
        }
        // Neither here nor asked for is what is open; of that, the golden blocks are ours.
        let mut holds = BlockSet::full(self.have.len());
        holds.subtract(self.interest.open());
        holds.union(self.interest.gold());
        debug_assert!(self.have.is_subset(&holds));
        holds
    }

    pub(super) fn on_census(&mut self, from: NodeId, round: u32, out: &mut Actions) {
        self.repair.heard(from);
        self.census.owed.retain(|(node, _)| *node != from);
        self.census.owed.push((from, round));
        debug_assert!(self.census.owed.len() < self.clusters.mates(self.me).len());
        if !self.steal.is_under_way() {
            self.answer_owed(out);
        }
    }

    /// Answers the nodes that asked while work might have been on its way here.
    pub(super) fn answer_owed(&mut self, out: &mut Actions) {
        if self.census.owed.is_empty() {
            return;
        }
        let holds = self.holds().to_wire();
        for (node, round) in std::mem::take(&mut self.census.owed) {
            if self.peers.contains(node) {
                let (blocks, loner) = (holds.clone(), self.loner);
                let answer = Message::Holds {
                    round,
                    blocks,
                    loner,
                };
                out.send(node, &answer);
            }
        }
    }

    pub(super) fn on_holds(
        &mut self,
        now: Time,
        from: NodeId,
        round: u32,
        blocks: &BlockSet,
        loner: bool,
        out: &mut Actions,
    ) {
        if round != self.census.round {
            return;
        }
        if let Some(running) = &mut self.census.running
            && running.waiting.contains(&from)
        {
            running.waiting.retain(|mate| *mate != from);
            if !loner {
                running.answered.push(from);
            }
            running.held.union(blocks);
        }
        self.census_tick(now, out);
    }

    pub(super) fn census_up(&mut self, node: NodeId, out: &mut Actions) {
        self.repair.heard(node);
        let running = self.census.running.as_ref();
        if running.is_some_and(|running| running.waiting.contains(&node)) {
            let round = self.census.round;
            out.send(node, &Message::Census { round });
        }
    }

    pub(super) fn census_lost(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        self.census.owed.retain(|(other, _)| *other != node);
        if self.gone[node.index()]
            && let Some(running) = &mut self.census.running
        {
            running.waiting.retain(|mate| *mate != node);
        }
        self.census_tick(now, out);
    }

    /// Ends a census that is over, or begins one that was put off.
    pub(super) fn census_tick(&mut self, now: Time, out: &mut Actions) {
        if self.census.wanted && self.census.running.is_none() && now >= self.census.next_at {
            return self.take_census(now, out);
        }
        let over = |running: &mut Running| running.waiting.is_empty() || now >= running.until;
        if let Some(running) = self.census.running.take_if(over) {
            self.census.next_at = now + PAUSE;
            self.deal(&running, out);
        }
    }

    /// Deals what no node has or fetches in equal parts.
    fn deal(&mut self, running: &Running, out: &mut Actions) {
        let mut orphans = BlockSet::full(self.have.len());
        orphans.subtract(&running.held);
        orphans.subtract(&self.holds());
        if orphans.is_empty() || running.answered.is_empty() {
            // Nothing is missing, or nobody takes work.
            return;
        }
        let part = orphans.count().div_ceil(running.answered.len() as u32) as usize;
        let orphans: Vec<u32> = orphans.iter().collect();
        debug_assert!(
            orphans.chunks(part).len() <= running.answered.len(),
            "some stay orphans"
        );
        for (mate, blocks) in running.answered.iter().zip(orphans.chunks(part)) {
            let mut work = BlockSet::new(self.have.len());
            blocks.iter().for_each(|block| {
                work.insert(*block);
            });
            if *mate == self.me {
                self.gain(&work, out);
            } else if self.peers.contains(*mate) {
                let blocks = work.to_wire();
                out.send(*mate, &Message::Work { blocks });
            }
        }
    }
}
