//! The object arrives, with how much sent in vain.

use outpour_push::*;

use crate::world::{MS, Net, World, secs};

fn run(seed: u64, net: Net, sources: u32, symbols: u64, block: u32) -> World {
    let layout = Layout::new(symbols, block).unwrap();
    let mut world = World::new(seed, net, ControllerOptions::default());
    for id in 0..sources {
        world.source(id, layout, None);
    }
    world.run_for(100 * MS);
    world.receiver(1, None, true);
    let ended = world.finish(secs(120.0));
    assert!(ended, "{:?} at {}", world.device(1), world.now);
    world
}

#[test]
fn an_object_arrives_from_one_to_five_sources() {
    for sources in 1..=5 {
        let world = run(sources.into(), Net::default(), sources, 3000, 256);
        assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
        assert_eq!(
            world.device(1).counts().duplicates,
            0,
            "seats keep symbols apart"
        );
        let flows = world
            .ends
            .iter()
            .map(|it| it.0)
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(
            flows.len(),
            sources.min(3) as usize,
            "three sources push at most"
        );
    }
}

#[test]
fn an_object_arrives_whatever_is_lost() {
    for percent in [1_u32, 5, 20, 40, 60] {
        let loss = f64::from(percent) / 100.0;
        let net = Net {
            data_loss: loss,
            other_loss: loss.min(0.1),
            jitter: 2 * MS,
            twice: 0.02,
            ..Net::default()
        };
        let world = run(percent.into(), net, 3, 3000, 256);
        let end = world.device(1).end();
        assert_eq!(end, Some(ReceiverEnd::Completed), "{percent} % lost");
        println!(
            "{percent} % lost: {} packets for 3000 symbols, {} at {}",
            world.packets,
            world.ends.len(),
            world.now
        );
    }
}

/// The share of packets sent beyond the symbols of the object, and how many seconds all took.
fn vain(net: Net, symbols: u64, block: u32, estimate: Estimate) -> (f64, f64) {
    let layout = Layout::new(symbols, block).unwrap();
    let mut world = World::new(5, net, ControllerOptions::default());
    for id in 0..3 {
        world.source(id, layout, None);
    }
    world.run_for(100 * MS);
    let mut options = ReceiverOptions::new(crate::world::URI, DeviceId(1));
    options.estimate = estimate;
    world.receiver(1, Some(options), true);
    assert!(world.finish(secs(120.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
    let vain = world.packets as f64 / symbols as f64 - 1.0;
    (vain, world.now.as_secs_f64())
}

#[test]
fn little_is_sent_in_vain() {
    for (block, most) in [(256, 0.06), (1024, 0.02), (4096, 0.005)] {
        let symbols = 40_960;
        let (parts, seconds) = vain(Net::default(), symbols, block, Estimate::Parts);
        let (even, longer) = vain(Net::default(), symbols, block, Estimate::Even);
        println!(
            "blocks of {block}: by parts {:.2} % in vain, {seconds:.2} s; evenly {:.2} %, {longer:.2} s",
            parts * 100.0,
            even * 100.0
        );
        assert!((0.0..most).contains(&parts), "{parts} of blocks of {block}");
        assert!(even > parts, "{even} and {parts} of blocks of {block}");
    }
}

#[test]
fn a_source_far_away_slows_nobody_down() {
    // Its round trips are twenty times as long; the others should not wait for its part of each block.
    let net = Net {
        detour: 200 * MS,
        ..Net::default()
    };
    let (parts, seconds) = vain(net.clone(), 40_960, 512, Estimate::Parts);
    let (even, longer) = vain(net, 40_960, 512, Estimate::Even);
    println!(
        "one far away: by parts {:.2} % in vain, {seconds:.2} s; evenly {:.2} %, {longer:.2} s",
        parts * 100.0,
        even * 100.0
    );
    assert!(parts < 0.06, "{parts} in vain");
    assert!(seconds < longer * 1.1, "{seconds} s instead of {longer} s");
}

#[test]
fn acknowledgements_of_several_packets_serve_as_well() {
    let layout = Layout::new(3000, 256).unwrap();
    let mut world = World::new(
        3,
        Net {
            data_loss: 0.05,
            ..Net::default()
        },
        ControllerOptions::default(),
    );
    for id in 0..3 {
        world.source(id, layout, None);
    }
    world.run_for(100 * MS);
    let mut options = ReceiverOptions::new(crate::world::URI, DeviceId(1));
    options.ack_every = 4;
    world.receiver(1, Some(options), true);
    assert!(world.finish(secs(60.0)));
    assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
}

#[test]
fn shares_arrive_exactly_and_lost_ones_again() {
    for loss in [0.0, 0.1] {
        let layout = Layout::new(3001, 100).unwrap();
        let options = ControllerOptions {
            split: Split::Equal,
            ..ControllerOptions::default()
        };
        let net = Net {
            data_loss: loss,
            ..Net::default()
        };
        let mut world = World::new(3, net, options);
        for id in 0..3 {
            world.source(id, layout, None);
        }
        world.run_for(100 * MS);
        world.receiver(1, None, false);
        assert!(world.finish(secs(60.0)), "{:?}", world.device(1));
        assert_eq!(world.device(1).end(), Some(ReceiverEnd::Completed));
        assert_eq!(world.device(1).counts().symbols, 3001);
        assert_eq!(
            world.packets == 3001,
            loss == 0.0,
            "{} packets",
            world.packets
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let net = Net {
        data_loss: 0.1,
        other_loss: 0.1,
        jitter: 3 * MS,
        twice: 0.05,
        ..Net::default()
    };
    let trace = |seed| run(seed, net.clone(), 3, 1000, 100).trace;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn every_congestion_control_delivers_shares_and_new_symbols() {
    let layout = Layout::new(3000, 256).unwrap();
    for name in outpour_congestion::Algorithm::NAMES {
        for split in [Split::Equal, Split::Rateless] {
            let options = ControllerOptions {
                split,
                ..ControllerOptions::default()
            };
            let net = Net {
                data_loss: 0.02,
                ..Net::default()
            };
            let mut world = World::new(4, net, options);
            for id in 0..3 {
                let mut source = SourceOptions::new(SourceId(id));
                source.congestion = name.parse().unwrap();
                // As TCP does it: no probes before a timeout counts.
                source.timers.probes = 0;
                world.source(id, layout, Some(source));
            }
            world.run_for(100 * MS);
            world.receiver(1, None, split == Split::Rateless);
            assert!(world.finish(secs(60.0)), "{name}, {split:?}");
            let end = world.device(1).end();
            assert_eq!(end, Some(ReceiverEnd::Completed), "{name}, {split:?}");
            println!(
                "{name}, {split:?}: {} packets, {}",
                world.packets, world.now
            );
        }
    }
}
