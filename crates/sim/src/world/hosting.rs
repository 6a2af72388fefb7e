//! Hands events to the nodes' protocols and carries out what they want.

use outpour_core::{NodeId, Time};
use outpour_protocols::{Action, Coded, Event, MESSAGE_BYTES_MAX, SEND_QUEUE_MAX, TimerId, Worth};
use outpour_terms::kept_batches;

use super::packets::Piece;
use super::{Happening, State, Timer, World};

impl World {
    /// Lets something happen, now or when the node it needs goes on.
    pub(super) fn happen(&mut self, happening: Happening) {
        if let Some(actor) = happening.actor() {
            let node = &mut self.nodes[actor.index()];
            match node.state {
                State::Up => {}
                State::Stalled => {
                    node.inbox.push_back(happening);
                    return;
                }
                State::Down | State::Gone => return self.miss(happening),
            }
        }
        match happening {
            Happening::Start { node } => {
                if !self.join(node) {
                    self.start(node);
                }
            }
            Happening::Tell { input } => self.on_tell(*input),
            Happening::Wake => self.on_wake(),
            Happening::Order { at, order } => self.on_order(at, *order),
            Happening::Beat { node, life } => self.on_beat(node, life),
            Happening::Connect { from, to, life } => self.on_connect(from, to, life),
            Happening::Accept {
                at,
                from,
                connection,
                life,
            } => {
                self.on_accept(at, from, connection, life);
            }
            Happening::Down {
                at,
                peer,
                connection,
            } => self.on_down(at, peer, connection),
            Happening::Message {
                to,
                from,
                connection,
                body,
            } => {
                self.on_message(to, from, connection, &body);
            }
            Happening::Block {
                to,
                from,
                connection,
                block,
                content,
            } => {
                self.on_block(to, from, connection, block, content);
            }
            Happening::Packet {
                to,
                from,
                connection,
                batch,
                packet,
            } => self.on_packet(to, from, connection, batch, packet),
            Happening::Made {
                from,
                to,
                connection,
            } => self.on_made(from, to, connection),
            Happening::Decoded {
                at,
                from,
                batch,
                life,
            } => {
                if self.nodes[at.index()].life == life {
                    self.on_decoded(at, from, batch);
                }
            }
            Happening::Timer {
                node,
                life,
                timer,
                at,
            } => self.on_timer(node, life, timer, at),
            Happening::Left { at, node } => self.on_left(at, node),
            Happening::Fault { index } => self.on_fault(index),
            Happening::FaultOver { index } => self.on_fault_over(index),
            Happening::KeepAlive { index } => self.on_keep_alive(index),
            Happening::Script => self.on_script(),
            Happening::Turn { from, to } => self.on_turn(from, to),
        }
    }

    /// A dead node takes no notice; but who calls it learns that nobody is there.
    fn miss(&mut self, happening: Happening) {
        if let Happening::Accept {
            at,
            from,
            connection,
            ..
        } = happening
            && self.ends.connection(from, at) == connection
        {
            let when = self.arrival(at, from);
            self.queue.push(
                when,
                Happening::Down {
                    at: from,
                    peer: at,
                    connection,
                },
            );
        }
    }

    /// Starts a node's protocol with the blocks it has.
    pub(super) fn start(&mut self, id: NodeId) {
        let node = &self.nodes[id.index()];
        if node.state != State::Down {
            return;
        }
        let (have, block_bytes) = (node.have.clone(), self.object.block_bytes());
        let setup = self.terms.setup(id, have, block_bytes, self.batches);
        let protocol = self.terms.protocol.build(setup);
        let node = &mut self.nodes[id.index()];
        node.protocol = Some(protocol);
        if let Some(batches) = self.batches {
            let traits = self.terms.protocol.entry().coding;
            node.collect(batches, traits.map_or(0, kept_batches) as usize);
        }
        node.state = State::Up;
        self.dispatch(id, Event::Start);
        for index in 0..self.left.len() {
            self.on_left(id, self.left[index]);
        }
    }

    /// A member is out for good as far as a node is concerned, whoever says so.
    pub(super) fn on_left(&mut self, at: NodeId, node: NodeId) {
        if !self.ends.banned(at, node) {
            self.ban(at, node);
            self.dispatch(at, Event::Left(node));
        }
    }

    /// A node has found a peer out.
    pub(super) fn exclude(&mut self, node: NodeId, peer: NodeId, offence: &str) {
        self.on_left(node, peer);
        self.accuse(node, peer, offence);
    }

    /// Gives a node's protocol an event and does what it asks for.
    pub(super) fn dispatch(&mut self, id: NodeId, event: Event<'_>) {
        self.note(id, event);
        let Some(protocol) = &mut self.nodes[id.index()].protocol else {
            return;
        };
        let mut actions = std::mem::take(&mut self.actions);
        protocol.handle(self.now, event, &mut actions);
        let mut accused = Vec::new();
        for action in actions.drain() {
            match action {
                // The protocol is told once all that it wanted is done.
                Action::Accuse { peer, offence } => accused.push((peer, offence)),
                action => self.perform(id, action),
            }
        }
        self.actions = actions;
        for (peer, offence) in accused {
            self.on_accusation(id, peer, offence);
        }
    }

    fn on_accusation(&mut self, node: NodeId, peer: NodeId, offence: &'static str) {
        if self.is_other(node, peer) {
            self.trace
                .record(self.now, "accuse", [node.0, peer.0, 0], offence.as_bytes());
            if !self.nodes[peer.index()].lied {
                self.blame(node, format!("accuses {peer}: it {offence}"));
            }
            self.exclude(node, peer, offence);
        }
    }

    fn note(&mut self, id: NodeId, event: Event<'_>) {
        let (kind, peer, what, body): (_, _, _, &[u8]) = match event {
            Event::Start => ("start", id, 0, &[]),
            Event::PeerUp(peer) => ("up", peer, 0, &[]),
            Event::PeerDown(peer) => ("down", peer, 0, &[]),
            Event::Left(peer) => ("left", peer, 0, &[]),
            Event::Message { from, body } => ("message", from, 0, body),
            Event::Arrived {
                from,
                block,
                fresh: true,
            } => ("arrived", from, block, &[]),
            Event::Arrived {
                from,
                block,
                fresh: false,
            } => ("duplicate", from, block, &[]),
            Event::Rejected { from, block } => ("rejected", from, block, &[]),
            Event::Sent { to, block } => ("sent", to, block, &[]),
            Event::Coded(Coded::Packet {
                from, batch, worth, ..
            }) => {
                let kind = match worth {
                    Worth::Innovative => "innovative",
                    Worth::Dependent => "dependent",
                    Worth::Zero => "zero",
                };
                (kind, from, batch, &[])
            }
            Event::Coded(Coded::Decoded { batch }) => ("decoded", id, batch, &[]),
            Event::Coded(Coded::Spoiled { batch }) => ("spoiled", id, batch, &[]),
            Event::Coded(Coded::Sent { to, batch }) => ("packet-sent", to, batch, &[]),
            Event::Timer(TimerId(timer)) => ("timer", id, timer, &[]),
        };
        self.trace
            .record(self.now, kind, [id.0, peer.0, what], body);
    }

    fn perform(&mut self, node: NodeId, action: Action) {
        match action {
            Action::Connect(peer) => {
                if self.is_other(node, peer) {
                    self.totals.last_action = self.now;
                    self.trace
                        .record(self.now, "connect", [node.0, peer.0, 0], &[]);
                    self.want(node, peer);
                }
            }
            Action::Disconnect(peer) => {
                if self.is_other(node, peer) {
                    self.trace
                        .record(self.now, "disconnect", [node.0, peer.0, 0], &[]);
                    self.close(node, peer);
                }
            }
            Action::Send { to, body } => {
                if body.len() > MESSAGE_BYTES_MAX {
                    self.blame(node, format!("a message of {} bytes", body.len()));
                } else if self.is_up(node, to, "a message") {
                    self.totals.last_action = self.now;
                    self.send(node, to, body);
                }
            }
            Action::SendBlock { to, block } => {
                if !self.nodes[node.index()].have.contains(block) {
                    self.blame(node, format!("sends block {block}, which it lacks"));
                } else if self.is_up(node, to, "a block") {
                    self.queue_piece(node, to, Piece::Block(block));
                }
            }
            Action::SendPacket { to, batch, pure } => {
                if !self.can_code(node, batch, pure) {
                    let what = if pure { "a pure packet" } else { "a packet" };
                    self.blame(node, format!("sends {what} of batch {batch}: it has none"));
                } else if self.is_up(node, to, "a packet") {
                    let ready = self.encode(node, batch, pure);
                    self.queue_piece(node, to, Piece::Packet { batch, pure, ready });
                }
            }
            Action::SetTimer { timer, at } => self.set_timer(node, timer, at),
            Action::Accuse { peer, offence } => self.on_accusation(node, peer, offence),
        }
    }

    fn queue_piece(&mut self, node: NodeId, to: NodeId, piece: Piece) {
        if self.end(node, to).queue.len() >= SEND_QUEUE_MAX {
            self.blame(node, format!("more than {SEND_QUEUE_MAX} blocks to {to}"));
        }
        self.totals.last_action = self.now;
        self.send_piece(node, to, piece);
    }

    fn blame(&mut self, node: NodeId, what: String) {
        self.audit.violation(self.now, Some(node), what);
    }

    fn is_other(&mut self, node: NodeId, peer: NodeId) -> bool {
        let other = peer != node && peer.index() < self.nodes.len();
        if !other {
            self.blame(node, format!("names {peer} as a peer"));
        }
        other
    }

    fn is_up(&mut self, node: NodeId, peer: NodeId, what: &str) -> bool {
        if !self.is_other(node, peer) {
            return false;
        }
        let up = self.end(node, peer).up;
        if !up {
            self.blame(node, format!("{what} to {peer}, which is not up"));
        }
        up
    }

    // ---- timers

    fn set_timer(&mut self, id: NodeId, timer: TimerId, at: Time) {
        let at = at.max(self.now);
        let node = &mut self.nodes[id.index()];
        let index = node
            .timers
            .iter()
            .position(|slot| slot.id == timer)
            .unwrap_or_else(|| {
                node.timers.push(Timer {
                    id: timer,
                    due: None,
                    armed: Time::MAX,
                });
                node.timers.len() - 1
            });
        let slot = &mut node.timers[index];
        slot.due = Some(at);
        // A timer that moves back keeps its place in the queue and is put off when that comes.
        if at < slot.armed {
            slot.armed = at;
            let life = node.life;
            self.queue.push(
                at,
                Happening::Timer {
                    node: id,
                    life,
                    timer,
                    at,
                },
            );
        }
    }

    fn on_timer(&mut self, id: NodeId, life: u32, timer: TimerId, at: Time) {
        let now = self.now;
        let node = &mut self.nodes[id.index()];
        let slot = node
            .timers
            .iter_mut()
            .find(|slot| slot.id == timer && slot.armed == at);
        let Some(slot) = slot.filter(|_| node.life == life) else {
            return;
        };
        slot.armed = Time::MAX;
        match slot.due {
            Some(due) if due > now => {
                slot.armed = due;
                self.queue.push(
                    due,
                    Happening::Timer {
                        node: id,
                        life,
                        timer,
                        at: due,
                    },
                );
            }
            Some(_) => {
                slot.due = None;
                self.dispatch(id, Event::Timer(timer));
            }
            None => {}
        }
    }
}
