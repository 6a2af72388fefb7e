//! The threads that make packets: those that are asked for, and a few of the same batch ahead.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use outpour_core::BatchId;
use outpour_net::Encoded;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::buffers::Pool;
use super::{Core, fresh};

/// Packets that are made ahead of a batch: so many at a time, when so few are left.
const READY_MAX: usize = AT_A_TIME;
const READY_MIN: usize = 2;
/// Batches of which packets are made ahead; those asked for last.
const READY_BATCHES_MAX: usize = 4;
/// Packets that are made at a time: each takes less time then.
const AT_A_TIME: usize = 4;

/// A packet that is to be made.
pub(super) struct Request {
    pub(super) batch: BatchId,
    pub(super) pure: bool,
    pub(super) buf: Vec<u8>,
    pub(super) done: Encoded,
}

/// A packet that was made before it was requested.
pub(super) struct Ready {
    pub(super) bytes: Vec<u8>,
    /// Of how many packets and blocks, in the order in which they came; `None` if of all blocks.
    pub(super) made_of: Option<usize>,
}

/// See the module.
pub(super) struct Encoders {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    ready: BTreeMap<(BatchId, bool), Vec<Ready>>,
    /// What was asked for last, the newest last.
    recent: VecDeque<(BatchId, bool)>,
    closed: bool,
}

enum Job {
    Answer(Vec<Request>, Vec<Ready>),
    Prepare(BatchId, bool, usize),
}

impl Encoders {
    /// Starts `count` threads.
    pub(super) fn start(count: usize, core: &Arc<Core>) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let mut encoders = Self {
            queue,
            threads: Vec::new(),
        };
        for _ in 0..count {
            let (queue, core) = (encoders.queue.clone(), core.clone());
            let thread = std::thread::Builder::new()
                .name("outpour-encode".into())
                .spawn(move || queue.work(&core))?;
            encoders.threads.push(thread);
        }
        Ok(encoders)
    }

    /// Has a packet made, or gives one that was. How many are asked for is bounded by the data
    /// plane's memory.
    pub(super) fn ask(&self, request: Request, pool: &Pool) {
        let mut state = self.queue.lock();
        if state.closed {
            return;
        }
        let key = (request.batch, request.pure);
        let Some(bytes) = state.take_lasting(key) else {
            state.requests.push_back(request);
            drop(state);
            return self.queue.wake.notify_one();
        };
        state.remember(key);
        drop(state);
        self.queue.wake.notify_one();
        pool.give(request.buf);
        (request.done)(Ok(bytes));
    }
}

impl Drop for Encoders {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.closed = true;
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        // The task that waits for them is at its end, too.
        drop(requests);
        self.queue.wake.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has printed why.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, core: &Core) {
        let mut dice = Pcg64Mcg::seed_from_u64(fresh());
        let mut state = self.lock();
        while !state.closed {
            let Some(job) = state.next() else {
                let waited = self.wake.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let prepared = match job {
                Job::Answer(requests, ready) => {
                    core.answer(requests, ready, &mut dice);
                    None
                }
                Job::Prepare(batch, pure, count) => {
                    let made = core.prepare(batch, pure, count, &mut dice);
                    Some(((batch, pure), made))
                }
            };
            state = self.lock();
            if let Some((key, made)) = prepared {
                state.store(key, made);
            }
        }
    }
}

impl State {
    fn next(&mut self) -> Option<Job> {
        if let Some(first) = self.requests.pop_front() {
            let key = (first.batch, first.pure);
            self.remember(key);
            let mut same = vec![first];
            while same.len() < AT_A_TIME
                && let Some(next) = self.requests.front()
                && (next.batch, next.pure) == key
            {
                same.extend(self.requests.pop_front());
            }
            let ready = self.ready.get_mut(&key).map(|ready| {
                let keep = ready.len().saturating_sub(same.len());
                ready.split_off(keep)
            });
            return Some(Job::Answer(same, ready.unwrap_or_default()));
        }
        let lacking = |key: &&(BatchId, bool)| {
            let here = self.ready.get(*key).map_or(0, Vec::len);
            here < READY_MIN
        };
        let key = *self.recent.iter().rev().find(lacking)?;
        let here = self.ready.get(&key).map_or(0, Vec::len);
        Some(Job::Prepare(key.0, key.1, READY_MAX - here))
    }

    /// A packet that was made of a whole batch: nothing has come since that it lacks.
    fn take_lasting(&mut self, key: (BatchId, bool)) -> Option<Vec<u8>> {
        let ready = self.ready.get_mut(&key)?;
        ready
            .pop_if(|ready| ready.made_of.is_none())
            .map(|ready| ready.bytes)
    }

    /// Notes that a batch was asked for; what was made ahead of others for long is dropped.
    fn remember(&mut self, key: (BatchId, bool)) {
        self.recent.retain(|other| *other != key);
        self.recent.push_back(key);
        while self.recent.len() > READY_BATCHES_MAX
            && let Some(old) = self.recent.pop_front()
        {
            self.ready.remove(&old);
        }
    }

    /// Takes packets that were made ahead; none means that there is nothing to make them of.
    fn store(&mut self, key: (BatchId, bool), made: Vec<Ready>) {
        if made.is_empty() {
            self.recent.retain(|other| *other != key);
            self.ready.remove(&key);
        } else if self.recent.contains(&key) {
            let ready = self.ready.entry(key).or_default();
            ready.extend(made);
            ready.truncate(READY_MAX);
        }
    }
}
