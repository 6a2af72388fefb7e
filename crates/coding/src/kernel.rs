//! Multiplies many long vectors by many coefficients at once: where all the time goes.
//!
//! A product of matrices over GF(2^8), one of them very wide. The processor's best instructions
//! are chosen at run time; what they share is in `blocking`: several outputs are computed in one
//! pass over several sources, so that a source is read and split once for all of them, and columns
//! are taken in stripes that stay in the caches.

mod blocking;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod threads;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

use crate::Error;

/// Bytes that are copied in order to be replaced by a multiple of them.
const SCALE_AT_A_TIME: usize = 4096;

/// A matrix of coefficients: a row for each output, a column for each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix<'a> {
    rows: usize,
    columns: usize,
    /// Bytes from one row to the next.
    stride: usize,
    data: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// The matrix whose rows of `columns` coefficients follow one another in `data`.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if `data` does not consist of whole rows.
    pub fn new(data: &'a [u8], columns: usize) -> Result<Self, Error> {
        if columns == 0 || !data.len().is_multiple_of(columns) {
            return Err(Error::VectorLength {
                found: data.len(),
                expected: columns,
            });
        }
        Ok(Self {
            rows: data.len() / columns,
            columns,
            stride: columns,
            data,
        })
    }

    /// `rows` rows of `columns` coefficients, each `stride` bytes after the one before.
    pub(crate) fn strided(data: &'a [u8], rows: usize, columns: usize, stride: usize) -> Self {
        debug_assert!(columns <= stride && rows * stride <= data.len());
        Self {
            rows,
            columns,
            stride,
            data,
        }
    }

    /// How many rows there are: one for each output.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are: one for each source.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The coefficients of one output.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.data[row * self.stride..][..self.columns]
    }
}

/// The instructions with which vectors are multiplied.
///
/// ```
/// use outpour_coding::kernel::{Kernel, Matrix};
///
/// let (a, b) = ([1, 2, 3], [4, 5, 6]);
/// let mut sum = [0; 3];
/// let coefficients = Matrix::new(&[1, 1], 2)?;
/// Kernel::best().multiply(&mut [&mut sum], &[&a, &b], coefficients);
/// assert_eq!(sum, [1 ^ 4, 2 ^ 5, 3 ^ 6]);
/// # Ok::<(), outpour_coding::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Isa);

/// Only ever made by [`Kernel::available`], once the processor was found to have it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    GfniAvx2,
    #[cfg(target_arch = "x86_64")]
    GfniAvx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// The fastest that this processor has.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let gfni = is_x86_feature_detected!("gfni");
            if gfni && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                return Self(Isa::GfniAvx512);
            }
            if is_x86_feature_detected!("avx2") {
                return Self(if gfni { Isa::GfniAvx2 } else { Isa::Avx2 });
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Self(Isa::Neon);
        }
        Self::portable()
    }

    /// The one that every processor has. It gives the same results, slowly.
    #[must_use]
    pub fn portable() -> Self {
        Self(Isa::Portable)
    }

    /// All that this processor has, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::portable()];
        let best = Self::best();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Self(Isa::Avx2));
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni") {
                all.push(Self(Isa::GfniAvx2));
            }
        }
        if !all.contains(&best) {
            all.push(best);
        }
        all
    }

    /// What its instructions are called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::GfniAvx2 => "gfni-avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::GfniAvx512 => "gfni-avx512",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
        }
    }

    /// Sets each output to the sum of the sources, each times its coefficient in the output's row.
    ///
    /// Sources that are shorter than an output count as if they went on with zeros; an output that
    /// is shorter takes only their beginning.
    ///
    /// # Panics
    /// If the matrix has not one row per output and one column per source.
    pub fn multiply(self, outputs: &mut [&mut [u8]], sources: &[&[u8]], matrix: Matrix<'_>) {
        self.run(outputs, sources, matrix, true);
    }

    /// Adds to each output the sum of the sources, each times its coefficient in the output's row.
    /// Otherwise like [`multiply`](Self::multiply).
    ///
    /// # Panics
    /// If the matrix has not one row per output and one column per source.
    pub fn multiply_accumulate(
        self,
        outputs: &mut [&mut [u8]],
        sources: &[&[u8]],
        matrix: Matrix<'_>,
    ) {
        self.run(outputs, sources, matrix, false);
    }

    /// Like [`multiply`](Self::multiply), with the columns divided among up to `threads` threads,
    /// of which the caller's is one.
    ///
    /// # Panics
    /// If the matrix has not one row per output and one column per source.
    pub fn multiply_threaded(
        self,
        threads: usize,
        outputs: &mut [&mut [u8]],
        sources: &[&[u8]],
        matrix: Matrix<'_>,
    ) {
        threads::multiply(self, threads, outputs, sources, matrix);
    }

    /// Multiplies a vector by one coefficient, in place.
    pub fn scale(self, vector: &mut [u8], coefficient: u8) {
        if coefficient == 1 {
            return;
        }
        let mut copy = [0; SCALE_AT_A_TIME];
        for part in vector.chunks_mut(SCALE_AT_A_TIME) {
            let copy = &mut copy[..part.len()];
            copy.copy_from_slice(part);
            self.multiply(
                &mut [part],
                &[copy],
                Matrix::strided(&[coefficient], 1, 1, 1),
            );
        }
    }

    fn run(self, outputs: &mut [&mut [u8]], sources: &[&[u8]], matrix: Matrix<'_>, fresh: bool) {
        match self.0 {
            Isa::Portable => {
                blocking::run::<portable::Portable>(outputs, sources, matrix, fresh);
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => blocking::run::<x86::Avx2>(outputs, sources, matrix, fresh),
            #[cfg(target_arch = "x86_64")]
            Isa::GfniAvx2 => blocking::run::<x86::GfniAvx2>(outputs, sources, matrix, fresh),
            #[cfg(target_arch = "x86_64")]
            Isa::GfniAvx512 => blocking::run::<x86::GfniAvx512>(outputs, sources, matrix, fresh),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => blocking::run::<neon::Neon>(outputs, sources, matrix, fresh),
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

#[cfg(test)]
mod tests;
