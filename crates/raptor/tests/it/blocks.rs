//! Blocks come back from any symbols that are enough.

use outpour_push::Decoder as _;
use proptest::prelude::*;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::Object;

/// Sends symbols of all blocks in a drawn order, with some lost and some twice, until all are decoded.
fn comes_back(seed: u64, bytes: usize, symbol_bytes: u16, block_symbols: u32, lost: u32) {
    let object = Object::new(seed, bytes, symbol_bytes, block_symbols);
    let (mut decoder, found) = object.decoder(64 << 20);
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 1);
    let blocks = object.cut.layout().blocks();
    let mut parcels = Vec::new();
    for block in 0..blocks {
        let source = object.cut.layout().symbols_of(block);
        // Some are lost, and as many more follow as are enough with a few to spare.
        let mut numbers = Vec::new();
        for index in 0.. {
            let number = match index < source {
                true => index,
                false => source + (random.next_u32() >> 8) % ((1 << 24) - source),
            };
            if random.next_u32() % 100 >= lost {
                numbers.push(number);
            }
            if numbers.len() as u32 == source + 12 {
                break;
            }
        }
        let symbols = object.symbols(block, numbers.iter().copied());
        for (number, symbol) in numbers.into_iter().zip(symbols) {
            parcels.push((random.next_u64(), block, number, symbol.clone()));
            if random.next_u32().is_multiple_of(10) {
                parcels.push((random.next_u64(), block, number, symbol));
            }
        }
    }
    parcels.sort();
    for (_, block, number, symbol) in parcels {
        // Those of a block that is decoded are not taken, and do no harm.
        let is_open = decoder.takes(block, &symbol);
        assert_eq!(is_open, !found.lock().unwrap().right.contains(&block));
        let is_decoded = decoder.add(block, number, 0, &symbol);
        assert_eq!(
            is_decoded,
            is_open && found.lock().unwrap().right.contains(&block)
        );
    }
    let found = found.lock().unwrap();
    assert_eq!(
        found.right.len(),
        blocks as usize,
        "seed {seed}: {:?}",
        found.right
    );
    assert!(found.spoilt.is_empty());
    assert_eq!(decoder.memory(), 0, "symbols of decoded blocks are kept");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_symbols_that_are_enough_make_the_object(
        seed: u64, bytes in 1..6000_usize, symbol_bytes in 1..80_u16, block_symbols in 1..70_u32, lost in 0..60_u32,
    ) {
        comes_back(seed, bytes, symbol_bytes, block_symbols, lost);
    }
}

#[test]
fn blocks_of_every_small_number_of_symbols_come_back() {
    for symbols in 1..=130 {
        comes_back(symbols.into(), symbols as usize * 3 - 1, 3, symbols, 30);
    }
}

#[test]
fn large_blocks_come_back() {
    comes_back(1, 3 * 1024 * 1024 / 2, 1024, 1024, 20);
    comes_back(2, 8192 * 16, 16, 8192, 50);
}

#[test]
fn source_symbols_are_the_block_and_cost_no_decoding_of_others() {
    let object = Object::new(3, 10_001, 100, 101);
    let symbols = object.symbols(0, 0..101);
    let mut joined: Vec<u8> = symbols.concat();
    assert_eq!(joined.len(), 10_100);
    assert!(joined[10_001..].iter().all(|it| *it == 0));
    joined.truncate(10_001);
    assert_eq!(joined, object.data);
    let (mut decoder, _) = object.decoder(1 << 20);
    let decoded: Vec<bool> = symbols
        .iter()
        .zip(0..)
        .map(|(symbol, number)| decoder.add(0, number, 0, symbol))
        .collect();
    assert_eq!(decoded.iter().filter(|it| **it).count(), 1);
    assert!(decoded[100] && decoder.tries() == 1);
}

#[test]
fn symbols_do_not_depend_on_what_was_asked_before() {
    let object = Object::new(4, 500, 10, 50);
    let forth = object.symbols(0, 0..200);
    let mut back = object.symbols(0, (0..200).rev());
    back.reverse();
    assert_eq!(forth, back);
}
