//! Wall time of simulated swarms: grows about linearly with nodes times blocks.
//!
//! `cargo run --release -p outpour-sim --example sim_scale [PROTOCOL [NODES BLOCKS]]`

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // It measures itself.

use std::time::{Duration, Instant};

use outpour_core::network::Network;
use outpour_core::{Bytes, NodeId, Rate};
use outpour_protocols::registry::by_name;
use outpour_sim::cast::{CastConfig, simulate};
use outpour_terms::Asked;

const BLOCK: u32 = 1 << 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let protocol = args.next().unwrap_or_else(|| "swarm".to_owned());
    let mut sizes: Vec<(u32, u32)> = vec![
        (50, 1000),
        (100, 1000),
        (200, 1000),
        (50, 10_000),
        (200, 10_000),
    ];
    if let (Some(nodes), Some(blocks)) = (args.next(), args.next()) {
        sizes = vec![(nodes.parse()?, blocks.parse()?)];
    }
    println!(
        "{:>6} {:>7} {:>8} {:>7} {:>14}",
        "nodes", "blocks", "wall s", "ratio", "us per block"
    );
    for (nodes, blocks) in sizes {
        let rate: Rate = "100 MB/s".parse()?;
        let network = Network::uniform(nodes, rate, rate, Duration::ZERO)?;
        let started = Instant::now();
        let report = simulate(CastConfig {
            asked: Asked {
                protocol: Some(by_name(&protocol)?),
                block_bytes: Some(BLOCK),
                ..Asked::default()
            },
            ..CastConfig::new(
                network,
                NodeId(0),
                Bytes(u64::from(blocks) * u64::from(BLOCK)),
            )
        })?;
        let wall = started.elapsed().as_secs_f64();
        let each = wall * 1e6 / f64::from(nodes) / f64::from(blocks);
        println!(
            "{nodes:>6} {blocks:>7} {wall:>8.2} {:>7.3} {each:>14.2}",
            report.ratio
        );
    }
    Ok(())
}
