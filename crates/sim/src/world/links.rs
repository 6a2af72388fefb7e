//! Connections, messages and blocks on their way.

use outpour_core::{BlockId, NodeId, Time};
use outpour_protocols::Event;

use super::ends::End;
use super::packets::Piece;
use super::{Happening, RETRY, State, World};
use crate::flow::FlowId;

impl World {
    pub(super) fn end(&mut self, node: NodeId, peer: NodeId) -> &mut End {
        let wires = &self.wires;
        self.ends.make(node, peer, || wires.delay(node, peer))
    }

    /// The protocol of `from` wants a connection.
    pub(super) fn want(&mut self, from: NodeId, to: NodeId) {
        let end = self.end(from, to);
        if end.connection != 0 || end.banned {
            return;
        }
        end.wanted = true;
        if !end.calling {
            end.calling = true;
            let wait = self.set_up(from, to);
            self.call_in(from, to, wait);
        }
    }

    fn call_in(&mut self, from: NodeId, to: NodeId, wait: std::time::Duration) {
        let life = self.nodes[from.index()].life;
        self.queue
            .push(self.now + wait, Happening::Connect { from, to, life });
    }

    /// An attempt to connect has come to its end, good or bad.
    pub(super) fn on_connect(&mut self, from: NodeId, to: NodeId, life: u32) {
        if self.nodes[from.index()].life != life {
            return;
        }
        let reachable = self.is_reachable(from, to);
        // The other side's own call may have been answered already: its word is on its way here.
        let answered = self.ends.get(to, from).is_some_and(|end| end.pending);
        let end = self.end(from, to);
        end.calling = false;
        if !end.wanted || end.connection != 0 || end.banned {
            end.wanted = false;
            return;
        }
        if answered || !reachable {
            end.calling = true;
            self.call_in(from, to, RETRY);
            return;
        }
        self.connections += 1;
        let connection = self.connections;
        self.establish(from, to, connection);
        self.end(from, to).pending = true;
        let at = self.arrival(from, to);
        let life = self.nodes[to.index()].life;
        self.queue.push(
            at,
            Happening::Accept {
                at: to,
                from,
                connection,
                life,
            },
        );
        self.tell_link(from, Event::PeerUp(to));
    }

    fn is_reachable(&self, from: NodeId, to: NodeId) -> bool {
        self.nodes[to.index()].state == State::Up
            && !self.nodes[to.index()].closed
            && !self.ends.banned(to, from)
            && self.healed(from, to).is_none()
            && self.wires.is_open(from, to)
            && self.wires.is_open(to, from)
    }

    /// Until when the two cannot talk, if they cannot.
    pub(super) fn healed(&self, one: NodeId, other: NodeId) -> Option<Time> {
        let apart = |(a, b, _): &&(NodeId, NodeId, Time)| {
            (*a, *b) == (one, other) || (*b, *a) == (one, other)
        };
        self.partitions
            .iter()
            .filter(apart)
            .map(|(_, _, until)| *until)
            .max()
    }

    fn establish(&mut self, node: NodeId, peer: NodeId, connection: u32) {
        let end = self.end(node, peer);
        end.connection = connection;
        end.wanted = false;
        end.broken = false;
        end.up = true;
        self.refresh(node, peer);
    }

    pub(super) fn on_accept(&mut self, at: NodeId, from: NodeId, connection: u32, life: u32) {
        if self.ends.connection(from, at) != connection {
            return;
        }
        self.end(from, at).pending = false;
        let refused = self.nodes[at.index()].closed || self.ends.banned(at, from);
        if self.nodes[at.index()].life != life || refused {
            let when = self.arrival(at, from);
            self.queue.push(
                when,
                Happening::Down {
                    at: from,
                    peer: at,
                    connection,
                },
            );
            return;
        }
        // A new connection means that the peer has given up the old one.
        if self.end(at, from).connection != 0 {
            self.clear(at, from);
        }
        self.tell_down(at, from);
        self.establish(at, from, connection);
        self.tell_link(at, Event::PeerUp(from));
    }

    /// The connection is gone at this end.
    pub(super) fn on_down(&mut self, at: NodeId, peer: NodeId, connection: u32) {
        if self.ends.connection(at, peer) == connection {
            self.clear(at, peer);
            // The other end may have accepted it only after this one had given it up, and would
            // wait for ever; but the kernel here resets what comes for a connection that is gone.
            if self.ends.connection(peer, at) == connection {
                self.hang_up(at, peer, connection);
            }
        }
        if self.ends.connection(at, peer) == 0 {
            self.tell_down(at, peer);
        }
    }

    fn tell_down(&mut self, at: NodeId, peer: NodeId) {
        if std::mem::take(&mut self.end(at, peer).up) {
            self.tell_link(at, Event::PeerDown(peer));
        }
    }

    /// Closes this end's connection, if it has one; the other end hears of it later.
    pub(super) fn close(&mut self, node: NodeId, peer: NodeId) {
        let connection = self.ends.connection(node, peer);
        self.end(node, peer).wanted = false;
        if connection == 0 {
            return;
        }
        self.clear(node, peer);
        self.queue.push(
            self.now,
            Happening::Down {
                at: node,
                peer,
                connection,
            },
        );
        self.hang_up(node, peer, connection);
    }

    /// The peer's end hears that the connection is gone at this one.
    fn hang_up(&mut self, node: NodeId, peer: NodeId, connection: u32) {
        let at = self.arrival(node, peer);
        self.queue.push(
            at,
            Happening::Down {
                at: peer,
                peer: node,
                connection,
            },
        );
    }

    /// Forgets this end's connection and what was to be sent over it.
    pub(super) fn clear(&mut self, node: NodeId, peer: NodeId) {
        self.forget_rate(node, peer);
        let end = self.end(node, peer);
        end.connection = 0;
        end.broken = false;
        end.pending = false;
        end.queue.clear();
        end.packet = None;
        if let Some(flow) = end.flow {
            self.unload(flow);
        }
    }

    /// Refuses the peer from now on.
    pub(super) fn ban(&mut self, node: NodeId, peer: NodeId) {
        self.close(node, peer);
        self.end(node, peer).banned = true;
    }

    // ---- messages

    /// When what `from` says now reaches `to`: after the delay, and after what it said before.
    pub(super) fn arrival(&mut self, from: NodeId, to: NodeId) -> Time {
        let start = self
            .healed(from, to)
            .map_or(self.now, |healed| healed.max(self.now));
        let extra = self.nodes[from.index()].message_delay
            + self.nodes[to.index()].message_delay
            + self.behind_blocks(from, to);
        let end = self.end(from, to);
        let at = end.stream.in_order(start + end.delay + extra);
        end.last = end.last.max(at);
        end.last
    }

    pub(super) fn send(&mut self, from: NodeId, to: NodeId, body: Vec<u8>) {
        let connection = self.ends.connection(from, to);
        if connection == 0 {
            return;
        }
        self.totals.messages += 1;
        self.totals.message_bytes += body.len() as u64;
        self.owe_message(from, to, body.len());
        let at = self.arrival(from, to);
        self.queue.push(
            at,
            Happening::Message {
                to,
                from,
                connection,
                body,
            },
        );
    }

    pub(super) fn on_message(&mut self, to: NodeId, from: NodeId, connection: u32, body: &[u8]) {
        if self.ends.connection(to, from) == connection {
            self.tell_link(to, Event::Message { from, body });
        }
    }

    // ---- blocks

    /// Queues a piece for a peer, if there is a connection; how many then wait for it.
    pub(super) fn send_piece(&mut self, from: NodeId, to: NodeId, piece: Piece) -> usize {
        let end = self.end(from, to);
        if end.connection == 0 {
            return 0;
        }
        end.queue.push_back(piece);
        let waiting = end.queue.len();
        if waiting == 1 {
            self.put_on_way(from, to, piece);
        }
        waiting
    }

    /// Puts a piece that is at the head of its queue on its way, a packet as soon as it is made.
    fn put_on_way(&mut self, from: NodeId, to: NodeId, piece: Piece) {
        if let Piece::Packet { ready, .. } = piece
            && ready > self.now
        {
            let connection = self.ends.connection(from, to);
            let made = Happening::Made {
                from,
                to,
                connection,
            };
            return self.queue.push(ready, made);
        }
        let made = self.make_packet(from, to, piece);
        let end = self.end(from, to);
        end.packet = made;
        let flow = match end.flow {
            Some(flow) => flow,
            None => self.open_flow(from, to),
        };
        self.resume(from, to);
        let bytes = self.wire_bytes(from, to, piece);
        self.load(flow, bytes);
    }

    /// Makes the flow from one node to another.
    pub(super) fn open_flow(&mut self, from: NodeId, to: NodeId) -> FlowId {
        let flow = self.add_flow(from, to);
        self.own_flow(flow, (from, to));
        self.end(from, to).flow = Some(flow);
        self.limit(from, to);
        self.refresh(from, to);
        flow
    }

    pub(super) fn on_made(&mut self, from: NodeId, to: NodeId, connection: u32) {
        if self.ends.connection(from, to) != connection {
            return;
        }
        let end = self.end(from, to);
        if let Some(piece) = end.queue.front().copied() {
            self.put_on_way(from, to, piece);
        }
    }

    /// Pauses the flow between two nodes if one of them does not play its part.
    pub(super) fn refresh(&mut self, from: NodeId, to: NodeId) {
        let Some(end) = self.ends.get(from, to) else {
            return;
        };
        let Some(flow) = end.flow else { return };
        let works = |node: NodeId| self.nodes[node.index()].state == State::Up;
        let paused = end.broken || !works(from) || !works(to) || self.healed(from, to).is_some();
        self.set_paused(flow, paused);
    }

    /// The block at the head of a flow has left the sender.
    pub(super) fn on_transmitted(&mut self, flow: FlowId) {
        let (from, to) = self.routes[flow.0 as usize];
        let now = self.now;
        let (object, lies) = (self.object, self.nodes[from.index()].lies);
        let flow = self.end_together(flow, (from, to));
        let end = self.end(from, to);
        let Some(piece) = end.queue.pop_front() else {
            return;
        };
        let packet = end.packet.take();
        let (connection, next) = (end.connection, end.queue.front().copied());
        let at = end.stream.in_order(now + end.delay);
        match next {
            Some(next @ Piece::Packet { ready, .. }) if ready > now => {
                self.end(from, to).stream.drained(now);
                self.put_on_way(from, to, next);
            }
            Some(next) => {
                if let Piece::Packet { .. } = next {
                    self.end(from, to).packet = self.make_packet(from, to, next);
                }
                let bytes = self.wire_bytes(from, to, next);
                self.load(flow, bytes);
            }
            None => self.end(from, to).stream.drained(now),
        }
        self.totals.blocks_sent += 1;
        self.note_sent(from, to, self.bytes_of(piece));
        if self.terms.members[from.index()].cluster != self.terms.members[to.index()].cluster {
            self.totals.wan_bytes += u64::from(self.bytes_of(piece));
        }
        let block = match (piece, packet) {
            (Piece::Packet { batch, .. }, packet) => {
                return self.packet_left(from, to, (connection, at), batch, packet);
            }
            (Piece::Block(block), _) => block,
        };
        if !self.read_blocks(from, to, &[block]) {
            return;
        }
        let mut content = object.content(block);
        if let Some((share, false)) = lies
            && self.dice.chance(share)
        {
            content ^= 1 << self.dice.below(64);
        }
        self.queue.push(
            at,
            Happening::Block {
                to,
                from,
                connection,
                block,
                content,
            },
        );
        self.tell_link(from, Event::Sent { to, block });
    }

    pub(super) fn on_block(
        &mut self,
        to: NodeId,
        from: NodeId,
        connection: u32,
        block: BlockId,
        content: u64,
    ) {
        if self.ends.connection(to, from) != connection {
            return;
        }
        if content != self.object.content(block) {
            self.ban(to, from);
            return self.tell_link(to, Event::Rejected { from, block });
        }
        if self.terms.members[from.index()].cluster != self.terms.members[to.index()].cluster {
            self.enter(to, block);
        }
        if !self.write_block(to, block) {
            return;
        }
        let fresh = self.store(to, block, content);
        self.tell_link(to, Event::Arrived { from, block, fresh });
        if fresh {
            self.note_block(to, from, block);
        }
    }

    /// A block came from another cluster.
    fn enter(&mut self, to: NodeId, block: BlockId) {
        let cluster = self.terms.members[to.index()].cluster as usize;
        let repeated = !self.entered[cluster].insert(block);
        self.totals.wan_repeats += u64::from(repeated);
        let entries = self.entries.get_mut(cluster);
        if let Some(count) = entries.and_then(|entries| entries.get_mut(block as usize)) {
            *count = count.saturating_add(1);
        }
    }

    /// Keeps a verified block; whether it is fresh.
    pub(super) fn store(&mut self, to: NodeId, block: BlockId, content: u64) -> bool {
        let now = self.now;
        let keep_journal = !self.faults.is_empty();
        let node = &mut self.nodes[to.index()];
        let fresh = node.have.insert(block);
        let wanted = fresh && node.want.contains(block);
        node.lacks -= u32::from(wanted);
        let complete = wanted && node.lacks == 0;
        if fresh {
            if let Some(place) = node.content.get_mut(block as usize) {
                *place = content;
            }
            if keep_journal {
                node.journal.push((now, block));
            }
            if complete {
                node.finished = Some(now);
                self.incomplete -= usize::from(node.deceit.is_none());
            }
        } else {
            node.duplicates += 1;
        }
        fresh
    }
}
