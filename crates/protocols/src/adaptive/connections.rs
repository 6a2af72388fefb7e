//! Virtual connections: one for each peer and number of remaining destinations.
//!
//! A message is forwarded over a connection with a lower number than the one it came by, so no
//! circle of full queues can form [Burger §3.3.4]. The connections of a peer share its one link;
//! each has its own short queue and its own credit: so many messages may be at the peer that it
//! has not forwarded yet. A peer always has room for these, so no connection blocks another.

use std::collections::{BTreeMap, VecDeque};

use outpour_core::{BlockId, NodeId};

use super::dests::Dests;

/// How many messages wait in a connection before it is congested.
pub(super) const QUEUE_MAX: usize = 8;
/// How many messages a peer may be sent before it says that it handed one on.
pub(super) const CREDIT: usize = 32;

/// A message: a block, and the nodes that still have to get it after the recipient.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) block: BlockId,
    pub(super) left: Dests,
}

/// A connection: its peer, and how many destinations its messages have left.
pub(super) type Key = (NodeId, u32);

/// All outgoing connections, made as they are needed.
#[derive(Debug, Default)]
pub(super) struct Connections {
    map: BTreeMap<Key, Connection>,
    /// With which connection of each peer its turn goes on.
    turns: BTreeMap<NodeId, u32>,
}

#[derive(Debug, Default)]
struct Connection {
    queue: VecDeque<Parcel>,
    /// Sent, and not known to be handed on.
    sent: VecDeque<Parcel>,
}

impl Connections {
    /// What holds between any two calls at a node.
    pub(super) fn check(&self, me: NodeId) {
        debug_assert!(!self.map.keys().any(|(peer, _)| *peer == me));
        if !cfg!(debug_assertions) {
            return;
        }
        for ((_, left), connection) in &self.map {
            debug_assert!(connection.queue.len() <= QUEUE_MAX);
            debug_assert!(connection.sent.len() <= CREDIT);
            let first = connection.queue.front().or_else(|| connection.sent.front());
            debug_assert!(first.is_none_or(|parcel| parcel.left.len() == *left as usize));
        }
    }

    /// Whether the connection can take a message.
    pub(super) fn has_room(&self, key: Key) -> bool {
        self.map
            .get(&key)
            .is_none_or(|connection| connection.queue.len() < QUEUE_MAX)
    }

    pub(super) fn push(&mut self, key: Key, parcel: Parcel) {
        debug_assert!(self.has_room(key));
        debug_assert_eq!(parcel.left.len(), key.1 as usize);
        debug_assert!(
            !parcel.left.contains(key.0),
            "what is left does not count the recipient"
        );
        self.map.entry(key).or_default().queue.push_back(parcel);
    }

    /// The next message to send to a peer, from its connections in turn.
    pub(super) fn next(&mut self, peer: NodeId) -> Option<(Key, Parcel)> {
        let turn = self.turns.get(&peer).copied().unwrap_or(0);
        let ready = |connection: &Connection| {
            !connection.queue.is_empty() && connection.sent.len() < CREDIT
        };
        let mut rest = self.map.range((peer, turn + 1)..=(peer, u32::MAX));
        let mut first = self.map.range((peer, 0)..=(peer, turn));
        let next = rest
            .find(|(_, it)| ready(it))
            .or_else(|| first.find(|(_, it)| ready(it)));
        let key = *next?.0;
        self.turns.insert(peer, key.1);
        let connection = self.map.get_mut(&key)?;
        let parcel = connection.queue.pop_front()?;
        connection.sent.push_back(parcel.clone());
        Some((key, parcel))
    }

    /// The peer handed on so many messages of a connection.
    pub(super) fn credit(&mut self, key: Key, count: u32) {
        if let Some(connection) = self.map.get_mut(&key) {
            connection
                .sent
                .drain(..connection.sent.len().min(count as usize));
        }
    }

    /// Forgets a peer's connections; returns what it may not have handed on.
    pub(super) fn close(&mut self, peer: NodeId) -> Vec<Parcel> {
        let keys: Vec<Key> = self
            .map
            .range((peer, 0)..=(peer, u32::MAX))
            .map(|it| *it.0)
            .collect();
        let mut parcels = Vec::new();
        for connection in keys
            .iter()
            .filter_map(|key| self.map.remove(key))
            .collect::<Vec<_>>()
        {
            parcels.extend(connection.sent);
            parcels.extend(connection.queue);
        }
        self.turns.remove(&peer);
        debug_assert!(!self.map.keys().any(|(other, _)| *other == peer));
        parcels
    }

    /// Takes out what waits to be sent to a peer.
    pub(super) fn take_queued(&mut self, peer: NodeId) -> Vec<Parcel> {
        let connections = self.map.range_mut((peer, 0)..=(peer, u32::MAX));
        connections
            .flat_map(|(_, connection)| std::mem::take(&mut connection.queue))
            .collect()
    }

    /// Whether nothing waits to be sent or handed on, but for peers with which it `is_over`.
    pub(super) fn is_idle(&self, is_over: impl Fn(NodeId) -> bool) -> bool {
        let mut connections = self.map.iter();
        connections.all(|(key, it)| it.queue.is_empty() && (it.sent.is_empty() || is_over(key.0)))
    }
}
