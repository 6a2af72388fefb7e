//! How a controller takes over the tasks of one before it, of which it knows nothing.
//!
//! Nothing is restarted. Sources go on with their flows, and tell of them once they have heard of the new epoch; receivers
//! say every so often all that there is to know of their task. Either makes the task known, by the number that it has;
//! only once its receiver was heard does it get further sources. Of what is lost with the old memory, priorities are the
//! driver's to set again, and a part of an object that is not coded is only known while its flow lives.

use outpour_core::Time;

use super::task::{Flow, Task};
use super::{Controller, ControllerOutput};
use crate::{
    Assignment, DeviceId, Layout, Order, OrderState, SEATS_MAX, SourceId, TaskId, ToController,
    ToSource, URI_BYTES_MAX,
};

/// What a task of an earlier controller is like, as a stranger says.
struct Claim<'a> {
    id: TaskId,
    uri: &'a str,
    device: DeviceId,
    layout: Layout,
    seats: u32,
    is_coded: bool,
}

impl Controller {
    /// A source says which epoch it has heard of.
    pub(super) fn meet(&mut self, source: SourceId, epoch: u32) {
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
        if id.task.epoch() >= self.options.epoch {
            return;
        }
        match self.flows.get(&id) {
            Some(flow) if flow.source == source => return,
            // Two sources in one seat would send the same symbols.
            Some(_) => return self.dismiss(source, order),
            None => {}
        }
        let (seats, is_coded) = match order.assignment {
            Assignment::Rateless { seats, .. } => (seats, true),
            Assignment::Share { .. } => (SEATS_MAX, false),
        };
        let claim = Claim {
            id: id.task,
            uri: &order.uri,
            device: order.device,
            layout: order.layout,
            seats,
            is_coded,
        };
        let is_sound = order.theta > 0.0 && order.theta.is_finite() && order.serial < u32::MAX / 2;
        if id.seat >= seats || !is_sound || order.state == OrderState::Stop {
            return;
        }
        if self.tasks.len() >= self.options.tasks_max && !self.tasks.contains_key(&id.task) {
            // It goes on without a controller, and is told of again.
            return;
        }
        let Some(task) = self.adopt(now, &claim) else {
            return self.dismiss(source, order);
        };
        if id.seat >= task.seats || task.seats_over.contains(&id.seat) {
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
            uri,
            device,
            layout,
            seats,
            seats_seen,
            is_coded,
        } = message
        else {
            return;
        };
        let id = progress.task;
        let is_known = self.tasks.contains_key(&id) || self.over.iter().any(|it| it.0 == id);
        if !is_known && id.epoch() >= self.options.epoch {
            // One of its own, over for so long that it is forgotten.
            return self.fail(*device, id);
        }
        if id.epoch() < self.options.epoch && !self.over.iter().any(|it| it.0 == id) {
            if !is_known && self.tasks.len() >= self.options.tasks_max {
                // The receiver says it again.
                return;
            }
            let claim = Claim {
                id,
                uri,
                device: *device,
                layout: *layout,
                seats: *seats,
                is_coded: *is_coded,
            };
            let Some(task) = self.adopt(now, &claim) else {
                return self.fail(*device, id);
            };
            task.next_seat = task.next_seat.max((*seats_seen).min(task.seats));
            if !is_known {
                self.accept(id);
            }
        }
        self.handle_progress(now, progress);
    }

    /// The task that is meant, new if it was not known. None if it is over, or cannot be that task.
    fn adopt(&mut self, now: Time, claim: &Claim<'_>) -> Option<&mut Task> {
        debug_assert!(claim.id.epoch() < self.options.epoch, "a task of its own");
        let is_sound = (1..=URI_BYTES_MAX).contains(&claim.uri.len())
            && (1..=SEATS_MAX).contains(&claim.seats);
        let is_other = self
            .registry
            .layout(claim.uri)
            .is_some_and(|it| it != claim.layout);
        if !is_sound || is_other || self.over.iter().any(|it| it.0 == claim.id) {
            return None;
        }
        let key = (claim.device, claim.uri.to_owned());
        let asked = *self.asked.entry(key).or_insert(claim.id);
        if asked != claim.id {
            // Its device has asked again, and has another task.
            return None;
        }
        let is_new = !self.tasks.contains_key(&claim.id);
        let task = self.tasks.entry(claim.id).or_insert_with(|| {
            let Claim {
                uri,
                device,
                layout,
                seats,
                is_coded,
                ..
            } = *claim;
            Task::new(uri, device, layout, seats, is_coded, now)
        });
        let is_same = task.device == claim.device
            && task.uri == claim.uri
            && task.layout == claim.layout
            && task.is_coded == claim.is_coded;
        debug_assert!(!is_new || is_same);
        if !is_same {
            // The claim may have taken a key that is not its own.
            let owner = (task.device, task.uri.clone());
            let key = (claim.device, claim.uri.to_owned());
            if key != owner {
                self.asked.remove(&key);
            }
            return None;
        }
        Some(task)
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
