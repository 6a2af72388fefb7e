//! Packets of UDP as nodes send them to each other: pings, pairs, trains and paced streams.
//!
//! Every packet begins with the token that its receiver gave the sender over the data plane, so
//! nothing is answered or even looked at that a stranger sends. A ping is answered by a packet of
//! the same length, to where it came from; nothing else goes to an address that has not answered.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::message::Token;

/// Length of the part of a packet that means something.
pub(crate) const HEADER_BYTES: usize = 33;
/// Payload of a packet in pairs and trains; with all headers it fits an Ethernet frame.
pub(crate) const PACKET_BYTES: usize = 1400;
/// What IP and UDP add to a packet's payload on the way.
pub(crate) const OVERHEAD_BYTES: usize = 28;
/// How many packets a train may have.
pub(crate) const PACKETS_MAX: usize = 128;
/// The system wakes a thread this much late, so this much is waited for with open eyes.
const EYES_OPEN: Duration = Duration::from_micros(200);

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ping,
    Pong,
    Train,
}

/// The part of a packet that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) token: Token,
    pub(crate) kind: Kind,
    /// Of the train.
    pub(crate) id: u32,
    pub(crate) seq: u32,
    pub(crate) nonce: u64,
}

impl Header {
    pub(crate) fn encode(self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.max(HEADER_BYTES));
        bytes.extend_from_slice(&self.token);
        bytes.push(match self.kind {
            Kind::Ping => 1,
            Kind::Pong => 2,
            Kind::Train => 3,
        });
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(&self.nonce.to_be_bytes());
        bytes.resize(len.max(HEADER_BYTES), 0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (token, rest) = bytes.split_first_chunk::<16>()?;
        let (kind, rest) = rest.split_first()?;
        let (id, rest) = rest.split_first_chunk::<4>()?;
        let (seq, rest) = rest.split_first_chunk::<4>()?;
        let (nonce, _) = rest.split_first_chunk::<8>()?;
        Some(Self {
            token: *token,
            kind: match kind {
                1 => Kind::Ping,
                2 => Kind::Pong,
                3 => Kind::Train,
                _ => return None,
            },
            id: u32::from_be_bytes(*id),
            seq: u32::from_be_bytes(*seq),
            nonce: u64::from_be_bytes(*nonce),
        })
    }
}

/// A socket that can send to `to`.
pub(crate) fn socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))
}

/// Pings an address `count` times; one that takes longer than `patience` is lost.
///
/// Blocks meanwhile.
pub(crate) fn ping(
    to: SocketAddr,
    token: Token,
    count: u32,
    patience: Duration,
) -> io::Result<Vec<Duration>> {
    let socket = socket(to)?;
    let mut times = Vec::new();
    let mut buffer = [0; HEADER_BYTES];
    for seq in 0..count {
        let header = Header {
            token,
            kind: Kind::Ping,
            id: 0,
            seq,
            nonce: random()?,
        };
        let sent = Instant::now();
        socket.send_to(&header.encode(HEADER_BYTES), to)?;
        while let Some(left) = patience
            .checked_sub(sent.elapsed())
            .filter(|t| !t.is_zero())
        {
            socket.set_read_timeout(Some(left))?;
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) if same_host(from, to) => {
                    let answer = Header::decode(buffer.get(..len).unwrap_or_default());
                    let is_ours =
                        |answer: &Header| answer.kind == Kind::Pong && answer.nonce == header.nonce;
                    if answer.is_some_and(|answer| is_ours(&answer)) {
                        times.push(sent.elapsed());
                        break;
                    }
                }
                Ok(_) => {}
                Err(error) if is_timeout(&error) => break,
                // No process listens there.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(times),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(times)
}

fn same_host(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// A number that cannot be guessed.
pub(crate) fn random() -> io::Result<u64> {
    random_bytes().map(u64::from_le_bytes)
}

/// Bytes that cannot be guessed.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("no randomness from the system"))?;
    Ok(bytes)
}

/// When each packet of a train is to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) packets: u32,
    /// Payload of each.
    pub(crate) bytes: usize,
    /// This many leave without a gap.
    pub(crate) burst: u32,
    /// From one burst to the next.
    pub(crate) gap: Duration,
}

/// Sends a train to an address that has answered; returns when each packet left.
///
/// Blocks meanwhile.
pub(crate) fn send(
    to: SocketAddr,
    token: Token,
    id: u32,
    shape: Shape,
) -> io::Result<Vec<Duration>> {
    let socket = socket(to)?;
    let mut left = Vec::with_capacity(shape.packets as usize);
    let start = Instant::now();
    for seq in 0..shape.packets {
        let header = Header {
            token,
            kind: Kind::Train,
            id,
            seq,
            nonce: 0,
        };
        let packet = header.encode(shape.bytes);
        let bursts = seq.checked_div(shape.burst).unwrap_or(seq);
        // A gap that no clock can tell is none.
        let due = start.checked_add(shape.gap.saturating_mul(bursts));
        wait_until(due.unwrap_or(start));
        left.push(start.elapsed());
        match socket.send_to(&packet, to) {
            // A queue of our own that is full drops packets as any other.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(left)
}

fn wait_until(due: Instant) {
    if let Some(rest) = due
        .checked_duration_since(Instant::now())
        .and_then(|rest| rest.checked_sub(EYES_OPEN))
    {
        std::thread::sleep(rest);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn headers_round_trip_and_fragments_of_them_are_nothing() {
        let header = Header {
            token: [7; 16],
            kind: Kind::Train,
            id: 5,
            seq: 6,
            nonce: 7,
        };
        let bytes = header.encode(PACKET_BYTES);
        assert_eq!(bytes.len(), PACKET_BYTES);
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(header.encode(0).len(), HEADER_BYTES);
        for len in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&bytes[..len]), None);
        }
        let mut wrong = bytes;
        wrong[16] = 0;
        assert_eq!(Header::decode(&wrong), None);
    }
}
