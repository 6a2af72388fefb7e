//! One clear message for each thing that is wrong, and everything else goes on.

use outpour_controller::{
    Blocks, Config, Controller, Destinations, Input, Job, JobId, Notice, Report, Source,
    cannot_meet,
};
use outpour_core::network::{Change, ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Time};

use super::world::{World, full, job, to_nodes};

fn network() -> Network {
    Network::from_toml(
        "[[cluster]]\nname = \"a\"\nnodes = 2\n[[cluster]]\nname = \"b\"\nnodes = 2\nnode_in = \"10 MB/s\"\n\
         [[cluster]]\nname = \"far\"\nnodes = 1\n\
         [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"100 MB/s\"\nboth = true",
        "bad",
    )
    .unwrap()
}

fn refused(job: Job) -> String {
    let mut controller = Controller::new(network(), full(3.0)).unwrap();
    let error = controller.submit(Time::ZERO, job).unwrap_err();
    assert_eq!(controller.jobs().count(), 0);
    error.to_string()
}

#[test]
fn jobs_that_cannot_be_are_refused() {
    let plain = || job(10, 1_000_000, 0, to_nodes([2]));
    assert_eq!(
        refused(job(10, 1_000_000, 9, to_nodes([2]))),
        "node n9 is not in the network, which has 5 nodes"
    );
    assert_eq!(
        refused(job(10, 1, 0, Destinations::Sites(vec![ClusterId(3)]))),
        "site 3 is not in the network, which has 3 sites"
    );
    assert_eq!(
        refused(job(10, 1, 0, to_nodes([]))),
        "the job has no destinations"
    );
    assert_eq!(
        refused(job(10, 1_000_000, 0, to_nodes([4]))),
        "no path from the sources to node `far`: every path has a link or a node of rate 0"
    );
    assert_eq!(
        refused(job(
            10,
            1_000_000,
            0,
            Destinations::Sites(vec![ClusterId(2)])
        )),
        "no path from the sources to site `far`: every path has a link or a node of rate 0"
    );
    assert_eq!(
        refused(Job {
            block: Bytes(0),
            ..plain()
        }),
        "an object of 10 MB in blocks of 0 B does not have 1 to 1073741824 blocks"
    );
    assert_eq!(
        refused(Job {
            limit: Rate::ZERO,
            ..plain()
        }),
        "the job's limit is 0"
    );
    let source = |blocks| Source {
        node: NodeId(0),
        blocks,
    };
    assert_eq!(
        refused(Job {
            sources: vec![source(vec![0..11])],
            ..plain()
        }),
        "node n0 has blocks 0 to 11 of an object of 10 blocks"
    );
    assert_eq!(
        refused(Job {
            sources: vec![source(vec![0..4, 5..10])],
            ..plain()
        }),
        "no source has block 4"
    );
}

/// What joins sites counts as well, from those that take part in the job.
#[test]
fn a_deadline_is_held_against_the_links_of_a_job() {
    let mut text = String::new();
    for name in ["a", "b", "c"] {
        text += &format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = 2\nnode_out = \"1 GB/s\"\nnode_in = \"1 GB/s\"\n"
        );
    }
    text += "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"100 MB/s\"\n";
    let network = Network::from_toml(&text, "deadline").unwrap();
    let late = |relays: &[u32], deadline: f64| {
        let mut world = World::new(network.clone(), full(1.0));
        let destinations = Destinations::Sites(vec![ClusterId(1)]);
        let mut job = job(100, 100_000_000, 0, destinations);
        job.deadline = Some(Time::from_secs_f64(deadline));
        job.relays = relays.iter().copied().map(NodeId).collect();
        world.controller.submit(Time::ZERO, job).unwrap().late
    };
    assert_eq!(late(&[], 99.0), Some(Time::from_secs_f64(100.0)));
    assert_eq!(late(&[], 100.0), None);
    assert_eq!(late(&[4], 49.0), Some(Time::from_secs_f64(50.0)));
    assert_eq!(late(&[4], 50.0), None);
    let said = cannot_meet("job 1", Time::from_secs_f64(22.5));
    assert_eq!(
        said,
        "job 1 cannot meet its deadline: it ends at 22.5 s at the earliest"
    );
    let said = cannot_meet("job 1", Time::MAX);
    assert_eq!(
        said,
        "job 1 cannot meet its deadline: as the network is, it never ends"
    );
}

#[test]
fn a_deadline_that_cannot_be_met_is_said_at_once() {
    let mut world = World::new(network(), full(3.0));
    let deadline = Some(Time::from_secs_f64(9.0));
    let late = Job {
        deadline,
        ..job(100, 1_000_000, 0, to_nodes([2]))
    };
    let admitted = world.controller.submit(Time::ZERO, late.clone()).unwrap();
    assert_eq!(admitted.late, Some(Time::from_secs_f64(10.0)));
    world.controller.cancel(admitted.job).unwrap();
    let just = Job {
        deadline: Some(Time::from_secs_f64(10.0)),
        ..late.clone()
    };
    assert_eq!(
        world.controller.submit(Time::ZERO, just).unwrap().late,
        None
    );
    let mut world = World::new(network(), full(3.0));
    world.submit(late);
    let end = world.finish(20);
    assert!(end < 10.1, "{end}: it is moved all the same, at full rate");

    // One that can be met at first, until a link breaks down.
    let mut world = World::new(network(), full(3.0));
    let deadline = Some(Time::from_secs_f64(12.0));
    let id = world.submit(Job {
        deadline,
        ..job(100, 1_000_000, 0, to_nodes([2]))
    });
    world.cycle();
    let resource = Resource::NodeIn(NodeId(2));
    let rate = Rate::from_bytes_per_s(1e6).unwrap();
    world
        .controller
        .handle(Input::Network(Change::Capacity { resource, rate }))
        .unwrap();
    for _ in 0..4 {
        world.cycle();
    }
    let late = |notice: &&Notice| matches!(notice, Notice::Late { job, .. } if *job == id);
    assert_eq!(world.notices.iter().filter(late).count(), 1, "said once");
}

#[test]
fn reports_are_heeded_in_order_or_not_at_all() {
    let mut world = World::new(network(), full(3.0));
    let id = world.submit(job(100, 1_000_000, 0, to_nodes([2])));
    world.cycle();
    let node = NodeId(2);
    let blocks = |first: u32, end: u32| {
        vec![Blocks {
            job: id,
            runs: vec![first..end],
        }]
    };
    let report = |epoch, seq, gained| Report {
        epoch,
        seq,
        gained,
        ..Report::default()
    };
    let mut says = |node, report: Report| {
        let told = world.controller.handle(Input::Report { node, report });
        told.map_or_else(|error| error.to_string(), |()| "heeded".to_owned())
    };
    assert_eq!(says(node, report(1, 2, blocks(0, 5))), "heeded");
    assert_eq!(
        says(node, report(1, 2, blocks(5, 6))),
        "node n2's report 2 comes late; report 2 was heeded"
    );
    assert_eq!(
        says(node, report(1, 4, blocks(5, 6))),
        "node n2's report 4 follows report 2: some are missing"
    );
    assert_eq!(
        says(node, report(0, 3, blocks(5, 6))),
        "node n2 reports to epoch 0; this controller has epoch 1"
    );
    assert_eq!(
        says(node, report(1, 3, blocks(99, 101))),
        "node n2 speaks of blocks 99 to 101 of job 0, which has 100"
    );
    assert_eq!(
        says(NodeId(4), report(1, 2, blocks(0, 1))),
        "node n4 has no part in job 0"
    );
    assert_eq!(
        says(NodeId(7), report(1, 2, blocks(0, 1))),
        "node n7 is not in the network, which has 5 nodes"
    );
    let other = vec![Blocks {
        job: JobId(5),
        runs: vec![0..1],
    }];
    assert_eq!(says(node, report(1, 3, other)), "job 5 is not known here");
    assert_eq!(
        world.controller.held(id, node),
        Some(5),
        "nothing of it was heeded"
    );
    let decision = world.controller.decide(Time::from_secs_f64(2.7));
    assert_eq!(decision.asks, [node], "it has to report everything");
    let whole = Report {
        whole: true,
        ..report(1, 5, blocks(0, 40))
    };
    world
        .controller
        .handle(Input::Report {
            node,
            report: whole,
        })
        .unwrap();
    let decision = world.controller.decide(Time::from_secs_f64(5.7));
    assert_eq!(decision.asks, []);
}

#[test]
fn every_epoch_but_its_own_is_another_controllers() {
    for ours in [1, 2, 9] {
        let config = Config {
            epoch: ours,
            ..full(3.0)
        };
        let mut world = World::new(network(), config);
        let id = world.submit(job(100, 1_000_000, 0, to_nodes([2])));
        world.cycle();
        let gained = Blocks {
            job: id,
            runs: vec![0..5],
        };
        for epoch in (0..ours + 2).filter(|epoch| *epoch != ours) {
            let report = Report {
                epoch,
                seq: 2,
                gained: vec![gained.clone()],
                ..Report::default()
            };
            let node = NodeId(2);
            let told = world.controller.handle(Input::Report { node, report });
            let said = told.unwrap_err().to_string();
            let expected = match epoch < ours {
                true => {
                    format!("node n2 reports to epoch {epoch}; this controller has epoch {ours}")
                }
                false => {
                    format!(
                        "a controller of epoch {epoch} has taken over; this one had epoch {ours}"
                    )
                }
            };
            assert_eq!(said, expected);
            assert_eq!(world.controller.held(id, node), Some(0));
        }
    }
}

#[test]
fn a_later_controller_silences_this_one() {
    let mut world = World::new(network(), full(3.0));
    world.submit(job(100, 1_000_000, 0, to_nodes([2])));
    world.cycle();
    let report = Report {
        epoch: 2,
        seq: 2,
        ..Report::default()
    };
    let told = world.controller.handle(Input::Report {
        node: NodeId(2),
        report,
    });
    assert_eq!(
        told.unwrap_err().to_string(),
        "a controller of epoch 2 has taken over; this one had epoch 1"
    );
    let decision = world.controller.decide(Time::from_secs_f64(3.0));
    assert_eq!(
        (decision.orders.len(), decision.notices),
        (0, vec![Notice::Deposed { epoch: 2 }])
    );
    assert_eq!(world.controller.due_at(), None);
}

#[test]
fn resources_that_are_not_there_are_refused() {
    let mut controller = Controller::new(network(), full(3.0)).unwrap();
    for resource in [
        Resource::NodeIn(NodeId(5)),
        Resource::Link(ClusterId(0), ClusterId(3)),
        Resource::Local(NodeId(0), NodeId(2)),
    ] {
        let (rate, peak) = (Rate::ZERO, Rate::ZERO);
        assert!(
            controller
                .handle(Input::Foreground {
                    resource,
                    rate,
                    peak
                })
                .is_err()
        );
        assert!(
            controller
                .handle(Input::Network(Change::Capacity { resource, rate }))
                .is_err()
        );
    }
}
