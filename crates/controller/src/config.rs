//! What the operator of a controller sets, checked before anything is decided.

use std::time::Duration;

use outpour_core::separation::ThresholdError;
use outpour_core::{Rate, Separation};

/// Which method finds the flows of a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Prices that rise with use, from those of the last cycle on: fast, and within 2 % of the best.
    #[default]
    Prices,
    /// A linear program: exact, for small networks and comparisons. Falls back to prices where the
    /// solver fails.
    Program,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which of the controllers of these agents this is, from 1 on; one that takes over has a higher
    /// epoch than the one before.
    pub epoch: u64,
    /// How long the decisions of a cycle hold; [`CYCLE_MIN`] to [`CYCLE_MAX`].
    pub cycle: Duration,
    /// How latency-sensitive traffic is protected.
    pub separation: Separation,
    /// What each host sends and receives at most for all jobs together, beside its other traffic.
    pub host_limit: Rate,
    /// Which method routes.
    pub method: Method,
    /// Whether blocks may be passed on as soon as they are due; otherwise only when their arrival
    /// was reported, a cycle later [BDS §5.1].
    pub speculate: bool,
    /// Whether links that carry all that is known of them are now and then tried with more, because they
    /// may have become faster than the network says.
    pub explore: bool,
    /// The part of what the network carries that is not planned, from 0 to below 0.5. Lanes may be faster than
    /// planned by as much: so they make up for a moment in which they could not send.
    pub margin: f64,
}

/// The shortest cycle.
pub const CYCLE_MIN: Duration = Duration::from_millis(500);
/// The longest cycle.
pub const CYCLE_MAX: Duration = Duration::from_secs(95);

impl Default for Config {
    fn default() -> Self {
        Self {
            epoch: 1,
            cycle: Duration::from_secs(3),
            separation: Separation::default(),
            host_limit: Rate::UNLIMITED,
            method: Method::default(),
            speculate: true,
            explore: false,
            margin: 0.0,
        }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A cycle out of range.
    #[error("a cycle of {} s is not from {} to {} s", .found.as_secs_f64(), CYCLE_MIN.as_secs_f64(), CYCLE_MAX.as_secs_f64())]
    Cycle {
        /// What was set.
        found: Duration,
    },
    /// A threshold that is no share.
    #[error(transparent)]
    Threshold(#[from] ThresholdError),
    /// A margin out of range.
    #[error("a margin of {found} is not from 0 to below 0.5")]
    Margin {
        /// What was set.
        found: f64,
    },
    /// An epoch of zero.
    #[error("the epoch is 0; the first controller has 1")]
    Epoch,
}

impl Config {
    /// Whether a controller can run like this.
    ///
    /// # Errors
    /// Names the first value that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(CYCLE_MIN..=CYCLE_MAX).contains(&self.cycle) {
            return Err(ConfigError::Cycle { found: self.cycle });
        }
        self.separation.checked()?;
        if !(0.0..0.5).contains(&self.margin) {
            return Err(ConfigError::Margin { found: self.margin });
        }
        if self.epoch == 0 {
            return Err(ConfigError::Epoch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_from_both_sides() {
        let with = |cycle_ms, percent| Config {
            cycle: Duration::from_millis(cycle_ms),
            separation: Separation::Threshold { percent },
            ..Config::default()
        };
        for good in [with(500, 0.0), with(95_000, 100.0), Config::default()] {
            assert_eq!(good.check(), Ok(()));
        }
        for (bad, says) in [
            (with(0, 80.0), "a cycle of 0 s is not from 0.5 to 95 s"),
            (
                with(499, 80.0),
                "a cycle of 0.499 s is not from 0.5 to 95 s",
            ),
            (
                with(95_001, 80.0),
                "a cycle of 95.001 s is not from 0.5 to 95 s",
            ),
            (
                Config {
                    margin: 0.5,
                    ..Config::default()
                },
                "a margin of 0.5 is not from 0 to below 0.5",
            ),
            (
                with(3000, -0.1),
                "a threshold of -0.1 % is not from 0 to 100 %",
            ),
            (
                with(3000, 100.1),
                "a threshold of 100.1 % is not from 0 to 100 %",
            ),
            (
                with(3000, f64::NAN),
                "a threshold of NaN % is not from 0 to 100 %",
            ),
        ] {
            assert_eq!(
                bad.check().expect_err("it is out of range").to_string(),
                says
            );
        }
        let epoch = 0;
        let first = Config {
            epoch,
            ..Config::default()
        };
        assert_eq!(first.check(), Err(ConfigError::Epoch));
    }
}
