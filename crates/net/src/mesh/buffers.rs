//! Buffers of blocks: recycled, and kept for a while when other peers may want the block too.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use outpour_core::BlockId;

/// Buffers that are free are kept up to this many, so that memory stays mapped and warm.
const FREE_MAX: usize = 16;
/// ... and up to this many bytes.
const FREE_BYTES_MAX: usize = 16 << 20;

/// A block's bytes, shared by those who send it.
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
        if free.len() < FREE_MAX && held + bytes.capacity() <= FREE_BYTES_MAX {
            free.push(bytes);
        }
    }
}

/// The blocks that came or were read last, so that a relay, or a source that serves many, does
/// not read a file again for every peer.
pub(crate) struct Cache {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    blocks: HashMap<(u8, BlockId), Block>,
    order: VecDeque<(u8, BlockId)>,
    held: usize,
}

impl Cache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            inner: Mutex::default(),
        }
    }

    pub(crate) fn find(&self, transfer: u8, block: BlockId) -> Option<Block> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.blocks.get(&(transfer, block)).cloned()
    }

    /// Keeps a verified block; the oldest ones make room.
    pub(crate) fn keep(&self, transfer: u8, block: BlockId, data: Block) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        inner.held += data.len();
        match inner.blocks.insert((transfer, block), data) {
            Some(old) => inner.held -= old.len(),
            None => inner.order.push_back((transfer, block)),
        }
        while inner.held > self.capacity
            && let Some(oldest) = inner.order.pop_front()
        {
            if let Some(old) = inner.blocks.remove(&oldest) {
                inner.held -= old.len();
            }
        }
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
        for id in 0..50 {
            cache.keep(1, id, block(&pool, 100));
            cache.keep(1, id, block(&pool, 100));
            assert!(
                cache
                    .inner
                    .lock()
                    .map(|inner| inner.held <= 1000)
                    .unwrap_or(false)
            );
        }
        assert!(cache.find(1, 39).is_none());
        assert!((40..50).all(|id| cache.find(1, id).is_some()));
        assert!(cache.find(0, 49).is_none());
        cache.keep(0, 0, block(&pool, 2000));
        assert!(
            cache.find(0, 0).is_none(),
            "what is larger than the cache does not stay"
        );
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
