//! How much passed in the last half second, as a value: told what time it is, it says how much.

use std::time::Duration;

use outpour_core::{Rate, Time};

/// The half second is kept in so many parts.
const PARTS: usize = 5;
const PART: Duration = Duration::from_millis(100);

const _: () = assert!(PART.as_millis() * PARTS as u128 == 500);
// The part that has not ended is left out.
const _: () = assert!(PARTS > 1);

/// Bytes of the last half second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    parts: [u64; PARTS],
    /// The part of time to which the last bytes belong, counted from the clock's origin.
    at: u64,
}

impl Meter {
    pub(crate) fn add(&mut self, now: Time, bytes: usize) {
        self.turn(now);
        self.parts[self.at as usize % PARTS] += bytes as u64;
    }

    /// Bytes per second in the last half second, but for the part that has not ended.
    pub(crate) fn rate(&mut self, now: Time) -> Rate {
        self.turn(now);
        let current = self.parts[self.at as usize % PARTS];
        let bytes = self.parts.iter().sum::<u64>() - current;
        let seconds = PART.as_secs_f64() * (PARTS - 1) as f64;
        Rate::from_bytes_per_s(bytes as f64 / seconds).unwrap_or_default()
    }

    /// Forgets what is older than half a second.
    fn turn(&mut self, now: Time) {
        let at = now.since(Time::ZERO).as_nanos() as u64 / PART.as_nanos() as u64;
        for part in (self.at + 1..=at).take(PARTS) {
            self.parts[part as usize % PARTS] = 0;
        }
        self.at = self.at.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_half_second_counts_and_nothing_older() {
        let mut meter = Meter::default();
        let at = |ms: u64| Time(ms * 1_000_000);
        for ms in 0..2000 {
            meter.add(at(ms), 1000);
        }
        assert_eq!(meter.rate(at(2000)).bytes_per_s(), 1e6);
        for ms in 2000..2200 {
            meter.add(at(ms), 3000);
        }
        let rate = meter.rate(at(2200)).bytes_per_s();
        assert!((1.9e6..2.1e6).contains(&rate), "{rate}");
        assert_eq!(meter.rate(at(2701)), Rate::ZERO);
        assert_eq!(meter.rate(at(1_000_000)), Rate::ZERO);
    }
}
