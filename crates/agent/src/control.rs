//! The control channel between the command and an agent: length-prefixed frames.
//!
//! The channel itself is authenticated and private already (SSH, a pipe to a child, or TLS). What
//! comes through it is bounded and checked all the same.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::io;

use outpour_core::blocks::Want;
use outpour_core::{NodeId, Priority};
use outpour_protocols::coordinator::{Given, Report, TransferName};
use outpour_terms::Terms;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize as SerializeDerive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Version of everything the command and its agents say to each other; both ends must agree.
pub const CONTROL_VERSION: u32 = 13;
/// This release, for messages about version mismatches.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// First bytes of a greeting.
const MAGIC: [u8; 8] = *b"outpour\n";
/// How long a frame may be: an admission lists every member, the manifest's block hashes and the
/// plan.
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 20;
// An admission with a plan fits a frame.
const _: () = assert!(outpour_terms::PLAN_BYTES_MAX <= FRAME_BYTES_MAX / 2);

/// The first bytes of frames, by which they are known where they are not read.
pub(crate) const TAG_PART: u8 = 3;
pub(crate) const TAG_REVOKED: u8 = 9;

/// How long a part of a manifest is at most.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// What goes wrong on a control channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The channel broke.
    #[error("control channel: {0}")]
    Io(#[from] io::Error),
    /// The other end closed the channel.
    #[error("the control channel was closed")]
    Closed,
    /// What came is not Outpour's.
    #[error("what answered is not an outpour agent")]
    NotOutpour,
    /// The other end is of another version.
    #[error(
        "it runs outpour {release} (control version {theirs}), this is outpour {RELEASE} (control \
         version {CONTROL_VERSION}); install the same release on both ends"
    )]
    Version {
        /// Its release.
        release: String,
        /// Its control version.
        theirs: u32,
    },
    /// There is more of something than may be.
    #[error("what answered says {found} {what}, and at most {max} are taken")]
    Excess {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many may be.
        max: usize,
    },
    /// A frame that is too long or makes no sense.
    #[error("control channel: invalid frame length of {0} bytes")]
    Nonsense(usize),
}

/// First frame of an agent. Its shape never changes, so that any two versions can say so.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct Greeting {
    magic: [u8; 8],
    version: u32,
    release: String,
    /// BLAKE3 of the public key of the agent's endpoint.
    pub key: [u8; 32],
}

impl Greeting {
    /// A greeting of this release.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            magic: MAGIC,
            version: CONTROL_VERSION,
            release: RELEASE.to_owned(),
            key,
        }
    }

    /// Refuses other programs and other versions.
    ///
    /// # Errors
    /// [`ControlError::NotOutpour`] or [`ControlError::Version`].
    pub fn check(&self) -> Result<(), ControlError> {
        if self.magic != MAGIC {
            return Err(ControlError::NotOutpour);
        }
        if self.version != CONTROL_VERSION {
            let release = self
                .release
                .chars()
                .filter(|c| !c.is_control())
                .take(40)
                .collect();
            return Err(ControlError::Version {
                release,
                theirs: self.version,
            });
        }
        Ok(())
    }
}

/// How the manifest's bytes are cut and recognised, so that it can be cast like any object.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct ManifestOffer {
    /// Length of the encoded manifest in bytes.
    pub len: u32,
    /// Length of its blocks but the last.
    pub block_bytes: u32,
    /// BLAKE3 of each block.
    pub hashes: Vec<[u8; 32]>,
    /// BLAKE3 of the whole: the object's id.
    pub id: [u8; 32],
    /// The bytes themselves, where they are so few that fetching them would take longer.
    pub inline: Option<Vec<u8>>,
}

/// An object that an agent has found at a path.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct Described {
    /// Its manifest, to be cast to the receivers.
    pub manifest: ManifestOffer,
    /// What its blocks consist of, as [`outpour_core::manifest::Manifest::content`] says.
    pub content: [u8; 32],
    /// Bytes of all files.
    pub size: u64,
    /// How many blocks it has.
    pub blocks: u32,
    /// Files, directories and links.
    pub entries: u64,
    /// Its name, if it is a file; a tree has none.
    pub file_name: Option<Vec<u8>>,
}

/// The command's answer to a greeting: everything an agent needs before the start.
#[derive(Clone, Debug, SerializeDerive, Deserialize)]
pub struct Admission {
    /// Random name of the cast, of this attempt at it alone, under which nodes know each other.
    pub cast: [u8; 16],
    /// Random name of the cast, the same in all attempts, under which agents obey it.
    pub transfer: TransferName,
    /// Which of its coordinators speaks: each attempt has a higher one.
    pub epoch: u64,
    /// Which member the agent is.
    pub node: NodeId,
    /// Its share of what the casts of a host compete for.
    pub priority: Priority,
    /// Destination as the bytes of a path on the agent's host; of a source, where the object is.
    pub path: Vec<u8>,
    /// The name of the object, if it is a file; a tree has none.
    pub file_name: Option<Vec<u8>>,
    /// The name of the cast for casts that it keeps out of the destination.
    pub label: String,
    /// Whether everything is read back from the disk before the host is verified.
    pub verify_after: bool,
    /// Which blocks of the object the agent is to get.
    pub want: Want,
    /// What all nodes agree on.
    pub terms: Terms,
    /// The manifest, to be fetched first if it is not inline.
    pub manifest: ManifestOffer,
    /// Somebody's signature of the manifest's id, who vouches for the object.
    pub signature: Option<Vec<u8>>,
}

/// The command's answer to a greeting where the network is to be measured.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct ProbeAdmission {
    /// Random name of the group that is measured, as of a cast.
    pub cast: [u8; 16],
    /// Which member the agent is.
    pub node: NodeId,
    /// How many members there are.
    pub members: u32,
    /// Connections per peer; `None` goes by delay.
    pub connections: Option<u8>,
}

/// What an agent says after its greeting.
#[derive(Clone, Debug, PartialEq, SerializeDerive, Deserialize)]
pub enum AgentSays {
    /// Admitted; its data plane listens here.
    Joined {
        /// Addresses of the host with the port of the data plane.
        addrs: Vec<std::net::SocketAddr>,
    },
    /// What is there to be cast.
    Surveyed {
        /// Bytes of all files.
        size: u64,
    },
    /// The object is being read; said from time to time.
    Hashing {
        /// How many bytes of it were read.
        bytes: u64,
    },
    /// All of the object was read.
    Hashed(Box<Described>),
    /// A part of its manifest.
    Part(Vec<u8>),
    /// What of an object is where it would go.
    Looked {
        /// Bytes of its blocks that are right.
        have_bytes: u64,
        /// Why the rest could not be put there, in one line.
        unable: Option<String>,
    },
    /// The disk of its destination lets it wait: it does not know yet whether it can take part.
    Claiming,
    /// Another cast holds the destination; for a while its end is waited for.
    Waiting {
        /// The other cast and the place it writes to, in one line.
        by: String,
    },
    /// Another node of the same cast holds the destination, under another name.
    Twin {
        /// That node.
        node: NodeId,
        /// Where it is, seen from the destination, before its name: `lies inside`.
        relation: String,
    },
    /// Another cast holds the destination still.
    Refused {
        /// Which one, in one line.
        error: String,
    },
    /// The destination cannot be used, or the source not be read.
    Unable {
        /// Why, in one line.
        error: String,
    },
    /// For the coordinator.
    Report(Report),
    /// A request for a certificate of a new key, signed with that.
    Request {
        /// As RFC 2986 has it.
        request: Vec<u8>,
    },
    /// The new certificate is in use.
    Renewed,
    /// The list of revoked operators that holds now.
    Noted {
        /// Its number.
        number: u64,
    },
    /// What came of a measurement.
    Measured(outpour_probe::message::ProbeReport),
}

/// What the command says after the greeting.
#[derive(Clone, Debug, SerializeDerive, Deserialize)]
pub enum CommandSays {
    /// Look at an object, to be a source of it.
    Survey {
        /// Where it is, as the bytes of a path.
        path: Vec<u8>,
        /// Whether owners, attributes, hard links and holes are to be described.
        archive: bool,
    },
    /// Read the object that was surveyed.
    Hash {
        /// Bytes of a block.
        block_bytes: u32,
        /// How many hosts are to get it.
        receivers: u32,
        /// Whether the manifest is to be sent after its description.
        manifest: bool,
    },
    /// Say what of an object is at a path and whether the rest could be put there, and change
    /// nothing; its manifest follows in parts.
    Look {
        /// The bytes of the path.
        path: Vec<u8>,
        /// Length of the manifest.
        manifest_bytes: u32,
        /// Whether the object is to be put there; a relay keeps nothing of it.
        keeps: bool,
        /// As in [`Admission::signature`].
        signature: Option<Vec<u8>>,
    },
    /// A part of a manifest.
    Part(Vec<u8>),
    /// Take part.
    Admit(Box<Admission>),
    /// From the coordinator of a transfer.
    Order {
        /// The transfer.
        transfer: TransferName,
        /// What, and when.
        given: Given,
    },
    /// The agent is not needed any more, as the cast is over before it has joined.
    Dismiss,
    /// Ask for a new certificate.
    Renew,
    /// The certificate that was asked for.
    Certificate {
        /// As X.509 has it.
        certificate: Vec<u8>,
    },
    /// Take note of which operators were revoked.
    Revoked {
        /// The list that their authority has signed.
        list: Vec<u8>,
    },
    /// Take part in measuring the network.
    Probe(Box<ProbeAdmission>),
    /// Measure.
    Measure(outpour_probe::message::ProbeOrder),
    /// The command prepares and is there still; said from time to time before it admits an agent.
    Waits,
}

/// Writes one frame.
///
/// # Errors
/// If the channel breaks.
pub async fn write_frame(
    writer: &mut (impl AsyncWrite + Unpin + ?Sized),
    value: &impl Serialize,
) -> Result<(), ControlError> {
    let body = postcard::to_stdvec(value).map_err(|_| ControlError::Nonsense(0))?;
    if body.len() > FRAME_BYTES_MAX {
        return Err(ControlError::Nonsense(body.len()));
    }
    writer.write_all(&(body.len() as u32).to_be_bytes()).await?;
    writer.write_all(&body).await?;
    writer.flush().await?;
    Ok(())
}

/// Reads one frame. Not cancel-safe: give it a task of its own.
///
/// # Errors
/// If the channel breaks or ends, or a frame is too long or invalid.
pub async fn read_frame<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin + ?Sized),
) -> Result<T, ControlError> {
    read_frame_within(reader, FRAME_BYTES_MAX).await
}

/// As [`read_frame`], where fewer bytes have to do.
///
/// # Errors
/// As [`read_frame`].
pub(crate) async fn read_frame_within<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin + ?Sized),
    max: usize,
) -> Result<T, ControlError> {
    let len = read_len(reader, max).await?;
    read_body(reader, len).await
}

/// Reads how long the next frame is, in bytes.
pub(crate) async fn read_len(
    reader: &mut (impl AsyncRead + Unpin + ?Sized),
    max: usize,
) -> Result<usize, ControlError> {
    let mut len = [0; 4];
    reader.read_exact(&mut len).await.map_err(ended)?;
    let len = u32::from_be_bytes(len) as usize;
    match len > max {
        true => Err(ControlError::Nonsense(len)),
        false => Ok(len),
    }
}

/// Reads the frame of which that was said.
pub(crate) async fn read_body<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin + ?Sized),
    len: usize,
) -> Result<T, ControlError> {
    // Grown as bytes arrive, so that a lie about the length costs nothing.
    let mut body = Vec::new();
    reader
        .take(len as u64)
        .read_to_end(&mut body)
        .await
        .map_err(ended)?;
    if body.len() < len {
        return Err(ControlError::Closed);
    }
    postcard::from_bytes(&body).map_err(|_| ControlError::Nonsense(len))
}

/// Passes over a frame of which that was said, and keeps nothing of it; returns its first byte, which
/// says what it is.
pub(crate) async fn skip_body(
    reader: &mut (impl AsyncRead + Unpin + ?Sized),
    len: usize,
) -> Result<Option<u8>, ControlError> {
    let (mut first, mut chunk, mut left) = (None, [0; 4096], len);
    while left > 0 {
        let mut rest = (&mut *reader).take(left as u64);
        let read = rest.read(&mut chunk).await.map_err(ended)?;
        if read == 0 {
            return Err(ControlError::Closed);
        }
        first = first.or(Some(chunk[0]));
        left = left.saturating_sub(read);
    }
    Ok(first)
}

/// An end, be it within a frame: TLS says so of a peer without a farewell, and the kernel of one
/// that was killed with something unread.
fn ended(error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ControlError::Closed,
        _ => ControlError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    #[tokio::test]
    async fn frames_round_trip_and_lies_are_refused() {
        let mut wire = Vec::new();
        let said = AgentSays::Report(Report::Failed {
            error: "disk full".into(),
        });
        write_frame(&mut wire, &said).await.unwrap();
        let heard: AgentSays = read_frame(&mut wire.as_slice()).await.unwrap();
        assert_eq!(heard, said);

        let cut = &wire[..wire.len() - 1];
        let heard = read_frame::<AgentSays>(&mut &*cut).await;
        assert!(matches!(heard, Err(ControlError::Closed)));
        let long = [0xff; 64];
        let heard = read_frame::<AgentSays>(&mut long.as_slice()).await;
        assert!(matches!(heard, Err(ControlError::Nonsense(_))));
    }

    #[test]
    fn frames_are_known_by_their_first_bytes() {
        for (says, tag) in [
            (CommandSays::Part(vec![9]), TAG_PART),
            (CommandSays::Revoked { list: vec![9] }, TAG_REVOKED),
        ] {
            assert_eq!(postcard::to_stdvec(&says).unwrap()[0], tag);
        }
    }

    /// Ends as a broken connection does: with an error.
    struct Breaks(io::ErrorKind);

    impl AsyncRead for Breaks {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.0.into()))
        }
    }

    #[tokio::test]
    async fn an_agent_that_was_killed_has_ended_wherever_in_a_frame_that_is() {
        let mut wire = Vec::new();
        write_frame(&mut wire, &AgentSays::Claiming).await.unwrap();
        for bytes in 0..wire.len() {
            for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
                let mut reader = wire[..bytes].chain(Breaks(kind));
                let heard = read_frame::<AgentSays>(&mut reader).await;
                assert!(
                    matches!(heard, Err(ControlError::Closed)),
                    "{kind} after {bytes} bytes: {heard:?}"
                );
            }
            let mut reader = wire[..bytes].chain(Breaks(io::ErrorKind::TimedOut));
            let heard = read_frame::<AgentSays>(&mut reader).await;
            assert!(matches!(heard, Err(ControlError::Io(_))), "{heard:?}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut greeting = Greeting::new([0; 32]);
        assert!(greeting.check().is_ok());
        greeting.version = 70;
        greeting.release = "9.9\u{1b}[31m".into();
        let error = greeting.check().unwrap_err().to_string();
        assert!(
            error.contains("outpour 9.9[31m (control version 70)"),
            "{error}"
        );
        greeting.magic = [0; 8];
        assert!(matches!(greeting.check(), Err(ControlError::NotOutpour)));
    }
}
