//! Casts in which every host is whole: the real protocols, nodes and coordinator over a simulated network, and beneath
//! each node the real store over a simulated disk.
//!
//! A seed draws an object of some blocks, a protocol, a network and what goes wrong with it, and for each host a disk,
//! what was at the destination before, and what that disk does. Casts of the object follow each other, as a user
//! starts them again: in the first ones disks fail, machines stop and come back for the next cast with what their disks
//! have kept; in the last one everything is well. What must be true:
//!
//! - At a final name is what belongs there, or what was there before; nothing else is touched.
//! - What is served and what is sent is right.
//! - A host that the coordinator calls verified is complete, and stays so after a power cut.
//! - Every cast ends, with a verdict for every host; a host that failed says why, and has a reason to.
//! - Once everything is well, everybody gets the object.

mod disk;
mod report;
mod run;

pub use report::{Report, fuzz};
pub use run::{Case, Outcome, play};
