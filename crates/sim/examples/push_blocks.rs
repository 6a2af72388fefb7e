//! `push` and `swarm` block by block: one source and several, tasks of one size and of unequal ones.
//!
//! `cargo run --release -p outpour-sim --example push_blocks`

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use outpour_core::blocks::{Want, WireBlocks};
use outpour_core::network::Network;
use outpour_core::{BlockSet, Bytes, NodeId, Rate, Time};
use outpour_protocols::registry::by_name;
use outpour_protocols::{Member, Role};
use outpour_sim::object::Object;
use outpour_sim::world::{Scenario, World};
use outpour_terms::Terms;

const BLOCKS: u32 = 1526;
const ALL: Range<u32> = 0..BLOCKS;
const BLOCK: u64 = 1 << 16;
const SEEDS: u64 = 5;

/// So many sources that have everything, and which blocks each receiver wants.
struct Case {
    sources: usize,
    wants: Vec<Range<u32>>,
}

/// Seconds until each receiver has what it wants.
fn play(protocol: &str, case: &Case, seed: u64) -> Result<Vec<f64>, Box<dyn Error>> {
    let nodes = case.sources + case.wants.len();
    let rate: Rate = "100 MB/s".parse()?;
    let network = Network::uniform(u32::try_from(nodes)?, rate, rate, Duration::ZERO)?;
    let member = |node: usize| Member {
        cluster: 0,
        role: Role::source_if(node < case.sources),
    };
    let have = |node: usize| match node < case.sources {
        true => BlockSet::full(BLOCKS),
        false => BlockSet::new(BLOCKS),
    };
    let part = |want: &Range<u32>| {
        Want::Blocks(WireBlocks::Runs(vec![(want.start, want.end - want.start)]))
    };
    let all = std::iter::repeat_n(Want::All, case.sources);
    let protocol = by_name(protocol)?.by_default();
    let size = Bytes(u64::from(BLOCKS) * BLOCK);
    let mut world = World::new(Scenario {
        network,
        terms: Terms::new(protocol, (0..nodes).map(member).collect(), seed),
        have: (0..nodes).map(have).collect(),
        want: all.chain(case.wants.iter().map(part)).collect(),
        starts: Vec::new(),
        object: Object::new(size, Bytes(BLOCK), 1).ok_or("no such object")?,
        batches: None,
        faults: Vec::new(),
        timeline: None,
        orders: Vec::new(),
        patience: None,
        checked: false,
        sink: None,
    });
    while !world.is_complete() && world.step(Time::from_secs_f64(600.0)) {}
    let finished = |node: usize| world.finished(NodeId(node as u32)).map(Time::as_secs_f64);
    let times: Option<Vec<f64>> = (case.sources..nodes).map(finished).collect();
    times.ok_or_else(|| "not done in ten minutes".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{BLOCKS} blocks of 64 KiB, 100 MB/s; seconds, means over {SEEDS} seeds");
    println!("sources wants protocol | mean of receivers | last (least to most)");
    let mut cases: Vec<Case> = [2, 4, 8, 14, 20]
        .iter()
        .map(|receivers| Case {
            sources: 1,
            wants: vec![ALL; *receivers],
        })
        .collect();
    for (sources, wants) in [
        (2, vec![ALL]),
        (2, vec![ALL; 5]),
        (6, vec![ALL; 5]),
        (1, vec![0..150, ALL]),
        (1, vec![0..150, 0..300, 0..600, 0..1000, ALL]),
        (1, vec![0..150, 150..526, 526..BLOCKS]),
        (2, vec![0..150, 150..526, 526..BLOCKS]),
        (2, vec![0..50, 50..150, 150..350, 350..750, 750..BLOCKS]),
    ] {
        cases.push(Case { sources, wants });
    }
    for case in &cases {
        for protocol in ["swarm", "push"] {
            let (mut means, mut lasts) = (Vec::new(), Vec::new());
            for seed in 1..=SEEDS {
                let times = play(protocol, case, seed)?;
                means.push(times.iter().sum::<f64>() / times.len() as f64);
                lasts.push(times.iter().copied().fold(0.0, f64::max));
            }
            let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
            let least = lasts.iter().copied().fold(f64::INFINITY, f64::min);
            let most = lasts.iter().copied().fold(0.0, f64::max);
            println!(
                "{} {:?} {protocol} | {:.3} | {:.3} ({least:.3} to {most:.3})",
                case.sources,
                case.wants,
                mean(&means),
                mean(&lasts)
            );
        }
    }
    Ok(())
}
