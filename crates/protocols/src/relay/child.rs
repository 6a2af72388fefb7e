//! A node that another one sends to.

use std::time::Duration;

use outpour_core::{BlockId, BlockSet, Time};

/// A child that says nothing for this long does not keep a newcomer away.
const CHILD_SILENCE_MAX: Duration = Duration::from_millis(1500);

/// A node this one sends to.
#[derive(Debug)]
pub(super) struct Child {
    /// Blocks to send: it lacks them and they are here.
    pub(super) todo: BlockSet,
    /// Blocks it does not need, or was sent.
    pub(super) covered: BlockSet,
    /// What it said last that it needs.
    pub(super) needs: BlockSet,
    pub(super) cursor: BlockId,
    /// Handed to the driver since the attachment.
    pub(super) sent: u32,
    pub(super) acked: u32,
    pub(super) window: u32,
    pub(super) heard: Time,
    /// Start and acknowledged count of the current measurement of its rate.
    pub(super) measured: (Time, u32),
    /// Order of attachment; the latest is served, earlier ones are passed on to it.
    pub(super) rank: u64,
}

impl Child {
    /// Whether there is something for it here or on its way.
    pub(super) const fn has_more(&self) -> bool {
        !self.todo.is_empty() || self.sent > self.acked
    }

    /// Has all that it needs and said so.
    pub(super) fn is_served(&self) -> bool {
        self.covered.is_full() && self.sent == self.acked
    }

    /// Incomplete and speaking.
    pub(super) fn is_live(&self, now: Time) -> bool {
        !self.is_served() && now.since(self.heard) < CHILD_SILENCE_MAX
    }
}

/// The blocks that are not in a set.
pub(super) fn complement(set: &BlockSet) -> BlockSet {
    let mut rest = BlockSet::full(set.len());
    rest.subtract(set);
    rest
}
