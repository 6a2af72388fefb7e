//! What a node has: blocks, whole batches, and the ranks of those it has in part.

use std::collections::BTreeMap;

use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId, Time};

use super::message::{PARTS_MAX, Part, bits};

/// A batch that is not whole here, of which something is here or was granted.
#[derive(Debug)]
pub(super) struct Live {
    /// The dimension of all that is here of it.
    pub(super) rank: u16,
    /// How many of its blocks are here.
    pub(super) pure: u16,
    /// Pieces granted and not come yet.
    pub(super) coming: u16,
    /// Whether packets of it are here, or coming: they take memory.
    pub(super) packets: bool,
    /// When the rank last grew.
    pub(super) grew: Time,
    /// Since it last grew, packets of senders with up to this rank were no news.
    pub(super) doubt: u16,
    /// It was decoded to something wrong: it is taken as blocks only.
    pub(super) spoiled: bool,
    /// Blocks that came from these are yet to be counted as packets.
    pub(super) echoes: Vec<NodeId>,
}

impl Live {
    /// The dimension of what may be passed on.
    const fn sound(&self) -> u16 {
        if self.spoiled { self.pure } else { self.rank }
    }
}

/// What is here.
#[derive(Debug)]
pub(super) struct Holdings {
    pub(super) batches: Batches,
    pub(super) have: BlockSet,
    /// Batches all of whose blocks are here.
    pub(super) whole: BlockSet,
    pub(super) live: BTreeMap<BatchId, Live>,
    /// How often anything came here that may be passed on.
    pub(super) gains: u64,
}

impl Holdings {
    pub(super) fn new(batches: Batches, have: BlockSet) -> Self {
        let mut all = Self {
            batches,
            whole: whole(batches, &have),
            live: BTreeMap::new(),
            gains: 0,
            have,
        };
        let mut cursor = 0;
        while let Some(block) = all.have.next_present(cursor) {
            let batch = batches.batch_of(block);
            cursor = batches.range(batch).end;
            if !all.whole.contains(batch) {
                all.live_mut(batch, Time::ZERO);
            }
        }
        all
    }

    pub(super) const fn is_full(&self) -> bool {
        self.whole.is_full()
    }

    /// What there is of a batch that is not whole.
    pub(super) fn live_mut(&mut self, batch: BatchId, now: Time) -> &mut Live {
        let (range, have) = (self.batches.range(batch), &self.have);
        self.live.entry(batch).or_insert_with(|| {
            let pure = range.filter(|block| have.contains(*block)).count() as u16;
            Live {
                rank: pure,
                pure,
                coming: 0,
                packets: false,
                grew: now,
                doubt: 0,
                spoiled: false,
                echoes: Vec::new(),
            }
        })
    }

    /// Takes a fresh block; says whether its batch is whole now.
    pub(super) fn take(&mut self, now: Time, block: BlockId) -> bool {
        let batch = self.batches.batch_of(block);
        if self.whole.contains(batch) {
            return false;
        }
        // A new entry would count the block already.
        let live = self.live_mut(batch, now);
        live.pure += 1;
        live.rank = live.rank.max(live.pure);
        live.grew = now;
        let pure = live.pure;
        self.have.insert(block);
        self.gains += 1;
        let whole = pure >= self.batches.rank_of(batch);
        if whole {
            self.live.remove(&batch);
            self.whole.insert(batch);
        }
        whole
    }

    /// What may be offered to somebody who has the batches `theirs` whole and, if `careful`, wants
    /// to know which blocks there are.
    pub(super) fn parts(&self, theirs: &BlockSet, careful: bool) -> Vec<Part> {
        let part = |(batch, live): (&BatchId, &Live)| {
            let bits = || bits(self.batches.range(*batch), &self.have);
            (live.sound() > 0 && !theirs.contains(*batch)).then(|| Part {
                batch: *batch,
                rank: live.sound(),
                blocks: if careful { bits() } else { Vec::new() },
            })
        };
        self.live.iter().filter_map(part).take(PARTS_MAX).collect()
    }

    /// Whether there is anything for somebody who has the batches `theirs` whole.
    pub(super) fn has_for(&self, theirs: &BlockSet, until: BatchId) -> bool {
        if theirs.is_full() {
            return false;
        }
        let part = |(batch, live): (&BatchId, &Live)| live.sound() > 0 && !theirs.contains(*batch);
        if self.live.iter().any(part) {
            return true;
        }
        let mut cursor = 0;
        while let Some(batch) = theirs.next_absent(cursor).filter(|batch| *batch < until) {
            if self.whole.contains(batch) {
                return true;
            }
            cursor = batch + 1;
        }
        false
    }

    /// How many batches there are of which packets are here or coming.
    pub(super) fn in_memory(&self) -> usize {
        self.live.values().filter(|live| live.packets).count()
    }
}

/// The batches all of whose blocks are in `have`.
pub(super) fn whole(batches: Batches, have: &BlockSet) -> BlockSet {
    let mut whole = BlockSet::new(batches.count());
    for range in have.ranges() {
        let size = u32::from(batches.size());
        let first = range.start.div_ceil(size);
        let last = if range.end == batches.blocks() {
            batches.count()
        } else {
            range.end / size
        };
        if first < last {
            whole.insert_range(first..last);
        }
    }
    whole
}
