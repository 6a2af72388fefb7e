//! Checks whether an object could be put at a place, and changes nothing there.

use std::path::Path;

use outpour_core::manifest::{Content, Entry, Manifest, STATE_DIR};
use outpour_core::{BlockSet, Bytes};
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::claim::Shape;
use crate::error::Error;
use crate::fs::{self, AsFd};
use crate::place::Place;
use crate::roots::{Existing, Roots, existing};
use crate::{compare, state, sys};

/// Checks whether an object could be put at `path`, beneath one of `roots` if there are any, where
/// [`look`](crate::look) has found `have` of it. Without `have` blocks would only be held there for a
/// while, as by a relay, and nobody knows how many.
///
/// # Errors
/// Those of [`Destination::open`](crate::Destination::open) that do not depend on other casts: a way
/// that must not be taken, no permission, or [`Error::Space`]; what an interrupted cast has staged counts as
/// room.
pub fn preflight(
    path: &Path,
    roots: Option<&Roots>,
    manifest: &Manifest,
    have: Option<&BlockSet>,
) -> Result<(), Error> {
    let own_name = match Shape::of(manifest) {
        Shape::Tree => None,
        Shape::File(name) => Some(name),
    };
    let there = existing(path, roots, own_name.as_deref())?;
    check_access(&there)?;
    let Some(have) = have else {
        return Ok(());
    };
    let look = || Error::at(|| &there.path, "examine the existing files");
    let place = match there.missing {
        Some(_) => None,
        None => {
            let root = fs::fcntl_dupfd_cloexec(&there.dir, 0).map_err(look())?;
            let (path, name) = (there.path.clone(), there.file_name.clone());
            Some(Place::at(root, path, name))
        }
    };
    let mut needed = 0_u64;
    let mut buf = Vec::new();
    for entry in manifest.entries() {
        let Content::File { size, .. } = entry.content else {
            continue;
        };
        let is_here = |place: &Place| is_here(place, manifest, &entry, size.0, have, &mut buf);
        if !place.as_ref().is_some_and(is_here) {
            needed = needed.saturating_add(manifest.stored_bytes(entry.id));
        }
    }
    let staged = || state::staged_bytes(&there.dir, there.file_name.as_deref(), manifest.id());
    let staged = place.as_ref().map_or(Ok(0), |_| staged());
    let needed = needed.saturating_sub(staged.map_err(look())?);
    check_room(&there.dir, &there.path, needed)
}

/// Refuses what does not fit into the file system of `dir`; `path` is that of the destination.
pub(crate) fn check_room(dir: impl AsFd, path: &Path, needed: u64) -> Result<(), Error> {
    let look = Error::at(|| path, "examine the existing files");
    match sys::free(dir).map_err(look)? {
        Some(free) if needed > free => Err(Error::Space {
            path: path.to_path_buf(),
            needed: Bytes(needed),
            free: Bytes(free),
        }),
        _ => Ok(()),
    }
}

/// Whether we may make what a cast would make first.
fn check_access(there: &Existing) -> Result<(), Error> {
    let make = |path| Error::at(move || path, "create the directory");
    let access = || {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        fs::accessat(&there.dir, ".", access, AtFlags::EACCESS)
    };
    if let Some(missing) = &there.missing {
        return access().map_err(make(missing));
    }
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = fs::openat(&there.dir, ".", open, Mode::empty())
        .map_err(Error::at(|| &there.path, "open the directory"))?;
    let state = there.path.join(STATE_DIR);
    match sys::lstat(&root, STATE_DIR.as_bytes()) {
        Ok(Some(stat)) if stat.st_uid != fs::euid() => Err(Error::Permission {
            path: state,
            doing: "use a directory that belongs to another user",
            errno: Errno::PERM,
        }),
        Ok(Some(_)) => access().map_err(Error::at(|| &there.path, "create files in the directory")),
        Ok(None) => access().map_err(make(&state)),
        Err(errno) => Err(make(&state)(errno)),
    }
}

/// Whether a file is in its place as the object has it, so that it takes no room.
fn is_here(
    place: &Place,
    manifest: &Manifest,
    entry: &Entry<'_>,
    size: u64,
    have: &BlockSet,
    buf: &mut Vec<u8>,
) -> bool {
    let blocks = manifest.blocks_of(entry.id);
    let (all, small) = (have.contains_range(blocks.clone()), blocks.len() < 2);
    // A block of small files is not here if one of them is not.
    if size == 0 || (small && all) {
        return true;
    }
    let mut right = || {
        let file = place.open_file(manifest, entry)?;
        if fs::fstat(&file)?.st_size as u64 != size {
            return Ok(false);
        }
        match small {
            true => compare::small(manifest, entry.id, size, &file, buf),
            false => Ok(all),
        }
    };
    right().unwrap_or(false)
}
