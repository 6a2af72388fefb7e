//! How much of what they share a transfer gets, compared with others.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which share of rates and memory a transfer gets where several compete: in the ratio of their
/// weights. What one of them does not use, the others get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Priority {
    /// Weight 1.
    Low,
    /// Weight 4.
    #[default]
    Normal,
    /// Weight 16.
    High,
}

impl Priority {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// The greatest weight there is.
    pub const WEIGHT_MAX: u32 = Self::High.weight();

    /// Its weight.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Low => 1,
            Self::Normal => 4,
            Self::High => 16,
        }
    }

    /// Its name, as it is written and read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|priority| priority.name() == name);
        found.ok_or_else(|| "expected low, normal or high".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for priority in Priority::ALL {
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        assert!("urgent".parse::<Priority>().is_err());
        assert!(Priority::ALL.is_sorted_by_key(|priority| priority.weight()));
    }
}
