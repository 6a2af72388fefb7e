//! Tells whether a file is still as it was looked at, without reading it.
//!
//! Every write changes a file's `ctime`, which cannot be set, so a file whose `ctime` stays has
//! the bytes it had. There is one gap: clocks of file systems go in steps, and of two writes in one
//! step the second changes nothing that can be seen. A file that was written just before it was
//! examined therefore has a mark that proves nothing, as in the index of git.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// The coarsest step of a clock that shows parts of a second, several times over: kernels count in
/// steps of 1 to 10 ms.
const STEP_NS: i128 = 100_000_000;
/// The coarsest step of one that does not.
const WHOLE_STEP_NS: i128 = 2_000_000_000;

const SECOND_NS: i128 = 1_000_000_000;

// Else a file of the same second as the look would have a mark.
const _: () = assert!(WHOLE_STEP_NS > SECOND_NS);
const _: () = assert!(STEP_NS < WHOLE_STEP_NS);

/// A file as it was looked at, in few bytes: there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Proves nothing.
    pub(crate) const NONE: Self = Self(0);

    /// Marks a file that was looked at no earlier than `now`, in nanoseconds since 1970.
    pub(crate) fn of(stat: &Stat, now: i128) -> Self {
        let changed = i128::from(stat.st_ctime) * SECOND_NS + i128::from(stat.st_ctime_nsec);
        let step = match changed % SECOND_NS {
            0 => WHOLE_STEP_NS,
            _ => STEP_NS,
        };
        if changed + step < now {
            let mark = Self(digest(stat));
            debug_assert!(mark.proves(stat));
            mark
        } else {
            Self::NONE
        }
    }

    /// Whether a file that looks like this has the bytes that it had when it was marked. If not,
    /// only its bytes can tell.
    pub(crate) fn proves(self, stat: &Stat) -> bool {
        self != Self::NONE && self.0 == digest(stat)
    }
}

/// The time, in nanoseconds since 1970.
pub(crate) fn now() -> i128 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        // With such a clock, nothing is proved.
        Err(_) => i128::MIN,
    }
}

/// What tells a file from others and from itself after a change; never zero.
fn digest(stat: &Stat) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stat.st_dev.to_le_bytes());
    hasher.update(&stat.st_ino.to_le_bytes());
    hasher.update(&stat.st_size.to_le_bytes());
    for (seconds, nanos) in [
        (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec)),
        (i128::from(stat.st_ctime), i128::from(stat.st_ctime_nsec)),
    ] {
        hasher.update(&(seconds * SECOND_NS + nanos).to_le_bytes());
    }
    let mut short = [0; 8];
    hasher.finalize_xof().fill(&mut short);
    u64::from_le_bytes(short).max(1)
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_was_written_just_now_is_not_proved() {
        let mut stat = rustix::fs::fstat(tempfile::tempfile().unwrap()).unwrap();
        stat.st_ctime_nsec = 5;
        let changed = i128::from(stat.st_ctime) * SECOND_NS + 5;
        assert!(Mark::of(&stat, changed + STEP_NS + 1).proves(&stat));
        // Looked at too soon, or before it was written, as far as one can tell.
        for now in [changed + STEP_NS, changed, 0, i128::MIN] {
            assert_eq!(Mark::of(&stat, now), Mark::NONE, "{now}");
            assert!(!Mark::of(&stat, now).proves(&stat));
        }
        // A file system that counts in seconds.
        stat.st_ctime_nsec = 0;
        let changed = changed - 5;
        assert_eq!(Mark::of(&stat, changed + STEP_NS + 1), Mark::NONE);
        assert!(Mark::of(&stat, changed + WHOLE_STEP_NS + 1).proves(&stat));
    }

    #[test]
    fn whatever_is_done_to_a_file_shows() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one").unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let mark = Mark::of(&stat, now() + 3 * SECOND_NS);
        assert!(mark.proves(&stat));
        let changes: [fn(&mut Stat); 6] = [
            |stat| stat.st_dev ^= 1,
            |stat| stat.st_ino ^= 1,
            |stat| stat.st_size += 1,
            |stat| stat.st_mtime_nsec ^= 1,
            |stat| stat.st_ctime += 1,
            |stat| stat.st_ctime_nsec ^= 1,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut other = stat;
            change(&mut other);
            assert!(!mark.proves(&other), "{n}");
        }
    }
}
