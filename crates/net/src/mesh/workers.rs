//! The threads that hash, read and write, so that network threads never wait for a disk.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed set of threads and a queue. The queue is as long as the memory budget allows: every
/// job owns, or is about to fill, a buffer that is charged to it.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Workers {
    /// Starts `count` threads.
    pub(crate) fn start(count: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let workers = Self {
            queue,
            threads: Mutex::default(),
        };
        for _ in 0..count {
            let queue = workers.queue.clone();
            let thread = std::thread::Builder::new()
                .name("outpour-blocks".into())
                .spawn(move || queue.work())?;
            workers
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(thread);
        }
        Ok(workers)
    }

    /// Queues a job; after [`Self::close`] it is dropped.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self
            .queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !state.closed {
            state.jobs.push_back(Box::new(job));
            drop(state);
            self.queue.wake.notify_one();
        }
    }

    /// Takes no more jobs, drops those that wait, and ends the threads when they have finished
    /// the ones they are at.
    pub(crate) fn close(&self) {
        let mut state = self
            .queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        let dropped = std::mem::take(&mut state.jobs);
        drop(state);
        drop(dropped);
        self.queue.wake.notify_all();
    }

    /// Waits for the threads to end; blocks.
    pub(crate) fn join(&self) {
        let threads: Vec<_> = self
            .threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
            .collect();
        for thread in threads {
            // A job that panicked has printed why; the others are to be waited for all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic of the store must not take the thread with it.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            } else if state.closed {
                return;
            } else {
                state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
