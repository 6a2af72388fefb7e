//! The calls of the store, answered by a simulated disk. Descriptors are numbers that only that disk knows,
//! and each thread has a disk of its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{
    Access, Advice, AtFlags, FallocateFlags, FlockOperation, Gid, IFlags, Mode, OFlags,
    RenameFlags, ResolveFlags, SeekFrom, Stat, StatVfs, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::path::Arg;

use crate::simulated::disk::{Disk, Open};

thread_local! {
    static DISK: RefCell<Option<Box<Disk>>> = const { RefCell::new(None) };
    static BETWEEN: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Gives this thread another disk, or none; returns the one it had.
pub(crate) fn swap(disk: Option<Box<Disk>>) -> Option<Box<Disk>> {
    DISK.with(|slot| slot.replace(disk))
}

/// Does something with this thread's disk.
pub(crate) fn with<T>(act: impl FnOnce(&mut Disk) -> T) -> Option<T> {
    let act = |slot: &RefCell<Option<Box<Disk>>>| slot.borrow_mut().as_deref_mut().map(act);
    DISK.try_with(act).ok().flatten()
}

/// Sets what is done before a call during which other threads could get on with theirs.
pub(crate) fn set_between(act: Option<fn()>) {
    BETWEEN.set(act);
}

fn between() {
    // What is done meanwhile is not interrupted itself.
    if let Some(act) = BETWEEN.take() {
        act();
        BETWEEN.set(Some(act));
    }
}

fn ask<T>(call: impl FnOnce(&mut Disk) -> Result<T, Errno>) -> Result<T, Errno> {
    with(call).unwrap_or(Err(Errno::NODEV))
}

fn ask_at<P: Arg, T>(
    path: P,
    call: impl FnOnce(&mut Disk, &[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    path.into_with_c_str(|path| ask(|disk| call(disk, path.to_bytes())))
}

// ---- descriptors

#[derive(Debug)]
pub(crate) struct OwnedFd(u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct BorrowedFd<'fd>(u32, PhantomData<&'fd OwnedFd>);

pub(crate) trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(self.0, PhantomData)
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

impl<T: AsFd + ?Sized> AsFd for Arc<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        with(|disk| disk.close(self.0));
    }
}

fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().0
}

// ---- the machine

pub(crate) const ONE_THREAD: bool = true;

pub(crate) fn draw() -> u64 {
    with(Disk::draw).unwrap_or_default()
}

/// The jobs are taken in turn, from one that is drawn on, forwards or backwards.
pub(crate) const fn turn(draw: u64, nth: usize, jobs: usize) -> usize {
    if nth >= jobs {
        return nth;
    }
    let first = (draw >> 1) as usize % jobs;
    let along = if draw & 1 == 0 { nth } else { jobs - 1 - nth };
    (first + along) % jobs
}

pub(crate) fn now() -> Instant {
    with(|disk| disk.now()).unwrap_or_else(Instant::now)
}

pub(crate) fn euid() -> u32 {
    with(|disk| disk.user()).unwrap_or_default()
}

pub(crate) fn has_journal(_dev: u64) -> bool {
    with(|disk| disk.has_journal()).unwrap_or_default()
}

pub(crate) fn is_in_memory(_file: impl AsFd, _range: std::ops::Range<u64>) -> io::Result<bool> {
    Ok(false)
}

// ---- names

pub(crate) fn open<P: Arg>(path: P, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    ask_at(path, |disk, path| {
        disk.open(Open::at(None, path, flags, mode)).map(OwnedFd)
    })
}

pub(crate) fn openat<P: Arg>(
    dir: impl AsFd,
    path: P,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let dir = number(&dir);
    ask_at(path, |disk, path| {
        disk.open(Open::at(Some(dir), path, flags, mode))
            .map(OwnedFd)
    })
}

pub(crate) fn openat2<P: Arg>(
    dir: impl AsFd,
    path: P,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let dir = number(&dir);
    let confined = !resolve.is_empty();
    ask_at(path, |disk, path| {
        let mut open = Open::at(Some(dir), path, flags, mode);
        open.confined = confined;
        disk.open(open).map(OwnedFd)
    })
}

pub(crate) fn fcntl_dupfd_cloexec(fd: impl AsFd, _from: i32) -> Result<OwnedFd, Errno> {
    ask(|disk| disk.duplicate(number(&fd)).map(OwnedFd))
}

pub(crate) fn stat<P: Arg>(path: P) -> Result<Stat, Errno> {
    ask_at(path, |disk, path| disk.stat_at(None, path, true))
}

pub(crate) fn statat<P: Arg>(dir: impl AsFd, path: P, flags: AtFlags) -> Result<Stat, Errno> {
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    let dir = number(&dir);
    ask_at(path, |disk, path| disk.stat_at(Some(dir), path, follow))
}

pub(crate) fn accessat<P: Arg>(
    dir: impl AsFd,
    path: P,
    access: Access,
    _flags: AtFlags,
) -> Result<(), Errno> {
    let dir = number(&dir);
    ask_at(path, |disk, path| disk.access(dir, path, access))
}

pub(crate) fn mkdirat<P: Arg>(dir: impl AsFd, path: P, mode: Mode) -> Result<(), Errno> {
    let dir = number(&dir);
    ask_at(path, |disk, path| disk.make_dir(dir, path, mode))
}

pub(crate) fn symlinkat<P: Arg, Q: Arg>(target: P, dir: impl AsFd, name: Q) -> Result<(), Errno> {
    let dir = number(&dir);
    target.into_with_c_str(|target| {
        ask_at(name, |disk, name| {
            disk.make_link(dir, name, target.to_bytes())
        })
    })
}

pub(crate) fn readlinkat<P: Arg>(
    dir: impl AsFd,
    path: P,
    _reuse: Vec<u8>,
) -> Result<std::ffi::CString, Errno> {
    let dir = number(&dir);
    let target = ask_at(path, |disk, path| disk.read_link(dir, path))?;
    std::ffi::CString::new(target).map_err(|_| Errno::IO)
}

pub(crate) fn unlinkat<P: Arg>(dir: impl AsFd, path: P, flags: AtFlags) -> Result<(), Errno> {
    let dir = number(&dir);
    let is_dir = flags.contains(AtFlags::REMOVEDIR);
    ask_at(path, |disk, path| disk.unlink(dir, path, is_dir))
}

pub(crate) fn renameat<P: Arg, Q: Arg>(
    from: impl AsFd,
    name: P,
    to: impl AsFd,
    new: Q,
) -> Result<(), Errno> {
    between();
    renameat_with(from, name, to, new, RenameFlags::empty())
}

pub(crate) fn renameat_with<P: Arg, Q: Arg>(
    from: impl AsFd,
    name: P,
    to: impl AsFd,
    new: Q,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let (from, to) = (number(&from), number(&to));
    let replace = !flags.contains(RenameFlags::NOREPLACE);
    name.into_with_c_str(|name| {
        ask_at(new, |disk, new| {
            disk.rename((from, name.to_bytes()), (to, new), replace)
        })
    })
}

pub(crate) fn names(dir: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    ask(|disk| disk.names(number(&dir)))
}

// ---- what is known of a file

pub(crate) fn fstat(fd: impl AsFd) -> Result<Stat, Errno> {
    ask(|disk| disk.stat(number(&fd)))
}

pub(crate) fn kind(fd: impl AsFd) -> Result<i64, Errno> {
    ask(|disk| disk.kind(number(&fd)))
}

pub(crate) fn fstatvfs(fd: impl AsFd) -> Result<StatVfs, Errno> {
    ask(|disk| disk.stat_vfs(number(&fd)))
}

pub(crate) fn fchmod(fd: impl AsFd, mode: Mode) -> Result<(), Errno> {
    ask(|disk| disk.chmod(number(&fd), mode, false))
}

pub(crate) fn chmod_found(found: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    ask(|disk| disk.chmod(found.0, mode, true))
}

pub(crate) fn chmodat<P: Arg>(
    dir: impl AsFd,
    path: P,
    mode: Mode,
    _flags: AtFlags,
) -> Result<(), Errno> {
    let dir = number(&dir);
    ask_at(path, |disk, path| disk.chmod_at(dir, path, mode))
}

pub(crate) fn futimens(fd: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
    ask(|disk| disk.set_times(number(&fd), times))
}

pub(crate) fn utimensat<P: Arg>(
    dir: impl AsFd,
    path: P,
    times: &Timestamps,
    _flags: AtFlags,
) -> Result<(), Errno> {
    let dir = number(&dir);
    ask_at(path, |disk, path| disk.set_times_at(dir, path, times))
}

// ---- bytes

pub(crate) fn pread(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    ask(|disk| disk.read(number(&fd), buf, offset))
}

pub(crate) fn preadv2(
    _fd: impl AsFd,
    _bufs: &mut [io::IoSliceMut<'_>],
    _offset: u64,
    _flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    // Nothing is ever in memory.
    Err(Errno::AGAIN)
}

pub(crate) fn pwrite(fd: impl AsFd, data: &[u8], offset: u64) -> Result<usize, Errno> {
    ask(|disk| disk.write(number(&fd), data, offset))
}

pub(crate) fn ftruncate(fd: impl AsFd, len: u64) -> Result<(), Errno> {
    ask(|disk| disk.truncate(number(&fd), len))
}

pub(crate) fn fallocate(
    fd: impl AsFd,
    flags: FallocateFlags,
    offset: u64,
    len: u64,
) -> Result<(), Errno> {
    if flags.contains(FallocateFlags::PUNCH_HOLE) {
        return Err(Errno::OPNOTSUPP);
    }
    ask(|disk| disk.allocate(number(&fd), offset + len))
}

pub(crate) fn fadvise(
    fd: impl AsFd,
    _offset: u64,
    _len: Option<std::num::NonZeroU64>,
    advice: Advice,
) -> Result<(), Errno> {
    match advice {
        Advice::DontNeed => ask(|disk| disk.forget(number(&fd))),
        _ => Ok(()),
    }
}

pub(crate) fn fsync(fd: impl AsFd) -> Result<(), Errno> {
    between();
    ask(|disk| disk.sync(number(&fd), false))
}

pub(crate) fn fdatasync(fd: impl AsFd) -> Result<(), Errno> {
    between();
    ask(|disk| disk.sync(number(&fd), true))
}

pub(crate) mod writeback {
    use super::*;

    pub(crate) fn start(fd: impl AsFd) -> io::Result<()> {
        Ok(ask(|disk| disk.write_back(number(&fd), false))?)
    }

    pub(crate) fn finish(fd: impl AsFd) -> io::Result<()> {
        between();
        Ok(ask(|disk| disk.write_back(number(&fd), true))?)
    }
}

// ---- locks and leases

pub(crate) fn flock(fd: impl AsFd, operation: FlockOperation) -> Result<(), Errno> {
    ask(|disk| disk.lock(number(&fd), operation))
}

pub(crate) mod lease {
    use super::*;

    pub(crate) fn take(fd: impl AsFd) -> io::Result<()> {
        Ok(ask(|disk| disk.lease(number(&fd)))?)
    }

    pub(crate) fn is_intact(fd: impl AsFd) -> io::Result<bool> {
        Ok(ask(|disk| disk.is_leased(number(&fd)))?)
    }

    pub(crate) fn release(fd: impl AsFd) -> io::Result<()> {
        Ok(ask(|disk| disk.release(number(&fd)))?)
    }
}

// ---- what this disk has not: holes, extended attributes, hard links, owners

pub(crate) fn seek(_fd: impl AsFd, _to: SeekFrom) -> Result<u64, Errno> {
    Err(Errno::INVAL)
}

pub(crate) fn flistxattr_query(_fd: impl AsFd) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn flistxattr(_fd: impl AsFd, _names: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn fgetxattr_query(_fd: impl AsFd, _name: &[u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn fgetxattr(_fd: impl AsFd, _name: &[u8], _value: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn fsetxattr(
    _fd: impl AsFd,
    _name: &[u8],
    _value: &[u8],
    _flags: XattrFlags,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn fremovexattr(_fd: impl AsFd, _name: &[u8]) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn ioctl_getflags(_fd: impl AsFd) -> Result<IFlags, Errno> {
    Err(Errno::NOTTY)
}

pub(crate) fn linkat<P: Arg, Q: Arg>(
    _from: impl AsFd,
    _path: P,
    _to: impl AsFd,
    _new: Q,
    _flags: AtFlags,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn fchown(
    _fd: impl AsFd,
    _owner: Option<Uid>,
    _group: Option<Gid>,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn chownat<P: Arg>(
    _dir: impl AsFd,
    _path: P,
    _owner: Option<Uid>,
    _group: Option<Gid>,
    _flags: AtFlags,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}
