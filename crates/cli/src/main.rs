//! Moves bulk data to many hosts in close to the least time the network allows.
fn main() {}
