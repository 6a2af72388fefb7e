//! The wire format inside TLS: a greeting in each direction, then frames.
//!
//! The greeting begins with a magic number and the version of the wire format; these twelve bytes
//! never change, so that any two versions can tell each other apart. All numbers are little-endian.
//!
//! ```text
//! hello   magic[8] version[4] | kind[1] 0[3] trunk[8]
//! frame   kind[1] transfer[1] channel[2] len[4] a[4] b[4], then len bytes of payload
//! join    session[16] from[4] to[4]
//! ```
//!
//! The frames of all sessions that two endpoints share go over the same connections. A **channel**
//! is what one side sends to a session of the other: the sender numbers its channels from 1 in the
//! order in which it opens them, and uses no number twice. Channel 0 is the connection itself.
//!
//! What is parsed here is hostile: a header is either one of the [`Frame`]s within its bounds, or
//! an error; nothing is allocated.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use outpour_core::{BatchId, BlockId, NodeId};

use crate::identity::SessionId;
use crate::{MESSAGE_BYTES_MAX, TRANSFERS_MAX};

/// Version of the wire format; peers must have the same.
pub const WIRE_VERSION: u32 = 3;
/// How long a greeting is.
pub const HELLO_BYTES: usize = PREAMBLE_BYTES + 12;
/// How long the part of a greeting is that all versions share.
pub const PREAMBLE_BYTES: usize = 12;
/// How long the header of a frame is.
pub const HEADER_BYTES: usize = 16;
/// How long the payload of a join is.
pub const JOIN_BYTES: usize = 24;
/// How much of a block or packet one frame may carry, so that messages need not wait for whole blocks.
pub const FRAGMENT_BYTES_MAX: u32 = 64 << 10;

const MAGIC: [u8; 8] = *b"outpour\n";

// What is encoded fills its bytes, and lengths fit into the field for them.
const _: () = assert!(HELLO_BYTES == 24);
const _: () = assert!(JOIN_BYTES == 16 + 4 + 4);
const _: () = assert!(HEADER_BYTES == 4 + 4 + 8);
const _: () = assert!(MESSAGE_BYTES_MAX <= u32::MAX as usize);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new trunk.
    Trunk,
    /// One more connection for the blocks of the trunk with this id.
    Extra(u64),
}

/// The first message of each side, inside TLS. The peer is authenticated by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the connection is for, as the side that dialled wants it; the other repeats it.
    pub purpose: Purpose,
}

/// Which session a channel is for, and between which of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The session.
    pub session: SessionId,
    /// The member that speaks.
    pub from: NodeId,
    /// The member that is spoken to.
    pub to: NodeId,
}

/// What travels in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// A block of the object.
    Block(BlockId),
    /// A packet of a batch: the coefficient of each of its blocks, then their combination.
    Packet {
        /// Which batch.
        batch: BatchId,
        /// Whether the sender says that it made it of verified blocks alone.
        pure: bool,
    },
}

impl std::fmt::Display for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Block(block) => write!(f, "block {block}"),
            Self::Packet { batch, .. } => write!(f, "a packet of batch {batch}"),
        }
    }
}

/// A frame's header. The payload of `Join`, `Message` and `Fragment` follows it. `channel` is the
/// sender's, but in `Decline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The side that decides takes the connection for the trunk with this id.
    Welcome {
        /// Id of the trunk.
        trunk: u64,
    },
    /// The side that decides does not want the connection.
    Refuse(Refusal),
    /// A sign of life.
    Alive,
    /// The sender opens a channel to a session; a [`Join`] follows. The peer opens one in return, or
    /// declines; nothing but [`Frame::Ready`] comes on the channel before that.
    Join {
        /// Its number, one more than that of the last.
        channel: u16,
    },
    /// The sender does not take part in the session with the peer.
    Decline {
        /// The channel of the peer that was opened for it.
        channel: u16,
        /// Why.
        why: Refusal,
    },
    /// The sender closes a channel: nothing more comes on it, and it takes nothing more of the
    /// session.
    Leave {
        /// Which one.
        channel: u16,
    },
    /// The sender has no room: the peer shall begin no more blocks or packets.
    Pause {
        /// In the session of this channel.
        channel: u16,
    },
    /// The sender has room again.
    Resume {
        /// In the session of this channel.
        channel: u16,
    },
    /// The sender has opened a transfer.
    Ready {
        /// On which channel.
        channel: u16,
        /// Which one.
        transfer: u8,
    },
    /// A message of a protocol.
    Message {
        /// On which channel.
        channel: u16,
        /// In which transfer.
        transfer: u8,
        /// Length of the payload in bytes.
        len: u32,
    },
    /// Part of a block or packet. The parts of one come in order on one connection, and without
    /// those of another piece of the same channel in between.
    Fragment {
        /// On which channel.
        channel: u16,
        /// In which transfer.
        transfer: u8,
        /// Of what.
        piece: Piece,
        /// Where in the piece the payload belongs, in bytes.
        offset: u32,
        /// Length of the payload in bytes, never 0.
        len: u32,
    },
}

/// Why a connection or a channel is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is a trunk or link already.
    Busy,
    /// The peer is not a member, or not with this key.
    NotMember,
    /// The peer was removed or banned.
    Barred,
    /// The trunk that an extra connection is for does not exist, or has enough.
    NoTrunk,
}

/// Why what a peer sent is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Not our protocol at all.
    #[error("the peer does not speak Outpour's protocol")]
    Magic,
    /// Another version.
    #[error(
        "version mismatch: the peer speaks version {theirs} of the wire protocol, this node \
         version {WIRE_VERSION}; use the same release on both"
    )]
    Version {
        /// The peer's version.
        theirs: u32,
    },
    /// A field has a value it cannot have.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
}

impl Hello {
    /// The greeting as it is sent.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let (kind, trunk) = match self.purpose {
            Purpose::Trunk => (0, 0),
            Purpose::Extra(trunk) => (1, trunk),
        };
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&WIRE_VERSION.to_le_bytes());
        bytes[12] = kind;
        bytes[16..24].copy_from_slice(&trunk.to_le_bytes());
        bytes
    }

    /// Checks what all versions share; to be called as soon as that much is here.
    ///
    /// # Errors
    /// If the peer speaks something else, or another version.
    pub fn check_preamble(bytes: &[u8; PREAMBLE_BYTES]) -> Result<(), FrameError> {
        if bytes[..8] != MAGIC {
            return Err(FrameError::Magic);
        }
        let theirs = u32_at(bytes, 8);
        if theirs != WIRE_VERSION {
            return Err(FrameError::Version { theirs });
        }
        Ok(())
    }

    /// Reads a greeting.
    ///
    /// # Errors
    /// If it is not one of this version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, FrameError> {
        if let Some(preamble) = bytes.first_chunk() {
            Self::check_preamble(preamble)?;
        }
        let purpose = match (bytes[12], u64_at(bytes, 16)) {
            (0, 0) => Purpose::Trunk,
            (1, trunk) => Purpose::Extra(trunk),
            _ => return Err(FrameError::Malformed("purpose of a connection")),
        };
        if bytes[13..16] != [0; 3] {
            return Err(FrameError::Malformed("reserved bytes"));
        }
        Ok(Self { purpose })
    }
}

impl Join {
    /// The payload as it is sent.
    pub fn encode(&self) -> [u8; JOIN_BYTES] {
        let mut bytes = [0; JOIN_BYTES];
        bytes[..16].copy_from_slice(&self.session.0);
        bytes[16..20].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.to.0.to_le_bytes());
        bytes
    }

    /// Reads a payload; there is none that makes no sense.
    pub fn decode(bytes: &[u8; JOIN_BYTES]) -> Self {
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[..16]);
        Self {
            session: SessionId(session),
            from: NodeId(u32_at(bytes, 16)),
            to: NodeId(u32_at(bytes, 20)),
        }
    }
}

impl Frame {
    /// The header as it is sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, transfer, channel, len, a, b) = match *self {
            Self::Welcome { trunk } => (1, 0, 0, 0, trunk as u32, (trunk >> 32) as u32),
            Self::Refuse(refusal) => (2, 0, 0, 0, refusal as u32, 0),
            Self::Ready { channel, transfer } => (3, transfer, channel, 0, 0, 0),
            Self::Message {
                channel,
                transfer,
                len,
            } => (4, transfer, channel, len, 0, 0),
            Self::Fragment {
                channel,
                transfer,
                piece,
                offset,
                len,
            } => match piece {
                Piece::Block(block) => (5, transfer, channel, len, block, offset),
                Piece::Packet { batch, pure } => {
                    let kind = if pure { 8 } else { 7 };
                    (kind, transfer, channel, len, batch, offset)
                }
            },
            Self::Alive => (6, 0, 0, 0, 0, 0),
            Self::Join { channel } => (9, 0, channel, JOIN_BYTES as u32, 0, 0),
            Self::Decline { channel, why } => (10, 0, channel, 0, why as u32, 0),
            Self::Leave { channel } => (11, 0, channel, 0, 0, 0),
            Self::Pause { channel } => (12, 0, channel, 0, 0, 0),
            Self::Resume { channel } => (13, 0, channel, 0, 0, 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = transfer;
        bytes[2..4].copy_from_slice(&channel.to_le_bytes());
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        bytes[8..12].copy_from_slice(&a.to_le_bytes());
        bytes[12..16].copy_from_slice(&b.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If it is not the one encoding of a frame within its bounds.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let (kind, transfer) = (bytes[0], bytes[1]);
        let channel = u16::from_le_bytes([bytes[2], bytes[3]]);
        let (len, a, b) = (u32_at(bytes, 4), u32_at(bytes, 8), u32_at(bytes, 12));
        if transfer >= TRANSFERS_MAX {
            return Err(FrameError::Malformed("number of a transfer"));
        }
        let frame = match kind {
            1 => Self::Welcome {
                trunk: u64::from(a) | u64::from(b) << 32,
            },
            2 => Self::Refuse(Refusal::decode(a)?),
            6 => Self::Alive,
            _ if channel == 0 => return Err(FrameError::Malformed("number of a channel")),
            3 => Self::Ready { channel, transfer },
            4 if len as usize > MESSAGE_BYTES_MAX => {
                return Err(FrameError::Malformed("message longer than allowed"));
            }
            4 => Self::Message {
                channel,
                transfer,
                len,
            },
            5 | 7 | 8 if len == 0 || len > FRAGMENT_BYTES_MAX => {
                return Err(FrameError::Malformed("length of a fragment"));
            }
            5 | 7 | 8 if b.checked_add(len).is_none() => {
                return Err(FrameError::Malformed("offset of a fragment"));
            }
            5 | 7 | 8 => Self::Fragment {
                channel,
                transfer,
                piece: match kind {
                    5 => Piece::Block(a),
                    _ => Piece::Packet {
                        batch: a,
                        pure: kind == 8,
                    },
                },
                offset: b,
                len,
            },
            9 => Self::Join { channel },
            10 => Self::Decline {
                channel,
                why: Refusal::decode(a)?,
            },
            11 => Self::Leave { channel },
            12 => Self::Pause { channel },
            13 => Self::Resume { channel },
            _ => return Err(FrameError::Malformed("unknown kind of frame")),
        };
        if frame.encode() != *bytes {
            return Err(FrameError::Malformed(
                "a field that the frame does not have",
            ));
        }
        debug_assert_eq!(frame.payload_len(), len as usize);
        debug_assert!(frame.payload_len() <= MESSAGE_BYTES_MAX);
        Ok(frame)
    }

    /// How many bytes of payload follow the header.
    pub const fn payload_len(&self) -> usize {
        match *self {
            Self::Join { .. } => JOIN_BYTES,
            Self::Message { len, .. } | Self::Fragment { len, .. } => len as usize,
            _ => 0,
        }
    }
}

impl Refusal {
    const fn decode(code: u32) -> Result<Self, FrameError> {
        Ok(match code {
            0 => Self::Busy,
            1 => Self::NotMember,
            2 => Self::Barred,
            3 => Self::NoTrunk,
            _ => return Err(FrameError::Malformed("unknown reason of a refusal")),
        })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Busy => "there is a link already",
            Self::NotMember => "one side does not know the other as a member",
            Self::Barred => "one side has cut off the other",
            Self::NoTrunk => "the connection is not wanted any more",
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    debug_assert!(
        bytes.get(at..).is_some_and(|rest| rest.len() >= 4),
        "a field behind the end"
    );
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    debug_assert!(
        bytes.get(at..).is_some_and(|rest| rest.len() >= 8),
        "a field behind the end"
    );
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |b| u64::from_le_bytes(*b))
}

/// Parses arbitrary bytes as a peer's stream and checks that what parses is canonical; for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let rest = match bytes.split_first_chunk::<HELLO_BYTES>() {
        Some((hello, rest)) => {
            if let Ok(parsed) = Hello::decode(hello) {
                assert_eq!(parsed.encode(), *hello);
            }
            rest
        }
        None => bytes,
    };
    for header in rest.chunks_exact(HEADER_BYTES) {
        let Some(header) = header.first_chunk() else {
            continue;
        };
        if let Ok(frame) = Frame::decode(header) {
            assert_eq!(frame.encode(), *header);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        Hello {
            purpose: Purpose::Extra(0x1122_3344_5566_7788),
        }
    }

    #[test]
    fn greetings_round_trip() {
        for purpose in [Purpose::Trunk, Purpose::Extra(0), Purpose::Extra(u64::MAX)] {
            let hello = Hello { purpose };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
        let join = Join {
            session: SessionId(std::array::from_fn(|byte| byte as u8)),
            from: NodeId(17),
            to: NodeId(u32::MAX),
        };
        assert_eq!(Join::decode(&join.encode()), join);
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = hello().encode();
        bytes[8] = 9;
        let error = Hello::decode(&bytes).unwrap_err();
        assert_eq!(error, FrameError::Version { theirs: 9 });
        let text = error.to_string();
        assert!(
            text.contains("version 9") && text.contains("version 3"),
            "{text}"
        );
        bytes[0] = b'X';
        assert_eq!(Hello::decode(&bytes), Err(FrameError::Magic));
    }

    #[test]
    fn bounds_hold_from_both_sides() {
        let message = |len| Frame::Message {
            channel: 1,
            transfer: 0,
            len,
        };
        let max = MESSAGE_BYTES_MAX as u32;
        assert_eq!(Frame::decode(&message(max).encode()), Ok(message(max)));
        assert!(Frame::decode(&message(max + 1).encode()).is_err());
        let max = FRAGMENT_BYTES_MAX;
        let packet = |pure| Piece::Packet {
            batch: u32::MAX,
            pure,
        };
        for piece in [Piece::Block(u32::MAX), packet(false), packet(true)] {
            let part = |offset, len| Frame::Fragment {
                channel: u16::MAX,
                transfer: 7,
                piece,
                offset,
                len,
            };
            for good in [part(0, 1), part(0, max), part(u32::MAX - max, max)] {
                assert_eq!(Frame::decode(&good.encode()), Ok(good));
            }
            for bad in [part(0, 0), part(0, max + 1), part(u32::MAX - max + 1, max)] {
                assert!(Frame::decode(&bad.encode()).is_err(), "{bad:?}");
            }
        }
        assert!(
            Frame::decode(
                &Frame::Ready {
                    channel: 1,
                    transfer: TRANSFERS_MAX
                }
                .encode()
            )
            .is_err()
        );
        let channel_zero = Frame::Leave { channel: 0 };
        assert!(Frame::decode(&channel_zero.encode()).is_err());
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let transfer = 0..TRANSFERS_MAX;
        let channel = 1_u16..;
        let refusal = || (0_u32..4).prop_map(|code| Refusal::decode(code).unwrap());
        prop_oneof![
            any::<u64>().prop_map(|trunk| Frame::Welcome { trunk }),
            refusal().prop_map(Frame::Refuse),
            channel.clone().prop_map(|channel| Frame::Join { channel }),
            (channel.clone(), refusal()).prop_map(|(channel, why)| Frame::Decline { channel, why }),
            channel.clone().prop_map(|channel| Frame::Leave { channel }),
            channel.clone().prop_map(|channel| Frame::Pause { channel }),
            channel
                .clone()
                .prop_map(|channel| Frame::Resume { channel }),
            (channel.clone(), transfer.clone())
                .prop_map(|(channel, transfer)| Frame::Ready { channel, transfer }),
            (
                channel.clone(),
                transfer.clone(),
                0..=MESSAGE_BYTES_MAX as u32
            )
                .prop_map(|(channel, transfer, len)| Frame::Message {
                    channel,
                    transfer,
                    len
                }),
            (
                (channel, transfer),
                any::<u32>(),
                proptest::option::of(any::<bool>()),
                0..=u32::MAX - FRAGMENT_BYTES_MAX,
                1..=FRAGMENT_BYTES_MAX
            )
                .prop_map(|((channel, transfer), id, coded, offset, len)| {
                    Frame::Fragment {
                        channel,
                        transfer,
                        piece: match coded {
                            None => Piece::Block(id),
                            Some(pure) => Piece::Packet { batch: id, pure },
                        },
                        offset,
                        len,
                    }
                }),
            Just(Frame::Alive),
        ]
    }

    proptest! {
        #[test]
        fn frames_round_trip(frame in frames()) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn mutated_frames_are_refused_or_canonical(
            frame in frames(), at in 0..HEADER_BYTES, mask in 1_u8..,
        ) {
            let mut bytes = frame.encode();
            bytes[at] ^= mask;
            if let Ok(other) = Frame::decode(&bytes) {
                prop_assert_ne!(other, frame);
                prop_assert_eq!(other.encode(), bytes);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }

        #[test]
        fn mutated_greetings_never_panic(at in 0..HELLO_BYTES, mask in 1_u8..) {
            let mut bytes = hello().encode();
            bytes[at] ^= mask;
            fuzz(&bytes);
        }
    }
}
