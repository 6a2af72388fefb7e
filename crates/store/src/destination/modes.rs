//! Entries that their own modes close to us: files without read permission for their owner,
//! directories that their owner may not list or enter.
//!
//! Until a destination is dropped, its blocks are read, compared and served, and root alone can do
//! that with such an entry. So it has the bits of its owner that we need until then, and gets its
//! mode last, what is inside before the directory around it. One that an earlier cast has
//! left closed is opened when it is found; if this cast does not finish, it gets its own mode back.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use outpour_core::manifest::{Content, Entry, EntryId, Manifest};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Inner, Keep};
use crate::claim::held_in;
use crate::fs::{self, AsFd};
use crate::place::Place;
use crate::sys;

/// What we need of a file: to read it.
const FILE: u16 = 0o400;
/// What we need of a directory: to list it, and to pass through it.
const DIR: u16 = 0o500;

/// Whether modes keep us out. They do not keep root out, whose entries have their own modes from the start.
pub(super) fn modes_bind_us() -> bool {
    fs::euid() != 0
}

/// The mode that a file of mode `mode` has while its destination is in use.
pub(super) fn open_file_mode(mode: u16) -> u16 {
    mode | if modes_bind_us() { FILE } else { 0 }
}

/// The same of a directory.
pub(super) fn open_dir_mode(mode: u16) -> u16 {
    mode | if modes_bind_us() { DIR } else { 0 }
}

/// The modes of entries that were found closed and have been opened, and their inodes.
#[derive(Debug, Default)]
pub(super) struct Opened(Mutex<BTreeMap<EntryId, (u16, u64)>>);

impl Opened {
    /// Opens an entry that is closed to us though it is ours; returns what it is like then. Others are
    /// left as they are.
    pub(super) fn open(
        &self,
        place: &Place,
        dir: impl AsFd,
        entry: &Entry<'_>,
        stat: Stat,
    ) -> Result<Stat, Errno> {
        // With setgid and sticky, which stay.
        let mode = sys::full_mode_of(&stat);
        let wanted = match sys::type_of(&stat) {
            FileType::RegularFile => open_file_mode(mode),
            FileType::Directory => open_dir_mode(mode),
            _ => mode,
        };
        if wanted == mode || stat.st_uid != fs::euid() {
            return Ok(stat);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = fs::openat(dir, place.name(entry), flags, Mode::empty())?;
        let now = fs::fstat(&found)?;
        // Another process may have put a link there meanwhile.
        if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
            return Ok(stat);
        }
        fs::chmod_found(&found, sys::mode(wanted))?;
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.entry(entry.id).or_insert((mode, stat.st_ino));
        fs::fstat(&found)
    }

    /// Gives those that were opened the modes that they had.
    pub(super) fn restore(&self, place: &Place, manifest: &Manifest) {
        let opened = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, (mode, ino)) in opened.into_iter().rev() {
            close(place, manifest, &manifest.entry(id), mode, |stat| {
                stat.st_ino == ino
            });
        }
    }
}

/// Sets the mode of an entry that is open, if it is still what was put or found there.
fn close(
    place: &Place,
    manifest: &Manifest,
    entry: &Entry<'_>,
    mode: u16,
    is_it: impl FnOnce(&Stat) -> bool,
) {
    let close = || {
        let dir = place.dir(manifest, entry.parent)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let found = fs::openat(&dir, place.name(entry), flags, Mode::empty())?;
        let stat = fs::fstat(&found)?;
        let belongs = match entry.content {
            Content::Directory { .. } => FileType::Directory,
            _ => FileType::RegularFile,
        };
        let ours = stat.st_uid == fs::euid();
        match sys::type_of(&stat) == belongs && ours && is_it(&stat) {
            true => fs::fchmod(&found, sys::full_mode(mode)),
            false => Ok(()),
        }
    };
    if let Err(errno) = close() {
        let path = place.path_of(manifest, entry.id);
        tracing::warn!(path = %path.display(), %errno, "cannot set the mode");
    }
}

impl Inner {
    /// Gives entries that are open for our sake alone the modes that they are to have: at the very end.
    pub(super) fn close_entries(&self) {
        if self.options.keep != Keep::Files || !self.progress().finished {
            return self.opened.restore(&self.place, &self.manifest);
        }
        // The place is free since the object is complete. Another cast that uses it by now needs them
        // open, and closes them in the end; one of another file beside ours does not.
        let others = self.place.file_name().is_none();
        if let Ok(Some(by)) = held_in(self.place.root(), others) {
            tracing::debug!(%by, "modes are left to another cast");
            return;
        }
        for entry in self.manifest.entries().rev() {
            let (mode, open) = match entry.content {
                Content::File { mode, .. } => (mode, open_file_mode(mode)),
                Content::Directory { mode } => (mode, open_dir_mode(mode)),
                Content::Symlink { .. } | Content::Link { .. } => continue,
            };
            if mode != open {
                let is_it = |stat: &Stat| sys::mode_of(stat) == open;
                let special = self.manifest.attributes(entry.id).map(|it| it.special);
                let mode = mode | special.unwrap_or_default();
                close(&self.place, &self.manifest, &entry, mode, is_it);
            }
        }
    }
}
