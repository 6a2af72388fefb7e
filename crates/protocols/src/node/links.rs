//! What comes over the links of a node, and what it amounts to.

use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId, Rate};

use super::{BatchNews, Node, Output, SERVED, Transfer, report};
use crate::coordinator::Report;
use crate::{Coded, Event};

impl Node {
    pub(super) fn on_link(&mut self, transfer: Transfer, event: &Event<'_>, out: &mut Vec<Output>) {
        match *event {
            Event::PeerUp(peer) if self.left.contains(peer.0) => {}
            // What is left of a link that this protocol does not know is over.
            Event::PeerUp(peer) => {
                if let Some(part) = &mut self.parts[transfer.index()] {
                    part.raise(peer);
                    self.pass(transfer, event, out);
                }
            }
            Event::PeerDown(peer) => {
                let part = self.parts[transfer.index()].as_mut();
                if part.is_some_and(|part| part.lower(peer)) {
                    self.set_rate(transfer, peer, Rate::UNLIMITED, out);
                    self.pass(transfer, event, out);
                }
            }
            Event::Message { from, body } => {
                if transfer == Transfer::Object && self.batches().is_some() {
                    self.message_bytes += body.len() as u64;
                }
                self.pass_from(transfer, from, event, out);
            }
            Event::Arrived { from, block, .. } if self.is_up(transfer, from) => {
                let fresh = self.on_arrival(transfer, block);
                self.pass(transfer, &Event::Arrived { from, block, fresh }, out);
                if fresh {
                    self.advance(transfer, out);
                }
            }
            // It was stored before this node left the transfer, and is among what was here when it
            // came back.
            Event::Arrived { .. } => {}
            Event::Rejected { from, block } => {
                let offence = format!("sent wrong bytes for block {block}");
                self.reject(transfer, from, block, offence, out);
            }
            Event::Sent { to, .. } | Event::Coded(Coded::Sent { to, .. }) => {
                self.moved = self.now;
                self.note_served(to);
                self.pass_from(transfer, to, event, out);
            }
            Event::Start
            | Event::Left(_)
            | Event::Coded(_)
            | Event::Achieved { .. }
            | Event::Foreground(_)
            | Event::Timer(_) => {
                debug_assert!(false, "links say nothing like {event:?}");
            }
        }
    }

    /// Notes that a peer was sent something.
    fn note_served(&mut self, peer: NodeId) {
        if self.now.since(self.served_since) >= SERVED {
            let [now, before] = &mut self.served;
            std::mem::swap(now, before);
            *now = BlockSet::new(before.len());
            self.served_since = self.now;
        }
        debug_assert!(peer != self.config.me, "a node serves itself");
        self.served[0].insert(peer.0);
    }

    /// Whether a protocol knows that a peer is up. One that began again has seen nothing of the
    /// links before, and what is left of them does not concern it.
    fn is_up(&self, transfer: Transfer, peer: NodeId) -> bool {
        let part = self.parts[transfer.index()].as_ref();
        part.is_some_and(|part| part.is_up(peer))
    }

    /// Passes something on that concerns a peer.
    fn pass_from(
        &mut self,
        transfer: Transfer,
        peer: NodeId,
        event: &Event<'_>,
        out: &mut Vec<Output>,
    ) {
        if self.is_up(transfer, peer) {
            self.pass(transfer, event, out);
        }
    }

    /// A peer sent wrong bytes, and the data plane has cut it off.
    fn reject(
        &mut self,
        transfer: Transfer,
        from: NodeId,
        block: BlockId,
        offence: String,
        out: &mut Vec<Output>,
    ) {
        self.pass(transfer, &Event::Rejected { from, block }, out);
        self.part_from(from, out);
        debug_assert!(self.left.contains(from.0));
        let peer = from;
        report(Report::Accuse { peer, offence }, out);
    }

    /// Notes a block that is verified and stored; whether it is fresh.
    fn on_arrival(&mut self, transfer: Transfer, block: BlockId) -> bool {
        self.moved = self.now;
        if transfer == Transfer::Manifest {
            let have = self.manifest.as_mut().map(|(have, _)| have);
            return have.is_some_and(|have| have.insert(block));
        }
        let Some(object) = &mut self.object else {
            return false;
        };
        let len = u64::from((object.block_len)(block));
        self.received_bytes += len;
        let fresh = object.have.insert(block);
        if fresh && self.want.contains(block) {
            debug_assert!(self.lacks > 0, "block {block} was not lacking");
            self.have_bytes += len;
            self.lacks -= 1;
        }
        debug_assert!(self.have_bytes <= object.size_bytes);
        fresh
    }

    pub(super) fn batches(&self) -> Option<Batches> {
        self.object.as_ref().and_then(|object| object.batches)
    }

    pub(super) fn on_batch(
        &mut self,
        from: NodeId,
        batch: BatchId,
        news: BatchNews<'_>,
        out: &mut Vec<Output>,
    ) {
        let away = self.parts[Transfer::Object.index()].is_none();
        let Some(batches) = self.batches().filter(|_| !away) else {
            return;
        };
        let (object, first) = (Transfer::Object, batches.range(batch).start);
        match news {
            BatchNews::Impossible => {
                let offence = format!("sent what cannot be a packet of batch {batch}");
                return self.reject(object, from, first, offence, out);
            }
            BatchNews::Dropped => self.dropped += 1,
            BatchNews::Taken(worth, holding) => {
                self.note_rank(batches, batch, holding.rank);
                let packet = Coded::Packet {
                    from,
                    batch,
                    worth,
                    holding,
                };
                self.pass_from(object, from, &Event::Coded(packet), out);
            }
            BatchNews::Whole { fresh, wrong } => {
                self.on_decoded(from, batch, fresh, out);
                self.pass(object, &Event::Coded(Coded::Decoded { batch }), out);
                for peer in wrong {
                    let offence = format!("sent wrong packets of batch {batch}");
                    self.reject(object, *peer, first, offence, out);
                }
                self.advance(object, out);
            }
            BatchNews::Spoiled { fresh } => {
                self.on_decoded(from, batch, fresh, out);
                self.pass(object, &Event::Coded(Coded::Spoiled { batch }), out);
            }
        }
        self.moved = self.now;
    }

    /// Notes what packets add to the blocks that are here of a batch.
    fn note_rank(&mut self, batches: Batches, batch: BatchId, rank: u16) {
        let Some(object) = &self.object else { return };
        let blocks = batches.range(batch);
        debug_assert!(batch < batches.count());
        debug_assert!(rank <= batches.rank_of(batch), "more than the full rank");
        let here = blocks.filter(|block| object.have.contains(*block)).count() as u16;
        match rank.saturating_sub(here) {
            0 => self.pending.remove(&batch),
            more => self.pending.insert(batch, more),
        };
    }

    /// Blocks came to be here by decoding, on account of a peer's packets.
    fn on_decoded(
        &mut self,
        from: NodeId,
        batch: BatchId,
        blocks: &[BlockId],
        out: &mut Vec<Output>,
    ) {
        self.pending.remove(&batch);
        for &block in blocks {
            let fresh = self.on_arrival(Transfer::Object, block);
            self.pass(
                Transfer::Object,
                &Event::Arrived { from, block, fresh },
                out,
            );
        }
    }

    /// What the packets here amount to beyond the blocks, in bytes, for all but the last block.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.object.as_ref().map_or(0, |object| {
            let blocks: u64 = self.pending.values().map(|blocks| u64::from(*blocks)).sum();
            let lacking = object.size_bytes.saturating_sub(self.have_bytes);
            (blocks * u64::from(object.block_bytes)).min(lacking)
        })
    }
}
