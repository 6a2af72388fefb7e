//! The batches of which packets are collected: not more at once than there is memory for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::{BatchId, BlockSet};

use super::live::{Live, Shape};

/// See the module.
pub(super) struct Window {
    inner: Mutex<Inner>,
}

struct Inner {
    live: BTreeMap<BatchId, Entry>,
    /// How many there may be.
    most: usize,
    /// Batches that are whole.
    whole: BlockSet,
}

struct Entry {
    live: Arc<Mutex<Live>>,
    /// Whether it takes packets.
    open: bool,
}

impl Window {
    pub(super) const fn new(whole: BlockSet, most: usize) -> Self {
        let inner = Inner {
            live: BTreeMap::new(),
            most,
            whole,
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_whole(&self, batch: BatchId) -> bool {
        self.lock().whole.contains(batch)
    }

    /// Whether packets of a batch can be taken.
    pub(super) fn takes(&self, batch: BatchId) -> bool {
        let mut inner = self.lock();
        if inner.whole.contains(batch) || batch >= inner.whole.len() {
            return false;
        }
        match inner.live.get(&batch) {
            Some(entry) => entry.open,
            None => inner.make_room(),
        }
    }

    /// What is here of a batch that is not whole; `None` if it is, or there is no room for it.
    pub(super) fn live(&self, batch: BatchId, shape: Shape) -> Option<Arc<Mutex<Live>>> {
        let mut inner = self.lock();
        if inner.whole.contains(batch) {
            return None;
        }
        if let Some(entry) = inner.live.get(&batch) {
            return Some(entry.live.clone());
        }
        if !inner.make_room() {
            return None;
        }
        let live = Arc::new(Mutex::new(Live::new(shape)));
        let entry = Entry {
            live: live.clone(),
            open: true,
        };
        inner.live.insert(batch, entry);
        Some(live)
    }

    /// A batch takes no more packets.
    pub(super) fn shut(&self, batch: BatchId) {
        if let Some(entry) = self.lock().live.get_mut(&batch) {
            entry.open = false;
        }
    }

    /// A batch is whole.
    pub(super) fn finish(&self, batch: BatchId) {
        let mut inner = self.lock();
        inner.live.remove(&batch);
        if batch < inner.whole.len() {
            inner.whole.insert(batch);
        }
    }
}

impl Inner {
    /// Whether one more batch fits, if need be in the place of one of which all is on disk.
    fn make_room(&mut self) -> bool {
        while self.live.len() >= self.most {
            let on_disk = |entry: &Entry| {
                // One that is locked, or that somebody is about to lock, is in use.
                Arc::strong_count(&entry.live) == 1
                    && entry.live.try_lock().is_ok_and(|live| live.is_on_disk())
            };
            let idle = self.live.iter().rev().find(|(_, entry)| on_disk(entry));
            let Some((batch, _)) = idle else {
                return false;
            };
            let batch = *batch;
            self.live.remove(&batch);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_batches_than_there_is_room_for() {
        let shape = Shape {
            first: 0,
            k: 32,
            len: 1 << 20,
        };
        let window = Window::new(BlockSet::new(20), 8);
        let held: Vec<_> = (0..20).map(|batch| window.live(batch, shape)).collect();
        assert_eq!(held.iter().flatten().count(), 8);
        assert!(!window.takes(19) && window.takes(0));
        window.shut(1);
        assert!(!window.takes(1));
        window.finish(0);
        assert!(window.takes(19) && !window.takes(0) && window.is_whole(0));
        drop(held);
        // Nothing that is not on disk would be lost.
        assert!((10..20).all(|batch| window.live(batch, shape).is_some()));
        assert_eq!(window.lock().live.len(), 8);
    }
}
