//! How many packet-hops per second the engine carries on one core, on a big switch.
//!
//! Each of 100 hosts sends packets of 1500 bytes at equal intervals, each packet to a host drawn
//! at random, at 0.9 of a link of 200,000 packets per second. All links take 10 us; switch ports mark
//! from 65 packets on and hold 1000.
//!
//! `cargo run --release -p outpour-packets --example hops [HOSTS] [LOAD] [SECONDS]`
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout
)]

use std::time::{Duration, Instant};

use outpour_core::network::Backlog;
use outpour_core::{Rate, Time};
use outpour_packets::{Discipline, Engine, Load, PortId, RouteId, Setting};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

const PACKET_BYTES: u32 = 1500;
const PACKETS_PER_S: f64 = 200_000.0;

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

fn main() {
    let mut words = std::env::args().skip(1);
    let mut word = |usual: &str| words.next().unwrap_or_else(|| usual.to_owned());
    let hosts: u32 = word("100").parse().unwrap();
    let load: f64 = word("0.9").parse().unwrap();
    let seconds: f64 = word("1").parse().unwrap();

    let rate = Rate::from_bytes_per_s(PACKETS_PER_S * f64::from(PACKET_BYTES)).unwrap();
    let queue = Discipline::drop_tail(Backlog::Packets(1000), Some(Backlog::Packets(65)));
    let port = Setting::new(rate, queue).delayed(Duration::from_micros(10));
    let mut engine: Engine<Packet> = Engine::new(vec![port; 2 * hosts as usize], 1);
    // Up from host h is port h, down to it is port HOSTS + h.
    let routes: Vec<Vec<RouteId>> = (0..hosts)
        .map(|from| {
            let to = |to: u32| engine.add_route(&[PortId(from), PortId(hosts + to)]);
            (0..hosts).map(to).collect()
        })
        .collect();

    let interval = (1e9 / (PACKETS_PER_S * load)) as u64;
    let rounds = (seconds * 1e9) as u64 / interval;
    let mut dice = Pcg64::seed_from_u64(2);
    let (mut out, mut marked, mut sent) = (Vec::new(), 0_u64, 0_u64);
    let started = Instant::now();
    for round in 0..rounds {
        for from in 0..hosts {
            // Hosts begin apart from each other, as links and queues would have it.
            let now = Time(round * interval + u64::from(from) * interval / u64::from(hosts));
            engine.advance(now, &mut out);
            marked += out.drain(..).filter(|arrival| arrival.load.marked).count() as u64;
            let others = dice.next_u64() % (u64::from(hosts) - 1);
            let to = (u64::from(from) + 1 + others) % u64::from(hosts);
            let packet = Packet {
                _flow: from,
                _sequence: round,
                _sent: now,
                _window: 0,
                bytes: PACKET_BYTES,
                marked: false,
            };
            let route = routes[from as usize][to as usize];
            engine.send(packet, route, now, &mut out);
            sent += 1;
        }
    }
    engine.advance(Time::MAX, &mut out);
    let took = started.elapsed().as_secs_f64();
    let counts = engine.counts();
    let end = Time(rounds * interval);
    let stats = engine.ports().map(|port| engine.stats(port, end));
    let hops: u64 = engine.ports().map(|p| engine.stats(p, end).packets).sum();
    let busiest = stats.map(|s| s.max_queue_packets).max().unwrap();
    println!(
        "{hosts} hosts, load {load}: {sent} packets, {hops} hops in {took:.2} s, \
         {:.2} million hops per second",
        hops as f64 / took / 1e6
    );
    println!(
        "delivered {}, dropped {}, marked {marked}, longest queue {busiest}",
        counts.delivered, counts.dropped
    );
}
