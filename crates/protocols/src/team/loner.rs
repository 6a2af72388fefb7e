//! Nodes that do not want everything, which nobody can know before they say so.
//!
//! - A *loner* wants a part of the object, or nothing. It fetches what it wants for itself, wherever that
//!   is, and takes no work and gives none: of what it does not want it would fetch nothing. It leaves to
//!   its mates what they fetch anyway, and helps itself once nothing comes of that.
//! - A *relay* is a loner that wants nothing. It gives others what it has. It fetches for one that
//!   gets something nowhere else, as may be if that has parted from all who have it: that one sends it on
//!   an *errand*, once it has called all nodes. No relay goes on errands for another.

use std::ops::Range;

use outpour_core::{BlockId, BlockSet, NodeId, Time};

use super::peers::share;
use super::{Kind, Message, Peer, Team};
use crate::{Actions, Role, Setup};

/// Whether a node of a setup takes no work.
pub(super) fn is_loner(setup: &Setup) -> bool {
    let mut known = setup.want.clone();
    known.union(&setup.have);
    !known.is_full()
}

/// What a node is to fetch for its cluster, in which relays fetch nothing; nothing for a relay.
pub(super) fn share_of(setup: &Setup, mates: &[NodeId]) -> Range<BlockId> {
    let fetches = |node: &&NodeId| setup.members[node.index()].role != Role::Relay;
    let fetchers: Vec<&NodeId> = mates.iter().filter(fetches).collect();
    let rank = fetchers.iter().position(|node| **node == setup.me);
    rank.map_or(0..0, |rank| share(rank, fetchers.len(), setup.have.len()))
}

impl Team {
    /// What this node neither has nor is to get.
    pub(super) fn spurned(&self) -> BlockSet {
        let mut spurned = BlockSet::full(self.have.len());
        spurned.subtract(&self.have);
        spurned.subtract(&self.lacking);
        spurned
    }

    /// Whether this node is to get something that it does not have.
    pub(crate) const fn lacks(&self) -> bool {
        !self.lacking.is_empty()
    }

    /// A loner fetches all itself that no mate has that it can reach. So does one with a loner for a mate
    /// that has called all nodes: who has a block may be out of its reach, and a loner does not pass on what
    /// it does not want. Whether this node is one of them.
    pub(super) fn fend_for_itself(&mut self, called_all: bool) -> bool {
        let among_loners = |(_, peer): (NodeId, &Peer)| peer.local && peer.loner;
        let forlorn = called_all && self.peers.iter().any(among_loners);
        if self.kind == Kind::Mates || !(self.loner || forlorn) {
            return false;
        }
        let open: Vec<BlockId> = self.interest.open().iter().collect();
        for block in open {
            if self.is_near(block) || !self.interest.gild(block) {
                continue;
            }
            let (interest, preference) = (&self.interest, &self.preference);
            for (_, peer) in self.peers.iter_mut() {
                if !peer.local && peer.theirs.contains(block) {
                    peer.offer(block, interest, preference);
                }
            }
        }
        true
    }

    // ---- errands

    /// Sends those who want nothing for what is to be got nowhere else.
    pub(super) fn send_out(&self, out: &mut Actions) {
        if self.relay || self.kind != Kind::Robber {
            return;
        }
        let idle = |local: bool| {
            self.peers.pick(move |peer| {
                peer.local == local && peer.greeted && peer.done && !peer.theirs.is_full()
            })
        };
        for (local, of) in [(true, self.interest.open()), (false, self.interest.gold())] {
            let blocks = of.to_wire();
            out.send_all(idle(local), &Message::Fetch { blocks });
        }
    }

    pub(super) fn on_fetch(
        &mut self,
        now: Time,
        from: NodeId,
        blocks: BlockSet,
        out: &mut Actions,
    ) {
        if !self.relay || self.kind != Kind::Robber {
            return;
        }
        if let Some(peer) = self.peers.get_mut(from) {
            peer.errand = Some(blocks);
        }
        self.run_errands(now, out);
        self.fill_all(out);
    }

    /// Of a relay: finds out what it is to get for others.
    pub(super) fn run_errands(&mut self, now: Time, out: &mut Actions) {
        if !self.relay || (self.lacking.is_empty() && !self.has_errands()) {
            return;
        }
        let mut lacking = BlockSet::new(self.have.len());
        for (_, peer) in self.peers.iter().filter(|(_, peer)| !peer.done) {
            let Some(errand) = &peer.errand else { continue };
            let mut errand = errand.clone();
            errand.subtract(&peer.theirs);
            lacking.union(&errand);
        }
        for (_, peer) in self.peers.iter() {
            // It comes, be it needed or not.
            peer.requests.asked().iter().for_each(|block| {
                lacking.insert(*block);
            });
        }
        lacking.subtract(&self.have);
        let (mut more, mut less) = (lacking.clone(), self.lacking.clone());
        more.subtract(&self.lacking);
        less.subtract(&lacking);
        let began = self.lacking.is_empty();
        self.lacking = lacking;
        less.iter().for_each(|block| self.interest.close(block));
        more.iter().for_each(|block| self.reopen(block, true));
        if began && self.lacks() {
            self.repair.restart(now);
        }
        if !more.is_empty() {
            let told = |local: bool| {
                self.peers
                    .pick(move |peer| peer.local == local && peer.greeted)
            };
            self.desire_at_home(told(true), out);
            self.desire(told(false), out);
            self.tick_on(now, out);
        } else if !began && !self.lacks() {
            self.finish(out);
        }
    }

    fn has_errands(&self) -> bool {
        self.peers
            .iter()
            .any(|(_, peer)| !peer.done && peer.errand.is_some())
    }
}
