//! The sending side: whose request is next, and the source's rule of once before twice.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId, Time};

use super::neighbour::{Neighbour, Neighbours};
use super::recent::Recent;
use super::seeding::{Seeding, Share};
use super::{Kind, Message};
use crate::push::Weights;
use crate::{Action, Actions, SEND_QUEUE_MAX};

/// Requests kept per neighbour; more are refused.
pub(super) const REQUESTS_MAX: usize = 1024;
/// Blocks on their way at once. A block that has the rate to itself arrives sooner and can be
/// passed on sooner; but receivers take from several at once, so that with few blocks on their
/// way, to receivers that happen to be busy, the outgoing rate is not used up. Twenty nodes with
/// the same rates need 1.43 times the limit with 2, 1.16 with 4, 1.06 with 8 and 1.04 with 12.
const SLOTS_MIN: usize = 12;
pub(super) const SLOTS_MAX: usize = 32;
const _: () = assert!(SLOTS_MIN <= SLOTS_MAX);
const _: () = assert!(SLOTS_MAX <= SEND_QUEUE_MAX);
/// A neighbour that lacks so many blocks more than the others on average is served first.
const LAG_MIN: u64 = 32;
/// Slots cover this many seconds of the outgoing rate.
const SLOTS_COVER_S: f64 = 0.06;
/// A block under way for longer than this, or four times the usual, does not hold a slot: its
/// receiver is slow, and the others shall not wait for it.
const STUCK: Duration = Duration::from_millis(300);

/// The sending side of one node.
pub(super) struct Uploads {
    /// What a source that seeds has to give.
    seeding: Option<Seeding>,
    /// Blocks given of which other sources have not heard.
    gave: Vec<BlockId>,
    /// What some neighbour wants.
    wanted: BlockSet,
    /// The blocks handed to the driver last.
    recent: Recent,
    /// Others turned out to have the last of these.
    learned: bool,
    /// Blocks with the driver, oldest first: their recipients, since when.
    slots: VecDeque<(NodeId, Time)>,
    /// The neighbour served last; the next in order is next.
    turn: NodeId,
    /// Seconds from handing a block to the driver until it is sent, smoothed.
    service: f64,
    /// Seconds between blocks sent while busy, smoothed.
    gap: f64,
    last_sent: Option<Time>,
    /// By which neighbours are served, if they are not in turn.
    weights: Option<Weights>,
}

impl Uploads {
    /// `seeding` is said of a source that seeds.
    pub(super) fn new(blocks: u32, seeding: Option<Share>, kind: Kind) -> Self {
        Self {
            seeding: seeding.map(|share| Seeding::new(blocks, share)),
            gave: Vec::new(),
            wanted: BlockSet::new(blocks),
            recent: Recent::default(),
            learned: false,
            slots: VecDeque::new(),
            turn: NodeId(0),
            service: 0.0,
            gap: 0.0,
            last_sent: None,
            weights: (kind == Kind::Push).then(Weights::default),
        }
    }

    /// What holds between any two events; `have` is what is here.
    pub(super) fn check(&self, have: &BlockSet, neighbours: &Neighbours) {
        let queued: usize = neighbours.iter().map(|(_, peer)| peer.queued.len()).sum();
        debug_assert_eq!(self.slots.len(), queued);
        debug_assert!(self.slots.iter().is_sorted_by_key(|(_, since)| since));
        if let Some(seeding) = &self.seeding {
            seeding.check(have);
        }
        debug_assert!(self.service >= 0.0);
        debug_assert!(self.gap >= 0.0);
        debug_assert!(have.is_full() || !self.is_seeding(), "a source seeds");
        debug_assert!(
            !self.learned || self.seeding.as_ref().is_none_or(Seeding::is_exhausted),
            "others have what was not given, and it is given"
        );
        debug_assert!(
            self.is_seeding() || neighbours.iter().all(|(_, peer)| peer.wants_any == 0),
            "any block is asked of a node that does not seed"
        );
    }

    /// Whether this is a source that has not given each block once.
    pub(super) const fn is_seeding(&self) -> bool {
        self.seeding.is_some()
    }

    /// Whether seeding ended early because others have what was not given.
    pub(super) const fn has_learned(&self) -> bool {
        self.learned
    }

    /// A node says that it has these blocks: those that another one has, too, need not be given.
    /// `holders` is how many neighbours have each.
    pub(super) fn learn(&mut self, blocks: impl Iterator<Item = BlockId>, holders: &[u16]) {
        if let Some(seeding) = &mut self.seeding {
            let mut removed = false;
            for block in blocks {
                removed |= seeding.claim(block, holders[block as usize]);
            }
            self.learned |= removed && seeding.is_exhausted();
        }
    }

    /// Another source that seeds has given these blocks.
    pub(super) fn took(&mut self, blocks: &[BlockId]) {
        if let Some(seeding) = &mut self.seeding {
            let mut removed = false;
            for block in blocks {
                removed |= seeding.take(*block);
            }
            self.learned |= removed && seeding.is_exhausted();
        }
    }

    /// Some node wants these blocks.
    pub(super) fn note_wanted(&mut self, blocks: &BlockSet) {
        if self.is_seeding() && !self.wanted.is_full() {
            self.wanted.union(blocks);
        }
    }

    pub(super) fn request(
        &self,
        from: NodeId,
        peer: &mut Neighbour,
        blocks: &[BlockId],
        have: &BlockSet,
        out: &mut Actions,
    ) {
        let mut refused = Vec::new();
        for block in blocks {
            let room = peer.wants.len() < REQUESTS_MAX;
            let gives_once = self.is_seeding() && !peer.released;
            if gives_once || !have.contains(*block) || !room {
                refused.push(*block);
            } else if !peer.wants_again(*block)
                && !peer.was_given(*block)
                && !peer.wants.contains(block)
            {
                peer.wants.push_back(*block);
            }
        }
        if !refused.is_empty() {
            out.send(from, &Message::Refuse { blocks: refused });
        }
    }

    pub(super) fn ask(&self, peer: &mut Neighbour, blocks: u32) {
        if self.is_seeding() {
            peer.wants_any = peer
                .wants_any
                .saturating_add(blocks)
                .min(REQUESTS_MAX as u32);
        }
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        self.slots.retain(|(to, _)| *to != node);
    }

    pub(super) fn sent(
        &mut self,
        now: Time,
        to: NodeId,
        block: BlockId,
        neighbours: &mut Neighbours,
    ) {
        if let Some(peer) = neighbours.get_mut(to)
            && let Some(at) = peer.queued.iter().position(|(queued, _)| *queued == block)
        {
            peer.queued.remove(at);
        }
        if let Some(at) = self.slots.iter().position(|(node, _)| *node == to)
            && let Some((_, since)) = self.slots.remove(at)
        {
            let took = now.since(since).as_secs_f64();
            self.service += if self.service == 0.0 {
                took
            } else {
                0.1 * (took - self.service)
            };
        }
        if let Some(last) = self.last_sent.replace(now) {
            let gap = now.since(last).as_secs_f64().min(1.0);
            self.gap += if self.gap == 0.0 {
                gap
            } else {
                0.1 * (gap - self.gap)
            };
        }
    }

    /// Hands blocks to the driver while there are slots, neighbour by neighbour. What other
    /// sources have to hear it gave is returned.
    pub(super) fn serve(
        &mut self,
        now: Time,
        have: &BlockSet,
        neighbours: &mut Neighbours,
        holders: &[u16],
        out: &mut Actions,
    ) -> Vec<BlockId> {
        let mut free = self.free_slots(now);
        if let Some(seeding) = &mut self.seeding {
            seeding.look(now, self.gap, holders);
        }
        if let Some(weights) = self.weights.as_mut().filter(|_| free > 0) {
            weights.refresh(
                now,
                neighbours.iter().map(|(node, peer)| (node, peer.lacks)),
            );
        }
        while free > 0 {
            let Some(node) = self.next_peer(neighbours) else {
                break;
            };
            let Some(peer) = neighbours.get_mut(node) else {
                break;
            };
            let Some(block) = self.next_block(now, node, peer, have) else {
                if peer.wants.is_empty() && peer.wants_any > 0 {
                    // What it asked before it heard of that needs no other answer.
                    if peer.released {
                        peer.wants_any = 0;
                    } else {
                        release(node, peer, have, out);
                    }
                }
                continue;
            };
            self.turn = node;
            if let Some(weights) = &mut self.weights {
                weights.serve(node);
            }
            peer.queued.push((block, true));
            peer.spoken = now;
            self.slots.push_back((node, now));
            free -= 1;
            out.push(Action::SendBlock { to: node, block });
        }
        let is_over =
            |seeding: &Seeding| seeding.is_exhausted() && (free > 0 || !seeding.has_kept());
        if self.seeding.as_ref().is_some_and(is_over) {
            self.end_seeding(neighbours);
        }
        std::mem::take(&mut self.gave)
    }

    fn end_seeding(&mut self, neighbours: &mut Neighbours) {
        self.seeding = None;
        neighbours
            .iter_mut()
            .for_each(|(_, peer)| peer.wants_any = 0);
    }

    /// Whose turn it is: one that has fallen behind the others, or else the next in order.
    fn next_peer(&self, neighbours: &Neighbours) -> Option<NodeId> {
        if let Some(weights) = self.weights.as_ref().filter(|_| !self.shares(neighbours)) {
            let waits = |peer: &Neighbour| peer.queued.len() < SLOTS_MAX && self.wants(peer);
            let waiting = neighbours.iter().filter(|(_, peer)| waits(peer));
            return weights.next(waiting.map(|(node, _)| node));
        }
        let (mut next, mut last) = (None, None);
        let (mut sum, mut count) = (0, 0);
        for (node, peer) in neighbours.iter_after(self.turn) {
            let lacks = peer.lacks;
            if lacks > 0 {
                sum += u64::from(lacks);
                count += 1;
            }
            if peer.queued.len() < SLOTS_MAX && self.wants(peer) {
                next = next.or(Some(node));
                if peer.queued.is_empty() && last.is_none_or(|(most, _)| lacks > most) {
                    last = Some((lacks, node));
                }
            }
        }
        match last {
            Some((lacks, node)) if u64::from(lacks) * count > sum + LAG_MIN * count => Some(node),
            _ => next,
        }
    }

    /// Whether this is a source that seeds and what it gives to one is of use to another, who gets it from that one:
    /// then they do not compete for it, and are best busy alike, passing on what they have.
    fn shares(&self, neighbours: &Neighbours) -> bool {
        let wanted = |peer: &Neighbour| peer.want.count(self.wanted.len());
        // Sets that have no block in common have as many together.
        self.is_seeding()
            && neighbours
                .iter()
                .filter(|(_, peer)| !peer.seeding)
                .map(|(_, peer)| u64::from(wanted(peer)))
                .sum::<u64>()
                > u64::from(self.wanted.count())
    }

    fn wants(&self, peer: &Neighbour) -> bool {
        let gives = |seeding: &Seeding| !seeding.is_exhausted() || seeding.has_kept();
        let any = peer.wants_any > 0 && self.seeding.as_ref().is_some_and(gives);
        any || !peer.wants.is_empty()
    }

    fn next_block(
        &mut self,
        now: Time,
        to: NodeId,
        peer: &mut Neighbour,
        have: &BlockSet,
    ) -> Option<BlockId> {
        if let Some(block) = self.recent.take_next(&mut peer.wants) {
            self.recent.note(block);
            debug_assert!(have.contains(block), "a request for {block} was taken");
            return have.contains(block).then_some(block);
        }
        let seeding = self.seeding.as_mut()?;
        let block = seeding.next(now, to, peer, &self.wanted)?;
        debug_assert!(have.contains(block), "a source has everything");
        self.recent.note(block);
        if seeding.is_one_of_several() {
            self.gave.push(block);
        }
        peer.wants_any -= 1;
        peer.give(block, have.len());
        Some(block)
    }

    fn free_slots(&self, now: Time) -> usize {
        let slots = if self.gap > 0.0 {
            (SLOTS_COVER_S / self.gap) as usize
        } else {
            SLOTS_MIN
        };
        // They are in order, and hardly ever is one stuck: few need a look.
        let usual = 4.0 * self.service;
        let stuck = if usual > STUCK.as_secs_f64() {
            Duration::from_secs_f64(usual)
        } else {
            STUCK
        };
        let is_stuck = |(_, since): &&(NodeId, Time)| now.since(*since) >= stuck;
        let held = self.slots.len() - self.slots.iter().take_while(is_stuck).count();
        slots.clamp(SLOTS_MIN, SLOTS_MAX).saturating_sub(held)
    }
}

/// All that a neighbour wants was given once, though not all that there is: it need not wait for the
/// rest, and may request from now on.
fn release(node: NodeId, peer: &mut Neighbour, have: &BlockSet, out: &mut Actions) {
    debug_assert!(have.is_full(), "a source seeds");
    (peer.wants_any, peer.released) = (0, true);
    let message = Message::Bitfield {
        have: have.to_wire(),
        want: have.to_wire(),
        seeding: false,
    };
    out.send(node, &message);
}

#[cfg(test)]
mod tests {
    use super::super::neighbour::Wanted;
    use super::*;

    /// Whether a source that seeds to receivers of these blocks, of 100, serves them in turn.
    fn is_shared(wants: &[std::ops::Range<u32>]) -> bool {
        let mut uploads = Uploads::new(
            100,
            Some(Share {
                index: 0,
                of: 1,
                among: 3,
            }),
            Kind::Push,
        );
        let mut neighbours = Neighbours::default();
        for (node, range) in (1..).zip(wants) {
            let mut want = BlockSet::new(100);
            range.clone().for_each(|block| {
                want.insert(block);
            });
            uploads.note_wanted(&want);
            let mut peer = Neighbour::new(100, Time::ZERO);
            peer.set(BlockSet::new(100), Wanted::of(want));
            neighbours.insert(NodeId(node), peer);
        }
        uploads.shares(&neighbours)
    }

    #[test]
    fn receivers_compete_for_a_source_that_seeds_if_they_want_different_blocks() {
        assert!(is_shared(&[0..100, 0..100]));
        assert!(is_shared(&[0..10, 0..100]));
        assert!(is_shared(&[0..10, 10..50, 49..100]));
        assert!(!is_shared(&[0..10, 10..50, 50..100]));
        // A relay wants nothing for itself.
        assert!(!is_shared(&[0..10, 0..0, 50..100]));
    }
}
