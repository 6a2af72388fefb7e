//! A node's peers by name: few, looked through far more often than changed, so a sorted list.

use outpour_core::NodeId;

/// What is kept of each peer that is up.
#[derive(Debug)]
pub(crate) struct Peers<P> {
    list: Vec<(NodeId, P)>,
}

impl<P> Default for Peers<P> {
    fn default() -> Self {
        Self { list: Vec::new() }
    }
}

impl<P> Peers<P> {
    fn at(&self, node: NodeId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&node, |(other, _)| *other)
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.at(node).is_ok()
    }

    /// Adds a peer, in place of an earlier one of that name.
    pub(crate) fn insert(&mut self, node: NodeId, peer: P) {
        match self.at(node) {
            Ok(at) => self.list[at].1 = peer,
            Err(at) => self.list.insert(at, (node, peer)),
        }
        debug_assert!(self.list.is_sorted_by(|(a, _), (b, _)| a < b));
    }

    pub(crate) fn remove(&mut self, node: NodeId) -> Option<P> {
        let at = self.at(node).ok()?;
        let (removed, peer) = self.list.remove(at);
        debug_assert_eq!(removed, node);
        debug_assert!(!self.contains(node), "{node} was there twice");
        Some(peer)
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&P> {
        let at = self.at(node).ok()?;
        Some(&self.list[at].1)
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut P> {
        let at = self.at(node).ok()?;
        Some(&mut self.list[at].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &P)> {
        self.list.iter().map(|(node, peer)| (*node, peer))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut P)> {
        self.list.iter_mut().map(|(node, peer)| (*node, peer))
    }

    /// The names of those that `choose` picks.
    pub(crate) fn pick(&self, choose: impl Fn(&P) -> bool) -> Vec<NodeId> {
        self.iter()
            .filter(|(_, peer)| choose(peer))
            .map(|(node, _)| node)
            .collect()
    }
}
