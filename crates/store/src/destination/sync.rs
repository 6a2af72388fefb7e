//! Makes what was written last: syncs data, then the journal, then puts files in place.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::manifest::EntryId;
use outpour_core::{BlockId, BlockSet};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::modes::modes_bind_us;
use super::{FILES_MAX, Inner, Keep, SYNC_AFTER, Whereabouts};
use crate::error::Error;
use crate::fs::{self, AsFd, OwnedFd, writeback};
use crate::journal::{Journal, Mark};
use crate::place::Dir;
use crate::{sys, work};

/// What was written gets into the journal after this many bytes, so that a killed process loses no
/// more than that.
const LOG_BYTES: u64 = 4 << 20;

/// What was written gets into the journal after this time.
const LOG_AFTER: Duration = Duration::from_millis(100);

/// Writers wait for the disk when what came so many times [`DestinationOptions::sync_after`] ago is not
/// synced: what came since then may be lost in a power cut.
///
/// [`DestinationOptions::sync_after`]: super::DestinationOptions::sync_after
const UNSYNCED_FACTOR: u32 = 2;
const UNSYNCED_MAX: Duration = SYNC_AFTER.saturating_mul(UNSYNCED_FACTOR);

const _: () = assert!(LOG_AFTER.as_millis() < SYNC_AFTER.as_millis());

/// How long to wait before what a full disk prevented is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

// Writers that wait for room do not wait for the disk as well.
const _: () = assert!(RETRY_AFTER.as_millis() < UNSYNCED_MAX.as_millis());

/// How many threads sync files. They wait for the disk, which serves many at a time almost as fast
/// as one.
pub(super) const SYNC_THREADS: NonZero<usize> = NonZero::new(8).unwrap();
/// How many small files a thread has open at a time to sync them.
const SYNC_SHARE: usize = 32;
/// The same where each file is synced for itself: the disk writes its cache once for all that wait.
const SYNC_THREADS_EACH: NonZero<usize> = NonZero::new(32).unwrap();
const SYNC_SHARE_EACH: usize = 8;

// Together they open half of what a process usually may.
const _: () = assert!(SYNC_THREADS.get() * SYNC_SHARE + FILES_MAX <= 512);
const _: () = assert!(SYNC_THREADS_EACH.get() * SYNC_SHARE_EACH + FILES_MAX <= 512);

/// What is here, and what of it still has to be made to last.
pub(super) struct Progress {
    pub(super) have: BlockSet,
    /// Blocks that the journal does not name yet, and their length.
    unlogged: Vec<BlockId>,
    unlogged_bytes: u64,
    batch: Batch,
    /// Since when the batch has had something in it.
    since: Option<Instant>,
    /// Since when the batch that is being synced had something in it.
    syncing: Option<Instant>,
    /// How long the last sync took.
    took: Duration,
    /// When to try again what a full disk prevented.
    retry: Option<Instant>,
    /// What made the destination unusable.
    pub(super) failed: Option<Error>,
    pub(super) stop: bool,
    pub(super) finished: bool,
}

/// What the next sync is about.
#[derive(Default)]
pub(super) struct Batch {
    /// Blocks whose data is not known to be synced, and their length.
    pub(super) dirty: Vec<BlockId>,
    pub(super) bytes: u64,
    /// Large files that were written to.
    pub(super) files: BTreeSet<EntryId>,
    /// Small files that were written.
    pub(super) small: Vec<EntryId>,
    /// Files that were found in their places.
    pub(super) found: Vec<EntryId>,
    /// Whether files were made.
    pub(super) created: bool,
    /// Files to put in place after the sync.
    pub(super) complete: Vec<EntryId>,
}

impl Batch {
    fn is_synced(&self) -> bool {
        let none = self.small.is_empty() && self.found.is_empty();
        none && self.dirty.is_empty() && self.files.is_empty() && !self.created
    }

    fn is_empty(&self) -> bool {
        self.is_synced() && self.complete.is_empty()
    }

    fn absorb(&mut self, mut other: Self) {
        self.dirty.append(&mut other.dirty);
        self.bytes += other.bytes;
        self.files.append(&mut other.files);
        self.small.append(&mut other.small);
        self.found.append(&mut other.found);
        self.created |= other.created;
        self.complete.append(&mut other.complete);
    }
}

impl Progress {
    /// A destination where `have` is here; `batch` is what must still be synced of that.
    pub(super) fn new(have: BlockSet, batch: Batch) -> Self {
        let pending = !batch.is_empty();
        let progress = Self {
            have,
            unlogged: Vec::new(),
            unlogged_bytes: 0,
            batch,
            since: pending.then(fs::now),
            syncing: None,
            took: Duration::ZERO,
            retry: None,
            failed: None,
            stop: false,
            finished: false,
        };
        progress.check();
        progress
    }

    /// Whether nothing is left to be synced or put in place, but for what is being so just now.
    pub(super) fn is_settled(&self) -> bool {
        self.batch.is_empty()
    }

    fn check(&self) {
        debug_assert!(self.unlogged.len() <= self.have.count() as usize);
        debug_assert_eq!(self.unlogged.is_empty(), self.unlogged_bytes == 0);
        debug_assert!(self.batch.dirty.len() <= self.have.count() as usize);
        debug_assert!(self.batch.bytes == 0 || !self.batch.dirty.is_empty());
        debug_assert!(
            self.since.is_some() || self.batch.is_empty(),
            "it would not be synced"
        );
        debug_assert!(self.retry.is_none() || self.since.is_some());
        debug_assert!(!self.finished || self.have.is_full());
    }
}

impl Inner {
    /// Waits until a write is welcome.
    pub(super) fn admit_write(&self) -> Result<(), Error> {
        let mut progress = self.progress();
        loop {
            if let Some(error) = &progress.failed {
                return Err(error.clone());
            }
            let most = self.options.sync_after.saturating_mul(UNSYNCED_FACTOR);
            // What is being synced came before the rest.
            let oldest = progress.syncing.or(progress.since);
            let in_time = oldest.is_none_or(|oldest| fs::now().duration_since(oldest) <= most);
            // Where there is but one thread nobody would sync meanwhile: whoever drives it does in turn.
            if in_time || fs::ONE_THREAD {
                return Ok(());
            }
            progress = self
                .bell
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes note of a block that was written, with its length, and of what has to be done about
    /// its files.
    pub(super) fn note(&self, block: Option<(BlockId, u32)>, work: Batch) {
        let mut progress = self.progress();
        progress.batch.absorb(work);
        if let Some((block, len)) = block {
            let fresh = progress.have.insert(block);
            debug_assert!(fresh, "two threads wrote the same block");
            progress.unlogged.push(block);
            progress.unlogged_bytes += u64::from(len);
            progress.batch.dirty.push(block);
            progress.batch.bytes += u64::from(len);
        }
        let first = progress.since.is_none();
        progress.since.get_or_insert_with(fs::now);
        progress.check();
        let due = self.is_due(&progress);
        if progress.unlogged_bytes >= LOG_BYTES {
            // Not worth failing for: it is tried again, and it only saves reading after a crash.
            if let Err(errno) = self.log(&mut progress) {
                tracing::warn!(%errno, "cannot write the journal");
            }
        }
        drop(progress);
        if first || due {
            self.bell.notify_all();
        }
    }

    /// Whether so much is to be synced that it should begin.
    fn is_due(&self, progress: &Progress) -> bool {
        let batch = &progress.batch;
        batch.bytes >= self.options.sync_bytes || batch.small.len() >= self.options.sync_files
    }

    /// Writes into the journal what it does not know yet.
    pub(super) fn log(&self, progress: &mut Progress) -> Result<(), Errno> {
        // After it was closed there is nothing to come back to.
        if let Some(journal) = &mut *self.lock_journal() {
            journal.append(Mark::Written, &mut progress.unlogged)?;
            debug_assert!(progress.unlogged.is_sorted_by(|a, b| a < b));
        }
        progress.unlogged.clear();
        progress.unlogged_bytes = 0;
        Ok(())
    }

    fn lock_journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the state of the transfer, and lets go of the place. A file that is removed while it is
    /// open may get another name until it is closed, and keep its directory from being removed.
    pub(super) fn remove_state(&self) -> Result<(), Error> {
        *self.lock_journal() = None;
        self.state.remove()
    }

    /// When the next sync should begin, if one should.
    pub(super) fn due(&self, progress: &Progress) -> Option<Duration> {
        match (progress.since, progress.retry) {
            _ if progress.failed.is_some() => None,
            (None, _) => None,
            (_, Some(retry)) => Some(retry.saturating_duration_since(fs::now())),
            _ if self.is_due(progress) => Some(Duration::ZERO),
            (Some(since), None) => {
                // A slow sync begins early enough to be over before writers have to wait.
                let after = self.options.sync_after.saturating_sub(progress.took);
                let waited = fs::now().duration_since(since);
                Some(after.saturating_sub(waited))
            }
        }
    }

    /// What each of the threads does that sync. There are two: while one puts files in place, the
    /// other syncs the next.
    pub(super) fn sync_until_stopped(&self) {
        let mut progress = self.progress();
        while !progress.stop {
            let due = self.due(&progress);
            if due == Some(Duration::ZERO) {
                drop(progress);
                self.sync_if_due();
                progress = self.progress();
                continue;
            }
            if !progress.unlogged.is_empty()
                && let Err(errno) = self.log(&mut progress)
            {
                tracing::warn!(%errno, "cannot write the journal");
            }
            drop(progress);
            let leases = self.look_after_leases();
            progress = self.progress();
            // What came meanwhile has rung already.
            if progress.stop || (due.is_none() && progress.since.is_some()) {
                continue;
            }
            let wait = due.map_or(LOG_AFTER, |due| due.min(LOG_AFTER));
            progress = if due.is_none() && !leases {
                self.bell
                    .wait(progress)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                let result = self.bell.wait_timeout(progress, wait);
                result.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    pub(super) fn sync_if_due(&self) {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // The other thread may have done it meanwhile.
        if self.due(&self.progress()) != Some(Duration::ZERO) {
            return;
        }
        // A failure is kept for writers and for the finish; a full disk is tried again.
        if let Err(error) = self.sync_batch(turn) {
            tracing::warn!(%error, "cannot sync");
        }
    }

    /// Makes everything that was written so far last, and puts whole files in place.
    pub(super) fn sync(&self) -> Result<(), Error> {
        loop {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let left = self.sync_batch(turn)?;
            if let Some(error) = &self.progress().failed {
                return Err(error.clone());
            }
            if !left {
                return Ok(());
            }
            // Another thread met a full disk before us, and left something to be done.
        }
    }

    /// Syncs what has been written so far, in our turn, and puts whole files in place, before
    /// others do that with what is written from now on. Says whether there was more to be done, which
    /// was left over by another thread.
    fn sync_batch(&self, turn: MutexGuard<'_, ()>) -> Result<bool, Error> {
        let mut batch = {
            let mut progress = self.progress();
            if let Some(error) = &progress.failed {
                return Err(error.clone());
            }
            progress.check();
            progress.syncing = progress.since.take();
            progress.retry = None;
            std::mem::take(&mut progress.batch)
        };
        let mut result = self.make_last_in_time(&mut batch);
        let mut left = false;
        if result.is_ok() {
            let placing = self.placing.lock();
            let _placing = placing.unwrap_or_else(PoisonError::into_inner);
            // Threads that began before us have ended, and none can begin before our turn ends:
            // later, another thread may be at work on what is left.
            left = self.progress().retry.is_some();
            drop(turn);
            result = self.put_all_in_place(&mut batch);
            self.conclude(&result, batch);
        } else {
            self.conclude(&result, batch);
        }
        self.bell.notify_all();
        result.map(|()| left)
    }

    /// [`Self::make_last`] for writers that may wait for it.
    fn make_last_in_time(&self, batch: &mut Batch) -> Result<(), Error> {
        let (begun, is_synced) = (fs::now(), batch.is_synced());
        let result = self.make_last(batch);
        let mut progress = self.progress();
        progress.syncing = None;
        if !is_synced {
            progress.took = fs::now().duration_since(begun);
        }
        drop(progress);
        self.bell.notify_all();
        result
    }

    /// Takes note of how a sync ended that left this of its batch.
    fn conclude(&self, result: &Result<(), Error>, batch: Batch) {
        let mut progress = self.progress();
        match result {
            Ok(()) => debug_assert!(batch.is_empty(), "something was left out"),
            // Nothing was lost: what is left of the batch can be tried again.
            Err(Error::DiskFull { .. }) => {
                progress.batch.absorb(batch);
                progress.since = Some(fs::now());
                progress.retry = Some(fs::now() + RETRY_AFTER);
            }
            Err(error) => progress.failed = Some(error.clone()),
        }
        progress.check();
    }

    /// Syncs data, and then the journal that says so. The order matters.
    fn make_last(&self, batch: &mut Batch) -> Result<(), Error> {
        if batch.is_synced() {
            return Ok(());
        }
        debug_assert!(self.turn.try_lock().is_err(), "one sync at a time");
        debug_assert!(self.has_all(&batch.dirty));
        let journal_path = || self.state.path().join("journal");
        // After a failed sync the system may claim that data is on disk which is not, so it
        // must not be tried again, whatever the reason was.
        let synced = self.sync_data(batch).and_then(|()| self.sync_way());
        synced.map_err(|errno| Error::Io {
            path: self.place.path().to_path_buf(),
            doing: "sync what was written",
            errno,
        })?;
        let file = match &mut *self.lock_journal() {
            Some(journal) => {
                journal
                    .append(Mark::Synced, &mut batch.dirty)
                    .map_err(Error::at(journal_path, "write the file"))?;
                let file = fs::fcntl_dupfd_cloexec(journal.file(), 0);
                Some(file.map_err(Error::at(journal_path, "use the file"))?)
            }
            None => None,
        };
        if let Some(file) = file {
            fs::fdatasync(&file).map_err(|errno| Error::Io {
                path: journal_path(),
                doing: "sync the file",
                errno,
            })?;
        }
        let complete = std::mem::take(&mut batch.complete);
        *batch = Batch {
            complete,
            ..Batch::default()
        };
        Ok(())
    }

    /// Whether all of some blocks are here.
    fn has_all(&self, blocks: &[BlockId]) -> bool {
        let progress = self.progress();
        blocks.iter().all(|block| progress.have.contains(*block))
    }

    /// Gives whole files their names; those that are left in the batch have none yet.
    fn put_all_in_place(&self, batch: &mut Batch) -> Result<(), Error> {
        if self.options.keep != Keep::Files {
            batch.complete.clear();
            return Ok(());
        }
        debug_assert!(self.placing.try_lock().is_err());
        debug_assert!(
            batch.is_synced(),
            "a file has its name before its bytes are on disk"
        );
        // In path order, most go into a directory that was just used.
        batch.complete.sort_unstable_by(|a, b| b.cmp(a));
        debug_assert!(
            batch.complete.is_sorted_by(|a, b| a > b),
            "a file was complete twice"
        );
        while let Some(file) = batch.complete.last() {
            self.put_in_place(*file)?;
            self.options.work.add(1);
            batch.complete.pop();
        }
        Ok(())
    }

    /// Syncs what the batch is about, and nothing else: a file system has other users, whose data
    /// is not ours to wait for, nor their errors to report.
    fn sync_data(&self, batch: &mut Batch) -> Result<(), Errno> {
        debug_assert!(batch.small.iter().all(|file| self.is_small(*file)));
        debug_assert!(
            batch
                .found
                .iter()
                .all(|file| self.whereabouts(*file) == Whereabouts::Placed)
        );
        for file in &batch.files {
            match self.open_to_write(*file) {
                Ok(file) => self.sync_file(&file)?,
                // The writer of its last block but one was slow to report: it is synced and in place.
                // If another process removed it, that is reported when it gets its name.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            self.options.work.add(1);
        }
        let staging = self.state.staging();
        // What lies together is synced together: one block of the disk describes many files.
        let place = |file: &EntryId| staging.place_of(*file);
        batch.small.sort_unstable_by_key(place);
        let many = batch.small.len() + batch.found.len() > SYNC_SHARE;
        let together = self.commits_together && many;
        self.sync_each(&batch.small, together, |file| {
            staging.open(file, OFlags::RDONLY)
        })?;
        self.sync_each(&batch.found, together, |file| self.open_to_read(file))?;
        if together {
            // New names are metadata, too.
            staging.forget_changes();
            self.state.commit()
        } else if batch.created {
            staging.sync(SYNC_THREADS)
        } else {
            Ok(())
        }
    }

    /// Makes last, once, that the state is found again. Where there is one journal, it has that.
    fn sync_way(&self) -> Result<(), Errno> {
        if !self.commits_together && !self.way_lasts.load(Ordering::Acquire) {
            self.state.sync_way()?;
            self.way_lasts.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Syncs a file. Without a journal for all files, nothing but this makes its mode and time last, which may
    /// have changed after its bytes did.
    pub(super) fn sync_file(&self, file: &OwnedFd) -> Result<(), Errno> {
        match self.commits_together {
            true => fs::fdatasync(file),
            false => fs::fsync(file),
        }
    }

    /// Makes mode and time of a file last that were set after it was synced. Where there is one journal, the name
    /// that it gets next brings them.
    pub(super) fn sync_seal(&self, file: &OwnedFd) -> Result<(), Errno> {
        match self.commits_together {
            true => Ok(()),
            false => fs::fsync(file),
        }
    }

    /// Writes the data of many files, and, unless their metadata is written for all of them
    /// `together` afterwards, that of each.
    fn sync_each(
        &self,
        files: &[EntryId],
        together: bool,
        open: impl Fn(EntryId) -> Result<OwnedFd, Errno> + Sync,
    ) -> Result<(), Errno> {
        let (threads, share) = match together {
            true => (SYNC_THREADS, SYNC_SHARE),
            false => (SYNC_THREADS_EACH, SYNC_SHARE_EACH),
        };
        let shares: Vec<&[EntryId]> = files.chunks(share).collect();
        work::spread(threads, &shares, |share, _| {
            let mut open_files = Vec::with_capacity(share.len());
            for file in *share {
                match open(*file) {
                    Ok(file) => open_files.push(file),
                    // If another process removed it, that is reported when it gets its name.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            // Of all of them first: then the disk has several to write at a time, and of files whose
            // metadata lies in one block, the first that is synced writes it for all.
            each(&open_files, |file| writeback::start(file))?;
            match together {
                true => each(&open_files, |file| writeback::finish(file))?,
                false => open_files
                    .iter()
                    .try_for_each(|file| self.sync_file(file))?,
            }
            self.options.work.add(share.len() as u64);
            Ok(())
        })
    }

    /// Gives a staged file its final name.
    fn put_in_place(&self, file: EntryId) -> Result<(), Error> {
        if self.whereabouts(file) == Whereabouts::Placed {
            return Ok(());
        }
        debug_assert_eq!(self.whereabouts(file), Whereabouts::Staged);
        let entry = self.manifest.entry(file);
        let dir = self.ready_dir(entry.parent)?;
        self.place_staged(file, &dir)?;
        self.set_whereabouts(file, Whereabouts::Placed);
        Ok(())
    }

    /// Renames what is staged for an entry to its final name in `dir`.
    pub(super) fn rename_staged(&self, entry: EntryId, dir: &Dir<'_>) -> Result<(), Error> {
        let name = self.manifest.entry(entry);
        let name = self.place.name(&name);
        match self.state.staging().place(entry, dir, name) {
            Ok(()) => Ok(()),
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => Err(Error::Blocked {
                path: self.path_of(entry),
                found: "a directory",
                wanted: "a file",
            }),
            Err(Errno::XDEV) => Err(Error::OtherFileSystem {
                path: self.path_of(entry),
            }),
            Err(errno) => Err(Error::new(
                self.path_of(entry),
                "put the file in place",
                errno,
            )),
        }
    }

    /// A directory of the object, made if it is missing, in which files can be made.
    pub(super) fn ready_dir(&self, dir: Option<EntryId>) -> Result<Dir<'_>, Error> {
        let mut missing = Vec::new();
        let mut at = dir;
        while let Some(id) = at.filter(|id| self.whereabouts(*id) != Whereabouts::Placed) {
            missing.push(id);
            at = self.manifest.entry(id).parent;
        }
        for id in missing.into_iter().rev() {
            self.make_dir(id)?;
            self.set_whereabouts(id, Whereabouts::Placed);
        }
        self.open_dir(dir)
    }

    fn make_dir(&self, id: EntryId) -> Result<(), Error> {
        let entry = self.manifest.entry(id);
        let is_made = |dir| self.whereabouts(dir) == Whereabouts::Placed;
        debug_assert!(
            entry.parent.is_none_or(is_made),
            "outer directories come first"
        );
        let parent = self.open_dir(entry.parent)?;
        // Private until everything in it is there and it gets the mode it should have.
        match fs::mkdirat(&parent, self.place.name(&entry), Mode::RWXU) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::new(self.path_of(id), "create the directory", errno)),
        }
        let dir = self.open_dir(Some(id))?;
        let stat = fs::fstat(dir.as_fd())
            .map_err(Error::at(|| self.path_of(id), "examine the directory"))?;
        let mode = sys::full_mode_of(&stat);
        if mode & 0o700 != 0o700 && modes_bind_us() && stat.st_uid == fs::euid() {
            fs::fchmod(dir.as_fd(), sys::full_mode(mode | 0o700)).map_err(Error::at(
                || self.path_of(id),
                "make the directory writable",
            ))?;
        }
        Ok(())
    }

    pub(super) fn open_dir(&self, dir: Option<EntryId>) -> Result<Dir<'_>, Error> {
        self.place.dir(&self.manifest, dir).map_err(|errno| {
            let path = dir.map_or_else(|| self.place.path().to_path_buf(), |dir| self.path_of(dir));
            match errno {
                Errno::NOTDIR => Error::Blocked {
                    path,
                    found: "something else",
                    wanted: "a directory",
                },
                errno => Error::new(path, "open the directory", errno),
            }
        })
    }
}

fn each(files: &[OwnedFd], act: fn(&OwnedFd) -> std::io::Result<()>) -> Result<(), Errno> {
    let done = files.iter().try_for_each(act);
    done.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
