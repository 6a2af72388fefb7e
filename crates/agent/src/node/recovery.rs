//! What a node does when something is wrong with its destination that may pass: a full disk, a
//! write that fails, a file that somebody changed or a disk that returns other bytes.
//!
//! It takes no part in the object's transfer for a while, like a node that is away; its peers get
//! what they need elsewhere. When the reason is gone it comes back with what is here then.

use std::sync::Arc;
use std::time::Duration;

use outpour_core::Time;
use outpour_protocols::coordinator::Report;
use outpour_store::Error;

use super::{Done, Node, OBJECT, Stage};
use crate::content::DestinationIo;

/// How long to wait before it is looked whether the reason is gone.
const RETRY: Duration = Duration::from_secs(1);
/// So often at most everything is read again: what is damaged more often is of no use.
const RECOVERIES_MAX: u32 = 5;

/// A node that is away from the transfer.
pub(super) struct Paused {
    io: Arc<DestinationIo>,
    error: Error,
    /// When it is tried again.
    retry: Time,
}

impl Node {
    /// A block could not be stored or read.
    pub(super) fn on_trouble(&mut self, error: String) {
        let trouble = match &self.stage {
            Stage::Moving(io) => io.take_trouble(),
            // It is being taken care of.
            Stage::Paused(_) => return,
            _ => None,
        };
        if self.verdict.is_some() {
            // It has its verdict; what became of its files since then is not passed on.
            if let Some(trouble) = trouble {
                self.report(Report::Paused {
                    why: trouble.to_string(),
                    rereads: false,
                });
            }
            return self.leave();
        }
        // While files are put in place, wait for the end of that: it meets the same trouble. If
        // several reads fail at once, only the first event finds the reason.
        let moving = matches!(self.stage, Stage::Moving(_));
        if moving && self.work.is_some() && trouble.as_ref().is_none_or(Error::may_pass) {
            return;
        }
        match trouble {
            Some(trouble) => self.pause_or_fail(trouble),
            // What began before a pause may end after it: that has been taken care of.
            None if self.pauses > 0 => tracing::debug!(error, "an error from before a pause"),
            None => self.fail(error),
        }
    }

    /// Takes a pause if the trouble may pass.
    pub(super) fn pause_or_fail(&mut self, error: Error) {
        let full = is_full(&error);
        self.recoveries += u32::from(!full);
        let again = self.recoveries <= RECOVERIES_MAX && error.may_pass();
        let stage = std::mem::replace(&mut self.stage, Stage::Settled);
        match stage {
            Stage::Moving(io) if again => self.pause(io, error),
            _ => self.fail(error.to_string()),
        }
    }

    /// Takes no part in the object's transfer any more.
    fn leave(&mut self) {
        self.engines[usize::from(OBJECT)] = None;
        self.coded = None;
        self.mesh.close(OBJECT);
    }

    fn pause(&mut self, io: Arc<DestinationIo>, error: Error) {
        self.leave();
        self.pauses += 1;
        self.report(Report::Paused {
            why: error.to_string(),
            rereads: !is_full(&error),
        });
        // Whatever may pass at once is tried at once.
        let wait = if is_full(&error) {
            RETRY
        } else {
            Duration::ZERO
        };
        let retry = self.clock.now() + wait;
        self.stage = Stage::Paused(Paused { io, error, retry });
    }

    /// Looks whether the reason of a pause is gone, if it is time.
    pub(super) fn retry(&mut self) {
        let Stage::Paused(paused) = &self.stage else {
            return;
        };
        if self.work.is_some() || self.clock.now() < paused.retry {
            return;
        }
        let (destination, error) = (paused.io.destination().clone(), paused.error.clone());
        self.counted = self.counter.done();
        self.work = Some(tokio::task::spawn_blocking(move || {
            Done::Recovered(destination.recover(&error))
        }));
    }

    /// The destination was looked at again.
    pub(super) fn on_recovered(&mut self, recovered: Result<(), Error>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Settled);
        let Stage::Paused(mut paused) = stage else {
            self.stage = stage;
            return;
        };
        match recovered {
            Ok(()) => self.come_back(paused.io),
            Err(error) if error.may_pass() => {
                // What is to be done about the first reason is still to be done.
                if is_full(&error) != is_full(&paused.error) {
                    self.report(Report::Paused {
                        why: error.to_string(),
                        rereads: !is_full(&paused.error),
                    });
                }
                if is_full(&paused.error) && !is_full(&error) {
                    paused.error = error;
                }
                paused.retry = self.clock.now() + RETRY;
                self.stage = Stage::Paused(paused);
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn come_back(&mut self, io: Arc<DestinationIo>) {
        let Some(manifest) = self.lens.clone() else {
            return;
        };
        io.refresh();
        // What happened meanwhile is over.
        let _ = io.take_trouble();
        self.take_stock(&io, &manifest);
        self.report(Report::Resumed {
            have_bytes: self.have_bytes,
        });
        self.moved = self.clock.now();
        self.stage = Stage::Moving(io.clone());
        self.open_object(io, &manifest);
        self.start_object();
        self.advance(OBJECT);
    }
}

const fn is_full(error: &Error) -> bool {
    matches!(error, Error::DiskFull { .. } | Error::Space { .. })
}
