//! The store over disks that are simulated, and random runs of it.
//!
//! [`play`] runs the receiver's side of a cast: a seed draws an object, a disk, what was at the destination
//! before, and faults. After every step the promises of the store are looked at.

mod cast;
mod check;
mod dice;
pub(crate) mod disk;
mod faults;
mod object;
mod report;

pub use cast::{Case, Crash, Outcome, play};
pub use faults::{Fault, Met};
pub use report::{Report, fuzz};
