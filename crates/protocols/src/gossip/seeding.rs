//! A source's part: every block once, and which batches may be moved yet.

use std::ops::Range;

use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId};

use super::message::{Lead, Message};
use super::{Gossip, GossipOptions, Schedule};
use crate::{Actions, Member};

/// A source that has not given each of its blocks once, or may not send of every batch yet.
#[derive(Debug)]
pub(super) struct Seeding {
    options: GossipOptions,
    batches: Batches,
    /// Blocks of this source's share that no node was given or said to have.
    ungiven: BlockSet,
    /// It serves batches before this one.
    until: BatchId,
    /// All nodes have the batches before this one.
    done: BatchId,
    /// Pieces it sent.
    sends: u64,
    /// After so many sends the next thing happens: the next batch begins, or the earliest batch
    /// comes first again.
    next: u64,
    /// The batch that comes first.
    prefer: Option<BatchId>,
    /// So many sends it does.
    preferred: u64,
}

impl Seeding {
    /// The part of `me`, one of the sources among `members`; each gives an equal share.
    pub(super) fn new(
        me: NodeId,
        members: &[Member],
        batches: Batches,
        options: GossipOptions,
    ) -> Self {
        let sources = members.iter().filter(|member| member.is_source()).count() as u32;
        let before = members.iter().take(me.index());
        let rank = before.filter(|member| member.is_source()).count() as u32;
        debug_assert!(members[me.index()].is_source());
        debug_assert!(rank < sources);
        let mut ungiven = BlockSet::new(batches.blocks());
        let mut block = rank;
        while block < batches.blocks() {
            ungiven.insert(block);
            block += sources.max(1);
        }
        let rounds = usize::BITS - members.len().saturating_sub(1).leading_zeros();
        let mut seeding = Self {
            options,
            batches,
            ungiven,
            until: 1,
            done: 0,
            sends: 0,
            next: 0,
            prefer: None,
            preferred: u64::from(rounds),
        };
        seeding.next = seeding.length(0);
        seeding.check();
        seeding
    }

    /// What holds between any two calls.
    fn check(&self) {
        let count = self.batches.count();
        debug_assert!(self.until > 0, "the first batch is served from the start");
        debug_assert!(self.until <= count.max(1));
        debug_assert!(self.done <= count);
        debug_assert!(self.prefer.is_none_or(|batch| batch < self.until));
        let schedules = self.options.schedule == Schedule::Overlap2;
        debug_assert!(schedules || self.prefer.is_none());
        debug_assert!(
            !schedules || self.sends < self.next,
            "the schedule stands still"
        );
    }

    /// How long a batch goes on alone, in sends.
    fn length(&self, batch: BatchId) -> u64 {
        u64::from(self.batches.rank_of(batch)) + u64::from(self.options.slack)
    }

    /// Some node has these blocks.
    pub(super) fn learn(&mut self, blocks: impl Iterator<Item = BlockId>) {
        blocks.for_each(|block| {
            self.ungiven.remove(block);
        });
    }

    /// The next block of a batch to give a node that has `theirs`.
    pub(super) fn give(&mut self, batch: Range<BlockId>, theirs: &BlockSet) -> Option<BlockId> {
        let mut cursor = batch.start;
        while let Some(block) = self.ungiven.next_present(cursor)
            && block < batch.end
        {
            if !theirs.contains(block) {
                let first = self.ungiven.remove(block);
                debug_assert!(first, "{block} is given twice");
                return Some(block);
            }
            cursor = block + 1;
        }
        None
    }

    fn lead(&self) -> Lead {
        let from = |block| {
            let block = self.ungiven.next_present(block);
            block.map(|block| self.batches.batch_of(block))
        };
        let first = from(0);
        if self.options.schedule == Schedule::Stream {
            return Lead {
                fresh: first,
                until: first.map_or(u32::MAX, |fresh| fresh + 1),
            };
        }
        let preferred = self.prefer.filter(|batch| {
            let start = self.batches.range(*batch).start;
            from(start) == Some(*batch)
        });
        // By Algorithm 1 the next batch is for nodes that have the one before.
        let ahead = match self.options.schedule {
            Schedule::Overlap1 => self.done.saturating_add(1),
            _ => u32::MAX,
        };
        let until = self.until.min(ahead);
        Lead {
            fresh: preferred.or_else(|| first.filter(|batch| *batch < until)),
            until: self.until,
        }
    }

    fn is_over(&self) -> bool {
        let streams = self.options.schedule == Schedule::Stream;
        self.ungiven.is_empty()
            && (streams || self.until >= self.batches.count())
            && self.prefer.is_none()
    }

    /// Something was sent; says whether other batches come first now.
    fn on_send(&mut self) -> bool {
        self.sends += 1;
        if self.options.schedule != Schedule::Overlap2 || self.sends < self.next {
            return false;
        }
        if self.prefer.take().is_none() && self.until < self.batches.count() {
            self.prefer = Some(self.until);
            self.next = self.sends + self.preferred;
            self.until += 1;
        } else {
            self.next = self.sends + self.length(self.until - 1);
        }
        self.check();
        true
    }

    /// All nodes have the batches before `done`.
    fn on_done(&mut self, done: BatchId) {
        self.done = done;
        let ahead = match self.options.schedule {
            Schedule::Overlap1 => 2,
            _ => 1,
        };
        let until = done.saturating_add(ahead).min(self.batches.count());
        if until > self.until {
            self.until = until;
            self.next = self.sends + self.length(until - 1);
        }
        self.check();
    }
}

impl Gossip {
    /// Where this node is, if it is a source that seeds.
    pub(super) fn lead(&self) -> Option<Lead> {
        self.seeding.as_ref().map(Seeding::lead)
    }

    /// A source sent something: the schedule goes on.
    pub(super) fn on_source_send(&mut self, out: &mut Actions) {
        let Some(seeding) = &mut self.seeding else {
            return;
        };
        if seeding.on_send() {
            let batch = seeding.prefer;
            let all = self.neighbours.pick(|_| true);
            out.send_all(all, &Message::Prefer { batch });
        }
        self.end_seeding();
    }

    /// A neighbour got something whole, came or went: perhaps all have the earliest batches.
    pub(super) fn on_progress(&mut self) {
        if let Some(seeding) = &mut self.seeding
            && seeding.options.schedule != Schedule::Stream
        {
            let peers = self.neighbours.iter();
            let done = peers
                .filter_map(|(_, peer)| peer.whole.next_absent(0))
                .min();
            seeding.on_done(done.unwrap_or(0));
        }
        self.end_seeding();
    }

    fn end_seeding(&mut self) {
        if self.seeding.as_ref().is_some_and(Seeding::is_over) {
            self.seeding = None;
        }
    }
}
