//! A node's peers by name: few, looked up far more often than changed, so sorted lists.

use outpour_core::NodeId;

/// What is kept of each peer that is up.
#[derive(Debug)]
pub(crate) struct Peers<P> {
    /// A list of their own, so that a name is found within a few cache lines.
    nodes: Vec<NodeId>,
    /// Of each node, in the same order.
    peers: Vec<P>,
}

impl<P> Default for Peers<P> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            peers: Vec::new(),
        }
    }
}

impl<P> Peers<P> {
    fn at(&self, node: NodeId) -> Result<usize, usize> {
        debug_assert_eq!(self.nodes.len(), self.peers.len());
        self.nodes.binary_search(&node)
    }

    pub(crate) const fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.at(node).is_ok()
    }

    /// Adds a peer, in place of an earlier one of that name.
    pub(crate) fn insert(&mut self, node: NodeId, peer: P) {
        match self.at(node) {
            Ok(at) => self.peers[at] = peer,
            Err(at) => {
                self.nodes.insert(at, node);
                self.peers.insert(at, peer);
            }
        }
        debug_assert!(self.nodes.is_sorted_by(|a, b| a < b));
    }

    pub(crate) fn remove(&mut self, node: NodeId) -> Option<P> {
        let at = self.at(node).ok()?;
        let removed = self.nodes.remove(at);
        debug_assert_eq!(removed, node);
        debug_assert!(!self.nodes.contains(&node), "{node} was there twice");
        Some(self.peers.remove(at))
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&P> {
        let at = self.at(node).ok()?;
        Some(&self.peers[at])
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut P> {
        let at = self.at(node).ok()?;
        Some(&mut self.peers[at])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &P)> {
        self.nodes.iter().copied().zip(&self.peers)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut P)> {
        self.nodes.iter().copied().zip(&mut self.peers)
    }

    /// All of them, beginning after `node` and going round.
    pub(crate) fn iter_after(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &P)> {
        let start = self.at(node).map_or_else(|at| at, |at| at + 1);
        let round = (start..self.len()).chain(0..start);
        round.map(|at| (self.nodes[at], &self.peers[at]))
    }

    /// The names of those that `choose` picks.
    pub(crate) fn pick(&self, choose: impl Fn(&P) -> bool) -> Vec<NodeId> {
        self.iter()
            .filter(|(_, peer)| choose(peer))
            .map(|(node, _)| node)
            .collect()
    }
}
