//! Baselines: every source of a task sends an equal share of it as a flow of its own.

use outpour_congestion::{Algorithm, CongestionControl, DccpOptions, DctcpOptions, RenoOptions};
use outpour_core::{NodeId, Time};

use super::play::{Ends, Lane, Roads, Script, TaskEnd};
use super::{Instance, Scheme, Setting, Task, TasksError};
use crate::packets::{Endpoint, EndpointId, Incoming, Outgoing, WayId, dccp, tcp};

/// What packets say.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Segment(tcp::Segment),
    TcpAck(tcp::Ack),
    Dccp(dccp::Data),
    DccpAck(dccp::Ack),
}

/// One end of a flow.
pub(super) enum End {
    Sender(Box<SenderEnd>),
    Receiver(Box<ReceiverEnd>),
}

pub(super) struct SenderEnd {
    machine: SenderMachine,
    way: WayId,
    bytes: u32,
    /// Reno and DCCP are those without ECN, which hear of congestion when packets are dropped.
    is_markable: bool,
    has_begun: bool,
    is_dead: bool,
}

// Its end is in a box of its own, so the largest takes nothing from the other.
#[allow(clippy::large_enum_variant)]
enum SenderMachine {
    Tcp(tcp::Sender),
    /// And how many packets it is to deliver.
    Dccp(dccp::Sender, u64),
}

pub(super) struct ReceiverEnd {
    machine: ReceiverMachine,
    way: WayId,
    bytes: u32,
    /// How many packets it waits for, of which it has counted those that arrived.
    packets: u64,
    done: Option<Time>,
    answer: Option<Message>,
}

enum ReceiverMachine {
    Tcp(tcp::Receiver),
    Dccp(dccp::Receiver),
}

/// Plays tasks over flows.
pub(super) fn play(setting: &Setting, tasks: &[Task], seed: u64) -> Result<Instance, TasksError> {
    let mut roads = Roads::new(setting, &setting.marking(), seed)?;
    let (mut ends, mut script) = (Vec::new(), Script::default());
    // Which receivers a task has, by the first and their number.
    let mut flows: Vec<(usize, usize)> = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let sources = sources(setting, task);
        flows.push((ends.len(), sources.len()));
        // A request takes as long as the controller's order to a source and the request to the controller.
        let start = task.at + setting.control_delay * 2;
        for (index, source) in sources.iter().enumerate() {
            let [sender, receiver] = [0, 1].map(|it| EndpointId(ends.len() as u32 + it));
            let lane = roads.lane((*source, sender), (task.device, receiver));
            let share = share(task.packets, index as u64, sources.len() as u64);
            ends.push(End::Sender(Box::new(SenderEnd::new(
                setting, &lane, share,
            )?)));
            ends.push(End::Receiver(Box::new(ReceiverEnd::new(
                setting, &lane, share,
            ))));
            script.starts.push((start, sender, number));
            script.watched.push((receiver, number));
            let deaths = setting.deaths.iter().filter(|(_, host)| host == source);
            script.deaths.extend(deaths.map(|(at, _)| (*at, sender)));
        }
    }
    let mut world = roads.world(ends);
    script.play(&mut world, setting.give_up_after);
    let told = told(tasks, &flows, world.endpoints());
    setting.report(&world, tasks, told, seed)
}

/// Who sends: an object of fewer packets than sources has fewer sources.
fn sources<'a>(setting: &Setting, task: &'a Task) -> &'a [NodeId] {
    let most = task.packets.min(setting.fanout.into()) as usize;
    &task.holders[..most.min(task.holders.len())]
}

/// How many of so many packets the flow of this number sends.
fn share(packets: u64, index: u64, flows: u64) -> u64 {
    packets * (index + 1) / flows - packets * index / flows
}

fn told(tasks: &[Task], flows: &[(usize, usize)], ends: &[End]) -> Ends {
    let mut told = Ends::default();
    for (task, (first, count)) in tasks.iter().zip(flows) {
        let of_it = ends[*first..*first + 2 * count].iter();
        let receivers = of_it.filter_map(|end| match end {
            End::Receiver(end) => Some(end),
            End::Sender(_) => None,
        });
        let mut done = Ok(Time::ZERO);
        for receiver in receivers {
            let got = receiver.received().min(receiver.packets);
            told.shares.push(got as f64 / task.packets as f64);
            done = match receiver.done {
                Some(at) => done.map(|done: Time| done.max(at)),
                None => done.and_then(|_| {
                    Err(format!(
                        "a source has delivered {got} of {} packets of its share",
                        receiver.packets
                    ))
                }),
            };
        }
        told.done.push(done);
    }
    told
}

impl SenderEnd {
    fn new(setting: &Setting, lane: &Lane, packets: u64) -> Result<Self, TasksError> {
        let control = algorithm(setting).build()?;
        Ok(Self {
            machine: SenderMachine::new(setting, control, packets),
            way: lane.data,
            bytes: setting.packet_bytes,
            is_markable: setting.scheme == Scheme::Dctcp,
            has_begun: false,
            is_dead: false,
        })
    }
}

impl SenderMachine {
    fn new(setting: &Setting, control: Box<dyn CongestionControl>, packets: u64) -> Self {
        let rto = setting.rto();
        match setting.scheme {
            // It never repeats anything, so what it has to send is not known before.
            Scheme::Dccp => Self::Dccp(dccp::Sender::new(control, None, rto), packets),
            _ => Self::Tcp(tcp::Sender::new(control, Some(packets), rto)),
        }
    }
}

fn algorithm(setting: &Setting) -> Algorithm {
    let or = |usual: f64| setting.initial_window.unwrap_or(usual);
    match setting.scheme {
        Scheme::Dccp => Algorithm::Dccp(DccpOptions {
            initial_window: or(DccpOptions::default().initial_window),
            ..DccpOptions::default()
        }),
        Scheme::Reno => Algorithm::Reno(RenoOptions {
            initial_window: or(RenoOptions::default().initial_window),
        }),
        _ => Algorithm::Dctcp(DctcpOptions {
            initial_window: or(DctcpOptions::default().initial_window),
            ..DctcpOptions::default()
        }),
    }
}

impl ReceiverEnd {
    fn new(setting: &Setting, lane: &Lane, packets: u64) -> Self {
        Self {
            machine: match setting.scheme {
                Scheme::Dccp => ReceiverMachine::Dccp(dccp::Receiver::default()),
                _ => ReceiverMachine::Tcp(tcp::Receiver::default()),
            },
            way: lane.acks,
            bytes: setting.ack_bytes,
            packets,
            done: None,
            answer: None,
        }
    }

    fn received(&self) -> u64 {
        match &self.machine {
            ReceiverMachine::Tcp(receiver) => receiver.received(),
            ReceiverMachine::Dccp(receiver) => receiver.received(),
        }
    }
}

impl TaskEnd for End {
    fn start(&mut self, _: usize, _: Time) {
        if let Self::Sender(end) = self {
            end.has_begun = true;
        }
    }

    fn die(&mut self) {
        if let Self::Sender(end) = self {
            end.is_dead = true;
        }
    }

    fn is_over(&self, _: usize) -> bool {
        match self {
            Self::Sender(_) => true,
            Self::Receiver(end) => end.done.is_some(),
        }
    }

    fn timeouts(&self) -> u64 {
        match self {
            Self::Sender(end) => match &end.machine {
                SenderMachine::Tcp(sender) => sender.counts().timeouts,
                SenderMachine::Dccp(sender, _) => sender.counts().timeouts,
            },
            Self::Receiver(_) => 0,
        }
    }
}

impl Endpoint for End {
    type Message = Message;

    fn handle_packet(&mut self, now: Time, packet: Incoming<Message>) {
        match self {
            Self::Sender(end) if end.is_dead => {}
            Self::Sender(end) => match (&mut end.machine, &packet.message) {
                (SenderMachine::Tcp(sender), Message::TcpAck(ack)) => sender.handle_ack(now, ack),
                (SenderMachine::Dccp(sender, _), Message::DccpAck(ack)) => {
                    sender.handle_ack(now, ack);
                }
                _ => debug_assert!(false, "a packet went astray"),
            },
            Self::Receiver(end) => {
                end.answer = match (&mut end.machine, &packet.message) {
                    (ReceiverMachine::Tcp(receiver), Message::Segment(segment)) => {
                        let ack = receiver.handle_segment(*segment, packet.is_marked);
                        Some(Message::TcpAck(ack))
                    }
                    (ReceiverMachine::Dccp(receiver), Message::Dccp(data)) => {
                        let ack = receiver.handle_data(now, *data, packet.is_marked);
                        ack.map(Message::DccpAck)
                    }
                    _ => {
                        debug_assert!(false, "a packet went astray");
                        None
                    }
                };
                if end.done.is_none() && end.received() >= end.packets {
                    end.done = Some(now);
                }
            }
        }
    }

    fn handle_wake(&mut self, now: Time) {
        match self {
            Self::Sender(end) => match &mut end.machine {
                SenderMachine::Tcp(sender) => sender.handle_wake(now),
                SenderMachine::Dccp(sender, _) => sender.handle_wake(now),
            },
            Self::Receiver(end) => {
                if let ReceiverMachine::Dccp(receiver) = &mut end.machine {
                    end.answer = receiver.handle_wake(now).map(Message::DccpAck);
                }
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Self::Sender(end) if end.is_dead || !end.has_begun => None,
            Self::Sender(end) => match &end.machine {
                SenderMachine::Tcp(sender) => sender.wake_at(),
                SenderMachine::Dccp(sender, _) => sender.wake_at(),
            },
            Self::Receiver(end) => match &end.machine {
                ReceiverMachine::Tcp(_) => None,
                ReceiverMachine::Dccp(receiver) => receiver.wake_at(),
            },
        }
    }

    fn poll_send(&mut self, now: Time) -> Option<Outgoing<Message>> {
        let (way, bytes, is_markable, message) = match self {
            Self::Sender(end) => {
                if end.is_dead || !end.has_begun {
                    return None;
                }
                let message = match &mut end.machine {
                    SenderMachine::Tcp(sender) => Message::Segment(sender.poll_send(now)?),
                    SenderMachine::Dccp(sender, packets) => {
                        let counts = sender.counts();
                        // What is lost is made up for by further packets.
                        if counts.sent - counts.lost >= *packets {
                            return None;
                        }
                        Message::Dccp(sender.poll_send(now)?)
                    }
                };
                (end.way, end.bytes, end.is_markable, message)
            }
            // Acknowledgements are not ECN-capable (RFC 3168 §6.1.4).
            Self::Receiver(end) => (end.way, end.bytes, false, end.answer.take()?),
        };
        Some(Outgoing {
            way,
            bytes,
            class: 0,
            is_markable,
            trimmed_bytes: 0,
            message,
        })
    }
}
