//! Faults and bad input on real processes: agents that run as a service on loopback, and the
//! command that casts to them.
//!
//! Nothing here waits for a time to pass: each fault strikes when so much of the object is on the
//! disk of a host, and everything that has to happen has a deadline.
#![allow(clippy::unwrap_used)]

mod behind;
mod budget;
mod claims;
mod crash;
mod crowd;
mod disk;
mod finish;
mod harness;
mod hung;
mod input;
mod interrupt;
mod killed;
mod links;
mod mount;
#[allow(dead_code)]
#[path = "../crash/rounds.rs"]
mod rounds;
#[path = "../it/service.rs"]
mod service;
mod soak;
mod sources;
mod stopped;
#[allow(dead_code)]
#[path = "../it/support.rs"]
mod support;
mod swap;
mod tamper;
