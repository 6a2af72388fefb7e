//! Losses at random and on order.

use outpour_packets::{Loss, Setting};

use super::*;

#[test]
fn so_many_in_a_row_are_lost_from_a_time_on() {
    let mut world = World::switch(2, link("1 MB/s"), holds(10));
    let route = world.route(0, 1);
    let port = world.engine.ports().next().unwrap();
    for id in 0..20 {
        if id == 5 {
            world.engine.lose_next(port, 3);
        }
        if id == 6 {
            // Orders add up.
            world.engine.lose_next(port, 2);
        }
        world.send(Packet::new(id), route, u64::from(id) * MS);
    }
    world.finish();
    let ids: Vec<_> = world.out.iter().map(|a| a.load.id).collect();
    assert_eq!(ids, (0..5).chain(10..20).collect::<Vec<_>>());
    let counts = world.engine.counts();
    assert_eq!((counts.lost, counts.dropped), (5, 0));
    assert_eq!(world.engine.stats(port, Time::ZERO).lost, 5);
}

/// Which of many packets arrive over a port with losses.
fn survivors(loss: Loss, seed: u64) -> Vec<u32> {
    let mut setting = Setting::new(Rate::UNLIMITED, holds(1));
    setting.loss = loss;
    let mut engine = Engine::new([setting], seed);
    let port = engine.ports().next().unwrap();
    let (route, mut out) = (engine.add_route(&[port]), Vec::new());
    for id in 0..100_000 {
        engine.send(Packet::new(id), route, Time::ZERO, &mut out);
    }
    out.iter().map(|a| a.load.id).collect()
}

#[test]
fn a_run_of_losses_goes_on_when_settings_change() {
    let mut setting = Setting::new(Rate::UNLIMITED, holds(1));
    setting.loss = Loss::new(0.9, 1000.0).unwrap();
    let mut engine = Engine::new([setting.clone()], 5);
    let port = engine.ports().next().unwrap();
    let (route, mut out) = (engine.add_route(&[port]), Vec::new());
    let mut send = |engine: &mut Engine<Packet>| {
        out.clear();
        engine.send(Packet::new(0), route, Time::ZERO, &mut out);
        out.is_empty()
    };
    while !send(&mut engine) {}
    // Runs are of a thousand packets, and begin after a hundred that pass.
    let lost = (0..100).filter(|_| {
        engine.set(port, &setting, Time::ZERO);
        send(&mut engine)
    });
    assert!(lost.count() >= 90);
}

#[test]
fn runs_are_as_long_as_set_and_follow_from_the_seed() {
    let arrived = survivors(Loss::new(0.1, 5.0).unwrap(), 3);
    let gaps = arrived.windows(2).map(|pair| pair[1] - pair[0] - 1);
    let runs: Vec<_> = gaps.filter(|gap| *gap > 0).collect();
    let mean = runs.iter().sum::<u32>() as f64 / runs.len() as f64;
    let share = 1.0 - arrived.len() as f64 / 1e5;
    assert!(
        (mean - 5.0).abs() < 0.4 && (share - 0.1).abs() < 0.01,
        "{mean} {share}"
    );
    assert_eq!(arrived, survivors(Loss::new(0.1, 5.0).unwrap(), 3));
    assert_ne!(arrived, survivors(Loss::new(0.1, 5.0).unwrap(), 4));
}
