//! The program as its users meet it: real processes, a real `sshd`, real files.
#![allow(clippy::unwrap_used)]

mod agents;
mod archive;
mod cast;
mod demo;
mod emulate;
mod emulated;
mod files;
mod flows;
mod fluid;
mod help;
mod library;
mod misuse;
mod operators;
mod plan;
mod push;
mod relays;
mod service;
mod shuffle;
mod sim;
mod sources;
mod ssh;
mod sshd;
mod support;
mod trust;
