//! Losing packets at random, one by one or in runs.

use rand_core::RngCore;

use crate::SettingError;

/// A Gilbert model: a good state in which everything passes and a bad one in which nothing does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The chance of the next packet to be lost after one that passed, and after one that was lost.
    after_pass: f64,
    after_loss: f64,
    losing: bool,
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Self = Self {
        after_pass: 0.0,
        after_loss: 0.0,
        losing: false,
    };

    /// Loses a share of `share` in runs of `burst` packets on average; each for itself if `burst`
    /// is 1.
    ///
    /// # Errors
    /// If the share is not from 0 to below 1, or runs are shorter than one packet or so long that
    /// no packet passes between two of them.
    pub fn new(share: f64, burst: f64) -> Result<Self, SettingError> {
        if !(0.0..1.0).contains(&share) || !burst.is_finite() || burst < 1.0 {
            return Err(SettingError::Loss { share, burst });
        }
        if burst == 1.0 {
            return Ok(Self {
                after_pass: share,
                after_loss: share,
                losing: false,
            });
        }
        // In the long run the share of the bad state is a / (a + 1 / burst) for the chance a to
        // enter it. A hair above one is a sum in floating point, more is a run too long.
        let after_pass = share / (burst * (1.0 - share));
        if after_pass > 1.0 + 1e-9 {
            return Err(SettingError::Loss { share, burst });
        }
        if share == 0.0 {
            return Ok(Self::NONE);
        }
        Ok(Self {
            after_pass: after_pass.min(1.0),
            after_loss: 1.0 - 1.0 / burst,
            losing: false,
        })
    }

    /// Whether the next packet is lost.
    pub(crate) fn strikes(&mut self, dice: &mut impl RngCore) -> bool {
        let chance = if self.losing {
            self.after_loss
        } else {
            self.after_pass
        };
        if chance <= 0.0 {
            self.losing = false;
            return false;
        }
        // 53 random bits make a number from 0 to below 1.
        let drawn = (dice.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        self.losing = drawn < chance;
        self.losing
    }

    /// The same state of luck under another setting.
    pub(crate) fn changed_to(self, other: Self) -> Self {
        Self {
            losing: self.losing,
            ..other
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rand_core::SeedableRng;
    use rand_pcg::Pcg64;

    use super::*;

    /// The share that is lost, and the mean length of runs.
    fn measured(share: f64, burst: f64) -> (f64, f64) {
        let (mut loss, mut dice) = (Loss::new(share, burst).unwrap(), Pcg64::seed_from_u64(7));
        let total = 2_000_000;
        let (mut lost, mut runs, mut before) = (0, 0, false);
        for _ in 0..total {
            let now = loss.strikes(&mut dice);
            lost += u32::from(now);
            runs += u32::from(now && !before);
            before = now;
        }
        let lost = f64::from(lost);
        (lost / f64::from(total), lost / f64::from(runs.max(1)))
    }

    #[test]
    fn shares_and_runs_are_as_set() {
        for (share, burst, run) in [
            (0.01, 1.0, 1.01),
            (0.2, 1.0, 1.25),
            (0.01, 4.0, 4.0),
            (0.3, 8.0, 8.0),
            (0.75, 3.0, 3.0),
        ] {
            let (got, got_run) = measured(share, burst);
            assert!((got / share - 1.0).abs() < 0.06, "{share} {burst}: {got}");
            assert!(
                (got_run / run - 1.0).abs() < 0.06,
                "{share} {burst}: {got_run}"
            );
        }
        assert_eq!(measured(0.0, 1.0), (0.0, 0.0));
    }

    #[test]
    fn losses_that_cannot_be_are_refused() {
        for (share, burst) in [
            (1.0, 1.0),
            (-0.1, 1.0),
            (f64::NAN, 1.0),
            (0.1, 0.5),
            (0.1, f64::INFINITY),
            (0.9, 4.0),
        ] {
            assert!(Loss::new(share, burst).is_err(), "{share} {burst}");
        }
    }
}
