//! How much a node has of a batch: the dimension, and which blocks occur in it; and what a packet
//! adds to that.

use crate::batches::BATCH_BLOCKS_MAX;

const WORDS: usize = BATCH_BLOCKS_MAX as usize / 64;

/// What a node's combinations of a batch amount to, without their coefficients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// How many of them are linearly independent.
    pub rank: u16,
    /// The blocks that occur in any of them. There are at least as many as the rank.
    pub support: Support,
}

/// What a packet added to what was here of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// One dimension.
    Innovative,
    /// Nothing: it is a combination of what was here.
    Dependent,
    /// Nothing ever: all its coefficients are zero.
    Zero,
}

/// Some of the blocks of a batch, by their places in it; the *support* of a set of combinations are
/// those with a coefficient other than zero in any of them.
///
/// ```
/// use outpour_core::Support;
///
/// let mut here = Support::EMPTY;
/// here.insert(3);
/// let theirs = here.union(Support::first(2));
/// assert!(here.is_subset(theirs) && !theirs.is_subset(here));
/// assert_eq!(theirs.len(), 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Support([u64; WORDS]);

impl Support {
    /// No block.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Block `i` of the batch is bit `i % 64` of word `i / 64`.
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The first blocks of a batch.
    pub fn first(blocks: u16) -> Self {
        Self(std::array::from_fn(|word| {
            match usize::from(blocks).saturating_sub(64 * word) {
                0 => 0,
                more @ 1..64 => (1 << more) - 1,
                _ => u64::MAX,
            }
        }))
    }

    /// Adds a block, unless there can be none at that place.
    pub fn insert(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    /// The blocks in either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Whether all blocks are in `other`.
    pub fn is_subset(self, other: Self) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .all(|(here, there)| here & !there == 0)
    }

    /// How many blocks there are.
    pub fn len(self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// A bit for each of the first `blocks` blocks, the first in the lowest bit of the first byte.
    pub fn to_bits(self, blocks: u16) -> Vec<u8> {
        let bytes = self.0.iter().flat_map(|word| word.to_le_bytes());
        bytes.take(usize::from(blocks).div_ceil(8)).collect()
    }

    /// What [`to_bits`](Self::to_bits) gave; `None` if these are not bits of so many blocks.
    pub fn from_bits(bits: &[u8], blocks: u16) -> Option<Self> {
        if bits.len() != usize::from(blocks).div_ceil(8) {
            return None;
        }
        let byte = |at: usize| bits.get(at).copied().unwrap_or(0);
        let word = |word: usize| u64::from_le_bytes(std::array::from_fn(|at| byte(8 * word + at)));
        let support = Self(std::array::from_fn(word));
        support.is_subset(Self::first(blocks)).then_some(support)
    }
}

impl FromIterator<usize> for Support {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let mut support = Self::EMPTY;
        places.into_iter().for_each(|place| support.insert(place));
        support
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bits_say_the_same_and_hostile_ones_are_refused() {
        for blocks in [1, 7, 8, 63, 64, 65, 200, 256] {
            let all = Support::first(blocks);
            assert_eq!(all.len(), blocks);
            let some: Support = (0..usize::from(blocks)).step_by(3).collect();
            for support in [Support::EMPTY, some, all] {
                let bits = support.to_bits(blocks);
                assert_eq!(Support::from_bits(&bits, blocks), Some(support));
                assert!(support.is_subset(all) && support.union(some).is_subset(all));
                assert_eq!(Support::from_bits(&bits[1..], blocks), None);
            }
            let mut beyond = all.to_bits(blocks);
            match blocks % 8 {
                0 => beyond.push(1),
                used => *beyond.last_mut().unwrap() |= 1 << used,
            }
            assert_eq!(Support::from_bits(&beyond, blocks), None);
        }
        let mut none = Support::EMPTY;
        none.insert(usize::from(BATCH_BLOCKS_MAX));
        assert!(none.is_empty());
    }
}
