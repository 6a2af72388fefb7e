//! The batches that are collected: not more at once than there is memory for.

use std::collections::BTreeMap;

use outpour_core::{BatchId, BlockSet};

/// Something, a [`Collector`](super::Collector) mostly, for each of a bounded number of batches.
#[derive(Debug)]
pub struct Window<T> {
    live: BTreeMap<BatchId, Entry<T>>,
    /// How many there may be.
    most: usize,
    /// Batches that are whole.
    whole: BlockSet,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    /// Whether it takes packets.
    open: bool,
}

impl<T> Window<T> {
    /// Room for `most` batches, of all for which `whole` has a place; those in it are whole.
    pub const fn new(whole: BlockSet, most: usize) -> Self {
        let live = BTreeMap::new();
        Self { live, most, whole }
    }

    /// Whether a batch is whole.
    pub fn is_whole(&self, batch: BatchId) -> bool {
        self.whole.contains(batch)
    }

    /// What is here of a batch, if it is collected.
    pub fn get(&self, batch: BatchId) -> Option<&T> {
        self.live.get(&batch).map(|entry| &entry.item)
    }

    /// As [`get`](Self::get).
    pub fn get_mut(&mut self, batch: BatchId) -> Option<&mut T> {
        self.live.get_mut(&batch).map(|entry| &mut entry.item)
    }

    /// Whether packets of a batch can be taken; makes room for it if need be.
    pub fn takes(&mut self, batch: BatchId, is_idle: impl Fn(&T) -> bool) -> bool {
        if batch >= self.whole.len() || self.whole.contains(batch) {
            return false;
        }
        match self.live.get(&batch) {
            Some(entry) => entry.open,
            None => self.make_room(is_idle),
        }
    }

    /// What is here of a batch that is not whole, new if it was not collected yet; `None` if it is
    /// whole, or there is no room for it.
    pub fn live(
        &mut self,
        batch: BatchId,
        is_idle: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        if batch >= self.whole.len() || self.whole.contains(batch) {
            return None;
        }
        if !self.live.contains_key(&batch) && !self.make_room(is_idle) {
            return None;
        }
        debug_assert!(self.live.contains_key(&batch) || self.live.len() < self.most);
        let open = true;
        self.check();
        let entry = self.live.entry(batch);
        let entry = entry.or_insert_with(|| Entry { item: make(), open });
        Some(&mut entry.item)
    }

    /// A batch takes no more packets.
    pub fn shut(&mut self, batch: BatchId) {
        if let Some(entry) = self.live.get_mut(&batch) {
            entry.open = false;
        }
    }

    /// A batch is whole.
    pub fn finish(&mut self, batch: BatchId) {
        debug_assert!(batch < self.whole.len());
        self.live.remove(&batch);
        if batch < self.whole.len() {
            self.whole.insert(batch);
        }
        self.check();
    }

    /// What holds between any two calls.
    fn check(&self) {
        debug_assert!(self.live.len() <= self.most);
        debug_assert!(self.live.keys().all(|batch| *batch < self.whole.len()));
        debug_assert!(!self.live.keys().any(|batch| self.whole.contains(*batch)));
    }

    /// Whether one more batch fits, if need be in the place of an idle one: one with which nothing
    /// is lost, and that is not being worked on.
    fn make_room(&mut self, is_idle: impl Fn(&T) -> bool) -> bool {
        while self.live.len() >= self.most {
            let mut idle = self.live.iter().rev();
            let Some((batch, _)) = idle.find(|(_, entry)| is_idle(&entry.item)) else {
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
        let mut window = Window::new(BlockSet::new(20), 8);
        let busy = |busy: &bool| !busy;
        let kept = |window: &mut Window<bool>, batch| window.live(batch, busy, || true).is_some();
        let held = (0..20).filter(|batch| kept(&mut window, *batch));
        assert_eq!(held.count(), 8);
        assert!(!window.takes(19, busy) && window.takes(0, busy));
        window.shut(1);
        assert!(!window.takes(1, busy));
        window.finish(0);
        assert!(window.takes(19, busy) && !window.takes(0, busy) && window.is_whole(0));
        assert!(!kept(&mut window, 0) && !kept(&mut window, 20));
        // Those that are idle make room.
        for batch in 2..6 {
            if let Some(item) = window.live(batch, busy, || true) {
                *item = false;
            }
        }
        assert!((10..15).all(|batch| kept(&mut window, batch)));
        assert!(!kept(&mut window, 15));
        assert_eq!(window.live.len(), 8);
    }
}
