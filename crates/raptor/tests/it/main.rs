//! What holds of RaptorQ behind the decoder of a push.
#![allow(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use outpour_push::Decoder as _;
use outpour_raptor::{Cut, Encoder, Evidence, RaptorDecoder, Sink};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

mod blocks;
mod chance;
mod hostile;
mod task;

/// An object with the hashes of its blocks, as a manifest has them.
pub(crate) struct Object {
    pub(crate) cut: Cut,
    pub(crate) data: Vec<u8>,
    pub(crate) hashes: Vec<blake3::Hash>,
}

impl Object {
    pub(crate) fn new(seed: u64, bytes: usize, symbol_bytes: u16, block_symbols: u32) -> Self {
        let cut = Cut::new(bytes as u64, symbol_bytes, block_symbols).unwrap();
        let mut data = vec![0; bytes];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut data);
        let hashes = (0..cut.layout().blocks())
            .map(|it| blake3::hash(part(cut, &data, it)))
            .collect();
        Self { cut, data, hashes }
    }

    pub(crate) fn block(&self, block: u32) -> &[u8] {
        part(self.cut, &self.data, block)
    }

    /// A decoder of it with what it decodes.
    pub(crate) fn decoder(&self, memory: u64) -> (RaptorDecoder, Arc<Mutex<Found>>) {
        let found = Arc::new(Mutex::new(Found {
            hashes: self.hashes.clone(),
            ..Found::default()
        }));
        let sink = Box::new(Shared(Arc::clone(&found)));
        let mut decoder = RaptorDecoder::new(self.cut, memory, sink).unwrap();
        assert!(decoder.begin(&self.cut.layout()));
        (decoder, found)
    }

    /// Symbols of a block by number.
    pub(crate) fn symbols(&self, block: u32, numbers: impl Iterator<Item = u32>) -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new(self.cut);
        let mut block = encoder.block(block, self.block(block).to_vec()).unwrap();
        numbers
            .map(|number| {
                let mut symbol = Vec::new();
                block.symbol(number, &mut symbol).unwrap();
                symbol
            })
            .collect()
    }
}

fn part(cut: Cut, data: &[u8], block: u32) -> &[u8] {
    let range = cut.block_bytes(block).unwrap();
    &data[range.start as usize..range.end as usize]
}

/// What a sink was handed.
#[derive(Debug, Default)]
pub(crate) struct Found {
    hashes: Vec<blake3::Hash>,
    pub(crate) right: BTreeSet<u32>,
    pub(crate) spoilt: Vec<Evidence>,
}

#[derive(Debug)]
struct Shared(Arc<Mutex<Found>>);

impl Sink for Shared {
    fn take(&mut self, block: u32, data: &[u8]) -> bool {
        let mut found = self.0.lock().unwrap();
        let is_right = found.hashes[block as usize] == blake3::hash(data);
        if is_right {
            assert!(found.right.insert(block), "block {block} came twice");
        }
        is_right
    }

    fn spoilt(&mut self, evidence: Evidence) {
        self.0.lock().unwrap().spoilt.push(evidence);
    }
}
