//! What members say to each other and to the rendezvous.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::net::SocketAddr;

use outpour_net::{KeyDigest, SessionId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a message at the rendezvous may be.
const LETTER_BYTES_MAX: usize = 1 << 20;
const MAC_BYTES: usize = 32;

/// What a member owns in an operation: so many bytes in blocks of these hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stripe {
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) hashes: Vec<[u8; 32]>,
}

/// Between members, over the session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Note<'a> {
    /// What the sender owns in an operation of a track.
    Owns {
        track: u16,
        operation: u32,
        stripe: Stripe,
    },
    /// What the track's series says.
    Says { track: u16, body: &'a [u8] },
    /// The sender has everything, knows that all others have, and leaves.
    Bye,
}

/// From a member to the rendezvous, first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) cluster: String,
    /// Of its endpoint.
    pub(crate) key: KeyDigest,
    /// New in each attempt; the answer is bound to it.
    pub(crate) nonce: [u8; 16],
}

/// From the rendezvous to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Which group this is; to be answered by [`Listening`].
    Welcome { nonce: [u8; 16], group: SessionId },
    /// All members.
    Roster {
        nonce: [u8; 16],
        contacts: Vec<Contact>,
    },
    /// Not a member, or not all came.
    Refused { nonce: [u8; 16], why: String },
}

/// From a member to the rendezvous, second: where it is to be reached.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) addr: SocketAddr,
}

/// A member as others reach it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Contact {
    pub(crate) cluster: String,
    pub(crate) addr: SocketAddr,
    pub(crate) key: KeyDigest,
}

/// Why a letter was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LetterError {
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("a message of {0} bytes, where {LETTER_BYTES_MAX} are the most")]
    TooLong(usize),
    #[error("a message from a sender that does not have the ticket")]
    Forged,
    #[error("an invalid message")]
    Nonsense,
}

/// Writes a message with its length before it and its authentication code after it.
pub(crate) async fn post(
    to: &mut (impl AsyncWrite + Unpin),
    key: &[u8; 32],
    message: &impl Serialize,
) -> Result<(), LetterError> {
    let body = postcard::to_stdvec(message).map_err(|_| LetterError::Nonsense)?;
    if body.len() > LETTER_BYTES_MAX {
        return Err(LetterError::TooLong(body.len()));
    }
    let mut letter = Vec::with_capacity(body.len().saturating_add(4 + MAC_BYTES));
    letter.extend_from_slice(&(body.len() as u32).to_le_bytes());
    letter.extend_from_slice(&body);
    letter.extend_from_slice(blake3::keyed_hash(key, &body).as_bytes());
    to.write_all(&letter).await?;
    to.flush().await?;
    Ok(())
}

/// Reads a message from a sender that has the key.
pub(crate) async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    key: &[u8; 32],
) -> Result<T, LetterError> {
    let len = from.read_u32_le().await? as usize;
    if len > LETTER_BYTES_MAX {
        return Err(LetterError::TooLong(len));
    }
    let mut letter = Vec::new();
    // The buffer grows with what comes, not with what was announced.
    from.take(len.saturating_add(MAC_BYTES) as u64)
        .read_to_end(&mut letter)
        .await?;
    let Some((body, mac)) = letter.split_at_checked(len) else {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    };
    let Ok(mac) = <[u8; MAC_BYTES]>::try_from(mac) else {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    };
    // This comparison takes the same time wherever the two differ.
    if blake3::keyed_hash(key, body) != blake3::Hash::from_bytes(mac) {
        return Err(LetterError::Forged);
    }
    postcard::from_bytes(body).map_err(|_| LetterError::Nonsense)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn letter(key: &[u8; 32]) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut out = Vec::new();
        let hello = Listening {
            addr: ([127, 0, 0, 1], 9).into(),
        };
        runtime.block_on(post(&mut out, key, &hello)).unwrap();
        out
    }

    fn read(mut letter: &[u8], key: &[u8; 32]) -> Result<Listening, LetterError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(receive(&mut letter, key))
    }

    #[test]
    fn only_who_has_the_key_is_understood() {
        let letter = letter(&[1; 32]);
        assert_eq!(read(&letter, &[1; 32]).unwrap().addr.port(), 9);
        assert!(matches!(read(&letter, &[2; 32]), Err(LetterError::Forged)));
        for index in 4..letter.len() {
            let mut forged = letter.clone();
            forged[index] ^= 1;
            assert!(matches!(read(&forged, &[1; 32]), Err(LetterError::Forged)));
        }
        let short = &letter[..letter.len() - 1];
        assert!(matches!(read(short, &[1; 32]), Err(LetterError::Broken(_))));
        let long = [0xff; 8];
        assert!(matches!(
            read(&long, &[1; 32]),
            Err(LetterError::TooLong(_))
        ));
    }
}
