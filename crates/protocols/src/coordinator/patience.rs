//! When a host is given up, and what for.
//!
//! A host that waits for blocks has hope as long as any host gets some, and waiting for it costs
//! nothing. A host that waits for its own disk has nothing to hope for from others: it is given up
//! by its own clock, as soon as no other host would be waited for either.

use std::time::Duration;

use outpour_core::{Bytes, Time};

use super::disk::Budget;
use super::{AGAIN, Coordinator, Host, HostState, ORPHAN_PATIENCE};
use crate::Role;

/// Why a host is given up whose disk has not let it join for so long.
pub fn claiming(patience: Duration) -> String {
    let patience = patience.as_secs();
    format!("its disk has done nothing for {patience} s while the destination is claimed")
}

impl Coordinator {
    pub(super) const fn budget(&self) -> Budget {
        Budget {
            size_bytes: self.config.size_bytes,
            entries: self.config.entries,
            patience: self.config.patience,
        }
    }

    /// Gives up on hosts for which nothing is to be hoped any more.
    pub(super) fn watch(&mut self, now: Time) {
        debug_assert!(!self.ended, "all have their verdicts");
        let Some(began) = self.began_at else { return };
        let patience = match self.source_lost {
            Some(_) => self.config.patience.min(ORPHAN_PATIENCE),
            None => self.config.patience,
        };
        // Before a verdict counts as progress.
        let quiet = now.since(self.last_progress.max(began)) >= patience;
        self.watch_disks(now);
        if !quiet {
            return;
        }
        let mut given_up = Vec::new();
        for (node, host) in self.hosts() {
            let silent = now.since(host.heard);
            let (error, stalled) = match host.state {
                state if state.is_final() => continue,
                HostState::Starting | HostState::Waiting if host.claiming => {
                    (claiming(patience), true)
                }
                HostState::Starting | HostState::Waiting => {
                    ("its agent did not start in time".to_owned(), true)
                }
                _ if silent >= patience => {
                    let silent = silent.as_secs();
                    let error = format!("nothing heard from it for {silent} s; is the host up?");
                    (error, true)
                }
                // Its disk decides.
                HostState::Preparing | HostState::Finishing => continue,
                _ => (self.got_nothing(now, host, patience), false),
            };
            given_up.push((node, error, stalled));
        }
        debug_assert!(
            (given_up.iter()).all(|(node, ..)| !self.nodes[node.index()].state.is_final()),
            "a host with a verdict is given up"
        );
        for (node, error, stalled) in given_up {
            self.fail(now, node, error);
            self.nodes[node.index()].stalled = stalled;
        }
    }

    /// Gives up on hosts whose disks hang, unless others still make progress.
    fn watch_disks(&mut self, now: Time) {
        let budget = self.budget();
        let mut stuck = Vec::new();
        for (node, host) in self.hosts() {
            // Without reports nothing is known of a disk.
            let speaks = now.since(host.heard) < budget.patience / 2;
            let verdict = host.disk.verdict(now, host.state, &budget);
            match verdict.filter(|_| speaks) {
                Some(error) if host.state == HostState::Receiving => {
                    let lacking = self.lacking(host);
                    stuck.push((node, format!("{error}; {lacking} missing")));
                }
                Some(error) => stuck.push((node, host.lasting_trouble().unwrap_or(error))),
                None if self.gets_on(now, host) => return,
                None => {}
            }
        }
        for (node, error) in stuck {
            self.fail(now, node, error);
            self.nodes[node.index()].stalled = true;
        }
    }

    /// Whether a host did something lately, and will be waited for whatever becomes of others.
    fn gets_on(&self, now: Time, host: &Host) -> bool {
        match host.state {
            HostState::Starting
            | HostState::Waiting
            | HostState::Serving
            | HostState::Verified
            | HostState::Failed => false,
            HostState::Preparing | HostState::Finishing => {
                host.disk.stuck(now, host.state) < self.config.patience
            }
            HostState::Joined | HostState::Receiving => {
                now.since(host.progressed) < self.config.patience
            }
        }
    }

    const fn lacking(&self, host: &Host) -> Bytes {
        debug_assert!(host.have_bytes <= self.config.size_bytes);
        Bytes(self.config.size_bytes.saturating_sub(host.have_bytes))
    }

    /// Why a host that speaks is given up while blocks are to come.
    fn got_nothing(&self, now: Time, host: &Host, patience: Duration) -> String {
        debug_assert_eq!(host.role, Role::Receiver, "others want no blocks");
        debug_assert!(matches!(
            host.state,
            HostState::Joined | HostState::Receiving
        ));
        if let Some(why) = &host.paused {
            return why.clone();
        }
        let lacking = self.lacking(host);
        if let Some(why) = &self.source_lost {
            return format!("{lacking} missing; the source is lost: {why}; {AGAIN}");
        }
        let error = format!(
            "no block arrived for {} s; {lacking} missing",
            patience.as_secs()
        );
        let sources = self.sources().filter(|source| source.is_present());
        let stuck = sources.map(|source| source.disk.stuck(now, source.state));
        let source = stuck.min().unwrap_or_default();
        if source >= patience / 2 {
            let source = source.as_secs();
            return format!("{error}; the source's disk has done nothing for {source} s");
        }
        error
    }
}
