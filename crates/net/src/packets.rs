//! What the data plane and the owner of a coded transfer tell each other about packets.
//!
//! The data plane knows a packet as bytes that are made when they are about to be sent, go to one
//! peer once, and are never kept; what is in them is the owner's business.

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

use outpour_core::{BatchId, BlockId, Holding, NodeId, Worth};

/// How often [`PacketIo::take`] or [`PacketIo::note_block`] may tell something.
pub const NEWS_MAX: usize = 2;

/// Takes the packet that [`PacketIo::encode`] was to make.
pub type Encoded = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;

/// Where the packets of a coded transfer come from and go to.
pub trait PacketIo: Send + Sync {
    /// Length of a packet of a batch in bytes; `None` if there is no such batch.
    fn packet_len(&self, batch: BatchId) -> Option<u32>;

    /// Whether there is any use for packets of a batch; called per packet on network threads, so
    /// it must be cheap. A packet that is of no use is dropped as it comes, and told as
    /// [`PacketNews::Dropped`].
    fn wants(&self, batch: BatchId) -> bool;

    /// Makes a fresh packet of what is here of a batch, or of its verified blocks alone if it is
    /// to be pure, into `buf`, which is empty and has room,
    /// or into another buffer in exchange for it, and gives it to `done`: on whatever thread, but
    /// not before long and never on this one if it takes time, which is a network's. Nothing at
    /// all is given for a batch of which nothing is here any more that may be passed on: then
    /// nothing is sent. With an error the link is closed, so that no peer waits.
    fn encode(&self, batch: BatchId, pure: bool, buf: Vec<u8>, done: Encoded);

    /// Takes a packet. Called on threads that may block.
    fn take(&self, from: NodeId, packet: Packet<'_>, tell: &mut Tell<'_>);

    /// A fresh block was verified and stored; called after that was told, on threads that may
    /// block.
    fn note_block(&self, from: NodeId, block: BlockId, data: &[u8], tell: &mut Tell<'_>);
}

/// A packet as it came.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Of which batch.
    pub batch: BatchId,
    /// Whether its sender says that it made it of verified blocks alone.
    pub pure: bool,
    /// As long as [`PacketIo::packet_len`] says.
    pub data: &'a [u8],
}

/// Takes news of a batch, at most [`NEWS_MAX`] in one call. What is told while a lock is held is
/// reported in the order of the lock; it does not block.
pub type Tell<'a> = dyn FnMut(BatchId, PacketNews) + 'a;

/// What came of a packet, or of a fresh block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketNews {
    /// It was taken.
    Taken {
        /// What it added.
        worth: Worth,
        /// What is here of the batch now.
        holding: Holding,
    },
    /// It was dropped unread: the batch is whole or is fetched as blocks, or there is no room for one
    /// more batch.
    Dropped,
    /// The batch is whole, verified and stored.
    Whole {
        /// The blocks that came to be here by decoding.
        fresh: Vec<BlockId>,
        /// The senders of wrong packets of the batch.
        wrong: Vec<NodeId>,
    },
    /// The batch was decoded to something else than the manifest says; packets of it are of no use
    /// any more.
    Spoiled {
        /// The blocks that came to be here all the same.
        fresh: Vec<BlockId>,
    },
    /// The packet is wrong by itself; the sender is cut off.
    Wrong,
    /// What was decoded could not be stored, and why; not the sender's fault.
    Failed(String),
}
