//! The program as its users meet it: real processes, a real `sshd`, real files.
#![allow(clippy::unwrap_used)]

mod help;
mod misuse;
mod ssh;
mod sshd;
mod support;
