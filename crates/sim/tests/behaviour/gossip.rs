//! Coded gossip where it matters: liars, slow nodes, nodes that come late or die, and several
//! objects one after the other. Times are held against the limit, size / rate.

use std::time::Duration;

use outpour_core::network::Network;
use outpour_core::{Batches, BlockSet, Bytes, NodeId, Time};
use outpour_protocols::gossip::{CODED, GossipOptions, Schedule};
use outpour_protocols::registry;
use outpour_sim::check;
use outpour_sim::fault::{Fault, FaultKind};
use outpour_sim::object::Object;
use outpour_sim::world::{Scenario, World};
use outpour_terms::Terms;

use super::rate;

const BLOCK: u64 = 64 << 10;
const RATE: &str = "15 Mbit/s";

/// A gossip of so many blocks from the first of equal nodes.
struct Gossip {
    nodes: u32,
    blocks: u64,
    batch: u16,
    seed: u64,
    schedule: Schedule,
    starts: Vec<Time>,
    faults: Vec<Fault>,
    /// Whether contents are looked at, which costs time.
    checked: bool,
}

/// What most tests have in common: eight batches of 64 blocks.
fn gossip(nodes: u32) -> Gossip {
    Gossip {
        nodes,
        blocks: 512,
        batch: 64,
        seed: 1,
        schedule: Schedule::Stream,
        starts: Vec::new(),
        faults: Vec::new(),
        checked: false,
    }
}

impl Gossip {
    fn limit(&self) -> Duration {
        rate(RATE).time_for(Bytes(self.blocks * BLOCK))
    }

    /// When so many times the limit are over.
    fn at(&self, limits: f64) -> Time {
        Time::ZERO + self.limit().mul_f64(limits)
    }

    fn world(&self) -> World {
        let rate = rate(RATE);
        let network = Network::uniform(self.nodes, rate, rate, Duration::from_micros(200)).unwrap();
        let object = Object::new(Bytes(self.blocks * BLOCK), Bytes(BLOCK), 1).unwrap();
        let blocks = object.blocks();
        let have = |source: &bool| match source {
            true => BlockSet::full(blocks),
            false => BlockSet::new(blocks),
        };
        let sources: Vec<bool> = (0..self.nodes).map(|node| node == 0).collect();
        let options = registry::EncodedOptions::of(&GossipOptions {
            schedule: self.schedule,
            ..GossipOptions::default()
        });
        World::new(Scenario {
            network,
            have: sources.iter().map(have).collect(),
            terms: Terms {
                protocol: CODED.with(options).unwrap(),
                ..super::terms(CODED.by_default(), self.nodes, self.seed)
            },
            want: Vec::new(),
            starts: self.starts.clone(),
            object,
            batches: Batches::new(blocks, self.batch),
            faults: self.faults.clone(),
            timeline: None,
            orders: Vec::new(),
            patience: None,
            checked: self.checked,
            sink: None,
        })
    }

    /// Plays until these nodes have everything, with right bytes; when each had, in limits.
    #[track_caller]
    fn finish(&self, world: &mut World, nodes: impl Iterator<Item = u32>) -> Vec<f64> {
        let nodes: Vec<NodeId> = nodes.map(NodeId).collect();
        let end = self.at(20.0);
        while nodes.iter().any(|node| world.finished(*node).is_none()) && world.step(end) {}
        check::contents(world, self.nodes).unwrap();
        check::contracts(world).unwrap();
        let limits = |node: &NodeId| {
            let finished = world.finished(*node);
            let finished = finished.unwrap_or_else(|| panic!("{node} lacks blocks for good"));
            finished.as_secs_f64() / self.limit().as_secs_f64()
        };
        nodes.iter().map(limits).collect()
    }
}

fn last(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

const fn for_good(at: Time, kind: FaultKind) -> Fault {
    Fault {
        at,
        lasts: None,
        kind,
    }
}

const fn killed(at: Time, node: u32) -> Fault {
    let kind = FaultKind::Crash {
        node: NodeId(node),
        unjournaled: Duration::ZERO,
        silent: false,
    };
    for_good(at, kind)
}

#[test]
fn a_liar_is_named_alone_and_soon_and_costs_the_others_little() {
    const LIAR: u32 = 3;
    let honest = gossip(10);
    let undisturbed = last(&honest.finish(&mut honest.world(), 1..10));
    for packets_only in [false, true] {
        let kind = FaultKind::WrongBytes {
            node: NodeId(LIAR),
            share: 0.05,
            packets_only,
        };
        let mut with_liar = gossip(10);
        with_liar.checked = true;
        with_liar.faults = vec![for_good(Time::ZERO, kind)];
        let mut world = with_liar.world();
        let others = (1..10).filter(|node| *node != LIAR);
        let took = last(&with_liar.finish(&mut world, others));
        assert!(took <= 1.5 * undisturbed, "{took}, {undisturbed}");
        let first = world.accusations().first().unwrap();
        assert!(
            first.at <= Time::ZERO + Duration::from_secs(30),
            "{first:?}"
        );
        for accusation in world.accusations() {
            assert_eq!(accusation.peer, NodeId(LIAR), "{accusation:?}");
        }
    }
}

#[test]
fn slow_nodes_hold_nobody_up() {
    let mut some_slow = gossip(20);
    let (out, into) = (rate("7.5 Mbit/s"), rate("7.5 Mbit/s"));
    let slow = |node| FaultKind::NodeRate {
        node: NodeId(node),
        out,
        into,
    };
    some_slow.faults = (17..20)
        .map(|node| for_good(Time::ZERO, slow(node)))
        .collect();
    let mut world = some_slow.world();
    let took = last(&some_slow.finish(&mut world, 1..17));
    assert!(took <= 1.15, "{took}");
    let slow = last(&some_slow.finish(&mut world, 17..20));
    assert!((2.0..2.6).contains(&slow), "{slow}");
}

#[test]
fn survivors_that_hold_everything_together_finish_without_a_source() {
    let mut dying = gossip(20);
    dying.faults = (1..3).map(|node| killed(dying.at(0.5), node)).collect();
    let mut world = dying.world();
    let mut now = Time::ZERO;
    while !world.is_held_without(NodeId(0)) {
        now += Duration::from_millis(50);
        while world.step(now) {}
        assert!(now < dying.at(2.0), "the source is needed at {now}");
    }
    let before = (3..20).filter(|node| world.finished(NodeId(*node)).is_some());
    assert_eq!(
        before.count(),
        0,
        "a node has everything before the source dies"
    );
    dying.faults.push(killed(now, 0));
    let took = last(&dying.finish(&mut dying.world(), 3..20));
    assert!(took <= 1.3, "{took}");
}

#[test]
fn who_comes_late_is_served_at_full_rate_and_holds_nobody_up() {
    let mut late = gossip(20);
    late.starts = vec![Time::ZERO; 20];
    late.starts[19] = late.at(0.5);
    let mut world = late.world();
    let took = last(&late.finish(&mut world, 1..19));
    assert!(took <= 1.12, "{took}");
    let took = last(&late.finish(&mut world, 19..20));
    assert!(took <= 0.5 + 1.12, "{took}");
}

/// Two receivers, of which the second stands still until the first has more than a node keeps of
/// batches in part, as all that the source gives goes to that one. Then it goes on, and at half of
/// the object the first is lost, as `how` says. Says when the second went on and when it was through.
fn survivor(seed: u64, how: FaultKind) -> (f64, f64) {
    const GOES_ON: f64 = 0.45;
    let mut pair = Gossip {
        blocks: 1200,
        seed,
        ..gossip(3)
    };
    let at = pair.at(0.02);
    pair.faults = vec![Fault {
        at,
        lasts: Some(pair.at(GOES_ON).since(at)),
        kind: FaultKind::Stall { node: NodeId(2) },
    }];
    let half = pair.blocks as u32 / 2;
    let mut world = pair.world();
    while world.have(NodeId(1)).count() < half && world.step(pair.at(2.0)) {}
    pair.faults.push(for_good(world.now(), how));
    (GOES_ON, last(&pair.finish(&mut pair.world(), 2..3)))
}

#[test]
fn a_lost_receiver_costs_the_other_what_it_held_and_never_its_rate() {
    let node = NodeId(1);
    let (out, into) = (rate("10 kB/s"), rate("10 kB/s"));
    let lost = [
        killed(Time::ZERO, 1).kind,
        FaultKind::NodeRate { node, out, into },
    ];
    for kind in lost {
        for seed in 1..=3 {
            let (went_on, took) = survivor(seed, kind.clone());
            assert!(took <= went_on + 1.05, "{kind:?}, seed {seed}: {took}");
        }
    }
    // No node hears of the loss for a while.
    let stopped = FaultKind::Stall { node };
    let (went_on, took) = survivor(1, stopped);
    assert!(took <= went_on + 1.05, "{took}");
}

#[test]
fn overlapping_two_and_three_objects_pays() {
    const SEEDS: u64 = 2;
    for objects in [2, 3] {
        let average = |schedule| {
            let one = |seed| {
                let several = Gossip {
                    blocks: objects * 64,
                    seed,
                    schedule,
                    ..gossip(20)
                };
                last(&several.finish(&mut several.world(), 1..20))
            };
            (0..SEEDS).map(one).sum::<f64>() / SEEDS as f64
        };
        let sequential = average(Schedule::Sequential);
        let overlap1 = average(Schedule::Overlap1);
        let overlap2 = average(Schedule::Overlap2);
        let all = [overlap2, overlap1, sequential];
        assert!(all.is_sorted(), "{objects} objects: {all:?}");
        assert!(sequential <= 1.45, "{objects} objects: {all:?}");
    }
}
