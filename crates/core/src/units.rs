//! Amounts and rates of data as types, never bare numbers.

use serde::{Deserialize, Serialize};

/// An amount of data in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

/// A rate in bytes per second; never negative, never NaN, possibly infinite (no limit).
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Rate(f64);

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self(f64::INFINITY);
    /// Nothing passes.
    pub const ZERO: Self = Self(0.0);

    /// A rate of `rate` bytes per second; `None` if it is negative or not a number.
    pub fn from_bytes_per_s(rate: f64) -> Option<Self> {
        (rate >= 0.0).then_some(Self(rate))
    }

    /// Bytes per second.
    pub const fn bytes_per_s(self) -> f64 {
        self.0
    }

    /// Whether this rate sets no limit.
    pub const fn is_unlimited(self) -> bool {
        self.0 == f64::INFINITY
    }
}
