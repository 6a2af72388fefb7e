//! The journal of a transfer: which blocks are on disk, and how surely.
//!
//! It only grows while a transfer runs. A record names runs of blocks and what is known of them:
//! *written* says that the data was handed to the operating system, *synced* that it was on disk
//! before the record was. After a crash, blocks of synced records are trusted, those that are only
//! written are read and hashed again. Every record has a checksum that includes the object's id, so
//! a torn tail, or blocks of a recycled file, end the journal and mean nothing else.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use outpour_core::manifest::{BLOCKS_MAX, ObjectId};
use outpour_core::{BlockId, BlockSet};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::fs::{self, AsFd, BorrowedFd, OwnedFd};
use crate::sys;

const NAME: &str = "journal";
const NAME_NEW: &str = "journal.new";

const SIGNATURE: &[u8; 8] = b"outpjnl\x02";

/// Length and checksum.
const RECORD_HEAD: usize = 8;
/// First block and count.
const RUN_BYTES: usize = 8;
/// A record names at most this many runs; more go into further records.
const RUNS_MAX: usize = 1 << 16;

const _: () = assert!(RECORD_HEAD == 2 * size_of::<u32>());
const _: () = assert!(RUN_BYTES == 2 * size_of::<BlockId>());
// The length of a record is a number of 32 bits.
const _: () = assert!(RUNS_MAX * RUN_BYTES < u32::MAX as usize);

/// How surely blocks are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Written = 1,
    Synced = 2,
}

/// What a journal says after a restart. The sets are disjoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) written: BlockSet,
    pub(crate) synced: BlockSet,
}

impl Replay {
    /// What these bytes of a journal say of an object of `blocks` blocks, as far as they are whole.
    fn read(bytes: &[u8], id: ObjectId, blocks: u32) -> Self {
        let mut replay = Self {
            written: BlockSet::new(blocks),
            synced: BlockSet::new(blocks),
        };
        if let Some(mut rest) = bytes.strip_prefix(SIGNATURE) {
            while let Some(after) = replay_record(rest, id, &mut replay) {
                debug_assert!(
                    after.len() < rest.len(),
                    "a record without bytes has no end"
                );
                rest = after;
            }
        }
        replay.written.subtract(&replay.synced);
        replay.check();
        replay
    }

    fn check(&self) {
        debug_assert_eq!(self.written.len(), self.synced.len());
        debug_assert!(
            self.written
                .iter()
                .all(|block| !self.synced.contains(block)),
            "what is synced is not only written"
        );
    }
}

#[derive(Debug)]
pub(crate) struct Journal {
    file: OwnedFd,
    id: ObjectId,
    /// Where the last whole record ends; the next one goes there, over what a failed write left.
    end: u64,
    record: Vec<u8>,
}

impl Journal {
    /// Reads the journal in `dir`, as far as it is whole; an object of `blocks` blocks.
    pub(crate) fn replay(dir: impl AsFd, id: ObjectId, blocks: u32) -> Result<Replay, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(dir, NAME, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Replay::read(&[], id, blocks)),
            Err(errno) => return Err(errno),
        };
        let mut bytes = vec![0; fs::fstat(&file)?.st_size as usize];
        let read = sys::pread(&file, &mut bytes, 0)?;
        bytes.truncate(read);
        Ok(Replay::read(&bytes, id, blocks))
    }

    /// Starts a journal in `dir` that says what is known so far; it replaces an older one at once
    /// and as a whole.
    pub(crate) fn create(dir: impl AsFd, id: ObjectId, known: &Replay) -> Result<Self, Errno> {
        known.check();
        sys::gone_is_fine(fs::unlinkat(&dir, NAME_NEW, AtFlags::empty()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&dir, NAME_NEW, flags, Mode::RUSR | Mode::WUSR)?;
        sys::pwrite(&file, SIGNATURE, 0)?;
        let mut journal = Self {
            file,
            id,
            end: SIGNATURE.len() as u64,
            record: Vec::new(),
        };
        journal.append_runs(Mark::Synced, known.synced.ranges())?;
        journal.append_runs(Mark::Written, known.written.ranges())?;
        fs::fsync(&journal.file)?;
        fs::renameat(&dir, NAME_NEW, &dir, NAME)?;
        fs::fsync(&dir)?;
        Ok(journal)
    }

    /// Adds a record; `blocks` comes back sorted.
    pub(crate) fn append(&mut self, mark: Mark, blocks: &mut [BlockId]) -> Result<(), Errno> {
        blocks.sort_unstable();
        debug_assert!(blocks.last().is_none_or(|last| *last < BLOCKS_MAX));
        let mut at = 0;
        let sorted = &*blocks;
        let runs = std::iter::from_fn(|| {
            let first = *sorted.get(at)?;
            // Blocks are fewer than numbers.
            let mut end = first.saturating_add(1);
            at = at.saturating_add(1);
            while let Some(block) = sorted.get(at).filter(|block| **block <= end) {
                // A block may be named twice.
                end = end.max(block.saturating_add(1));
                at = at.saturating_add(1);
            }
            Some(first..end)
        });
        self.append_runs(mark, runs)
    }

    /// The file, to sync it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn append_runs(
        &mut self,
        mark: Mark,
        mut runs: impl Iterator<Item = std::ops::Range<BlockId>>,
    ) -> Result<(), Errno> {
        debug_assert!(
            self.end >= SIGNATURE.len() as u64,
            "the signature stays as it is"
        );
        loop {
            self.record.clear();
            self.record.extend([0; RECORD_HEAD]);
            self.record.push(mark as u8);
            let empty = self.record.len();
            for run in runs.by_ref().take(RUNS_MAX) {
                debug_assert!(run.start < run.end, "an empty run");
                self.record.extend(run.start.to_le_bytes());
                let blocks = run.end.saturating_sub(run.start);
                self.record.extend(blocks.to_le_bytes());
            }
            if self.record.len() == empty {
                return Ok(());
            }
            debug_assert_eq!(self.record.len() % RUN_BYTES, empty % RUN_BYTES);
            let (head, payload) = self.record.split_at_mut(RECORD_HEAD);
            let len = (payload.len() as u32).to_le_bytes();
            let sum = checksum(self.id, payload).to_le_bytes();
            head.copy_from_slice([len, sum].as_flattened());
            sys::pwrite(&self.file, &self.record, self.end)?;
            self.end = self.end.saturating_add(self.record.len() as u64);
        }
    }
}

fn checksum(id: ObjectId, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.0);
    hasher.update(payload);
    hasher.finalize()
}

/// Takes one record off the front; `None` if it is not whole or makes no sense.
fn replay_record<'a>(bytes: &'a [u8], id: ObjectId, replay: &mut Replay) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (payload, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    if checksum(id, payload) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (mark, runs) = payload.split_first()?;
    let set = match *mark {
        mark if mark == Mark::Written as u8 => &mut replay.written,
        mark if mark == Mark::Synced as u8 => &mut replay.synced,
        _ => return None,
    };
    let (runs, []) = runs.as_chunks::<RUN_BYTES>() else {
        return None;
    };
    for run in runs {
        let (start, count) = run.split_first_chunk()?;
        let start = u32::from_le_bytes(*start);
        let end = start.checked_add(u32::from_le_bytes(*count.first_chunk()?))?;
        if end > set.len() {
            return None;
        }
        set.insert_range(start..end);
    }
    Some(rest)
}

/// Replays records that the input describes, and says the same in another way; for tests. The first byte is the
/// number of blocks; then come records: what is done to it, how many bytes, and these.
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test, which may panic"
)]
pub(crate) fn fuzz(bytes: &[u8]) {
    let id = ObjectId([7; 32]);
    let [blocks, rest @ ..] = bytes else {
        return;
    };
    let (blocks, mut rest) = (u32::from(*blocks), rest);
    let (mut journal, mut plain) = (SIGNATURE.to_vec(), vec![0; blocks as usize]);
    let mut is_whole = true;
    while let [op, len, more @ ..] = rest {
        let (payload, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let mut sum = checksum(id, payload);
        let mut len = payload.len() as u32;
        match op % 8 {
            0 => sum ^= 1 << (op >> 3),
            1 => len += u32::from(op >> 3) + 1,
            2 => sum = checksum(ObjectId([8; 32]), payload),
            _ => {}
        }
        journal.extend(len.to_le_bytes());
        journal.extend(sum.to_le_bytes());
        journal.extend(payload);
        is_whole = is_whole && op % 8 > 2 && note(payload, &mut plain);
    }
    let replay = Replay::read(&journal, id, blocks);
    // A record that names blocks that there are not may have named others before; they are found again when
    // they are read, as all that is only written is. None is named that no record did.
    for (block, mark) in (0..).zip(&plain) {
        let said = (
            replay.written.contains(block),
            replay.synced.contains(block),
        );
        let right = (*mark == Mark::Written as u8, *mark == Mark::Synced as u8);
        assert!(said == right, "block {block}: {said:?} is not {right:?}");
    }
    for len in 0..journal.len().min(64) {
        let cut = Replay::read(&journal[..len], id, blocks);
        assert!(
            cut.synced.is_subset(&replay.synced),
            "a cut journal says more"
        );
    }
}

/// Notes in a list what a record says; says whether it makes sense. For tests.
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test, which may panic"
)]
fn note(payload: &[u8], plain: &mut [u8]) -> bool {
    let [mark @ (1 | 2), runs @ ..] = payload else {
        return false;
    };
    if runs.len() % RUN_BYTES != 0 {
        return false;
    }
    for run in runs.chunks_exact(RUN_BYTES) {
        let number = |at: usize| {
            (0..4)
                .rev()
                .fold(0, |all, i| all << 8 | u64::from(run[at + i]))
        };
        let (start, end) = (number(0), number(0) + number(4));
        if end > plain.len() as u64 {
            return false;
        }
        for block in &mut plain[start as usize..end as usize] {
            *block = (*block).max(*mark);
        }
    }
    true
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::File;

    use super::*;

    const ID: ObjectId = ObjectId([7; 32]);

    fn known(written: &[BlockId], synced: &[BlockId]) -> Replay {
        let set = |members: &[BlockId]| {
            let mut set = BlockSet::new(1000);
            members.iter().for_each(|block| {
                set.insert(*block);
            });
            set
        };
        Replay {
            written: set(written),
            synced: set(synced),
        }
    }

    #[test]
    fn what_was_appended_is_replayed() {
        let dir = tempfile::tempdir().unwrap();
        let at = File::open(dir.path()).unwrap();
        let nothing = Journal::replay(&at, ID, 1000).unwrap();
        assert_eq!(nothing, known(&[], &[]));
        let mut journal = Journal::create(&at, ID, &known(&[1], &[2, 3])).unwrap();
        journal
            .append(Mark::Written, &mut [9, 7, 8, 9, 999])
            .unwrap();
        journal.append(Mark::Synced, &mut [8, 1]).unwrap();
        journal.append(Mark::Synced, &mut []).unwrap();
        let expected = known(&[7, 9, 999], &[1, 2, 3, 8]);
        assert_eq!(Journal::replay(&at, ID, 1000).unwrap(), expected);
        // Replaced as a whole.
        Journal::create(&at, ID, &expected).unwrap();
        assert_eq!(Journal::replay(&at, ID, 1000).unwrap(), expected);
    }

    #[test]
    fn a_torn_tail_takes_only_its_own_record() {
        let dir = tempfile::tempdir().unwrap();
        let at = File::open(dir.path()).unwrap();
        let mut journal = Journal::create(&at, ID, &known(&[], &[])).unwrap();
        let mut ends = vec![journal.end];
        for block in 0..5 {
            journal
                .append(Mark::Synced, &mut [block * 2, block * 2 + 100])
                .unwrap();
            ends.push(journal.end);
        }
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for len in 0..=whole.len() {
            // Cut off, and cut off in a file that was allocated ahead.
            for tail in [0, 64] {
                let mut torn = whole[..len].to_vec();
                torn.resize(len + tail, 0);
                // Zeros may happen to be what was cut off.
                let is_whole = |end: &&u64| {
                    let end = **end as usize;
                    torn.get(..end) == whole.get(..end)
                };
                let records = ends.iter().filter(is_whole).count().saturating_sub(1);
                std::fs::write(&path, torn).unwrap();
                let replay = Journal::replay(&at, ID, 1000).unwrap();
                assert_eq!(replay.synced.count(), records as u32 * 2, "{len} bytes");
            }
        }
        for at_byte in SIGNATURE.len()..whole.len() {
            let mut rotten = whole.clone();
            rotten[at_byte] ^= 0x10;
            std::fs::write(&path, rotten).unwrap();
            let before = ends.iter().filter(|end| **end <= at_byte as u64).count() - 1;
            let replay = Journal::replay(&at, ID, 1000).unwrap();
            assert_eq!(replay.synced.count(), before as u32 * 2, "byte {at_byte}");
        }
    }

    #[test]
    fn records_of_another_object_or_out_of_range_mean_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = File::open(dir.path()).unwrap();
        Journal::create(&at, ID, &known(&[], &[1, 999])).unwrap();
        let other = Journal::replay(&at, ObjectId([8; 32]), 1000).unwrap();
        assert!(other.synced.is_empty());
        assert!(Journal::replay(&at, ID, 999).unwrap().synced.count() <= 1);
    }

    #[test]
    fn a_failed_append_leaves_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let at = File::open(dir.path()).unwrap();
        let mut journal = Journal::create(&at, ID, &known(&[], &[])).unwrap();
        // As a write that broke off would leave it.
        sys::pwrite(&journal.file, &[0xff; 13], journal.end).unwrap();
        journal.append(Mark::Synced, &mut [5]).unwrap();
        journal.append(Mark::Synced, &mut [6]).unwrap();
        let replay = Journal::replay(&at, ID, 1000).unwrap();
        assert_eq!(replay.synced.iter().collect::<Vec<_>>(), [5, 6]);
    }
}
