//! From times of arrival to round trips and rates: pure functions of samples.

use std::time::Duration;

use outpour_core::{Bytes, Rate};
use serde::{Deserialize, Serialize};

/// Of a transfer, this share at its beginning is left out: connections find their rate there.
const RAMP: f64 = 0.35;

/// How often a transfer is looked at to find its rate.
const STEPS: u32 = 200;

/// Estimates that differ by less than this share are the same capacity seen twice.
const MODE_WIDTH: f64 = 0.05;

/// How long packets took there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// The shortest: what the way takes without any queue.
    pub least: Duration,
    /// The one in the middle.
    pub median: Duration,
    /// How many packets were sent.
    pub sent: u32,
    /// How many came back.
    pub answered: u32,
}

/// Sums up the round trips of `sent` packets; `None` if none came back.
pub fn round_trip(samples: &[Duration], sent: u32) -> Option<RoundTrip> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    Some(RoundTrip {
        least: *sorted.first()?,
        median: *sorted.get(sorted.len() / 2)?,
        sent,
        answered: sorted.len() as u32,
    })
}

/// The rate of a transfer once it had found it, from the receiver's clock and all bytes by then.
///
/// It is the slope of the line that fits best, so that a receiver that was held up at one end of
/// the time does not decide. `None` if there are too few points after the beginning.
///
/// ```
/// use std::time::Duration;
/// use outpour_probe::estimate::steady_rate;
/// // Nothing for 0.3 s, then 1 MB every 0.1 s.
/// let curve: Vec<_> = (0..=30)
///     .map(|n| (Duration::from_millis(100 * n), 1_000_000 * n.saturating_sub(3)))
///     .collect();
/// let rate = steady_rate(&curve).unwrap().bytes_per_s();
/// assert!((rate / 1e7 - 1.0).abs() < 0.01);
/// ```
pub fn steady_rate(curve: &[(Duration, u64)]) -> Option<Rate> {
    let (first, last) = (curve.first()?, curve.last()?);
    let whole = last.0.checked_sub(first.0)?;
    let from = first.0 + whole.mul_f64(RAMP);
    let within = curve.get(curve.partition_point(|(at, _)| *at < from)..)?;
    let begin = within.first()?;
    let time = last.0.checked_sub(begin.0).filter(|time| !time.is_zero())?;
    // Points come in clumps; looked at by the clock, every moment counts the same.
    let at = |step: u32| begin.0 + time.mul_f64(f64::from(step) / f64::from(STEPS));
    let samples = (0..=STEPS).map(|step| {
        let moment = at(step);
        (moment, bytes_at(within, moment))
    });
    let samples: Vec<(f64, f64)> = samples
        .map(|(moment, bytes)| (moment.as_secs_f64(), bytes))
        .collect();
    let count = samples.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|sample| sample.0), mean(|sample| sample.1));
    let covariance: f64 = samples.iter().map(|(a, b)| (a - x) * (b - y)).sum();
    let variance: f64 = samples.iter().map(|(a, _)| (a - x).powi(2)).sum();
    (variance > 0.0)
        .then(|| Rate::from_bytes_per_s(covariance / variance))
        .flatten()
}

/// What had come at a moment, between the points before and after it.
fn bytes_at(curve: &[(Duration, u64)], moment: Duration) -> f64 {
    let after = curve.partition_point(|(at, _)| *at < moment);
    let next = curve.get(after).or_else(|| curve.last());
    let previous = after.checked_sub(1).and_then(|before| curve.get(before));
    match (previous, next) {
        (Some((t0, b0)), Some((t1, b1))) if t1 > t0 => {
            let share = (moment.saturating_sub(*t0)).as_secs_f64() / (*t1 - *t0).as_secs_f64();
            (*b1 as f64 - *b0 as f64).mul_add(share.min(1.0), *b0 as f64)
        }
        (_, Some((_, bytes))) | (Some((_, bytes)), None) => *bytes as f64,
        (None, None) => 0.0,
    }
}

/// The rate at which a train of packets came out of a path it was put into without gaps: between
/// the available bandwidth and the capacity [Burger equation 2.5]. `at` are times of arrival.
pub fn dispersion_rate(at: &[Duration], packet: Bytes) -> Option<Rate> {
    let (first, last) = (at.iter().min()?, at.iter().max()?);
    let spread = last.checked_sub(*first)?;
    let after_first = (at.len() - 1) as u64;
    (after_first > 0 && !spread.is_zero()).then(|| Bytes(packet.0 * after_first).per(spread))
}

/// The capacity of a path from the gaps between packets sent in pairs or short trains.
///
/// One that meets no other traffic is spread by the narrowest link alone [Burger equation 2.4];
/// others give anything. So of all estimates the one counts that most others agree with, among
/// those not below `train`, the rate at which long trains came through.
pub fn capacity(gaps: &[Duration], packet: Bytes, train: Option<Rate>) -> Option<Rate> {
    let floor = train.map_or(0.0, |rate| rate.bytes_per_s() * (1.0 - MODE_WIDTH));
    let rates: Vec<f64> = gaps
        .iter()
        .filter(|gap| !gap.is_zero())
        .map(|gap| packet.as_f64() / gap.as_secs_f64())
        .collect();
    let agree = |rate: f64| {
        let near = |other: &&f64| (*other / rate - 1.0).abs() <= MODE_WIDTH;
        rates.iter().filter(near).copied().collect::<Vec<f64>>()
    };
    let modes = rates.iter().filter(|rate| **rate >= floor);
    let mode = modes.map(|rate| agree(*rate)).max_by_key(Vec::len);
    let mean = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
    // Where no pair went as fast as the trains, the pairs were disturbed and the trains count.
    mode.map_or(train, |all| Rate::from_bytes_per_s(mean(all)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    #[test]
    fn a_round_trip_is_the_shortest_one() {
        let samples = [us(900), us(500), us(700)];
        let round = round_trip(&samples, 5).unwrap();
        assert_eq!((round.least, round.median), (us(500), us(700)));
        assert_eq!((round.sent, round.answered), (5, 3));
        assert_eq!(round_trip(&[], 5), None);
    }

    #[test]
    fn the_beginning_of_a_transfer_does_not_count() {
        // Doubles every 50 ms until it moves at 10 MB/s.
        let mut curve = vec![(Duration::ZERO, 0)];
        let (mut rate, mut bytes) = (100_000.0_f64, 0.0);
        for step in 1..=40_u32 {
            bytes += rate * 0.05;
            rate = (rate * 2.0).min(1e7);
            curve.push((Duration::from_millis(50) * step, bytes as u64));
        }
        let found = steady_rate(&curve).unwrap().bytes_per_s();
        assert!((found / 1e7 - 1.0).abs() < 0.01, "{found}");
        assert_eq!(steady_rate(&curve[..1]), None);
        assert_eq!(steady_rate(&[]), None);
    }

    #[test]
    fn pairs_show_the_narrowest_link_even_with_cross_traffic() {
        // 1400 bytes at 10 MB/s are 140 us; a third of the pairs is pulled apart by other packets.
        let clean = (0..40).map(|n| us(138 + n % 5));
        let pulled = (0..20).map(|n| us(260 + 13 * n));
        let squeezed = (0..5).map(|n| us(40 + 9 * n));
        let gaps: Vec<_> = clean.chain(pulled).chain(squeezed).collect();
        let train = Rate::from_bytes_per_s(7e6);
        let found = capacity(&gaps, Bytes(1400), train).unwrap().bytes_per_s();
        assert!((found / 1e7 - 1.0).abs() < 0.03, "{found}");
    }

    #[test]
    fn a_mode_below_what_trains_got_is_not_the_capacity() {
        // Most pairs were pulled apart by the same amount.
        let gaps = [us(280), us(280), us(281), us(282), us(140), us(141)];
        let train = Rate::from_bytes_per_s(8e6);
        let found = capacity(&gaps, Bytes(1400), train).unwrap().bytes_per_s();
        assert!((found / 1e7 - 1.0).abs() < 0.02, "{found}");
        assert_eq!(capacity(&[us(1000)], Bytes(1400), train), train);
        assert_eq!(capacity(&[Duration::ZERO], Bytes(1400), None), None);
    }

    #[test]
    fn trains_spread_to_the_rate_of_the_path() {
        let at: Vec<_> = (0..50).map(|n| us(700 * n)).collect();
        let rate = dispersion_rate(&at, Bytes(1400)).unwrap();
        assert_eq!(rate.bytes_per_s().round(), 2e6);
        assert_eq!(dispersion_rate(&at[..1], Bytes(1400)), None);
        assert_eq!(dispersion_rate(&[us(5), us(5)], Bytes(1400)), None);
    }
}
