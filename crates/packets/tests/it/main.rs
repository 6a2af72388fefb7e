//! Behaviour of ports and routes, mostly through topologies.
#![allow(clippy::unwrap_used)]

mod accounts;
mod classes;
mod clusters;
mod losses;
mod rates;
mod shapes;
mod trims;

use std::time::Duration;

use outpour_core::network::{Backlog, Link};
use outpour_core::topology::{Metric, Paths, Topology};
use outpour_core::{NodeId, Rate, Time};
use outpour_packets::{Arrival, Discipline, Engine, Load, Profile, RouteId, Wiring};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A packet that knows all that may happen to it.
#[derive(Clone, Debug, PartialEq)]
struct Packet {
    id: u32,
    bytes: u32,
    packets: u32,
    class: u8,
    marks: u32,
    trimmed: bool,
}

impl Packet {
    /// One of 1000 bytes.
    fn new(id: u32) -> Self {
        Self {
            id,
            bytes: 1000,
            packets: 1,
            class: 0,
            marks: 0,
            trimmed: false,
        }
    }

    fn of_class(id: u32, class: u8) -> Self {
        let packet = Self::new(id);
        Self { class, ..packet }
    }
}

/// What is left of a packet that was trimmed.
const HEADER_BYTES: u32 = 64;

impl Load for Packet {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }

    fn packets(&self) -> u32 {
        self.packets
    }

    fn held_bytes(&self) -> u64 {
        7
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn mark(&mut self) -> bool {
        self.marks += 1;
        true
    }

    fn trim(&mut self) -> bool {
        if self.bytes <= HEADER_BYTES {
            return false;
        }
        self.bytes = HEADER_BYTES;
        self.class = 0;
        !std::mem::replace(&mut self.trimmed, true)
    }
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn link(text: &str) -> Link {
    Link {
        rate: rate(text),
        ..Link::OPEN
    }
}

fn after(link: Link, micros: u64) -> Link {
    let delay = Duration::from_micros(micros);
    Link { delay, ..link }
}

/// A queue without threshold.
fn holds(packets: u32) -> Discipline {
    Discipline::drop_tail(Backlog::Packets(packets), None)
}

/// A topology with packets in it.
struct World {
    wiring: Wiring,
    engine: Engine<Packet>,
    out: Vec<Arrival<Packet>>,
}

impl World {
    fn new(topology: Topology, profile: &Profile, seed: u64) -> Self {
        let paths = Paths::new(topology, Metric::Hops);
        let mut wiring = Wiring::new(paths, profile).unwrap();
        Self {
            engine: wiring.engine(seed),
            wiring,
            out: Vec::new(),
        }
    }

    /// Hosts at a big switch whose ports have this discipline; hosts' own queues hold everything.
    fn switch(hosts: u32, edge: Link, discipline: Discipline) -> Self {
        let topology = Topology::one_big_switch(hosts, edge).unwrap();
        let profile = Profile {
            hosts: holds(1_000_000),
            switches: discipline,
        };
        Self::new(topology, &profile, 1)
    }

    fn route(&mut self, from: u32, to: u32) -> RouteId {
        (self.wiring).route(&mut self.engine, NodeId(from), NodeId(to), 0)
    }

    /// Lets everything before `at` happen, then sends.
    fn send(&mut self, packet: Packet, route: RouteId, at: u64) {
        self.engine.advance(Time(at), &mut self.out);
        (self.engine).send(packet, route, Time(at), &mut self.out);
    }

    fn finish(&mut self) {
        self.engine.advance(Time::MAX, &mut self.out);
        assert_eq!((self.engine.inside(), self.engine.held_bytes()), (0, 0));
    }

    /// When which packets arrived, in microseconds.
    fn arrived(&self) -> Vec<(u64, u32)> {
        let arrived = self.out.iter();
        arrived.map(|a| (a.at.0 / US, a.load.id)).collect()
    }
}
