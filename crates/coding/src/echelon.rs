//! Rows in reduced echelon form: what was received, solved as far as it goes.
//!
//! Each row has a *pivot*, a column where it is 1 and every other row is 0. So the multiples of
//! rows that reduce a new vector can be read off the vector at once, and reducing is one product
//! of the [kernel](crate::kernel) instead of a chain of them. Rows can carry a second part, which
//! takes part in all operations: how the row comes about from the vectors that were inserted.

use crate::kernel::{Kernel, Matrix};
use crate::{BLOCKS_MAX, Error, Support, gf256};

/// Rows begin at multiples of this, so that the kernel has no incomplete chunks.
const ALIGN: usize = 64;
/// The longest row: two coefficients for each block.
const WIDTH_MAX: usize = 2 * BLOCKS_MAX;

/// Linearly independent vectors of `columns` coefficients, in reduced echelon form.
#[derive(Clone, Debug)]
pub(crate) struct Echelon {
    columns: usize,
    /// Bytes from one row to the next.
    stride: usize,
    /// Whether rows go on with how they came about.
    traced: bool,
    rows: Vec<u8>,
    /// The pivot of each row.
    pivots: Vec<u8>,
    support: Support,
    kernel: Kernel,
}

/// What was done to a vector, and to the rows that were there, when it became a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// First, so many times each row was added to it.
    pub(crate) reduce: [u8; BLOCKS_MAX],
    /// Then it was multiplied by this.
    pub(crate) scale: u8,
    /// Then it was added so many times to each row.
    pub(crate) eliminate: [u8; BLOCKS_MAX],
}

impl Echelon {
    /// No rows yet.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`] columns.
    pub(crate) fn new(columns: usize, traced: bool) -> Result<Self, Error> {
        if columns == 0 || columns > BLOCKS_MAX {
            return Err(Error::Blocks { blocks: columns });
        }
        let width = if traced { 2 * columns } else { columns };
        Ok(Self {
            columns,
            stride: width.next_multiple_of(ALIGN),
            traced,
            rows: Vec::new(),
            pivots: Vec::new(),
            support: Support::default(),
            kernel: Kernel::best(),
        })
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn rank(&self) -> usize {
        self.pivots.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rank() == self.columns
    }

    /// # Errors
    /// [`Error::VectorLength`] if it has not one coefficient per column.
    pub(crate) fn check(&self, vector: &[u8]) -> Result<(), Error> {
        if vector.len() == self.columns {
            return Ok(());
        }
        Err(Error::VectorLength {
            found: vector.len(),
            expected: self.columns,
        })
    }

    /// The coefficients of all rows, in the order in which they came.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let rows = self.rows.chunks_exact(self.stride);
        rows.map(|row| &row[..self.columns])
    }

    /// The columns in which any row, or any combination of rows, is not 0.
    pub(crate) const fn support(&self) -> Support {
        self.support
    }

    /// The row whose pivot is `column`.
    pub(crate) fn row_of(&self, column: usize) -> Option<usize> {
        let pivot = u8::try_from(column).ok()?;
        self.pivots.iter().position(|&p| p == pivot)
    }

    /// Whether a row is nothing but its pivot.
    pub(crate) fn is_unit(&self, row: usize) -> bool {
        let row = &self.rows[row * self.stride..][..self.columns];
        row.iter().filter(|&&coefficient| coefficient != 0).count() == 1
    }

    /// How a row came about: how many times it has each of the vectors that were inserted.
    pub(crate) fn trace(&self, row: usize) -> &[u8] {
        debug_assert!(self.traced);
        &self.rows[row * self.stride + self.columns..][..self.rank()]
    }

    /// Whether a vector of the right length is no combination of the rows.
    pub(crate) fn is_innovative(&self, vector: &[u8]) -> bool {
        if self.is_full() {
            return false;
        }
        let mut row = [0; WIDTH_MAX];
        row[..self.columns].copy_from_slice(vector);
        self.reduce(&mut row[..self.columns.next_multiple_of(ALIGN).min(self.stride)]);
        row[..self.columns]
            .iter()
            .any(|&coefficient| coefficient != 0)
    }

    /// Makes a row of a vector of the right length, if it is no combination of those there.
    pub(crate) fn insert(&mut self, vector: &[u8]) -> Option<Steps> {
        if self.is_full() {
            return None;
        }
        let rank = self.rank();
        let mut row = [0; WIDTH_MAX];
        row[..self.columns].copy_from_slice(vector);
        let mut width = self.columns;
        if self.traced {
            row[self.columns + rank] = 1;
            width += rank + 1;
        }
        let width = width.next_multiple_of(ALIGN).min(self.stride);
        let reduce = self.reduce(&mut row[..width]);
        let pivot = row[..self.columns].iter().position(|&c| c != 0)?;
        let scale = gf256::inv(row[pivot])?;
        let mut scaled = [0; WIDTH_MAX];
        self.kernel.multiply(
            &mut [&mut scaled[..width]],
            &[&row[..width]],
            Matrix::strided(&[scale], 1, 1, 1),
        );
        let eliminate = self.eliminate(&scaled[..width], pivot);
        self.rows.extend_from_slice(&scaled[..self.stride]);
        self.pivots.push(pivot as u8);
        for (column, _) in vector.iter().enumerate().filter(|(_, c)| **c != 0) {
            self.support[column / 64] |= 1 << (column % 64);
        }
        Some(Steps {
            reduce,
            scale,
            eliminate,
        })
    }

    /// Subtracts from a vector what the rows have at their pivots; how many times which row.
    fn reduce(&self, vector: &mut [u8]) -> [u8; BLOCKS_MAX] {
        let mut weights = [0; BLOCKS_MAX];
        let mut rows: [&[u8]; BLOCKS_MAX] = [&[]; BLOCKS_MAX];
        let all = self.rows.chunks_exact(self.stride).zip(&self.pivots);
        for (at, (row, &pivot)) in all.enumerate() {
            weights[at] = vector[usize::from(pivot)];
            rows[at] = &row[..vector.len()];
        }
        let rank = self.rank();
        let matrix = Matrix::strided(&weights, 1, rank, BLOCKS_MAX);
        self.kernel
            .multiply_accumulate(&mut [vector], &rows[..rank], matrix);
        weights
    }

    /// Adds a new row to all rows so often that they are 0 at its pivot; how many times to which.
    fn eliminate(&mut self, new: &[u8], pivot: usize) -> [u8; BLOCKS_MAX] {
        let mut weights = [0; BLOCKS_MAX];
        let mut rows: [&mut [u8]; BLOCKS_MAX] = std::array::from_fn(|_| &mut [][..]);
        for (at, row) in self.rows.chunks_exact_mut(self.stride).enumerate() {
            weights[at] = row[pivot];
            rows[at] = &mut row[..new.len()];
        }
        let rank = self.pivots.len();
        let matrix = Matrix::strided(&weights, rank, 1, 1);
        self.kernel
            .multiply_accumulate(&mut rows[..rank], &[new], matrix);
        weights
    }
}
