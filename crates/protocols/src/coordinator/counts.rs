//! What coding takes, counted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What coding took at one node. A coordinator has no use for it but to pass it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodingCounts {
    /// Packets that came.
    pub packets: u64,
    /// Those of them that were combinations of what was here.
    pub dependent: u64,
    /// Those whose coefficients were all zero.
    pub zero: u64,
    /// Those that were dropped unread: their batch was whole, or fetched as blocks.
    pub dropped: u64,
    /// Packets that were made.
    pub made: u64,
    /// Time spent making packets, over all threads.
    pub encode: Duration,
    /// Time spent decoding, verifying and storing what was decoded, over all threads.
    pub decode: Duration,
    /// Bytes of coefficients and of the protocol's messages that came.
    pub overhead_bytes: u64,
}
