//! Behaviour of meshes that talk over real loopback sockets.
#![allow(clippy::unwrap_used)]

mod exchange;
mod support;
