//! The object where it goes to.
//!
//! Blocks are written into files in the state directory, at their place in the file. Three things
//! happen to a block in this order, and each file waits for all of its blocks:
//!
//! 1. its bytes are written (and the journal says *written*, a little later and unsynced);
//! 2. its bytes are synced, then the journal says *synced*, then the journal is synced;
//! 3. the file is renamed to its final name.
//!
//! Steps 2 and 3 are taken by a thread of their own for everything that has gathered, so that those
//! who write need not wait for the disk.

mod finish;
mod resume;
mod sync;
mod write;

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use outpour_core::manifest::{EntryId, Extent, Kind, Manifest};
use outpour_core::{BlockId, BlockSet};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::cache::Cache;
use crate::error::Error;
use crate::journal::Journal;
use crate::place::{Place, locate};
use crate::state::{State, file_name};
use crate::{sys, work};
use sync::Progress;

/// How many large files a destination keeps open.
const FILES_MAX: usize = 64;

/// How many blocks can be written at once; two writes of one block never are.
const STRIPES: usize = 64;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was not here; now it is.
    Fresh,
    /// It was here already.
    Had,
}

/// How a destination works.
#[derive(Clone)]
pub struct Options {
    /// How many threads hash what is already there; by default one per available core.
    pub threads: NonZero<usize>,
    /// After how many bytes what was written is synced.
    pub sync_bytes: u64,
    /// After how long at most what was written is synced.
    pub sync_after: Duration,
    /// What is added to as work gets done while the destination is looked at and finished, where
    /// the network does not show it.
    pub work: Arc<Work>,
}

/// How much work on files was done: bytes of the object that were read, hashed, copied, synced or
/// put in place, and one for each call that has no bytes. It grows as long as the disk answers.
#[derive(Debug, Default)]
pub struct Work(AtomicU64);

impl Work {
    /// The sum so far, in bytes.
    pub fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the sum.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: work::default_threads(),
            sync_bytes: 128 << 20,
            sync_after: Duration::from_secs(2),
            work: Arc::default(),
        }
    }
}

/// Where an object is being put, or has been put.
///
/// Blocks may be written and read from several threads. Dropping it before [`Self::finish`] keeps
/// what is there for the next [`Self::open`].
pub struct Destination {
    inner: Arc<Inner>,
    syncer: Option<JoinHandle<()>>,
}

struct Inner {
    manifest: Arc<Manifest>,
    place: Place,
    state: State,
    options: Options,
    /// Where each entry is, by its index; see [`Whereabouts`].
    whereabouts: Vec<AtomicU8>,
    /// Large files in path order, with the number of blocks that each still lacks.
    lacking: Vec<(EntryId, AtomicU32)>,
    /// Open files, by entry.
    files: Cache<OwnedFd>,
    stripes: [Mutex<()>; STRIPES],
    progress: Mutex<Progress>,
    /// Rung when the thread that syncs, or one that waits for it, has a reason to look.
    bell: Condvar,
    /// Held while syncing: one sync at a time.
    turn: Mutex<()>,
    journal: Mutex<Journal>,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// Nowhere: nothing of a file is here, a directory may not exist.
    Absent = 0,
    /// In the state directory: a small file whole, a large one at least in part.
    Staged = 1,
    /// In its place, whole; a directory is there and can be written to.
    Placed = 2,
}

impl From<&AtomicU8> for Whereabouts {
    fn from(slot: &AtomicU8) -> Self {
        match slot.load(Ordering::Acquire) {
            0 => Self::Absent,
            1 => Self::Staged,
            _ => Self::Placed,
        }
    }
}

impl Destination {
    /// Prepares `path` to take an object, and finds out what of it is there already.
    ///
    /// The root of a tree is put at `path` itself, which is created if it is missing; entries that
    /// the object does not have stay as they are. A file gets the name `path`, unless that is a
    /// directory or ends in a slash: then it goes inside under its own name. Existing files are
    /// hashed, and blocks that are right count as had.
    ///
    /// # Errors
    /// Whatever would prevent the object from being put there, as far as it can be known before
    /// data moves: no permission, too little space, something of another sort in the way, a
    /// symlink on the way, or another process doing the same ([`Error::is_locked`]).
    pub fn open(
        path: impl AsRef<Path>,
        manifest: Arc<Manifest>,
        options: Options,
    ) -> Result<Self, Error> {
        let (root, name) = locate(path.as_ref(), &manifest);
        create_root(&root, manifest.kind())?;
        let place = Place::open(root, name)?;
        let state = State::open(&place, manifest.id())?;
        let inner = Arc::new(resume::resume(place, state, manifest, options)?);
        let syncer = std::thread::Builder::new().name("sync".into()).spawn({
            let inner = inner.clone();
            move || inner.sync_until_stopped()
        });
        let syncer = syncer.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            Error::new(inner.place.path(), "start a thread", errno)
        })?;
        Ok(Self {
            inner,
            syncer: Some(syncer),
        })
    }

    /// The object.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.inner.manifest
    }

    /// The blocks that are here.
    pub fn have(&self) -> BlockSet {
        self.inner.progress().have.clone()
    }

    /// Reads a block from wherever it is; `buf` then holds it and nothing else.
    ///
    /// # Errors
    /// If the block is not here, or cannot be read.
    pub fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> Result<(), Error> {
        self.inner.read(block, buf)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.inner.progress().stop = true;
        self.inner.bell.notify_all();
        if let Some(syncer) = self.syncer.take()
            && syncer.join().is_err()
        {
            tracing::error!("the thread that syncs has panicked");
        }
        self.inner.close();
    }
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination")
            .field("path", &self.inner.place.path())
            .finish()
    }
}

impl Inner {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whereabouts(&self, entry: EntryId) -> Whereabouts {
        Whereabouts::from(&self.whereabouts[entry.index()])
    }

    fn set_whereabouts(&self, entry: EntryId, whereabouts: Whereabouts) {
        self.whereabouts[entry.index()].store(whereabouts as u8, Ordering::Release);
    }

    fn path_of(&self, entry: EntryId) -> PathBuf {
        self.place.path_of(&self.manifest, entry)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> Result<(), Error> {
        if !self.progress().have.contains(block) {
            return Err(Error::Absent { block });
        }
        let pack = self.manifest.is_pack(block);
        sys::resize(buf, self.manifest.block_len(block) as usize);
        let mut rest = &mut buf[..];
        for extent in self.manifest.extents(block) {
            let (part, after) = rest.split_at_mut(extent.len as usize);
            let read = self
                .read_extent(pack, extent, part)
                .map_err(Error::at(|| self.path_of(extent.file), "read the file"))?;
            if read < part.len() {
                let path = self.path_of(extent.file);
                return Err(Error::Damaged { path });
            }
            rest = after;
        }
        Ok(())
    }

    fn read_extent(&self, pack: bool, extent: Extent, part: &mut [u8]) -> Result<usize, Errno> {
        if pack {
            return sys::pread(&self.open_to_read(extent.file)?, part, extent.offset);
        }
        let file = self
            .files
            .get(extent.file.0, || self.open_to_read(extent.file))?;
        sys::pread(&file, part, extent.offset)
    }

    /// Opens a file where it is; it may be put in place at this very moment.
    fn open_to_read(&self, file: EntryId) -> Result<OwnedFd, Errno> {
        if self.whereabouts(file) == Whereabouts::Staged {
            match open_staged(&self.state, file, OFlags::RDONLY) {
                Err(Errno::NOENT) => {}
                result => return result,
            }
        }
        self.place
            .open_file(&self.manifest, &self.manifest.entry(file))
    }
}

/// Opens a staged file, even one that already has a final mode that would forbid it.
fn open_staged(state: &State, file: EntryId, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || fs::openat(state.data(), file_name(file), flags, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            let mode = Mode::RUSR | Mode::WUSR;
            fs::chmodat(state.data(), file_name(file), mode, fs::AtFlags::empty())?;
            open()
        }
        result => result,
    }
}

/// Makes the root directory if it is missing. Only one that is made here gets the tree's mode: an
/// existing one is the user's.
fn create_root(root: &Path, kind: Kind) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match errno {
            Errno::NOTDIR | Errno::EXIST => Error::Blocked {
                path: root.to_path_buf(),
                found: match std::fs::metadata(root) {
                    Ok(found) if found.is_file() => "a file",
                    _ => "something else",
                },
                wanted: "a directory",
            },
            errno => Error::new(root, "create the directory", errno),
        }
    };
    match std::fs::metadata(root) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(failed(Errno::NOTDIR.into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if let Some(parent) = root
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let Kind::Tree { mode } = kind else {
        return std::fs::create_dir_all(root).map_err(failed);
    };
    // We must be able to use it in any case.
    let mode = u32::from(mode | 0o700);
    match std::fs::DirBuilder::new().mode(0o700).create(root) {
        Ok(()) => {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(root, permissions).map_err(failed)
        }
        // `a/.`, or someone was faster.
        Err(_) if root.is_dir() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
