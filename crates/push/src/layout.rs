//! How an object is cut into blocks and symbols.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Symbols of a block have numbers below this: those of RaptorQ have 24 bits (RFC 6330 §3.2).
pub const SYMBOL_NUMBERS: u32 = 1 << 24;
/// The most source symbols of a block (RFC 6330 §5.1.2).
const BLOCK_SYMBOLS_MAX: u32 = 56_403;
/// The most symbols of an object: with 1 KiB each, 1 PiB.
const SYMBOLS_MAX: u64 = 1 << 40;

/// An object as blocks of source symbols; all have the same number of them, except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Cut", into = "Cut")]
pub struct Layout {
    symbols: u64,
    block_symbols: u32,
}

/// A layout as it travels, not yet checked.
#[derive(Serialize, Deserialize)]
struct Cut {
    symbols: u64,
    block_symbols: u32,
}

impl TryFrom<Cut> for Layout {
    type Error = Error;
    fn try_from(cut: Cut) -> Result<Self, Error> {
        Self::new(cut.symbols, cut.block_symbols)
    }
}

impl From<Layout> for Cut {
    fn from(layout: Layout) -> Self {
        Self {
            symbols: layout.symbols,
            block_symbols: layout.block_symbols,
        }
    }
}

impl Layout {
    /// An object of `symbols` source symbols in blocks of `block_symbols`.
    ///
    /// # Errors
    /// If there are no symbols, more than 2^40, more than 56403 in a block, or more than 2^32 - 1 blocks.
    pub fn new(symbols: u64, block_symbols: u32) -> Result<Self, Error> {
        let is_fine = (1..=SYMBOLS_MAX).contains(&symbols);
        Error::check("symbols", symbols as f64, is_fine, "1 to 2^40")?;
        let is_fine = (1..=BLOCK_SYMBOLS_MAX).contains(&block_symbols);
        Error::check("block_symbols", block_symbols.into(), is_fine, "1 to 56403")?;
        let blocks = symbols.div_ceil(block_symbols.into());
        let is_fine = u32::try_from(blocks).is_ok();
        Error::check("blocks", blocks as f64, is_fine, "at most 2^32 - 1")?;
        Ok(Self {
            symbols,
            block_symbols,
        })
    }

    /// How many source symbols the object has.
    pub fn symbols(&self) -> u64 {
        self.symbols
    }

    /// How many source symbols a block has, unless it is the last.
    pub fn block_symbols(&self) -> u32 {
        self.block_symbols
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u32 {
        let blocks = self.symbols.div_ceil(self.block_symbols.into());
        debug_assert!(blocks > 0 && blocks <= u64::from(u32::MAX));
        blocks as u32
    }

    /// How many source symbols `block` has; none if there is no such block.
    pub fn symbols_of(&self, block: u32) -> u32 {
        let before = u64::from(block) * u64::from(self.block_symbols);
        self.symbols
            .saturating_sub(before)
            .min(self.block_symbols.into()) as u32
    }

    /// The block and the number within it of the source symbol at `index` of the object.
    pub fn place(&self, index: u64) -> (u32, u32) {
        debug_assert!(index < self.symbols);
        let size = u64::from(self.block_symbols);
        ((index / size) as u32, (index % size) as u32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_last_block_has_what_is_left() {
        let layout = Layout::new(2500, 1000).unwrap();
        assert_eq!(layout.blocks(), 3);
        let sizes: Vec<_> = (0..5).map(|block| layout.symbols_of(block)).collect();
        assert_eq!(sizes, [1000, 1000, 500, 0, 0]);
        assert_eq!(layout.place(2499), (2, 499));
        assert_eq!(layout.symbols_of(u32::MAX), 0);
    }

    #[test]
    fn limits_hold_from_both_sides() {
        assert!(Layout::new(1, 1).is_ok());
        assert!(Layout::new(0, 1).is_err());
        assert!(Layout::new(1, 0).is_err());
        assert!(Layout::new(1 << 40, 56_403).is_ok());
        assert!(Layout::new((1 << 40) + 1, 56_403).is_err());
        assert!(Layout::new(1, 56_404).is_err());
        assert!(Layout::new(u64::from(u32::MAX), 1).is_ok());
        assert!(Layout::new(1 << 32, 1).is_err());
    }
}
