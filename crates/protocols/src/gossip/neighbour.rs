//! What a node knows of one neighbour.

use std::collections::{BTreeMap, VecDeque};

use outpour_core::{BatchId, BlockSet, Time};

use super::message::{Lead, Part, Piece};

/// What a neighbour says it could send.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) parts: Vec<Part>,
    pub(super) lead: Option<Lead>,
    /// Counts the offers that came here: earlier ones are made use of first.
    pub(super) turn: u64,
}

/// Something a neighbour was asked to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) piece: Piece,
    pub(super) at: Time,
    /// What the neighbour said to have of the batch.
    pub(super) rank: u16,
    /// It takes so long that it is not counted on any more.
    pub(super) late: bool,
}

/// What became of this node's last offer to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// There is none.
    Not,
    /// It was not answered, since then.
    Asked(Time),
    /// The neighbour may make use of it later.
    Stands,
}

#[derive(Debug)]
pub(super) struct Neighbour {
    /// Batches that are whole there.
    pub(super) whole: BlockSet,
    /// Blocks that are there for all we know.
    pub(super) blocks: BlockSet,

    // ---- as a receiver
    pub(super) offered: Offered,
    /// What there was to offer then: `Holdings::gains`.
    pub(super) offered_gains: u64,
    /// The batch that a source would rather send, as of that offer.
    pub(super) offered_lead: Option<Lead>,
    /// Pieces under way to it.
    pub(super) queued: usize,

    // ---- as a sender
    pub(super) standing: Option<Standing>,
    pub(super) granted: VecDeque<Granted>,
    /// With so much of a batch it had nothing new.
    pub(super) barren: BTreeMap<BatchId, u16>,
    pub(super) innovative: u32,
    pub(super) dependent: u32,
    pub(super) unasked: u32,
}

impl Neighbour {
    pub(super) fn new(batches: u32, blocks: u32) -> Self {
        Self {
            whole: BlockSet::new(batches),
            blocks: BlockSet::new(blocks),
            offered: Offered::Not,
            offered_gains: 0,
            offered_lead: None,
            queued: 0,
            standing: None,
            granted: VecDeque::new(),
            barren: BTreeMap::new(),
            innovative: 0,
            dependent: 0,
            unasked: 0,
        }
    }

    /// How many pieces are on their way from it.
    pub(super) fn coming(&self) -> usize {
        self.granted.iter().filter(|grant| !grant.late).count()
    }
}
