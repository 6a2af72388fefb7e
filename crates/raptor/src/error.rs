//! What can be wrong with a cut, a block or a symbol.

/// Why something cannot be encoded or decoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number that the code is not defined for, or that would take too much memory.
    #[error("`{field}` is {value}: expected {expected}")]
    OutOfRange {
        /// What it is, as its argument is called.
        field: &'static str,
        /// What was given.
        value: u64,
        /// What it has to be.
        expected: &'static str,
    },
    /// The object has too many symbols or blocks.
    #[error(transparent)]
    Layout(#[from] outpour_push::Error),
    /// There is no such block.
    #[error("there is no block {block}: the object has {blocks}")]
    NoSuchBlock {
        /// The number that was given.
        block: u32,
        /// How many blocks there are.
        blocks: u32,
    },
    /// A block of another size than it has to be.
    #[error("block {block} has {found} bytes, expected {expected}")]
    BlockBytes {
        /// The block.
        block: u32,
        /// How many bytes were given.
        found: usize,
        /// How many it has.
        expected: u64,
    },
}

impl Error {
    /// Makes sure that `value` is in range.
    pub(crate) fn check(
        field: &'static str,
        value: u64,
        is_in_range: bool,
        expected: &'static str,
    ) -> Result<(), Self> {
        match is_in_range {
            true => Ok(()),
            false => Err(Self::OutOfRange {
                field,
                value,
                expected,
            }),
        }
    }
}
