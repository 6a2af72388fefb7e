//! Batches: consecutive blocks of an object that are coded together.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::blocks::BlockId;

/// Index of a batch in its object.
pub type BatchId = u32;

/// How the blocks of an object are grouped.
///
/// Every batch has [`Batches::size`] blocks but the last, which has what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    blocks: u32,
    size: u16,
}

/// Most blocks of a batch: with more, coefficients over GF(2^8) get dependent too often and
/// decoding costs too much.
pub const BATCH_BLOCKS_MAX: u16 = 256;

impl Batches {
    /// Batches of `size` blocks out of `blocks`; `None` unless `1 <= size <= BATCH_BLOCKS_MAX`.
    pub const fn new(blocks: u32, size: u16) -> Option<Self> {
        if size == 0 || size > BATCH_BLOCKS_MAX {
            return None;
        }
        Some(Self { blocks, size })
    }

    /// How many blocks the object has.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// How many blocks a full batch has.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// How many batches there are.
    pub const fn count(&self) -> u32 {
        self.blocks.div_ceil(self.size as u32)
    }

    /// The batch a block belongs to.
    pub const fn batch_of(&self, block: BlockId) -> BatchId {
        block / self.size as u32
    }

    /// The blocks of a batch; empty if there is no such batch.
    pub fn range(&self, batch: BatchId) -> Range<BlockId> {
        let size = u64::from(self.size);
        let end = |at: u64| u32::try_from(at).unwrap_or(u32::MAX).min(self.blocks);
        end(u64::from(batch) * size)..end((u64::from(batch) + 1) * size)
    }

    /// How many blocks a batch has: its full rank.
    pub fn rank_of(&self, batch: BatchId) -> u16 {
        self.range(batch).len() as u16
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn batches_cover_every_block_once() {
        for (blocks, size) in [(0, 4), (1, 4), (8, 4), (9, 4), (1000, 256), (u32::MAX, 256)] {
            let batches = Batches::new(blocks, size).unwrap();
            assert_eq!(batches.range(batches.count()).len(), 0);
            let last = batches.count().saturating_sub(1);
            assert_eq!(batches.range(last).end, blocks);
            for batch in [0, last / 2, last] {
                for block in batches.range(batch) {
                    assert_eq!(batches.batch_of(block), batch);
                }
            }
        }
    }

    #[test]
    fn a_batch_has_at_least_one_block_and_at_most_256() {
        assert_eq!(Batches::new(10, 0), None);
        assert_eq!(Batches::new(10, 257), None);
        assert_eq!(Batches::new(10, 256).unwrap().rank_of(0), 10);
    }
}
