//! Spreads hashing over threads.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outpour_core::BlockId;
use outpour_core::manifest::{BLOCK_BYTES_MIN, BLOCKS_MAX, Layout};

use crate::error::Error;
use crate::fs;

/// How many bytes a thread takes at a time: enough to be worth a lock, few enough to share evenly.
const SHARE_BYTES: u64 = 4 << 20;

// A share that begins at the last block of an object may end after it.
const _: () = assert!(BLOCKS_MAX as u64 + SHARE_BYTES / BLOCK_BYTES_MIN as u64 <= u32::MAX as u64);

/// Ends work on the disk that nobody waits for any more. Copies are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the work at the next block.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.is_stopped() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

/// How many threads to use if the caller does not say.
pub(crate) fn default_threads() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Does every job on one of `threads` threads, each with a buffer of its own, until one fails.
///
/// # Errors
/// The first failure.
pub(crate) fn spread<T: Sync, E: Send>(
    threads: NonZero<usize>,
    jobs: &[T],
    work: impl Fn(&T, &mut Vec<u8>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = if fs::ONE_THREAD { 1 } else { threads.get() };
    let draw = fs::draw();
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let run = || {
        let mut buf = Vec::new();
        let turn = || fs::turn(draw, next.fetch_add(1, Ordering::Relaxed), jobs.len());
        while let Some(job) = jobs.get(turn()) {
            if let Err(error) = work(job, &mut buf) {
                next.store(jobs.len(), Ordering::Relaxed);
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(run);
        }
        run();
    });
    debug_assert!(
        next.into_inner() >= jobs.len(),
        "no thread took the last jobs"
    );
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}

/// Cuts a run of blocks into shares of about [`SHARE_BYTES`].
pub(crate) fn shares(layout: &Layout, blocks: Range<BlockId>) -> impl Iterator<Item = Range<u32>> {
    debug_assert!(blocks.start <= blocks.end);
    debug_assert!(blocks.end <= layout.blocks());
    let step = (SHARE_BYTES / u64::from(layout.block_bytes())).max(1) as usize;
    let end = blocks.end;
    blocks
        .step_by(step)
        .map(move |start| start..end.min(start + step as u32))
}
