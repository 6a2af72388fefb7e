//! How late packets were handed over, and whether that spoils a run.

use std::time::Duration;

use serde::Serialize;

/// A run is void if half of all packets came later than this: delays are off by a millisecond.
pub const MEDIAN_MAX: Duration = Duration::from_millis(1);

/// A run is void if one packet in a hundred came later than this: what a queue of some packets
/// does is no longer told from what the machine does.
pub const P99_MAX: Duration = Duration::from_millis(5);

/// A run is void if any packet came later than this: TCP takes it for a loss.
pub const WORST_MAX: Duration = Duration::from_millis(200);

/// A run is void if the emulator missed more than this share of the time in which packets were on
/// their way: so much is missing from what any link could carry. Only wakings later than
/// [`P99_MAX`] count.
pub const MISSED_SHARE_MAX: f64 = 0.02;

/// Counts of latenesses, in steps of an eighth of a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    counts: Vec<u64>,
    total: u64,
    worst: u64,
    active: Duration,
    missed: Duration,
}

/// Steps per power of two, as a power of two.
const STEP_BITS: u32 = 3;

impl Lateness {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; (64 << STEP_BITS) as usize],
            total: 0,
            worst: 0,
            active: Duration::ZERO,
            missed: Duration::ZERO,
        }
    }

    /// The thread woke after `passed` since its waking before, so many nanoseconds late for a
    /// packet on its way.
    pub(crate) fn add_waking(&mut self, passed: Duration, late_nanos: u64) {
        self.active += passed;
        let late = Duration::from_nanos(late_nanos);
        if late > P99_MAX {
            self.missed += late;
        }
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(slot(nanos)) {
            *count += 1;
        }
        self.total += 1;
        self.worst = self.worst.max(nanos);
    }

    /// What a share of all stayed below, an eighth at most too high; zero if there were none.
    fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(end(index).min(self.worst));
            }
        }
        Duration::ZERO
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let (median, p99) = (self.quantile(0.5), self.quantile(0.99));
        let worst = Duration::from_nanos(self.worst);
        let active = self.active.as_secs_f64();
        let missed_share = self.missed.as_secs_f64() / active.max(f64::MIN_POSITIVE);
        Verdict {
            median_s: median.as_secs_f64(),
            p99_s: p99.as_secs_f64(),
            worst_s: worst.as_secs_f64(),
            missed_share,
            too_late: median > MEDIAN_MAX
                || p99 > P99_MAX
                || worst > WORST_MAX
                || missed_share > MISSED_SHARE_MAX,
        }
    }
}

fn slot(nanos: u64) -> usize {
    let steps = 1 << STEP_BITS;
    if nanos < steps {
        return nanos as usize;
    }
    let power = nanos.ilog2();
    let step = (nanos >> (power - STEP_BITS)) & (steps - 1);
    (((power - STEP_BITS + 1) << STEP_BITS) as u64 + step) as usize
}

/// The first value beyond a slot.
fn end(slot: usize) -> u64 {
    let (slot, steps) = (slot as u64 + 1, 1_u64 << STEP_BITS);
    if slot <= steps {
        return slot;
    }
    let power = slot >> STEP_BITS;
    (steps + (slot & (steps - 1)))
        .checked_shl(power as u32 - 1)
        .unwrap_or(u64::MAX)
}

/// How late packets were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Half of all packets were handed over within this time after they were due.
    pub median_s: f64,
    /// 99 % were.
    pub p99_s: f64,
    /// All were.
    pub worst_s: f64,
    /// Share of the time with packets on their way that the emulator missed.
    pub missed_share: f64,
    /// Whether that is too late for the run to mean anything.
    pub too_late: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_what_falls_into_them() {
        for nanos in (0..5000).chain([1 << 20, (1 << 40) + 12_345]) {
            let slot = slot(nanos);
            assert!(nanos < end(slot), "{nanos} in {slot}");
            assert!(slot == 0 || nanos >= end(slot - 1), "{nanos} in {slot}");
            assert!(end(slot) as f64 <= (nanos + 1) as f64 * 1.126, "{nanos}");
        }
        assert!(slot(u64::MAX) < Lateness::new().counts.len());
    }

    #[test]
    fn a_run_is_void_for_each_of_four_reasons() {
        let of = |fast: u64, slow: u64, late: u64| {
            let mut lateness = Lateness::new();
            (0..fast).for_each(|_| lateness.add(50_000));
            (0..slow).for_each(|_| lateness.add(late));
            lateness.verdict()
        };
        assert!(!of(0, 0, 0).too_late);
        assert!(!of(1000, 9, 100_000_000).too_late);
        assert!(of(1000, 20, 100_000_000).too_late, "p99");
        assert!(of(1000, 1, 201_000_000).too_late, "worst");
        assert!(of(1000, 1001, 1_200_000).too_late, "median");
        assert!(!of(1000, 1001, 900_000).too_late);
        let stalled = |times: u32| {
            let mut lateness = Lateness::new();
            lateness.add_waking(Duration::from_secs(9), 4_999_999);
            (0..times).for_each(|_| lateness.add_waking(Duration::from_millis(100), 99_000_000));
            lateness.verdict()
        };
        assert!(!stalled(1).too_late);
        assert!(stalled(2).too_late, "{:?}", stalled(2));
        let verdict = of(98, 2, 1_000_000);
        assert!((verdict.median_s / 50e-6 - 1.0).abs() < 0.13);
        assert_eq!((verdict.p99_s, verdict.worst_s), (1e-3, 1e-3));
    }
}
