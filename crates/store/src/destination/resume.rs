//! Finds out what of an object is at its destination already: from an earlier attempt, from an
//! earlier attempt with another version of the object, or because the files are there.
//!
//! Nothing counts unless it was synced and the journal says so, or it was hashed just now.

mod holes;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use outpour_core::manifest::{Content, Entry, EntryId, Manifest};
use outpour_core::{BlockId, BlockSet};
use rustix::fs::{Advice, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::identity::{Identities, Identity};
use super::kept::Lost;
use super::links::Names;
use super::modes::Opened;
use super::proof::Large;
use super::sync::{Batch, Progress};
use super::write::seal;
use super::{DestinationOptions, FILES_MAX, Inner, Keep, Whereabouts, folding};
use crate::attributes::Keeper;
use crate::cache::Cache;
use crate::error::Error;
use crate::fs::{self, AsFd, OwnedFd};
use crate::journal::{Journal, Replay};
use crate::place::Place;
use crate::preflight::check_room;
use crate::state::State;
use crate::{compare, sys, work};

/// A file that is at least in part here, and what is known of it.
#[derive(Clone, Copy)]
struct Here {
    file: EntryId,
    /// Size of the staged file.
    staged: Option<u64>,
    /// The file in place.
    placed: Option<Identity>,
    /// The staged file is of another object.
    inherited: bool,
    /// The file in place has other names, which are none of the object's, and would change with it.
    shared: bool,
}

/// Blocks of one file to be looked at by one thread.
struct Share {
    file: EntryId,
    blocks: Range<BlockId>,
}

struct Resume<'a> {
    place: &'a Place,
    state: &'a State,
    manifest: &'a Manifest,
    options: &'a DestinationOptions,
    replay: &'a Replay,
    /// Blocks that the journal calls synced and of which no file is missing. A disk that has lost one file of a
    /// block may have brought back what was at the names of the others before.
    vouched: BlockSet,
    whereabouts: Vec<AtomicU8>,
    /// Blocks of large files that are right in the staged file.
    staged: Mutex<BlockSet>,
    /// Blocks of large files that are right in the file in place.
    placed: Mutex<BlockSet>,
    /// Files in place that were found right by reading them, as they were before that.
    identities: Identities,
    opened: &'a Opened,
    keeper: Option<&'a Keeper>,
    names: Names,
    after: After,
}

/// What happened before a destination is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing: this cast begins.
    Start,
    /// Something failed in this cast.
    Failure,
}

pub(super) fn resume(
    place: Arc<Place>,
    state: Arc<State>,
    manifest: Arc<Manifest>,
    options: DestinationOptions,
    opened: Arc<Opened>,
    after: After,
) -> Result<Inner, Error> {
    let blocks = manifest.blocks();
    let in_state = |doing| Error::at(|| state.path(), doing);
    let replay = Journal::replay(state.dir(), manifest.id(), blocks);
    let replay = replay.map_err(in_state("read the journal"))?;
    // From here on files are made and removed, and the old journal must not vouch for new ones if
    // we are interrupted. What it knows is read again then.
    if !replay.synced.is_empty() {
        let mut written = replay.written.clone();
        written.union(&replay.synced);
        let synced = BlockSet::new(blocks);
        let demoted = Replay { written, synced };
        Journal::create(state.dir(), manifest.id(), &demoted)
            .map_err(in_state("write the journal"))?;
    }
    if options.keep == Keep::Files {
        folding::check(&place, &state, &manifest)?;
    }
    let keeper = Keeper::of(&manifest);
    let mut resume = Resume {
        place: &place,
        state: &state,
        manifest: &manifest,
        options: &options,
        replay: &replay,
        vouched: replay.synced.clone(),
        whereabouts: manifest.entries().map(|_| AtomicU8::new(0)).collect(),
        staged: Mutex::new(BlockSet::new(blocks)),
        placed: Mutex::new(BlockSet::new(blocks)),
        identities: Identities::none(manifest.entries().len()),
        opened: &opened,
        keeper: keeper.as_ref(),
        names: Names::of(&manifest),
        after,
    };
    let (small, large) = resume.survey()?;
    resume.settle_small(&small)?;
    resume.settle_large(&large)?;
    resume.settle_holes()?;
    // What is to come of an object that is not kept whole is not known here.
    if options.keep == Keep::Files {
        check_space(&place, &state, &manifest, |entry| resume.get(entry))?;
    }
    let Found {
        whereabouts,
        identities,
        have,
        large,
        batch,
    } = resume.conclude()?;

    let mut known = Replay {
        written: have.clone(),
        synced: have.clone(),
    };
    known.synced.intersect(&replay.synced);
    known.written.subtract(&known.synced);
    debug_assert!(known.synced.is_subset(&have), "the journal says too much");
    debug_assert_eq!(
        known.written.count() + known.synced.count(),
        have.count(),
        "each block is written or synced"
    );
    let journal = Journal::create(state.dir(), manifest.id(), &known);
    let journal = journal.map_err(in_state("write the journal"))?;
    // A directory that is swapped from now on shows when something is put into it.
    place.refresh();
    state
        .keep_manifest(&manifest)
        .map_err(in_state("keep the manifest"))?;
    let dirty: Vec<BlockId> = known.written.iter().collect();
    Ok(Inner {
        whereabouts,
        identities,
        opened,
        keeper,
        lost: Lost::default(),
        copies: Mutex::default(),
        suspects: Mutex::default(),
        large,
        opening: Mutex::new(()),
        way_lasts: AtomicBool::new(false),
        commits_together: sys::commits_together(state.dir()).map_err(in_state("look at it"))?,
        files: Cache::new(FILES_MAX),
        stripes: std::array::from_fn(|_| Mutex::new(())),
        progress: Mutex::new(Progress::new(have, Batch { dirty, ..batch })),
        bell: Condvar::new(),
        turn: Mutex::new(()),
        placing: Mutex::new(()),
        journal: Mutex::new(Some(journal)),
        manifest,
        place,
        state,
        options,
    })
}

impl Resume<'_> {
    /// Looks at what is there without reading it, and refuses what could not be replaced. Returns
    /// the small and the large files of which something may be here.
    fn survey(&mut self) -> Result<(Vec<Here>, Vec<Here>), Error> {
        let in_state = Error::at(|| self.state.path(), "examine the staged files");
        let inherited = self.state.inherit(self.manifest);
        let staged = inherited.and_then(|inherited| Ok((inherited, self.state.staging().list()?)));
        let (inherited, mut staged) = staged.map_err(in_state)?;
        let inherited: HashSet<EntryId> = inherited.into_iter().collect();
        let device = fs::fstat(self.place.root())
            .map_err(self.look_error(None))?
            .st_dev;
        let (mut small, mut large) = (Vec::new(), Vec::new());
        // Directories that exist; the root does.
        let mut dirs = HashSet::new();
        for entry in self.manifest.entries() {
            self.options.work.add(1);
            let stat = if entry.parent.is_none_or(|parent| dirs.contains(&parent)) {
                self.place
                    .stat(self.manifest, &entry)
                    .map_err(self.look_error(Some(entry.id)))?
            } else {
                None
            };
            match entry.content {
                Content::Directory { .. } => {
                    if let Some(stat) = &stat {
                        self.check_dir(&entry, stat, device)?;
                        self.open_up(&entry, *stat);
                        dirs.insert(entry.id);
                    }
                }
                Content::Link { .. } => self.check_no_dir(&entry, stat.as_ref(), "a file")?,
                Content::Symlink { .. } => self.check_no_dir(&entry, stat.as_ref(), "a symlink")?,
                Content::File { size, .. } => {
                    self.check_no_dir(&entry, stat.as_ref(), "a file")?;
                    let stat = stat.map(|stat| self.open_up(&entry, stat));
                    let here = self.here(&entry, stat.as_ref(), &mut staged, &inherited);
                    let is_large = self.manifest.blocks_of(entry.id).len() > 1;
                    if !is_large && !here.is_some_and(|here| self.may_trust(here, stat.as_ref())) {
                        let blocks = self.manifest.blocks_of(entry.id);
                        self.vouched.remove_range(blocks);
                    }
                    let Some(here) = here.filter(|_| size.0 > 0) else {
                        continue;
                    };
                    if is_large {
                        large.push(here)
                    } else {
                        small.push(here)
                    }
                    if is_large {
                        self.trust(here, stat.as_ref());
                    }
                }
            }
        }
        // Staged for an entry that is no file with bytes: never by us.
        for index in staged.into_keys() {
            self.unstage(EntryId(index))?;
        }
        Ok((small, large))
    }

    fn here(
        &self,
        entry: &Entry<'_>,
        stat: Option<&Stat>,
        staged: &mut BTreeMap<u32, u64>,
        inherited: &HashSet<EntryId>,
    ) -> Option<Here> {
        let placed = stat.filter(|stat| sys::type_of(stat) == FileType::RegularFile);
        let here = Here {
            file: entry.id,
            staged: staged.remove(&entry.id.0),
            placed: placed.map(Identity::of),
            inherited: inherited.contains(&entry.id),
            shared: placed.is_some_and(|stat| self.is_shared(entry, stat)),
        };
        (here.staged.is_some() || here.placed.is_some()).then_some(here)
    }

    fn is_shared(&self, entry: &Entry<'_>, stat: &Stat) -> bool {
        self.keeper.is_some_and(|keeper| {
            let found = (entry, stat);
            self.names
                .are_shared(self.place, self.manifest, keeper, found)
        })
    }

    /// Opens what an earlier cast has left closed to us. What cannot be opened shows when it is used.
    fn open_up(&self, entry: &Entry<'_>, stat: Stat) -> Stat {
        let open = || {
            let dir = self.place.dir(self.manifest, entry.parent)?;
            self.opened.open(self.place, &dir, entry, stat)
        };
        open().unwrap_or(stat)
    }

    fn check_dir(&self, entry: &Entry<'_>, stat: &Stat, device: u64) -> Result<(), Error> {
        let path = || self.place.path_of(self.manifest, entry.id);
        match sys::type_of(stat) {
            FileType::Directory if stat.st_dev == device => Ok(()),
            FileType::Directory => Err(Error::OtherFileSystem { path: path() }),
            FileType::Symlink => Err(Error::UnsafePath { path: path() }),
            other => Err(Error::Blocked {
                path: path(),
                found: sys::noun(other),
                wanted: "a directory",
            }),
        }
    }

    fn check_no_dir(
        &self,
        entry: &Entry<'_>,
        stat: Option<&Stat>,
        wanted: &'static str,
    ) -> Result<(), Error> {
        if stat.is_some_and(|stat| sys::type_of(stat) == FileType::Directory) {
            return Err(Error::Blocked {
                path: self.place.path_of(self.manifest, entry.id),
                found: "a directory",
                wanted,
            });
        }
        Ok(())
    }

    /// Takes the journal's word for the synced blocks of a large file, if the file is as it was
    /// left.
    fn trust(&self, here: Here, stat: Option<&Stat>) {
        let entry = self.manifest.entry(here.file);
        let blocks = self.manifest.blocks_of(here.file);
        debug_assert!(
            blocks.len() > 1,
            "of small files nothing is known by blocks"
        );
        let right_size = size_of(&entry);
        if here.staged == Some(right_size) && !here.inherited {
            let mut staged = lock(&self.staged);
            for block in blocks.filter(|block| self.replay.synced.contains(*block)) {
                staged.insert(block);
            }
        } else if here.staged.is_none() && self.is_as_left(&entry, stat) {
            lock(&self.placed).insert_range(blocks);
        }
    }

    /// Whether a file is in place as we put it there: all of it synced before, and its size and
    /// time not changed since.
    fn is_as_left(&self, entry: &Entry<'_>, stat: Option<&Stat>) -> bool {
        let same = |stat: &Stat| {
            sys::type_of(stat) == FileType::RegularFile
                && stat.st_size as u64 == size_of(entry)
                && sys::mtime_of(stat) == entry.mtime_ns
        };
        stat.is_some_and(same)
            && self
                .vouched
                .contains_range(self.manifest.blocks_of(entry.id))
    }

    /// Whether a small file is where the journal says that its block is, as far as can be seen from outside.
    fn may_trust(&self, here: Here, stat: Option<&Stat>) -> bool {
        let entry = self.manifest.entry(here.file);
        let is_staged = here.staged == Some(size_of(&entry)) && !here.inherited;
        is_staged || !here.shared && self.is_as_left(&entry, stat)
    }

    /// Decides for every small file whether it is here.
    fn settle_small(&self, files: &[Here]) -> Result<(), Error> {
        let blocks_of = |here: &Here| self.manifest.blocks_of(here.file).len();
        debug_assert!(files.iter().all(|here| blocks_of(here) == 1));
        debug_assert!(files.is_sorted_by(|a, b| a.file < b.file));
        // A few hundred files per share.
        let shares: Vec<&[Here]> = files.chunks(256).collect();
        work::spread(self.options.threads, &shares, |share, buf| {
            for here in *share {
                let whereabouts = self.settle_one_small(*here, buf)?;
                self.options
                    .work
                    .add(size_of(&self.manifest.entry(here.file)));
                self.set(here.file, whereabouts);
            }
            Ok(())
        })
    }

    fn settle_one_small(&self, here: Here, buf: &mut Vec<u8>) -> Result<Whereabouts, Error> {
        let entry = self.manifest.entry(here.file);
        let size = size_of(&entry);
        let is_right = |file: Result<OwnedFd, Errno>, buf: &mut Vec<u8>| match file {
            Ok(file) => {
                let right = compare::small(self.manifest, here.file, size, &file, buf);
                right.map_err(self.read_error(here.file))
            }
            // What cannot be read is replaced.
            Err(_) => Ok(false),
        };
        let synced = self
            .vouched
            .contains_range(self.manifest.blocks_of(here.file));
        if here.staged == Some(size)
            && (synced && !here.inherited || is_right(self.open_to_hash(here.file, true), buf)?)
        {
            return Ok(Whereabouts::Staged);
        }
        if here.staged.is_some() {
            self.unstage(here.file)?;
        }
        let right = |found: &Identity| found.size() == size && !here.shared;
        if let Some(found) = here.placed.filter(right) {
            let stat = self.place.stat(self.manifest, &entry);
            let stat = stat.map_err(self.look_error(Some(here.file)))?;
            if self.is_as_left(&entry, stat.as_ref()) {
                return Ok(Whereabouts::Placed);
            }
            if is_right(self.open_to_hash(here.file, false), buf)? {
                self.identities.note(here.file, Some(found));
                return Ok(Whereabouts::Placed);
            }
        }
        Ok(Whereabouts::Absent)
    }

    /// Decides for every large file which blocks of it are here.
    fn settle_large(&self, files: &[Here]) -> Result<(), Error> {
        debug_assert!(files.is_sorted_by(|a, b| a.file < b.file));
        let staged = files.iter().filter(|here| here.staged.is_some());
        let suspect = |here: &Here| {
            let trusted = lock(&self.staged);
            let right_size = here.staged == Some(size_of(&self.manifest.entry(here.file)));
            let blocks = self.manifest.blocks_of(here.file);
            let all = !right_size || blocks.clone().all(|block| !self.known(block));
            blocks
                .filter(|block| !trusted.contains(*block) && (all || self.known(*block)))
                .collect::<Vec<_>>()
        };
        let shares: Vec<Share> = staged
            .flat_map(|here| self.shares(here.file, suspect(here)))
            .collect();
        work::spread(self.options.threads, &shares, |share, buf| {
            self.compare(share, true, buf, |block, _, _| {
                lock(&self.staged).insert(block);
                Ok(())
            })
        })?;

        let placed = files.iter().filter(|here| here.placed.is_some());
        let missing = |here: &Here| {
            let (staged, placed) = (lock(&self.staged), lock(&self.placed));
            let blocks = self.manifest.blocks_of(here.file);
            let missing = |block: &BlockId| !staged.contains(*block) && !placed.contains(*block);
            blocks.filter(missing).collect::<Vec<_>>()
        };
        let mut shares: Vec<Share> = Vec::new();
        for here in placed {
            let missing = missing(here);
            let blocks = self.manifest.blocks_of(here.file);
            if missing.len() == blocks.len() {
                // All of it will have been read if all of it is right.
                self.identities.note(here.file, here.placed);
            }
            shares.extend(self.shares(here.file, missing));
        }
        work::spread(self.options.threads, &shares, |share, buf| {
            self.compare(share, false, buf, |block, _, _| {
                lock(&self.placed).insert(block);
                Ok(())
            })
        })?;
        debug_assert!(
            {
                let (staged, placed) = (lock(&self.staged), lock(&self.placed));
                staged.iter().all(|block| !placed.contains(block))
            },
            "a block was looked for in both files"
        );
        let mut copies = Vec::new();
        for here in files {
            copies.extend(self.settle_one_large(*here)?);
        }
        self.copy(&copies)
    }

    /// Whether the journal names a block.
    fn known(&self, block: BlockId) -> bool {
        self.replay.written.contains(block) || self.replay.synced.contains(block)
    }

    /// Decides where a large file goes on from; returns the blocks to be copied to the staged file.
    fn settle_one_large(&self, here: Here) -> Result<Vec<Share>, Error> {
        let blocks = self.manifest.blocks_of(here.file);
        let size = size_of(&self.manifest.entry(here.file));
        let whole = here.placed.is_some_and(|found| found.size() == size);
        if whole && !here.shared && lock(&self.placed).contains_range(blocks.clone()) {
            if here.staged.is_some() {
                self.unstage(here.file)?;
                lock(&self.staged).remove_range(blocks);
            }
            self.set(here.file, Whereabouts::Placed);
            return Ok(Vec::new());
        }
        let copies: Vec<BlockId> = {
            let (staged, placed) = (lock(&self.staged), lock(&self.placed));
            let copies = blocks
                .clone()
                .filter(|block| placed.contains(*block) && !staged.contains(*block));
            copies.collect()
        };
        let first_staged = lock(&self.staged).next_present(blocks.start);
        if copies.is_empty() && first_staged.is_none_or(|block| block >= blocks.end) {
            if here.staged.is_some() {
                self.unstage(here.file)?;
            }
            return Ok(Vec::new());
        }
        if here.staged != Some(size) {
            self.make_staged(here.file, size)?;
        }
        self.set(here.file, Whereabouts::Staged);
        Ok(self.shares(here.file, copies).collect())
    }

    fn make_staged(&self, file: EntryId, size: u64) -> Result<(), Error> {
        let make = || {
            let staging = self.state.staging();
            let mode = Mode::RUSR | Mode::WUSR;
            let staged = match staging.open(file, OFlags::RDWR) {
                Err(Errno::NOENT) => staging.create(file, OFlags::RDWR, mode)?,
                result => result?,
            };
            fs::fchmod(&staged, mode)?;
            fs::ftruncate(&staged, size)?;
            match self.manifest.is_sparse(file) {
                true => Ok(()),
                false => sys::reserve(&staged, size),
            }
        };
        let path = || self.place.path_of(self.manifest, file);
        make().map_err(Error::at(path, "create the file"))
    }

    /// Copies blocks from files in place that are of an older version.
    fn copy(&self, copies: &[Share]) -> Result<(), Error> {
        work::spread(self.options.threads, copies, |share, buf| {
            debug_assert_eq!(self.get(share.file), Whereabouts::Staged);
            let path = || self.place.path_of(self.manifest, share.file);
            let to = self
                .state
                .staging()
                .open(share.file, OFlags::RDWR)
                .map_err(Error::at(path, "open the file"))?;
            self.compare(share, false, buf, |block, offset, data| {
                let copied = match self.manifest.is_sparse(share.file) {
                    true => sys::pwrite_sparse(&to, data, offset),
                    false => sys::pwrite(&to, data, offset),
                };
                copied.map_err(Error::at(path, "copy the file"))?;
                lock(&self.staged).insert(block);
                Ok(())
            })
        })
    }

    fn compare(
        &self,
        share: &Share,
        staged: bool,
        buf: &mut Vec<u8>,
        mut right: impl FnMut(BlockId, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        debug_assert!(!share.blocks.is_empty());
        debug_assert!(share.blocks.start >= self.manifest.blocks_of(share.file).start);
        debug_assert!(share.blocks.end <= self.manifest.blocks_of(share.file).end);
        // What cannot be read is replaced.
        let Ok(file) = self.open_to_hash(share.file, staged) else {
            return Ok(());
        };
        let blocks = share.blocks.clone();
        let bytes = |block| u64::from(self.manifest.block_len(block));
        let share_bytes = blocks.clone().map(bytes).sum();
        compare::large(
            self.manifest,
            file.as_fd(),
            blocks,
            buf,
            |block, offset, data| right(block, offset, data).map_err(Failure::Error),
        )
        .inspect(|()| self.options.work.add(share_bytes))
        .map_err(|failure| match failure {
            Failure::Errno(errno) => self.read_error(share.file)(errno),
            Failure::Error(error) => error,
        })
    }

    /// Opens a file to look what is in it. What the disk has counts, not what a failed sync may
    /// have left in memory: of a staged file always, of one in place after a failure of this cast.
    fn open_to_hash(&self, file: EntryId, staged: bool) -> Result<OwnedFd, Errno> {
        let open = match staged {
            true => self.state.staging().open(file, OFlags::RDONLY)?,
            false => {
                let entry = self.manifest.entry(file);
                self.place.open_file(self.manifest, &entry)?
            }
        };
        if staged || self.after == After::Failure {
            fs::fadvise(&open, 0, None, Advice::DontNeed)?;
        }
        Ok(open)
    }

    /// Cuts blocks in ascending order into shares of consecutive ones.
    fn shares(&self, file: EntryId, blocks: Vec<BlockId>) -> impl Iterator<Item = Share> {
        debug_assert!(blocks.is_sorted_by(|a, b| a < b));
        let runs: Vec<_> = blocks
            .chunk_by(|a, b| a + 1 == *b)
            .flat_map(|run| work::shares(self.manifest, run[0]..run[run.len() - 1] + 1))
            .collect();
        runs.into_iter().map(move |blocks| Share { file, blocks })
    }

    /// Sums up.
    fn conclude(self) -> Result<Found, Error> {
        let mut have = BlockSet::new(self.manifest.blocks());
        let mut batch = Batch::default();
        let mut large = Vec::new();
        let staged = lock(&self.staged).clone();
        for entry in self.manifest.entries() {
            let blocks = self.manifest.blocks_of(entry.id);
            let whereabouts = self.get(entry.id);
            if whereabouts == Whereabouts::Placed {
                debug_assert!(
                    self.manifest.is_file(entry.id),
                    "directories are made later"
                );
                batch.found.push(entry.id);
            } else {
                self.identities.note(entry.id, None);
            }
            if blocks.len() < 2 {
                if whereabouts == Whereabouts::Staged {
                    batch.small.push(entry.id);
                    batch.complete.push(entry.id);
                    // Nor is it known whether their names were synced.
                    batch.created = true;
                }
                continue;
            }
            let mut lacks = blocks.len() as u32;
            match whereabouts {
                Whereabouts::Placed => {
                    have.insert_range(blocks);
                    continue;
                }
                Whereabouts::Staged => {
                    for block in blocks.filter(|block| staged.contains(*block)) {
                        have.insert(block);
                        lacks -= 1;
                    }
                    batch.files.insert(entry.id);
                    batch.created = true;
                }
                Whereabouts::Absent => {}
            }
            if lacks == 0 {
                debug_assert_eq!(whereabouts, Whereabouts::Staged);
                self.seal(&entry)?;
                batch.complete.push(entry.id);
            }
            large.push(Large::new(entry.id, lacks));
        }
        for block in 0..self.manifest.blocks() {
            let is_here = |file| self.get(file) != Whereabouts::Absent;
            if self.manifest.is_pack(block)
                && self
                    .manifest
                    .extents(block)
                    .all(|extent| is_here(extent.file))
            {
                have.insert(block);
            }
        }
        debug_assert!(
            large.is_sorted_by(|a, b| a.file < b.file),
            "they could not be searched"
        );
        Ok(Found {
            whereabouts: self.whereabouts,
            identities: self.identities,
            have,
            large,
            batch,
        })
    }

    fn seal(&self, entry: &Entry<'_>) -> Result<(), Error> {
        let path = || self.place.path_of(self.manifest, entry.id);
        self.state
            .staging()
            .open(entry.id, OFlags::RDONLY)
            .and_then(|file| seal(self.keeper, self.manifest, entry, &file).map(drop))
            .map_err(Error::at(path, "complete the file"))
    }

    fn unstage(&self, file: EntryId) -> Result<(), Error> {
        let removed = self.state.staging().remove(file);
        removed.map_err(Error::at(|| self.state.path(), "remove a staged file"))
    }

    fn set(&self, entry: EntryId, whereabouts: Whereabouts) {
        debug_assert_eq!(self.get(entry), Whereabouts::Absent, "decided twice");
        debug_assert!(!self.manifest.blocks_of(entry).is_empty());
        let slot = &self.whereabouts[entry.index()];
        slot.store(whereabouts as u8, std::sync::atomic::Ordering::Release);
    }

    fn get(&self, entry: EntryId) -> Whereabouts {
        Whereabouts::from(&self.whereabouts[entry.index()])
    }

    fn look_error(&self, entry: Option<EntryId>) -> impl FnOnce(Errno) -> Error {
        let path = entry.map_or_else(
            || self.place.path().to_path_buf(),
            |entry| self.place.path_of(self.manifest, entry),
        );
        move |errno| Error::new(path, "examine the existing files", errno)
    }

    fn read_error(&self, file: EntryId) -> impl FnOnce(Errno) -> Error {
        let path = self.place.path_of(self.manifest, file);
        move |errno| Error::new(path, "read the file", errno)
    }
}

/// What is here: where everything is, the blocks, what large files lack, and what is to be synced
/// and put in place.
struct Found {
    whereabouts: Vec<AtomicU8>,
    identities: Identities,
    have: BlockSet,
    large: Vec<Large>,
    batch: Batch,
}

/// Whether what is missing will fit.
pub(super) fn check_space(
    place: &Place,
    state: &State,
    manifest: &Manifest,
    whereabouts: impl Fn(EntryId) -> Whereabouts,
) -> Result<(), Error> {
    let look = |errno| Error::new(place.path(), "examine the existing files", errno);
    let mut needed = 0_u64;
    for entry in manifest.entries() {
        let size = manifest.stored_bytes(entry.id);
        match whereabouts(entry.id) {
            Whereabouts::Absent => needed += size,
            // On a disk it has its space already; in memory, only what was written has.
            Whereabouts::Staged if manifest.blocks_of(entry.id).len() > 1 => {
                let stat = state.staging().stat(entry.id);
                let held = stat.map_err(look)?.map_or(0, |stat| sys::held(&stat));
                needed += size.saturating_sub(held);
            }
            _ => {}
        }
    }
    check_room(place.root(), place.path(), needed)
}

/// Why a comparison ended early.
enum Failure {
    Errno(Errno),
    Error(Error),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

fn size_of(entry: &Entry<'_>) -> u64 {
    match entry.content {
        Content::File { size, .. } => size.0,
        _ => 0,
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
