//! The machines of flows under one name each, with what is measured at them.

use std::time::Duration;

use outpour_congestion::{
    Algorithm, CongestionControl, CubicOptions, DccpOptions, DctcpOptions, RenoOptions,
};
use outpour_core::Time;

use super::{Flow, FlowsError, Scheme};
use crate::packets::{Endpoint, Incoming, Outgoing, WayId, dccp, tcp};

/// What packets say.
#[derive(Clone, Debug)]
pub enum Message {
    /// Data of a flow of the TCP family.
    Segment(tcp::Segment),
    /// The answer.
    TcpAck(tcp::Ack),
    /// Data of DCCP.
    Dccp(dccp::Data),
    /// The answer.
    DccpAck(dccp::Ack),
}

/// One end of a flow.
#[derive(Debug)]
pub enum End {
    /// It sends data.
    Sender(Box<SenderEnd>),
    /// It receives data.
    Receiver(Box<ReceiverEnd>),
}

/// The sending end of a flow.
#[derive(Debug)]
pub struct SenderEnd {
    machine: SenderMachine,
    way: WayId,
    bytes: u32,
    /// Whether the flow has started and not been stopped.
    is_on: bool,
    /// When all was sent and acknowledged, or the machine gave up.
    done: Option<Time>,
    meter: Meter,
}

#[derive(Debug)]
enum SenderMachine {
    Tcp(tcp::Sender),
    Dccp(dccp::Sender),
}

/// The receiving end of a flow.
#[derive(Debug)]
pub struct ReceiverEnd {
    machine: ReceiverMachine,
    way: WayId,
    bytes: u32,
    /// What to answer.
    answer: Option<Message>,
}

#[derive(Debug)]
enum ReceiverMachine {
    Tcp(tcp::Receiver),
    Dccp(dccp::Receiver),
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
    pub(super) fn new(flow: &Flow, way: WayId, bytes: u32) -> Result<Self, FlowsError> {
        Ok(Self {
            machine: SenderMachine::new(flow)?,
            way,
            bytes,
            is_on: false,
            done: None,
            meter: Meter::default(),
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
        }
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
        if !self.is_on {
            return;
        }
        match (&mut self.machine, message) {
            (SenderMachine::Tcp(sender), Message::TcpAck(ack)) => sender.handle_ack(now, ack),
            (SenderMachine::Dccp(sender), Message::DccpAck(ack)) => sender.handle_ack(now, ack),
            _ => debug_assert!(false, "a packet went astray"),
        }
        self.note(now);
    }

    fn wake(&mut self, now: Time) {
        match &mut self.machine {
            SenderMachine::Tcp(sender) => sender.handle_wake(now),
            SenderMachine::Dccp(sender) => sender.handle_wake(now),
        }
        self.note(now);
    }

    fn wake_at(&self) -> Option<Time> {
        match &self.machine {
            _ if !self.is_on => None,
            SenderMachine::Tcp(sender) => sender.wake_at(),
            SenderMachine::Dccp(sender) => sender.wake_at(),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Outgoing<Message>> {
        if !self.is_on {
            return None;
        }
        let message = match &mut self.machine {
            SenderMachine::Tcp(sender) => Message::Segment(sender.poll_send(now)?),
            SenderMachine::Dccp(sender) => Message::Dccp(sender.poll_send(now)?),
        };
        Some(Outgoing {
            way: self.way,
            bytes: self.bytes,
            class: 0,
            is_markable: true,
            message,
        })
    }
}

impl SenderMachine {
    fn new(flow: &Flow) -> Result<Self, FlowsError> {
        let min = flow.rto_min.unwrap_or(tcp::RTO_MIN);
        let control = algorithm(flow).build()?;
        Ok(match flow.scheme {
            Scheme::Dccp => Self::Dccp(dccp::Sender::new(control, flow.packets, min)),
            _ => Self::Tcp(tcp::Sender::new(control, flow.packets, min)),
        })
    }

    fn control(&self) -> &dyn CongestionControl {
        match self {
            Self::Tcp(sender) => sender.control(),
            Self::Dccp(sender) => sender.control(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Tcp(sender) => sender.is_done(),
            Self::Dccp(sender) => sender.is_done(),
        }
    }
}

/// The congestion control of a flow.
fn algorithm(flow: &Flow) -> Algorithm {
    let or = |usual: f64| flow.initial_window.unwrap_or(usual);
    match flow.scheme {
        Scheme::Dctcp => {
            let usual = DctcpOptions::default();
            Algorithm::Dctcp(DctcpOptions {
                initial_window: or(usual.initial_window),
                g: flow.g.unwrap_or(usual.g),
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

impl ReceiverEnd {
    pub(super) fn new(flow: &Flow, way: WayId, bytes: u32) -> Self {
        Self {
            machine: match flow.scheme {
                Scheme::Dccp => ReceiverMachine::Dccp(dccp::Receiver::default()),
                _ => ReceiverMachine::Tcp(tcp::Receiver::default()),
            },
            way,
            bytes,
            answer: None,
        }
    }

    /// How many different packets have arrived.
    pub(super) fn received(&self) -> u64 {
        match &self.machine {
            ReceiverMachine::Tcp(receiver) => receiver.received(),
            ReceiverMachine::Dccp(receiver) => receiver.received(),
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
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match &self.machine {
            ReceiverMachine::Tcp(_) => None,
            ReceiverMachine::Dccp(receiver) => receiver.wake_at(),
        }
    }

    fn poll(&mut self) -> Option<Outgoing<Message>> {
        let message = self.answer.take()?;
        Some(Outgoing {
            way: self.way,
            bytes: self.bytes,
            class: 0,
            // Acknowledgements are not ECN-capable (RFC 3168 §6.1.4).
            is_markable: false,
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
            Self::Receiver(end) => end.poll(),
        }
    }
}
