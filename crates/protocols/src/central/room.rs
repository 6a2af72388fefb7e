//! Leaving room on links between sites for latency-sensitive traffic, if the user asked for that [BDS §5.2].
//!
//! Sources are told what was measured of it. The leader's decisions leave room for it, and lanes keep to the
//! rates that were ordered. What moves without an order, as when there is no leader, keeps to an equal part of
//! what the link leaves to bulk: each pair of nodes to one, as none knows what the others send. So sources
//! tell all others what was measured.

use outpour_core::network::{Network, Resource};
use outpour_core::separation::{TRAFFIC_LINKS_MAX, Traffic};
use outpour_core::{NodeId, Rate, Separation, Time};

use super::{Agent, Central, Message, NONSENSE, Peer};
use crate::peers::Peers;
use crate::{Action, Actions, Setup};

/// Which part of a link's packets is blocks, where packets are as small as those of Ethernet: headers of
/// packets, of encryption and of messages are the rest.
pub(super) const BLOCKS_SHARE: f64 = 0.95;

/// What each peer may be sent without an order, while so much traffic is measured.
fn shares(
    setup: &Setup,
    nodes: &[NodeId],
    network: &Network,
    rule: Separation,
    traffic: &[Traffic],
) -> Vec<Rate> {
    let members = &setup.members;
    let me = setup.me.index();
    let count = |cluster: u32| members.iter().filter(|it| it.cluster == cluster).count();
    let mine = count(members[me].cluster);
    let share = |(index, member): (usize, &crate::Member)| {
        if member.cluster == members[me].cluster {
            return Rate::UNLIMITED;
        }
        let path = network.path(nodes[me], nodes[index]);
        let wide = path.resources().iter().filter_map(|resource| {
            let measured = match resource {
                Resource::Link(from, to) => {
                    traffic.iter().find(|it| (it.from, it.to) == (*from, *to))
                }
                Resource::ClusterOut(_) | Resource::ClusterIn(_) => None,
                _ => return None,
            };
            let (now, peak) = measured.map_or((Rate::ZERO, Rate::ZERO), |it| (it.rate, it.peak));
            Some(rule.leaves(network.capacity(*resource), now, peak))
        });
        let left = wide.fold(Rate::UNLIMITED, Rate::min);
        let pairs = (mine * count(member.cluster)).max(1) as f64;
        Rate::from_bytes_per_s(left.bytes_per_s() * BLOCKS_SHARE / pairs).unwrap_or(Rate::UNLIMITED)
    };
    members.iter().enumerate().map(share).collect()
}

impl Central {
    /// What there is at the start, before anything was measured.
    pub(super) fn leave_room(&mut self, out: &mut Actions) {
        if let (Some(rule), Some(network)) = (self.options.separation, &self.shared) {
            let nodes = &self.options.nodes;
            let shares = shares(&self.setup, nodes, network, rule, &self.traffic);
            self.agent.keep_to(shares, out);
        }
    }

    /// The command says what was measured.
    pub(super) fn on_foreground(&mut self, now: Time, traffic: &[Traffic], out: &mut Actions) {
        if self.options.separation.is_none() {
            return;
        }
        // On what is no link there is none.
        let clusters = self.clusters();
        let sound = traffic.iter().filter(|it| it.is_sound(clusters));
        self.traffic = sound.take(TRAFFIC_LINKS_MAX).cloned().collect();
        self.leave_room(out);
        let traffic = self.traffic.clone();
        out.send_all(self.peers.pick(|_| true), &Message::Traffic { traffic });
        self.tell_leading(now, out);
    }

    /// Tells the controller, if it is here, what was measured.
    pub(super) fn tell_leading(&mut self, now: Time, out: &mut Actions) {
        if self.options.separation.is_some() && self.leading.is_some() {
            let traffic = self.traffic.clone();
            self.lead(now, out, |leading| leading.measured(now, &traffic));
        }
    }

    /// A peer is up: it has to know what was measured.
    pub(super) fn tell_traffic(&self, node: NodeId, out: &mut Actions) {
        let rule = self.options.separation.is_some();
        if rule && self.is_source(self.setup.me) && !self.traffic.is_empty() {
            let traffic = self.traffic.clone();
            out.send(node, &Message::Traffic { traffic });
        }
    }

    /// A source says what was measured. Sources are told by the command, and heed nobody else.
    pub(super) fn on_traffic(&mut self, from: NodeId, traffic: Vec<Traffic>, out: &mut Actions) {
        let clusters = self.clusters();
        let sound = traffic.len() <= TRAFFIC_LINKS_MAX
            && traffic.iter().all(|it| it.is_sound(clusters))
            && self.options.separation.is_some();
        if !sound || !self.is_source(from) {
            return self.accuse(from, NONSENSE, out);
        }
        if !self.is_source(self.setup.me) {
            self.traffic = traffic;
            self.leave_room(out);
        }
    }

    fn clusters(&self) -> usize {
        let network = self.shared.as_ref();
        network.map_or(0, |network| network.clusters().len())
    }
}

impl Agent {
    /// What a member is sent at most without an order: what is with the driver leaves within a while.
    fn share(&self, node: NodeId) -> Rate {
        let least = Rate::from_bytes_per_s(self.least).unwrap_or(Rate::UNLIMITED);
        let share = self.shares.get(node.index()).copied();
        share.unwrap_or(Rate::UNLIMITED).max(least)
    }

    /// Sends each member no more than this without an order, from now on.
    fn keep_to(&mut self, shares: Vec<Rate>, out: &mut Actions) {
        let before = std::mem::replace(&mut self.shares, shares);
        for to in self.kept.iter().copied() {
            if before.get(to.index()) != self.shares.get(to.index()) {
                let rate = self.share(to);
                out.push(Action::SetRate { to, rate });
            }
        }
    }

    /// A peer is about to be sent a block without an order.
    pub(super) fn keep(&mut self, to: NodeId, out: &mut Actions) {
        if !self.shares.is_empty() && !self.has_lane(to) && self.kept.insert(to) {
            let rate = self.share(to);
            out.push(Action::SetRate { to, rate });
        }
    }

    /// A lane is over; what of it is with the driver still leaves. Where there is no such thing no rate is kept to,
    /// as transfers share the link to a peer: the lowest rate that one of them wants holds for all.
    pub(super) fn is_over(&mut self, to: NodeId, peers: &Peers<Peer>, out: &mut Actions) {
        debug_assert!(!self.has_lane(to), "it is over");
        let Some(peer) = peers.get(to) else { return };
        let rate = match self.shares.is_empty() || peer.queued.is_empty() {
            true => Rate::UNLIMITED,
            false => {
                self.kept.insert(to);
                self.share(to)
            }
        };
        out.push(Action::SetRate { to, rate });
    }

    /// A block has left for a peer: if it was the last one there is no rate to keep to.
    pub(super) fn keep_no_more(&mut self, to: NodeId, peer: &Peer, out: &mut Actions) {
        if peer.queued.is_empty() && self.kept.remove(&to) {
            let rate = Rate::UNLIMITED;
            out.push(Action::SetRate { to, rate });
        }
    }
}
