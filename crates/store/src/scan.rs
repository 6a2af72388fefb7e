//! Walks a source and describes what is there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use outpour_core::Bytes;
use outpour_core::manifest::{Builder, Content, Kind, STATE_DIR};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::confine::confined;
use crate::error::Error;
use crate::fs::{self, AsFd};
use crate::mark::{self, Mark};
use crate::place::Place;
use crate::{state, sys};

/// The mode of a directory that is made for several files and trees.
const SEVERAL_MODE: u16 = 0o755;

/// An entry of a directory that is being walked.
struct Found {
    name: Vec<u8>,
    stat: Stat,
}

/// Describes the file `found` in the place's root as an object of the name `name`, and marks it.
pub(crate) fn file(place: &Place, found: &[u8], name: &[u8]) -> Result<(Builder, Mark), Error> {
    debug_assert_eq!(place.file_name(), Some(found));
    let now = mark::now();
    let stat = file_stat(place, found)?;
    let mut builder = Builder::new(Kind::File)?;
    builder.add(name, sys::mtime_of(&stat), file_content(&stat))?;
    Ok((builder, Mark::of(&stat, now)))
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
pub(crate) fn tree(place: &Place) -> Result<(Builder, Vec<Mark>), Error> {
    debug_assert!(place.file_name().is_none());
    let (now, mut marks) = (mark::now(), Vec::new());
    let mode = sys::mode_of(&root_of(place)?);
    let mut builder = Builder::new(Kind::Tree { mode })?;
    entries(place, now, &mut builder, &mut marks)?;
    Ok((builder, marks))
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
pub(crate) fn several(parts: &BTreeMap<Vec<u8>, Part>) -> Result<(Builder, Vec<Mark>), Error> {
    let (now, mut marks) = (mark::now(), Vec::new());
    let mut builder = Builder::new(Kind::Tree { mode: SEVERAL_MODE })?;
    for (name, part) in parts {
        match part {
            Part::Tree(place) => {
                let stat = root_of(place)?;
                let mode = sys::mode_of(&stat);
                builder.add(name, sys::mtime_of(&stat), Content::Directory { mode })?;
                marks.push(Mark::NONE);
                entries(place, now, &mut builder, &mut marks)?;
                builder.leave()?;
            }
            Part::File(place, found) => {
                let stat = file_stat(place, found)?;
                builder.add(name, sys::mtime_of(&stat), file_content(&stat))?;
                marks.push(Mark::of(&stat, now));
            }
        }
    }
    Ok((builder, marks))
}

/// Describes what is in the place's root, in the directory that the builder is at.
fn entries(
    place: &Place,
    now: i128,
    builder: &mut Builder,
    marks: &mut Vec<Mark>,
) -> Result<(), Error> {
    let root = place.root();
    // Directories are not kept open on the way down, so depth costs no descriptors.
    let mut path = Vec::new();
    let mut levels = vec![read(place, root, &path)?.into_iter()];
    while let Some(level) = levels.last_mut() {
        let Some(found) = level.next() else {
            levels.pop();
            if !levels.is_empty() {
                builder.leave()?;
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
        marks.push(match sys::type_of(&found.stat) {
            FileType::RegularFile => Mark::of(&found.stat, now),
            _ => Mark::NONE,
        });
        if add(place, builder, &found, &path)? {
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

/// Adds what was found; says whether it is a directory.
fn add(place: &Place, builder: &mut Builder, found: &Found, path: &[u8]) -> Result<bool, Error> {
    debug_assert!(path.ends_with(&found.name));
    let mtime = sys::mtime_of(&found.stat);
    match sys::type_of(&found.stat) {
        FileType::RegularFile => builder.add(&found.name, mtime, file_content(&found.stat))?,
        FileType::Directory => {
            let mode = sys::mode_of(&found.stat);
            builder.add(&found.name, mtime, Content::Directory { mode })?;
            return Ok(true);
        }
        FileType::Symlink => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let target = confined(place.root(), path, flags)
                .and_then(|link| fs::readlinkat(&link, "", Vec::new()))
                .map_err(Error::at(|| shown(place, path), "read the symlink"))?;
            let target = target.as_bytes();
            builder.add(&found.name, mtime, Content::Symlink { target })?;
        }
        _ => return Err(special(shown(place, path), &found.stat)),
    }
    Ok(false)
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

#[cfg(test)]
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
