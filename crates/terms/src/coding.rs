//! How the batches of an object are coded.

use outpour_core::{Batches, Bytes};
use outpour_protocols::registry::{CodingTraits, Entry};
use serde::{Deserialize, Serialize};

use crate::error::TermsError;

/// Most threads that make packets.
pub const ENCODERS_MAX: u8 = 16;

/// Most memory that the packets of one transfer may take at a node, in bytes.
pub(crate) const MEMORY_MAX: u64 = 512 << 20;

/// How the batches of a transfer are coded, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coding {
    /// How many blocks a batch has.
    pub batch_blocks: u16,
    /// How many threads of a node make packets.
    pub encoders: u8,
}

/// Packets of so many batches are kept at once: twice as many as the protocol has under way, so
/// that unrequested packets keep out none that were requested.
pub const fn kept_batches(traits: CodingTraits) -> u32 {
    2 * traits.live_batches
}

impl Coding {
    /// The batches of an object of so many blocks that goes by this protocol.
    ///
    /// # Errors
    /// If there are no such batches, or they would take too much memory.
    pub fn batches(
        self,
        protocol: &Entry,
        blocks: u32,
        block_bytes: u32,
    ) -> Result<Batches, TermsError> {
        let size = self.batch_blocks;
        let batches = Batches::new(blocks, size).ok_or(TermsError::Batch(size))?;
        if self.encoders == 0 || self.encoders > ENCODERS_MAX {
            return Err(TermsError::Encoders(self.encoders));
        }
        let memory = self.memory(protocol, blocks, block_bytes);
        if memory > MEMORY_MAX {
            return Err(TermsError::Memory {
                size,
                block: Bytes(block_bytes.into()),
                memory: Bytes(memory),
            });
        }
        Ok(batches)
    }

    /// How many bytes the packets of an object of so many blocks take at a node, at most.
    pub fn memory(self, protocol: &Entry, blocks: u32, block_bytes: u32) -> u64 {
        let size = u64::from(self.batch_blocks).max(1);
        let batches = u64::from(blocks).div_ceil(size);
        let kept = u64::from(protocol.coding.map_or(0, kept_batches));
        let rows = size.saturating_mul(kept.min(batches));
        rows.min(blocks.into()).saturating_mul(block_bytes.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_protocols::gossip::CODED;

    use super::*;

    #[test]
    fn sizes_that_make_no_sense_are_refused_in_one_line() {
        let refused = |batch_blocks, encoders, block_bytes| {
            let coding = Coding {
                batch_blocks,
                encoders,
            };
            let batches = coding.batches(&CODED, 1 << 20, block_bytes);
            batches.unwrap_err().to_string()
        };
        assert!(refused(0, 1, 1024).contains("1 to 256"));
        assert!(refused(257, 1, 1024).contains("1 to 256"));
        assert!(refused(8, 0, 1024).contains("encoders"));
        let line = refused(256, 1, 1 << 20);
        assert!(
            line.contains("4.29 GB") && line.contains("smaller"),
            "{line}"
        );
        let coding = Coding {
            batch_blocks: 200,
            encoders: 2,
        };
        // All of a small object in one batch is fine.
        assert!(coding.batches(&CODED, 200, 512 << 10).is_ok());
    }
}
