//! What a decision consists of: orders for agents, and what people should know.

use std::fmt;

use outpour_core::units::format_duration;
use outpour_core::{NodeId, Time};

use crate::job::JobId;
use crate::order::Order;

/// What is done in a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// From when on.
    pub from: Time,
    /// Until when it holds; agents go on after it until they are told otherwise.
    pub until: Time,
    /// One for each agent for which anything changes.
    pub orders: Vec<Order>,
    /// Agents that have to report everything they have, as reports of theirs are missing.
    pub asks: Vec<NodeId>,
    /// What people should know.
    pub notices: Vec<Notice>,
    /// How many bytes are to get through.
    pub planned_bytes: f64,
}

/// Something a person should read, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// All destinations have everything.
    Complete {
        /// The job.
        job: JobId,
    },
    /// The deadline cannot be met any more; the job goes on as fast as it can.
    Late {
        /// The job.
        job: JobId,
        /// When it can be complete at the earliest.
        earliest: Time,
    },
    /// Blocks are nowhere that could send them.
    Lost {
        /// The job.
        job: JobId,
        /// How many.
        blocks: u64,
    },
    /// A node is no source any more: it claimed blocks that it does not have.
    Distrusted {
        /// The node.
        node: NodeId,
        /// Who found out.
        by: NodeId,
    },
    /// Another controller has taken over; this one gives no more orders.
    Deposed {
        /// The epoch of the other one.
        epoch: u64,
    },
}

/// What to say of a job that cannot meet its deadline.
pub fn cannot_meet(job: impl fmt::Display, earliest: Time) -> String {
    let end = match earliest {
        Time::MAX => "as the network is, it never ends".to_owned(),
        _ => {
            let end = format_duration(earliest.since(Time::ZERO));
            format!("it ends at {end} at the earliest")
        }
    };
    format!("{job} cannot meet its deadline: {end}")
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete { job } => write!(f, "{job} is complete"),
            Self::Late { job, earliest } => f.write_str(&cannot_meet(job, *earliest)),
            Self::Lost { job, blocks } => {
                write!(
                    f,
                    "{job} waits: no node that is there has {blocks} of its blocks"
                )
            }
            Self::Distrusted { node, by } => {
                write!(
                    f,
                    "{node} is no source any more: {by} did not find blocks that it reported"
                )
            }
            Self::Deposed { epoch } => write!(f, "a controller of epoch {epoch} has taken over"),
        }
    }
}
