//! What a node knows of one neighbour.

use std::collections::VecDeque;

use outpour_core::{BlockId, BlockSet, Time};

/// One neighbour, from its `PeerUp` to its `PeerDown`.
pub(super) struct Neighbour {
    /// The blocks it said it has.
    pub(super) theirs: BlockSet,
    /// It is a source that gives each block once first: ask it, do not request.
    pub(super) seeding: bool,
    /// When something last came from it.
    pub(super) heard: Time,
    /// When something was last said to it.
    pub(super) spoken: Time,

    /// Blocks requested from it, oldest first.
    pub(super) asked: VecDeque<(BlockId, Time)>,
    /// Blocks asked of it as a seeding source that have not come.
    pub(super) credit: u32,
    /// When it last delivered, or when the credit rose from zero.
    pub(super) delivered: Time,
    /// Seconds from request to arrival, smoothed; zero until known.
    pub(super) latency: f64,
    /// Seconds between blocks from it as a seeding source, smoothed; zero until known.
    pub(super) gap: f64,
    /// It failed to deliver; nothing is asked of it until then.
    pub(super) snubbed_until: Option<Time>,
    /// It had nothing to request when last looked at.
    pub(super) dull: bool,

    /// Blocks it requested from us that are not with the driver yet, oldest first.
    pub(super) wants: VecDeque<BlockId>,
    /// Blocks it asked of us as a seeding source.
    pub(super) wants_any: u32,
    /// Blocks for it in the driver's queue.
    pub(super) queued: usize,
}

impl Neighbour {
    pub(super) fn new(blocks: u32, now: Time) -> Self {
        Self {
            theirs: BlockSet::new(blocks),
            seeding: false,
            heard: now,
            spoken: now,
            asked: VecDeque::new(),
            credit: 0,
            delivered: now,
            latency: 0.0,
            gap: 0.0,
            snubbed_until: None,
            dull: false,
            wants: VecDeque::new(),
            wants_any: 0,
            queued: 0,
        }
    }

    /// Whether it waits for blocks from us.
    pub(super) fn is_waiting(&self) -> bool {
        !self.wants.is_empty() || self.wants_any > 0 || self.queued > 0
    }

    pub(super) fn is_snubbed(&self, now: Time) -> bool {
        self.snubbed_until.is_some_and(|until| until > now)
    }
}
