//! Sets of blocks: a dense bitset, so that a million blocks cost 128 KiB.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Index of a block in its object.
pub type BlockId = u32;

const WORD: u32 = 64;

/// A set of blocks of one object, out of `0..len`.
///
/// Counting is free: the number of members is kept, not computed.
#[derive(Clone, PartialEq, Eq)]
pub struct BlockSet {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

impl BlockSet {
    /// The empty set out of `0..len`.
    pub fn new(len: u32) -> Self {
        Self {
            words: vec![0; len.div_ceil(WORD) as usize],
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
        self.len - self.count
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
    pub fn contains(&self, block: BlockId) -> bool {
        self.words
            .get((block / WORD) as usize)
            .is_some_and(|word| word >> (block % WORD) & 1 == 1)
    }

    /// Adds `block`; says whether it was new.
    ///
    /// # Panics
    /// If `block` is out of range: indices from outside are checked where they enter.
    pub fn insert(&mut self, block: BlockId) -> bool {
        assert!(block < self.len, "block {block} out of {}", self.len);
        let word = &mut self.words[(block / WORD) as usize];
        let bit = 1 << (block % WORD);
        let fresh = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(fresh);
        fresh
    }

    /// Takes `block` out; says whether it was there. A block out of range never is.
    pub fn remove(&mut self, block: BlockId) -> bool {
        let Some(word) = self.words.get_mut((block / WORD) as usize) else {
            return false;
        };
        let bit = 1 << (block % WORD);
        let there = *word & bit != 0;
        *word &= !bit;
        self.count -= u32::from(there);
        there
    }

    /// Adds every block of `range`.
    ///
    /// # Panics
    /// If the range reaches past the last block.
    pub fn insert_range(&mut self, range: Range<BlockId>) {
        assert!(
            range.end <= self.len,
            "blocks {range:?} out of {}",
            self.len
        );
        self.for_masks(range, |word, mask| *word |= mask);
    }

    /// Takes every block of `range` out.
    ///
    /// # Panics
    /// If the range reaches past the last block.
    pub fn remove_range(&mut self, range: Range<BlockId>) {
        assert!(
            range.end <= self.len,
            "blocks {range:?} out of {}",
            self.len
        );
        self.for_masks(range, |word, mask| *word &= !mask);
    }

    fn for_masks(&mut self, range: Range<BlockId>, mut change: impl FnMut(&mut u64, u64)) {
        let mut at = range.start;
        while at < range.end {
            let stop = ((at / WORD + 1) * WORD).min(range.end);
            let low = u64::MAX << (at % WORD);
            let high = u64::MAX >> (WORD - 1 - (stop - 1) % WORD);
            let word = &mut self.words[(at / WORD) as usize];
            let before = word.count_ones();
            change(word, low & high);
            self.count = self.count + word.count_ones() - before;
            at = stop;
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
        let mut count = 0;
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a = op(*a, *b);
            count += a.count_ones();
        }
        self.count = count;
    }

    /// The first block at or after `from` that is in the set.
    pub fn next_present(&self, from: BlockId) -> Option<BlockId> {
        self.next(from, |word| word)
    }

    /// The first block at or after `from` that is not in the set.
    pub fn next_absent(&self, from: BlockId) -> Option<BlockId> {
        self.next(from, |word| !word)
            .filter(|block| *block < self.len)
    }

    fn next(&self, from: BlockId, view: impl Fn(u64) -> u64) -> Option<BlockId> {
        let start = (from / WORD) as usize;
        let mut mask = u64::MAX << (from % WORD);
        for (index, word) in self.words.iter().enumerate().skip(start) {
            let found = view(*word) & mask;
            if found != 0 {
                return Some(index as u32 * WORD + found.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }

    /// The blocks of the set in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let block = self.next_present(at)?;
            at = block + 1;
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

    /// The 64-bit words of the set: bit `b % 64` of word `b / 64` is block `b`; bits past the
    /// last block are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The set in the form it takes on the wire: as runs or as a bitmap, whichever is shorter.
    pub fn to_wire(&self) -> WireBlocks {
        let runs_max = self.words.len() * 2;
        let mut runs = Vec::new();
        let mut at = 0;
        for range in self.ranges() {
            if runs.len() > runs_max {
                return WireBlocks::Bitmap(self.words.clone());
            }
            runs.push((range.start - at, range.end - range.start));
            at = range.end;
        }
        WireBlocks::Runs(runs)
    }

    /// Reads what a peer sent; `None` if it names blocks an object of `len` blocks does not have.
    pub fn from_wire(wire: &WireBlocks, len: u32) -> Option<Self> {
        let mut set = Self::new(len);
        match wire {
            WireBlocks::Runs(runs) => {
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
            }
            WireBlocks::Bitmap(words) => {
                if words.len() != set.words.len() {
                    return None;
                }
                let past = Self::full(len).words.last().map_or(0, |last| !last);
                if words.last().is_some_and(|last| last & past != 0) {
                    return None;
                }
                set.count = words.iter().map(|word| word.count_ones()).sum();
                set.words.clone_from(words);
            }
        }
        Some(set)
    }
}

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
    /// The words of the set.
    Bitmap(Vec<u64>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_blocks_cost_128_kib() {
        let set = BlockSet::new(1 << 20);
        assert_eq!(size_of_val(set.words()), 128 << 10);
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
            BlockSet::from_wire(&WireBlocks::Bitmap(vec![1 << 10]), 10),
            None
        );
        assert_eq!(
            BlockSet::from_wire(&WireBlocks::Bitmap(vec![0, 0]), 10),
            None
        );
    }
}
