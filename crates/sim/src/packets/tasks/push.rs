//! Tasks of Parallel Push: its controller, a source on every host that has objects, a receiver for every
//! task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_congestion::{Algorithm, WfccOptions};
use outpour_core::topology::WireId;
use outpour_core::{NodeId, Time};
use outpour_push as push;
use outpour_push::theta;

use super::play::{Ends, Lane, Roads, Script, TaskEnd, unloaded};
use super::{Instance, Scheme, Setting, Task, TasksError};
use crate::packets::{Endpoint, EndpointId, Incoming, Outgoing, WayId, World};

/// Sources say that they live so often, and are dead when silent for four times as long.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// What packets say.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Data(push::Data),
    Ack(push::Ack),
    Fin(push::FlowId),
    FinAck(push::FlowId),
    /// Passes outside of the network.
    Control(Box<Control>),
}

/// A message by whom it is for.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Controller(push::ToController),
    Receiver(push::ToReceiver),
    Source(push::ToSource),
}

// One of the first kind, and the others are in boxes.
pub(super) enum End {
    Controller(Box<ControllerEnd>),
    Source(Box<SourceEnd>),
    Receiver(Box<ReceiverEnd>),
}

pub(super) struct ControllerEnd {
    machine: push::Controller,
    /// By host.
    sources: BTreeMap<push::SourceId, WayId>,
    /// By task.
    devices: Vec<WayId>,
}

pub(super) struct SourceEnd {
    machine: push::Source,
    /// To the device of each task whose object it has.
    ways: BTreeMap<push::DeviceId, WayId>,
    control: WayId,
    bytes: Bytes,
    is_dead: bool,
    /// Timeouts of flows that are over are forgotten with them, so they are added up when a timer runs out.
    timeouts: u64,
}

pub(super) struct ReceiverEnd {
    options: push::ReceiverOptions,
    is_rateless: bool,
    seed: u64,
    machine: Option<push::Receiver>,
    control: WayId,
    bytes: Bytes,
    /// By seat, the way back to its source and how many symbols came from there that were new.
    seats: Vec<Option<(WayId, u64)>>,
    answer: Option<push::Ack>,
    done: Option<Time>,
}

#[derive(Clone, Copy)]
struct Bytes {
    packet: u32,
    ack: u32,
}

impl Bytes {
    fn of(setting: &Setting) -> Self {
        Self {
            packet: setting.packet_bytes,
            ack: setting.ack_bytes,
        }
    }
}

/// Which machine is where: the controller first, then sources by host, then receivers by task.
struct Places {
    sources: BTreeMap<NodeId, EndpointId>,
}

const CONTROLLER: EndpointId = EndpointId(0);

impl Places {
    fn new(tasks: &[Task]) -> Self {
        let hosts: BTreeSet<NodeId> = tasks.iter().flat_map(|it| &it.holders).copied().collect();
        let sources = hosts.into_iter().zip((1..).map(EndpointId)).collect();
        Self { sources }
    }

    fn receiver(&self, task: usize) -> EndpointId {
        EndpointId((1 + self.sources.len() + task) as u32)
    }
}

/// Machines and what they are to do, as long as tasks are still added.
struct Cast {
    roads: Roads<Message>,
    places: Places,
    controller: ControllerEnd,
    sources: BTreeMap<NodeId, SourceEnd>,
    receivers: Vec<End>,
    script: Script,
    links: Links,
}

/// Plays tasks of Parallel Push.
pub(super) fn play(setting: &Setting, tasks: &[Task], seed: u64) -> Result<Instance, TasksError> {
    let mut cast = Cast::new(setting, tasks, seed)?;
    for (index, task) in tasks.iter().enumerate() {
        cast.add(setting, task, index)?;
    }
    for (at, host) in &setting.deaths {
        let ends = cast.places.sources.get(host);
        cast.script.deaths.extend(ends.map(|end| (*at, *end)));
    }
    for (wire, theta_max) in cast.links.limits(setting) {
        let link = push::LinkId(wire.0);
        cast.controller.machine.set_link(link, theta_max)?;
    }
    let (script, mut world) = cast.world();
    script.play(&mut world, setting.give_up_after);
    let told = told(tasks, world.endpoints());
    setting.report(&world, tasks, told, seed)
}

impl Cast {
    /// The controller, and a source on each host that has objects.
    fn new(setting: &Setting, tasks: &[Task], seed: u64) -> Result<Self, TasksError> {
        let mut roads = Roads::new(setting, &setting.marking(), seed)?;
        let places = Places::new(tasks);
        let options = controller(setting, tasks, roads.draw());
        let mut controller = ControllerEnd {
            machine: push::Controller::new(options, Time::ZERO)?,
            sources: BTreeMap::new(),
            devices: Vec::new(),
        };
        let mut sources = BTreeMap::new();
        for (host, end) in &places.sources {
            let id = push::SourceId(host.0);
            controller.sources.insert(id, roads.control(*end));
            let source = SourceEnd {
                machine: push::Source::new(source(setting, id, roads.draw()), Time::ZERO)?,
                ways: BTreeMap::new(),
                control: roads.control(CONTROLLER),
                bytes: Bytes::of(setting),
                is_dead: false,
                timeouts: 0,
            };
            sources.insert(*host, source);
        }
        Ok(Self {
            roads,
            places,
            controller,
            sources,
            receivers: Vec::new(),
            script: Script::default(),
            links: Links::default(),
        })
    }

    /// The receiver of a task, and the ways to it.
    fn add(&mut self, setting: &Setting, task: &Task, index: usize) -> Result<(), TasksError> {
        let (uri, device) = (format!("object {index}"), push::DeviceId(index as u64));
        let end = self.places.receiver(index);
        self.controller.devices.push(self.roads.control(end));
        let layout = layout(setting, task)?;
        for host in &task.holders {
            let there = (*host, self.places.sources[host]);
            let lane = self.roads.lane(there, (task.device, end));
            let on = lane.wires.iter().map(|it| push::LinkId(it.0)).collect();
            let machine = &mut self.controller.machine;
            machine.set_path(push::SourceId(host.0), device, on);
            self.links.note(setting, &lane);
            if let Some(source) = self.sources.get_mut(host) {
                source.machine.hold(&uri, layout)?;
                source.ways.insert(device, lane.data);
            }
        }
        let control = self.roads.control(CONTROLLER);
        let seed = self.roads.draw();
        let receiver = ReceiverEnd::new(setting, uri, device, control, seed);
        self.receivers.push(End::Receiver(Box::new(receiver)));
        self.script.starts.push((task.at, end, index));
        self.script.watched.push((end, index));
        Ok(())
    }

    /// All in the order of [`Places`].
    fn world(self) -> (Script, World<End>) {
        let mut ends = vec![End::Controller(Box::new(self.controller))];
        let sources = self.sources.into_values();
        ends.extend(sources.map(|it| End::Source(Box::new(it))));
        ends.extend(self.receivers);
        (self.script, self.roads.world(ends))
    }
}

/// Sum of weights that each wire carries, from the round trips over it under full load.
#[derive(Default)]
struct Links {
    /// Of each wire, how long the longest round trip over it takes while nothing waits.
    round_trips: BTreeMap<WireId, Duration>,
}

impl Links {
    fn note(&mut self, setting: &Setting, lane: &Lane) {
        let round_trip = unloaded(setting, &lane.wires);
        for wire in &lane.wires {
            let longest = self.round_trips.entry(*wire).or_default();
            *longest = round_trip.max(*longest);
        }
    }

    /// Half of what is on the way and waits at a full link, `R C / 2` [PPUSH, equation 20]: as many packets
    /// wait as get the first mark.
    fn limits(&self, setting: &Setting) -> Vec<(WireId, f64)> {
        let limited = self.round_trips.iter().filter_map(|(wire, round_trip)| {
            let rate = setting.topology.wire(*wire).link.rate;
            if rate.is_unlimited() {
                return None;
            }
            let packets_per_s = rate.bytes_per_s() / f64::from(setting.packet_bytes);
            let waits = f64::from(setting.mark_packets) / packets_per_s;
            let rtt = *round_trip + Duration::from_secs_f64(waits);
            Some((*wire, theta::theta_max(rtt, packets_per_s)))
        });
        limited.collect()
    }
}

fn layout(setting: &Setting, task: &Task) -> Result<push::Layout, push::Error> {
    let block = task.packets.min(setting.block_symbols.into());
    push::Layout::new(task.packets, block as u32)
}

fn parts(setting: &Setting) -> (bool, bool) {
    match setting.scheme {
        Scheme::Push {
            is_rateless,
            is_prioritized,
        } => (is_rateless, is_prioritized),
        _ => (false, false),
    }
}

fn controller(setting: &Setting, tasks: &[Task], seed: u64) -> push::ControllerOptions {
    let (is_rateless, is_prioritized) = parts(setting);
    let usual = push::ControllerOptions::default();
    push::ControllerOptions {
        fanout: setting.fanout,
        split: match is_rateless {
            true => push::Split::Rateless,
            false => push::Split::Equal,
        },
        theta: match is_prioritized {
            true => usual.theta,
            false => push::ThetaPolicy::Fixed(1.0),
        },
        period: setting.progress_interval,
        source_silence: HEARTBEAT * 4,
        tasks_max: tasks.len(),
        objects_max: tasks.len(),
        seed,
        ..usual
    }
}

fn source(setting: &Setting, source: push::SourceId, seed: u64) -> push::SourceOptions {
    let usual = WfccOptions::default();
    let timers = push::SenderTimers::default();
    let rto = setting.rto();
    push::SourceOptions {
        heartbeat_interval: HEARTBEAT,
        congestion: Algorithm::Wfcc(WfccOptions {
            initial_window: setting.initial_window.unwrap_or(usual.initial_window),
            has_slow_start: setting.has_slow_start,
            // At 0 the first marks would not end the slow start's growth.
            alpha: if setting.has_slow_start {
                1.0
            } else {
                usual.alpha
            },
            ..usual
        }),
        timers: push::SenderTimers {
            rto_min: rto.min,
            rto_initial: rto.initial,
            rto_max: rto.max,
            probes: setting.probes,
            ..timers
        },
        seed,
        ..push::SourceOptions::new(source)
    }
}

fn told(tasks: &[Task], ends: &[End]) -> Ends {
    let receivers = ends.iter().filter_map(|end| match end {
        End::Receiver(end) => Some(end),
        _ => None,
    });
    let mut told = Ends::default();
    for (task, receiver) in tasks.iter().zip(receivers) {
        let packets = task.packets as f64;
        let counts = receiver.seats.iter().flatten();
        told.shares
            .extend(counts.map(|(_, count)| *count as f64 / packets));
        told.done.push(receiver.done.ok_or_else(|| receiver.why()));
    }
    told
}

impl ReceiverEnd {
    fn new(
        setting: &Setting,
        uri: String,
        device: push::DeviceId,
        control: WayId,
        seed: u64,
    ) -> Self {
        Self {
            options: push::ReceiverOptions {
                progress_interval: setting.progress_interval,
                ..push::ReceiverOptions::new(uri, device)
            },
            is_rateless: parts(setting).0,
            seed,
            machine: None,
            control,
            bytes: Bytes::of(setting),
            seats: Vec::new(),
            answer: None,
            done: None,
        }
    }

    fn why(&self) -> String {
        match self.machine.as_ref().map(push::Receiver::end) {
            Some(Some(end)) => format!("its receiver has given up: {end:?}"),
            Some(None) => "it takes too long".to_owned(),
            None => "it never began".to_owned(),
        }
    }

    fn handle(&mut self, now: Time, packet: Incoming<Message>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        match packet.message {
            Message::Data(data) => {
                let seat = data.flow.seat as usize;
                if self.seats.len() <= seat {
                    self.seats.resize(seat + 1, None);
                }
                // Ways are laid in pairs.
                let back = WayId(packet.way.0 + 1);
                debug_assert!(self.answer.is_none(), "an answer was not sent");
                let before = machine.counts().symbols;
                self.answer = machine.handle_data(now, &data, packet.is_marked, &[]);
                self.seats[seat].get_or_insert((back, 0)).1 += machine.counts().symbols - before;
                if self.done.is_none() && machine.is_complete() {
                    self.done = Some(now);
                }
            }
            Message::Fin(flow) => machine.handle_fin(flow),
            Message::FinAck(flow) => machine.handle_fin_ack(flow),
            Message::Control(control) => match *control {
                Control::Receiver(message) => machine.handle_controller(now, &message),
                _ => debug_assert!(false, "a message went astray"),
            },
            Message::Ack(_) => debug_assert!(false, "a packet went astray"),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        let ack = match self.answer.take() {
            Some(ack) => Some(push::ReceiverOutput::Ack(ack)),
            None => self.machine.as_mut()?.poll_transmit(now),
        };
        let (seat, message) = match ack? {
            push::ReceiverOutput::Ack(ack) => (ack.flow.seat, Message::Ack(ack)),
            push::ReceiverOutput::Fin(flow) => (flow.seat, Message::Fin(flow)),
            push::ReceiverOutput::FinAck(flow) => (flow.seat, Message::FinAck(flow)),
            push::ReceiverOutput::Controller(message) => {
                let message = Control::Controller(message);
                return Some(aside(self.control, message));
            }
        };
        // It answers only those that it has heard.
        let (way, _) = (*self.seats.get(seat as usize)?)?;
        Some(Outgoing {
            way,
            bytes: self.bytes.ack,
            class: 0,
            // Acknowledgements are not ECN-capable (RFC 3168 §6.1.4).
            is_markable: false,
            trimmed_bytes: 0,
            message,
        })
    }
}

/// A message outside of the network.
fn aside(way: WayId, message: Control) -> Outgoing<Message> {
    Outgoing {
        way,
        bytes: 0,
        class: 0,
        is_markable: false,
        trimmed_bytes: 0,
        message: Message::Control(Box::new(message)),
    }
}

impl SourceEnd {
    fn handle(&mut self, now: Time, message: Message) {
        match message {
            Message::Ack(ack) => self.machine.handle_ack(now, &ack),
            Message::Fin(flow) => self.machine.handle_fin(flow),
            Message::FinAck(flow) => self.machine.handle_fin_ack(flow),
            Message::Control(control) => match *control {
                Control::Source(message) => self.machine.handle_controller(now, &message),
                _ => debug_assert!(false, "a message went astray"),
            },
            Message::Data(_) => debug_assert!(false, "a packet went astray"),
        }
    }

    fn wake(&mut self, now: Time) {
        let before = timeouts(&self.machine);
        self.machine.handle_wake(now);
        self.timeouts += timeouts(&self.machine).saturating_sub(before);
    }

    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        let (device, bytes, message) = match self.machine.poll_transmit(now)? {
            push::SourceOutput::Controller(message) => {
                return Some(aside(self.control, Control::Controller(message)));
            }
            push::SourceOutput::Data(device, data) => {
                (device, self.bytes.packet, Message::Data(data))
            }
            push::SourceOutput::Fin(device, flow) => (device, self.bytes.ack, Message::Fin(flow)),
            push::SourceOutput::FinAck(device, flow) => {
                (device, self.bytes.ack, Message::FinAck(flow))
            }
        };
        Some(Outgoing {
            way: *self.ways.get(&device)?,
            bytes,
            class: 0,
            is_markable: matches!(message, Message::Data(_)),
            trimmed_bytes: 0,
            message,
        })
    }
}

fn timeouts(source: &push::Source) -> u64 {
    let senders = source.senders();
    senders.map(|it| it.progress().counts.timeouts).sum()
}

impl ControllerEnd {
    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        Some(match self.machine.poll_transmit(now)? {
            push::ControllerOutput::Receiver(device, message) => {
                let way = *self.devices.get(device.0 as usize)?;
                aside(way, Control::Receiver(message))
            }
            push::ControllerOutput::Source(source, message) => {
                aside(*self.sources.get(&source)?, Control::Source(message))
            }
        })
    }
}

impl TaskEnd for End {
    fn start(&mut self, _: usize, now: Time) {
        if let Self::Receiver(end) = self {
            let decoder: Box<dyn push::Decoder> = match end.is_rateless {
                true => Box::new(push::ChanceDecoder::new(end.seed)),
                false => Box::<push::ExactDecoder>::default(),
            };
            // Its options are those of every run, and within their ranges.
            end.machine = push::Receiver::new(end.options.clone(), decoder, now).ok();
            debug_assert!(end.machine.is_some(), "{:?}", end.options);
        }
    }

    fn die(&mut self) {
        if let Self::Source(end) = self {
            end.is_dead = true;
        }
    }

    fn is_over(&self, _: usize) -> bool {
        match self {
            Self::Receiver(end) => {
                let has_ended = |it: &push::Receiver| it.end().is_some();
                end.done.is_some() || end.machine.as_ref().is_some_and(has_ended)
            }
            _ => true,
        }
    }

    fn timeouts(&self) -> u64 {
        match self {
            Self::Source(end) => end.timeouts,
            _ => 0,
        }
    }
}

impl Endpoint for End {
    type Message = Message;

    fn handle_packet(&mut self, now: Time, packet: Incoming<Message>) {
        match self {
            Self::Controller(end) => match packet.message {
                Message::Control(control) => match *control {
                    Control::Controller(message) => end.machine.handle_message(now, &message),
                    _ => debug_assert!(false, "a message went astray"),
                },
                _ => debug_assert!(false, "a packet went astray"),
            },
            Self::Source(end) if end.is_dead => {}
            Self::Source(end) => end.handle(now, packet.message),
            Self::Receiver(end) => end.handle(now, packet),
        }
    }

    fn handle_wake(&mut self, now: Time) {
        match self {
            Self::Controller(end) => end.machine.handle_wake(now),
            Self::Source(end) => end.wake(now),
            Self::Receiver(end) => {
                if let Some(machine) = &mut end.machine {
                    machine.handle_wake(now);
                }
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Self::Controller(end) => end.machine.wake_at(),
            Self::Source(end) if end.is_dead => None,
            Self::Source(end) => end.machine.wake_at(),
            Self::Receiver(end) => end.machine.as_ref()?.wake_at(),
        }
    }

    fn poll_send(&mut self, now: Time) -> Option<Outgoing<Message>> {
        match self {
            Self::Controller(end) => end.poll(now),
            Self::Source(end) if end.is_dead => None,
            Self::Source(end) => end.poll(now),
            Self::Receiver(end) => end.poll(now),
        }
    }
}
