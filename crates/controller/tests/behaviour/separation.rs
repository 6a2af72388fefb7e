//! Room for latency-sensitive traffic, limits and priorities.

use outpour_controller::{Config, Destinations, Input, Notice};
use outpour_core::network::{Change, ClusterId, Network, Resource};
use outpour_core::{NodeId, Priority, Rate, Separation, Time};

use super::world::{World, full, job, to_nodes};

fn rate(mb: f64) -> Rate {
    Rate::from_bytes_per_s(mb * 1e6).unwrap()
}

fn two_sites() -> Network {
    Network::from_toml(
        "[[cluster]]\nname = \"a\"\nnodes = 2\n[[cluster]]\nname = \"b\"\nnodes = 2\n\
         [[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"100 MB/s\"",
        "two",
    )
    .unwrap()
}

const LINK: Resource = Resource::Link(ClusterId(0), ClusterId(1));

fn to_b() -> Destinations {
    Destinations::Sites(vec![ClusterId(1)])
}

#[test]
fn bulk_follows_the_foreground_within_a_cycle() {
    let mut world = World::new(two_sites(), Config::default());
    world.submit(job(100_000, 1_000_000, 0, to_b()));
    assert_eq!(world.cycle().planned_bytes, 240e6);
    for (now, left) in [(0.0, 80.0), (50.0, 30.0), (90.0, 0.0), (10.0, 70.0)] {
        world.foreground.insert(LINK, now * 1e6);
        let (rate, peak) = (rate(now), Rate::ZERO);
        let told = Input::Foreground {
            resource: LINK,
            rate,
            peak,
        };
        world.controller.handle(told).unwrap();
        assert_eq!(world.cycle().planned_bytes, left * 3e6);
    }
}

#[test]
fn what_is_too_much_beside_new_traffic_is_taken_back_at_once() {
    let mut world = World::new(two_sites(), Config::default());
    world.submit(job(100_000, 1_000_000, 0, to_b()));
    world.cycle();
    let due = world.controller.due_at().unwrap();
    let mut tell = |now: f64| {
        let told = Input::Foreground {
            resource: LINK,
            rate: rate(now),
            peak: Rate::ZERO,
        };
        world.controller.handle(told).unwrap();
        world.controller.due_at().unwrap()
    };
    assert_eq!(tell(0.0), due, "there is room for nothing");
    assert!(tell(5.0) < due, "80 and 5 MB/s are more than 80 %");
    // Traffic that leaves enough can wait.
    let mut idle = World::new(two_sites(), Config::default());
    let all = job(100_000, 1_000_000, 0, to_b());
    idle.submit(outpour_controller::Job {
        limit: rate(30.0),
        ..all
    });
    idle.cycle();
    let due = idle.controller.due_at();
    for (now, waits) in [(49.0, true), (51.0, false)] {
        let told = Input::Foreground {
            resource: LINK,
            rate: rate(now),
            peak: Rate::ZERO,
        };
        idle.controller.handle(told).unwrap();
        assert_eq!(idle.controller.due_at() == due, waits, "{now}");
    }
}

#[test]
fn the_peak_is_remembered() {
    let separation = Separation::Peak;
    let mut world = World::new(
        two_sites(),
        Config {
            separation,
            ..Config::default()
        },
    );
    world.submit(job(100_000, 1_000_000, 0, to_b()));
    for (now, peak, left) in [
        (10.0, 0.0, 90.0),
        (40.0, 0.0, 60.0),
        (5.0, 0.0, 60.0),
        (5.0, 70.0, 30.0),
    ] {
        let (rate, peak) = (rate(now), rate(peak));
        let told = Input::Foreground {
            resource: LINK,
            rate,
            peak,
        };
        world.controller.handle(told).unwrap();
        assert_eq!(world.cycle().planned_bytes, left * 3e6);
    }
}

#[test]
fn a_link_that_shrinks_is_not_overdrawn_until_the_cycle_ends() {
    let mut world = World::new(two_sites(), full(3.0));
    world.submit(job(100_000, 1_000_000, 0, to_b()));
    world.cycle();
    world.advance(1.0);
    let change = Change::Capacity {
        resource: LINK,
        rate: rate(10.0),
    };
    world.controller.handle(Input::Network(change)).unwrap();
    let decision = world.cycle();
    assert_eq!(decision.from, Time::from_secs_f64(1.0), "at once");
    assert_eq!(decision.planned_bytes, 30e6);
}

#[test]
fn hosts_and_jobs_keep_to_their_limits() {
    let config = Config {
        host_limit: rate(7.0),
        ..full(3.0)
    };
    let mut world = World::new(two_sites(), config);
    world.submit(job(100_000, 1_000_000, 0, to_b()));
    assert_eq!(world.cycle().planned_bytes, 21e6);
    let mut world = World::new(two_sites(), full(3.0));
    let limit = rate(5.0);
    world.submit(outpour_controller::Job {
        limit,
        ..job(100_000, 1_000_000, 0, to_b())
    });
    assert_eq!(world.cycle().planned_bytes, 15e6);
}

/// How much of the link each of two jobs gets.
fn shares(first: Priority, second: Priority, limit: Rate) -> (f64, f64) {
    let mut world = World::new(two_sites(), full(3.0));
    let plain = job(100_000, 100_000, 0, to_b());
    let a = world.submit(outpour_controller::Job {
        priority: first,
        limit,
        ..plain.clone()
    });
    let b = world.submit(outpour_controller::Job {
        priority: second,
        ..plain
    });
    for _ in 0..4 {
        world.cycle();
    }
    let count = |job| {
        let nodes = [NodeId(2), NodeId(3)];
        nodes
            .iter()
            .map(|node| world.has.get(&(job, *node)).map_or(0, |had| had.len()))
            .sum::<usize>()
    };
    let (a, b) = (count(a) as f64, count(b) as f64);
    (a / (a + b), a + b)
}

#[test]
fn jobs_share_by_their_weights_and_leave_nothing_unused() {
    let free = Rate::UNLIMITED;
    for (first, second, share) in [
        (Priority::Normal, Priority::Normal, 0.5),
        (Priority::High, Priority::Normal, 0.8),
        (Priority::Low, Priority::High, 1.0 / 17.0),
    ] {
        let (found, all) = shares(first, second, free);
        assert!((found - share).abs() < 0.02, "{found} instead of {share}");
        assert!(all > 8_900.0, "{all} blocks: the link is not full");
    }
    let (found, all) = shares(Priority::High, Priority::Low, rate(10.0));
    assert!(
        (found - 0.1).abs() < 0.02 && all > 8_900.0,
        "{found}, {all}"
    );
}

#[test]
fn a_deadline_comes_before_shares() {
    let mut world = World::new(two_sites(), full(3.0));
    let plain = job(3_000, 1_000_000, 0, to_b());
    let high = outpour_controller::Job {
        priority: Priority::High,
        ..plain.clone()
    };
    world.submit(high);
    let deadline = Some(Time::from_secs_f64(40.0));
    let low = outpour_controller::Job {
        priority: Priority::Low,
        deadline,
        ..plain
    };
    let low = world.submit(low);
    while world.controller.jobs().any(|job| job == low) {
        world.cycle();
    }
    let ends = [2, 3].map(|node| world.last.get(&(low, NodeId(node))).copied().unwrap_or(0.0));
    assert!(ends.iter().all(|end| *end <= 40.0), "{ends:?}");
    assert!(
        !world
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::Late { .. }))
    );
}

#[test]
fn a_job_waits_for_its_start() {
    let mut world = World::new(two_sites(), full(3.0));
    let start = Time::from_secs_f64(7.0);
    world.submit(outpour_controller::Job {
        start,
        ..job(10, 1_000_000, 0, to_nodes([3]))
    });
    for _ in 0..3 {
        assert_eq!(world.cycle().planned_bytes, 0.0);
    }
    assert_eq!(world.cycle().planned_bytes, 10e6);
}
