//! How fast this processor codes, for [`outpour_protocols::batching`].

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use outpour_coding::{Kernel, Matrix};
use outpour_core::Rate;
use outpour_protocols::batching::Batching;

/// How long the processor is looked at; a first look warms it up.
const LOOK: Duration = Duration::from_millis(4);
const LOOKS: usize = 3;
/// What is multiplied: as large as a usual batch, so that it is not all in the nearest cache.
const SOURCES: usize = 32;
const SOURCE_BYTES: usize = 64 << 10;

/// Bytes that one thread of this processor multiplies and adds in a second. It is looked at once.
pub(crate) fn bytes_per_s() -> f64 {
    static SPEED: OnceLock<f64> = OnceLock::new();
    *SPEED.get_or_init(measure)
}

fn measure() -> f64 {
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

/// How many blocks of this size to code together where nodes are limited to this rate. The
/// processor is looked at only if that matters.
pub(crate) fn batching(block_bytes: u32, limit: Rate) -> Batching {
    let speed = if limit.is_unlimited() {
        Rate::UNLIMITED
    } else {
        Rate::from_bytes_per_s(bytes_per_s()).unwrap_or_default()
    };
    Batching::new(block_bytes, speed, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_a_best_batch_size_by_the_speed_of_this_processor() {
        let limit = Rate::from_bytes_per_s(1e6).unwrap_or_default();
        let best = batching(64 << 10, limit).best;
        assert!(best.is_some_and(|best| best.speed.bytes_per_s() > 0.0 && best.blocks > 0));
        assert_eq!(batching(64 << 10, Rate::UNLIMITED).best, None);
    }
}
