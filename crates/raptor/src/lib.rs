//! RaptorQ (RFC 6330) for blocks of an object: an encoder by symbol number, and a decoder for
//! [`outpour_push::Receiver`].
//!
//! The code itself is that of the crate `raptorq`. What is here stands before it: everything that a stranger can
//! choose is checked first, as that crate asserts what it relies on and takes wrong symbols for right ones.
//!
//! - [`Cut`] says how an object is cut into blocks and symbols. It is made from what the receiver knows of the
//!   object; what the network says has to be the same.
//! - [`Encoder`] and [`BlockEncoder`] are for sources. Symbols below the number of source symbols are the block
//!   itself, the last one filled up with zeros.
//! - [`RaptorDecoder`] is for receivers. It keeps symbols in bounded memory and hands decoded blocks to a
//!   [`Sink`], which **has to compare them with the hash that the manifest has**: one wrong symbol makes a wrong
//!   block, and nothing in the code would notice. From the symbols of a block that came out wrong,
//!   [`Evidence`] finds the wrong ones once the right block is there.
//!
//! Object transmission information and payload ids of RFC 6330 §3.2 and §3.3 are never read from the network:
//! a [`Cut`] and the numbers of [`outpour_push::Data`] stand for them. Numbers of symbols are encoding symbol
//! ids, so another implementation of RFC 6330 can decode what is encoded here, block by block.
//!
//! ```
//! use outpour_raptor::{Cut, Encoder};
//!
//! let object = vec![7; 100_000];
//! let cut = Cut::new(object.len() as u64, 1024, 64)?;
//! let mut encoder = Encoder::new(cut);
//! let range = cut.block_bytes(1).unwrap();
//! let mut block = encoder.block(1, object[range.start as usize..range.end as usize].to_vec())?;
//! let mut symbol = Vec::new();
//! block.symbol(5000, &mut symbol)?;
//! assert_eq!(symbol.len(), 1024);
//! # Ok::<(), outpour_raptor::Error>(())
//! ```

mod cut;
mod decoder;
mod encoder;
mod error;

pub use cut::{BLOCK_BYTES_MAX, BLOCK_SYMBOLS_MAX, Cut};
pub use decoder::{Evidence, RaptorDecoder, SPARE_MAX, Sink};
pub use encoder::{BlockEncoder, Encoder};
pub use error::Error;
