//! What a controller is told, and what it answers to nonsense.

use std::ops::Range;

use outpour_core::blocks::BlockId;
use outpour_core::network::{Change, Resource};
use outpour_core::{NodeId, Rate};
use serde::{Deserialize, Serialize};

use crate::job::JobId;

/// How many runs a report may have.
pub const RUNS_MAX: usize = 1 << 20;

/// Blocks of a job, as runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// The job.
    pub job: JobId,
    /// The runs.
    pub runs: Vec<Range<BlockId>>,
}

/// What changed at an agent since its last report. Reports to a controller are numbered from 1, and
/// the first has everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The epoch of the controller it is for.
    pub epoch: u64,
    /// Its number.
    pub seq: u64,
    /// Whether it lists everything the agent has; otherwise what changed.
    pub whole: bool,
    /// Blocks that it has verified.
    pub gained: Vec<Blocks>,
    /// Blocks that it has no more.
    pub lost: Vec<Blocks>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// An agent can be reached, for the first time or again; its next report has number 1.
    Came {
        /// Which.
        node: NodeId,
    },
    /// An agent cannot be reached any more.
    Left {
        /// Which.
        node: NodeId,
    },
    /// An agent runs, but its disk is gone with all blocks.
    DiskLost {
        /// Which.
        node: NodeId,
    },
    /// A server that reads from another, or is sent blocks by it, cannot reach it [BDS §5.3].
    Dead {
        /// Who is out of reach.
        node: NodeId,
        /// Who says so.
        by: NodeId,
    },
    /// A server cannot reach another, which may be well all the same: the pair is not used for a while.
    Severed {
        /// Who is out of its reach.
        node: NodeId,
        /// Who says so.
        by: NodeId,
    },
    /// What a server achieved towards another. Where it is less than it was ordered to send, the
    /// network carries less than it is known to.
    Achieved {
        /// Who sends.
        from: NodeId,
        /// Who gets.
        to: NodeId,
        /// What was sent, over about a second.
        rate: Rate,
        /// What was to be sent in that time, if there was something to send all the time.
        ordered: Option<Rate>,
    },
    /// A reader found that a server has not the blocks that it reported.
    Missing {
        /// Who has not.
        node: NodeId,
        /// Who says so.
        by: NodeId,
        /// Which blocks.
        blocks: Blocks,
    },
    /// An agent reports.
    Report {
        /// Which.
        node: NodeId,
        /// What.
        report: Report,
    },
    /// What a member of a job wants of it; until this is said of one that is to get it, everything. One
    /// that wants nothing passes on what others want.
    Wants {
        /// Which.
        node: NodeId,
        /// What.
        blocks: Blocks,
    },
    /// Latency-sensitive traffic was measured; on a local link, of the busiest of its site.
    Foreground {
        /// On what.
        resource: Resource,
        /// What there is now.
        rate: Rate,
        /// The most there ever was, if the monitor knows more than it told.
        peak: Rate,
    },
    /// The network is another from now on.
    Network(Change),
}

/// Why an input is not heeded. The controller is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A node that is not in the network.
    #[error("node {node} is not in the network, which has {count} nodes")]
    UnknownNode {
        /// The node.
        node: NodeId,
        /// How many there are.
        count: u32,
    },
    /// A resource that is not in the network.
    #[error("{resource:?} is not in the network")]
    UnknownResource {
        /// The resource.
        resource: Resource,
    },
    /// A report of an agent that is not there.
    #[error("node {node} reports, but it is not there")]
    Absent {
        /// The node.
        node: NodeId,
    },
    /// A report to an earlier controller.
    #[error("node {node} reports to epoch {epoch}; this controller has epoch {ours}")]
    OldEpoch {
        /// Who reports.
        node: NodeId,
        /// To which epoch.
        epoch: u64,
        /// The epoch of this controller.
        ours: u64,
    },
    /// A report to a later controller: this one gives no more orders.
    #[error("a controller of epoch {epoch} has taken over; this one had epoch {ours}")]
    Deposed {
        /// The epoch of the later one.
        epoch: u64,
        /// The epoch of this controller.
        ours: u64,
    },
    /// A report that was heeded before, or one before that.
    #[error("node {node}'s report {seq} comes late; report {last} was heeded")]
    Late {
        /// Who reports.
        node: NodeId,
        /// The number of the report.
        seq: u64,
        /// The last that was heeded.
        last: u64,
    },
    /// A report after one that has not come. The agent is asked for everything.
    #[error("node {node}'s report {seq} follows report {last}: some are missing")]
    Gap {
        /// Who reports.
        node: NodeId,
        /// The number of the report.
        seq: u64,
        /// The last that was heeded.
        last: u64,
    },
    /// A report longer than any sensible one.
    #[error("node {node} reports {runs} runs of blocks, more than the {RUNS_MAX} allowed")]
    TooLong {
        /// Who reports.
        node: NodeId,
        /// How many.
        runs: usize,
    },
    /// A job that is not there.
    #[error("{job} is not known here")]
    UnknownJob {
        /// The job.
        job: JobId,
    },
    /// A node that has no part in a job.
    #[error("node {node} has no part in {job}")]
    Stranger {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
    },
    /// Blocks that a job does not have.
    #[error("node {node} speaks of blocks {first} to {end} of {job}, which has {blocks}")]
    UnknownBlocks {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
        /// The first of them.
        first: BlockId,
        /// The one after the last.
        end: BlockId,
        /// How many there are.
        blocks: u32,
    },
}
