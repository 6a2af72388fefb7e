//! Sets of destinations.

use std::sync::Arc;

use outpour_core::NodeId;
use serde::{Deserialize, Serialize};

/// A set of nodes: a bit for each member. Messages share theirs until one of them differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dests(Arc<[u64]>);

/// The same as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WireDests(Vec<u64>);

impl Dests {
    pub(super) fn of(nodes: impl IntoIterator<Item = NodeId>, members: usize) -> Self {
        let mut words = vec![0; members.div_ceil(64)];
        for node in nodes {
            debug_assert!(node.index() < members);
            words[node.index() / 64] |= 1 << (node.index() % 64);
        }
        Self(words.into())
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether a node is in here.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        let word = self.0.get(node.index() / 64);
        word.is_some_and(|word| word >> (node.index() % 64) & 1 == 1)
    }

    /// Whether all of `other` are in here.
    pub(super) fn covers(&self, other: &Self) -> bool {
        debug_assert_eq!(self.0.len(), other.0.len(), "sets of different members");
        self.0
            .iter()
            .zip(&*other.0)
            .all(|(all, some)| some & !all == 0)
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        debug_assert_eq!(self.0.len(), other.0.len(), "sets of different members");
        Self(
            self.0
                .iter()
                .zip(&*other.0)
                .map(|(all, some)| all & !some)
                .collect(),
        )
    }

    pub(super) fn with(&self, node: NodeId) -> Self {
        let mut words = self.0.to_vec();
        words[node.index() / 64] |= 1 << (node.index() % 64);
        Self(words.into())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(NodeId(index as u32 * 64 + bit))
            })
        })
    }

    pub(super) fn to_wire(&self) -> WireDests {
        WireDests(self.0.to_vec())
    }

    /// The set a peer sent, unless it names a number that is no node's.
    pub(super) fn from_wire(wire: &WireDests, members: usize) -> Option<Self> {
        let set = Self(wire.0.as_slice().into());
        let known = wire.0.len() == members.div_ceil(64);
        (known && set.iter().all(|node| node.index() < members)).then_some(set)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sets_keep_what_is_put_in() {
        let nodes = [0, 63, 64, 129].map(NodeId);
        let set = Dests::of(nodes, 130);
        assert_eq!(set.iter().collect::<Vec<_>>(), nodes);
        assert_eq!(Dests::from_wire(&set.to_wire(), 130).unwrap(), set);
        assert_eq!(Dests::from_wire(&set.to_wire(), 129), None);
        let less = set.without(&Dests::of([NodeId(63)], 130));
        assert!(set.covers(&less) && !less.covers(&set) && less.len() == 3);
        assert_eq!(less.with(NodeId(63)), set);
    }
}
