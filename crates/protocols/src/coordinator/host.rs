//! One host of a cast as its coordinator sees it.

use outpour_core::Time;
use serde::{Deserialize, Serialize};

use super::disk::{Budget, DiskWatch};
use super::{Contact, Report};
use crate::Role;

/// Where a host stands; in the order in which it gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Its agent is being started.
    Starting,
    /// Its agent waits for the end of another cast, which writes to the destination.
    Waiting,
    /// The agent answers; it receives the manifest, or waits for the start.
    Joined,
    /// It gives the object to others: a source, or a relay.
    Serving,
    /// It looks at what the destination holds already.
    Preparing,
    /// Blocks are on their way.
    Receiving,
    /// All blocks are verified; files are being put in place and made durable.
    Finishing,
    /// Every byte is verified and in place.
    Verified,
    /// It will not finish; the error says why.
    Failed,
}

impl HostState {
    /// Whether nothing will change any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Verified | Self::Failed)
    }

    /// Whether its agent has not joined yet.
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Starting | Self::Waiting)
    }
}

/// One host.
#[derive(Clone, Debug)]
pub struct Host {
    /// What it takes part for.
    pub role: Role,
    /// Where it stands.
    pub state: HostState,
    /// Bytes of verified blocks.
    pub have_bytes: u64,
    /// Bytes it held before anything was sent.
    pub resumed_bytes: u64,
    /// Bytes of blocks it received, duplicates included.
    pub received_bytes: u64,
    /// Bytes per second, smoothed over seconds.
    pub rate_bytes_per_s: f64,
    /// When it was last heard from.
    pub heard: Time,
    /// When it last got a block.
    pub progressed: Time,
    /// When it got its verdict.
    pub verdict_at: Option<Time>,
    /// Why it failed.
    pub error: Option<String>,
    /// It was given up because it was silent, or its disk was: its agent cannot be expected to leave.
    pub stalled: bool,
    /// How many orders it was given.
    pub given: u64,
    /// The number of the last order that it has carried out; zero before the first.
    pub acted: u64,
    pub(super) contact: Option<Contact>,
    /// Its agent waits for its disk before it can join.
    pub(super) claiming: bool,
    /// It joined after the start.
    pub(super) late: bool,
    pub(super) unreachables: usize,
    /// What it waits for to pass.
    pub(super) paused: Option<String>,
    /// What it waited for last.
    trouble: Option<String>,
    pub(super) pauses: usize,
    /// How often it had less than before.
    losses: usize,
    pub(super) disk: DiskWatch,
}

/// A host may lose what it has, or go back to an earlier state, so often: what it gets after that
/// again is no progress.
const LOSSES_MAX: usize = 16;

impl Host {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            state: HostState::Starting,
            have_bytes: 0,
            resumed_bytes: 0,
            received_bytes: 0,
            rate_bytes_per_s: 0.0,
            heard: Time::ZERO,
            progressed: Time::ZERO,
            verdict_at: None,
            error: None,
            stalled: false,
            given: 0,
            acted: 0,
            contact: None,
            claiming: false,
            late: false,
            unreachables: 0,
            paused: None,
            trouble: None,
            pauses: 0,
            losses: 0,
            disk: DiskWatch::new(Time::ZERO),
        }
    }

    /// What holds between any two inputs.
    pub(super) fn check(&self, size: u64) {
        debug_assert!(self.have_bytes <= size);
        debug_assert!(self.resumed_bytes <= size);
        debug_assert!(self.rate_bytes_per_s.is_finite());
        debug_assert!(self.rate_bytes_per_s >= 0.0);
        debug_assert!(
            self.acted <= self.given,
            "it carried out an order that was not given"
        );
        debug_assert!(self.losses <= LOSSES_MAX);
        debug_assert_eq!(self.verdict_at.is_some(), self.state.is_final());
        debug_assert_eq!(self.error.is_some(), self.state == HostState::Failed);
        debug_assert!(!self.stalled || self.state == HostState::Failed);
        debug_assert!(self.contact.is_some() || !self.is_present());
        let receives = self.role == Role::Receiver;
        debug_assert!(receives || self.paused.is_none());
        match self.state {
            HostState::Starting | HostState::Waiting => {
                debug_assert!(self.contact.is_none());
                debug_assert_eq!(self.given, 0, "orders for a host that has not joined");
            }
            HostState::Serving => debug_assert!(!receives),
            HostState::Verified => debug_assert_eq!(self.have_bytes, size),
            HostState::Failed => {}
            HostState::Joined
            | HostState::Preparing
            | HostState::Receiving
            | HostState::Finishing => debug_assert!(receives),
        }
    }

    /// Whether it has an agent that takes part; one that is verified still serves others.
    pub(super) fn is_present(&self) -> bool {
        !self.state.is_outside() && self.state != HostState::Failed
    }

    pub(super) fn join(&mut self, now: Time, contact: Contact, late: bool) {
        debug_assert!(self.state.is_outside(), "it joins once");
        self.state = match self.role {
            Role::Source | Role::Relay => HostState::Serving,
            Role::Receiver => HostState::Joined,
        };
        self.late = late;
        self.contact = Some(contact);
        self.heard = now;
        self.progressed = now;
        self.disk = DiskWatch::new(now);
    }

    pub(super) fn fail(&mut self, now: Time, error: String) {
        debug_assert!(!self.state.is_final(), "a verdict is for good");
        self.state = HostState::Failed;
        self.error = Some(error);
        self.verdict_at = Some(now);
        self.rate_bytes_per_s = 0.0;
    }

    /// Takes a report of this host; says whether it got nearer to its end.
    ///
    /// A host goes through the states in their order, and each of them once: one that went back
    /// and forth would get nearer to its end for ever.
    pub(super) fn progress(&mut self, now: Time, report: &Report, budget: &Budget) -> bool {
        let size = budget.size_bytes;
        if self.role != Role::Receiver {
            if let Report::Progress { disk, .. } = report {
                self.disk.note(now, *disk, self.state, budget);
            }
            return false;
        }
        match report {
            Report::Preparing => self.enter(now, HostState::Preparing),
            Report::Prepared { have_bytes } => {
                let entered = self.enter(now, HostState::Receiving);
                if entered {
                    self.have_bytes = size.min(*have_bytes);
                    self.resumed_bytes = self.have_bytes;
                    self.progressed = now;
                }
                entered
            }
            Report::Progress {
                have_bytes,
                received_bytes,
                disk,
            } => {
                self.received_bytes = *received_bytes;
                // The word that it is prepared may have found no room.
                let prepared = *have_bytes > 0 && self.paused.is_none();
                let entered = prepared && self.enter(now, HostState::Receiving);
                let worked = self.disk.note(now, *disk, self.state, budget);
                let looked = worked && self.state == HostState::Preparing;
                // A host that has everything receives nothing that others could hope for.
                self.grow(now, size.min(*have_bytes)) || looked || entered
            }
            Report::Finishing => {
                self.have_bytes = size;
                self.enter(now, HostState::Finishing)
            }
            Report::Complete { received_bytes } => {
                self.have_bytes = size;
                self.received_bytes = *received_bytes;
                self.rate_bytes_per_s = 0.0;
                self.verdict_at = Some(now);
                self.enter(now, HostState::Verified)
            }
            Report::Resumed { have_bytes } => {
                self.resume(now, *have_bytes);
                false
            }
            Report::Coding(_)
            | Report::NotKept { .. }
            | Report::Acted(_)
            | Report::Paused { .. }
            | Report::Held { .. }
            | Report::Failed { .. }
            | Report::Refused { .. }
            | Report::Accuse { .. }
            | Report::Unreachable { .. } => false,
        }
    }

    /// Goes on to a later state; whether it is one.
    fn enter(&mut self, now: Time, state: HostState) -> bool {
        debug_assert!(!self.state.is_final(), "{state:?} after the verdict");
        debug_assert_eq!(self.role, Role::Receiver);
        let later = state > self.state;
        if later {
            self.state = state;
            self.disk = DiskWatch::new(now);
        }
        later
    }

    /// It waits for something to pass, and gets nothing meanwhile.
    pub(super) fn pause(&mut self, now: Time, why: String, rereads: bool) {
        self.pauses += 1;
        if self.role != Role::Receiver || self.state.is_final() {
            return;
        }
        self.trouble = Some(why.clone());
        self.paused = Some(why);
        let state = if rereads {
            HostState::Preparing
        } else {
            HostState::Receiving
        };
        self.go_back(now, state);
    }

    /// It is back after a pause, perhaps with less than before.
    fn resume(&mut self, now: Time, have_bytes: u64) {
        self.paused = None;
        if have_bytes < self.have_bytes && self.losses < LOSSES_MAX {
            self.losses += 1;
            self.have_bytes = have_bytes;
        }
        self.go_back(now, HostState::Receiving);
        self.enter(now, HostState::Receiving);
    }

    /// Goes back to an earlier state, which happens so often at most: each time it gets nearer to
    /// its end once more.
    fn go_back(&mut self, now: Time, state: HostState) {
        debug_assert!(!self.state.is_final(), "{state:?} after the verdict");
        if state < self.state {
            if self.losses == LOSSES_MAX {
                // Nor does its disk get any more time.
                return;
            }
            self.losses += 1;
            self.state = state;
        }
        self.disk = DiskWatch::new(now);
    }

    /// What it waited for so often that it is not waited for any more.
    pub(super) fn lasting_trouble(&self) -> Option<String> {
        self.trouble.clone().filter(|_| self.losses == LOSSES_MAX)
    }

    fn grow(&mut self, now: Time, have_bytes: u64) -> bool {
        let grown = have_bytes.saturating_sub(self.have_bytes);
        let took = now.since(self.progressed).as_secs_f64();
        // Averaged over about two seconds, whatever the pace of the reports.
        let rate = grown as f64 / took.max(0.05);
        let weight = (took / 2.0).clamp(0.05, 1.0);
        self.rate_bytes_per_s += weight * (rate - self.rate_bytes_per_s);
        if grown > 0 {
            self.have_bytes = have_bytes;
            self.progressed = now;
        }
        grown > 0
    }
}
