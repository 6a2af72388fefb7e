//! x86-64: products of 32 or 64 bytes by one instruction or a few.
//!
//! AVX2 looks both halves of a byte up in tables of 16 products; GFNI multiplies by a matrix of
//! bits. In all of them the outputs' sums stay in registers while a pass goes over the sources.

use std::arch::x86_64::*;

use super::blocking::{AHEAD, CHUNK, Lanes, Pass};
use crate::gf256::{FACTORS, Factor, MATRICES};

/// 256-bit shuffles.
pub(super) enum Avx2 {}

impl Lanes for Avx2 {
    type Factor = &'static Factor;

    #[inline(always)]
    fn factor(coefficient: u8) -> &'static Factor {
        &FACTORS[usize::from(coefficient)]
    }

    #[allow(unsafe_code)]
    unsafe fn pass<const O: usize>(pass: &Pass<'_, &'static Factor, O>) {
        // SAFETY: the caller knows that the processor has the instructions.
        unsafe { avx2(pass) }
    }
}

/// 256-bit matrix products.
pub(super) enum GfniAvx2 {}

impl Lanes for GfniAvx2 {
    type Factor = u64;

    #[inline(always)]
    fn factor(coefficient: u8) -> u64 {
        MATRICES[usize::from(coefficient)]
    }

    #[allow(unsafe_code)]
    unsafe fn pass<const O: usize>(pass: &Pass<'_, u64, O>) {
        // SAFETY: the caller knows that the processor has the instructions.
        unsafe { gfni_avx2(pass) }
    }
}

/// 512-bit matrix products.
pub(super) enum GfniAvx512 {}

impl Lanes for GfniAvx512 {
    type Factor = u64;
    const TOGETHER: usize = 8;

    #[inline(always)]
    fn factor(coefficient: u8) -> u64 {
        MATRICES[usize::from(coefficient)]
    }

    #[allow(unsafe_code)]
    unsafe fn pass<const O: usize>(pass: &Pass<'_, u64, O>) {
        // SAFETY: the caller knows that the processor has the instructions.
        unsafe { gfni_avx512(pass) }
    }
}

/// Asks for what is ahead of a chunk of each source. Nothing is read: the addresses need not exist.
#[inline(always)]
fn fetch(sources: &[*const u8], chunk: usize) {
    for source in sources {
        let ahead = source.wrapping_add(chunk * CHUNK + AHEAD);
        // SAFETY: every x86-64 processor has the instruction, which has no effect but on caches.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        }
    }
}

/// # Safety
/// The processor has AVX2, and the pass is sound.
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
unsafe fn avx2<const O: usize>(pass: &Pass<'_, &'static Factor, O>) {
    let nibble = _mm256_set1_epi8(15);
    for chunk in 0..pass.chunks {
        let outputs = pass
            .outputs
            .map(|output| output.wrapping_add(chunk * CHUNK));
        if pass.fetch {
            fetch(pass.sources, chunk);
        }
        // SAFETY: the pass is sound: a chunk, two registers, can be read and written at each
        // output and read at each source; tables have 16 bytes.
        unsafe {
            let mut sums = [[_mm256_setzero_si256(); 2]; O];
            if !pass.fresh {
                sums = outputs.map(|output| {
                    let output = output.cast::<__m256i>();
                    [
                        _mm256_loadu_si256(output),
                        _mm256_loadu_si256(output.add(1)),
                    ]
                });
            }
            for (source, factors) in pass.sources.iter().zip(pass.factors) {
                let source = source.add(chunk * pass.step).cast::<__m256i>();
                let a = _mm256_loadu_si256(source);
                let b = _mm256_loadu_si256(source.add(1));
                let a_low = _mm256_and_si256(a, nibble);
                let b_low = _mm256_and_si256(b, nibble);
                let a_high = _mm256_and_si256(_mm256_srli_epi64::<4>(a), nibble);
                let b_high = _mm256_and_si256(_mm256_srli_epi64::<4>(b), nibble);
                for o in 0..O {
                    let table = (&raw const factors[o].low).cast();
                    let low = _mm256_broadcastsi128_si256(_mm_load_si128(table));
                    let table = (&raw const factors[o].high).cast();
                    let high = _mm256_broadcastsi128_si256(_mm_load_si128(table));
                    let [mut x, mut y] = sums[o];
                    x = _mm256_xor_si256(x, _mm256_shuffle_epi8(low, a_low));
                    y = _mm256_xor_si256(y, _mm256_shuffle_epi8(low, b_low));
                    x = _mm256_xor_si256(x, _mm256_shuffle_epi8(high, a_high));
                    y = _mm256_xor_si256(y, _mm256_shuffle_epi8(high, b_high));
                    sums[o] = [x, y];
                }
            }
            for (output, [x, y]) in outputs.into_iter().zip(sums) {
                let output = output.cast::<__m256i>();
                _mm256_storeu_si256(output, x);
                _mm256_storeu_si256(output.add(1), y);
            }
        }
    }
}

/// # Safety
/// The processor has AVX2 and GFNI, and the pass is sound.
#[target_feature(enable = "avx2,gfni")]
#[allow(unsafe_code)]
unsafe fn gfni_avx2<const O: usize>(pass: &Pass<'_, u64, O>) {
    for chunk in 0..pass.chunks {
        let outputs = pass
            .outputs
            .map(|output| output.wrapping_add(chunk * CHUNK));
        if pass.fetch {
            fetch(pass.sources, chunk);
        }
        // SAFETY: the pass is sound: a chunk, two registers, can be read and written at each
        // output and read at each source.
        unsafe {
            let mut sums = [[_mm256_setzero_si256(); 2]; O];
            if !pass.fresh {
                sums = outputs.map(|output| {
                    let output = output.cast::<__m256i>();
                    [
                        _mm256_loadu_si256(output),
                        _mm256_loadu_si256(output.add(1)),
                    ]
                });
            }
            for (source, factors) in pass.sources.iter().zip(pass.factors) {
                let source = source.add(chunk * pass.step).cast::<__m256i>();
                let a = _mm256_loadu_si256(source);
                let b = _mm256_loadu_si256(source.add(1));
                for o in 0..O {
                    let matrix = _mm256_set1_epi64x(factors[o].cast_signed());
                    let [x, y] = sums[o];
                    let a = _mm256_gf2p8affine_epi64_epi8::<0>(a, matrix);
                    let b = _mm256_gf2p8affine_epi64_epi8::<0>(b, matrix);
                    sums[o] = [_mm256_xor_si256(x, a), _mm256_xor_si256(y, b)];
                }
            }
            for (output, [x, y]) in outputs.into_iter().zip(sums) {
                let output = output.cast::<__m256i>();
                _mm256_storeu_si256(output, x);
                _mm256_storeu_si256(output.add(1), y);
            }
        }
    }
}

/// # Safety
/// The processor has AVX-512 (F, BW) and GFNI, and the pass is sound.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[allow(unsafe_code)]
unsafe fn gfni_avx512<const O: usize>(pass: &Pass<'_, u64, O>) {
    if O == 1
        && let Some((sources, factors)) = pass.exactly::<{ GfniAvx512::TOGETHER }>()
    {
        // SAFETY: the caller vouches for all that it asks for.
        return unsafe { gfni_avx512_one(pass, sources, factors) };
    }
    for chunk in 0..pass.chunks {
        let outputs = pass
            .outputs
            .map(|output| output.wrapping_add(chunk * CHUNK));
        if pass.fetch {
            fetch(pass.sources, chunk);
        }
        // SAFETY: the pass is sound: a chunk, one register, can be read and written at each
        // output and read at each source.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); O];
            if !pass.fresh {
                sums = outputs.map(|output| _mm512_loadu_si512(output.cast()));
            }
            for (source, factors) in pass.sources.iter().zip(pass.factors) {
                let value = _mm512_loadu_si512(source.add(chunk * pass.step).cast());
                for o in 0..O {
                    let matrix = _mm512_set1_epi64(factors[o].cast_signed());
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(value, matrix);
                    sums[o] = _mm512_xor_si512(sums[o], product);
                }
            }
            for (output, sum) in outputs.into_iter().zip(sums) {
                _mm512_storeu_si512(output.cast(), sum);
            }
        }
    }
}

/// A pass for one output, unrolled over its sources, whose matrices stay in registers.
///
/// # Safety
/// As [`gfni_avx512`]; sources and factors are those of the pass.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[allow(unsafe_code)]
unsafe fn gfni_avx512_one<const O: usize, const S: usize>(
    pass: &Pass<'_, u64, O>,
    sources: [*const u8; S],
    factors: [[u64; O]; S],
) {
    let matrices = factors.map(|factors| _mm512_set1_epi64(factors[0].cast_signed()));
    for chunk in 0..pass.chunks {
        if pass.fetch {
            fetch(&sources, chunk);
        }
        let output = pass.outputs[0].wrapping_add(chunk * CHUNK).cast();
        // SAFETY: the pass is sound: a chunk, one register, can be read and written at the output
        // and read at each source.
        unsafe {
            let mut sum = _mm512_setzero_si512();
            if !pass.fresh {
                sum = _mm512_loadu_si512(output);
            }
            for (source, matrix) in sources.iter().zip(matrices) {
                let value = _mm512_loadu_si512(source.add(chunk * pass.step).cast());
                let product = _mm512_gf2p8affine_epi64_epi8::<0>(value, matrix);
                sum = _mm512_xor_si512(sum, product);
            }
            _mm512_storeu_si512(output, sum);
        }
    }
}
