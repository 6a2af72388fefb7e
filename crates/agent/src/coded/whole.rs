//! Batches that are whole, read once for many packets.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use outpour_core::{BatchId, BlockId};
use outpour_net::BlockIo;

use super::buffers::{Payload, Pool};

/// The blocks of batches used last are kept up to this many bytes, at least of one batch.
const BYTES_MAX: usize = 32 << 20;

/// The blocks of a batch in order.
pub(super) type Blocks = Arc<Vec<Payload>>;

/// The batches used last, those used before them first.
#[derive(Default)]
pub(super) struct BatchCache {
    batches: Mutex<VecDeque<(BatchId, Blocks)>>,
}

impl BatchCache {
    /// The blocks of a whole batch.
    pub(super) fn blocks(
        &self,
        batch: BatchId,
        range: Range<BlockId>,
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> io::Result<Blocks> {
        if let Some(found) = self.find(batch) {
            return Ok(found);
        }
        let blocks = range.map(|block| read(block, io, pool));
        let blocks = Arc::new(blocks.collect::<io::Result<Vec<_>>>()?);
        self.keep(batch, blocks.clone());
        Ok(blocks)
    }

    fn find(&self, batch: BatchId) -> Option<Blocks> {
        let mut batches = self.lock();
        let at = batches.iter().position(|(of, _)| *of == batch)?;
        let found = batches.remove(at)?;
        let blocks = found.1.clone();
        batches.push_back(found);
        Some(blocks)
    }

    pub(super) fn keep(&self, batch: BatchId, blocks: Blocks) {
        let mut batches = self.lock();
        batches.retain(|(of, _)| *of != batch);
        batches.push_back((batch, blocks));
        while batches.len() > 1
            && batches.iter().map(|(_, all)| bytes(all)).sum::<usize>() > BYTES_MAX
        {
            batches.pop_front();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(BatchId, Blocks)>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(blocks: &Blocks) -> usize {
    blocks.iter().map(|block| block.as_ref().len()).sum()
}

/// Reads a block that is here.
pub(super) fn read(block: BlockId, io: &dyn BlockIo, pool: &Arc<Pool>) -> io::Result<Payload> {
    let mut buffer = pool.take(0);
    io.read(block, &mut buffer.bytes)?;
    Ok(buffer.share())
}
