//! What blocks and messages meet with when TCP carries them, see [`crate::transport`].

use std::time::Duration;

use outpour_core::{NodeId, Time};

use super::packets::Piece;
use super::{HANDSHAKE, Happening, World};
use crate::flow::FlowId;
use crate::transport::{Tcp, Window};

/// A window that changed by less is left as it is: the shares of others stay the same too.
const NOTICEABLE: f64 = 0.01;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Messages and acknowledgements that went this way since the last block: bytes of packets
    /// that are counted with the next one.
    owed: f64,
    /// What limits the flow, if the path has a delay.
    window: Option<Window>,
    /// A turn of the window is due.
    turning: bool,
    /// Since when there was nothing to send.
    idle_since: Time,
    /// Until then nothing arrives, because something before it was lost.
    repaired: Time,
}

impl Stream {
    /// All that was to be sent is on its way.
    pub(super) const fn drained(&mut self, now: Time) {
        self.idle_since = now;
    }

    /// When what would arrive at that time does, because nothing overtakes what was lost.
    pub(super) fn in_order(&self, at: Time) -> Time {
        at.max(self.repaired)
    }
}

impl World {
    fn round_trip(&mut self, from: NodeId, to: NodeId) -> Duration {
        self.end(from, to).delay + self.end(to, from).delay
    }

    /// How long it takes until a connection can be used.
    pub(super) fn set_up(&mut self, from: NodeId, to: NodeId) -> Duration {
        let round_trip = self.round_trip(from, to);
        match self.transport.tcp() {
            None => round_trip * 2 + HANDSHAKE,
            Some(_) if self.warm => self.end(to, from).delay,
            Some(_) => Tcp::set_up(round_trip) + HANDSHAKE,
        }
    }

    /// Makes the flow from one node to another.
    pub(super) fn add_flow(&mut self, from: NodeId, to: NodeId) -> FlowId {
        let round_trip = self.round_trip(from, to);
        let tcp = self.transport.tcp().filter(|_| !round_trip.is_zero());
        let window = tcp.map(|tcp| Window::new(tcp, self.connections()));
        let rate = window.map(|window| window.rate(round_trip));
        let (flow, resource) = self.wires.add_flow(from, to, rate);
        let end = self.end(from, to);
        (end.stream.window, end.own) = (window, resource);
        flow
    }

    /// How many connections for blocks two nodes have.
    fn connections(&self) -> u8 {
        self.terms.connections.unwrap_or(1)
    }

    /// How much a piece takes on its way, with what else goes that way.
    pub(super) fn wire_bytes(&mut self, from: NodeId, to: NodeId, piece: Piece) -> u32 {
        let bytes = self.bytes_of(piece);
        let Some(tcp) = self.transport.tcp() else {
            return bytes;
        };
        let wire = tcp.wire_bytes(bytes);
        self.end(to, from).stream.owed += tcp.ack_bytes(wire);
        let owed = std::mem::take(&mut self.end(from, to).stream.owed);
        (wire + owed).round() as u32
    }

    /// A message takes room too.
    pub(super) fn owe_message(&mut self, from: NodeId, to: NodeId, len: usize) {
        if let Some(tcp) = self.transport.tcp() {
            self.end(from, to).stream.owed += tcp.message_bytes(len);
        }
    }

    /// How long a message waits behind blocks for the same peer.
    pub(super) fn behind_blocks(&mut self, from: NodeId, to: NodeId) -> Duration {
        let Some(tcp) = self.transport.tcp() else {
            return Duration::ZERO;
        };
        let Some(flow) = self.ends.get(from, to).and_then(|end| end.flow) else {
            return Duration::ZERO;
        };
        let backlog = self.backlog(from, to, flow);
        let rate = self.rate(flow);
        let connections = self.connections();
        let queue = self.wires.queue_time(from, to, tcp.mtu);
        Tcp::behind(backlog, connections, rate, queue)
    }

    /// Bytes that wait to be sent, with what is left of those being sent.
    fn backlog(&self, from: NodeId, to: NodeId, flow: FlowId) -> f64 {
        let queue = self.ends.get(from, to).map(|end| &end.queue);
        let waiting = queue.into_iter().flatten().skip(1);
        let waiting: f64 = waiting.map(|piece| f64::from(self.bytes_of(*piece))).sum();
        waiting + self.left(flow)
    }

    /// Blocks are to flow after there were none.
    pub(super) fn resume(&mut self, from: NodeId, to: NodeId) {
        if self.transport.tcp().is_none() {
            return;
        }
        let (now, round_trip) = (self.now, self.round_trip(from, to));
        let stream = &mut self.end(from, to).stream;
        let Some(window) = &mut stream.window else {
            return;
        };
        window.resume(now.since(stream.idle_since), round_trip);
        let due = !std::mem::replace(&mut stream.turning, true);
        self.limit(from, to);
        if due {
            let at = self.now + round_trip;
            self.queue.push(at, Happening::Turn { from, to });
        }
    }

    pub(super) fn on_turn(&mut self, from: NodeId, to: NodeId) {
        let Some(tcp) = self.transport.tcp() else {
            return;
        };
        let round_trip = self.round_trip(from, to);
        let queue = self.wires.queue_time(from, to, tcp.mtu);
        let now = self.now;
        let end = self.end(from, to);
        // A node that waits for a packet to be made has as little to send as one that has none.
        let idle = match end.queue.front() {
            Some(Piece::Packet { ready, .. }) => *ready > now,
            Some(Piece::Block(_)) => false,
            None => true,
        };
        let Some(flow) = end.flow.filter(|_| !idle) else {
            end.stream.turning = false;
            return;
        };
        let (rate, left) = (self.rate(flow), self.left(flow));
        let waiting = self.backlog(from, to, flow);
        let stream = &mut self.end(from, to).stream;
        if let Some(window) = &mut stream.window
            && left > 0.0
            && let Some(repair) = window.turn(rate, round_trip, queue, waiting)
        {
            stream.repaired = now + repair;
        }
        self.limit(from, to);
        // Scripts may take delays away; time must pass all the same.
        let at = self.now + round_trip.max(Duration::from_millis(1));
        self.queue.push(at, Happening::Turn { from, to });
    }

    /// Lets a flow have no more than its window and its rate.
    pub(super) fn limit(&mut self, from: NodeId, to: NodeId) {
        let Some(end) = self.ends.get(from, to) else {
            return;
        };
        let Some(flow) = end.flow else { return };
        let (window, own) = (end.stream.window, end.own);
        let window = window.map(|window| window.rate(self.round_trip(from, to)));
        let rate = self
            .rate_towards(from, to)
            .min(window.unwrap_or(f64::INFINITY));
        let Some(own) = own else {
            if rate.is_finite() {
                let own = self.wires.flows.add_resource(rate);
                self.add_own(flow, own);
                self.end(from, to).own = Some(own);
            }
            return;
        };
        let old = self.wires.flows.capacity(own);
        // Rates are kept to the byte.
        let noticeable = if window == Some(rate) {
            old * NOTICEABLE
        } else {
            0.0
        };
        if (rate - old).abs() > noticeable || rate.is_infinite() != old.is_infinite() {
            self.wires.flows.set_capacity(own, rate);
        }
    }
}
