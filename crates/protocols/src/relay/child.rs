//! A node that another one sends to.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, Time};

use super::{TICK, WINDOW_MAX, WINDOW_MIN};

/// A child that says nothing for this long does not keep a newcomer away.
const CHILD_SILENCE_MAX: Duration = Duration::from_millis(1500);
// It speaks at every tick while it is incomplete.
const _: () = assert!(CHILD_SILENCE_MAX.as_nanos() > 2 * TICK.as_nanos());

/// What a child took is compared over so many ticks.
const PROGRESS_TICKS: usize = 2;

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
    /// Order of attachment: the latest is served, earlier ones are passed on to it, unless it takes far less.
    pub(super) rank: u64,
    /// Acknowledged counts at the last ticks, the oldest first.
    pub(super) history: VecDeque<u32>,
}

impl Child {
    /// What holds between any two events, in so far as it costs nothing to look.
    pub(super) fn check(&self) {
        debug_assert!(self.acked <= self.sent, "it has more than it was sent");
        debug_assert!(self.measured.1 <= self.acked);
        debug_assert!(self.history.iter().all(|then| *then <= self.acked));
        debug_assert!(self.window >= WINDOW_MIN);
        debug_assert!(self.window <= WINDOW_MAX);
        debug_assert!(self.cursor <= self.covered.len());
        debug_assert!(
            self.todo.count() <= self.covered.missing(),
            "what is covered is to be sent"
        );
        debug_assert!(
            self.needs.missing() <= self.covered.count(),
            "what it does not need is not covered"
        );
    }

    /// A tick has passed.
    pub(super) fn note_tick(&mut self) {
        if self.history.len() == PROGRESS_TICKS {
            self.history.pop_front();
        }
        self.history.push_back(self.acked);
    }

    /// How many blocks it took lately, once it was a child for so long.
    pub(super) fn progress(&self) -> Option<u32> {
        let then = self.history.front()?;
        (self.history.len() == PROGRESS_TICKS).then(|| self.acked - then)
    }

    /// Whether what it is to be sent is what it lacks of what its parent has.
    pub(super) fn check_todo(&self, have: &BlockSet) {
        debug_assert!(self.todo.is_subset(have), "what is to be sent is not here");
        debug_assert!(self.todo.is_subset(&self.needs), "it does not need that");
        debug_assert!(complement(&self.needs).is_subset(&self.covered));
        debug_assert!(self.todo.is_subset(&complement(&self.covered)));
    }

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
