//! A controller that takes over and hears from all servers what they have.

use std::ops::Range;

use outpour_controller::{Blocks, Controller, Decision, Destinations, Input, JobId, Report};
use outpour_core::network::{ClusterId, Network};
use outpour_core::{NodeId, Time};

use super::world::{full, job};

const SERVERS: u32 = 40;
const BLOCKS: u32 = 4000;

/// Two sites; the first has everything.
fn controller() -> (Controller, JobId) {
    let site = |name: &str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = {SERVERS}\nnode_out = \"10 MB/s\"\nnode_in = \"10 MB/s\"\n"
        )
    };
    let network = Network::from_toml(&(site("a") + &site("b")), "takeover").unwrap();
    let mut controller = Controller::new(network, full(3.0)).unwrap();
    for node in (0..2 * SERVERS).map(NodeId) {
        controller.handle(Input::Came { node }).unwrap();
    }
    let to = Destinations::Sites(vec![ClusterId(1)]);
    let mut job = job(BLOCKS.into(), 1_000_000, 0, to);
    job.sources = (0..SERVERS)
        .map(|node| outpour_controller::Source {
            node: NodeId(node),
            blocks: vec![had(node).remove(0)],
        })
        .collect();
    let id = controller.submit(Time::ZERO, job).unwrap().job;
    (controller, id)
}

/// What each server has: a part, and of the second site only every third of its blocks.
fn had(node: u32) -> Vec<Range<u32>> {
    let share = BLOCKS / SERVERS;
    let first = node % SERVERS * share;
    match node < SERVERS {
        true => vec![first..first + share],
        false => (first..first + share)
            .step_by(3)
            .map(|block| block..block + 1)
            .collect(),
    }
}

fn report(node: u32, job: JobId) -> Input {
    let runs = had(node);
    let report = Report {
        epoch: 1,
        seq: 1,
        whole: true,
        gained: vec![Blocks { job, runs }],
        ..Report::default()
    };
    let node = NodeId(node);
    Input::Report { node, report }
}

/// The first decision after the reports of these servers; `curious` asks in between what is known.
fn told(order: impl Iterator<Item = u32>, curious: bool) -> Decision {
    let (mut controller, job) = controller();
    let mut lacking = u64::from(BLOCKS);
    for node in order {
        controller.handle(report(node, job)).unwrap();
        let has = had(node)
            .iter()
            .map(|run| u64::from(run.end - run.start))
            .sum();
        assert_eq!(controller.held(job, NodeId(node)), Some(has));
        if node >= SERVERS {
            lacking -= has;
        }
        if curious {
            assert_eq!(controller.lacking(job), Some(lacking));
            assert!(controller.runs(job).is_some_and(|runs| runs > 0));
        }
    }
    controller.decide(Time::ZERO)
}

#[test]
fn it_is_all_one_who_speaks_first() {
    let first = told(0..2 * SERVERS, false);
    assert!(first.planned_bytes > 0.99 * f64::from(SERVERS) * 30e6);
    assert_eq!(first, told((0..2 * SERVERS).rev(), false));
    assert_eq!(first, told(0..2 * SERVERS, true));
}
