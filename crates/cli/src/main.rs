//! Moves bulk data to many hosts in close to the least time the network allows.
#![allow(dead_code, missing_docs)]
mod hosts;
mod launch;
fn main() {}
