//! What the store asks the operating system for: everything about files goes through here.
//!
//! These are the calls themselves. The crate `outpour-disks` compiles the store with others in their place,
//! which ask a disk that is simulated.

use std::os::fd::AsRawFd;
use std::time::Instant;

use rustix::io::Errno;

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use outpour_system::residency::is_in_memory;
pub(crate) use outpour_system::{lease, writeback};
pub(crate) use rustix::fs::{
    accessat, chmodat, chownat, fadvise, fallocate, fchmod, fchown, fdatasync, fgetxattr,
    fgetxattr_query, flistxattr, flistxattr_query, flock, fremovexattr, fsetxattr, fstat, fstatvfs,
    fsync, ftruncate, futimens, ioctl_getflags, linkat, mkdirat, open, openat, openat2, readlinkat,
    renameat, renameat_with, seek, stat, statat, symlinkat, unlinkat, utimensat,
};
pub(crate) use rustix::io::{fcntl_dupfd_cloexec, pread, preadv2, pwrite};

/// The time of a clock that only goes forward.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The user that we are.
pub(crate) fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether no threads are started, because whoever drives the one there is decides on the order.
pub(crate) const ONE_THREAD: bool = false;

/// What decides on the order of jobs.
pub(crate) const fn draw() -> u64 {
    0
}

/// Which of so many jobs is taken as the one of number `nth`.
pub(crate) const fn turn(_draw: u64, nth: usize, _jobs: usize) -> usize {
    nth
}

/// What kind of file system a file is in, as `statfs` says.
pub(crate) fn kind(file: impl AsFd) -> Result<i64, Errno> {
    Ok(rustix::fs::fstatfs(file)?.f_type as i64)
}

/// The names in a directory, in no order.
pub(crate) fn names(dir: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Sets the mode of what was opened as a path only: its number in `/proc` leads to that inode and
/// to no other, whatever has its name by now.
pub(crate) fn chmod_found(found: &OwnedFd, mode: rustix::fs::Mode) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    match rustix::fs::chmod(path, mode) {
        // Without /proc it stays closed.
        Err(Errno::NOENT) => Err(Errno::ACCESS),
        result => result,
    }
}

/// Whether the ext4 on a device writes a journal.
pub(crate) fn has_journal(dev: u64) -> bool {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let device = device.ok();
    let name = device.as_deref().and_then(std::path::Path::file_name);
    let writer = name.map(|name| {
        let known = std::path::Path::new("/sys/fs/ext4").join(name);
        std::fs::read_to_string(known.join("journal_task"))
    });
    // The number of the process that writes it, which may be 0 where that is not to be seen.
    matches!(writer, Some(Ok(number)) if number.trim().parse::<u32>().is_ok())
}
