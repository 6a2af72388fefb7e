//! Rates towards peers, and the shares of two transfers at once, change while blocks move.

use outpour_core::network::Network;
use outpour_core::{BlockSet, Bytes, NodeId, Rate, Time};
use outpour_protocols::registry::find;
use outpour_sim::cast::{CastConfig, simulate};
use outpour_sim::fault::{Fault, FaultKind};
use outpour_sim::fuzz::{Case, play, play_both};
use outpour_sim::object::Object;
use outpour_sim::pacer::RateOrder;
use outpour_sim::world::{Scenario, World};
use outpour_terms::Asked;

use super::{MIB, asked, assert_within, rate, star, terms};

const BLOCKS: u64 = 100;
const SIZE: f64 = (BLOCKS * MIB) as f64;
/// The rate of every node.
const NODE: f64 = 10e6;

#[test]
fn a_limit_holds_over_an_interconnect_and_in_the_least_time() {
    let network = |change: &str| {
        let cluster = |name| {
            format!(
                "[[cluster]]\nname = \"{name}\"\nnodes = 4\nnode_out = \"11 MB/s\"\n\
                 node_in = \"11 MB/s\"\ninterconnect = true\nlocal = \"29 MB/s\"\n"
            )
        };
        let (a, b) = (cluster("a"), cluster("b"));
        let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"60 MB/s\"\ndelay = \"1 ms\"\n";
        Network::from_toml(&format!("{a}{b}{link}{change}"), "two").unwrap()
    };
    let narrow = "[[node]]\nname = \"a3\"\nout = \"1 MB/s\"\n";
    // Below what access links carry, and above what one of them does.
    for change in ["", narrow] {
        for protocol in [
            "swarm",
            "chain",
            "optimal",
            "robber",
            "central",
            "coded-gossip",
        ] {
            let network = network(change);
            let limited = Asked {
                limit: rate("5 MB/s"),
                ..asked(protocol, MIB)
            };
            let cast = CastConfig {
                asked: limited,
                ..CastConfig::new(network, NodeId(0), Bytes(40 * MIB))
            };
            let report = simulate(cast).unwrap();
            let least = (40 * MIB) as f64 / 5e6;
            assert!(report.limit_s > 0.999 * least, "{protocol}: {report:?}");
            for node in &report.nodes {
                let time = node.finish_s.unwrap();
                assert!(time > 0.999 * least, "{protocol}: {time} of {least}");
            }
            // A chain leads through the narrow node.
            let narrowed = protocol == "chain" && change == narrow;
            assert!(
                narrowed || report.ratio < 2.5,
                "{protocol}: {}",
                report.ratio
            );
        }
    }
}

/// A source and a receiver.
fn scenario(orders: &[(f64, &str)]) -> Scenario {
    let object = Object::new(Bytes(BLOCKS * MIB), Bytes(MIB), 1).unwrap();
    let order = |(at, text): &(f64, &str)| RateOrder {
        at: Time::from_secs_f64(*at),
        from: NodeId(0),
        to: NodeId(1),
        rate: rate(text),
    };
    Scenario {
        network: star(2),
        terms: terms(find("direct").unwrap().by_default(), 2, 1),
        have: vec![
            BlockSet::full(object.blocks()),
            BlockSet::new(object.blocks()),
        ],
        want: Vec::new(),
        starts: Vec::new(),
        object,
        batches: None,
        faults: Vec::new(),
        timeline: None,
        orders: orders.iter().map(order).collect(),
        patience: None,
        checked: true,
        sink: None,
    }
}

fn run(mut world: World) -> World {
    while world.step(Time::from_secs_f64(200.0)) {}
    assert_eq!(world.audit().violations(), []);
    world
}

fn finished(world: &World) -> f64 {
    world.finished(NodeId(1)).unwrap().as_secs_f64()
}

#[test]
fn a_rate_holds_from_when_it_is_set_until_it_is_set_anew() {
    let world = run(World::new(scenario(&[])));
    assert_within(finished(&world), SIZE / NODE, 0.001);
    let slow = [(2.0, "2 MB/s"), (7.0, "0 B/s"), (9.0, "unlimited")];
    let world = run(World::new(scenario(&slow)));
    let before = 2.0 * NODE + 5.0 * 2e6;
    assert_within(finished(&world), 9.0 + (SIZE - before) / NODE, 0.001);
}

#[test]
fn a_host_may_send_less_from_one_moment_to_the_next() {
    let (out, into) = (rate("2 MB/s"), Rate::UNLIMITED);
    let limit = Fault {
        at: Time::from_secs_f64(2.0),
        lasts: None,
        kind: FaultKind::NodeRate {
            node: NodeId(0),
            out,
            into,
        },
    };
    let faults = vec![limit];
    let world = run(World::new(Scenario {
        faults,
        ..scenario(&[])
    }));
    assert_within(finished(&world), 2.0 + (SIZE - 2.0 * NODE) / 2e6, 0.001);
}

#[test]
fn a_rate_towards_a_peer_is_beside_the_limits_of_nodes_and_not_in_their_place() {
    let (low, none) = (rate("2 MB/s"), Rate::UNLIMITED);
    for (node, out, into) in [(0, low, none), (1, none, low)] {
        let limit = Fault {
            at: Time::from_secs_f64(2.0),
            lasts: None,
            kind: FaultKind::NodeRate {
                node: NodeId(node),
                out,
                into,
            },
        };
        let faults = vec![limit];
        // What has a rate from the start, gets one later, or loses it again.
        for orders in [
            vec![(0.0, "5 MB/s")],
            vec![(0.0, "5 MB/s"), (4.0, "unlimited")],
            vec![(0.0, "5 MB/s"), (4.0, "unlimited"), (6.0, "7 MB/s")],
        ] {
            let faults = faults.clone();
            let world = run(World::new(Scenario {
                faults,
                ..scenario(&orders)
            }));
            let expected = 2.0 + (SIZE - 2.0 * 5e6) / 2e6;
            assert_within(finished(&world), expected, 0.001);
        }
    }
}

/// Two casts between the same two hosts; when each is done.
fn two(weight: u32, changes: &[(Time, u32)]) -> (f64, f64) {
    let mut world = World::new(scenario(&[]));
    let mut other = World::new(scenario(&[]));
    world.set_session(0, weight, changes);
    other.set_session(1, 1, &[]);
    world.set_beside(other);
    let world = run(world);
    let other = world.beside().unwrap();
    assert_eq!(other.audit().violations(), []);
    (finished(&world), finished(other))
}

#[test]
fn two_transfers_share_by_weight_and_one_that_is_done_leaves_all_to_the_other() {
    let alone = SIZE / NODE;
    for weight in [1, 4, 16] {
        let (heavy, light) = two(weight, &[]);
        let share = f64::from(weight) / f64::from(weight + 1);
        // Resources of many flows keep a little free.
        assert_within(heavy, alone / share, 0.02);
        assert_within(light, 2.0 * alone, 0.02);
    }
}

#[test]
fn a_share_changes_while_blocks_move() {
    let alone = SIZE / NODE;
    let at = 5.0;
    let (heavy, light) = two(16, &[(Time::from_secs_f64(at), 1)]);
    let left = SIZE - at * NODE * 16.0 / 17.0;
    assert_within(heavy, at + left / (NODE / 2.0), 0.02);
    assert_within(light, 2.0 * alone, 0.02);
}

#[test]
fn it_makes_no_difference_which_of_two_transfers_is_watched() {
    let cases = (0..400).map(|seed| Case::draw(seed, None));
    let pairs = cases.filter_map(|case| case.turned().map(|turned| (case, turned)));
    let mut count = 0;
    for (case, turned) in pairs {
        let (mut one, mut other) = (case.world(None), turned.world(None));
        let until = Time::from_secs_f64(20.0);
        while one.step(until) {}
        while other.step(until) {}
        assert_eq!(one.trace_hash(), other.beside().unwrap().trace_hash());
        assert_eq!(one.beside().unwrap().trace_hash(), other.trace_hash());
        count += 1;
    }
    assert!(count > 40, "{count} of 400 had two");
}

#[test]
fn two_transfers_are_judged_together_as_they_are_one_after_the_other() {
    let cases = (0..400).map(|seed| Case::draw(seed, None));
    let pairs = cases.filter_map(|case| case.turned().map(|turned| (case, turned)));
    let mut attended = 0;
    for (case, turned) in pairs {
        let both = play_both(&mut case.world(None), &case, &turned).unwrap();
        let one = play(&mut case.world(None), &case).unwrap();
        let other = play(&mut turned.world(None), &turned).unwrap();
        assert_eq!(both, (one, other));
        attended += usize::from(case.attended || turned.attended);
    }
    assert!(attended > 10, "{attended} of 400 had a coordinator");
}
