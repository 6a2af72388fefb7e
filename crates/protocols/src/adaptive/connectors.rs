//! Connectors: the sets of destinations that a message can be handed to at once.
//!
//! They are made when they are needed, in a fixed order: first those with one destination, then
//! those with two, and so on, each in the order of the nodes [Burger §3.3.3]. There are `2^n` of
//! them, too many to try [Burger §3.3.4]; after [`CONNECTORS_MAX`] only those with one
//! destination are made.

use outpour_core::NodeId;

use super::dests::Dests;

/// How many connectors with more than one destination a node makes; all there are up to 10 others.
pub(super) const CONNECTORS_MAX: usize = 1024;

/// The connectors made so far.
#[derive(Debug)]
pub(super) struct Connectors {
    members: usize,
    list: Vec<Connector>,
    /// How many have more than one destination.
    wide: usize,
}

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) set: Dests,
    pub(super) nodes: Vec<NodeId>,
}

/// Which connector a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This one, which has room.
    Free(usize),
    /// This one, for which it has to wait.
    Congested(usize),
}

impl Connectors {
    pub(super) fn new(members: usize) -> Self {
        Self {
            members,
            list: Vec::new(),
            wide: 0,
        }
    }

    pub(super) fn get(&self, index: usize) -> &Connector {
        &self.list[index]
    }

    /// Chooses a connector for a message with these destinations; none if there is no node to send
    /// it to. `has_room` says whether the connection to a node that counts so many remaining
    /// destinations can take a message, `random` is a number for the case that none can.
    pub(super) fn choose(
        &mut self,
        dests: &Dests,
        random: u64,
        has_room: impl Fn(NodeId, usize) -> bool,
    ) -> Option<Choice> {
        let count = dests.len();
        debug_assert!(count <= self.members);
        let is_free = |connector: &Connector| {
            let left = count - connector.nodes.len();
            connector.nodes.iter().all(|node| has_room(*node, left))
        };
        let mut congested = Vec::new();
        for (index, connector) in self.list.iter().enumerate() {
            if dests.covers(&connector.set) {
                if is_free(connector) {
                    return Some(Choice::Free(index));
                }
                congested.push(index);
            }
        }
        if let Some(index) = self.make(dests, has_room) {
            debug_assert!(dests.covers(&self.list[index].set));
            return Some(Choice::Free(index));
        }
        if congested.is_empty() {
            let node = dests.iter().next()?;
            return Some(Choice::Congested(self.add(vec![node])));
        }
        let pick = (random % congested.len() as u64) as usize;
        Some(Choice::Congested(congested[pick]))
    }

    /// Makes the first connector in the order that covers the message and has room.
    ///
    /// None of those that exist has, so of each size it is the first of all whose connections do;
    /// those before it would be congested the moment they are made.
    fn make(&mut self, dests: &Dests, has_room: impl Fn(NodeId, usize) -> bool) -> Option<usize> {
        let count = dests.len();
        for fanout in 1..=count {
            if fanout > 1 && self.wide >= CONNECTORS_MAX {
                return None;
            }
            let open = dests.iter().filter(|node| has_room(*node, count - fanout));
            let nodes: Vec<NodeId> = open.take(fanout).collect();
            if nodes.len() == fanout {
                return Some(self.add(nodes));
            }
        }
        None
    }

    fn add(&mut self, nodes: Vec<NodeId>) -> usize {
        debug_assert!(!nodes.is_empty());
        self.wide += usize::from(nodes.len() > 1);
        let set = Dests::of(nodes.iter().copied(), self.members);
        debug_assert_eq!(set.len(), nodes.len(), "a node is in it twice");
        debug_assert!(
            !self.list.iter().any(|it| it.set == set),
            "it is there already"
        );
        self.list.push(Connector { set, nodes });
        debug_assert!(self.wide <= CONNECTORS_MAX);
        debug_assert!(self.list.len() - self.wide <= self.members);
        self.list.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(members: u32) -> Dests {
        Dests::of((1..members).map(NodeId), members as usize)
    }

    fn nodes(connectors: &Connectors, choice: Option<Choice>) -> Vec<u32> {
        match choice {
            Some(Choice::Free(index) | Choice::Congested(index)) => connectors
                .get(index)
                .nodes
                .iter()
                .map(|node| node.0)
                .collect(),
            None => Vec::new(),
        }
    }

    #[test]
    fn one_destination_comes_before_two() {
        let mut connectors = Connectors::new(4);
        let first = connectors.choose(&all(4), 0, |_, _| true);
        assert_eq!(nodes(&connectors, first), [1]);
        // The one there is has no room: the next is made; then all singles are full.
        let second = connectors.choose(&all(4), 0, |node, _| node != NodeId(1));
        assert_eq!(nodes(&connectors, second), [2]);
        let third = connectors.choose(&all(4), 0, |_, left| left < 2);
        assert_eq!(nodes(&connectors, third), [1, 2]);
        // Existing ones with room come before new ones.
        let fourth = connectors.choose(&all(4), 0, |node, left| left == 1 || node == NodeId(2));
        assert_eq!(nodes(&connectors, fourth), [2]);
    }

    #[test]
    fn a_message_takes_only_connectors_it_covers() {
        let mut connectors = Connectors::new(4);
        connectors.choose(&all(4), 0, |_, _| true);
        let dests = Dests::of([NodeId(3)], 4);
        let choice = connectors.choose(&dests, 0, |_, _| false);
        assert_eq!(nodes(&connectors, choice), [3]);
        assert!(matches!(choice, Some(Choice::Congested(_))));
        assert_eq!(connectors.choose(&Dests::of([], 4), 0, |_, _| true), None);
    }

    #[test]
    fn there_are_never_more_than_the_bound() {
        let members = 40;
        let mut connectors = Connectors::new(members as usize);
        for salt in 0..4000u32 {
            // Other nodes have room each time.
            let open = |node: NodeId, left: usize| {
                left < 38
                    && (node.0.wrapping_mul(2_654_435_761) ^ salt)
                        .count_ones()
                        .is_multiple_of(4)
            };
            connectors.choose(&all(members), u64::from(salt), open);
        }
        assert!(connectors.list.len() <= CONNECTORS_MAX + members as usize);
        assert!(connectors.wide <= CONNECTORS_MAX);
    }
}
