//! Whole casts with real sockets and real files; only the control channels are in memory.
#![allow(clippy::unwrap_used)]

mod attacks;
mod cast;
mod channel;
mod coded;
mod deposed;
mod forged;
mod hostile;
mod liar;
mod lost;
mod network;
mod orphan;
mod player;
mod rogue;
mod sources;
mod spoiler;
mod support;
mod wants;
