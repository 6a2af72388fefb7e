//! What a coordinator believes of itself.

use super::{Coordinator, NOTICES_MAX};

impl Coordinator {
    /// What holds between any two inputs. It looks at every node, as each input does anyway.
    ///
    /// Nothing is said of times: a host takes out those in which it stood still.
    pub(super) fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert_eq!(self.nodes.len(), self.config.nodes.len());
        debug_assert!(self.accusations.iter().all(|it| *it <= NOTICES_MAX));
        debug_assert!(self.misses.iter().all(|it| *it <= NOTICES_MAX));
        for host in &self.nodes {
            host.check(self.config.size_bytes);
        }
        let mut verdicts = self.hosts().map(|(_, host)| host.state.is_final());
        debug_assert_eq!(self.ended, verdicts.all(|is_final| is_final));
        debug_assert!(
            self.source_lost.is_none() || !self.sources().any(|source| source.is_present()),
            "a source is lost and present"
        );
        debug_assert!(self.refused.is_none() || self.ended);
        debug_assert!(
            self.refused
                .is_none_or(|node| self.nodes[node.index()].error.is_some()),
            "a host that refuses the cast fails"
        );
        if let Some(census) = &self.census {
            debug_assert!(self.source_lost.is_some(), "hosts are asked without need");
            let mut waiting = census.waiting();
            debug_assert!(
                waiting.all(|node| self.nodes[node.index()].is_present()),
                "an answer is expected of a host that is out"
            );
        }
        debug_assert!(
            (self.contacts.iter().flat_map(|it| it.iter()))
                .all(|(node, _)| self.nodes[node.index()].is_present()),
            "a contact of a host that is out"
        );
    }
}
