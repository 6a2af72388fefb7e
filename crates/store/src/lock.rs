//! Locks: files that one process at a time holds, and that name the holder.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::path::Path;

use outpour_core::manifest::{ObjectId, escape};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::sys;

/// The lock of a directory, and of what is in it.
pub(crate) const LOCK: &str = "lock";

/// How often a lock is tried. A process that checks whether one is held holds it for that moment, so
/// the first answer is not final.
const TRIES: usize = 100;
/// How much is read of what a lock file says of its holder.
const HOLDER_BYTES_MAX: usize = 1 << 10;
/// How much of what a holder calls itself is written.
const LABEL_CHARS_MAX: usize = 200;

/// The most digits of a node's number.
const NODE_DIGITS_MAX: usize = 10;

// What is written can be read: an object's id in hex, a label of long characters, and a cast's name in
// hex with a node's number, on three lines.
const _: () = assert!(
    2 * size_of::<ObjectId>() + 4 * LABEL_CHARS_MAX + 2 * 16 + 1 + NODE_DIGITS_MAX + 3
        <= HOLDER_BYTES_MAX
);

/// A node of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// The random name of the cast, or of an attempt at it.
    pub cast: [u8; 16],
    /// The node's number in it.
    pub node: u32,
}

impl Party {
    fn encode(&self) -> String {
        format!("{:032x} {}", u128::from_be_bytes(self.cast), self.node)
    }

    fn decode(line: &str) -> Option<Self> {
        let (cast, node) = line.split_once(' ')?;
        let cast = u128::from_str_radix(cast, 16).ok()?.to_be_bytes();
        let node = node.parse().ok()?;
        Some(Self { cast, node })
    }
}

/// The holder of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// What it casts, if it says so.
    pub object: Option<ObjectId>,
    /// What it calls itself.
    pub label: String,
    /// Which node of which cast it is, if it says so.
    pub party: Option<Party>,
}

impl std::fmt::Display for Holder {
    /// Characters that are not printable are escaped: any user may have written it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.label.is_empty() {
            return f.write_str("another cast");
        }
        write!(f, "the cast of {}", escape(self.label.as_bytes()))
    }
}

impl Holder {
    fn encode(&self) -> String {
        let id = self.object.map(|id| id.to_string()).unwrap_or_default();
        let label = self.label.chars().take(LABEL_CHARS_MAX);
        let label: String = label.map(|c| if c == '\n' { ' ' } else { c }).collect();
        let party = self.party.map(|party| party.encode());
        let text = format!("{id}\n{label}\n{}\n", party.unwrap_or_default());
        debug_assert_eq!(
            text.matches('\n').count(),
            3,
            "other lines than it is read by"
        );
        debug_assert!(text.len() <= HOLDER_BYTES_MAX);
        text
    }

    fn decode(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines();
        Self {
            object: lines.next().and_then(|line| line.parse().ok()),
            label: lines.next().unwrap_or_default().to_owned(),
            party: lines.next().and_then(Party::decode),
        }
    }

    /// What a lock file says; nothing of one that cannot be read.
    fn read(file: impl AsFd) -> Self {
        let mut text = [0; HOLDER_BYTES_MAX];
        let read = sys::pread(file, &mut text, 0).unwrap_or(0);
        Self::decode(text.get(..read).unwrap_or_default())
    }
}

/// Reads arbitrary bytes as a lock file; for tests. What is shown of the holder is one line without
/// characters that do something, and what is written of it reads back as the same.
pub(crate) fn fuzz(bytes: &[u8]) {
    let holder = Holder::decode(bytes.get(..HOLDER_BYTES_MAX).unwrap_or(bytes));
    assert!(!holder.to_string().contains(char::is_control));
    let again = Holder::decode(holder.encode().as_bytes());
    assert_eq!((again.object, again.party), (holder.object, holder.party));
    assert_eq!(Holder::decode(again.encode().as_bytes()), again);
}

/// What came of trying to take a lock.
pub(crate) enum Taken {
    Mine(Lock),
    /// Another process has it.
    Busy,
    /// The directory of the lock was removed.
    Gone,
}

/// No other process has what is locked while this exists.
#[derive(Debug)]
pub(crate) struct Lock(OwnedFd);

impl Lock {
    /// Takes the lock in the directory `dir`, which messages call `path`; `None` if it is taken.
    ///
    /// # Errors
    /// [`Error::Io`] and its kin if the file cannot be made or locked.
    pub(crate) fn take(dir: impl AsFd, path: &Path) -> Result<Option<Self>, Error> {
        let file = Self::open(dir, path)?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Error::new(path.join(LOCK), "lock the file", errno)),
        }
    }

    /// The same, but waits for it.
    ///
    /// # Errors
    /// [`Error::Io`] and its kin if the file cannot be made or locked.
    pub(crate) fn wait(dir: impl AsFd, path: &Path) -> Result<Self, Error> {
        let file = Self::open(dir, path)?;
        loop {
            match fs::flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new(path.join(LOCK), "lock the file", errno)),
            }
        }
    }

    fn open(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(file),
            // The directory was removed after it was opened; to hold it or not is the same then.
            Err(Errno::NOENT) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                fs::openat(&dir, ".", flags, Mode::empty())
                    .map_err(Error::at(|| path, "open the state"))
            }
            Err(errno) => Err(Error::new(path.join(LOCK), "create the file", errno)),
        }
    }

    /// Takes the lock `name` in the directory `dir`, which messages call `path`: for this holder
    /// alone, or shared with others.
    pub(crate) fn named(
        dir: impl AsFd,
        name: &str,
        path: &Path,
        alone: bool,
    ) -> Result<Taken, Error> {
        debug_assert!(name.starts_with(LOCK), "it would not be found");
        let operation = if alone {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            let file = match fs::openat(&dir, name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Ok(Taken::Gone),
                Err(errno) => return Err(Error::new(path.join(name), "create the file", errno)),
            };
            match fs::flock(&file, operation) {
                Ok(()) => {
                    let lock = Self(file);
                    // Its last holder may have removed it when it was done.
                    if lock
                        .is_linked()
                        .map_err(Error::at(|| path, "look at the lock"))?
                    {
                        return Ok(Taken::Mine(lock));
                    }
                }
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(errno) => return Err(Error::new(path.join(name), "lock the file", errno)),
            }
        }
        Ok(Taken::Busy)
    }

    fn is_linked(&self) -> Result<bool, Errno> {
        Ok(fs::fstat(&self.0)?.st_nlink > 0)
    }

    /// Writes the holder's name. A full disk prevents no lock.
    pub(crate) fn name_holder(&self, holder: &Holder) {
        let text = holder.encode();
        let write = || {
            fs::ftruncate(&self.0, 0)?;
            sys::pwrite(&self.0, text.as_bytes(), 0)
        };
        if let Err(errno) = write() {
            tracing::debug!(%errno, "a lock does not say which process holds it");
        }
    }

    /// Lets the lock go, and removes its file `name` in `dir` if no other process shares it.
    pub(crate) fn remove(self, dir: impl AsFd, name: &str) {
        debug_assert!(name.starts_with(LOCK));
        let last = fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive);
        // While the locks were exchanged another one may have removed the file, and a third made
        // a new one.
        if last.is_ok() && self.is_linked().unwrap_or(false) {
            let _ = fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}

/// The holder of the lock `name` in `dir`, alone or, if `shared` counts, with others; `None` if it is
/// no lock, or closed to us.
///
/// # Errors
/// Of the file system, or if there is no room for another open file: then it is not known.
pub(crate) fn held(dir: impl AsFd, name: &str, shared: bool) -> Result<Option<Holder>, Errno> {
    // Some file systems lock for one alone only what is open for writing.
    let (access, operation) = if shared {
        (OFlags::RDWR, FlockOperation::NonBlockingLockExclusive)
    } else {
        (OFlags::RDONLY, FlockOperation::NonBlockingLockShared)
    };
    let open = |access: OFlags| {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        sys::if_reachable(fs::openat(&dir, name, flags, Mode::empty()))
    };
    for _ in 0..TRIES {
        let Some(file) = open(access)? else {
            return Ok(None);
        };
        if sys::type_of(&fs::fstat(&file)?) != FileType::RegularFile {
            return Ok(None);
        }
        match fs::flock(&file, operation) {
            Ok(()) => {
                drop(Lock(file));
                return Ok(None);
            }
            Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
            Err(errno) => return Err(errno),
        }
    }
    Ok(open(OFlags::RDONLY)?.map(Holder::read))
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

#[cfg(all(test, not(feature = "simulated")))]
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

    #[test]
    fn a_holder_is_read_as_it_was_written_and_shown_as_text() {
        let holder = Holder {
            object: Some(ObjectId::of(b"object")),
            label: "model\u{1b}[31m (1f3a9c2b)\nby ana@build1".into(),
            party: Some(Party {
                cast: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255],
                node: u32::MAX,
            }),
        };
        let read = Holder::decode(holder.encode().as_bytes());
        assert_eq!((read.object, read.party), (holder.object, holder.party));
        let shown = read.to_string();
        assert_eq!(
            shown,
            r"the cast of model\u{1b}[31m (1f3a9c2b) by ana@build1"
        );
        for nonsense in [&b""[..], b"\xff\xff", b"\n\n\n\n", b"\n\n1g 2", b"\n\n1 -2"] {
            let holder = Holder::decode(nonsense);
            assert_eq!((holder.object, holder.party), (None, None));
        }
        assert_eq!(Holder::decode(b"").to_string(), "another cast");
    }

    #[test]
    fn only_the_last_that_shares_a_lock_removes_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        let share = || match Lock::named(&open, LOCK, dir.path(), false).unwrap() {
            Taken::Mine(lock) => lock,
            _ => panic!("it is shared"),
        };
        let (first, second) = (share(), share());
        assert!(held(&open, LOCK, true).unwrap().is_some());
        assert!(held(&open, LOCK, false).unwrap().is_none());
        let alone = Lock::named(&open, LOCK, dir.path(), true).unwrap();
        assert!(matches!(alone, Taken::Busy));
        first.remove(&open, LOCK);
        assert!(dir.path().join(LOCK).exists());
        second.remove(&open, LOCK);
        assert!(!dir.path().join(LOCK).exists());
        assert!(held(&open, LOCK, true).unwrap().is_none());
    }

    #[test]
    fn what_is_no_file_is_nobodys_lock() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        for name in ["dir", "link", "fifo", "missing"] {
            assert_eq!(held(&open, name, true), Ok(None), "{name}");
            assert_eq!(held(&open, name, false), Ok(None), "{name}");
        }
    }
}
