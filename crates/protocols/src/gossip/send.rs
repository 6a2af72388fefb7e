//! The sending side: offers to one successor after the other, and what is granted.

use std::time::Duration;

use outpour_core::{NodeId, Time};

use super::message::{Message, Piece};
use super::neighbour::{Offered, Repute};
use super::receive::AHEAD_MAX;
use super::{Gossip, Schedule};
use crate::{Action, Actions, SEND_QUEUE_MAX};

/// Pieces on their way to one peer.
pub(super) const QUEUED_MAX: usize = 4;
const _: () = assert!(QUEUED_MAX <= SEND_QUEUE_MAX);
const _: () = assert!(
    QUEUED_MAX <= u8::MAX as usize,
    "an offer says how many are queued"
);
const _: () = assert!(
    QUEUED_MAX >= AHEAD_MAX,
    "what may be granted at once can be sent"
);
/// A piece under way for longer than this and so many times the usual holds no slot: its receiver
/// is slow, and the others shall not wait for it. The same goes for an answer.
const STUCK: Duration = Duration::from_millis(500);
const STUCK_TIMES: f64 = 4.0;
/// As long as it is not known how long pieces take.
const STUCK_FIRST: Duration = Duration::from_secs(10);

/// A time without pieces that is longer than this, in seconds, and so many usual gaps is a pause.
const PAUSE: f64 = 1.0;
const PAUSE_GAPS: f64 = 4.0;

/// An offer that stands for so long is made again if there is room to send: it is among the first
/// that come to mind then.
const AGAIN: Duration = Duration::from_millis(250);
/// An offer without an answer for so long, too.
const UNANSWERED: Duration = Duration::from_secs(2);

/// If no node of good repute took anything for so long, others may.
const UNWANTED: Duration = Duration::from_secs(2);

impl Gossip {
    /// Whether a piece is on its way to a node, and not stuck.
    fn sending(&self, now: Time, node: NodeId) -> bool {
        let stuck = match self.service {
            0.0 => STUCK_FIRST,
            usual => STUCK.max(Duration::from_secs_f64(STUCK_TIMES * usual)),
        };
        let to_it = |(to, since): &(NodeId, Time)| *to == node && now.since(*since) < stuck;
        self.sends.iter().any(to_it)
    }

    /// Slots that are in use, and those that are kept for answers to offers.
    fn slots_held(&self, now: Time) -> (usize, usize) {
        let asked = |offered| matches!(offered, Offered::Asked(at) if now.since(at) < STUCK);
        let (mut used, mut kept) = (0, 0);
        for (node, peer) in self.neighbours.iter() {
            if self.sending(now, node) {
                used += 1;
            } else if asked(peer.offered) {
                kept += 1;
            }
        }
        (used, kept)
    }

    fn slots(&self) -> usize {
        self.cover(self.sent_gap)
    }

    /// How many successors this node sends to before all others. Where one batch is moved after the
    /// other there is less to choose from, and keeping to a few only takes longer.
    pub(super) fn partner_count(&self) -> usize {
        let many = self.coded && self.options.schedule == Schedule::Stream;
        if many { self.slots_least } else { 0 }
    }

    /// Offers what is here while there is room to send it, to partners first.
    pub(super) fn pump(&mut self, now: Time, out: &mut Actions) {
        let lead = self.lead();
        let until = lead.map_or(u32::MAX, |lead| lead.until);
        let served = self.good_are_served(now);
        loop {
            let (used, kept) = self.slots_held(now);
            if used + kept >= self.slots() {
                break;
            }
            let (neighbours, hold, repute) = (&self.neighbours, &self.hold, &self.repute);
            let may = |node: NodeId| served || repute.get(node.index()) != Some(&Repute::Bad);
            let will_do = |node: NodeId| {
                may(node)
                    && neighbours.get(node).is_some_and(|peer| {
                        let led = peer.offered_lead != lead;
                        let may = match peer.offered {
                            Offered::Not => true,
                            Offered::Asked(at) => now.since(at) >= UNANSWERED,
                            Offered::Stands => led || now.since(peer.offered_at) >= AGAIN,
                            Offered::Stale => led || peer.offered_gains != hold.gains,
                        };
                        may && peer.queue < QUEUED_MAX && hold.has_for(&peer.whole, until)
                    })
            };
            let partners = self.topology.partners(self.partner_count());
            let partner = partners.iter().copied().find(|node| will_do(*node));
            let any = || {
                let mut all = neighbours.iter().map(|(node, _)| node);
                all.find(|node| will_do(*node))
            };
            let next = partner.or_else(|| self.topology.next(will_do));
            let Some(to) = next.or_else(any) else { break };
            self.offer(now, to, out);
        }
    }

    /// Whether all neighbours of good repute have everything, or do not want it.
    fn good_are_served(&self, now: Time) -> bool {
        let mut peers = self.neighbours.iter();
        now.since(self.served) >= UNWANTED
            || peers.all(|(node, peer)| self.is_bad(node) || peer.whole.is_full())
    }

    fn is_bad(&self, node: NodeId) -> bool {
        self.repute.get(node.index()) == Some(&Repute::Bad)
    }

    /// A node sent something wrong here: it is cut off, and the others are told.
    pub(super) fn convict(&mut self, peer: NodeId, out: &mut Actions) {
        if !std::mem::replace(&mut self.gone[peer.index()], true) {
            self.convicts.push(peer);
            let all = self.neighbours.pick(|_| true);
            out.send_all(all, &Message::Convicted { peer });
        }
    }

    /// A neighbour says that a node sent it something wrong. One alone may lie.
    pub(super) fn on_convicted(&mut self, from: NodeId, peer: NodeId) {
        if let Some(repute) = self.repute.get_mut(peer.index()) {
            *repute = match *repute {
                Repute::Good => Repute::Doubtful(from),
                Repute::Doubtful(first) if first == from => Repute::Doubtful(first),
                Repute::Doubtful(_) | Repute::Bad => Repute::Bad,
            };
        }
    }

    fn offer(&mut self, now: Time, to: NodeId, out: &mut Actions) {
        let lead = self.lead();
        let (used, _) = self.slots_held(now);
        let spare = 2 * used < self.slots();
        let Some(peer) = self.neighbours.get_mut(to) else {
            return;
        };
        debug_assert!(!peer.whole.is_full(), "{to} lacks nothing");
        peer.offered = Offered::Asked(now);
        peer.offered_at = now;
        peer.offered_gains = self.hold.gains;
        peer.offered_lead = lead;
        peer.offered_blocks = peer.careful;
        let offer = Message::Offer {
            parts: self.hold.parts(&peer.whole, peer.careful),
            lead,
            queued: peer.queue as u8,
            spare,
        };
        debug_assert!(offer.is_sound(self.hold.batches));
        out.send(to, &offer);
        self.tick_on(now, out);
    }

    /// A neighbour has no use for an offer now.
    pub(super) fn on_busy(&mut self, now: Time, from: NodeId, idle: bool, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(from) {
            peer.answers(now, &mut self.round_trip);
            peer.offered = match idle {
                _ if peer.careful && !peer.offered_blocks => Offered::Not,
                true => Offered::Stale,
                false => Offered::Stands,
            };
        }
        self.pump(now, out);
    }

    /// A neighbour makes use of an offer.
    pub(super) fn on_grant(
        &mut self,
        now: Time,
        from: NodeId,
        piece: Piece,
        more: bool,
        out: &mut Actions,
    ) {
        let Some(peer) = self.neighbours.get_mut(from) else {
            return;
        };
        let asked = peer.answers(now, &mut self.round_trip);
        peer.offered = Offered::Not;
        let queued = peer.queue;
        let (used, _) = self.slots_held(now);
        let may = asked || used < self.slots();
        let may = may && queued < QUEUED_MAX;
        let action = may.then(|| self.make(from, piece)).flatten();
        match action {
            Some(action) => {
                self.dispatch(now, from, action, more, out);
                self.on_source_send(out);
            }
            None => {
                // What cannot be sent is not offered again as long as it is all there is.
                if may && let Some(peer) = self.neighbours.get_mut(from) {
                    peer.offered = Offered::Stale;
                }
                out.send(from, &Message::Decline { piece });
            }
        }
        self.pump(now, out);
    }

    /// What is sent for a grant, if anything can be.
    fn make(&mut self, to: NodeId, piece: Piece) -> Option<Action> {
        let (batch, pure) = match piece {
            Piece::Block(block) => {
                let here = self.hold.have.contains(block);
                if let Some(seeding) = self.seeding.as_mut().filter(|_| here) {
                    seeding.learn(std::iter::once(block));
                }
                return here.then_some(Action::SendBlock { to, block });
            }
            Piece::Packet { batch, pure } => (batch, pure),
        };
        if !self.coded {
            return None;
        }
        let peer = self.neighbours.get(to)?;
        let led = peer.offered_lead.and_then(|lead| lead.fresh) == Some(batch);
        if let Some(seeding) = &mut self.seeding {
            if let Some(block) = seeding.give(self.hold.batches.range(batch), &peer.blocks) {
                return Some(Action::SendBlock { to, block });
            }
            // All its blocks were given since it was offered as fresh.
            if led && peer.offered_lead != self.lead() {
                return None;
            }
        }
        if self.hold.whole.contains(batch) {
            return Some(Action::SendPacket {
                to,
                batch,
                pure: true,
            });
        }
        let live = self.hold.live.get(&batch)?;
        let pure = pure || live.holding.rank == live.pure;
        let rank = if pure { live.pure } else { live.holding.rank };
        (rank > 0 && (pure || !live.spoiled)).then_some(Action::SendPacket { to, batch, pure })
    }

    fn dispatch(&mut self, now: Time, to: NodeId, action: Action, more: bool, out: &mut Actions) {
        debug_assert!(self.up[to.index()]);
        if let Some(peer) = self.neighbours.get_mut(to) {
            debug_assert!(peer.queue < QUEUED_MAX);
            peer.queue += 1;
        }
        self.sends.push_back((to, now));
        if !self.is_bad(to) {
            self.served = now;
        }
        // The answer comes while this piece is on its way.
        if more && !self.is_bad(to) {
            self.offer(now, to, out);
        }
        out.push(action);
        self.tick_on(now, out);
    }

    /// Sends what a peer pulled.
    pub(super) fn run_errands(&mut self, now: Time, to: NodeId, out: &mut Actions) {
        if self.is_bad(to) && !self.good_are_served(now) {
            return;
        }
        while self
            .neighbours
            .get(to)
            .is_some_and(|peer| peer.queue < QUEUED_MAX)
            && let Some(block) = self.mender.next_errand(to)
        {
            if self.hold.have.contains(block) {
                self.dispatch(now, to, Action::SendBlock { to, block }, false, out);
            }
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, to: NodeId, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(to) {
            debug_assert!(peer.queue > 0, "{to} was sent nothing");
            peer.queue = peer.queue.saturating_sub(1);
        }
        let share = self.sends.len().max(1) as f64;
        if let Some(at) = self.sends.iter().position(|(node, _)| *node == to)
            && let Some((_, since)) = self.sends.remove(at)
        {
            let service = now.since(since).as_secs_f64();
            smooth(&mut self.service, service);
            let last = self.left.replace(now);
            smooth_gap(&mut self.sent_gap, last, now, service / share);
        }
        self.run_errands(now, to, out);
        self.pump(now, out);
    }

    /// Tells all neighbours which batches got whole here. A node that has everything is told, too: a
    /// source goes by it; but not of every block.
    pub(super) fn announce(&mut self, out: &mut Actions) {
        let batches = std::mem::take(&mut self.news);
        debug_assert!(batches.iter().all(|batch| self.hold.whole.contains(*batch)));
        if !batches.is_empty() {
            let all = self.coded;
            let told = self.neighbours.pick(|peer| all || !peer.whole.is_full());
            out.send_all(told, &Message::Whole { batches });
        }
    }

    /// A neighbour takes only what is made of verified blocks: offers have to say what these are.
    pub(super) fn on_careful(&mut self, now: Time, from: NodeId, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(from) {
            peer.careful = true;
            if !matches!(peer.offered, Offered::Asked(_)) {
                peer.offered = Offered::Not;
            }
        }
        self.be_careful(now, out);
        self.pump(now, out);
    }
}

/// Moves an average gap a little towards the time since `last`. It begins with `first`: the first
/// few pieces go together, and end together.
pub(super) fn smooth_gap(gap: &mut f64, last: Option<Time>, now: Time, first: f64) {
    let pause = PAUSE.max(PAUSE_GAPS * *gap);
    let since = last.map_or(first, |last| now.since(last).as_secs_f64());
    smooth(gap, since.min(pause));
}

/// Moves an average a little towards a new value.
pub(super) fn smooth(average: &mut f64, value: f64) {
    debug_assert!(value >= 0.0);
    debug_assert!(value.is_finite());
    *average += if *average == 0.0 {
        value
    } else {
        0.1 * (value - *average)
    };
}
