//! The links of one node to its peers.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outpour_core::{BlockId, NodeId};
use tokio::sync::mpsc;

use crate::BlockIo;
use crate::config::{Member, MeshConfig};
use crate::error::Error;
use crate::event::{Events, Note};

/// How often a peer that cannot be reached is reported.
pub(crate) const UNREACHABLE_EVERY: Duration = Duration::from_secs(10);
const EVENTS_MAX: usize = 1024;

pub(crate) struct Shared {
    config: MeshConfig,
    members: Mutex<HashMap<NodeId, Member>>,
    events: mpsc::Sender<Note>,
    listener: TcpListener,
}

/// Counters of a mesh since its start; all in bytes but the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Payload of blocks received.
    pub payload_in: u64,
    /// Payload of blocks sent.
    pub payload_out: u64,
    /// All that was read from sockets.
    pub wire_in: u64,
    /// All that was written to sockets.
    pub wire_out: u64,
    /// Payload of blocks received that were here already.
    pub duplicate: u64,
    /// Blocks that were not what the manifest says.
    pub rejected_blocks: u64,
}

/// The data plane of one node in one cast.
pub struct Mesh {
    shared: Arc<Shared>,
}

impl Mesh {
    /// Listens and begins to serve. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn start(config: MeshConfig) -> Result<(Self, Events), Error> {
        let listen = |error| Error::Listen {
            addr: config.listen,
            error,
        };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        let (events, notes) = mpsc::channel(EVENTS_MAX);
        let shared = Arc::new(Shared {
            config,
            members: Mutex::default(),
            events,
            listener,
        });
        Ok((
            Self {
                shared: shared.clone(),
            },
            Events { notes, shared },
        ))
    }

    /// Where this node listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared
            .listener
            .local_addr()
            .unwrap_or(self.shared.config.listen)
    }

    /// Makes a node a member, or changes where and by what it is known.
    pub fn set_member(&self, node: NodeId, member: Member) {
        let mut members = self
            .shared
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        members.insert(node, member);
    }

    /// A node is out of the cast for good: its link is closed and it is refused from now on.
    pub fn remove_member(&self, _node: NodeId) {}

    /// This node is ready for a transfer.
    pub fn open(&self, _transfer: u8, _io: Arc<dyn BlockIo>) {}

    /// Connects to a peer and keeps trying until it is up, disconnected or removed.
    pub fn connect(&self, _node: NodeId) {}

    /// As [`Self::connect`], and tries at once: the coordinator knows that the peer cannot dial us.
    pub fn dial_now(&self, _node: NodeId) {}

    /// Closes the link to a peer and stops connecting; `PeerDown` follows where it was up.
    pub fn disconnect(&self, _node: NodeId) {}

    /// Sends a message to a peer that is up.
    pub fn send(&self, _transfer: u8, _to: NodeId, _body: Vec<u8>) {}

    /// Queues a block for a peer that is up.
    pub fn send_block(&self, _transfer: u8, _to: NodeId, _block: BlockId) {}

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Closes everything and waits until no task, thread or socket is left.
    pub async fn shutdown(self) {}
}
