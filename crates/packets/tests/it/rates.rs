//! What rates do to packets, and what changes of them do.

use outpour_packets::{PortId, Setting};

use super::*;

/// A port of 1 MB/s and a route through it.
fn one(setting: Setting) -> (Engine<Packet>, PortId, RouteId) {
    let mut engine = Engine::new([setting], 1);
    let port = engine.ports().next().unwrap();
    let route = engine.add_route(&[port]);
    (engine, port, route)
}

#[test]
fn a_new_rate_is_that_of_the_packet_in_service_too() {
    for (changes, arrivals) in [
        // Half of the first has passed; what is left of it takes half as long.
        (&[(500, "2 MB/s")][..], [750, 1250, 1750]),
        (&[(500, "500 kB/s")], [1500, 3500, 5500]),
        (&[(500, "0 B/s"), (9000, "1 MB/s")], [9500, 10_500, 11_500]),
        (&[(1500, "unlimited")], [1000, 1500, 1500]),
        (&[(250, "500 kB/s"), (750, "2 MB/s")], [1000, 1500, 2000]),
    ] {
        let (mut engine, port, route) = one(Setting::new(rate("1 MB/s"), holds(9)));
        let mut out = Vec::new();
        for id in 0..3 {
            engine.send(Packet::new(id), route, Time::ZERO, &mut out);
        }
        for (at, text) in changes {
            let at = Time(at * US);
            engine.advance(at, &mut out);
            engine.set_rate(port, rate(text), at);
        }
        engine.advance(Time::MAX, &mut out);
        let times: Vec<_> = out.iter().map(|a| a.at.0 / US).collect();
        assert_eq!(times, arrivals, "{changes:?}");
        // It stands still in service, too.
        let busy = engine.stats(port, Time(20 * MS)).busy_nanos;
        assert_eq!(busy, arrivals[2] * US, "{changes:?}");
        assert_eq!(engine.next_event(), None);
    }
}

#[test]
fn rates_are_exact_although_times_are_whole() {
    // 1000 bytes take 142.857... ns.
    let (mut engine, port, route) = one(Setting::new(rate("7 GB/s"), holds(1_000_000)));
    let mut out = Vec::new();
    for id in 0..700_000 {
        engine.send(Packet::new(id), route, Time::ZERO, &mut out);
    }
    engine.advance(Time::MAX, &mut out);
    for (index, arrival) in (1_u64..).zip(&out) {
        let exact = index as f64 * 1000.0 / 7.0;
        assert!(
            (arrival.at.0 as f64 - exact).abs() < 0.51,
            "{index}: {}",
            arrival.at.0
        );
    }
    assert_eq!(engine.stats(port, Time(100 * MS)).busy_nanos, 100 * MS);
    // Nothing is carried over a pause.
    for id in 0..50 {
        let at = Time(200 * MS + id * US);
        out.clear();
        engine.send(Packet::new(0), route, at, &mut out);
        engine.advance(Time(at.0 + 200), &mut out);
        assert_eq!(out[0].at.0 - at.0, 143);
    }
}

#[test]
fn new_settings_hold_for_packets_that_come_later() {
    let setting = Setting::new(rate("1 MB/s"), holds(5)).delayed(Duration::from_millis(10));
    let (mut engine, port, route) = one(setting);
    let mut out = Vec::new();
    for id in 0..6 {
        engine.send(Packet::new(id), route, Time::ZERO, &mut out);
    }
    // Who waits stays, though it is more than the new limit; nobody joins.
    let marking = Some(Backlog::Packets(1));
    let smaller = Discipline::drop_tail(Backlog::Packets(2), marking);
    engine.advance(Time(MS), &mut out);
    engine.set(port, &Setting::new(rate("1 MB/s"), smaller), Time(MS));
    engine.send(Packet::new(6), route, Time(MS), &mut out);
    engine.advance(Time(4 * MS), &mut out);
    engine.send(Packet::new(7), route, Time(4 * MS), &mut out);
    engine.advance(Time::MAX, &mut out);
    // The first was on the wire when the delay went to zero; none overtakes it.
    let arrived: Vec<_> = out.iter().map(|a| (a.at.0 / MS, a.load.id)).collect();
    let expected = [0, 1, 2, 3, 4, 5, 7].map(|id| (11, id));
    assert_eq!(arrived, expected);
    assert_eq!(out[6].load.marks, 1);
    assert_eq!(engine.counts().dropped, 1);
}

#[test]
fn runs_stop_where_something_arrives() {
    let setting = Setting::new(rate("1 MB/s"), holds(5));
    let (mut engine, _, route) = one(setting);
    let mut out = Vec::new();
    for id in 0..3 {
        engine.send(Packet::new(id), route, Time::ZERO, &mut out);
    }
    assert_eq!(engine.run(Time(MS - 1), &mut out), Time(MS - 1));
    assert_eq!((out.len(), engine.inside()), (0, 3));
    assert_eq!(engine.run(Time::MAX, &mut out), Time(MS));
    assert_eq!(engine.run(Time::MAX, &mut out), Time(2 * MS));
    assert_eq!((out.len(), engine.next_event()), (2, Some(Time(3 * MS))));
    assert_eq!(engine.run(Time(3 * MS), &mut out), Time(3 * MS));
    assert_eq!(engine.run(Time(5 * MS), &mut out), Time(5 * MS));
}

#[test]
fn time_never_goes_back() {
    let setting = Setting::new(rate("1 MB/s"), holds(5));
    let (mut engine, port, route) = one(setting);
    let mut out = Vec::new();
    engine.send(Packet::new(0), route, Time::ZERO, &mut out);
    // The first should have been served after a millisecond: it is late, and so is the second.
    engine.send(Packet::new(1), route, Time(5 * MS), &mut out);
    engine.set_rate(port, rate("1 MB/s"), Time(2 * MS));
    engine.advance(Time::MAX, &mut out);
    let times: Vec<_> = out.iter().map(|a| (a.at.0 / MS, a.load.id)).collect();
    assert_eq!(times, [(5, 0), (6, 1)]);
    // That of an earlier time happens after all that has happened.
    engine.send(Packet::new(2), route, Time(MS), &mut out);
    engine.advance(Time::MAX, &mut out);
    assert_eq!(out[2].at, Time(7 * MS));
    assert_eq!(engine.stats(port, Time::ZERO).packets, 3);
}

#[test]
fn what_happens_at_one_time_happens_before_the_run_ends() {
    let mut world = World::switch(4, link("1 MB/s"), holds(5));
    for (id, to) in [2, 3].into_iter().enumerate() {
        let route = world.route(id as u32, to);
        world.send(Packet::new(id as u32), route, 0);
    }
    assert_eq!(world.engine.run(Time::MAX, &mut world.out), Time(2 * MS));
    assert_eq!(world.arrived(), [(2000, 0), (2000, 1)]);
}

#[test]
fn delays_and_hops_add_up() {
    let fabric = after(link("2 MB/s"), 70);
    let topology = Topology::fat_tree(4, after(link("1 MB/s"), 5), fabric).unwrap();
    let mut world = World::new(topology, &Profile::uniform(holds(9)), 1);
    let route = world.route(0, 15);
    world.send(Packet::new(0), route, 0);
    world.finish();
    // Two wires of hosts and four of the fabric.
    assert_eq!(world.arrived(), [(2 * (1000 + 5) + 4 * (500 + 70), 0)]);
}
