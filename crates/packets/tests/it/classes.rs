//! Several queues at one port.

use std::num::NonZeroU32;

use outpour_packets::{Order, Queue, Setting};

use super::*;

fn queue(weight: u32) -> Queue {
    let weight = NonZeroU32::new(weight).unwrap();
    Queue::new(Backlog::Packets(20), None).weighing(weight)
}

fn weighted(weights: &[u32]) -> Discipline {
    let queues = weights.iter().map(|weight| queue(*weight)).collect();
    Discipline::classes(queues, Order::Weighted).unwrap()
}

/// What senders of one class each get of a receiver's port of 10 MB/s, of which each alone would
/// fill all, in bytes; packets of sender n have `sizes[n]` bytes.
fn shares(discipline: Discipline, sizes: &[u32]) -> Vec<u64> {
    let senders = sizes.len() as u32;
    let mut world = World::switch(senders + 1, link("10 MB/s"), discipline);
    let routes: Vec<_> = (0..senders)
        .map(|from| world.route(from, senders))
        .collect();
    let mut next = vec![0; sizes.len()];
    // Each sends as fast as its own link allows, for two seconds.
    while let Some(sender) = (0..sizes.len()).min_by_key(|sender| next[*sender]) {
        let at = next[sender];
        if at > 2000 * MS {
            break;
        }
        next[sender] += u64::from(sizes[sender]) * 100;
        let packet = Packet {
            bytes: sizes[sender],
            ..Packet::of_class(sender as u32, sender as u8)
        };
        world.send(packet, routes[sender], at);
    }
    let mut bytes = vec![0; sizes.len()];
    for arrival in &world.out {
        bytes[arrival.load.id as usize] += u64::from(arrival.load.bytes);
    }
    bytes
}

#[test]
fn weights_share_the_rate_within_a_percent() {
    for (weights, sizes) in [
        (&[1, 1][..], &[1000, 1000][..]),
        (&[4, 1], &[1000, 1000]),
        (&[1, 3], &[1500, 300]),
        (&[7, 2, 1], &[100, 1500, 900]),
        (&[100, 1], &[1500, 1500]),
    ] {
        let bytes = shares(weighted(weights), sizes);
        let (all, weight) = (bytes.iter().sum::<u64>(), weights.iter().sum::<u32>());
        assert!((all as f64 / 20e6 - 1.0).abs() < 0.002, "{bytes:?}");
        for (bytes, of) in bytes.iter().zip(weights) {
            let share = *bytes as f64 / all as f64;
            let due = f64::from(*of) / f64::from(weight);
            assert!(
                (share / due - 1.0).abs() < 0.01,
                "{weights:?} {sizes:?}: {share} of {due}"
            );
        }
    }
}

#[test]
fn a_strict_first_class_starves_the_second() {
    let strict = Discipline::classes(vec![queue(1), queue(9)], Order::Strict).unwrap();
    let bytes = shares(strict, &[1000, 1000]);
    // The second may get the port before the first packet of the first comes.
    assert!(bytes[0] > 19_980_000 && bytes[1] <= 1000, "{bytes:?}");
}

#[test]
fn a_packet_in_service_is_not_interrupted() {
    let strict = Discipline::classes(vec![queue(1), queue(1)], Order::Strict).unwrap();
    let setting = Setting::new(rate("1 MB/s"), strict);
    let mut engine = Engine::new([setting], 1);
    let port = engine.ports().next().unwrap();
    let (route, mut out) = (engine.add_route(&[port]), Vec::new());
    for (id, class) in [(0, 1), (1, 1), (2, 0), (3, 6), (4, 0)] {
        engine.send(Packet::of_class(id, class), route, Time::ZERO, &mut out);
    }
    engine.advance(Time::MAX, &mut out);
    // The class beyond the last is the last.
    let ids: Vec<_> = out.iter().map(|a| (a.at.0 / MS, a.load.id)).collect();
    assert_eq!(ids, [(1, 0), (2, 2), (3, 4), (4, 1), (5, 3)]);
}

#[test]
fn who_was_away_has_saved_up_nothing() {
    let setting = Setting::new(rate("1 MB/s"), weighted(&[1, 1]));
    let mut engine = Engine::new([setting], 1);
    let port = engine.ports().next().unwrap();
    let (route, mut out) = (engine.add_route(&[port]), Vec::new());
    // The first class has the port for itself for 15 ms, and then they take turns.
    for id in 0..20 {
        engine.send(Packet::of_class(id, 0), route, Time::ZERO, &mut out);
    }
    engine.advance(Time(15 * MS - 1), &mut out);
    for id in 20..30 {
        engine.send(Packet::of_class(id, 1), route, Time(15 * MS - 1), &mut out);
    }
    engine.advance(Time::MAX, &mut out);
    let classes: Vec<_> = out[15..25].iter().map(|a| a.load.class).collect();
    let turns = classes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= 8, "{classes:?}");
}

#[test]
fn an_order_that_changes_leaves_no_debt() {
    let order = |order| Discipline::classes(vec![queue(1); 2], order).unwrap();
    let setting = |of| Setting::new(rate("1 MB/s"), order(of));
    let mut engine = Engine::new([setting(Order::Weighted)], 1);
    let port = engine.ports().next().unwrap();
    let (route, mut out) = (engine.add_route(&[port]), Vec::new());
    // The first class alone, until the order is strict and the port idle.
    for id in 0..20 {
        engine.send(Packet::of_class(id, 0), route, Time::ZERO, &mut out);
    }
    engine.set(port, &setting(Order::Strict), Time(10 * MS));
    engine.advance(Time(30 * MS), &mut out);
    engine.set(port, &setting(Order::Weighted), Time(30 * MS));
    out.clear();
    for id in 0..20 {
        let class = u8::from(id < 10);
        engine.send(Packet::of_class(id, class), route, Time(30 * MS), &mut out);
    }
    engine.advance(Time::MAX, &mut out);
    let classes: Vec<_> = out.iter().take(10).map(|a| a.load.class).collect();
    let turns = classes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= 8, "{classes:?}");
}

#[test]
fn each_class_has_its_own_limit_and_threshold() {
    let limits = [(2, Some(1)), (5, None)].map(|(limit, mark_from)| {
        Queue::new(Backlog::Packets(limit), mark_from.map(Backlog::Packets))
    });
    let discipline = Discipline::classes(limits.to_vec(), Order::Strict).unwrap();
    let mut engine = Engine::new([Setting::new(rate("1 MB/s"), discipline)], 1);
    let port = engine.ports().next().unwrap();
    let (route, mut out) = (engine.add_route(&[port]), Vec::new());
    for id in 0..20 {
        let class = u8::from(id % 2 == 0);
        engine.send(Packet::of_class(id, class), route, Time::ZERO, &mut out);
    }
    let stats = engine.stats(port, Time::ZERO);
    assert_eq!(
        (stats.dropped, stats.marked, stats.max_queue_packets),
        (12, 1, 7)
    );
    engine.advance(Time::MAX, &mut out);
    let ids: Vec<_> = out.iter().map(|a| (a.load.id, a.load.marks)).collect();
    assert_eq!(
        ids,
        [
            (0, 0),
            (1, 0),
            (3, 1),
            (2, 0),
            (4, 0),
            (6, 0),
            (8, 0),
            (10, 0)
        ]
    );
}
