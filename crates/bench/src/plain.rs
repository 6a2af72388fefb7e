//! The baseline: one plain TCP copy of a file, neither encrypted nor verified.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use outpour_core::{Bytes, Rate};

/// What is read and written at once when no rate is set.
const BUFFER: usize = 1 << 20;

/// The same at a limited rate, where it is also the burst.
const BUFFER_LIMITED: usize = 16 << 10;

/// One copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    /// From opening the source to the last byte written to the copy's file.
    pub(crate) seconds: f64,
    /// What it would have taken in addition to have it on the disk.
    pub(crate) sync_s: f64,
}

/// Copies `from` to `to` through a TCP connection over loopback at no more than `rate`.
///
/// # Errors
/// If something cannot be read, sent or written.
pub(crate) fn copy(from: &Path, to: &Path, rate: Rate) -> anyhow::Result<Copy> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let started = Instant::now();
    let (sent, received) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener, to, rate, started));
        let sent = TcpStream::connect(address)
            .map_err(anyhow::Error::from)
            .and_then(|stream| send(from, stream, rate));
        if sent.is_err() {
            // The receiver may wait for a connection that never comes.
            drop(TcpStream::connect(address));
        }
        (sent, receiver.join())
    });
    let sent = sent.with_context(|| format!("{}: cannot be sent", from.display()))?;
    let received = received.map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
    let (received, copy) = received.with_context(|| format!("{}: no copy", to.display()))?;
    ensure!(
        sent == received,
        "{sent} bytes were sent, {received} received"
    );
    Ok(copy)
}

fn send(from: &Path, mut stream: TcpStream, rate: Rate) -> anyhow::Result<u64> {
    let mut file = File::open(from)?;
    let mut buffer = buffer(rate);
    let started = Instant::now();
    let mut sent = 0;
    loop {
        let size = file.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..size).filter(|chunk| !chunk.is_empty()) else {
            return Ok(sent);
        };
        sent += size as u64;
        // A bucket that is never fuller than one buffer: the n-th byte leaves at n / rate.
        let due = rate.time_for(Bytes(sent));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        stream.write_all(chunk)?;
    }
}

fn receive(
    listener: &TcpListener,
    to: &Path,
    rate: Rate,
    started: Instant,
) -> io::Result<(u64, Copy)> {
    let (mut stream, _) = listener.accept()?;
    let mut file = File::create(to)?;
    let mut buffer = buffer(rate);
    let mut received = 0;
    loop {
        let size = stream.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..size).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        file.write_all(chunk)?;
        received += size as u64;
    }
    let copied = Instant::now();
    file.sync_all()?;
    let copy = Copy {
        seconds: copied.duration_since(started).as_secs_f64(),
        sync_s: copied.elapsed().as_secs_f64(),
    };
    Ok((received, copy))
}

fn buffer(rate: Rate) -> Vec<u8> {
    let size = if rate.is_unlimited() {
        BUFFER
    } else {
        BUFFER_LIMITED
    };
    vec![0; size]
}

/// How long a copy may take before something is wrong.
pub(crate) fn patience(size: Bytes, rate: Rate) -> Duration {
    rate.time_for(size) * 10 + Duration::from_secs(600)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_copy_is_exact_and_takes_what_the_rate_says() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let bytes: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        copy(&from, &to, Rate::UNLIMITED).unwrap();
        assert!(std::fs::read(&to).unwrap() == bytes);
        let rate = Rate::from_bytes_per_s(4e6).unwrap();
        let taken = copy(&from, &to, rate).unwrap().seconds;
        assert!(std::fs::read(&to).unwrap() == bytes);
        assert!(taken >= 0.249, "{taken}");
        assert!(copy(&place.path().join("none"), &to, rate).is_err());
    }
}
