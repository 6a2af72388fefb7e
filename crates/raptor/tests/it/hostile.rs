//! What strangers send: sizes, numbers and contents that cannot be, and too much of it.

use outpour_push::{Decoder as _, Layout, SYMBOL_NUMBERS};
use outpour_raptor::{Cut, Encoder, RaptorDecoder, SPARE_MAX};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::Object;

#[test]
fn an_object_that_is_cut_in_another_way_is_not_begun() {
    let object = Object::new(1, 1000, 10, 20);
    let (mut decoder, _) = object.decoder(1 << 16);
    for (symbols, block_symbols) in [(101, 20), (99, 20), (100, 19), (1 << 40, 56_403)] {
        assert!(!decoder.begin(&Layout::new(symbols, block_symbols).unwrap()));
        assert!(
            !decoder.takes(0, &[0; 10]),
            "nothing is taken of what was not begun"
        );
        assert!(!decoder.add(0, 0, 1, &[0; 10]));
    }
    assert!(decoder.begin(&object.cut.layout()));
    assert!(decoder.takes(0, &[0; 10]));
}

#[test]
fn payloads_of_another_size_are_not_taken() {
    let object = Object::new(1, 1000, 10, 20);
    let (mut decoder, _) = object.decoder(1 << 16);
    for len in (0..40).chain([1400, 65_536]).filter(|it| *it != 10) {
        let payload = vec![0; len];
        assert!(!decoder.takes(0, &payload), "{len} bytes");
        assert!(!decoder.add(0, 0, 1, &payload));
    }
    assert_eq!(decoder.memory(), 0);
}

#[test]
fn blocks_and_symbols_that_there_are_not_are_not_kept() {
    let object = Object::new(1, 1000, 10, 20);
    let (mut decoder, _) = object.decoder(1 << 16);
    for block in [5, 6, 255, 256, u32::MAX] {
        assert!(!decoder.takes(block, &[0; 10]), "block {block}");
        assert!(!decoder.add(block, 0, 1, &[0; 10]));
    }
    for symbol in [SYMBOL_NUMBERS, SYMBOL_NUMBERS + 1, u32::MAX] {
        assert!(!decoder.add(0, symbol, 1, &[0; 10]), "symbol {symbol}");
    }
    assert_eq!(decoder.memory(), 0);
    // The last number of all is one.
    assert!(!decoder.add(0, SYMBOL_NUMBERS - 1, 1, &[0; 10]));
    assert_eq!(decoder.memory(), 10 + 96 + 384);
}

#[test]
fn the_same_symbol_counts_once_whatever_it_says() {
    let object = Object::new(1, 200, 10, 20);
    let (mut decoder, found) = object.decoder(1 << 16);
    for round in 0..100 {
        assert!(!decoder.add(0, 7, round, &[round as u8; 10]));
    }
    assert_eq!((decoder.memory(), decoder.tries()), (10 + 96 + 384, 0));
    assert!(found.lock().unwrap().spoilt.is_empty());
}

#[test]
fn memory_is_bounded_and_the_first_block_always_finds_room() {
    let object = Object::new(1, 50_000, 10, 100);
    // Room for a block with its spare symbols, and one block more.
    let least = RaptorDecoder::memory_min(&object.cut);
    assert_eq!(least, 106 * (100 + u64::from(SPARE_MAX)) + 384);
    let memory = least + 106 * 100 + 384;
    assert!(RaptorDecoder::new(object.cut, least - 1, Box::new(Nothing)).is_err());
    let (mut decoder, found) = object.decoder(memory);
    // All of them send the last blocks first.
    for block in (0..object.cut.layout().blocks()).rev() {
        for (number, symbol) in (0..99).zip(object.symbols(block, 0..99)) {
            decoder.add(block, number, 0, &symbol);
            assert!(decoder.memory() <= memory);
        }
    }
    assert!(found.lock().unwrap().right.is_empty());
    for block in 0..object.cut.layout().blocks() {
        for (number, symbol) in (200..304).zip(object.symbols(block, 200..304)) {
            assert!(
                decoder.takes(block, &symbol) || found.lock().unwrap().right.contains(&block),
                "no room for block {block}"
            );
            decoder.add(block, number, 0, &symbol);
            assert!(decoder.memory() <= memory);
        }
    }
    assert_eq!(found.lock().unwrap().right.len(), 50);
    assert_eq!(decoder.memory(), 0);
}

#[derive(Debug)]
struct Nothing;

impl outpour_raptor::Sink for Nothing {
    fn take(&mut self, _: u32, _: &[u8]) -> bool {
        false
    }
    fn spoilt(&mut self, _: outpour_raptor::Evidence) {}
}

#[test]
fn wrong_symbols_spoil_a_block_and_are_named_once_it_is_known() {
    let object = Object::new(5, 400, 8, 50);
    for seed in 0..40 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (mut decoder, found) = object.decoder(1 << 16);
        let first = random.next_u32() % 100;
        let numbers: Vec<u32> = (first..first + 60).collect();
        let mut wrong = vec![numbers[(random.next_u32() % 50) as usize]];
        wrong.extend(
            (random.next_u32() % 2 == 0).then(|| numbers[(random.next_u32() % 50) as usize]),
        );
        wrong.sort_unstable();
        wrong.dedup();
        for (number, mut symbol) in numbers
            .iter()
            .zip(object.symbols(0, numbers.iter().copied()))
        {
            if wrong.contains(number) {
                symbol[(random.next_u32() % 8) as usize] ^= 1 << (random.next_u32() % 8);
            }
            assert!(
                !decoder.add(0, *number, 0, &symbol),
                "a wrong block passes for a right one"
            );
        }
        // Once it is known to be spoilt nothing more is kept or tried of it.
        let found = found.lock().unwrap();
        assert!(found.right.is_empty() && found.spoilt.len() == 1 && decoder.tries() <= 3);
        assert_eq!(decoder.memory(), 0);
        let mut right = Encoder::new(object.cut)
            .block(0, object.data.clone())
            .unwrap();
        assert_eq!(
            found.spoilt[0].wrong(&mut right).unwrap(),
            wrong,
            "seed {seed}"
        );
    }
}

#[test]
fn evidence_is_not_judged_by_another_block() {
    let object = Object::new(5, 400, 8, 25);
    let (mut decoder, found) = object.decoder(1 << 16);
    for number in 0..25 {
        decoder.add(1, number, 0, &[9; 8]);
    }
    let found = found.lock().unwrap();
    let mut encoder = Encoder::new(object.cut);
    let mut other = encoder.block(0, object.block(0).to_vec()).unwrap();
    assert!(found.spoilt[0].wrong(&mut other).is_err());
    let mut right = encoder.block(1, object.block(1).to_vec()).unwrap();
    assert_eq!(found.spoilt[0].wrong(&mut right).unwrap().len(), 25);
}

#[test]
fn tries_are_few_however_the_symbols_are_chosen() {
    // The worst that can come is that every try fails. Garbage of right size is decoded to a wrong block at
    // once, so what is counted here is how often it would be tried.
    let object = Object::new(5, 400, 8, 50);
    for seed in 0..200 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (mut decoder, _) = object.decoder(1 << 16);
        for _ in 0..2000 {
            let mut payload = [0; 8];
            random.fill_bytes(&mut payload);
            decoder.add(
                0,
                random.next_u32() >> (random.next_u32() % 32),
                0,
                &payload,
            );
        }
        assert!(
            decoder.tries() <= 9,
            "seed {seed}: {} tries",
            decoder.tries()
        );
    }
}

#[test]
fn encoders_refuse_what_cannot_be() {
    let cut = Cut::new(1000, 10, 30).unwrap();
    let mut encoder = Encoder::new(cut);
    assert!(encoder.block(4, vec![0; 300]).is_err());
    assert!(encoder.block(0, vec![0; 299]).is_err());
    assert!(encoder.block(3, vec![0; 300]).is_err());
    assert!(encoder.block(3, vec![0; 100]).is_ok());
    let mut block = encoder.block(0, vec![0; 300]).unwrap();
    let mut symbol = vec![1; 3];
    assert!(block.symbol(SYMBOL_NUMBERS, &mut symbol).is_err());
    assert!(block.symbol(SYMBOL_NUMBERS - 1, &mut symbol).is_ok());
    assert_eq!(symbol, [0; 10]);
}
