//! What a node of the mesh believes of itself.

use outpour_core::Time;

use super::Swarm;

impl Swarm {
    /// What holds between any two events. It looks at every neighbour, as most events do anyway,
    /// and at counts instead of sets.
    pub(super) fn check(&self, now: Time) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.lacking.count() <= self.have.missing());
        debug_assert!(
            !self.setup.want.is_full() || self.lacking.count() == self.have.missing(),
            "a node that wants everything lacks what is not here"
        );
        debug_assert!(!self.called[self.setup.me.index()]);
        debug_assert!(self.bored_since <= now);
        debug_assert!(
            self.lacking.is_empty() || self.ticking,
            "nothing looks whether what is lacking comes"
        );
        debug_assert!(
            self.news.is_empty() || self.announcing,
            "news that is never told"
        );
        debug_assert!(self.news.len() <= self.have.count() as usize);
        for (node, peer) in self.neighbours.iter() {
            debug_assert!(node != self.setup.me, "its own neighbour");
            peer.check(now);
        }
        self.downloads.check(&self.have, &self.neighbours);
        self.uploads.check(&self.have, &self.neighbours);
    }
}
