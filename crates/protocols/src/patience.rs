//! How long a block is waited for of which nothing is known yet but its size.

use std::time::Duration;

/// No block is late sooner.
const LEAST: Duration = Duration::from_secs(1);
/// However large it is, it is after this long.
const MOST: Duration = Duration::from_secs(10);
/// Where blocks come slower than this, in bytes per second, patience has to grow to what they take.
const SLOWEST_BYTES_PER_S: f64 = 250e3;

/// How long a peer that says that it has a block has for it, the first time. Who finds it too short takes
/// longer the next time, or goes by what blocks take once some have come.
pub(crate) fn at_first(block_bytes: u32) -> Duration {
    Duration::from_secs_f64(f64::from(block_bytes) / SLOWEST_BYTES_PER_S).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_block_has_longer_than_a_small_one_and_none_for_ever() {
        assert_eq!(at_first(1), LEAST);
        assert_eq!(at_first(64 << 10), LEAST);
        assert_eq!(at_first(1_000_000), Duration::from_secs(4));
        assert_eq!(at_first(u32::MAX), MOST);
    }
}
