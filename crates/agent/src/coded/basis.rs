//! Making packets: random combinations of whatever may be passed on of a batch.

use outpour_coding::{Kernel, Matrix, draw_coefficients};
use rand_core::RngCore;

use super::buffers::Payload;

/// What packets of a batch are made of.
pub(super) enum Basis {
    /// Verified blocks, with their places in the batch.
    Blocks(Vec<(usize, Payload)>),
    /// Independent packets: their coefficients one after the other, and their payloads.
    Packets(Vec<u8>, Vec<Payload>),
}

impl Basis {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Blocks(blocks) => blocks.len(),
            Self::Packets(_, payloads) => payloads.len(),
        }
    }

    fn sources(&self) -> Vec<&[u8]> {
        match self {
            Self::Blocks(blocks) => blocks.iter().map(|(_, block)| block.as_ref()).collect(),
            Self::Packets(_, payloads) => payloads.iter().map(AsRef::as_ref).collect(),
        }
    }

    /// Makes each of `outputs` a packet of a batch of `k` blocks. The basis must not be empty, and
    /// the outputs must be longer than `k`.
    pub(super) fn make(&self, k: usize, dice: &mut impl RngCore, outputs: &mut [Vec<u8>]) {
        let mut weights = vec![0; outputs.len() * self.len()];
        for row in weights.chunks_exact_mut(self.len()) {
            draw_coefficients(dice, row);
        }
        let Ok(matrix) = Matrix::new(&weights, self.len()) else {
            return;
        };
        let (mut vectors, mut payloads): (Vec<&mut [u8]>, Vec<&mut [u8]>) =
            outputs.iter_mut().map(|out| out.split_at_mut(k)).unzip();
        match self {
            Self::Blocks(blocks) => {
                for (row, vector) in vectors.iter_mut().enumerate() {
                    vector.fill(0);
                    for ((place, _), weight) in blocks.iter().zip(matrix.row(row)) {
                        vector[*place] = *weight;
                    }
                }
            }
            Self::Packets(rows, _) => {
                let rows: Vec<&[u8]> = rows.chunks_exact(k).collect();
                Kernel::best().multiply(&mut vectors, &rows, matrix);
            }
        }
        Kernel::best().multiply(&mut payloads, &self.sources(), matrix);
    }

    /// Adds a random combination of the basis to a packet that was made without it. It need not be
    /// a packet of the same basis, so that packets that arrived since are in it too.
    pub(super) fn stir(&self, k: usize, dice: &mut impl RngCore, packet: &mut [u8]) {
        let Self::Packets(rows, _) = self else { return };
        let mut weights = vec![0; self.len()];
        dice.fill_bytes(&mut weights);
        let Ok(matrix) = Matrix::new(&weights, self.len().max(1)) else {
            return;
        };
        if weights.is_empty() {
            return;
        }
        let (vector, payload) = packet.split_at_mut(k);
        let rows: Vec<&[u8]> = rows.chunks_exact(k).collect();
        Kernel::best().multiply_accumulate(&mut [vector], &rows, matrix);
        Kernel::best().multiply_accumulate(&mut [payload], &self.sources(), matrix);
    }
}
