//! Members that want a part of a job, or nothing.

use std::collections::BTreeSet;
use std::ops::Range;

use outpour_controller::{Blocks, Destinations, Input, InputError, Job, JobId};
use outpour_core::NodeId;
use outpour_core::network::{ClusterId, Network};

use super::world::{World, full, job};

fn network(nodes: [u32; 3], links: &[(&str, &str, f64)]) -> Network {
    let mut text = String::new();
    for ((name, nodes), out) in ["a", "b", "c"].into_iter().zip(nodes).zip([30, 10, 10]) {
        text += &format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = {nodes}\nnode_out = \"{out} MB/s\"\n\
             node_in = \"10 MB/s\"\n"
        );
    }
    for (from, to, rate) in links {
        text += &format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate} MB/s\"\n");
    }
    Network::from_toml(&text, "wants").unwrap()
}

fn sites(sites: [u32; 2]) -> Destinations {
    Destinations::Sites(sites.map(ClusterId).to_vec())
}

fn want(world: &mut World, job: JobId, node: u32, run: Range<u32>) {
    let (node, runs) = (NodeId(node), vec![run]);
    let blocks = Blocks { job, runs };
    let input = Input::Wants { node, blocks };
    world.controller.handle(input).unwrap();
}

fn got(world: &World, job: JobId, node: u32) -> BTreeSet<u32> {
    let got = world.has.get(&(job, NodeId(node)));
    got.cloned().unwrap_or_default()
}

#[test]
fn each_site_gets_what_is_wanted_there_and_at_a_node_that_wants_it() {
    // Routed one by one, and by sites.
    [false, true]
        .into_iter()
        .for_each(one_copy_of_what_is_wanted);
}

fn one_copy_of_what_is_wanted(beside_sources: bool) {
    // Node 0 has all; site b are nodes 1 to 3, of which 3 is a relay, site c nodes 4 and 5.
    let mut world = World::new(network([1, 3, 2], &[("*", "*", 40.0)]), full(0.5));
    let job = job(100, 1_000_000, 0, sites([1, 2]));
    let id = world.submit(Job {
        beside_sources,
        ..job
    });
    want(&mut world, id, 1, 20..50);
    want(&mut world, id, 2, 0..30);
    want(&mut world, id, 3, 0..0);
    want(&mut world, id, 4, 60..60);
    want(&mut world, id, 5, 60..70);
    world.finish(200);
    let all = |nodes: &[u32]| -> Vec<u32> {
        let mut all: Vec<u32> = nodes
            .iter()
            .flat_map(|node| got(&world, id, *node))
            .collect();
        all.sort_unstable();
        all
    };
    assert!(all(&[1, 2, 3]).into_iter().eq(0..50), "one copy in site b");
    assert!(got(&world, id, 1).iter().all(|block| *block >= 20));
    assert!(got(&world, id, 2).iter().all(|block| *block < 30));
    let relayed = got(&world, id, 3);
    assert!(!relayed.is_empty(), "the relay takes a part off its mates");
    let at_c: BTreeSet<u32> = all(&[4, 5]).into_iter().collect();
    assert!((60..70).all(|block| at_c.contains(&block)));
    let useful = |block: &u32| *block < 50 || (60..70).contains(block);
    assert!(at_c.iter().all(useful), "nobody wants others");
    assert!(
        got(&world, id, 5)
            .into_iter()
            .all(|block| (60..70).contains(&block))
    );
}

#[test]
fn a_site_that_wants_nothing_is_a_way_round() {
    let links = [("a", "c", 1.0), ("a", "b", 20.0), ("b", "c", 20.0)];
    let seconds = |relayed: bool| {
        let mut world = World::new(network([1, 1, 1], &links), full(0.5));
        let destinations = match relayed {
            true => sites([1, 2]),
            false => Destinations::Sites(vec![ClusterId(2)]),
        };
        let id = world.submit(job(100, 1_000_000, 0, destinations));
        if relayed {
            want(&mut world, id, 1, 0..0);
        }
        world.finish(400)
    };
    let (direct, relayed) = (seconds(false), seconds(true));
    assert!(direct >= 99.0, "{direct} s over the slow link");
    // The receiver's access link carries it in ten.
    assert!(relayed < 13.0, "{relayed} s by way of the relay");
}

#[test]
fn who_wants_more_after_all_gets_it() {
    let mut world = World::new(network([1, 1, 1], &[("*", "*", 20.0)]), full(0.5));
    let id = world.submit(job(100, 1_000_000, 0, sites([1, 2])));
    want(&mut world, id, 1, 0..10);
    want(&mut world, id, 2, 0..90);
    (0..4).for_each(|_| drop(world.cycle()));
    assert!(got(&world, id, 1).into_iter().all(|block| block < 10));
    want(&mut world, id, 1, 5..60);
    world.finish(200);
    assert!(got(&world, id, 1).is_superset(&(5..60).collect()));
    assert!(got(&world, id, 1).into_iter().all(|block| block < 60));
}

#[test]
fn wants_that_cannot_be_are_refused() {
    let mut world = World::new(network([1, 1, 1], &[("*", "*", 20.0)]), full(0.5));
    let id = world.submit(job(
        100,
        1_000_000,
        0,
        Destinations::Sites(vec![ClusterId(1)]),
    ));
    let mut say = |node: u32, end: u32| {
        let (node, runs) = (NodeId(node), vec![0..end]);
        let blocks = Blocks { job: id, runs };
        world.controller.handle(Input::Wants { node, blocks })
    };
    assert!(matches!(say(1, 101), Err(InputError::UnknownBlocks { .. })));
    assert!(matches!(say(2, 1), Err(InputError::Stranger { .. })));
    assert!(matches!(say(7, 1), Err(InputError::UnknownNode { .. })));
    // A source has what it wants.
    assert_eq!(say(0, 0), Ok(()));
    world.finish(200);
    assert_eq!(got(&world, id, 1).len(), 100);
}
