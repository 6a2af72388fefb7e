//! Behaviour of the store on real files.
#![allow(clippy::unwrap_used)]

mod confinement;
mod crash;
mod existing;
mod full_disk;
mod order;
mod round_trip;
mod source;
mod support;
mod tamper;
mod verify;
