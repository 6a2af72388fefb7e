//! The store over disks that are simulated, and random runs of it.
//!
//! [`play`] runs the receiver's side of a cast: a seed draws an object, a disk, what was at the destination
//! before, and faults. After every step the promises of the store are looked at. A [`Host`] is one of several in a
//! cast that others play.

mod cast;
mod check;
mod dice;
pub(crate) mod disk;
mod faults;
mod host;
mod object;
mod report;
mod setting;

pub use cast::{Case, Crash, Outcome, play};
pub use dice::Dice;
pub use faults::{Fault, Met};
pub use host::{Host, Wrong};
pub use object::Object;
pub use report::{Report, fuzz};
