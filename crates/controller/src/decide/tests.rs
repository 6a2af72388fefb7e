//! Heeding all that was said at once against heeding each report as it comes.
#![allow(clippy::single_range_in_vec_init)]

use outpour_core::Bytes;
use outpour_core::network::{ClusterId, Network};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::config::Config;
use crate::input::{Blocks, Input, Report};
use crate::job::{Destinations, Job};

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

/// In how many cycles a job crosses a link that is known to carry a tenth of it in each, and carries `times` as
/// much. Nobody says what lanes achieve, so nothing is learned of the link.
fn cycles_over_a_link(times: f64) -> u32 {
    let site = |name: &str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nnodes = 4\nnode_out = \"1 MB/s\"\nnode_in = \"1 MB/s\"\n"
        )
    };
    let link = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"100 kB/s\"\n";
    let text = site("a") + &site("b") + link;
    let network = Network::from_toml(&text, "sites").expect("it is a network");
    let config = Config {
        cycle: std::time::Duration::from_secs(1),
        separation: crate::config::Separation::Threshold { percent: 100.0 },
        explore: true,
        ..Config::default()
    };
    let mut controller = Controller::new(network, config).expect("it is in range");
    let to = Destinations::Sites(vec![ClusterId(1)]);
    let sources = (0..4).map(NodeId);
    let job = Job::new(Bytes(1_000_000), Bytes(1000), sources, to);
    let id = controller.submit(Time::ZERO, job).expect("it can be").job;
    for node in (0..NODES).map(NodeId) {
        let came = Input::Came { node };
        controller.handle(came).expect("it is known");
    }
    let mut lanes: BTreeMap<(NodeId, NodeId), (Vec<u32>, f64)> = BTreeMap::new();
    let mut seqs = [0; NODES as usize];
    for cycle in 0..40 {
        let due = controller.due_at();
        let Some(due) = due else {
            return cycle;
        };
        let decision = controller.decide(due);
        for order in decision.orders {
            for change in order.changes {
                let key = (order.to, change.to());
                match change {
                    crate::order::Change::Send {
                        rate, drop, add, ..
                    } => {
                        let lane = lanes.entry(key).or_default();
                        lane.0.retain(|it| !drop.iter().any(|run| run.contains(it)));
                        lane.0.extend(add.into_iter().flatten());
                        lane.1 = rate.bytes_per_s();
                    }
                    crate::order::Change::End { .. } => {
                        lanes.remove(&key);
                    }
                }
            }
        }
        let mut listed: Vec<u32> = lanes.values().flat_map(|lane| lane.0.clone()).collect();
        let count = listed.len();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), count, "two lanes have the same block");
        for ((_, to), (list, rate)) in &mut lanes {
            let sent = ((*rate * times / 1000.0).round() as usize).min(list.len());
            let gained: Vec<u32> = list.drain(..sent).collect();
            seqs[to.index()] += 1;
            let runs = gained.into_iter().map(|block| block..block + 1).collect();
            let seq = seqs[to.index()];
            let report = Report {
                epoch: 1,
                seq,
                gained: vec![Blocks { job: id, runs }],
                whole: seq == 1,
                ..Report::default()
            };
            let node = *to;
            let said = controller.handle(Input::Report { node, report });
            said.expect("it is right");
        }
    }
    panic!("it is not over");
}

#[test]
fn lanes_that_turn_out_faster_have_more_to_send_than_was_planned() {
    let (known, twice) = (cycles_over_a_link(1.0), cycles_over_a_link(2.0));
    assert!((10..=12).contains(&known), "{known} cycles as planned");
    assert!((5..=7).contains(&twice), "{twice} cycles at twice the rate");
}
