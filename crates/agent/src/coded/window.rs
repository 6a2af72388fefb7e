//! The batches of which packets are collected, as threads share them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::{BatchId, BlockSet};
use outpour_protocols::collector;

use super::live::{Live, Shape};

/// See the module. It is locked for moments, a batch for as long as a thread works on it.
pub(super) struct Window(Mutex<collector::Window<Arc<Mutex<Live>>>>);

impl Window {
    pub(super) const fn new(whole: BlockSet, most: usize) -> Self {
        Self(Mutex::new(collector::Window::new(whole, most)))
    }

    fn lock(&self) -> MutexGuard<'_, collector::Window<Arc<Mutex<Live>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_whole(&self, batch: BatchId) -> bool {
        self.lock().is_whole(batch)
    }

    /// Whether packets of a batch can be taken.
    pub(super) fn takes(&self, batch: BatchId) -> bool {
        self.lock().takes(batch, is_idle)
    }

    /// What is here of a batch that is not whole; `None` if it is, or there is no room for it.
    pub(super) fn live(&self, batch: BatchId, shape: Shape) -> Option<Arc<Mutex<Live>>> {
        let new = || Arc::new(Mutex::new(Live::new(shape)));
        self.lock().live(batch, is_idle, new).cloned()
    }

    /// A batch takes no more packets.
    pub(super) fn shut(&self, batch: BatchId) {
        self.lock().shut(batch);
    }

    /// A batch is whole.
    pub(super) fn finish(&self, batch: BatchId) {
        self.lock().finish(batch);
    }
}

/// Whether nothing is lost with a batch. One that is locked, or that a thread is about to lock, is
/// in use.
fn is_idle(live: &Arc<Mutex<Live>>) -> bool {
    Arc::strong_count(live) == 1 && live.try_lock().is_ok_and(|live| live.is_on_disk())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_in_use_keeps_its_room() {
        let shape = Shape {
            first: 0,
            k: 32,
            len: 1 << 20,
        };
        let window = Window::new(BlockSet::new(20), 8);
        let held: Vec<_> = (0..20).map(|batch| window.live(batch, shape)).collect();
        assert_eq!(held.iter().flatten().count(), 8);
        assert!(!window.takes(19));
        drop(held);
        // Nothing that is not on disk would be lost.
        assert!((10..20).all(|batch| window.live(batch, shape).is_some()));
        assert!(window.takes(0));
    }
}
