//! What tells one state of a file from every other, and what is known of each file.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use outpour_core::manifest::EntryId;
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::fs::{self, AsFd};
use crate::sys;

/// Where a file is, how long, and when it was changed last: every write changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    dev: u64,
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
            mtime_ns: sys::mtime_of(stat),
            ctime_ns: sys::ctime_of(stat),
        }
    }

    /// The identity of an open file.
    pub(super) fn of_open(fd: impl AsFd) -> Result<Self, Errno> {
        fs::fstat(fd).map(|stat| Self::of(&stat))
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is the same but for the change that a rename makes.
    pub(super) fn is_renamed(self, before: Self) -> bool {
        let ctime_ns = before.ctime_ns;
        Self { ctime_ns, ..self } == before
    }

    /// A digest of 128 bits, never zero.
    fn digest(&self) -> NonZero<u128> {
        let times = [self.mtime_ns, self.ctime_ns].map(i64::cast_unsigned);
        let parts = [self.dev, self.ino, self.size, times[0], times[1]];
        let digest = blake3::hash(parts.map(u64::to_le_bytes).as_flattened());
        let first = digest.as_bytes().first_chunk().copied();
        let number = u128::from_le_bytes(first.unwrap_or_default());
        NonZero::new(number).unwrap_or(NonZero::<u128>::MIN)
    }
}

/// The identity that each file had when its bytes were known to be right. There may be millions of
/// files, so only digests are kept.
#[derive(Debug)]
pub(super) struct Identities(Mutex<Vec<Option<NonZero<u128>>>>);

impl Identities {
    /// None is known of so many entries.
    pub(super) fn none(entries: usize) -> Self {
        Self(Mutex::new(vec![None; entries]))
    }

    /// Takes note of what a file was like when it was right, or that this is not known.
    pub(super) fn note(&self, file: EntryId, identity: Option<Identity>) {
        let digest = identity.map(|identity| identity.digest());
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        digests[file.index()] = digest;
    }

    /// Whether a file is as it was when it was right.
    pub(super) fn is(&self, file: EntryId, identity: &Identity) -> bool {
        let digest = Some(identity.digest());
        let digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        digests[file.index()] == digest
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_is_another_identity() {
        let known = Identity {
            dev: 1,
            ino: 2,
            size: 3,
            mtime_ns: 4,
            ctime_ns: 5,
        };
        let identities = Identities::none(2);
        let (file, other) = (EntryId(0), EntryId(1));
        assert!(!identities.is(file, &known));
        identities.note(file, Some(known));
        assert!(identities.is(file, &known));
        assert!(!identities.is(other, &known));
        let different = [
            Identity { dev: 6, ..known },
            Identity { ino: 6, ..known },
            Identity { size: 6, ..known },
            Identity {
                mtime_ns: 6,
                ..known
            },
            Identity {
                ctime_ns: 6,
                ..known
            },
        ];
        assert!(different.iter().all(|other| !identities.is(file, other)));
        identities.note(file, None);
        assert!(!identities.is(file, &known));
    }
}
