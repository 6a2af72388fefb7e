//! Buffers of blocks: recycled, and kept for a while when other peers may want the block too.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use outpour_core::{BlockId, Priority};

/// Buffers that are free are kept up to this many, so that memory stays mapped and warm.
const FREE_MAX: usize = 16;
/// ... and up to this many bytes.
const FREE_BYTES_MAX: usize = 16 << 20;

/// A block's bytes, shared by the tasks that send it.
#[derive(Clone)]
pub(crate) struct Block(Arc<Buffer>);

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// Memory for one block; returns to its pool when dropped.
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Buffer {
    pub(crate) fn share(self) -> Block {
        Block(Arc::new(self))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.bytes));
    }
}

/// Free buffers; the one used last is used next, because it is still in the processor's cache.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// An empty buffer with room for `len` bytes.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let bytes = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut bytes = bytes.unwrap_or_default();
        debug_assert!(bytes.is_empty(), "it still holds what it was used for");
        bytes.reserve_exact(len);
        Buffer {
            bytes,
            pool: self.clone(),
        }
    }

    fn give(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = free.iter().map(Vec::capacity).sum();
        debug_assert!(free.len() <= FREE_MAX);
        debug_assert!(held <= FREE_BYTES_MAX);
        if free.len() < FREE_MAX && held + bytes.capacity() <= FREE_BYTES_MAX {
            free.push(bytes);
        }
    }
}

/// The blocks that came or were read last, so that a relay, or a source that serves many, does
/// not read a file again for every peer. All sessions share it by their weights.
pub(crate) struct Cache {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeMap<u64, Kept>,
    held: usize,
}

/// What is kept for a session.
#[derive(Default)]
struct Kept {
    weight: u64,
    blocks: HashMap<(u8, BlockId), Block>,
    order: VecDeque<(u8, BlockId)>,
    held: usize,
}

impl Kept {
    /// Lets go of the oldest block; how long it was.
    fn drop_oldest(&mut self) -> usize {
        let oldest = self.order.pop_front();
        let old = oldest.and_then(|oldest| self.blocks.remove(&oldest));
        debug_assert!(old.is_some(), "in the order, but not kept");
        let freed = old.map_or(0, |old| old.len());
        debug_assert!(freed <= self.held);
        self.held -= freed;
        freed
    }
}

impl Inner {
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let all = || self.sessions.values();
        debug_assert_eq!(self.held, all().map(|kept| kept.held).sum::<usize>());
        for kept in all() {
            debug_assert_eq!(kept.order.len(), kept.blocks.len());
            debug_assert!(kept.held == 0 || !kept.blocks.is_empty());
        }
    }
}

impl Cache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            inner: Mutex::default(),
        }
    }

    /// Sets what a session weighs; before that nothing is kept for it.
    pub(crate) fn set_weight(&self, session: u64, weight: u32) {
        debug_assert!(weight > 0);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sessions.entry(session).or_default().weight = u64::from(weight);
    }

    pub(crate) fn find(&self, session: u64, transfer: u8, block: BlockId) -> Option<Block> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = inner.sessions.get(&session)?;
        kept.blocks.get(&(transfer, block)).cloned()
    }

    /// Keeps a verified block; the oldest ones of the session that holds most for its weight make
    /// room.
    pub(crate) fn keep(&self, session: u64, transfer: u8, block: BlockId, data: Block) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let Some(kept) = inner.sessions.get_mut(&session) else {
            return;
        };
        inner.held += data.len();
        kept.held += data.len();
        match kept.blocks.insert((transfer, block), data) {
            Some(old) => {
                kept.held -= old.len();
                inner.held -= old.len();
            }
            None => kept.order.push_back((transfer, block)),
        }
        while inner.held > self.capacity {
            let richest = inner.sessions.values_mut().max_by_key(|kept| {
                kept.held as u64 * u64::from(Priority::WEIGHT_MAX) / kept.weight.max(1)
            });
            let Some(richest) = richest.filter(|kept| kept.held > 0) else {
                debug_assert!(false, "more is held than sessions hold");
                return;
            };
            inner.held -= richest.drop_oldest();
        }
        inner.check();
    }

    /// Lets go of all that is kept for a session.
    pub(crate) fn forget(&self, session: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = inner.sessions.remove(&session);
        inner.held -= kept.as_ref().map_or(0, |kept| kept.held);
        inner.check();
        drop(inner);
        drop(kept);
    }

    /// Bytes that are kept.
    pub(crate) fn held(&self) -> usize {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pool: &Arc<Pool>, len: usize) -> Block {
        let mut buffer = pool.take(len);
        buffer.bytes.resize(len, 1);
        buffer.share()
    }

    #[test]
    fn the_cache_holds_the_newest_up_to_its_capacity() {
        let pool = Arc::new(Pool::default());
        let cache = Cache::new(1000);
        cache.set_weight(7, 4);
        for id in 0..50 {
            cache.keep(7, 1, id, block(&pool, 100));
            cache.keep(7, 1, id, block(&pool, 100));
            assert!(cache.held() <= 1000);
        }
        assert!(cache.find(7, 1, 39).is_none());
        assert!((40..50).all(|id| cache.find(7, 1, id).is_some()));
        assert!(cache.find(7, 0, 49).is_none());
        cache.keep(7, 0, 0, block(&pool, 2000));
        assert!(
            cache.find(7, 0, 0).is_none(),
            "what is larger than the cache does not stay"
        );
    }

    #[test]
    fn sessions_share_the_cache_by_weight_and_leave_nothing() {
        let pool = Arc::new(Pool::default());
        let cache = Cache::new(1000);
        cache.set_weight(1, 1);
        cache.set_weight(2, 4);
        for id in 0..50 {
            cache.keep(1, 0, id, block(&pool, 10));
            cache.keep(2, 0, id, block(&pool, 10));
            cache.keep(1, 1, id, block(&pool, 10));
            cache.keep(2, 1, id, block(&pool, 10));
        }
        let kept = |session| {
            (0..50)
                .filter(|id| cache.find(session, 0, *id).is_some())
                .count()
        };
        assert_eq!((kept(1), kept(2)), (10, 40));
        assert!(cache.find(3, 0, 1).is_none());
        cache.forget(2);
        assert_eq!(cache.held(), 200);
        cache.keep(2, 0, 1, block(&pool, 10));
        assert_eq!(cache.held(), 200, "it is over");
        cache.forget(1);
        assert_eq!(cache.held(), 0);
    }

    #[test]
    fn buffers_are_recycled_within_bounds() {
        let pool = Arc::new(Pool::default());
        let many: Vec<_> = (0..100).map(|_| block(&pool, 1 << 20)).collect();
        let copy = many.clone();
        drop(many);
        assert_eq!(pool.free.lock().map(|free| free.len()).unwrap_or(0), 0);
        drop(copy);
        assert_eq!(
            pool.free.lock().map(|free| free.len()).unwrap_or(0),
            FREE_MAX
        );
        assert!(pool.take(10).bytes.capacity() >= 1 << 20);
    }
}
