//! AArch64: both halves of a byte are looked up in tables of 16 products.

use std::arch::aarch64::*;

use super::blocking::{CHUNK, Lanes, Pass};
use crate::gf256::{FACTORS, Factor};

/// Registers in a chunk.
const WIDE: usize = CHUNK / 16;

/// 128-bit table look-ups.
pub(super) enum Neon {}

impl Lanes for Neon {
    type Factor = &'static Factor;

    #[inline(always)]
    fn factor(coefficient: u8) -> &'static Factor {
        &FACTORS[usize::from(coefficient)]
    }

    #[allow(unsafe_code)]
    unsafe fn pass<const O: usize>(pass: &Pass<'_, &'static Factor, O>) {
        // SAFETY: the caller knows that the processor has the instructions.
        unsafe { neon(pass) }
    }
}

/// # Safety
/// The processor has NEON, and the pass is sound.
#[target_feature(enable = "neon")]
#[allow(unsafe_code)]
unsafe fn neon<const O: usize>(pass: &Pass<'_, &'static Factor, O>) {
    let nibble = vdupq_n_u8(15);
    for chunk in 0..pass.chunks {
        let outputs = pass
            .outputs
            .map(|output| output.wrapping_add(chunk * CHUNK));
        // SAFETY: the pass is sound: a chunk, `WIDE` registers, can be read and written at each
        // output and read at each source; tables have 16 bytes.
        unsafe {
            let mut sums = [[vdupq_n_u8(0); WIDE]; O];
            if !pass.fresh {
                sums = outputs.map(|output| std::array::from_fn(|w| vld1q_u8(output.add(w * 16))));
            }
            for (source, factors) in pass.sources.iter().zip(pass.factors) {
                let source = source.add(chunk * pass.step);
                let values: [_; WIDE] = std::array::from_fn(|w| vld1q_u8(source.add(w * 16)));
                for o in 0..O {
                    let low = vld1q_u8(factors[o].low.as_ptr());
                    let high = vld1q_u8(factors[o].high.as_ptr());
                    for w in 0..WIDE {
                        let a = vqtbl1q_u8(low, vandq_u8(values[w], nibble));
                        let b = vqtbl1q_u8(high, vshrq_n_u8::<4>(values[w]));
                        sums[o][w] = veorq_u8(sums[o][w], veorq_u8(a, b));
                    }
                }
            }
            for (output, sum) in outputs.into_iter().zip(sums) {
                for (w, value) in sum.into_iter().enumerate() {
                    vst1q_u8(output.add(w * 16), value);
                }
            }
        }
    }
}
