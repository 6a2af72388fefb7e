//! The threads that hash, read and write, so that network threads never wait for a disk.
//!
//! All sessions share them, but each session has one thread at least: while its disk hangs, a session
//! keeps those threads that wait for it and no others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use outpour_core::Priority;

type Job = Box<dyn FnOnce() + Send>;

/// Threads and a queue per session. The queues are as long as the memory budget allows: every job
/// owns, or is about to fill, a buffer that is charged to it.
pub(crate) struct Workers {
    pool: Arc<Pool>,
}

struct Pool {
    state: Mutex<State>,
    wake: Condvar,
    /// How many threads there are for one session.
    base: usize,
}

#[derive(Default)]
struct State {
    crews: BTreeMap<u64, Crew>,
    last: u64,
    threads: usize,
    handles: Vec<JoinHandle<()>>,
    closed: bool,
}

/// The jobs of a session.
struct Crew {
    weight: u32,
    jobs: VecDeque<Job>,
    running: usize,
    /// Jobs begun, in units of the greatest weight: the session with the least for its weight is next.
    served: u64,
    /// The session is over, and what still runs for it hangs perhaps.
    ended: bool,
}

impl Workers {
    /// Starts `count` threads.
    pub(crate) fn start(count: usize) -> std::io::Result<Self> {
        debug_assert!(count > 0);
        let pool = Arc::new(Pool {
            state: Mutex::default(),
            wake: Condvar::new(),
            base: count,
        });
        let workers = Self { pool };
        let mut state = workers.pool.lock();
        for _ in 0..count {
            workers.pool.start_thread(&mut state)?;
        }
        drop(state);
        Ok(workers)
    }

    /// A queue for a session.
    pub(crate) fn crew(&self, weight: u32) -> CrewHandle {
        debug_assert!(weight > 0);
        let mut state = self.pool.lock();
        state.last += 1;
        let id = state.last;
        // A new session has no claim to what others had before.
        let served = state.crews.values().map(|crew| crew.served).min();
        let crew = Crew {
            weight,
            jobs: VecDeque::new(),
            running: 0,
            served: served.unwrap_or(0),
            ended: false,
        };
        state.crews.insert(id, crew);
        self.pool.fit(&mut state);
        CrewHandle {
            pool: self.pool.clone(),
            id,
        }
    }

    /// Takes no more jobs, drops those that wait, and ends the threads when they have finished
    /// the ones they are at.
    pub(crate) fn close(&self) {
        let mut state = self.pool.lock();
        state.closed = true;
        let jobs: Vec<_> = state
            .crews
            .values_mut()
            .map(|crew| std::mem::take(&mut crew.jobs))
            .collect();
        state.check();
        drop(state);
        drop(jobs);
        self.pool.wake.notify_all();
    }

    /// Waits for the threads to end; blocks.
    pub(crate) fn join(&self) {
        let handles = std::mem::take(&mut self.pool.lock().handles);
        for thread in handles {
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

/// A session's queue of jobs.
pub(crate) struct CrewHandle {
    pool: Arc<Pool>,
    id: u64,
}

impl CrewHandle {
    /// Queues a job; once the session or the endpoint is over it is dropped.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.pool.lock();
        let closed = state.closed;
        let crew = state.crews.get_mut(&self.id);
        if let Some(crew) = crew.filter(|crew| !closed && !crew.ended) {
            crew.jobs.push_back(Box::new(job));
            drop(state);
            self.pool.wake.notify_one();
        }
    }

    /// Gives the session another weight.
    pub(crate) fn set_weight(&self, weight: u32) {
        debug_assert!(weight > 0);
        if let Some(crew) = self.pool.lock().crews.get_mut(&self.id) {
            crew.weight = weight;
        }
    }

    /// Takes no more jobs and drops those that wait.
    pub(crate) fn close(&self) {
        let mut state = self.pool.lock();
        let Some(crew) = state.crews.get_mut(&self.id) else {
            return;
        };
        crew.ended = true;
        let jobs = std::mem::take(&mut crew.jobs);
        if crew.running == 0 {
            state.crews.remove(&self.id);
        }
        self.pool.fit(&mut state);
        state.check();
        drop(state);
        drop(jobs);
        // Threads that are too many go.
        self.pool.wake.notify_all();
    }
}

impl Drop for CrewHandle {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let all = || self.crews.values();
        let running: usize = all().map(|crew| crew.running).sum();
        debug_assert!(running <= self.threads, "a job runs on no thread");
        for crew in all() {
            debug_assert!(!crew.ended || crew.running > 0, "it is to be forgotten");
            debug_assert!(!crew.ended || crew.jobs.is_empty());
            debug_assert!(!self.closed || crew.jobs.is_empty());
        }
    }

    /// How many threads there are to be: those for one session, one more for each other, and
    /// those that do not come back from one that is over.
    fn wanted(&self, base: usize) -> usize {
        let live = self.crews.values().filter(|crew| !crew.ended).count();
        let ended = self.crews.values().filter(|crew| crew.ended);
        base + live.saturating_sub(1) + ended.map(|crew| crew.running).sum::<usize>()
    }

    /// Takes the next job: of the session that has had least for its weight, of those that leave a
    /// thread to each that has none.
    fn next(&mut self) -> Option<(u64, Job)> {
        let running: usize = self.crews.values().map(|crew| crew.running).sum();
        let free = self.threads.saturating_sub(running);
        let idle = self
            .crews
            .values()
            .filter(|crew| !crew.ended && crew.running == 0);
        let idle = idle.count();
        let ready = self.crews.iter().filter(|(_, crew)| {
            let first = crew.running == 0;
            !crew.jobs.is_empty() && (first || free > idle)
        });
        let (&id, _) = ready.min_by_key(|(_, crew)| crew.served)?;
        let crew = self.crews.get_mut(&id)?;
        debug_assert!(!crew.ended);
        debug_assert!(crew.weight <= Priority::WEIGHT_MAX);
        crew.running += 1;
        crew.served += u64::from(Priority::WEIGHT_MAX / crew.weight);
        let job = crew.jobs.pop_front()?;
        self.check();
        Some((id, job))
    }

    fn ended(&mut self, id: u64) {
        let Some(crew) = self.crews.get_mut(&id) else {
            debug_assert!(false, "a crew was forgotten while a job of it ran");
            return;
        };
        debug_assert!(crew.running > 0);
        crew.running -= 1;
        if crew.ended && crew.running == 0 {
            self.crews.remove(&id);
        }
        self.check();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads that are missing. Where the system has none to give, sessions share what
    /// there is.
    fn fit(self: &Arc<Self>, state: &mut State) {
        while !state.closed && state.threads < state.wanted(self.base) {
            if let Err(error) = self.start_thread(state) {
                tracing::warn!(%error, "no thread for one more session");
                return;
            }
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let pool = self.clone();
        let thread = std::thread::Builder::new()
            .name("outpour-blocks".into())
            .spawn(move || pool.work())?;
        state.threads += 1;
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(thread);
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if state.threads > state.wanted(self.base) {
                state.threads -= 1;
                return;
            }
            if let Some((id, job)) = state.next() {
                drop(state);
                // A panic of the store must not take the thread with it.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.lock();
                state.ended(id);
            } else if state.closed {
                state.threads -= 1;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_session_whose_disk_hangs_leaves_a_thread_to_each_other() {
        let workers = Workers::start(2).unwrap();
        let crews = [4, 4, 4].map(|weight| workers.crew(weight));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (done, all_done) = mpsc::channel();
        let mut hung = Vec::new();
        for crew in &crews[..2] {
            for _ in 0..5 {
                let held = held.clone();
                crew.submit(move || assert!(held.lock().unwrap().recv().is_err()));
            }
        }
        crews[2].submit({
            let done = done.clone();
            move || done.send(()).unwrap()
        });
        all_done.recv().unwrap();
        // Sessions that are over and still hang take nothing from one that comes.
        for crew in crews {
            crew.close();
            hung.push(crew);
        }
        let late = workers.crew(4);
        let both = Arc::new(std::sync::Barrier::new(3));
        for _ in 0..2 {
            let both = both.clone();
            late.submit(move || {
                both.wait();
            });
        }
        both.wait();
        drop(release);
        drop((hung, late));
        workers.close();
        workers.join();
        assert_eq!(workers.pool.lock().threads, 0);
        assert!(workers.pool.lock().crews.is_empty());
    }
}
