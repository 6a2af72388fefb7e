//! What the nodes of a gossip say to each other.

use std::ops::Range;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BatchId, Batches, BlockId, BlockSet, Holding, NodeId, Support};
use serde::{Deserialize, Serialize};

use crate::mend::MendMessage;

/// How many batches an offer names at most.
pub(super) const PARTS_MAX: usize = 16;
const _: () = assert!(
    PARTS_MAX >= super::LIVE_MAX,
    "all that is in memory can be offered"
);

#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    /// First word: the blocks the sender has.
    Hello { have: WireBlocks },
    /// Batches the sender got whole since.
    Whole { batches: Vec<BatchId> },
    /// The sender has room to send something. Whole batches are known; of what was granted before
    /// `queued` pieces have not left yet.
    Offer {
        parts: Vec<Part>,
        lead: Option<Lead>,
        queued: u8,
        /// Most of the sender's slots are empty.
        spare: bool,
    },
    /// Send me this; if there is `more` to come, offer again before it has left.
    Grant { piece: Piece, more: bool },
    /// To an offer: not now. If the receiver is `idle`, there is nothing new for it in the offer;
    /// otherwise the offer stands until it is made use of or replaced.
    Busy { idle: bool },
    /// To a grant: this will not come.
    Decline { piece: Piece },
    /// Wrong packets are about: from now on the sender takes only what is made of verified blocks,
    /// and wants to be told with each offer which these are.
    Careful,
    /// This node sent the sender something wrong, beyond doubt.
    Convicted { peer: NodeId },
    /// Of a source: this batch comes first for a while, or again the earliest.
    Prefer { batch: Option<BatchId> },
    /// What no other way brings.
    Mend(MendMessage),
}

/// What a node has of a batch that is not whole there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) batch: BatchId,
    /// The dimension of all it has.
    pub(super) rank: u16,
    /// A bit for each block that occurs in what it has; empty if all do.
    pub(super) support: Vec<u8>,
    /// A bit for each of its blocks that is verified; empty for nodes that did not ask for it.
    pub(super) blocks: Vec<u8>,
}

impl Part {
    pub(super) fn new(batch: BatchId, holding: Holding, full: u16, blocks: Vec<u8>) -> Self {
        let Holding { rank, support } = holding;
        debug_assert!(rank > 0, "nothing is not offered");
        debug_assert!(support.is_subset(Support::first(full)));
        let some = support.len() < full;
        Self {
            batch,
            rank,
            support: if some {
                support.to_bits(full)
            } else {
                Vec::new()
            },
            blocks,
        }
    }

    /// What it has of a batch of `full` blocks; `None` if that makes no sense.
    pub(super) fn holding(&self, full: u16) -> Option<Holding> {
        let rank = self.rank;
        let support = if self.support.is_empty() {
            Support::first(full)
        } else {
            Support::from_bits(&self.support, full)?
        };
        (rank <= support.len()).then_some(Holding { rank, support })
    }

    /// The verified blocks out of those of the batch.
    pub(super) fn verified(&self, batch: Range<BlockId>) -> impl Iterator<Item = BlockId> {
        let bit = |place: usize| self.blocks.get(place / 8).copied().unwrap_or(0) >> (place % 8);
        let places = batch.enumerate();
        places.filter_map(move |(place, block)| (bit(place) & 1 == 1).then_some(block))
    }
}

/// Where a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lead {
    /// The batch it would rather send of: of this it has blocks that no node was given.
    pub(super) fresh: Option<BatchId>,
    /// It serves earlier batches only.
    pub(super) until: BatchId,
}

/// What a grant asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Piece {
    Block(BlockId),
    /// A packet of a batch, or a block of it that no node was given.
    Packet {
        batch: BatchId,
        pure: bool,
    },
}

impl Piece {
    pub(super) const fn batch(self, batches: Batches) -> BatchId {
        match self {
            Self::Block(block) => batches.batch_of(block),
            Self::Packet { batch, .. } => batch,
        }
    }
}

impl Message {
    /// Whether everything it names exists.
    pub(super) fn is_sound(&self, batches: Batches) -> bool {
        let block = |block: &BlockId| *block < batches.blocks();
        let batch = |batch: &BatchId| *batch < batches.count();
        match self {
            Self::Hello { have } => BlockSet::from_wire(have, batches.blocks()).is_some(),
            Self::Whole { batches: list } => list.iter().all(batch),
            Self::Offer { parts, lead, .. } => {
                let part = |part: &Part| {
                    let full = batches.rank_of(part.batch);
                    let bits = [0, usize::from(full).div_ceil(8)];
                    batch(&part.batch)
                        && part.holding(full).is_some()
                        && bits.contains(&part.blocks.len())
                };
                let fresh = lead.and_then(|lead| lead.fresh);
                parts.len() <= PARTS_MAX
                    && parts.iter().all(part)
                    && fresh.is_none_or(|fresh| batch(&fresh))
            }
            Self::Grant { piece, .. } | Self::Decline { piece } => match piece {
                Piece::Block(one) => block(one),
                Piece::Packet { batch: one, .. } => batch(one),
            },
            Self::Prefer { batch: one } => one.as_ref().is_none_or(batch),
            Self::Busy { .. } | Self::Careful | Self::Convicted { .. } | Self::Mend(_) => true,
        }
    }
}
