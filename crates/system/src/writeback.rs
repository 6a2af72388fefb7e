//! Writing a file's pages to the disk, without what a sync does besides.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::check;

/// Begins to write what was written to a file, and allocates its space; waits for nothing.
///
/// # Errors
/// What the system says, for instance if the descriptor is no file.
pub fn start(file: impl AsFd) -> io::Result<()> {
    call(&file, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until what was written to a file has been handed to the disk, which may have it in a cache
/// of its own. Of the file's metadata nothing is written.
///
/// # Errors
/// What the system says, a failed write in particular.
pub fn finish(file: impl AsFd) -> io::Result<()> {
    let before = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
    let after = libc::SYNC_FILE_RANGE_WAIT_AFTER;
    call(&file, before | libc::SYNC_FILE_RANGE_WRITE | after)
}

fn call(file: &impl AsFd, flags: libc::c_uint) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as it is borrowed, and all else are plain numbers;
    // a length of zero means the whole file.
    #[allow(unsafe_code)]
    let result = unsafe { libc::sync_file_range(fd, 0, 0, flags) };
    check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_file_can_be_written_back_and_a_socket_cannot() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("outpour-writeback-{}", std::process::id()));
        let mut file = File::create(&path)?;
        file.write_all(&[7; 10_000])?;
        start(&file)?;
        finish(&file)?;
        std::fs::remove_file(path)?;
        let socket = TcpListener::bind(("127.0.0.1", 0))?;
        assert!(start(&socket).is_err() && finish(&socket).is_err());
        Ok(())
    }
}
