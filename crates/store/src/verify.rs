//! Tells whether what is on disk is an object.

use std::num::NonZero;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use outpour_core::Bytes;
use outpour_core::manifest::{Content, Entry, EntryId, Kind, Manifest};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs;
use crate::place::{Place, locate};
use crate::{compare, sys, work};

/// What [`verify_tree`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many entries (files, directories, symlinks) are right.
    pub right: usize,
    /// Those that are not, in path order.
    pub faults: Vec<Fault>,
}

impl VerifyReport {
    /// Whether everything is right.
    pub const fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// An entry that is not as the manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its path in the tree; arbitrary bytes.
    pub path: Vec<u8>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is not there.
    #[error("missing")]
    Missing,
    /// It is of another sort.
    #[error("{found}, not {expected}")]
    Sort {
        /// What is there.
        found: &'static str,
        /// What should be.
        expected: &'static str,
    },
    /// The file has another size.
    #[error("{} bytes, not {}", found.0, expected.0)]
    Size {
        /// The size it has.
        found: Bytes,
        /// The size it should have.
        expected: Bytes,
    },
    /// The file has other bytes.
    #[error("the content differs")]
    Content,
    /// The symlink points elsewhere.
    #[error("the symlink points elsewhere")]
    Target,
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(Errno),
}

/// A part of the work: an entry, or some blocks of a large file.
struct Job {
    entry: EntryId,
    blocks: std::ops::Range<u32>,
}

/// Compares the file or tree at `path` with a manifest: every file's bytes, every symlink's
/// target, every directory's being there. What the manifest does not name is ignored, and so are
/// modes and times. `progress` is called with the number of bytes of every part that is hashed.
///
/// # Errors
/// If there is no directory to look into. What is wrong inside is in the report.
pub fn verify_tree(
    path: impl AsRef<Path>,
    manifest: &Manifest,
    threads: Option<NonZero<usize>>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<VerifyReport, Error> {
    let (root, file_name) = locate(path.as_ref(), manifest);
    let place = Place::open(root, file_name)?;
    let mut jobs = Vec::new();
    for entry in manifest.entries() {
        let blocks = manifest.blocks_of(entry.id);
        if blocks.len() > 1 {
            let shares = work::shares(manifest, blocks);
            jobs.extend(shares.map(|blocks| Job {
                entry: entry.id,
                blocks,
            }));
        } else {
            let blocks = 0..0;
            jobs.push(Job {
                entry: entry.id,
                blocks,
            });
        }
    }
    debug_assert!(
        jobs.is_sorted_by(|a, b| a.entry < b.entry || a.blocks.end == b.blocks.start),
        "the jobs of an entry leave something out"
    );
    debug_assert!(jobs.len() >= manifest.entries().len());
    let faults = Mutex::new(Vec::new());
    let threads = threads.unwrap_or_else(work::default_threads);
    work::spread(threads, &jobs, |job, buf| {
        let entry = manifest.entry(job.entry);
        let found = check(&place, manifest, &entry, job, buf, progress);
        if let Some(problem) = found.unwrap_or_else(|errno| Some(Problem::Unreadable(errno))) {
            let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
            faults.push((job.entry, problem));
        }
        Ok::<_, Error>(())
    })?;
    let mut faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Parts of one file may each have found it wrong.
    faults.sort_by_key(|(entry, _)| *entry);
    faults.dedup_by_key(|(entry, _)| *entry);
    debug_assert!(faults.len() <= manifest.entries().len());
    let path = |entry| match manifest.kind() {
        Kind::File => manifest.entry(entry).name.to_vec(),
        Kind::Tree { .. } => manifest.path(entry),
    };
    Ok(VerifyReport {
        right: manifest.entries().len() - faults.len(),
        faults: faults
            .into_iter()
            .map(|(entry, problem)| Fault {
                path: path(entry),
                problem,
            })
            .collect(),
    })
}

fn check(
    place: &Place,
    manifest: &Manifest,
    entry: &Entry<'_>,
    job: &Job,
    buf: &mut Vec<u8>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<Problem>, Errno> {
    debug_assert_eq!(entry.id, job.entry);
    debug_assert_eq!(
        job.blocks.is_empty(),
        manifest.blocks_of(entry.id).len() < 2,
        "large files are compared block by block, and only they"
    );
    let stat = match place.stat(manifest, entry) {
        Ok(Some(stat)) => stat,
        // A file or a link where a directory on the way should be has its own report.
        Ok(None) | Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Some(Problem::Missing)),
        Err(errno) => return Err(errno),
    };
    let sort = match entry.content {
        Content::File { .. } | Content::Link { .. } => FileType::RegularFile,
        Content::Directory { .. } => FileType::Directory,
        Content::Symlink { .. } => FileType::Symlink,
    };
    if sys::type_of(&stat) != sort {
        return Ok(Some(Problem::Sort {
            found: sys::noun(sys::type_of(&stat)),
            expected: sys::noun(sort),
        }));
    }
    match entry.content {
        Content::Directory { .. } => Ok(None),
        Content::Link { to } => check_link(place, manifest, entry, to, buf),
        Content::Symlink { target } => {
            let dir = place.dir(manifest, entry.parent)?;
            let found = fs::readlinkat(&dir, place.name(entry), Vec::new())?;
            Ok((found.as_bytes() != target).then_some(Problem::Target))
        }
        Content::File { size, .. } => {
            let found = Bytes(stat.st_size as u64);
            if found != size {
                return Ok(Some(Problem::Size {
                    found,
                    expected: size,
                }));
            }
            let file = place.open_file(manifest, entry)?;
            let right = if job.blocks.is_empty() {
                progress(size.0);
                compare::small(manifest, entry.id, size.0, &file, buf)?
            } else {
                let mut right = 0;
                compare::large(manifest, &file, job.blocks.clone(), buf, |_, _, data| {
                    right += 1;
                    progress(data.len() as u64);
                    Ok::<_, Errno>(())
                })?;
                debug_assert!(right <= job.blocks.len());
                right == job.blocks.len()
            };
            Ok((!right).then_some(Problem::Content))
        }
    }
}

/// Whether a further name of a file leads to it, or at least to a copy.
fn check_link(
    place: &Place,
    manifest: &Manifest,
    entry: &Entry<'_>,
    to: EntryId,
    buf: &mut Vec<u8>,
) -> Result<Option<Problem>, Errno> {
    let file = manifest.entry(to);
    let here = place.open_file(manifest, entry)?;
    let stat = fs::fstat(&here)?;
    let same = |other: &Stat| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino);
    if place.stat(manifest, &file)?.is_some_and(|it| same(&it)) {
        // What is in it is said of the file.
        return Ok(None);
    }
    let Content::File { size, .. } = file.content else {
        return Ok(None);
    };
    let found = Bytes(stat.st_size as u64);
    if found != size {
        let expected = size;
        return Ok(Some(Problem::Size { found, expected }));
    }
    let blocks = manifest.blocks_of(to);
    let right = if blocks.len() < 2 {
        compare::small(manifest, to, size.0, &here, buf)?
    } else {
        let (all, mut right) = (blocks.len(), 0);
        compare::large(manifest, &here, blocks, buf, |_, _, _| {
            right += 1;
            Ok::<_, Errno>(())
        })?;
        right == all
    };
    Ok((!right).then_some(Problem::Content))
}
