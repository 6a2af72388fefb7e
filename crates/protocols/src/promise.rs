//! What protocols promise about blocks that travel more often than they have to.

/// How many blocks may come to a node that has them, and into a cluster again.
///
/// Nodes are *disturbed* when a fault strikes, a mate comes late or the network changes under them;
/// then they turn to others, and what was on its way may come twice. It may be so, too, where a
/// block takes longer than a node has patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Of each block so many copies may come besides the first, on average and however many sources
    /// there are, by the protocol's nature.
    pub copies: u32,
    /// So many blocks may come from each peer that were on their way when they came from another.
    pub ahead: u32,
    /// So many may come twice whenever a node turns from one peer to another and back.
    pub turn: u32,
    /// So many of each peer may come twice that were pulled when nothing came the usual way.
    pub pulled: u32,
    /// From which nodes a node gets what it lacks in the end.
    pub supply: Supply,
    /// Each block enters each cluster once, and at most once more for each disturbance, and for each
    /// node of the cluster that refuses a liar.
    pub once_per_cluster: bool,
}

/// From which nodes a node gets what it lacks in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// From a source that it can talk to.
    Source,
    /// From a source, directly or through others.
    Relayed,
    /// From any node that has it, directly or through others.
    Anybody,
}

impl Promise {
    /// No block ever comes to a node that has it: each is asked of one peer at a time, and what a
    /// lost peer owed is lost with the connection.
    pub const NEVER: Self = Self {
        copies: 0,
        ahead: 0,
        turn: 0,
        pulled: 0,
        supply: Supply::Anybody,
        once_per_cluster: false,
    };

    /// None comes twice but where nodes turn to others or pull.
    pub const fn per_turn(turn: u32, pulled: u32) -> Self {
        Self {
            turn,
            pulled,
            ..Self::NEVER
        }
    }
}
