//! Kernel pacing of a socket: the one system call no safe library offers.
//!
//! With a rate set, TCP spaces its segments instead of sending a window at once, so that a limited
//! node's bursts do not fill the queues of the network. It needs no queueing discipline: where
//! `fq` is missing, TCP paces by itself.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

use crate::check;

/// Sets how fast the kernel sends on a socket at most, in bytes per second.
///
/// # Errors
/// What the system says, for instance if the descriptor is no socket.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let len = size_of_val(&bytes_per_s) as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads `len`
    // bytes, which is what `bytes_per_s` has, before the call returns.
    #[allow(unsafe_code)]
    let result = unsafe {
        let value = (&raw const bytes_per_s).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value, len)
    };
    check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_socket_takes_a_rate_and_a_file_does_not() -> io::Result<()> {
        let socket = TcpListener::bind(("127.0.0.1", 0))?;
        set_max_pacing_rate(&socket, 1_875_000)?;
        assert!(set_max_pacing_rate(File::open("/dev/null")?, 1_875_000).is_err());
        Ok(())
    }
}
