//! How a controller takes over the tasks of one before it, of which it knows nothing.
//!
//! Nothing is restarted. Sources go on with their flows, and receivers say every so often all that there is to know of
//! their task. Only that makes a task known, by the number that it has: who it is for says so itself, and no
//! source can speak for it. Then the holders of its object are asked for the flows they have, and it gets further sources
//! once they had the time to answer. Of what is lost with the old memory, priorities are the driver's to set again. A part
//! of an object that is not coded is only known while its flow lives: what no flow tells of is given out anew, whether it
//! was delivered or not, and its new source leaves out the blocks that acknowledgements show to be there.

use outpour_core::Time;

use super::task::{Flow, Task};
use super::{Controller, ControllerOutput, TaskEnd};
use crate::{
    DeviceId, Order, OrderState, SEATS_MAX, SourceId, TaskId, ToController, ToReceiver, ToSource,
    URI_BYTES_MAX,
};

impl Controller {
    /// A source says which epoch it has heard of.
    pub(super) fn meet_epoch(&mut self, source: SourceId, epoch: u32) {
        self.heard_epoch = self.heard_epoch.max(epoch);
        debug_assert!(self.heard_epoch >= self.options.epoch);
        if epoch < self.options.epoch {
            let hello = ToSource::Epoch(self.options.epoch);
            self.push(ControllerOutput::Source(source, hello));
        }
    }

    /// A source tells of a flow that another controller has ordered.
    pub(super) fn handle_flow(&mut self, now: Time, source: SourceId, order: &Order) {
        let id = order.flow;
        // Flows of its own are known, or over.
        if id.task.epoch() >= self.options.epoch || order.state == OrderState::Stop {
            return;
        }
        // A source that was started again has none of the flows it had before.
        let life = self.registry.incarnation(source);
        if life.is_some_and(|it| it != order.incarnation) {
            return;
        }
        if self.over.iter().any(|it| it.0 == id.task) {
            return self.dismiss(source, order);
        }
        // It goes on until its receiver is heard; then its source is asked again.
        let Some(task) = self.tasks.get_mut(&id.task) else {
            return;
        };
        match self.flows.get(&id) {
            Some(flow) if flow.source == source => return,
            // Two sources in one seat would send the same symbols.
            Some(_) => return self.dismiss(source, order),
            None => {}
        }
        let is_sound = order.theta > 0.0 && order.theta.is_finite() && order.serial < u32::MAX / 2;
        if !is_sound || !task.is_part(order) || task.seats_over.contains(&id.seat) {
            return self.dismiss(source, order);
        }
        task.adopt(order);
        let is_paused = task.is_paused;
        self.flows.insert(id, Flow::adopted(source, order));
        let state = match is_paused {
            true => OrderState::Pause,
            false => OrderState::Push,
        };
        if order.state != state {
            self.order(now, id, |it| it.state = state);
        }
        self.accept(id.task);
        self.reweigh(now);
    }

    /// A receiver says all there is to know of its task.
    pub(super) fn handle_resume(&mut self, now: Time, message: &ToController) {
        let ToController::Resume {
            progress,
            device,
            epoch,
            ..
        } = message
        else {
            return;
        };
        let id = progress.task;
        if !self.tasks.contains_key(&id) && !self.over.iter().any(|it| it.0 == id) {
            let is_own = id.epoch() >= self.options.epoch;
            if !is_own && self.tasks.len() >= self.options.tasks_max {
                // The receiver says it again.
                return;
            }
            // One of its own is over for so long that it is forgotten.
            if is_own || !self.adopt(now, message) {
                return self.fail(*device, id);
            }
            self.ask_holders(id);
        }
        // It has not heard of this controller, and would heed one before it.
        if *epoch < self.options.epoch {
            self.accept(id);
        }
        self.handle_progress(now, progress);
    }

    /// A receiver has its object. It is answered whether its task is known, over, forgotten or of a controller before
    /// this one: it is done, and waits for nothing but the answer.
    pub(super) fn handle_fin(&mut self, now: Time, id: TaskId, device: DeviceId) {
        let over = self.over.iter().rev().find(|it| it.0 == id).map(|it| it.1);
        let known = self.tasks.get(&id).map(|it| it.device).or(over);
        if known.is_some_and(|it| it != device) {
            return;
        }
        self.answer(device, ToReceiver::FinAck(id));
        if over.is_none() {
            match self.tasks.contains_key(&id) {
                true => self.close(now, id, TaskEnd::Completed),
                // What its sources or a late word of the receiver say is not to begin it again.
                false if id.epoch() < self.options.epoch => {
                    self.remember(id, device, TaskEnd::Completed);
                }
                false => {}
            }
        }
    }

    /// Makes a task known that a receiver says it has. False if it cannot be.
    fn adopt(&mut self, now: Time, resume: &ToController) -> bool {
        let ToController::Resume {
            progress,
            uri,
            device,
            layout,
            seats,
            seats_seen,
            is_coded,
            ..
        } = resume
        else {
            return false;
        };
        debug_assert!(
            progress.task.epoch() < self.options.epoch,
            "a task of its own"
        );
        let is_sound = (1..=URI_BYTES_MAX).contains(&uri.len()) && (1..=SEATS_MAX).contains(seats);
        let is_other = self.registry.layout(uri).is_some_and(|it| it != *layout);
        let key = (*device, uri.clone());
        // Its device may have asked again, and have another task.
        if !is_sound || is_other || self.asked.contains_key(&key) {
            return false;
        }
        let mut task = Task::new(uri, *device, *layout, *seats, *is_coded, now);
        task.next_seat = (*seats_seen).min(*seats);
        task.has_gaps = !is_coded;
        task.settled = now + self.options.source_silence;
        self.asked.insert(key, progress.task);
        self.tasks.insert(progress.task, task);
        true
    }

    /// Asks the holders of a task's object which flows they have.
    fn ask_holders(&mut self, id: TaskId) {
        let uri = self.tasks.get(&id).map(|it| it.uri.clone());
        let holders: Vec<SourceId> = uri
            .iter()
            .flat_map(|uri| self.registry.holders(uri))
            .collect();
        for source in holders {
            let ask = ToSource::Epoch(self.options.epoch);
            self.push(ControllerOutput::Source(source, ask));
        }
    }

    /// Tells a source to stop a flow that is no part of anything. It is not repeated: the source tells again.
    fn dismiss(&mut self, source: SourceId, order: &Order) {
        let stop = Order {
            epoch: self.options.epoch,
            serial: order.serial.saturating_add(1),
            state: OrderState::Stop,
            ..order.clone()
        };
        self.push(ControllerOutput::Source(source, ToSource::Order(stop)));
    }
}
