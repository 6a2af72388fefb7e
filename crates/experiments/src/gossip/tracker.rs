//! As much of a BitTorrent tracker as a race in an emulated network needs: a client that asks is
//! told which asked before, and everything asked is printed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

/// Its port.
pub const PORT: u16 = 6969;
/// Peers it remembers.
const PEERS_MAX: usize = 4096;
/// A request longer than this is none.
const REQUEST_BYTES_MAX: u64 = 8 << 10;
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// When peers are to ask again, seconds.
const INTERVAL_S: u32 = 5;

/// Answers every client until the process is ended; prints a line `ADDRESS LEFT` for each
/// question, LEFT being the bytes that the asker lacks.
///
/// # Errors
/// If the port is taken, or what is printed cannot be written.
pub fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let mut peers = Vec::new();
    let mut out = io::stdout().lock();
    writeln!(out, "listening")?;
    out.flush()?;
    for stream in listener.incoming() {
        // A peer that goes away in the middle is no reason to end.
        let answered = stream.and_then(|stream| answer(stream, &mut peers));
        if let Ok(Some((peer, left))) = answered {
            writeln!(out, "{} {left}", peer.ip())?;
            out.flush()?;
        }
    }
    Ok(())
}

fn answer(
    mut stream: TcpStream,
    peers: &mut Vec<SocketAddrV4>,
) -> io::Result<Option<(SocketAddrV4, u64)>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let SocketAddr::V4(from) = stream.peer_addr()? else {
        return Ok(None);
    };
    let mut request = BufReader::new((&stream).take(REQUEST_BYTES_MAX));
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let number = |name| parameter(&first, name)?.parse::<u64>().ok();
    let Some(port) = number("port").and_then(|port| u16::try_from(port).ok()) else {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(None);
    };
    let peer = SocketAddrV4::new(*from.ip(), port);
    let body = list(peers.iter().filter(|other| **other != peer));
    if !peers.contains(&peer) && peers.len() < PEERS_MAX {
        peers.push(peer);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    Ok(Some((peer, number("left").unwrap_or(u64::MAX))))
}

/// A parameter of the request's first line.
fn parameter<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let query = line.split_whitespace().nth(1)?.split_once('?')?.1;
    let mut all = query.split('&').filter_map(|pair| pair.split_once('='));
    all.find_map(|(key, value)| (key == name).then_some(value))
}

/// What a tracker answers: when to ask again, and six bytes for each peer.
fn list<'a>(peers: impl Iterator<Item = &'a SocketAddrV4>) -> Vec<u8> {
    let bytes: Vec<u8> = peers
        .flat_map(|peer| [&peer.ip().octets()[..], &peer.port().to_be_bytes()].concat())
        .collect();
    let mut body = format!("d8:intervali{INTERVAL_S}e5:peers{}:", bytes.len()).into_bytes();
    body.extend_from_slice(&bytes);
    body.push(b'e');
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What a peer at that port is told, and what is noted of it.
    fn ask(question: &str, peers: &mut Vec<SocketAddrV4>) -> (Vec<u8>, Option<u64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        write!(stream, "{question} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let noted = answer(listener.accept().unwrap().0, peers).unwrap();
        let mut told = Vec::new();
        stream.read_to_end(&mut told).unwrap();
        (told, noted.map(|(_, left)| left))
    }

    #[test]
    fn peers_are_told_of_those_before_them() {
        let mut peers = Vec::new();
        let (first, left) = ask("GET /announce?port=6881&left=0", &mut peers);
        assert!(first.ends_with(b"d8:intervali5e5:peers0:e") && left == Some(0));
        let (second, left) = ask("GET /announce?left=7&port=6882", &mut peers);
        assert!(
            second.ends_with(b"5:peers6:\x7f\0\0\x01\x1a\xe1e"),
            "{second:?}"
        );
        assert_eq!(left, Some(7));
        assert_eq!(peers.len(), 2);
        for nonsense in ["GET /", "", "GET /?port=99999"] {
            let (told, noted) = ask(nonsense, &mut peers);
            assert!(told.starts_with(b"HTTP/1.1 400") && noted.is_none());
        }
    }
}
