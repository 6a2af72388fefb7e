//! What coding promises, from outside.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod coding;
mod model;
mod oracle;
mod speed;

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

fn dice(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Bytes that look random.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    use rand_core::RngCore as _;
    let mut bytes = vec![0; len];
    dice(seed).fill_bytes(&mut bytes);
    bytes
}
