//! Looks what a place has of an object, and changes nothing there.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use outpour_core::manifest::{Content, Kind, Manifest};
use outpour_core::{BlockId, BlockSet};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs;
use crate::place::{Place, locate};
use crate::roots::{self, Roots};
use crate::work::Stop;
use crate::{sys, work};

/// Which blocks of an object are in place at `path`, by their bytes; with `roots`, the path has to
/// lie beneath one of them. What an interrupted cast has staged does not count. `progress` is called
/// with the number of bytes of every block that is looked at, and `stop` ends it before its time.
///
/// # Errors
/// If the path lies elsewhere, what is there must not be read, or it was stopped.
pub fn look(
    path: &Path,
    roots: Option<&Roots>,
    manifest: &Manifest,
    stop: &Stop,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<BlockSet, Error> {
    let found = Mutex::new(BlockSet::new(manifest.blocks()));
    let Some(place) = place(path, roots, manifest)? else {
        return Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner));
    };
    let jobs: Vec<_> = work::shares(manifest, 0..manifest.blocks()).collect();
    debug_assert_eq!(
        jobs.iter().map(ExactSizeIterator::len).sum::<usize>(),
        manifest.blocks() as usize,
        "each block is looked at once"
    );
    work::spread(work::default_threads(), &jobs, |blocks, buf| {
        for block in blocks.clone() {
            stop.check()?;
            if read(&place, manifest, block, buf) && manifest.verify(block, buf) {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                let first = found.insert(block);
                debug_assert!(first, "two threads looked at the same block");
            }
            progress(u64::from(manifest.block_len(block)));
        }
        Ok::<_, Error>(())
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The place of the object at `path`; nothing if there is none.
fn place(path: &Path, roots: Option<&Roots>, manifest: &Manifest) -> Result<Option<Place>, Error> {
    let opened = match roots {
        Some(roots) => beneath(path, roots, manifest),
        None => {
            let (root, file_name) = locate(path, manifest);
            Place::open(root, file_name)
        }
    };
    match opened {
        Ok(place) => {
            let is_file = manifest.kind() == Kind::File;
            debug_assert_eq!(place.file_name().is_some(), is_file);
            Ok(Some(place))
        }
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

fn beneath(path: &Path, roots: &Roots, manifest: &Manifest) -> Result<Place, Error> {
    let own_name = match manifest.kind() {
        Kind::Tree { .. } => None,
        Kind::File => manifest.entries().next().map(|entry| entry.name.to_vec()),
    };
    let found = roots::find(path, roots)?;
    // A file goes into a directory that is there, under its own name.
    let file_name = match (own_name, found.file_name) {
        (None, Some(_)) => return Err(Error::new(path, "open the directory", Errno::NOTDIR)),
        (own_name, found) => found.or(own_name),
    };
    Ok(Place::at(found.dir, found.path, file_name))
}

/// Reads a block from its files; false if they are not all there in the right size.
fn read(place: &Place, manifest: &Manifest, block: BlockId, buf: &mut Vec<u8>) -> bool {
    sys::resize(buf, manifest.block_len(block) as usize);
    let mut rest = &mut buf[..];
    for extent in manifest.extents(block) {
        let (part, after) = rest.split_at_mut(extent.len as usize);
        let entry = manifest.entry(extent.file);
        let Content::File { size, .. } = entry.content else {
            return false;
        };
        let mut whole = || {
            let file = place.open_file(manifest, &entry)?;
            let stat = fs::fstat(&file)?;
            // A file of another size is not the object's, but its blocks may be.
            let read = sys::pread(&file, part, extent.offset)?;
            let small = size.0 == u64::from(extent.len);
            Ok::<_, Errno>(read == part.len() && (!small || stat.st_size as u64 == size.0))
        };
        if !whole().unwrap_or(false) {
            return false;
        }
        rest = after;
    }
    debug_assert!(rest.is_empty(), "a block is longer than its parts");
    true
}
