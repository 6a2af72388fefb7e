//! What waits for a control channel that is slower than what has to go through it.
//!
//! Nothing that matters is dropped. Of messages about the same thing the latest says all that the
//! earlier ones did, so it takes their place, at the end: that bounds how many can wait, by a few
//! for each member.

use std::collections::BTreeMap;

use outpour_core::NodeId;
use outpour_core::manifest::Aspect;

use super::{Order, Report};

/// A message that can wait.
pub trait Message {
    /// What it is about: a later message on the same topic replaces an earlier one.
    fn topic(&self) -> Topic;

    /// Whether nothing that was to be said before it matters any more.
    fn is_last(&self) -> bool {
        false
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Something that happens in a certain order, each step once or few times.
    Step(u8),
    /// A quantity, of which the latest value counts.
    Latest(u8),
    /// What could not be kept of an aspect of entries.
    Kept(Aspect),
    /// Whether a member takes part.
    Member(NodeId),
    /// What is wrong with a peer, or the way to it.
    Peer(u8, NodeId),
}

impl Message for Order {
    fn topic(&self) -> Topic {
        match self {
            Self::Begin { .. } => Topic::Step(0),
            Self::Finish => Topic::Step(1),
            Self::Met { node, .. } | Self::Left { node } => Topic::Member(*node),
            Self::Dial { node } => Topic::Peer(0, *node),
            Self::Census => Topic::Latest(0),
            Self::Foreground { .. } => Topic::Latest(1),
        }
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Finish)
    }
}

impl Message for Report {
    fn topic(&self) -> Topic {
        match self {
            Self::Preparing => Topic::Step(0),
            Self::Prepared { .. } => Topic::Step(1),
            Self::Paused { .. } => Topic::Step(2),
            Self::Resumed { .. } => Topic::Step(3),
            Self::Finishing => Topic::Step(4),
            Self::Complete { .. } | Self::Failed { .. } | Self::Refused { .. } => Topic::Step(5),
            Self::Progress { .. } => Topic::Latest(0),
            Self::Coding(_) => Topic::Latest(1),
            Self::NotKept { what, .. } => Topic::Kept(*what),
            Self::Held { .. } => Topic::Latest(2),
            Self::Acted(_) => Topic::Latest(3),
            Self::Accuse { peer, .. } => Topic::Peer(0, *peer),
            Self::Unreachable { peer, .. } => Topic::Peer(1, *peer),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Backlog<T> {
    /// In the order in which they are to be said.
    waiting: BTreeMap<u64, T>,
    /// Which of them is about what.
    about: BTreeMap<Topic, u64>,
    next: u64,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            about: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T: Message> Backlog<T> {
    /// Adds a message, in the place of an earlier one about the same.
    pub fn push(&mut self, message: T) {
        if message.is_last() {
            self.waiting.clear();
            self.about.clear();
        }
        let place = self.next;
        self.next += 1;
        if let Some(earlier) = self.about.insert(message.topic(), place) {
            let replaced = self.waiting.remove(&earlier);
            debug_assert!(replaced.is_some(), "a topic is about a message");
            debug_assert!(earlier < place);
        }
        self.waiting.insert(place, message);
        debug_assert_eq!(self.waiting.len(), self.about.len());
    }

    /// Takes the one that has waited longest.
    pub fn pop(&mut self) -> Option<T> {
        let (first, message) = self.waiting.pop_first()?;
        let place = self.about.remove(&message.topic());
        debug_assert_eq!(place, Some(first), "a message waits under its topic");
        debug_assert_eq!(self.waiting.len(), self.about.len());
        Some(message)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Contact, Disk};
    use super::*;

    fn met(node: u32) -> Order {
        Order::Met {
            node: NodeId(node),
            contact: Contact::default(),
        }
    }

    fn left(node: u32) -> Order {
        let node = NodeId(node);
        Order::Left { node }
    }

    fn drain<T: Message>(mut backlog: Backlog<T>) -> Vec<T> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    #[test]
    fn what_repeats_is_replaced_and_all_else_comes_in_order() {
        let mut backlog = Backlog::default();
        for order in [
            met(1),
            met(2),
            Order::Census,
            met(3),
            left(1),
            Order::Census,
        ] {
            backlog.push(order);
        }
        let expected = [met(2), met(3), left(1), Order::Census];
        assert_eq!(drain(backlog), expected);
    }

    #[test]
    fn an_end_ends_everything() {
        let mut backlog = Backlog::default();
        (0..10).for_each(|node| backlog.push(met(node)));
        backlog.push(Order::Finish);
        assert_eq!(drain(backlog), [Order::Finish]);
    }

    #[test]
    fn steps_and_verdicts_outlast_any_number_of_signs_of_life() {
        let mut backlog = Backlog::default();
        let progress = |have_bytes| Report::Progress {
            have_bytes,
            received_bytes: 0,
            disk: Disk::default(),
        };
        let accuse = |peer| Report::Accuse {
            peer: NodeId(peer),
            offence: "sent wrong bytes".to_owned(),
        };
        backlog.push(Report::Preparing);
        backlog.push(Report::Prepared { have_bytes: 7 });
        (0..10_000).for_each(|bytes| backlog.push(progress(bytes)));
        (0..3)
            .cycle()
            .take(100)
            .for_each(|peer| backlog.push(accuse(peer)));
        backlog.push(Report::Finishing);
        backlog.push(Report::Complete { received_bytes: 1 });
        assert_eq!(backlog.len(), 8);
        let said = drain(backlog);
        assert_eq!(
            said[..2],
            [Report::Preparing, Report::Prepared { have_bytes: 7 }]
        );
        assert_eq!(said[2], progress(9_999));
        assert_eq!(said[7], Report::Complete { received_bytes: 1 });
    }

    #[test]
    fn as_many_wait_as_there_are_members_whatever_is_said_of_them() {
        let mut backlog = Backlog::default();
        for round in 0..20 {
            for node in 0..100 {
                backlog.push(if round % 2 == 0 {
                    met(node)
                } else {
                    left(node)
                });
                let node = NodeId(node);
                backlog.push(Order::Dial { node });
            }
        }
        assert_eq!(backlog.len(), 200);
    }
}
