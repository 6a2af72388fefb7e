//! How fast this processor codes, for [`outpour_terms::batching`].

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use outpour_coding::{Kernel, Matrix};
use outpour_core::Rate;

/// How long the processor is looked at; a first look warms it up.
const LOOK: Duration = Duration::from_millis(4);
const LOOKS: usize = 3;
/// What is multiplied: as large as a usual batch, so that it is not all in the nearest cache.
const SOURCES: usize = 32;
const SOURCE_BYTES: usize = 64 << 10;

/// Bytes that one thread of this processor multiplies and adds in a second. It is looked at once.
pub(crate) fn rate() -> Rate {
    static SPEED: OnceLock<f64> = OnceLock::new();
    Rate::from_bytes_per_s(*SPEED.get_or_init(measure)).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_processor_has_a_speed() {
        let speed = rate();
        assert!(!speed.is_zero() && !speed.is_unlimited(), "{speed}");
    }
}
