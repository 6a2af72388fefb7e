//! How many packet-hops per second flows with real machines take on one core.
//!
//! A hundred hosts around one switch, each with as many flows as asked for to others, at 200,000
//! packets per second; ports mark from 30 packets on and hold 200.
//!
//! `cargo run --release -p outpour-sim --example flows [SCHEME] [FLOWS PER HOST] [MILLISECONDS]`
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout
)]

use std::time::{Duration, Instant};

use outpour_sim::packets::flows::{Flow, Flows, Line, Scheme};

const HOSTS: usize = 100;

fn main() {
    let mut words = std::env::args().skip(1);
    let mut word = |usual: &str| words.next().unwrap_or_else(|| usual.to_owned());
    let name = word("push");
    let scheme = Scheme::ALL.into_iter().find(|it| it.name() == name);
    let per_host: usize = word("8").parse().unwrap();
    let duration = Duration::from_millis(word("100").parse().unwrap());
    let host = |index: usize| format!("h{}", index % HOSTS);
    let lines = (0..HOSTS).map(|index| Line {
        delay: Duration::from_micros(10),
        mark_packets: Some(30),
        ..Line::new(&host(index), "switch", 2e5, 200)
    });
    let flows = (0..HOSTS * per_host).map(|index| {
        let (from, round) = (index % HOSTS, index / HOSTS);
        let to = from + 1 + round * (HOSTS - 1) / per_host;
        Flow::new(&host(from), &host(to), scheme.unwrap())
    });
    let mut flows = Flows::new(lines.collect(), flows.collect(), duration);
    flows.sample = duration / 10;
    let started = Instant::now();
    let run = flows.run().unwrap();
    let took = started.elapsed().as_secs_f64();
    println!(
        "{name}, {} flows: {} packets, {} hops in {took:.2} s: {:.2} million hops per second",
        flows.flows.len(),
        run.packets.sent,
        run.hops,
        run.hops as f64 / took / 1e6
    );
    let goodput: f64 = run
        .flows
        .iter()
        .map(|flow| flow.means.goodput_packets_per_s)
        .sum();
    println!(
        "{goodput:.0} packets per second arrived, {} packets dropped",
        run.packets.dropped
    );
}
