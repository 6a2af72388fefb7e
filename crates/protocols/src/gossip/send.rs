//! The sending side: offers to one successor after the other, and what is granted.

use std::time::Duration;

use outpour_core::{BlockId, NodeId, Time};

use super::Gossip;
use super::message::{Message, Piece};
use super::neighbour::Offered;
use crate::{Action, Actions, SEND_QUEUE_MAX};

/// Pieces on their way at once, so that the next begins while one ends. More share the same rate
/// and arrive later. A source has one more: its rate is the one that must never rest.
const SLOTS: usize = 2;
/// How many more may be granted from offers that stood for a while.
const SLOTS_MORE: usize = 1;
/// Pieces on their way to one peer.
const QUEUED_MAX: usize = 4;
const _: () = assert!(QUEUED_MAX <= SEND_QUEUE_MAX);
/// A piece under way for longer than this, or four times the usual, holds no slot: its receiver
/// is slow, and the others shall not wait for it. The same goes for an answer.
const STUCK: Duration = Duration::from_millis(500);

impl Gossip {
    fn slots_held(&self, now: Time) -> usize {
        let stuck = STUCK.max(Duration::from_secs_f64(4.0 * self.service));
        let sends = self.sends.iter();
        let under_way = sends.filter(|(_, since)| now.since(*since) < stuck).count();
        let asked = |offered| matches!(offered, Offered::Asked(at) if now.since(at) < STUCK);
        let answers = self.neighbours.iter();
        under_way + answers.filter(|(_, peer)| asked(peer.offered)).count()
    }

    fn slots(&self) -> usize {
        SLOTS + usize::from(self.seeding.is_some())
    }

    /// Offers what is here while there is room to send it.
    pub(super) fn pump(&mut self, now: Time, out: &mut Actions) {
        let lead = self.lead();
        let until = lead.map_or(u32::MAX, |lead| lead.until);
        while self.slots_held(now) < self.slots() {
            let (neighbours, hold) = (&self.neighbours, &self.hold);
            let will_do = |node: NodeId| {
                neighbours.get(node).is_some_and(|peer| {
                    let news = peer.offered_gains != hold.gains || peer.offered_lead != lead;
                    let may = match peer.offered {
                        Offered::Not => true,
                        Offered::Asked(_) => false,
                        Offered::Stands => news,
                    };
                    may && hold.has_for(&peer.whole, until)
                })
            };
            let next = self.topology.next(will_do);
            let any = || {
                neighbours
                    .iter()
                    .map(|(node, _)| node)
                    .find(|n| will_do(*n))
            };
            let Some(to) = next.or_else(any) else { break };
            let Some(peer) = self.neighbours.get_mut(to) else {
                break;
            };
            peer.offered = Offered::Asked(now);
            peer.offered_gains = self.hold.gains;
            peer.offered_lead = lead;
            let parts = self.hold.parts(&peer.whole);
            out.send(to, &Message::Offer { parts, lead });
            self.tick_on(now, out);
        }
    }

    /// A neighbour has no use for an offer now.
    pub(super) fn on_busy(&mut self, now: Time, from: NodeId, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(from) {
            peer.offered = Offered::Stands;
        }
        self.pump(now, out);
    }

    /// A neighbour makes use of an offer.
    pub(super) fn on_grant(&mut self, now: Time, from: NodeId, piece: Piece, out: &mut Actions) {
        let room = |held: usize, slots: usize| held < slots + SLOTS_MORE;
        let Some(peer) = self.neighbours.get_mut(from) else {
            return;
        };
        let asked = matches!(peer.offered, Offered::Asked(_));
        peer.offered = Offered::Not;
        let queued = peer.queued;
        let may = asked || room(self.slots_held(now), self.slots());
        let action = (may && queued < QUEUED_MAX)
            .then(|| self.make(from, piece))
            .flatten();
        match action {
            Some(action) => {
                self.dispatch(now, from, action, out);
                self.on_source_send(out);
            }
            None => out.send(from, &Message::Decline { piece }),
        }
        self.pump(now, out);
    }

    /// What is sent for a grant, if anything can be.
    fn make(&mut self, to: NodeId, piece: Piece) -> Option<Action> {
        let (batch, pure) = match piece {
            Piece::Block(block) => {
                let here = self.hold.have.contains(block);
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
        let pure = pure || live.rank == live.pure;
        let rank = if pure { live.pure } else { live.rank };
        (rank > 0 && (pure || !live.spoiled)).then_some(Action::SendPacket { to, batch, pure })
    }

    fn dispatch(&mut self, now: Time, to: NodeId, action: Action, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(to) {
            peer.queued += 1;
        }
        self.sends.push_back((to, now));
        out.push(action);
        self.tick_on(now, out);
    }

    /// Sends what a peer pulled.
    pub(super) fn run_errands(&mut self, now: Time, to: NodeId, out: &mut Actions) {
        while self
            .neighbours
            .get(to)
            .is_some_and(|peer| peer.queued < QUEUED_MAX)
            && let Some(block) = self.mender.next_errand(to)
        {
            if self.hold.have.contains(block) {
                self.dispatch(now, to, Action::SendBlock { to, block }, out);
            }
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, to: NodeId, out: &mut Actions) {
        if let Some(peer) = self.neighbours.get_mut(to) {
            peer.queued = peer.queued.saturating_sub(1);
        }
        if let Some(at) = self.sends.iter().position(|(node, _)| *node == to)
            && let Some((_, since)) = self.sends.remove(at)
        {
            smooth(&mut self.service, now.since(since).as_secs_f64());
        }
        self.run_errands(now, to, out);
        self.pump(now, out);
    }

    /// Tells everybody which batches got whole here.
    pub(super) fn announce(&mut self, out: &mut Actions) {
        let batches = std::mem::take(&mut self.news);
        if !batches.is_empty() {
            let lacking = self.neighbours.pick(|peer| !peer.whole.is_full());
            out.send_all(lacking, &Message::Whole { batches });
        }
    }

    /// Tells everybody of blocks of a batch that somebody takes as blocks only.
    pub(super) fn show(&self, block: BlockId, out: &mut Actions) {
        let all = self.neighbours.pick(|_| true);
        let blocks = vec![block];
        out.send_all(all, &Message::Have { blocks });
    }
}

/// Moves an average a little towards a new value.
pub(super) fn smooth(average: &mut f64, value: f64) {
    *average += if *average == 0.0 {
        value
    } else {
        0.1 * (value - *average)
    };
}
