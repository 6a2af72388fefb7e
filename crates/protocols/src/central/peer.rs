//! A peer that is up: what it was given, and what is with the driver for it.

use std::collections::VecDeque;

use outpour_core::{BlockId, BlockSet, NodeId};

use super::aid::Membership;
use crate::{Action, Actions, SEND_QUEUE_MAX};

/// Why a block is with the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Order,
    Team,
    /// The plan with which the cast began.
    Plan,
    /// A plan that is no more, or a team that is no more, or has parted from the peer since.
    Past,
}

/// A peer that is up.
#[derive(Debug)]
pub(super) struct Peer {
    /// Whether it was heard: only then it is sure to hear this node.
    pub(super) heard: bool,
    /// Blocks for it that are with the driver, oldest first.
    pub(super) queued: VecDeque<(BlockId, Cause)>,
    /// Blocks that its team asked for and for which the driver has no room yet, oldest first.
    pub(super) waiting: VecDeque<BlockId>,
    /// Blocks that it was sent over this connection, or that wait; one that it lost is sent over the next.
    pub(super) given: BlockSet,
    /// Its part in a team, if it has one.
    pub(super) team: Option<Membership>,
    /// Whether it said that it has no leader.
    pub(super) needy: bool,
}

impl Peer {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            heard: false,
            queued: VecDeque::new(),
            waiting: VecDeque::new(),
            given: BlockSet::new(blocks),
            team: None,
            needy: false,
        }
    }

    /// This node's team and the peer have parted: no team waits for what is with the driver, and what waits
    /// is not sent, unless by order.
    pub(super) fn part(&mut self) {
        for block in self.waiting.drain(..) {
            self.given.remove(block);
        }
        for (_, cause) in &mut self.queued {
            if *cause == Cause::Team {
                *cause = Cause::Past;
            }
        }
    }

    /// The plan is no more, and waits for nothing that is with the driver.
    pub(super) fn forget_plan(&mut self) {
        for (_, cause) in &mut self.queued {
            if *cause == Cause::Plan {
                *cause = Cause::Past;
            }
        }
    }

    /// Hands the driver a block that its team asked for, now or when there is room. Its team bounds how many
    /// it may ask for, see `Requests::serve`, and so how many wait.
    pub(super) fn give(&mut self, to: NodeId, block: BlockId, out: &mut Actions) {
        let mut queued = self.queued.iter_mut();
        if let Some((_, cause)) = queued.find(|(queued, _)| *queued == block) {
            // It is on its way already, for another reason.
            *cause = Cause::Team;
        } else {
            // No lane is to send it as well.
            self.given.insert(block);
            self.waiting.push_back(block);
            self.give_waiting(to, out);
        }
    }

    /// Hands the driver what waits, as far as there is room.
    pub(super) fn give_waiting(&mut self, to: NodeId, out: &mut Actions) {
        while self.has_room()
            && let Some(block) = self.waiting.pop_front()
        {
            self.queued.push_back((block, Cause::Team));
            out.push(Action::SendBlock { to, block });
        }
    }

    /// Whether the driver takes another block for it.
    pub(super) fn has_room(&self) -> bool {
        self.queued.len() < SEND_QUEUE_MAX
    }

    /// How many blocks are with the driver by order.
    pub(super) fn ordered(&self) -> usize {
        let ordered = self
            .queued
            .iter()
            .filter(|(_, cause)| *cause == Cause::Order);
        ordered.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: NodeId = NodeId(1);

    fn given(out: &mut Actions) -> Vec<BlockId> {
        let block = |action| match action {
            Action::SendBlock { block, .. } => Some(block),
            _ => None,
        };
        out.drain().filter_map(block).collect()
    }

    #[test]
    fn what_the_driver_has_no_room_for_comes_later() {
        let (mut peer, mut out) = (Peer::new(200), Actions::default());
        (0..100).for_each(|block| peer.give(TO, block, &mut out));
        let first = SEND_QUEUE_MAX as BlockId;
        assert!(given(&mut out).into_iter().eq(0..first));
        // Each block that leaves makes room for one.
        for next in first..100 {
            peer.queued.pop_front();
            peer.give_waiting(TO, &mut out);
            assert_eq!(given(&mut out), [next]);
        }
        peer.queued.pop_front();
        peer.give_waiting(TO, &mut out);
        assert_eq!(given(&mut out), [], "none is given twice");
    }

    #[test]
    fn what_is_on_its_way_is_not_given_again() {
        let (mut peer, mut out) = (Peer::new(200), Actions::default());
        peer.queued.push_back((7, Cause::Order));
        peer.give(TO, 7, &mut out);
        assert_eq!(given(&mut out), []);
        assert_eq!(
            peer.queued,
            [(7, Cause::Team)],
            "its team hears when it is sent"
        );
        // No lane sends what waits; who parts waits for nothing, and lanes may send it.
        (0..100).for_each(|block| peer.give(TO, block, &mut out));
        assert!(peer.given.contains(99));
        peer.part();
        assert!(peer.given.contains(0) && !peer.given.contains(99));
        peer.queued.clear();
        given(&mut out);
        peer.give_waiting(TO, &mut out);
        assert_eq!(given(&mut out), []);
    }
}
