//! Random networks, reports and faults: what is ordered is always possible, and jobs end.

use std::collections::{BTreeMap, BTreeSet};

use outpour_controller::{
    Blocks, Change, Config, Decision, Destinations, Input, Job, JobId, Method, Report,
};
use outpour_core::network::{self, ClusterId, Network, Resource};
use outpour_core::{NodeId, Priority, Rate, Time};
use rand_core::{RngCore, SeedableRng};

use super::world::{World, full, job, to_nodes};

/// So many seeds, unless `OUTPOUR_CONTROLLER_SEEDS` says how many.
const SEEDS: u64 = 60;
const CYCLES: usize = 60;

struct Draw(rand_pcg::Pcg64Mcg);

impl Draw {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn rate(&mut self) -> Rate {
        Rate::from_bytes_per_s(f64::from(4 + self.below(60)) * 0.5e6).unwrap()
    }
}

fn network(draw: &mut Draw) -> Network {
    let mut text = String::new();
    let sites = 2 + draw.below(3);
    for site in 0..sites {
        let nodes = 1 + draw.below(4);
        text += &format!("[[cluster]]\nname = \"s{site}-\"\nnodes = {nodes}\n");
        for key in ["node_out", "node_in", "out", "in", "local"] {
            if !draw.one_in(3) {
                text += &format!("{key} = \"{:#}\"\n", draw.rate());
            }
        }
        text += &format!("interconnect = {}\n", draw.one_in(3));
    }
    for (a, b) in (0..sites).flat_map(|a| (0..sites).map(move |b| (a, b))) {
        if a != b {
            let rate = draw.rate();
            text += &format!("[[link]]\nfrom = \"s{a}-\"\nto = \"s{b}-\"\nrate = \"{rate:#}\"\n");
        }
    }
    Network::from_toml(&text, "random").unwrap()
}

fn any_job(draw: &mut Draw, network: &Network) -> Job {
    let nodes = network.node_count();
    let sites = network.clusters().len() as u32;
    let to = match draw.below(2) {
        0 => to_nodes((0..nodes).filter(|_| !draw.one_in(3))),
        _ => Destinations::Sites(
            (0..sites)
                .filter(|_| !draw.one_in(3))
                .map(ClusterId)
                .collect(),
        ),
    };
    let block = [100_000, 1_000_000, 5_000_000][draw.below(3) as usize];
    let mut job = job(1 + u64::from(draw.below(120)), block, draw.below(nodes), to);
    job.relays = (0..nodes).filter(|_| draw.one_in(4)).map(NodeId).collect();
    job.priority = Priority::ALL[draw.below(3) as usize];
    if draw.one_in(4) {
        job.deadline = Some(Time::from_secs_f64(f64::from(draw.below(200))));
    }
    if draw.one_in(4) {
        job.limit = draw.rate();
    }
    job
}

fn config(draw: &mut Draw) -> Config {
    Config {
        method: [Method::Prices, Method::Program][draw.below(2) as usize],
        speculate: !draw.one_in(3),
        explore: draw.one_in(3),
        ..full([0.5, 1.0, 3.0][draw.below(3) as usize])
    }
}

/// Says that a node wants only a part of a job, or nothing; which, unless it has no part in the job.
fn want_part(
    world: &mut World,
    job: JobId,
    node: NodeId,
    draw: &mut Draw,
) -> Option<BTreeSet<u32>> {
    let wanted = part(world.jobs[&job].block_count().unwrap(), draw);
    let runs = super::world::runs(&wanted);
    let blocks = Blocks { job, runs };
    let heeded = world.controller.handle(Input::Wants { node, blocks });
    heeded.is_ok().then_some(wanted)
}

/// Says that some nodes want only a part of a job, or nothing.
fn want_parts(world: &mut World, job: JobId, draw: &mut Draw) -> BTreeMap<NodeId, BTreeSet<u32>> {
    let nodes: Vec<NodeId> = world.controller.network().nodes().collect();
    let mut wants = BTreeMap::new();
    for node in nodes {
        if draw.one_in(2) {
            continue;
        }
        if let Some(wanted) = want_part(world, job, node, draw) {
            wants.insert(node, wanted);
        }
    }
    wants
}

fn part(blocks: u32, draw: &mut Draw) -> BTreeSet<u32> {
    let mut run = || {
        let first = draw.below(blocks);
        first..(first + draw.below(40)).min(blocks)
    };
    let mut part: BTreeSet<u32> = run().chain(run()).collect();
    if draw.one_in(4) {
        part.clear();
    }
    part
}

#[test]
fn jobs_end_in_random_networks() {
    (0..SEEDS).for_each(|seed| jobs_end(seed, false));
}

#[test]
fn jobs_of_which_nodes_want_parts_end_in_random_networks() {
    (0..SEEDS).for_each(|seed| jobs_end(seed, true));
}

/// Without faults every order is possible to the letter: the world checks each.
fn jobs_end(seed: u64, parts: bool) {
    let mut draw = Draw(rand_pcg::Pcg64Mcg::seed_from_u64(seed));
    let network = network(&mut draw);
    let mut world = World::new(network.clone(), config(&mut draw));
    for _ in 0..1 + draw.below(3) {
        let job = any_job(&mut draw, &network);
        if world.controller.submit(Time::ZERO, job.clone()).is_ok() {
            let id = world.controller.jobs().last().unwrap();
            world.controller.cancel(id).unwrap();
            world.submit(job);
        }
    }
    let jobs = world.jobs.clone();
    let mut wants = BTreeMap::new();
    for id in jobs.keys().filter(|_| parts) {
        wants.insert(*id, want_parts(&mut world, *id, &mut draw));
    }
    println!("seed {seed}");
    world.finish(8000);
    for (id, job) in jobs {
        let blocks = job.block_count().unwrap();
        let has = |nodes: &[NodeId], block| nodes.iter().any(|node| world.holds(id, *node, block));
        let wanted = |nodes: &[NodeId], block| {
            let told = wants.get(&id);
            let wants = |node| told.and_then(|told| told.get(node));
            let mut nodes = nodes.iter();
            nodes.any(|node| wants(node).is_none_or(|wanted| wanted.contains(&block)))
        };
        let places: Vec<Vec<NodeId>> = match &job.destinations {
            Destinations::Nodes(nodes) => nodes.iter().map(|node| vec![*node]).collect(),
            Destinations::Sites(sites) => sites
                .iter()
                .map(|site| network.nodes_of(*site).collect())
                .collect(),
        };
        for nodes in places {
            let mut wanted = (0..blocks).filter(|block| wanted(&nodes, *block));
            assert!(
                wanted.all(|block| has(&nodes, block)),
                "seed {seed}: {nodes:?}"
            );
        }
    }
}

/// A subtask as it was ordered.
#[derive(Default)]
struct Running {
    list: Vec<u32>,
    /// Bytes per second.
    rate: f64,
    /// Bytes of the first block that are through.
    carried: f64,
    since: f64,
}

/// What a controller may rest its orders on: what it was told, and what was due of its own orders.
#[derive(Default)]
struct Knowledge {
    claimed: BTreeSet<(JobId, NodeId, u32)>,
    /// What is wanted of a job by those that want a part.
    wants: BTreeMap<(JobId, NodeId), BTreeSet<u32>>,
    /// Until when an arrival may be taken for done without a report.
    due: BTreeMap<(JobId, NodeId, u32), f64>,
    liars: BTreeSet<NodeId>,
    running: BTreeMap<(NodeId, NodeId, JobId), Running>,
    /// What should be through, no report confirms and was not given up since, whether more was ordered or not.
    through: BTreeMap<(NodeId, NodeId, JobId), Vec<u32>>,
}

impl Knowledge {
    /// What is through by `until` at the rates that were ordered. With `makes_up` that is not sooner than
    /// what is late is through as well: senders that are behind are told to be that much faster.
    fn advance(&mut self, until: f64, cycle: f64, makes_up: bool, block: impl Fn(JobId) -> f64) {
        for (key, running) in &mut self.running {
            let (_, to, job) = *key;
            let size = block(job);
            let through = self.through.entry(*key).or_default();
            through.retain(|block| !self.claimed.contains(&(job, to, *block)));
            let late = match makes_up {
                true => through.len() as f64 * size / running.rate.max(1.0),
                false => 0.0,
            };
            let seconds = (until - running.since).max(0.0);
            let mut bytes = running.carried + running.rate * seconds;
            while !running.list.is_empty() && bytes >= size - 2.0 {
                bytes -= size;
                let done = running.list.remove(0);
                // Late by two cycles at most, and a cut short one.
                self.due.insert((job, to, done), until + late + 3.0 * cycle);
                through.push(done);
            }
            running.carried = if running.list.is_empty() {
                0.0
            } else {
                bytes.max(0.0)
            };
            running.since = until.max(running.since);
        }
    }

    fn obey(&mut self, decision: &Decision) {
        let from = decision.from.as_secs_f64();
        for order in &decision.orders {
            if order.whole {
                self.running.retain(|key, _| key.0 != order.to);
            }
            for change in &order.changes {
                match change {
                    Change::End { job, to, .. } => {
                        self.running.remove(&(order.to, *to, *job));
                    }
                    Change::Send {
                        job,
                        to,
                        rate,
                        drop,
                        add,
                        ..
                    } => {
                        let running = self.running.entry((order.to, *to, *job));
                        let running = running.or_insert_with(|| Running {
                            since: from,
                            ..Running::default()
                        });
                        let first = running.list.first().copied();
                        let dropped = |block: &u32| drop.iter().any(|run| run.contains(block));
                        running.list.retain(|block| !dropped(block));
                        let through = self.through.entry((order.to, *to, *job)).or_default();
                        through.retain(|block| !dropped(block));
                        running.list.extend(add.iter().flat_map(Clone::clone));
                        if running.list.first().copied() != first {
                            running.carried = 0.0;
                        }
                        running.rate = rate.bytes_per_s();
                    }
                }
            }
        }
    }
}

/// Checks what was ordered against what could be known.
fn check(world: &World, known: &Knowledge, decision: &Decision, seed: u64) {
    let from = decision.from.as_secs_f64();
    for order in &decision.orders {
        assert!(
            !world.away.contains(&order.to),
            "seed {seed}: to one that is there"
        );
        for change in &order.changes {
            let Change::Send {
                job, to, rate, add, ..
            } = change
            else {
                continue;
            };
            assert!(
                !add.is_empty()
                    || !rate.is_zero()
                    || known.running.contains_key(&(order.to, *to, *job))
            );
            assert!(!known.liars.contains(&order.to), "seed {seed}: from a liar");
            assert!(!world.away.contains(to), "seed {seed}: to one that is away");
            for block in add.iter().flat_map(Clone::clone) {
                let claimed = known.claimed.contains(&(*job, order.to, block));
                let due = known.due.get(&(*job, order.to, block));
                let may =
                    world.controller.config().speculate && due.is_some_and(|until| from <= *until);
                assert!(
                    claimed || may,
                    "seed {seed}: {} has not block {block}",
                    order.to
                );
                let has = known.claimed.contains(&(*job, *to, block));
                assert!(
                    !has || known.liars.contains(to),
                    "seed {seed}: {to} has block {block}"
                );
                let wants = known.wants.get(&(*job, *to));
                let passes_on =
                    wants.is_some_and(BTreeSet::is_empty) || world.jobs[job].relays.contains(to);
                assert!(
                    passes_on || wants.is_none_or(|wants| wants.contains(&block)),
                    "seed {seed}: {to} does not want block {block}"
                );
            }
        }
    }
}

/// Something happens, or nonsense is told.
fn trouble(world: &mut World, known: &mut Knowledge, draw: &mut Draw) {
    let nodes = world.controller.network().node_count();
    let node = NodeId(draw.below(nodes));
    let by = NodeId(draw.below(nodes));
    let jobs: Vec<JobId> = world.controller.jobs().collect();
    match draw.below(12) {
        0 if !world.away.contains(&node) => {
            world.went(node);
            known
                .running
                .retain(|key, _| key.0 != node && key.1 != node);
            known.due.retain(|key, _| key.1 != node);
            let input = if draw.one_in(2) {
                Input::Left { node }
            } else {
                Input::Dead { node, by }
            };
            world.controller.handle(input).unwrap();
        }
        1 | 2 if world.away.contains(&node) => world.came(node),
        3 if !world.away.contains(&node) => {
            known.claimed.retain(|key| key.1 != node);
            known.due.retain(|key, _| key.1 != node);
            let apart = |key: &(NodeId, NodeId, JobId)| key.0 != node && key.1 != node;
            known.running.retain(|key, _| apart(key));
            world.lost_disk(node);
            world.went(node);
            world.came(node);
        }
        4 => {
            let (from, to) = (ClusterId(0), ClusterId(1));
            let resource = [
                Resource::Link(from, to),
                Resource::NodeOut(node),
                Resource::NodeIn(node),
            ][draw.below(3) as usize];
            let rate = if draw.one_in(4) {
                Rate::ZERO
            } else {
                draw.rate()
            };
            let change = network::Change::Capacity { resource, rate };
            world.controller.handle(Input::Network(change)).unwrap();
        }
        5 => {
            let resource = Resource::Link(ClusterId(0), ClusterId(1));
            let rate = Rate::from_bytes_per_s(f64::from(draw.below(20)) * 1e6).unwrap();
            world.foreground.insert(resource, rate.bytes_per_s());
            let peak = Rate::ZERO;
            world
                .controller
                .handle(Input::Foreground {
                    resource,
                    rate,
                    peak,
                })
                .unwrap();
        }
        6 => world.pace = [0.0, 0.3, 0.9, 1.0][draw.below(4) as usize],
        7 if !jobs.is_empty() && draw.one_in(4) => {
            let job = jobs[draw.below(jobs.len() as u32) as usize];
            let blocks = world.jobs[&job].block_count().unwrap();
            let first = draw.below(blocks);
            let runs = vec![first..(first + 5).min(blocks)];
            let missing = Blocks {
                job,
                runs: runs.clone(),
            };
            let lied = runs.iter().flat_map(Clone::clone);
            let lied: Vec<u32> = lied
                .filter(|block| known.claimed.contains(&(job, node, *block)))
                .collect();
            if world
                .controller
                .handle(Input::Missing {
                    node,
                    by,
                    blocks: missing,
                })
                .is_ok()
            {
                for block in &lied {
                    known.claimed.remove(&(job, node, *block));
                    world.has.entry((job, node)).or_default().remove(block);
                }
                if !lied.is_empty() {
                    known.liars.insert(node);
                }
            }
        }
        8 => {
            let job = JobId(draw.below(6));
            let runs = vec![draw.below(200)..draw.below(200)];
            let gained = vec![Blocks { job, runs }];
            let seq = u64::from(draw.below(3)) * 1_000_000;
            let (epoch, whole) = (u64::from(draw.below(2)), false);
            let report = Report {
                epoch,
                seq,
                whole,
                gained,
                lost: vec![],
            };
            assert!(
                world
                    .controller
                    .handle(Input::Report { node, report })
                    .is_err()
            );
        }
        9 if !jobs.is_empty() => {
            let job = jobs[draw.below(jobs.len() as u32) as usize];
            if let Some(wanted) = want_part(world, job, node, draw) {
                known.wants.insert((job, node), wanted);
            }
        }
        10 => {
            for _ in 0..5 {
                let (from, to) = (NodeId(draw.below(nodes)), NodeId(draw.below(nodes)));
                let rate = draw.rate();
                let ordered = draw.one_in(2).then(|| draw.rate());
                let achieved = Input::Achieved {
                    from,
                    to,
                    rate,
                    ordered,
                };
                world.controller.handle(achieved).unwrap();
            }
        }
        _ => {}
    }
}

/// Reports, and what they say is known.
fn tell(world: &mut World, known: &mut Knowledge) {
    let nodes: Vec<NodeId> = world.controller.network().nodes().collect();
    for node in nodes
        .into_iter()
        .filter(|node| !world.away.contains(node))
        .collect::<Vec<_>>()
    {
        let whole = world.asks.contains(&node);
        let report = world.report_of(node, whole);
        for blocks in &report.gained {
            let told = blocks.runs.iter().flat_map(Clone::clone);
            known
                .claimed
                .extend(told.map(|block| (blocks.job, node, block)));
        }
        world
            .controller
            .handle(Input::Report { node, report })
            .unwrap();
    }
    world.asks.clear();
}

fn troubled(seed: u64) -> String {
    let mut draw = Draw(rand_pcg::Pcg64Mcg::seed_from_u64(seed));
    let network = network(&mut draw);
    let config = config(&mut draw);
    let cycle = config.cycle.as_secs_f64();
    let mut world = World::new(network.clone(), config);
    world.strict = false;
    let mut known = Knowledge::default();
    for turn in 0..CYCLES {
        if turn % 20 == 0 {
            let job = any_job(&mut draw, &network);
            let now = Time::from_secs_f64(world.now);
            if let Ok(admitted) = world.controller.submit(now, job.clone()) {
                for source in &job.sources {
                    let blocks = source.blocks.iter().flat_map(Clone::clone);
                    for block in blocks {
                        world
                            .has
                            .entry((admitted.job, source.node))
                            .or_default()
                            .insert(block);
                        known.claimed.insert((admitted.job, source.node, block));
                    }
                }
                world.jobs.insert(admitted.job, job);
            }
        }
        let due = world
            .controller
            .due_at()
            .map_or(world.now + cycle, Time::as_secs_f64);
        world.advance(due.max(world.now));
        tell(&mut world, &mut known);
        trouble(&mut world, &mut known, &mut draw);
        let decision = world.controller.decide(Time::from_secs_f64(world.now));
        let from = decision.from.as_secs_f64().max(world.now);
        let sizes = world.jobs.clone();
        let explore = world.controller.config().explore;
        known.advance(from, cycle, explore, |job| sizes[&job].block.as_f64());
        check(&world, &known, &decision, seed);
        known.obey(&decision);
        world.advance(from);
        world.carry_out(&decision);
    }
    world.trace
}

#[test]
fn nothing_impossible_is_ordered_whatever_happens() {
    let more = std::env::var("OUTPOUR_CONTROLLER_SEEDS");
    let seeds = more.map_or(SEEDS, |seeds| seeds.parse().expect("it is a number"));
    for seed in 0..seeds {
        println!("seed {seed}");
        troubled(seed);
    }
}

#[test]
fn equal_inputs_give_equal_orders() {
    for seed in [3, 17, 40] {
        let trace = troubled(seed);
        assert!(trace.len() > 1000, "something was ordered");
        assert_eq!(trace, troubled(seed), "seed {seed}");
    }
}
