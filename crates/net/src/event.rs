//! What happened in a session, and the queue it comes from.

use std::sync::Arc;

use outpour_core::{BatchId, BlockId, NodeId};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::PacketNews;
use crate::endpoint::Hold;
use crate::frame::Piece;
use crate::session::Peers;

/// What happened in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// Both sides have opened the transfer.
    PeerUp {
        /// Which transfer.
        transfer: u8,
        /// The node.
        peer: NodeId,
    },
    /// The link is gone, and everything queued for or expected from the peer with it.
    PeerDown {
        /// Which transfer.
        transfer: u8,
        /// The node.
        peer: NodeId,
    },
    /// A peer says something.
    Message {
        /// In which transfer.
        transfer: u8,
        /// The node.
        from: NodeId,
        /// What.
        body: Vec<u8>,
    },
    /// A block came, is verified and can be read back.
    Arrived {
        /// In which transfer.
        transfer: u8,
        /// The sender.
        from: NodeId,
        /// Which block.
        block: BlockId,
        /// False if it was here already.
        fresh: bool,
    },
    /// What a peer sent as a block is not one of the manifest. The peer is banned for the rest of
    /// the session; its `PeerDown` follows.
    Rejected {
        /// In which transfer.
        transfer: u8,
        /// The sender.
        from: NodeId,
        /// Which block.
        block: BlockId,
    },
    /// A packet came, or a fresh block, that may concern its batch.
    Coded {
        /// In which transfer.
        transfer: u8,
        /// The sender.
        from: NodeId,
        /// Of which batch.
        batch: BatchId,
        /// What came of it.
        news: PacketNews,
    },
    /// What a peer sent as a packet cannot be one. The peer is banned for the rest of the session; its
    /// `PeerDown` follows.
    RejectedPacket {
        /// In which transfer.
        transfer: u8,
        /// The sender.
        from: NodeId,
        /// Of which batch.
        batch: BatchId,
    },
    /// The last byte of a block has left the send queue.
    Sent {
        /// In which transfer.
        transfer: u8,
        /// The recipient.
        to: NodeId,
        /// Which block.
        block: BlockId,
    },
    /// The last byte of a packet has left the send queue.
    PacketSent {
        /// In which transfer.
        transfer: u8,
        /// The recipient.
        to: NodeId,
        /// Of which batch.
        batch: BatchId,
    },
    /// A peer broke the rules of the wire format. It is banned for the rest of the session, as one
    /// is that sent wrong bytes; its `PeerDown` follows.
    CutOff {
        /// The node.
        peer: NodeId,
        /// What it did.
        why: String,
    },
    /// Connecting to a peer keeps failing; attempts go on. At most one in
    /// [`crate::UNREACHABLE_EVERY`] per peer.
    Unreachable {
        /// The node.
        peer: NodeId,
        /// What the last attempts came to, one clause per cause.
        why: String,
    },
    /// A block came but could not be stored.
    StoreFailed {
        /// In which transfer.
        transfer: u8,
        /// Which block.
        block: BlockId,
        /// Why.
        error: String,
    },
    /// A block that was to be sent cannot be read, or a packet not be made; the peer's `PeerDown`
    /// follows.
    ReadFailed {
        /// In which transfer.
        transfer: u8,
        /// What was to be sent.
        piece: Piece,
        /// Why.
        error: String,
    },
}

/// An event on its way, with the room it takes in the queue.
pub(crate) struct Note {
    pub(crate) event: SessionEvent,
    /// Which link it is about; 0 for none.
    pub(crate) link: u64,
    pub(crate) _room: Room,
}

/// Room held in the queue; given back when the event is taken.
#[derive(Default)]
pub(crate) struct Room {
    event: Option<OwnedSemaphorePermit>,
    _bytes: Option<Hold>,
}

impl Room {
    /// Whether there is any: there is none at the end of the session.
    pub(crate) const fn is_some(&self) -> bool {
        self.event.is_some()
    }

    /// The same with the memory of what waits there.
    pub(crate) fn with(self, memory: Option<Hold>) -> Self {
        debug_assert!(
            self._bytes.is_none(),
            "its memory would be given back early"
        );
        Self {
            _bytes: memory,
            ..self
        }
    }
}

/// Room for several events, to be held by a task that cannot wait for it when they happen.
pub(crate) struct Rooms(pub(crate) Option<OwnedSemaphorePermit>);

impl Rooms {
    /// Room for one of the events; in vain when there is none left.
    pub(crate) fn split(&mut self) -> Room {
        debug_assert!(
            self.0.as_ref().is_none_or(|rooms| rooms.num_permits() > 0),
            "more events than there is room for"
        );
        Room {
            event: self.0.as_mut().and_then(|rooms| rooms.split(1)),
            _bytes: None,
        }
    }
}

/// The queue of events of one session. It is bounded: while events are not taken, links stand still,
/// or end where others share their connections.
pub struct Events {
    pub(crate) notes: mpsc::UnboundedReceiver<Note>,
    pub(crate) peers: Arc<Peers>,
}

impl Events {
    /// The next event; `None` once the session has shut down. Cancel-safe.
    pub async fn recv(&mut self) -> Option<SessionEvent> {
        let note = self.notes.recv().await?;
        Some(self.take(note))
    }

    /// The next event if there is one now.
    pub fn try_recv(&mut self) -> Option<SessionEvent> {
        let note = self.notes.try_recv().ok()?;
        Some(self.take(note))
    }

    fn take(&self, note: Note) -> SessionEvent {
        self.peers.see(&note.event, note.link);
        note.event
    }
}
