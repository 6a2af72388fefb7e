//! Symbols of blocks by number.

use std::sync::Arc;

use outpour_push::SYMBOL_NUMBERS;
use raptorq::{SourceBlockEncoder, SourceBlockEncodingPlan};

use crate::{Cut, Error};

/// Encodes the blocks of one object.
///
/// What blocks with as many symbols have in common is computed once and kept: that is for two sizes at most.
#[derive(Debug)]
pub struct Encoder {
    cut: Cut,
    plans: Vec<(u32, Arc<SourceBlockEncodingPlan>)>,
}

impl Encoder {
    /// One for objects that are cut like this.
    pub fn new(cut: Cut) -> Self {
        Self {
            cut,
            plans: Vec::new(),
        }
    }

    /// Takes the bytes of a block, without those that fill it up.
    ///
    /// # Errors
    /// If there is no such block, or it has another size.
    pub fn block(&mut self, block: u32, data: Vec<u8>) -> Result<BlockEncoder, Error> {
        let blocks = self.cut.layout().blocks();
        let Some(range) = self.cut.block_bytes(block) else {
            return Err(Error::NoSuchBlock { block, blocks });
        };
        let expected = range.end.saturating_sub(range.start);
        if data.len() as u64 != expected {
            let found = data.len();
            return Err(Error::BlockBytes {
                block,
                found,
                expected,
            });
        }
        let mut data = data;
        data.resize(self.cut.padded(block) as usize, 0);
        let plan = self.plan(self.cut.layout().symbols_of(block));
        Ok(BlockEncoder {
            cut: self.cut,
            block,
            data,
            plan,
            repair: None,
        })
    }

    fn plan(&mut self, symbols: u32) -> Arc<SourceBlockEncodingPlan> {
        if let Some((_, plan)) = self.plans.iter().find(|it| it.0 == symbols) {
            return Arc::clone(plan);
        }
        debug_assert!(symbols <= crate::BLOCK_SYMBOLS_MAX && self.plans.len() < 2);
        let plan = Arc::new(SourceBlockEncodingPlan::generate(symbols as u16));
        self.plans.push((symbols, Arc::clone(&plan)));
        plan
    }
}

/// Encodes one block, which it keeps: about three times its size, once the first repair symbol was asked for.
#[derive(Debug)]
pub struct BlockEncoder {
    cut: Cut,
    block: u32,
    /// Filled up to whole symbols.
    data: Vec<u8>,
    plan: Arc<SourceBlockEncodingPlan>,
    /// What repair symbols are made of; source symbols need nothing.
    repair: Option<SourceBlockEncoder>,
}

impl BlockEncoder {
    /// Which block it is.
    pub fn number(&self) -> u32 {
        self.block
    }

    /// Writes the symbol with this number into `out`, in place of what is there.
    ///
    /// # Errors
    /// If numbers do not go so far: they have 24 bits.
    pub fn symbol(&mut self, number: u32, out: &mut Vec<u8>) -> Result<(), Error> {
        let is_fine = number < SYMBOL_NUMBERS;
        Error::check("symbol", number.into(), is_fine, "0 to 2^24 - 1")?;
        out.clear();
        let source = self.cut.layout().symbols_of(self.block);
        let size = usize::from(self.cut.symbol_bytes());
        let Some(beyond) = number.checked_sub(source) else {
            out.extend(
                self.data
                    .chunks(size)
                    .nth(number as usize)
                    .into_iter()
                    .flatten(),
            );
            debug_assert_eq!(out.len(), size);
            return Ok(());
        };
        let repair = self.repair.get_or_insert_with(|| {
            let information = self.cut.information(self.block);
            SourceBlockEncoder::with_encoding_plan(0, &information, &self.data, &self.plan)
        });
        let packets = repair.repair_packets(beyond, 1);
        out.extend(packets.first().into_iter().flat_map(|it| it.data()));
        debug_assert_eq!(out.len(), size);
        Ok(())
    }
}
