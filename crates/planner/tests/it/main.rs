//! Behaviour of limits and plans.
#![allow(clippy::unwrap_used)]

mod clairvoyant;
mod limit;
mod multicast;
mod oracle;
mod random;
mod shuffle;
mod unrolled;
