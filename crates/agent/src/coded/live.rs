//! One batch that is not whole: the bytes of the packets and blocks that are here of it. What is to be
//! done with them a [`Collector`] decides.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use outpour_coding::{Batch, Kernel, Matrix, Worth};
use outpour_core::{BlockId, NodeId, Support};
use outpour_net::{Accept, BlockIo, Packet};
use outpour_protocols::collector::{self, Collector, Maker, Next, Packets, Rows, Taken};

use super::basis::Basis;
use super::buffers::{Payload, Pool};
use super::whole;

/// How many packets are computed again at a time.
const AT_A_TIME: usize = 4;

/// Which batch it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) first: BlockId,
    /// How many blocks.
    pub(super) k: usize,
    /// Length of a payload: of the longest block.
    pub(super) len: usize,
}

impl Shape {
    pub(super) fn blocks(self) -> std::ops::Range<BlockId> {
        self.first..self.first + self.k as u32
    }

    /// Where in the batch a block of it is.
    const fn place(self, block: BlockId) -> usize {
        (block - self.first) as usize
    }
}

/// Independent packets with their payloads.
pub(super) struct Kept(Batch<Payload>);

impl Rows for Kept {
    type Payload = Payload;

    fn insert(&mut self, coefficients: &[u8], payload: impl FnOnce() -> Payload) -> bool {
        // Only what is kept is copied.
        self.0.is_innovative(coefficients) == Ok(true)
            && self.0.insert(coefficients, payload()) == Ok(Worth::Innovative)
    }

    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn support(&self) -> Support {
        Support::from_words(self.0.support())
    }
}

/// The batch.
pub(super) struct Live {
    shape: Shape,
    collector: Collector<Kept>,
}

/// What a batch was decoded to.
pub(super) struct Decoded {
    /// The blocks that were lacking and are here now.
    pub(super) fresh: Vec<BlockId>,
    /// Every block, if none was wrong and all of them were at hand.
    pub(super) blocks: Option<Vec<Payload>>,
    /// Whether one was wrong.
    pub(super) spoiled: bool,
}

impl Live {
    pub(super) const fn new(shape: Shape) -> Self {
        let collector = Collector::new(shape.k as u16);
        Self { shape, collector }
    }

    /// Whether nothing would be lost with it that is not on disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.collector.is_stored()
    }

    /// Looks at what of the batch is on disk, if that was not done yet, but for a block that is
    /// about to be taken.
    fn open(&mut self, but: Option<BlockId>, io: &dyn BlockIo, pool: &Arc<Pool>) {
        let shape = self.shape;
        if !self.collector.is_new() {
            return;
        }
        let Ok(batch) = Batch::new(shape.k, shape.len) else {
            return;
        };
        let blocks = shape.blocks().filter(|block| Some(*block) != but);
        let here: Vec<BlockId> = blocks.filter(|block| io.has(*block)).collect();
        let places = here.iter().map(|block| shape.place(*block)).collect();
        // One that cannot be read now is lacking until it can: the node that needs it will say so.
        let read = here.iter().filter_map(|block| {
            let data = whole::read(*block, io, pool).ok()?;
            let payload = pool.take(0).fill(data.as_ref(), shape.len);
            Some((shape.place(*block), payload))
        });
        self.collector.open(Kept(batch), places, read);
    }

    /// Takes a packet, unless it is too short to be one.
    pub(super) fn take_packet(
        &mut self,
        from: NodeId,
        packet: Packet<'_>,
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> Option<Taken<Kept>> {
        let Shape { k, len, .. } = self.shape;
        let (coefficients, payload) = packet.data.split_at_checked(k)?;
        self.open(None, io, pool);
        let (node, pure) = (from, packet.pure);
        let payload = || pool.take(0).fill(payload, len);
        let maker = Maker { node, pure };
        Some(self.collector.take_packet(maker, coefficients, payload))
    }

    /// Takes a verified block that was just stored.
    pub(super) fn take_block(
        &mut self,
        block: BlockId,
        data: &[u8],
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> Taken<Kept> {
        self.open(Some(block), io, pool);
        let shape = self.shape;
        let payload = || pool.take(0).fill(data, shape.len);
        self.collector.take_block(shape.place(block), payload)
    }

    /// Notes the result of decoding; returns what is to be done now.
    pub(super) fn settle(&mut self, decoded: &Decoded) -> Next<Kept> {
        let places = decoded.fresh.iter().map(|block| self.shape.place(*block));
        self.collector.settle(places, decoded.spoiled)
    }

    /// What packets can be made of; `None` if that is for the whole batch to say. Of packets that
    /// are here the first few are left out.
    pub(super) fn basis(
        &mut self,
        pure: bool,
        skip: usize,
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> Option<io::Result<Basis>> {
        self.open(None, io, pool);
        match self.collector.basis(pure) {
            collector::Basis::Whole => None,
            collector::Basis::Packets(packets) => {
                Some(Ok(some_of(packets, |number, _| number >= skip)))
            }
            collector::Basis::Blocks(Some(packets)) => {
                Some(Ok(some_of(packets, |_, maker| maker.is_none())))
            }
            collector::Basis::Blocks(None) => Some(verified(self.shape, io, pool)),
        }
    }
}

/// Some of the packets, by their numbers and makers.
fn some_of(packets: &Packets<Kept>, wanted: impl Fn(usize, Option<Maker>) -> bool) -> Basis {
    let (mut rows, mut payloads) = (Vec::new(), Vec::new());
    let all = packets.rows().0.packets().zip(packets.makers());
    for (number, ((row, payload), maker)) in all.enumerate() {
        if wanted(number, maker) {
            rows.extend_from_slice(row);
            payloads.push(payload.clone());
        }
    }
    Basis::Packets(rows, payloads)
}

/// The blocks of a batch that are here, from disk.
pub(super) fn verified(shape: Shape, io: &dyn BlockIo, pool: &Arc<Pool>) -> io::Result<Basis> {
    let blocks = shape.blocks().enumerate();
    let here = blocks.filter(|(_, block)| io.has(*block));
    let read = |(place, block)| Ok((place, whole::read(block, io, pool)?));
    here.map(read).collect::<io::Result<_>>().map(Basis::Blocks)
}

/// Decodes, verifies and stores what is lacking.
pub(super) fn decode(
    packets: &Packets<Kept>,
    shape: Shape,
    io: &dyn BlockIo,
    pool: &Arc<Pool>,
) -> Result<Decoded, String> {
    let lacking: Vec<BlockId> = shape.blocks().filter(|block| !io.has(*block)).collect();
    let len = |block: &BlockId| io.block_len(*block).unwrap_or(0) as usize;
    let mut found: Vec<_> = lacking.iter().map(|block| pool.take(len(block))).collect();
    let places = lacking.iter().map(|block| shape.place(*block));
    let outputs = places.zip(found.iter_mut().map(|buffer| &mut buffer.bytes[..]));
    let solved = packets.rows().0.decode_some(1, outputs);
    solved.map_err(|error| error.to_string())?;
    let mut decoded = Decoded {
        fresh: Vec::new(),
        blocks: None,
        spoiled: false,
    };
    for (block, buffer) in lacking.iter().zip(&found) {
        match io.accept(*block, &buffer.bytes) {
            Accept::Stored => decoded.fresh.push(*block),
            // It came as a block meanwhile, and was verified.
            Accept::Duplicate => {}
            Accept::Wrong => decoded.spoiled = true,
            Accept::Failed(error) => return Err(error),
        }
    }
    if !decoded.spoiled {
        let found = lacking
            .into_iter()
            .zip(found.into_iter().map(|buffer| buffer.share()));
        decoded.blocks = with_those_here(packets, shape, found.collect(), io);
    }
    Ok(decoded)
}

/// Every block in order, out of those just decoded and those that came as they are.
fn with_those_here(
    packets: &Packets<Kept>,
    shape: Shape,
    mut found: std::collections::BTreeMap<BlockId, Payload>,
    io: &dyn BlockIo,
) -> Option<Vec<Payload>> {
    for ((row, payload), maker) in packets.rows().0.packets().zip(packets.makers()) {
        if maker.is_none() {
            let place = row.iter().position(|coefficient| *coefficient != 0)?;
            let block = shape.first + place as u32;
            // A block that is shorter than the others was filled up.
            if io.block_len(block)? as usize == shape.len {
                found.insert(block, payload.clone());
            }
        }
    }
    let blocks = shape.blocks().map(|block| found.remove(&block));
    blocks.collect()
}

/// The senders of wrong packets, among those that claimed to make them of verified blocks alone:
/// computes each again from the blocks.
pub(super) fn wrong(packets: &Packets<Kept>, shape: Shape, blocks: &[Payload]) -> Vec<NodeId> {
    let all: Vec<_> = packets.rows().0.packets().collect();
    let pure: Vec<usize> = packets.pure().collect();
    let sources: Vec<&[u8]> = blocks.iter().map(AsRef::as_ref).collect();
    let mut outputs = vec![vec![0; shape.len]; AT_A_TIME.min(pure.len())];
    let mut wrong = BTreeSet::new();
    for some in pure.chunks(AT_A_TIME) {
        let rows = some
            .iter()
            .flat_map(|number| all[*number].0.iter().copied());
        let rows: Vec<u8> = rows.collect();
        let Ok(matrix) = Matrix::new(&rows, shape.k) else {
            break;
        };
        let mut outputs: Vec<&mut [u8]> = outputs
            .iter_mut()
            .take(some.len())
            .map(|out| &mut out[..])
            .collect();
        Kernel::best().multiply(&mut outputs, &sources, matrix);
        let differs =
            |(number, right): &(&usize, &&mut [u8])| all[**number].1.as_ref() != &***right;
        let differing = some.iter().zip(&outputs).filter(differs);
        wrong.extend(differing.map(|(number, _)| *number));
    }
    packets.convict(|number| wrong.contains(&number))
}
