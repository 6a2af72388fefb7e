//! How long a sender of the TCP family waits for an acknowledgement (RFC 6298).

use std::time::Duration;

/// Doubling stops after so many times; the longest wait is reached before.
const BACKOFF_MAX: u32 = 16;

/// The bounds of a retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoBounds {
    /// The timeout before there is a sample.
    pub initial: Duration,
    /// No timeout is shorter, but for those of a smaller `max`.
    pub min: Duration,
    /// No timeout is longer, however often the timer has run out.
    pub max: Duration,
}

impl RtoBounds {
    /// With this minimum, and 1 s and 60 s as the others (RFC 6298 §2.1, §2.5).
    pub const fn standard(min: Duration) -> Self {
        Self {
            initial: Duration::from_secs(1),
            min,
            max: Duration::from_secs(60),
        }
    }
}

/// The smoothed round-trip time of a flow and the timeout that follows from it.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    bounds: RtoBounds,
    /// Smoothed round-trip time and its variation, nanoseconds.
    estimate: Option<(f64, f64)>,
    backoff: u32,
}

impl Rto {
    pub(super) fn new(bounds: RtoBounds) -> Self {
        Self {
            bounds,
            estimate: None,
            backoff: 0,
        }
    }

    /// A packet that was sent once was acknowledged after `sample` (RFC 6298 §2.2, §2.3, §3).
    pub(super) fn on_sample(&mut self, sample: Duration) {
        self.backoff = 0;
        let sample = sample.as_nanos() as f64;
        self.estimate = Some(match self.estimate {
            None => (sample, sample / 2.0),
            Some((smoothed, variation)) => (
                smoothed + (sample - smoothed) / 8.0,
                variation + ((smoothed - sample).abs() - variation) / 4.0,
            ),
        });
    }

    /// The timer ran out (RFC 6298 §5.5).
    pub(super) fn on_timeout(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|it| Duration::from_nanos(it.0 as u64))
    }

    pub(super) fn timeout(&self) -> Duration {
        let base = self
            .estimate
            .map_or(self.bounds.initial, |(smoothed, variation)| {
                Duration::from_nanos((smoothed + 4.0 * variation) as u64)
            });
        let backed_off = base.max(self.bounds.min).saturating_mul(1 << self.backoff);
        backed_off.min(self.bounds.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_timeout_follows_the_samples_within_its_bounds() {
        let mut rto = Rto::new(RtoBounds::standard(5 * MS));
        assert_eq!(rto.timeout(), Duration::from_secs(1));
        rto.on_sample(8 * MS);
        // 8 + 4 * 4.
        assert_eq!(rto.timeout(), 24 * MS);
        rto.on_sample(16 * MS);
        // 9 + 4 * (4 + (8 - 4) / 4).
        assert_eq!(rto.timeout(), 29 * MS);
        assert_eq!(rto.smoothed(), Some(9 * MS));
        for _ in 0..200 {
            rto.on_sample(MS);
        }
        assert_eq!(rto.timeout(), 5 * MS);
        rto.on_timeout();
        rto.on_timeout();
        assert_eq!(rto.timeout(), 20 * MS);
        for _ in 0..40 {
            rto.on_timeout();
        }
        assert_eq!(rto.timeout(), Duration::from_secs(60));
        rto.on_sample(MS);
        assert_eq!(rto.timeout(), 5 * MS);
    }

    #[test]
    fn bounds_hold_before_the_first_sample_and_after_many_timeouts() {
        let mut rto = Rto::new(RtoBounds {
            initial: 40 * MS,
            min: 10 * MS,
            max: 100 * MS,
        });
        assert_eq!(rto.timeout(), 40 * MS);
        rto.on_timeout();
        assert_eq!(rto.timeout(), 80 * MS);
        rto.on_timeout();
        assert_eq!(rto.timeout(), 100 * MS);
        rto.on_sample(MS);
        assert_eq!(rto.timeout(), 10 * MS);
    }
}
