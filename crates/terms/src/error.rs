//! What is wrong with what was asked for, and with terms that came from elsewhere.

use outpour_core::batches::BATCH_BLOCKS_MAX;
use outpour_core::plan::PlanError;
use outpour_core::separation::ThresholdError;
use outpour_core::{Bytes, NodeId};
use outpour_planner::multicast::{self, UnknownMethod};
use outpour_protocols::registry;

use crate::coding::{ENCODERS_MAX, MEMORY_MAX};
use crate::plan::PLAN_BYTES_MAX;

/// Why there are no terms for a cast.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// A plan for a protocol that does not ask for one.
    #[error("protocol `{protocol}` does not execute a plan from a file; `tree` does")]
    UnwantedPlan {
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol executes a plan of the user's, and there is none.
    #[error(
        "protocol `{protocol}` executes a plan: name the file that `outpour plan multicast \
         --output` writes with --plan"
    )]
    NoPlan {
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol plans on a network, and none is described.
    #[error("protocol `{protocol}` plans on a network: describe it, and name it with --network")]
    NoNetwork {
        /// The protocol.
        protocol: &'static str,
    },
    /// The planner has no method of that name.
    #[error(transparent)]
    Method(#[from] UnknownMethod),
    /// There is no plan by the protocol's method.
    #[error(transparent)]
    Planner(#[from] multicast::PlanError),
    /// The plan is too large to be sent to every node.
    #[error(
        "the plan of {trees} trees over {members} nodes takes {bytes} bytes; an agent accepts \
         {PLAN_BYTES_MAX}"
    )]
    LargePlan {
        /// How many trees it has.
        trees: usize,
        /// How many members there are.
        members: usize,
        /// How long it is.
        bytes: usize,
    },
    /// Relays, with a protocol that sends every block to every node.
    #[error("{}", no_relays(protocol))]
    Relays {
        /// The protocol.
        protocol: &'static str,
    },
    /// Room for other traffic, with a protocol that leaves none.
    #[error(
        "protocol `{protocol}` leaves no room for other traffic: with --threshold or --peak name `central`, \
         or no protocol"
    )]
    Separation {
        /// The protocol.
        protocol: &'static str,
    },
    /// A threshold that is no share of a link.
    #[error(transparent)]
    Threshold(#[from] ThresholdError),
    /// An option of coding, with a protocol that does not code.
    #[error("protocol `{protocol}` does not code: {option} has no effect on it")]
    Uncoded {
        /// The protocol.
        protocol: &'static str,
        /// The option.
        option: &'static str,
    },
    /// Options that the protocol does not take.
    #[error("these are no options of protocol `{protocol}`")]
    Options {
        /// The protocol.
        protocol: &'static str,
    },
    /// What is true of terms from elsewhere is true of our own.
    #[error(transparent)]
    Terms(#[from] TermsError),
}

/// Why terms cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// The node that got the terms is not among the members.
    #[error("admitted as a node that does not exist")]
    Member,
    /// Relays, with a protocol that sends every block to every node.
    #[error("{}", no_relays(protocol))]
    Relays {
        /// The protocol.
        protocol: &'static str,
    },
    /// The plan is none for these members.
    #[error("the plan cannot be executed: {0}")]
    Plan(#[from] PlanError),
    /// The plan begins where the object is not.
    #[error("the plan begins at node {root}, which is no source")]
    Root {
        /// Where it begins.
        root: NodeId,
    },
    /// The plan does not begin at every node that has the object.
    #[error("the plan does not begin at node {source_node}, which is a source")]
    NoRoot {
        /// Where it should.
        source_node: NodeId,
    },
    /// A plan that the protocol does not execute, or none though it does.
    #[error("admitted {} a plan to protocol `{protocol}`", with_or_without(*.with))]
    Planned {
        /// The protocol.
        protocol: &'static str,
        /// Whether there is one.
        with: bool,
    },
    /// Batches for a protocol that does not code, or none though it does.
    #[error("admitted {} batches to protocol `{protocol}`", with_or_without(*.with))]
    Coding {
        /// The protocol.
        protocol: &'static str,
        /// Whether there are any.
        with: bool,
    },
    /// There are no such batches.
    #[error("batches of {0} blocks: a batch has 1 to {BATCH_BLOCKS_MAX} blocks")]
    Batch(u16),
    /// Too many threads, or none.
    #[error("{0} encoders: expected 1 to {ENCODERS_MAX}")]
    Encoders(u8),
    /// Packets would take too much memory.
    #[error(
        "batches of {size} blocks of {block} would take {memory} of memory at every node, more \
         than {}; choose smaller blocks or fewer of them",
        Bytes(MEMORY_MAX)
    )]
    Memory {
        /// Blocks of a batch.
        size: u16,
        /// Size of a block.
        block: Bytes,
        /// What they would take.
        memory: Bytes,
    },
}

const fn with_or_without(with: bool) -> &'static str {
    if with { "with" } else { "without" }
}

/// Which protocols take relays, as this one does not.
fn no_relays(protocol: &str) -> String {
    let selective = registry::ENTRIES.iter().filter(|entry| entry.selective);
    let names: Vec<String> = selective.map(|entry| format!("`{}`", entry.name)).collect();
    format!(
        "protocol `{protocol}` takes no relays, because it sends every block to every node; these \
         take relays: {}",
        names.join(", ")
    )
}
