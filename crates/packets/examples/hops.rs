//! How many packet-hops per second the engine carries on one core.
//!
//! Hosts send packets of 1500 bytes at equal intervals, each packet to one of eight others drawn at
//! random and by a way drawn at random, at a share of their links of 200,000 packets per second. All wires
//! take 10 us; ports mark from 20 packets on and hold 1000. Shapes: `obs`, one switch with 100
//! hosts; `leaf`, five leaves of 20 hosts and four spines at 800,000 packets per second; `fat`, a
//! fat tree of 128 hosts.
//!
//! `cargo run --release -p outpour-packets --example hops [SHAPE] [LOAD] [SECONDS]`
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout
)]

use std::time::{Duration, Instant};

use outpour_core::network::{Backlog, Link};
use outpour_core::topology::{Metric, Paths, Topology, packets_per_s};
use outpour_core::{NodeId, Time};
use outpour_packets::{Discipline, Engine, Load, Profile, RouteId, Wiring};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

const PACKET_BYTES: u32 = 1500;
const PACKETS_PER_S: f64 = 200_000.0;

/// To how many others a host sends.
const PEERS: u64 = 8;

/// From how many ways between two hosts one is drawn, at most.
const WAYS_MAX: usize = 16;

/// What a packet of a simulated transfer would carry: 40 bytes.
struct Packet {
    _flow: u32,
    _sequence: u64,
    _sent: Time,
    _window: u64,
    bytes: u32,
    marked: bool,
}

impl Load for Packet {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }
    fn mark(&mut self) -> bool {
        self.marked = true;
        true
    }
}

fn topology(shape: &str) -> Topology {
    let link = |packets| Link {
        rate: packets_per_s(packets, PACKET_BYTES).unwrap(),
        delay: Duration::from_micros(10),
        ..Link::OPEN
    };
    let (edge, fabric) = (link(PACKETS_PER_S), link(4.0 * PACKETS_PER_S));
    match shape {
        "leaf" => Topology::leaf_spine(5, 20, 4, edge, fabric),
        "fat" => Topology::fat_tree(8, edge, edge),
        _ => Topology::one_big_switch(100, edge),
    }
    .unwrap()
}

/// The ways between all hosts, by sender and receiver.
fn routes(wiring: &mut Wiring, engine: &mut Engine<Packet>) -> Vec<Vec<Vec<RouteId>>> {
    let hosts: Vec<_> = wiring.paths().topology().hosts().collect();
    let mut between = |from: NodeId, to: NodeId| wiring.routes(engine, from, to, WAYS_MAX);
    let from = |from: &NodeId| hosts.iter().map(|to| between(*from, *to)).collect();
    hosts.iter().map(from).collect()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mut word = |usual: &str| words.next().unwrap_or_else(|| usual.to_owned());
    let (shape, load) = (word("obs"), word("0.9").parse::<f64>().unwrap());
    let seconds: f64 = word("1").parse().unwrap();

    let queue = Discipline::drop_tail(Backlog::Packets(1000), Some(Backlog::Packets(20)));
    let paths = Paths::new(topology(&shape), Metric::Hops);
    let mut wiring = Wiring::new(paths, &Profile::uniform(queue)).unwrap();
    let mut engine: Engine<Packet> = wiring.engine(1);
    let routes = routes(&mut wiring, &mut engine);
    let hosts = routes.len() as u64;

    let interval = (1e9 / (PACKETS_PER_S * load)) as u64;
    let rounds = (seconds * 1e9) as u64 / interval;
    let mut dice = Pcg64::seed_from_u64(2);
    let (mut out, mut marked) = (Vec::new(), 0_u64);
    let started = Instant::now();
    for round in 0..rounds {
        for from in 0..hosts {
            // Hosts begin apart from each other.
            let now = Time(round * interval + from * interval / hosts);
            engine.advance(now, &mut out);
            marked += out.drain(..).filter(|arrival| arrival.load.marked).count() as u64;
            let drawn = dice.next_u64();
            // Spread over the hosts, and each receives from as many.
            let to = (from + 1 + (drawn >> 32) % PEERS * (hosts - 1) / PEERS) % hosts;
            let ways = &routes[from as usize][to as usize];
            let packet = Packet {
                _flow: from as u32,
                _sequence: round,
                _sent: now,
                _window: 0,
                bytes: PACKET_BYTES,
                marked: false,
            };
            engine.send(packet, ways[drawn as usize % ways.len()], now, &mut out);
        }
    }
    engine.advance(Time::MAX, &mut out);
    let took = started.elapsed().as_secs_f64();
    let end = Time(rounds * interval);
    let stats: Vec<_> = engine.ports().map(|p| engine.stats(p, end)).collect();
    let hops: u64 = stats.iter().map(|stats| stats.packets).sum();
    let longest = stats.iter().map(|stats| stats.max_queue_packets).max();
    let counts = engine.counts();
    println!(
        "{shape}, load {load}: {} packets, {hops} hops in {took:.2} s: {:.2} million hops per second",
        counts.entered,
        hops as f64 / took / 1e6
    );
    println!(
        "delivered {}, dropped {}, marked {marked}, longest queue {}",
        counts.delivered,
        counts.dropped,
        longest.unwrap_or(0)
    );
}
