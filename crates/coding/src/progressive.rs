//! Packets decoded as they arrive.
//!
//! Every packet is reduced at once, payload and all, so a block is there as soon as it can be, and
//! there is no burst of work at the end. In total it costs more than a [`Batch`](crate::Batch),
//! because each payload is read again for every later one.

use crate::batch::check_len;
use crate::echelon::{Echelon, Steps};
use crate::kernel::{Kernel, Matrix};
use crate::{BLOCKS_MAX, Counts, Error, Worth};

/// The blocks of a batch as far as they are known.
///
/// `P` is what holds a payload: the caller allocates, blocks are computed in place.
///
/// ```
/// use outpour_coding::Progressive;
///
/// let mut blocks = Progressive::new(2, 4)?;
/// blocks.insert(&[1, 1], b"\x07\x07\x07\x07".to_vec())?;
/// assert_eq!(blocks.block(0), None);
/// blocks.insert(&[0, 1], b"\x01\x02\x03\x04".to_vec())?;
/// assert_eq!(blocks.block(0), Some(&b"\x06\x05\x04\x03"[..]));
/// # Ok::<(), outpour_coding::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Progressive<P> {
    echelon: Echelon,
    counts: Counts,
    block_len: usize,
    /// Reduced like the rows.
    payloads: Vec<P>,
    kernel: Kernel,
}

impl<P: AsRef<[u8]> + AsMut<[u8]>> Progressive<P> {
    /// Nothing yet of a batch of `blocks` blocks of `block_len` bytes.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`].
    pub fn new(blocks: usize, block_len: usize) -> Result<Self, Error> {
        Ok(Self {
            echelon: Echelon::new(blocks, false)?,
            counts: Counts::default(),
            block_len,
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

    /// How many innovative packets arrived.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.echelon.rank()
    }

    /// How many more are needed until all blocks are known.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.blocks() - self.rank()
    }

    /// Whether all blocks are known.
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

    /// Takes a packet in and solves with it what can be solved; what it was.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one coefficient for each block;
    /// [`Error::BlockLength`] if the payload has another length than blocks.
    pub fn insert(&mut self, coefficients: &[u8], mut payload: P) -> Result<Worth, Error> {
        self.echelon.check(coefficients)?;
        check_len(payload.as_ref(), self.block_len)?;
        let worth = if coefficients.iter().all(|&coefficient| coefficient == 0) {
            Worth::Zero
        } else if let Some(steps) = self.echelon.insert(coefficients) {
            self.follow(&steps, payload.as_mut());
            self.payloads.push(payload);
            Worth::Innovative
        } else {
            Worth::Dependent
        };
        self.counts.add(worth);
        Ok(worth)
    }

    /// A block, once it is known.
    #[must_use]
    pub fn block(&self, block: usize) -> Option<&[u8]> {
        let row = self.echelon.row_of(block)?;
        let payload = self.payloads.get(row)?;
        self.echelon.is_unit(row).then(|| payload.as_ref())
    }

    /// Makes a packet of what is there: the combination of [`rank`](Self::rank) rows with these
    /// weights. With random weights it is as good as any from a node that has no more than this.
    ///
    /// # Errors
    /// [`Error::VectorLength`] if there is not one weight for each row or not room for one
    /// coefficient for each block; [`Error::BlockLength`] if the payload has another length than
    /// blocks.
    pub fn recode(
        &self,
        weights: &[u8],
        coefficients: &mut [u8],
        payload: &mut [u8],
    ) -> Result<(), Error> {
        if weights.len() != self.rank() {
            return Err(Error::VectorLength {
                found: weights.len(),
                expected: self.rank(),
            });
        }
        self.echelon.check(coefficients)?;
        check_len(payload, self.block_len)?;
        let matrix = Matrix::strided(weights, 1, weights.len(), weights.len());
        let mut sources: [&[u8]; BLOCKS_MAX] = [&[]; BLOCKS_MAX];
        for (source, row) in sources.iter_mut().zip(self.echelon.rows()) {
            *source = row;
        }
        let sources = &mut sources[..weights.len()];
        self.kernel.multiply(&mut [coefficients], sources, matrix);
        for (source, payload) in sources.iter_mut().zip(&self.payloads) {
            *source = payload.as_ref();
        }
        self.kernel.multiply(&mut [payload], sources, matrix);
        Ok(())
    }

    /// The blocks in order, once all are known.
    ///
    /// # Errors
    /// [`Error::Rank`] if packets are missing.
    pub fn into_blocks(self) -> Result<Vec<P>, Error> {
        if !self.is_full() {
            return Err(Error::Rank {
                missing: self.missing(),
            });
        }
        let mut rows: Vec<Option<P>> = self.payloads.into_iter().map(Some).collect();
        let order = (0..self.echelon.columns()).filter_map(|block| self.echelon.row_of(block));
        Ok(order.filter_map(|row| rows[row].take()).collect())
    }

    /// Does to payloads what was done to their coefficients.
    fn follow(&mut self, steps: &Steps, new: &mut [u8]) {
        let rank = self.payloads.len();
        let mut sources: [&[u8]; BLOCKS_MAX] = [&[]; BLOCKS_MAX];
        for (source, payload) in sources.iter_mut().zip(&self.payloads) {
            *source = payload.as_ref();
        }
        let matrix = Matrix::strided(&steps.reduce, 1, rank, BLOCKS_MAX);
        self.kernel
            .multiply_accumulate(&mut [new], &sources[..rank], matrix);
        self.kernel.scale(new, steps.scale);

        let mut outputs: [&mut [u8]; BLOCKS_MAX] = std::array::from_fn(|_| &mut [][..]);
        for (output, payload) in outputs.iter_mut().zip(&mut self.payloads) {
            *output = payload.as_mut();
        }
        let matrix = Matrix::strided(&steps.eliminate, rank, 1, 1);
        self.kernel
            .multiply_accumulate(&mut outputs[..rank], &[new], matrix);
    }
}
