//! The rates of links that several protocols share.

use std::collections::BTreeMap;

use outpour_core::{NodeId, Rate};

/// What protocols that share the links of a node have set as rates towards its peers.
///
/// A link has one rate: the lowest that any of them has set, so that each is kept. What a peer
/// achieves is told to those that have set one for it.
#[derive(Debug, Default)]
pub struct Rates {
    /// By peer and owner; without those that are unlimited.
    set: BTreeMap<(NodeId, u32), Rate>,
}

impl Rates {
    /// Sets what the owner of a number wants towards a peer; the link's new rate if that changes it.
    pub fn set(&mut self, owner: u32, peer: NodeId, rate: Rate) -> Option<Rate> {
        let old = self.of(peer);
        if rate.is_unlimited() {
            self.set.remove(&(peer, owner));
        } else {
            self.set.insert((peer, owner), rate);
        }
        let new = self.of(peer);
        debug_assert!(new <= rate, "what an owner wants is kept");
        debug_assert_eq!(
            self.owners(peer).contains(&owner),
            !rate.is_unlimited(),
            "those without a limit are not kept"
        );
        (new != old).then_some(new)
    }

    /// Forgets all that an owner has set; the new rates of the links that this changes.
    pub fn forget(&mut self, owner: u32) -> Vec<(NodeId, Rate)> {
        let owned = self.set.keys().filter(|(_, by)| *by == owner);
        let peers: Vec<NodeId> = owned.map(|(peer, _)| *peer).collect();
        let changes = peers
            .into_iter()
            .filter_map(|peer| Some((peer, self.set(owner, peer, Rate::UNLIMITED)?)));
        let changes = changes.collect();
        debug_assert!(self.set.keys().all(|(_, by)| *by != owner));
        changes
    }

    /// The rate of the link to a peer.
    pub fn of(&self, peer: NodeId) -> Rate {
        let set = self.set.range((peer, 0)..=(peer, u32::MAX));
        debug_assert!(set.clone().all(|(_, rate)| !rate.is_unlimited()));
        set.fold(Rate::UNLIMITED, |least, (_, rate)| least.min(*rate))
    }

    /// Which users have set a rate towards a peer.
    pub fn owners(&self, peer: NodeId) -> Vec<u32> {
        let set = self.set.range((peer, 0)..=(peer, u32::MAX));
        set.map(|((_, owner), _)| *owner).collect()
    }

    /// The peers towards which any user has set a rate.
    pub fn limited(&self) -> Vec<NodeId> {
        let mut peers: Vec<NodeId> = self.set.keys().map(|(peer, _)| *peer).collect();
        peers.dedup();
        debug_assert!(peers.is_sorted(), "equal ones are next to each other");
        peers
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PEER: NodeId = NodeId(1);

    fn rate(bytes_per_s: f64) -> Rate {
        Rate::from_bytes_per_s(bytes_per_s).unwrap()
    }

    #[test]
    fn the_lowest_rate_holds_until_its_owner_takes_it_back() {
        let mut rates = Rates::default();
        assert_eq!(rates.set(0, PEER, Rate::UNLIMITED), None);
        assert_eq!(rates.set(0, PEER, rate(5.0)), Some(rate(5.0)));
        assert_eq!(rates.set(1, PEER, rate(9.0)), None);
        assert_eq!(rates.owners(PEER), [0, 1]);
        assert_eq!(rates.set(0, PEER, Rate::UNLIMITED), Some(rate(9.0)));
        assert_eq!(rates.owners(PEER), [1]);
        assert_eq!(rates.set(1, PEER, Rate::ZERO), Some(Rate::ZERO));
        assert_eq!(rates.limited(), [PEER]);
        assert_eq!(rates.forget(0), []);
        assert_eq!(rates.forget(1), [(PEER, Rate::UNLIMITED)]);
        assert_eq!(rates.limited(), []);
    }

    #[test]
    fn peers_do_not_share_a_rate() {
        let mut rates = Rates::default();
        let other = NodeId(2);
        rates.set(0, PEER, rate(5.0));
        rates.set(0, other, rate(7.0));
        rates.set(1, other, rate(6.0));
        assert_eq!((rates.of(PEER), rates.of(other)), (rate(5.0), rate(6.0)));
        assert_eq!(rates.limited(), [PEER, other]);
        let changes = [(PEER, Rate::UNLIMITED)];
        assert_eq!(rates.forget(0), changes);
    }
}
