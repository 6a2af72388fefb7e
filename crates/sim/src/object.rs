//! What a simulated cast moves: blocks with a token each instead of bytes.

use outpour_core::{BlockId, BlockSet, Bytes};

use crate::dice::mix;

/// An object as the simulator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    blocks: u32,
    block_bytes: u32,
    last_bytes: u32,
    seed: u64,
}

impl Object {
    /// An object of `size` in blocks of `block`, of which the last may be shorter; its content
    /// follows from `seed`. `None` if a block is empty or of 4 GiB, or there are 2^32 of them.
    pub fn new(size: Bytes, block: Bytes, seed: u64) -> Option<Self> {
        let block_bytes = u32::try_from(block.0).ok().filter(|bytes| *bytes > 0)?;
        let blocks = u32::try_from(size.0.div_ceil(block.0)).ok()?;
        let last_bytes = match size.0 % block.0 {
            0 => block_bytes,
            rest => rest as u32,
        };
        Some(Self {
            blocks,
            block_bytes,
            last_bytes,
            seed,
        })
    }

    /// How many blocks the object has.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// How many bytes a full block has.
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// How many bytes this block has.
    pub const fn bytes_of(&self, block: BlockId) -> u32 {
        if block + 1 == self.blocks {
            self.last_bytes
        } else {
            self.block_bytes
        }
    }

    /// How many bytes these blocks have together.
    pub fn bytes_in(&self, blocks: &BlockSet) -> u64 {
        let full = u64::from(blocks.count()) * u64::from(self.block_bytes);
        let short = u64::from(self.block_bytes - self.last_bytes);
        let has_last = self.blocks > 0 && blocks.contains(self.blocks - 1);
        full - if has_last { short } else { 0 }
    }

    /// What the block holds: stands for its bytes, and verifies against the same.
    pub const fn content(&self, block: BlockId) -> u64 {
        mix(self.seed, block as u64)
    }
}
