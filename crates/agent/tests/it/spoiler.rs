//! What stands between an agent's object and the data plane, and makes some packets wrong that
//! leave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outpour_core::{BatchId, BlockId, NodeId};
use outpour_net::{Accept, BlockIo, Encoded, Packet, PacketIo, Tell};

/// See the module.
pub(crate) struct Spoiler {
    object: Arc<dyn BlockIo>,
    /// One packet of so many is wrong.
    every: u64,
    made: Arc<AtomicU64>,
}

impl Spoiler {
    pub(crate) fn new(object: Arc<dyn BlockIo>, every: u64) -> Self {
        let made = Arc::default();
        Self {
            object,
            every,
            made,
        }
    }

    fn inner(&self) -> &dyn PacketIo {
        self.object.packets().expect("the transfer is coded")
    }
}

impl BlockIo for Spoiler {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.object.block_len(block)
    }

    fn has(&self, block: BlockId) -> bool {
        self.object.has(block)
    }

    fn drops(&self, block: BlockId) -> bool {
        self.object.drops(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        self.object.read(block, buf)
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        self.object.accept(block, data)
    }

    fn packets(&self) -> Option<&dyn PacketIo> {
        Some(self)
    }
}

impl PacketIo for Spoiler {
    fn packet_len(&self, batch: BatchId) -> Option<u32> {
        self.inner().packet_len(batch)
    }

    fn wants(&self, batch: BatchId) -> bool {
        self.inner().wants(batch)
    }

    fn encode(&self, batch: BatchId, pure: bool, buf: Vec<u8>, done: Encoded) {
        let (made, every) = (self.made.clone(), self.every);
        let spoil = move |packet: io::Result<Vec<u8>>| {
            done(packet.map(|mut packet| {
                let nth = made.fetch_add(1, Ordering::Relaxed);
                if let Some(last) = packet.last_mut().filter(|_| nth.is_multiple_of(every)) {
                    *last ^= 1;
                }
                packet
            }));
        };
        self.inner().encode(batch, pure, buf, Box::new(spoil));
    }

    fn take(&self, from: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>) {
        self.inner().take(from, packet, tell);
    }

    fn note_block(&self, from: NodeId, block: BlockId, data: &[u8], tell: &mut Tell<'_>) {
        self.inner().note_block(from, block, data, tell);
    }
}
