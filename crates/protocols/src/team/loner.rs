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

    /// Sends relays for what is to be got nowhere else.
    pub(super) fn send_out(&self, out: &mut Actions) {
        if self.relay || self.kind != Kind::Robber {
            return;
        }
        let relays = |local: bool| {
            // Also one on an errand: that may be in vain, and then it is never done.
            self.peers
                .pick(move |peer| peer.local == local && peer.greeted && peer.relay)
        };
        for (local, of) in [(true, self.interest.open()), (false, self.interest.gold())] {
            let blocks = of.to_wire();
            out.send_all(relays(local), &Message::Fetch { blocks });
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
        for (_, peer) in self.peers.iter() {
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
        self.peers.iter().any(|(_, peer)| peer.errand.is_some())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_core::blocks::WireBlocks;

    use super::*;
    use crate::{Action, Event, Member, Protocol, TimerId};

    const BLOCKS: u32 = 10;
    const LONER: NodeId = NodeId(1);
    const MATE: NodeId = NodeId(2);

    fn set(blocks: Range<u32>) -> BlockSet {
        let mut set = BlockSet::new(BLOCKS);
        set.insert_range(blocks);
        set
    }

    /// A node of the site of two, beside one with a source.
    fn team(kind: Kind, me: NodeId, have: BlockSet, want: BlockSet) -> Team {
        team_with(Role::Receiver, kind, me, have, want)
    }

    /// The same, where `MATE` has a role.
    fn team_with(mate: Role, kind: Kind, me: NodeId, have: BlockSet, want: BlockSet) -> Team {
        let member = |(cluster, role)| Member { cluster, role };
        let members = [(0, Role::Source), (1, Role::Receiver), (1, mate)];
        let mut team = Team::new(
            kind,
            Setup {
                me,
                members: members.map(member).to_vec(),
                block_bytes: 1024,
                have,
                want,
                seed: 1,
                plan: None,
                batches: None,
            },
        );
        let mut out = Actions::default();
        team.handle(Time::ZERO, Event::Start, &mut out);
        team
    }

    fn tell(team: &mut Team, seconds: f64, event: Event<'_>) -> Vec<Action> {
        let mut out = Actions::default();
        team.handle(Time::from_secs_f64(seconds), event, &mut out);
        out.drain().collect()
    }

    /// What is said to a peer.
    fn said(actions: Vec<Action>, peer: NodeId) -> Vec<Vec<u8>> {
        let said = actions.into_iter().filter_map(|action| match action {
            Action::Send { to, body } if to == peer => Some(body),
            _ => None,
        });
        said.collect()
    }

    fn requests(actions: Vec<Action>, peer: NodeId) -> Vec<BlockId> {
        let asked = said(actions, peer)
            .into_iter()
            .filter_map(|body| match postcard::from_bytes(&body).unwrap() {
                Message::Request { block } => Some(block),
                _ => None,
            });
        asked.collect()
    }

    #[test]
    fn a_mate_knows_what_a_loner_has_and_asks_for_no_more() {
        for lacks in [true, false] {
            // It has two blocks that it does not want, and of those it wants none, or all.
            let mut have = set(8..10);
            if !lacks {
                have.union(&set(0..5));
            }
            let mut loner = team(Kind::Mates, LONER, have.clone(), set(0..5));
            let mut mate = team(Kind::Mates, MATE, BlockSet::new(BLOCKS), set(0..BLOCKS));
            tell(&mut mate, 0.0, Event::PeerUp(LONER));
            let greeting = said(tell(&mut loner, 0.0, Event::PeerUp(MATE)), MATE);
            let mut asked = Vec::new();
            for body in &greeting {
                let (from, body) = (LONER, body.as_slice());
                let heard = tell(&mut mate, 0.1, Event::Message { from, body });
                asked.extend(requests(heard, LONER));
            }
            asked.sort_unstable();
            assert!(!asked.is_empty() && asked.len() <= 5);
            assert!(asked.iter().all(|block| have.contains(*block)), "{asked:?}");
        }
    }

    #[test]
    fn a_relay_runs_errands_as_long_as_they_are_needed() {
        let mut relay = team(
            Kind::Robber,
            LONER,
            BlockSet::new(BLOCKS),
            BlockSet::new(BLOCKS),
        );
        let source = NodeId(0);
        for peer in [source, MATE] {
            tell(&mut relay, 0.0, Event::PeerUp(peer));
        }
        let mut say = |seconds, from, message: &Message| {
            let body = postcard::to_stdvec(message).unwrap();
            let body = body.as_slice();
            tell(&mut relay, seconds, Event::Message { from, body })
        };
        let none = || WireBlocks::Runs(Vec::new());
        let lacks = none();
        say(0.1, source, &Message::Done { lacks });
        let desire = Message::Desire {
            want: set(0..BLOCKS).to_wire(),
            work: none(),
            spurned: none(),
        };
        // That others lack something is no reason to fetch it.
        assert_eq!(requests(say(0.1, MATE, &desire), source), []);
        let blocks = set(3..4).to_wire();
        let fetched = say(1.0, MATE, &Message::Fetch { blocks });
        assert_eq!(requests(fetched, source), [3]);
        say(1.1, source, &Message::Refuse { block: 3 });
        // What it got elsewhere is not fetched any more, least of all from there.
        let heard = say(1.2, MATE, &Message::Have { block: 3 });
        assert_eq!(requests(heard, MATE), []);
        assert!(!relay.lacks());
        // Nor what nobody is there for.
        let blocks = set(4..5).to_wire();
        let body = postcard::to_stdvec(&Message::Fetch { blocks }).unwrap();
        let (from, body) = (MATE, body.as_slice());
        tell(&mut relay, 1.6, Event::Message { from, body });
        let refused = postcard::to_stdvec(&Message::Refuse { block: 4 }).unwrap();
        let (from, body) = (source, refused.as_slice());
        tell(&mut relay, 1.7, Event::Message { from, body });
        assert!(relay.lacks());
        tell(&mut relay, 1.8, Event::PeerDown(MATE));
        assert!(!relay.lacks());
    }

    #[test]
    fn a_relay_that_is_on_an_errand_is_sent_on_another() {
        let (nothing, want) = (BlockSet::new(BLOCKS), set(0..5));
        let mut loner = team_with(Role::Relay, Kind::Robber, LONER, nothing, want);
        tell(&mut loner, 0.0, Event::PeerUp(MATE));
        // It fetches a block that perhaps nobody has.
        let desire = Message::Desire {
            want: set(9..10).to_wire(),
            work: WireBlocks::Runs(Vec::new()),
            spurned: set(0..9).to_wire(),
        };
        let body = postcard::to_stdvec(&desire).unwrap();
        let (from, body) = (MATE, body.as_slice());
        tell(&mut loner, 0.1, Event::Message { from, body });
        let mut sent = Vec::new();
        for second in 1..30 {
            let woken = tell(&mut loner, f64::from(second), Event::Timer(TimerId(0)));
            sent.extend(said(woken, MATE));
        }
        let errand = sent
            .iter()
            .find_map(|body| match postcard::from_bytes(body) {
                Ok(Message::Fetch { blocks }) => BlockSet::from_wire(&blocks, BLOCKS),
                _ => None,
            });
        assert_eq!(errand, Some(set(0..5)));
    }
}
