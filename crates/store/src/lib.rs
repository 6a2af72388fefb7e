//! Files on disk: manifest building, staging, journal, confinement.
//!
//! The one crate that turns an object into files and files into an object. It promises two things
//! whatever happens, power cuts included: a file under its final name has exactly the bytes its
//! manifest says, and nothing outside the destination is touched.
//!
//! - [`build`] describes and hashes a file or a tree; [`Source`] reads its blocks.
//! - [`Destination`] takes verified blocks, keeps them across interruptions, and puts the files in
//!   place.
//! - [`verify_tree`] compares what is on disk with a manifest.

mod cache;
mod compare;
mod destination;
mod error;
mod journal;
mod lock;
mod mark;
mod place;
mod scan;
mod source;
mod state;
mod sys;
mod verify;
mod work;

pub use destination::{Destination, Options, Work, Written};
pub use error::{Damage, Error, WriteError};
pub use source::{BuildOptions, Source, build};
pub use verify::{Fault, Problem, VerifyReport, verify_tree};
