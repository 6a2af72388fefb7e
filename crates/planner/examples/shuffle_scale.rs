//! How long placements of reducers take, and how far they are from the bound: sizes, the median and
//! the longest decision, the mean and the largest factor.
//!
//! Hosts have cards of 0.1 to 40 Gbit/s at random, as in [RPC §VI-B]; mappers and reducers are on
//! different hosts, or on the same. Shuffles of 20 Gbit and more are split over mappers at random.
//!
//! `cargo run --release -p outpour-planner --example shuffle_scale`
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout
)]

use std::time::Instant;

use outpour_planner::shuffle::{Coflow, Flow, Hosts, place};

/// Random numbers from 0 to 1, the same in every run.
fn random(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f64 / f64::from(1 << 24)
}

const CARDS_GBIT: [f64; 6] = [0.1, 0.2, 0.5, 1.0, 10.0, 40.0];
const TRIALS: usize = 200;

fn main() {
    println!("mappers  reducers  hosts  same  median ms  longest ms  mean factor  largest");
    for (mappers, reducers, hosts, same) in [
        (100, 100, 100, false),
        (200, 200, 200, false),
        (500, 500, 500, false),
        (500, 500, 500, true),
        (500, 2000, 500, false),
    ] {
        let state = &mut 1;
        let (mut times, mut factors) = (Vec::new(), Vec::new());
        for _ in 0..TRIALS {
            let (coflow, hosts) = draw(state, mappers, reducers, hosts, same);
            let begun = Instant::now();
            let placement = place(&coflow, &hosts, &[]).unwrap();
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            factors.extend(placement.factor());
        }
        times.sort_by(f64::total_cmp);
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        let largest = factors.iter().copied().fold(0.0, f64::max);
        let (median, longest) = (times[TRIALS / 2], times[TRIALS - 1]);
        println!(
            "{mappers:7}  {reducers:8}  {hosts:5}  {same:5}  {median:9.3}  {longest:10.3}  {mean:11.4}  {largest:7.4}"
        );
    }
}

/// A coflow and hosts: mappers first, then those of reducers, if they are not the same.
fn draw(
    state: &mut u64,
    mappers: usize,
    reducers: usize,
    hosts: usize,
    same: bool,
) -> (Coflow, Hosts) {
    let first = if same { 0 } else { mappers };
    let count = first + hosts;
    let card = |state: &mut u64| {
        let index = (random(state) * CARDS_GBIT.len() as f64) as usize;
        CARDS_GBIT[index.min(CARDS_GBIT.len() - 1)] * 1e9 / 8.0
    };
    let cards: Vec<f64> = (0..count).map(|_| card(state)).collect();
    // From 20 Gbit to 12 Tbit, evenly on a logarithmic scale.
    let bytes = 2.5e9 * 600.0_f64.powf(random(state));
    let each = bytes / (mappers * reducers) as f64;
    let flow = |state: &mut u64, mapper| Flow {
        mapper,
        bytes: 2.0 * random(state) * each,
    };
    let reducer = |state: &mut u64| (0..mappers).map(|mapper| flow(state, mapper)).collect();
    let flows = (0..reducers).map(|_| reducer(state)).collect();
    let hosts = Hosts {
        out: cards.clone(),
        into: cards,
        slots: (0..count)
            .map(|host| u32::from(host >= first) * 100_000)
            .collect(),
    };
    (Coflow::new(flows).unwrap(), hosts)
}
