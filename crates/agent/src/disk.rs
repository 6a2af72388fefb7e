//! How long the disk beneath an object has kept those waiting who read and write its blocks.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::BlockId;
use outpour_net::{Accept, BlockIo};
use outpour_protocols::coordinator;

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

    /// For how long calls have been waiting and none was done.
    pub(crate) fn stuck(&self) -> Duration {
        let calls = self.calls();
        let oldest = calls.pending.values().next();
        oldest.map_or(Duration::ZERO, |oldest| {
            calls
                .last
                .map_or(*oldest, |last| last.max(*oldest))
                .elapsed()
        })
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
        calls.pending.remove(&self.number);
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
