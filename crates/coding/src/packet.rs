//! A packet as bytes: which batch it is of, its coefficients, its payload.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | the batch, least significant byte first |
//! | 1 | how many blocks the batch has, less one |
//! | k | the coefficients |
//! | the rest | the payload |

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use crate::{BLOCKS_MAX, Error};

/// Bytes before the coefficients.
const HEAD: usize = 5;

/// A packet, read from bytes without copying any.
///
/// What it says is not to be relied on: whether the batch exists, has that many blocks of that
/// length, and whether the packet is of any use, its receiver has to see.
///
/// ```
/// use outpour_coding::Packet;
///
/// let packet = Packet { batch: 7, coefficients: &[1, 2, 3], payload: b"payload" };
/// let mut bytes = Vec::new();
/// packet.encode(&mut bytes)?;
/// assert_eq!(bytes.len(), packet.encoded_len());
/// assert_eq!(Packet::decode(&bytes)?, packet);
/// # Ok::<(), outpour_coding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Which batch of its object.
    pub batch: u32,
    /// How many times each block of the batch is in the payload.
    pub coefficients: &'a [u8],
    /// The combination of the blocks.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet that takes all of `bytes`.
    ///
    /// # Errors
    /// [`Error::PacketLength`] if it ends before its payload begins.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Error> {
        let short = |expected| Error::PacketLength {
            found: bytes.len(),
            expected,
        };
        let (batch, rest) = bytes.split_first_chunk().ok_or_else(|| short(HEAD))?;
        let (blocks, rest) = rest.split_first().ok_or_else(|| short(HEAD))?;
        let blocks = usize::from(*blocks).saturating_add(1);
        let (coefficients, payload) = rest
            .split_at_checked(blocks)
            .ok_or_else(|| short(HEAD.saturating_add(blocks)))?;
        Ok(Self {
            batch: u32::from_le_bytes(*batch),
            coefficients,
            payload,
        })
    }

    /// How many bytes it is encoded to.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        // What lies in memory is far shorter than any number can say.
        HEAD.saturating_add(self.coefficients.len())
            .saturating_add(self.payload.len())
    }

    /// Appends the packet to `bytes`.
    ///
    /// # Errors
    /// [`Error::Blocks`] unless there are 1 to [`BLOCKS_MAX`] coefficients.
    pub fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let blocks = self.coefficients.len();
        let less = blocks.checked_sub(1).filter(|_| blocks <= BLOCKS_MAX);
        let less = less.ok_or(Error::Blocks { blocks })?;
        bytes.reserve(self.encoded_len());
        bytes.extend_from_slice(&self.batch.to_le_bytes());
        bytes.push(less as u8);
        bytes.extend_from_slice(self.coefficients);
        bytes.extend_from_slice(self.payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn packets_of_all_sizes_come_back() {
        for blocks in [1, 2, 255, 256] {
            for len in [0, 1, 1000] {
                let (coefficients, payload) = (vec![3; blocks], vec![4; len]);
                let packet = Packet {
                    batch: u32::MAX - 1,
                    coefficients: &coefficients,
                    payload: &payload,
                };
                let mut bytes = Vec::new();
                packet.encode(&mut bytes).unwrap();
                assert_eq!(Packet::decode(&bytes), Ok(packet));
                for short in 0..HEAD + blocks {
                    assert!(Packet::decode(&bytes[..short]).is_err(), "{short}");
                }
            }
        }
    }

    #[test]
    fn impossible_numbers_of_blocks_are_refused() {
        for blocks in [0, 257] {
            let coefficients = vec![1; blocks];
            let packet = Packet {
                batch: 0,
                coefficients: &coefficients,
                payload: &[],
            };
            let found = packet.encode(&mut Vec::new());
            assert_eq!(found, Err(Error::Blocks { blocks }));
        }
    }
}
