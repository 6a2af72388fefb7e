//! Whole jobs, played cycle by cycle against a small world that carries out the orders.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::single_range_in_vec_init
)]

mod bad_input;
mod exact;
mod faults;
mod figures;
mod holders;
mod optimum;
mod random;
mod separation;
mod takeover;
mod wants;
mod world;
