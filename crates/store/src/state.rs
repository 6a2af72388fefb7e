//! The state of one transfer at a destination: `<root>/.outpour/<object id>/` with a lock, a copy
//! of the manifest, the journal, and the data of files that are not in place yet. If the object is
//! a file, the hash of the name that it gets is in the name, too.
//!
//! The directory is ours alone (mode 0700, our user), so nothing in it needs the confinement that
//! the tree itself does.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use outpour_core::manifest::{EntryId, Kind, MANIFEST_BYTES_MAX, Manifest, ObjectId, STATE_DIR};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::claim::Hold;
use crate::error::Error;
use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::lock::Lock;
use crate::place::Place;
use crate::staging::Staging;
use crate::sys;

const MANIFEST: &str = "manifest";
const MANIFEST_NEW: &str = "manifest.new";
const PROBE: &str = "probe";
const COMMIT: &str = "commit";

const PRIVATE: Mode = Mode::RWXU;

#[derive(Debug)]
pub(crate) struct State {
    /// `<root>/.outpour/<object id>`.
    dir: OwnedFd,
    staging: Staging,
    /// Let go when the state is removed.
    lock: Mutex<Option<Lock>>,
    /// `<root>/.outpour`, held for what is written here.
    hold: Hold,
    /// Of the directory.
    name: String,
    path: PathBuf,
    /// The bits that new files do not get although they are asked for.
    umask: Mode,
}

impl State {
    /// Makes or finds the state of a transfer and locks it. No other writer here has it, but
    /// one that looks for remains of earlier casts in the same directory may hold it for a moment.
    ///
    /// # Errors
    /// If it cannot be made or locked.
    pub(crate) fn open(place: &Place, hold: Hold, manifest: &Manifest) -> Result<Self, Error> {
        debug_assert!(hold.is_held());
        debug_assert_eq!(
            place.file_name().is_some(),
            manifest.kind() == Kind::File,
            "only a file has a name of its own here"
        );
        let name = dir_name(place.file_name(), manifest.id());
        debug_assert_eq!(
            object_of(name.as_bytes()),
            Some(manifest.id()),
            "a later transfer would not know whose state it is"
        );
        let path = place.path().join(STATE_DIR).join(&name);
        loop {
            let dir = private_dir(hold.base(), name.as_bytes(), &path)?;
            let lock = Lock::wait(&dir, &path)?;
            // The last holder of the lock may have removed all this when it was done.
            let gone = |fd: BorrowedFd<'_>| fs::fstat(fd).map(|stat| stat.st_nlink == 0);
            let fresh = gone(dir.as_fd()).and_then(|dir| Ok(!dir && !gone(lock.as_fd())?));
            if !fresh.map_err(Error::at(|| &path, "examine the state"))? {
                continue;
            }
            let staging = Staging::make(&dir, &path, manifest.entries().len())?;
            let umask = probe_umask(&dir).map_err(Error::at(|| &path, "create a file"))?;
            return Ok(Self {
                dir,
                staging,
                lock: Mutex::new(Some(lock)),
                hold,
                name,
                path,
                umask,
            });
        }
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The files that are not in their places yet.
    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The mode to ask for so that a new file has at least what `bits` has, and whether the umask
    /// withholds some of it, so that it must be set again.
    pub(crate) fn creation_mode(&self, bits: u16) -> (Mode, bool) {
        let mode = sys::mode(bits);
        (mode, mode.intersects(self.umask))
    }

    /// Changes something in the file system and syncs it, and with that the metadata of everything
    /// that was changed before, where it has one journal; the disk's own cache is written, too.
    pub(crate) fn commit(&self) -> Result<(), Errno> {
        debug_assert!(self.hold.is_held());
        sys::gone_is_fine(fs::unlinkat(&self.dir, COMMIT, AtFlags::empty()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, COMMIT, flags, Mode::RUSR | Mode::WUSR)?;
        sys::pwrite(&file, b"1", 0)?;
        fs::fsync(&file)
    }

    /// Keeps a copy of the manifest, so that a later version of the object can use what is here.
    pub(crate) fn keep_manifest(&self, manifest: &Manifest) -> Result<(), Errno> {
        debug_assert_eq!(object_of(self.name.as_bytes()), Some(manifest.id()));
        if sys::lstat(&self.dir, MANIFEST.as_bytes())?.is_some() {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, MANIFEST_NEW, flags, Mode::RUSR | Mode::WUSR)?;
        sys::pwrite(&file, &manifest.encode(), 0)?;
        fs::renameat(&self.dir, MANIFEST_NEW, &self.dir, MANIFEST)
    }

    /// Takes over staged files of other objects' interrupted transfers to this place, where this
    /// object has a file of the same path, and removes what else is left of those transfers.
    ///
    /// Returns the files that were taken over. What is in them must be verified, whatever the
    /// journal says of their blocks.
    pub(crate) fn inherit(&self, manifest: &Manifest) -> Result<Vec<EntryId>, Errno> {
        debug_assert!(self.hold.is_held(), "others may inherit, too");
        let mut inherited = Vec::new();
        let mut paths = HashMap::new();
        for name in fs::names(self.hold.base())? {
            let Some(other) = object_of(&name).filter(|_| name != self.name.as_bytes()) else {
                continue;
            };
            if !is_superseded(&name, self.name.as_bytes(), manifest.id()) {
                continue;
            }
            let Ok(dir) = sys::open_dir(self.hold.base(), &name) else {
                continue;
            };
            let lock = match Lock::take(&dir, &self.path) {
                Ok(Some(lock)) => Some(lock),
                // What may still be written to by a cast to another name needs a lock, and there may be no
                // room to make one. Nobody writes to what goes to the place that this cast holds.
                Err(_) if goes_where(&name, self.name.as_bytes()) => None,
                // Not ours to touch while another process works on it.
                Ok(None) | Err(_) => continue,
            };
            if let Some(old) = kept_manifest(&dir, other) {
                if paths.is_empty() {
                    let files = manifest
                        .entries()
                        .filter(|entry| manifest.is_file(entry.id));
                    paths = files
                        .map(|entry| (manifest.path(entry.id), entry.id))
                        .collect();
                }
                self.take_over(&dir, &old, manifest, &paths, &mut inherited)?;
            }
            remove(self.hold.base(), &name, &dir, lock)?;
        }
        Ok(inherited)
    }

    fn take_over(
        &self,
        dir: &OwnedFd,
        old: &Manifest,
        manifest: &Manifest,
        paths: &HashMap<Vec<u8>, EntryId>,
        inherited: &mut Vec<EntryId>,
    ) -> Result<(), Errno> {
        let Some(staging) = Staging::find(dir, old.entries().len()) else {
            return Ok(());
        };
        let is_large = |manifest: &Manifest, entry| manifest.blocks_of(entry).len() > 1;
        for index in staging.list()?.into_keys() {
            if index as usize >= old.entries().len() {
                continue;
            }
            let id = EntryId(index);
            let Some(new) = paths.get(&old.path(id)) else {
                continue;
            };
            if !old.is_file(id) || is_large(old, id) != is_large(manifest, *new) {
                continue;
            }
            debug_assert!(manifest.is_file(*new));
            if self.staging.take(*new, &staging, id)? {
                inherited.push(*new);
            }
        }
        Ok(())
    }

    /// Removes the state, and lets go of the place.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        debug_assert!(self.hold.is_held(), "it may be another's by now");
        let lock = self
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        remove(self.hold.base(), self.name.as_bytes(), &self.dir, lock)
            .map_err(Error::at(|| &self.path, "remove the state of the transfer"))?;
        self.hold.release();
        Ok(())
    }

    /// Syncs the names of all directories in which the state lies.
    pub(crate) fn sync_way(&self) -> Result<(), Errno> {
        debug_assert!(self.hold.is_held());
        self.hold.sync_way()
    }

    /// Syncs the names of the directories that were made for the object.
    pub(crate) fn sync_dirs(&self) -> Result<(), Errno> {
        self.hold.sync_dirs()
    }

    /// Leaves the directories that were made for the object, even if nothing is in them.
    pub(crate) fn keep_dirs(&self) {
        self.hold.keep_dirs();
    }
}

/// How many bytes in the directory `root` belong to earlier casts, as far as one of an object, to a file
/// of a name or to a tree, would take them over or remove them. Nothing is changed.
///
/// # Errors
/// Of the file system.
pub(crate) fn staged_bytes(
    root: impl AsFd,
    file_name: Option<&[u8]>,
    id: ObjectId,
) -> Result<u64, Errno> {
    let Some(base) = sys::if_reachable(sys::open_dir(root, STATE_DIR.as_bytes()))? else {
        return Ok(0);
    };
    let own = dir_name(file_name, id);
    let mut bytes = 0;
    for name in fs::names(&base)? {
        if is_superseded(&name, own.as_bytes(), id)
            && let Some(dir) = sys::if_reachable(sys::open_dir(&base, &name))?
        {
            bytes += Staging::held(&dir)?;
        }
    }
    Ok(bytes)
}

/// Whether the state called `name` is that of an object, called `own`, or gives way to it: that of
/// another object that goes to another name in the same directory may go on yet.
fn is_superseded(name: &[u8], own: &[u8], id: ObjectId) -> bool {
    object_of(name).is_some_and(|other| goes_where(name, own) || other == id)
}

/// Whether what has the state called `name` goes to the same place as what has the one called `own`, or into
/// the tree there: who holds that place is the only one that may write to it.
fn goes_where(name: &[u8], own: &[u8]) -> bool {
    suffix(own).is_none() || suffix(name) == suffix(own)
}

/// The name of the directory for an object: one that is a file may go to two names at a time.
fn dir_name(file_name: Option<&[u8]>, id: ObjectId) -> String {
    match file_name {
        None => id.to_string(),
        Some(name) => format!("{id}-{}", blake3::hash(name).to_hex()),
    }
}

/// What tells the directories for two names of files apart.
fn suffix(name: &[u8]) -> Option<&[u8]> {
    let at = name.iter().position(|byte| *byte == b'-')?;
    Some(&name[at..])
}

/// The object that a directory of a transfer is for.
fn object_of(name: &[u8]) -> Option<ObjectId> {
    let name = std::str::from_utf8(name).ok()?;
    let id = name.split_once('-').map_or(name, |(id, _)| id);
    id.parse().ok()
}

/// Reads arbitrary bytes as the name of a directory in a state directory; for tests.
pub(crate) fn fuzz(name: &[u8]) {
    if let Some(id) = object_of(name) {
        let again = dir_name(suffix(name), id);
        assert_eq!(object_of(again.as_bytes()), Some(id));
        assert_eq!(suffix(again.as_bytes()).is_some(), suffix(name).is_some());
        assert!(is_superseded(name, again.as_bytes(), id));
    }
}

/// The object of some cast that has its state in the directory `base`.
pub(crate) fn object_in(base: impl AsFd) -> Option<ObjectId> {
    let names = fs::names(base).unwrap_or_default();
    names.iter().find_map(|name| object_of(name))
}

/// Makes or opens a directory that only we can use.
pub(crate) fn private_dir(parent: impl AsFd, name: &[u8], path: &Path) -> Result<OwnedFd, Error> {
    debug_assert!(!name.contains(&b'/'));
    loop {
        match fs::mkdirat(&parent, name, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::new(path, "create the directory", errno)),
        }
        let dir = match sys::open_dir(&parent, name) {
            Ok(dir) => dir,
            // A process that finished removed it just now.
            Err(Errno::NOENT) => continue,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(Error::UnsafePath {
                    path: path.to_path_buf(),
                });
            }
            Err(errno) => return Err(Error::new(path, "open the directory", errno)),
        };
        let stat = fs::fstat(&dir).map_err(Error::at(|| path, "examine the directory"))?;
        if stat.st_uid != fs::euid() {
            return Err(Error::Permission {
                path: path.to_path_buf(),
                doing: "use a directory that belongs to another user",
                errno: Errno::PERM,
            });
        }
        if sys::mode_of(&stat) != 0o700 {
            fs::fchmod(&dir, PRIVATE).map_err(Error::at(|| path, "make the directory private"))?;
        }
        return Ok(dir);
    }
}

/// The umask, told from a file: there is no way to ask for it without changing it.
fn probe_umask(dir: impl AsFd) -> Result<Mode, Errno> {
    sys::gone_is_fine(fs::unlinkat(&dir, PROBE, AtFlags::empty()))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let all = sys::mode(0o777);
    let file = fs::openat(&dir, PROBE, flags, all)?;
    let got = sys::mode(sys::mode_of(&fs::fstat(&file)?));
    fs::unlinkat(&dir, PROBE, AtFlags::empty())?;
    Ok(all.difference(got))
}

fn kept_manifest(dir: &OwnedFd, id: ObjectId) -> Option<Manifest> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(dir, MANIFEST, flags, Mode::empty()).ok()?;
    let len = usize::try_from(fs::fstat(&file).ok()?.st_size).ok()?;
    let mut encoded = vec![0; len.min(MANIFEST_BYTES_MAX)];
    let read = sys::pread(&file, &mut encoded, 0).ok()?;
    encoded.truncate(read);
    Manifest::decode(&encoded)
        .ok()
        .filter(|manifest| manifest.id() == id)
}

/// Removes a state directory with everything that may be in it, and lets its lock go when that has no name any
/// more.
fn remove(
    base: BorrowedFd<'_>,
    name: &[u8],
    dir: &OwnedFd,
    lock: Option<Lock>,
) -> Result<(), Errno> {
    debug_assert!(
        object_of(name).is_some(),
        "nothing but states of transfers is removed"
    );
    Staging::clear(dir)?;
    for name in fs::names(dir)? {
        sys::gone_is_fine(fs::unlinkat(dir, &name, AtFlags::empty()))?;
    }
    drop(lock);
    sys::gone_is_fine(sys::remove_dir(base, name, dir))
}
