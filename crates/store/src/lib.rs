//! Files on disk: manifest building, staging, journal, confinement.
//!
//! The one crate that turns an object into files and files into an object. It promises two things
//! whatever happens, power cuts included: a file under its final name has exactly the bytes its
//! manifest says, and nothing outside the destination is touched.
//!
//! - [`build`] describes and hashes a file or a tree, [`Survey`] in two steps; [`Source`] reads its
//!   blocks.
//! - [`Claim`] keeps others away from where an object goes; [`Roots`] says where one may.
//! - [`Destination`] takes verified blocks, keeps them across interruptions, and puts the files in
//!   place.
//! - [`verify_tree`] compares what is on disk with a manifest; [`look`] says which blocks are there,
//!   [`preflight`] whether the rest could be put there.

mod attributes;
mod cache;
mod claim;
mod compare;
mod confine;
mod destination;
mod error;
#[cfg(not(feature = "simulated"))]
mod fs;
#[cfg(feature = "simulated")]
#[path = "../../disks/src/fs.rs"]
mod fs;
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod lock;
mod look;
mod mark;
mod owners;
mod place;
mod preflight;
mod roots;
mod scan;
#[cfg(feature = "simulated")]
#[path = "../../disks/src/simulated.rs"]
pub mod simulated;
mod source;
mod staging;
mod state;
mod sys;
mod verify;
mod work;

pub use claim::{Claim, Intent, Shape};
pub use destination::{Destination, DestinationOptions, Keep, NotKept, Work, Written};
pub use error::{Damage, Error, Overlap, WriteError};
pub use lock::{Holder, Party};
pub use look::look;
pub use preflight::preflight;
pub use roots::Roots;
pub use source::{Attributes, BuildOptions, Source, Survey, build};
pub use verify::{Fault, Problem, VerifyReport, verify_tree};
pub use work::Stop;
