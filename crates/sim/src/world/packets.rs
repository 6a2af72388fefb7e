//! Packets of coded transfers: real coefficients, and a mark in place of the payload.

use std::ops::Range;
use std::sync::Arc;

use outpour_coding::{self as coding, Span, draw_coefficients};
use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId, Support, Time, Worth};
use outpour_protocols::collector::{
    Basis, Collector, Maker, Next, Packets, Rows, Taken, Window, holding_of,
};
use outpour_protocols::node::{BatchNews, Input};
use outpour_protocols::{Coded, Event};

use super::{Happening, Node, World};

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

/// Independent packets of a batch: their coefficients, and whether each is wrong.
#[derive(Debug)]
pub(super) struct Marks {
    span: Span,
    wrong: Vec<bool>,
}

impl Marks {
    fn new(size: u16) -> Option<Self> {
        let (span, wrong) = (Span::new(size.into()).ok()?, Vec::new());
        Some(Self { span, wrong })
    }

    /// Whether what is made of them is wrong.
    fn are_wrong(&self) -> bool {
        self.wrong.contains(&true)
    }
}

impl Rows for Marks {
    type Payload = bool;

    fn insert(&mut self, coefficients: &[u8], payload: impl FnOnce() -> bool) -> bool {
        let kept = self.span.insert(coefficients) == Ok(coding::Worth::Innovative);
        if kept {
            self.wrong.push(payload());
        }
        kept
    }

    fn rank(&self) -> usize {
        self.span.rank()
    }

    fn support(&self) -> Support {
        Support::from_words(self.span.support())
    }
}

/// What a node has of the batches that are not whole.
pub(super) type Collected = Window<Collector<Marks>>;

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
            if let Basis::Packets(packets) = node.basis(batch, false)
                && !packets.rows().are_wrong()
            {
                for row in packets.rows().span.rows() {
                    let _ = joint.insert(row);
                }
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
        let has_block = || batches.range(batch).any(|block| node.have.contains(block));
        match node.basis(batch, pure) {
            Basis::Packets(packets) => packets.rows().rank() > 0,
            Basis::Whole | Basis::Blocks(_) => has_block(),
        }
    }

    /// The verified blocks of a batch on a node, counted from its first.
    fn blocks_of(&self, node: NodeId, batch: BatchId) -> Vec<usize> {
        let range = self.batches.map_or(0..0, |batches| batches.range(batch));
        places(&self.nodes[node.index()].have, range).collect()
    }

    /// What there is to be collected of a batch, begun with the blocks that are here if it is new,
    /// but for one that is about to be taken; `None` if it is whole, or there is no room for it.
    fn collector(
        &mut self,
        node: NodeId,
        batch: BatchId,
        but: Option<usize>,
    ) -> Option<&mut Collector<Marks>> {
        let range = self.batches?.range(batch);
        let size = range.len() as u16;
        let node = &mut self.nodes[node.index()];
        let new = || Collector::new(size);
        let collector = (node.collected.as_mut()?).live(batch, Collector::is_stored, new)?;
        if collector.is_new() {
            let here = || places(&node.have, range.clone()).filter(|place| Some(*place) != but);
            let blocks = here().map(|place| (place, false));
            collector.open(Marks::new(size)?, here().collect(), blocks);
        }
        Some(collector)
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
        let made_of = match self.nodes[node.index()].basis(batch, pure) {
            Basis::Packets(packets) => packets.rows().rank(),
            Basis::Whole | Basis::Blocks(_) => self.blocks_of(node, batch).len(),
        };
        self.compute(node, made_of as u64 * self.payload_bytes(batch))
    }

    /// Makes a packet now that its turn has come; nothing for a block, or if nothing is left to make
    /// it of.
    pub(super) fn make_packet(&mut self, from: NodeId, to: NodeId, piece: Piece) -> Option<Packet> {
        let Piece::Packet { batch, pure, .. } = piece else {
            return None;
        };
        let size = usize::from(self.batches?.rank_of(batch));
        let blocks = self.blocks_of(from, batch);
        let mut coefficients = vec![0; size];
        let lies = self.nodes[from.index()].lies;
        let mut wrong = lies.is_some_and(|(share, _)| self.dice.chance(share));
        match self.nodes[from.index()].basis(batch, pure) {
            Basis::Packets(packets) if blocks.len() < size => {
                let marks = packets.rows();
                let mut weights = vec![0; marks.rank()];
                wrong |= marks.are_wrong();
                draw_coefficients(self.coder.generator(), &mut weights);
                marks.span.combine(&weights, &mut coefficients).ok()?;
            }
            // The batch was spoiled since, and nothing of it may be passed on.
            _ if blocks.is_empty() => return None,
            _ => {
                let first = self.batches?.range(batch).start;
                let read: Vec<BlockId> = blocks.iter().map(|at| first + *at as u32).collect();
                if !self.read_blocks(from, to, &read) {
                    return None;
                }
                let mut drawn = vec![0; blocks.len()];
                draw_coefficients(self.coder.generator(), &mut drawn);
                for (index, coefficient) in blocks.into_iter().zip(drawn) {
                    coefficients[index] = coefficient;
                }
            }
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
        self.tell_link(from, Event::Coded(Coded::Sent { to, batch }));
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
        let pure = packet.pure;
        let taken = self.collector(to, batch, None).map(|collector| {
            let maker = Maker { node: from, pure };
            collector.take_packet(maker, &packet.coefficients, || packet.wrong)
        });
        let told = taken.as_ref().and_then(|taken| taken.told);
        if told.is_none_or(|(worth, _)| worth != Worth::Innovative) {
            self.totals.packets_wasted += 1;
        }
        match taken {
            Some(taken) if told.is_some() => self.go_on(to, from, batch, taken),
            _ => self.tell_batch(to, from, batch, BatchNews::Dropped),
        }
    }

    fn tell_batch(&mut self, to: NodeId, from: NodeId, batch: BatchId, news: BatchNews<'_>) {
        self.tell(to, Input::Batch { from, batch, news });
    }

    /// A fresh block of a coded transfer is a packet, too.
    pub(super) fn note_block(&mut self, to: NodeId, from: NodeId, block: BlockId) {
        let Some(batches) = self.batches else { return };
        let batch = batches.batch_of(block);
        let place = (block - batches.range(batch).start) as usize;
        match self.collector(to, batch, Some(place)) {
            Some(collector) => {
                let taken = collector.take_block(place, || false);
                self.go_on(to, from, batch, taken);
            }
            None => self.note_unkept(to, from, batch),
        }
    }

    /// Notes a block of a batch for which there is no room.
    fn note_unkept(&mut self, to: NodeId, from: NodeId, batch: BatchId) {
        let node = &self.nodes[to.index()];
        let is_whole = |collected: &Collected| collected.is_whole(batch);
        if node.collected.as_ref().is_none_or(is_whole) {
            return;
        }
        let here: Support = self.blocks_of(to, batch).into_iter().collect();
        if self
            .batches
            .is_some_and(|it| here.len() < it.rank_of(batch))
        {
            let news = BatchNews::Taken(Worth::Innovative, holding_of(here));
            self.tell_batch(to, from, batch, news);
        } else {
            self.on_whole(to, from, batch, &[], None);
        }
    }

    /// Tells what came of a packet or a block, and does what has become possible.
    fn go_on(&mut self, to: NodeId, from: NodeId, batch: BatchId, taken: Taken<Marks>) {
        if let Some((worth, holding)) = taken.told {
            self.tell_batch(to, from, batch, BatchNews::Taken(worth, holding));
        }
        match taken.next {
            Next::Nothing => {}
            Next::Whole(evidence) => self.on_whole(to, from, batch, &[], evidence),
            Next::Decode(_) => self.decode(to, from, batch),
        }
    }

    /// Decodes a batch, which takes its time.
    fn decode(&mut self, to: NodeId, from: NodeId, batch: BatchId) {
        let size = self.batches.map_or(0, |batches| batches.rank_of(batch));
        let lacking = u64::from(size) - self.blocks_of(to, batch).len() as u64;
        let at = self.compute(to, lacking * u64::from(size) * self.payload_bytes(batch));
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
        let node = &mut self.nodes[to.index()];
        let wrong = match node.basis(batch, false) {
            Basis::Packets(packets) => packets.rows().are_wrong(),
            Basis::Whole | Basis::Blocks(_) => return,
        };
        let range = batches.range(batch);
        let lacks = |block: &BlockId| !wrong && !node.have.contains(*block);
        let fresh: Vec<BlockId> = range.clone().filter(lacks).collect();
        if !self.write_decoded(to, &fresh) {
            return;
        }
        let node = &mut self.nodes[to.index()];
        let places = fresh.iter().map(|block| (block - range.start) as usize);
        let Some(collected) = &mut node.collected else {
            return;
        };
        let next = collected
            .get_mut(batch)
            .map_or(Next::Nothing, |collector| collector.settle(places, wrong));
        let Next::Whole(evidence) = next else {
            collected.shut(batch);
            let news = BatchNews::Spoiled { fresh: &[] };
            return self.tell_batch(to, from, batch, news);
        };
        for &block in &fresh {
            let cluster = self.terms.members[to.index()].cluster;
            self.entered[cluster as usize].insert(block);
            self.store(to, block, self.object.content(block));
        }
        self.on_whole(to, from, batch, &fresh, evidence);
    }

    /// Puts what was decoded on the node's disk; whether all of it could be.
    fn write_decoded(&mut self, to: NodeId, fresh: &[BlockId]) -> bool {
        for (nth, &block) in fresh.iter().enumerate() {
            if !self.write_block(to, block) {
                // What could be is here now.
                for &block in &fresh[..nth] {
                    self.store(to, block, self.object.content(block));
                }
                return false;
            }
        }
        true
    }

    /// A batch is whole, and these blocks of it came by decoding: those that sent wrong pure
    /// packets of it are found out.
    fn on_whole(
        &mut self,
        to: NodeId,
        from: NodeId,
        batch: BatchId,
        fresh: &[BlockId],
        evidence: Option<Arc<Packets<Marks>>>,
    ) {
        if let Some(collected) = &mut self.nodes[to.index()].collected {
            collected.finish(batch);
        }
        let wrong = |marks: &Marks, number: usize| marks.wrong.get(number) == Some(&true);
        let convicted = evidence.map(|it| it.convict(|number| wrong(it.rows(), number)));
        let wrong = &convicted.unwrap_or_default();
        self.tell_batch(to, from, batch, BatchNews::Whole { fresh, wrong });
    }
}

impl Node {
    /// Begins to collect, with the batches that are whole.
    pub(super) fn collect(&mut self, batches: Batches, kept: usize) {
        let mut whole = BlockSet::new(batches.count());
        for batch in 0..batches.count() {
            if self.have.contains_range(batches.range(batch)) {
                whole.insert(batch);
            }
        }
        self.collected = Some(Window::new(whole, kept));
    }

    /// What packets of a batch can be made of.
    fn basis(&self, batch: BatchId, pure: bool) -> Basis<'_, Marks> {
        let collected = self.collected.as_ref().and_then(|it| it.get(batch));
        collected.map_or(Basis::Blocks(None), |collector| collector.basis(pure))
    }
}

/// The places of the blocks of a batch that are here.
fn places(have: &BlockSet, range: Range<BlockId>) -> impl Iterator<Item = usize> {
    let blocks = range.enumerate();
    let here = blocks.filter(|(_, block)| have.contains(*block));
    here.map(|(place, _)| place)
}

fn unit(size: usize, index: usize) -> Vec<u8> {
    let mut unit = vec![0; size];
    unit[index] = 1;
    unit
}
