//! How long to wait for an acknowledgement (RFC 6298).

use std::time::Duration;

/// A timeout doubles at most so often; the bound on the timeout holds long before.
const BACKOFF_MAX: u32 = 16;

/// The round-trip time of a flow and the retransmission timeout that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    initial: Duration,
    min: Duration,
    max: Duration,
    /// Smoothed round-trip time and its variation, once there was a sample.
    estimate: Option<(Duration, Duration)>,
    /// How often in a row the timer has run out.
    backoff: u32,
}

impl Rtt {
    pub(crate) fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        debug_assert!(min <= max, "bounds in the wrong order");
        Self {
            initial,
            min,
            max,
            estimate: None,
            backoff: 0,
        }
    }

    /// A packet was acknowledged after `sample` (RFC 6298 §2.2, §2.3). Packet numbers never repeat, so every
    /// sample is of one transmission, and Karn's rule has nothing to do.
    pub(crate) fn on_sample(&mut self, sample: Duration) {
        self.backoff = 0;
        let (smoothed, variation) = match self.estimate {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let variation = variation * 3 / 4 + smoothed.abs_diff(sample) / 4;
                (smoothed * 7 / 8 + sample / 8, variation)
            }
        };
        debug_assert!(smoothed <= sample.max(self.estimate.map_or(sample, |it| it.0)));
        self.estimate = Some((smoothed, variation));
    }

    /// The timer ran out (RFC 6298 §5.5).
    pub(crate) fn on_timeout(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Whether the timer has run out since the last sample.
    pub(crate) fn is_backing_off(&self) -> bool {
        self.backoff > 0
    }

    /// The smoothed round-trip time, if there was a sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|it| it.0)
    }

    /// How long to wait for an acknowledgement.
    pub(crate) fn timeout(&self) -> Duration {
        let base = match self.estimate {
            None => self.initial,
            Some((smoothed, variation)) => smoothed.saturating_add(variation.saturating_mul(4)),
        };
        let timeout = base.max(self.min).saturating_mul(1 << self.backoff);
        let timeout = timeout.min(self.max);
        debug_assert!(timeout >= self.min && self.backoff <= BACKOFF_MAX);
        timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_estimate_is_that_of_the_rfc() {
        let mut rtt = Rtt::new(1000 * MS, MS, 60_000 * MS);
        assert_eq!(rtt.timeout(), 1000 * MS);
        rtt.on_sample(100 * MS);
        // SRTT 100, RTTVAR 50.
        assert_eq!(rtt.timeout(), 300 * MS);
        rtt.on_sample(200 * MS);
        // RTTVAR 3/4 of 50 and 1/4 of 100: 62.5; SRTT 112.5.
        assert_eq!(rtt.smoothed(), Some(Duration::from_micros(112_500)));
        assert_eq!(rtt.timeout(), Duration::from_micros(362_500));
    }

    #[test]
    fn timeouts_double_within_bounds_until_a_sample() {
        let mut rtt = Rtt::new(100 * MS, 50 * MS, 300 * MS);
        rtt.on_timeout();
        assert_eq!(rtt.timeout(), 200 * MS);
        for _ in 0..100 {
            rtt.on_timeout();
        }
        assert_eq!(rtt.timeout(), 300 * MS);
        rtt.on_sample(MS);
        assert_eq!(rtt.timeout(), 50 * MS);
    }
}
