//! One host of a cast as its coordinator sees it.

use outpour_core::Time;
use serde::{Deserialize, Serialize};

use super::{Contact, Report};

/// Where a host stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Its agent is being started.
    Starting,
    /// The agent answers and receives the manifest.
    Joined,
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
}

/// One host.
#[derive(Clone, Debug)]
pub struct Host {
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
    pub(super) contact: Option<Contact>,
    /// Its agent waits for the end of another cast.
    pub(super) waiting: bool,
    /// It joined after the start.
    pub(super) late: bool,
    pub(super) unreachables: usize,
    /// What it waits for to pass.
    pub(super) paused: Option<String>,
    pub(super) pauses: usize,
    /// How often it had less than before.
    losses: usize,
}

/// A host may lose what it has so often: what it gets after that again is no progress.
const LOSSES_MAX: usize = 8;

impl Host {
    pub(super) const fn new() -> Self {
        Self {
            state: HostState::Starting,
            have_bytes: 0,
            resumed_bytes: 0,
            received_bytes: 0,
            rate_bytes_per_s: 0.0,
            heard: Time::ZERO,
            progressed: Time::ZERO,
            verdict_at: None,
            error: None,
            contact: None,
            waiting: false,
            late: false,
            unreachables: 0,
            paused: None,
            pauses: 0,
            losses: 0,
        }
    }

    /// Whether it has an agent that takes part; one that is verified still serves others.
    pub(super) fn is_present(&self) -> bool {
        !matches!(self.state, HostState::Starting | HostState::Failed)
    }

    pub(super) fn join(&mut self, now: Time, contact: Contact, late: bool) {
        self.state = HostState::Joined;
        self.late = late;
        self.contact = Some(contact);
        self.heard = now;
        self.progressed = now;
    }

    pub(super) fn fail(&mut self, now: Time, error: String) {
        self.state = HostState::Failed;
        self.error = Some(error);
        self.verdict_at = Some(now);
        self.rate_bytes_per_s = 0.0;
    }

    /// Takes a report of this host; says whether it got nearer to its end.
    pub(super) fn progress(&mut self, now: Time, report: &Report, size: u64) -> bool {
        let before = self.state;
        match report {
            Report::Preparing => self.state = HostState::Preparing,
            Report::Prepared { have_bytes } => {
                self.state = HostState::Receiving;
                self.resumed_bytes = *have_bytes;
                self.have_bytes = *have_bytes;
                self.progressed = now;
            }
            Report::Progress {
                have_bytes,
                received_bytes,
            } => {
                self.received_bytes = *received_bytes;
                return self.grow(now, *have_bytes);
            }
            Report::Finishing => {
                self.state = HostState::Finishing;
                self.have_bytes = size;
            }
            Report::Complete { received_bytes } => {
                self.state = HostState::Verified;
                self.have_bytes = size;
                self.received_bytes = *received_bytes;
                self.rate_bytes_per_s = 0.0;
                self.verdict_at = Some(now);
            }
            Report::Resumed { have_bytes } => {
                self.resume(*have_bytes);
                return false;
            }
            Report::Coding(_)
            | Report::Paused { .. }
            | Report::Held { .. }
            | Report::Failed { .. }
            | Report::Refused { .. }
            | Report::Accuse { .. }
            | Report::Unreachable { .. } => {}
        }
        self.state != before
    }

    /// It waits for something to pass, and gets nothing meanwhile.
    pub(super) fn pause(&mut self, why: String) {
        self.pauses += 1;
        self.paused = Some(why);
        if self.state == HostState::Finishing && self.losses < LOSSES_MAX {
            self.losses += 1;
            self.state = HostState::Receiving;
        }
    }

    /// It is back after a pause, perhaps with less than before.
    fn resume(&mut self, have_bytes: u64) {
        self.paused = None;
        if self.losses >= LOSSES_MAX {
            return;
        }
        if have_bytes < self.have_bytes {
            self.losses += 1;
        }
        self.state = HostState::Receiving;
        self.have_bytes = self.have_bytes.min(have_bytes);
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
