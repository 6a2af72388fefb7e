//! Packets from blocks that are all there.

use crate::kernel::{Kernel, Matrix};
use crate::{BLOCKS_MAX, Error};

/// Makes packets of the blocks of a batch.
///
/// ```
/// use outpour_coding::{Encoder, Matrix};
///
/// let data = b"sixteen bytes, or a few more";
/// let blocks: Vec<&[u8]> = data.chunks(8).collect();
/// let encoder = Encoder::new(&blocks)?;
/// assert_eq!((encoder.blocks(), encoder.block_len()), (4, 8));
///
/// let mut packet = [0; 8];
/// encoder.encode(&[1, 0, 1, 0], &mut packet)?;
/// assert!(packet.iter().zip(&data[..8]).zip(&data[16..]).all(|((p, a), b)| *p == a ^ b));
///
/// // Several at a time take less time each.
/// let (mut a, mut b) = ([0; 8], [0; 8]);
/// let coefficients = Matrix::new(&[5, 6, 7, 8, 1, 0, 1, 0], 4)?;
/// encoder.encode_several(coefficients, &mut [&mut a, &mut b])?;
/// assert_eq!(b, packet);
/// # Ok::<(), outpour_coding::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Encoder<'a> {
    blocks: &'a [&'a [u8]],
    block_len: usize,
    kernel: Kernel,
}

impl<'a> Encoder<'a> {
    /// An encoder of these blocks. The last may be shorter; it counts as if filled up with zeros.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`]; [`Error::BlockLength`] if one is
    /// longer than the first, or shorter and not the last.
    pub fn new(blocks: &'a [&'a [u8]]) -> Result<Self, Error> {
        let (Some(first), 1..=BLOCKS_MAX) = (blocks.first(), blocks.len()) else {
            return Err(Error::Blocks {
                blocks: blocks.len(),
            });
        };
        let expected = first.len();
        let last = blocks.len() - 1;
        let fits = |(at, block): &(usize, &&[u8])| {
            block.len() == expected || (*at == last && block.len() < expected)
        };
        if let Some((_, block)) = blocks.iter().enumerate().find(|found| !fits(found)) {
            return Err(Error::BlockLength {
                found: block.len(),
                expected,
            });
        }
        Ok(Self {
            blocks,
            block_len: expected,
            kernel: Kernel::best(),
        })
    }

    /// The same with instructions of the caller's choice.
    #[must_use]
    pub fn with_kernel(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// How long a payload is, in bytes.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// Sets `payload` to the combination of the blocks with these coefficients.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one coefficient for each block;
    /// [`Error::BlockLength`] if the payload has another length than blocks.
    pub fn encode(&self, coefficients: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        let columns = coefficients.len();
        let matrix = Matrix::strided(coefficients, 1, columns, columns);
        self.encode_several(matrix, &mut [payload])
    }

    /// Sets each of `payloads` to the combination with the coefficients in its row.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); [`Error::Buffers`] if there is not one payload for each row.
    pub fn encode_several(
        &self,
        coefficients: Matrix<'_>,
        payloads: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.encode_threaded(1, coefficients, payloads)
    }

    /// Like [`encode_several`](Self::encode_several), by up to `threads` threads.
    ///
    /// # Errors
    /// As [`encode_several`](Self::encode_several).
    pub fn encode_threaded(
        &self,
        threads: usize,
        coefficients: Matrix<'_>,
        payloads: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        if coefficients.columns() != self.blocks() {
            return Err(Error::VectorLength {
                found: coefficients.columns(),
                expected: self.blocks(),
            });
        }
        check_buffers(payloads, coefficients.rows(), self.block_len)?;
        self.kernel
            .multiply_threaded(threads, payloads, self.blocks, coefficients);
        Ok(())
    }

    /// Makes the packet that is a block itself: the *systematic* packets, sent first, cost nothing
    /// to make and, where they arrive, nothing to decode.
    ///
    /// # Errors
    /// [`Error::BlockIndex`] if there is no such block; otherwise as [`encode`](Self::encode).
    pub fn systematic(
        &self,
        block: usize,
        coefficients: &mut [u8],
        payload: &mut [u8],
    ) -> Result<(), Error> {
        let Some(source) = self.blocks.get(block) else {
            return Err(Error::BlockIndex {
                block,
                blocks: self.blocks(),
            });
        };
        if coefficients.len() != self.blocks() {
            return Err(Error::VectorLength {
                found: coefficients.len(),
                expected: self.blocks(),
            });
        }
        check_buffers(&[&mut *payload], 1, self.block_len)?;
        coefficients.fill(0);
        coefficients[block] = 1;
        let (data, rest) = payload.split_at_mut(source.len());
        data.copy_from_slice(source);
        rest.fill(0);
        Ok(())
    }
}

/// There are as many buffers as expected, each as long as a block.
pub(crate) fn check_buffers(buffers: &[&mut [u8]], count: usize, len: usize) -> Result<(), Error> {
    if buffers.len() != count {
        return Err(Error::Buffers {
            found: buffers.len(),
            expected: count,
        });
    }
    match buffers.iter().find(|buffer| buffer.len() != len) {
        None => Ok(()),
        Some(buffer) => Err(Error::BlockLength {
            found: buffer.len(),
            expected: len,
        }),
    }
}
