//! Payloads that are cut off where they find no room.

use outpour_packets::{Order, Queue};

use super::*;

fn trimming(headers: u32, payloads: u32) -> Discipline {
    let queue = |packets| Queue::new(Backlog::Packets(packets), None);
    let queues = vec![queue(headers), queue(payloads)];
    let discipline = Discipline::classes(queues, Order::Strict);
    discipline.unwrap().trimming()
}

/// Twelve senders whose packets come to one receiver's port at the same time.
fn incast(discipline: Discipline) -> World {
    let mut world = World::switch(13, link("1 MB/s"), discipline);
    for id in 0..12 {
        let route = world.route(id, 12);
        world.send(Packet::of_class(id, 1), route, 0);
    }
    world.finish();
    world
}

#[test]
fn headers_of_all_packets_arrive_and_go_first() {
    let world = incast(trimming(100, 4));
    let arrived: Vec<_> = world
        .out
        .iter()
        .map(|a| (a.load.id, a.load.trimmed))
        .collect();
    let ids = |range: std::ops::Range<u32>, trimmed| range.map(move |id| (id, trimmed));
    // The first is in service, four payloads wait, and the others' headers overtake those.
    let expected: Vec<_> = (ids(0..1, false)
        .chain(ids(5..12, true))
        .chain(ids(1..5, false)))
    .collect();
    assert_eq!(arrived, expected);
    let counts = world.engine.counts();
    assert_eq!(
        (counts.delivered, counts.dropped, counts.trimmed),
        (12, 0, 7)
    );
    assert_eq!(
        counts.delivered_bytes,
        5 * 1000 + 7 * u64::from(HEADER_BYTES)
    );
    // A header takes 64 us.
    assert_eq!(world.arrived()[1], (2064, 5));
    assert_eq!(world.arrived()[11], (2000 + 7 * 64 + 4000, 4));
}

#[test]
fn headers_without_room_are_dropped_and_count_as_dropped_only() {
    let world = incast(trimming(3, 4));
    let counts = world.engine.counts();
    assert_eq!(
        (counts.delivered, counts.dropped, counts.trimmed),
        (8, 4, 3)
    );
}

#[test]
fn what_is_only_a_header_cannot_be_trimmed() {
    let mut world = World::switch(4, link("1 MB/s"), trimming(1, 1));
    for id in 0..3 {
        let route = world.route(id, 3);
        let bytes = HEADER_BYTES;
        let packet = Packet {
            bytes,
            ..Packet::of_class(id, 1)
        };
        world.send(packet, route, 0);
    }
    world.finish();
    let counts = world.engine.counts();
    assert_eq!(
        (counts.delivered, counts.dropped, counts.trimmed),
        (2, 1, 0)
    );
}

#[test]
fn without_trimming_payloads_are_dropped_whole() {
    let queue = |packets| Queue::new(Backlog::Packets(packets), None);
    let plain = Discipline::classes(vec![queue(100), queue(4)], Order::Strict);
    let world = incast(plain.unwrap());
    let counts = world.engine.counts();
    assert_eq!(
        (counts.delivered, counts.dropped, counts.trimmed),
        (5, 7, 0)
    );
    assert!(world.out.iter().all(|a| !a.load.trimmed));
}
