//! How many blocks to code together: as many as help, and not more than processors keep up with.
//!
//! The larger a batch, the rarer a dependent packet and the less every node has to have of a
//! batch; but a packet costs one multiplication per byte of each block. With k blocks of b bytes, a
//! processor that multiplies s bytes per second makes a packet in k b / s, and a link of rate r
//! sends it in b / r: above k* = s / r ([Cooper §3], Proposition 1) the link waits for the
//! processor.

use std::fmt;

use outpour_core::Rate;

/// A node makes as many packets as it takes in, and each that it takes in is multiplied once more
/// when it is decoded. So much of a processor is to be enough for either.
const SHARE: f64 = 0.25;

/// How many blocks are coded together, and how many a processor would keep up with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batching {
    /// How many are.
    pub blocks: u16,
    /// The k of which a packet takes as long to make as to send, where a rate is known.
    pub best: Option<Best>,
}

/// The k* of Proposition 1, and what it follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// How many blocks.
    pub blocks: u64,
    /// Bytes of blocks that one core multiplies and adds in a second.
    pub speed: Rate,
    /// The rate at which a node sends.
    pub rate: Rate,
}

impl Batching {
    /// Of blocks of which `usual` are a good number to code together, by nodes whose processors have
    /// this speed and send at this rate.
    pub fn new(usual: u16, speed: Rate, rate: Rate) -> Self {
        // A rate of zero lets any number through, and moves nothing.
        if rate.is_unlimited() || speed.is_unlimited() {
            let (blocks, best) = (usual, None);
            return Self { blocks, best };
        }
        let best = (speed.bytes_per_s() / rate.bytes_per_s()).min(1e9) as u64;
        let most = (best as f64 * SHARE).max(1.0);
        let blocks = f64::from(usual).min(most) as u16;
        let best = Best {
            blocks: best,
            speed,
            rate,
        };
        let best = Some(best);
        Self { blocks, best }
    }
}

impl fmt::Display for Batching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks are coded together", self.blocks)?;
        match &self.best {
            Some(best) => write!(
                f,
                "; above k* = {} this processor would code slower than {} (--batch-blocks sets \
                 another number)",
                best.blocks, best.rate
            ),
            None => f.write_str(", as many as a batch may have"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bytes_per_s: f64) -> Rate {
        Rate::from_bytes_per_s(bytes_per_s).unwrap_or_default()
    }

    fn blocks(speed: f64, limit: f64) -> u16 {
        Batching::new(64, rate(speed), rate(limit)).blocks
    }

    #[test]
    fn batches_are_as_large_as_processor_and_memory_allow() {
        assert_eq!(blocks(8e9, 1.875e6), 64);
        assert_eq!(blocks(8e9, 125e6), 16);
        assert_eq!(blocks(1e9, 125e8), 1);
        assert_eq!(blocks(8e9, 0.0), 64);
        let unlimited = Batching::new(64, rate(8e9), Rate::UNLIMITED);
        assert_eq!((unlimited.blocks, unlimited.best), (64, None));
    }

    #[test]
    fn the_best_number_is_the_one_whose_coding_takes_as_long_as_sending() {
        let batching = Batching::new(64, rate(8e9), rate(125e6));
        assert_eq!(batching.best.map(|best| best.blocks), Some(64));
        assert!(batching.to_string().contains("k* = 64"), "{batching}");
    }
}
