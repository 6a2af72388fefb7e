//! Seeded randomness: one generator per purpose, so that drawing more for one does not change
//! what the others draw.

use std::time::Duration;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// A seeded generator with the few draws the simulator needs.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Pcg64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// The generator itself.
    pub(crate) const fn generator(&mut self) -> &mut Pcg64 {
        &mut self.0
    }

    /// A number below `bound`, or zero if that is zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A duration in `low..high`, of every order of magnitude with the same chance.
    pub(crate) fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        low.mul_f64(self.spread(high.as_secs_f64() / low.as_secs_f64()))
    }

    /// A factor in `1.0..ratio`, of every order of magnitude with the same chance.
    pub(crate) fn spread(&mut self, ratio: f64) -> f64 {
        ratio.powf(self.unit())
    }
}

/// Spreads `seed` and `salt` over all 64 bits: a hash for content tokens and derived seeds.
pub(crate) const fn mix(seed: u64, salt: u64) -> u64 {
    let mut z = seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
