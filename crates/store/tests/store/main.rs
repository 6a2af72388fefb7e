//! Behaviour of the store on real files.
#![allow(clippy::unwrap_used)]

mod archive;
mod claims;
mod confinement;
mod crash;
mod existing;
mod folding;
mod full_disk;
mod look;
mod modes;
mod order;
mod power;
mod preflight;
mod roots;
mod round_trip;
mod several;
mod source;
mod support;
mod tamper;
mod verify;
