//! The object where it goes to.
//!
//! Blocks are written into files in the state directory, at their place in the file. Three things
//! happen to a block in this order, and each file waits for all of its blocks:
//!
//! 1. its bytes are written (and the journal says *written*, a little later and unsynced);
//! 2. its bytes are synced, then the journal says *synced*, then the journal is synced;
//! 3. the file is renamed to its final name, if it still has the bytes that were verified.
//!
//! Steps 2 and 3 are taken by a thread of their own for everything that has gathered, so that
//! writers need not wait for the disk.

mod back;
mod finish;
mod folding;
mod identity;
mod kept;
mod links;
mod modes;
mod proof;
mod renew;
mod resume;
mod sync;
#[cfg(feature = "simulated")]
#[path = "../../disks/src/turn.rs"]
mod turn;
mod write;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use outpour_core::manifest::{EntryId, Extent, Manifest};
use outpour_core::{BlockId, BlockSet};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::attributes::Keeper;
use crate::cache::Cache;
use crate::claim::{Claim, Intent, Shape};
use crate::error::Error;
use crate::fs::OwnedFd;
use crate::journal::Journal;
use crate::place::Place;
use crate::state::State;
use crate::{sys, work};
use identity::Identities;
use kept::Lost;
pub use kept::NotKept;
use modes::Opened;
use proof::Large;
use renew::Running;
use sync::Progress;

/// How many large files a destination keeps open.
const FILES_MAX: usize = 64;

/// How many blocks can be written at once; two writes of one block never are.
const STRIPES: usize = 64;

/// See [`DestinationOptions::sync_after`].
const SYNC_AFTER: Duration = Duration::from_secs(1);

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
pub struct DestinationOptions {
    /// How many threads hash what is already there; by default one per available core.
    pub threads: NonZero<usize>,
    /// After how many bytes what was written is synced.
    pub sync_bytes: u64,
    /// After how many small files what was written is synced: each costs more than its bytes.
    pub sync_files: usize,
    /// After how long at most a sync of what was written begins. After twice that time writers wait for
    /// it to end, so that a power cut takes no more than what came in that time.
    pub sync_after: Duration,
    /// What is added to as work gets done while the destination is looked at and finished, where
    /// the network does not show it.
    pub work: Arc<Work>,
    /// Whether everything is read back from the disk, past the page cache, before the object is
    /// complete.
    pub verify_after: bool,
    /// What becomes of the blocks.
    pub keep: Keep,
}

/// What becomes of the blocks that come to a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Whole files are put in place.
    #[default]
    Files,
    /// No file is put in place: verified blocks can be read here, now and when it is opened again.
    Blocks,
    /// The same, and they are removed when the destination is dropped.
    Nothing,
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

impl Default for DestinationOptions {
    fn default() -> Self {
        Self {
            threads: work::default_threads(),
            sync_bytes: 128 << 20,
            sync_files: 4096,
            sync_after: SYNC_AFTER,
            work: Arc::default(),
            verify_after: false,
            keep: Keep::Files,
        }
    }
}

/// Where an object is being put, or has been put.
///
/// Blocks may be written and read from several threads. Dropping it before [`Self::finish`] keeps
/// what is there for the next [`Self::open`].
pub struct Destination {
    manifest: Arc<Manifest>,
    running: RwLock<Running>,
}

struct Inner {
    manifest: Arc<Manifest>,
    place: Arc<Place>,
    state: Arc<State>,
    options: DestinationOptions,
    /// Where each entry is, by its index; see [`Whereabouts`].
    whereabouts: Vec<AtomicU8>,
    identities: Identities,
    /// What an earlier cast has left closed to us.
    opened: Arc<Opened>,
    /// Sets the attributes of entries, if they are kept.
    keeper: Option<Keeper>,
    /// What could not be kept.
    lost: Lost,
    /// Hard links that had to become files of their own.
    copies: Mutex<BTreeSet<EntryId>>,
    /// Files of which a block did not read as it was written, though nothing shows in their times.
    suspects: Mutex<BTreeSet<EntryId>>,
    /// Large files that are not in place yet, in path order.
    large: Vec<Large>,
    /// Whether the file system has one journal for all files.
    commits_together: bool,
    /// Whether the way to the state is known to outlast a power cut.
    way_lasts: AtomicBool,
    /// Open files, by entry.
    files: Cache<OwnedFd>,
    /// Held while a file is opened for writing: opening it breaks a lease on it.
    opening: Mutex<()>,
    stripes: [Mutex<()>; STRIPES],
    progress: Mutex<Progress>,
    /// Rung when a thread that syncs, or one that waits for them, has a reason to look.
    bell: Condvar,
    /// Held while syncing: one sync at a time.
    turn: Mutex<()>,
    /// Held while files are put in place; taken in turn.
    placing: Mutex<()>,
    /// Closed before the state is removed.
    journal: Mutex<Option<Journal>>,
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
    /// hashed, and blocks that are right count as had. Claims the place first; see [`Claim`].
    ///
    /// # Errors
    /// Whatever would prevent the object from being put there, as far as it can be known before
    /// data moves: no permission, too little space, something of another sort in the way, a
    /// symlink on the way, or another process that writes there ([`Error::is_locked`]).
    pub fn open(
        path: impl AsRef<Path>,
        manifest: Arc<Manifest>,
        options: DestinationOptions,
    ) -> Result<Self, Error> {
        let intent = Intent {
            object: manifest.id(),
            shape: Shape::of(&manifest),
            label: format!("process {}", std::process::id()),
            party: None,
        };
        Claim::take(path, None, intent)?.open(manifest, options)
    }

    /// At a place that is ours alone.
    pub(crate) fn at(
        place: Place,
        state: State,
        manifest: Arc<Manifest>,
        options: DestinationOptions,
    ) -> Result<Self, Error> {
        let (place, opened) = (Arc::new(place), Arc::new(Opened::default()));
        let inner = resume::resume(
            place.clone(),
            state.into(),
            manifest.clone(),
            options,
            opened.clone(),
            resume::After::Start,
        );
        let inner = inner.inspect_err(|_| opened.restore(&place, &manifest))?;
        Ok(Self {
            manifest,
            running: RwLock::new(Running::start(inner)?),
        })
    }

    /// The object.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The blocks that are here.
    pub fn have(&self) -> BlockSet {
        self.running().inner().progress().have.clone()
    }

    /// Reads a block from wherever it is and verifies it; `buf` then holds it and nothing else.
    ///
    /// # Errors
    /// If the block is not here, or cannot be read; [`Error::Damaged`] if it is not what was
    /// written.
    pub fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> Result<(), Error> {
        self.running().inner().read(block, buf)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        let running = running.unwrap_or_else(PoisonError::into_inner);
        running.stop();
        let inner = running.inner();
        inner.close();
        inner.close_entries();
        if inner.progress().finished {
            inner.state.keep_dirs();
        }
    }
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination")
            .field("path", &self.running().inner().place.path())
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
        debug_assert!(
            self.whereabouts(entry) as u8 <= whereabouts as u8,
            "nothing goes back"
        );
        debug_assert!(
            whereabouts != Whereabouts::Staged || !self.manifest.blocks_of(entry).is_empty(),
            "without blocks nothing is staged"
        );
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
                .map_err(self.gone(extent.file))?;
            if read < part.len() {
                return Err(self.changed(extent.file));
            }
            rest = after;
        }
        debug_assert!(rest.is_empty(), "a block is longer than its parts");
        if self.manifest.verify(block, buf) {
            Ok(())
        } else {
            Err(self.explain(block))
        }
    }

    fn read_extent(&self, pack: bool, extent: Extent, part: &mut [u8]) -> Result<usize, Errno> {
        debug_assert_eq!(part.len(), extent.len as usize);
        debug_assert_eq!(pack, self.is_small(extent.file));
        if pack {
            return sys::pread(&self.open_to_read(extent.file)?, part, extent.offset);
        }
        if self.whereabouts(extent.file) == Whereabouts::Staged {
            // Opened once more it would have no lease.
            match self.open_to_write(extent.file) {
                Ok(file) => return sys::pread(&file, part, extent.offset),
                // It has just been put in place.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        let file = self
            .files
            .get(extent.file.0, || self.open_to_read(extent.file))?;
        sys::pread(&file, part, extent.offset)
    }

    /// Opens a file where it is; it may be put in place at this very moment.
    fn open_to_read(&self, file: EntryId) -> Result<OwnedFd, Errno> {
        if self.whereabouts(file) == Whereabouts::Staged {
            match self.state.staging().open(file, OFlags::RDONLY) {
                Err(Errno::NOENT) => {}
                result => return result,
            }
        }
        self.place
            .open_file(&self.manifest, &self.manifest.entry(file))
    }
}
