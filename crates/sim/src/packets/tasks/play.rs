//! Instances as they are played: ways through the network, what happens when, and what came of it.

use std::time::Duration;

use outpour_core::network::Backlog;
use outpour_core::topology::{Paths, Topology, WireId};
use outpour_core::{NodeId, Rate, Time};
use outpour_packets::{Discipline, Engine, PortId, Profile, RouteId, Setting as Port, Wiring};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{
    FANOUT_MAX, Failure, HOSTS_MAX, Instance, QUEUE_MAX, Scheme, Setting, TASKS_MAX, Task,
    TasksError, push, scdp, streams,
};
use crate::packets::{Endpoint, EndpointId, Packet, Way, WayId, World};

/// How far the time goes on before it is looked who is done, once no task is to begin.
const SLICE: Duration = Duration::from_millis(10);
/// Where the randomness of an instance differs from that of its workload.
const PLAYED: u64 = 0x5dee_ce66_d1ce_4e5b;

/// A way for data from a source to a device, and the way back.
pub(super) struct Lane {
    pub(super) data: WayId,
    pub(super) acks: WayId,
    /// What data passes.
    pub(super) wires: Vec<WireId>,
}

/// Ways that are being laid.
pub(super) struct Roads<M> {
    wiring: Wiring,
    engine: Engine<Packet<M>>,
    ways: Vec<Way>,
    /// Messages pass it outside of the network.
    control: RouteId,
    /// Where flows draw their ways from.
    dice: Pcg64Mcg,
}

impl<M> Roads<M> {
    /// Ports without ways.
    pub(super) fn new(setting: &Setting, profile: &Profile, seed: u64) -> Result<Self, TasksError> {
        let paths = Paths::new(setting.topology.clone(), setting.metric);
        let mut wiring = Wiring::new(paths, profile)?;
        let unlimited = Discipline::drop_tail(Backlog::Packets(QUEUE_MAX), None);
        let control = Port::new(Rate::UNLIMITED, unlimited).delayed(setting.control_delay);
        let (mut engine, further) = wiring.engine_with(&[control], seed);
        let control = engine.add_route(&further);
        Ok(Self {
            wiring,
            engine,
            ways: Vec::new(),
            control,
            dice: Pcg64Mcg::seed_from_u64(seed ^ PLAYED),
        })
    }

    /// What is drawn next.
    pub(super) fn draw(&mut self) -> u64 {
        self.dice.next_u64()
    }

    /// Lays a way from one end at a source to another at a device, one of the shortest, drawn; and one back: over
    /// the same vertices where wires lead both ways. They do not in a network of clusters, whose resources have a
    /// direction each.
    pub(super) fn lane(
        &mut self,
        (from, sender): (NodeId, EndpointId),
        (to, receiver): (NodeId, EndpointId),
    ) -> Lane {
        let choice = self.dice.next_u64();
        let paths = self.wiring.paths();
        let wires = paths.pick(from, to, choice);
        let back = paths.topology().back(&wires);
        let back = back.unwrap_or_else(|| paths.pick(to, from, choice));
        let data = self.way(wires.clone(), receiver);
        let acks = self.way(back, sender);
        Lane { data, acks, wires }
    }

    fn way(&mut self, wires: Vec<WireId>, to: EndpointId) -> WayId {
        let route = self.wiring.route_over(&mut self.engine, wires);
        self.ways.push(Way { route, to });
        WayId(self.ways.len() as u32 - 1)
    }

    /// Lays all of the shortest ways, at most so many, in random order, and one back, drawn.
    pub(super) fn spray(
        &mut self,
        (from, sender): (NodeId, EndpointId),
        (to, receiver): (NodeId, EndpointId),
        max: usize,
    ) -> (Vec<WayId>, WayId) {
        let back = self.lane((from, sender), (to, receiver)).acks;
        let mut paths = self.wiring.paths().all(from, to, max);
        for place in (1..paths.len()).rev() {
            paths.swap(place, (self.draw() % (place as u64 + 1)) as usize);
        }
        let ways = paths.into_iter().map(|wires| self.way(wires, receiver));
        (ways.collect(), back)
    }

    /// Ways lead to other machines than was said.
    pub(super) fn renumber(&mut self, renumbered: impl Fn(EndpointId) -> EndpointId) {
        for way in &mut self.ways {
            way.to = renumbered(way.to);
        }
    }

    /// A way outside of the network.
    pub(super) fn control(&mut self, to: EndpointId) -> WayId {
        let route = self.control;
        self.ways.push(Way { route, to });
        WayId(self.ways.len() as u32 - 1)
    }

    /// Puts machines at the ends of the ways.
    pub(super) fn world<E: Endpoint<Message = M>>(self, ends: Vec<E>) -> World<E> {
        World::new(self.engine, self.ways, ends)
    }
}

/// A machine of a task.
pub(super) trait TaskEnd: Endpoint {
    /// A task begins.
    fn start(&mut self, task: usize, now: Time);
    /// Its host dies.
    fn die(&mut self);
    /// Whether a task does not wait for it.
    fn is_over(&self, task: usize) -> bool;
    /// How often its timers ran out.
    fn timeouts(&self) -> u64;
}

/// Who begins which task when, who dies when, and who is waited for in which task.
#[derive(Default)]
pub(super) struct Script {
    pub(super) starts: Vec<(Time, EndpointId, usize)>,
    pub(super) deaths: Vec<(Time, EndpointId)>,
    pub(super) watched: Vec<(EndpointId, usize)>,
}

/// How the tasks ended.
#[derive(Default)]
pub(super) struct Ends {
    /// When each was complete, or why not.
    pub(super) done: Vec<Result<Time, String>>,
    /// For each source of each task, which share it delivered.
    pub(super) shares: Vec<f64>,
}

impl Script {
    /// Plays it until nobody is waited for, or it has taken too long since the last task began.
    pub(super) fn play<E: TaskEnd>(mut self, world: &mut World<E>, give_up_after: Duration) {
        self.starts.sort_by_key(|(at, end, _)| (*at, end.0));
        self.deaths.sort_by_key(|(at, end)| (*at, end.0));
        let last = self.starts.last().map_or(Time::ZERO, |(at, ..)| *at);
        let limit = last + give_up_after;
        let mut starts = self.starts.into_iter().peekable();
        let mut deaths = self.deaths.into_iter().peekable();
        loop {
            let starting = starts.peek().map(|(at, ..)| *at);
            let dying = deaths.peek().map(|(at, _)| *at);
            let mut until = starting.into_iter().chain(dying).min().unwrap_or(limit);
            if starting.is_none() {
                let is_done = self.watched.iter().all(|it| is_over(world, *it));
                if is_done || world.now() >= limit {
                    return;
                }
                until = until.min(world.now() + SLICE).min(limit);
            }
            world.run(until);
            // A task that begins when a host dies has begun before.
            if let Some((_, end, task)) = starts.next_if(|(at, ..)| *at <= until) {
                world.command(end, |end, now| end.start(task, now));
            } else if let Some((_, end)) = deaths.next_if(|(at, _)| *at <= until) {
                world.command(end, |end, _| end.die());
            }
        }
    }
}

fn is_over<E: TaskEnd>(world: &World<E>, (end, task): (EndpointId, usize)) -> bool {
    world.endpoints()[end.0 as usize].is_over(task)
}

impl Setting {
    /// Plays tasks; the same for the same seed, from which ways and losses are drawn.
    ///
    /// # Errors
    /// If something is out of range; names it.
    pub fn play(&self, tasks: &[Task], seed: u64) -> Result<Instance, TasksError> {
        self.check(tasks)?;
        match self.scheme {
            Scheme::Push { .. } => push::play(self, tasks, seed),
            Scheme::Scdp => scdp::play(self, tasks, seed),
            _ => streams::play(self, tasks, seed),
        }
    }

    /// One queue at every port, which marks.
    pub(super) fn marking(&self) -> Profile {
        let limit = Backlog::Packets(self.queue_packets);
        let mark_from = Backlog::Packets(self.mark_packets);
        Profile::uniform(Discipline::drop_tail(limit, Some(mark_from)))
    }

    fn check(&self, tasks: &[Task]) -> Result<(), TasksError> {
        self.check_numbers(tasks.len())?;
        for (key, it) in [
            ("rto_min", self.rto_min),
            ("rto_initial", self.rto_initial),
            ("rto_max", self.rto_max),
            ("progress_interval", self.progress_interval),
        ] {
            range(key, &it.as_secs_f64(), !it.is_zero(), "a time above 0")?;
        }
        for (index, task) in tasks.iter().enumerate() {
            let before = index.checked_sub(1).map(|it| tasks[it].at);
            if let Some(problem) = self.problem(task, before) {
                let task = index;
                return Err(TasksError::Task { task, problem });
            }
        }
        Ok(())
    }

    fn check_numbers(&self, tasks: usize) -> Result<(), TasksError> {
        let hosts = self.topology.host_count();
        let is_fine = (2..=HOSTS_MAX).contains(&hosts);
        range("hosts", &hosts, is_fine, "2 to 4096")?;
        let is_fine = (1..=TASKS_MAX as usize).contains(&tasks);
        range("tasks", &tasks, is_fine, "1 to 65536")?;
        let is_fine = (1..=FANOUT_MAX).contains(&self.fanout);
        range("fanout", &self.fanout, is_fine, "1 to 64")?;
        let (queue, mark) = (self.queue_packets, self.mark_packets);
        let is_fine = (1..=QUEUE_MAX).contains(&queue);
        range("queue", &queue, is_fine, "1 to 1000000")?;
        range("mark", &mark, mark > 0, "at least 1")?;
        if mark > queue {
            return Err(TasksError::Mark { mark, queue });
        }
        let is_fine = self.packet_bytes > 0 && self.ack_bytes > 0;
        range("packet_bytes", &self.packet_bytes, is_fine, "at least 1")?;
        let thresholds = self.scdp_thresholds;
        let is_fine = thresholds.is_sorted() && thresholds[0] > 0;
        let expected = "growing numbers from 1";
        range("scdp_thresholds", &thresholds[0], is_fine, expected)
    }

    /// What is wrong with a task, after one that began at that time.
    fn problem(&self, task: &Task, before: Option<Time>) -> Option<&'static str> {
        let is_host = |host: &NodeId| host.0 < self.topology.host_count();
        Some(match task {
            _ if task.packets == 0 => "its object has no packets",
            _ if task.packets > super::sizes::PACKETS_MAX as u64 => {
                "its object has more than 10^9 packets"
            }
            _ if task.holders.is_empty() => "nobody has its object",
            _ if task.holders.contains(&task.device) => "its device has its object",
            _ if has_twice(&task.holders) => "a host has its object twice",
            _ if !is_host(&task.device) || !task.holders.iter().all(is_host) => {
                "there is no such host"
            }
            _ if before.is_some_and(|it| task.at < it) => "it begins before the one before it",
            _ => return None,
        })
    }

    /// The report of an instance.
    pub(super) fn report<E: TaskEnd>(
        &self,
        world: &World<E>,
        tasks: &[Task],
        ends: Ends,
        seed: u64,
    ) -> Result<Instance, TasksError> {
        let mut failures = Vec::new();
        let (mut tcts_s, mut ideal_s, mut last) = (Vec::new(), Vec::new(), Time::ZERO);
        let mut paths = Paths::new(self.topology.clone(), self.metric);
        for (index, (task, end)) in tasks.iter().zip(ends.done).enumerate() {
            let at = match end {
                Ok(at) => at,
                Err(why) => {
                    failures.push(Failure { task: index, why });
                    tcts_s.push(None);
                    continue;
                }
            };
            last = last.max(at);
            tcts_s.push(Some(at.since(task.at).as_secs_f64()));
            let rate = slowest(&mut paths, task)?;
            ideal_s.push(task.packets as f64 * f64::from(self.packet_bytes) / rate.bytes_per_s());
        }
        let average_tct_s = mean(tcts_s.iter().flatten().copied());
        let ports = wire_ports(&self.topology);
        let mut packet_hops = 0;
        let (mut drops, mut marks, mut trimmed, mut busiest) = (0, 0, 0, 0);
        for port in world.engine().ports().take(ports) {
            let stats = world.stats(port);
            packet_hops += stats.packets;
            drops += stats.dropped;
            marks += stats.marked;
            trimmed += stats.trimmed;
            busiest = busiest.max(stats.busy_nanos);
        }
        let control = world.stats(PortId(ports as u32));
        let makespan_s = last.since(tasks[0].at).as_secs_f64();
        Ok(Instance {
            seed,
            average_tct_s,
            normalized_average_tct: average_tct_s / mean(ideal_s.into_iter()),
            tcts_s,
            failures,
            mean_packets: mean(tasks.iter().map(|it| it.packets as f64)),
            timeouts: world.endpoints().iter().map(TaskEnd::timeouts).sum(),
            shares: ends.shares,
            packets: world.engine().counts().entered - control.packets,
            drops,
            marks,
            trimmed,
            packet_hops,
            makespan_s,
            busiest_port: busiest as f64 / world.now().0 as f64,
        })
    }
}

/// An error that names what is out of range.
pub(super) fn range(
    key: &'static str,
    found: &dyn ToString,
    is_fine: bool,
    expected: &'static str,
) -> Result<(), TasksError> {
    match is_fine {
        true => Ok(()),
        false => Err(TasksError::Range {
            key,
            found: found.to_string(),
            expected,
        }),
    }
}

fn has_twice(hosts: &[NodeId]) -> bool {
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// How many ports wires have: those without one pass everything at once.
fn wire_ports(topology: &Topology) -> usize {
    let wires = topology.wires().iter();
    let is_closed = |link: &outpour_core::network::Link| {
        !link.rate.is_unlimited() || !link.delay.is_zero() || link.loss > 0.0
    };
    wires.filter(|wire| is_closed(&wire.link)).count()
}

/// The rate of the slowest wire on a way of a task.
pub(super) fn slowest(paths: &mut Paths, task: &Task) -> Result<Rate, TasksError> {
    let wires = paths.pick(task.holders[0], task.device, 0);
    let topology = paths.topology();
    let rates = wires.iter().map(|wire| topology.wire(*wire).link.rate);
    let slowest = rates.min_by(|a, b| a.bytes_per_s().total_cmp(&b.bytes_per_s()));
    let limited = slowest.filter(|rate| !rate.is_unlimited());
    limited.ok_or_else(|| TasksError::Unlimited {
        from: topology.name(task.holders[0].into()).to_owned(),
        to: topology.name(task.device.into()).to_owned(),
    })
}

/// How long a packet and its acknowledgement take over such wires while nothing waits, if the way back
/// takes as long; the acknowledgement is short.
pub(super) fn unloaded(setting: &Setting, wires: &[WireId]) -> Duration {
    let links = wires.iter().map(|it| setting.topology.wire(*it).link);
    let seconds = links.map(|link| {
        let serving = f64::from(setting.packet_bytes) / link.rate.bytes_per_s();
        link.delay.as_secs_f64() * 2.0 + serving
    });
    Duration::from_secs_f64(seconds.sum())
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), it| (sum + it, count + 1));
    sum / count as f64
}
