//! How many ports packets pass in a second with real machines at the ends of their ways, on One Big Switch
//! of 100 hosts: `cargo run --release -p outpour-sim --example task_hops -- push-1-1`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "what takes how long is the question"
)]

use std::time::{Duration, Instant};

use outpour_sim::packets::tasks::{Links, Scheme, Setting, Shape, Sizes, Sources, Workload};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "push-1-1".to_owned());
    let scheme = Scheme::ALL.into_iter().find(|it| it.name() == name);
    let scheme = scheme.ok_or_else(|| format!("there is no scheme `{name}`"))?;
    let links = Links {
        packets_per_s: 2e5,
        fabric_packets_per_s: 2e5,
        delay: Duration::from_micros(20),
        packet_bytes: 1500,
    };
    let topology = Shape::OneBigSwitch { hosts: 100 }.topology(&links)?;
    let workload = Workload {
        sources: Sources::Pool(10),
        load: 0.9,
        sizes: Sizes::fixed(20_000).ok_or("a size out of range")?,
        tasks: 60,
    };
    for seed in 1..=3 {
        let begun = Instant::now();
        let played = Setting::new(topology.clone(), scheme).instance(&workload, seed)?;
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {} hops in {seconds:.2} s, {:.2} million in a second",
            played.packet_hops,
            played.packet_hops as f64 / seconds / 1e6
        );
    }
    Ok(())
}
