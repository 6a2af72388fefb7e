//! Identities of the things a cast talks about.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A node of one transfer: its index in the transfer's list of members.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The index of the node in the list of members.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}
