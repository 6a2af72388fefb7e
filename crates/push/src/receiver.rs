//! One task at the device that wants the object.

mod acks;
mod blocks;

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::Time;

use self::acks::Acks;
pub use self::blocks::{AHEAD_MAX, Estimate};
use self::blocks::{Blocks, Taken, UNCODED_BLOCKS_MAX};
use crate::{
    ACK_SPAN, Accepted, Ack, Data, Decoder, DeviceId, Error, FlowId, Progress, Refusal, SEATS_MAX,
    TaskId, ToController, ToReceiver, URI_BYTES_MAX,
};

/// What a [`Receiver`] is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverOptions {
    /// The name of the object.
    pub uri: String,
    /// Who wants it.
    pub device: DeviceId,
    /// A request is repeated after so long.
    pub request_interval: Duration,
    /// A request is sent at most so often.
    pub request_tries: u32,
    /// The controller is told of progress every so often.
    pub progress_interval: Duration,
    /// Every so often that is all that a controller has to know of the task, as it may have lost its memory.
    pub resume_interval: Duration,
    /// So many packets of a flow are acknowledged together; 1 is at once. At most 32.
    pub ack_every: u32,
    /// No packet waits longer for its acknowledgement.
    pub ack_delay: Duration,
    /// An acknowledgement tells of so many packet numbers, from 1 to [`ACK_SPAN`]; so it makes up for lost ones.
    pub ack_covers: u32,
    /// How it says how much it needs of whom.
    pub estimate: Estimate,
    /// A source that is silent for so long no longer counts as one.
    pub source_silence: Duration,
    /// Without any new symbol for so long the receiver gives up.
    pub starved_after: Duration,
    /// A FIN is repeated after so long.
    pub fin_interval: Duration,
    /// A FIN is sent at most so often to each; then the task ends without an answer.
    pub fin_tries: u32,
}

impl ReceiverOptions {
    /// Those for an object, with the defaults for all else.
    pub fn new(uri: impl Into<String>, device: DeviceId) -> Self {
        Self {
            uri: uri.into(),
            device,
            request_interval: Duration::from_millis(200),
            request_tries: 25,
            progress_interval: Duration::from_millis(100),
            resume_interval: Duration::from_secs(1),
            ack_every: 1,
            ack_delay: Duration::from_millis(1),
            ack_covers: 16,
            estimate: Estimate::default(),
            source_silence: Duration::from_secs(1),
            starved_after: Duration::from_secs(30),
            fin_interval: Duration::from_millis(100),
            fin_tries: 10,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let bytes = self.uri.len();
        let is_fine = (1..=URI_BYTES_MAX).contains(&bytes);
        Error::check("uri", bytes as f64, is_fine, "1 to 1024 bytes")?;
        let is_fine = (1..=ACK_SPAN / 2).contains(&self.ack_every);
        Error::check(
            "ack_every",
            self.ack_every.into(),
            is_fine,
            "1 to 32 packets",
        )?;
        let is_fine = (self.ack_every..=ACK_SPAN).contains(&self.ack_covers);
        Error::check(
            "ack_covers",
            self.ack_covers.into(),
            is_fine,
            "ack_every to 64 packets",
        )?;
        for (field, it) in [
            ("request_interval", self.request_interval),
            ("progress_interval", self.progress_interval),
            ("resume_interval", self.resume_interval),
            ("ack_delay", self.ack_delay),
            ("source_silence", self.source_silence),
            ("starved_after", self.starved_after),
            ("fin_interval", self.fin_interval),
        ] {
            Error::check(field, it.as_secs_f64(), !it.is_zero(), "a time above 0")?;
        }
        Ok(())
    }
}

/// What a [`Receiver`] wants sent.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiverOutput {
    /// To the controller.
    Controller(ToController),
    /// To the source of the flow.
    Ack(Ack),
    /// To the source of this flow: the receiver has the object.
    Fin(FlowId),
    /// To the source of this flow: its FIN has arrived.
    FinAck(FlowId),
}

/// Why a task is over at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverEnd {
    /// It has the object.
    Completed,
    /// The controller does not grant the request.
    Refused(Refusal),
    /// The controller never answered.
    NoController,
    /// No new symbol came for too long.
    Starved,
    /// This block has many more symbols than it needs and cannot be decoded from them.
    Undecodable(u32),
    /// What the controller granted cannot be: its numbers are out of range, or not those of the object.
    BadTask,
}

/// What a [`Receiver`] has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Packets of the task.
    pub packets: u64,
    /// Of these, those with a symbol that was there already.
    pub duplicates: u64,
    /// Those of blocks that were decoded.
    pub late: u64,
    /// Those of blocks too far ahead to keep.
    pub ahead: u64,
    /// Those whose payload the decoder did not take: it is of the wrong size, or there is no room for it now.
    pub refused: u64,
    /// Packets that no honest sender of this task sends, or that came before the task.
    pub invalid: u64,
    /// Symbols handed to the decoder.
    pub symbols: u64,
}

/// What a [`Receiver`] keeps, all of it bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Blocks begun: at most [`AHEAD_MAX`] of an object that is coded, at most 65536 of another.
    pub blocks: usize,
    /// Words of 64 symbols that say which were there, over all blocks.
    pub words: usize,
    /// Flows, at most [`SEATS_MAX`].
    pub flows: usize,
}

#[derive(Debug)]
enum State {
    /// How often it has asked, and when to ask again.
    Requesting(u32, Time),
    Receiving(Task),
    /// It has the object, and says so.
    Finishing(Task, Farewell),
    Over(ReceiverEnd),
}

/// A task that was granted.
#[derive(Debug)]
struct Task {
    accepted: Accepted,
    blocks: Blocks,
    flows: BTreeMap<u32, Flow>,
    /// How many flows are active.
    active: u32,
    /// How many flows have to be told that their FIN has arrived.
    fin_acks: u32,
    /// When to look again which are.
    look_at: Time,
    /// The controller says so many push; believed until this time, then only those that are heard.
    expected: (u32, Time),
    progress_at: Time,
    resume_at: Time,
    /// The highest epoch of a controller that was heard.
    epoch: u32,
    /// When the last new symbol came.
    fed: Time,
    /// When the first acknowledgement that waits is due; no later than that.
    ack_at: Option<Time>,
}

/// A flow as its receiver sees it.
#[derive(Debug)]
struct Flow {
    acks: Acks,
    heard: Time,
    is_active: bool,
    owes_fin_ack: bool,
    /// The sender knows that the task is over.
    is_dismissed: bool,
}

/// Who still has to hear that the receiver has the object; flows say it themselves.
#[derive(Clone, Copy, Debug)]
struct Farewell {
    knows_controller: bool,
    tries: u32,
    at: Time,
    /// Flows below this seat have been told in this round; the controller is first.
    told: Option<u32>,
}

/// One task at the device that wants the object.
#[derive(Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    decoder: Box<dyn Decoder>,
    state: State,
    counts: ReceiverCounts,
}

impl Receiver {
    /// A receiver that is about to ask for its object.
    ///
    /// # Errors
    /// If an option is out of range; names it.
    pub fn new(
        options: ReceiverOptions,
        decoder: Box<dyn Decoder>,
        now: Time,
    ) -> Result<Self, Error> {
        options.check()?;
        Ok(Self {
            options,
            decoder,
            state: State::Requesting(0, now),
            counts: ReceiverCounts::default(),
        })
    }

    /// Why it is over, if it is.
    pub fn end(&self) -> Option<ReceiverEnd> {
        match self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Whether it has the object, also while others do not know that yet.
    pub fn is_complete(&self) -> bool {
        matches!(
            self.state,
            State::Finishing(..) | State::Over(ReceiverEnd::Completed)
        )
    }

    /// How far it is, once its request is granted and until the end.
    pub fn progress(&self) -> Option<Progress> {
        self.task().map(Task::progress)
    }

    /// What it has seen so far.
    pub fn counts(&self) -> ReceiverCounts {
        self.counts
    }

    /// What it keeps.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            blocks: self.task().map_or(0, |it| it.blocks.len()),
            words: self.task().map_or(0, |it| it.blocks.words()),
            flows: self.task().map_or(0, |it| it.flows.len()),
        }
    }

    /// The controller answers.
    pub fn handle_controller(&mut self, now: Time, message: &ToReceiver) {
        match (&mut self.state, message) {
            (State::Requesting(..), ToReceiver::Accepted(accepted)) => self.begin(now, accepted),
            (State::Receiving(task), ToReceiver::Accepted(accepted)) => {
                let is_same = Accepted {
                    sources: task.accepted.sources,
                    epoch: task.accepted.epoch,
                    ..*accepted
                } == task.accepted;
                if is_same && accepted.epoch >= task.epoch {
                    task.epoch = accepted.epoch;
                    let until = now + self.options.source_silence;
                    task.expected = (accepted.sources.min(SEATS_MAX), until);
                }
            }
            (State::Requesting(..), ToReceiver::Refused(refusal)) => {
                self.state = State::Over(ReceiverEnd::Refused(*refusal));
            }
            (State::Requesting(..), ToReceiver::Failed { .. }) => {
                self.state = State::Over(ReceiverEnd::Refused(Refusal::TaskFailed));
            }
            (State::Receiving(granted), ToReceiver::Failed { task, epoch })
                if *task == granted.accepted.task && *epoch >= granted.epoch =>
            {
                self.state = State::Over(ReceiverEnd::Refused(Refusal::TaskFailed));
            }
            (State::Finishing(task, farewell), ToReceiver::FinAck(id))
                if *id == task.accepted.task =>
            {
                farewell.knows_controller = true;
                self.leave();
            }
            _ => {}
        }
    }

    /// A packet arrives, with or without a congestion mark. Returns the acknowledgement to send at once, if
    /// one is due.
    ///
    /// What is not of this task, or is no packet that an honest sender of it sends, is counted and not
    /// acknowledged.
    pub fn handle_data(
        &mut self,
        now: Time,
        data: &Data,
        is_marked: bool,
        payload: &[u8],
    ) -> Option<Ack> {
        let (State::Receiving(task) | State::Finishing(task, _)) = &mut self.state else {
            self.counts.invalid += 1;
            return None;
        };
        if !task.is_valid(data) {
            self.counts.invalid += 1;
            return None;
        }
        self.counts.packets += 1;
        let taken = task.blocks.take(data, &mut *self.decoder, payload);
        match taken {
            Taken::New => {
                self.counts.symbols += 1;
                task.fed = now;
            }
            Taken::Duplicate => self.counts.duplicates += 1,
            Taken::Late => self.counts.late += 1,
            Taken::Ahead => self.counts.ahead += 1,
            Taken::Refused => self.counts.refused += 1,
        }
        let counts = self.counts;
        debug_assert_eq!(
            counts.packets,
            counts.symbols + counts.duplicates + counts.late + counts.ahead + counts.refused,
            "every packet counts once"
        );
        task.hear(data.flow.seat, now);
        let stuck = task.blocks.stuck();
        // What is not kept is not acknowledged: its sender has to send it again.
        let ack = match taken {
            Taken::Ahead | Taken::Refused => None,
            _ => task.note(now, data, is_marked, &self.options),
        };
        let is_complete = task.blocks.floor() == task.accepted.layout.blocks();
        if let Some(block) = stuck {
            self.state = State::Over(ReceiverEnd::Undecodable(block));
        } else if is_complete {
            self.bid_farewell(now);
        }
        ack
    }

    /// The source of a flow has nothing left to do for this receiver.
    pub fn handle_fin(&mut self, flow: FlowId) {
        if let State::Receiving(task) | State::Finishing(task, _) = &mut self.state
            && flow.task == task.accepted.task
            && let Some(it) = task.flows.get_mut(&flow.seat)
        {
            task.fin_acks += u32::from(!it.owes_fin_ack);
            it.owes_fin_ack = true;
            it.is_dismissed = true;
            task.set_active(flow.seat, false);
        }
    }

    /// The source of a flow knows that the receiver has the object.
    pub fn handle_fin_ack(&mut self, flow: FlowId) {
        if let State::Finishing(task, _) = &mut self.state
            && flow.task == task.accepted.task
            && let Some(it) = task.flows.get_mut(&flow.seat)
        {
            it.is_dismissed = true;
            self.leave();
        }
    }

    /// The time of [`Receiver::wake_at`] has come; does nothing before.
    pub fn handle_wake(&mut self, now: Time) {
        match &mut self.state {
            State::Requesting(tries, at) if *at <= now && *tries >= self.options.request_tries => {
                self.state = State::Over(ReceiverEnd::NoController);
            }
            State::Receiving(task) => {
                task.look(now, self.options.source_silence);
                if task.fed + self.options.starved_after <= now {
                    self.state = State::Over(ReceiverEnd::Starved);
                }
            }
            State::Finishing(_, farewell)
                if farewell.at <= now && farewell.tries >= self.options.fin_tries =>
            {
                self.state = State::Over(ReceiverEnd::Completed);
            }
            _ => {}
        }
    }

    /// When to call [`Receiver::handle_wake`] and [`Receiver::poll_transmit`] although nothing has arrived.
    pub fn wake_at(&self) -> Option<Time> {
        match &self.state {
            State::Requesting(_, at) => Some(*at),
            State::Receiving(task) => {
                let starved = task.fed + self.options.starved_after;
                let at = task.progress_at.min(task.look_at).min(starved);
                Some(task.ack_at.map_or(at, |it| it.min(at)))
            }
            State::Finishing(_, farewell) => Some(farewell.at),
            State::Over(_) => None,
        }
    }

    /// What to send now; call it until it returns nothing.
    pub fn poll_transmit(&mut self, now: Time) -> Option<ReceiverOutput> {
        match &mut self.state {
            State::Requesting(tries, at) => {
                if *at > now || *tries >= self.options.request_tries {
                    return None;
                }
                *tries += 1;
                debug_assert!(*tries <= self.options.request_tries);
                *at = now + self.options.request_interval;
                Some(ReceiverOutput::Controller(ToController::Request {
                    uri: self.options.uri.clone(),
                    device: self.options.device,
                }))
            }
            State::Receiving(task) => {
                if let Some(output) = task.fin_ack().or_else(|| task.due_ack(now)) {
                    return Some(output);
                }
                if task.progress_at > now {
                    return None;
                }
                task.progress_at = now + self.options.progress_interval;
                debug_assert!(task.progress().remaining > 0, "complete and not finishing");
                let message = if task.resume_at > now {
                    ToController::Progress(task.progress())
                } else {
                    task.resume_at = now + self.options.resume_interval;
                    task.resume(&self.options)
                };
                Some(ReceiverOutput::Controller(message))
            }
            State::Finishing(task, farewell) => {
                if let Some(output) = task.fin_ack() {
                    return Some(output);
                }
                if farewell.at > now || farewell.tries >= self.options.fin_tries {
                    return None;
                }
                let output = farewell.next(task, self.options.device);
                if output.is_none() {
                    farewell.tries += 1;
                    farewell.told = None;
                    farewell.at = now + self.options.fin_interval;
                }
                output
            }
            State::Over(_) => None,
        }
    }

    fn task(&self) -> Option<&Task> {
        match &self.state {
            State::Receiving(task) | State::Finishing(task, _) => Some(task),
            _ => None,
        }
    }

    fn begin(&mut self, now: Time, accepted: &Accepted) {
        let is_small = accepted.is_coded || accepted.layout.blocks() <= UNCODED_BLOCKS_MAX;
        if !(1..=SEATS_MAX).contains(&accepted.seats) || !is_small {
            self.state = State::Over(ReceiverEnd::BadTask);
            return;
        }
        if !self.decoder.begin(&accepted.layout) {
            self.state = State::Over(ReceiverEnd::BadTask);
            return;
        }
        let seats = accepted.is_coded.then_some(accepted.seats);
        self.state = State::Receiving(Task {
            accepted: *accepted,
            blocks: Blocks::new(accepted.layout, seats, self.options.estimate),
            flows: BTreeMap::new(),
            active: 0,
            fin_acks: 0,
            look_at: now + self.options.source_silence / 4,
            expected: (
                accepted.sources.min(SEATS_MAX),
                now + self.options.source_silence,
            ),
            progress_at: now + self.options.progress_interval,
            resume_at: now + self.options.resume_interval,
            epoch: accepted.epoch,
            fed: now,
            ack_at: None,
        });
    }

    /// From receiving to finishing, once.
    fn bid_farewell(&mut self, now: Time) {
        debug_assert!(self.task().is_some_and(|it| it.progress().remaining == 0));
        let state = std::mem::replace(&mut self.state, State::Over(ReceiverEnd::Completed));
        self.state = match state {
            State::Receiving(task) => State::Finishing(
                task,
                Farewell {
                    knows_controller: false,
                    tries: 0,
                    at: now,
                    told: None,
                },
            ),
            other => other,
        };
        debug_assert!(self.is_complete());
    }

    /// Ends the task once everybody knows.
    fn leave(&mut self) {
        if let State::Finishing(task, farewell) = &self.state
            && farewell.knows_controller
            && task
                .flows
                .values()
                .all(|it| it.is_dismissed && !it.owes_fin_ack)
        {
            self.state = State::Over(ReceiverEnd::Completed);
        }
    }
}

impl Task {
    /// Whether an honest sender of this task could have sent it.
    fn is_valid(&self, data: &Data) -> bool {
        let seats = self.accepted.seats;
        data.flow.task == self.accepted.task
            && data.flow.seat < seats
            && data.block < self.accepted.layout.blocks()
            && match self.accepted.is_coded {
                true => {
                    data.symbol < crate::SYMBOL_NUMBERS && data.symbol % seats == data.flow.seat
                }
                false => data.symbol < self.accepted.layout.symbols_of(data.block),
            }
    }

    fn id(&self, seat: u32) -> FlowId {
        FlowId {
            task: self.accepted.task,
            seat,
        }
    }

    /// All that a controller has to know that did not grant the task.
    fn resume(&self, options: &ReceiverOptions) -> ToController {
        let accepted = self.accepted;
        let seen = self.flows.last_key_value().map_or(0, |it| *it.0 + 1);
        debug_assert!(seen <= accepted.seats);
        ToController::Resume {
            progress: self.progress(),
            uri: options.uri.clone(),
            device: options.device,
            layout: accepted.layout,
            seats: accepted.seats,
            seats_seen: seen,
            is_coded: accepted.is_coded,
            epoch: self.epoch,
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            task: self.accepted.task,
            floor: self.blocks.floor(),
            remaining: self.blocks.remaining(),
        }
    }

    /// A flow is heard.
    fn hear(&mut self, seat: u32, now: Time) {
        debug_assert!(seat < self.accepted.seats, "an invalid packet was taken");
        let flow = self.flows.entry(seat).or_insert_with(|| Flow {
            acks: Acks::default(),
            heard: now,
            is_active: false,
            owes_fin_ack: false,
            is_dismissed: false,
        });
        flow.heard = now;
        if !flow.is_dismissed {
            self.set_active(seat, true);
        }
        debug_assert!(self.flows.len() <= SEATS_MAX as usize);
    }

    fn set_active(&mut self, seat: u32, is_active: bool) {
        if let Some(flow) = self.flows.get_mut(&seat)
            && flow.is_active != is_active
        {
            flow.is_active = is_active;
            match is_active {
                true => self.active += 1,
                false => self.active -= 1,
            }
        }
        debug_assert!(self.active as usize <= self.flows.len());
    }

    /// Sees which flows have gone silent.
    fn look(&mut self, now: Time, silence: Duration) {
        if self.look_at > now {
            return;
        }
        self.look_at = now + silence / 4;
        let gone = |it: &Flow| it.is_active && it.heard + silence <= now;
        while let Some(seat) = self.flows.iter().find(|it| gone(it.1)).map(|it| *it.0) {
            self.set_active(seat, false);
        }
        debug_assert_eq!(
            self.active as usize,
            self.flows.values().filter(|it| it.is_active).count(),
            "lost count of active flows"
        );
    }

    /// Among how many sources the rest of a block is divided.
    fn sources(&self, now: Time) -> u32 {
        let (expected, until) = self.expected;
        let expected = if now < until { expected } else { 0 };
        self.active.max(expected).max(1)
    }

    /// Notes that a packet is to be acknowledged, and does it if that is due.
    fn note(
        &mut self,
        now: Time,
        data: &Data,
        is_marked: bool,
        options: &ReceiverOptions,
    ) -> Option<Ack> {
        let flow = self.flows.get_mut(&data.flow.seat)?;
        let due = now + options.ack_delay;
        let told = flow.acks.note(data, is_marked, due, options);
        if let Some(due) = flow.acks.due() {
            self.ack_at = Some(self.ack_at.map_or(due, |it| it.min(due)));
        }
        told.map(|told| self.ack(data.flow, told, now))
    }

    fn ack(&self, flow: FlowId, told: acks::Told, now: Time) -> Ack {
        debug_assert_eq!(told.received & 1, 1, "an acknowledgement names its packet");
        debug_assert_eq!(
            told.marked & !told.received,
            0,
            "marks of packets that never came"
        );
        let sources = self.sources(now);
        debug_assert!((1..=SEATS_MAX).contains(&sources));
        debug_assert!(told.block < self.accepted.layout.blocks());
        Ack {
            flow,
            number: told.number,
            received: told.received,
            marked: told.marked,
            floor: self.blocks.floor(),
            block: told.block,
            needed: self.blocks.needed(told.block, flow.seat, sources),
            needed_next: self
                .blocks
                .needed(told.block.saturating_add(1), flow.seat, sources),
        }
    }

    fn due_ack(&mut self, now: Time) -> Option<ReceiverOutput> {
        if self.ack_at.is_none_or(|it| it > now) {
            return None;
        }
        let due = |it: &Flow| it.acks.due().is_some_and(|it| it <= now);
        let found = self.flows.iter_mut().find(|it| due(it.1));
        if let Some((&seat, flow)) = found {
            let told = flow.acks.tell();
            return Some(ReceiverOutput::Ack(self.ack(self.id(seat), told, now)));
        }
        self.ack_at = self.flows.values().filter_map(|it| it.acks.due()).min();
        None
    }

    fn fin_ack(&mut self) -> Option<ReceiverOutput> {
        if self.fin_acks == 0 {
            return None;
        }
        self.fin_acks -= 1;
        let found = self.flows.iter_mut().find(|it| it.1.owes_fin_ack);
        debug_assert!(found.is_some(), "lost count of flows that are owed a word");
        let (&seat, flow) = found?;
        flow.owes_fin_ack = false;
        Some(ReceiverOutput::FinAck(self.id(seat)))
    }
}

impl Farewell {
    /// Whom to tell next in this round.
    fn next(&mut self, task: &Task, device: DeviceId) -> Option<ReceiverOutput> {
        let from = match self.told {
            Some(seat) => seat,
            None => {
                self.told = Some(0);
                if !self.knows_controller {
                    let task = task.accepted.task;
                    let fin = ToController::Fin { task, device };
                    return Some(ReceiverOutput::Controller(fin));
                }
                0
            }
        };
        let mut rest = task.flows.range(from..).filter(|it| !it.1.is_dismissed);
        let seat = *rest.next()?.0;
        debug_assert!(seat >= from, "told twice in a round");
        self.told = Some(seat + 1);
        Some(ReceiverOutput::Fin(task.id(seat)))
    }
}

/// The task that a receiver works on, for those that route messages by it.
impl Receiver {
    /// The number of the task, once its request is granted and until the end.
    pub fn id(&self) -> Option<TaskId> {
        self.task().map(|it| it.accepted.task)
    }
}

#[cfg(test)]
mod tests;
