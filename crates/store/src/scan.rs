//! Walks a source and describes what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use outpour_core::Bytes;
use outpour_core::manifest::{
    Acl, AclTag, Attributes, Builder, Content, EntryId, Kind, ManifestError, OWNER_NAMES_MAX,
    STATE_DIR,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::confine::confined;
use crate::error::Error;
use crate::fs::{self, AsFd};
use crate::mark::{self, Mark};
use crate::owners::Owners;
use crate::place::Place;
use crate::{attributes, state, sys};

/// The mode of a directory that is made for several files and trees.
const SEVERAL_MODE: u16 = 0o755;

/// How entries are opened to ask for their attributes: without waiting for what may have come into their
/// places.
const ASKING: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// An entry of a directory that is being walked.
struct Found {
    name: Vec<u8>,
    stat: Stat,
}

/// What a walk has found.
pub(crate) struct Walked {
    pub(crate) builder: Builder,
    /// A mark of each entry.
    pub(crate) marks: Vec<Mark>,
}

/// A walk through a source.
struct Walk {
    now: i128,
    builder: Builder,
    marks: Vec<Mark>,
    archiving: Option<Archiving>,
}

/// What a walk knows that keeps attributes.
#[derive(Default)]
struct Archiving {
    /// Files with several names, by device and inode: the first entry, and its time then.
    seen: BTreeMap<(u64, u64), (EntryId, i64)>,
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
}

/// Describes the file `found` in the place's root as an object of the name `name`, and marks it.
pub(crate) fn file(
    place: &Place,
    found: &[u8],
    name: &[u8],
    archive: bool,
) -> Result<Walked, Error> {
    debug_assert_eq!(place.file_name(), Some(found));
    let mut walk = Walk::begin(Kind::File, None, archive)?;
    walk.file(place, found, name)?;
    walk.end()
}

/// Looks at the file `found` in the place's root.
fn file_stat(place: &Place, found: &[u8]) -> Result<Stat, Error> {
    let path = || place.path().join(OsStr::from_bytes(found));
    let stat = fs::statat(place.root(), found, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(Error::at(path, "look at the file"))?;
    match sys::type_of(&stat) {
        FileType::RegularFile => Ok(stat),
        _ => Err(special(path(), &stat)),
    }
}

/// Describes the tree in the place's root, and marks every entry of it.
pub(crate) fn tree(place: &Place, archive: bool) -> Result<Walked, Error> {
    debug_assert!(place.file_name().is_none());
    let stat = root_of(place)?;
    let kind = Kind::Tree {
        mode: sys::mode_of(&stat),
    };
    let mut walk = Walk::begin(kind, Some((place, &stat)), archive)?;
    walk.entries(place)?;
    walk.end()
}

fn root_of(place: &Place) -> Result<Stat, Error> {
    fs::fstat(place.root()).map_err(Error::at(|| place.path(), "examine the directory"))
}

/// An outermost entry of an object that is made of several files and trees.
pub(crate) enum Part {
    /// A directory and what is in it.
    Tree(Place),
    /// A file of this name in the place's root.
    File(Place, Vec<u8>),
}

/// Describes several files and trees, by their names in the object, as one tree.
pub(crate) fn several(parts: &BTreeMap<Vec<u8>, Part>, archive: bool) -> Result<Walked, Error> {
    let mut walk = Walk::begin(Kind::Tree { mode: SEVERAL_MODE }, None, archive)?;
    for (name, part) in parts {
        match part {
            Part::Tree(place) => {
                let stat = root_of(place)?;
                let mode = sys::mode_of(&stat);
                let attributes = walk.attributes(
                    || place.path().to_path_buf(),
                    &stat,
                    || fs::fcntl_dupfd_cloexec(place.root(), 0),
                )?;
                let content = Content::Directory { mode };
                let time = sys::mtime_of(&stat);
                walk.add(name, time, content, attributes.as_ref())?;
                walk.marks.push(Mark::NONE);
                walk.entries(place)?;
                walk.builder.leave()?;
            }
            Part::File(place, found) => walk.file(place, found, name)?,
        }
    }
    walk.end()
}

impl Walk {
    /// Begins with the root of a tree, if it is there.
    fn begin(kind: Kind, root: Option<(&Place, &Stat)>, archive: bool) -> Result<Self, Error> {
        let mut walk = Self {
            now: mark::now(),
            builder: Builder::new(kind)?,
            marks: Vec::new(),
            archiving: archive.then(Archiving::default),
        };
        let attributes = match root {
            Some((place, stat)) => walk.attributes(
                || place.path().to_path_buf(),
                stat,
                || fs::fcntl_dupfd_cloexec(place.root(), 0),
            )?,
            None => None,
        };
        if archive {
            walk.builder.archive(attributes.as_ref())?;
        }
        Ok(walk)
    }

    fn end(mut self) -> Result<Walked, Error> {
        if let Some(archiving) = &self.archiving {
            let (users, groups) = (Owners::users(), Owners::groups());
            let named = |ids: &BTreeSet<u32>, owners: &Owners| {
                let name = |id: &u32| Some((*id, owners.name(*id)?.to_vec()));
                let named: Vec<_> = ids.iter().filter_map(name).take(OWNER_NAMES_MAX).collect();
                named
            };
            for (id, name) in named(&archiving.users, &users) {
                self.builder.name_user(id, &name)?;
            }
            for (id, name) in named(&archiving.groups, &groups) {
                self.builder.name_group(id, &name)?;
            }
        }
        Ok(Walked {
            builder: self.builder,
            marks: self.marks,
        })
    }

    fn add(
        &mut self,
        name: &[u8],
        mtime_ns: i64,
        content: Content<'_>,
        attributes: Option<&Attributes>,
    ) -> Result<(), ManifestError> {
        self.builder.add_with(name, mtime_ns, content, attributes)
    }

    /// Asks an entry for its attributes, if they are kept. It is opened for that, and has to be what
    /// was looked at.
    fn attributes<F: AsFd>(
        &mut self,
        path: impl Fn() -> PathBuf,
        stat: &Stat,
        open: impl FnOnce() -> Result<F, Errno>,
    ) -> Result<Option<Attributes>, Error> {
        let Some(archiving) = &mut self.archiving else {
            return Ok(None);
        };
        let ask = || Error::at(&path, "read the attributes");
        let attributes = if sys::type_of(stat) == FileType::Symlink {
            attributes::owner(stat)
        } else {
            let fd = open().map_err(ask())?;
            let now = fs::fstat(&fd).map_err(ask())?;
            if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
                return Err(Error::SourceChanged { path: path() });
            }
            attributes::read(&fd, stat).map_err(ask())?
        };
        archiving.note_owners(&attributes);
        Ok(Some(attributes))
    }

    /// Adds the file `found` in the place's root under a name, and marks it.
    fn file(&mut self, place: &Place, found: &[u8], name: &[u8]) -> Result<(), Error> {
        let stat = file_stat(place, found)?;
        self.add_file(
            &stat,
            name,
            || shown(place, found),
            || fs::openat(place.root(), found, ASKING, Mode::empty()),
        )
    }

    /// Adds a file, or a further name of one, and marks it.
    fn add_file<F: AsFd>(
        &mut self,
        stat: &Stat,
        name: &[u8],
        path: impl Fn() -> PathBuf,
        open: impl FnOnce() -> Result<F, Errno>,
    ) -> Result<(), Error> {
        let id = EntryId(self.marks.len() as u32);
        let mtime_ns = sys::mtime_of(stat);
        if let Some(archiving) = &mut self.archiving
            && stat.st_nlink > 1
        {
            let inode = (stat.st_dev, stat.st_ino);
            if let Some((to, mtime_ns)) = archiving.seen.get(&inode).copied() {
                self.add(name, mtime_ns, Content::Link { to }, None)?;
                self.marks.push(Mark::NONE);
                return Ok(());
            }
            archiving.seen.insert(inode, (id, mtime_ns));
        }
        let attributes = self.attributes(path, stat, open)?;
        self.add(name, mtime_ns, file_content(stat), attributes.as_ref())?;
        self.marks.push(Mark::of(stat, self.now));
        Ok(())
    }

    /// Describes what is in the place's root, in the directory that the builder is at.
    fn entries(&mut self, place: &Place) -> Result<(), Error> {
        let root = place.root();
        // Directories are not kept open on the way down, so depth costs no descriptors.
        let mut path = Vec::new();
        let mut levels = vec![read(place, root, &path)?.into_iter()];
        while let Some(level) = levels.last_mut() {
            let Some(found) = level.next() else {
                levels.pop();
                if !levels.is_empty() {
                    self.builder.leave()?;
                    let parent = path.iter().rposition(|byte| *byte == b'/');
                    path.truncate(parent.unwrap_or(0));
                }
                continue;
            };
            let parent_len = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&found.name);
            refuse_unfinished(place, &found, &path)?;
            if self.add_found(place, &found, &path)? {
                let dir = confined(
                    root,
                    &path,
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                )
                .map_err(Error::at(|| shown(place, &path), "open the directory"))?;
                levels.push(read(place, &dir, &path)?.into_iter());
            } else {
                path.truncate(parent_len);
            }
            debug_assert_eq!(
                usize::from(!path.is_empty()) + path.iter().filter(|byte| **byte == b'/').count(),
                levels.len() - 1,
                "the path is not that of the innermost directory"
            );
        }
        debug_assert!(path.is_empty());
        Ok(())
    }

    /// Adds and marks what was found; says whether it is a directory.
    fn add_found(&mut self, place: &Place, found: &Found, path: &[u8]) -> Result<bool, Error> {
        debug_assert!(path.ends_with(&found.name));
        let (name, stat, mtime_ns) = (&found.name, &found.stat, sys::mtime_of(&found.stat));
        let named = || shown(place, path);
        match sys::type_of(stat) {
            FileType::RegularFile => {
                self.add_file(stat, name, named, || confined(place.root(), path, ASKING))?;
                return Ok(false);
            }
            FileType::Directory => {
                let mode = sys::mode_of(stat);
                let flags = ASKING | OFlags::DIRECTORY;
                let open = || confined(place.root(), path, flags);
                let attributes = self.attributes(named, stat, open)?;
                let content = Content::Directory { mode };
                self.add(name, mtime_ns, content, attributes.as_ref())?;
            }
            FileType::Symlink => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let target = confined(place.root(), path, flags)
                    .and_then(|link| fs::readlinkat(&link, "", Vec::new()))
                    .map_err(Error::at(named, "read the symlink"))?;
                let target = target.as_bytes();
                let attributes = self.attributes(named, stat, || Ok(place.root()))?;
                let content = Content::Symlink { target };
                self.add(name, mtime_ns, content, attributes.as_ref())?;
            }
            _ => return Err(special(named(), stat)),
        }
        self.marks.push(Mark::NONE);
        Ok(sys::type_of(stat) == FileType::Directory)
    }
}

impl Archiving {
    /// Takes note of who occurs, so that they can be called by their names.
    fn note_owners(&mut self, attributes: &Attributes) {
        self.users.insert(attributes.owner);
        self.groups.insert(attributes.group);
        for xattr in attributes.xattrs.iter().filter(|xattr| xattr.is_acl()) {
            let acl = Acl::decode(&xattr.value);
            for entry in acl.iter().flat_map(Acl::entries) {
                match entry.tag {
                    AclTag::User(id) => drop(self.users.insert(id)),
                    AclTag::Group(id) => drop(self.groups.insert(id)),
                    _ => {}
                }
            }
        }
    }
}

/// Refuses a directory to which a cast writes, or which one has left unfinished: its state is there.
fn refuse_unfinished(place: &Place, found: &Found, path: &[u8]) -> Result<(), Error> {
    let is_dir = sys::type_of(&found.stat) == FileType::Directory;
    if found.name != STATE_DIR.as_bytes() || !is_dir {
        return Ok(());
    }
    debug_assert!(path.ends_with(STATE_DIR.as_bytes()));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // What cannot be read is refused all the same.
    let state = confined(place.root(), path, flags).ok();
    Err(Error::Unfinished {
        state: shown(place, path),
        object: state.and_then(|state| state::object_in(&state)),
    })
}

/// The entries of a directory by name.
fn read(place: &Place, dir: impl AsFd, path: &[u8]) -> Result<Vec<Found>, Error> {
    let mut names =
        fs::names(&dir).map_err(Error::at(|| shown(place, path), "read the directory"))?;
    names.sort_unstable();
    let look = |name: Vec<u8>| {
        let stat = match sys::lstat(&dir, &name) {
            Ok(Some(stat)) => Ok(stat),
            Ok(None) => Err(Errno::NOENT),
            Err(errno) => Err(errno),
        };
        let stat = stat.map_err(Error::at(
            || shown(place, path).join(OsStr::from_bytes(&name)),
            "look at the file",
        ))?;
        Ok(Found { name, stat })
    };
    names.into_iter().map(look).collect()
}

fn file_content(stat: &Stat) -> Content<'static> {
    Content::File {
        mode: sys::mode_of(stat),
        size: Bytes(stat.st_size as u64),
    }
}

fn special(path: PathBuf, stat: &Stat) -> Error {
    let what = sys::noun(sys::type_of(stat));
    Error::Special { path, what }
}

fn shown(place: &Place, path: &[u8]) -> PathBuf {
    place.path().join(OsStr::from_bytes(path))
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Manifests with such names are refused when they are read. This is the second line: what the
    /// kernel makes of a path stays beneath the root whatever the path says.
    #[test]
    fn no_path_leads_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        let place = Place::open(root, None).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &[u8]| confined(place.root(), path, flags);
        assert!(open(b"a/b").is_ok());
        for path in [
            &b".."[..],
            b"../root",
            b"../outside",
            b"a/../..",
            b"a/b/../../..",
            b"a/../../outside",
            b"a/b/../../../root/a",
            b"/",
            b"/tmp",
        ] {
            let shown = String::from_utf8_lossy(path);
            assert_eq!(open(path).unwrap_err(), Errno::XDEV, "{shown}");
        }
        for path in [&b"a\0"[..], b"a/b\0/.."] {
            assert!(open(path).is_err());
        }
        // Not even to the root itself.
        assert!(open(b"").is_err());
    }
}
