//! A token bucket as a value: told what time it is, it says when bytes may pass.
//!
//! It keeps one number, the time at which everything granted so far will have passed at the rate.
//! Each request gets the next stretch of time, so waiters are served in the order they came. Time in
//! which no sender had anything to send is lost but for a short burst; time in which a sender had, and
//! was only woken late by a busy machine, can be made up for.

use std::time::Duration;

use outpour_core::{Rate, Time};

/// After a pause this much may pass at once,
const BURST: Duration = Duration::from_millis(20);
/// or this many bytes where that is more.
const BURST_BYTES: f64 = 32_768.0;
/// A waiter that was woken late may make up for this much.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(250);

/// Limits a stream of bytes to a rate.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    /// When all that was granted has passed.
    clear: Time,
}

impl Bucket {
    pub(crate) const fn new(rate: Rate) -> Self {
        Self {
            rate,
            clear: Time::ZERO,
        }
    }

    pub(crate) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from `now` on. What was granted and has not passed does so at the new one.
    pub(crate) fn set_rate(&mut self, now: Time, rate: Rate) {
        self.clear = rescale(self.clear, now, self.rate, rate);
        self.rate = rate;
    }

    /// Grants `bytes` to a sender that has had something to pass without a break `since` then, and
    /// returns from when on they may pass; not after `now` means at once.
    pub(crate) fn reserve(&mut self, now: Time, since: Time, bytes: usize) -> Time {
        if self.rate.is_unlimited() {
            return now;
        }
        debug_assert!(since <= now, "it had something to pass in the future");
        let earliest = since.max(now - LATE_MAX).min(now - burst(self.rate));
        let start = self.clear.max(earliest);
        self.clear = start + cost(self.rate, bytes as f64);
        debug_assert!(now.since(start) <= LATE_MAX.max(burst(self.rate)));
        start
    }

    /// Counts `bytes` that have passed already, and says when the next ones may.
    pub(crate) fn charge(&mut self, now: Time, since: Time, bytes: usize) -> Time {
        self.reserve(now, since, bytes);
        if self.rate.is_unlimited() {
            now
        } else {
            self.clear
        }
    }
}

/// How long `bytes` take at a rate; at rate zero, forever.
pub(crate) fn cost(rate: Rate, bytes: f64) -> Duration {
    debug_assert!(bytes > 0.0, "nothing would pass even at rate zero");
    Duration::from_nanos((bytes * 1e9 / rate.bytes_per_s()) as u64)
}

/// What may pass at once after a pause, as time at the rate.
pub(crate) fn burst(rate: Rate) -> Duration {
    BURST.max(cost(rate, BURST_BYTES).min(Duration::from_secs(1)))
}

/// When what was granted until `clear` at the old rate has passed if the rate is another from `now`
/// on.
pub(crate) fn rescale(clear: Time, now: Time, old: Rate, new: Rate) -> Time {
    // A caller that changes rates on several threads may have looked at the clock before the last
    // change.
    if clear <= now || new.is_unlimited() || old.is_unlimited() || old.is_zero() {
        return clear.min(now);
    }
    let left = clear.since(now).as_secs_f64() * old.bytes_per_s() / new.bytes_per_s();
    debug_assert!(left >= 0.0, "not a number");
    now + Duration::from_nanos((left * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn rate(bytes_per_s: f64) -> Rate {
        Rate::from_bytes_per_s(bytes_per_s).unwrap()
    }

    /// A small generator, so that the tests are the same each time.
    fn noise(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn long_run_rate_is_right_within_a_percent() {
        for bytes_per_s in [50e3, 1.875e6, 125e6] {
            let mut bucket = Bucket::new(rate(bytes_per_s));
            let (mut now, mut passed, mut seed) = (Time(1_000_000_000), 0, 7);
            // What may pass at once, once, is not part of the long run.
            bucket.reserve(
                now,
                now,
                (BURST.as_secs_f64() * bytes_per_s).max(BURST_BYTES) as usize,
            );
            let start = now;
            for _ in 0..50_000 {
                let bytes = 1 + noise(&mut seed) as usize % 16_384;
                now = now.max(bucket.reserve(now, start, bytes));
                passed += bytes;
                // Now and then the waiter is woken late, by up to 200 ms.
                if noise(&mut seed).is_multiple_of(4096) {
                    now += Duration::from_millis(noise(&mut seed) % 200);
                }
            }
            let share = passed as f64 / now.since(start).as_secs_f64() / bytes_per_s;
            assert!((0.99..1.01).contains(&share), "{share} of {bytes_per_s}");
        }
    }

    #[test]
    fn no_window_exceeds_rate_and_burst() {
        let bytes_per_s = 1e6;
        let mut bucket = Bucket::new(rate(bytes_per_s));
        let mut grants = Vec::new();
        let (mut now, mut seed) = (Time(5_000_000_000), 3);
        for _ in 0..2000 {
            if noise(&mut seed).is_multiple_of(20) {
                now += Duration::from_millis(noise(&mut seed) % 200);
            }
            let bytes = 1 + noise(&mut seed) as usize % 8192;
            now = now.max(bucket.reserve(now, now, bytes));
            grants.push((now, bytes));
        }
        let burst = (BURST.as_secs_f64() * bytes_per_s).max(BURST_BYTES);
        for first in (0..grants.len()).step_by(37) {
            let mut sum = 0;
            for (at, bytes) in &grants[first..] {
                sum += bytes;
                let window = at.since(grants[first].0).as_secs_f64();
                assert!(sum as f64 <= window * bytes_per_s + burst + 8192.0 + 1.0);
            }
        }
    }

    #[test]
    fn lateness_is_made_up_for_and_pauses_are_not() {
        let late = Duration::from_millis(200);
        let after = |busy: bool| {
            let mut bucket = Bucket::new(rate(1e7));
            let start = Time(1_000_000_000);
            bucket.reserve(start, start, 1_000_000);
            let turn = bucket.reserve(start, start, 1000);
            let now = turn + late;
            let since = if busy { start } else { now };
            let mut at_once = 0;
            while bucket.reserve(now, since, 1000) <= now {
                at_once += 1000;
            }
            f64::from(at_once) / 1e7
        };
        assert!((0.18..0.25).contains(&after(true)), "{}", after(true));
        assert!((0.015..0.025).contains(&after(false)), "{}", after(false));
    }

    #[test]
    fn waiters_are_served_in_order() {
        let mut bucket = Bucket::new(rate(1e6));
        let now = Time(1_000_000_000);
        bucket.reserve(now, now, 1 << 20);
        let turns: Vec<Time> = (0..10).map(|_| bucket.reserve(now, now, 1000)).collect();
        assert!(turns.is_sorted());
        assert_eq!(turns[9].since(turns[0]), Duration::from_millis(9));
    }

    #[test]
    fn what_passed_already_is_paid_by_those_who_come_next() {
        let mut bucket = Bucket::new(rate(1e6));
        let now = Time(1_000_000_000);
        bucket.charge(now, now, 1_000_000);
        let turn = bucket.reserve(now, now, 1).since(now).as_secs_f64();
        assert!((0.95..=1.0).contains(&turn), "{turn}");
    }

    #[test]
    fn a_rate_that_is_changed_holds_at_once() {
        let mut bucket = Bucket::new(rate(1e6));
        let now = Time(1_000_000_000);
        bucket.reserve(now, now, 1_000_000);
        for (bytes_per_s, seconds) in [(2e6, 0.5), (0.5e6, 2.0), (1e6, 1.0)] {
            bucket.set_rate(now, rate(bytes_per_s));
            let turn = bucket.clone().reserve(now, now, 1).since(now).as_secs_f64();
            assert!((0.95..=1.0).contains(&(turn / seconds)), "{turn}");
        }
        bucket.set_rate(now, Rate::ZERO);
        assert_eq!(bucket.clone().reserve(now, now, 1), Time::MAX);
        bucket.set_rate(now, rate(1e6));
        assert!(bucket.reserve(now, now, 1) <= now);
    }

    #[test]
    fn nothing_is_owed_of_a_time_without_a_limit() {
        let now = Time(1_000_000_000);
        let mut bucket = Bucket::new(rate(1e6));
        bucket.reserve(now, now, 1_000_000);
        bucket.set_rate(now + Duration::from_millis(1), Rate::UNLIMITED);
        bucket.set_rate(now, rate(1e6));
        assert!(bucket.reserve(now, now, 1) <= now);
    }

    #[test]
    fn no_limit_never_waits_and_zero_never_passes() {
        let now = Time(1_000_000_000);
        let mut open = Bucket::new(Rate::UNLIMITED);
        assert_eq!(open.reserve(now, now, usize::MAX), now);
        assert_eq!(open.charge(now, now, usize::MAX), now);
        let mut shut = Bucket::new(Rate::ZERO);
        shut.reserve(now, now, 1);
        assert_eq!(shut.reserve(now, now, 1), Time::MAX);
    }
}
