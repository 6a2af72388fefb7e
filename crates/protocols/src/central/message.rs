//! What nodes say to each other.

use outpour_controller::Change;
use outpour_core::blocks::WireBlocks;
use outpour_core::{NodeId, Rate, Traffic};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The first word to every peer: from now on blocks may come.
    Hello,
    /// The sender leads.
    Lead { epoch: u64 },
    /// To a leader: what the sender has, or got since it last said so.
    Report(Report),
    /// From a leader: how the recipient's lanes change.
    Order {
        epoch: u64,
        /// Whether all earlier lanes are forgotten first.
        whole: bool,
        changes: Vec<Change>,
    },
    /// From a source: what was measured of latency-sensitive traffic.
    Traffic { traffic: Vec<Traffic> },
    /// What the sender's part in the plan says to the recipient's.
    Planned { body: Vec<u8> },
    /// The sender goes by the plan no more, so nobody can.
    Unplanned,
    /// The sender takes part in the team of its site, which is also the recipient's.
    Home { team: u32 },
    /// The sender has no leader; help it.
    Needy { team: u32 },
    /// The sender has everything, and needs no help any more.
    Helped,
    /// The sender takes part in a team with the recipient's.
    Joined { team: u32, yours: u32 },
    /// The sender's team is no more.
    Parted,
    /// What the sender's team says to the recipient's.
    Team { yours: u32, body: Vec<u8> },
}

/// What an agent tells its leader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) epoch: u64,
    /// The number of the report, from 1 on.
    pub(super) seq: u64,
    /// Whether it lists everything the sender has; otherwise what is new.
    pub(super) whole: bool,
    pub(super) gained: WireBlocks,
    /// Where everything is listed: what the sender wants, if it is not everything.
    pub(super) want: Option<WireBlocks>,
    pub(super) achieved: Vec<Achieved>,
    /// Nodes that cannot be reached to which something was to be sent.
    pub(super) severed: Vec<NodeId>,
}

/// What a lane achieved in about the last half second, and, if it never ran dry, what was ordered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Achieved {
    pub(super) to: NodeId,
    pub(super) rate: Rate,
    pub(super) ordered: Option<Rate>,
}
