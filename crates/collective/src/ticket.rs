//! The ticket: where the members of a group meet, and what proves that one belongs to it.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};

const SECRET_BYTES: usize = 32;
const CONTEXT: &str = "outpour-collective 2026 rendezvous messages";

/// Address of a rendezvous and the secret of its group; a process that has it can join. As text it
/// is
/// `ADDRESS:PORT#SECRET`.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    addr: SocketAddr,
    secret: [u8; SECRET_BYTES],
}

/// A text that is no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ticket: expected ADDRESS:PORT#SECRET, with a secret of 64 hexadecimal digits")]
pub struct TicketError;

impl Ticket {
    /// A ticket that no process has; `None` if the system has no randomness to give.
    pub(crate) fn new(addr: SocketAddr) -> Option<Self> {
        let mut secret = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut secret).ok()?;
        Some(Self { addr, secret })
    }

    /// Where the rendezvous is.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The key by which members and rendezvous know each other's words.
    pub(crate) fn key(&self) -> [u8; 32] {
        blake3::derive_key(CONTEXT, &self.secret)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#", self.addr)?;
        self.secret
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Without the secret.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl FromStr for Ticket {
    type Err = TicketError;
    fn from_str(text: &str) -> Result<Self, TicketError> {
        let (addr, digits) = text.trim().split_once('#').ok_or(TicketError)?;
        if digits.len() != 2 * SECRET_BYTES || !digits.is_ascii() {
            return Err(TicketError);
        }
        let mut secret = [0; SECRET_BYTES];
        for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| TicketError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| TicketError)?;
        }
        let addr = addr.parse().map_err(|_| TicketError)?;
        Ok(Self { addr, secret })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_ticket_survives_as_text_and_hides_its_secret_elsewhere() {
        let ticket = Ticket::new(([127, 0, 0, 1], 7).into()).unwrap();
        let text = ticket.to_string();
        assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
        let secret = text.split('#').nth(1).unwrap();
        assert!(!format!("{ticket:?}").contains(&secret[..8]));
        for wrong in [
            "",
            "127.0.0.1:7",
            "127.0.0.1:7#12",
            &text[..text.len() - 1],
            "x#y",
        ] {
            assert_eq!(wrong.parse::<Ticket>(), Err(TicketError));
        }
        assert!(text.replace('#', "#+").parse::<Ticket>().is_err());
    }
}
