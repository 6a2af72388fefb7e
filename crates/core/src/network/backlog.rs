//! How much waits in a queue: counted in packets or in bytes.

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
use std::str::FromStr;
use std::time::Duration;

use crate::Bytes;
use crate::text::excerpt;

/// An amount of waiting data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Packets of any size.
    Packets(u32),
    /// Bytes, headers included.
    Bytes(Bytes),
}

impl Backlog {
    /// A queue of unstated length holds what its rate carries in a round trip, and for so long
    /// beyond that, so that one TCP connection can keep the link full.
    pub const USUAL_SLACK: Duration = Duration::from_millis(25);
    /// It holds so many of the largest packets at least.
    pub const USUAL_PACKETS_MIN: u32 = 16;

    /// Whether it is nothing.
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Packets(0) | Self::Bytes(Bytes::ZERO))
    }

    /// Whether it is more than `other`; amounts in different units are not compared.
    pub const fn exceeds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Packets(this), Self::Packets(other)) => this > other,
            (Self::Bytes(this), Self::Bytes(other)) => this.0 > other.0,
            _ => false,
        }
    }
}

/// Text that is not a queue length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a queue length: write e.g. `100 packets` or `64 KiB`", excerpt(.0))]
pub struct BacklogError(String);

impl FromStr for Backlog {
    type Err = BacklogError;

    /// Reads `100 packets` or `64 KiB`.
    fn from_str(text: &str) -> Result<Self, BacklogError> {
        let trimmed = text.trim();
        let packets = (trimmed.strip_suffix("packets")).or_else(|| trimmed.strip_suffix("packet"));
        let read = match packets {
            Some(count) => count.trim_end().parse().ok().map(Self::Packets),
            None => trimmed.parse().ok().map(Self::Bytes),
        };
        read.ok_or_else(|| BacklogError(trimmed.to_owned()))
    }
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(count) => write!(f, "{count} packets"),
            Self::Bytes(bytes) => write!(f, "{bytes:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_bytes_read_back_as_written() {
        for text in ["100 packets", "1 packets", "64 KiB", "1500 B"] {
            let read: Result<Backlog, _> = text.parse();
            assert_eq!(read.map(|backlog| backlog.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("1packet".parse(), Ok(Backlog::Packets(1)));
        for bad in ["", "100", "packets", "-1 packets", "5 pakets", "1e9 KiB"] {
            assert!(bad.parse::<Backlog>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_amounts_of_one_unit_compare() {
        assert!(Backlog::Packets(2).exceeds(Backlog::Packets(1)));
        assert!(!Backlog::Packets(1).exceeds(Backlog::Packets(1)));
        assert!(Backlog::Bytes(Bytes(2)).exceeds(Backlog::Bytes(Bytes(1))));
        assert!(!Backlog::Packets(u32::MAX).exceeds(Backlog::Bytes(Bytes(1))));
    }
}
