//! Recovery within a transfer: what was found to be damaged, or not to be durable, is looked at
//! again like what an earlier attempt left.

use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::thread::JoinHandle;

use outpour_core::{BlockSet, Bytes};
use rustix::io::Errno;

use super::{Destination, Inner, Keep, resume};
use crate::error::Error;
use crate::fs;
use crate::journal::{Journal, Replay};

/// How many threads sync: one puts files in place while the other syncs the next.
const SYNCERS: usize = 2;

/// A destination at work, and the threads that sync for it.
pub(super) struct Running {
    inner: Arc<Inner>,
    syncers: Vec<JoinHandle<()>>,
}

impl Running {
    pub(super) fn start(inner: Inner) -> Result<Self, Error> {
        let mut running = Self {
            inner: Arc::new(inner),
            syncers: Vec::new(),
        };
        // Where there is but one thread, whoever drives it takes their turns.
        let syncers = if fs::ONE_THREAD { 0 } else { SYNCERS };
        for _ in 0..syncers {
            let inner = running.inner.clone();
            let syncer = std::thread::Builder::new().name("sync".into());
            match syncer.spawn(move || inner.sync_until_stopped()) {
                Ok(syncer) => running.syncers.push(syncer),
                Err(error) => {
                    running.stop();
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
                    let path = running.inner.place.path();
                    return Err(Error::new(path, "start a thread", errno));
                }
            }
        }
        Ok(running)
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Ends the threads that sync.
    pub(super) fn stop(&mut self) {
        self.inner.progress().stop = true;
        self.inner.bell.notify_all();
        for syncer in self.syncers.drain(..) {
            if syncer.join().is_err() {
                tracing::error!("a thread that syncs has panicked");
            }
        }
    }
}

impl Destination {
    pub(super) fn running(&self) -> RwLockReadGuard<'_, Running> {
        self.running.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recovers from an error that [may pass](Error::may_pass). Unless nothing more happened than
    /// that a disk was full, everything that is here is read again, whatever the journal says of
    /// it; [`Self::have`] then says what is left.
    ///
    /// # Errors
    /// If the reason still stands, [`Error::Space`] for instance, or there is another. The
    /// destination is as it was then, and this can be tried again.
    pub fn recover(&self, after: &Error) -> Result<(), Error> {
        let unusable = self.running().inner().progress().failed.is_some();
        if !unusable && after.lacks_room() {
            return self.running().inner().check_room();
        }
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        if running.inner().progress().finished {
            return Err(after.clone());
        }
        running.stop();
        debug_assert_eq!(
            Arc::strong_count(&running.inner),
            1,
            "a thread still works on what is read again"
        );
        let inner = running.inner();
        inner.place.refresh();
        inner.distrust()?;
        let (place, state) = (inner.place.clone(), inner.state.clone());
        let (manifest, options) = (inner.manifest.clone(), inner.options.clone());
        let opened = inner.opened.clone();
        let after = resume::After::Failure;
        let inner = resume::resume(place, state, manifest, options, opened, after)?;
        *running = Running::start(inner)?;
        Ok(())
    }
}

impl Inner {
    /// Leaves a journal that vouches for nothing.
    fn distrust(&self) -> Result<(), Error> {
        // Open files have leases, which would make their readers wait.
        self.files.clear();
        debug_assert!(self.progress().stop);
        debug_assert!(!self.progress().finished, "there is no journal any more");
        let blocks = self.manifest.blocks();
        let known = Replay {
            written: self.progress().have.clone(),
            synced: BlockSet::new(blocks),
        };
        let path = || self.state.path().join("journal");
        Journal::create(self.state.dir(), self.manifest.id(), &known)
            .map_err(Error::at(path, "write the journal"))
            .map(drop)
    }

    /// Adds to the error of a full disk how much more is needed, where that shows.
    pub(super) fn measured(&self, error: Error) -> Error {
        let Error::DiskFull { path, lacks: None } = error else {
            return error;
        };
        let lacks = match self.check_room() {
            Err(Error::Space { needed, free, .. }) => Some(Bytes(needed.0.saturating_sub(free.0))),
            _ => None,
        };
        Error::DiskFull { path, lacks }
    }

    /// Whether what is missing fits now.
    fn check_room(&self) -> Result<(), Error> {
        if self.options.keep != Keep::Files {
            // The next write shows it.
            return Ok(());
        }
        let whereabouts = |entry| self.whereabouts(entry);
        resume::check_space(&self.place, &self.state, &self.manifest, whereabouts)
    }
}
