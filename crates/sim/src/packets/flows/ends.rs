//! The machines of flows under one name each, with what is measured at them.

use std::time::Duration;

use outpour_congestion::{
    Algorithm, CongestionControl, CubicOptions, DccpOptions, DctcpOptions, RenoOptions, WfccOptions,
};
use outpour_core::Time;
use outpour_push as push;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Flow, FlowsError, Scheme};
use crate::packets::{Endpoint, Incoming, Outgoing, RtoBounds, WayId, dccp, tcp};

/// A flow of Parallel Push without an end has so many symbols: more than are ever sent.
const SYMBOLS_WITHOUT_END: u64 = 1 << 40;
/// How many of them a block has.
const BLOCK_SYMBOLS: u64 = 1024;
/// Longer than any run.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// What the ends of a flow have to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Which flow it is, from 0.
    pub(super) flow: usize,
    pub(super) data: WayId,
    pub(super) acks: WayId,
    pub(super) packet_bytes: u32,
    pub(super) ack_bytes: u32,
    pub(super) seed: u64,
    pub(super) jitter: Duration,
}

/// What packets say.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// Data of a flow of the TCP family.
    Segment(tcp::Segment),
    /// The answer.
    TcpAck(tcp::Ack),
    /// Data of DCCP.
    Dccp(dccp::Data),
    /// The answer.
    DccpAck(dccp::Ack),
    /// Data of Parallel Push.
    Push(push::Data),
    /// The answer.
    PushAck(push::Ack),
    /// One end of Parallel Push has nothing left to do for the other.
    PushFin(push::FlowId),
    /// The answer.
    PushFinAck(push::FlowId),
}

/// One end of a flow.
#[derive(Debug)]
pub(super) enum End {
    /// It sends data.
    Sender(Box<SenderEnd>),
    /// It receives data.
    Receiver(Box<ReceiverEnd>),
}

/// The sending end of a flow.
#[derive(Debug)]
pub(super) struct SenderEnd {
    machine: SenderMachine,
    way: WayId,
    /// Of a packet with data, and of one without.
    bytes: u32,
    control_bytes: u32,
    /// Whether the flow has started and not been stopped.
    is_on: bool,
    /// When all was sent and acknowledged, or the machine gave up.
    done: Option<Time>,
    meter: Meter,
    /// After an acknowledgement it takes so long at most before something is sent, in nanoseconds; drawn.
    jitter: u64,
    dice: Pcg64Mcg,
    /// When that is over.
    held: Option<Time>,
}

// Its end is in a box of its own, so the largest takes nothing from the others.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum SenderMachine {
    Tcp(tcp::Sender),
    Dccp(dccp::Sender),
    Push(push::Sender),
}

/// The receiving end of a flow.
#[derive(Debug)]
pub(super) struct ReceiverEnd {
    machine: ReceiverMachine,
    way: WayId,
    bytes: u32,
    /// What to answer.
    answer: Option<Message>,
}

// Its end is in a box of its own, so the largest takes nothing from the others.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum ReceiverMachine {
    Tcp(tcp::Receiver),
    Dccp(dccp::Receiver),
    Push(push::Receiver),
}

/// Window and running average of marks, added up over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    since: Time,
    window: f64,
    alpha: f64,
    /// Packets times seconds, and seconds.
    pub(super) window_s: f64,
    pub(super) alpha_s: f64,
}

impl Meter {
    /// Adds up what was until now; from now on it is this.
    fn note(&mut self, now: Time, window: f64, alpha: f64) {
        let passed_s = (now.0 - self.since.0) as f64 / 1e9;
        self.window_s += self.window * passed_s;
        self.alpha_s += self.alpha * passed_s;
        (self.since, self.window, self.alpha) = (now, window, alpha);
    }
}

/// How a sender is at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SenderState {
    pub(super) window: f64,
    pub(super) alpha: f64,
    pub(super) rtt: Option<Duration>,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) timeouts: u64,
}

impl SenderEnd {
    pub(super) fn new(flow: &Flow, plan: &Plan) -> Result<Self, FlowsError> {
        Ok(Self {
            machine: SenderMachine::new(flow, plan)?,
            way: plan.data,
            bytes: plan.packet_bytes,
            control_bytes: plan.ack_bytes,
            is_on: false,
            done: None,
            meter: Meter::default(),
            jitter: plan.jitter.as_nanos() as u64,
            dice: Pcg64Mcg::seed_from_u64(plan.seed),
            held: None,
        })
    }

    /// Starts or stops the flow.
    pub(super) fn set_on(&mut self, now: Time, is_on: bool) {
        self.note(now);
        self.is_on = is_on;
        self.note(now);
    }

    pub(super) fn set_theta(&mut self, theta: f64) -> Result<(), FlowsError> {
        match &mut self.machine {
            SenderMachine::Tcp(sender) => Ok(sender.set_theta(theta)?),
            SenderMachine::Dccp(_) => Ok(()),
            SenderMachine::Push(sender) => Ok(sender.set_theta(theta)?),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn done(&self) -> Option<Time> {
        self.done
    }

    /// What was added up until now.
    pub(super) fn meter(&self, now: Time) -> Meter {
        let mut meter = self.meter;
        meter.note(now, 0.0, 0.0);
        meter
    }

    pub(super) fn state(&self) -> SenderState {
        let control = self.machine.control();
        let (rtt, sent, lost, timeouts) = match &self.machine {
            SenderMachine::Tcp(sender) => {
                let counts = sender.counts();
                (sender.rtt(), counts.sent, counts.lost, counts.timeouts)
            }
            SenderMachine::Dccp(sender) => {
                let counts = sender.counts();
                (sender.rtt(), counts.sent, counts.lost, counts.timeouts)
            }
            SenderMachine::Push(sender) => {
                let progress = sender.progress();
                let counts = progress.counts;
                (progress.rtt, counts.sent, counts.lost, counts.timeouts)
            }
        };
        SenderState {
            window: control.window(),
            alpha: control.alpha().unwrap_or(0.0),
            rtt,
            sent,
            lost,
            timeouts,
        }
    }

    /// Notes what has changed.
    fn note(&mut self, now: Time) {
        if self.is_on && self.machine.is_done() {
            self.is_on = false;
            self.done = Some(now);
        }
        let control = self.machine.control();
        let (window, alpha) = match self.is_on {
            true => (control.window(), control.alpha().unwrap_or(0.0)),
            false => (0.0, 0.0),
        };
        self.meter.note(now, window, alpha);
    }

    fn handle(&mut self, now: Time, message: &Message) {
        if !self.is_on && self.done.is_none() {
            return;
        }
        match (&mut self.machine, message) {
            (SenderMachine::Tcp(sender), Message::TcpAck(ack)) => sender.handle_ack(now, ack),
            (SenderMachine::Dccp(sender), Message::DccpAck(ack)) => sender.handle_ack(now, ack),
            (SenderMachine::Push(sender), Message::PushAck(ack)) => sender.handle_ack(now, ack),
            (SenderMachine::Push(sender), Message::PushFin(_)) => sender.handle_fin(),
            (SenderMachine::Push(sender), Message::PushFinAck(_)) => sender.handle_fin_ack(),
            _ => debug_assert!(false, "a packet went astray"),
        }
        if self.jitter > 0 && self.held.is_none() {
            let drawn = self.dice.next_u64() % (self.jitter + 1);
            self.held = Some(now + Duration::from_nanos(drawn));
        }
        self.note(now);
    }

    fn wake(&mut self, now: Time) {
        self.held = self.held.filter(|at| *at > now);
        match &mut self.machine {
            SenderMachine::Tcp(sender) => sender.handle_wake(now),
            SenderMachine::Dccp(sender) => sender.handle_wake(now),
            SenderMachine::Push(sender) => sender.handle_wake(now),
        }
        self.note(now);
    }

    fn wake_at(&self) -> Option<Time> {
        // Whoever is held can send nothing before: its machine would want to be woken again at once.
        if self.is_on && self.held.is_some() {
            return self.held;
        }
        match &self.machine {
            _ if !self.is_on => self.held,
            SenderMachine::Tcp(sender) => sender.wake_at(),
            SenderMachine::Dccp(sender) => sender.wake_at(),
            SenderMachine::Push(sender) => sender.wake_at(),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        if self.held.is_some() {
            return None;
        }
        // Who is done may owe the other end a word on that.
        if !self.is_on && self.done.is_none() {
            return None;
        }
        let message = match &mut self.machine {
            SenderMachine::Tcp(sender) => Message::Segment(sender.poll_send(now)?),
            SenderMachine::Dccp(sender) => Message::Dccp(sender.poll_send(now)?),
            SenderMachine::Push(sender) => match sender.poll_send(now)? {
                push::SenderOutput::Data(data) => Message::Push(data),
                push::SenderOutput::Fin(flow) => Message::PushFin(flow),
                push::SenderOutput::FinAck(flow) => Message::PushFinAck(flow),
            },
        };
        let is_data = !matches!(message, Message::PushFin(_) | Message::PushFinAck(_));
        Some(Outgoing {
            way: self.way,
            bytes: if is_data {
                self.bytes
            } else {
                self.control_bytes
            },
            class: 0,
            is_markable: is_data,
            trimmed_bytes: 0,
            message,
        })
    }
}

impl SenderMachine {
    fn new(flow: &Flow, plan: &Plan) -> Result<Self, FlowsError> {
        let algorithm = algorithm(flow);
        if flow.scheme == Scheme::Push {
            return Ok(Self::Push(push_sender(flow, plan, algorithm)?));
        }
        let rto = RtoBounds::standard(flow.rto_min.unwrap_or(tcp::RTO_MIN));
        let control = algorithm.build()?;
        Ok(match flow.scheme {
            Scheme::Dccp => Self::Dccp(dccp::Sender::new(control, flow.packets, rto)),
            _ => {
                let sender = tcp::Sender::new(control, flow.packets, rto);
                Self::Tcp(match flow.has_parts {
                    true => sender.with_parts(plan.seed),
                    false => sender,
                })
            }
        })
    }

    fn control(&self) -> &dyn CongestionControl {
        match self {
            Self::Tcp(sender) => sender.control(),
            Self::Dccp(sender) => sender.control(),
            Self::Push(sender) => sender.control(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Tcp(sender) => sender.is_done(),
            Self::Dccp(sender) => sender.is_done(),
            Self::Push(sender) => sender.end().is_some(),
        }
    }
}

/// The congestion control of a flow.
fn algorithm(flow: &Flow) -> Algorithm {
    let or = |usual: f64| flow.initial_window.unwrap_or(usual);
    match flow.scheme {
        Scheme::Push => {
            let usual = WfccOptions::default();
            Algorithm::Wfcc(WfccOptions {
                theta: flow.theta.first().map_or(usual.theta, |it| it.1),
                initial_window: or(usual.initial_window),
                g: flow.g.unwrap_or(usual.g),
                ..usual
            })
        }
        Scheme::Dctcp => {
            let usual = DctcpOptions::default();
            Algorithm::Dctcp(DctcpOptions {
                initial_window: or(usual.initial_window),
                g: flow.g.unwrap_or(usual.g),
                window_min: flow.window_min.unwrap_or(usual.window_min),
                grows_when_marked: flow.grows_when_marked,
                ..usual
            })
        }
        Scheme::Reno => Algorithm::Reno(RenoOptions {
            initial_window: or(RenoOptions::default().initial_window),
        }),
        Scheme::Cubic => {
            let usual = CubicOptions::default();
            Algorithm::Cubic(CubicOptions {
                initial_window: or(usual.initial_window),
                ..usual
            })
        }
        Scheme::Dccp => {
            let usual = DccpOptions::default();
            Algorithm::Dccp(DccpOptions {
                initial_window: or(usual.initial_window),
                ..usual
            })
        }
    }
}

/// The object that a flow of Parallel Push carries: one so large that it does not end, unless it is to.
fn layout(flow: &Flow) -> Result<push::Layout, push::Error> {
    let symbols = flow.packets.unwrap_or(SYMBOLS_WITHOUT_END);
    push::Layout::new(symbols, symbols.min(BLOCK_SYMBOLS) as u32)
}

fn push_id(plan: &Plan) -> push::FlowId {
    push::FlowId {
        task: push::TaskId(plan.flow as u64),
        seat: 0,
    }
}

fn push_sender(
    flow: &Flow,
    plan: &Plan,
    congestion: Algorithm,
) -> Result<push::Sender, push::Error> {
    let assignment = push::Assignment::Rateless {
        seats: 1,
        sources: 1,
    };
    let usual = push::SenderTimers::default();
    let rto_min = flow.rto_min.unwrap_or(usual.rto_min);
    push::Sender::new(&push::SenderOptions {
        congestion,
        timers: push::SenderTimers {
            rto_min,
            rto_initial: usual.rto_initial.max(rto_min),
            rto_max: usual.rto_max.max(rto_min),
            // Links may be down for a while here, and their flows are to go on after that.
            silence_max: NEVER,
            ..usual
        },
        seed: plan.seed,
        ..push::SenderOptions::new(push_id(plan), layout(flow)?, assignment)
    })
}

/// A receiver whose request was granted before the flow starts.
fn push_receiver(flow: &Flow, plan: &Plan) -> Result<push::Receiver, push::Error> {
    let options = push::ReceiverOptions {
        starved_after: NEVER,
        progress_interval: NEVER,
        ..push::ReceiverOptions::new("flow", push::DeviceId(plan.flow as u64))
    };
    let decoder = Box::new(push::ChanceDecoder::new(plan.seed));
    let mut receiver = push::Receiver::new(options, decoder, Time::ZERO)?;
    let accepted = push::Accepted {
        epoch: 0,
        task: push_id(plan).task,
        layout: layout(flow)?,
        seats: 1,
        sources: 1,
        is_coded: true,
    };
    receiver.handle_controller(Time::ZERO, &push::ToReceiver::Accepted(accepted));
    Ok(receiver)
}

impl ReceiverEnd {
    pub(super) fn new(flow: &Flow, plan: &Plan) -> Result<Self, FlowsError> {
        Ok(Self {
            machine: match flow.scheme {
                Scheme::Push => ReceiverMachine::Push(push_receiver(flow, plan)?),
                Scheme::Dccp => ReceiverMachine::Dccp(dccp::Receiver::default()),
                _ => ReceiverMachine::Tcp(tcp::Receiver::default()),
            },
            way: plan.acks,
            bytes: plan.ack_bytes,
            answer: None,
        })
    }

    /// How many different packets have arrived.
    pub(super) fn received(&self) -> u64 {
        match &self.machine {
            ReceiverMachine::Tcp(receiver) => receiver.received(),
            ReceiverMachine::Dccp(receiver) => receiver.received(),
            ReceiverMachine::Push(receiver) => {
                let counts = receiver.counts();
                counts.packets - counts.duplicates
            }
        }
    }

    fn handle(&mut self, now: Time, message: &Message, is_marked: bool) {
        debug_assert!(self.answer.is_none(), "an answer was not sent");
        self.answer = match (&mut self.machine, message) {
            (ReceiverMachine::Tcp(receiver), Message::Segment(segment)) => {
                let ack = receiver.handle_segment(*segment, is_marked);
                Some(Message::TcpAck(ack))
            }
            (ReceiverMachine::Dccp(receiver), Message::Dccp(data)) => {
                let ack = receiver.handle_data(now, *data, is_marked);
                ack.map(Message::DccpAck)
            }
            (ReceiverMachine::Push(receiver), Message::Push(data)) => {
                let ack = receiver.handle_data(now, data, is_marked, &[]);
                ack.map(Message::PushAck)
            }
            (ReceiverMachine::Push(receiver), Message::PushFin(flow)) => {
                receiver.handle_fin(*flow);
                None
            }
            (ReceiverMachine::Push(receiver), Message::PushFinAck(flow)) => {
                receiver.handle_fin_ack(*flow);
                None
            }
            _ => {
                debug_assert!(false, "a packet went astray");
                None
            }
        };
    }

    fn wake(&mut self, now: Time) {
        match &mut self.machine {
            ReceiverMachine::Tcp(_) => {}
            ReceiverMachine::Dccp(receiver) => {
                self.answer = receiver.handle_wake(now).map(Message::DccpAck);
            }
            ReceiverMachine::Push(receiver) => receiver.handle_wake(now),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match &self.machine {
            ReceiverMachine::Tcp(_) => None,
            ReceiverMachine::Dccp(receiver) => receiver.wake_at(),
            ReceiverMachine::Push(receiver) => receiver.wake_at(),
        }
    }

    /// What a receiver of Parallel Push has to say besides answers. It hears at once that the controller
    /// knows what it says to that.
    fn poll_push(&mut self, now: Time) -> Option<Message> {
        let ReceiverMachine::Push(receiver) = &mut self.machine else {
            return None;
        };
        loop {
            match receiver.poll_transmit(now)? {
                push::ReceiverOutput::Ack(ack) => return Some(Message::PushAck(ack)),
                push::ReceiverOutput::Fin(flow) => return Some(Message::PushFin(flow)),
                push::ReceiverOutput::FinAck(flow) => return Some(Message::PushFinAck(flow)),
                push::ReceiverOutput::Controller(push::ToController::Fin { task, .. }) => {
                    receiver.handle_controller(now, &push::ToReceiver::FinAck(task));
                }
                push::ReceiverOutput::Controller(_) => {}
            }
        }
    }

    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        let answer = self.answer.take();
        let message = answer.or_else(|| self.poll_push(now))?;
        Some(Outgoing {
            way: self.way,
            bytes: self.bytes,
            class: 0,
            // Acknowledgements are not ECN-capable (RFC 3168 §6.1.4).
            is_markable: false,
            trimmed_bytes: 0,
            message,
        })
    }
}

impl Endpoint for End {
    type Message = Message;

    fn handle_packet(&mut self, now: Time, packet: Incoming<Message>) {
        match self {
            Self::Sender(end) => end.handle(now, &packet.message),
            Self::Receiver(end) => end.handle(now, &packet.message, packet.is_marked),
        }
    }

    fn handle_wake(&mut self, now: Time) {
        match self {
            Self::Sender(end) => end.wake(now),
            Self::Receiver(end) => end.wake(now),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            Self::Sender(end) => end.wake_at(),
            Self::Receiver(end) => end.wake_at(),
        }
    }

    fn poll_send(&mut self, now: Time) -> Option<Outgoing<Message>> {
        match self {
            Self::Sender(end) => end.poll(now),
            Self::Receiver(end) => end.poll(now),
        }
    }
}
