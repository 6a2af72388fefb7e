//! Input for `outpour-raptor`.

use std::sync::{Arc, Mutex};

use outpour_push::Decoder as _;
use outpour_raptor::{Cut, Encoder, Evidence, RaptorDecoder, Sink};

/// Blocks that came out right, and how many did not.
#[derive(Debug, Default)]
struct Found {
    right: Vec<u32>,
    wrong: usize,
}

#[derive(Debug)]
struct Judge(Arc<Mutex<Found>>, Cut, Vec<u8>);

impl Sink for Judge {
    fn take(&mut self, block: u32, data: &[u8]) -> bool {
        let range = self.1.block_bytes(block).expect("blocks that there are");
        let is_right = data == &self.2[range.start as usize..range.end as usize];
        let mut found = self.0.lock().expect("nobody panics with it");
        match is_right {
            true => found.right.push(block),
            false => found.wrong += 1,
        }
        is_right
    }

    fn spoilt(&mut self, evidence: Evidence) {
        let mut encoder = Encoder::new(self.1);
        let range = self
            .1
            .block_bytes(evidence.block())
            .expect("blocks that there are");
        let data = self.2[range.start as usize..range.end as usize].to_vec();
        let mut right = encoder.block(evidence.block(), data).expect("sizes fit");
        assert!(
            !evidence
                .wrong(&mut right)
                .expect("the same block")
                .is_empty()
        );
    }
}

/// Three bytes say how an object of zeros and ones is cut; then come symbols of seven bytes each: block, number,
/// what is done to the payload.
pub(crate) fn symbols(bytes: &[u8]) {
    let [size, symbol_bytes, block_symbols, rest @ ..] = bytes else {
        return;
    };
    let data: Vec<u8> = (0..usize::from(*size) * 16)
        .map(|it| (it * it % 7) as u8)
        .collect();
    let Ok(cut) = Cut::new(
        data.len() as u64,
        u16::from(*symbol_bytes),
        u32::from(*block_symbols),
    ) else {
        return;
    };
    // Room for one block more.
    let more = u64::from(*block_symbols) * (u64::from(*symbol_bytes) + 96);
    let memory = RaptorDecoder::memory_min(&cut) + more;
    let found = Arc::new(Mutex::new(Found::default()));
    let judge = Judge(Arc::clone(&found), cut, data.clone());
    let mut decoder = RaptorDecoder::new(cut, memory, Box::new(judge)).expect("room for a block");
    assert!(decoder.begin(&cut.layout()));
    let mut encoder = Encoder::new(cut);
    for chunk in rest.chunks_exact(7) {
        let block = u32::from(chunk[0]);
        let number = u32::from_be_bytes([chunk[1], chunk[2], chunk[3], chunk[4]]);
        let mut payload = vec![chunk[6]; usize::from(*symbol_bytes)];
        if chunk[5] % 4 != 0
            && let Some(range) = cut.block_bytes(block)
            && let Ok(mut it) = encoder.block(
                block,
                data[range.start as usize..range.end as usize].to_vec(),
            )
        {
            let _ = it.symbol(number, &mut payload);
        }
        if chunk[5] % 4 == 1 {
            payload.resize(usize::from(chunk[6]), 0);
        }
        decoder.add(block, number, 0, &payload);
        assert!(decoder.memory() <= memory);
    }
    let found = found.lock().expect("nobody panics with it");
    let mut blocks = found.right.clone();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), found.right.len(), "a block came twice");
    assert!(found.wrong + blocks.len() <= cut.layout().blocks() as usize);
}
