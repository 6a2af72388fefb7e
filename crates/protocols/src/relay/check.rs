//! What a node of a tree push believes of itself.

use outpour_core::{NodeId, Time};

use super::{DRIED_MAX, Relay, Shape, Upstream};

impl Shape {
    /// Whether it fits a node among so many members.
    pub(super) fn check(&self, me: NodeId, members: usize) {
        debug_assert!(self.before <= self.parents.len());
        debug_assert!(self.parents.len() < members, "some parent is named twice");
        debug_assert!(!self.parents.contains(&me), "its own parent");
        debug_assert!(!self.neighbours.contains(&me), "its own neighbour");
        debug_assert!((self.parents.iter()).all(|node| node.index() < members));
        debug_assert!((self.neighbours.iter()).all(|node| node.index() < members));
        debug_assert!(self.children_max > 0, "no node passes blocks on");
    }
}

impl Relay {
    /// What holds between any two events, in so far as it costs nothing to look.
    pub(super) fn check(&self, now: Time) {
        debug_assert!(self.lacking.count() <= self.have.missing());
        debug_assert!(
            !self.want.is_full() || self.lacking.count() == self.have.missing(),
            "a node that wants everything lacks what is not here"
        );
        debug_assert!(!self.up[self.me.index()]);
        debug_assert!(!self.children.contains_key(&self.me), "its own child");
        debug_assert!(!self.suspects.contains_key(&self.me));
        debug_assert!(self.sought <= now);
        debug_assert!(self.dried <= DRIED_MAX);
        debug_assert!(self.block_gap.is_finite());
        debug_assert!(self.block_gap >= 0.0);
        debug_assert!(self.children.len() as u64 <= self.attachments);
        debug_assert!(
            self.children.is_empty() || self.ticking,
            "children are not told that their parent is alive"
        );
        debug_assert!(
            !self.in_ring || !self.want.is_full(),
            "a node that wants everything does not mind rings"
        );
        match self.upstream {
            Upstream::None => debug_assert!(!self.in_ring),
            Upstream::Connecting { peer, since } => {
                debug_assert!(peer != self.me);
                debug_assert!(!self.up[peer.index()], "{peer} is up and not attached to");
                debug_assert!(since <= now);
            }
            Upstream::Attached {
                peer,
                heard,
                progress,
                received,
                acked,
                ..
            } => {
                debug_assert!(peer != self.me);
                debug_assert!(self.up[peer.index()], "attached to {peer}, which is down");
                debug_assert!(progress <= heard);
                debug_assert!(heard <= now);
                debug_assert!(acked <= received, "more is acknowledged than came");
                debug_assert!(self.want.is_full() || self.above.contains(self.me.0));
            }
        }
        if !matches!(self.upstream, Upstream::None) {
            debug_assert!(self.ticking, "nothing watches the parent");
            debug_assert!(!self.lacking.is_empty(), "a parent is of no use");
        }
    }
}
