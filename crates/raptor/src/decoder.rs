//! Blocks from symbols that strangers sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use outpour_push::{Decoder, Layout, SYMBOL_NUMBERS};
use raptorq::{EncodingPacket, PayloadId, SourceBlockDecoder};

use crate::{BlockEncoder, Cut, Error};

/// So many symbols more than a block has are kept of it; with as many and none wrong it can be decoded.
pub const SPARE_MAX: u32 = 64;
/// With up to so many symbols more than a block has, decoding is tried with each that comes; then it is tried
/// when their number has doubled. Who picks symbols that depend on each other can make it fail, and every try
/// costs as much as the block.
const TRIES_EACH: u32 = 3;
/// What a symbol takes besides its payload: its place in the list of symbols, which may be half empty, and in the set
/// of numbers, and what the allocator adds to a payload. Tiny symbols would take up many times what they hold else.
const SYMBOL_OVERHEAD: u64 = 96;
/// The same for the first symbol of a block.
const BLOCK_OVERHEAD: u64 = 384;

/// Where decoded blocks go.
pub trait Sink: fmt::Debug + Send {
    /// A block was decoded: `data` is its bytes, without those that fill it up. Says whether it is right, which
    /// only the hash in the manifest can tell. One that is right does not come again.
    fn take(&mut self, block: u32, data: &[u8]) -> bool;

    /// The block was not right, so a symbol is wrong. The block cannot be decoded any more, as nobody knows
    /// which one it is; it has to come as a whole, from elsewhere.
    fn spoilt(&mut self, evidence: Evidence);
}

/// The symbols that made a wrong block.
#[derive(Clone, Debug)]
pub struct Evidence {
    block: u32,
    symbols: Vec<EncodingPacket>,
}

impl Evidence {
    /// Which block they are of.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// The numbers of the symbols that are not those of the right block. In a rateless task the number of a
    /// symbol tells who sent it, as sources have residue classes.
    ///
    /// # Errors
    /// If the encoder is of another block.
    pub fn wrong(&self, right: &mut BlockEncoder) -> Result<Vec<u32>, Error> {
        let is_same = right.number() == self.block;
        Error::check(
            "block",
            right.number().into(),
            is_same,
            "that of the evidence",
        )?;
        let mut wrong = Vec::new();
        let mut symbol = Vec::new();
        for packet in &self.symbols {
            let number = packet.payload_id().encoding_symbol_id();
            right.symbol(number, &mut symbol)?;
            if symbol != packet.data() {
                wrong.push(number);
            }
        }
        Ok(wrong)
    }
}

/// What has come of a block.
#[derive(Debug, Default)]
struct Kept {
    numbers: BTreeSet<u32>,
    symbols: Vec<EncodingPacket>,
    /// A wrong block came out: no more symbols are kept, and none was before.
    is_spoilt: bool,
}

/// Decodes an object whose cut is known, in bounded memory.
///
/// Symbols, with what it takes to keep them, take up at most the memory it is given. The first block that is not decoded always finds room; those
/// after it find as much as is left, and a symbol that finds none is as good as lost. While a block is decoded,
/// about four times its size comes on top.
#[derive(Debug)]
pub struct RaptorDecoder {
    cut: Cut,
    memory_max: u64,
    sink: Box<dyn Sink>,
    is_begun: bool,
    blocks: BTreeMap<u32, Kept>,
    /// The first block that is not decoded, and those after it that are.
    floor: u32,
    decoded: BTreeSet<u32>,
    /// How many symbols are kept over all blocks.
    kept: u64,
    /// Of how many blocks.
    begun: u64,
    tries: u64,
}

impl RaptorDecoder {
    /// One for an object that is cut like this, which takes at most `memory_max` bytes to keep symbols.
    ///
    /// # Errors
    /// If that is less than [`RaptorDecoder::memory_min`].
    pub fn new(cut: Cut, memory_max: u64, sink: Box<dyn Sink>) -> Result<Self, Error> {
        let decoder = Self {
            cut,
            memory_max,
            sink,
            is_begun: false,
            blocks: BTreeMap::new(),
            floor: 0,
            decoded: BTreeSet::new(),
            kept: 0,
            begun: 0,
            tries: 0,
        };
        let is_fine = memory_max >= Self::memory_min(&cut);
        Error::check(
            "memory_max",
            memory_max,
            is_fine,
            "room for a block and 64 symbols",
        )?;
        Ok(decoder)
    }

    /// How many bytes it takes to keep a block and [`SPARE_MAX`] symbols more: 96 for each besides its payload, and 384
    /// for the block.
    pub fn memory_min(cut: &Cut) -> u64 {
        cost(cut, most(cut, 0), 1)
    }

    /// How many bytes the symbols that it keeps take, as in [`RaptorDecoder::memory_min`].
    pub fn memory(&self) -> u64 {
        cost(&self.cut, self.kept, self.begun)
    }

    /// How often it has tried to decode a block.
    pub fn tries(&self) -> u64 {
        self.tries
    }

    /// Whether a symbol of `block` may be kept, with which what the first block may still take is free.
    fn has_room(&self, block: u32) -> bool {
        let kept = |block| self.blocks.get(&block).map_or(0, |it| it.symbols.len()) as u64;
        if kept(block) >= most(&self.cut, block) {
            return false;
        }
        if block == self.floor {
            return true;
        }
        let missing = most(&self.cut, self.floor).saturating_sub(kept(self.floor));
        let blocks = [block, self.floor].map(|it| u64::from(kept(it) == 0));
        let symbols = self.kept.saturating_add(missing).saturating_add(1);
        let begun = blocks.into_iter().fold(self.begun, u64::saturating_add);
        cost(&self.cut, symbols, begun) <= self.memory_max
    }

    fn is_open(&self, block: u32) -> bool {
        block >= self.floor && block < self.cut.layout().blocks() && !self.decoded.contains(&block)
    }

    /// Tries to decode a block. Says whether it is decoded and right.
    fn decode(&mut self, block: u32) -> bool {
        let Some(kept) = self.blocks.get_mut(&block) else {
            return false;
        };
        self.tries = self.tries.saturating_add(1);
        let information = self.cut.information(block);
        let mut decoder = SourceBlockDecoder::new(0, &information, self.cut.padded(block));
        let Some(mut data) = decoder.decode(kept.symbols.iter().cloned()) else {
            return false;
        };
        let range = self.cut.block_bytes(block).unwrap_or_default();
        data.truncate(range.end.saturating_sub(range.start) as usize);
        self.kept = self.kept.saturating_sub(kept.symbols.len() as u64);
        self.begun = self.begun.saturating_sub(1);
        if !self.sink.take(block, &data) {
            kept.is_spoilt = true;
            kept.numbers = BTreeSet::new();
            let symbols = std::mem::take(&mut kept.symbols);
            self.sink.spoilt(Evidence { block, symbols });
            return false;
        }
        self.blocks.remove(&block);
        self.decoded.insert(block);
        while self.decoded.remove(&self.floor) {
            self.floor = self.floor.saturating_add(1);
        }
        true
    }
}

/// How many symbols of a block are kept at most.
fn most(cut: &Cut, block: u32) -> u64 {
    let symbols = u64::from(cut.layout().symbols_of(block));
    symbols.saturating_add(SPARE_MAX.into())
}

/// How many bytes it takes to keep so many symbols of so many blocks.
fn cost(cut: &Cut, symbols: u64, blocks: u64) -> u64 {
    let each = SYMBOL_OVERHEAD.saturating_add(cut.symbol_bytes().into());
    let of_blocks = blocks.saturating_mul(BLOCK_OVERHEAD);
    symbols.saturating_mul(each).saturating_add(of_blocks)
}

/// Whether decoding is worth a try with so many symbols more than the block has.
fn is_due(more: u32) -> bool {
    more <= TRIES_EACH || more.is_power_of_two()
}

impl Decoder for RaptorDecoder {
    fn begin(&mut self, layout: &Layout) -> bool {
        self.is_begun = *layout == self.cut.layout();
        self.is_begun
    }

    fn takes(&self, block: u32, payload: &[u8]) -> bool {
        let is_spoilt = self.blocks.get(&block).is_some_and(|it| it.is_spoilt);
        self.is_begun
            && payload.len() == usize::from(self.cut.symbol_bytes())
            && self.is_open(block)
            && (is_spoilt || self.has_room(block))
    }

    fn add(&mut self, block: u32, symbol: u32, _: u32, payload: &[u8]) -> bool {
        if symbol >= SYMBOL_NUMBERS || !self.takes(block, payload) {
            return false;
        }
        let source = self.cut.layout().symbols_of(block);
        let kept = self.blocks.entry(block).or_default();
        if kept.is_spoilt || !kept.numbers.insert(symbol) {
            return false;
        }
        let id = PayloadId::new(0, symbol);
        kept.symbols.push(EncodingPacket::new(id, payload.to_vec()));
        let count = kept.symbols.len() as u32;
        self.kept = self.kept.saturating_add(1);
        self.begun = self.begun.saturating_add(u64::from(count == 1));
        debug_assert!(
            self.memory() <= self.memory_max,
            "more is kept than there is room for"
        );
        let more = count.checked_sub(source);
        more.is_some_and(is_due) && self.decode(block)
    }
}
