//! The network in virtual time against numbers worked out by hand.
#![allow(clippy::unwrap_used)]

use outpour_core::network::Backlog;
use outpour_core::network::{ClusterId, Resource};
use outpour_core::{Bytes, Rate};
use rand_core::SeedableRng;
use rand_pcg::Pcg64;

use super::*;

struct Packet {
    bytes: u32,
    id: u32,
    marked: bool,
}

impl Load for Packet {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }
    fn packets(&self) -> u32 {
        1
    }
    fn held_bytes(&self) -> u64 {
        1500
    }
    fn mark(&mut self) -> bool {
        self.marked = true;
        true
    }
}

const MS: u64 = 1_000_000;

fn engine(text: &str) -> Engine<Packet> {
    let network = Network::from_toml(text, "net.toml").unwrap();
    Engine::new(network, Sizes { largest: 1500 }, 1)
}

/// Sends packets of 1000 bytes at given times (ms) and returns when which arrive (us).
fn run(engine: &mut Engine<Packet>, sends: &[(u64, u16, u16)]) -> Vec<(u64, u32)> {
    let mut out = Vec::new();
    for (id, (at, from, to)) in sends.iter().enumerate() {
        engine.advance(at * MS, &mut out);
        let packet = Packet {
            bytes: 1000,
            id: id as u32,
            marked: false,
        };
        engine.send(packet, *from, *to, at * MS, &mut out);
    }
    engine.advance(u64::MAX, &mut out);
    out.iter().map(|a| (a.at / 1000, a.load.id)).collect()
}

/// Nodes a0 = 0, a1 = 1, b = 2, c = 3.
const THREE: &str = "[[cluster]]\nname='a'\nnodes=2\nlocal='4 MB/s'\nlocal_delay='1 ms'\n\
    [[cluster]]\nname='b'\nnodes=1\n[[cluster]]\nname='c'\nnodes=1\nin='1 MB/s'\n";

#[test]
fn a_packet_passes_the_whole_chain() {
    let text = "[[cluster]]\nname='a'\nnodes=1\nnode_out='1 MB/s'\nout='2 MB/s'\n\
                [[cluster]]\nname='b'\nnodes=1\nin='4 MB/s'\nnode_in='5 MB/s'\n\
                [[link]]\nfrom='a'\nto='b'\nrate='8 MB/s'\ndelay='10 ms'";
    // 1 + 0.5 + 0.125 + 10 + 0.25 + 0.2 ms; the next follow at the rate of the slowest.
    let arrived = run(&mut engine(text), &[(0, 0, 1), (0, 0, 1), (0, 0, 1)]);
    assert_eq!(arrived, [(12_075, 0), (13_075, 1), (14_075, 2)]);
}

#[test]
fn far_packets_reserve_nothing_that_near_ones_want() {
    let text = format!(
        "{THREE}[[link]]\nfrom='a'\nto='c'\ndelay='100 ms'\n[[link]]\nfrom='b'\nto='c'\ndelay='1 ms'"
    );
    // The packet from a is on its way to c's access link for long; the one from b passes it.
    let arrived = run(&mut engine(&text), &[(0, 0, 3), (0, 2, 3)]);
    assert_eq!(arrived, [(2_000, 1), (101_000, 0)]);
}

#[test]
fn local_links_belong_to_pairs() {
    let arrived = run(&mut engine(THREE), &[(0, 0, 1), (0, 1, 0), (0, 0, 1)]);
    assert_eq!(arrived, [(1_250, 0), (1_250, 1), (1_500, 2)]);
}

#[test]
fn queues_drop_at_their_tail_and_mark_before() {
    let text = format!(
        "{THREE}[[link]]\nfrom='a'\nto='b'\nrate='1 MB/s'\nqueue='4 packets'\necn='2 packets'"
    );
    let mut engine = engine(&text);
    let mut out = Vec::new();
    for id in 0..8 {
        let packet = Packet {
            bytes: 1000,
            id,
            marked: false,
        };
        engine.send(packet, 0, 2, 0, &mut out);
    }
    engine.advance(u64::MAX, &mut out);
    // One is in service, two wait unmarked, two marked, three find no room.
    let marked: Vec<_> = out.iter().map(|a| a.load.marked).collect();
    assert_eq!(marked, [false, false, false, true, true]);
    let counts = engine.counts();
    assert_eq!((counts.entered, counts.delivered), (8, 5));
    assert_eq!((counts.dropped, counts.marked, counts.lost), (3, 2, 0));
    assert_eq!(engine.held_bytes(), 0);
}

#[test]
fn queues_in_bytes_hold_bytes() {
    let text = format!("{THREE}[[link]]\nfrom='a'\nto='b'\nrate='1 MB/s'\nqueue='2500 B'");
    let mut engine = engine(&text);
    assert_eq!(run(&mut engine, &[(0, 0, 2); 6]).len(), 3);
    let limit = Change::Queue {
        from: ClusterId(0),
        to: ClusterId(1),
        limit: Backlog::Bytes(Bytes(3000)),
    };
    let later = 1 << 40;
    engine.change(&limit, later);
    assert_eq!(run(&mut engine, &[(later / MS, 0, 2); 6]).len(), 4);
}

#[test]
fn a_packet_in_service_goes_on_at_the_new_rate() {
    let text = format!("{THREE}[[link]]\nfrom='a'\nto='b'\nrate='1 MB/s'");
    let rate = |text: &str| Change::Capacity {
        resource: Resource::Link(ClusterId(0), ClusterId(1)),
        rate: text.parse::<Rate>().unwrap(),
    };
    for (changes, arrivals) in [
        // Half of it passed in the first half of a millisecond.
        (vec![(500_000, "2 MB/s")], [750, 1_250]),
        (
            vec![(500_000, "0 B/s"), (9 * MS, "1 MB/s")],
            [9_500, 10_500],
        ),
        (vec![(500_000, "unlimited")], [500, 500]),
        (vec![(250_000, "unlimited"), (MS, "1 kB/s")], [250, 250]),
        (
            vec![(500_000, "500 kB/s"), (700_000, "1 MB/s")],
            [1_100, 2_100],
        ),
    ] {
        let mut engine = engine(&text);
        let mut out = Vec::new();
        for id in 0..2 {
            let packet = Packet {
                bytes: 1000,
                id,
                marked: false,
            };
            engine.send(packet, 0, 2, 0, &mut out);
        }
        for (at, text) in &changes {
            engine.advance(*at, &mut out);
            engine.change(&rate(text), *at);
        }
        engine.advance(u64::MAX, &mut out);
        let times: Vec<_> = out.iter().map(|a| a.at / 1000).collect();
        assert_eq!(times, arrivals, "{changes:?}");
        assert_eq!(engine.next_event(), None);
    }
}

#[test]
fn a_shrinking_delay_lets_nobody_overtake() {
    let text = format!("{THREE}[[link]]\nfrom='a'\nto='b'\ndelay='10 ms'");
    let mut engine = engine(&text);
    let mut out = Vec::new();
    let packet = |id| Packet {
        bytes: 1000,
        id,
        marked: false,
    };
    engine.send(packet(0), 0, 2, 0, &mut out);
    let delay = Change::Delay {
        from: ClusterId(0),
        to: ClusterId(1),
        delay: std::time::Duration::ZERO,
    };
    engine.change(&delay, MS);
    engine.send(packet(1), 0, 2, MS, &mut out);
    engine.advance(u64::MAX, &mut out);
    engine.send(packet(2), 0, 2, 20 * MS, &mut out);
    let times: Vec<_> = out.iter().map(|a| (a.load.id, a.at / MS)).collect();
    assert_eq!(times, [(0, 10), (1, 10), (2, 20)]);
}

#[test]
fn what_nobody_joins_stays_apart() {
    let text = format!("{THREE}[[link]]\nfrom='a'\nto='b'");
    let mut engine = engine(&text);
    assert!(run(&mut engine, &[(0, 0, 3), (0, 2, 0)]).is_empty());
    assert_eq!(run(&mut engine, &[(0, 0, 2)]).len(), 1);
}

#[test]
fn losses_are_counted_apart_from_drops() {
    let text = format!("{THREE}[[link]]\nfrom='a'\nto='b'\nloss=0.25");
    let mut engine = engine(&text);
    let sends: Vec<_> = (0..4000).map(|at| (at, 0, 2)).collect();
    let arrived = run(&mut engine, &sends).len();
    assert!((2900..3100).contains(&arrived), "{arrived}");
    let counts = engine.counts();
    assert_eq!(counts.lost as usize, 4000 - arrived);
    assert_eq!(counts.dropped, 0);
}

#[test]
fn whatever_happens_packets_keep_their_order_and_are_all_accounted_for() {
    use rand_core::RngCore;
    let text = "[[cluster]]\nname='a'\nnodes=2\nnode_out='3 MB/s'\nout='4 MB/s'\nlocal='2 MB/s'\n\
                [[cluster]]\nname='b'\nnodes=2\nin='5 MB/s'\nnode_in='2 MB/s'\n\
                [[link]]\nfrom='*'\nto='*'\nrate='3 MB/s'\ndelay='4 ms'\nqueue='30 packets'\nloss=0.02";
    for seed in 0..30 {
        let mut engine = engine(text);
        let mut dice = Pcg64::seed_from_u64(seed);
        let mut draw = |below: u64| dice.next_u64() % below;
        let (mut out, mut now, mut last_change) = (Vec::new(), 0, 0);
        for id in 0..3000 {
            now += draw(MS);
            engine.advance(now, &mut out);
            let (from, to) = (draw(4) as u16, draw(4) as u16);
            if from != to {
                let packet = Packet {
                    bytes: 40 + draw(1460) as u32,
                    // Which sender it was can be told from the number.
                    id: id * 4 + u32::from(from),
                    marked: false,
                };
                engine.send(packet, from, to, now, &mut out);
            }
            let link = (ClusterId(draw(2) as u32), ClusterId(draw(2) as u32));
            let rate = Rate::from_bytes_per_s([0.0, 1e5, 2e6, f64::INFINITY][draw(4) as usize]);
            let change = match draw(100) {
                0 => Change::Capacity {
                    resource: Resource::Link(link.0, link.1),
                    rate: rate.unwrap(),
                },
                1 => Change::Delay {
                    from: link.0,
                    to: link.1,
                    delay: std::time::Duration::from_micros(draw(9000)),
                },
                _ => continue,
            };
            engine.change(&change, now);
            last_change = now;
        }
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let open = Change::Capacity {
                resource: Resource::Link(ClusterId(a), ClusterId(b)),
                rate: Rate::from_bytes_per_s(1e6).unwrap(),
            };
            engine.change(&open, now);
        }
        engine.advance(u64::MAX, &mut out);
        assert!(last_change > 0);
        let counts = engine.counts();
        let sum = counts.delivered + counts.dropped + counts.lost;
        assert_eq!(
            (counts.entered, engine.held_bytes()),
            (sum, 0),
            "seed {seed}"
        );
        assert_eq!(counts.delivered as usize, out.len());
        assert!(
            out.windows(2).all(|pair| pair[0].at <= pair[1].at),
            "seed {seed}"
        );
        for (from, to) in (0..4_u16).flat_map(|from| (0..4).map(move |to| (from, to))) {
            let of_pair = out
                .iter()
                .filter(|a| a.to == to && a.load.id % 4 == u32::from(from));
            let ids: Vec<_> = of_pair.map(|arrival| arrival.load.id).collect();
            assert!(ids.is_sorted(), "seed {seed}");
        }
    }
}
