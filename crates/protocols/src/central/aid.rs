//! What nodes do for each other without orders.
//!
//! - The nodes of a site are a team of *mates*: what comes into the site they pass on among themselves.
//! - Without a leader those in need and all that they can reach are a team of *robbers*, each with what
//!   it has.
//!
//! A node is part of one team at a time. Each time it becomes part of one, its part is made anew and gets
//! a number. Two parts of a kind talk once each knows the other's; what was said to an earlier part is
//! dropped.

use std::collections::BTreeSet;

use outpour_core::{NodeId, Time};

use super::{Central, Message, Peer, TEAM_TIMERS};
use crate::peers::Peers;
use crate::team::{Kind, Team};
use crate::{Action, Actions, Event, Protocol, Setup, TimerId};

/// How many timers a team has.
const TIMERS: u32 = 4;

/// A node's part in a team.
pub(super) struct Aid {
    team: Team,
    /// Which of its parts this is, from 1 on.
    pub(super) number: u32,
    pub(super) kind: Kind,
    /// Whether it is for this node's own sake.
    pub(super) needy: bool,
    /// The peers with which it talks.
    up: BTreeSet<NodeId>,
}

/// Of which kind a node's team is, and the number of its part.
pub(super) type Membership = (Kind, u32);

impl Aid {
    pub(super) fn check(&self, peers: &Peers<Peer>) {
        debug_assert!(self.number > 0, "teams have numbers from 1 on");
        let same = |peer: &Peer| peer.team.is_some_and(|(kind, _)| kind == self.kind);
        let known = |node: &NodeId| peers.get(*node).is_some_and(same);
        debug_assert!(self.up.iter().all(known), "it talks to those it knows");
        debug_assert!(!self.needy || self.kind == Kind::Robber);
    }
}

impl Central {
    // ---- becoming part of a team and leaving it

    /// Whether this node takes part in a team of robbers.
    pub(super) fn robs(&self) -> bool {
        self.aid
            .as_ref()
            .is_some_and(|aid| aid.kind == Kind::Robber)
    }

    /// No leader helps this node: asks all for help.
    pub(super) fn need(&mut self, now: Time, out: &mut Actions) {
        if self.aid.as_ref().is_some_and(|aid| aid.needy) {
            return;
        }
        self.join(now, Kind::Robber, out);
        let Some(aid) = &mut self.aid else { return };
        aid.needy = true;
        let team = aid.number;
        out.send_all(self.peers.pick(|_| true), &Message::Needy { team });
    }

    /// There is a leader: no help is needed any more.
    pub(super) fn end_need(&mut self, now: Time, out: &mut Actions) {
        if let Some(aid) = &mut self.aid {
            aid.needy = false;
        }
        self.part(now, out);
    }

    /// A relay whose team sends it for blocks asks all for help, until it has them.
    fn ask_for_errands(&mut self, out: &mut Actions) {
        let relay = self.is_relay();
        let Some(aid) = self.aid.as_mut().filter(|_| relay) else {
            return;
        };
        let needs = aid.kind == Kind::Robber && aid.team.lacks();
        if aid.needy && !needs {
            self.is_helped(out);
        } else if needs && !aid.needy {
            aid.needy = true;
            let team = aid.number;
            out.send_all(self.peers.pick(|_| true), &Message::Needy { team });
        }
    }

    /// This node has all that it wants: it needs no help, and goes on helping.
    pub(super) fn is_helped(&mut self, out: &mut Actions) {
        if let Some(aid) = self.aid.as_mut().filter(|aid| aid.needy) {
            aid.needy = false;
            out.send_all(self.peers.pick(|_| true), &Message::Helped);
        }
    }

    /// Becomes part of the site's team, if nothing else is to be done.
    pub(super) fn go_home(&mut self, now: Time, out: &mut Actions) {
        let planned = self.planned.is_some();
        if planned || self.aid.is_some() || !self.members().any(|node| self.is_mate(node)) {
            return;
        }
        self.join(now, Kind::Mates, out);
        let Some(team) = self.aid.as_ref().map(|aid| aid.number) else {
            return;
        };
        let mates: Vec<(NodeId, Option<Membership>)> = self
            .peers
            .iter()
            .filter(|(node, _)| self.is_mate(*node))
            .map(|(node, peer)| (node, peer.team))
            .collect();
        for (node, theirs) in mates {
            out.send(node, &Message::Home { team });
            if let Some((Kind::Mates, theirs)) = theirs {
                self.meet(now, node, (Kind::Mates, theirs), out);
            }
        }
    }

    /// Makes this node part of a team of a kind, if it is not. Those in need come first.
    fn join(&mut self, now: Time, kind: Kind, out: &mut Actions) {
        if self.robs() || self.aid.as_ref().is_some_and(|aid| aid.kind == kind) {
            return;
        }
        self.end_plan(now, out);
        self.leave(out);
        self.teams += 1;
        let setup = Setup {
            have: self.have.clone(),
            plan: None,
            ..self.setup.clone()
        };
        self.aid = Some(Aid {
            team: Team::new(kind, setup),
            number: self.teams,
            kind,
            needy: false,
            up: BTreeSet::new(),
        });
        self.team(now, Event::Start, out);
        let gone: Vec<NodeId> = self
            .members()
            .filter(|node| self.gone[node.index()])
            .collect();
        for node in gone {
            self.team(now, Event::Left(node), out);
        }
        self.tick_on(now, out);
    }

    /// Ends this node's part in a team of robbers.
    fn part(&mut self, now: Time, out: &mut Actions) {
        if self.robs() {
            self.leave(out);
            self.go_home(now, out);
        }
    }

    fn leave(&mut self, out: &mut Actions) {
        if self.aid.take().is_some() {
            self.peers.iter_mut().for_each(|(_, peer)| peer.part());
            out.send_all(self.peers.pick(|_| true), &Message::Parted);
        }
    }

    // ---- what others say of theirs

    pub(super) fn on_needy(&mut self, now: Time, from: NodeId, team: u32, out: &mut Actions) {
        if team == 0 {
            return self.accuse(from, super::NONSENSE, out);
        }
        if let Some(peer) = self.peers.get_mut(from) {
            peer.needy = true;
        }
        self.join(now, Kind::Robber, out);
        let Some(number) = self.aid.as_ref().map(|aid| aid.number) else {
            return;
        };
        let joined = Message::Joined {
            team: number,
            yours: team,
        };
        out.send(from, &joined);
        self.meet(now, from, (Kind::Robber, team), out);
    }

    pub(super) fn on_home(&mut self, now: Time, from: NodeId, team: u32, out: &mut Actions) {
        if team == 0 || !self.is_mate(from) {
            return self.accuse(from, super::NONSENSE, out);
        }
        self.meet(now, from, (Kind::Mates, team), out);
    }

    pub(super) fn on_joined(
        &mut self,
        now: Time,
        from: NodeId,
        team: u32,
        yours: u32,
        out: &mut Actions,
    ) {
        if team == 0 {
            return self.accuse(from, super::NONSENSE, out);
        }
        let robs = |aid: &Aid| aid.number == yours && aid.kind == Kind::Robber;
        if self.aid.as_ref().is_some_and(robs) {
            self.meet(now, from, (Kind::Robber, team), out);
        }
    }

    /// The parts of this node and of a peer know each other.
    fn meet(&mut self, now: Time, node: NodeId, team: Membership, out: &mut Actions) {
        let Some(peer) = self.peers.get_mut(node) else {
            return;
        };
        let before = peer.team.replace(team);
        let Some(aid) = &mut self.aid else { return };
        if aid.up.contains(&node) && before == Some(team) {
            return;
        }
        if aid.up.remove(&node) {
            peer.part();
            self.team(now, Event::PeerDown(node), out);
        }
        if let Some(aid) = &mut self.aid
            && aid.kind == team.0
        {
            aid.up.insert(node);
            self.team(now, Event::PeerUp(node), out);
        }
    }

    /// A peer's part is no more; who took part for its sake alone has nothing more to do.
    pub(super) fn on_parted(&mut self, now: Time, from: NodeId, out: &mut Actions) {
        if let Some(peer) = self.peers.get_mut(from) {
            (peer.team, peer.needy) = (None, false);
        }
        self.team_lost(now, from, out);
    }

    /// A peer talks no more with this node's part.
    pub(super) fn team_lost(&mut self, now: Time, node: NodeId, out: &mut Actions) {
        let Some(aid) = &mut self.aid else { return };
        if aid.up.remove(&node) {
            if let Some(peer) = self.peers.get_mut(node) {
                peer.part();
            }
            self.team(now, Event::PeerDown(node), out);
        }
        let idle = |aid: &Aid| !aid.needy && aid.up.is_empty();
        if self.aid.as_ref().is_some_and(idle) {
            self.part(now, out);
        }
    }

    pub(super) fn on_team(
        &mut self,
        now: Time,
        from: NodeId,
        yours: u32,
        body: &[u8],
        out: &mut Actions,
    ) {
        let talks = |aid: &Aid| aid.number == yours && aid.up.contains(&from);
        if self.aid.as_ref().is_some_and(talks) {
            self.team(now, Event::Message { from, body }, out);
        }
    }

    // ---- running it

    pub(super) fn team_timer(&mut self, now: Time, timer: TimerId, out: &mut Actions) {
        let Some(aid) = &self.aid else { return };
        let first = TEAM_TIMERS + aid.number * TIMERS;
        if let Some(timer) = timer.0.checked_sub(first).filter(|timer| *timer < TIMERS) {
            self.team(now, Event::Timer(TimerId(timer)), out);
        }
    }

    /// Tells this node's part something, and does what it wants.
    pub(super) fn team(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        let Some(mut aid) = self.aid.take() else {
            return;
        };
        let mut actions = Actions::default();
        aid.team.handle(now, event, &mut actions);
        for action in actions.drain() {
            self.perform(&aid, action, out);
        }
        self.aid = Some(aid);
        self.ask_for_errands(out);
    }

    fn perform(&mut self, aid: &Aid, action: Action, out: &mut Actions) {
        match action {
            Action::Connect(node) => self.call(node, out),
            Action::Send { to, body } => {
                let team = self.peers.get(to).and_then(|peer| peer.team);
                if let Some((_, yours)) = team.filter(|_| aid.up.contains(&to)) {
                    out.send(to, &Message::Team { yours, body });
                }
            }
            Action::SendBlock { to, block } => {
                let Some(peer) = self.peers.get_mut(to).filter(|_| aid.up.contains(&to)) else {
                    return;
                };
                self.agent.keep(to, out);
                peer.give(to, block, out);
            }
            Action::SetTimer { timer, at } => {
                debug_assert!(timer.0 < TIMERS, "a team has few timers");
                let timer = TimerId(TEAM_TIMERS + aid.number * TIMERS + timer.0);
                out.push(Action::SetTimer { timer, at });
            }
            Action::Accuse { peer, offence } => self.accuse(peer, offence, out),
            // Who holds back what those in need asked for keeps it as long as there is a link. In a site it is
            // for the leader to say what comes from elsewhere, and members that left are parted from anyway.
            Action::Disconnect(node) if aid.kind == Kind::Robber && aid.up.contains(&node) => {
                out.push(Action::Disconnect(node));
            }
            Action::Disconnect(_) | Action::SetRate { .. } | Action::SendPacket { .. } => {}
        }
    }
}
