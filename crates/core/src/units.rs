//! Amounts and rates of data, and lengths of time, as types that carry their unit.
//!
//! A bare number in a command line or a file is refused: `10` says neither bits nor bytes, and the
//! difference is a factor of eight. Powers are never guessed: `MB` is 10^6 and `MiB` 2^20 bytes,
//! `Mbit/s` counts bits and `MB/s` bytes, and spellings that leave it open (`Mb/s`, `Mbps`) are
//! refused with the spelling that was probably meant.
//!
//! `{}` prints for people, three significant digits; `{:#}` prints exactly, so that parsing gives
//! the same value back.

mod duration;
mod error;
mod parse;
mod print;

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use duration::{format_duration, format_duration_exact, parse_duration};
pub use error::{Quantity, UnitError};

/// An amount of data in bytes.
///
/// ```
/// use outpour_core::Bytes;
/// assert_eq!("600 MB".parse(), Ok(Bytes(600_000_000)));
/// assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
/// assert_eq!(Bytes(1_234_567).to_string(), "1.23 MB");
/// assert!("10".parse::<Bytes>().is_err());
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// The number of bytes, for arithmetic with rates.
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// The sum, or `None` if it has more than 2^64 - 1 bytes.
    pub fn checked_add(self, rhs: Self) -> Option<Self> {
        self.0.checked_add(rhs.0).map(Self)
    }

    /// The difference, or zero if `rhs` is larger.
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }

    /// The rate at which this amount moves in `time`; no limit if `time` is zero.
    pub fn per(self, time: Duration) -> Rate {
        if self.0 == 0 {
            return Rate::ZERO;
        }
        Rate(self.as_f64() / time.as_secs_f64())
    }
}

/// Saturates: an amount past 2^64 - 1 bytes stays there.
impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// A rate in bytes per second; never negative, never NaN, possibly infinite (no limit).
///
/// ```
/// use outpour_core::Rate;
/// let rate: Rate = "15 Mbit/s".parse().unwrap();
/// assert_eq!(rate.bytes_per_s(), 1_875_000.0);
/// assert_eq!(rate.to_string(), "1.88 MB/s");
/// assert_eq!(format!("{rate:#}"), "15 Mbit/s");
/// assert_eq!("unlimited".parse(), Ok(Rate::UNLIMITED));
/// assert_eq!(
///     "200".parse::<Rate>().unwrap_err().to_string(),
///     "rate `200` has no unit: write e.g. `200 Mbit/s` or `200 MB/s`"
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self(f64::INFINITY);
    /// Nothing passes.
    pub const ZERO: Self = Self(0.0);

    /// A rate of `rate` bytes per second; `None` if it is negative or not a number.
    pub fn from_bytes_per_s(rate: f64) -> Option<Self> {
        // Adding zero turns the negative zero, which passes the test, into the plain one.
        (rate >= 0.0).then_some(Self(rate + 0.0))
    }

    /// Bytes per second.
    pub const fn bytes_per_s(self) -> f64 {
        self.0
    }

    /// Bits per second.
    pub const fn bits_per_s(self) -> f64 {
        self.0 * 8.0
    }

    /// Whether this rate sets no limit.
    pub const fn is_unlimited(self) -> bool {
        self.0 == f64::INFINITY
    }

    /// Whether nothing passes at this rate.
    pub const fn is_zero(self) -> bool {
        self.0 == 0.0
    }

    /// The lower of the two.
    pub const fn min(self, rhs: Self) -> Self {
        Self(self.0.min(rhs.0))
    }

    /// The higher of the two.
    pub const fn max(self, rhs: Self) -> Self {
        Self(self.0.max(rhs.0))
    }

    /// How many seconds `amount` takes: zero for no bytes or no limit, infinity if nothing passes.
    pub fn seconds_for(self, amount: Bytes) -> f64 {
        if amount.0 == 0 {
            return 0.0;
        }
        amount.as_f64() / self.0
    }

    /// How long `amount` takes; [`Duration::MAX`] if that is beyond what a duration can say.
    pub fn time_for(self, amount: Bytes) -> Duration {
        Duration::try_from_secs_f64(self.seconds_for(amount)).unwrap_or(Duration::MAX)
    }

    /// How many whole bytes pass in `time`; at most 2^64 - 1.
    pub fn amount_in(self, time: Duration) -> Bytes {
        if time.is_zero() {
            return Bytes::ZERO;
        }
        Bytes((self.0 * time.as_secs_f64()) as u64)
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

impl TryFrom<f64> for Rate {
    type Error = UnitError;
    fn try_from(rate: f64) -> Result<Self, UnitError> {
        Self::from_bytes_per_s(rate).ok_or_else(|| UnitError::not_a_rate(rate))
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for Rate {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// That many times the rate.
impl Mul<u32> for Rate {
    type Output = Self;
    fn mul(self, times: u32) -> Self {
        if times == 0 {
            return Self::ZERO;
        }
        Self(self.0 * f64::from(times))
    }
}

/// One of that many equal shares; no limit if there is none to share with.
impl Div<u32> for Rate {
    type Output = Self;
    fn div(self, shares: u32) -> Self {
        if shares == 0 {
            return Self::UNLIMITED;
        }
        Self(self.0 / f64::from(shares))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn amount_rate_and_time_agree() {
        let rate = Rate::from_bytes_per_s(2e6).unwrap();
        assert_eq!(rate.seconds_for(Bytes(10_000_000)), 5.0);
        assert_eq!(rate.time_for(Bytes(1)), Duration::from_nanos(500));
        assert_eq!(rate.amount_in(Duration::from_secs(3)), Bytes(6_000_000));
        assert_eq!(Bytes(6_000_000).per(Duration::from_secs(3)), rate);
        assert_eq!(rate * 3 / 3, rate);
        assert_eq!([rate, rate].into_iter().sum::<Rate>(), rate * 2);
        assert_eq!(rate.bits_per_s(), 16e6);
    }

    #[test]
    fn no_limit_and_nothing_at_all_give_no_nan() {
        let any = Bytes(7);
        assert_eq!(Rate::UNLIMITED.seconds_for(any), 0.0);
        assert_eq!(Rate::UNLIMITED.amount_in(Duration::ZERO), Bytes::ZERO);
        assert_eq!(
            Rate::UNLIMITED.amount_in(Duration::from_nanos(1)),
            Bytes(u64::MAX)
        );
        assert_eq!(Rate::ZERO.seconds_for(any), f64::INFINITY);
        assert_eq!(Rate::ZERO.seconds_for(Bytes::ZERO), 0.0);
        assert_eq!(Rate::ZERO.time_for(any), Duration::MAX);
        assert_eq!(Bytes::ZERO.per(Duration::ZERO), Rate::ZERO);
        assert_eq!(any.per(Duration::ZERO), Rate::UNLIMITED);
        let nobody = 0;
        assert_eq!(Rate::UNLIMITED * nobody, Rate::ZERO);
        assert_eq!(Rate::ZERO / nobody, Rate::UNLIMITED);
    }

    #[test]
    fn sums_of_amounts_stay_in_range() {
        let most = Bytes(u64::MAX);
        assert_eq!(most + Bytes(1), most);
        assert_eq!(most.checked_add(Bytes(1)), None);
        assert_eq!(Bytes(1).saturating_sub(Bytes(2)), Bytes::ZERO);
    }

    #[test]
    fn a_rate_from_outside_is_never_negative_or_nan() {
        for bad in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Rate::from_bytes_per_s(bad), None);
            let wire = postcard::to_stdvec(&bad).unwrap();
            assert!(postcard::from_bytes::<Rate>(&wire).is_err(), "{bad}");
        }
        for good in [0.0, 1.5, f64::INFINITY] {
            let rate = Rate::from_bytes_per_s(good).unwrap();
            let wire = postcard::to_stdvec(&rate).unwrap();
            assert_eq!(postcard::from_bytes::<Rate>(&wire).unwrap(), rate);
        }
    }
}
