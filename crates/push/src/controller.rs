//! The manager of sources and tasks.

mod adopt;
mod registry;
mod task;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use outpour_core::Time;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use self::registry::{Met, Registry};
pub use self::task::TaskView;
use self::task::{Flow, Task};
use crate::theta::{self, Demand};
use crate::{
    Accepted, DeviceId, Error, FlowEnd, FlowId, Layout, LinkId, OrderState, Progress, Refusal,
    SEATS_MAX, SourceId, TaskId, ToController, ToReceiver, ToSource, URI_BYTES_MAX,
};

/// Tasks that are over are remembered, the latest so many, so that their receivers get an answer.
const OVER_MAX: usize = 4096;
/// So many answers wait for the driver; who asks and gets none asks again.
const OUTBOX_MAX: usize = 4096;
/// A controller knows at most so many paths and links.
const PATHS_MAX: usize = 1 << 20;
/// A change of a weight by less than this share is not worth an order.
const THETA_STEP: f64 = 1e-3;

/// How sources divide an object among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Each sends as many coded symbols as it can, until the receiver has enough.
    Rateless,
    /// Each has an equal share of the source symbols, for comparison.
    Equal,
}

/// Where the weights of flows come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThetaPolicy {
    /// All have the same.
    Fixed(f64),
    /// The smallest task has the most, see [`theta::assign`].
    Smallest {
        /// What flows without priority get.
        theta_min: f64,
        /// What a link carries in sum if nothing else is said of it, see [`theta::theta_max`].
        theta_max: f64,
    },
}

/// What a [`Controller`] goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerOptions {
    /// How many sources push for one task: more add little beyond 3, and bursts [PPUSH §V-B].
    pub fanout: u32,
    /// How many flows a task may have in its life, sources that begin again counted again.
    pub seats: u32,
    /// How sources divide an object.
    pub split: Split,
    /// Where weights come from.
    pub theta: ThetaPolicy,
    /// Weights are computed anew, and silence is noticed, every so often.
    pub period: Duration,
    /// The flows of a receiver that is silent for so long are paused.
    pub receiver_silence: Duration,
    /// A task whose receiver is silent for so long, or that has no source for so long, has failed.
    pub give_up_after: Duration,
    /// A source that is silent for so long is dead.
    pub source_silence: Duration,
    /// An order is repeated after so long.
    pub order_interval: Duration,
    /// A source that does not obey so many repetitions is dropped from the task.
    pub order_tries: u32,
    /// So many tasks at a time.
    pub tasks_max: usize,
    /// So many sources.
    pub sources_max: usize,
    /// So many objects.
    pub objects_max: usize,
    /// What sources are picked from.
    pub seed: u64,
    /// Of controllers that follow each other, whether by failure or by restart, each has a higher epoch than
    /// all before: it comes from where only one can get it. Sources refuse orders of earlier ones.
    pub epoch: u32,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            fanout: 3,
            seats: SEATS_MAX,
            split: Split::Rateless,
            theta: ThetaPolicy::Smallest {
                theta_min: theta::THETA_MIN,
                theta_max: 50.0,
            },
            period: Duration::from_millis(100),
            receiver_silence: Duration::from_secs(1),
            give_up_after: Duration::from_secs(30),
            source_silence: Duration::from_secs(1),
            order_interval: Duration::from_millis(100),
            order_tries: 20,
            tasks_max: 4096,
            sources_max: 4096,
            objects_max: 65_536,
            seed: 0,
            epoch: 0,
        }
    }
}

impl ControllerOptions {
    fn check(&self) -> Result<(), Error> {
        let is_fine = (1..=SEATS_MAX).contains(&self.seats);
        Error::check("seats", self.seats.into(), is_fine, "1 to 256")?;
        let is_fine = (1..=self.seats).contains(&self.fanout);
        Error::check(
            "fanout",
            self.fanout.into(),
            is_fine,
            "1 to the number of seats",
        )?;
        let (low, high) = match self.theta {
            ThetaPolicy::Fixed(theta) => (theta, theta),
            ThetaPolicy::Smallest {
                theta_min,
                theta_max,
            } => (theta_min, theta_max),
        };
        for theta in [low, high] {
            let is_fine = theta > 0.0 && theta.is_finite();
            Error::check("theta", theta, is_fine, "a finite number above 0")?;
        }
        for (field, it) in [
            ("period", self.period),
            ("receiver_silence", self.receiver_silence),
            ("give_up_after", self.give_up_after),
            ("source_silence", self.source_silence),
            ("order_interval", self.order_interval),
        ] {
            Error::check(field, it.as_secs_f64(), !it.is_zero(), "a time above 0")?;
        }
        Ok(())
    }
}

/// What a [`Controller`] wants sent.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerOutput {
    /// To a device.
    Receiver(DeviceId, ToReceiver),
    /// To a source.
    Source(SourceId, ToSource),
}

/// Why a task is over at the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// The receiver has the object.
    Completed,
    /// The receiver was silent for too long.
    Silent,
    /// The receiver lied to a source.
    Lied,
    /// There was no source for too long, or all seats are used up.
    NoSource,
    /// A source ran out of symbols, or a share cannot be delivered.
    Undeliverable,
}

/// The manager of sources and tasks: it knows who has what, decides who pushes, and how much each flow
/// weighs [PPUSH §III-A, §III-C].
#[derive(Debug)]
pub struct Controller {
    options: ControllerOptions,
    registry: Registry,
    tasks: BTreeMap<TaskId, Task>,
    asked: BTreeMap<(DeviceId, String), TaskId>,
    over: VecDeque<(TaskId, DeviceId, TaskEnd)>,
    flows: BTreeMap<FlowId, Flow>,
    /// Orders to send, the next first.
    due: BTreeSet<(Time, FlowId)>,
    outbox: VecDeque<ControllerOutput>,
    paths: BTreeMap<(SourceId, DeviceId), Vec<LinkId>>,
    link_limits: BTreeMap<LinkId, f64>,
    next_task: u64,
    /// The highest epoch that a source has heard of.
    heard_epoch: u32,
    sweep_at: Time,
    random: Pcg64Mcg,
}

impl Controller {
    /// A controller that knows of nobody.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(options: ControllerOptions, now: Time) -> Result<Self, Error> {
        options.check()?;
        Ok(Self {
            registry: Registry::new(options.sources_max, options.objects_max),
            tasks: BTreeMap::new(),
            asked: BTreeMap::new(),
            over: VecDeque::new(),
            flows: BTreeMap::new(),
            due: BTreeSet::new(),
            outbox: VecDeque::new(),
            paths: BTreeMap::new(),
            link_limits: BTreeMap::new(),
            next_task: (u64::from(options.epoch) << 32) + 1,
            heard_epoch: options.epoch,
            sweep_at: now + options.period,
            random: Pcg64Mcg::seed_from_u64(options.seed),
            options,
        })
    }

    /// Says which links packets from a source to a device go over. A flow whose path is not known has the
    /// weight 1. Past a million paths and links nothing is taken in.
    pub fn set_path(&mut self, source: SourceId, device: DeviceId, links: Vec<LinkId>) {
        if self.paths.len() < PATHS_MAX {
            self.paths.insert((source, device), links);
        }
    }

    /// Says what a link carries in sum of weights, see [`theta::theta_max`].
    ///
    /// # Errors
    /// If it is not a finite number above 0.
    pub fn set_link(&mut self, link: LinkId, theta_max: f64) -> Result<(), Error> {
        let is_fine = theta_max > 0.0 && theta_max.is_finite();
        Error::check("theta_max", theta_max, is_fine, "a finite number above 0")?;
        if self.link_limits.len() < PATHS_MAX {
            self.link_limits.insert(link, theta_max);
        }
        Ok(())
    }

    /// Makes a task count as so many times smaller than it is when weights are computed next; 1 is usual.
    ///
    /// # Errors
    /// If it is not a finite number above 0.
    pub fn set_priority(&mut self, task: TaskId, priority: f64) -> Result<(), Error> {
        let is_fine = priority > 0.0 && priority.is_finite();
        Error::check("priority", priority, is_fine, "a finite number above 0")?;
        if let Some(task) = self.tasks.get_mut(&task) {
            task.priority = priority;
        }
        Ok(())
    }

    /// A task as it is now; none if it is over or never was.
    pub fn task(&self, id: TaskId) -> Option<TaskView> {
        let task = self.tasks.get(&id)?;
        let flows = task.flows.iter().filter_map(|it| self.flows.get(it));
        Some(task.view(flows))
    }

    /// Its epoch.
    pub fn epoch(&self) -> u32 {
        self.options.epoch
    }

    /// The highest epoch that anybody has heard of, as they say. If it is above its own, there may be a later
    /// controller, and the driver should see whether this one is still the one to decide.
    pub fn heard_epoch(&self) -> u32 {
        self.heard_epoch
    }

    /// The tasks that are not over.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.keys().copied()
    }

    /// Why a task is over, if it is and was lately.
    pub fn end(&self, id: TaskId) -> Option<TaskEnd> {
        self.over.iter().rev().find(|it| it.0 == id).map(|it| it.2)
    }

    /// The weight of a flow, as last ordered.
    pub fn theta(&self, flow: FlowId) -> Option<f64> {
        self.flows.get(&flow).map(|it| it.theta)
    }

    /// Something arrives. Messages about tasks, flows and sources that there are not change nothing.
    pub fn handle_message(&mut self, now: Time, message: &ToController) {
        match message {
            ToController::Request { uri, device } => self.handle_request(now, uri, *device),
            ToController::Progress(progress) => self.handle_progress(now, progress),
            ToController::Resume { .. } => self.handle_resume(now, message),
            ToController::Fin { task, device } => self.handle_fin(now, *task, *device),
            ToController::Announce {
                source,
                uri,
                layout,
                epoch,
                incarnation,
            } => {
                if self.meet(now, *source, *epoch, *incarnation)
                    && uri.len() <= URI_BYTES_MAX
                    && self.announce(now, *source, *incarnation, uri, layout)
                {
                    self.top_up_all(now, uri);
                }
            }
            ToController::Heartbeat {
                source,
                epoch,
                incarnation,
            } => {
                self.meet(now, *source, *epoch, *incarnation);
            }
            ToController::Flow { source, order } => self.handle_flow(now, *source, order),
            ToController::Obeyed { flow, serial } => self.handle_obeyed(*flow, *serial),
            ToController::Ended { source, flow, end } => {
                // Also of flows that are forgotten, as their sources are to forget them, too.
                self.push(ControllerOutput::Source(*source, ToSource::EndAck(*flow)));
                self.handle_ended(now, *flow, *end);
            }
        }
        self.check();
    }

    /// The time of [`Controller::wake_at`] has come; does nothing before.
    pub fn handle_wake(&mut self, now: Time) {
        if self.sweep_at > now {
            return;
        }
        self.sweep_at = now + self.options.period;
        for source in self.registry.sweep(now, self.options.source_silence) {
            self.drop_source(now, source);
        }
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            let Some(task) = self.tasks.get_mut(&id) else {
                continue;
            };
            if !task.flows.is_empty() {
                task.served = now;
            }
            let give_up = self.options.give_up_after;
            if task.heard + give_up <= now {
                self.close(now, id, TaskEnd::Silent);
            } else if task.served + give_up <= now {
                self.close(now, id, TaskEnd::NoSource);
            } else if task.heard + self.options.receiver_silence <= now && !task.is_paused {
                task.is_paused = true;
                self.order_all(now, id, OrderState::Pause);
            }
        }
        self.reweigh(now);
        self.check();
    }

    /// When to call [`Controller::handle_wake`] and [`Controller::poll_transmit`] although nothing has arrived.
    pub fn wake_at(&self) -> Option<Time> {
        let due = self.due.first().map(|it| it.0);
        Some(due.map_or(self.sweep_at, |it| it.min(self.sweep_at)))
    }

    /// What to send now; call it until it returns nothing.
    pub fn poll_transmit(&mut self, now: Time) -> Option<ControllerOutput> {
        if let Some(output) = self.outbox.pop_front() {
            return Some(output);
        }
        while let Some(&(at, id)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            debug_assert_eq!(flow.due, Some(at), "two times for one order");
            flow.due = None;
            if flow.obeyed == flow.serial {
                continue;
            }
            if flow.tries >= self.options.order_tries {
                // The source is not there, whatever its heartbeats say.
                self.remove_flow(now, id);
                continue;
            }
            flow.tries += 1;
            let again = now + self.options.order_interval;
            flow.due = Some(again);
            self.due.insert((again, id));
            let order = flow.order(id, self.options.epoch);
            return Some(ControllerOutput::Source(
                flow.source,
                ToSource::Order(order),
            ));
        }
        None
    }

    fn handle_request(&mut self, now: Time, uri: &str, device: DeviceId) {
        if uri.len() > URI_BYTES_MAX {
            return;
        }
        if let Some(&id) = self.asked.get(&(device, uri.to_owned())) {
            if let Some(task) = self.tasks.get_mut(&id) {
                task.heard = now;
            }
            return self.accept(id);
        }
        let Some(layout) = self.registry.layout(uri) else {
            return self.answer(device, ToReceiver::Refused(Refusal::NoSuchObject));
        };
        let id = TaskId(self.next_task);
        // The numbers after those of an epoch are those of the next.
        if self.tasks.len() >= self.options.tasks_max || id.epoch() != self.options.epoch {
            return self.answer(device, ToReceiver::Refused(Refusal::Busy));
        }
        self.next_task += 1;
        self.asked.insert((device, uri.to_owned()), id);
        let is_coded = self.options.split == Split::Rateless;
        let mut task = Task::new(uri, device, layout, self.options.seats, is_coded, now);
        if self.options.split == Split::Equal {
            let holders = self.registry.holders(uri).count() as u64;
            task.divide(holders.clamp(1, self.options.fanout.into()));
        }
        self.tasks.insert(id, task);
        self.top_up(now, id);
        self.accept(id);
        self.reweigh(now);
    }

    fn handle_progress(&mut self, now: Time, progress: &Progress) {
        let id = progress.task;
        let Some(task) = self.tasks.get_mut(&id) else {
            if let Some(&(_, device, end)) = self.over.iter().rev().find(|it| it.0 == id)
                && end != TaskEnd::Completed
            {
                self.fail(device, id);
            }
            return;
        };
        task.heard = now;
        task.floor = task.floor.max(progress.floor);
        // It can only shrink, so one that was overtaken is no news.
        task.remaining = task.remaining.min(progress.remaining);
        if std::mem::take(&mut task.is_paused) {
            self.order_all(now, id, OrderState::Push);
        }
        self.top_up(now, id);
    }

    fn handle_obeyed(&mut self, id: FlowId, serial: u32) {
        if let Some(flow) = self.flows.get_mut(&id)
            && flow.serial == serial
        {
            flow.obeyed = serial;
            if flow.state == OrderState::Stop {
                self.forget(id);
            }
        }
    }

    fn handle_ended(&mut self, now: Time, id: FlowId, end: FlowEnd) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        let source = flow.source;
        match end {
            FlowEnd::Lied(_) => {
                self.forget(id);
                self.close(now, id.task, TaskEnd::Lied);
            }
            FlowEnd::OutOfSymbols(_) => {
                self.forget(id);
                self.close(now, id.task, TaskEnd::Undeliverable);
            }
            FlowEnd::Completed => {
                if let Some(task) = self.tasks.get_mut(&id.task) {
                    task.deliver(id);
                }
                self.forget(id);
            }
            FlowEnd::Refused => {
                if let Some(task) = self.tasks.get_mut(&id.task) {
                    task.excluded.insert(source);
                }
                self.remove_flow(now, id);
            }
            // Whether the receiver lives its next progress will tell; only then there is another flow.
            FlowEnd::Silent(_) | FlowEnd::Stopped => {
                if let Some(task) = self.tasks.get_mut(&id.task) {
                    task.vacate(id);
                }
                self.forget(id);
            }
        }
    }

    /// A source says which life it is in, and which epoch it has heard of. False if a later life of it was heard.
    fn meet(&mut self, now: Time, source: SourceId, epoch: u32, incarnation: u64) -> bool {
        match self.registry.hear(now, source, incarnation) {
            Met::Outdated => return false,
            Met::Reborn => self.drop_before(now, source, incarnation),
            Met::Usual => {}
        }
        self.meet_epoch(source, epoch);
        true
    }

    /// A source has an object. Says whether it is one more that can push it.
    fn announce(
        &mut self,
        now: Time,
        source: SourceId,
        incarnation: u64,
        uri: &str,
        layout: &Layout,
    ) -> bool {
        let is_new = self.registry.incarnation(source).is_none();
        let is_one_more = self
            .registry
            .announce(now, source, incarnation, uri, layout);
        if is_new {
            // Flows that were adopted before it was known may be of an earlier life.
            self.drop_before(now, source, incarnation);
        }
        is_one_more
    }

    /// A source is dead: others take over.
    fn drop_source(&mut self, now: Time, source: SourceId) {
        self.drop_flows(now, |it| it.source == source);
    }

    /// The flows of a source's earlier lives are over. What they sent nobody knows, so their seats are not taken
    /// again: in the same one the source would send the same symbols, and packets with numbers that were used.
    fn drop_before(&mut self, now: Time, source: SourceId, incarnation: u64) {
        self.drop_flows(now, |it| {
            it.source == source && it.incarnation < incarnation
        });
    }

    fn drop_flows(&mut self, now: Time, is_gone: impl Fn(&Flow) -> bool) {
        let of_it = |it: &(&FlowId, &Flow)| is_gone(it.1);
        let gone: Vec<FlowId> = self.flows.iter().filter(of_it).map(|it| *it.0).collect();
        for flow in gone {
            self.remove_flow(now, flow);
        }
    }

    /// A flow is no more; another takes its place if there is a source for it.
    fn remove_flow(&mut self, now: Time, id: FlowId) {
        if let Some(task) = self.tasks.get_mut(&id.task) {
            task.vacate(id);
        }
        self.forget(id);
        self.top_up(now, id.task);
        self.accept(id.task);
    }

    fn forget(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.remove(&id)
            && let Some(due) = flow.due
        {
            self.due.remove(&(due, id));
        }
        if let Some(task) = self.tasks.get_mut(&id.task) {
            task.flows.remove(&id);
            task.seats_over.insert(id.seat);
        }
    }

    fn top_up_all(&mut self, now: Time, uri: &str) {
        let of_it = |it: &(&TaskId, &Task)| it.1.uri == uri;
        let ids: Vec<TaskId> = self.tasks.iter().filter(of_it).map(|it| *it.0).collect();
        for id in ids {
            self.top_up(now, id);
            self.reweigh(now);
        }
    }

    /// Begins flows of a task until as many sources push as should.
    fn top_up(&mut self, now: Time, id: TaskId) {
        let mut begun = 0;
        while let Some(task) = self.tasks.get_mut(&id) {
            if now >= task.settled {
                task.fill_gaps(self.options.fanout);
            }
            let has_room = match task.is_coded {
                true => (task.flows.len() as u32) < self.options.fanout,
                false => task.has_vacant(),
            };
            if !has_room || task.is_paused || now < task.settled {
                break;
            }
            let busy: BTreeSet<SourceId> = task
                .flows
                .iter()
                .filter_map(|it| self.flows.get(it).map(|it| it.source))
                .collect();
            let is_fine = |it: &SourceId| !task.excluded.contains(it);
            let mut free: Vec<SourceId> =
                self.registry.holders(&task.uri).filter(is_fine).collect();
            let is_idle = |it: &SourceId| !busy.contains(it);
            // A share needs someone, also one that has another.
            if task.is_coded || free.iter().any(is_idle) {
                free.retain(is_idle);
            }
            if free.is_empty() {
                break;
            }
            if task.next_seat >= task.seats {
                if task.flows.is_empty() {
                    self.close(now, id, TaskEnd::NoSource);
                }
                break;
            }
            let source = free[(self.random.next_u64() % free.len() as u64) as usize];
            let theta = match self.options.theta {
                ThetaPolicy::Fixed(theta) => theta,
                ThetaPolicy::Smallest { .. } => 1.0,
            };
            let flow = FlowId {
                task: id,
                seat: task.next_seat,
            };
            task.next_seat += 1;
            let assignment = task.assign(flow, self.options.fanout);
            debug_assert!(!self.flows.contains_key(&flow), "a seat was taken twice");
            let incarnation = self.registry.incarnation(source).unwrap_or_default();
            let mut state = Flow::new((source, incarnation), theta, task, assignment);
            state.due = Some(now);
            self.due.insert((now, flow));
            self.flows.insert(flow, state);
            begun += 1;
        }
        if begun > 0 {
            self.accept(id);
        }
    }

    /// Tells a receiver that its request is granted, and how many sources push.
    fn accept(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let accepted = Accepted {
            task: id,
            epoch: self.options.epoch,
            layout: task.layout,
            seats: task.seats,
            sources: task.flows.len() as u32,
            is_coded: task.is_coded,
        };
        self.answer(task.device, ToReceiver::Accepted(accepted));
    }

    /// Ends a task; its flows are told until they obey.
    fn close(&mut self, now: Time, id: TaskId, end: TaskEnd) {
        self.order_all(now, id, OrderState::Stop);
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        if end != TaskEnd::Completed {
            self.fail(task.device, id);
        }
        self.remember(id, task.device, end);
        self.asked.remove(&(task.device, task.uri));
        self.reweigh(now);
    }

    fn remember(&mut self, id: TaskId, device: DeviceId, end: TaskEnd) {
        debug_assert!(!self.tasks.contains_key(&id), "a task that goes on is over");
        if self.over.len() == OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back((id, device, end));
    }

    fn order_all(&mut self, now: Time, id: TaskId, state: OrderState) {
        let flows = self.tasks.get(&id).map(|it| it.flows.clone());
        for flow in flows.into_iter().flatten() {
            self.order(now, flow, |it| it.state = state);
        }
    }

    /// Changes how a flow is to be, and has its source told.
    fn order(&mut self, now: Time, id: FlowId, change: impl FnOnce(&mut Flow)) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        change(flow);
        flow.serial += 1;
        flow.tries = 0;
        if let Some(due) = flow.due.replace(now) {
            self.due.remove(&(due, id));
        }
        self.due.insert((now, id));
    }

    /// Computes weights anew: on arrivals, on completions and every period.
    fn reweigh(&mut self, now: Time) {
        let ThetaPolicy::Smallest {
            theta_min,
            theta_max,
        } = self.options.theta
        else {
            return;
        };
        let ids: Vec<(FlowId, &Task)> = self
            .tasks
            .values()
            .flat_map(|task| task.flows.iter().map(move |it| (*it, task)))
            .collect();
        let path = |id: &FlowId, device: DeviceId| {
            let source = self.flows.get(id).map(|it| it.source);
            let links = source.and_then(|it| self.paths.get(&(it, device)));
            links.map_or(&[][..], Vec::as_slice)
        };
        let demands: Vec<Demand<'_>> = self
            .tasks
            .values()
            .map(|task| Demand {
                remaining: task.remaining as f64,
                priority: task.priority,
                paths: task.flows.iter().map(|it| path(it, task.device)).collect(),
            })
            .collect();
        let limit = |link| self.link_limits.get(&link).copied().unwrap_or(theta_max);
        let thetas = theta::assign(&demands, theta_min, limit);
        let thetas: Vec<f64> = thetas.into_iter().flatten().collect();
        debug_assert_eq!(thetas.len(), ids.len());
        let ids: Vec<FlowId> = ids.into_iter().map(|it| it.0).collect();
        for (id, theta) in ids.into_iter().zip(thetas) {
            let old = self.flows.get(&id).map_or(theta, |it| it.theta);
            if (theta - old).abs() > old * THETA_STEP {
                self.order(now, id, |it| it.theta = theta);
            }
        }
    }

    fn fail(&mut self, device: DeviceId, task: TaskId) {
        let epoch = self.options.epoch;
        self.answer(device, ToReceiver::Failed { task, epoch });
    }

    fn answer(&mut self, device: DeviceId, message: ToReceiver) {
        self.push(ControllerOutput::Receiver(device, message));
    }

    fn push(&mut self, output: ControllerOutput) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back(output);
        }
    }

    fn check(&self) {
        debug_assert!(self.over.len() <= OVER_MAX && self.outbox.len() <= OUTBOX_MAX);
        debug_assert!(self.flows.values().all(|it| it.obeyed <= it.serial));
        debug_assert!(self.tasks.values().all(|it| it.next_seat <= it.seats));
        debug_assert!(self.tasks.len() <= self.options.tasks_max);
        debug_assert_eq!(self.asked.len(), self.tasks.len());
        debug_assert!(
            self.due.len() <= self.flows.len(),
            "an order of no flow is due"
        );
        debug_assert!(
            self.tasks
                .values()
                .flat_map(|it| &it.flows)
                .all(|it| self.flows.contains_key(it)),
            "a task has a flow that is not"
        );
    }
}

/// What the object of a task is like, for those who meter it.
impl Controller {
    /// How an object is cut, if a source has announced it.
    pub fn layout(&self, uri: &str) -> Option<Layout> {
        self.registry.layout(uri)
    }
}

#[cfg(test)]
mod tests;
