//! Proof that what is on disk is what was verified.
//!
//! A block is verified before it is written, and much may happen to a file between that and the
//! moment when it counts as complete. Two things prove that nothing did, without reading it again:
//!
//! - the *identity* of a whole file: where it is, how long, and when it was changed last. Every
//!   write changes it. It is recorded when the last byte is there, and compared when the file gets
//!   its name and when the object is complete.
//! - a *lease* on a large file, which grows over time and whose times our own writes change, too:
//!   no other process has opened the file since before the first write.
//!
//! What neither proves is read again and hashed. Small files are when they have their names.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use outpour_core::BlockId;
use outpour_core::manifest::{Content, Entry, EntryId};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use super::identity::Identity;
use super::write::FOR_WRITING;
use super::{Inner, Keep, Whereabouts};
use crate::error::{Damage, Error};
use crate::fs::{self, OwnedFd, lease};
use crate::place::Dir;
use crate::{compare, sys, work};

/// A large file that is not in place yet.
pub(super) struct Large {
    pub(super) file: EntryId,
    /// How many blocks it lacks.
    pub(super) lacks: AtomicU32,
    /// Whether we have had a lease on it since before its first byte.
    pub(super) leased: AtomicBool,
}

impl Large {
    pub(super) const fn new(file: EntryId, lacks: u32) -> Self {
        Self {
            file,
            lacks: AtomicU32::new(lacks),
            leased: AtomicBool::new(false),
        }
    }

    /// Counts a block; if it was the last that the file lacked, completes the file and says so.
    ///
    /// # Errors
    /// Those of `complete`; then the block is lacked still, and comes again.
    pub(super) fn one_block_less(
        &self,
        complete: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let lacked = self.lacks.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(lacked, 0, "a block that was counted before");
        if lacked != 1 {
            return Ok(false);
        }
        complete().inspect_err(|_| {
            self.lacks.fetch_add(1, Ordering::AcqRel);
        })?;
        Ok(true)
    }
}

impl Inner {
    pub(super) fn large(&self, file: EntryId) -> Option<&Large> {
        let found = self.large.binary_search_by_key(&file, |large| large.file);
        found.ok().map(|index| &self.large[index])
    }

    // ---- leases

    /// Takes a lease on a large file that has just been made.
    pub(super) fn lease(&self, file: EntryId, fd: &OwnedFd) {
        debug_assert_eq!(self.whereabouts(file), Whereabouts::Absent);
        debug_assert!(self.large(file).is_some());
        let leased = lease::take(fd).is_ok();
        if let Some(large) = self.large(file) {
            large.leased.store(leased, Ordering::Release);
        }
        // The thread that syncs looks after leases from now on.
        self.bell.notify_all();
    }

    /// Whether a lease still proves that no other process touched a large file. One that does not is
    /// let go, because a process waits for that.
    pub(super) fn is_leased(&self, file: EntryId, fd: &OwnedFd) -> bool {
        let Some(large) = self.large(file) else {
            return false;
        };
        if large.leased.load(Ordering::Acquire) && lease::is_intact(fd).is_ok_and(|intact| intact) {
            return true;
        }
        if large.leased.swap(false, Ordering::AcqRel) {
            tracing::debug!(path = %self.path_of(file).display(), "another process opened the file");
        }
        // There may be none.
        let _ = lease::release(fd);
        false
    }

    /// Lets go of leases that other processes wait for; returns whether there are others.
    pub(super) fn look_after_leases(&self) -> bool {
        let files = self.files.all().into_iter();
        let written = files.filter(|(key, _)| key & FOR_WRITING != 0);
        // Each is looked at.
        written.fold(false, |any, (key, fd)| {
            self.is_leased(EntryId(key & !FOR_WRITING), &fd) || any
        })
    }

    // ---- proofs

    /// Gives a staged file that is whole its name, provided that it has the bytes that were
    /// verified.
    pub(super) fn place_staged(&self, file: EntryId, dir: &Dir<'_>) -> Result<(), Error> {
        debug_assert!(self.options.keep == Keep::Files);
        debug_assert!(self.manifest.is_file(file));
        let lacks = |large: &Large| large.lacks.load(Ordering::Acquire);
        debug_assert_eq!(
            self.large(file).map_or(0, lacks),
            0,
            "only a whole file gets its name"
        );
        let entry = self.manifest.entry(file);
        let after = if self.is_small(file) {
            Some(self.place_small(&entry, dir)?)
        } else {
            self.place_large(&entry, dir)?
        };
        // What is not proven is read again when the object is complete.
        self.identities.note(file, after);
        Ok(())
    }

    /// Returns what the file is like in its place, where it has its bytes. Renaming it changes its
    /// times, and so did making it: what another process wrote then does not show in them, so it is
    /// read, which costs less than a lease.
    fn place_small(&self, entry: &Entry<'_>, dir: &Dir<'_>) -> Result<Identity, Error> {
        let look = || Error::at(|| self.path_of(entry.id), "look at the file");
        let open = self.state.staging().open(entry.id, OFlags::RDONLY);
        let fd = open.map_err(self.gone(entry.id))?;
        let before = Identity::of_open(&fd).map_err(look())?;
        if !self.identities.is(entry.id, &before) {
            self.hash_file(entry, &fd)?;
        }
        self.rename_staged(entry.id, dir)?;
        let after = Identity::of_open(&fd).map_err(look())?;
        // Whatever is written from now on shows.
        self.hash_file(entry, &fd)?;
        Ok(after)
    }

    /// Returns what the file is like in its place, if it has certainly not been written to.
    fn place_large(&self, entry: &Entry<'_>, dir: &Dir<'_>) -> Result<Option<Identity>, Error> {
        let look = || Error::at(|| self.path_of(entry.id), "look at the file");
        let held = self.prove_large(entry)?;
        let before = match &held {
            Some(fd) => fs::fstat(fd).map_err(look())?,
            None => self.staged_stat(entry.id)?,
        };
        self.rename_staged(entry.id, dir)?;
        let after = sys::lstat(dir, self.place.name(entry)).map_err(look())?;
        let after = Identity::of(&after.ok_or_else(|| self.changed(entry.id))?);
        if !after.is_renamed(Identity::of(&before)) {
            return Err(self.changed(entry.id));
        }
        // A process that opened the file during the rename may have written to it; and so may, while it was
        // read, one that has it open if there can be no lease.
        let proven = held.is_some_and(|fd| {
            let intact = lease::is_intact(&fd).is_ok_and(|intact| intact);
            let _ = lease::release(&fd);
            intact
        });
        Ok(proven.then_some(after))
    }

    pub(super) fn staged_stat(&self, file: EntryId) -> Result<Stat, Error> {
        let stat = self
            .state
            .staging()
            .stat(file)
            .map_err(Error::at(|| self.path_of(file), "look at the file"))?;
        stat.ok_or_else(|| self.changed(file))
    }

    pub(super) fn is_small(&self, file: EntryId) -> bool {
        self.manifest.blocks_of(file).len() < 2
    }

    /// Makes sure that a large staged file has its bytes; returns it with a lease on it, if there
    /// can be one.
    fn prove_large(&self, entry: &Entry<'_>) -> Result<Option<Arc<OwnedFd>>, Error> {
        let file = entry.id;
        debug_assert!(self.large(file).is_some());
        let open = self.files.remove(file.0 | FOR_WRITING);
        if let Some(fd) = &open
            && self.is_leased(file, fd)
            && !self.is_suspect(file)
        {
            return Ok(open);
        }
        drop(open);
        let fd = self
            .state
            .staging()
            .open(file, OFlags::RDWR)
            .map_err(self.gone(file))?;
        let leased = lease::take(&fd).is_ok();
        self.hash_file(entry, &fd)?;
        // Opening it may have cost it its mode.
        let complete = Error::at(|| self.path_of(file), "complete the file");
        self.seal(entry, &fd)
            .and_then(|()| self.sync_seal(&fd))
            .map_err(complete)?;
        Ok(leased.then(|| Arc::new(fd)))
    }

    /// Reads all of a file and compares it with the manifest.
    pub(super) fn hash_file(&self, entry: &Entry<'_>, fd: &OwnedFd) -> Result<(), Error> {
        let blocks = self.manifest.blocks_of(entry.id);
        let read = || Error::at(|| self.path_of(entry.id), "read the file");
        let stat = fs::fstat(fd).map_err(read())?;
        let Content::File { size, .. } = entry.content else {
            return Ok(());
        };
        if sys::type_of(&stat) != FileType::RegularFile || stat.st_size as u64 != size.0 {
            return Err(self.changed(entry.id));
        }
        let mut buf = Vec::new();
        let right = if blocks.len() < 2 {
            let right = compare::small(&self.manifest, entry.id, size.0, fd, &mut buf);
            self.options.work.add(size.0);
            right.map_err(read())?
        } else {
            self.count_right(entry.id, fd)? == blocks.len() as u32
        };
        if right {
            return Ok(());
        }
        let same = self.is_suspect(entry.id) || self.identities.is(entry.id, &Identity::of(&stat));
        Err(self.damaged(entry.id, if same { Damage::Disk } else { Damage::Changed }))
    }

    /// How many blocks of a large file are right in `fd`.
    fn count_right(&self, file: EntryId, fd: &OwnedFd) -> Result<u32, Error> {
        let shares: Vec<_> = work::shares(&self.manifest, self.manifest.blocks_of(file)).collect();
        let right = AtomicU32::new(0);
        work::spread(self.options.threads, &shares, |blocks, buf| {
            let count = |_, _, data: &[u8]| {
                self.options.work.add(data.len() as u64);
                right.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Errno>(())
            };
            compare::large(&self.manifest, fd, blocks.clone(), buf, count)
                .map_err(Error::at(|| self.path_of(file), "read the file"))
        })?;
        let right = right.into_inner();
        debug_assert!(right as usize <= self.manifest.blocks_of(file).len());
        Ok(right)
    }

    /// Makes sure that a file in its place, at which `stat` was just taken, has its bytes.
    pub(super) fn prove_placed(&self, entry: &Entry<'_>, stat: &Stat) -> Result<(), Error> {
        if self.identities.is(entry.id, &Identity::of(stat)) && !self.is_suspect(entry.id) {
            return Ok(());
        }
        let open = self.place.open_file(&self.manifest, entry);
        let fd = open.map_err(self.gone(entry.id))?;
        let before = fs::fstat(&fd).map_err(self.gone(entry.id))?;
        self.hash_file(entry, &fd)?;
        self.identities.note(entry.id, Some(Identity::of(&before)));
        Ok(())
    }

    // ---- damage

    /// Why a block does not read as it was written.
    pub(super) fn explain(&self, block: BlockId) -> Error {
        debug_assert!(self.progress().have.contains(block));
        let mut suspect = None;
        for extent in self.manifest.extents(block) {
            let entry = self.manifest.entry(extent.file);
            if self.is_touched(&entry) {
                return self.changed(extent.file);
            }
            let sound = || {
                let fd = self.open_to_read(extent.file).ok()?;
                self.hash_file(&entry, &fd).ok()
            };
            if self.manifest.is_pack(block) && suspect.is_none() && sound().is_none() {
                suspect = Some(extent.file);
            }
        }
        let first = self.manifest.extents(block).next();
        match suspect.or_else(|| first.map(|extent| extent.file)) {
            Some(file) => {
                // It does not count as complete before all of it has been read again.
                let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
                suspects.insert(file);
                self.damaged(file, Damage::Disk)
            }
            None => Error::Absent { block },
        }
    }

    fn is_suspect(&self, file: EntryId) -> bool {
        let suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.contains(&file)
    }

    /// Whether there are signs that another process touched a file.
    fn is_touched(&self, entry: &Entry<'_>) -> bool {
        let file = entry.id;
        let stat = match self.whereabouts(file) {
            Whereabouts::Staged => {
                if let Some(large) = self.large(file) {
                    return !large.leased.load(Ordering::Acquire);
                }
                self.state.staging().stat(file)
            }
            _ => self.place.stat(&self.manifest, entry),
        };
        let found = stat.ok().flatten();
        !found.is_some_and(|stat| self.identities.is(file, &Identity::of(&stat)))
    }

    /// What an error means that only another process can have caused.
    pub(super) fn gone(&self, file: EntryId) -> impl FnOnce(Errno) -> Error {
        move |errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP => self.changed(file),
            errno => Error::new(self.path_of(file), "read the file", errno),
        }
    }

    pub(super) fn changed(&self, file: EntryId) -> Error {
        self.damaged(file, Damage::Changed)
    }

    fn damaged(&self, file: EntryId, damage: Damage) -> Error {
        let path = self.path_of(file);
        Error::Damaged { path, damage }
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_that_could_not_be_completed_lacks_its_last_block_still() {
        let large = Large::new(EntryId(0), 2);
        let full = || Err(Error::new("file", "complete the file", Errno::NOSPC));
        // Only the last block completes it.
        assert!(!large.one_block_less(full).unwrap());
        for _ in 0..2 {
            large.one_block_less(full).unwrap_err();
        }
        assert!(large.one_block_less(|| Ok(())).unwrap());
    }
}
