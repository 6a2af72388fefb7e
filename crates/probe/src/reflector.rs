//! The receiving end of packets: answers pings, and notes when packets of trains came.
//!
//! A thread of its own, so that what it notes is when a packet arrived and not when a task had
//! time. Only packets with a token it has given out are looked at.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::NodeId;
use socket2::SockRef;

use crate::message::{Arrival, Token};
use crate::train::{Header, Kind, PACKET_BYTES, PACKETS_MAX, is_timeout, random_bytes};

/// How often the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// How many trains of one peer are kept; older ones are forgotten.
const TRAINS_MAX: usize = 4;
/// What the socket may hold until the thread gets to it.
const BUFFER_BYTES: usize = 1 << 20;

/// See the module.
pub(crate) struct Reflector {
    inner: Arc<Inner>,
    port: u16,
}

#[derive(Default)]
struct Inner {
    stop: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tokens: HashMap<Token, NodeId>,
    trains: HashMap<NodeId, BTreeMap<u32, Vec<Arrival>>>,
}

impl Reflector {
    /// Begins to listen.
    ///
    /// # Errors
    /// If there is no socket or thread to be had.
    pub(crate) fn start(listen: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddr::new(listen, 0))?;
        // As large as the system allows.
        let _ = SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES);
        socket.set_read_timeout(Some(LOOK))?;
        let port = socket.local_addr()?.port();
        let inner = Arc::new(Inner::default());
        let shared = Arc::clone(&inner);
        std::thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || shared.run(&socket))?;
        Ok(Self { inner, port })
    }

    /// Where it listens.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// A new token, by which packets of this peer are known from now on.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn token(&self, peer: NodeId) -> io::Result<Token> {
        let token = random_bytes()?;
        let mut state = self.inner.state();
        state.tokens.retain(|_, other| *other != peer);
        state.tokens.insert(token, peer);
        Ok(token)
    }

    /// What came of a train of a peer's.
    pub(crate) fn train(&self, peer: NodeId, id: u32) -> Vec<Arrival> {
        let state = self.inner.state();
        let train = state.trains.get(&peer).and_then(|trains| trains.get(&id));
        train.cloned().unwrap_or_default()
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, socket: &UdpSocket) {
        let start = Instant::now();
        let mut buffer = [0; 2 * PACKET_BYTES];
        while !self.stop.load(Ordering::Relaxed) {
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    let at = start.elapsed();
                    let packet = buffer.get(..len).unwrap_or_default();
                    self.on_packet(socket, packet, from, at);
                }
                Err(error) if is_timeout(&error) => {}
                // What an earlier answer met with; the next packet may be fine.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    tracing::debug!(%error, "no more packets");
                    return;
                }
            }
        }
    }

    fn on_packet(&self, socket: &UdpSocket, packet: &[u8], from: SocketAddr, at: Duration) {
        let Some(header) = Header::decode(packet) else {
            return;
        };
        let mut state = self.state();
        let Some(peer) = state.tokens.get(&header.token).copied() else {
            return;
        };
        match header.kind {
            Kind::Ping => {
                drop(state);
                let pong = Header {
                    kind: Kind::Pong,
                    ..header
                };
                let _ = socket.send_to(&pong.encode(packet.len()), from);
            }
            Kind::Train => {
                let trains = state.trains.entry(peer).or_default();
                let train = trains.entry(header.id).or_default();
                if train.len() < PACKETS_MAX {
                    train.push(Arrival {
                        seq: header.seq,
                        at,
                    });
                }
                while trains.len() > TRAINS_MAX {
                    trains.pop_first();
                }
            }
            Kind::Pong => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use super::*;
    use crate::train::{Shape, ping, send};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const PATIENCE: Duration = Duration::from_millis(300);

    #[test]
    fn only_who_has_the_token_is_answered() {
        let reflector = Reflector::start(HERE).unwrap();
        let to = SocketAddr::new(HERE, reflector.port());
        let token = reflector.token(NodeId(3)).unwrap();
        assert_eq!(ping(to, token, 3, PATIENCE).unwrap().len(), 3);
        assert_eq!(ping(to, [0; 16], 1, PATIENCE).unwrap().len(), 0);
        // A new token makes the old one worthless.
        let newer = reflector.token(NodeId(3)).unwrap();
        assert_eq!(ping(to, token, 1, PATIENCE).unwrap().len(), 0);
        assert_eq!(ping(to, newer, 1, PATIENCE).unwrap().len(), 1);
    }

    #[test]
    fn trains_are_kept_by_peer_and_number_and_are_bounded() {
        let reflector = Reflector::start(HERE).unwrap();
        let to = SocketAddr::new(HERE, reflector.port());
        let token = reflector.token(NodeId(3)).unwrap();
        let shape = |packets| Shape {
            packets,
            bytes: 200,
            burst: 1,
            gap: Duration::from_micros(100),
        };
        for id in 0..=TRAINS_MAX as u32 {
            send(to, token, id, shape(20)).unwrap();
        }
        let last = TRAINS_MAX as u32 + 1;
        send(to, token, last, shape(PACKETS_MAX as u32 + 50)).unwrap();
        send(to, [1; 16], last, shape(1)).unwrap();
        // Packets on loopback come in order; when the answer is here, so are they.
        assert_eq!(
            ping(to, token, 1, Duration::from_secs(10)).unwrap().len(),
            1
        );
        let came = reflector.train(NodeId(3), last);
        assert_eq!(came.len(), PACKETS_MAX);
        assert!(came.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(reflector.train(NodeId(3), 0).is_empty());
        assert!(reflector.train(NodeId(4), last).is_empty());
    }
}
