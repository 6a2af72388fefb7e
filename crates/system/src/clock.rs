//! The processor's time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long the calling thread has been at work since it began: what it waited for, and what others
/// took of the processor meanwhile, does not count.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_work_of_this_thread_counts() {
        let begun = thread_time();
        let other = std::thread::spawn(|| {
            let begun = thread_time();
            while thread_time() - begun < Duration::from_millis(50) {
                std::hint::black_box(0);
            }
        });
        assert!(other.join().is_ok());
        let waited = thread_time() - begun;
        assert!(waited < Duration::from_millis(25), "{waited:?}");
        while thread_time() == begun {}
    }
}
