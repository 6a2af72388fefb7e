//! The state of connections: for each ordered pair of nodes, what the first knows of the second.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::{NodeId, Time};

use super::packets::{Packet, Piece};
use super::tcp::Stream;
use crate::flow::{FlowId, ResourceId};

const ABSENT: u32 = u32::MAX;

/// One node's end of what there is between it and a peer.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The protocol was told that the peer is up, and not yet that it is down.
    pub(super) up: bool,
    /// The protocol asked for a connection that has not come yet.
    pub(super) wanted: bool,
    /// An attempt to connect is under way.
    pub(super) calling: bool,
    /// This end called, and the peer has not seen the connection come yet.
    pub(super) pending: bool,
    /// The peer is refused.
    pub(super) banned: bool,
    /// The peer died; this end has not noticed.
    pub(super) broken: bool,
    /// The connection; zero if there is none. Ends are connected if they have the same.
    pub(super) connection: u32,
    /// One way.
    pub(super) delay: Duration,
    /// When the last message to the peer arrives: later ones arrive no earlier.
    pub(super) last: Time,
    /// Made when the first block is sent.
    pub(super) flow: Option<FlowId>,
    /// What that flow passes alone, which keeps it below its window and its rate.
    pub(super) own: Option<ResourceId>,
    /// What to send, the piece under way first.
    pub(super) queue: VecDeque<Piece>,
    /// That piece, if it is a packet.
    pub(super) packet: Option<Packet>,
    /// What TCP knows of this direction.
    pub(super) stream: Stream,
}

/// All ends; those that were never used take four bytes each.
#[derive(Debug)]
pub(super) struct Ends {
    nodes: usize,
    index: Vec<u32>,
    list: Vec<End>,
}

impl Ends {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            index: vec![ABSENT; nodes * nodes],
            list: Vec::new(),
        }
    }

    /// The end of `node` towards `peer`, if there ever was anything.
    pub(super) fn get(&self, node: NodeId, peer: NodeId) -> Option<&End> {
        let index = self.index[node.index() * self.nodes + peer.index()];
        self.list.get(index as usize)
    }

    pub(super) fn get_mut(&mut self, node: NodeId, peer: NodeId) -> Option<&mut End> {
        let index = self.index[node.index() * self.nodes + peer.index()];
        self.list.get_mut(index as usize)
    }

    /// The end of `node` towards `peer`; a new one is `delay` away.
    pub(super) fn make(
        &mut self,
        node: NodeId,
        peer: NodeId,
        delay: impl FnOnce() -> Duration,
    ) -> &mut End {
        let index = &mut self.index[node.index() * self.nodes + peer.index()];
        if *index == ABSENT {
            *index = self.list.len() as u32;
            self.list.push(End {
                delay: delay(),
                ..End::default()
            });
        }
        &mut self.list[*index as usize]
    }

    /// The connection of `node` to `peer`, or zero.
    pub(super) fn connection(&self, node: NodeId, peer: NodeId) -> u32 {
        self.get(node, peer).map_or(0, |end| end.connection)
    }

    pub(super) fn banned(&self, node: NodeId, peer: NodeId) -> bool {
        self.get(node, peer).is_some_and(|end| end.banned)
    }
}
