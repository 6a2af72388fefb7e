//! Servers and disks that fail, and what the next cycle makes of it.

use outpour_controller::{Blocks, Config, Destinations, Input, Notice};
use outpour_core::network::{ClusterId, Network};
use outpour_core::{NodeId, Time};

use super::world::{World, full, job, to_nodes};

/// Two sites of three servers and one of one, 10 MB/s each.
fn network() -> Network {
    let site = |name: &str, nodes: u32| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n"
        )
    };
    Network::from_toml(&(site("a", 3) + &site("b", 3) + &site("c", 1)), "faults").unwrap()
}

fn to_b() -> Destinations {
    Destinations::Sites(vec![ClusterId(1)])
}

/// Bytes planned per cycle while a site of three is served by three sources.
fn started() -> (World, outpour_controller::JobId) {
    let mut world = World::new(network(), full(3.0));
    let mut job = job(600, 1_000_000, 0, to_b());
    job.sources = [0, 1, 2]
        .map(|node| outpour_controller::Source {
            node: NodeId(node),
            blocks: vec![0..600],
        })
        .into();
    let id = world.submit(job);
    assert_eq!(world.cycle().planned_bytes, 90e6);
    (world, id)
}

#[test]
fn a_lost_source_is_no_source_in_the_next_cycle() {
    let (mut world, _) = started();
    world.advance(1.0);
    world.went(NodeId(1));
    world
        .controller
        .handle(Input::Left { node: NodeId(1) })
        .unwrap();
    let decision = world.cycle();
    assert_eq!(
        decision.from,
        Time::from_secs_f64(1.0),
        "before the end of the cycle"
    );
    assert!(decision.planned_bytes > 59e6, "two sources at full rate");
    let end = world.finish(40);
    assert!(end < 31.5, "{end} s");
}

#[test]
fn a_reader_may_say_that_a_source_is_dead_and_that_says_otherwise() {
    let (mut world, _) = started();
    let (node, by) = (NodeId(1), NodeId(4));
    world.controller.handle(Input::Dead { node, by }).unwrap();
    let decision = world.controller.decide(Time::ZERO);
    assert!(decision.planned_bytes < 61e6, "nobody is sent to it");
    assert!(decision.orders.iter().all(|order| order.to != node));
    // It lives and says so: it is a source again, but not for that reader.
    let report = world.report_of(node, false);
    world
        .controller
        .handle(Input::Report { node, report })
        .unwrap();
    let decision = world.controller.decide(Time::from_secs_f64(2.7));
    assert!(decision.planned_bytes > 80e6);
    let order = decision
        .orders
        .iter()
        .find(|order| order.to == node)
        .unwrap();
    assert!(order.whole, "it has heard nothing for a while");
    let to_reader = |change: &outpour_controller::Change| matches!(change, outpour_controller::Change::Send { to, .. } if *to == by);
    assert!(!order.changes.iter().any(to_reader));
}

#[test]
fn a_disk_that_is_lost_is_filled_again() {
    let mut world = World::new(network(), full(3.0));
    let id = world.submit(job(60, 1_000_000, 0, to_nodes([3, 4])));
    for _ in 0..2 {
        world.cycle();
    }
    let node = NodeId(3);
    world.lost_disk(node);
    assert_eq!(world.controller.held(id, node), Some(0));
    world.strict = false;
    world.finish(20);
    assert_eq!(world.has[&(id, node)].len(), 60);
}

#[test]
fn blocks_that_a_lost_server_had_are_copied_again() {
    let (mut world, id) = started();
    for _ in 0..3 {
        world.cycle();
    }
    let node = NodeId(4);
    let had = world.has[&(id, node)].len();
    assert!(had > 50);
    world.went(node);
    world.controller.handle(Input::Left { node }).unwrap();
    world.finish(40);
    let at = |node| {
        world
            .has
            .get(&(id, NodeId(node)))
            .map_or(0, |had| had.len())
    };
    assert_eq!(at(3) + at(5), 600, "without those that are gone");
}

#[test]
fn a_liar_is_a_source_no_more() {
    let (mut world, id) = started();
    world.cycle();
    let (node, by) = (NodeId(2), NodeId(5));
    let blocks = Blocks {
        job: id,
        runs: vec![500..600],
    };
    world
        .controller
        .handle(Input::Missing { node, by, blocks })
        .unwrap();
    let now = Time::from_secs_f64(world.now);
    let decision = world.controller.decide(now);
    assert!(decision.notices.contains(&Notice::Distrusted { node, by }));
    let sends = |order: &&outpour_controller::Order| {
        order.to == node
            && order
                .changes
                .iter()
                .any(|change| matches!(change, outpour_controller::Change::Send { .. }))
    };
    assert_eq!(decision.orders.iter().filter(sends).count(), 0);
    assert!(decision.planned_bytes > 59e6, "the others go on");
}

#[test]
fn blocks_that_come_late_make_nobody_a_liar() {
    let mut world = World::new(network(), full(3.0));
    let id = world.submit(job(60, 1_000_000, 0, to_nodes([3, 4])));
    world.strict = false;
    world.pace = 0.5;
    for _ in 0..2 {
        world.cycle();
    }
    // Due by now, but only half of it is there.
    let blocks = Blocks {
        job: id,
        runs: vec![0..60],
    };
    let (node, by) = (NodeId(3), NodeId(4));
    let had = world.has[&(id, node)].len() as u64;
    assert!(world.controller.held(id, node).unwrap() > had);
    let missing: std::collections::BTreeSet<u32> = (0..60)
        .filter(|block| !world.holds(id, node, *block))
        .collect();
    let blocks = Blocks {
        runs: super::world::runs(&missing),
        ..blocks
    };
    world.report();
    world
        .controller
        .handle(Input::Missing { node, by, blocks })
        .unwrap();
    assert_eq!(world.controller.held(id, node), Some(had));
    world.pace = 1.0;
    world.finish(20);
    assert!(
        !world
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::Distrusted { .. }))
    );
}

#[test]
fn what_does_not_come_is_sent_again() {
    for speculate in [true, false] {
        let config = Config {
            speculate,
            ..full(3.0)
        };
        let mut world = World::new(network(), config);
        let id = world.submit(job(90, 1_000_000, 0, to_nodes([3, 4, 6])));
        world.strict = false;
        world.pace = 0.0;
        for _ in 0..3 {
            world.cycle();
        }
        world.pace = 1.0;
        world.finish(40);
        for node in [3, 4, 6] {
            assert_eq!(world.has[&(id, NodeId(node))].len(), 90);
        }
    }
}

#[test]
fn lost_sources_are_said_and_waited_for() {
    let mut world = World::new(network(), full(3.0));
    let id = world.submit(job(90, 1_000_000, 0, to_nodes([3])));
    world.cycle();
    world.went(NodeId(0));
    world
        .controller
        .handle(Input::Left { node: NodeId(0) })
        .unwrap();
    for _ in 0..4 {
        world.cycle();
    }
    let lost = |notice: &&Notice| matches!(notice, Notice::Lost { job, .. } if *job == id);
    assert_eq!(world.notices.iter().filter(lost).count(), 1, "said once");
    world.came(NodeId(0));
    world.finish(20);
}

#[test]
fn a_new_controller_goes_on_with_what_is_there() {
    let (mut world, id) = started();
    for _ in 0..3 {
        world.cycle();
    }
    let had: usize = [3, 4, 5]
        .map(|node| world.has[&(id, NodeId(node))].len())
        .iter()
        .sum();
    let config = Config {
        epoch: 2,
        ..full(3.0)
    };
    let mut next = World::new(network(), config);
    next.now = world.now;
    (next.has, next.jobs) = (world.has.clone(), world.jobs.clone());
    let again = next
        .controller
        .submit(Time::from_secs_f64(next.now), world.jobs[&id].clone());
    assert_eq!(again.unwrap().job, id);
    let began = next.now;
    let end = next.finish(40);
    let left = (600 - had) as f64 / 30.0;
    assert!(end - began <= left + 3.2, "{end}: nothing is sent again");
}
