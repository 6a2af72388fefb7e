//! Files that are not in their places yet: `data/<entry>` in the state of a transfer.
//!
//! A file system searches a directory, and locks it for each name that comes or goes. So the files
//! of a large tree lie in several: `data/<directory>/<entry>`. Entries that follow each other, and so
//! are mostly written and put in place one after the other, lie in the same.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use outpour_core::manifest::EntryId;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::error::Error;
use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::state::private_dir;
use crate::{sys, work};

const DATA: &str = "data";
/// One bit of a word for each directory.
const DIRS: usize = u64::BITS as usize;
/// How many entries that follow each other lie in the same directory: about as many as there are
/// in a block, so that threads that write different ones seldom meet.
const RUN: usize = 256;

// Where there is but one directory, its bit is that of all entries; and the directories are used in
// turn.
const _: () = assert!(nth_of(RUN - 1) == 0);
const _: () = assert!(nth_of(RUN) == 1);
const _: () = assert!(nth_of(RUN * DIRS) == 0);

/// The staged files of a transfer.
#[derive(Debug)]
pub(crate) struct Staging {
    data: OwnedFd,
    /// The directories in it, as far as they were needed; none if there is but the one.
    dirs: Vec<OnceLock<OwnedFd>>,
    /// Which of them have new names that are not synced, or the one has.
    changed: AtomicU64,
    /// Whether there are new directories that are not synced.
    grown: AtomicBool,
}

impl Staging {
    /// Makes or finds what is staged for an object with so many entries, in the state's directory
    /// `state`, which messages call `path`.
    pub(crate) fn make(state: impl AsFd, path: &Path, entries: usize) -> Result<Self, Error> {
        let data = private_dir(state, DATA.as_bytes(), &path.join(DATA))?;
        Ok(Self::at(data, entries))
    }

    /// The same if it is there.
    pub(crate) fn find(state: impl AsFd, entries: usize) -> Option<Self> {
        let data = sys::open_dir(state, DATA.as_bytes()).ok()?;
        Some(Self::at(data, entries))
    }

    fn at(data: OwnedFd, entries: usize) -> Self {
        let dirs = if entries < RUN { 0 } else { DIRS };
        Self {
            data,
            dirs: (0..dirs).map(|_| OnceLock::new()).collect(),
            changed: AtomicU64::new(0),
            grown: AtomicBool::new(false),
        }
    }

    /// The directory in which they all are.
    pub(crate) fn data(&self) -> BorrowedFd<'_> {
        self.data.as_fd()
    }

    /// The directory of an entry, made if it is missing.
    fn dir(&self, entry: EntryId) -> Result<BorrowedFd<'_>, Errno> {
        self.nth(nth_of(entry.index()))
    }

    fn nth(&self, nth: usize) -> Result<BorrowedFd<'_>, Errno> {
        debug_assert!(nth < DIRS);
        debug_assert!(self.dirs.is_empty() || self.dirs.len() == DIRS);
        let Some(slot) = self.dirs.get(nth) else {
            return Ok(self.data());
        };
        if let Some(dir) = slot.get() {
            return Ok(dir.as_fd());
        }
        let name = DecInt::new(nth);
        match fs::mkdirat(&self.data, name.as_c_str(), Mode::RWXU) {
            Ok(()) => self.grown.store(true, Ordering::Release),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let dir = sys::open_dir(&self.data, name.as_bytes())?;
        // Another thread may have been faster.
        Ok(slot.get_or_init(|| dir).as_fd())
    }

    /// What sorts entries by where their files lie.
    pub(crate) const fn place_of(&self, entry: EntryId) -> (usize, u32) {
        let dir = if self.dirs.is_empty() {
            0
        } else {
            nth_of(entry.index())
        };
        (dir, entry.0)
    }

    /// Makes a file for an entry and opens it.
    ///
    /// # Errors
    /// [`Errno::EXIST`] if there is one.
    pub(crate) fn create(
        &self,
        entry: EntryId,
        access: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        debug_assert!(
            !self.dirs.is_empty() || entry.index() < RUN,
            "an entry of a larger object"
        );
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(self.dir(entry)?, name(entry), flags, mode)?;
        let bit = 1 << nth_of(entry.index());
        self.changed.fetch_or(bit, Ordering::Release);
        Ok(file)
    }

    /// Opens the file of an entry, even one that already has a final mode that would forbid it.
    pub(crate) fn open(&self, entry: EntryId, access: OFlags) -> Result<OwnedFd, Errno> {
        let dir = self.dir(entry)?;
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || fs::openat(dir, name(entry), flags, Mode::empty());
        match open() {
            Err(Errno::ACCESS) => {
                let mode = Mode::RUSR | Mode::WUSR;
                fs::chmodat(dir, name(entry), mode, AtFlags::empty())?;
                open()
            }
            result => result,
        }
    }

    /// Looks at what is staged for an entry.
    pub(crate) fn stat(&self, entry: EntryId) -> Result<Option<Stat>, Errno> {
        sys::lstat(self.dir(entry)?, name(entry).as_bytes())
    }

    /// Removes what is staged for an entry, if anything is.
    pub(crate) fn remove(&self, entry: EntryId) -> Result<(), Errno> {
        sys::gone_is_fine(fs::unlinkat(
            self.dir(entry)?,
            name(entry),
            AtFlags::empty(),
        ))
    }

    /// Makes a symlink for an entry.
    pub(crate) fn link(&self, entry: EntryId, target: &[u8], mtime_ns: i64) -> Result<(), Errno> {
        self.remove(entry)?;
        let dir = self.dir(entry)?;
        fs::symlinkat(target, dir, name(entry))?;
        let time = sys::mtime(mtime_ns);
        fs::utimensat(dir, name(entry), &time, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Makes a further name for a file, for an entry that is a hard link.
    pub(crate) fn hard_link(
        &self,
        entry: EntryId,
        dir: impl AsFd,
        file: &[u8],
    ) -> Result<(), Errno> {
        self.remove(entry)?;
        // No link at that name is followed.
        fs::linkat(dir, file, self.dir(entry)?, name(entry), AtFlags::empty())
    }

    /// Gives what is staged for an entry an owner and a group, also if it is a symlink.
    pub(crate) fn chown(
        &self,
        entry: EntryId,
        user: Option<Uid>,
        group: Option<Gid>,
    ) -> Result<(), Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        fs::chownat(self.dir(entry)?, name(entry), user, group, flags)
    }

    /// Gives what is staged for an entry its final name.
    pub(crate) fn place(&self, entry: EntryId, to: impl AsFd, as_name: &[u8]) -> Result<(), Errno> {
        debug_assert!(!as_name.is_empty());
        debug_assert!(!as_name.contains(&b'/'), "a name in another directory");
        fs::renameat(self.dir(entry)?, name(entry), to, as_name)
    }

    /// Takes over the file of an entry of another transfer; says whether there was one, and room.
    pub(crate) fn take(
        &self,
        entry: EntryId,
        other: &Self,
        theirs: EntryId,
    ) -> Result<bool, Errno> {
        debug_assert!(!std::ptr::eq(self, other));
        let (from, to) = (other.dir(theirs)?, self.dir(entry)?);
        match fs::renameat_with(from, name(theirs), to, name(entry), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST | Errno::INVAL | Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The entries whose files are here, and their sizes. Half-made links and the like are removed.
    /// It is not known which of the names were synced.
    pub(crate) fn list(&self) -> Result<BTreeMap<u32, u64>, Errno> {
        let mut staged = BTreeMap::new();
        self.changed.store(u64::MAX, Ordering::Release);
        self.grown.store(true, Ordering::Release);
        if self.dirs.is_empty() {
            self.list_dir(self.data(), |_| true, &mut staged)?;
            return Ok(staged);
        }
        for found in fs::names(&self.data)? {
            let nth = number(&found).filter(|nth| *nth < DIRS);
            match nth {
                Some(nth) if sys::open_dir(&self.data, &found).is_ok() => {
                    let belongs = |entry: &usize| nth_of(*entry) == nth;
                    self.list_dir(self.nth(nth)?, belongs, &mut staged)?;
                }
                _ => discard(self.data(), &found)?,
            }
        }
        Ok(staged)
    }

    /// Lists a directory, of the entries that belong there.
    fn list_dir(
        &self,
        dir: BorrowedFd<'_>,
        belongs: impl Fn(&usize) -> bool,
        staged: &mut BTreeMap<u32, u64>,
    ) -> Result<(), Errno> {
        for found in fs::names(dir)? {
            let entry = number(&found).filter(&belongs);
            let stat = sys::lstat(dir, &found)?;
            match (entry.map(u32::try_from), stat) {
                (Some(Ok(entry)), Some(stat)) if sys::type_of(&stat) == FileType::RegularFile => {
                    staged.insert(entry, stat.st_size as u64);
                }
                _ => discard(dir, &found)?,
            }
        }
        Ok(())
    }

    /// Syncs the names that were made since the last time.
    pub(crate) fn sync(&self, threads: NonZero<usize>) -> Result<(), Errno> {
        let changed = self.changed.swap(0, Ordering::AcqRel);
        if self.dirs.is_empty() {
            return if changed == 0 {
                Ok(())
            } else {
                fs::fsync(&self.data)
            };
        }
        if self.grown.swap(false, Ordering::AcqRel) {
            fs::fsync(&self.data)?;
        }
        let changed: Vec<usize> = (0..DIRS).filter(|nth| changed >> nth & 1 == 1).collect();
        work::spread(threads, &changed, |nth, _| fs::fsync(self.nth(*nth)?))
    }

    /// Takes note that what was made so far is being synced by other means.
    pub(crate) fn forget_changes(&self) {
        self.changed.store(0, Ordering::Release);
        self.grown.store(false, Ordering::Release);
    }

    /// How many bytes of files the state's directory `state` has on its disk already.
    pub(crate) fn held(state: impl AsFd) -> Result<u64, Errno> {
        fn sum(dir: OwnedFd) -> Result<u64, Errno> {
            let mut bytes = 0;
            for name in fs::names(&dir)? {
                match sys::lstat(&dir, &name)? {
                    Some(stat) if sys::type_of(&stat) == FileType::Directory => {
                        // Nothing here is deeper than two directories.
                        let inner = sys::if_reachable(sys::open_dir(&dir, &name))?;
                        bytes += inner.map_or(Ok(0), sum)?;
                    }
                    // A small file takes more than it has.
                    Some(stat) => bytes += sys::held(&stat).min(stat.st_size as u64),
                    None => {}
                }
            }
            Ok(bytes)
        }
        let data = sys::if_reachable(sys::open_dir(state, DATA.as_bytes()))?;
        data.map_or(Ok(0), sum)
    }

    /// Removes everything in the state's directory `state`.
    pub(crate) fn clear(state: impl AsFd) -> Result<(), Errno> {
        discard(state.as_fd(), DATA.as_bytes())
    }
}

/// Which of the directories an entry lies in.
const fn nth_of(entry: usize) -> usize {
    entry / RUN % DIRS
}

/// The name of an entry's file.
fn name(entry: EntryId) -> DecInt {
    DecInt::new(entry.0)
}

/// The number that a name is, written as we write it.
fn number(found: &[u8]) -> Option<usize> {
    let number = std::str::from_utf8(found).ok()?.parse().ok()?;
    (DecInt::new(number).as_bytes() == found).then_some(number)
}

/// Removes a name with what is in it. Nothing here is deeper than two directories.
fn discard(dir: BorrowedFd<'_>, found: &[u8]) -> Result<(), Errno> {
    match sys::gone_is_fine(fs::unlinkat(dir, found, AtFlags::empty())) {
        Err(Errno::ISDIR) => {}
        result => return result,
    }
    let inner = sys::open_dir(dir, found)?;
    for name in fs::names(&inner)? {
        discard(inner.as_fd(), &name)?;
    }
    sys::gone_is_fine(fs::unlinkat(dir, found, AtFlags::REMOVEDIR))
}
