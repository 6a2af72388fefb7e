//! What can go wrong in a simulated transfer: each fault a value, carried out at its time.

use std::time::Duration;

use outpour_core::network::{ClusterId, Resource};
use outpour_core::{NodeId, Rate, Time};

/// One fault: what, when and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When it begins.
    pub at: Time,
    /// How long it lasts; for good if nothing is said.
    pub lasts: Option<Duration>,
    /// What happens.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The node stops dead, and when the fault is over it starts anew with its verified blocks.
    Crash {
        /// Which node.
        node: NodeId,
        /// Blocks verified in this time before the crash were not in the journal and are lost.
        unjournaled: Duration,
        /// The whole host is gone: peers notice by their timeouts instead of a reset connection.
        silent: bool,
    },
    /// The node does nothing, as if stopped by a signal; what happens to it waits.
    Stall {
        /// Which node.
        node: NodeId,
    },
    /// The node's capacities change.
    NodeRate {
        /// Which node.
        node: NodeId,
        /// Its new outgoing capacity.
        out: Rate,
        /// Its new incoming capacity.
        into: Rate,
    },
    /// The link between two clusters changes its capacity.
    LinkRate {
        /// The sending cluster.
        from: ClusterId,
        /// The receiving cluster.
        to: ClusterId,
        /// The new capacity.
        rate: Rate,
    },
    /// Messages from and to the node take longer.
    MessageDelay {
        /// Which node.
        node: NodeId,
        /// How much longer, each way.
        extra: Duration,
    },
    /// Nothing passes between two nodes.
    Partition {
        /// One of them.
        one: NodeId,
        /// The other.
        other: NodeId,
    },
    /// The node sends wrong bytes now and then.
    WrongBytes {
        /// Which node.
        node: NodeId,
        /// How many of its pieces are wrong, as a share.
        share: f64,
        /// Whether only packets are, and its blocks are right.
        packets_only: bool,
    },
}

impl FaultKind {
    /// Names of all kinds, in the order of [`FaultKind::index`].
    pub const NAMES: [&'static str; 7] = [
        "crash",
        "stall",
        "node rate",
        "link rate",
        "message delay",
        "partition",
        "wrong bytes",
    ];

    /// The kind's place in [`FaultKind::NAMES`].
    pub const fn index(&self) -> usize {
        match self {
            Self::Crash { .. } => 0,
            Self::Stall { .. } => 1,
            Self::NodeRate { .. } => 2,
            Self::LinkRate { .. } => 3,
            Self::MessageDelay { .. } => 4,
            Self::Partition { .. } => 5,
            Self::WrongBytes { .. } => 6,
        }
    }

    /// The resources whose capacity it changes, with what it changes them to.
    pub(crate) fn capacities(&self) -> Vec<(Resource, Rate)> {
        match *self {
            Self::NodeRate { node, out, into } => {
                vec![
                    (Resource::NodeOut(node), out),
                    (Resource::NodeIn(node), into),
                ]
            }
            Self::LinkRate { from, to, rate } => vec![(Resource::Link(from, to), rate)],
            _ => Vec::new(),
        }
    }
}

impl Fault {
    /// When it is over, if it ever is.
    pub fn end(&self) -> Option<Time> {
        self.lasts.map(|lasts| self.at + lasts)
    }
}
