//! What a cast shows while it runs and says when it ends.

use std::time::Duration;

use outpour_core::manifest::Aspect;
use outpour_protocols::coordinator::CodingCounts;
pub use outpour_protocols::coordinator::HostState;
use outpour_terms::Coding;
use serde::{Deserialize, Serialize};

/// What part of a cast is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Reading and hashing the source.
    Hashing,
    /// Starting agents.
    Starting,
    /// Moving blocks.
    Moving,
    /// Every host has a verdict.
    Done,
}

/// One host as a display shows it.
#[derive(Clone, Debug)]
pub struct HostView {
    /// As the user wrote it.
    pub name: String,
    /// Where it stands.
    pub state: HostState,
    /// Bytes of verified blocks.
    pub have_bytes: u64,
    /// Bytes it had when it joined, from an earlier cast or an older version.
    pub resumed_bytes: u64,
    /// Bytes of blocks and packets it received, duplicates included.
    pub received_bytes: u64,
    /// Bytes per second over the last seconds.
    pub rate_bytes_per_s: f64,
    /// How long nothing was heard from it, or no block came while it lacked some.
    pub idle: Duration,
    /// Why it failed, in one line.
    pub error: Option<String>,
}

/// The whole cast as a display shows it.
#[derive(Clone, Debug)]
pub struct CastView {
    /// What is going on.
    pub phase: Phase,
    /// Bytes hashed so far; meaningful while hashing.
    pub hashed_bytes: u64,
    /// Size of the object; zero until known.
    pub size_bytes: u64,
    /// The protocol, once chosen.
    pub protocol: String,
    /// Why that protocol.
    pub why: String,
    /// Since the command began.
    pub elapsed: Duration,
    /// The least time the limits given allow, in seconds, if they set any.
    pub limit_s: Option<f64>,
    /// Every host in the order of the request.
    pub hosts: Vec<HostView>,
    /// Things worth a line: a peer that sent wrong bytes, a connection that fails.
    pub notices: Vec<String>,
}

/// How it ended for one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// As the user wrote it.
    pub host: String,
    /// The final state: verified or failed.
    pub state: HostState,
    /// Seconds from the start of the command to the host's verdict, if verified.
    pub finish_s: Option<f64>,
    /// Whether every byte is verified and in place.
    pub verified: bool,
    /// Bytes that did not have to be sent because the host had them.
    pub resumed_bytes: u64,
    /// Bytes of block payload the host received, duplicates included.
    pub received_bytes: u64,
    /// What it could not keep of what `--archive` keeps.
    pub not_kept: Vec<NotKept>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What a host could not keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// What.
    pub what: Aspect,
    /// Of how many files, directories and links.
    pub entries: u64,
    /// The path of the first one in the object.
    pub example: String,
}

/// What coding took, over all nodes, the source included.
///
/// Nodes say it twice a second, so what they did in the last half second may be missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodingReport {
    /// Blocks of a batch.
    pub batch_blocks: u16,
    /// Threads of a node that make packets.
    pub encoders: u8,
    /// Packets received.
    pub packets: u64,
    /// Packets made; what was made ahead and never sent is among them.
    pub made: u64,
    /// Packets received that were combinations of what was there.
    pub dependent: u64,
    /// Packets received whose coefficients were all zero.
    pub zero: u64,
    /// Packets received for batches that took no more.
    pub dropped: u64,
    /// Seconds of processor time spent making packets, summed over threads and nodes.
    pub encode_s: f64,
    /// Seconds of processor time spent decoding, verifying and storing, summed likewise.
    pub decode_s: f64,
    /// Bytes of coefficients and protocol messages received.
    pub overhead_bytes: u64,
}

impl CodingReport {
    pub(crate) fn new<'a>(
        coding: Coding,
        nodes: impl Iterator<Item = &'a CodingCounts> + Clone,
    ) -> Self {
        let sum = |count: fn(&CodingCounts) -> u64| nodes.clone().map(count).sum();
        let secs = |time: fn(&CodingCounts) -> Duration| {
            nodes.clone().map(time).sum::<Duration>().as_secs_f64()
        };
        Self {
            batch_blocks: coding.batch_blocks,
            encoders: coding.encoders,
            packets: sum(|node| node.packets),
            made: sum(|node| node.made),
            dependent: sum(|node| node.dependent),
            zero: sum(|node| node.zero),
            dropped: sum(|node| node.dropped),
            encode_s: secs(|node| node.encode),
            decode_s: secs(|node| node.decode),
            overhead_bytes: sum(|node| node.overhead_bytes),
        }
    }
}

/// What a cast would come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryRun {
    /// The protocol that would move the blocks.
    pub protocol: String,
    /// Why.
    pub why: String,
    /// Hash of the manifest in hexadecimal.
    pub object: String,
    /// Size of the object.
    pub size_bytes: u64,
    /// How many blocks it has.
    pub blocks: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The least time that limits and a described network allow, in seconds, if every host lacks all
    /// of it.
    pub limit_s: Option<f64>,
    /// Every source, the first one first.
    pub sources: Vec<DrySource>,
    /// Every relay in the order of the request.
    pub relays: Vec<DryRelay>,
    /// Every host in the order of the request.
    pub hosts: Vec<HostLook>,
}

impl DryRun {
    /// Whether every host answered, and none said that the cast would fail there.
    pub fn all_answered(&self) -> bool {
        self.hosts.iter().all(|host| host.error.is_none())
    }
}

/// A source of a cast that would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrySource {
    /// As the user wrote it.
    pub source: String,
    /// Why it would be left out, if it would.
    pub error: Option<String>,
}

/// A relay of a cast that would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryRelay {
    /// As the user wrote it.
    pub relay: String,
    /// Why the cast would do without it, if it would.
    pub error: Option<String>,
}

/// What a host has of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostLook {
    /// As the user wrote it.
    pub host: String,
    /// Bytes of blocks that are in place there; what an interrupted cast has staged does not count.
    pub have_bytes: Option<u64>,
    /// Bytes that it would have to get.
    pub lacks_bytes: Option<u64>,
    /// Why it cannot say, or why it could not take what it lacks, in one line.
    pub error: Option<String>,
}

/// How the cast ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CastReport {
    /// The protocol that moved the blocks.
    pub protocol: String,
    /// Why it was chosen.
    pub why: String,
    /// Hash of the manifest in hexadecimal.
    pub object: String,
    /// Size of the object.
    pub size_bytes: u64,
    /// Seconds from the start of the command until the last host had its verdict.
    pub finish_s: f64,
    /// Seconds of these from the start of the transfer, when hosts were reached and the source
    /// was read, until the last host had its verdict; nothing if no transfer began.
    pub transfer_s: Option<f64>,
    /// What coding took, if the protocol codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coding: Option<CodingReport>,
    /// The least time the limits given and the network described allow.
    pub limit_s: Option<f64>,
    /// `finish_s` as a multiple of `limit_s`; nothing unless every host has verified the object.
    pub ratio: Option<f64>,
    /// Every host in the order of the request.
    pub hosts: Vec<HostReport>,
    /// Things worth a line, as in [`CastView::notices`].
    pub notices: Vec<String>,
}

impl CastReport {
    /// Whether every host verified every byte.
    pub fn verified(&self) -> bool {
        self.hosts.iter().all(|host| host.verified)
    }
}
