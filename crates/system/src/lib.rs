//! The system calls no safe library offers, each behind a safe function, and a place that wipes what it held.
//!
//! With the kernels of the coding crate this is all the unsafe code there is. Each call hands the
//! kernel plain data that lives on the stack until it returns, in the layout the C library
//! declares for it.

pub mod clock;
pub mod emulation;
pub mod lease;
pub mod pacing;
pub mod residency;
pub mod secret;
pub mod signals;
pub mod writeback;

/// What a system call that returns a negative number for a failure means.
fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
