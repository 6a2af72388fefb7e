//! The end of a transfer: everything in place, with the right modes and times, on disk.

use std::num::NonZero;

use outpour_core::manifest::{Content, Entry, EntryId};
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::modes::{open_dir_mode, open_file_mode};
use super::sync::SYNC_THREADS;
use super::{Destination, Inner, Keep, Whereabouts};
use crate::error::Error;
use crate::fs::{self, AsFd};
use crate::{sys, work};

/// How many threads look at files that are in place. One that must read a file again has as many
/// helpers as there are processors.
const LOOK_THREADS: NonZero<usize> = NonZero::new(4).unwrap();
/// How many entries one of them takes at a time.
const LOOK_SHARE: usize = 1024;

impl Destination {
    /// Completes the object: when this returns, every file, directory and symlink is in its place
    /// as the manifest says, will still be after a power cut, and nothing else is left. A destination
    /// that does not [keep](Keep) files has all of its blocks on disk then, those that are there.
    ///
    /// Blocks can still be read afterwards: what its own mode would close to us gets that mode when
    /// the destination is dropped.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if blocks are missing; else if something cannot be put in place, or
    /// was changed by another process meanwhile.
    pub fn finish(&self) -> Result<(), Error> {
        let running = self.running();
        let inner = running.inner();
        inner.finish().map_err(|error| inner.measured(error))
    }
}

impl Inner {
    fn finish(&self) -> Result<(), Error> {
        if self.options.keep != Keep::Files {
            return self.sync();
        }
        if self.progress().finished {
            return self.look_again().map_err(Error::too_late);
        }
        let missing = self.progress().have.missing();
        if missing > 0 {
            return Err(Error::Incomplete { missing });
        }
        self.sync()?;
        debug_assert!(self.progress().is_settled());
        debug_assert!(
            self.manifest
                .entries()
                .all(|entry| self.manifest.blocks_of(entry.id).is_empty()
                    || self.whereabouts(entry.id) == Whereabouts::Placed),
            "a file with all of its blocks is in its place"
        );
        // Directories are looked up anew: one that was moved away meanwhile shows now.
        self.place.refresh();
        self.lost.clear();
        for entry in self.manifest.entries() {
            match entry.content {
                Content::Directory { .. } => drop(self.ready_dir(Some(entry.id))?),
                Content::File { size, .. } if size.0 == 0 => self.make_empty(&entry)?,
                // Links are made when their files are there.
                Content::File { .. } | Content::Link { .. } => {}
                Content::Symlink { target } => self.make_link(&entry, target)?,
            }
            self.options.work.add(1);
        }
        self.make_hard_links()?;
        // What is inside comes first: making it changes the time of the directory, and may need
        // more than its final mode.
        for entry in self.manifest.entries().rev() {
            if let Content::Directory { mode } = entry.content {
                self.complete_dir(&entry, mode)?;
            }
            self.options.work.add(1);
        }
        self.settle_root()?;
        self.sync_dirs()?;
        if self.options.verify_after {
            self.read_back()?;
        }
        // As late as what is wrong can still be mended.
        self.place.refresh();
        self.place.confirm_root()?;
        self.for_each_file(|entry, mode, size| {
            self.complete_file(entry, mode, size)?;
            self.options.work.add(1);
            Ok(())
        })?;
        self.remove_state()?;
        self.progress().finished = true;
        // The last look of all: what was changed while the state was removed cannot be mended here.
        self.look_again().map_err(Error::too_late)
    }

    /// Looks at a file in its place; `None` if there is no regular file of its size.
    pub(super) fn find_file(&self, entry: &Entry<'_>, size: u64) -> Result<Option<Stat>, Error> {
        let look = Error::at(|| self.path_of(entry.id), "look at the file");
        let found = self.place.stat(&self.manifest, entry).map_err(look)?;
        Ok(found.filter(|stat| {
            sys::type_of(stat) == FileType::RegularFile && stat.st_size as u64 == size
        }))
    }

    /// Sees to it that a file that is in place has its bytes, its mode and its time.
    fn complete_file(&self, entry: &Entry<'_>, mode: u16, size: u64) -> Result<(), Error> {
        let path = || self.path_of(entry.id);
        let stat = self.find_file(entry, size)?;
        let stat = stat.ok_or_else(|| self.changed(entry.id))?;
        self.prove_placed(entry, &stat)?;
        if self.keeper.is_some() {
            return self.keep_file(entry, &stat);
        }
        if sys::mode_of(&stat) != open_file_mode(mode) || sys::mtime_of(&stat) != entry.mtime_ns {
            let file = self.place.open_file(&self.manifest, entry);
            let file = file.map_err(self.gone(entry.id))?;
            // That changes its times, so it is read again at the very end.
            self.identities.note(entry.id, None);
            let set = || {
                self.seal(entry, &file)?;
                fs::fsync(&file)
            };
            set().map_err(Error::at(path, "set mode and time of the file"))?;
        }
        Ok(())
    }

    /// Sees to it that an empty file is in place: it has no block that would bring it.
    fn make_empty(&self, entry: &Entry<'_>) -> Result<(), Error> {
        if self.find_file(entry, 0)?.is_some() {
            return self.sync_empty(entry);
        }
        debug_assert!(self.manifest.blocks_of(entry.id).is_empty());
        let path = || self.path_of(entry.id);
        self.make_small(entry.id, b"")
            .map_err(Error::at(path, "create the file"))?;
        let dir = self.ready_dir(entry.parent)?;
        self.place_staged(entry.id, &dir)?;
        self.set_whereabouts(entry.id, Whereabouts::Placed);
        self.sync_empty(entry)
    }

    /// An empty file has no bytes that would be synced. Where there is one journal, its name brings it.
    fn sync_empty(&self, entry: &Entry<'_>) -> Result<(), Error> {
        if self.commits_together {
            return Ok(());
        }
        let file = self.place.open_file(&self.manifest, entry);
        let file = file.map_err(self.gone(entry.id))?;
        let path = || self.path_of(entry.id);
        self.sync_seal(&file)
            .map_err(Error::at(path, "sync the file"))
    }

    /// Syncs every directory: the names in it, its own mode and time, and the symlinks.
    fn sync_dirs(&self) -> Result<(), Error> {
        let inner = self.manifest.entries();
        let inner = inner.filter(|entry| matches!(entry.content, Content::Directory { .. }));
        let mut dirs: Vec<_> = inner.map(|entry| Some(entry.id)).collect();
        // What holds the others comes last.
        dirs.push(None);
        work::spread(SYNC_THREADS, &dirs, |dir, _| {
            let open = self.open_dir(*dir)?;
            self.options.work.add(1);
            let path =
                || dir.map_or_else(|| self.place.path().to_path_buf(), |dir| self.path_of(dir));
            fs::fsync(open.as_fd()).map_err(Error::at(path, "sync the directory"))
        })?;
        let path = || self.place.path();
        let made = match self.commits_together {
            true => self.state.sync_dirs(),
            false => self.state.sync_way(),
        };
        made.map_err(Error::at(path, "sync the directory above"))
    }

    /// Makes sure at the very end that the path leads to what was written, and that every file is
    /// still as it was when it was known to be right.
    fn look_again(&self) -> Result<(), Error> {
        debug_assert!(self.progress().finished);
        self.place.refresh();
        self.for_each_file(|entry, _, _| {
            let look = Error::at(|| self.path_of(entry.id), "look at the file");
            let stat = self.place.stat(&self.manifest, entry).map_err(look)?;
            let stat = stat.ok_or_else(|| self.changed(entry.id))?;
            self.prove_placed(entry, &stat)
        })?;
        self.prove_links()?;
        // Last: what was looked at just now is of no use if it is not where the path leads.
        self.place.confirm_root()
    }

    /// Does something with each file, its mode and its size, on a few threads.
    fn for_each_file(
        &self,
        act: impl Fn(&Entry<'_>, u16, u64) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let entries: Vec<EntryId> = self.manifest.entries().map(|entry| entry.id).collect();
        let shares: Vec<&[EntryId]> = entries.chunks(LOOK_SHARE).collect();
        work::spread(LOOK_THREADS, &shares, |share, _| {
            share.iter().try_for_each(|id| {
                let entry = self.manifest.entry(*id);
                match entry.content {
                    Content::File { mode, size } => act(&entry, mode, size.0),
                    _ => Ok(()),
                }
            })
        })
    }

    fn make_link(&self, entry: &Entry<'_>, target: &[u8]) -> Result<(), Error> {
        let path = || self.path_of(entry.id);
        let dir = self.ready_dir(entry.parent)?;
        let name = self.place.name(entry);
        let look = Error::at(path, "examine the symlink");
        let stat = sys::lstat(&dir, name).map_err(look)?;
        let is_link = |stat: &Stat| sys::type_of(stat) == FileType::Symlink;
        let same = match stat.filter(is_link) {
            Some(stat) => {
                let found = fs::readlinkat(&dir, name, Vec::new());
                let found = found.map_err(Error::at(path, "read the symlink"))?;
                (found.as_bytes() == target).then_some(stat)
            }
            None => None,
        };
        // Where there is one journal, its directory brings its time. Elsewhere nothing does, as a symlink
        // cannot be synced, but that it is made with it.
        let lasts = |stat: &Stat| self.commits_together || sys::mtime_of(stat) == entry.mtime_ns;
        let same = same.filter(lasts);
        let date = |stat: &Stat| match sys::mtime_of(stat) == entry.mtime_ns {
            true => Ok(()),
            false => {
                let time = sys::mtime(entry.mtime_ns);
                let set = fs::utimensat(&dir, name, &time, AtFlags::SYMLINK_NOFOLLOW);
                set.map_err(Error::at(path, "set the time of the symlink"))
            }
        };
        if let Some(stat) = same.filter(|stat| self.is_link_kept(entry, stat)) {
            return date(&stat);
        }
        let staging = self.state.staging();
        let link = staging.link(entry.id, target, entry.mtime_ns);
        link.map_err(Error::at(path, "create the symlink"))?;
        let owned_alike = self.own_link(entry, same.as_ref())?;
        if let Some(stat) = same.filter(|_| owned_alike) {
            // A new one would be no better.
            let removed = staging.remove(entry.id);
            removed.map_err(Error::at(path, "remove a staged file"))?;
            return date(&stat);
        }
        self.rename_staged(entry.id, &dir)
    }

    fn complete_dir(&self, entry: &Entry<'_>, mode: u16) -> Result<(), Error> {
        debug_assert_eq!(self.whereabouts(entry.id), Whereabouts::Placed);
        let path = || self.path_of(entry.id);
        let dir = self.open_dir(Some(entry.id))?;
        if self.keeper.is_some() {
            return self.keep_dir(entry, mode, &dir);
        }
        let set = || {
            let stat = fs::fstat(dir.as_fd())?;
            let mode = open_dir_mode(mode);
            if sys::mode_of(&stat) != mode {
                fs::fchmod(dir.as_fd(), sys::mode(mode))?;
            }
            if sys::mtime_of(&stat) != entry.mtime_ns {
                fs::futimens(dir.as_fd(), &sys::mtime(entry.mtime_ns))?;
            }
            Ok(())
        };
        match set() {
            // An existing directory of another user, in which we may work.
            Err(Errno::PERM) => {
                tracing::warn!(path = %path().display(), "cannot set mode and time");
                Ok(())
            }
            result => result.map_err(Error::at(path, "set mode and time of the directory")),
        }
    }

    /// Leaves the destination for another time: the journal gets what it does not know yet. What
    /// has nothing worth keeping is removed.
    pub(super) fn close(&self) {
        let mut progress = self.progress();
        debug_assert!(progress.stop, "a thread may sync still");
        if progress.finished {
            return;
        }
        let mut staged = self.whereabouts.iter().map(Whereabouts::from);
        let staged = staged.any(|whereabouts| whereabouts == Whereabouts::Staged);
        let worthless = progress.have.is_empty() && !staged;
        let result = if worthless || self.options.keep == Keep::Nothing {
            self.remove_state()
        } else {
            let path = || self.state.path().join("journal");
            self.log(&mut progress)
                .map_err(Error::at(path, "write the file"))
        };
        if let Err(error) = result {
            tracing::warn!(%error, "cannot leave the destination in order");
        }
    }
}
