//! Flow-level simulator that drives the real protocols in virtual time.

pub mod cast;
pub mod check;
mod dice;
pub mod fault;
pub mod flow;
pub mod fuzz;
pub mod object;
pub mod queue;
mod trace;
mod wires;
pub mod world;
