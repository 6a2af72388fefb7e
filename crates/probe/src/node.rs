//! One node's part in measuring a network: does what it is ordered to, and answers its peers.
//!
//! Rates are measured on the very data plane that casts use, with its encryption and its number
//! of connections, because that is what a cast will achieve there. The sender keeps no more under
//! way than the path takes in a fraction of a second, so that nothing is left in queues when the
//! next measurement begins.

mod io;
mod peers;
mod tasks;

use std::net::IpAddr;
use std::sync::Arc;

use outpour_core::NodeId;
use outpour_net::{Events, KeyDigest, Session, SessionEvent};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::message::{Message, ProbeOrder, ProbeReport};
use crate::reflector::Reflector;
use crate::train::PACKETS_MAX;

use self::io::Noise;
use self::peers::Peers;

/// The transfer of measurements on the data plane.
const TRANSFER: u8 = 0;
/// How many orders a node works on at a time; more are refused.
const TASKS_MAX: usize = 64;

/// What a node is told at the start.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfig {
    /// Which node it is.
    pub me: NodeId,
    /// How many nodes there are.
    pub members: usize,
    /// Where it listens for packets.
    pub listen: IpAddr,
}

/// What all tasks of a node share.
struct Shared {
    session: Session,
    peers: Peers,
    reflector: Reflector,
    me: NodeId,
}

/// Plays a node's part until it is ordered to finish or the orders end.
///
/// # Errors
/// If it cannot listen for packets.
pub async fn run(
    session: Session,
    mut events: Events,
    config: NodeConfig,
    mut orders: mpsc::Receiver<ProbeOrder>,
    reports: mpsc::Sender<ProbeReport>,
) -> std::io::Result<()> {
    session.open(TRANSFER, Arc::new(Noise::new()));
    let shared = Arc::new(Shared {
        session,
        peers: Peers::new(config.members),
        reflector: Reflector::start(config.listen)?,
        me: config.me,
    });
    let mut tasks: JoinSet<ProbeReport> = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None | Some(ProbeOrder::Finish) => break,
                Some(ProbeOrder::Begin { contacts }) => shared.begin(contacts),
                Some(ProbeOrder::Run { id, .. }) if tasks.len() >= TASKS_MAX => {
                    let outcome = Err(format!("more than {TASKS_MAX} measurements at once"));
                    let _ = reports.send(ProbeReport { id, outcome }).await;
                }
                Some(ProbeOrder::Run { id, task }) => {
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move {
                        let outcome = tasks::run(&shared, id, task).await;
                        ProbeReport { id, outcome }
                    });
                }
            },
            event = events.recv() => match event {
                Some(event) => shared.on_event(event),
                None => break,
            },
            Some(ended) = tasks.join_next() => {
                if let Ok(report) = ended {
                    let _ = reports.send(report).await;
                }
            }
        }
    }
    tasks.shutdown().await;
    if let Ok(shared) = Arc::try_unwrap(shared).map_err(drop) {
        shared.session.shutdown().await;
    }
    Ok(())
}

impl Shared {
    fn begin(&self, contacts: Vec<(NodeId, crate::message::Contact)>) {
        for (node, contact) in contacts {
            if node == self.me || !self.peers.has(node) {
                continue;
            }
            let hosts = contact.addrs.iter().map(|addr| addr.ip()).collect();
            self.peers.change(node, |peer| peer.hosts = hosts);
            let member = outpour_net::Member {
                addrs: contact.addrs,
                key: KeyDigest(contact.key),
            };
            self.session.set_member(node, member);
        }
    }

    fn send(&self, to: NodeId, message: &Message) {
        // Plain data always encodes.
        if let Ok(body) = postcard::to_stdvec(message) {
            self.session.send(TRANSFER, to, body);
        }
    }

    fn on_event(&self, event: SessionEvent) {
        match event {
            SessionEvent::PeerUp { peer, .. } if self.peers.has(peer) => {
                self.peers.change(peer, |state| state.up = true);
                let port = self.reflector.port();
                match self.reflector.token(peer) {
                    Ok(token) => self.send(peer, &Message::Hello { port, token }),
                    Err(error) => tracing::debug!(%error, "no token"),
                }
            }
            SessionEvent::PeerDown { peer, .. } => self.peers.change(peer, peers::Peer::part),
            SessionEvent::Message { from, body, .. } => match postcard::from_bytes(&body) {
                Ok(message) => self.on_message(from, message),
                Err(error) => {
                    tracing::debug!(%from, %error, "no word of ours");
                    self.session.remove_member(from);
                }
            },
            SessionEvent::Arrived { from, block, .. } => {
                let came = self.peers.arrived(from, Noise::len(block));
                if let Some((stream, bytes, at)) = came {
                    self.send(from, &Message::Came { stream, bytes, at });
                }
            }
            SessionEvent::Unreachable { peer, why } => {
                self.peers.change(peer, |state| state.trouble = Some(why));
            }
            _ => {}
        }
    }

    fn on_message(&self, from: NodeId, message: Message) {
        match message {
            Message::Hello { port, token } => {
                self.peers
                    .change(from, |peer| peer.hello = Some((port, token)));
            }
            Message::Stream { stream } => {
                self.peers.begin_stream(from, stream);
                let (bytes, at) = (0, std::time::Duration::ZERO);
                self.send(from, &Message::Came { stream, bytes, at });
            }
            Message::Came { stream, bytes, at } => {
                self.peers.change(from, |peer| peer.came(stream, bytes, at));
            }
            Message::Gather { train } => {
                let came = self.reflector.train(from, train);
                self.send(from, &Message::Gathered { train, came });
            }
            Message::Gathered { train, mut came } => {
                came.truncate(PACKETS_MAX);
                self.peers
                    .change(from, |peer| peer.gathered = Some((train, came)));
            }
            Message::Ping { nonce } => self.send(from, &Message::Pong { nonce }),
            Message::Pong { nonce } => self.peers.change(from, |peer| peer.pong = Some(nonce)),
        }
    }
}
