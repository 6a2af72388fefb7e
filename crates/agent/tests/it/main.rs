//! Whole casts with real sockets and real files; only the control channels are in memory.
#![allow(clippy::unwrap_used)]

mod cast;
mod channel;
mod liar;
mod orphan;
mod rogue;
mod support;
