//! How long decisions take, and how much memory the state: 10 sites of 100 servers at 20 MB/s.
//!
//! `cargo run --release -p outpour-controller --example decide` for the times, and with `-- memory`
//! for the memory.
//!
//! One job brings an object that is spread over the servers of the first site to the nine others.
//! Its blocks are numerous enough that of the given number some site lacks each to the end.
//! *Incremental* is the time of [`Controller::decide`] in later cycles, reports of all servers being
//! heeded before, whose time stands beside it. *From scratch* is what a controller does that takes
//! over: all servers, sources included, report everything they have, and it decides. Reports are only
//! noted as they come and heeded with the decision, so the sum of both is what counts.
//!
//! What takes most memory is blocks of which no two lie with the same servers: here each lies with
//! one server of the first site and with others at random anywhere.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::single_range_in_vec_init
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use outpour_controller::{
    Blocks, Change, Config, Controller, Decision, Destinations, Input, Job, JobId, Report, Source,
};
use outpour_core::network::{ClusterId, Network};
use outpour_core::{Bytes, NodeId, Separation, Time};

const SITES: u32 = 10;
const SERVERS: u32 = 100;
const BLOCK: u64 = 2_000_000;
const CYCLES: usize = 40;
/// With how many servers each block lies where none is like another.
const COPIES: u32 = 20;

fn network() -> Network {
    let sites = (0..SITES).map(|site| {
        format!(
            "[[cluster]]\nname = \"s{site}-\"\nnodes = {SERVERS}\nnode_out = \"20 MB/s\"\nnode_in = \"20 MB/s\"\n"
        )
    });
    Network::from_toml(&sites.collect::<String>(), "example").unwrap()
}

fn job(blocks: u32) -> Job {
    let to = Destinations::Sites((1..SITES).map(ClusterId).collect());
    let mut job = Job::new(Bytes(u64::from(blocks) * BLOCK), Bytes(BLOCK), [], to);
    let share = |server: u32| (u64::from(blocks) * u64::from(server) / u64::from(SERVERS)) as u32;
    job.sources = (0..SERVERS)
        .map(|server| Source {
            node: NodeId(server),
            blocks: vec![share(server)..share(server + 1)],
        })
        .collect();
    job
}

fn controller(blocks: u32) -> (Controller, JobId) {
    let config = Config {
        separation: Separation::Threshold { percent: 100.0 },
        ..Config::default()
    };
    let mut controller = Controller::new(network(), config).unwrap();
    let job = controller.submit(Time::ZERO, job(blocks)).unwrap().job;
    for node in (0..SITES * SERVERS).map(NodeId) {
        controller.handle(Input::Came { node }).unwrap();
    }
    (controller, job)
}

/// Servers that carry out every order exactly, as runs: what each has got, and not reported yet.
#[derive(Default)]
struct Servers {
    fresh: BTreeMap<NodeId, Vec<Range<u32>>>,
    has: BTreeMap<NodeId, Vec<Range<u32>>>,
    seq: u64,
}

impl Servers {
    /// Blocks whose transfer takes longer than a cycle are reported a cycle early, which costs the
    /// controller as much.
    fn obey(&mut self, decision: &Decision) {
        for change in decision.orders.iter().flat_map(|order| &order.changes) {
            if let Change::Send { to, add, .. } = change {
                self.fresh
                    .entry(*to)
                    .or_default()
                    .extend(add.iter().cloned());
                self.has.entry(*to).or_default().extend(add.iter().cloned());
            }
        }
    }

    fn report(&mut self, controller: &mut Controller, job: JobId) {
        self.seq += 1;
        for node in (0..SITES * SERVERS).map(NodeId) {
            let runs = self.fresh.remove(&node).unwrap_or_default();
            let gained = vec![Blocks { job, runs }];
            let report = Report {
                epoch: 1,
                seq: self.seq,
                gained,
                ..Report::default()
            };
            controller.handle(Input::Report { node, report }).unwrap();
        }
    }
}

/// A first report.
fn whole(job: JobId, node: NodeId, runs: Vec<Range<u32>>) -> Input {
    let gained = vec![Blocks { job, runs }];
    let report = Report {
        epoch: 1,
        seq: 1,
        whole: true,
        gained,
        ..Report::default()
    };
    Input::Report { node, report }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// What the process uses, as the system calls it: now, or at most so far.
fn memory_mb(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

fn measure(pending: u32) {
    // No more than these are with all sites in the end.
    let blocks = pending + 30 * SERVERS * CYCLES as u32;
    let (mut first, id) = controller(blocks);
    let mut servers = Servers::default();
    let (mut decides, mut reports) = (Vec::new(), Vec::new());
    let mut bytes = 0.0;
    for cycle in 0..CYCLES {
        let now = first.due_at().unwrap();
        let began = Instant::now();
        let decision = first.decide(now);
        if cycle > 0 {
            decides.push(ms(began));
        }
        bytes += decision.planned_bytes;
        servers.obey(&decision);
        let began = Instant::now();
        servers.report(&mut first, id);
        reports.push(ms(began));
    }
    let runs = first.runs(id).unwrap_or(0);
    let used = memory_mb("VmRSS:");
    drop(first);

    let (mut anew, id) = controller(blocks);
    let mut has = servers.has;
    for source in job(blocks).sources {
        has.entry(source.node).or_default().extend(source.blocks);
    }
    let reports_of_all: Vec<Input> = has
        .into_iter()
        .map(|(node, runs)| whole(id, node, runs))
        .collect();
    assert_eq!(reports_of_all.len(), (SITES * SERVERS) as usize);
    let began = Instant::now();
    for report in reports_of_all {
        anew.handle(report).unwrap();
    }
    let told = ms(began);
    let began = Instant::now();
    let decision = anew.decide(Time::ZERO);
    let scratch = ms(began);
    assert!(decision.planned_bytes > 0.0);
    assert_eq!(anew.runs(id), Some(runs));

    decides.sort_by(f64::total_cmp);
    reports.sort_by(f64::total_cmp);
    println!(
        "{pending:>10} {blocks:>9} {runs:>7} {:>8.1} {:>8.1} {:>8.1} {told:>8.1} {scratch:>8.1} {:>8.1} {used:>7.0} {:>6.3}",
        decides[decides.len() / 2],
        decides[decides.len() - 1],
        reports[reports.len() / 2],
        told + scratch,
        // Of what the nine sites could receive in all those cycles.
        bytes / (CYCLES as f64 * 3.0 * f64::from((SITES - 1) * SERVERS) * 20e6),
    );
}

/// Blocks that lie with servers at random, so that all of them are runs and classes of their own.
fn scattered(blocks: u32) {
    let before = memory_mb("VmRSS:");
    let (mut controller, job) = controller(blocks);
    let mut lists: Vec<Vec<Range<u32>>> = vec![Vec::new(); (SITES * SERVERS) as usize];
    let mut state = 1_u64;
    for block in 0..blocks {
        let source = u64::from(block) * u64::from(SERVERS) / u64::from(blocks);
        lists[source as usize].push(block..block + 1);
        for _ in 1..COPIES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let server = (state >> 33) % u64::from(SITES * SERVERS);
            lists[server as usize].push(block..block + 1);
        }
    }
    let lists_mb = memory_mb("VmRSS:") - before;
    let began = Instant::now();
    for (node, runs) in (0..).map(NodeId).zip(lists) {
        controller.handle(whole(job, node, runs)).unwrap();
    }
    let told = ms(began);
    let began = Instant::now();
    controller.decide(Time::ZERO);
    println!(
        "{blocks} blocks, {} servers, {} runs: {:.0} MB, at most {:.0} MB (with lists of {lists_mb:.0} MB \
         at first), told in {told:.0} ms, decided in {:.1} ms",
        SITES * SERVERS,
        controller.runs(job).unwrap_or(0),
        memory_mb("VmRSS:") - before,
        memory_mb("VmHWM:") - before,
        ms(began),
    );
}

fn main() {
    if std::env::args().any(|word| word == "memory") {
        return scattered(1_000_000);
    }
    println!(
        "   pending    blocks    runs   incremental, ms  reports          from scratch, ms  memory  share"
    );
    println!(
        "                             median  longest       ms  reports   decide together      MB"
    );
    for pending in [100_000, 1_000_000, 10_000_000] {
        measure(pending);
    }
}
