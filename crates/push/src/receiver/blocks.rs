//! Which symbols have come, block by block.

use std::collections::{BTreeMap, VecDeque};

use crate::{Data, Decoder, Layout};

/// So many blocks from the first that is not decoded are received at a time if they are coded; senders do not
/// go further ahead.
pub const AHEAD_MAX: u32 = 64;
/// An object that is not coded has no more blocks: sources have shares all over it, so all blocks are begun.
pub(super) const UNCODED_BLOCKS_MAX: u32 = 1 << 16;
/// A block with so many symbols more than it needs should have been decoded.
const SPARE_MAX: u32 = 64;

/// A flow that has delivered its part of a block is asked for so small a part of what others should deliver.
const HELP: u32 = 8;

/// How a receiver tells a source how many symbols of a block it still needs from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// What is missing, divided evenly among the sources [PPUSH §III-A]. While packets of one source arrive
    /// in a row, those of the others that are on their way count as missing, and are asked for again.
    Even,
    /// What its part of the block lacks, parts being in proportion to what each delivered of blocks before;
    /// never more than [`Estimate::Even`] says, and of what others lack an eighth of that.
    #[default]
    Parts,
}

/// What became of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    New,
    Duplicate,
    /// Its block is decoded.
    Late,
    /// Its block is too far ahead.
    Ahead,
}

/// The blocks of an object.
#[derive(Debug)]
pub(super) struct Blocks {
    layout: Layout,
    /// Symbols of one flow have numbers this far apart.
    stride: u32,
    /// How many blocks may be begun.
    ahead: u32,
    floor: u32,
    /// The block at the floor and those after it that were begun.
    open: VecDeque<Block>,
    /// How many symbols are missing over all blocks.
    remaining: u64,
    stuck: Option<u32>,
    estimate: Estimate,
    /// How much each flow delivered of blocks that were decoded, the latest counting most.
    delivered: BTreeMap<u32, f64>,
    /// The sum of these.
    delivered_by_all: f64,
}

/// A block that was begun.
#[derive(Debug, Default)]
struct Block {
    is_decoded: bool,
    distinct: u32,
    /// What each flow delivered of these. They are few, so looking through them is quicker than a tree.
    flows: Vec<FlowSymbols>,
}

/// The symbols of a block that one flow delivered.
#[derive(Debug)]
struct FlowSymbols {
    seat: u32,
    /// How many they are.
    count: u32,
    /// Which they are, 64 to a word, by the place of the word and in its order. Those of an honest flow come
    /// at the end, one word after the other.
    words: Vec<(u32, u64)>,
}

impl FlowSymbols {
    /// Notes the symbol at a place among those of the flow; says whether it is new.
    fn insert(&mut self, place: u32) -> bool {
        let (word, bit) = (place / 64, 1 << (place % 64));
        let index = match self.words.last() {
            Some((last, _)) if *last == word => self.words.len() - 1,
            Some((last, _)) if *last > word => self.words.partition_point(|(it, _)| *it < word),
            _ => self.words.len(),
        };
        if self.words.get(index).is_none_or(|(it, _)| *it != word) {
            self.words.insert(index, (word, 0));
        }
        let bits = &mut self.words[index].1;
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }
}

impl Block {
    /// What the flow of a seat delivered.
    fn of(&self, seat: u32) -> Option<&FlowSymbols> {
        self.flows.iter().find(|it| it.seat == seat)
    }

    /// The same, to add to it.
    fn of_mut(&mut self, seat: u32) -> &mut FlowSymbols {
        let found = self.flows.iter().position(|it| it.seat == seat);
        let index = found.unwrap_or_else(|| {
            self.flows.push(FlowSymbols {
                seat,
                count: 0,
                words: Vec::new(),
            });
            self.flows.len() - 1
        });
        &mut self.flows[index]
    }

    fn words(&self) -> usize {
        self.flows.iter().map(|it| it.words.len()).sum()
    }
}

impl Blocks {
    /// Those of an object of which nothing has come. If it is coded, it has so many seats.
    pub(super) fn new(layout: Layout, seats: Option<u32>, estimate: Estimate) -> Self {
        let stride = seats.unwrap_or(1);
        debug_assert!(stride > 0, "symbols that are not apart");
        Self {
            layout,
            stride,
            ahead: if seats.is_some() {
                AHEAD_MAX
            } else {
                UNCODED_BLOCKS_MAX
            },
            floor: 0,
            open: VecDeque::new(),
            remaining: layout.symbols(),
            stuck: None,
            estimate,
            delivered: BTreeMap::new(),
            delivered_by_all: 0.0,
        }
    }

    /// The first block that is not decoded.
    pub(super) fn floor(&self) -> u32 {
        self.floor
    }

    /// How many symbols are missing over all blocks; a block that is not decoded misses one at least.
    pub(super) fn remaining(&self) -> u64 {
        debug_assert!(self.remaining > 0 || self.floor == self.layout.blocks());
        self.remaining
    }

    /// How many blocks are begun.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// How many words say which symbols came.
    pub(super) fn words(&self) -> usize {
        self.open.iter().map(Block::words).sum()
    }

    /// A block that has symbols enough and still is not decoded.
    pub(super) fn stuck(&self) -> Option<u32> {
        self.stuck
    }

    /// How many symbols of a block a flow still has to deliver if so many sources push; at least one until
    /// the block is decoded, and none of a block that there is not.
    pub(super) fn needed(&self, block: u32, seat: u32, sources: u32) -> u32 {
        let symbols = self.layout.symbols_of(block);
        debug_assert!(sources > 0);
        let Some(index) = block.checked_sub(self.floor).filter(|_| symbols > 0) else {
            return 0;
        };
        let open = self.open.get(index as usize);
        if open.is_some_and(|it| it.is_decoded) {
            return 0;
        }
        // `ceil((u - v + 2) / n)` of [PPUSH §III-A].
        let distinct = open.map_or(0, |it| it.distinct);
        let even = (symbols + 2)
            .saturating_sub(distinct)
            .div_ceil(sources)
            .max(1);
        if self.estimate == Estimate::Even {
            return even;
        }
        let own = open.and_then(|it| it.of(seat)).map_or(0, |it| it.count);
        let part = f64::from(symbols + 2) * self.part(seat, sources);
        let lacks = (part.ceil() as u32).saturating_sub(own);
        even.min(lacks.max(even.div_ceil(HELP)))
    }

    /// The part of a block that a flow is expected to deliver; that of one that is new is even.
    fn part(&self, seat: u32, sources: u32) -> f64 {
        let even = 1.0 / f64::from(sources);
        let all = self.delivered_by_all;
        let part = self
            .delivered
            .get(&seat)
            .map_or(even, |it| it / all.max(1.0));
        debug_assert!((0.0..=1.0 + 1e-9).contains(&part), "a part of {part}");
        part
    }

    /// Takes a symbol, which the caller has checked.
    pub(super) fn take(&mut self, data: &Data, decoder: &mut dyn Decoder, payload: &[u8]) -> Taken {
        debug_assert!(data.block < self.layout.blocks());
        let Some(index) = data.block.checked_sub(self.floor) else {
            return Taken::Late;
        };
        if index >= self.ahead {
            return Taken::Ahead;
        }
        let index = index as usize;
        if self.open.len() <= index {
            self.open.resize_with(index + 1, Block::default);
        }
        let block = &mut self.open[index];
        if block.is_decoded {
            return Taken::Late;
        }
        // Of objects that are not coded any flow may bring any symbol: these are all noted at one seat.
        let owner = data.symbol % self.stride;
        if !block.of_mut(owner).insert(data.symbol / self.stride) {
            return Taken::Duplicate;
        }
        block.of_mut(data.flow.seat).count += 1;
        block.distinct += 1;
        let symbols = self.layout.symbols_of(data.block);
        debug_assert!(
            block.distinct <= symbols + SPARE_MAX,
            "a stuck block takes more"
        );
        debug_assert!(block.words() <= block.distinct as usize);
        // What a block misses counts down to one and is gone when it is decoded.
        if block.distinct < symbols {
            self.remaining -= 1;
        }
        if decoder.add(data.block, data.symbol, block.distinct, payload) {
            // A decoder that is done early has done without what was missing.
            self.remaining -= u64::from(symbols.saturating_sub(block.distinct).max(1));
            block.is_decoded = true;
            self.delivered.values_mut().for_each(|it| *it /= 2.0);
            for flow in std::mem::take(&mut block.flows) {
                *self.delivered.entry(flow.seat).or_default() += f64::from(flow.count);
            }
            // Who delivered nothing for so long is gone.
            self.delivered.retain(|_, it| *it > 0.5);
            self.delivered_by_all = self.delivered.values().sum();
            while self.open.front().is_some_and(|it| it.is_decoded) {
                self.open.pop_front();
                self.floor += 1;
            }
        } else if block.distinct >= symbols + SPARE_MAX {
            self.stuck = Some(data.block);
        }
        debug_assert!(self.open.len() <= self.ahead as usize);
        debug_assert!(
            self.open.front().is_none_or(|it| !it.is_decoded),
            "a floor too low"
        );
        debug_assert!(self.floor <= self.layout.blocks());
        debug_assert!(self.delivered.len() <= crate::SEATS_MAX as usize);
        Taken::New
    }
}
