//! `chain`: the nodes form a line and each forwards to the next, block by block.
//!
//! Every node sends what it receives once, so all outgoing rates are used and the time is that of
//! one copy plus one block time per hop. The line keeps clusters together, the source's first, so
//! each link between clusters carries the object once. The last source heads the line; further ones
//! are there for when it fails. A node whose predecessor falls silent takes
//! its place behind the one before, and a node that comes late or returns goes to the line's end,
//! where an outgoing rate lies idle.

use outpour_core::NodeId;

use crate::registry::{Entry, NO_OPTIONS, PlanFrom, USUAL_BLOCKS};
use crate::relay::{self, Relay, Shape};
use crate::{Member, Protocol, Setup};

/// The registry's line.
pub const ENTRY: Entry = Entry {
    name: "chain",
    about: "every node forwards to the next, block by block",
    baseline: false,
    plan: PlanFrom::Nowhere,
    selective: true,
    coding: None,
    block_size: USUAL_BLOCKS,
    takes: NO_OPTIONS,
    promise: relay::PROMISE,
    build: |setup, _| Box::new(build(setup)) as Box<dyn Protocol>,
};

fn build(setup: Setup) -> Relay {
    let line = line(&setup.members);
    let place = line.iter().position(|node| *node == setup.me).unwrap_or(0);
    debug_assert_eq!(line[place], setup.me);
    // Those before, nearest first; then, should all of them be gone, those behind.
    let parents = line[..place]
        .iter()
        .rev()
        .chain(&line[place + 1..])
        .copied()
        .collect();
    // The successor will call as well; calling from both ends gets through more firewalls.
    let neighbours = line.get(place + 1).copied().into_iter().collect();
    Relay::new(
        setup,
        Shape {
            parents,
            before: place,
            neighbours,
            children_max: 1,
        },
    )
}

/// The order of the line: sources, then the rest of their clusters, then cluster by cluster.
fn line(members: &[Member]) -> Vec<NodeId> {
    let home = members
        .iter()
        .find(|member| member.is_source())
        .map(|member| member.cluster);
    let mut line: Vec<NodeId> = (0..members.len() as u32).map(NodeId).collect();
    line.sort_by_key(|node| {
        let member = members[node.index()];
        (
            !member.is_source(),
            Some(member.cluster) != home,
            member.cluster,
            *node,
        )
    });
    debug_assert!(
        line.is_sorted_by_key(|node| !members[node.index()].is_source()),
        "sources head the line"
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn the_line_visits_each_cluster_once_and_home_first() {
        let member = |cluster, source| Member {
            cluster,
            role: Role::source_if(source),
        };
        let members = [
            member(0, false),
            member(2, false),
            member(1, true),
            member(0, false),
            member(1, false),
            member(2, false),
        ];
        assert_eq!(line(&members), [2, 4, 0, 3, 1, 5].map(NodeId));
    }
}
