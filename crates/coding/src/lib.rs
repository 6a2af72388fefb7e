//! Random linear network coding over GF(2^8): encode, recode and decode batches of blocks.
//!
//! A *batch* is k blocks of equal length. A *packet* is a combination of them, carried beside its
//! k coefficients. Any k packets whose coefficients are linearly independent determine the blocks,
//! and a node that has packets can combine them anew without decoding, so nodes need not agree on
//! which of them sends what.
//!
//! - [`Encoder`] makes packets from blocks, [`Batch`] keeps, recodes and decodes packets at the
//!   end, [`Progressive`] as they come. Buffers are the caller's.
//! - [`Span`] is the half of it that needs no payload: rank, innovation, recoded coefficients. It
//!   is what protocols and simulations work with.
//! - [`Packet`] is one form in which packets travel.
//! - [`kernel`] is where the time goes, and may be of use for other codes over this field.
//!
//! ```
//! use outpour_coding::{Batch, Encoder, draw_coefficients};
//! use rand_core::SeedableRng as _;
//!
//! let data: Vec<u8> = (0..1000u32).map(|i| (i * i % 251) as u8).collect();
//! let blocks: Vec<&[u8]> = data.chunks(128).collect();
//! let source = Encoder::new(&blocks)?;
//! let (k, len) = (source.blocks(), source.block_len());
//! let mut dice = rand_pcg::Pcg64Mcg::seed_from_u64(1);
//!
//! // A relay takes whatever the source sends, and recodes what it has so far.
//! let (mut relay, mut receiver) = (Batch::new(k, len)?, Batch::new(k, len)?);
//! while !receiver.is_full() {
//!     let (mut coefficients, mut payload) = (vec![0; k], vec![0; len]);
//!     draw_coefficients(&mut dice, &mut coefficients);
//!     source.encode(&coefficients, &mut payload)?;
//!     relay.insert(&coefficients, payload)?;
//!
//!     let mut weights = vec![0; relay.rank()];
//!     draw_coefficients(&mut dice, &mut weights);
//!     let mut payload = vec![0; len];
//!     relay.recode(&weights, &mut coefficients, &mut payload)?;
//!     receiver.insert(&coefficients, payload)?;
//! }
//!
//! let mut decoded = vec![0; data.len()];
//! receiver.decode_into(&mut decoded.chunks_mut(len).collect::<Vec<_>>())?;
//! assert_eq!(decoded, data);
//! # Ok::<(), outpour_coding::Error>(())
//! ```

mod batch;
mod draw;
mod echelon;
mod encoder;
mod error;
pub mod gf256;
pub mod kernel;
mod packet;
mod progressive;
mod span;

pub use batch::Batch;
pub use draw::draw_coefficients;
pub use encoder::Encoder;
pub use error::Error;
pub use kernel::{Kernel, Matrix};
pub use packet::Packet;
pub use progressive::Progressive;
pub use span::{Counts, Span, Worth};

/// The most blocks that a batch can have.
pub const BLOCKS_MAX: usize = 256;

/// A set of the blocks of a batch: block `i` is bit `i % 64` of word `i / 64`.
pub type Support = [u64; BLOCKS_MAX / 64];

/// The example there is a test here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
