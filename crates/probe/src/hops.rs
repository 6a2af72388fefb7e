//! Routes between nodes, and the links that several routes share.
//!
//! A packet that may cross only so many routers makes the last of them answer, which names it
//! [Burger §2.3.3]. Hearing these answers takes a raw socket, which the system gives to
//! privileged processes only; a route is a help, never a need.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::message::Token;
use crate::train::{HEADER_BYTES, Header, Kind, is_timeout, random, socket};

/// How many routers a route may have.
pub const HOPS_MAX: usize = 30;
/// Routers in a row that do not answer before the way is given up.
const SILENT_MAX: usize = 5;
/// How long a router may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long this end looks at one socket before it looks at the other.
const LOOK: Duration = Duration::from_millis(20);

/// Finds the routers on the way to `to`, where a peer answers pings with `token`; blocks.
///
/// # Errors
/// If there is no raw socket to be had, mostly for lack of permission.
pub(crate) fn trace(to: SocketAddr, token: Token) -> io::Result<Vec<Option<IpAddr>>> {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let sender = socket(to)?;
    let (domain, protocol) = match to {
        SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let answers = Socket::new(domain, Type::RAW, Some(protocol))?;
    answers.set_read_timeout(Some(LOOK))?;
    sender.set_read_timeout(Some(LOOK))?;
    let own_port = sender.local_addr()?.port();
    let mut hops: Vec<Option<IpAddr>> = Vec::new();
    for ttl in 1..=HOPS_MAX as u32 {
        let reached = match to {
            SocketAddr::V4(_) => SockRef::from(&sender).set_ttl_v4(ttl),
            SocketAddr::V6(_) => SockRef::from(&sender).set_unicast_hops_v6(ttl),
        };
        reached?;
        let (hop, reached) = one(&sender, &answers, to, token, own_port)?;
        hops.push(hop);
        let silent = hops.iter().rev().take_while(|hop| hop.is_none()).count();
        if reached || silent >= SILENT_MAX {
            if !reached {
                hops.truncate(hops.len().saturating_sub(silent));
            }
            break;
        }
    }
    Ok(hops)
}

/// Sends one packet; returns the host that answered, and whether that was its destination.
fn one(
    sender: &UdpSocket,
    mut answers: &Socket,
    to: SocketAddr,
    token: Token,
    own_port: u16,
) -> io::Result<(Option<IpAddr>, bool)> {
    let header = Header {
        token,
        kind: Kind::Ping,
        id: 0,
        seq: 0,
        nonce: random()?,
    };
    let sent = Instant::now();
    sender.send_to(&header.encode(HEADER_BYTES), to)?;
    let mut buffer = [0; 512];
    while sent.elapsed() < PATIENCE {
        match sender.recv_from(&mut buffer) {
            Ok((len, _)) => {
                let answer = Header::decode(buffer.get(..len).unwrap_or_default());
                if answer.is_some_and(|a| a.kind == Kind::Pong && a.nonce == header.nonce) {
                    return Ok((Some(to.ip()), true));
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
        let (len, from) = match to {
            SocketAddr::V4(_) => match answers.read(&mut buffer) {
                Ok(len) => (len, None),
                Err(error) if is_timeout(&error) => continue,
                Err(error) => return Err(error),
            },
            // The kernel keeps the header of the sixth version; the address comes apart.
            SocketAddr::V6(_) => match read_from(answers, &mut buffer) {
                Ok((len, from)) => (len, from),
                Err(error) if is_timeout(&error) => continue,
                Err(error) => return Err(error),
            },
        };
        let packet = buffer.get(..len).unwrap_or_default();
        let exceeded = match from {
            None => exceeded_v4(packet).map(|(by, ports)| (IpAddr::V4(by), ports)),
            Some(from) => exceeded_v6(packet).map(|ports| (IpAddr::V6(from), ports)),
        };
        if let Some((by, (from, into))) = exceeded
            && (from, into) == (own_port, to.port())
        {
            return Ok((Some(by), false));
        }
    }
    Ok((None, false))
}

fn read_from(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, Option<Ipv6Addr>)> {
    let socket: UdpSocket = socket.try_clone()?.into();
    let (len, from) = socket.recv_from(buffer)?;
    match from.ip() {
        IpAddr::V6(from) => Ok((len, Some(from))),
        IpAddr::V4(_) => Ok((0, None)),
    }
}

const UDP: u8 = 17;

/// Reads "time exceeded" out of an IP packet: its sender, and the ports of the packet it is about.
fn exceeded_v4(packet: &[u8]) -> Option<(Ipv4Addr, (u16, u16))> {
    const TIME_EXCEEDED: u8 = 11;
    let header = usize::from(packet.first()? & 0xf) * 4;
    let by: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let icmp = packet.get(header..)?;
    if *icmp.first()? != TIME_EXCEEDED {
        return None;
    }
    let about = icmp.get(8..)?;
    let header = usize::from(about.first()? & 0xf) * 4;
    if *about.get(9)? != UDP {
        return None;
    }
    Some((by.into(), ports(about.get(header..)?)?))
}

/// Reads "time exceeded" of the sixth version: the ports of the packet it is about.
fn exceeded_v6(icmp: &[u8]) -> Option<(u16, u16)> {
    const TIME_EXCEEDED: u8 = 3;
    const HEADER: usize = 40;
    if *icmp.first()? != TIME_EXCEEDED {
        return None;
    }
    let about = icmp.get(8..)?;
    if *about.get(6)? != UDP {
        return None;
    }
    ports(about.get(HEADER..)?)
}

fn ports(udp: &[u8]) -> Option<(u16, u16)> {
    let from = udp.first_chunk::<2>()?;
    let into = udp.get(2..)?.first_chunk::<2>()?;
    Some((u16::from_be_bytes(*from), u16::from_be_bytes(*into)))
}

/// Reads arbitrary bytes as what routers send, of both versions; for tests.
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some((by, _)) = exceeded_v4(bytes) {
        assert_eq!(bytes.get(12..16), Some(&by.octets()[..]));
    }
    if exceeded_v6(bytes).is_some() {
        assert!(bytes.len() >= 8 + 40 + 4);
    }
}

/// A link between two routers, as routes name them.
pub type HopLink = (IpAddr, IpAddr);

/// A route: from where to where, and the hops between, the destination included if it was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<T> {
    /// Whose route it is.
    pub of: T,
    /// The hops.
    pub hops: Vec<Option<IpAddr>>,
}

/// The links that routes with different ends pass, and these routes.
///
/// What several routes do to their last link but one is the same link only if both its ends are
/// known: silent routers share nothing that could be told.
pub fn shared<T: Clone + Ord>(routes: &[Route<T>]) -> BTreeMap<HopLink, BTreeSet<T>> {
    let mut users: BTreeMap<HopLink, BTreeSet<T>> = BTreeMap::new();
    for route in routes {
        for pair in route.hops.windows(2) {
            if let [Some(from), Some(to)] = pair {
                let of = users.entry((*from, *to)).or_default();
                of.insert(route.of.clone());
            }
        }
    }
    users.retain(|_, of| of.len() > 1);
    users
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hop(last: u8) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)))
    }

    /// A router's answer as it comes out of a raw socket.
    fn answer(kind: u8, from: u16, into: u16) -> Vec<u8> {
        let mut packet = vec![0_u8; 20 + 8 + 24 + 8];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&[10, 0, 0, 9]);
        packet[20] = kind;
        // The packet it is about has options, which make its header longer.
        packet[28] = 0x46;
        packet[28 + 9] = UDP;
        packet[52..54].copy_from_slice(&from.to_be_bytes());
        packet[54..56].copy_from_slice(&into.to_be_bytes());
        packet
    }

    #[test]
    fn answers_of_routers_are_read_and_nonsense_is_not() {
        let packet = answer(11, 5000, 6000);
        let by = Ipv4Addr::new(10, 0, 0, 9);
        assert_eq!(exceeded_v4(&packet), Some((by, (5000, 6000))));
        assert_eq!(exceeded_v4(&answer(3, 5000, 6000)), None);
        for len in 0..56 {
            assert_eq!(exceeded_v4(&packet[..len]), None);
        }
        let mut six = vec![0_u8; 8 + 40 + 4];
        six[0] = 3;
        six[8 + 6] = UDP;
        six[48..52].copy_from_slice(&[0x13, 0x88, 0x17, 0x70]);
        assert_eq!(exceeded_v6(&six), Some((5000, 6000)));
        for len in 0..52 {
            assert_eq!(exceeded_v6(&six[..len]), None);
        }
    }

    #[test]
    fn routes_share_the_links_both_ends_of_which_they_name() {
        let route = |of: &'static str, hops: &[u8]| Route {
            of,
            hops: hops
                .iter()
                .map(|n| if *n == 0 { None } else { hop(*n) })
                .collect(),
        };
        let routes = [
            route("a-b", &[1, 2, 3, 11]),
            route("a-c", &[1, 2, 0, 12]),
            route("d-b", &[4, 2, 3, 11]),
            route("d-e", &[4, 0, 3, 13]),
        ];
        let shared = shared(&routes);
        let of = |a, b| shared.get(&(hop(a).unwrap(), hop(b).unwrap()));
        assert_eq!(of(1, 2), Some(&["a-b", "a-c"].into()));
        assert_eq!(of(2, 3), Some(&["a-b", "d-b"].into()));
        assert_eq!(of(3, 11), Some(&["a-b", "d-b"].into()));
        assert_eq!(shared.len(), 3);
    }
}
