//! Packets as they arrive, decoded together at the end.
//!
//! Only the coefficients are reduced on arrival, beside the record of how each row came about. At
//! full rank that record is the inverse of what arrived, and one product with all payloads gives
//! the blocks. The payloads stay as they came, so they can be recoded from at any rank, and each
//! can be checked once the blocks are known.

use crate::echelon::Echelon;
use crate::encoder::check_buffers;
use crate::kernel::{Kernel, Matrix};
use crate::{Counts, Error, Support, Worth};

/// The innovative packets of a batch, at most one for each block.
///
/// `P` is what holds a payload: the caller allocates, the batch keeps.
///
/// ```
/// use outpour_coding::{Batch, Encoder, Worth};
///
/// let blocks = [&b"first"[..], &b"second"[..5], &b"3rd"[..]];
/// let encoder = Encoder::new(&blocks)?;
/// let mut batch = Batch::new(3, 5)?;
/// for coefficients in [[1, 2, 3], [4, 5, 6], [2, 4, 6], [0, 0, 1]] {
///     let mut payload = vec![0; 5];
///     encoder.encode(&coefficients, &mut payload)?;
///     batch.insert(&coefficients, payload)?;
/// }
/// assert_eq!((batch.rank(), batch.counts().dependent), (3, 1));
///
/// let (mut a, mut b, mut c) = ([0; 5], [0; 5], [0; 3]);
/// batch.decode_into(&mut [&mut a, &mut b, &mut c])?;
/// assert_eq!((&a, &b, &c), (b"first", b"secon", b"3rd"));
/// # Ok::<(), outpour_coding::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch<P> {
    echelon: Echelon,
    counts: Counts,
    block_len: usize,
    /// The coefficients of the packets kept, one after the other.
    coefficients: Vec<u8>,
    payloads: Vec<P>,
    kernel: Kernel,
}

impl<P: AsRef<[u8]>> Batch<P> {
    /// Nothing yet of a batch of `blocks` blocks of `block_len` bytes.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`](crate::BLOCKS_MAX).
    pub fn new(blocks: usize, block_len: usize) -> Result<Self, Error> {
        Ok(Self {
            echelon: Echelon::new(blocks, true)?,
            counts: Counts::default(),
            block_len,
            coefficients: Vec::new(),
            payloads: Vec::new(),
            kernel: Kernel::best(),
        })
    }

    /// The same with instructions of the caller's choice.
    #[must_use]
    pub fn with_kernel(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    /// How many blocks the batch has, the k of the literature.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.echelon.columns()
    }

    /// How long a payload is, in bytes.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// How many packets are kept: those that were innovative.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.echelon.rank()
    }

    /// How many more innovative packets are needed until everything can be decoded.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.blocks() - self.rank()
    }

    /// The blocks that occur in any of the packets: those with a coefficient other than zero.
    #[must_use]
    pub fn support(&self) -> Support {
        self.echelon.support()
    }

    /// Whether everything can be decoded.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.echelon.is_full()
    }

    /// How many packets were inserted, by what they turned out to be.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a packet with these coefficients would raise the rank; if not, its payload need not
    /// be received at all.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one coefficient for each block.
    pub fn is_innovative(&self, coefficients: &[u8]) -> Result<bool, Error> {
        self.echelon.check(coefficients)?;
        Ok(self.echelon.is_innovative(coefficients))
    }

    /// Takes a packet in and keeps it if it is innovative; what it was.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one coefficient for each block;
    /// [`Error::BlockLength`] if the payload has another length than blocks.
    pub fn insert(&mut self, coefficients: &[u8], payload: P) -> Result<Worth, Error> {
        self.echelon.check(coefficients)?;
        check_len(payload.as_ref(), self.block_len)?;
        let worth = if coefficients.iter().all(|&coefficient| coefficient == 0) {
            Worth::Zero
        } else if self.echelon.insert(coefficients).is_some() {
            self.coefficients.extend_from_slice(coefficients);
            self.payloads.push(payload);
            Worth::Innovative
        } else {
            Worth::Dependent
        };
        self.counts.add(worth);
        Ok(worth)
    }

    /// The packets kept, as they came: coefficients and payload.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = (&[u8], &P)> {
        let coefficients = self.coefficients.chunks_exact(self.blocks());
        coefficients.zip(&self.payloads)
    }

    /// Makes a packet of those kept: their combination with these weights, one for each. With
    /// random weights the packet is as good as one from a node that has no more than this one.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one weight for each packet kept or not room for one
    /// coefficient for each block; [`Error::BlockLength`] if the payload has another length than
    /// blocks.
    pub fn recode(
        &self,
        weights: &[u8],
        coefficients: &mut [u8],
        payload: &mut [u8],
    ) -> Result<(), Error> {
        let matrix = Matrix::strided(weights, 1, weights.len(), weights.len());
        self.recode_several(matrix, &mut [coefficients], &mut [payload])
    }

    /// Makes several packets of those kept, each with the weights in its row.
    ///
    /// # Errors
    /// As [`recode`](Self::recode); [`Error::Buffers`] if there is not room for the coefficients
    /// and the payload of each row.
    pub fn recode_several(
        &self,
        weights: Matrix<'_>,
        coefficients: &mut [&mut [u8]],
        payloads: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        if weights.columns() != self.rank() {
            return Err(Error::VectorLength {
                found: weights.columns(),
                expected: self.rank(),
            });
        }
        check_buffers(payloads, weights.rows(), self.block_len)?;
        if coefficients.len() != weights.rows() {
            return Err(Error::Buffers {
                found: coefficients.len(),
                expected: weights.rows(),
            });
        }
        for vector in coefficients.iter() {
            self.echelon.check(vector)?;
        }
        let mut sources: [&[u8]; crate::BLOCKS_MAX] = [&[]; crate::BLOCKS_MAX];
        let vectors = self.coefficients.chunks_exact(self.blocks());
        for (source, vector) in sources.iter_mut().zip(vectors) {
            *source = vector;
        }
        let sources = &mut sources[..self.rank()];
        self.kernel.multiply(coefficients, sources, weights);
        for (source, payload) in sources.iter_mut().zip(&self.payloads) {
            *source = payload.as_ref();
        }
        self.kernel.multiply(payloads, sources, weights);
        Ok(())
    }

    /// Whether a block can be decoded already.
    #[must_use]
    pub fn knows(&self, block: usize) -> bool {
        self.solved(block).is_some()
    }

    /// Writes all blocks, each to its buffer. A buffer may be shorter than blocks are and then
    /// gets the beginning: the last block of an object is filled up with zeros.
    ///
    /// # Errors
    /// [`Error::Rank`] if packets are missing; [`Error::Buffers`] if there is not one buffer for
    /// each block; [`Error::BlockLength`] if one is longer than a block.
    pub fn decode_into(&self, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.decode_threaded(1, outputs)
    }

    /// Like [`decode_into`](Self::decode_into), by up to `threads` threads.
    ///
    /// # Errors
    /// As [`decode_into`](Self::decode_into).
    pub fn decode_threaded(&self, threads: usize, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        if !self.is_full() {
            return Err(Error::Rank {
                missing: self.missing(),
            });
        }
        if outputs.len() != self.blocks() {
            return Err(Error::Buffers {
                found: outputs.len(),
                expected: self.blocks(),
            });
        }
        let all = outputs.iter_mut().enumerate();
        self.decode_some(threads, all.map(|(block, output)| (block, &mut **output)))
    }

    /// Writes some blocks, each to the buffer beside its index, by up to `threads` threads. Blocks
    /// that arrived as themselves are copied; only the others are computed.
    ///
    /// # Errors
    /// [`Error::Rank`] if one [cannot be decoded yet](Self::knows); [`Error::BlockIndex`] if there
    /// is no such block; [`Error::BlockLength`] if a buffer is longer than a block.
    pub fn decode_some<'o>(
        &self,
        threads: usize,
        outputs: impl IntoIterator<Item = (usize, &'o mut [u8])>,
    ) -> Result<(), Error> {
        let (mut computed, mut matrix, mut copied) = (Vec::new(), Vec::new(), Vec::new());
        for (block, output) in outputs {
            let trace = self.check_decodable(block, output.len())?;
            match unit(trace) {
                Some(packet) => copied.push((packet, output)),
                None => {
                    matrix.extend_from_slice(trace);
                    computed.push(output);
                }
            }
        }
        for (packet, output) in copied {
            output.copy_from_slice(&self.payloads[packet].as_ref()[..output.len()]);
        }
        if !computed.is_empty() {
            let sources: Vec<&[u8]> = self.payloads.iter().map(AsRef::as_ref).collect();
            let matrix = Matrix::strided(&matrix, computed.len(), self.rank(), self.rank());
            self.kernel
                .multiply_threaded(threads, &mut computed, &sources, matrix);
        }
        Ok(())
    }

    /// The payloads kept, for their buffers to be used again.
    #[must_use]
    pub fn into_payloads(self) -> Vec<P> {
        self.payloads
    }

    /// How a block comes about from the packets kept, if that is known.
    fn solved(&self, block: usize) -> Option<&[u8]> {
        let row = self.echelon.row_of(block)?;
        self.echelon.is_unit(row).then(|| self.echelon.trace(row))
    }

    fn check_decodable(&self, block: usize, len: usize) -> Result<&[u8], Error> {
        if block >= self.blocks() {
            return Err(Error::BlockIndex {
                block,
                blocks: self.blocks(),
            });
        }
        if len > self.block_len {
            return Err(Error::BlockLength {
                found: len,
                expected: self.block_len,
            });
        }
        self.solved(block).ok_or_else(|| Error::Rank {
            missing: self.missing(),
        })
    }
}

pub(crate) fn check_len(payload: &[u8], expected: usize) -> Result<(), Error> {
    if payload.len() == expected {
        return Ok(());
    }
    Err(Error::BlockLength {
        found: payload.len(),
        expected,
    })
}

/// Which packet alone a block is, if it is one.
fn unit(trace: &[u8]) -> Option<usize> {
    let mut used = trace.iter().enumerate().filter(|&(_, &c)| c != 0);
    match (used.next(), used.next()) {
        (Some((packet, 1)), None) => Some(packet),
        _ => None,
    }
}
