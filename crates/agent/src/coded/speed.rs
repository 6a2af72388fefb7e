//! How many blocks to code together: as many as help, and not more than processors keep up with.
//!
//! The larger a batch, the rarer a dependent packet and the less every node has to have of a
//! batch; but a packet costs one multiplication per byte of each block. With k blocks of b bytes, a
//! processor that multiplies s bytes per second makes a packet in k b / s, and a link of rate r
//! sends it in b / r: above k* = s / r ([Cooper], Proposition 1) the link waits for the processor.

use std::time::{Duration, Instant};

use outpour_coding::{Kernel, Matrix};
use outpour_core::Rate;
use outpour_protocols::gossip;

/// How long the processor is looked at; a first look warms it up.
const LOOK: Duration = Duration::from_millis(4);
const LOOKS: usize = 3;
/// What is multiplied: as large as a usual batch, so that it is not all in the nearest cache.
const SOURCES: usize = 32;
const SOURCE_BYTES: usize = 64 << 10;
/// A node makes as many packets as it takes in, and each that it takes in is multiplied once more
/// when it is decoded. So much of a processor is to be enough for both.
const SHARE: f64 = 0.25;

/// Bytes that one thread of this processor multiplies and adds in a second.
pub(crate) fn bytes_per_s() -> f64 {
    let sources = vec![vec![0xa5_u8; SOURCE_BYTES]; SOURCES];
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let weights: Vec<u8> = (2..).take(SOURCES).collect();
    let Ok(matrix) = Matrix::new(&weights, SOURCES) else {
        return 0.0;
    };
    let mut output = vec![0; SOURCE_BYTES];
    let kernel = Kernel::best();
    let mut look = || {
        let begun = Instant::now();
        let mut passes = 0;
        while begun.elapsed() < LOOK {
            kernel.multiply(&mut [&mut output], &sources, matrix);
            passes += 1;
        }
        let bytes = passes * SOURCES * SOURCE_BYTES;
        bytes as f64 / begun.elapsed().as_secs_f64()
    };
    (0..LOOKS).map(|_| look()).fold(0.0, f64::max)
}

/// How many blocks of this size to code together where nodes are limited to this rate, and why.
pub(crate) fn batch_blocks(block_bytes: u32, limit: Rate) -> (u16, String) {
    let by_size = gossip::batch_blocks(block_bytes);
    if limit.is_unlimited() {
        let why = format!("{by_size} blocks are coded together, as many as a batch may have");
        return (by_size, why);
    }
    choose(by_size, bytes_per_s(), limit)
}

fn choose(by_size: u16, bytes_per_s: f64, limit: Rate) -> (u16, String) {
    // A rate of zero lets any number through, and moves nothing.
    let best = (bytes_per_s / limit.bytes_per_s()).min(1e9) as u64;
    let most = (best as f64 * SHARE).max(1.0);
    let blocks = f64::from(by_size).min(most) as u16;
    let why = format!(
        "{blocks} blocks are coded together; above k* = {best} this processor would code slower \
         than {limit}"
    );
    (blocks, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_large_as_processor_and_memory_allow() {
        let rate = |bytes| Rate::from_bytes_per_s(bytes).unwrap_or_default();
        assert_eq!(choose(64, 8e9, rate(1.875e6)).0, 64);
        let (blocks, why) = choose(64, 8e9, rate(125e6));
        assert_eq!(blocks, 16);
        assert!(why.contains("k* = 64"), "{why}");
        assert_eq!(choose(64, 1e9, rate(125e8)).0, 1);
        assert_eq!(choose(64, 8e9, rate(0.0)).0, 64);
        assert!(bytes_per_s() > 0.0);
    }
}
