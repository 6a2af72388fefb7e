//! What is coded: random blocks, and the same for the crates compared with.

use outpour_coding::draw_coefficients;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// A batch of random blocks, packets of it, and room for results.
pub(crate) struct Data {
    pub(crate) k: usize,
    pub(crate) len: usize,
    bytes: Vec<u8>,
    results: Vec<u8>,
}

impl Data {
    pub(crate) fn new(k: usize, len: usize) -> Self {
        let mut bytes = vec![0; k * len];
        dice().fill_bytes(&mut bytes);
        // The crate `rlnc` appends a byte that marks the end; both code the same.
        if let Some(last) = bytes.last_mut() {
            *last = 0x81;
        }
        Self {
            k,
            len,
            bytes,
            results: vec![0; k * len],
        }
    }

    pub(crate) fn blocks(&self) -> Vec<&[u8]> {
        self.bytes.chunks(self.len).collect()
    }

    /// The blocks, and room for as many.
    pub(crate) fn split(&mut self) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let results = self.results.chunks_mut(self.len).collect();
        (self.bytes.chunks(self.len).collect(), results)
    }

    /// What `rlnc` makes the same blocks of.
    pub(crate) fn for_rlnc(&self) -> Vec<u8> {
        self.bytes[..self.bytes.len() - 1].to_vec()
    }
}

pub(crate) fn dice() -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(0x0e7)
}

/// Dense random rows of `k` coefficients.
pub(crate) fn rows(k: usize, rows: usize) -> Vec<u8> {
    let mut all = vec![0; k * rows];
    let mut dice = dice();
    for row in all.chunks_mut(k) {
        draw_coefficients(&mut dice, row);
    }
    all
}
