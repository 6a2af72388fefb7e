//! A world that carries out orders exactly, and checks each of them as it comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use outpour_controller::{
    Blocks, Change, Config, Controller, Decision, Destinations, Input, Job, JobId, Notice, Order,
    Report,
};
use outpour_core::network::{Network, Resource};
use outpour_core::{Bytes, NodeId, Separation, Time};

/// Blocks on their way from one server to another.
#[derive(Clone, Debug, Default)]
struct Queue {
    list: VecDeque<u32>,
    rate: f64,
    carried: f64,
}

pub(crate) struct World {
    pub(crate) controller: Controller,
    pub(crate) now: f64,
    queues: BTreeMap<(NodeId, NodeId, JobId), Queue>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) has: BTreeMap<(JobId, NodeId), BTreeSet<u32>>,
    /// Blocks that came since the last report.
    fresh: BTreeMap<(NodeId, JobId), BTreeSet<u32>>,
    seq: BTreeMap<NodeId, u64>,
    pub(crate) away: BTreeSet<NodeId>,
    /// When each node got its last block of each job.
    pub(crate) last: BTreeMap<(JobId, NodeId), f64>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) asks: Vec<NodeId>,
    /// Bytes per second that no more than was ordered goes through; 1 is as ordered.
    pub(crate) pace: f64,
    /// Latency-sensitive traffic, as the world has it.
    pub(crate) foreground: BTreeMap<Resource, f64>,
    /// Whether orders from servers that have not the blocks yet are an error.
    pub(crate) strict: bool,
    pub(crate) trace: String,
    /// Bytes of all deliveries.
    pub(crate) delivered: f64,
}

/// A configuration without any share for others.
pub(crate) fn full(cycle_s: f64) -> Config {
    Config {
        cycle: Duration::from_secs_f64(cycle_s),
        separation: Separation::Threshold { percent: 100.0 },
        ..Config::default()
    }
}

pub(crate) fn runs(blocks: &BTreeSet<u32>) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == *block => run.end += 1,
            _ => runs.push(*block..*block + 1),
        }
    }
    runs
}

impl World {
    /// All nodes of a network are there.
    pub(crate) fn new(network: Network, config: Config) -> Self {
        let nodes: Vec<NodeId> = network.nodes().collect();
        let mut controller = Controller::new(network, config).unwrap();
        for node in nodes {
            controller.handle(Input::Came { node }).unwrap();
        }
        Self {
            controller,
            now: 0.0,
            queues: BTreeMap::new(),
            jobs: BTreeMap::new(),
            has: BTreeMap::new(),
            fresh: BTreeMap::new(),
            seq: BTreeMap::new(),
            away: BTreeSet::new(),
            last: BTreeMap::new(),
            notices: Vec::new(),
            asks: Vec::new(),
            pace: 1.0,
            foreground: BTreeMap::new(),
            strict: true,
            trace: String::new(),
            delivered: 0.0,
        }
    }

    pub(crate) fn submit(&mut self, job: Job) -> JobId {
        let now = Time::from_secs_f64(self.now);
        let id = self.controller.submit(now, job.clone()).unwrap().job;
        for source in &job.sources {
            let had = self.has.entry((id, source.node)).or_default();
            source.blocks.iter().for_each(|run| had.extend(run.clone()));
        }
        self.jobs.insert(id, job);
        id
    }

    pub(crate) fn holds(&self, job: JobId, node: NodeId, block: u32) -> bool {
        let had = self.has.get(&(job, node));
        had.is_some_and(|had| had.contains(&block))
    }

    /// The nodes one of which having a block is enough for `to`.
    fn mates(&self, job: JobId, to: NodeId) -> Vec<NodeId> {
        let network = self.controller.network();
        let site = network.cluster_of(to);
        match &self.jobs[&job].destinations {
            Destinations::Sites(sites) if sites.contains(&site) => network.nodes_of(site).collect(),
            _ => vec![to],
        }
    }

    /// Sends on until `until`.
    pub(crate) fn advance(&mut self, until: f64) {
        let seconds = until - self.now;
        assert!(seconds >= -1e-9, "time goes forward");
        let keys: Vec<_> = self.queues.keys().copied().collect();
        for key in keys {
            let (from, to, job) = key;
            let block = self.jobs[&job].block.as_f64();
            let mut queue = self.queues.remove(&key).unwrap();
            let rate = queue.rate * self.pace;
            let mut bytes = queue.carried + rate * seconds.max(0.0);
            queue.carried = 0.0;
            // What is not there yet is passed over.
            while let Some(place) = queue
                .list
                .iter()
                .position(|block| self.holds(job, from, *block))
            {
                let next = queue.list[place];
                if self.away.contains(&from) || self.away.contains(&to) {
                    // It waits, and begins anew.
                    break;
                }
                if bytes < block - 1.0 {
                    queue.carried = bytes;
                    break;
                }
                bytes -= block;
                queue.list.remove(place);
                self.delivered += block;
                let new = self.has.entry((job, to)).or_default().insert(next);
                assert!(new || !self.strict, "{to} gets block {next} twice");
                self.fresh.entry((to, job)).or_default().insert(next);
                let at = if rate > 0.0 {
                    until - bytes.max(0.0) / rate
                } else {
                    until
                };
                self.last.insert((job, to), at);
            }
            self.queues.insert(key, queue);
        }
        self.now = until;
    }

    fn next_report(&mut self, node: NodeId) -> Report {
        let seq = self.seq.entry(node).or_insert(0);
        *seq += 1;
        let epoch = self.controller.config().epoch;
        let (seq, whole) = (*seq, *seq == 1);
        Report {
            epoch,
            seq,
            whole,
            ..Report::default()
        }
    }

    /// What a node would report; what it got since is told with it.
    pub(crate) fn report_of(&mut self, node: NodeId, whole: bool) -> Report {
        let mut report = self.next_report(node);
        report.whole |= whole;
        let keys: Vec<_> = self.jobs.keys().copied().collect();
        for job in keys {
            let fresh = self.fresh.remove(&(node, job)).unwrap_or_default();
            let told = match report.whole {
                true => self.has.get(&(job, node)).cloned().unwrap_or_default(),
                false => fresh,
            };
            if !told.is_empty() {
                report.gained.push(Blocks {
                    job,
                    runs: runs(&told),
                });
            }
        }
        report
    }

    pub(crate) fn report(&mut self) {
        let nodes: Vec<NodeId> = self.controller.network().nodes().collect();
        for node in nodes
            .into_iter()
            .filter(|node| !self.away.contains(node))
            .collect::<Vec<_>>()
        {
            let whole = self.asks.contains(&node);
            let report = self.report_of(node, whole);
            self.controller
                .handle(Input::Report { node, report })
                .unwrap();
        }
        self.asks.clear();
    }

    /// A node is there again, with what it has.
    pub(crate) fn came(&mut self, node: NodeId) {
        self.away.remove(&node);
        self.seq.remove(&node);
        self.queues.retain(|key, _| key.0 != node);
        self.controller.handle(Input::Came { node }).unwrap();
    }

    /// A node has lost all it had.
    pub(crate) fn lost_disk(&mut self, node: NodeId) {
        self.has.retain(|key, _| key.1 != node);
        self.fresh.retain(|key, _| key.0 != node);
        self.queues.retain(|key, _| key.0 != node && key.1 != node);
        self.controller.handle(Input::DiskLost { node }).unwrap();
    }

    /// A node is gone; its peers break off what they send it.
    pub(crate) fn went(&mut self, node: NodeId) {
        self.away.insert(node);
        self.queues.retain(|key, _| key.0 != node);
    }

    /// One cycle: reports, a decision, its orders.
    pub(crate) fn cycle(&mut self) -> Decision {
        let due = self.controller.due_at().map_or(self.now, Time::as_secs_f64);
        self.advance(due.max(self.now));
        self.report();
        let decision = self.controller.decide(Time::from_secs_f64(self.now));
        let from = decision.from.as_secs_f64().max(self.now);
        self.advance(from);
        self.carry_out(&decision);
        decision
    }

    /// Carries out the orders of a decision whose time has come, and checks what they amount to.
    pub(crate) fn carry_out(&mut self, decision: &Decision) {
        for order in &decision.orders {
            self.obey(order);
        }
        self.check_rates();
        self.check_doubles();
        self.notices.extend(&decision.notices);
        self.asks.extend(&decision.asks);
        self.trace.push_str(&format!("{:?}\n", decision.orders));
    }

    fn obey(&mut self, order: &Order) {
        let from = order.to;
        assert!(
            !self.away.contains(&from) || !self.strict,
            "orders go to those that are there"
        );
        if order.whole {
            self.queues.retain(|key, _| key.0 != from);
        }
        for change in &order.changes {
            match change {
                Change::End { job, to, .. } => {
                    self.queues.remove(&(from, *to, *job));
                }
                Change::Send {
                    job,
                    to,
                    rate,
                    drop,
                    add,
                    ..
                } => {
                    for block in add.iter().flat_map(Clone::clone).filter(|_| self.strict) {
                        assert!(
                            self.holds(*job, from, block),
                            "{from} has block {block} to send"
                        );
                        for mate in self.mates(*job, *to) {
                            let away = self.away.contains(&mate);
                            assert!(
                                away || !self.holds(*job, mate, block),
                                "{mate} has block {block}"
                            );
                        }
                    }
                    let queue = self.queues.entry((from, *to, *job)).or_default();
                    let first = queue.list.front().copied();
                    queue
                        .list
                        .retain(|block| !drop.iter().any(|run| run.contains(block)));
                    queue.list.extend(add.iter().flat_map(Clone::clone));
                    if queue.list.front().copied() != first {
                        queue.carried = 0.0;
                    }
                    queue.rate = rate.bytes_per_s();
                }
            }
        }
    }

    /// What bulk may use of a resource, computed apart from the controller.
    fn most(&self, resource: Resource) -> f64 {
        let capacity = self.controller.network().capacity(resource).bytes_per_s();
        let config = self.controller.config();
        let wide = matches!(
            resource,
            Resource::Link(..) | Resource::ClusterOut(_) | Resource::ClusterIn(_)
        );
        let percent = match config.separation {
            Separation::Threshold { percent } if wide => percent,
            _ => 100.0,
        };
        let used = self.foreground.get(&resource).copied().unwrap_or(0.0);
        (capacity * percent / 100.0 - used).max(0.0)
    }

    /// No rates together exceed what bulk may use of anything, unless links may be tried with more.
    fn check_rates(&self) {
        if self.controller.config().explore {
            return;
        }
        let mut sums: BTreeMap<Resource, f64> = BTreeMap::new();
        for ((from, to, _), queue) in &self.queues {
            for resource in self.controller.network().path(*from, *to).resources() {
                *sums.entry(*resource).or_insert(0.0) += queue.rate;
            }
        }
        for (resource, sum) in sums {
            let most = self.most(resource);
            assert!(
                sum <= most * (1.0 + 1e-6) + 1.0,
                "{sum} B/s of {most} on {resource:?}"
            );
        }
    }

    /// No block is on its way twice to where one copy is enough.
    fn check_doubles(&self) {
        if !self.strict {
            return;
        }
        let mut seen = BTreeSet::new();
        for ((_, to, job), queue) in &self.queues {
            let place = self.mates(*job, *to)[0];
            for block in &queue.list {
                assert!(
                    seen.insert((*job, place, *block)),
                    "block {block} goes to {to} twice"
                );
            }
        }
    }

    /// Runs until all jobs are complete; when the last block of one came.
    pub(crate) fn finish(&mut self, cycles_max: usize) -> f64 {
        for _ in 0..cycles_max {
            self.cycle();
            if self.controller.jobs().next().is_none() {
                return self.last.values().copied().fold(0.0, f64::max);
            }
        }
        println!(
            "the last orders: {}",
            self.trace.lines().last().unwrap_or_default()
        );
        println!("what waits: {:?}", self.queues);
        panic!("not complete after {cycles_max} cycles, at {} s", self.now);
    }
}

/// A job of whole blocks.
pub(crate) fn job(blocks: u64, block: u64, source: u32, destinations: Destinations) -> Job {
    Job::new(
        Bytes(blocks * block),
        Bytes(block),
        [NodeId(source)],
        destinations,
    )
}

/// To each of these nodes.
pub(crate) fn to_nodes(nodes: impl IntoIterator<Item = u32>) -> Destinations {
    Destinations::Nodes(nodes.into_iter().map(NodeId).collect())
}
