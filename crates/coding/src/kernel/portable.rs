//! Any processor: one byte at a time, by tables. The others are tested against it.

use super::blocking::{CHUNK, Lanes, Pass};
use crate::gf256::{FACTORS, Factor};

/// No instructions in particular.
pub(super) enum Portable {}

impl Lanes for Portable {
    type Factor = &'static Factor;

    fn factor(coefficient: u8) -> &'static Factor {
        &FACTORS[usize::from(coefficient)]
    }

    #[allow(unsafe_code)]
    unsafe fn pass<const O: usize>(pass: &Pass<'_, &'static Factor, O>) {
        for chunk in 0..pass.chunks {
            let mut sums = [[0; CHUNK]; O];
            for (source, factors) in pass.sources.iter().zip(pass.factors) {
                // SAFETY: the pass is sound: a chunk can be read here.
                let from = unsafe { *source.add(chunk * pass.step).cast::<[u8; CHUNK]>() };
                for (sum, factor) in sums.iter_mut().zip(factors) {
                    for (sum, value) in sum.iter_mut().zip(from) {
                        *sum ^= factor.times(value);
                    }
                }
            }
            for (sum, output) in sums.iter().zip(pass.outputs) {
                // SAFETY: the pass is sound: a chunk can be written here, and no other thread has it.
                let to = unsafe { &mut *output.add(chunk * CHUNK).cast::<[u8; CHUNK]>() };
                for (byte, sum) in to.iter_mut().zip(sum) {
                    *byte = if pass.fresh { *sum } else { *byte ^ sum };
                }
            }
        }
    }
}
