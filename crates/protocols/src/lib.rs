//! Sans-IO protocols: one node's part in a transfer as a deterministic state machine.
//!
//! # Contract
//!
//! A driver builds a protocol from a [`Setup`], hands it [`Event::Start`] once, and then every
//! event in the order it happens, each with the time `now`, which never goes back. After each
//! [`Protocol::handle`] the driver carries out the [`Actions`] in order and empties the list.
//! Nothing else passes between the two: a protocol has no clock, socket, file, thread or source of
//! randomness but the seed in its setup, and it never sees a payload byte. It decides which block
//! goes where; the driver reads, verifies, stores, encrypts and sends it.
//!
//! What the driver owes (`crates/conformance` holds the simulator and the agent against it):
//! - Between [`Event::PeerUp`] and [`Event::PeerDown`] messages from that peer arrive reliably, in
//!   order and once. After `PeerDown` everything queued for or expected from the peer is gone; a
//!   later `PeerUp` starts from nothing on both sides.
//! - `PeerUp` comes for connections the other side opened, too. It comes only for a peer that is
//!   down and has not left, and `PeerDown` only for one that is up.
//! - After [`Action::Disconnect`] of a peer that is up exactly one `PeerDown` comes, and nothing of
//!   that connection after it; what was under way may come before. For a peer that is not up
//!   nothing comes. Either way a connection that was asked for is forgotten. The peer may call
//!   again, and be called again: then `PeerUp` comes. Where the manifest moves over the same
//!   connection, [`node`] has it opened again, whatever the driver.
//! - [`Event::Arrived`] comes only for a block that was verified against the manifest and can be
//!   read back. A block that failed comes as [`Event::Rejected`], and the driver has already cut
//!   its sender off.
//! - A peer that is rejected or [accused](Action::Accuse) is out of the transfer for this node as if the
//!   coordinator had said so: [`Event::Left`] follows, `PeerDown` if it was up, and never `PeerUp`;
//!   the coordinator is told. `Left` comes once for each member, for whatever reason.
//! - Every [`Action::SendBlock`] is answered by one [`Event::Sent`] when the block's last byte
//!   has left the send queue, or by the peer's `PeerDown`.
//! - A timer fires once, at the time it was set to last or a little later.
//! - Blocks and packets leave for a peer no faster than the last [`Action::SetRate`] for it says,
//!   those that were queued before included, until it is down; a connection begins without a
//!   limit. Messages do not wait for a rate.
//! - While a rate is set towards a peer, [`Event::Achieved`] says about twice a second what it
//!   achieves. It comes for no other peer.
//!
//! Where [`Setup::batches`] is set, the transfer is *coded*: nodes may send each other packets,
//! random linear combinations of a batch's blocks, made by the driver of whatever the sender
//! holds of the batch when its turn comes, blocks and packets alike. Then the driver owes more:
//! - It keeps the packets of a batch until the batch is whole, counts each in one
//!   [`Coded::Packet`], and says in it what all it holds of the batch amounts to. A fresh block
//!   is a packet, too: its `Packet` follows its `Arrived`.
//! - A packet is *pure* if its sender made it of verified blocks alone, and says so on its way.
//!   A node that only forwards what others got wrong is never the sender of a wrong pure packet.
//! - When the rank is full it decodes, verifies and stores; an [`Event::Arrived`] follows for each
//!   block this node lacked, and then [`Coded::Decoded`]. If the blocks are not what the manifest
//!   says, it keeps all packets and gives [`Coded::Spoiled`] instead; the protocol has to get the
//!   batch as blocks, and when it is whole the driver finds out whose pure packets were wrong:
//!   [`Event::Rejected`] for each sender of them, which is cut off as for a wrong block. Wrong
//!   packets that are not pure prove nothing about their sender.
//! - What of all this has to be decided and not computed a [`collector`] decides for every driver.
//! - Decoding may end, and a sender be convicted, when the peer that sent the last packet is down.
//! - Every [`Action::SendPacket`] is answered as `SendBlock` is, by [`Coded::Sent`].
//!
//! What the protocol owes: it sends blocks it has (`Setup::have` and what arrived), to peers that
//! are up, packets only of batches of which it has something, at most [`SEND_QUEUE_MAX`] of both
//! per peer unanswered by `Sent`; and it terminates: when every
//! member it can reach has every block that it wants, it falls silent but for timers. A
//! [selective](registry::Entry::selective) protocol sends a node no block that neither the node nor
//! any node behind it wants.
//!
//! Messages are opaque to drivers. What arrives is hostile until decoded and checked: a protocol
//! answers nonsense with [`Action::Accuse`], never with a panic.

pub mod adaptive;
pub mod bittorrent;
pub mod central;
pub mod chain;
pub mod collector;
pub mod coordinator;
pub mod direct;
pub mod gossip;
mod interest;
mod mend;
pub mod mob;
pub mod node;
mod patience;
mod peers;
pub mod promise;
pub mod push;
pub mod rates;
pub mod registry;
mod relay;
mod requests;
pub mod robber;
pub mod series;
pub mod swarm;
mod team;
pub mod tree;

use std::sync::Arc;

use outpour_core::{
    BatchId, Batches, BlockId, BlockSet, Holding, NodeId, Plan, Rate, Time, Traffic, Worth,
};

/// How many blocks a protocol may have in the driver's send queue to one peer.
pub const SEND_QUEUE_MAX: usize = 64;

/// How long an encoded protocol message may be; drivers refuse longer ones.
pub use outpour_core::MESSAGE_BYTES_MAX;

/// A member of a transfer as every node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Member {
    /// Which cluster the node is in; nodes of a cluster share a fast local network.
    pub cluster: u32,
    /// What the node is in the transfer for.
    pub role: Role,
}

/// What a node is in a transfer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Role {
    /// It has the whole object when the transfer begins.
    Source,
    /// It is to get the object, or some blocks of it.
    Receiver,
    /// It wants nothing of the object, and passes on what others want.
    Relay,
}

impl Role {
    /// A source's, or else a receiver's.
    pub const fn source_if(source: bool) -> Self {
        if source { Self::Source } else { Self::Receiver }
    }
}

impl Member {
    /// Whether the node has the whole object when the transfer begins.
    pub const fn is_source(&self) -> bool {
        matches!(self.role, Role::Source)
    }
}

/// What a node knows when its part begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The node itself.
    pub me: NodeId,
    /// Every member, indexed by [`NodeId`]; the same list on every node.
    pub members: Vec<Member>,
    /// How many bytes a full block has; the last of a file may have fewer.
    pub block_bytes: u32,
    /// The blocks verified on this node, out of the object's blocks.
    pub have: BlockSet,
    /// The blocks that this node is to get, those in `have` included: all of them, unless the
    /// protocol is [selective](registry::Entry::selective).
    pub want: BlockSet,
    /// Seed of the transfer's randomness, the same on every node, so that nodes can draw the same
    /// numbers where they must agree; the same seed gives the same decisions.
    pub seed: u64,
    /// The plan to execute, the same on every node and checked for these members; there is one if
    /// the protocol's [`registry::Entry::plan`] asks for it.
    pub plan: Option<Arc<Plan>>,
    /// How blocks are grouped for coding, the same on every node; `None` if the driver does not
    /// code in this transfer.
    pub batches: Option<Batches>,
}

impl Setup {
    /// What every driver has made sure of before it builds a protocol.
    fn check(&self) {
        debug_assert!(self.me.index() < self.members.len());
        debug_assert_eq!(self.have.len(), self.want.len());
        debug_assert!(
            self.batches.is_none_or(|it| it.blocks() == self.have.len()),
            "batches of another object"
        );
    }
}

/// What happened to a node.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The transfer begins; first event, once.
    Start,
    /// A peer can be talked to.
    PeerUp(NodeId),
    /// A peer cannot be talked to any more; a new connection may be asked for.
    PeerDown(NodeId),
    /// A member is out of the transfer for good: the coordinator says so, or it was cut off here.
    Left(NodeId),
    /// A peer's protocol says something.
    Message {
        /// The node.
        from: NodeId,
        /// What, as its [`Action::Send`] had it.
        body: &'a [u8],
    },
    /// A block came from a peer, was verified and can be read back.
    Arrived {
        /// The sender.
        from: NodeId,
        /// Which block.
        block: BlockId,
        /// False if this node had the block already.
        fresh: bool,
    },
    /// What a peer sent as a block is not what the manifest says.
    Rejected {
        /// The sender.
        from: NodeId,
        /// Which block.
        block: BlockId,
    },
    /// A block asked for by [`Action::SendBlock`] has left the send queue.
    Sent {
        /// The recipient.
        to: NodeId,
        /// Which block.
        block: BlockId,
    },
    /// Something happened to a batch of a coded transfer.
    Coded(Coded),
    /// What a peer achieves towards which a rate is [set](Action::SetRate).
    Achieved {
        /// Which peer.
        to: NodeId,
        /// Bytes of blocks and packets that left for it, per second, over about the last half second;
        /// of all that shares the link.
        rate: Rate,
    },
    /// What was measured of latency-sensitive traffic on links between clusters of the described network;
    /// on those that are not named there is none. Sources are told, as they may lead.
    Foreground(&'a [Traffic]),
    /// A timer set by [`Action::SetTimer`] is due.
    Timer(TimerId),
}

/// What happened to a batch of a coded transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coded {
    /// A piece of a batch that is not whole yet came from a peer: a packet, or a fresh block.
    Packet {
        /// The sender.
        from: NodeId,
        /// Of which batch.
        batch: BatchId,
        /// What it was worth.
        worth: Worth,
        /// What this node now holds of the batch.
        holding: Holding,
    },
    /// A batch is whole, verified and stored; its blocks have been reported as arrived.
    Decoded {
        /// Which batch.
        batch: BatchId,
    },
    /// What a batch was decoded to is not what the manifest says: some peer sent wrong packets.
    Spoiled {
        /// Which batch.
        batch: BatchId,
    },
    /// A packet asked for by [`Action::SendPacket`] has left the send queue.
    Sent {
        /// The recipient.
        to: NodeId,
        /// Of which batch.
        batch: BatchId,
    },
}

/// Name of a timer; each protocol numbers its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(pub u32);

/// What a protocol wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Connect to a peer, and keep trying until it is up, left or disconnected.
    Connect(NodeId),
    /// Close the connection to a peer, and do not ask for one any more; answered by
    /// [`Event::PeerDown`] if it was up. It may come again all the same if the peer calls.
    Disconnect(NodeId),
    /// Send a message to a peer that is up.
    Send {
        /// The recipient.
        to: NodeId,
        /// The encoded message, at most [`MESSAGE_BYTES_MAX`] long.
        body: Vec<u8>,
    },
    /// Queue a block for a peer that is up.
    SendBlock {
        /// The recipient.
        to: NodeId,
        /// Which block.
        block: BlockId,
    },
    /// Queue a packet for a peer that is up: a fresh combination of what is here of a batch.
    SendPacket {
        /// The recipient.
        to: NodeId,
        /// Of which batch.
        batch: BatchId,
        /// Whether only verified blocks go into it; it travels with the packet.
        pure: bool,
    },
    /// Let blocks and packets leave for a peer that is up no faster than this, from now on, until
    /// it is set anew or the peer is down. Where several protocols share a link the lowest rate
    /// that any of them has set holds for all.
    SetRate {
        /// The recipient.
        to: NodeId,
        /// Zero holds everything back, unlimited takes the rate away.
        rate: Rate,
    },
    /// Set a timer, or move it if it is set already.
    SetTimer {
        /// Which timer.
        timer: TimerId,
        /// When it is due; a time that has passed means at once.
        at: Time,
    },
    /// Report a peer that broke the protocol; the driver cuts it off for good, which
    /// [`Event::Left`] says, and tells the coordinator.
    Accuse {
        /// The node.
        peer: NodeId,
        /// What it did.
        offence: &'static str,
    },
}

/// The actions of one [`Protocol::handle`], in the order they are to be carried out.
///
/// The driver keeps one list and empties it after each call, so its memory is reused.
#[derive(Debug, Default)]
pub struct Actions {
    list: Vec<Action>,
}

impl Actions {
    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    /// Adds a message.
    pub fn send(&mut self, to: NodeId, message: &impl serde::Serialize) {
        self.push(Action::Send {
            to,
            body: encode(message),
        });
    }

    /// Adds the same message to several peers, encoded once.
    pub fn send_all(
        &mut self,
        to: impl IntoIterator<Item = NodeId>,
        message: &impl serde::Serialize,
    ) {
        let body = encode(message);
        self.list.extend(to.into_iter().map(|to| Action::Send {
            to,
            body: body.clone(),
        }));
    }

    /// Takes the actions out in order and leaves the list empty.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.list.drain(..)
    }

    /// Whether there is nothing to do.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// A message as it travels; encoding a message of our own cannot fail.
fn encode(message: &impl serde::Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("plain data encodes into memory");
    debug_assert!(body.len() <= MESSAGE_BYTES_MAX);
    body
}

/// One node's part in one transfer.
pub trait Protocol: Send {
    /// Takes one event at time `now` and appends to `out` what is to be done.
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions);

    /// Whether a peer counts on what this node is about to pass on, though it was sent nothing yet. It is
    /// parted from if this node's disk hangs, to look for another.
    fn is_depended_on_by(&self, peer: NodeId) -> bool {
        let _ = peer;
        false
    }
}
