//! Hard links: further names of files that are in place. Where the destination cannot make them, each
//! name gets a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use outpour_core::manifest::{Aspect, Content, Entry, EntryId, Manifest};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Inner;
use super::identity::Identity;
use super::modes::open_file_mode;
use crate::attributes::{Aspects, Keeper, Looks};
use crate::error::Error;
use crate::fs::{self, AsFd, OwnedFd};
use crate::place::Place;
use crate::sys;

/// How many bytes are copied at a time.
const PIECE: usize = 1 << 20;

/// The further names of the files of an object that have some.
pub(super) struct Names(BTreeMap<EntryId, Vec<EntryId>>);

impl Names {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let mut names = BTreeMap::<EntryId, Vec<EntryId>>::new();
        // Without attributes there are no links.
        for entry in manifest.entries().filter(|_| manifest.is_archive()) {
            if let Content::Link { to } = entry.content {
                names.entry(to).or_default().push(entry.id);
            }
        }
        Self(names)
    }

    /// Whether a file that was found in place has names beside those that the object has for it, and would
    /// have to be changed: those names are not ours, so it is replaced by one of our own.
    pub(super) fn are_shared(
        &self,
        place: &Place,
        manifest: &Manifest,
        keeper: &Keeper,
        (entry, stat): (&Entry<'_>, &Stat),
    ) -> bool {
        let (Some(attributes), Content::File { mode, .. }) =
            (manifest.attributes(entry.id), entry.content)
        else {
            return false;
        };
        if stat.st_nlink <= 1 {
            return false;
        }
        let links = self.0.get(&entry.id).into_iter().flatten();
        let same = |link: &&EntryId| {
            let found = place.stat(manifest, &manifest.entry(**link));
            found
                .ok()
                .flatten()
                .is_some_and(|found| is_same(&found, stat))
        };
        let ours = 1 + links.filter(same).count();
        if usize::try_from(stat.st_nlink).is_ok_and(|names| names <= ours) {
            return false;
        }
        let looks = Looks {
            mode: open_file_mode(mode),
            mtime_ns: entry.mtime_ns,
        };
        let has_all = || {
            let file = place.open_file(manifest, entry)?;
            keeper.has_all(&file, attributes, looks)
        };
        !has_all().unwrap_or(false)
    }
}

/// Where a link leads, and what is at its name.
struct Link<'a> {
    entry: Entry<'a>,
    file: Entry<'a>,
    /// The file in its place.
    stat: Stat,
}

impl Inner {
    /// Sees to it that every further name of a file leads to it.
    pub(super) fn make_hard_links(&self) -> Result<(), Error> {
        self.lock_copies().clear();
        let mut linked = BTreeSet::new();
        for entry in self.manifest.entries() {
            if let Content::Link { to } = entry.content {
                if self.make_hard_link(entry, to, linked.contains(&to))? {
                    linked.insert(to);
                }
                self.options.work.add(1);
            }
        }
        for file in linked {
            let sync = || {
                fs::fsync(
                    self.place
                        .open_file(&self.manifest, &self.manifest.entry(file))?,
                )
            };
            sync().map_err(Error::at(|| self.path_of(file), "sync the file"))?;
        }
        Ok(())
    }

    fn lock_copies(&self) -> MutexGuard<'_, BTreeSet<EntryId>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hard links that had to become files of their own, and the files that they are copies of.
    pub(super) fn copies(&self) -> Vec<(EntryId, Entry<'_>)> {
        let copies = self.lock_copies();
        let file = |link: &EntryId| match self.manifest.entry(*link).content {
            Content::Link { to } => Some((*link, self.manifest.entry(to))),
            _ => None,
        };
        copies.iter().filter_map(file).collect()
    }

    /// Returns whether a link was made. One that was made before has proven the file, which is read again
    /// in the end.
    fn make_hard_link(&self, entry: Entry<'_>, to: EntryId, proven: bool) -> Result<bool, Error> {
        let file = self.manifest.entry(to);
        let Content::File { size, .. } = file.content else {
            return Ok(false);
        };
        let stat = self.find_file(&file, size.0)?;
        let stat = stat.ok_or_else(|| self.changed(to))?;
        let dir = self.ready_dir(entry.parent)?;
        let found = sys::lstat(&dir, self.place.name(&entry))
            .map_err(Error::at(|| self.path_of(entry.id), "look at the file"))?;
        if found.as_ref().is_some_and(|found| is_same(found, &stat)) {
            return Ok(false);
        }
        // What another process has put there gets no further name.
        if !proven {
            self.prove_placed(&file, &stat)?;
        }
        let from = self.open_dir(file.parent)?;
        let staging = self.state.staging();
        match staging.hard_link(entry.id, &from, self.place.name(&file)) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                let mut lost = Aspects::default();
                lost.add(Aspect::HardLinks);
                self.lost.add(Some(entry.id), lost);
                let link = Link { entry, file, stat };
                return self.make_copy(&link, found.as_ref()).map(|()| false);
            }
            Err(errno) => {
                let path = self.path_of(entry.id);
                return Err(Error::new(path, "create the hard link", errno));
            }
        }
        if !is_same(&self.staged_stat(entry.id)?, &stat) {
            let _ = staging.remove(entry.id);
            return Err(self.changed(to));
        }
        // A link changes the times of its file, which is read again therefore.
        self.identities.note(to, None);
        self.rename_staged(entry.id, &dir)?;
        Ok(true)
    }

    /// Sees to it that a further name of a file leads to a copy of it.
    fn make_copy(&self, link: &Link<'_>, found: Option<&Stat>) -> Result<(), Error> {
        let id = link.entry.id;
        self.lock_copies().insert(id);
        let whole = |found: &&Stat| {
            sys::type_of(found) == FileType::RegularFile && found.st_size == link.stat.st_size
        };
        if found.filter(whole).is_some() && self.is_copy(link)? {
            return Ok(());
        }
        let path = || self.path_of(id);
        let copy = || {
            let from = self.place.open_file(&self.manifest, &link.file)?;
            let to = self.create_staged(id, OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
            self.copy_bytes(&from, &to, link)?;
            Ok(to)
        };
        let to = copy().map_err(Error::at(path, "copy the file"))?;
        self.hash_file(&link.file, &to)?;
        let stat = fs::fstat(&to).map_err(Error::at(path, "look at the file"))?;
        self.keep_open(&link.entry, &link.file, &to, &stat)?;
        fs::fsync(&to).map_err(Error::at(path, "sync the file"))?;
        let dir = self.ready_dir(link.entry.parent)?;
        self.rename_staged(id, &dir)?;
        // It is read once more in the end.
        self.identities.note(id, None);
        Ok(())
    }

    fn copy_bytes(&self, from: &OwnedFd, to: &OwnedFd, link: &Link<'_>) -> Result<(), Errno> {
        let size = link.stat.st_size as u64;
        fs::ftruncate(to, size)?;
        let (mut buf, mut at) = (Vec::new(), 0);
        while at < size {
            sys::resize(&mut buf, PIECE.min((size - at) as usize));
            let read = sys::pread(from, &mut buf, at)?;
            if read < buf.len() {
                // It has become shorter, which shows when the copy is hashed.
                break;
            }
            match self.manifest.is_sparse(link.file.id) {
                true => sys::pwrite_sparse(to, &buf, at)?,
                false => sys::pwrite(to, &buf, at)?,
            }
            self.options.work.add(read as u64);
            at += read as u64;
        }
        Ok(())
    }

    /// Whether a copy of the file is there already; then it gets the attributes of the file.
    fn is_copy(&self, link: &Link<'_>) -> Result<bool, Error> {
        let Ok(fd) = self.place.open_file(&self.manifest, &link.entry) else {
            return Ok(false);
        };
        let look = Error::at(|| self.path_of(link.entry.id), "look at the file");
        let stat = fs::fstat(fd.as_fd()).map_err(look)?;
        if self.hash_file(&link.file, &fd).is_err() {
            return Ok(false);
        }
        self.identities
            .note(link.entry.id, Some(Identity::of(&stat)));
        self.keep_open(&link.entry, &link.file, &fd, &stat)?;
        Ok(true)
    }

    /// Makes sure at the very end that every further name leads to its file, or to a copy of it.
    pub(super) fn prove_links(&self) -> Result<(), Error> {
        let copies = self.lock_copies().clone();
        for entry in self.manifest.entries() {
            let Content::Link { to } = entry.content else {
                continue;
            };
            let look = || Error::at(|| self.path_of(entry.id), "look at the file");
            let found = self.place.stat(&self.manifest, &entry).map_err(look())?;
            let found = found.ok_or_else(|| self.changed(entry.id))?;
            if copies.contains(&entry.id) {
                self.prove_copy(&entry, &self.manifest.entry(to), &found)?;
                continue;
            }
            let file = self.place.stat(&self.manifest, &self.manifest.entry(to));
            if !file
                .map_err(look())?
                .is_some_and(|file| is_same(&file, &found))
            {
                return Err(self.changed(entry.id));
            }
        }
        Ok(())
    }

    /// Makes sure that the copy of a file, at which `stat` was just taken, has its bytes.
    fn prove_copy(&self, entry: &Entry<'_>, file: &Entry<'_>, stat: &Stat) -> Result<(), Error> {
        if self.identities.is(entry.id, &Identity::of(stat)) {
            return Ok(());
        }
        let fd = self.place.open_file(&self.manifest, entry);
        let fd = fd.map_err(self.gone(entry.id))?;
        self.hash_file(file, &fd)
            .map_err(|_| self.changed(entry.id))
    }
}

/// Whether both are one file.
fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
