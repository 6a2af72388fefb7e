//! A task and its flows, as the controller sees them.

use std::collections::BTreeSet;

use outpour_core::Time;

use crate::{Assignment, DeviceId, FlowId, Layout, Order, OrderState, SourceId};

/// A task as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// Who wants the object.
    pub device: DeviceId,
    /// How many symbols it still misses, as last told.
    pub remaining: u64,
    /// Whether its receiver is silent and its flows pause.
    pub is_paused: bool,
    /// The sources that push, with their weights as last ordered.
    pub sources: Vec<(SourceId, f64)>,
}

/// A part of an object that one source is to deliver.
#[derive(Clone, Copy, Debug)]
struct Share {
    first: u64,
    count: u64,
    flow: Option<FlowId>,
    is_delivered: bool,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) uri: String,
    pub(super) device: DeviceId,
    pub(super) layout: Layout,
    pub(super) remaining: u64,
    /// The first block that its receiver has not decoded, as last told.
    pub(super) floor: u32,
    pub(super) priority: f64,
    pub(super) is_paused: bool,
    /// When its receiver was last heard.
    pub(super) heard: Time,
    /// When it last had a flow.
    pub(super) served: Time,
    pub(super) flows: BTreeSet<FlowId>,
    pub(super) next_seat: u32,
    /// How many seats it has.
    pub(super) seats: u32,
    /// Whether symbols are coded.
    pub(super) is_coded: bool,
    /// Seats whose flows are over.
    pub(super) seats_over: BTreeSet<u32>,
    /// From when on it gets further flows: those that it has already are to be told of before.
    pub(super) settled: Time,
    /// Sources that could not do it.
    pub(super) excluded: BTreeSet<SourceId>,
    /// Whether there may be symbols that belong to no part.
    pub(super) has_gaps: bool,
    /// The parts it is divided into, none of which overlap; none if it is not.
    shares: Vec<Share>,
}

impl Task {
    pub(super) fn new(
        uri: &str,
        device: DeviceId,
        layout: Layout,
        seats: u32,
        is_coded: bool,
        now: Time,
    ) -> Self {
        Self {
            uri: uri.to_owned(),
            device,
            layout,
            remaining: layout.symbols(),
            floor: 0,
            priority: 1.0,
            is_paused: false,
            heard: now,
            served: now,
            flows: BTreeSet::new(),
            next_seat: 0,
            seats,
            is_coded,
            seats_over: BTreeSet::new(),
            settled: now,
            excluded: BTreeSet::new(),
            has_gaps: false,
            shares: Vec::new(),
        }
    }

    /// Divides the object into parts that differ by a symbol at most.
    pub(super) fn divide(&mut self, parts: u64) {
        let symbols = self.layout.symbols();
        let parts = parts.clamp(1, symbols);
        let start = |part: u64| (u128::from(symbols) * u128::from(part) / u128::from(parts)) as u64;
        self.shares = (0..parts)
            .map(|part| Share {
                first: start(part),
                count: start(part + 1) - start(part),
                flow: None,
                is_delivered: false,
            })
            .collect();
        debug_assert_eq!(self.shares.iter().map(|it| it.count).sum::<u64>(), symbols);
        debug_assert!(self.shares.iter().all(|it| it.count > 0));
    }

    /// Whether a part has nobody who delivers it.
    pub(super) fn has_vacant(&self) -> bool {
        self.shares
            .iter()
            .any(|it| it.flow.is_none() && !it.is_delivered)
    }

    /// What a new flow is to send.
    pub(super) fn assign(&mut self, flow: FlowId, fanout: u32) -> Assignment {
        let is_new = self.flows.insert(flow);
        debug_assert!(is_new, "a seat was taken twice");
        let vacant = self
            .shares
            .iter_mut()
            .find(|it| it.flow.is_none() && !it.is_delivered);
        match vacant {
            Some(share) => {
                share.flow = Some(flow);
                Assignment::Share {
                    first: share.first,
                    count: share.count,
                }
            }
            None => Assignment::Rateless {
                seats: self.seats,
                sources: fanout,
            },
        }
    }

    /// Whether an order can be of one of its flows.
    pub(super) fn is_part(&self, order: &Order) -> bool {
        let is_assigned = match order.assignment {
            Assignment::Rateless { seats, .. } => self.is_coded && seats == self.seats,
            Assignment::Share { first, count } => {
                let end = first.checked_add(count);
                let is_apart = |it: &Share| first >= it.first + it.count || end <= Some(it.first);
                let is_sound = count > 0 && end.is_some_and(|end| end <= self.layout.symbols());
                !self.is_coded && is_sound && self.shares.iter().all(is_apart)
            }
        };
        let is_same = (order.device, order.layout) == (self.device, self.layout);
        is_assigned && is_same && order.uri == self.uri && order.flow.seat < self.seats
    }

    /// A flow that was ordered by an earlier controller is one of it, and so is what it is to deliver.
    pub(super) fn adopt(&mut self, order: &Order) {
        debug_assert!(order.flow.seat < self.seats, "a seat that there is not");
        self.flows.insert(order.flow);
        self.next_seat = self.next_seat.max(order.flow.seat + 1);
        if let Assignment::Share { first, count } = order.assignment {
            self.shares.push(Share {
                first,
                count,
                flow: Some(order.flow),
                is_delivered: false,
            });
        }
    }

    /// Makes parts of what belongs to none and may be missing, once: for a task that was adopted, after its sources
    /// have told of their flows. A gap is divided such that of all that may be missing no part has more than one
    /// in `parts`.
    pub(super) fn fill_gaps(&mut self, parts: u32) {
        if !std::mem::take(&mut self.has_gaps) {
            return;
        }
        let symbols = self.layout.symbols();
        let before = u64::from(self.floor) * u64::from(self.layout.block_symbols());
        let mut next = before.min(symbols);
        let count_max = (symbols - next).div_ceil(parts.max(1).into()).max(1);
        self.shares.sort_by_key(|it| it.first);
        let known = self.shares.iter().map(|it| (it.first, it.first + it.count));
        let mut gaps = Vec::new();
        for (first, end) in known.chain([(symbols, symbols)]) {
            while next < first {
                let count = (first - next).min(count_max);
                gaps.push(Share {
                    first: next,
                    count,
                    flow: None,
                    is_delivered: false,
                });
                next += count;
            }
            next = next.max(end);
        }
        debug_assert!(gaps.len() <= self.shares.len() + 1 + parts as usize);
        self.shares.extend(gaps);
    }

    /// A flow is no more; its part is whole again.
    pub(super) fn vacate(&mut self, flow: FlowId) {
        debug_assert!(
            self.shares
                .iter()
                .filter(|it| it.flow == Some(flow))
                .count()
                <= 1
        );
        for share in self.shares.iter_mut().filter(|it| it.flow == Some(flow)) {
            debug_assert!(!share.is_delivered, "what is delivered becomes vacant");
            share.flow = None;
        }
    }

    /// A flow has delivered its part.
    pub(super) fn deliver(&mut self, flow: FlowId) {
        for share in self.shares.iter_mut().filter(|it| it.flow == Some(flow)) {
            share.is_delivered = true;
        }
    }

    pub(super) fn view<'a>(&self, flows: impl Iterator<Item = &'a Flow>) -> TaskView {
        TaskView {
            device: self.device,
            remaining: self.remaining,
            is_paused: self.is_paused,
            sources: flows.map(|it| (it.source, it.theta)).collect(),
        }
    }
}

/// A flow and what its source is ordered.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) source: SourceId,
    /// The life of the source that has it.
    pub(super) incarnation: u64,
    pub(super) theta: f64,
    pub(super) state: OrderState,
    pub(super) serial: u32,
    /// The latest order that the source has obeyed.
    pub(super) obeyed: u32,
    pub(super) tries: u32,
    /// When the order is sent again.
    pub(super) due: Option<Time>,
    device: DeviceId,
    uri: String,
    layout: Layout,
    assignment: Assignment,
}

impl Flow {
    pub(super) fn new(
        (source, incarnation): (SourceId, u64),
        theta: f64,
        task: &Task,
        assignment: Assignment,
    ) -> Self {
        Self {
            source,
            incarnation,
            theta,
            state: OrderState::Push,
            serial: 1,
            obeyed: 0,
            tries: 0,
            due: None,
            device: task.device,
            uri: task.uri.clone(),
            layout: task.layout,
            assignment,
        }
    }

    /// One that an earlier controller ordered like this, and that its source has.
    pub(super) fn adopted(source: SourceId, order: &Order) -> Self {
        Self {
            source,
            incarnation: order.incarnation,
            theta: order.theta,
            state: order.state,
            serial: order.serial,
            obeyed: order.serial,
            tries: 0,
            due: None,
            device: order.device,
            uri: order.uri.clone(),
            layout: order.layout,
            assignment: order.assignment,
        }
    }

    pub(super) fn order(&self, flow: FlowId, epoch: u32) -> Order {
        debug_assert!(
            self.obeyed < self.serial,
            "an order that was obeyed is sent again"
        );
        Order {
            flow,
            epoch,
            incarnation: self.incarnation,
            serial: self.serial,
            state: self.state,
            theta: self.theta,
            device: self.device,
            uri: self.uri.clone(),
            layout: self.layout,
            assignment: self.assignment,
        }
    }
}
