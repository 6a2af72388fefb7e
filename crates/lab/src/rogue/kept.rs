//! What a rogue puts in the place of an object: nothing, or bytes that are none of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId};
use outpour_net::{Accept, BlockIo, Encoded, Packet, PacketIo, PacketNews, Tell};

/// What stands in blocks that a rogue has not and sends all the same.
const FILLING: u8 = 0xa5;

/// Blocks of known lengths: some are here, of the others it is said that they are, or that they are not.
pub(super) struct Kept {
    lens: Vec<u32>,
    /// Whether it says that it has all of them.
    boasts: bool,
    batches: Option<Batches>,
    held: Mutex<Held>,
}

struct Held {
    have: BlockSet,
    blocks: BTreeMap<BlockId, Vec<u8>>,
}

impl Kept {
    /// Blocks of these lengths, grouped like this if they are coded.
    pub(super) fn new(lens: Vec<u32>, boasts: bool, batches: Option<Batches>) -> Self {
        let have = BlockSet::new(lens.len() as u32);
        Self {
            lens,
            boasts,
            batches,
            held: Mutex::new(Held {
                have,
                blocks: BTreeMap::new(),
            }),
        }
    }

    /// Bytes that are here, in blocks of `block` bytes.
    pub(super) fn whole(bytes: &[u8], block: usize) -> Self {
        let chunks = || bytes.chunks(block.max(1));
        let kept = Self::new(chunks().map(|it| it.len() as u32).collect(), false, None);
        {
            let mut held = kept.held();
            for (number, chunk) in (0..).zip(chunks()) {
                held.have.insert(number);
                held.blocks.insert(number, chunk.to_vec());
            }
        }
        kept
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockIo for Kept {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.lens.get(block as usize).copied()
    }

    fn has(&self, block: BlockId) -> bool {
        self.boasts || self.held().have.contains(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        let len = self.block_len(block).ok_or(io::ErrorKind::NotFound)?;
        buf.clear();
        match self.held().blocks.get(&block) {
            Some(bytes) => buf.extend_from_slice(bytes),
            None => buf.resize(len as usize, FILLING),
        }
        Ok(())
    }

    fn accept(&self, block: BlockId, _: &[u8]) -> Accept {
        // It keeps none of what it takes.
        if self.held().have.insert(block) {
            Accept::Stored
        } else {
            Accept::Duplicate
        }
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        self.batches.is_some().then_some(self as &dyn PacketIo)
    }
}

impl PacketIo for Kept {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        let range = self.batches?.range(batch);
        let blocks = range.len() as u32;
        let longest = range.filter_map(|block| self.block_len(block)).max()?;
        Some(blocks + longest)
    }

    fn wants(&self, _: BatchId) -> bool {
        !self.boasts
    }

    fn encode(&self, batch: BatchId, _: bool, mut buf: Vec<u8>, done: Encoded) {
        let len = self.packet_len(batch);
        let len = len.ok_or(io::ErrorKind::NotFound);
        done(len.map_err(io::Error::from).map(|len| {
            buf.resize(len as usize, FILLING);
            buf
        }));
    }

    fn take(&self, _: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        tell(packet.batch, PacketNews::Dropped);
    }

    fn note_block(&self, _: NodeId, _: BlockId, _: &[u8], _: &mut Tell<'_>) {}
}
