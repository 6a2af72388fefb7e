//! Memory of blocks and payloads: the same again and again, because the first touch of new memory
//! costs more than what is done with it.

use std::sync::{Arc, Mutex, PoisonError};

/// Free buffers are kept up to this many bytes.
const FREE_BYTES_MAX: usize = 32 << 20;

/// Free buffers.
#[derive(Default)]
pub(super) struct Pool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A buffer of `len` bytes; which, is not defined.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let mut bytes = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let bytes = free.buffers.pop().unwrap_or_default();
            free.bytes -= bytes.capacity();
            bytes
        };
        bytes.resize(len, 0);
        Buffer {
            bytes,
            pool: self.clone(),
        }
    }

    pub(super) fn give(&self, bytes: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + bytes.capacity() <= FREE_BYTES_MAX {
            free.bytes += bytes.capacity();
            free.buffers.push(bytes);
        }
    }
}

/// A buffer that goes back to its pool.
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Buffer {
    /// Replaces what is in it by `data`, and by zeros up to `len` bytes.
    pub(super) fn fill(mut self, data: &[u8], len: usize) -> Payload {
        self.bytes.clear();
        self.bytes.extend_from_slice(data);
        self.bytes.resize(len, 0);
        self.share()
    }

    /// What is in it, for good.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn share(self) -> Payload {
        Payload(Arc::new(self))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.bytes));
    }
}

/// A block, or the payload of a packet, shared by all that work with it.
#[derive(Clone)]
pub(super) struct Payload(Arc<Buffer>);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn buffers_are_used_again_within_bounds() {
        let pool = Arc::new(Pool::default());
        let many: Vec<_> = (0..100).map(|_| pool.take(1 << 20).share()).collect();
        let copy = many[0].clone();
        drop(many);
        assert_eq!(pool.free.lock().unwrap().buffers.len(), 32);
        drop(copy);
        assert_eq!(pool.free.lock().unwrap().bytes, FREE_BYTES_MAX);
        let short = pool.take(3).fill(&[7], 3);
        assert_eq!(short.as_ref(), [7, 0, 0]);
        assert!(short.0.bytes.capacity() >= 1 << 20);
        drop(short);
        assert_eq!(pool.take(5).bytes.len(), 5);
    }
}
