//! The command line of Outpour: reads what is typed, reaches hosts, shows how a cast goes and
//! reports how it ended. The work is done by the crates below it.
//!
//! It is a library of two programs: `outpour`, and `outpour-lab`, whose experiments cast as the
//! other does.

pub mod args;
pub mod commands;
mod display;
mod emulation;
mod hosts;
pub mod out;
mod reach;
mod report;
mod signals;
mod start;
mod values;

pub use emulation::own_node;
pub use start::{CommandLine, start};
