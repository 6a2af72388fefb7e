//! Data plane of a host: TCP, TLS 1.3, frames, block transfer, rate limits.
//!
//! A host has one [`Endpoint`]: a port, a key, threads, memory and limits. What it takes part in is
//! a [`Session`] on it. A session keeps links to the peers it is told about, moves messages and
//! blocks over them, and reports what happened as [`SessionEvent`]s. It does not decide which node sends
//! what: that is the protocol's part, and the agent joins the two. Payload passes between the
//! sockets and a [`BlockIo`] without touching either.
//!
//! Two endpoints are joined by one **trunk**, which is one or more connections, and the links of
//! all sessions between them go over it. Sessions share the endpoint by their priorities.
//!
//! # Contract
//!
//! - For each transfer, [`SessionEvent::PeerUp`] comes when both sides have opened it on a link.
//!   Between it and [`SessionEvent::PeerDown`] messages are reliable, in order and once; after
//!   `PeerDown` nothing of that link comes any more.
//! - Every [`Session::send_block`] to a peer that is up is answered by one [`SessionEvent::Sent`] or by
//!   the peer's `PeerDown`. Commands refer to the world as of the last event taken from
//!   [`Events`]: what was meant for a link that has gone is never sent on the next one.
//! - So is every [`Session::send_packet`], by one [`SessionEvent::PacketSent`].
//! - [`SessionEvent::Arrived`] is reported when [`BlockIo::accept`] has verified and stored the
//!   block; blocks that arrive together may be reported in any order.

mod bucket;
mod config;
mod endpoint;
mod error;
mod event;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod half_open;
pub mod identity;
mod meter;
mod packets;
mod record;
mod session;
mod shares;
mod tls;
pub mod trust;

use std::io;
use std::time::Duration;

use outpour_core::BlockId;
pub use outpour_core::MESSAGE_BYTES_MAX;

pub use config::{
    CONNECTIONS_MAX, Connections, EndpointConfig, Limits, Member, SessionConfig, SessionLimits,
};
pub use endpoint::{Endpoint, Usage};
pub use error::{Error, LinkError};
pub use event::{Events, SessionEvent};
pub use frame::Piece;
pub use half_open::{Crowded, HalfOpen};
pub use identity::{EndpointKey, KeyDigest, SessionId};
pub use packets::{Encoded, NEWS_MAX, Packet, PacketIo, PacketNews, Tell};
pub use session::{Achieved, Session, Stats};

/// How many sessions an endpoint takes part in at a time.
pub const SESSIONS_MAX: usize = 64;

/// How many transfers a session may have; they are numbered from 0.
pub const TRANSFERS_MAX: u8 = 8;

/// How often a peer that cannot be reached is reported.
pub const UNREACHABLE_EVERY: Duration = Duration::from_secs(10);

/// What the data plane reads from and writes to. Called on threads that may block.
pub trait BlockIo: Send + Sync + 'static {
    /// Length of a block in bytes; `None` if the object has no such block.
    fn block_len(&self, block: BlockId) -> Option<u32>;

    /// Whether the block is here already; called per block on network threads, so it must be
    /// cheap.
    fn has(&self, block: BlockId) -> bool;

    /// Whether a block that comes is dropped unseen, as a duplicate. What is here already may as
    /// well be verified again: a peer that sends wrong bytes is found out though they come late.
    fn drops(&self, block: BlockId) -> bool {
        self.has(block)
    }

    /// Replaces what is in `buf` by the bytes of a block.
    ///
    /// # Errors
    /// If the block cannot be read; the link it was meant for is closed, so that no peer waits.
    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()>;

    /// Verifies a block against the manifest and stores it, so that it can be read back.
    fn accept(&self, block: BlockId, data: &[u8]) -> Accept;

    /// Where the packets come from and go to, if the transfer is coded.
    fn packets(&self) -> Option<&dyn PacketIo> {
        None
    }
}

/// What became of a block that came from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Verified and stored.
    Stored,
    /// Verified, but it was here already.
    Duplicate,
    /// Not what the manifest says; the sender is cut off.
    Wrong,
    /// It could not be stored, and why; not the sender's fault.
    Failed(String),
}
