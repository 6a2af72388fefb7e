//! Tasks of SCDP: a sender for every source of a task, a receiver for all tasks of a host.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::Backlog;
use outpour_core::topology::Paths;
use outpour_core::{NodeId, Time};
use outpour_packets::{Discipline, Order, Profile, Queue};
use outpour_push::Layout;

use super::play::{Ends, Roads, Script, TaskEnd, slowest, unloaded};
use super::{Instance, QUEUE_MAX, Setting, Task, TasksError};
use crate::packets::scdp::{CLASSES, Output, Pull, Receiver, Sender, Session, Symbol};
use crate::packets::{Endpoint, EndpointId, Incoming, Outgoing, WayId};

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

/// Plays tasks of SCDP.
pub(super) fn play(setting: &Setting, tasks: &[Task], seed: u64) -> Result<Instance, TasksError> {
    let mut roads = Roads::new(setting, &profile(setting)?, seed)?;
    let mut paths = Paths::new(setting.topology.clone(), setting.metric);
    let bytes = Bytes {
        packet: setting.packet_bytes,
        header: setting.ack_bytes,
    };
    let thresholds = &setting.scdp_thresholds[..];
    let mut hosts: BTreeMap<NodeId, (EndpointId, HostEnd)> = BTreeMap::new();
    for task in tasks {
        let interval = packet_time(setting, slowest(&mut paths, task)?.bytes_per_s());
        let end = EndpointId(hosts.len() as u32);
        hosts.entry(task.device).or_insert_with(|| {
            let machine = Receiver::new(interval, thresholds, setting.rto_min * SILENCE);
            let tasks = BTreeMap::new();
            let host = HostEnd {
                machine,
                tasks,
                bytes,
            };
            (end, host)
        });
    }
    let (mut senders, mut script) = (Vec::new(), Script::default());
    for (index, task) in tasks.iter().enumerate() {
        let fanout = (setting.fanout as usize).min(task.holders.len());
        let Some((end, host)) = hosts.get_mut(&task.device) else {
            continue;
        };
        let session = session(setting, &mut paths, task, index as u32, fanout)?;
        let mut back = Vec::new();
        for (seat, source) in (0..).zip(&task.holders[..fanout]) {
            let sender = EndpointId(u32::MAX - senders.len() as u32);
            let (ways, pulls) = roads.spray((*source, sender), (task.device, *end), WAYS_MAX)?;
            back.push(pulls);
            let deaths = setting.deaths.iter().filter(|(_, host)| host == source);
            script.deaths.extend(deaths.map(|(at, _)| (*at, sender)));
            senders.push(End::Sender(Box::new(SenderEnd {
                machine: Sender::new(session, seat, thresholds),
                ways,
                turn: 0,
                bytes,
                is_dead: false,
            })));
        }
        host.tasks
            .insert(index as u32, (session, roads.draw(), back));
        script.starts.push((task.at, *end, index));
        script.watched.push((*end, index));
    }
    let places: Vec<EndpointId> = tasks.iter().map(|it| hosts[&it.device].0).collect();
    let mut ends: Vec<(EndpointId, End)> = hosts
        .into_values()
        .map(|(at, host)| (at, End::Host(Box::new(host))))
        .collect();
    ends.sort_by_key(|(at, _)| at.0);
    // Senders were numbered from the other end before it was known how many hosts there are.
    let first = ends.len() as u32;
    let renumbered = |end: EndpointId| match u32::MAX - end.0 {
        sender if sender < senders.len() as u32 => EndpointId(first + sender),
        _ => end,
    };
    roads.renumber(renumbered);
    for (_, end) in &mut script.deaths {
        *end = renumbered(*end);
    }
    let ends = ends
        .into_iter()
        .map(|(_, end)| end)
        .chain(senders)
        .collect();
    let mut world = roads.world(ends);
    script.play(&mut world, setting.give_up_after);
    let told = told(tasks, &places, world.endpoints());
    setting.report(&world, tasks, told, seed)
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
    fanout: usize,
) -> Result<Session, TasksError> {
    let block = task.packets.min(setting.block_symbols.into()) as u32;
    let rate = slowest(paths, task)?.bytes_per_s() / f64::from(setting.packet_bytes);
    let wires = paths.pick(task.holders[0], task.device, 0);
    // What is on its way while nothing waits: one bandwidth-delay product.
    let usual = unloaded(setting, &wires).as_secs_f64() * rate;
    let window = setting.initial_window.unwrap_or(usual);
    Ok(Session {
        id,
        layout: Layout::new(task.packets, block)?,
        seats: fanout as u32,
        window: (window.round() as u32).max(1),
    })
}

/// Switches with a queue for headers, which trim what finds no room, and one for each priority; hosts with the
/// same queues, which hold whatever they want to send.
fn profile(setting: &Setting) -> Result<Profile, TasksError> {
    // That for headers is as long in bytes.
    let headers = outpour_core::Bytes(u64::from(QUEUE) * u64::from(setting.packet_bytes));
    let all = |limit: Backlog, headers: Backlog| {
        let mut queues = vec![Queue::new(headers, None)];
        queues.resize(CLASSES, Queue::new(limit, None));
        Discipline::classes(queues, Order::Strict)
    };
    let most = Backlog::Packets(QUEUE_MAX);
    let hosts = all(most, most).map_err(TasksError::Queues)?;
    let switches =
        all(Backlog::Packets(QUEUE), Backlog::Bytes(headers)).map_err(TasksError::Queues)?;
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
