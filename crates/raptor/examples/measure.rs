//! Measures encoding and decoding on one core, and how often decoding fails:
//! `cargo run --release -p outpour-raptor --example measure [-- TRIALS]`.
#![allow(clippy::arithmetic_side_effects)]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use outpour_push::Decoder as _;
use outpour_raptor::{Cut, Encoder, Evidence, RaptorDecoder, Sink};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Takes every block.
#[derive(Debug)]
struct Taker;

impl Sink for Taker {
    fn take(&mut self, _: u32, data: &[u8]) -> bool {
        !black_box(data).is_empty()
    }

    fn spoilt(&mut self, _: Evidence) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let trials: u32 = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 20_000,
    };
    println!("symbol_bytes symbols encode_mb_s decode_mb_s decode_systematic_mb_s block_ms");
    for (symbol_bytes, symbols) in [
        (1024, 16),
        (1024, 64),
        (1024, 256),
        (1024, 1024),
        (1024, 4096),
        (512, 8192),
    ] {
        speed(symbol_bytes, symbols)?;
    }
    println!("symbols trials failed_with_0_more with_1_more with_2_more");
    for symbols in [1, 2, 10, 30, 100, 300] {
        failures(symbols, trials)?;
    }
    Ok(())
}

/// Decodes from repair symbols alone, which is the most work, and from all but a tenth of the source symbols.
fn speed(symbol_bytes: u16, symbols: u32) -> Result<(), Box<dyn Error>> {
    let bytes = u64::from(symbol_bytes) * u64::from(symbols);
    let cut = Cut::new(bytes, symbol_bytes, symbols)?;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut data = vec![0; bytes as usize];
    random.fill_bytes(&mut data);
    let mut encoder = Encoder::new(cut);
    // The plan is made once for an object.
    encoder.block(0, data.clone())?;
    let (mut encode, mut decode, mut systematic) = Default::default();
    let mut rounds = 0;
    while encode + decode < Duration::from_secs(3) {
        rounds += 1;
        let begun = Instant::now();
        let mut block = encoder.block(0, data.clone())?;
        let mut repair = Vec::new();
        for number in symbols..2 * symbols + 64 {
            let mut symbol = Vec::new();
            block.symbol(number, &mut symbol)?;
            repair.push((number, symbol));
        }
        encode += begun
            .elapsed()
            .mul_f64(f64::from(symbols) / f64::from(symbols + 64));
        decode += decoded_in(cut, repair.iter().cloned())?;
        let mut mixed = Vec::new();
        for number in (0..symbols).filter(|it| it % 10 != 5) {
            let mut symbol = Vec::new();
            block.symbol(number, &mut symbol)?;
            mixed.push((number, symbol));
        }
        mixed.extend(repair);
        systematic += decoded_in(cut, mixed.into_iter())?;
    }
    let rate = |it: Duration| bytes as f64 * f64::from(rounds) / it.as_secs_f64() / 1e6;
    println!(
        "{symbol_bytes} {symbols} {:.0} {:.0} {:.0} {:.2}",
        rate(encode),
        rate(decode),
        rate(systematic),
        decode.as_secs_f64() * 1e3 / f64::from(rounds)
    );
    Ok(())
}

fn decoded_in(
    cut: Cut,
    symbols: impl Iterator<Item = (u32, Vec<u8>)>,
) -> Result<Duration, Box<dyn Error>> {
    let mut decoder = RaptorDecoder::new(cut, 64 << 20, Box::new(Taker))?;
    decoder.begin(&cut.layout());
    let begun = Instant::now();
    for (number, symbol) in symbols {
        if decoder.add(0, number, 0, &symbol) {
            return Ok(begun.elapsed());
        }
    }
    Err("a block was not decoded".into())
}

/// How often blocks are not decoded from as many random symbols as they have, and from more.
fn failures(symbols: u32, trials: u32) -> Result<(), Box<dyn Error>> {
    let cut = Cut::new(symbols.into(), 1, symbols)?;
    let mut random = Pcg64Mcg::seed_from_u64(symbols.into());
    let mut block = Encoder::new(cut).block(0, vec![1; symbols as usize])?;
    let mut failed = [0_u32; 3];
    for _ in 0..trials {
        let mut decoder = RaptorDecoder::new(cut, 1 << 20, Box::new(Taker))?;
        decoder.begin(&cut.layout());
        let mut symbol = Vec::new();
        loop {
            let number = random.next_u32() >> 8;
            block.symbol(number, &mut symbol)?;
            if decoder.add(0, number, 0, &symbol) {
                break;
            }
            if let Some(more) = decoder.tries().checked_sub(1)
                && let Some(count) = failed.get_mut(more as usize)
            {
                *count += 1;
            }
        }
    }
    println!("{symbols} {trials} {failed:?}");
    Ok(())
}
