//! `direct`: every receiver hangs on a source, a flat tree.
//!
//! The source's outgoing rate is shared by all receivers, so this is the slowest way for more than
//! one of them, and the yardstick for the others. With one receiver it is optimal. Receivers turn to
//! several sources in turn, each to the next one first, and to another if that fails.

use outpour_core::NodeId;

use crate::promise::{Promise, Supply};
use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::relay::{self, Relay, Shape};
use crate::{Member, Protocol, Setup};

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "direct",
    about: "the source sends to every receiver itself",
    baseline: false,
    plan: PlanFrom::Nowhere,
    selective: true,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    promise: Promise {
        supply: Supply::Source,
        ..relay::PROMISE
    },
    build: |setup, _| Box::new(build(setup)) as Box<dyn Protocol>,
};

fn build(setup: Setup) -> Relay {
    let mut parents: Vec<NodeId> = sources(&setup.members).collect();
    if !parents.is_empty() {
        let turn = setup.me.index() % parents.len();
        parents.rotate_left(turn);
    }
    parents.retain(|node| *node != setup.me);
    let neighbours = if setup.members[setup.me.index()].is_source() {
        (0..setup.members.len() as u32)
            .map(NodeId)
            .filter(|node| *node != setup.me)
            .collect()
    } else {
        Vec::new()
    };
    Relay::new(
        setup,
        Shape {
            before: parents.len(),
            parents,
            neighbours,
            children_max: usize::MAX,
        },
    )
}

fn sources(members: &[Member]) -> impl Iterator<Item = NodeId> + '_ {
    (0..)
        .map(NodeId)
        .zip(members)
        .filter(|(_, member)| member.is_source())
        .map(|(node, _)| node)
}
