//! Real machines on a little network in virtual time.
#![allow(clippy::unwrap_used)]

mod arrives;
mod fuzz;
mod lies;
mod restart;
mod seeds;
mod tasks;
mod world;
