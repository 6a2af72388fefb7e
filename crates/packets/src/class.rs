//! The queues of a port: who finds room, and who is next.

use std::collections::VecDeque;

use outpour_core::network::Backlog;

use crate::engine::{Load, Parcel};
use crate::setting::{Discipline, Order, Queue};

/// Fractions of a byte that the bookkeeping of shares keeps: a power of two well above the largest
/// weight.
const SHARE_BITS: u32 = 16;

/// Places in the order of shares are counted anew from here on, long before they overflow.
const SHARE_MAX: u64 = 1 << 60;

/// What waits in a queue, the packet in service left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

impl Waiting {
    fn reaches(self, backlog: Backlog) -> bool {
        match backlog {
            Backlog::Packets(packets) => self.packets >= u64::from(packets),
            Backlog::Bytes(bytes) => self.bytes >= bytes.0,
        }
    }

    fn plus(self, load: &impl Load) -> Self {
        Self {
            bytes: self.bytes + u64::from(load.wire_bytes()),
            packets: self.packets + u64::from(load.packets()),
        }
    }

    fn minus(self, load: &impl Load) -> Self {
        Self {
            bytes: self.bytes - u64::from(load.wire_bytes()),
            packets: self.packets - u64::from(load.packets()),
        }
    }

    fn fits(self, limit: Backlog) -> bool {
        match limit {
            Backlog::Packets(packets) => self.packets <= u64::from(packets),
            Backlog::Bytes(bytes) => self.bytes <= bytes.0,
        }
    }
}

/// Whether a packet has joined a queue.
pub(crate) enum Joined<P> {
    /// It waits, marked or not.
    Yes { marked: bool },
    /// There is no room for it.
    Full(Parcel<P>),
}

struct Class<P> {
    parcels: VecDeque<Parcel<P>>,
    waiting: Waiting,
    queue: Queue,
    /// Where in the order of shares the next packet of the class begins.
    begins: u64,
}

/// All queues of a port. The packet in service stays the first of its queue.
pub(crate) struct Classes<P> {
    order: Order,
    classes: Box<[Class<P>]>,
    /// The class of the packet in service.
    serving: Option<u8>,
    packets_waiting: u64,
    /// Where in the order of shares the packet in service began.
    share: u64,
}

impl<P: Load> Classes<P> {
    pub(crate) fn new(discipline: &Discipline) -> Self {
        let class = |queue: &Queue| Class {
            parcels: VecDeque::new(),
            waiting: Waiting::default(),
            queue: *queue,
            begins: 0,
        };
        Self {
            order: discipline.order(),
            classes: discipline.queues().iter().map(class).collect(),
            serving: None,
            packets_waiting: 0,
            share: 0,
        }
    }

    /// Changes limits, thresholds, weights and the order; there are as many queues as before.
    pub(crate) fn set(&mut self, discipline: &Discipline) {
        if self.order != discipline.order() {
            // What classes were served in another order is no debt in this one.
            self.classes.iter_mut().for_each(|class| class.begins = 0);
            self.share = 0;
        }
        self.order = discipline.order();
        for (class, queue) in self.classes.iter_mut().zip(discipline.queues()) {
            class.queue = *queue;
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.serving.is_none()
    }

    /// How many packets wait, the one in service left out.
    pub(crate) fn packets_waiting(&self) -> u64 {
        self.packets_waiting
    }

    /// All packets that are here, the one in service included.
    pub(crate) fn parcels(&self) -> impl Iterator<Item = &Parcel<P>> {
        self.classes.iter().flat_map(|class| &class.parcels)
    }

    fn class_of(&self, load: &P) -> usize {
        usize::from(load.class()).min(self.classes.len() - 1)
    }

    /// A packet comes to an idle port and is served at once.
    pub(crate) fn serve(&mut self, parcel: Parcel<P>) {
        debug_assert!(self.is_idle());
        let index = self.class_of(&parcel.load);
        self.classes[index].parcels.push_back(parcel);
        self.begin(index);
    }

    /// A packet joins its queue, if there is room.
    pub(crate) fn join(&mut self, mut parcel: Parcel<P>) -> Joined<P> {
        debug_assert!(!self.is_idle());
        let index = self.class_of(&parcel.load);
        let class = &mut self.classes[index];
        let after = class.waiting.plus(&parcel.load);
        if !after.fits(class.queue.limit) {
            return Joined::Full(parcel);
        }
        let full = |from| class.waiting.reaches(from);
        let marked = class.queue.mark_from.is_some_and(full) && parcel.load.mark();
        if class.waiting == Waiting::default() {
            // Who did not wait has saved up nothing.
            class.begins = class.begins.max(self.share);
        }
        class.waiting = after;
        self.packets_waiting += u64::from(parcel.load.packets());
        class.parcels.push_back(parcel);
        Joined::Yes { marked }
    }

    /// The packet in service goes, and the next one that waits comes into service.
    pub(crate) fn finish(&mut self) -> Option<Parcel<P>> {
        let serving = self.serving.take()?;
        let done = self.classes[usize::from(serving)].parcels.pop_front();
        let mut waiting = (self.classes.iter().enumerate()).filter(|(_, c)| !c.parcels.is_empty());
        let next = match self.order {
            _ if self.classes.len() == 1 => waiting.next(),
            Order::Strict => waiting.next(),
            Order::Weighted => waiting.min_by_key(|(_, class)| class.begins),
        };
        match next.map(|(index, _)| index) {
            Some(index) => {
                let class = &mut self.classes[index];
                if let Some(parcel) = class.parcels.front() {
                    class.waiting = class.waiting.minus(&parcel.load);
                    self.packets_waiting -= u64::from(parcel.load.packets());
                }
                self.begin(index);
            }
            None => self.rest(),
        }
        done
    }

    /// The bytes of the packet in service.
    pub(crate) fn serving_bytes(&self) -> Option<u32> {
        let class = &self.classes[usize::from(self.serving?)];
        class.parcels.front().map(|parcel| parcel.load.wire_bytes())
    }

    fn begin(&mut self, index: usize) {
        self.serving = Some(index as u8);
        if self.order == Order::Weighted {
            let class = &mut self.classes[index];
            let bytes = class.parcels.front().map_or(0, |p| p.load.wire_bytes());
            self.share = class.begins;
            class.begins += (u64::from(bytes) << SHARE_BITS) / u64::from(class.queue.weight.get());
            if self.share > SHARE_MAX {
                let classes = self.classes.iter_mut();
                classes.for_each(|class| class.begins = class.begins.saturating_sub(self.share));
                self.share = 0;
            }
        }
    }

    /// Nothing is left, and nobody is owed anything.
    fn rest(&mut self) {
        if self.order == Order::Weighted {
            (self.classes.iter_mut()).for_each(|class| class.begins = 0);
        }
    }
}
