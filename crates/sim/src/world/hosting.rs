//! Tells nodes what happens and carries out what they want.

use outpour_core::{BlockSet, NodeId, Time, Worth};
use outpour_protocols::coordinator::{Contacts, Order, Report};
use outpour_protocols::node::{self, BatchNews, Config, Input, Node as Machine, Output, Transfer};
use outpour_protocols::{Coded, Event, MESSAGE_BYTES_MAX, Protocol, SEND_QUEUE_MAX};
use outpour_terms::kept_batches;

use super::packets::Piece;
use super::{Happening, State, World};
use crate::pacer::{Pacer, RateOrder};
use crate::rogue::Rogue;

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
            Happening::Order { at, given } => self.on_order(at, given),
            Happening::Beat { node, life } => self.on_beat(node, life),
            Happening::Achieved { node, life } => self.on_achieved(node, life),
            Happening::Stopped { node, life, silent } => self.on_stopped(node, life, silent),
            Happening::ReadFailed {
                node,
                life,
                peer,
                why,
                trouble,
            } => self.on_read_failed((node, life), peer, why, trouble),
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
            Happening::Woken { node, life, at } => self.on_woken(node, life, at),
            Happening::Left { at, node } => self.on_left(at, node),
            Happening::Fault { index } => self.on_fault(index),
            Happening::FaultOver { index } => self.on_fault_over(index),
            Happening::KeepAlive { index } => self.on_keep_alive(index),
            Happening::Script => self.on_script(),
            Happening::Turn { from, to } => self.on_turn(from, to),
            Happening::Share { weight } => self.on_share(weight),
        }
    }

    /// A dead node takes no notice; but a node that calls it learns that it is not there.
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

    /// Begins a node's part with the blocks it has; it waits for the order to begin.
    pub(super) fn launch(&mut self, id: NodeId) {
        let terms = self.terms.clone();
        let orders = self.orders.iter().filter(|order| order.from == id);
        let orders: Vec<RateOrder> = orders.copied().collect();
        let deceit = self.nodes[id.index()].deceit;
        let build = move |have, want, block_bytes, batches| {
            let mut setup = terms.setup(id, have, want, block_bytes, batches);
            if let Some(deceit) = deceit {
                deceit.boast(&mut setup);
                let protocol = terms.protocol.build(setup);
                return Box::new(Rogue::new(protocol, deceit)) as Box<dyn Protocol>;
            }
            let protocol = terms.protocol.build(setup);
            if orders.is_empty() {
                return protocol;
            }
            Box::new(Pacer::new(protocol, orders.clone())) as Box<dyn Protocol>
        };
        let member = self.terms.members[id.index()];
        let source = member.is_source() && self.nodes[id.index()].have.is_full();
        let config = Config {
            me: id,
            members: self.nodes.len() as u32,
            build: Box::new(build),
            manifest: None,
            object: source.then(|| self.found(id)),
            want: self.wants[id.index()].clone(),
        };
        self.nodes[id.index()].machine = Some(Machine::new(config));
        self.collect_anew(id);
        self.tell(id, Input::Start);
    }

    /// A node begins to collect packets, if the transfer is coded.
    pub(super) fn collect_anew(&mut self, id: NodeId) {
        if let Some(batches) = self.batches {
            let traits = self.terms.protocol.entry().coding;
            let kept = traits.map_or(0, kept_batches) as usize;
            self.nodes[id.index()].collect(batches, kept);
        }
    }

    /// The object as a node finds it.
    pub(super) fn found(&self, id: NodeId) -> node::Object {
        let object = self.object;
        node::Object {
            have: self.nodes[id.index()].have.clone(),
            block_bytes: object.block_bytes(),
            size_bytes: object.bytes_in(&BlockSet::full(object.blocks())),
            batches: self.batches,
            block_len: self.block_len.clone(),
        }
    }

    /// Starts a node that is down, without a coordinator.
    pub(super) fn start(&mut self, id: NodeId) {
        if self.nodes[id.index()].state != State::Down {
            return;
        }
        self.launch(id);
        let contacts = Contacts::default();
        self.begin(id, Box::new(Order::Begin { contacts }));
        for index in 0..self.left.len() {
            self.on_left(id, self.left[index]);
        }
        self.tell_source(id);
    }

    /// A node takes part from now on.
    pub(super) fn begin(&mut self, id: NodeId, order: Box<Order>) {
        self.nodes[id.index()].state = State::Up;
        self.tell(id, Input::Order(order));
    }

    /// A member is out for good, as a node is told.
    pub(super) fn on_left(&mut self, at: NodeId, node: NodeId) {
        self.tell(at, Input::Order(Box::new(Order::Left { node })));
    }

    /// Something happened on a node's links.
    pub(super) fn tell_link(&mut self, id: NodeId, event: Event<'_>) {
        self.tell(id, Input::Link(Transfer::Object, event));
    }

    /// Tells a node what happened, and does what it wants.
    pub(super) fn tell(&mut self, id: NodeId, input: Input<'_>) {
        if self.trace.is_wanted() {
            self.note(id, &input);
        }
        let Some(machine) = &mut self.nodes[id.index()].machine else {
            return;
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        machine.handle(self.now, input, &mut outputs);
        // Most of what happens leads to nothing.
        if !outputs.is_empty() {
            for output in outputs.drain(..) {
                self.perform(id, output);
            }
        }
        self.outputs = outputs;
        self.arm(id);
    }

    fn note(&mut self, id: NodeId, input: &Input<'_>) {
        let (kind, peer, what, body): (_, _, _, &[u8]) = match input {
            Input::Start => ("start", id, 0, &[]),
            Input::Order(order) => match **order {
                Order::Begin { .. } => ("begin", id, 0, &[]),
                Order::Left { node } => ("left", node, 0, &[]),
                Order::Finish => ("dismissed", id, 0, &[]),
                _ => return,
            },
            Input::Link(_, event) => of_link(id, event),
            Input::Batch { from, batch, news } => (of_batch(news), *from, *batch, &[]),
            Input::Woken => ("woken", id, 0, &[]),
            Input::Achieved(peer, rate) => ("achieved", *peer, rate.bytes_per_s() as u32, &[]),
            _ => return,
        };
        self.trace
            .record(self.now, kind, [id.0, peer.0, what], body);
    }

    fn perform(&mut self, node: NodeId, output: Output) {
        match output {
            Output::Connect(peer) => {
                if self.is_other(node, peer) {
                    self.totals.last_action = self.now;
                    self.trace
                        .record(self.now, "connect", [node.0, peer.0, 0], &[]);
                    self.want(node, peer);
                }
            }
            Output::Disconnect(peer) => {
                if self.is_other(node, peer) {
                    self.trace
                        .record(self.now, "disconnect", [node.0, peer.0, 0], &[]);
                    self.close(node, peer);
                }
            }
            Output::Remove(peer) => self.ban(node, peer),
            Output::Send(_, to, body) => {
                if body.len() > MESSAGE_BYTES_MAX {
                    self.blame(node, format!("a message of {} bytes", body.len()));
                } else if self.is_up(node, to, "a message") {
                    self.totals.last_action = self.now;
                    self.send(node, to, body);
                }
            }
            Output::SendBlock(_, to, block) => {
                if !self.nodes[node.index()].have.contains(block) {
                    self.blame(node, format!("sends block {block}, which it lacks"));
                } else if self.is_up(node, to, "a block") {
                    self.queue_piece(node, to, Piece::Block(block));
                }
            }
            Output::SendPacket { to, batch, pure } => {
                if !self.can_code(node, batch, pure) {
                    let what = if pure { "a pure packet" } else { "a packet" };
                    self.blame(node, format!("sends {what} of batch {batch}: it has none"));
                } else if self.is_up(node, to, "a packet") {
                    let ready = self.encode(node, batch, pure);
                    self.queue_piece(node, to, Piece::Packet { batch, pure, ready });
                }
            }
            Output::SetRate(to, rate) => {
                let bytes = rate.bytes_per_s() as u32;
                self.trace
                    .record(self.now, "rate", [node.0, to.0, bytes], &[]);
                if rate.is_unlimited() || self.is_up(node, to, "a rate") {
                    self.set_rate(node, to, rate);
                }
            }
            output => self.attend_to(node, output),
        }
    }

    /// Does what is not about links.
    fn attend_to(&mut self, node: NodeId, output: Output) {
        match output {
            // Looking at a destination and putting files in place take no time.
            Output::OpenDestination => self.open_destination(node),
            Output::Finish => self.finish_destination(node),
            Output::Recover { rereads } => self.recover_destination(node, rereads),
            Output::Open(Transfer::Object) => self.nodes[node.index()].closed = false,
            Output::Close(Transfer::Object) => self.shut(node),
            Output::Report(report) => match *report {
                Report::Accuse { peer, offence } => self.on_accusation(node, peer, &offence),
                report => self.report(node, report),
            },
            Output::End(_) => self.dismiss(node),
            // Either all nodes can reach each other here or none, whichever calls.
            _ => {}
        }
    }

    fn on_accusation(&mut self, node: NodeId, peer: NodeId, offence: &str) {
        if self.is_other(node, peer) {
            self.trace
                .record(self.now, "accuse", [node.0, peer.0, 0], offence.as_bytes());
            if !self.nodes[peer.index()].lied {
                self.blame(node, format!("accuses {peer}: it {offence}"));
            }
            self.accuse(node, peer, offence);
        }
    }

    fn queue_piece(&mut self, node: NodeId, to: NodeId, piece: Piece) {
        self.totals.last_action = self.now;
        if self.send_piece(node, to, piece) > SEND_QUEUE_MAX {
            self.blame(node, format!("more than {SEND_QUEUE_MAX} blocks to {to}"));
        }
    }

    pub(super) fn blame(&mut self, node: NodeId, what: String) {
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
        let up = self.ends.get(node, peer).is_some_and(|end| end.up);
        if !up {
            self.blame(node, format!("{what} to {peer}, which is not up"));
        }
        up
    }

    // ---- timers

    /// Has a node woken when it wants to be.
    fn arm(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        let Some(at) = node.machine.as_ref().and_then(Machine::wake_at) else {
            return;
        };
        let at = at.max(self.now);
        // A time that moves back keeps its place in the queue and is put off when that comes.
        if at < node.armed {
            node.armed = at;
            // One that was passed over has kept its place, and serves again.
            if node.queued.contains(&at) {
                return;
            }
            node.queued.push(at);
            let life = node.life;
            let woken = Happening::Woken { node: id, life, at };
            self.queue.push(at, woken);
        }
    }

    fn on_woken(&mut self, id: NodeId, life: u32, at: Time) {
        let node = &mut self.nodes[id.index()];
        if node.life != life {
            return;
        }
        node.queued.retain(|queued| *queued != at);
        if node.armed != at {
            return;
        }
        node.armed = Time::MAX;
        let wake_at = node.machine.as_ref().and_then(Machine::wake_at);
        match wake_at {
            Some(at) if at <= self.now => self.tell(id, Input::Woken),
            _ => self.arm(id),
        }
    }
}

type Noted<'a> = (&'static str, NodeId, u32, &'a [u8]);

/// What a trace says of something that happened on a node's links.
fn of_link<'a>(id: NodeId, event: &Event<'a>) -> Noted<'a> {
    match *event {
        Event::PeerUp(peer) => ("up", peer, 0, &[]),
        Event::PeerDown(peer) => ("down", peer, 0, &[]),
        Event::Message { from, body } => ("message", from, 0, body),
        Event::Arrived { from, block, fresh } => {
            let kind = if fresh { "arrived" } else { "duplicate" };
            (kind, from, block, &[])
        }
        Event::Rejected { from, block } => ("rejected", from, block, &[]),
        Event::Sent { to, block } => ("sent", to, block, &[]),
        Event::Coded(Coded::Sent { to, batch }) => ("packet-sent", to, batch, &[]),
        _ => ("event", id, 0, &[]),
    }
}

const fn of_batch(news: &BatchNews<'_>) -> &'static str {
    match news {
        BatchNews::Taken(Worth::Innovative, _) => "innovative",
        BatchNews::Taken(Worth::Dependent, _) => "dependent",
        BatchNews::Taken(Worth::Zero, _) => "zero",
        BatchNews::Dropped => "dropped",
        BatchNews::Whole { .. } => "decoded",
        BatchNews::Spoiled { .. } => "spoiled",
        BatchNews::Impossible => "impossible",
    }
}
