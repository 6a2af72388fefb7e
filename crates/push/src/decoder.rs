//! When a block is decoded: the seam for a real decoder, and two that only count.

use std::fmt;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::Layout;

/// How often decoding fails with as many symbols as the block has; each further symbol divides what is left
/// by as much again: about 10^-2, 10^-4 and 10^-6 with none, one and two more, as RaptorQ (RFC 6330) does.
const FAILURE: f64 = 1e-2;

/// Makes blocks of an object from symbols.
pub trait Decoder: fmt::Debug + Send {
    /// The object is cut like this. Comes once, before any symbol. Says whether that can be: an object that
    /// is known to be cut in another way is not received.
    fn begin(&mut self, layout: &Layout) -> bool;

    /// Whether it would take such a payload for a symbol of a block that is not decoded yet. One that is not
    /// taken is neither counted nor acknowledged, as if it had been lost.
    fn takes(&self, block: u32, payload: &[u8]) -> bool {
        let _ = (block, payload);
        true
    }

    /// Takes a symbol of a block that is not decoded yet, one that it was not handed before; `distinct` says
    /// how many of the block it has been handed, with this one. Says whether the block is decoded now.
    ///
    /// The numbers of block and symbol are within their ranges; the payload is as it came, and
    /// [taken](Self::takes).
    fn add(&mut self, block: u32, symbol: u32, distinct: u32, payload: &[u8]) -> bool;
}

/// Counts distinct symbols and fails as often as RaptorQ, for simulations.
#[derive(Clone, Debug)]
pub struct ChanceDecoder {
    random: Pcg64Mcg,
    layout: Option<Layout>,
}

impl ChanceDecoder {
    /// One that draws from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            layout: None,
        }
    }
}

impl Decoder for ChanceDecoder {
    fn begin(&mut self, layout: &Layout) -> bool {
        debug_assert!(self.layout.is_none(), "begun twice");
        self.layout = Some(*layout);
        true
    }

    fn add(&mut self, block: u32, _: u32, distinct: u32, _: &[u8]) -> bool {
        let symbols = self.layout.map_or(u32::MAX, |it| it.symbols_of(block));
        distinct >= symbols && unit(&mut self.random) >= FAILURE
    }
}

/// Needs each source symbol itself, for objects that are not coded.
#[derive(Clone, Debug, Default)]
pub struct ExactDecoder {
    layout: Option<Layout>,
}

impl Decoder for ExactDecoder {
    fn begin(&mut self, layout: &Layout) -> bool {
        debug_assert!(self.layout.is_none(), "begun twice");
        self.layout = Some(*layout);
        true
    }

    fn add(&mut self, block: u32, _: u32, distinct: u32, _: &[u8]) -> bool {
        distinct >= self.layout.map_or(u32::MAX, |it| it.symbols_of(block))
    }
}

/// A number from 0 up to 1, without 1.
fn unit(random: &mut Pcg64Mcg) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn decoding_fails_as_often_as_raptorq() {
        let mut decoder = ChanceDecoder::new(1);
        assert!(decoder.begin(&Layout::new(100_000, 10).unwrap()));
        let mut extra = [0; 4];
        for block in 0..10_000 {
            let first = (1..).find(|it| decoder.add(block, *it, *it, &[])).unwrap();
            assert!(first >= 10, "decoded from fewer symbols than the block has");
            extra[(first as usize - 10).min(3)] += 1;
        }
        // 100 expected, with a deviation of 10; then 1.
        assert!((60..140).contains(&extra[1]), "{extra:?}");
        assert!(extra[2] + extra[3] < 8, "{extra:?}");
    }
}
