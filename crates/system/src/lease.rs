//! Leases on files: proof that no other process has opened a file since the lease was taken.
//!
//! A lease is granted if no other process has the file open, and ends as soon as one opens or
//! truncates it. That process waits until the holder lets go, for as long as the system allows (45 s as it
//! comes). Renaming and removing a file leaves its lease alone.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::check;

/// The C library's headers have it, the crate that repeats them does not.
const F_SETSIG: i32 = 10;

/// Takes a lease on a regular file that is open for writing.
///
/// # Errors
/// If another process has the file open, we do not own it, or its file system has no leases.
pub fn take(file: impl AsFd) -> io::Result<()> {
    // Opening the file makes the kernel send a signal. This one is ignored by default, the
    // usual one ends the process.
    fcntl(&file, F_SETSIG, libc::SIGURG)?;
    fcntl(&file, libc::F_SETLEASE, libc::F_WRLCK).map(drop)
}

/// Whether no other process has wanted to open the file since the lease was taken.
///
/// # Errors
/// What the system says of the descriptor.
pub fn is_intact(file: impl AsFd) -> io::Result<bool> {
    Ok(fcntl(&file, libc::F_GETLEASE, 0)? == libc::F_WRLCK)
}

/// Lets go of a lease, so that a process that waits to open the file can.
///
/// # Errors
/// If there is none any more.
pub fn release(file: impl AsFd) -> io::Result<()> {
    fcntl(&file, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

fn fcntl(file: &impl AsFd, command: i32, argument: i32) -> io::Result<i32> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as it is borrowed, and these commands take a plain
    // number.
    #[allow(unsafe_code)]
    let result = unsafe { libc::fcntl(fd, command, argument) };
    check(result)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_lease_ends_when_somebody_opens_the_file_and_outlasts_a_rename() {
        let path = std::env::temp_dir().join(format!("outpour-lease-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        take(&file).unwrap();
        let renamed = path.with_extension("renamed");
        fs::rename(&path, &renamed).unwrap();
        assert!(is_intact(&file).unwrap());
        let other = std::thread::spawn({
            let renamed = renamed.clone();
            move || File::open(renamed)
        });
        while is_intact(&file).unwrap() {
            std::thread::yield_now();
        }
        release(&file).unwrap();
        let open = other.join().unwrap().unwrap();
        assert!(!is_intact(&file).unwrap());
        assert!(take(&file).is_err(), "another process has it open");
        drop(open);
        take(&file).unwrap();
        fs::remove_file(&renamed).unwrap();
    }
}
