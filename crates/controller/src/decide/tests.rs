//! Heeding all that was said at once against heeding each report as it comes.
#![allow(clippy::single_range_in_vec_init)]

use std::time::Duration;

use outpour_core::network::{ClusterId, Network};
use outpour_core::{Bytes, Rate, Separation};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::config::Config;
use crate::input::{Blocks, Input, Report};
use crate::job::{Destinations, Job};
use crate::order::Change;

const NODES: u32 = 8;
const BLOCKS: u32 = 50;
const JOBS: u32 = 3;

fn below(random: &mut Pcg64Mcg, n: u32) -> u32 {
    random.next_u32() % n
}

/// Two sites of four servers, all of them there, and jobs of different members and kinds.
fn controller() -> Controller {
    let site = |name: &str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = 4\nnode_out = \"1 MB/s\"\nnode_in = \"1 MB/s\"\n"
        )
    };
    let network = Network::from_toml(&(site("a") + &site("b")), "sites").expect("it is a network");
    let mut controller = Controller::new(network, Config::default()).expect("it is in range");
    let to = [
        Destinations::Sites(vec![ClusterId(1)]),
        Destinations::Nodes(vec![NodeId(1), NodeId(4), NodeId(6)]),
        Destinations::Sites(vec![ClusterId(0), ClusterId(1)]),
    ];
    for to in to {
        let job = Job::new(
            Bytes(u64::from(BLOCKS) * 1000),
            Bytes(1000),
            [NodeId(0)],
            to,
        );
        controller.submit(Time::ZERO, job).expect("it can be");
    }
    for node in (0..NODES).map(NodeId) {
        controller
            .handle(Input::Came { node })
            .expect("it is known");
    }
    controller
}

/// Runs that may be empty, overlap and come twice, of some jobs, one of them in two lists.
fn blocks(random: &mut Pcg64Mcg) -> Vec<Blocks> {
    let mut lists = Vec::new();
    for _ in 0..below(random, 5) {
        let job = JobId(below(random, JOBS));
        let mut runs = Vec::new();
        for _ in 0..below(random, 5) {
            let first = below(random, BLOCKS);
            runs.push(first..(first + below(random, 15)).min(BLOCKS));
            if below(random, 4) == 0 {
                runs.extend(runs.last().cloned());
            }
        }
        lists.push(Blocks { job, runs });
    }
    lists
}

/// What happens next: mostly whole reports, and everything that may come between them.
fn draw(random: &mut Pcg64Mcg, seqs: &mut [u64]) -> Input {
    let node = NodeId(below(random, NODES));
    let seq = &mut seqs[node.index()];
    match below(random, 12) {
        0 => {
            *seq = 0;
            Input::Came { node }
        }
        1 => Input::DiskLost { node },
        2 => {
            let by = NodeId(below(random, NODES));
            let lists = blocks(random);
            let some = Blocks {
                job: JobId(0),
                runs: vec![0..3],
            };
            let blocks = lists.into_iter().next().unwrap_or(some);
            Input::Missing { node, by, blocks }
        }
        kind => {
            *seq += 1;
            let report = Report {
                epoch: 1,
                seq: *seq,
                whole: kind > 4 || *seq == 1,
                gained: blocks(random),
                lost: match kind {
                    3 => blocks(random),
                    _ => Vec::new(),
                },
            };
            Input::Report { node, report }
        }
    }
}

fn pictures(controller: &Controller) -> Vec<String> {
    let tasks = controller.tasks.values();
    tasks
        .map(|task| {
            assert!(task.is_settled(), "all is heeded");
            format!(
                "{} {:?} {:?}",
                task.partition.picture(),
                task.coming,
                task.dues
            )
        })
        .collect()
}

/// Tells all jobs who is there, which questions about targets rest on.
fn refresh(controller: &mut Controller) {
    let mut tasks = std::mem::take(&mut controller.tasks);
    tasks.values_mut().for_each(|task| controller.refresh(task));
    controller.tasks = tasks;
}

#[test]
fn reports_heeded_together_are_reports_heeded_one_by_one() {
    let (mut heard, mut lied) = (0, 0);
    for seed in 0..300 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (mut together, mut apart) = (controller(), controller());
        let mut seqs = vec![0; NODES as usize];
        for _ in 0..30 {
            let input = draw(&mut random, &mut seqs);
            let answer = apart.handle(input.clone());
            assert_eq!(together.handle(input.clone()), answer, "{input:?}");
            refresh(&mut together);
            refresh(&mut apart);
            apart.heed_stated();
            heard += u32::from(answer.is_ok());
            for job in (0..JOBS).map(JobId) {
                assert_eq!(together.lacking(job), apart.lacking(job));
                assert_eq!(together.runs(job), apart.runs(job));
                for node in (0..NODES).map(NodeId) {
                    assert_eq!(together.held(job, node), apart.held(job, node));
                }
            }
        }
        lied += apart.nodes.iter().filter(|node| node.liar).count();
        together.heed_stated();
        assert_eq!(pictures(&together), pictures(&apart), "seed {seed}");
        let (a, b) = (together.decide(Time::ZERO), apart.decide(Time::ZERO));
        assert_eq!(a.notices, b.notices, "seed {seed}");
    }
    assert!(heard > 5000 && lied > 50, "{heard} heard, {lied} lied");
}

#[test]
fn no_more_waits_than_is_bounded() {
    let mut controller = controller();
    let waits = |controller: &Controller| -> usize {
        controller.tasks.values().map(Task::stated_runs).sum()
    };
    for seq in 1..=6 {
        let all: Vec<Range<u32>> = (0..BLOCKS).step_by(2).map(|at| at..at + 1).collect();
        let gained = vec![Blocks {
            job: JobId(0),
            runs: all,
        }];
        let report = Report {
            epoch: 1,
            seq,
            whole: true,
            gained,
            ..Report::default()
        };
        let node = NodeId(5);
        controller
            .handle(Input::Report { node, report })
            .expect("it is right");
        assert_eq!(waits(&controller), 25 * seq as usize);
    }
    controller.bound_stated(150);
    assert_eq!(waits(&controller), 150, "that is room enough");
    controller.bound_stated(149);
    assert_eq!(waits(&controller), 0);
    let task = &controller.tasks[&JobId(0)];
    let member = task.member(NodeId(5)).expect("it has part in the job");
    assert_eq!(task.partition.held(member), 25);
}

/// What is left in lanes, in order, and their rates in bytes per second.
type Lanes = BTreeMap<(NodeId, NodeId), (Vec<u32>, f64)>;

/// Two sites of so many servers each, and a job that takes ten cycles of a second over the link between them, as
/// it is known. Nobody will say what lanes achieve, so nothing is learned of it.
fn over_a_link(servers: u32) -> (Controller, JobId) {
    let site = |name: &str| {
        format!("[[cluster]]\nname = \"{name}\"\nnodes = {servers}\nnode_out = \"1 MB/s\"\n")
    };
    let link = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"100 kB/s\"\n";
    let text = site("a") + &site("b") + link;
    let network = Network::from_toml(&text, "sites").expect("it is a network");
    let config = Config {
        cycle: Duration::from_secs(1),
        separation: Separation::Threshold { percent: 100.0 },
        explore: true,
        ..Config::default()
    };
    let mut controller = Controller::new(network, config).expect("it is in range");
    let to = Destinations::Sites(vec![ClusterId(1)]);
    let sources = (0..servers).map(NodeId);
    let job = Job::new(Bytes(1_000_000), Bytes(1000), sources, to);
    let id = controller.submit(Time::ZERO, job).expect("it can be").job;
    for node in (0..2 * servers).map(NodeId) {
        let came = Input::Came { node };
        controller.handle(came).expect("it is known");
    }
    (controller, id)
}

#[test]
fn a_margin_is_not_planned_and_lanes_may_use_it() {
    let site = |name: &str| format!("[[cluster]]\nname = \"{name}\"\nnodes = 1\n");
    let link = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"100 kB/s\"\n";
    let lane = |margin: f64| {
        let network = Network::from_toml(&(site("a") + &site("b") + link), "sites").expect("it is");
        let config = Config {
            margin,
            ..Config::default()
        };
        let mut controller = Controller::new(network, config).expect("it is in range");
        let to = Destinations::Sites(vec![ClusterId(1)]);
        let job = Job::new(Bytes(10_000_000), Bytes(1000), [NodeId(0)], to);
        controller.submit(Time::ZERO, job).expect("it can be");
        for node in [NodeId(0), NodeId(1)] {
            let came = Input::Came { node };
            controller.handle(came).expect("it is known");
        }
        let decision = controller.decide(Time::ZERO);
        let changes = decision.orders.into_iter().flat_map(|it| it.changes);
        let rates = changes.filter_map(|change| match change {
            Change::Send { rate, most, .. } => Some((rate.bytes_per_s(), most.bytes_per_s())),
            Change::End { .. } => None,
        });
        rates
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .expect("something is sent")
    };
    let close = |(rate, most): (f64, f64), to: (f64, f64)| {
        assert!((rate / to.0 - 1.0).abs() < 0.01, "{rate} for {}", to.0);
        assert!((most / to.1 - 1.0).abs() < 0.01, "{most} for {}", to.1);
    };
    // 80 % of the link is for bulk.
    close(lane(0.0), (80e3, 80e3));
    close(lane(0.1), (72e3, 80e3));
}

/// Changes lanes as they are ordered to; how many blocks they lost.
fn obey(decision: Decision, lanes: &mut Lanes) -> usize {
    let mut lost = 0;
    let orders = decision.orders.into_iter();
    for (from, change) in orders.flat_map(|it| it.changes.into_iter().map(move |c| (it.to, c))) {
        let key = (from, change.to());
        let Change::Send {
            rate, drop, add, ..
        } = change
        else {
            lost += lanes.remove(&key).map_or(0, |(list, _)| list.len());
            continue;
        };
        let lane = lanes.entry(key).or_default();
        let before = lane.0.len();
        lane.0
            .retain(|block| !drop.iter().any(|run| run.contains(block)));
        lost += before - lane.0.len();
        lane.0.extend(add.into_iter().flatten());
        lane.1 = rate.bytes_per_s();
    }
    let mut listed: Vec<u32> = lanes.values().flat_map(|lane| lane.0.clone()).collect();
    let count = listed.len();
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed.len(), count, "two lanes have the same block");
    lost
}

/// Lanes send for so many seconds at the ordered rates, and what comes is reported.
fn send(controller: &mut Controller, job: JobId, seconds: f64, lanes: &mut Lanes) {
    for ((_, to), (list, rate)) in lanes {
        let sent = ((*rate * seconds / 1000.0).round() as usize).min(list.len());
        let runs = list.drain(..sent).map(|block| block..block + 1).collect();
        let seq = controller.nodes[to.index()].reported + 1;
        let report = Report {
            epoch: 1,
            seq,
            gained: vec![Blocks { job, runs }],
            whole: seq == 1,
            ..Report::default()
        };
        let node = *to;
        let said = controller.handle(Input::Report { node, report });
        said.expect("it is right");
    }
}

/// In how many cycles the job is over if the link carries so many times what is known.
fn cycles_over_a_link(times: f64) -> u32 {
    let (mut controller, job) = over_a_link(4);
    let mut lanes = Lanes::new();
    for cycle in 0..40 {
        let Some(due) = controller.due_at() else {
            return cycle;
        };
        obey(controller.decide(due), &mut lanes);
        send(&mut controller, job, times, &mut lanes);
    }
    panic!("it is not over");
}

#[test]
fn lanes_that_turn_out_faster_have_more_to_send_than_was_planned() {
    let (known, twice) = (cycles_over_a_link(1.0), cycles_over_a_link(2.0));
    assert!((10..=12).contains(&known), "{known} cycles as planned");
    assert!((5..=7).contains(&twice), "{twice} cycles at twice the rate");
}

#[test]
fn blocks_stay_with_those_who_were_to_send_them() {
    let (mut controller, job) = over_a_link(1);
    let mut lanes = Lanes::new();
    obey(controller.decide(Time::ZERO), &mut lanes);
    let count = |lanes: &Lanes| lanes.values().map(|lane| lane.0.len()).sum::<usize>();
    assert_eq!(count(&lanes), 200, "as much again as is planned");
    for quarter in 1..=8 {
        send(&mut controller, job, 0.25, &mut lanes);
        controller.hurry();
        let now = Time::from_secs_f64(f64::from(quarter) * 0.25);
        assert_eq!(obey(controller.decide(now), &mut lanes), 0, "{now:?}");
        assert_eq!(count(&lanes), 200, "{now:?}");
    }
}

#[test]
fn a_lane_on_a_link_that_became_slow_may_be_as_fast_as_the_link_was() {
    let (mut controller, _) = over_a_link(1);
    let (from, to) = (NodeId(0), NodeId(1));
    let mut lanes = Lanes::new();
    for look in 1..=3 {
        obey(
            controller.decide(Time::from_secs_f64(f64::from(look))),
            &mut lanes,
        );
        let rate = |rate: f64| Rate::from_bytes_per_s(rate).expect("it is a rate");
        let (rate, ordered) = (rate(20e3), Some(rate(100e3)));
        let said = controller.handle(Input::Achieved {
            from,
            to,
            rate,
            ordered,
        });
        said.expect("they are known");
    }
    let decision = controller.decide(Time::from_secs_f64(4.0));
    let change = decision.orders[0].changes[0].clone();
    let Change::Send { rate, most, .. } = change else {
        panic!("it goes on: {change:?}");
    };
    assert!(rate.bytes_per_s() < 30e3, "{rate} is what the link carries");
    assert!(
        (90e3..110e3).contains(&most.bytes_per_s()),
        "{most} is what it may carry again"
    );
    obey(decision, &mut lanes);
    let listed = lanes[&(from, to)].0.len();
    // And 20 that should have been sent by now.
    assert!(
        (110..=130).contains(&listed),
        "{listed} blocks for a second of that"
    );
}

/// What a lane is told between two servers with such access links, bytes per second.
fn told(card: &str) -> (f64, f64) {
    let site = |name: &str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = 1\nnode_out = \"{card}\"\nnode_in = \"{card}\"\n"
        )
    };
    let link = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 MB/s\"\n";
    let text = site("a") + &site("b") + link;
    let network = Network::from_toml(&text, "sites").expect("it is a network");
    let config = Config {
        explore: true,
        cycle: Duration::from_secs(1),
        separation: Separation::Threshold { percent: 100.0 },
        ..Config::default()
    };
    let mut controller = Controller::new(network, config).expect("it is in range");
    let to = Destinations::Sites(vec![ClusterId(1)]);
    let job = Job::new(Bytes(10_000_000), Bytes(10_000), [NodeId(0)], to);
    controller.submit(Time::ZERO, job).expect("it can be");
    for node in [NodeId(0), NodeId(1)] {
        controller
            .handle(Input::Came { node })
            .expect("it is known");
    }
    let decision = controller.decide(Time::ZERO);
    match decision.orders[0].changes[0] {
        Change::Send { rate, most, .. } => (rate.bytes_per_s(), most.bytes_per_s()),
        Change::End { .. } => panic!("it begins"),
    }
}

#[test]
fn lanes_are_faster_than_planned_only_where_access_links_have_room() {
    let near = |a: f64, b: f64| (a - b).abs() < 0.02 * b;
    let (rate, most) = told("10 MB/s");
    assert!(near(rate, 1e6) && near(most, 2e6), "{most} at {rate}");
    let (rate, most) = told("1500 kB/s");
    assert!(near(rate, 1e6) && near(most, 1.5e6), "{most} at {rate}");
    let (rate, most) = told("500 kB/s");
    assert!(near(rate, 5e5) && near(most, 5e5), "{most} at {rate}");
}

/// What each receiver gets in the first cycle if four servers send to four over such a link, blocks.
fn received(link: &str) -> Vec<usize> {
    let site = |name: &str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = 4\nnode_out = \"1 MB/s\"\nnode_in = \"1 MB/s\"\n"
        )
    };
    let link = format!("[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"{link}\"\n");
    let text = site("a") + &site("b") + &link;
    let network = Network::from_toml(&text, "sites").expect("it is a network");
    let config = Config {
        cycle: Duration::from_secs(1),
        separation: Separation::Threshold { percent: 100.0 },
        ..Config::default()
    };
    let mut controller = Controller::new(network, config).expect("it is in range");
    let to = Destinations::Sites(vec![ClusterId(1)]);
    let sources = (0..4).map(NodeId);
    let mut job = Job::new(Bytes(10_000_000), Bytes(10_000), sources, to);
    // As for a leader, to whom sites are units.
    job.beside_sources = true;
    controller.submit(Time::ZERO, job).expect("it can be");
    for node in (0..8).map(NodeId) {
        let came = Input::Came { node };
        controller.handle(came).expect("it is known");
    }
    let mut lanes = Lanes::new();
    obey(controller.decide(Time::ZERO), &mut lanes);
    let of = |to: u32| lanes.iter().filter(move |(key, _)| key.1 == NodeId(to));
    (4..8)
        .map(|to| of(to).map(|(_, lane)| lane.0.len()).sum())
        .collect()
}

#[test]
fn servers_of_a_site_get_alike_where_that_needs_many_of_them() {
    let wide = received("2 MB/s");
    assert!(
        wide.iter().all(|blocks| (49..=51).contains(blocks)),
        "{wide:?}"
    );
    let narrow = received("100 kB/s");
    assert_eq!(narrow.iter().sum::<usize>(), 10, "{narrow:?}");
    assert!(narrow.contains(&10), "one is enough: {narrow:?}");
}
