//! All flows of one source, as the controller orders them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use outpour_congestion::{Algorithm, WfccOptions};
use outpour_core::Time;

use crate::{
    Ack, Data, DeviceId, Error, FlowEnd, FlowId, Layout, Order, OrderState, Sender, SenderOptions,
    SenderOutput, SenderTimers, SourceId, ToController, ToSource, URI_BYTES_MAX,
};

/// A source has at most so many flows at a time, with those whose end the controller does not know yet.
pub const FLOWS_MAX: usize = 4096;
/// A source has at most so many objects.
const OBJECTS_MAX: usize = 65_536;
/// When a source hears of a later controller, it tells of all its flows so many times, as messages may be lost.
const REPORTS: u32 = 3;
/// A source remembers so many flows that are over, so that an order that comes late does not revive one.
const OVER_MAX: usize = 4096;

/// What a [`Source`] is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceOptions {
    /// The source.
    pub source: SourceId,
    /// The controller hears of it every so often.
    pub heartbeat_interval: Duration,
    /// The end of a flow is told again after so long.
    pub end_interval: Duration,
    /// The end of a flow is told at most so often.
    pub end_tries: u32,
    /// How many packets of a flow may be in flight.
    pub congestion: Algorithm,
    /// How long flows wait for what.
    pub timers: SenderTimers,
    /// See [`SenderOptions::skip_every`].
    pub skip_every: u32,
    /// See [`SenderOptions::unanswered_max`].
    pub unanswered_max: u32,
    /// What the seeds of flows are made from.
    pub seed: u64,
    /// Which life of the source this is: higher each time that it is started, for instance the time of that. Orders
    /// for an earlier life are refused, and the controller gives up the flows of that once it hears of this one.
    pub incarnation: u64,
    /// The highest epoch of a controller that the source heard of before it was started, see [`Source::epoch`].
    pub epoch: u32,
}

impl SourceOptions {
    /// Those of a source, with the defaults for all else.
    pub fn new(source: SourceId) -> Self {
        Self {
            source,
            heartbeat_interval: Duration::from_millis(250),
            end_interval: Duration::from_millis(200),
            end_tries: 10,
            congestion: Algorithm::Wfcc(WfccOptions::default()),
            timers: SenderTimers::default(),
            skip_every: 200,
            unanswered_max: 512,
            seed: 0,
            incarnation: 0,
            epoch: 0,
        }
    }
}

/// What a [`Source`] wants sent.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceOutput {
    /// To the controller.
    Controller(ToController),
    /// A packet to this device; the driver adds the payload of the symbol.
    Data(DeviceId, Data),
    /// To this device: the flow has nothing left to do.
    Fin(DeviceId, FlowId),
    /// To this device: its FIN has arrived.
    FinAck(DeviceId, FlowId),
}

#[derive(Debug)]
struct Flow {
    sender: Sender,
    /// The latest order.
    order: Order,
    /// Whether it stands among those that may have something to send.
    is_ready: bool,
    /// When the flow has something to do, as far as the queue of times knows.
    queued: Option<Time>,
    /// How often its end was told, and when to do it again.
    told: Option<(u32, Time)>,
}

/// All flows of one source.
#[derive(Debug)]
pub struct Source {
    options: SourceOptions,
    objects: BTreeMap<String, Layout>,
    /// Names that are to be announced.
    unannounced: BTreeSet<String>,
    /// The name announced last.
    announced: Option<String>,
    flows: BTreeMap<FlowId, Flow>,
    /// Flows that may have something to send.
    ready: VecDeque<FlowId>,
    /// When flows have something to do, the next first.
    times: BTreeSet<(Time, FlowId)>,
    /// Orders carried out, and ends of flows that could not begin; answered once.
    replies: VecDeque<ToController>,
    over: VecDeque<(FlowId, FlowEnd)>,
    heartbeat_at: Time,
    /// The highest epoch that was heard of.
    epoch: u32,
    /// How many orders were refused because there is a later controller, or they are for another life.
    outdated: u64,
    /// Flows to tell the controller of, and how often to do that again, from when on.
    reporting: VecDeque<FlowId>,
    reports: u32,
    report_at: Time,
}

impl Source {
    /// A source without objects and flows.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: SourceOptions, now: Time) -> Result<Self, Error> {
        let beat = options.heartbeat_interval;
        let is_fine = !beat.is_zero();
        Error::check(
            "heartbeat_interval",
            beat.as_secs_f64(),
            is_fine,
            "a time above 0",
        )?;
        let end = options.end_interval;
        Error::check(
            "end_interval",
            end.as_secs_f64(),
            !end.is_zero(),
            "a time above 0",
        )?;
        options.congestion.build()?;
        let options_epoch = options.epoch;
        Ok(Self {
            options,
            objects: BTreeMap::new(),
            unannounced: BTreeSet::new(),
            announced: None,
            flows: BTreeMap::new(),
            ready: VecDeque::new(),
            times: BTreeSet::new(),
            replies: VecDeque::new(),
            over: VecDeque::new(),
            heartbeat_at: now,
            epoch: options_epoch,
            outdated: 0,
            reporting: VecDeque::new(),
            reports: 0,
            report_at: now,
        })
    }

    /// The source has an object.
    ///
    /// # Errors
    /// If its name is empty or longer than [`URI_BYTES_MAX`], or the source has 65536 objects already.
    pub fn hold(&mut self, uri: &str, layout: Layout) -> Result<(), Error> {
        let is_fine = (1..=URI_BYTES_MAX).contains(&uri.len());
        Error::check("uri", uri.len() as f64, is_fine, "1 to 1024 bytes")?;
        let count = self.objects.len();
        Error::check(
            "objects",
            count as f64,
            count < OBJECTS_MAX,
            "at most 65536",
        )?;
        self.objects.insert(uri.to_owned(), layout);
        self.unannounced.insert(uri.to_owned());
        Ok(())
    }

    /// The highest epoch of a controller that it has heard of. The driver keeps it across restarts.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How many orders were refused because they came from a controller that another has followed, or were for another
    /// life of the source.
    pub fn outdated(&self) -> u64 {
        self.outdated
    }

    /// The sender of a flow.
    pub fn sender(&self, flow: FlowId) -> Option<&Sender> {
        self.flows.get(&flow).map(|it| &it.sender)
    }

    /// All senders, also of flows whose end the controller does not know yet.
    pub fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.flows.values().map(|it| &it.sender)
    }

    /// The controller says something.
    pub fn handle_controller(&mut self, now: Time, message: &ToSource) {
        match message {
            ToSource::Order(order) if order.epoch < self.epoch => self.outdated += 1,
            ToSource::Order(order) => {
                self.hear_epoch(now, order.epoch);
                match order.incarnation == self.options.incarnation {
                    true => self.handle_order(now, order),
                    // The controller does without an answer: it drops the flow as soon as it hears of this life.
                    false => self.outdated += 1,
                }
            }
            ToSource::Epoch(epoch) if *epoch >= self.epoch => {
                self.epoch = *epoch;
                self.tell_flows(now);
            }
            ToSource::Epoch(_) => {}
            ToSource::EndAck(flow) => {
                if self.flows.get(flow).is_some_and(|it| it.told.is_some()) {
                    self.forget(*flow);
                }
            }
        }
    }

    /// A receiver acknowledges packets.
    pub fn handle_ack(&mut self, now: Time, ack: &Ack) {
        if let Some(flow) = self.flows.get_mut(&ack.flow) {
            flow.sender.handle_ack(now, ack);
            self.make_ready(ack.flow);
        }
    }

    /// The receiver of a flow has the object.
    pub fn handle_fin(&mut self, flow: FlowId) {
        if let Some(it) = self.flows.get_mut(&flow) {
            it.sender.handle_fin();
            self.make_ready(flow);
        }
    }

    /// The receiver of a flow knows that the flow is done.
    pub fn handle_fin_ack(&mut self, flow: FlowId) {
        if let Some(it) = self.flows.get_mut(&flow) {
            it.sender.handle_fin_ack();
            self.make_ready(flow);
        }
    }

    /// The time of [`Source::wake_at`] has come; does nothing before.
    pub fn handle_wake(&mut self, now: Time) {
        while let Some(&(at, flow)) = self.times.first()
            && at <= now
        {
            self.times.pop_first();
            debug_assert!(self.flows.get(&flow).is_none_or(|it| it.queued == Some(at)));
            if let Some(it) = self.flows.get_mut(&flow) {
                it.queued = None;
                it.sender.handle_wake(now);
                self.make_ready(flow);
            }
        }
    }

    /// When to call [`Source::handle_wake`] and [`Source::poll_transmit`] although nothing has arrived.
    pub fn wake_at(&self) -> Option<Time> {
        let first = self.times.first().map(|it| it.0);
        let report = (self.reports > 0).then_some(self.report_at);
        let others = first.into_iter().chain(report);
        Some(others.fold(self.heartbeat_at, Time::min))
    }

    /// What to send now; call it until it returns nothing.
    pub fn poll_transmit(&mut self, now: Time) -> Option<SourceOutput> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(SourceOutput::Controller(reply));
        }
        if let Some(message) = self.report(now).or_else(|| self.heartbeat(now)) {
            return Some(SourceOutput::Controller(message));
        }
        while let Some(&id) = self.ready.front() {
            if let Some(output) = self.poll_flow(id, now) {
                return Some(output);
            }
            self.ready.pop_front();
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.is_ready = false;
            }
            self.requeue(id);
        }
        None
    }

    fn make_ready(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id)
            && !flow.is_ready
        {
            flow.is_ready = true;
            self.ready.push_back(id);
        }
    }

    fn poll_flow(&mut self, id: FlowId, now: Time) -> Option<SourceOutput> {
        let flow = self.flows.get_mut(&id)?;
        if let Some(output) = flow.sender.poll_send(now) {
            return Some(match output {
                SenderOutput::Data(data) => SourceOutput::Data(flow.order.device, data),
                SenderOutput::Fin(id) => SourceOutput::Fin(flow.order.device, id),
                SenderOutput::FinAck(id) => SourceOutput::FinAck(flow.order.device, id),
            });
        }
        let end = flow.sender.end()?;
        let (tries, at) = flow.told.unwrap_or((0, now));
        if at > now {
            return None;
        }
        if tries >= self.options.end_tries {
            self.forget(id);
            return None;
        }
        debug_assert!(tries < self.options.end_tries);
        flow.told = Some((tries + 1, now + self.options.end_interval));
        let source = self.options.source;
        let ended = ToController::Ended {
            source,
            flow: id,
            end,
        };
        Some(SourceOutput::Controller(ended))
    }

    /// Notes when a flow has something to do next.
    fn requeue(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let at = flow.told.map(|it| it.1).or_else(|| flow.sender.wake_at());
        // Most timers are put off with every acknowledgement: looking again once, when the earlier time has
        // come, is cheaper than moving the flow in the queue each time.
        let is_put_off = flow.told.is_none() && flow.queued.is_some_and(|it| Some(it) <= at);
        if at == flow.queued || is_put_off {
            return;
        }
        if let Some(queued) = flow.queued.take() {
            self.times.remove(&(queued, id));
        }
        if let Some(at) = at {
            self.times.insert((at, id));
        }
        flow.queued = at;
        debug_assert!(self.times.len() <= self.flows.len());
    }

    /// Says that the source lives, by what it has.
    fn heartbeat(&mut self, now: Time) -> Option<ToController> {
        let uri = match self.unannounced.pop_first() {
            Some(uri) => Some(uri),
            None if self.heartbeat_at > now => return None,
            None => {
                // Announcements may be lost and controllers restart, so all are repeated in turn.
                let after = self.announced.take().unwrap_or_default();
                let mut later = self.objects.keys().filter(|it| **it > after);
                later.next().or_else(|| self.objects.keys().next()).cloned()
            }
        };
        self.heartbeat_at = now + self.options.heartbeat_interval;
        debug_assert!(self.heartbeat_at > now, "heartbeats without end");
        debug_assert!(self.unannounced.len() <= self.objects.len());
        let SourceOptions {
            source,
            incarnation,
            ..
        } = self.options;
        let Some(uri) = uri else {
            return Some(ToController::Heartbeat {
                source,
                epoch: self.epoch,
                incarnation,
            });
        };
        self.announced = Some(uri.clone());
        let layout = self.objects.get(&uri).copied()?;
        Some(ToController::Announce {
            source,
            uri,
            layout,
            epoch: self.epoch,
            incarnation,
        })
    }

    /// There is a controller of this epoch: one that is later than those before knows of no flow yet.
    fn hear_epoch(&mut self, now: Time, epoch: u32) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.tell_flows(now);
        }
    }

    /// Tells the controller of its flows, several times, as messages may be lost. Asked again meanwhile, it is
    /// no sooner done.
    fn tell_flows(&mut self, now: Time) {
        if self.reports == 0 {
            self.report_at = self.report_at.max(now);
        }
        self.reports = REPORTS;
    }

    /// Tells the controller of the next flow.
    fn report(&mut self, now: Time) -> Option<ToController> {
        if self.reports > 0 && self.report_at <= now {
            self.reports -= 1;
            self.report_at = now + self.options.heartbeat_interval;
            self.reporting = self.flows.keys().copied().collect();
        }
        debug_assert!(self.reporting.len() <= FLOWS_MAX);
        let source = self.options.source;
        while let Some(id) = self.reporting.pop_front() {
            // The end of a flow is told as such.
            if let Some(flow) = self.flows.get(&id).filter(|it| it.sender.end().is_none()) {
                let order = flow.order.clone();
                return Some(ToController::Flow { source, order });
            }
        }
        None
    }

    fn handle_order(&mut self, now: Time, order: &Order) {
        let id = order.flow;
        if !self.flows.contains_key(&id) {
            // A controller that lost its memory may give a seat anew whose packets were all lost. Told that the order was
            // obeyed, it would wait for a flow that never sends.
            if let Some(end) = self.end_of(id)
                && order.state != OrderState::Stop
            {
                let source = self.options.source;
                return self.reply(ToController::Ended {
                    source,
                    flow: id,
                    end,
                });
            }
            if order.state == OrderState::Stop {
                return self.reply(ToController::Obeyed {
                    flow: id,
                    serial: order.serial,
                });
            }
            let Some(sender) = self.begin(order) else {
                return self.reply(ToController::Ended {
                    source: self.options.source,
                    flow: id,
                    end: FlowEnd::Refused,
                });
            };
            self.flows.insert(
                id,
                Flow {
                    sender,
                    order: Order {
                        serial: 0,
                        ..order.clone()
                    },
                    is_ready: false,
                    queued: None,
                    told: None,
                },
            );
        }
        if let Some(flow) = self.flows.get_mut(&id)
            && order.serial >= flow.order.serial
        {
            let theta = if order.theta.is_finite() {
                order.theta
            } else {
                flow.order.theta
            };
            flow.order.serial = order.serial;
            flow.order.state = order.state;
            flow.order.theta = theta;
            debug_assert_eq!(flow.sender.flow(), id, "a sender of another flow");
            // A weight that is none is no order; the flow keeps the one it has.
            let _ = flow.sender.set_theta(order.theta);
            match order.state {
                OrderState::Push => flow.sender.set_paused(now, false),
                OrderState::Pause => flow.sender.set_paused(now, true),
                OrderState::Stop => flow.sender.stop(),
            }
            self.make_ready(id);
        }
        self.reply(ToController::Obeyed {
            flow: id,
            serial: order.serial,
        });
    }

    /// The sender of a new flow, if there can be one.
    fn begin(&self, order: &Order) -> Option<Sender> {
        let is_held = self.objects.get(&order.uri) == Some(&order.layout);
        if !is_held || self.flows.len() >= FLOWS_MAX {
            return None;
        }
        debug_assert!(self.end_of(order.flow).is_none(), "a flow came back");
        let seed =
            self.options.seed ^ order.flow.task.0.rotate_left(32) ^ u64::from(order.flow.seat);
        Sender::new(&SenderOptions {
            flow: order.flow,
            layout: order.layout,
            assignment: order.assignment,
            congestion: self.options.congestion,
            timers: self.options.timers,
            skip_every: self.options.skip_every,
            unanswered_max: self.options.unanswered_max,
            seed,
        })
        .ok()
    }

    /// Replies are repeated when the controller repeats itself, so one that finds no room may be dropped.
    fn reply(&mut self, message: ToController) {
        if self.replies.len() < FLOWS_MAX {
            self.replies.push_back(message);
        }
        debug_assert!(self.replies.len() <= FLOWS_MAX);
    }

    /// Why a flow was over, if it was lately.
    fn end_of(&self, id: FlowId) -> Option<FlowEnd> {
        self.over.iter().rev().find(|it| it.0 == id).map(|it| it.1)
    }

    fn forget(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.remove(&id) {
            let end = flow.sender.end();
            debug_assert!(end.is_some(), "a flow that goes on was forgotten");
            if let Some(at) = flow.queued {
                self.times.remove(&(at, id));
            }
            if self.over.len() == OVER_MAX {
                self.over.pop_front();
            }
            debug_assert!(self.end_of(id).is_none(), "a flow was over twice");
            self.over.push_back((id, end.unwrap_or(FlowEnd::Stopped)));
            debug_assert!(self.over.len() <= OVER_MAX);
        }
    }
}

#[cfg(test)]
mod tests;
