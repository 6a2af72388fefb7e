//! Which combinations a node has, without the payload: what a protocol needs to know.

use crate::echelon::Echelon;
use crate::kernel::Kernel;
use crate::{Error, Support, kernel::Matrix};

/// What an arriving vector added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It says something new: the rank grew by one.
    Innovative,
    /// It is a combination of those that came before.
    Dependent,
    /// It is zero, which no honest node sends.
    Zero,
}

/// How many vectors turned out to be what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that raised the rank.
    pub innovative: u64,
    /// Those that were combinations of earlier ones, also all that came after full rank.
    pub dependent: u64,
    /// Those that were zero.
    pub zero: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, worth: Worth) {
        let count = match worth {
            Worth::Innovative => &mut self.innovative,
            Worth::Dependent => &mut self.dependent,
            Worth::Zero => &mut self.zero,
        };
        *count = count.saturating_add(1);
    }
}

/// The span of the coefficient vectors that arrived: at most k rows of k bytes.
///
/// ```
/// use outpour_coding::{Span, Worth};
///
/// let mut span = Span::new(3)?;
/// assert_eq!(span.insert(&[1, 2, 3])?, Worth::Innovative);
/// assert_eq!(span.insert(&[2, 4, 6])?, Worth::Dependent);
/// assert!(span.is_innovative(&[0, 0, 1])?);
/// assert_eq!((span.rank(), span.missing()), (1, 2));
/// # Ok::<(), outpour_coding::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Span {
    echelon: Echelon,
    counts: Counts,
}

impl Span {
    /// The span of nothing, for batches of `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`](crate::BLOCKS_MAX).
    pub fn new(blocks: usize) -> Result<Self, Error> {
        Ok(Self {
            echelon: Echelon::new(blocks, false)?,
            counts: Counts::default(),
        })
    }

    /// All combinations of all `blocks` blocks: what a source has.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`](crate::BLOCKS_MAX).
    pub fn full(blocks: usize) -> Result<Self, Error> {
        let mut span = Self::new(blocks)?;
        let mut unit = vec![0; blocks];
        for block in 0..blocks {
            unit[block] = 1;
            span.echelon.insert(&unit);
            unit[block] = 0;
        }
        Ok(span)
    }

    /// The span of some vectors, for instance of another's [`rows`](Self::rows).
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`](crate::BLOCKS_MAX) blocks;
    /// [`Error::VectorLength`] if a vector has not that many coefficients.
    pub fn from_rows<'a>(
        blocks: usize,
        rows: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, Error> {
        let mut span = Self::new(blocks)?;
        for row in rows {
            span.insert(row)?;
        }
        Ok(span)
    }

    /// How many blocks a batch has, the k of the literature.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.echelon.columns()
    }

    /// How many linearly independent vectors there are.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.echelon.rank()
    }

    /// How many more are needed until everything can be decoded.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.blocks() - self.rank()
    }

    /// The blocks that occur in any of the vectors: those with a coefficient other than zero.
    #[must_use]
    pub fn support(&self) -> Support {
        self.echelon.support()
    }

    /// Whether everything can be decoded.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.echelon.is_full()
    }

    /// How many vectors were inserted, by what they turned out to be.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a vector in; what it was.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if it has not one coefficient for each block.
    pub fn insert(&mut self, coefficients: &[u8]) -> Result<Worth, Error> {
        self.echelon.check(coefficients)?;
        let worth = if coefficients.iter().all(|&coefficient| coefficient == 0) {
            Worth::Zero
        } else if self.echelon.insert(coefficients).is_some() {
            Worth::Innovative
        } else {
            Worth::Dependent
        };
        self.counts.add(worth);
        Ok(worth)
    }

    /// Whether a vector would raise the rank.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if it has not one coefficient for each block.
    pub fn is_innovative(&self, coefficients: &[u8]) -> Result<bool, Error> {
        self.echelon.check(coefficients)?;
        Ok(self.echelon.is_innovative(coefficients))
    }

    /// Whether this span has something that `other` lacks.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if they are of batches of different numbers of blocks.
    pub fn offers(&self, other: &Self) -> Result<bool, Error> {
        if self.blocks() != other.blocks() {
            return Err(Error::VectorLength {
                found: self.blocks(),
                expected: other.blocks(),
            });
        }
        for row in self.rows() {
            if other.is_innovative(row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a block can be decoded already.
    #[must_use]
    pub fn knows(&self, block: usize) -> bool {
        let row = self.echelon.row_of(block);
        row.is_some_and(|row| self.echelon.is_unit(row))
    }

    /// A basis of the span: [`rank`](Self::rank) vectors.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.echelon.rows()
    }

    /// Sets `coefficients` to the combination of the [`rows`](Self::rows) with these weights. With
    /// random weights it is a random element of the span, as a node sends it.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one weight for each row, or not room for one
    /// coefficient for each block.
    pub fn combine(&self, weights: &[u8], coefficients: &mut [u8]) -> Result<(), Error> {
        self.echelon.check(coefficients)?;
        if weights.len() != self.rank() {
            return Err(Error::VectorLength {
                found: weights.len(),
                expected: self.rank(),
            });
        }
        let mut rows: [&[u8]; crate::BLOCKS_MAX] = [&[]; crate::BLOCKS_MAX];
        for (slot, row) in rows.iter_mut().zip(self.rows()) {
            *slot = row;
        }
        let matrix = Matrix::strided(weights, 1, weights.len(), weights.len());
        Kernel::best().multiply(&mut [coefficients], &rows[..weights.len()], matrix);
        Ok(())
    }
}
