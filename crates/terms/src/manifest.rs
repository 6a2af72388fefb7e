//! How the manifest of an object gets to its receivers.

/// Bounds of the manifest's blocks.
const BLOCK_MIN: u64 = 4 << 10;
const BLOCK_MAX: u64 = 1 << 20;
/// Within the bounds, a manifest is cut into about this many blocks.
const BLOCKS: u64 = 64;

/// How much of a manifest the command sends over all its control channels together; a larger one
/// is cast like the object.
const INLINE_BYTES_MAX: u64 = 1 << 20;

/// How an encoded manifest is offered to its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestShape {
    /// Whether it is sent with the offer: fetching so little would take longer.
    pub inline: bool,
    /// Bytes of its blocks but the last.
    pub block_bytes: u32,
}

impl ManifestShape {
    /// For a manifest of so many bytes that goes to so many receivers.
    pub fn of(bytes: u64, receivers: usize) -> Self {
        let block = (bytes / BLOCKS).min(BLOCK_MAX).next_power_of_two();
        Self {
            inline: bytes.saturating_mul(receivers as u64) <= INLINE_BYTES_MAX,
            block_bytes: block.clamp(BLOCK_MIN, BLOCK_MAX) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_for_all_receivers_together_is_sent_with_the_offer() {
        let shape = |bytes, receivers| {
            let shape = ManifestShape::of(bytes, receivers);
            (shape.inline, shape.block_bytes)
        };
        assert_eq!(shape(100, 3), (true, 4096));
        assert_eq!(shape(1 << 18, 4), (true, 4096));
        assert_eq!(shape(1 << 18, 5), (false, 4096));
        assert_eq!(shape(1 << 20, 5), (false, 16384));
        assert_eq!(shape(1 << 30, 5), (false, 1 << 20));
        assert_eq!(shape(u64::MAX, usize::MAX), (false, 1 << 20));
    }
}
