//! How an object is cut into blocks and symbols.

use std::ops::Range;

use outpour_push::Layout;
use raptorq::ObjectTransmissionInformation;

use crate::Error;

/// A block has no more bytes: it is decoded as a whole, in memory.
pub const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// A block has no more source symbols. RFC 6330 §5.1.2 allows 56403, but the time for a symbol grows with their
/// number.
pub const BLOCK_SYMBOLS_MAX: u32 = 8192;

/// An object of so many bytes as blocks of symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    object_bytes: u64,
    symbol_bytes: u16,
    layout: Layout,
}

impl Cut {
    /// An object of `object_bytes` in symbols of `symbol_bytes`, `block_symbols` of them to a block.
    ///
    /// # Errors
    /// If a number is zero, a block has more than [`BLOCK_SYMBOLS_MAX`] symbols or [`BLOCK_BYTES_MAX`], or there
    /// are more symbols or blocks than a [`Layout`] has.
    pub fn new(object_bytes: u64, symbol_bytes: u16, block_symbols: u32) -> Result<Self, Error> {
        Error::check("object_bytes", object_bytes, object_bytes > 0, "at least 1")?;
        let symbol = u64::from(symbol_bytes);
        Error::check("symbol_bytes", symbol, symbol > 0, "1 to 65535")?;
        let is_fine = (1..=BLOCK_SYMBOLS_MAX).contains(&block_symbols);
        Error::check("block_symbols", block_symbols.into(), is_fine, "1 to 8192")?;
        let block = symbol.saturating_mul(block_symbols.into());
        Error::check(
            "bytes of a block",
            block,
            block <= BLOCK_BYTES_MAX,
            "at most 4 MiB",
        )?;
        let layout = Layout::new(object_bytes.div_ceil(symbol), block_symbols)?;
        Ok(Self {
            object_bytes,
            symbol_bytes,
            layout,
        })
    }

    /// The same without sizes in bytes, as sources, receivers and controllers tell each other.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// How many bytes a symbol has; the last one of an object is filled up with zeros.
    pub fn symbol_bytes(&self) -> u16 {
        self.symbol_bytes
    }

    /// Which bytes of the object a block has; none if there is no such block.
    pub fn block_bytes(&self, block: u32) -> Option<Range<u64>> {
        let size = u64::from(self.layout.block_symbols()).checked_mul(self.symbol_bytes.into())?;
        let start = size.checked_mul(block.into())?;
        let end = start.checked_add(size)?.min(self.object_bytes);
        (start < end).then_some(start..end)
    }

    /// How many bytes a block has once it is filled up to whole symbols; zero if there is no such block.
    pub(crate) fn padded(&self, block: u32) -> u64 {
        u64::from(self.layout.symbols_of(block)).saturating_mul(self.symbol_bytes.into())
    }

    /// What `raptorq` wants to know of a block, as an object of its own: one block without sub-blocks. Its
    /// assertions hold, as a block that there is has 1 to 8192 symbols of at least one byte.
    pub(crate) fn information(&self, block: u32) -> ObjectTransmissionInformation {
        debug_assert!(self.padded(block) > 0, "there is no block {block}");
        ObjectTransmissionInformation::new(self.padded(block), self.symbol_bytes, 1, 1, 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn blocks_follow_each_other_and_cover_the_object() {
        let cut = Cut::new(10_001, 100, 30).unwrap();
        assert_eq!(cut.layout(), Layout::new(101, 30).unwrap());
        let ranges: Vec<_> = (0..5).map(|block| cut.block_bytes(block)).collect();
        let some = |start, end| Some(start..end);
        assert_eq!(
            ranges,
            [
                some(0, 3000),
                some(3000, 6000),
                some(6000, 9000),
                some(9000, 10_001),
                None
            ]
        );
        assert_eq!(
            (cut.padded(2), cut.padded(3), cut.padded(4)),
            (3000, 1100, 0)
        );
        assert_eq!(cut.block_bytes(u32::MAX), None);
    }

    #[test]
    fn limits_hold_from_both_sides() {
        assert!(Cut::new(1, 1, 1).is_ok());
        assert!(Cut::new(0, 1, 1).is_err());
        assert!(Cut::new(1, 0, 1).is_err());
        assert!(Cut::new(1, 1, 0).is_err());
        assert!(Cut::new(1, 512, 8192).is_ok());
        assert!(Cut::new(1, 1, 8193).is_err());
        assert!(Cut::new(1, 513, 8192).is_err());
        assert!(Cut::new(1, 65_535, 64).is_ok());
        assert!(Cut::new(1, 65_535, 65).is_err());
        assert!(Cut::new(u64::from(u32::MAX), 1, 1).is_ok());
        assert!(Cut::new(1 << 32, 1, 1).is_err());
        assert!(Cut::new(u64::MAX, 1024, 64).is_err());
    }
}
