//! An object's place on disk: the one directory beneath which its entries are read and written.
//!
//! Names come from a manifest, which may come from a stranger, and directories may be swapped for
//! symlinks by other users while we work. So nothing is ever resolved from an absolute path: every
//! access goes through a descriptor of the root, the way from there to an entry's directory is
//! confined, and the entry itself is reached by its name in that directory without
//! following it if it is a link.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outpour_core::manifest::{Content, Entry, EntryId, Kind, Layout};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::cache::Cache;
use crate::confine::confined;
use crate::error::Error;
use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::roots::Way;
use crate::sys;

/// How many directories are kept open per place.
const DIRS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Place {
    root: OwnedFd,
    path: PathBuf,
    /// The way to the root, if the object is written there.
    way: Option<Way>,
    /// The name of the file, if the object is one: here it may have another than in the manifest.
    file_name: Option<Vec<u8>>,
    /// Where the entries are that are in no directory of the object, by their names, if they are not
    /// together in the root.
    tops: BTreeMap<Vec<u8>, Top>,
    dirs: Cache<OwnedFd>,
}

/// Where an entry is that is in no directory of the object.
#[derive(Debug)]
pub(crate) struct Top {
    /// The directory that it is in, and its name there.
    pub(crate) dir: OwnedFd,
    pub(crate) name: Vec<u8>,
    /// For messages.
    pub(crate) path: PathBuf,
}

impl Place {
    /// The place of an object in the existing directory `path`.
    pub(crate) fn open(path: PathBuf, file_name: Option<Vec<u8>>) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(&path, flags, Mode::empty())
            .map_err(|errno| Error::new(&path, "open the directory", errno))?;
        Ok(Self::at(root, path, file_name))
    }

    /// The place of an object in the directory `root`, which messages call `path`.
    pub(crate) fn at(root: OwnedFd, path: PathBuf, file_name: Option<Vec<u8>>) -> Self {
        debug_assert!(file_name.as_deref().is_none_or(is_name));
        Self {
            root,
            path,
            way: None,
            file_name,
            tops: BTreeMap::new(),
            dirs: Cache::new(DIRS_MAX),
        }
    }

    /// The same place, of which is known how its root was found.
    pub(crate) fn reached_by(self, way: Way) -> Self {
        Self {
            way: Some(way),
            ..self
        }
    }

    /// The place of an object whose outermost entries are in several directories, to be read there.
    pub(crate) fn several(tops: BTreeMap<Vec<u8>, Top>) -> Result<Self, Error> {
        debug_assert!(tops.keys().all(|name| is_name(name)));
        debug_assert!(tops.values().all(|top| is_name(&top.name)));
        let place = Self::open(PathBuf::from("/"), None)?;
        Ok(Self { tops, ..place })
    }

    /// The outermost entry that a path in the object leads through, if these are apart, and the rest
    /// of the path.
    fn top<'a>(&self, path: &'a [u8]) -> Option<(&Top, &'a [u8])> {
        debug_assert!(!path.is_empty());
        debug_assert!(!path.starts_with(b"/"), "paths begin at the root");
        let end = path.iter().position(|byte| *byte == b'/');
        let (first, rest) = path.split_at(end.unwrap_or(path.len()));
        Some((self.tops.get(first)?, rest))
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The path of the root, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the file here, if the object is one.
    pub(crate) fn file_name(&self) -> Option<&[u8]> {
        self.file_name.as_deref()
    }

    /// The path of an entry, for messages.
    pub(crate) fn path_of(&self, layout: &Layout, id: EntryId) -> PathBuf {
        let path = layout.path(id);
        match (&self.file_name, self.top(&path)) {
            (Some(name), _) => self.path.join(OsStr::from_bytes(name)),
            (None, None) => self.path.join(OsStr::from_bytes(&path)),
            (None, Some((top, b""))) => top.path.clone(),
            (None, Some((top, rest))) => top.path.join(OsStr::from_bytes(&rest[1..])),
        }
    }

    /// The name of an entry in its directory.
    pub(crate) fn name<'a>(&'a self, entry: &Entry<'a>) -> &'a [u8] {
        debug_assert!(
            self.file_name.is_none() || (entry.parent.is_none() && entry.id.index() == 0),
            "a file is the only entry of its object"
        );
        debug_assert!(self.file_name.is_none() || self.tops.is_empty());
        let top = self.tops.get(entry.name).filter(|_| entry.parent.is_none());
        let apart = top.map(|top| top.name.as_slice());
        let own = self.file_name.as_deref().or(apart);
        own.unwrap_or(entry.name)
    }

    /// The directory that an entry is in.
    fn dir_of(&self, layout: &Layout, entry: &Entry<'_>) -> Result<Dir<'_>, Errno> {
        let top = self.tops.get(entry.name).filter(|_| entry.parent.is_none());
        match top {
            Some(top) => Ok(Dir::Root(top.dir.as_fd())),
            None => self.dir(layout, entry.parent),
        }
    }

    /// A directory of the object, or the root.
    pub(crate) fn dir(&self, layout: &Layout, dir: Option<EntryId>) -> Result<Dir<'_>, Errno> {
        let Some(id) = dir else {
            return Ok(Dir::Root(self.root.as_fd()));
        };
        debug_assert!(matches!(
            layout.entry(id).content,
            Content::Directory { .. }
        ));
        debug_assert!(self.file_name.is_none(), "a file has no directories");
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let path = layout.path(id);
            match self.top(&path) {
                Some((top, rest)) => confined(&top.dir, &[&top.name, rest].concat(), flags),
                None => confined(&self.root, &path, flags),
            }
        };
        self.dirs.get(id.0, open).map(Dir::Inner)
    }

    /// Opens an entry that is no directory, for reading.
    pub(crate) fn open_file(&self, layout: &Layout, entry: &Entry<'_>) -> Result<OwnedFd, Errno> {
        debug_assert!(matches!(
            entry.content,
            Content::File { .. } | Content::Link { .. }
        ));
        let dir = self.dir_of(layout, entry)?;
        // By now another process may have put a named pipe there: do not wait for it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(&dir, self.name(entry), flags, Mode::empty())
    }

    /// Looks at an entry itself; `None` if it or its directory does not exist.
    pub(crate) fn stat(&self, layout: &Layout, entry: &Entry<'_>) -> Result<Option<Stat>, Errno> {
        match self.dir_of(layout, entry) {
            Ok(dir) => sys::lstat(&dir, self.name(entry)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Checks that the root's path still leads to it.
    ///
    /// # Errors
    /// [`Error::Moved`] if it does not.
    pub(crate) fn confirm_root(&self) -> Result<(), Error> {
        let Some(way) = &self.way else {
            return Ok(());
        };
        let look = Error::at(|| &self.path, "look at the directory again");
        match way.leads_to(self.root()).map_err(look)? {
            true => Ok(()),
            false => Err(Error::Moved {
                path: self.path.clone(),
            }),
        }
    }

    /// Forgets which directories are open, so that each is looked up anew.
    pub(crate) fn refresh(&self) {
        self.dirs.clear();
    }
}

/// Whether it is a name in a directory and leads nowhere else.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/')
}

/// A directory that is open.
pub(crate) enum Dir<'a> {
    Root(BorrowedFd<'a>),
    Inner(Arc<OwnedFd>),
}

impl AsFd for Dir<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => *fd,
            Self::Inner(fd) => fd.as_fd(),
        }
    }
}

/// The root directory and the file name that `path` means for an object that is read there: a tree takes the place
/// itself; a file does too, unless a directory is there or the path ends in a slash, then it goes
/// inside under its own name.
pub(crate) fn locate(path: &Path, layout: &Layout) -> (PathBuf, Option<Vec<u8>>) {
    if let Kind::Tree { .. } = layout.kind() {
        return (path.to_path_buf(), None);
    }
    debug_assert_eq!(layout.entries().len(), 1);
    let own_name = layout.entries().next().map_or(&b""[..], |entry| entry.name);
    let inside = path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir();
    match path.file_name().filter(|_| !inside) {
        Some(name) => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or_else(|| Path::new("."));
            (parent.to_path_buf(), Some(name.as_bytes().to_vec()))
        }
        None => (path.to_path_buf(), Some(own_name.to_vec())),
    }
}
