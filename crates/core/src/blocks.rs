//! Sets of blocks: a bit for each block, or chunks of runs and bits where an object has many.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "what is inside is tried for every range; what comes in is checked here"
)]
mod chunked;
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "what is inside is tried for every range; what comes in is checked here"
)]
mod dense;
#[cfg(test)]
mod model;

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use chunked::Chunked;
use dense::Dense;

/// Index of a block in its object.
pub type BlockId = u32;

/// Blocks of a word of bits.
pub const WORD: u32 = 64;
const WORD_BYTES: usize = WORD as usize / 8;

/// How long a message between nodes may be, in bytes: three sets of the object that has most blocks,
/// and what else there is to say.
pub const MESSAGE_BYTES_MAX: usize = 3 * wire_bytes_max(crate::manifest::BLOCKS_MAX) + (64 << 10);
/// Up to so many blocks have a bit each, 128 KiB in all.
const DENSE_MAX: u32 = 1 << 20;

/// A set of blocks of one object, out of `0..len`.
///
/// Counting is free: the number of members is kept, not computed. A set of a hundred million blocks
/// that are mostly in runs takes some 50 KiB.
#[derive(Clone)]
pub struct BlockSet {
    members: Members,
    len: u32,
    count: u32,
}

/// How the members are kept; which way follows from the object's size.
#[derive(Clone)]
enum Members {
    Dense(Dense),
    Chunked(Chunked),
}

impl BlockSet {
    /// The empty set out of `0..len`.
    pub fn new(len: u32) -> Self {
        let members = if len <= DENSE_MAX {
            Members::Dense(Dense::new(len))
        } else {
            Members::Chunked(Chunked::new(len))
        };
        Self {
            members,
            len,
            count: 0,
        }
    }

    /// All of `0..len`.
    pub fn full(len: u32) -> Self {
        let mut set = Self::new(len);
        set.insert_range(0..len);
        set
    }

    /// The size of the universe: how many blocks the object has.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// How many blocks are in the set.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// How many blocks of the object are not in the set.
    pub const fn missing(&self) -> u32 {
        self.len.saturating_sub(self.count)
    }

    /// Whether no block is in the set.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether every block of the object is in the set.
    pub const fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Whether `block` is in the set; a block out of range never is.
    #[inline]
    pub fn contains(&self, block: BlockId) -> bool {
        match &self.members {
            Members::Dense(members) => members.contains(block),
            Members::Chunked(members) => members.contains(block),
        }
    }

    /// Adds `block`; says whether it was new.
    ///
    /// # Panics
    /// If `block` is out of range: indices from outside are checked where they enter.
    #[inline]
    pub fn insert(&mut self, block: BlockId) -> bool {
        assert!(block < self.len, "block {block} out of {}", self.len);
        let fresh = match &mut self.members {
            Members::Dense(members) => members.set(block, true),
            Members::Chunked(members) => members.set(block, true),
        };
        self.count = self.count.saturating_add(u32::from(fresh));
        fresh
    }

    /// Takes `block` out; says whether it was there. A block out of range never is.
    #[inline]
    pub fn remove(&mut self, block: BlockId) -> bool {
        if block >= self.len {
            return false;
        }
        let there = match &mut self.members {
            Members::Dense(members) => members.set(block, false),
            Members::Chunked(members) => members.set(block, false),
        };
        self.count = self.count.saturating_sub(u32::from(there));
        there
    }

    /// Adds every block of `range`.
    ///
    /// # Panics
    /// If the range reaches past the last block.
    pub fn insert_range(&mut self, range: Range<BlockId>) {
        let added = self.set_range(range, true);
        self.count = self.count.saturating_add(added);
    }

    /// Takes every block of `range` out.
    ///
    /// # Panics
    /// If the range reaches past the last block.
    pub fn remove_range(&mut self, range: Range<BlockId>) {
        let taken = self.set_range(range, false);
        self.count = self.count.saturating_sub(taken);
    }

    fn set_range(&mut self, range: Range<BlockId>, present: bool) -> u32 {
        assert!(
            range.end <= self.len,
            "blocks {range:?} out of {}",
            self.len
        );
        match &mut self.members {
            Members::Dense(members) => members.set_range(range, present),
            Members::Chunked(members) => members.set_range(range, present),
        }
    }

    /// Whether every block of `range` is in the set.
    pub fn contains_range(&self, range: Range<BlockId>) -> bool {
        range.is_empty()
            || (range.end <= self.len
                && self.next_absent(range.start).is_none_or(|b| b >= range.end))
    }

    /// Adds every block of `other`.
    ///
    /// # Panics
    /// If the two sets are of different objects (differ in `len`).
    pub fn union(&mut self, other: &Self) {
        self.combine(other, |a, b| a | b);
    }

    /// Takes out every block of `other`.
    ///
    /// # Panics
    /// If the two sets are of different objects (differ in `len`).
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |a, b| a & !b);
    }

    /// Keeps only the blocks that are in `other` too.
    ///
    /// # Panics
    /// If the two sets are of different objects (differ in `len`).
    pub fn intersect(&mut self, other: &Self) {
        self.combine(other, |a, b| a & b);
    }

    fn combine(&mut self, other: &Self, op: impl Fn(u64, u64) -> u64) {
        assert_eq!(self.len, other.len, "block sets of different objects");
        self.count = match (&mut self.members, &other.members) {
            (Members::Dense(a), Members::Dense(b)) => a.combine(b, op),
            (Members::Chunked(a), Members::Chunked(b)) => a.combine(b, op),
            _ => unreachable!("sets of the same length are kept in the same way"),
        };
        debug_assert!(self.count <= self.len);
    }

    /// The first block at or after `from` that is in the set.
    pub fn next_present(&self, from: BlockId) -> Option<BlockId> {
        match &self.members {
            Members::Dense(members) => members.next(from, true),
            Members::Chunked(members) => members.next(from, true),
        }
    }

    /// The first block at or after `from` that is not in the set.
    pub fn next_absent(&self, from: BlockId) -> Option<BlockId> {
        let next = match &self.members {
            Members::Dense(members) => members.next(from, false),
            Members::Chunked(members) => members.next(from, false),
        };
        next.filter(|block| *block < self.len)
    }

    /// Whether every block of this set is in `other`, too.
    ///
    /// # Panics
    /// If the two sets are of different objects (differ in `len`).
    pub fn is_subset(&self, other: &Self) -> bool {
        assert_eq!(self.len, other.len, "block sets of different objects");
        self.count <= other.count
            && match &self.members {
                Members::Dense(_) => {
                    (0..self.words()).all(|index| self.word(index) & !other.word(index) == 0)
                }
                Members::Chunked(_) => self.ranges().all(|range| other.contains_range(range)),
            }
    }

    /// The blocks of the set in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let block = self.next_present(at)?;
            at = block.saturating_add(1);
            Some(block)
        })
    }

    /// The set as maximal runs of consecutive blocks, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<BlockId>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next_present(at)?;
            let end = self.next_absent(start).unwrap_or(self.len);
            at = end;
            Some(start..end)
        })
    }

    /// How many words of 64 blocks the object has.
    pub const fn words(&self) -> usize {
        self.len.div_ceil(WORD) as usize
    }

    /// Word `index` of the set: bit `b % 64` of word `b / 64` is block `b`; bits past the last block
    /// are zero.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        match &self.members {
            Members::Dense(members) => members.word(index),
            Members::Chunked(members) => members.word(index),
        }
    }

    /// All words, if the set keeps them side by side; sets of the same length do or do not alike.
    #[inline]
    pub fn as_words(&self) -> Option<&[u64]> {
        match &self.members {
            Members::Dense(members) => Some(members.as_words()),
            Members::Chunked(_) => None,
        }
    }

    /// The set in the form it takes on the wire: as runs or as a bitmap, whichever is shorter.
    pub fn to_wire(&self) -> WireBlocks {
        let most = self.words().saturating_mul(WORD_BYTES);
        let mut runs = Vec::new();
        let (mut at, mut bytes) = (0, 0_usize);
        for range in self.ranges() {
            let gap = range.start.saturating_sub(at);
            let run = range.end.saturating_sub(range.start);
            bytes = bytes
                .saturating_add(varint_bytes(gap))
                .saturating_add(varint_bytes(run));
            if bytes > most {
                let words = (0..self.words()).map(|index| self.word(index).to_le_bytes());
                return WireBlocks::Bitmap(words.flatten().collect());
            }
            runs.push((gap, run));
            at = range.end;
        }
        WireBlocks::Runs(runs)
    }

    /// Reads what a peer sent; `None` if it names blocks an object of `len` blocks does not have, or
    /// more runs than fit a bitmap's length. So no message costs more work than an object's words.
    pub fn from_wire(wire: &WireBlocks, len: u32) -> Option<Self> {
        match wire {
            WireBlocks::Runs(runs) => Self::from_runs(runs, len),
            WireBlocks::Bitmap(bytes) => Self::from_bitmap(bytes, len),
        }
    }

    fn from_runs(runs: &[(u32, u32)], len: u32) -> Option<Self> {
        let mut set = Self::new(len);
        // A run takes two bytes at least.
        if runs.len() > set.words().saturating_mul(WORD_BYTES / 2).max(1) {
            return None;
        }
        let mut at = 0_u32;
        for (gap, run) in runs {
            let start = at.checked_add(*gap)?;
            let end = start.checked_add(*run)?;
            if end > len {
                return None;
            }
            set.insert_range(start..end);
            at = end;
        }
        Some(set)
    }

    fn from_bitmap(bytes: &[u8], len: u32) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        if words.len() != len.div_ceil(WORD) as usize || !rest.is_empty() {
            return None;
        }
        let beyond = match len % WORD {
            0 => 0,
            within => u64::MAX << within,
        };
        if words.last().is_some_and(|last| last & beyond != 0) {
            return None;
        }
        let count = words.iter().map(|word| word.count_ones()).sum();
        let members = if len <= DENSE_MAX {
            Members::Dense(Dense::from_words(words))
        } else {
            Members::Chunked(Chunked::from_words(&words))
        };
        Some(Self {
            members,
            len,
            count,
        })
    }
}

impl PartialEq for BlockSet {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self.count == other.count
            && (0..self.words()).all(|index| self.word(index) == other.word(index))
    }
}

impl Eq for BlockSet {}

impl fmt::Debug for BlockSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ", self.count, self.len)?;
        f.debug_list().entries(self.ranges()).finish()
    }
}

/// A block set as a message carries it; nothing is believed until [`BlockSet::from_wire`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireBlocks {
    /// Gap before and length of each run.
    Runs(Vec<(u32, u32)>),
    /// The words of the set, each as eight bytes, the lowest first.
    Bitmap(Vec<u8>),
}

/// How long a set of an object of `len` blocks is on the wire at most, in bytes.
pub const fn wire_bytes_max(len: u32) -> usize {
    // Which form it is, and how long.
    const HEAD: usize = 6;
    let words = len.div_ceil(WORD) as usize;
    words.saturating_mul(WORD_BYTES).saturating_add(HEAD)
}

/// How many bytes a number takes on the wire.
const fn varint_bytes(number: u32) -> usize {
    let bits = u32::BITS.saturating_sub(number.leading_zeros());
    // Zero takes one as well.
    match bits {
        0 => 1,
        bits => bits.div_ceil(7) as usize,
    }
}

/// Which blocks of an object a node is to get, before it is known how many it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// All of them.
    #[default]
    All,
    /// None: the node passes on what others want.
    Nothing,
    /// These.
    Blocks(WireBlocks),
}

impl Want {
    /// The blocks of an object that has `len`; `None` if it does not have them all.
    pub fn of(&self, len: u32) -> Option<BlockSet> {
        match self {
            Self::All => Some(BlockSet::full(len)),
            Self::Nothing => Some(BlockSet::new(len)),
            Self::Blocks(blocks) => BlockSet::from_wire(blocks, len),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_hundred_million_blocks_in_runs_cost_some_50_kib() {
        let len = 100_000_000;
        let mut set = BlockSet::full(len);
        (0..1000).for_each(|at| set.remove_range(at * 100_000..at * 100_000 + 77));
        assert_eq!(set.count(), len - 77_000);
        let bytes = |set: &BlockSet| match &set.members {
            Members::Chunked(members) => members.bytes(),
            Members::Dense(_) => usize::MAX,
        };
        assert!(bytes(&set) < 100 << 10, "{}", bytes(&set));
        // What is all in pieces takes no more than a bit for each block would.
        let mut pieces = BlockSet::new(1 << 21);
        (0..1 << 21).step_by(2).for_each(|block| {
            pieces.insert(block);
        });
        assert!(bytes(&pieces) < (1 << 21) / 8 + 4096, "{}", bytes(&pieces));
        pieces.union(&BlockSet::full(1 << 21));
        assert!(pieces.is_full() && bytes(&pieces) < 4096);
    }

    /// Both ways to keep a set, against a plain one, by random changes.
    #[test]
    fn large_sets_are_what_a_plain_set_is() {
        use rand_core::{RngCore, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        let len = DENSE_MAX + 70_000;
        // Changes are around the places where chunks and words meet, so that they collide.
        let near = [0, 64, 65_536, 131_072, DENSE_MAX, len];
        let mut plain = std::collections::BTreeSet::new();
        let mut set = BlockSet::new(len);
        for step in 0..1500 {
            let mut draw = |n: u32| random.next_u32() % n;
            let around = near[draw(6) as usize].saturating_sub(draw(1500));
            let start = around.min(len - 1);
            let end = (start + draw(2) * draw(900) + 1).min(len);
            if draw(3) == 0 {
                set.remove_range(start..end);
                plain.retain(|block| !(start..end).contains(block));
            } else {
                set.insert_range(start..end);
                plain.extend(start..end);
            }
            assert_eq!(set.count() as usize, plain.len(), "step {step}");
            let from = around.saturating_sub(draw(300));
            assert_eq!(set.next_present(from), plain.range(from..).next().copied());
            let absent = (from..len).find(|block| !plain.contains(block));
            assert_eq!(set.next_absent(from), absent);
        }
        assert!(set.iter().eq(plain.iter().copied()));
        let wire = BlockSet::from_wire(&set.to_wire(), len);
        assert_eq!(wire.as_ref(), Some(&set));
        let mut rest = BlockSet::full(len);
        rest.subtract(&set);
        assert_eq!(rest.count(), len - set.count());
        assert!(!rest.is_subset(&set) && set.is_subset(&BlockSet::full(len)));
        rest.union(&set);
        assert!(rest.is_full());
        rest.intersect(&set);
        assert_eq!(rest, set);
    }

    #[test]
    fn ranges_across_words_count_once() {
        let mut set = BlockSet::new(200);
        set.insert_range(60..130);
        set.insert_range(100..140);
        assert_eq!(set.count(), 80);
        assert!(set.contains_range(60..140));
        assert!(!set.contains_range(59..140));
        assert!(!set.contains_range(60..141));
        set.remove_range(64..128);
        assert_eq!(set.ranges().collect::<Vec<_>>(), [60..64, 128..140]);
        assert_eq!(set.next_absent(128), Some(140));
        assert_eq!(set.next_present(141), None);
        assert_eq!(BlockSet::full(200).next_absent(0), None);
    }

    #[test]
    fn out_of_range_is_absent_and_insert_refuses_it() {
        let mut set = BlockSet::new(10);
        assert!(!set.contains(10));
        assert!(!set.contains(u32::MAX));
        assert!(!set.remove(4000));
        assert!(std::panic::catch_unwind(move || set.insert(10)).is_err());
    }

    #[test]
    fn wire_forms_round_trip_and_lies_are_refused() {
        let mut sparse = BlockSet::new(1000);
        sparse.insert_range(10..900);
        assert!(matches!(sparse.to_wire(), WireBlocks::Runs(_)));
        let mut dense = BlockSet::new(1000);
        (0..1000).step_by(2).for_each(|b| {
            dense.insert(b);
        });
        assert!(matches!(dense.to_wire(), WireBlocks::Bitmap(_)));
        for set in [sparse, dense, BlockSet::new(0), BlockSet::full(64)] {
            assert_eq!(BlockSet::from_wire(&set.to_wire(), set.len()), Some(set));
        }
        assert_eq!(
            BlockSet::from_wire(&WireBlocks::Runs(vec![(0, 11)]), 10),
            None
        );
        assert_eq!(
            BlockSet::from_wire(&WireBlocks::Runs(vec![(1, u32::MAX)]), 10),
            None
        );
        assert_eq!(
            BlockSet::from_wire(&WireBlocks::Bitmap(vec![0, 1 << 2, 0, 0, 0, 0, 0, 0]), 10),
            None
        );
        for bytes in [0, 7, 9, 16] {
            let bitmap = WireBlocks::Bitmap(vec![0; bytes]);
            assert_eq!(BlockSet::from_wire(&bitmap, 10), None, "{bytes}");
        }
        // Runs of nothing, which would be work without end.
        let runs = WireBlocks::Runs(vec![(0, 0); 5]);
        assert_eq!(BlockSet::from_wire(&runs, 10), None);
    }

    /// Every shape of a set, the largest an object has and those where forms are as long as each other
    /// among them, stays within what a message may take for it.
    #[test]
    fn no_set_is_longer_on_the_wire_than_is_said() {
        let most = crate::manifest::BLOCKS_MAX;
        for (len, step, run) in [
            (most, 2, 1),
            (most, 17, 1),
            (most, 129, 128),
            (most, 300, 150),
            (most, 40_000, 20_000),
            (most, most, 1),
            (most - 63, 3, 2),
            (65, 64, 1),
            (64, 2, 1),
            (1, 1, 1),
        ] {
            let mut set = BlockSet::new(len);
            (0..len).step_by(step as usize).for_each(|start| {
                set.insert_range(start..len.min(start + run));
            });
            let wire = set.to_wire();
            let bytes = postcard::to_stdvec(&wire).unwrap().len();
            assert!(bytes <= wire_bytes_max(len), "{len} {step}: {bytes}");
            assert_eq!(BlockSet::from_wire(&wire, len), Some(set), "{len} {step}");
        }
    }
}
