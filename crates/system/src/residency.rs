//! Which of a file's bytes are in the page cache.

use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use crate::check;

/// The system call's number, the same on all architectures with 64 bits; of Linux 6.5.
const CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether all bytes in a range of a file are in the page cache, or on their way there. Unlike a read
/// that must not wait, this makes nothing come there.
///
/// # Errors
/// If the system does not say: before Linux 6.5, or of a file that we neither own nor may write.
pub fn is_in_memory(file: impl AsFd, range: Range<u64>) -> io::Result<bool> {
    debug_assert!(range.start < range.end);
    let page = NonZero::new(rustix::param::page_size() as u64).unwrap_or(NonZero::<u64>::MIN);
    let pages = range.end.div_ceil(page.get()) - range.start / page;
    let fd = file.as_fd().as_raw_fd();
    let within = CachestatRange {
        offset: range.start,
        len: range.end - range.start,
    };
    let mut found = Cachestat::default();
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads one of the two
    // structures and writes the other, which it declares in the same way, before the call returns.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(CACHESTAT, fd, &raw const within, &raw mut found, 0_u32) };
    check(result as libc::c_int)?;
    Ok(found.cached >= pages)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::File;
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_was_written_is_in_memory_until_it_is_dropped() {
        let path = std::env::temp_dir().join(format!("outpour-residency-{}", std::process::id()));
        let mut file = File::create_new(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        for range in [0..100_000, 4095..4097, 99_999..100_000] {
            assert!(is_in_memory(&file, range).unwrap());
        }
        assert!(
            !is_in_memory(&file, 50_000..1_000_000).unwrap(),
            "beyond its end"
        );
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(!is_in_memory(&socket, 0..1).is_ok_and(|found| found));
        if rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994 {
            // In a file system that is memory, nothing is dropped.
            return;
        }
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(!is_in_memory(&file, 0..100_000).unwrap());
    }
}
