//! One batch that is not whole: the packets and blocks that are here of it.

use std::io;
use std::sync::Arc;

use outpour_coding::{Batch, Kernel, Matrix, Verdict};
use outpour_core::{BlockId, Holding, NodeId, Support};
use outpour_net::{Accept, BlockIo, Packet, Worth};

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
}

/// Who made a packet.
#[derive(Clone, Copy, Debug)]
struct Maker {
    node: NodeId,
    /// Whether it said that it made it of verified blocks alone.
    pure: bool,
}

/// Independent packets, each with who made it; a verified block is a packet without a maker.
pub(super) struct Packets {
    batch: Batch<Payload>,
    makers: Vec<Option<Maker>>,
}

/// The batch.
pub(super) struct Live {
    shape: Shape,
    state: State,
}

enum State {
    /// Nothing was looked at yet.
    New,
    /// Packets are collected.
    Open(Box<Packets>),
    /// It is being decoded, by somebody who will say what came of it.
    Decoding(Arc<Packets>),
    /// It was decoded to something else than it should have been: blocks are collected, and the
    /// packets are kept as evidence.
    Spoiled(Arc<Packets>),
    /// It is whole: whoever came late finds nothing to do.
    Gone,
}

/// What is to be done about a batch, by who lets go of it for that time.
pub(super) enum Next {
    Nothing,
    /// All of it can be decoded.
    Decode(Arc<Packets>),
    /// All its blocks are here; these packets, if any, are to be compared with them.
    Whole(Option<Arc<Packets>>),
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
        Self {
            shape,
            state: State::New,
        }
    }

    /// Whether nothing would be lost with it that is not on disk.
    pub(super) fn is_on_disk(&self) -> bool {
        match &self.state {
            State::New | State::Gone => true,
            State::Open(packets) => packets.makers.iter().all(Option::is_none),
            State::Decoding(_) | State::Spoiled(_) => false,
        }
    }

    /// Looks at what of the batch is on disk, if that was not done yet; whether it was not.
    pub(super) fn open(&mut self, io: &dyn BlockIo, pool: &Arc<Pool>) -> bool {
        if !matches!(self.state, State::New) {
            return false;
        }
        let Ok(batch) = Batch::new(self.shape.k, self.shape.len) else {
            self.state = State::Gone;
            return true;
        };
        let makers = Vec::new();
        let mut packets = Packets { batch, makers };
        for block in self.shape.blocks().filter(|block| io.has(*block)) {
            // One that cannot be read now is lacking until it can: whoever needs it will say so.
            if let Ok(data) = whole::read(block, io, pool) {
                packets.add_block(self.shape, block, data.as_ref(), pool);
            }
        }
        self.state = State::Open(Box::new(packets));
        true
    }

    /// Takes a packet.
    pub(super) fn take_packet(
        &mut self,
        from: NodeId,
        packet: Packet<'_>,
        pool: &Arc<Pool>,
    ) -> (Worth, Holding, Next) {
        let k = self.shape.k;
        let Some((vector, payload)) = packet.data.split_at_checked(k) else {
            return (Worth::Unwanted, Holding::default(), Next::Nothing);
        };
        let zero = vector.iter().all(|coefficient| *coefficient == 0);
        let worth = if zero { Worth::Zero } else { Worth::Dependent };
        match &mut self.state {
            State::New | State::Spoiled(_) | State::Gone => {
                (Worth::Unwanted, Holding::default(), Next::Nothing)
            }
            State::Decoding(packets) => (worth, packets.holding(), Next::Nothing),
            State::Open(packets) => {
                let pure = packet.pure;
                let maker = Some(Maker { node: from, pure });
                let worth = match packets.add(vector, payload, maker, self.shape.len, pool) {
                    true => Worth::Innovative,
                    false => worth,
                };
                let holding = packets.holding();
                (worth, holding, self.after_growth())
            }
        }
    }

    /// Takes a verified block that was just stored; what it was worth, if that matters to anybody.
    pub(super) fn take_block(
        &mut self,
        block: BlockId,
        data: &[u8],
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> (Option<(Worth, Holding)>, Next) {
        let shape = self.shape;
        // This block is among those on disk.
        let opened = self.open(io, pool);
        // Who decodes will see that it is here.
        if matches!(self.state, State::Decoding(_)) {
            return (None, Next::Nothing);
        }
        if shape.blocks().all(|block| io.has(block)) {
            let next = match std::mem::replace(&mut self.state, State::Gone) {
                State::Spoiled(packets) => Next::Whole(Some(packets)),
                State::Gone => Next::Nothing,
                _ => Next::Whole(None),
            };
            return (None, next);
        }
        let State::Open(packets) = &mut self.state else {
            return (None, Next::Nothing);
        };
        let worth = if packets.add_block(shape, block, data, pool) || opened {
            Worth::Innovative
        } else {
            Worth::Dependent
        };
        let holding = packets.holding();
        (Some((worth, holding)), self.after_growth())
    }

    fn after_growth(&mut self) -> Next {
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Open(packets) if packets.batch.is_full() => {
                let packets = Arc::new(*packets);
                self.state = State::Decoding(packets.clone());
                Next::Decode(packets)
            }
            state => {
                self.state = state;
                Next::Nothing
            }
        }
    }

    /// Takes note of what came of decoding; what is to be done now.
    pub(super) fn settle(&mut self, decoded: &Decoded, io: &dyn BlockIo) -> Next {
        let State::Decoding(packets) = std::mem::replace(&mut self.state, State::Gone) else {
            return Next::Nothing;
        };
        let whole = self.shape.blocks().all(|block| io.has(block));
        if decoded.spoiled && !whole {
            self.state = State::Spoiled(packets);
            return Next::Nothing;
        }
        Next::Whole(decoded.spoiled.then_some(packets))
    }

    /// What packets can be made of; `None` if that is for the whole batch to say.
    pub(super) fn basis(
        &mut self,
        pure: bool,
        skip: usize,
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> Option<io::Result<Basis>> {
        self.open(io, pool);
        match &self.state {
            State::Gone => None,
            State::Open(packets) if !pure => Some(Ok(packets.basis(skip))),
            State::Decoding(packets) if !pure => Some(Ok(packets.basis(skip))),
            State::Open(packets) => {
                let here = self.shape.blocks().filter(|block| io.has(*block)).count();
                let basis = packets.verified();
                match basis.len() == here {
                    true => Some(Ok(basis)),
                    false => Some(verified(self.shape, io, pool)),
                }
            }
            _ => Some(verified(self.shape, io, pool)),
        }
    }
}

/// The blocks of a batch that are here, from disk.
pub(super) fn verified(shape: Shape, io: &dyn BlockIo, pool: &Arc<Pool>) -> io::Result<Basis> {
    let blocks = shape.blocks().enumerate();
    let here = blocks.filter(|(_, block)| io.has(*block));
    let read = |(place, block)| Ok((place, whole::read(block, io, pool)?));
    here.map(read).collect::<io::Result<_>>().map(Basis::Blocks)
}

impl Packets {
    fn holding(&self) -> Holding {
        Holding {
            rank: self.batch.rank() as u16,
            support: Support::from_words(self.batch.support()),
        }
    }

    /// Keeps a packet if it is innovative; whether it is.
    fn add(
        &mut self,
        vector: &[u8],
        payload: &[u8],
        maker: Option<Maker>,
        len: usize,
        pool: &Arc<Pool>,
    ) -> bool {
        // Only what is kept is copied.
        if self.batch.is_innovative(vector) != Ok(true) {
            return false;
        }
        let payload = pool.take(0).fill(payload, len);
        let kept = self.batch.insert(vector, payload) == Ok(Verdict::Innovative);
        if kept {
            self.makers.push(maker);
        }
        kept
    }

    fn add_block(&mut self, shape: Shape, block: BlockId, data: &[u8], pool: &Arc<Pool>) -> bool {
        let mut vector = vec![0; shape.k];
        if let Some(one) = vector.get_mut((block - shape.first) as usize) {
            *one = 1;
        }
        self.add(&vector, data, None, shape.len, pool)
    }

    /// The blocks that came as themselves, and said something new then.
    fn verified(&self) -> Basis {
        let (mut rows, mut payloads) = (Vec::new(), Vec::new());
        for ((row, payload), maker) in self.batch.packets().zip(&self.makers) {
            if maker.is_none() {
                rows.extend_from_slice(row);
                payloads.push(payload.clone());
            }
        }
        Basis::Packets(rows, payloads)
    }

    /// All packets but the first few.
    fn basis(&self, skip: usize) -> Basis {
        let packets = self.batch.packets().skip(skip);
        let (mut rows, mut payloads) = (Vec::new(), Vec::new());
        for (row, payload) in packets {
            rows.extend_from_slice(row);
            payloads.push(payload.clone());
        }
        Basis::Packets(rows, payloads)
    }

    /// Decodes, verifies and stores what is lacking.
    pub(super) fn decode(
        &self,
        shape: Shape,
        io: &dyn BlockIo,
        pool: &Arc<Pool>,
    ) -> Result<Decoded, String> {
        let lacking: Vec<BlockId> = shape.blocks().filter(|block| !io.has(*block)).collect();
        let len = |block: &BlockId| io.block_len(*block).unwrap_or(0) as usize;
        let mut found: Vec<_> = lacking.iter().map(|block| pool.take(len(block))).collect();
        let places = lacking.iter().map(|block| (block - shape.first) as usize);
        let outputs = places.zip(found.iter_mut().map(|buffer| &mut buffer.bytes[..]));
        let solved = self.batch.decode_some(1, outputs);
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
            decoded.blocks = self.with_those_here(shape, found.collect(), io);
        }
        Ok(decoded)
    }

    /// Every block in order, out of those just decoded and those that came as they are.
    fn with_those_here(
        &self,
        shape: Shape,
        mut found: std::collections::BTreeMap<BlockId, Payload>,
        io: &dyn BlockIo,
    ) -> Option<Vec<Payload>> {
        for ((row, payload), maker) in self.batch.packets().zip(&self.makers) {
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

    /// Whose packets are wrong, of those who said that they made them of verified blocks alone:
    /// computes each again from the blocks.
    pub(super) fn wrong(&self, shape: Shape, blocks: &[Payload]) -> Vec<NodeId> {
        let mut wrong = Vec::new();
        let packets = self.batch.packets().zip(&self.makers);
        let pure: Vec<_> = packets
            .filter_map(|(packet, maker)| {
                maker.filter(|maker| maker.pure).map(|m| (packet, m.node))
            })
            .collect();
        let sources: Vec<&[u8]> = blocks.iter().map(AsRef::as_ref).collect();
        let mut outputs = vec![vec![0; shape.len]; AT_A_TIME.min(pure.len())];
        for some in pure.chunks(AT_A_TIME) {
            let rows: Vec<u8> = some
                .iter()
                .flat_map(|((row, _), _)| row.iter().copied())
                .collect();
            let Ok(matrix) = Matrix::new(&rows, shape.k) else {
                break;
            };
            let mut outputs: Vec<&mut [u8]> = outputs
                .iter_mut()
                .take(some.len())
                .map(|out| &mut out[..])
                .collect();
            Kernel::best().multiply(&mut outputs, &sources, matrix);
            for (((_, payload), node), right) in some.iter().zip(&outputs) {
                if payload.as_ref() != &**right && !wrong.contains(node) {
                    wrong.push(*node);
                }
            }
        }
        wrong
    }
}
