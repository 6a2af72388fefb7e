//! The system calls no safe library offers, each behind a safe function.
//!
//! With the kernels of the coding crate this is all the unsafe code there is. Each call hands the
//! kernel plain data that lives on the stack until it returns, in the layout the C library
//! declares for it.

pub mod clock;
pub mod emulation;
pub mod lease;
pub mod pacing;
pub mod signals;
pub mod writeback;
