//! The servers: what they have, what they were told to send, and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use outpour_controller::{
    Blocks, Change, Config, Destinations, Input, Job, JobId, Order, Report, Runs,
};
use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{NodeId, Rate, Separation, Time};

use super::report::ServerReport;

/// What is less than a byte is the error of a computation.
const BYTE: f64 = 1.0;

/// Who sends whom for which job.
pub(super) type Key = (NodeId, NodeId, JobId);

/// Whose getting a block counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Node(NodeId),
    Site(ClusterId),
}

/// What a server was told to send another.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Blocks that were not sent yet, in order.
    pub(super) list: Vec<Range<u32>>,
    /// What was ordered, bytes per second.
    rate: f64,
    /// What the network carries of it.
    pub(super) pace: f64,
    /// Bytes of the first block that are through.
    carried: f64,
    /// Whether nobody ordered it.
    pub(super) fetches: bool,
    /// What was used of the pace in the last step.
    pub(super) used: f64,
    /// Since the last orders: bytes that were sent, and whether there was something to send all the
    /// time.
    sent: f64,
    idled: bool,
}

/// What a site received, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) all: u64,
    pub(super) wan: u64,
}

pub(super) struct Wanted {
    pub(super) job: Job,
    pub(super) blocks: u32,
    /// Servers that have blocks from the beginning.
    origins: BTreeSet<NodeId>,
    /// What each target has of what it wants, and when it got the last of it.
    pub(super) targets: BTreeMap<Target, (Runs, Time)>,
}

pub(super) struct Servers {
    pub(super) network: Network,
    /// What bulk may use of links and of hosts where nobody orders anything.
    pub(super) separation: Separation,
    pub(super) host_limit: Rate,
    epoch: u64,
    pub(super) has: BTreeMap<(NodeId, JobId), Runs>,
    pub(super) wanted: BTreeMap<JobId, Wanted>,
    pub(super) streams: BTreeMap<Key, Stream>,
    /// Servers that are out of reach.
    pub(super) absent: BTreeSet<NodeId>,
    /// Latency-sensitive traffic on links, bytes per second.
    pub(super) foreground: BTreeMap<(ClusterId, ClusterId), f64>,
    /// For how many seconds the last orders have been carried out.
    obeyed: f64,
    /// What came since the last report.
    fresh: BTreeMap<NodeId, BTreeMap<JobId, Runs>>,
    /// The number of each server's last report.
    reported: BTreeMap<NodeId, u64>,
    received: BTreeMap<ClusterId, Received>,
    /// What each server got: when the last of it, how many bytes, and how many of them from a source.
    got: Vec<(Time, u64, u64)>,
}

/// Blocks that arrived.
struct Arrival {
    key: Key,
    run: Range<u32>,
    at: Time,
}

impl Servers {
    pub(super) fn new(network: Network, config: &Config) -> Self {
        Self {
            got: vec![Default::default(); network.node_count() as usize],
            network,
            separation: config.separation,
            host_limit: config.host_limit,
            epoch: config.epoch,
            absent: BTreeSet::new(),
            foreground: BTreeMap::new(),
            obeyed: 0.0,
            has: BTreeMap::new(),
            wanted: BTreeMap::new(),
            streams: BTreeMap::new(),
            fresh: BTreeMap::new(),
            reported: BTreeMap::new(),
            received: BTreeMap::new(),
        }
    }

    /// A job was submitted: its sources have their blocks.
    pub(super) fn add(&mut self, id: JobId, job: &Job) {
        let mut targets = BTreeMap::new();
        let wants: Vec<Target> = match &job.destinations {
            Destinations::Nodes(nodes) => nodes.iter().copied().map(Target::Node).collect(),
            Destinations::Sites(sites) => sites.iter().copied().map(Target::Site).collect(),
        };
        targets.extend(wants.into_iter().map(|target| (target, Default::default())));
        let blocks = job.block_count().unwrap_or(0);
        let job = job.clone();
        let sources = job.sources.clone();
        self.wanted.insert(
            id,
            Wanted {
                job,
                blocks,
                origins: sources.iter().map(|source| source.node).collect(),
                targets,
            },
        );
        for source in sources {
            for run in source.blocks {
                self.count(id, source.node, run.clone(), Time::ZERO);
                let has = self.has.entry((source.node, id)).or_default();
                has.insert(run);
            }
        }
    }

    /// Notes what a target has, if the server belongs to one.
    fn count(&mut self, job: JobId, node: NodeId, run: Range<u32>, at: Time) {
        let site = self.network.cluster_of(node);
        let Some(wanted) = self.wanted.get_mut(&job) else {
            return;
        };
        for target in [Target::Node(node), Target::Site(site)] {
            if let Some((has, last)) = wanted.targets.get_mut(&target) {
                let before = has.blocks();
                has.insert(run.clone());
                if has.blocks() > before {
                    *last = at.max(*last);
                }
            }
        }
    }

    /// Sends on from `now` until `until`; how many blocks arrived.
    pub(super) fn advance(&mut self, now: Time, until: Time) -> u64 {
        debug_assert!(now < until, "time goes forward");
        let seconds = until.since(now).as_secs_f64();
        self.obeyed += seconds;
        let mut arrivals = Vec::new();
        for (key, stream) in &mut self.streams {
            let (from, _, job) = *key;
            let (Some(has), Some(wanted)) = (self.has.get(&(from, job)), self.wanted.get(&job))
            else {
                continue;
            };
            let block = wanted.job.block.as_f64();
            for (run, after) in stream.advance(has, seconds, block) {
                let at = now + std::time::Duration::from_secs_f64(after);
                let key = *key;
                arrivals.push(Arrival { key, run, at });
            }
        }
        let count = |arrival: &Arrival| u64::from(arrival.run.end - arrival.run.start);
        let moved = arrivals.iter().map(count).sum();
        arrivals
            .into_iter()
            .for_each(|arrival| self.arrive(arrival));
        moved
    }

    fn arrive(&mut self, Arrival { key, run, at }: Arrival) {
        let (from, to, job) = key;
        self.count(job, to, run.clone(), at);
        let Some(wanted) = self.wanted.get(&job) else {
            return;
        };
        debug_assert!(run.end <= wanted.blocks, "the object has these blocks");
        let bytes = u64::from(run.end - run.start) * wanted.job.block.0;
        let (here, there) = (self.network.cluster_of(to), self.network.cluster_of(from));
        let received = self.received.entry(here).or_default();
        received.all += bytes;
        received.wan += if here == there { 0 } else { bytes };
        let origin = wanted.origins.contains(&from);
        let (last, all, of_source) = &mut self.got[to.index()];
        *last = at.max(*last);
        *all += bytes;
        *of_source += if origin { bytes } else { 0 };
        self.has.entry((to, job)).or_default().insert(run.clone());
        let fresh = self.fresh.entry(to).or_default();
        fresh.entry(job).or_default().insert(run);
    }

    /// What servers have to report: those that got something, and everything of those in `asked`.
    pub(super) fn reports(&mut self, asked: &[NodeId]) -> Vec<Input> {
        let mut fresh = std::mem::take(&mut self.fresh);
        for node in asked {
            fresh.entry(*node).or_default();
        }
        fresh.retain(|node, _| !self.absent.contains(node));
        let report = |(node, fresh): (NodeId, BTreeMap<JobId, Runs>)| {
            let seq = self.reported.entry(node).or_insert(0);
            *seq += 1;
            // The first has everything.
            let whole = *seq == 1 || asked.contains(&node);
            let all = || {
                let mine = self.has.range((node, JobId(0))..=(node, JobId(u32::MAX)));
                mine.map(|((_, job), runs)| (*job, runs.iter().collect()))
            };
            let told: Vec<(JobId, Vec<Range<u32>>)> = match whole {
                true => all().collect(),
                false => fresh
                    .into_iter()
                    .map(|(job, runs)| (job, runs.iter().collect()))
                    .collect(),
            };
            let gained = told.into_iter().map(|(job, runs)| Blocks { job, runs });
            let report = Report {
                epoch: self.epoch,
                seq: *seq,
                whole,
                gained: gained.collect(),
                ..Report::default()
            };
            Input::Report { node, report }
        };
        fresh.into_iter().map(report).collect()
    }

    /// Servers do from now on what they are told.
    pub(super) fn obey(&mut self, orders: &[Order]) {
        self.obeyed = 0.0;
        for stream in self.streams.values_mut() {
            (stream.sent, stream.idled) = (0.0, false);
        }
        let there = |order: &&Order| !self.absent.contains(&order.to);
        for order in orders.iter().filter(there) {
            let from = order.to;
            if order.whole {
                self.streams.retain(|key, _| key.0 != from);
            }
            for change in &order.changes {
                match change {
                    Change::End { job, to, .. } => {
                        self.streams.remove(&(from, *to, *job));
                    }
                    // Who sends sees that there is nobody.
                    Change::Send { to, .. } if self.absent.contains(to) => {}
                    Change::Send {
                        job,
                        to,
                        rate,
                        drop,
                        add,
                        // Nobody is behind here, and nothing carries more than is known.
                        most: _,
                    } => {
                        let stream = self.streams.entry((from, *to, *job)).or_default();
                        stream.change(drop, add);
                        stream.rate = rate.bytes_per_s();
                    }
                }
            }
        }
        self.share();
    }

    /// What the network carries of what was ordered: all of it, if the controller is right.
    pub(super) fn share(&mut self) {
        let mut loads: BTreeMap<Resource, f64> = BTreeMap::new();
        for ((from, to, _), stream) in &self.streams {
            for resource in self.network.path(*from, *to).resources() {
                *loads.entry(*resource).or_insert(0.0) += stream.rate;
            }
        }
        let over = |resource: &Resource| {
            let capacity = self.carries(*resource);
            let load = loads.get(resource).copied().unwrap_or_default();
            if load > capacity {
                capacity / load
            } else {
                1.0
            }
        };
        let paces: Vec<f64> = self
            .streams
            .iter()
            .map(|((from, to, _), stream)| {
                let path = self.network.path(*from, *to);
                stream.rate * path.resources().iter().map(over).fold(1.0, f64::min)
            })
            .collect();
        for (stream, pace) in self.streams.values_mut().zip(paces) {
            stream.pace = pace;
        }
        self.fetch(&loads);
    }

    /// What each server achieved towards each other since the last orders, if that was so many seconds
    /// ago at least.
    pub(super) fn achieved(&self, least: f64) -> Vec<Input> {
        if self.obeyed < least {
            return Vec::new();
        }
        let mut pairs: BTreeMap<(NodeId, NodeId), (f64, f64, bool)> = BTreeMap::new();
        for ((from, to, _), stream) in &self.streams {
            let (rate, ordered, idled) = pairs.entry((*from, *to)).or_default();
            *rate += stream.sent / self.obeyed;
            *ordered += stream.rate;
            *idled |= stream.idled;
        }
        let rate = |rate: f64| Rate::from_bytes_per_s(rate).unwrap_or(Rate::ZERO);
        let mut said = Vec::with_capacity(pairs.len());
        for ((from, to), (sent, ordered, idled)) in pairs {
            said.push(Input::Achieved {
                from,
                to,
                rate: rate(sent),
                ordered: (!idled).then(|| rate(ordered)),
            });
        }
        said
    }

    /// A server is out of reach: nothing comes from it or gets to it, and what it has counts no more.
    pub(super) fn lose(&mut self, node: NodeId) {
        self.absent.insert(node);
        self.streams.retain(|key, _| key.0 != node && key.1 != node);
        self.fresh.remove(&node);
        self.recount(self.network.cluster_of(node));
        self.share();
    }

    /// A server is back with what it had; it knows of no orders, and reports everything.
    pub(super) fn restore(&mut self, node: NodeId) {
        self.absent.remove(&node);
        self.reported.remove(&node);
        self.recount(self.network.cluster_of(node));
    }

    /// Counts anew what the servers of a site that are there have of what is not complete.
    fn recount(&mut self, site: ClusterId) {
        for (job, wanted) in &mut self.wanted {
            let Some((has, _)) = wanted.targets.get_mut(&Target::Site(site)) else {
                continue;
            };
            if has.blocks() == u64::from(wanted.blocks) {
                continue;
            }
            *has = Runs::default();
            for node in self.network.nodes_of(site) {
                let there = !self.absent.contains(&node);
                let runs = self.has.get(&(node, *job)).filter(|_| there);
                let runs = runs.into_iter().flat_map(Runs::iter);
                runs.for_each(|run| has.insert(run));
            }
        }
    }

    /// Another controller is there: all servers report everything to it.
    pub(super) fn follow(&mut self, epoch: u64) {
        debug_assert!(epoch > self.epoch, "it is a later one");
        self.epoch = epoch;
        self.reported.clear();
        self.fresh.clear();
    }

    /// Whether all targets of all jobs have everything.
    pub(super) fn is_complete(&self) -> bool {
        let mut all = self.wanted.values();
        all.all(|wanted| {
            let mut targets = wanted.targets.values();
            targets.all(|(has, _)| has.blocks() == u64::from(wanted.blocks))
        })
    }

    /// A job is over: nobody sends for it, and nobody keeps count of it.
    pub(super) fn forget(&mut self, job: JobId) {
        self.wanted.remove(&job);
        self.has.retain(|(_, of), _| *of != job);
        for fresh in self.fresh.values_mut() {
            fresh.remove(&job);
        }
        let before = self.streams.len();
        self.streams.retain(|(_, _, of), _| *of != job);
        if self.streams.len() < before {
            self.share();
        }
    }

    /// For how many jobs anything is kept.
    #[cfg(test)]
    pub(super) fn jobs_kept(&self) -> usize {
        let fresh = self.fresh.values().flat_map(BTreeMap::keys);
        let jobs = self.wanted.keys().chain(fresh);
        let jobs = jobs.chain(self.has.keys().map(|(_, job)| job));
        let jobs = jobs.chain(self.streams.keys().map(|(_, _, job)| job));
        jobs.collect::<BTreeSet<_>>().len()
    }

    /// When all targets of a job had everything.
    pub(super) fn finish(&self, job: JobId) -> Time {
        let targets = self.wanted.get(&job).map(|wanted| wanted.targets.values());
        let times = targets.into_iter().flatten().map(|(_, last)| *last);
        times.max().unwrap_or(Time::ZERO)
    }

    /// When each target of a job had everything, by its site.
    pub(super) fn finishes_at(&self, job: JobId) -> Vec<(ClusterId, Time)> {
        let targets = self.wanted.get(&job).map(|wanted| wanted.targets.iter());
        let site = |target: &Target| match target {
            Target::Node(node) => self.network.cluster_of(*node),
            Target::Site(site) => *site,
        };
        let targets = targets.into_iter().flatten();
        targets
            .map(|(target, (_, last))| (site(target), *last))
            .collect()
    }

    pub(super) fn received(&self) -> BTreeMap<ClusterId, Received> {
        self.received.clone()
    }

    /// What each server that got something did.
    pub(super) fn each(&self) -> Vec<ServerReport> {
        let report = |(last, all, of_source): &(Time, u64, u64)| ServerReport {
            finish_s: last.as_secs_f64(),
            origin: *of_source as f64 / *all as f64,
        };
        let got = self.got.iter().filter(|(_, all, _)| *all > 0);
        got.map(report).collect()
    }

    /// Targets that lack something of a job, and how much.
    #[cfg(test)]
    pub(super) fn lacking(&self, job: JobId) -> u64 {
        let wanted = &self.wanted[&job];
        let lacks = |(has, _): &(Runs, Time)| u64::from(wanted.blocks) - has.blocks();
        wanted.targets.values().map(lacks).sum()
    }
}

impl Stream {
    /// Sends for so long; the runs that get through, and after how many seconds the last block of
    /// each does.
    fn advance(&mut self, has: &Runs, seconds: f64, block: f64) -> Vec<(Range<u32>, f64)> {
        debug_assert!(block > 0.0, "blocks have bytes");
        let before = self.carried;
        let mut bytes = self.carried + self.pace * seconds;
        let mut through = Vec::new();
        let mut place = 0;
        let mut busy = false;
        while let Some(run) = self.list.get(place).cloned() {
            // What is not there yet is passed over.
            let Some(there) = has.next_present(run.start, run.end) else {
                place += 1;
                continue;
            };
            let whole = ((bytes + BYTE) / block).floor();
            if whole < 1.0 {
                busy = true;
                break;
            }
            let count = (whole as u32).min(there.end - there.start);
            let sent = there.start..there.start + count;
            bytes = (bytes - f64::from(count) * block).max(0.0);
            let after = seconds - bytes / self.pace.max(BYTE);
            through.push((sent.clone(), after.clamp(0.0, seconds)));
            let rest = [run.start..sent.start, sent.end..run.end];
            let rest = rest.into_iter().filter(|part| !part.is_empty());
            self.list.splice(place..=place, rest);
        }
        debug_assert_eq!(busy, self.is_busy(has), "all of the list was looked at");
        // Without anything to send the time is lost.
        self.carried = if busy { bytes } else { 0.0 };
        let count = |(run, _): &(Range<u32>, f64)| f64::from(run.end - run.start) * block;
        let blocks: f64 = through.iter().map(count).sum();
        let sent = (blocks + self.carried - before).clamp(0.0, self.pace * seconds);
        self.used = sent / seconds;
        self.sent += sent;
        self.idled |= !busy;
        through
    }

    /// Whether there is something to send.
    pub(super) fn is_busy(&self, has: &Runs) -> bool {
        let mut list = self.list.iter();
        list.any(|run| has.next_present(run.start, run.end).is_some())
    }

    /// Of what nobody ordered.
    pub(super) fn fetching(run: Range<u32>) -> Self {
        Self {
            list: vec![run],
            fetches: true,
            ..Self::default()
        }
    }

    fn change(&mut self, drop: &[Range<u32>], add: &[Range<u32>]) {
        let first = self.list.first().map(|run| run.start);
        if !drop.is_empty() {
            let mut left = Vec::with_capacity(self.list.len());
            for run in self.list.drain(..) {
                left.extend(without(run, drop));
            }
            self.list = left;
        }
        self.list.extend(add.iter().cloned());
        if self.list.first().map(|run| run.start) != first {
            self.carried = 0.0;
        }
    }
}

/// What is left of a run.
fn without(run: Range<u32>, drop: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut kept = Runs::default();
    kept.insert(run);
    for part in drop {
        kept.remove(part.clone());
    }
    kept.iter().collect()
}
