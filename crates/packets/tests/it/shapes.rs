//! Engines made of topologies.

use outpour_core::network::Link;
use outpour_core::topology::Vertex;
use outpour_packets::{PortId, SettingError};

use super::*;

/// The port of a switch toward a host.
fn down(world: &mut World, host: u32) -> PortId {
    let wire = world.wiring.paths().topology().incoming(Vertex(host))[0];
    world.wiring.port(wire).unwrap()
}

/// The port of a host.
fn up(world: &mut World, host: u32) -> PortId {
    let wire = world.wiring.paths().topology().outgoing(Vertex(host))[0];
    world.wiring.port(wire).unwrap()
}

#[test]
fn two_constant_senders_share_a_receiver_and_each_port_carries_its_rate() {
    // Each sends 8 MB/s through 10 MB/s; the receiver's port carries 10 MB/s of the 16.
    let mut world = World::switch(3, link("10 MB/s"), holds(50));
    let routes = [world.route(0, 2), world.route(1, 2)];
    for id in 0..80_000 {
        let (sender, number) = (id % 2, u64::from(id / 2));
        // The second sender is half an interval late, and drifts by an eighth of a nanosecond.
        let at = number * 125 * US + u64::from(sender) * (62_500 + number / 8);
        world.send(Packet::new(id), routes[sender as usize], at);
    }
    // The senders' last packets were sent after so long: 40,000 intervals of 125 us.
    let end = Time(40_000 * 125 * US);
    world.engine.advance(end, &mut world.out);
    for host in [0, 1] {
        let port = up(&mut world, host);
        let stats = world.engine.stats(port, end);
        assert_eq!(
            (stats.dropped, stats.marked, stats.max_queue_packets),
            (0, 0, 0)
        );
        assert!((39_998..=40_000).contains(&stats.packets), "{stats:?}");
        assert_eq!(stats.bytes, stats.packets * 1000);
        // 100 us of each 125.
        let busy = stats.busy_nanos as f64 / end.0 as f64;
        assert!((busy - 0.8).abs() < 1e-4, "{busy}");
    }
    let port = down(&mut world, 2);
    let stats = world.engine.stats(port, end);
    let rate = stats.bytes as f64 / end.as_secs_f64();
    assert!((rate / 10e6 - 1.0).abs() < 1e-4, "{rate}");
    assert!(stats.busy_nanos as f64 / end.0 as f64 > 0.9999);
    assert_eq!(stats.max_queue_packets, 50);
    // Full from the start on but for the first moments.
    assert!(
        (49.0..=50.0).contains(&stats.mean_queue_packets),
        "{stats:?}"
    );
    world.finish();
    let counts = world.engine.counts();
    assert_eq!(counts.entered, counts.delivered + counts.dropped);
    assert_eq!(stats.dropped, counts.dropped);
}

#[test]
fn mean_queues_are_means_over_time() {
    let mut world = World::switch(4, link("1 MB/s"), holds(50));
    for (id, from) in [0, 1, 2].into_iter().enumerate() {
        let route = world.route(from, 3);
        world.send(Packet::new(id as u32), route, 0);
    }
    // All three come after 1 ms; two wait, then one does, for a millisecond each.
    let port = down(&mut world, 3);
    world.engine.advance(Time(3 * MS / 2), &mut world.out);
    let stats = world.engine.stats(port, Time(3 * MS / 2));
    // Two have waited for the last third of the time.
    assert!(
        (stats.mean_queue_packets - 2.0 / 3.0).abs() < 1e-9,
        "{stats:?}"
    );
    for (at, mean) in [
        (1, 0.0),
        (2, 2.0 / 2.0),
        (3, 3.0 / 3.0),
        (4, 3.0 / 4.0),
        (6, 0.5),
    ] {
        let at = Time(at * MS);
        world.engine.advance(at, &mut world.out);
        let stats = world.engine.stats(port, at);
        assert!(
            (stats.mean_queue_packets - mean).abs() < 1e-9,
            "{at}: {stats:?}"
        );
    }
    let stats = world.engine.stats(port, Time(6 * MS));
    assert_eq!(
        (stats.busy_nanos, stats.max_queue_packets, stats.bytes),
        (3 * MS, 2, 3000)
    );
    // Half of a packet in service counts.
    let route = world.route(0, 3);
    world.send(Packet::new(9), route, 6 * MS);
    let half = Time(7 * MS + MS / 2);
    world.engine.advance(half, &mut world.out);
    assert_eq!(world.engine.stats(port, half).busy_nanos, 3 * MS + MS / 2);
}

#[test]
fn hosts_have_queues_of_their_own() {
    let mut world = World::switch(2, link("1 MB/s"), holds(1));
    let route = world.route(0, 1);
    for id in 0..100 {
        world.send(Packet::new(id), route, 0);
    }
    let port = up(&mut world, 0);
    assert_eq!(world.engine.stats(port, Time::ZERO).max_queue_packets, 99);
    world.finish();
    // The switch is as fast as the host, so nothing waits there.
    assert_eq!(world.engine.counts().delivered, 100);
}

#[test]
fn marks_begin_exactly_at_the_threshold() {
    for threshold in [1, 2, 5, 9] {
        let marking = Backlog::Packets(threshold);
        let discipline = Discipline::drop_tail(Backlog::Packets(9), Some(marking));
        // All come at the same time to the receiver's port.
        let mut world = World::switch(13, link("1 MB/s"), discipline);
        for id in 0..12 {
            let route = world.route(id, 12);
            world.send(Packet::new(id), route, 0);
        }
        world.finish();
        // One is in service, `threshold` wait unmarked, and those up to nine marked.
        let marks: Vec<_> = world.out.iter().map(|a| a.load.marks).collect();
        let expected: Vec<_> = (0..10).map(|id| u32::from(id > threshold)).collect();
        assert_eq!(marks, expected, "threshold {threshold}");
        let counts = world.engine.counts();
        assert_eq!(
            (counts.dropped, counts.marked),
            (2, u64::from(9 - threshold))
        );
    }
}

#[test]
fn thresholds_in_bytes_count_bytes() {
    let marking = Some(Backlog::Bytes(outpour_core::Bytes(1500)));
    let limit = Backlog::Bytes(outpour_core::Bytes(4500));
    let mut world = World::switch(9, link("1 MB/s"), Discipline::drop_tail(limit, marking));
    for id in 0..8 {
        let route = world.route(id, 8);
        world.send(Packet::new(id), route, 0);
    }
    world.finish();
    // 1000 bytes wait when the third comes, 2000 when the fourth does.
    let marks: Vec<_> = world.out.iter().map(|a| a.load.marks).collect();
    assert_eq!(marks, [0, 0, 0, 1, 1]);
}

#[test]
fn every_port_of_a_path_marks_by_its_own_queue() {
    let slow = Link {
        queue: Some(Backlog::Packets(100)),
        ecn: Some(Backlog::Packets(3)),
        ..link("1 MB/s")
    };
    let topology = Topology::leaf_spine(2, 1, 1, link("4 MB/s"), slow).unwrap();
    let mut world = World::new(topology, &Profile::uniform(holds(1000)), 1);
    let route = world.route(0, 1);
    for id in 0..10 {
        world.send(Packet::new(id), route, 0);
    }
    world.finish();
    // The leaf's port is four times as slow as the host's, so its queue grows by three packets for
    // four that come: the eighth finds 5.25 waiting. The wires' own limits replaced the profile's.
    let marks: Vec<_> = world.out.iter().map(|a| a.load.marks).collect();
    assert_eq!(marks, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(world.arrived()[0], (2500, 0));
    assert_eq!(world.arrived()[9], (11_500, 9));
}

#[test]
fn sprayed_packets_pass_all_ways_and_flows_keep_theirs() {
    let topology = Topology::fat_tree(4, link("10 MB/s"), link("10 MB/s")).unwrap();
    let mut world = World::new(topology, &Profile::uniform(holds(100)), 1);
    let (from, to) = (NodeId(0), NodeId(15));
    let all = world.wiring.routes(&mut world.engine, from, to, 16);
    assert_eq!(all.len(), 4);
    for id in 0..40 {
        world.send(Packet::new(id), all[id as usize % 4], u64::from(id) * MS);
    }
    world.finish();
    let served = |world: &World| {
        let ports = world.engine.ports();
        let packets = ports.map(|port| world.engine.stats(port, Time(MS)).packets);
        packets.filter(|packets| *packets > 0).collect::<Vec<_>>()
    };
    // One port of each end, two of the pods' upward and downward, four to and from the core.
    let mut shares = served(&world);
    shares.sort_unstable();
    let expected = [[10; 8].as_slice(), &[20; 4], &[40; 2]].concat();
    assert_eq!(shares, expected);
    let chosen = world.wiring.route(&mut world.engine, from, to, 5);
    assert_eq!(chosen, world.wiring.route(&mut world.engine, from, to, 5));
    assert!(all.contains(&chosen));
}

#[test]
fn ports_that_cannot_be_are_named() {
    let edge = Link {
        queue: Some(Backlog::Packets(4)),
        ..link("1 MB/s")
    };
    let topology = Topology::one_big_switch(2, edge).unwrap();
    let marking = Some(Backlog::Packets(5));
    let marks = Discipline::drop_tail(Backlog::Packets(10), marking);
    let paths = Paths::new(topology, Metric::Hops);
    let error = Wiring::new(paths, &Profile::uniform(marks)).unwrap_err();
    let text = "port of `h0` to `switch`: queue 0: it would mark from 5 packets on, but holds \
                4 packets at most";
    assert_eq!(error.to_string(), text);
    let queues = SettingError::Queues { queues: 0 };
    let none = Discipline::classes(Vec::new(), outpour_packets::Order::Strict);
    assert_eq!(none.unwrap_err(), queues);
    let heavy =
        outpour_packets::Queue::new(Backlog::Packets(1), None).weighing(1001.try_into().unwrap());
    let heavy = Discipline::classes(vec![heavy], outpour_packets::Order::Weighted);
    let text = "queue 0: expected a weight of at most 1000, found 1001";
    assert_eq!(heavy.unwrap_err().to_string(), text);
}
