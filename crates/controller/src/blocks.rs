//! The state of a job's blocks: who has which, as runs of equal state.

pub(crate) mod holders;
pub(crate) mod partition;
mod restate;
pub(crate) mod runs;
pub(crate) mod shape;

pub(crate) use partition::Partition;
pub use runs::Runs;
pub(crate) use shape::{Shape, Target};
