//! The few system calls that need a loop or a conversion around them.

use std::io::IoSliceMut;

use outpour_core::manifest::MODE_MASK;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps,
    UTIME_OMIT,
};
use rustix::io::{Errno, ReadWriteFlags};

use crate::fs::{self, AsFd, OwnedFd};

/// Permission bits of a `st_mode`.
pub(crate) const fn mode_of(stat: &Stat) -> u16 {
    (stat.st_mode & 0o777) as u16
}

/// The same with setuid, setgid and sticky.
pub(crate) const fn full_mode_of(stat: &Stat) -> u16 {
    (stat.st_mode & 0o7777) as u16
}

pub(crate) fn type_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// What to call what is neither file, directory nor symlink.
pub(crate) fn noun(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something unknown",
    }
}

/// Modification time in nanoseconds since 1970; what does not fit becomes the nearest that does.
pub(crate) fn mtime_of(stat: &Stat) -> i64 {
    nanos(stat.st_mtime, stat.st_mtime_nsec)
}

/// When the file or anything about it was changed last, as [`mtime_of`].
pub(crate) fn ctime_of(stat: &Stat) -> i64 {
    nanos(stat.st_ctime, stat.st_ctime_nsec)
}

fn nanos(secs: i64, nanos: impl Into<i128>) -> i64 {
    let nanos = i128::from(secs) * 1_000_000_000 + nanos.into();
    nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Sets the modification time and leaves the access time.
pub(crate) fn mtime(nanos: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000),
        },
    }
}

/// A mode from bits that are known to be permission bits.
pub(crate) const fn mode(bits: u16) -> Mode {
    debug_assert!(bits & !MODE_MASK == 0, "more than permissions");
    Mode::from_raw_mode(bits as u32)
}

/// A mode from bits as [`full_mode_of`] gives them.
pub(crate) const fn full_mode(bits: u16) -> Mode {
    debug_assert!(bits & !0o7777 == 0, "more than a mode");
    Mode::from_raw_mode(bits as u32)
}

/// File systems that live in memory: tmpfs and ramfs.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// XFS, which has one journal, and what ext2, ext3 and ext4 have in common, which may have none.
const XFS: i64 = 0x5846_5342;
const EXT: i64 = 0xef53;

/// Whether a sync of one file in a file system makes the metadata of all others last, as they were
/// then. Where that is not known, it is not assumed.
pub(crate) fn commits_together(fd: impl AsFd) -> Result<bool, Errno> {
    Ok(match fs::kind(&fd)? {
        XFS => true,
        EXT => fs::has_journal(fs::fstat(&fd)?.st_dev),
        _ => false,
    })
}

/// Whether a file is in a file system that lives in memory.
#[cfg(all(test, not(feature = "simulated")))]
#[allow(clippy::unwrap_used)]
pub(crate) fn is_memory(file: impl AsFd) -> bool {
    MEMORY.contains(&fs::kind(file).unwrap())
}

/// How many bytes a file takes on its disk.
pub(crate) fn held(stat: &Stat) -> u64 {
    (stat.st_blocks as u64).saturating_mul(512)
}

/// How many bytes the file system of a file or directory has for us; `None` if it has no limit.
pub(crate) fn free(fd: impl AsFd) -> Result<Option<u64>, Errno> {
    let system = fs::fstatvfs(fd)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    // Where there is no limit there are no blocks at all.
    Ok((system.f_blocks > 0).then_some(free))
}

/// Makes a file `size` bytes long and reserves the space for them. What cannot fit is refused first:
/// a disk would be full for all processes until that shows. In memory, reserving would clear every
/// page at once while the first blocks wait, so there it is only seen to that there is room.
pub(crate) fn reserve(file: impl AsFd, size: u64) -> Result<(), Errno> {
    debug_assert!(size > 0, "the system refuses to reserve nothing");
    let kind = fs::kind(&file)?;
    let held = held(&fs::fstat(&file)?);
    if free(&file)?.is_some_and(|free| size > free.saturating_add(held)) {
        return Err(Errno::NOSPC);
    }
    if MEMORY.contains(&kind) {
        return fs::ftruncate(&file, size);
    }
    match fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fs::ftruncate(&file, size),
        result => result,
    }
}

/// Fills `buf` from `offset` on; returns fewer bytes than it holds only at the end of the file.
pub(crate) fn pread(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match fs::pread(&fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Fills `buf` from `offset` on with what is in memory already; false if the disk would have to be
/// asked.
pub(crate) fn pread_memory(fd: impl AsFd, buf: &mut [u8], offset: u64) -> bool {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut [IoSliceMut::new(&mut buf[done..])];
        match fs::preadv2(&fd, rest, offset + done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => return false,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Reads from `offset` on what one call gives; 0 at the end of the file.
pub(crate) fn pread_once(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    loop {
        match fs::pread(&fd, &mut *buf, offset) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Writes all of `data` at `offset`.
pub(crate) fn pwrite(fd: impl AsFd, data: &[u8], offset: u64) -> Result<(), Errno> {
    debug_assert!(
        offset.saturating_add(data.len() as u64) <= i64::MAX as u64,
        "no file is so long"
    );
    let mut done = 0;
    while done < data.len() {
        match fs::pwrite(&fd, &data[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Where holes begin and end: what file systems allocate at least.
const HOLE_BYTES: usize = 4096;

/// Writes all of `data` at `offset` of a file that is as long already; what is zero there becomes a
/// hole, or stays one. A file system without holes gets the zeros.
pub(crate) fn pwrite_sparse(fd: impl AsFd, data: &[u8], offset: u64) -> Result<(), Errno> {
    static ZEROS: [u8; HOLE_BYTES] = [0; HOLE_BYTES];
    let mut rest = data;
    let mut at = offset;
    // Cut where holes may begin.
    let mut pieces = std::iter::from_fn(|| {
        let len = HOLE_BYTES - (at % HOLE_BYTES as u64) as usize;
        let (piece, after) = rest.split_at(len.min(rest.len()));
        (rest, at) = (after, at + piece.len() as u64);
        (!piece.is_empty()).then(|| (piece.len(), *piece == ZEROS[..piece.len()]))
    })
    .peekable();
    let mut done = 0;
    while let Some((len, zero)) = pieces.next() {
        let mut end = done + len;
        while let Some((len, _)) = pieces.next_if(|(_, other)| *other == zero) {
            end += len;
        }
        let run = &data[done..end];
        match zero {
            true => make_hole(&fd, run, offset + done as u64)?,
            false => pwrite(&fd, run, offset + done as u64)?,
        }
        done = end;
    }
    debug_assert_eq!(done, data.len(), "a run was left out");
    Ok(())
}

/// Makes a hole for zeros at `offset`, if there is none. What another attempt has written there would be
/// read otherwise.
fn make_hole(fd: impl AsFd, zeros: &[u8], offset: u64) -> Result<(), Errno> {
    let len = zeros.len() as u64;
    match fs::seek(&fd, SeekFrom::Data(offset)) {
        Ok(data) if data >= offset + len => return Ok(()),
        Err(Errno::NXIO) => return Ok(()),
        // There is data, or the file system does not know.
        Ok(_) | Err(_) => {}
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fs::fallocate(&fd, flags, offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => pwrite(&fd, zeros, offset),
        result => result,
    }
}

/// Makes the length of a reused buffer `len`; what it holds then is arbitrary.
pub(crate) fn resize(buf: &mut Vec<u8>, len: usize) {
    // Zeroes only what the buffer grows by.
    buf.resize(len, 0);
}

/// Whether an entry exists, looking at the entry itself.
pub(crate) fn lstat(dir: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory by its name in another, unless it is a symlink.
pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// What was opened, or nothing if there is nothing of its kind or it is closed to us. Other errors
/// leave open what is there.
pub(crate) fn if_reachable<T>(opened: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        // The last ones are of pipes, sockets and devices, and of links that lead out.
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NXIO
            | Errno::NODEV
            | Errno::LOOP
            | Errno::XDEV,
        ) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Ignores that what is to be removed is gone.
pub(crate) fn gone_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// How often a directory is tried to be removed in which the file system itself has something yet.
const TRIES: usize = 1000;

/// Removes the empty directory `name` in `parent`, which is open as `dir`. FUSE and NFS give a file that is
/// removed while it is open another name until it was closed, which they may learn a moment later.
///
/// # Errors
/// [`Errno::NOTEMPTY`] if something else is in it; others of the file system.
pub(crate) fn remove_dir(parent: impl AsFd, name: &[u8], dir: impl AsFd) -> Result<(), Errno> {
    let is_hidden = |name: &Vec<u8>| name.starts_with(b".fuse_hidden") || name.starts_with(b".nfs");
    for _ in 1..TRIES {
        match fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) if fs::names(&dir)?.iter().all(is_hidden) => {
                std::thread::yield_now();
            }
            result => return result,
        }
    }
    fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn zeros_become_holes_whatever_was_there() {
        const SIZE: usize = 256 << 10;
        let file = tempfile::tempfile().unwrap();
        fs::ftruncate(&file, SIZE as u64).unwrap();
        let mut data = vec![0; SIZE];
        // At either end, in the middle, and across a border.
        for at in [0, 4095, 70_000, 131_071, 131_072, SIZE - 1] {
            data[at] = 7;
        }
        let whole = |file: &std::fs::File| {
            let mut read = vec![1; SIZE];
            assert_eq!(pread(file, &mut read, 0).unwrap(), SIZE);
            read
        };
        // In parts that end anywhere.
        for at in (0..SIZE).step_by(10_001) {
            let part = &data[at..SIZE.min(at + 10_001)];
            pwrite_sparse(&file, part, at as u64).unwrap();
        }
        assert_eq!(whole(&file), data);
        let sparse = held(&fs::fstat(&file).unwrap());
        assert!(sparse < SIZE as u64 / 2, "{sparse} bytes are allocated");
        pwrite(&file, &vec![9; SIZE], 0).unwrap();
        pwrite_sparse(&file, &data, 0).unwrap();
        assert_eq!(whole(&file), data);
        let again = held(&fs::fstat(&file).unwrap());
        assert!(again < SIZE as u64 / 2, "{again} bytes are allocated");
    }

    #[test]
    fn room_is_reserved_or_refused_and_memory_is_left_alone() {
        // Both a disk and, where there is one, memory.
        let places = [std::env::temp_dir(), "/dev/shm".into()];
        for place in places.iter().filter(|place| place.is_dir()) {
            let file = tempfile::tempfile_in(place).unwrap();
            reserve(&file, 1 << 20).unwrap();
            let stat = fs::fstat(&file).unwrap();
            assert_eq!(stat.st_size, 1 << 20, "{}", place.display());
            let memory = is_memory(&file);
            assert!(!memory || stat.st_blocks == 0, "{}", place.display());
            let system = rustix::fs::fstatfs(&file).unwrap();
            if system.f_blocks > 0 {
                let all = system.f_blocks * system.f_bsize as u64;
                assert!(reserve(&file, 2 * all).is_err(), "{}", place.display());
            }
        }
    }
}
