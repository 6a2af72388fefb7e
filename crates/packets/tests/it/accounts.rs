//! Whatever happens, every packet is accounted for, none overtakes another of its class, nothing is
//! faster than its port, and the same calls give the same trace.

use std::collections::BTreeMap;

use outpour_core::topology::WireId;
use outpour_packets::{Counts, Order, PortId, Queue, Setting};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Act {
    Send {
        from: u32,
        to: u32,
        choice: u64,
        bytes: u32,
        packets: u32,
        class: u8,
    },
    Rate {
        port: u32,
        rate: usize,
    },
    Delay {
        port: u32,
        micros: u64,
    },
    Lose {
        port: u32,
        packets: u64,
    },
}

#[derive(Clone, Debug)]
struct Case {
    shape: usize,
    link: Link,
    discipline: Discipline,
    seed: u64,
    acts: Vec<(u64, Act)>,
}

const RATES: [f64; 5] = [0.0, 1e5, 2e6, 7e6, f64::INFINITY];

fn discipline() -> impl Strategy<Value = Discipline> {
    let queue = (1..12_u32, any::<bool>(), 1..9_u32);
    let queues = prop::collection::vec(queue, 1..4);
    (queues, any::<bool>(), any::<bool>()).prop_map(|(queues, strict, trims)| {
        let queue = |(limit, bytes, weight): (u32, bool, u32)| {
            let mark_from = limit.div_ceil(2);
            let backlog = |amount: u32| match bytes {
                true => Backlog::Bytes(outpour_core::Bytes(u64::from(amount) * 1200)),
                false => Backlog::Packets(amount),
            };
            Queue::new(backlog(limit), Some(backlog(mark_from)))
                .weighing(weight.try_into().unwrap())
        };
        let order = if strict {
            Order::Strict
        } else {
            Order::Weighted
        };
        let queues = queues.into_iter().map(queue).collect();
        let made = Discipline::classes(queues, order).unwrap();
        if trims { made.trimming() } else { made }
    })
}

fn act(changes: bool) -> impl Strategy<Value = Act> {
    let ends = (any::<u32>(), any::<u32>(), any::<u64>());
    let load = (40..1500_u32, 1..4_u32, 0..4_u8);
    let send = (ends, load).prop_map(|((from, to, choice), (bytes, packets, class))| Act::Send {
        from,
        to,
        choice,
        bytes,
        packets,
        class,
    });
    let rate = (any::<u32>(), 0..RATES.len()).prop_map(|(port, rate)| Act::Rate { port, rate });
    let delay = (any::<u32>(), 0..900_u64).prop_map(|(port, micros)| Act::Delay { port, micros });
    let lose = (any::<u32>(), 1..4_u64).prop_map(|(port, packets)| Act::Lose { port, packets });
    let weight = u32::from(changes);
    prop_oneof![30 => send, weight => rate, weight => delay, weight => lose]
}

fn case(changes: bool) -> impl Strategy<Value = Case> {
    let link = (1..4_u32, 0..300_u64, 0..2_u32).prop_map(|(mb, micros, loss)| Link {
        rate: Rate::from_bytes_per_s(f64::from(mb) * 1e6).unwrap(),
        delay: Duration::from_micros(micros),
        loss: f64::from(loss) * 0.05,
        ..Link::OPEN
    });
    let acts = prop::collection::vec((0..400 * US, act(changes)), 1..300);
    (0..3_usize, link, discipline(), any::<u64>(), acts).prop_map(
        |(shape, link, discipline, seed, acts)| Case {
            shape,
            link,
            discipline,
            seed,
            acts,
        },
    )
}

fn topology(shape: usize, link: Link) -> Topology {
    match shape {
        0 => Topology::one_big_switch(5, link),
        1 => Topology::leaf_spine(2, 3, 2, link, link),
        _ => Topology::fat_tree(4, link, link),
    }
    .unwrap()
}

fn check_accounts(engine: &Engine<Packet>) {
    let counts = engine.counts();
    let gone = counts.delivered + counts.dropped + counts.lost;
    assert_eq!(counts.entered, gone + engine.inside());
}

/// What the ports say, in sum, is what the engine says.
fn check_stats(engine: &Engine<Packet>, counts: Counts) {
    let mut sums = [0; 4];
    for port in engine.ports() {
        let stats = engine.stats(port, Time::ZERO);
        let parts = [stats.dropped, stats.lost, stats.marked, stats.trimmed];
        sums.iter_mut()
            .zip(parts)
            .for_each(|(sum, part)| *sum += part);
    }
    let (soon, later) = (1_u64 << 50, 1_u64 << 51);
    for port in engine.ports() {
        // Nothing waits any more, so the mean halves when time doubles.
        let mean = |time| engine.stats(port, Time(time)).mean_queue_packets;
        assert!((mean(soon) - 2.0 * mean(later)).abs() < 1e-9, "{port:?}");
    }
    assert_eq!(
        sums,
        [counts.dropped, counts.lost, counts.marked, counts.trimmed]
    );
}

/// What an act does; ports and hosts are taken from any number.
fn perform(world: &mut World, case: &Case, id: u32, act: &Act, now: Time) {
    let ports = world.engine.ports().count() as u32;
    match *act {
        Act::Send {
            from,
            to,
            choice,
            bytes,
            packets,
            class,
        } => {
            let hosts = world.wiring.paths().topology().host_count();
            let (from, to) = (NodeId(from % hosts), NodeId(to % hosts));
            let route = world.wiring.route(&mut world.engine, from, to, choice);
            let packet = Packet {
                bytes,
                packets,
                ..Packet::of_class(id, class)
            };
            world.send(packet, route, now.0);
        }
        Act::Rate { port, rate } => {
            let rate = Rate::from_bytes_per_s(RATES[rate]).unwrap();
            world.engine.set_rate(PortId(port % ports), rate, now);
        }
        Act::Delay { port, micros } => {
            let setting = Setting::new(case.link.rate, case.discipline.clone());
            let setting = setting.delayed(Duration::from_micros(micros));
            world.engine.set(PortId(port % ports), &setting, now);
        }
        Act::Lose { port, packets } => world.engine.lose_next(PortId(port % ports), packets),
    }
}

/// Plays a case, looking at the accounts all the time, to the very end.
fn play(case: &Case) -> World {
    let topology = topology(case.shape, case.link);
    let profile = Profile::uniform(case.discipline.clone());
    let mut world = World::new(topology, &profile, case.seed);
    let mut now = Time::ZERO;
    for (id, (after, act)) in (0..).zip(&case.acts) {
        now = Time(now.0 + after);
        world.engine.advance(now, &mut world.out);
        perform(&mut world, case, id, act, now);
        check_accounts(&world.engine);
    }
    // What stands still moves again.
    let ports: Vec<_> = world.engine.ports().collect();
    for port in ports {
        world.engine.set_rate(port, case.link.rate, now);
    }
    world.finish();
    check_accounts(&world.engine);
    check_stats(&world.engine, world.engine.counts());
    world
}

/// Packets of one class that were not trimmed keep their order on each route.
fn check_order(world: &World) {
    let mut last = BTreeMap::new();
    let whole = world.out.iter().filter(|arrival| !arrival.load.trimmed);
    for arrival in whole {
        let key = (arrival.route, arrival.load.class);
        let before = last.insert(key, arrival.load.id);
        assert!(
            before.is_none_or(|before| before < arrival.load.id),
            "{arrival:?}"
        );
    }
    assert!(world.out.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

/// Over any time, a host's port hands over no more than its rate carries in it.
fn check_rates(world: &mut World, rate: Rate) {
    let topology = world.wiring.paths().topology().clone();
    let mut of_port: BTreeMap<WireId, Vec<(u64, u32)>> = BTreeMap::new();
    let routes: BTreeMap<_, _> = (topology.hosts())
        .flat_map(|a| topology.hosts().map(move |b| (a, b)))
        .flat_map(|(from, to)| {
            let routes = world.wiring.routes(&mut world.engine, from, to, 64);
            routes.into_iter().map(move |route| (route, to))
        })
        .collect();
    for arrival in &world.out {
        let to = routes[&arrival.route];
        let wire = topology.incoming(to.into())[0];
        let arrived = of_port.entry(wire).or_default();
        arrived.push((arrival.at.0, arrival.load.bytes));
    }
    for arrived in of_port.values() {
        for (first, (start, _)) in arrived.iter().enumerate() {
            let mut bytes = 0;
            for (at, more) in &arrived[first + 1..] {
                bytes += u64::from(*more);
                let least = bytes as f64 / rate.bytes_per_s() * 1e9;
                assert!(
                    (at - start) as f64 > least - 1.01,
                    "{bytes} from {start} to {at}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_packet_is_accounted_for_and_keeps_its_place(case in case(true)) {
        let world = play(&case);
        check_order(&world);
        let again = play(&case);
        let trace = |world: &World| -> Vec<_> {
            world.out.iter().map(|a| (a.at, a.route, a.load.clone())).collect()
        };
        assert_eq!(trace(&world), trace(&again));
    }

    #[test]
    fn nothing_is_faster_than_its_port(case in case(false)) {
        let mut world = play(&case);
        check_order(&world);
        // From a host to itself nothing is passed.
        let (out, hosts) = (std::mem::take(&mut world.out), world.wiring.paths().topology().hosts());
        let here: Vec<_> = hosts.map(|host| world.wiring.route(&mut world.engine, host, host, 0)).collect();
        world.out = out.into_iter().filter(|arrival| !here.contains(&arrival.route)).collect();
        check_rates(&mut world, case.link.rate);
    }
}
