//! What a node has: blocks, whole batches, and the ranks of those it has in part.

use std::collections::BTreeMap;
use std::ops::Range;

use outpour_core::{BatchId, Batches, BlockId, BlockSet, Holding, NodeId, Support, Time};

use super::message::{PARTS_MAX, Part};

/// A batch that is not whole here, of which something is here or was granted.
#[derive(Debug)]
pub(super) struct Live {
    /// All that is here of it.
    pub(super) holding: Holding,
    /// How many of its blocks are here.
    pub(super) pure: u16,
    /// Of which blocks the pieces are made that were granted and have not come yet.
    pub(super) coming: Vec<Support>,
    /// Whether packets of it are here, or coming: they take memory.
    pub(super) packets: bool,
    /// When the rank last grew.
    pub(super) grew: Time,
    /// When it last grew by a piece of a node that is no source, or the wait for that began.
    pub(super) fed: Time,
    /// Since it last grew, packets of senders with up to this rank were no news.
    pub(super) doubt: u16,
    /// It was decoded to something wrong: it is taken as blocks only.
    pub(super) spoiled: bool,
    /// Blocks that came from these are yet to be counted as packets.
    pub(super) echoes: Vec<NodeId>,
}

impl Live {
    /// The dimension of all that is here and coming, if all of that is new.
    pub(super) fn hoped(&self) -> u16 {
        self.holding.rank + self.coming.len() as u16
    }

    /// The blocks that occur in what is here or coming.
    pub(super) fn known(&self) -> Support {
        let coming = self.coming.iter();
        coming.fold(self.holding.support, |all, one| all.union(*one))
    }

    /// Whether a combination of some blocks can be new when all has come that is coming. What is
    /// here, and of what is coming all that is made of these blocks and of those that occur here,
    /// has no more dimensions than there are blocks.
    pub(super) fn has_room_for(&self, support: Support) -> bool {
        let all = self.holding.support.union(support);
        let within = self.coming.iter().filter(|one| one.is_subset(all)).count() as u16;
        self.holding.rank + within < all.len() && self.hoped() < self.known().union(support).len()
    }

    /// What holds of a batch of so many blocks, as long as it is not whole.
    fn check(&self, full: u16) {
        debug_assert!(self.pure < full);
        debug_assert!(self.pure <= self.holding.rank);
        debug_assert!(self.holding.rank <= full);
        debug_assert!(self.holding.rank <= self.holding.support.len());
        debug_assert!(self.holding.support.is_subset(Support::first(full)));
    }

    /// The dimension of what may be passed on.
    const fn sound(&self) -> u16 {
        if self.spoiled {
            self.pure
        } else {
            self.holding.rank
        }
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

    /// What holds of a batch that is not whole.
    pub(super) fn check(&self, batch: BatchId) {
        debug_assert!(!self.whole.contains(batch));
        if let Some(live) = self.live.get(&batch) {
            live.check(self.batches.rank_of(batch));
            debug_assert_eq!(
                live.pure,
                support(self.batches.range(batch), &self.have).len()
            );
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.whole.is_full()
    }

    /// What there is of a batch that is not whole.
    pub(super) fn live_mut(&mut self, batch: BatchId, now: Time) -> &mut Live {
        debug_assert!(batch < self.batches.count());
        debug_assert!(!self.whole.contains(batch));
        let (range, have) = (self.batches.range(batch), &self.have);
        self.live.entry(batch).or_insert_with(|| {
            let support = support(range, have);
            let rank = support.len();
            Live {
                holding: Holding { rank, support },
                pure: rank,
                coming: Vec::new(),
                packets: false,
                grew: now,
                fed: now,
                doubt: 0,
                spoiled: false,
                echoes: Vec::new(),
            }
        })
    }

    /// Takes a fresh block; says whether its batch is whole now.
    pub(super) fn take(&mut self, now: Time, block: BlockId) -> bool {
        let batch = self.batches.batch_of(block);
        let start = self.batches.range(batch).start;
        if self.whole.contains(batch) {
            return false;
        }
        // A new entry would count the block already.
        let live = self.live_mut(batch, now);
        live.pure += 1;
        live.holding.rank = live.holding.rank.max(live.pure);
        live.holding.support.insert((block - start) as usize);
        live.grew = now;
        let pure = live.pure;
        let fresh = self.have.insert(block);
        debug_assert!(fresh, "{block} is counted twice");
        self.gains += 1;
        let whole = pure >= self.batches.rank_of(batch);
        if whole {
            debug_assert!(self.have.contains_range(self.batches.range(batch)));
            self.live.remove(&batch);
            self.whole.insert(batch);
        } else {
            self.check(batch);
        }
        whole
    }

    /// What may be offered to a node that has the batches `theirs` whole and, if `careful`, wants
    /// to know which blocks there are.
    pub(super) fn parts(&self, theirs: &BlockSet, careful: bool) -> Vec<Part> {
        let part = |(batch, live): (&BatchId, &Live)| {
            let rank = live.sound();
            if rank == 0 || theirs.contains(*batch) {
                return None;
            }
            let range = self.batches.range(*batch);
            let full = range.len() as u16;
            let here = (careful || live.spoiled).then(|| support(range, &self.have));
            let support = here
                .filter(|_| live.spoiled)
                .unwrap_or(live.holding.support);
            let blocks = here.filter(|_| careful).map(|here| here.to_bits(full));
            let holding = Holding { rank, support };
            debug_assert!(rank <= support.len(), "it would be refused");
            Some(Part::new(*batch, holding, full, blocks.unwrap_or_default()))
        };
        self.live.iter().filter_map(part).take(PARTS_MAX).collect()
    }

    /// Whether there is anything for a node that has the batches `theirs` whole.
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

    /// What is here of a batch that is not whole.
    pub(super) fn holding(&self, batch: BatchId) -> Holding {
        let live = self.live.get(&batch);
        live.map(|live| live.holding).unwrap_or_default()
    }

    /// How many batches there are of which packets are here or coming.
    pub(super) fn in_memory(&self) -> usize {
        self.live.values().filter(|live| live.packets).count()
    }
}

/// The blocks of a batch that are in `have`.
pub(super) fn support(batch: Range<BlockId>, have: &BlockSet) -> Support {
    let here = batch.enumerate().filter(|(_, block)| have.contains(*block));
    here.map(|(place, _)| place).collect()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn support(places: &[usize]) -> Support {
        places.iter().copied().collect()
    }

    #[test]
    fn what_is_coming_leaves_room_for_what_is_made_of_other_blocks() {
        let batches = Batches::new(64, 64).unwrap();
        let mut hold = Holdings::new(batches, BlockSet::new(64));
        hold.take(Time::ZERO, 0);
        let live = hold.live_mut(0, Time::ZERO);
        assert_eq!(
            live.holding,
            Holding {
                rank: 1,
                support: support(&[0])
            }
        );
        assert!(!live.has_room_for(support(&[0])));
        assert!(live.has_room_for(support(&[0, 1])));
        // One dimension of two blocks is here, and the other one is coming.
        live.coming.push(support(&[1]));
        assert!(!live.has_room_for(support(&[0, 1])));
        assert!(live.has_room_for(support(&[0, 1, 2])));
        // What is made of many blocks takes no room among few, but once.
        live.coming.push(support(&[0, 1, 2, 3, 4]));
        assert!(!live.has_room_for(support(&[1])));
        assert!(live.has_room_for(support(&[2])));
        live.coming.push(support(&[2]));
        live.coming.push(support(&[3]));
        assert_eq!((live.hoped(), live.known().len()), (5, 5));
        assert!(!live.has_room_for(support(&[4])) && live.has_room_for(support(&[5])));
    }

    #[test]
    fn an_offer_names_the_blocks_that_occur_in_a_batch() {
        let batches = Batches::new(20, 10).unwrap();
        let mut hold = Holdings::new(batches, BlockSet::new(20));
        [2, 7, 13].iter().for_each(|block| {
            hold.take(Time::ZERO, *block);
        });
        let live = hold.live_mut(1, Time::ZERO);
        live.holding = Holding {
            rank: 4,
            support: Support::first(10),
        };
        let parts = hold.parts(&BlockSet::new(2), false);
        let extents: Vec<_> = parts.iter().map(|part| part.holding(10).unwrap()).collect();
        assert_eq!(
            extents[0],
            Holding {
                rank: 2,
                support: support(&[2, 7])
            }
        );
        assert_eq!(
            extents[1],
            Holding {
                rank: 4,
                support: Support::first(10)
            }
        );
        assert!(parts[1].support.is_empty(), "all need not be named");
        // What was decoded to something wrong is not passed on.
        hold.live_mut(1, Time::ZERO).spoiled = true;
        let parts = hold.parts(&BlockSet::new(2), false);
        assert_eq!(
            parts[1].holding(10),
            Some(Holding {
                rank: 1,
                support: support(&[3])
            })
        );
    }

    #[test]
    fn a_part_with_more_dimensions_than_blocks_makes_no_sense() {
        let holding = |rank| Holding {
            rank,
            support: support(&[1, 5]),
        };
        let part = |rank| Part::new(0, holding(rank), 10, Vec::new());
        assert_eq!(part(2).holding(10), Some(holding(2)));
        assert_eq!(part(3).holding(10), None);
        let mut long = part(2);
        long.support.push(0);
        assert_eq!(long.holding(10), None);
    }
}
