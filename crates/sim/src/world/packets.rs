//! Packets of coded transfers: real coefficients, and a mark in place of the payload.

use outpour_coding::{Span, Verdict, draw_coefficients};
use outpour_core::{BatchId, Batches, BlockId, Holding, NodeId, Support, Time};
use outpour_protocols::{Coded, Event, Worth};

use super::{Happening, World};

/// What a node sends a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Block(BlockId),
    Packet {
        batch: BatchId,
        pure: bool,
        /// When it is made.
        ready: Time,
    },
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    coefficients: Vec<u8>,
    pure: bool,
    /// Whether its payload is not what the coefficients say.
    wrong: bool,
}

/// What a node has of a batch that is not whole.
#[derive(Debug)]
pub(super) struct Heap {
    span: Span,
    /// Something wrong went into the span.
    wrong: bool,
    /// It was decoded, to something wrong.
    spoiled: bool,
    /// It is being decoded.
    decoding: bool,
    /// Who sent wrong packets that were said to be pure.
    culprits: Vec<NodeId>,
}

impl World {
    /// Whether all nodes that are up, without this one, hold everything together.
    pub fn is_held_without(&self, node: NodeId) -> bool {
        let up = |other: &NodeId| *other != node && self.is_live(*other);
        let others: Vec<NodeId> = self.ids().filter(up).collect();
        let single = Batches::new(self.object.blocks(), 1);
        let Some(batches) = self.batches.or(single) else {
            return false;
        };
        (0..batches.count()).all(|batch| self.is_joint_rank_full(&others, batches, batch))
    }

    fn is_joint_rank_full(&self, nodes: &[NodeId], batches: Batches, batch: BatchId) -> bool {
        let range = batches.range(batch);
        let Ok(mut joint) = Span::new(range.len()) else {
            return false;
        };
        for node in nodes {
            let node = &self.nodes[node.index()];
            let blocks = range.clone().enumerate();
            for (index, _) in blocks.filter(|(_, block)| node.have.contains(*block)) {
                let _ = joint.insert(&unit(range.len(), index));
            }
            let heap = node.heaps.get(&batch).filter(|heap| !heap.wrong);
            for row in heap.iter().flat_map(|heap| heap.span.rows()) {
                let _ = joint.insert(row);
            }
        }
        joint.is_full()
    }

    /// How many bytes a piece has on its way.
    pub(super) fn bytes_of(&self, piece: Piece) -> u32 {
        match (piece, self.batches) {
            (Piece::Block(block), _) => self.object.bytes_of(block),
            (Piece::Packet { batch, .. }, Some(batches)) => {
                let longest = self.object.bytes_of(batches.range(batch).start);
                longest.saturating_add(batches.rank_of(batch).into())
            }
            (Piece::Packet { .. }, None) => 0,
        }
    }

    /// Whether a node has anything of a batch to make packets of.
    pub(super) fn can_code(&self, node: NodeId, batch: BatchId, pure: bool) -> bool {
        let Some(batches) = self.batches else {
            return false;
        };
        let node = &self.nodes[node.index()];
        let has_block = batches.range(batch).any(|block| node.have.contains(block));
        let heap = || node.heaps.get(&batch);
        has_block || !pure && heap().is_some_and(|heap| heap.span.rank() > 0 && !heap.spoiled)
    }

    /// The verified blocks of a batch on a node, counted from its first.
    fn blocks_of(&self, node: NodeId, batch: BatchId) -> Vec<usize> {
        let range = self.batches.map_or(0..0, |batches| batches.range(batch));
        let have = &self.nodes[node.index()].have;
        let blocks = range.enumerate();
        let here = blocks.filter(|(_, block)| have.contains(*block));
        here.map(|(index, _)| index).collect()
    }

    /// What there is of a batch, made of the blocks if no packet came yet.
    fn heap(&mut self, node: NodeId, batch: BatchId) -> Option<&mut Heap> {
        let size = usize::from(self.batches?.rank_of(batch));
        if !self.nodes[node.index()].heaps.contains_key(&batch) {
            let mut span = Span::new(size).ok()?;
            for index in self.blocks_of(node, batch) {
                let _ = span.insert(&unit(size, index));
            }
            let heap = Heap {
                span,
                wrong: false,
                spoiled: false,
                decoding: false,
                culprits: Vec::new(),
            };
            self.nodes[node.index()].heaps.insert(batch, heap);
        }
        self.nodes[node.index()].heaps.get_mut(&batch)
    }

    /// Bytes of each packet of a batch, without its coefficients.
    fn payload_bytes(&self, batch: BatchId) -> u64 {
        let first = self.batches.map_or(0, |batches| batches.range(batch).start);
        self.object.bytes_of(first).into()
    }

    /// Has a node make a packet; when it will be made.
    pub(super) fn encode(&mut self, node: NodeId, batch: BatchId, pure: bool) -> Time {
        if self.coding_speed.is_unlimited() {
            return self.now;
        }
        let blocks = self.blocks_of(node, batch).len();
        let heap = self.nodes[node.index()].heaps.get(&batch);
        let made_of = heap
            .filter(|_| !pure)
            .map_or(blocks, |heap| heap.span.rank());
        self.compute(node, made_of as u64 * self.payload_bytes(batch))
    }

    /// Makes a packet now that its turn has come; nothing for a block.
    pub(super) fn make_packet(&mut self, from: NodeId, piece: Piece) -> Option<Packet> {
        let Piece::Packet { batch, pure, .. } = piece else {
            return None;
        };
        let size = usize::from(self.batches?.rank_of(batch));
        let blocks = self.blocks_of(from, batch);
        let mut coefficients = vec![0; size];
        let lies = self.nodes[from.index()].lies;
        let mut wrong = lies.is_some_and(|(share, _)| self.dice.chance(share));
        if pure || blocks.len() == size {
            let mut drawn = vec![0; blocks.len()];
            draw_coefficients(self.coder.generator(), &mut drawn);
            for (index, coefficient) in blocks.into_iter().zip(drawn) {
                coefficients[index] = coefficient;
            }
        } else {
            let heap = self.heap(from, batch)?;
            let (mut weights, tainted) = (vec![0; heap.span.rank()], heap.wrong);
            wrong |= tainted;
            draw_coefficients(self.coder.generator(), &mut weights);
            let heap = self.heap(from, batch)?;
            heap.span.combine(&weights, &mut coefficients).ok()?;
        }
        Some(Packet {
            coefficients,
            pure,
            wrong,
        })
    }

    /// A packet has left the sender.
    pub(super) fn packet_left(
        &mut self,
        from: NodeId,
        to: NodeId,
        (connection, at): (u32, Time),
        batch: BatchId,
        packet: Option<Packet>,
    ) {
        self.totals.packets_sent += 1;
        if let Some(packet) = packet {
            let happening = Happening::Packet {
                to,
                from,
                connection,
                batch,
                packet,
            };
            self.queue.push(at, happening);
        }
        self.dispatch(from, Event::Coded(Coded::Sent { to, batch }));
    }

    pub(super) fn on_packet(
        &mut self,
        to: NodeId,
        from: NodeId,
        connection: u32,
        batch: BatchId,
        packet: Packet,
    ) {
        if self.ends.connection(to, from) != connection {
            return;
        }
        if self.batches.is_none_or(|batches| {
            let have = &self.nodes[to.index()].have;
            have.contains_range(batches.range(batch))
        }) {
            self.totals.packets_wasted += 1;
            return;
        }
        let Some(heap) = self.heap(to, batch) else {
            return;
        };
        if packet.wrong && packet.pure && !heap.culprits.contains(&from) {
            heap.culprits.push(from);
        }
        if heap.spoiled {
            return;
        }
        let worth = match heap.span.insert(&packet.coefficients) {
            Ok(Verdict::Innovative) => Worth::Innovative,
            Ok(Verdict::Dependent) => Worth::Dependent,
            Ok(Verdict::Zero) | Err(_) => Worth::Zero,
        };
        if worth == Worth::Innovative {
            heap.wrong |= packet.wrong;
        } else {
            self.totals.packets_wasted += 1;
        }
        self.tell_packet(to, from, batch, worth);
        self.decode(to, from, batch);
    }

    /// A fresh block of a coded transfer is a packet, too.
    pub(super) fn note_block(&mut self, to: NodeId, from: NodeId, block: BlockId) {
        let Some(batches) = self.batches else { return };
        let batch = batches.batch_of(block);
        let range = batches.range(batch);
        let whole = self.nodes[to.index()].have.contains_range(range.clone());
        let size = range.len();
        let index = (block - range.start) as usize;
        if whole {
            return self.on_whole(to, batch);
        }
        let old = self.nodes[to.index()].heaps.contains_key(&batch);
        let goes_on = |heap: &&mut Heap| !heap.spoiled && !heap.decoding;
        let Some(heap) = self.heap(to, batch).filter(goes_on) else {
            return;
        };
        // A heap made just now has the block already.
        let worth = if !old || heap.span.insert(&unit(size, index)) == Ok(Verdict::Innovative) {
            Worth::Innovative
        } else {
            Worth::Dependent
        };
        self.tell_packet(to, from, batch, worth);
        self.decode(to, from, batch);
    }

    fn tell_packet(&mut self, to: NodeId, from: NodeId, batch: BatchId, worth: Worth) {
        let heaps = &self.nodes[to.index()].heaps;
        let holding = heaps.get(&batch).map(|heap| Holding {
            rank: heap.span.rank() as u16,
            support: Support::from_words(heap.span.support()),
        });
        let holding = holding.unwrap_or_default();
        let packet = Coded::Packet {
            from,
            batch,
            worth,
            holding,
        };
        self.dispatch(to, Event::Coded(packet));
    }

    /// Decodes a batch if its rank is full.
    fn decode(&mut self, to: NodeId, from: NodeId, batch: BatchId) {
        let Some(batches) = self.batches else { return };
        let Some(heap) = self.nodes[to.index()].heaps.get_mut(&batch) else {
            return;
        };
        if heap.spoiled || heap.decoding || !heap.span.is_full() {
            return;
        }
        heap.decoding = true;
        let size = u64::from(batches.rank_of(batch));
        let lacking = size - self.blocks_of(to, batch).len() as u64;
        let at = self.compute(to, lacking * size * self.payload_bytes(batch));
        if at <= self.now {
            return self.on_decoded(to, from, batch);
        }
        let life = self.nodes[to.index()].life;
        let decoded = Happening::Decoded {
            at: to,
            from,
            batch,
            life,
        };
        self.queue.push(at, decoded);
    }

    /// Verifies and stores what a batch was decoded to.
    pub(super) fn on_decoded(&mut self, to: NodeId, from: NodeId, batch: BatchId) {
        let Some(batches) = self.batches else { return };
        let Some(heap) = self.nodes[to.index()].heaps.get_mut(&batch) else {
            // It came as blocks meanwhile.
            return;
        };
        heap.decoding = false;
        if heap.wrong {
            heap.spoiled = true;
            self.dispatch(to, Event::Coded(Coded::Spoiled { batch }));
            return;
        }
        let mut complete = false;
        for block in batches.range(batch) {
            if self.nodes[to.index()].have.contains(block) {
                continue;
            }
            let cluster = self.terms.members[to.index()].cluster;
            self.entered[cluster as usize].insert(block);
            let content = self.object.content(block);
            complete |= self.store(to, block, content).1;
            let fresh = true;
            self.dispatch(to, Event::Arrived { from, block, fresh });
        }
        self.on_whole(to, batch);
        if complete {
            self.report_complete(to);
        }
    }

    /// A batch is whole: those who sent wrong pure packets of it are found out.
    fn on_whole(&mut self, to: NodeId, batch: BatchId) {
        let heap = self.nodes[to.index()].heaps.remove(&batch);
        self.dispatch(to, Event::Coded(Coded::Decoded { batch }));
        let start = self.batches.map_or(0, |batches| batches.range(batch).start);
        for from in heap.into_iter().flat_map(|heap| heap.culprits) {
            let block = start;
            self.dispatch(to, Event::Rejected { from, block });
            self.exclude(to, from, "sent wrong packets");
        }
    }
}

fn unit(size: usize, index: usize) -> Vec<u8> {
    let mut unit = vec![0; size];
    unit[index] = 1;
    unit
}
