//! The node's part of a coded transfer: what batches amount to, and what came of packets.

use std::collections::BTreeMap;
use std::sync::Arc;

use outpour_core::manifest::Manifest;
use outpour_core::{BatchId, Batches, BlockId, BlockSet, Holding, NodeId};
use outpour_net::{self as net, BlockIo, PacketNews};
use outpour_protocols::coordinator::{CodingCounts, Report};
use outpour_protocols::{Coded, Event, Worth};
use outpour_terms::{Terms, kept_batches};

use super::{Node, OBJECT};
use crate::coded::{CodedIo, Counters};

/// See the module.
pub(super) struct CodedPart {
    batches: Batches,
    block_bytes: u32,
    counters: Arc<Counters>,
    /// What packets of batches that are not whole amount to, in blocks.
    pending: BTreeMap<BatchId, u16>,
    /// Packets that were dropped unread.
    dropped: u64,
    message_bytes: u64,
}

impl CodedPart {
    /// The part, and the object with packets, if the terms are to code it; why not, in one line.
    pub(super) fn new(
        terms: &Terms,
        io: Arc<dyn BlockIo>,
        manifest: &Manifest,
        have: &BlockSet,
    ) -> Result<(Option<Self>, Arc<dyn BlockIo>), String> {
        let block_bytes = manifest.block_bytes();
        let batches = terms.batches(manifest.blocks(), block_bytes);
        let batches = batches.map_err(|error| error.to_string())?;
        let traits = terms.protocol.entry().coding;
        let (Some(batches), Some(coding), Some(traits)) = (batches, terms.coding, traits) else {
            return Ok((None, io));
        };
        let kept = kept_batches(traits);
        let io = CodedIo::new(io, batches, have, usize::from(coding.encoders), kept);
        let io = io.map_err(|error| format!("threads that make packets: {error}"))?;
        let part = Self {
            batches,
            block_bytes,
            counters: io.counters(),
            pending: BTreeMap::new(),
            dropped: 0,
            message_bytes: 0,
        };
        Ok((Some(part), Arc::new(io)))
    }

    pub(super) const fn note_message(&mut self, len: usize) {
        self.message_bytes += len as u64;
    }

    /// Notes the rank of a batch, of which so many blocks are here.
    fn note_rank(&mut self, batch: BatchId, rank: u16, blocks: usize) {
        match rank.saturating_sub(blocks as u16) {
            0 => self.pending.remove(&batch),
            more => self.pending.insert(batch, more),
        };
    }
}

impl Node {
    /// How a transfer's blocks are grouped, if it is coded.
    pub(super) fn batches(&self, transfer: u8) -> Option<Batches> {
        let coded = self.coded.as_ref().filter(|_| transfer == OBJECT)?;
        Some(coded.batches)
    }

    /// What the packets here amount to beyond the blocks, in bytes, for all but the last block.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.coded.as_ref().map_or(0, |coded| {
            let blocks: u64 = coded
                .pending
                .values()
                .map(|blocks| u64::from(*blocks))
                .sum();
            let all = self.lens.as_ref().map_or(0, |manifest| manifest.size().0);
            let lacking = all.saturating_sub(self.have_bytes);
            (blocks * u64::from(coded.block_bytes)).min(lacking)
        })
    }

    /// Bytes of blocks and packets that came.
    pub(super) fn received_bytes(&self) -> u64 {
        match self.coded {
            Some(_) => self.mesh.stats().payload_in,
            None => self.received_bytes,
        }
    }

    pub(super) fn report_coding(&self) {
        if let Some(coded) = &self.coded {
            let packets = self.mesh.stats().packets_in;
            let coefficients = packets * u64::from(coded.batches.size());
            self.report(Report::Coding(CodingCounts {
                packets,
                dropped: coded.dropped,
                overhead_bytes: coefficients + coded.message_bytes,
                ..coded.counters.read()
            }));
        }
    }

    /// Something came of a packet, or of a fresh block.
    pub(super) fn on_coded(
        &mut self,
        transfer: u8,
        from: NodeId,
        batch: BatchId,
        news: PacketNews,
    ) {
        self.moved = self.clock.now();
        match news {
            PacketNews::Taken { worth, holding } => {
                self.on_packet(transfer, from, batch, worth, holding);
            }
            PacketNews::Whole { fresh, wrong } => {
                self.on_decoded(transfer, from, batch, fresh);
                self.pass(transfer, Event::Coded(Coded::Decoded { batch }));
                for peer in wrong {
                    let offence = format!("sent wrong packets of batch {batch}");
                    self.reject(transfer, peer, self.first_block(transfer, batch), offence);
                }
                self.advance(transfer);
            }
            PacketNews::Spoiled { fresh } => {
                self.on_decoded(transfer, from, batch, fresh);
                self.pass(transfer, Event::Coded(Coded::Spoiled { batch }));
            }
            // The data plane has made a rejection of the one.
            PacketNews::Wrong => {}
            PacketNews::Failed(error) => self.on_trouble(error),
        }
    }

    fn on_packet(
        &mut self,
        transfer: u8,
        from: NodeId,
        batch: BatchId,
        worth: net::Worth,
        holding: Holding,
    ) {
        let Some(coded) = self.coded.as_mut().filter(|_| transfer == OBJECT) else {
            return;
        };
        let worth = match worth {
            net::Worth::Innovative => Worth::Innovative,
            net::Worth::Dependent => Worth::Dependent,
            net::Worth::Zero => Worth::Zero,
            net::Worth::Unwanted => {
                coded.dropped += 1;
                return;
            }
        };
        let blocks = coded.batches.range(batch);
        let have = blocks.filter(|block| self.have.contains(*block)).count();
        coded.note_rank(batch, holding.rank, have);
        let coded = Coded::Packet {
            from,
            batch,
            worth,
            holding,
        };
        self.pass(transfer, Event::Coded(coded));
    }

    /// Blocks came to be here by decoding, on account of what came from a peer.
    fn on_decoded(&mut self, transfer: u8, from: NodeId, batch: BatchId, blocks: Vec<BlockId>) {
        if let Some(coded) = &mut self.coded {
            coded.pending.remove(&batch);
        }
        for block in blocks {
            self.on_arrival(transfer, block, true);
            let fresh = true;
            self.pass(transfer, Event::Arrived { from, block, fresh });
        }
    }

    /// The block by whose number a batch is known where blocks are spoken of.
    pub(super) fn first_block(&self, transfer: u8, batch: BatchId) -> BlockId {
        let batches = self.batches(transfer);
        batches.map_or(0, |batches| batches.range(batch).start)
    }
}
