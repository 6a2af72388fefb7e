//! Work changing hands: stealing, giving, and what both sides do afterwards.

use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId, Time};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Kind, Message, STEALER, Team};
use crate::{Action, Actions};

/// Between two thefts of one node at least this passes, and twice as much after each theft that
/// led to no request. While no node can get at the last blocks, they would otherwise go round among
/// nodes without work as fast as messages travel.
const GAP_MIN: Duration = Duration::from_millis(5);
const GAP_MAX: Duration = Duration::from_secs(1);

/// Where a node is with stealing.
#[derive(Debug)]
pub(super) struct Steal {
    /// The node that was asked and has not answered.
    from: Option<NodeId>,
    /// The next theft is not before this.
    next_at: Time,
    gap: Duration,
    pub(super) timer_set: bool,
    /// Thefts that brought work.
    count: u64,
}

impl Default for Steal {
    fn default() -> Self {
        Self {
            from: None,
            next_at: Time::ZERO,
            gap: GAP_MIN,
            timer_set: false,
            count: 0,
        }
    }
}

impl Steal {
    /// Work led to a request.
    pub(super) const fn paid_off(&mut self) {
        self.gap = GAP_MIN;
    }

    /// Whether work may be on its way here.
    pub(super) const fn is_under_way(&self) -> bool {
        self.from.is_some()
    }
}

impl Team {
    /// What holds of stealing after every event.
    pub(super) fn check_steal(&self) {
        let steal = &self.steal;
        debug_assert!(steal.gap >= GAP_MIN);
        debug_assert!(steal.gap <= GAP_MAX);
        debug_assert!(self.kind == Kind::Robber || !steal.timer_set);
        if let Some(victim) = steal.from {
            debug_assert!(self.kind == Kind::Robber);
            debug_assert!(self.clusters.are_mates(self.me, victim));
            debug_assert!(self.peers.contains(victim), "the lost give nothing");
        }
    }

    /// A robber without work asks for some.
    pub(super) fn seek_work(&mut self, now: Time, out: &mut Actions) {
        let idle = self.interest.gold().is_empty() && !self.interest.open().is_empty();
        let may = self.kind == Kind::Robber && !self.loner && idle && self.awaited.is_empty();
        if !may || self.steal.is_under_way() {
            return;
        }
        if !self.peers.iter().any(|(_, peer)| peer.works) {
            return;
        }
        if now < self.steal.next_at {
            if !std::mem::replace(&mut self.steal.timer_set, true) {
                let at = self.steal.next_at;
                let timer = STEALER;
                out.push(Action::SetTimer { timer, at });
            }
            return;
        }
        debug_assert!(!self.lacking.is_empty(), "a robber that has all steals");
        if let Some(victim) = self.draw_victim() {
            debug_assert!(victim != self.me);
            self.steal.from = Some(victim);
            out.send(victim, &Message::Steal);
        }
    }

    /// A random node of the labour force; each theft draws lots anew.
    ///
    /// Which node is drawn follows from ranks only. So robbers of the same rank, which are each other's
    /// foreign peers, tend to steal the same blocks if their clusters are alike, and can exchange
    /// them; were they all after different ones, most would have to come from the root itself.
    fn draw_victim(&self) -> Option<NodeId> {
        let rank = |node: NodeId| self.clusters.rank(node) as u64;
        let theft = self.seed ^ rank(self.me) << 44 ^ self.steal.count << 22;
        let lot = |node: NodeId| Pcg64Mcg::seed_from_u64(theft ^ rank(node)).next_u64();
        let force = self.peers.iter().filter(|(_, peer)| peer.works);
        force.map(|(node, _)| node).min_by_key(|node| lot(*node))
    }

    pub(super) fn on_steal(&mut self, from: NodeId, out: &mut Actions) {
        if let Some(peer) = self.peers.get_mut(from) {
            // It would not ask if it had work.
            peer.works = false;
        }
        let given = match self.kind {
            Kind::Robber if !self.loner => self.interest.devalue_first_half(),
            _ => BlockSet::new(self.have.len()),
        };
        self.give(from, &given, out);
    }

    /// Hands over blocks that are not golden here any more.
    pub(super) fn give(&self, to: NodeId, given: &BlockSet, out: &mut Actions) {
        debug_assert!(self.clusters.are_mates(self.me, to));
        debug_assert!(
            !given
                .iter()
                .any(|block| self.interest.gold().contains(block))
        );
        let blocks = given.to_wire();
        out.send(to, &Message::Work { blocks });
        if !given.is_empty() {
            self.desire_all(out);
        }
    }

    pub(super) fn on_work(
        &mut self,
        now: Time,
        from: NodeId,
        blocks: &BlockSet,
        out: &mut Actions,
    ) {
        if self.steal.from == Some(from) {
            self.steal.from = None;
            if blocks.is_empty() {
                if let Some(peer) = self.peers.get_mut(from) {
                    peer.works = false;
                }
            } else {
                self.steal.count += 1;
                self.steal.next_at = now + self.steal.gap;
                self.steal.gap = (self.steal.gap * 2).min(GAP_MAX);
            }
        }
        self.gain(blocks, out);
        self.answer_owed(out);
    }

    /// The new work sequence.
    pub(super) fn gain(&mut self, blocks: &BlockSet, out: &mut Actions) {
        let mut gained = false;
        for block in blocks.iter() {
            if !self.is_near(block) && self.interest.gild(block) {
                gained = true;
                let (interest, preference) = (&self.interest, &self.preference);
                for (_, peer) in self.peers.iter_mut() {
                    if !peer.local && peer.theirs.contains(block) {
                        peer.offer(block, interest, preference);
                    }
                }
            }
        }
        if !gained {
            return;
        }
        self.desire_all(out);
        for node in self.peers.pick(|peer| !peer.local) {
            self.fill(node, out);
        }
        if self.kind == Kind::Robber && !self.loner {
            let mates = self
                .peers
                .pick(|peer| peer.local && peer.greeted && !peer.done);
            out.send_all(mates, &Message::FoundWork);
        }
    }

    /// A local peer says what it fetches: of blocks that both would fetch, the one that asked
    /// already keeps it, and the rest goes to the one of lower rank. A loner leaves all to the other.
    pub(super) fn yield_work(&mut self, to: NodeId, theirs: &BlockSet) {
        debug_assert!(to != self.me);
        debug_assert!(self.clusters.are_mates(self.me, to));
        if to > self.me && !self.loner {
            return;
        }
        let mut both = self.interest.gold().clone();
        both.intersect(theirs);
        let both: Vec<BlockId> = both.iter().collect();
        for block in both {
            self.interest.devalue(block);
        }
    }

    /// A peer is lost, and work it may have sent with it.
    pub(super) fn steal_lost(&mut self, node: NodeId, out: &mut Actions) {
        if self.steal.from == Some(node) {
            self.steal.from = None;
            self.answer_owed(out);
        }
    }
}
