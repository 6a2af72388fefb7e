//! The wire format inside TLS: a greeting in each direction, then frames.
//!
//! The greeting begins with a magic number and the version of the wire format; these twelve bytes
//! never change, so that any two versions can tell each other apart. All numbers are little-endian.
//!
//! ```text
//! hello   magic[8] version[4] | kind[1] 0[3] node[4] cast[16] incarnation[8] link[8]
//! frame   kind[1] transfer[1] 0[2] len[4] a[4] b[4], then len bytes of payload
//! ```
//!
//! What is parsed here is hostile: a header is either one of the [`Frame`]s within its bounds, or
//! an error; nothing is allocated.

use outpour_core::{BatchId, BlockId, NodeId};

use crate::identity::CastId;
use crate::{MESSAGE_BYTES_MAX, TRANSFERS_MAX};

/// Version of the wire format; peers must have the same.
pub const WIRE_VERSION: u32 = 1;
/// How long a greeting is.
pub const HELLO_BYTES: usize = PREAMBLE_BYTES + 40;
/// How long the part of a greeting is that all versions share.
pub const PREAMBLE_BYTES: usize = 12;
/// How long the header of a frame is.
pub const HEADER_BYTES: usize = 16;
/// How much of a block or packet one frame may carry, so that messages need not wait for whole blocks.
pub const FRAGMENT_BYTES_MAX: u32 = 64 << 10;

const MAGIC: [u8; 8] = *b"outpour\n";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new link.
    Link,
    /// One more connection for the blocks of the link with this id.
    Extra(u64),
}

/// First thing each side says, inside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the connection is for, as the side that dialled wants it; the other repeats it.
    pub purpose: Purpose,
    /// Who speaks.
    pub node: NodeId,
    /// In which cast.
    pub cast: CastId,
    /// Random number of the process that speaks: a restarted node has another.
    pub incarnation: u64,
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

/// A frame's header. The payload of `Message` and `Fragment` follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The side that decides takes the connection for the link with this id.
    Welcome {
        /// Id of the link.
        link: u64,
    },
    /// The side that decides does not want the connection.
    Refuse(Refusal),
    /// The sender has opened a transfer.
    Ready {
        /// Which one.
        transfer: u8,
    },
    /// A message of a protocol.
    Message {
        /// In which transfer.
        transfer: u8,
        /// Length of the payload in bytes.
        len: u32,
    },
    /// Part of a block or packet. The parts of one come in order and without other pieces in
    /// between.
    Fragment {
        /// In which transfer.
        transfer: u8,
        /// Of what.
        piece: Piece,
        /// Where in the piece the payload belongs, in bytes.
        offset: u32,
        /// Length of the payload in bytes, never 0.
        len: u32,
    },
    /// A sign of life.
    Alive,
}

/// Why a connection is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is a link already.
    Busy,
    /// The peer is not a member, or not with this certificate.
    NotMember,
    /// The peer was removed or banned.
    Barred,
    /// The link that an extra connection is for does not exist, or has enough.
    NoLink,
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
        let (kind, link) = match self.purpose {
            Purpose::Link => (0, 0),
            Purpose::Extra(link) => (1, link),
        };
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&WIRE_VERSION.to_le_bytes());
        bytes[12] = kind;
        bytes[16..20].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.cast.0);
        bytes[36..44].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[44..52].copy_from_slice(&link.to_le_bytes());
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
        let link = u64_at(bytes, 44);
        let purpose = match (bytes[12], link) {
            (0, 0) => Purpose::Link,
            (1, link) => Purpose::Extra(link),
            _ => return Err(FrameError::Malformed("purpose of a connection")),
        };
        if bytes[13..16] != [0; 3] {
            return Err(FrameError::Malformed("reserved bytes"));
        }
        let mut cast = [0; 16];
        cast.copy_from_slice(&bytes[20..36]);
        Ok(Self {
            purpose,
            node: NodeId(u32_at(bytes, 16)),
            cast: CastId(cast),
            incarnation: u64_at(bytes, 36),
        })
    }
}

impl Frame {
    /// The header as it is sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, transfer, len, a, b) = match *self {
            Self::Welcome { link } => (1, 0, 0, link as u32, (link >> 32) as u32),
            Self::Refuse(refusal) => (2, 0, 0, refusal as u32, 0),
            Self::Ready { transfer } => (3, transfer, 0, 0, 0),
            Self::Message { transfer, len } => (4, transfer, len, 0, 0),
            Self::Fragment {
                transfer,
                piece,
                offset,
                len,
            } => match piece {
                Piece::Block(block) => (5, transfer, len, block, offset),
                Piece::Packet { batch, pure } => {
                    (if pure { 8 } else { 7 }, transfer, len, batch, offset)
                }
            },
            Self::Alive => (6, 0, 0, 0, 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = transfer;
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
        let (len, a, b) = (u32_at(bytes, 4), u32_at(bytes, 8), u32_at(bytes, 12));
        if transfer >= TRANSFERS_MAX {
            return Err(FrameError::Malformed("number of a transfer"));
        }
        let frame = match kind {
            1 => Self::Welcome {
                link: u64::from(a) | u64::from(b) << 32,
            },
            2 => Self::Refuse(Refusal::decode(a)?),
            3 => Self::Ready { transfer },
            4 if len as usize > MESSAGE_BYTES_MAX => {
                return Err(FrameError::Malformed("message longer than allowed"));
            }
            4 => Self::Message { transfer, len },
            5 | 7 | 8 if len == 0 || len > FRAGMENT_BYTES_MAX => {
                return Err(FrameError::Malformed("length of a fragment"));
            }
            5 | 7 | 8 if b.checked_add(len).is_none() => {
                return Err(FrameError::Malformed("offset of a fragment"));
            }
            5 | 7 | 8 => Self::Fragment {
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
            6 => Self::Alive,
            _ => return Err(FrameError::Malformed("unknown kind of frame")),
        };
        if frame.encode() != *bytes {
            return Err(FrameError::Malformed(
                "a field that the frame does not have",
            ));
        }
        Ok(frame)
    }
}

impl Refusal {
    const fn decode(code: u32) -> Result<Self, FrameError> {
        Ok(match code {
            0 => Self::Busy,
            1 => Self::NotMember,
            2 => Self::Barred,
            3 => Self::NoLink,
            _ => return Err(FrameError::Malformed("unknown reason of a refusal")),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
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
            node: NodeId(17),
            cast: CastId([9; 16]),
            incarnation: u64::MAX - 1,
        }
    }

    #[test]
    fn greetings_round_trip() {
        for purpose in [Purpose::Link, Purpose::Extra(0), Purpose::Extra(u64::MAX)] {
            let hello = Hello { purpose, ..hello() };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = hello().encode();
        bytes[8] = 9;
        let error = Hello::decode(&bytes).unwrap_err();
        assert_eq!(error, FrameError::Version { theirs: 9 });
        let text = error.to_string();
        assert!(
            text.contains("version 9") && text.contains("version 1"),
            "{text}"
        );
        bytes[0] = b'X';
        assert_eq!(Hello::decode(&bytes), Err(FrameError::Magic));
    }

    #[test]
    fn bounds_hold_from_both_sides() {
        let message = |len| Frame::Message { transfer: 0, len };
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
                    transfer: TRANSFERS_MAX
                }
                .encode()
            )
            .is_err()
        );
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let transfer = 0..TRANSFERS_MAX;
        prop_oneof![
            any::<u64>().prop_map(|link| Frame::Welcome { link }),
            (0_u32..4).prop_map(|code| Frame::Refuse(Refusal::decode(code).unwrap())),
            transfer
                .clone()
                .prop_map(|transfer| Frame::Ready { transfer }),
            (transfer.clone(), 0..=MESSAGE_BYTES_MAX as u32)
                .prop_map(|(transfer, len)| Frame::Message { transfer, len }),
            (
                transfer,
                any::<u32>(),
                proptest::option::of(any::<bool>()),
                0..=u32::MAX - FRAGMENT_BYTES_MAX,
                1..=FRAGMENT_BYTES_MAX
            )
                .prop_map(|(transfer, id, coded, offset, len)| Frame::Fragment {
                    transfer,
                    piece: match coded {
                        None => Piece::Block(id),
                        Some(pure) => Piece::Packet { batch: id, pure },
                    },
                    offset,
                    len
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
