//! Tasks of SCDP: a sender for every source of a task, a receiver for all tasks of a host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_core::network::Backlog;
use outpour_core::topology::{Paths, Topology, Vertex};
use outpour_core::{NodeId, Time};
use outpour_packets::{Discipline, Order, Profile, Queue};
use outpour_push::Layout;

use super::play::{Ends, Roads, Script, TaskEnd, slowest, unloaded};
use super::{Instance, QUEUE_MAX, Setting, Task, TasksError};
use crate::packets::scdp::{CLASSES, Output, Pull, Receiver, Sender, Session, Symbol};
use crate::packets::{Endpoint, EndpointId, Incoming, Outgoing, WayId, World};

/// Packets are sprayed over so many ways at most.
const WAYS_MAX: usize = 64;
/// A queue for data is so short, packets [Handley et al. 2017].
const QUEUE: u32 = 8;
/// A session starts again after a silence so many times as long as a timeout of others may be: those of low
/// priority are silent for long without any loss.
const SILENCE: u32 = 10;

/// What packets say.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Request,
    Pull(Pull),
    Symbol(Symbol),
}

pub(super) enum End {
    Sender(Box<SenderEnd>),
    Host(Box<HostEnd>),
}

pub(super) struct SenderEnd {
    machine: Sender,
    /// In the order in which they are drawn; packets take them in turn.
    ways: Vec<WayId>,
    turn: usize,
    bytes: Bytes,
    is_dead: bool,
}

pub(super) struct HostEnd {
    machine: Receiver,
    /// Of each session that there will be, with what decoding is drawn from and the ways to its sources.
    tasks: BTreeMap<u32, (Session, u64, Vec<WayId>)>,
    bytes: Bytes,
}

#[derive(Clone, Copy)]
struct Bytes {
    packet: u32,
    header: u32,
}

impl Bytes {
    fn of(setting: &Setting) -> Self {
        Self {
            packet: setting.packet_bytes,
            header: setting.ack_bytes,
        }
    }
}

/// Machines and what they are to do, as long as it is not known how many hosts there are: senders are numbered
/// from the last number on, hosts from 0.
struct Cast {
    roads: Roads<Message>,
    paths: Paths,
    hosts: BTreeMap<NodeId, (EndpointId, HostEnd)>,
    senders: Vec<End>,
    script: Script,
}

/// Plays tasks of SCDP.
pub(super) fn play(setting: &Setting, tasks: &[Task], seed: u64) -> Result<Instance, TasksError> {
    let mut cast = Cast {
        roads: Roads::new(setting, &profile()?, seed)?,
        paths: Paths::new(setting.topology.clone(), setting.metric),
        hosts: BTreeMap::new(),
        senders: Vec::new(),
        script: Script::default(),
    };
    for (index, task) in tasks.iter().enumerate() {
        cast.add(setting, task, index)?;
    }
    let places: Vec<EndpointId> = tasks.iter().map(|it| cast.hosts[&it.device].0).collect();
    let (script, mut world) = cast.world();
    script.play(&mut world, setting.give_up_after);
    let told = told(tasks, &places, world.endpoints());
    setting.report(&world, tasks, told, seed)
}

impl Cast {
    /// A sender for each source of a task, and the session at its host.
    fn add(&mut self, setting: &Setting, task: &Task, index: usize) -> Result<(), TasksError> {
        let fanout = (setting.fanout as usize).min(task.holders.len());
        let sources = &task.holders[..fanout];
        // Fails if nothing limits the task; then nothing paces its pulls either.
        slowest(&mut self.paths, task)?;
        let session = session(setting, &mut self.paths, task, index as u32, sources)?;
        let fresh = EndpointId(self.hosts.len() as u32);
        let (end, host) = self.hosts.entry(task.device).or_insert_with(|| {
            let rate = inbound(&setting.topology, task.device);
            (fresh, HostEnd::new(setting, packet_time(setting, rate)))
        });
        let (end, mut back) = (*end, Vec::new());
        for (seat, source) in (0..).zip(sources) {
            let sender = EndpointId(u32::MAX - self.senders.len() as u32);
            let there = (*source, sender);
            let (ways, pulls) = self.roads.spray(there, (task.device, end), WAYS_MAX);
            back.push(pulls);
            let deaths = setting.deaths.iter().filter(|(_, host)| host == source);
            self.script
                .deaths
                .extend(deaths.map(|(at, _)| (*at, sender)));
            let machine = Sender::new(session, seat, &setting.scdp_thresholds);
            self.senders.push(End::Sender(Box::new(SenderEnd::new(
                setting, machine, ways,
            ))));
        }
        let seed = self.roads.draw();
        host.tasks.insert(index as u32, (session, seed, back));
        let start = task.at + request_after(setting, &mut self.paths, task, sources);
        self.script.starts.push((start, end, index));
        self.script.watched.push((end, index));
        Ok(())
    }

    /// Hosts first, then senders.
    fn world(mut self) -> (Script, World<End>) {
        let mut hosts: Vec<(EndpointId, HostEnd)> = self.hosts.into_values().collect();
        hosts.sort_by_key(|(at, _)| at.0);
        let (first, senders) = (hosts.len() as u32, self.senders.len() as u32);
        let renumbered = |end: EndpointId| match u32::MAX - end.0 {
            sender if sender < senders => EndpointId(first + sender),
            _ => end,
        };
        self.roads.renumber(renumbered);
        for (_, end) in &mut self.script.deaths {
            *end = renumbered(*end);
        }
        let hosts = hosts.into_iter().map(|(_, it)| End::Host(Box::new(it)));
        let ends = hosts.chain(self.senders).collect();
        (self.script, self.roads.world(ends))
    }
}

/// How long a host waits with its request, so that the nearest source hears it as soon as the sources of other
/// schemes hear the controller; not at all if it is too far away for that.
fn request_after(
    setting: &Setting,
    paths: &mut Paths,
    task: &Task,
    sources: &[NodeId],
) -> Duration {
    let ways = sources.iter().map(|source| {
        let wires = paths.pick(task.device, *source, 0);
        let links = wires.iter().map(|it| setting.topology.wire(*it).link);
        let seconds = links.map(|link| {
            link.delay.as_secs_f64() + f64::from(setting.ack_bytes) / link.rate.bytes_per_s()
        });
        Duration::from_secs_f64(seconds.sum())
    });
    let nearest = ways.min().unwrap_or_default();
    (setting.control_delay * 2).saturating_sub(nearest)
}

/// How much can come to a host in a second, bytes: what the wires into it carry. Where these are open, as
/// between a site and its host, those count that lead to them.
fn inbound(topology: &Topology, host: NodeId) -> f64 {
    let (mut sum, mut near, mut next) = (0.0, BTreeSet::new(), vec![Vertex::from(host)]);
    while let Some(vertex) = next.pop() {
        if !near.insert(vertex) {
            continue;
        }
        for wire in topology
            .incoming(vertex)
            .iter()
            .map(|it| topology.wire(*it))
        {
            match wire.link.rate {
                rate if rate.is_unlimited() => next.push(wire.from),
                rate => sum += rate.bytes_per_s(),
            }
        }
    }
    sum
}

/// How long a packet takes at such a rate.
fn packet_time(setting: &Setting, bytes_per_s: f64) -> Duration {
    Duration::from_secs_f64(f64::from(setting.packet_bytes) / bytes_per_s)
}

fn session(
    setting: &Setting,
    paths: &mut Paths,
    task: &Task,
    id: u32,
    sources: &[NodeId],
) -> Result<Session, TasksError> {
    let block = task.packets.min(setting.block_symbols.into()) as u32;
    // What is on its way from the farthest while nothing waits: one bandwidth-delay product.
    let on_their_way = sources.iter().map(|source| {
        let wires = paths.pick(*source, task.device, 0);
        let rates = wires.iter().map(|it| setting.topology.wire(*it).link.rate);
        let rate = rates
            .map(|it| it.bytes_per_s())
            .fold(f64::INFINITY, f64::min);
        let packets_per_s = rate / f64::from(setting.packet_bytes);
        unloaded(setting, &wires).as_secs_f64() * packets_per_s
    });
    let usual = on_their_way.filter(|it| it.is_finite()).fold(1.0, f64::max);
    let window = setting.initial_window.unwrap_or(usual);
    Ok(Session {
        id,
        layout: Layout::new(task.packets, block)?,
        seats: sources.len() as u32,
        window: (window.round() as u32).max(1),
    })
}

/// Switches with a queue for headers, which trim what finds no room, and one for each priority; hosts with the
/// same queues, which hold whatever they want to send.
///
/// A switch of NDP returns a header for which it has no room to the sender, so that none is lost [Handley et al.
/// 2017]. Here the queue for headers has room for all: where many sessions start together, headers wait instead.
fn profile() -> Result<Profile, TasksError> {
    let all = |limit: Backlog| {
        let mut queues = vec![Queue::new(Backlog::Packets(QUEUE_MAX), None)];
        queues.resize(CLASSES, Queue::new(limit, None));
        Discipline::classes(queues, Order::Strict)
    };
    let hosts = all(Backlog::Packets(QUEUE_MAX)).map_err(TasksError::Queues)?;
    let switches = all(Backlog::Packets(QUEUE)).map_err(TasksError::Queues)?;
    Ok(Profile {
        hosts,
        switches: switches.trimming(),
    })
}

fn told(tasks: &[Task], places: &[EndpointId], ends: &[End]) -> Ends {
    let mut told = Ends::default();
    for (index, (task, place)) in tasks.iter().zip(places).enumerate() {
        let End::Host(host) = &ends[place.0 as usize] else {
            continue;
        };
        let delivered = host.machine.delivered(index as u32).iter();
        told.shares
            .extend(delivered.map(|it| *it as f64 / task.packets as f64));
        let done = host.machine.done(index as u32);
        told.done
            .push(done.ok_or_else(|| "it takes too long".to_owned()));
    }
    told
}

impl TaskEnd for End {
    fn start(&mut self, task: usize, now: Time) {
        if let Self::Host(end) = self
            && let Some((session, seed, _)) = end.tasks.get(&(task as u32))
        {
            end.machine.begin(*session, *seed, now);
        }
    }

    fn die(&mut self) {
        if let Self::Sender(end) = self {
            end.is_dead = true;
        }
    }

    fn is_over(&self, task: usize) -> bool {
        match self {
            Self::Sender(_) => true,
            Self::Host(end) => end.machine.done(task as u32).is_some(),
        }
    }

    fn timeouts(&self) -> u64 {
        match self {
            Self::Sender(_) => 0,
            Self::Host(end) => end.machine.timeouts(),
        }
    }
}

impl Endpoint for End {
    type Message = Message;

    fn handle_packet(&mut self, now: Time, packet: Incoming<Message>) {
        match (self, &packet.message) {
            (Self::Sender(end), _) if end.is_dead => {}
            (Self::Sender(end), Message::Request) => end.machine.handle_request(),
            (Self::Sender(end), Message::Pull(pull)) => end.machine.handle_pull(pull),
            (Self::Host(end), Message::Symbol(symbol)) => {
                end.machine.handle_symbol(now, symbol, packet.is_trimmed);
            }
            _ => debug_assert!(false, "a packet went astray"),
        }
    }

    fn handle_wake(&mut self, now: Time) {
        if let Self::Host(end) = self {
            end.machine.handle_wake(now);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Self::Sender(_) => None,
            Self::Host(end) => end.machine.wake_at(),
        }
    }

    fn poll_send(&mut self, now: Time) -> Option<Outgoing<Message>> {
        match self {
            Self::Sender(end) => end.poll(),
            Self::Host(end) => end.poll(now),
        }
    }
}

impl SenderEnd {
    fn new(setting: &Setting, machine: Sender, ways: Vec<WayId>) -> Self {
        Self {
            machine,
            ways,
            turn: 0,
            bytes: Bytes::of(setting),
            is_dead: false,
        }
    }

    fn poll(&mut self) -> Option<Outgoing<Message>> {
        if self.is_dead {
            return None;
        }
        let symbol = self.machine.poll_send()?;
        let way = self.ways[self.turn];
        self.turn = (self.turn + 1) % self.ways.len();
        Some(Outgoing {
            way,
            bytes: self.bytes.packet,
            class: 1 + symbol.level,
            is_markable: false,
            trimmed_bytes: self.bytes.header,
            message: Message::Symbol(symbol),
        })
    }
}

impl HostEnd {
    /// A host that pulls a packet in each such time.
    fn new(setting: &Setting, interval: Duration) -> Self {
        let silence = setting.rto_min * SILENCE;
        Self {
            machine: Receiver::new(interval, &setting.scdp_thresholds, silence),
            tasks: BTreeMap::new(),
            bytes: Bytes::of(setting),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        let (session, seat, message) = match self.machine.poll_send(now)? {
            Output::Request(it) => (it.session, it.seat, Message::Request),
            Output::Pull(it) => (it.session, it.seat, Message::Pull(it)),
        };
        let (_, _, back) = self.tasks.get(&session)?;
        Some(Outgoing {
            way: *back.get(seat as usize)?,
            bytes: self.bytes.header,
            class: 0,
            is_markable: false,
            trimmed_bytes: 0,
            message,
        })
    }
}
