//! The object where it comes from.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use outpour_core::manifest::{
    BlockSize, Builder, Content, Entry, EntryId, Extent, Layout, Manifest,
};
use outpour_core::{BlockId, Bytes};
use rustix::fs::{Advice, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::cache::Cache;
use crate::confine::confined;
use crate::error::{Damage, Error};
use crate::fs::{self, OwnedFd};
use crate::mark::Mark;
use crate::place::{Place, Top};
use crate::roots::{self, Roots};
use crate::scan::{Part, Walked};
use crate::work::Stop;
use crate::{scan, sys, work};

/// How many large files a source keeps open.
const FILES_MAX: usize = 64;

/// How a manifest is built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// How large the blocks are.
    pub block: BlockSize,
    /// How many threads hash; by default one per available core.
    pub threads: NonZero<usize>,
    /// What is described of entries, where there is not a survey yet.
    pub attributes: Attributes,
    /// Ends it before its time.
    pub stop: Stop,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            block: BlockSize::Usual,
            threads: work::default_threads(),
            attributes: Attributes::default(),
            stop: Stop::default(),
        }
    }
}

/// What is described of entries beside names, contents, modes and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// Nothing.
    #[default]
    Left,
    /// Owners, attributes, hard links and holes, to be kept where a destination can.
    Kept,
}

impl Attributes {
    /// Kept if `archive` says so.
    pub const fn if_archive(archive: bool) -> Self {
        match archive {
            true => Self::Kept,
            false => Self::Left,
        }
    }

    const fn are_kept(self) -> bool {
        matches!(self, Self::Kept)
    }
}

/// Describes the file or tree at `path` and hashes it, calling `progress` with the number of bytes
/// of every part that is hashed, from any thread.
///
/// A link at `path` itself is followed, none inside the tree is. The same files give the same
/// manifest, however many threads hash them.
///
/// # Errors
/// If something cannot be read, is neither file, directory nor symlink, must not occur in an
/// object (see [`ManifestError`](outpour_core::manifest::ManifestError)), or changes meanwhile.
pub fn build(
    path: impl AsRef<Path>,
    options: &BuildOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Manifest, Source), Error> {
    Survey::of(path, options.attributes)?.hash(options, progress)
}

/// What is at a source, before any of it is read.
#[derive(Debug)]
pub struct Survey {
    files: Files,
    builder: Builder,
}

impl Survey {
    /// Walks the file or tree at `path`.
    ///
    /// # Errors
    /// As [`build`].
    pub fn of(path: impl AsRef<Path>, keep: Attributes) -> Result<Self, Error> {
        let (place, walked) = survey(path.as_ref(), keep.are_kept())?;
        Ok(Self::at(place, walked))
    }

    fn at(place: Place, walked: Walked) -> Self {
        Self {
            files: Files::new(place, walked.marks),
            builder: walked.builder,
        }
    }

    /// Walks the files and trees at `paths`. They make one tree, in which each has its own name.
    ///
    /// # Errors
    /// As [`build`]; and if two have the same name, or one has none.
    pub fn of_several(paths: &[PathBuf], keep: Attributes) -> Result<Self, Error> {
        let mut parts = BTreeMap::new();
        let mut tops = BTreeMap::new();
        for path in paths {
            let (name, part, top) = part(path)?;
            if tops.insert(name.clone(), top).is_some() {
                let path = path.clone();
                return Err(Error::SameName { path, name });
            }
            parts.insert(name, part);
        }
        debug_assert!(parts.keys().eq(tops.keys()));
        let walked = scan::several(&parts, keep.are_kept())?;
        Ok(Self::at(Place::several(tops)?, walked))
    }

    /// Walks the file or tree at `path`, which has to lie beneath one of `roots`. Unlike in
    /// [`Survey::of`], no link is followed, not even one at `path` itself.
    ///
    /// # Errors
    /// As [`build`]; and if the path does not lie there.
    pub fn beneath(path: &Path, roots: &Roots, keep: Attributes) -> Result<Self, Error> {
        let found = roots::find(path, roots)?;
        let place = Place::at(found.dir, found.path, found.file_name.clone());
        let walked = match found.file_name {
            Some(name) => scan::file(&place, &name, &name, keep.are_kept())?,
            None => scan::tree(&place, keep.are_kept())?,
        };
        Ok(Self::at(place, walked))
    }

    /// Bytes of all files.
    pub const fn size(&self) -> Bytes {
        self.builder.size()
    }

    /// How much memory it takes, and its manifest and source will take once it is hashed in blocks of so many
    /// bytes, in bytes: entries and marks, then hashes, and both once more as they are encoded.
    pub fn memory(&self, block_bytes: u32) -> Bytes {
        let marks = self.files.marks.len() * size_of::<Mark>();
        let entries = self.builder.memory().0;
        let blocks = self.size().0.div_ceil(u64::from(block_bytes.max(1)));
        let hashes = 32 * (self.files.marks.len() as u64 + blocks);
        Bytes(marks as u64 + 2 * entries + 3 * hashes)
    }

    /// Describes what is there and hashes it, as [`build`] does.
    ///
    /// # Errors
    /// As [`build`].
    pub fn hash(
        self,
        options: &BuildOptions,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(Manifest, Source), Error> {
        let layout = self.builder.finish(options.block)?;
        hash(self.files, layout, options, progress)
    }
}

fn hash(
    files: Files,
    layout: Layout,
    options: &BuildOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Manifest, Source), Error> {
    debug_assert_eq!(
        files.marks.len(),
        layout.entries().len(),
        "each entry has a mark"
    );
    debug_assert!(!files.hashed);
    let hashes = Mutex::new(vec![[0; 32]; layout.hashes()]);
    let jobs: Vec<_> = work::shares(&layout, 0..layout.blocks()).collect();
    work::spread(options.threads, &jobs, |blocks, buf| {
        let mut found = Vec::new();
        for block in blocks.clone() {
            options.stop.check()?;
            files.read(&layout, block, buf)?;
            let hashed = layout.hash_block(block, buf, |number, hash| found.push((number, hash)));
            debug_assert!(hashed, "a block of another length");
            progress(buf.len() as u64);
        }
        let mut hashes = hashes.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, hash) in found {
            hashes[number] = hash;
        }
        Ok::<_, Error>(())
    })?;
    let hashes = hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
    debug_assert!(
        hashes.iter().all(|hash| *hash != [0; 32]),
        "something was not hashed"
    );
    let manifest = Manifest::new(layout, hashes)?;
    let source = Source {
        files: Box::new(files.hashed()),
        manifest: manifest.clone(),
    };
    Ok((manifest, source))
}

fn survey(path: &Path, archive: bool) -> Result<(Place, Walked), Error> {
    let stat = fs::stat(path).map_err(|errno| Error::new(path, "read the source", errno))?;
    if sys::type_of(&stat) == FileType::Directory {
        let place = Place::open(path.to_path_buf(), None)?;
        let walked = scan::tree(&place, archive)?;
        return Ok((place, walked));
    }
    let real = real(path)?;
    let name = |path: &Path| path.file_name().map(|name| name.as_bytes().to_vec());
    let (Some(given), Some(found), Some(dir)) = (name(path), name(&real), real.parent()) else {
        return Err(Error::new(path, "read the source", Errno::NOENT));
    };
    let place = Place::open(dir.to_path_buf(), Some(found.clone()))?;
    let walked = scan::file(&place, &found, &given, archive)?;
    Ok((place, walked))
}

/// Where a link at `path` leads, if it is one: below no link is followed.
fn real(path: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(path).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Error::new(path, "read the source", errno)
    })
}

/// One of several sources: its name, and where it is.
fn part(path: &Path) -> Result<(Vec<u8>, Part, Top), Error> {
    let failed = |errno| Error::new(path, "read the source", errno);
    let real = real(path)?;
    let name = |path: &Path| path.file_name().map(|name| name.as_bytes().to_vec());
    let (Some(found), Some(dir)) = (name(&real), real.parent()) else {
        return Err(failed(Errno::INVAL));
    };
    // A link's own name counts, as it does for a single source.
    let given = name(path).unwrap_or_else(|| found.clone());
    let passing = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(dir, passing, Mode::empty()).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let part = match confined(&dir, &found, flags) {
        Ok(tree) => Part::Tree(Place::at(tree, path.to_path_buf(), None)),
        Err(Errno::NOTDIR) => {
            let dir = fs::fcntl_dupfd_cloexec(&dir, 0).map_err(failed)?;
            Part::File(Place::at(dir, shown_dir(path), None), found.clone())
        }
        Err(errno) => return Err(failed(errno)),
    };
    let top = Top {
        dir,
        name: found,
        path: path.to_path_buf(),
    };
    Ok((given, part, top))
}

/// The directory that a file is in, for messages.
fn shown_dir(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The files an object was made of, to read its blocks from.
///
/// A file that changed after it was hashed is an error, never wrong bytes: what is read from memory
/// is proved to be unchanged by the file's times; what the disk has to be asked for, which may give
/// anything, is hashed again.
#[derive(Debug)]
pub struct Source {
    files: Box<Files>,
    manifest: Manifest,
}

impl Source {
    /// The object.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads a block; `buf` then holds it and nothing else.
    ///
    /// # Errors
    /// If a file of the block changed, or cannot be read; if there is no such block.
    pub fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> Result<(), Error> {
        if block >= self.manifest.blocks() {
            return Err(Error::Absent { block });
        }
        debug_assert!(self.files.hashed);
        let proved = self.files.read(&self.manifest, block, buf)?;
        debug_assert_eq!(buf.len(), self.manifest.block_len(block) as usize);
        if proved || self.manifest.verify(block, buf) {
            return Ok(());
        }
        Err(self.explain(block, buf))
    }

    /// Why a block is not what was hashed.
    fn explain(&self, block: BlockId, data: &[u8]) -> Error {
        let Some(file) = self.first_wrong(block, data) else {
            return Error::Absent { block };
        };
        let entry = self.manifest.entry(file);
        let path = self.files.place.path_of(&self.manifest, file);
        let stat = self.files.place.stat(&self.manifest, &entry);
        let same =
            stat.is_ok_and(|stat| stat.is_some_and(|stat| self.files.mark(file).proves(&stat)));
        if same {
            let damage = Damage::Disk;
            return Error::Damaged { path, damage };
        }
        Error::SourceChanged { path }
    }

    /// Which file has made a block wrong.
    fn first_wrong(&self, block: BlockId, data: &[u8]) -> Option<EntryId> {
        let mut extents = self.manifest.extents(block);
        if !self.manifest.is_pack(block) {
            return extents.next().map(|extent| extent.file);
        }
        debug_assert_eq!(data.len(), self.manifest.block_len(block) as usize);
        let mut rest = data;
        let wrong = extents.find(|extent| {
            let (part, after) = rest.split_at(extent.len as usize);
            rest = after;
            self.manifest.file_hash(extent.file) != Some(blake3::hash(part))
        });
        wrong.map(|extent| extent.file)
    }
}

/// Reads files that must be as their entries say.
#[derive(Debug)]
struct Files {
    place: Place,
    /// By entry; each was made before the file was hashed.
    marks: Vec<Mark>,
    open: Cache<OwnedFd>,
    /// Whether everything was read once, so that what is in memory is what was hashed.
    hashed: bool,
    /// Whether the disk had to be asked since: then memory has bytes that were not hashed.
    cold: AtomicBool,
}

impl Files {
    fn new(place: Place, marks: Vec<Mark>) -> Self {
        let open = Cache::new(FILES_MAX);
        Self {
            place,
            marks,
            open,
            hashed: false,
            cold: AtomicBool::new(false),
        }
    }

    /// From now on, what is read from memory is taken for what was hashed.
    fn hashed(mut self) -> Self {
        // They are opened anew for this.
        self.open.clear();
        self.hashed = true;
        self
    }

    fn mark(&self, file: EntryId) -> Mark {
        self.marks.get(file.index()).copied().unwrap_or(Mark::NONE)
    }

    /// Reads a block; says whether its bytes are proved to be those that were hashed.
    fn read(&self, layout: &Layout, block: BlockId, buf: &mut Vec<u8>) -> Result<bool, Error> {
        sys::resize(buf, layout.block_len(block) as usize);
        let mut rest = &mut buf[..];
        let mut proved = true;
        for extent in layout.extents(block) {
            let (part, after) = rest.split_at_mut(extent.len as usize);
            let entry = layout.entry(extent.file);
            proved &= self
                .read_extent(layout, &entry, extent, part)
                .map_err(|errno| {
                    let path = self.place.path_of(layout, extent.file);
                    match errno {
                        // It was there: it was listed.
                        None | Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {
                            Error::SourceChanged { path }
                        }
                        Some(errno) => Error::new(path, "read the file", errno),
                    }
                })?;
            rest = after;
        }
        debug_assert!(rest.is_empty(), "a block is longer than its parts");
        debug_assert!(self.hashed || !proved, "nothing proves what was not hashed");
        Ok(proved)
    }

    /// Reads a part of a file and says whether it is proved to be what it was; `Err(None)` if it
    /// is not.
    fn read_extent(
        &self,
        layout: &Layout,
        entry: &Entry<'_>,
        extent: Extent,
        part: &mut [u8],
    ) -> Result<bool, Option<Errno>> {
        debug_assert_eq!(entry.id, extent.file);
        debug_assert_eq!(part.len(), extent.len as usize);
        debug_assert!(!part.is_empty(), "no block has a part without bytes");
        let open = || {
            let file = self.place.open_file(layout, entry)?;
            if self.hashed {
                // What is read ahead would pass for what was in memory since it was hashed.
                fs::fadvise(&file, 0, None, Advice::Random)?;
            }
            Ok::<_, Errno>(file)
        };
        if let Content::File { size, .. } = entry.content
            && size.0 == part.len() as u64
        {
            // The whole file: it is not worth a place in the cache.
            return self.read_checked(&open()?, entry, extent.offset, part);
        }
        let file = self.open.get(entry.id.0, open)?;
        self.read_checked(&file, entry, extent.offset, part)
    }

    /// Reads and only then looks whether the file is as described: a change before the look shows.
    fn read_checked(
        &self,
        file: &OwnedFd,
        entry: &Entry<'_>,
        offset: u64,
        part: &mut [u8],
    ) -> Result<bool, Option<Errno>> {
        // What nothing can prove is hashed, wherever it comes from.
        let provable = self.hashed && self.mark(entry.id) != Mark::NONE;
        let remembered = provable && self.read_memory(file, offset, part);
        let read = match remembered {
            true => part.len(),
            false => sys::pread(file, part, offset)?,
        };
        let stat = fs::fstat(file)?;
        let Content::File { size, .. } = entry.content else {
            return Err(None);
        };
        debug_assert!(offset + part.len() as u64 <= size.0);
        let same = read == part.len()
            && sys::type_of(&stat) == FileType::RegularFile
            && stat.st_size as u64 == size.0
            && sys::mtime_of(&stat) == entry.mtime_ns;
        if same {
            Ok(remembered && self.mark(entry.id).proves(&stat))
        } else {
            Err(None)
        }
    }

    /// Reads what has been in memory since it was hashed; false if it may have come from the disk, by
    /// this read or by one at the same time.
    fn read_memory(&self, file: &OwnedFd, offset: u64, part: &mut [u8]) -> bool {
        if self.cold.load(Ordering::SeqCst) {
            return false;
        }
        // A read that must not wait asks the disk, too, and waits for nothing only if that is slow.
        let range = offset..offset + part.len() as u64;
        let read = fs::is_in_memory(file, range).is_ok_and(|all| all)
            && sys::pread_memory(file, part, offset);
        if !read {
            // Before the disk is asked, so that whoever finds its bytes in memory finds this.
            self.cold.store(true, Ordering::SeqCst);
        }
        read && !self.cold.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn to_look_into_memory_does_not_ask_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let (_, source) = build(&path, &BuildOptions::default(), &|_| {}).unwrap();
        let file = OwnedFd::from(std::fs::File::open(&path).unwrap());
        let mut part = vec![0; 1 << 20];
        if sys::is_memory(&file) {
            eprintln!("SKIPPED: temporary files are in memory");
            return;
        }
        assert!(source.files.read_memory(&file, 0, &mut part));
        fs::fsync(&file).unwrap();
        fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert!(!source.files.read_memory(&file, 0, &mut part));
        // A read that is on its way would show.
        assert!(!fs::is_in_memory(&file, 0..4096).unwrap());
        // Whoever brings it there, it is not what was hashed.
        sys::pread(&file, &mut part, 0).unwrap();
        assert!(fs::is_in_memory(&file, 0..1 << 20).unwrap());
        assert!(!source.files.read_memory(&file, 0, &mut part));
    }
}
