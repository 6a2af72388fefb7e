//! The lock in the state directory of a transfer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;

const LOCK: &str = "lock";

/// Nobody else has the state directory while this exists.
#[derive(Debug)]
pub(crate) struct Lock(OwnedFd);

impl Lock {
    /// Takes the lock in the directory `dir`, which messages call `path`; `None` if it is taken.
    ///
    /// # Errors
    /// [`Error::Io`] and its kin if the file cannot be made or locked.
    pub(crate) fn take(dir: impl AsFd, path: &Path) -> Result<Option<Self>, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            // The directory was removed after it was opened; to hold it or not is the same then.
            Err(Errno::NOENT) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                fs::openat(&dir, ".", flags, Mode::empty())
                    .map_err(Error::at(|| path, "open the state"))?
            }
            Err(errno) => return Err(Error::new(path.join(LOCK), "create the file", errno)),
        };
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Error::new(path.join(LOCK), "lock the file", errno)),
        }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Lock {
    /// Unlocks rather than just closes: a child that another thread has forked and that has not yet
    /// become another program holds the file open too, and with it the lock.
    fn drop(&mut self) {
        // It can only fail for what is not locked.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn is_let_go_even_if_a_forked_child_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        let take = || Lock::take(&open, dir.path()).unwrap();
        let lock = take().unwrap();
        let _in_a_child = lock.as_fd().try_clone_to_owned().unwrap();
        assert!(take().is_none());
        drop(lock);
        assert!(take().is_some());
    }
}
