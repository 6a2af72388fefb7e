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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use outpour_core::{BlockSet, Time};

    use super::*;
    use crate::{Action, Actions, Event, Role};

    /// Whom a receiver gives up that cannot reach any of so many sources for ten seconds.
    fn given_up(sources: u32) -> Vec<NodeId> {
        let member = |node| Member {
            cluster: 0,
            role: Role::source_if(node < sources),
        };
        let mut node = build(Setup {
            me: NodeId(sources),
            members: (0..sources + 2).map(member).collect(),
            block_bytes: 1024,
            have: BlockSet::new(9),
            want: BlockSet::full(9),
            seed: 1,
            plan: None,
            batches: None,
        });
        let (mut out, mut given_up) = (Actions::default(), Vec::new());
        let mut due = None;
        node.handle(Time::ZERO, Event::Start, &mut out);
        loop {
            for action in out.drain() {
                match action {
                    Action::SetTimer { timer, at } => due = Some((timer, at)),
                    Action::Disconnect(peer) => given_up.push(peer),
                    _ => {}
                }
            }
            let (timer, now) = due.take().unwrap();
            if now > Time::ZERO + Duration::from_secs(10) {
                return given_up;
            }
            node.handle(now, Event::Timer(timer), &mut out);
        }
    }

    #[test]
    fn an_only_source_that_is_slow_to_reach_is_not_given_up_for_another() {
        assert_eq!(given_up(1), []);
        // With two there is a choice: the next one is tried, and then the first again.
        let given_up = given_up(2);
        assert!(
            given_up.len() >= 2 && given_up[0] != given_up[1],
            "{given_up:?}"
        );
    }
}
