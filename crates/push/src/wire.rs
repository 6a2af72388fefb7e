//! Messages as bytes, for datagrams.
//!
//! Numbers are of variable length ([postcard](https://postcard.jamesmunns.com/wire-format)), so a header of
//! a packet takes some ten bytes. The payload of a packet follows its header. Authentication is around this.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use serde::{Deserialize, Serialize};

use crate::{Ack, Data, FlowId, ToController, ToReceiver, ToSource};

/// No message is longer, the payload of a packet apart.
pub const MESSAGE_BYTES_MAX: usize = 1280;
/// The first byte of every message. A change of what any message looks like has another, so that ends of two releases
/// say what is wrong rather than misread each other.
pub const VERSION: u8 = 0xA2;

/// Any message, whoever it is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From a source to a receiver; the payload follows.
    Data(Data),
    /// From a receiver to a source.
    Ack(Ack),
    /// Between the two, either way: the flow is done.
    Fin(FlowId),
    /// Between the two, either way: the FIN has arrived.
    FinAck(FlowId),
    /// To the controller.
    ToController(ToController),
    /// From the controller to a receiver.
    ToReceiver(ToReceiver),
    /// From the controller to a source.
    ToSource(ToSource),
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It begins with another byte.
    #[error("no message of this version: it begins with {found:?}, expected {VERSION}")]
    Version {
        /// The first byte, if there is any.
        found: Option<u8>,
    },
    /// It is cut off, or says what cannot be.
    #[error("a message that cannot be read: {reason}")]
    Malformed {
        /// What is wrong, in the words of the codec.
        reason: String,
    },
    /// Bytes follow a message that has no payload.
    #[error("{bytes} bytes follow the message")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// Appends a message to `buf`; the caller appends the payload of a packet.
pub fn encode(message: &Message, buf: Vec<u8>) -> Vec<u8> {
    let mut buf = buf;
    let start = buf.len();
    buf.push(VERSION);
    // Writing to memory fails for types that have no length, and there are none here.
    let buf = postcard::to_extend(message, buf).unwrap_or_default();
    let bytes = buf.len().saturating_sub(start);
    debug_assert!(bytes > 1, "a message without content");
    debug_assert!(bytes <= MESSAGE_BYTES_MAX, "a name that was never checked");
    buf
}

/// Reads a message; what follows it is the payload of a packet.
///
/// # Errors
/// If the bytes are no message of this version, or end before it does, or if anything follows one that is no
/// packet. Numbers are within their types and layouts are valid; all else is up to the machines.
pub fn decode(bytes: &[u8]) -> Result<(Message, &[u8]), WireError> {
    let content = match bytes.split_first() {
        Some((&VERSION, content)) => content,
        other => {
            let found = other.map(|it| *it.0);
            return Err(WireError::Version { found });
        }
    };
    let malformed = |error: postcard::Error| WireError::Malformed {
        reason: error.to_string(),
    };
    let (message, payload) = postcard::take_from_bytes(content).map_err(malformed)?;
    if !payload.is_empty() && !matches!(message, Message::Data(_)) {
        let bytes = payload.len();
        return Err(WireError::Trailing { bytes });
    }
    debug_assert!(payload.len() < bytes.len());
    Ok((message, payload))
}

#[cfg(test)]
mod tests;
