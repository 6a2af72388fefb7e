//! What can be wrong with what a caller hands in.

use crate::BLOCKS_MAX;

/// Why coding was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A batch cannot have so many blocks.
    #[error("a batch of {blocks} blocks: expected 1 to {BLOCKS_MAX}")]
    Blocks {
        /// How many were asked for.
        blocks: usize,
    },
    /// A vector has too few or too many coefficients.
    #[error("a vector of {found} coefficients: expected {expected}, one for each")]
    VectorLength {
        /// How many it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A block or payload has the wrong length.
    #[error("a block of {found} bytes: expected {expected}")]
    BlockLength {
        /// How long it is.
        found: usize,
        /// How long it should be, or at most.
        expected: usize,
    },
    /// There is no such block in the batch.
    #[error("block {block} of a batch of {blocks}: expected less than {blocks}")]
    BlockIndex {
        /// Which was asked for.
        block: usize,
        /// How many there are.
        blocks: usize,
    },
    /// There are too few or too many buffers for results.
    #[error("{found} buffers for results: expected {expected}")]
    Buffers {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Blocks cannot be told from combinations yet.
    #[error("{missing} more innovative packets are needed before the batch can be decoded")]
    Rank {
        /// How many.
        missing: usize,
    },
    /// A packet ends before its payload begins.
    #[error("a packet of {found} bytes: expected at least {expected}")]
    PacketLength {
        /// How long it is.
        found: usize,
        /// How long it should be at least.
        expected: usize,
    },
}
