//! Consecutive multicasts over the same connections, as one sans-IO state machine.
//!
//! An application that multicasts again and again, each time perhaps from other nodes, opens a
//! [`Series`] among the same members once and begins one *operation* after the other on it
//! ([Burger §4.5.1]). Operations are numbered from zero, and all members begin the same ones in
//! the same order. Each has its own instance of the protocol, which knows nothing of the others.
//!
//! # How to drive it
//!
//! As a [`Protocol`], with [`Signal`]s for events and [`Effect`]s for actions; the contract of the
//! crate's root holds, for each operation. The one driver of series, in `crates/collective`, is not
//! played against the conformance suite, and keeps one duty less: its members are all connected
//! before the first operation begins, so it ignores [`Effect::Connect`] and
//! [`Effect::Disconnect`], and no `PeerDown` answers the latter. Besides:
//! - [`Series::begin`] begins the next operation, when all blocks of the one before are here
//!   ([`Effect::Received`]). A driver tags the blocks that it sends with their operation.
//! - What peers say of operations that this node has not begun is kept back until it does, so
//!   that no node need wait for the others. A node can be [`AHEAD_MAX`] operations ahead.
//! - [`Effect::Flushed`] says that no peer needs this node for an operation any more: from then on
//!   its blocks may be altered or forgotten. Operations are flushed in order.
//!
//! Connections, `PeerUp` and `PeerDown` are shared by all operations, and so are rates: of those
//! that the operations set towards a peer the lowest holds until they are flushed. Operations use the same
//! seed, so protocols that draw their peers draw the same ones and need no new connections.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use outpour_core::{BlockId, BlockSet, NodeId, Plan, Rate, Time};
use serde::{Deserialize, Serialize};

use crate::rates::Rates;
use crate::registry::Configured;
use crate::{Action, Actions, Event, Member, Protocol, Role, Setup, TimerId};

/// How many operations a node may have begun that are not flushed, and how far a peer may be
/// ahead of it.
pub const AHEAD_MAX: u32 = 8;
/// How many messages of operations to come are kept per peer, and how many bytes of them.
const KEPT_MAX: usize = 4096;
const KEPT_BYTES_MAX: usize = 8 * crate::MESSAGE_BYTES_MAX;

/// What happened; see [`Event`] for the details of each.
#[derive(Clone, Copy, Debug)]
pub enum Signal<'a> {
    /// A peer can be talked to.
    PeerUp(NodeId),
    /// A peer cannot be talked to any more.
    PeerDown(NodeId),
    /// A member is out for good.
    Left(NodeId),
    /// A peer's series says something.
    Message {
        /// The node.
        from: NodeId,
        /// What, as its [`Effect::Send`] had it.
        body: &'a [u8],
    },
    /// A block came, was verified and can be read back.
    Arrived {
        /// The sender.
        from: NodeId,
        /// Of which operation it is.
        operation: u32,
        /// Which block.
        block: BlockId,
        /// False if this node had the block already.
        fresh: bool,
    },
    /// What a peer sent as a block is not that block.
    Rejected {
        /// The sender.
        from: NodeId,
        /// Of which operation.
        operation: u32,
        /// Which block.
        block: BlockId,
    },
    /// A block has left the send queue.
    Sent {
        /// The recipient.
        to: NodeId,
        /// Of which operation it is.
        operation: u32,
        /// Which block.
        block: BlockId,
    },
    /// What a peer achieves towards which a rate is set.
    Achieved {
        /// Which peer.
        to: NodeId,
        /// What left for it.
        rate: Rate,
    },
    /// A timer is due.
    Timer(SeriesTimer),
}

/// Name of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesTimer {
    /// Of which operation.
    pub operation: u32,
    /// Which of its timers.
    pub timer: TimerId,
}

/// What a series wants done; see [`Action`] for the details of each.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Connect to a peer, and keep trying until it is up or left.
    Connect(NodeId),
    /// Close the connection to a peer that left.
    Disconnect(NodeId),
    /// Send a message to a peer that is up. It is a few bytes longer than the protocol's own.
    Send {
        /// The recipient.
        to: NodeId,
        /// The encoded message.
        body: Vec<u8>,
    },
    /// Queue a block for a peer that is up.
    SendBlock {
        /// The recipient.
        to: NodeId,
        /// Of which operation.
        operation: u32,
        /// Which block.
        block: BlockId,
    },
    /// Set the rate towards a peer; without a limit also once it is down.
    SetRate {
        /// The recipient.
        to: NodeId,
        /// The lowest that an operation wants.
        rate: Rate,
    },
    /// Set a timer, or move it if it is set already.
    SetTimer {
        /// Which timer.
        timer: SeriesTimer,
        /// When it is due; a time that has passed means at once.
        at: Time,
    },
    /// Report a peer that broke the protocol; the driver disconnects it.
    Accuse {
        /// The node.
        peer: NodeId,
        /// What it did.
        offence: &'static str,
    },
    /// All blocks of an operation are here: the next one can begin.
    Received {
        /// Which.
        operation: u32,
    },
    /// No peer needs this node for an operation any more.
    Flushed {
        /// Which.
        operation: u32,
    },
}

/// What is multicast in one operation.
#[derive(Clone, Debug)]
pub struct Multicast {
    /// The blocks this node has, out of the operation's blocks. Any distribution over the members
    /// will do: one root, several, or each block with any member.
    pub have: BlockSet,
    /// The members that have everything; the same list on every node. Empty if none has.
    pub roots: Vec<NodeId>,
    /// How many bytes a full block has.
    pub block_bytes: u32,
    /// The plan, if the protocol asks for one.
    pub plan: Option<Arc<Plan>>,
}

/// Why an operation cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// Blocks of the operation before are missing.
    #[error("operation {operation} is not complete: {missing} blocks are missing")]
    Unfinished {
        /// Which.
        operation: u32,
        /// How many blocks it lacks.
        missing: u32,
    },
    /// Too many operations are not flushed.
    #[error("{AHEAD_MAX} operations are not flushed, from operation {oldest} on")]
    TooFarAhead {
        /// The oldest of them.
        oldest: u32,
    },
}

/// What travels between series.
#[derive(Serialize, Deserialize)]
enum Frame<'a> {
    /// A message of an operation's protocol.
    Inner { operation: u32, body: &'a [u8] },
    /// The sender has everything of so many operations, the first ones.
    Complete { operations: u32 },
}

/// An operation that is not flushed.
struct Running {
    number: u32,
    protocol: Box<dyn Protocol>,
    have: BlockSet,
    /// Members it was connected to.
    met: Vec<bool>,
}

/// What is known of a member.
#[derive(Clone, Debug, Default)]
struct Peer {
    up: bool,
    gone: bool,
    /// Of how many operations it has everything.
    complete: u32,
    /// What it said of operations to come: number and message.
    kept: VecDeque<(u32, Vec<u8>)>,
    kept_bytes: usize,
}

/// A series as one member sees it.
pub struct Series {
    protocol: Configured,
    me: NodeId,
    clusters: Vec<u32>,
    seed: u64,
    peers: Vec<Peer>,
    running: VecDeque<Running>,
    /// What operations want of rates.
    rates: Rates,
    /// The number of the next operation.
    next: u32,
    actions: Actions,
}

impl Series {
    /// A series among members whose clusters are `clusters`, on which operations are carried out
    /// by `protocol`; the seed is the same on all nodes.
    ///
    /// # Panics
    /// If `me` is not one of the members.
    pub fn new(protocol: Configured, me: NodeId, clusters: Vec<u32>, seed: u64) -> Self {
        assert!(me.index() < clusters.len(), "{me} is not a member");
        Self {
            protocol,
            me,
            peers: vec![Peer::default(); clusters.len()],
            clusters,
            seed,
            running: VecDeque::new(),
            rates: Rates::default(),
            next: 0,
            actions: Actions::default(),
        }
    }

    /// The number of the next operation: how many have begun.
    pub const fn begun(&self) -> u32 {
        self.next
    }

    /// Begins the next operation and returns its number.
    ///
    /// # Errors
    /// If the one before is not complete, or too many are not flushed.
    ///
    /// # Panics
    /// If a root is not a member.
    pub fn begin(
        &mut self,
        now: Time,
        multicast: Multicast,
        out: &mut Vec<Effect>,
    ) -> Result<u32, BeginError> {
        if let Some(last) = self.running.back().filter(|last| !last.have.is_full()) {
            return Err(BeginError::Unfinished {
                operation: last.number,
                missing: last.have.missing(),
            });
        }
        if let Some(oldest) = self.running.front()
            && self.running.len() >= AHEAD_MAX as usize
        {
            let oldest = oldest.number;
            return Err(BeginError::TooFarAhead { oldest });
        }
        let member = |&cluster: &u32| Member {
            cluster,
            role: Role::Receiver,
        };
        let mut members: Vec<Member> = self.clusters.iter().map(member).collect();
        for root in multicast.roots {
            members[root.index()].role = Role::Source;
        }
        let number = self.next;
        self.next += 1;
        let have = multicast.have.clone();
        self.running.push_back(Running {
            number,
            protocol: self.protocol.build(Setup {
                me: self.me,
                members,
                block_bytes: multicast.block_bytes,
                want: BlockSet::full(multicast.have.len()),
                have: multicast.have,
                seed: self.seed,
                plan: multicast.plan,
                batches: None,
            }),
            have,
            met: vec![false; self.peers.len()],
        });
        self.replay(now, number, out);
        self.settle(number, out);
        self.check();
        Ok(number)
    }

    /// What holds between any two signals.
    fn check(&self) {
        debug_assert!(self.running.len() <= AHEAD_MAX as usize);
        debug_assert!(
            (self.running.iter().rev().map(|it| it.number)).eq(self.numbers().rev()),
            "operations are numbered without gaps"
        );
        let mut earlier = self.running.iter().rev().skip(1);
        debug_assert!(
            earlier.all(|running| running.have.is_full()),
            "an operation has begun before the last was complete"
        );
        debug_assert!(self.complete() <= self.next);
        debug_assert!(!self.peers[self.me.index()].up, "its own peer");
        debug_assert!(self.actions.is_empty());
        debug_assert!(
            (self
                .limited()
                .into_iter()
                .flat_map(|peer| self.rates.owners(peer)))
            .all(|operation| self.numbers().contains(&operation)),
            "a rate that a flushed operation wants"
        );
    }

    /// The numbers of the operations that are not flushed.
    fn numbers(&self) -> Range<u32> {
        self.next - self.running.len() as u32..self.next
    }

    /// Tells a new operation what has happened.
    fn replay(&mut self, now: Time, number: u32, out: &mut Vec<Effect>) {
        self.pass(now, number, Event::Start, out);
        for node in self.nodes() {
            let peer = &self.peers[node.index()];
            let (up, gone) = (peer.up, peer.gone);
            if gone {
                self.pass(now, number, Event::Left(node), out);
            } else if up {
                self.pass(now, number, Event::PeerUp(node), out);
            }
        }
        for from in self.nodes() {
            let kept = std::mem::take(&mut self.peers[from.index()].kept);
            let (ours, later): (VecDeque<_>, _) =
                kept.into_iter().partition(|(of, _)| *of == number);
            let peer = &mut self.peers[from.index()];
            peer.kept_bytes = later
                .iter()
                .map(|(_, body): &(u32, Vec<u8>)| body.len())
                .sum();
            debug_assert!(later.iter().all(|(of, _)| *of > number));
            debug_assert!(later.len() <= KEPT_MAX);
            debug_assert!(peer.kept_bytes <= KEPT_BYTES_MAX);
            peer.kept = later;
            for (_, body) in ours {
                let body = body.as_slice();
                self.pass(now, number, Event::Message { from, body }, out);
            }
        }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.peers.len() as u32).map(NodeId)
    }

    /// Takes one signal at time `now` and appends to `out` what is to be done, in order.
    pub fn handle(&mut self, now: Time, signal: Signal<'_>, out: &mut Vec<Effect>) {
        match signal {
            Signal::PeerUp(node) => {
                self.peers[node.index()].up = true;
                let operations = self.complete();
                if operations > 0 {
                    out.push(send(node, &Frame::Complete { operations }));
                }
                self.pass_all(now, Event::PeerUp(node), out);
            }
            Signal::PeerDown(node) => {
                self.forget(node);
                for operation in self.rates.owners(node) {
                    self.set_rate(operation, node, Rate::UNLIMITED, out);
                }
                self.pass_all(now, Event::PeerDown(node), out);
            }
            Signal::Left(node) => {
                self.peers[node.index()].gone = true;
                self.forget(node);
                self.pass_all(now, Event::Left(node), out);
                self.flush(out);
            }
            Signal::Message { from, body } => self.on_message(now, from, body, out),
            Signal::Arrived {
                from,
                operation,
                block,
                fresh,
            } => {
                let event = Event::Arrived { from, block, fresh };
                if let Some(running) = self.running(operation)
                    && block < running.have.len()
                {
                    let fresh = running.have.insert(block);
                    self.pass(now, operation, event, out);
                    if fresh {
                        self.settle(operation, out);
                    }
                }
            }
            Signal::Rejected {
                from,
                operation,
                block,
            } => self.pass(now, operation, Event::Rejected { from, block }, out),
            Signal::Sent {
                to,
                operation,
                block,
            } => self.pass(now, operation, Event::Sent { to, block }, out),
            Signal::Achieved { to, rate } => {
                for operation in self.rates.owners(to) {
                    self.pass(now, operation, Event::Achieved { to, rate }, out);
                }
            }
            Signal::Timer(SeriesTimer { operation, timer }) => {
                self.pass(now, operation, Event::Timer(timer), out);
            }
        }
        self.check();
    }

    fn forget(&mut self, node: NodeId) {
        let peer = &mut self.peers[node.index()];
        peer.up = false;
        peer.kept.clear();
        peer.kept_bytes = 0;
    }

    fn on_message(&mut self, now: Time, from: NodeId, body: &[u8], out: &mut Vec<Effect>) {
        let next = self.next;
        let peer = &mut self.peers[from.index()];
        if !peer.up {
            return;
        }
        let accuse = |offence| Effect::Accuse {
            peer: from,
            offence,
        };
        match postcard::from_bytes(body) {
            Ok(Frame::Inner { operation, body }) if operation < next => {
                let event = Event::Message { from, body };
                self.pass(now, operation, event, out);
            }
            Ok(Frame::Inner { operation, body }) => {
                peer.kept_bytes += body.len();
                if operation - next >= AHEAD_MAX
                    || peer.kept.len() >= KEPT_MAX
                    || peer.kept_bytes > KEPT_BYTES_MAX
                {
                    out.push(accuse("sent more about future operations than is kept"));
                } else {
                    peer.kept.push_back((operation, body.to_vec()));
                }
            }
            Ok(Frame::Complete { operations }) => {
                peer.complete = peer.complete.max(operations);
                self.flush(out);
            }
            Err(_) => out.push(accuse("sent an invalid message")),
        }
    }

    // ---- operations

    fn running(&mut self, operation: u32) -> Option<&mut Running> {
        let first = self.running.front()?.number;
        let running = self.running.get_mut(operation.checked_sub(first)? as usize);
        debug_assert!(running.as_ref().is_none_or(|it| it.number == operation));
        running
    }

    /// Hands an event to an operation, if it is not flushed, and does what it asks for.
    fn pass(&mut self, now: Time, operation: u32, event: Event<'_>, out: &mut Vec<Effect>) {
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(running) = self.running(operation) {
            if let Event::PeerUp(node) = event {
                running.met[node.index()] = true;
            }
            running.protocol.handle(now, event, &mut actions);
        }
        for action in actions.drain() {
            self.perform(operation, action, out);
        }
        self.actions = actions;
    }

    fn pass_all(&mut self, now: Time, event: Event<'_>, out: &mut Vec<Effect>) {
        let numbers: Vec<u32> = self.running.iter().map(|running| running.number).collect();
        for number in numbers {
            self.pass(now, number, event, out);
        }
    }

    fn perform(&mut self, operation: u32, action: Action, out: &mut Vec<Effect>) {
        match action {
            Action::Connect(node) => {
                if !self.peers[node.index()].up {
                    out.push(Effect::Connect(node));
                }
            }
            // Other operations may want the connection; nodes that left need none.
            Action::Disconnect(node) => {
                if self.peers[node.index()].gone {
                    out.push(Effect::Disconnect(node));
                }
            }
            Action::Send { to, body } => {
                debug_assert!(self.peers[to.index()].up, "a message to {to}");
                let body = body.as_slice();
                out.push(send(to, &Frame::Inner { operation, body }));
            }
            Action::SendBlock { to, block } => {
                debug_assert!(self.peers[to.index()].up, "a block to {to}");
                debug_assert!(
                    (self.running(operation)).is_some_and(|it| it.have.contains(block)),
                    "block {block} is not here"
                );
                out.push(Effect::SendBlock {
                    to,
                    operation,
                    block,
                });
            }
            // Operations are set up without batches.
            Action::SendPacket { .. } => debug_assert!(false, "nothing is coded"),
            Action::SetRate { to, rate } => {
                if self.peers[to.index()].up {
                    self.set_rate(operation, to, rate, out);
                }
            }
            Action::SetTimer { timer, at } => {
                let timer = SeriesTimer { operation, timer };
                out.push(Effect::SetTimer { timer, at });
            }
            Action::Accuse { peer, offence } => out.push(Effect::Accuse { peer, offence }),
        }
    }

    fn set_rate(&mut self, operation: u32, to: NodeId, rate: Rate, out: &mut Vec<Effect>) {
        if let Some(rate) = self.rates.set(operation, to, rate) {
            out.push(Effect::SetRate { to, rate });
        }
    }

    /// The peers whose achieved rates are to be told about twice a second.
    pub fn limited(&self) -> Vec<NodeId> {
        self.rates.limited()
    }

    /// Of how many operations everything is here.
    fn complete(&self) -> u32 {
        match self.running.back() {
            Some(last) if !last.have.is_full() => last.number,
            _ => self.next,
        }
    }

    /// Says so if everything of an operation is here.
    fn settle(&mut self, operation: u32, out: &mut Vec<Effect>) {
        if self
            .running(operation)
            .is_some_and(|running| running.have.is_full())
        {
            debug_assert!(operation < self.complete());
            out.push(Effect::Received { operation });
            let frame = Frame::Complete {
                operations: self.complete(),
            };
            let up = self.nodes().filter(|node| self.peers[node.index()].up);
            out.extend(up.map(|node| send(node, &frame)));
            self.flush(out);
        }
    }

    /// Lets go of operations for which no peer needs this node.
    fn flush(&mut self, out: &mut Vec<Effect>) {
        while let Some(first) = self.running.front() {
            let (me, number) = (self.me, first.number);
            let others = || {
                let peers = self.peers.iter().zip(&first.met).zip(0..);
                peers.filter(move |((peer, _), node)| NodeId(*node) != me && !peer.gone)
            };
            // A node that has met no peer yet does not know which will come.
            let met = others().any(|((_, met), _)| *met) || others().next().is_none();
            let served = others().all(|((peer, met), _)| !met || peer.complete > number);
            if !(met && served && first.have.is_full()) {
                return;
            }
            debug_assert!(!first.met[me.index()], "it meets itself");
            self.running.pop_front();
            let changes = self.rates.forget(number).into_iter();
            out.extend(changes.map(|(to, rate)| Effect::SetRate { to, rate }));
            out.push(Effect::Flushed { operation: number });
        }
    }
}

fn send(to: NodeId, frame: &Frame<'_>) -> Effect {
    Effect::Send {
        to,
        body: crate::encode(frame),
    }
}
