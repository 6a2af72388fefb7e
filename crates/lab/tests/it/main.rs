//! The lab's program as its users meet it.
#![allow(clippy::unwrap_used)]

mod bench;
mod help;
mod jobs;
mod support;
mod trust;
