//! What a cast shows while it runs and says when it ends.

use std::time::Duration;

use serde::Serialize;

pub use outpour_protocols::coordinator::HostState;

/// What part of a cast is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
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
    /// Why it failed.
    pub error: Option<String>,
}

/// How the cast ended.
#[derive(Clone, Debug, Serialize)]
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
    /// The least time the limits given and the network described allow.
    pub limit_s: Option<f64>,
    /// `finish_s` as a multiple of `limit_s`.
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
