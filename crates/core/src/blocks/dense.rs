//! A bit for each block.

use std::ops::Range;

use super::{BlockId, WORD};

/// One bit for each block; bits past the last block are zero.
#[derive(Clone)]
pub(super) struct Dense {
    words: Vec<u64>,
}

impl Dense {
    pub(super) fn new(len: u32) -> Self {
        Self {
            words: vec![0; len.div_ceil(WORD) as usize],
        }
    }

    /// A set of these words, all there are.
    pub(super) const fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }

    #[inline]
    pub(super) fn as_words(&self) -> &[u64] {
        &self.words
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    #[inline]
    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.word((block / WORD) as usize) >> (block % WORD) & 1 == 1
    }

    /// Adds a block or takes it out; whether that changed anything. It has to be in range.
    #[inline]
    pub(super) fn set(&mut self, block: BlockId, present: bool) -> bool {
        let word = &mut self.words[(block / WORD) as usize];
        let bit = 1 << (block % WORD);
        let changed = (*word & bit == 0) == present;
        *word ^= if changed { bit } else { 0 };
        changed
    }

    /// Adds all of a range or takes it out; how many blocks changed.
    pub(super) fn set_range(&mut self, range: Range<BlockId>, present: bool) -> u32 {
        let (mut at, mut changed) = (range.start, 0);
        while at < range.end {
            let stop = ((at / WORD + 1) * WORD).min(range.end);
            let low = u64::MAX << (at % WORD);
            let high = u64::MAX >> (WORD - 1 - (stop - 1) % WORD);
            let word = &mut self.words[(at / WORD) as usize];
            let after = if present {
                *word | (low & high)
            } else {
                *word & !(low & high)
            };
            changed += (*word ^ after).count_ones();
            *word = after;
            at = stop;
        }
        changed
    }

    /// Combines each word with that of a set of the same object; how many blocks there are then.
    pub(super) fn combine(&mut self, other: &Self, op: impl Fn(u64, u64) -> u64) -> u32 {
        debug_assert_eq!(self.words.len(), other.words.len());
        let mut count = 0;
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a = op(*a, *b);
            count += a.count_ones();
        }
        count
    }

    /// The first block at or after `from` that is there, or is not; that may be past the last.
    pub(super) fn next(&self, from: BlockId, present: bool) -> Option<BlockId> {
        let flip = if present { 0 } else { u64::MAX };
        let start = (from / WORD) as usize;
        let mut mask = u64::MAX << (from % WORD);
        for (index, word) in self.words.iter().enumerate().skip(start) {
            let found = (word ^ flip) & mask;
            if found != 0 {
                return Some(index as u32 * WORD + found.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }
}
