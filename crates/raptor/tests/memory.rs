//! What a decoder takes up, by the allocator. Alone in its process: other tests would allocate as well.
#![allow(clippy::arithmetic_side_effects, clippy::panic, clippy::unwrap_used)]

use std::alloc::System;

use cap::Cap;
use outpour_push::Decoder as _;
use outpour_raptor::{Cut, Evidence, RaptorDecoder, Sink};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

#[derive(Debug)]
struct Nothing;

impl Sink for Nothing {
    fn take(&mut self, _: u32, _: &[u8]) -> bool {
        false
    }
    fn spoilt(&mut self, _: Evidence) {}
}

/// Fills a decoder with so many symbols of each block, the last block first, and says how many bytes that took
/// at most beyond what it allows itself, and which share of that it used in the end.
fn fill(symbol_bytes: u16, block_symbols: u32, memory: u64, each: u32) -> (i64, f64) {
    let blocks = 20_000;
    let bytes = u64::from(blocks * block_symbols) * u64::from(symbol_bytes);
    let cut = Cut::new(bytes, symbol_bytes, block_symbols).unwrap();
    let payload = vec![0; usize::from(symbol_bytes)];
    let before = ALLOCATOR.allocated();
    let mut decoder = RaptorDecoder::new(cut, memory, Box::new(Nothing)).unwrap();
    assert!(decoder.begin(&cut.layout()));
    let mut beyond = i64::MIN;
    // After the first block that finds no room a few are enough.
    let mut refused = 0;
    for block in (0..blocks).rev() {
        refused += u32::from(!decoder.takes(block, &payload));
        if refused > 3 {
            break;
        }
        for number in 0..each {
            decoder.add(block, number, 0, &payload);
            let used = ALLOCATOR.allocated() - before;
            beyond = beyond.max(used as i64 - memory as i64);
        }
    }
    let kept = decoder.memory() as f64 / memory as f64;
    assert!(kept > 0.5, "it did not fill up: {kept}");
    let used = (ALLOCATOR.allocated() - before) as f64;
    (beyond, used / decoder.memory() as f64)
}

#[test]
fn symbols_of_any_size_take_up_no_more_than_they_may() {
    for (symbol_bytes, block_symbols, each) in [
        (1, 100, 99),
        (1, 8192, 8191),
        (1, 100, 1),
        (1, 2, 1),
        (16, 64, 5),
        (64, 100, 99),
        (1024, 64, 63),
    ] {
        let (beyond, share) = fill(symbol_bytes, block_symbols, 2 << 20, each);
        let case = format!("{each} of {block_symbols} symbols of {symbol_bytes} bytes");
        assert!(beyond <= 0, "{case}: {beyond} bytes too many");
        // What it charges is not far from what it takes, so memory is not left idle.
        assert!(share > 0.3, "{case}: only {share:.2} of it is used");
    }
}
