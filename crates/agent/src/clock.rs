//! The process's clock as state machines see it.

use std::time::{Duration, Instant};

use outpour_core::Time;

/// The process's monotonic clock as protocols see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Takes out a time in which the process stood still, so that no node is blamed for it.
    pub(crate) fn skip(&mut self, pause: Duration) {
        self.origin += pause;
    }

    pub(crate) fn now(self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    pub(crate) fn instant(self, time: Time) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.origin + time.since(Time::ZERO))
    }
}
