//! What the data plane moves while it is measured: noise that is not kept.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::io;

use outpour_core::BlockId;
use outpour_net::{Accept, BlockIo};

/// Length of a block: short, so that slow paths still bring several in a second.
pub(super) const BLOCK_BYTES: u32 = 32 << 10;
/// So few blocks are repeated that all of them stay in memory.
pub(super) const BLOCKS: u32 = 32;

/// Blocks of noise. A block that comes is here already, so it is counted and dropped.
pub(super) struct Noise {
    bytes: Vec<u8>,
}

impl Noise {
    pub(super) fn new() -> Self {
        // No two words alike, so that nothing on the way makes it shorter.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize);
        while bytes.len() < BLOCK_BYTES as usize {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        Self { bytes }
    }

    /// Length of a block.
    pub(super) const fn len(_: BlockId) -> u32 {
        BLOCK_BYTES
    }
}

impl BlockIo for Noise {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        (block < BLOCKS).then_some(BLOCK_BYTES)
    }

    fn has(&self, block: BlockId) -> bool {
        block < BLOCKS
    }

    fn read(&self, _: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        buf.extend_from_slice(&self.bytes);
        Ok(())
    }

    fn accept(&self, _: BlockId, _: &[u8]) -> Accept {
        Accept::Duplicate
    }
}
