//! How long a node may wait for its own disk.
//!
//! A sign of life comes from a program that runs, whatever its disk does. So a node says how much
//! its disk has done, and a host that waits for nothing but its disk has to have done something.
//! What it says is believed up to what there is to do, and until a deadline.

use std::time::Duration;

use outpour_core::Time;
use serde::{Deserialize, Serialize};

use super::HostState;

/// What a node says of its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Whether the node waits for it now.
    pub waiting: bool,
    /// What it has done for the stage the node is in, in bytes; a call without bytes counts as one.
    pub done: u64,
}

/// How often the object is gone through while a destination is looked at, at most: what is staged
/// is read, what is in place is read, and read again to be copied, and copies may be synced.
const PASSES_TO_PREPARE: u64 = 4;
/// ... and while files are put in place: what is not proven is read once as it gets its name, once
/// in its place, once past the page cache, and once at the very end.
const PASSES_TO_FINISH: u64 = 4;
/// Calls for each entry of the object in one stage, at most.
const CALLS_PER_ENTRY: u64 = 16;
/// Calls that go by no entry: the journal, locks, the file system.
const CALLS: u64 = 1024;
/// A disk that is slower than this is not expected to be in use.
const BYTES_PER_S_MIN: u64 = 10_000_000;
/// What is done to one entry takes no longer than this on average.
const ENTRY_MAX: Duration = Duration::from_millis(100);
/// Whatever the object, a stage may run out of patience so often but for one single call.
const PATIENCES: u32 = 10;

/// How much a disk can have to do, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) size_bytes: u64,
    pub(super) entries: u64,
    pub(super) patience: Duration,
}

impl Budget {
    const fn passes(state: HostState) -> u64 {
        debug_assert!(is_work(state), "other stages have no bounds");
        match state {
            HostState::Preparing => PASSES_TO_PREPARE,
            _ => PASSES_TO_FINISH,
        }
    }

    /// What a disk can do in this stage, in bytes; more is not believed.
    const fn work(&self, state: HostState) -> u64 {
        let bytes = self.size_bytes.saturating_mul(Self::passes(state));
        let calls = self.entries.saturating_mul(CALLS_PER_ENTRY);
        bytes.saturating_add(calls).saturating_add(CALLS)
    }

    /// How long this stage may take, however much goes on.
    fn time(&self, state: HostState) -> Duration {
        let bytes = self.size_bytes.saturating_mul(Self::passes(state));
        let entries = u32::try_from(self.entries).unwrap_or(u32::MAX);
        Duration::from_secs(bytes / BYTES_PER_S_MIN)
            .saturating_add(ENTRY_MAX.saturating_mul(entries))
            .saturating_add(self.patience.saturating_mul(PATIENCES))
    }
}

/// What is known of a node's disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskWatch {
    /// When the stage began.
    since: Time,
    /// When it last did something, or had nothing to do.
    worked: Time,
    said: Disk,
}

impl DiskWatch {
    /// Begins with a stage.
    pub(super) fn new(now: Time) -> Self {
        Self {
            since: now,
            worked: now,
            said: Disk::default(),
        }
    }

    /// Takes what the node says; whether its disk got on with what this stage is about.
    pub(super) fn note(
        &mut self,
        now: Time,
        said: Disk,
        state: HostState,
        budget: &Budget,
    ) -> bool {
        let believed = if is_work(state) {
            budget.work(state)
        } else {
            u64::MAX
        };
        let got_on = said.done.min(believed) > self.said.done.min(believed);
        if got_on || (!said.waiting && !is_work(state)) {
            self.worked = now;
        }
        self.said = Disk {
            done: said.done.max(self.said.done),
            ..said
        };
        got_on && is_work(state)
    }

    /// For how long the node has waited for its disk in vain.
    pub(super) fn stuck(&self, now: Time, state: HostState) -> Duration {
        if self.said.waiting || is_work(state) {
            now.since(self.worked)
        } else {
            Duration::ZERO
        }
    }

    /// Why the disk is not waited for any longer, if it is not.
    pub(super) fn verdict(&self, now: Time, state: HostState, budget: &Budget) -> Option<String> {
        let while_what = doing(state)?;
        let stuck = self.stuck(now, state);
        let took = now.since(self.since);
        if is_work(state) && took >= budget.time(state) {
            let took = took.as_secs();
            return Some(format!(
                "its disk has not finished after {took} s {while_what}"
            ));
        }
        if stuck < budget.patience {
            return None;
        }
        if is_work(state) && self.said.done > budget.work(state) {
            return Some(format!(
                "its disk claims more work than there is {while_what}"
            ));
        }
        let stuck = stuck.as_secs();
        Some(format!(
            "its disk has done nothing for {stuck} s {while_what}"
        ))
    }
}

/// Whether a host in this state waits for its disk and nothing else.
const fn is_work(state: HostState) -> bool {
    matches!(state, HostState::Preparing | HostState::Finishing)
}

/// What a disk is needed for in a state.
const fn doing(state: HostState) -> Option<&'static str> {
    match state {
        HostState::Preparing => Some("while the destination is examined"),
        HostState::Receiving => Some("while blocks are written"),
        HostState::Finishing => Some("while files are put in place"),
        HostState::Starting
        | HostState::Waiting
        | HostState::Joined
        | HostState::Serving
        | HostState::Verified
        | HostState::Failed => None,
    }
}
