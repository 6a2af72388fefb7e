//! Writes verified blocks.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use outpour_core::BlockId;
use outpour_core::manifest::{Content, ENTRIES_MAX, Entry, EntryId, Extent, Manifest};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::identity::Identity;
use super::modes::open_file_mode;
use super::sync::Batch;
use super::{Destination, Inner, Keep, STRIPES, Whereabouts, Written};
use crate::attributes::{Applied, Keeper, Looks};
use crate::error::{Error, WriteError};
use crate::fs::{self, OwnedFd};
use crate::sys;

/// Distinguishes descriptors for writing from those for reading in the cache.
pub(super) const FOR_WRITING: u32 = 1 << 31;

const _: () = assert!(ENTRIES_MAX <= FOR_WRITING);

impl Destination {
    /// Stores a block that the caller has verified.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`] if there is no room for it now; other errors if the destination
    /// cannot be used any more.
    pub fn write(&self, block: BlockId, data: &[u8]) -> Result<Written, WriteError> {
        let running = self.running();
        let inner = running.inner();
        let written = inner.write(block, data);
        Ok(written.map_err(|error| inner.measured(error))?)
    }

    /// Makes sure that what was written so far outlasts a power cut, and puts whole files in
    /// place. Happens by itself, too.
    ///
    /// # Errors
    /// If the disk is full, or the destination cannot be used any more.
    pub fn sync(&self) -> Result<(), WriteError> {
        let running = self.running();
        let inner = running.inner();
        Ok(inner.sync().map_err(|error| inner.measured(error))?)
    }
}

impl Inner {
    fn write(&self, block: BlockId, data: &[u8]) -> Result<Written, Error> {
        let expected = self.manifest.block_len(block);
        if data.len() != expected as usize || data.is_empty() {
            let len = data.len();
            return Err(Error::BlockLen {
                block,
                len,
                expected,
            });
        }
        debug_assert!(self.manifest.verify(block, data), "the caller verifies");
        self.admit_write()?;
        let stripe = &self.stripes[block as usize % STRIPES];
        let _alone = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        if self.progress().have.contains(block) {
            return Ok(Written::Had);
        }
        let mut work = Batch::default();
        let result = if self.manifest.is_pack(block) {
            self.write_small(block, data, &mut work)
        } else {
            let mut parts = self.manifest.extents(block);
            parts.try_for_each(|extent| self.write_large(extent, data, &mut work))
        };
        // Even of a block that failed, some files may be complete.
        let done = result.is_ok().then_some((block, expected));
        self.note(done, work);
        result.map(|()| Written::Fresh)
    }

    fn write_large(&self, extent: Extent, data: &[u8], work: &mut Batch) -> Result<(), Error> {
        debug_assert_eq!(data.len(), extent.len as usize);
        let id = extent.file;
        work.created = self.whereabouts(id) == Whereabouts::Absent;
        let path = || self.path_of(id);
        let file = self
            .open_to_write(id)
            .map_err(Error::at(path, "create the file"))?;
        self.is_leased(id, &file);
        let written = match self.manifest.is_sparse(id) {
            true => sys::pwrite_sparse(&file, data, extent.offset),
            false => sys::pwrite(&file, data, extent.offset),
        };
        written.map_err(Error::at(path, "write the file"))?;
        work.files.insert(id);
        let complete = || {
            self.seal(&self.manifest.entry(id), &file)
                .map_err(Error::at(path, "complete the file"))
        };
        if let Some(large) = self.large(id)
            && large.one_block_less(complete)?
        {
            work.complete.push(id);
        }
        Ok(())
    }

    /// A staged large file; it is made, with all of its space, if it is not there.
    pub(super) fn open_to_write(&self, id: EntryId) -> Result<std::sync::Arc<OwnedFd>, Errno> {
        debug_assert!(self.large(id).is_some(), "a small file is written at once");
        if let Some(file) = self.files.find(id.0 | FOR_WRITING) {
            return Ok(file);
        }
        let _alone = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.files.get(id.0 | FOR_WRITING, || {
            if self.whereabouts(id) != Whereabouts::Absent {
                let file = self.state.staging().open(id, OFlags::RDWR)?;
                // What happened to it while it was closed is not known.
                if let Some(large) = self.large(id) {
                    large.leased.store(false, Ordering::Release);
                }
                return Ok(file);
            }
            let file = self.create_staged(id, OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
            let Content::File { size, .. } = self.manifest.entry(id).content else {
                return Err(Errno::INVAL);
            };
            match self.options.keep {
                Keep::Files if !self.manifest.is_sparse(id) => sys::reserve(&file, size.0)?,
                // Perhaps little of it will come, or most of it is holes.
                Keep::Files | Keep::Blocks | Keep::Nothing => fs::ftruncate(&file, size.0)?,
            }
            self.lease(id, &file);
            self.set_whereabouts(id, Whereabouts::Staged);
            Ok(file)
        })
    }

    /// Makes the files of a block that are not here yet.
    fn write_small(&self, block: BlockId, data: &[u8], work: &mut Batch) -> Result<(), Error> {
        debug_assert!(
            self.stripes[block as usize % STRIPES].try_lock().is_err(),
            "another thread may make the same files"
        );
        let mut rest = data;
        work.created = true;
        for extent in self.manifest.extents(block) {
            let (part, after) = rest.split_at(extent.len as usize);
            if self.whereabouts(extent.file) == Whereabouts::Absent {
                self.make_small(extent.file, part)
                    .map_err(Error::at(|| self.path_of(extent.file), "write the file"))?;
                self.set_whereabouts(extent.file, Whereabouts::Staged);
                work.small.push(extent.file);
                work.complete.push(extent.file);
            }
            rest = after;
        }
        debug_assert!(rest.is_empty(), "a block is longer than its parts");
        Ok(())
    }

    /// Makes a staged file with all that belongs to it; on failure there is none.
    pub(super) fn make_small(&self, id: EntryId, data: &[u8]) -> Result<(), Errno> {
        let entry = self.manifest.entry(id);
        debug_assert!(self.is_small(id));
        let Content::File { mode, size } = entry.content else {
            return Err(Errno::INVAL);
        };
        debug_assert_eq!(data.len() as u64, size.0, "a part of a small file");
        let (asked, withheld) = self.state.creation_mode(open_file_mode(mode));
        let file = self.create_staged(id, OFlags::WRONLY, asked)?;
        let fill = || {
            if self.manifest.is_sparse(id) {
                fs::ftruncate(&file, size.0)?;
                sys::pwrite_sparse(&file, data, 0)?;
            } else {
                sys::pwrite(&file, data, 0)?;
            }
            if self.keeper.is_some() {
                self.seal(&entry, &file)?;
            } else {
                if withheld {
                    fs::fchmod(&file, asked)?;
                }
                fs::futimens(&file, &sys::mtime(entry.mtime_ns))?;
            }
            self.identities.note(id, Some(Identity::of_open(&file)?));
            Ok(())
        };
        fill().inspect_err(|_| {
            if let Err(errno) = self.state.staging().remove(id) {
                tracing::warn!(%errno, "cannot remove a file that could not be written");
            }
        })
    }

    pub(super) fn seal(&self, entry: &Entry<'_>, file: &OwnedFd) -> Result<(), Errno> {
        seal(self.keeper.as_ref(), &self.manifest, entry, file).map(drop)
    }

    /// Makes a staged file, in the place of what may be left of an earlier one.
    pub(super) fn create_staged(
        &self,
        id: EntryId,
        access: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let staging = self.state.staging();
        match staging.create(id, access, mode) {
            Err(Errno::EXIST) => {
                staging.remove(id)?;
                staging.create(id, access, mode)
            }
            result => result,
        }
    }
}

/// Gives a file that has all of its bytes its attributes, if they are kept, its mode, as far as we can
/// still read it, and time.
pub(super) fn seal(
    keeper: Option<&Keeper>,
    manifest: &Manifest,
    entry: &Entry<'_>,
    file: &OwnedFd,
) -> Result<Applied, Errno> {
    let Content::File { mode, .. } = entry.content else {
        return Ok(Applied::default());
    };
    let (mode, mtime_ns) = (open_file_mode(mode), entry.mtime_ns);
    if let (Some(keeper), Some(attributes)) = (keeper, manifest.attributes(entry.id)) {
        return keeper.apply(file, attributes, Looks { mode, mtime_ns });
    }
    fs::fchmod(file, sys::mode(mode))?;
    fs::futimens(file, &sys::mtime(mtime_ns))?;
    Ok(Applied {
        changed: true,
        ..Applied::default()
    })
}
