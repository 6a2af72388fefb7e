//! How long the disk beneath an object has kept reads and writes of its blocks waiting.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::BlockId;
use outpour_net::{Accept, BlockIo};
use outpour_protocols::coordinator;

/// A disk hangs if for so long nothing was done of what it was asked for...
const HUNG_MIN: Duration = Duration::from_millis(150);
/// ... or so many times as long as any call took before, for slow disks have their pauses...
const HUNG_FACTOR: u32 = 4;
/// ... but not longer than this.
const HUNG_MAX: Duration = Duration::from_secs(3);

/// The calls on one object.
#[derive(Debug, Default)]
pub(crate) struct Disk(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// How many have begun.
    begun: u64,
    /// Those that are not done, and since when.
    pending: BTreeMap<u64, Instant>,
    /// How many are done.
    done: u64,
    last: Option<Instant>,
    /// How long the slowest of them took.
    slowest: Duration,
}

impl Disk {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a coordinator is told.
    pub(crate) fn report(&self) -> coordinator::Disk {
        let calls = self.calls();
        coordinator::Disk {
            waiting: !calls.pending.is_empty(),
            done: calls.done,
        }
    }

    /// How long it may still take until the disk counts as hung; `None` if nothing is asked of it.
    pub(crate) fn until_hung(&self) -> Option<Duration> {
        let calls = self.calls();
        let oldest = *calls.pending.values().next()?;
        let since = calls.last.map_or(oldest, |last| last.max(oldest));
        let most = calls.slowest.saturating_mul(HUNG_FACTOR);
        Some(
            most.clamp(HUNG_MIN, HUNG_MAX)
                .saturating_sub(since.elapsed()),
        )
    }

    fn begin(&self) -> Call<'_> {
        let mut calls = self.calls();
        calls.begun += 1;
        let number = calls.begun;
        calls.pending.insert(number, Instant::now());
        Call { disk: self, number }
    }
}

/// A call that goes on; it is done when dropped.
struct Call<'a> {
    disk: &'a Disk,
    number: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut calls = self.disk.calls();
        if let Some(begun) = calls.pending.remove(&self.number) {
            calls.slowest = calls.slowest.max(begun.elapsed());
        }
        calls.done += 1;
        calls.last = Some(Instant::now());
    }
}

/// An object on a disk that is watched.
pub(crate) struct Watched {
    pub(crate) io: Arc<dyn BlockIo>,
    pub(crate) disk: Arc<Disk>,
}

impl BlockIo for Watched {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.io.block_len(block)
    }

    fn has(&self, block: BlockId) -> bool {
        self.io.has(block)
    }

    fn drops(&self, block: BlockId) -> bool {
        self.io.drops(block)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        let _call = self.disk.begin();
        self.io.read(block, buf)
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        let _call = self.disk.begin();
        self.io.accept(block, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_hangs_when_nothing_is_done_for_much_longer_than_ever() {
        let disk = Disk::default();
        assert_eq!(disk.until_hung(), None);
        let call = disk.begin();
        assert!(disk.report().waiting);
        assert!(disk.until_hung().is_some_and(|left| left <= HUNG_MIN));
        let ago = |time| Instant::now().checked_sub(time);
        disk.calls()
            .pending
            .insert(1, ago(HUNG_MIN).unwrap_or_else(Instant::now));
        assert_eq!(disk.until_hung(), Some(Duration::ZERO));
        // What came of it was slow, so the next one is waited for longer.
        drop(call);
        assert_eq!((disk.until_hung(), disk.report().done), (None, 1));
        let _call = disk.begin();
        assert!(disk.until_hung().is_some_and(|left| left > HUNG_MIN));
        disk.calls().slowest = Duration::MAX;
        assert!(disk.until_hung().is_some_and(|left| left <= HUNG_MAX));
    }
}
