//! Behaviour of endpoints and sessions that talk over real loopback sockets.
#![allow(clippy::unwrap_used)]

mod exchange;
mod faults;
mod flow;
mod greeting;
mod hostile;
mod lifecycle;
mod packets;
mod sessions;
mod slow;
mod support;
mod trust;
