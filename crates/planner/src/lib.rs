//! Pure optimisation: the least time a network allows, and plans that take little more.
//!
//! Every figure of a transfer is quoted as time over limit, so the limit has to be one that no
//! program can beat and, where that is possible, one that a perfect program would reach. Planning
//! is a function from a problem value to a solution value: no clock, no randomness, no I/O.
//! [`multicast`] plans trees, [`shuffle`] places the reducers of a shuffle.

pub mod clairvoyant;
pub mod flows;
pub mod limit;
mod lp;
pub mod multicast;
pub mod shuffle;

pub use clairvoyant::{Over, clairvoyant, clairvoyant_for, limit_over, limit_over_for};
pub use limit::{Limit, LimitError, limit, limit_for};

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
