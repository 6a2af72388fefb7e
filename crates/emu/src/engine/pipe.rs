//! One resource: a queue served at a rate, and a delay behind it.

use std::collections::VecDeque;

use outpour_core::network::Backlog;
use rand_core::RngCore;

use super::loss::Loss;
use super::{Load, Parcel};

/// How a pipe treats packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    /// Nanoseconds a byte takes: zero without limit, infinite if nothing passes.
    pub(super) nanos_per_byte: f64,
    pub(super) delay_nanos: u64,
    /// How much waits, besides the packet in service, before more is dropped.
    pub(super) limit: Backlog,
    /// From how much waiting on packets are marked.
    pub(super) mark_from: Option<Backlog>,
    pub(super) loss: Loss,
}

/// What happens to a packet that enters.
pub(super) enum Entry<P> {
    /// Nothing holds it here.
    Passes(Parcel<P>),
    /// It waits. If it is served at once, it is so until then.
    Waits {
        marked: bool,
        served_at: Option<u64>,
    },
    /// It is delayed; if it is the only one, it emerges then.
    Delayed { emerges_at: Option<u64> },
    /// There is no room for it.
    Dropped,
    /// It is lost at random.
    Lost,
}

pub(super) struct Pipe<P> {
    setting: Setting,
    queue: VecDeque<Parcel<P>>,
    waiting: Waiting,
    /// How many bytes of the first packet were left at what time.
    left_bytes: f64,
    since: u64,
    /// Counts the changes that made an event on its way obsolete.
    generation: u32,
    line: VecDeque<(u64, Parcel<P>)>,
    /// When the last packet of the delay line emerges; no later one does so before it.
    last_emerges: u64,
}

/// What is in a queue, the packet in service left out.
#[derive(Clone, Copy, Default)]
struct Waiting {
    bytes: u64,
    packets: u64,
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

impl<P: Load> Pipe<P> {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            queue: VecDeque::new(),
            waiting: Waiting::default(),
            left_bytes: 0.0,
            since: 0,
            generation: 0,
            line: VecDeque::new(),
            last_emerges: 0,
        }
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// A packet comes.
    pub(super) fn enter(
        &mut self,
        mut parcel: Parcel<P>,
        now: u64,
        dice: &mut impl RngCore,
    ) -> Entry<P> {
        if self.setting.loss.strikes(dice) {
            return Entry::Lost;
        }
        if self.queue.is_empty() {
            if self.setting.nanos_per_byte == 0.0 {
                return self.delay(parcel, now);
            }
            self.left_bytes = f64::from(parcel.load.wire_bytes());
            self.since = now;
            self.queue.push_back(parcel);
            let (marked, served_at) = (false, self.served_at());
            return Entry::Waits { marked, served_at };
        }
        let after = self.waiting.plus(&parcel.load);
        if !after.fits(self.setting.limit) {
            return Entry::Dropped;
        }
        let full = |from| self.waiting.reaches(from);
        let marked = self.setting.mark_from.is_some_and(full) && parcel.load.mark();
        self.waiting = after;
        self.queue.push_back(parcel);
        let served_at = None;
        Entry::Waits { marked, served_at }
    }

    /// The packet in service is done; the next one is so at the time that comes with it.
    pub(super) fn finish(&mut self, now: u64) -> (Option<Parcel<P>>, Option<u64>) {
        let done = self.queue.pop_front();
        let Some(next) = self.queue.front() else {
            return (done, None);
        };
        self.waiting = self.waiting.minus(&next.load);
        self.left_bytes = f64::from(next.load.wire_bytes());
        self.since = now;
        (done, self.served_at())
    }

    /// A packet enters the delay line.
    pub(super) fn delay(&mut self, parcel: Parcel<P>, now: u64) -> Entry<P> {
        if self.setting.delay_nanos == 0 && self.line.is_empty() {
            return Entry::Passes(parcel);
        }
        // A delay that shrinks lets no packet overtake another.
        let emerges = (now.saturating_add(self.setting.delay_nanos)).max(self.last_emerges);
        self.last_emerges = emerges;
        let emerges_at = self.line.is_empty().then_some(emerges);
        self.line.push_back((emerges, parcel));
        Entry::Delayed { emerges_at }
    }

    /// The first packet leaves the delay line; the next one does at the time that comes with it.
    pub(super) fn emerge(&mut self) -> (Option<Parcel<P>>, Option<u64>) {
        let first = self.line.pop_front().map(|(_, parcel)| parcel);
        (first, self.line.front().map(|(time, _)| *time))
    }

    /// Changes the setting. A packet in service goes on at the new rate: the new time it is done
    /// comes back, and the time given before is obsolete.
    pub(super) fn set(&mut self, setting: Setting, now: u64) -> Option<u64> {
        let old = self.setting.nanos_per_byte;
        let loss = self.setting.loss.changed_to(setting.loss);
        self.setting = Setting { loss, ..setting };
        if old == setting.nanos_per_byte || self.queue.is_empty() {
            return None;
        }
        if old > 0.0 {
            let served = now.saturating_sub(self.since) as f64 / old;
            self.left_bytes = (self.left_bytes - served).max(0.0);
        }
        self.since = now;
        self.generation = self.generation.wrapping_add(1);
        self.served_at()
    }

    fn served_at(&self) -> Option<u64> {
        let nanos = self.left_bytes * self.setting.nanos_per_byte;
        // Nothing is ever served at a rate of zero, and NaN is no bytes at that rate.
        (nanos.is_finite()).then(|| self.since.saturating_add(nanos.round() as u64))
    }
}
