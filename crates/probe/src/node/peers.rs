//! What a node knows of its peers; tasks wait for it to change.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::NodeId;
use tokio::sync::watch;

use crate::message::{Arrival, Token};

/// How many points of a transfer are kept.
const POINTS_MAX: usize = 1 << 16;

/// A peer.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) hosts: Vec<IpAddr>,
    pub(super) up: bool,
    /// Where packets go, and the token they need.
    pub(super) hello: Option<(u16, Token)>,
    /// The address that has answered a ping.
    pub(super) answers: Option<SocketAddr>,
    pub(super) trouble: Option<String>,
    /// The stream we send, and what the peer says came of it.
    stream: u32,
    pub(super) curve: Vec<(Duration, u64)>,
    /// What we receive.
    receiving: Option<Receiving>,
    pub(super) gathered: Option<(u32, Vec<Arrival>)>,
    pub(super) pong: Option<u64>,
}

struct Receiving {
    stream: u32,
    since: Instant,
    bytes: u64,
}

impl Peer {
    /// The link is gone, and what was expected with it.
    pub(super) fn part(&mut self) {
        *self = Self {
            hosts: std::mem::take(&mut self.hosts),
            trouble: self.trouble.take(),
            ..Self::default()
        };
    }

    /// We begin to send a stream.
    pub(super) fn expect(&mut self, stream: u32) {
        self.stream = stream;
        self.curve.clear();
    }

    pub(super) fn came(&mut self, stream: u32, bytes: u64, at: Duration) {
        let grows = self
            .curve
            .last()
            .is_none_or(|(then, had)| *then <= at && *had <= bytes);
        if stream == self.stream && grows && self.curve.len() < POINTS_MAX {
            self.curve.push((at, bytes));
        }
    }
}

/// All peers.
pub(super) struct Peers {
    all: Mutex<Vec<Peer>>,
    changed: watch::Sender<()>,
}

impl Peers {
    pub(super) fn new(members: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(members, Peer::default);
        Self {
            all: Mutex::new(all),
            changed: watch::Sender::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        node.index() < self.lock().len()
    }

    /// Changes what is known of a peer, and wakes the tasks that wait for that.
    pub(super) fn change(&self, node: NodeId, change: impl FnOnce(&mut Peer)) {
        if let Some(peer) = self.lock().get_mut(node.index()) {
            change(peer);
        }
        self.changed.send_replace(());
    }

    pub(super) fn look<T>(&self, node: NodeId, look: impl FnOnce(&mut Peer) -> T) -> Option<T> {
        self.lock().get_mut(node.index()).map(look)
    }

    /// Waits until `find` finds something about a peer, for at most `patience`.
    pub(super) async fn wait<T>(
        &self,
        node: NodeId,
        patience: Duration,
        mut find: impl FnMut(&mut Peer) -> Option<T>,
    ) -> Option<T> {
        let mut changed = self.changed.subscribe();
        let found = async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = self.look(node, &mut find).flatten() {
                    return Some(found);
                }
                // The sender is in `self`, so this ends with the caller at the latest.
                changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, found).await.ok().flatten()
    }

    pub(super) fn begin_stream(&self, from: NodeId, stream: u32) {
        self.look(from, |peer| {
            peer.receiving = Some(Receiving {
                stream,
                since: Instant::now(),
                bytes: 0,
            });
        });
    }

    /// A block came; the stream it is of, how much of that has come, and since its first word.
    pub(super) fn arrived(&self, from: NodeId, len: u32) -> Option<(u32, u64, Duration)> {
        self.look(from, |peer| {
            let receiving = peer.receiving.as_mut()?;
            receiving.bytes += u64::from(len);
            Some((receiving.stream, receiving.bytes, receiving.since.elapsed()))
        })
        .flatten()
    }
}
