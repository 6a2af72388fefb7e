//! One series of a group with what belongs to it: which member owns what in which operation, and
//! timers.

use std::collections::{BTreeMap, VecDeque};

use outpour_core::{NodeId, Time};
use outpour_protocols::series::{AHEAD_MAX, Series, SeriesTimer};

use crate::wire::Stripe;

/// What this member owns in an operation until it has begun.
pub(crate) type Blocks = Vec<Box<[u8]>>;

/// A series and its operations.
pub(crate) struct Track {
    pub(crate) series: Series,
    /// Stripes of operations that have not begun, by operation and owner.
    announced: BTreeMap<(u32, NodeId), Stripe>,
    /// What this member told the others about operations that are not flushed.
    told: VecDeque<(u32, Stripe)>,
    timers: BTreeMap<SeriesTimer, Time>,
    /// How many operations no other member needs this one for any more.
    flushed: u32,
}

impl Track {
    pub(crate) const fn new(series: Series) -> Self {
        Self {
            series,
            announced: BTreeMap::new(),
            told: VecDeque::new(),
            timers: BTreeMap::new(),
            flushed: 0,
        }
    }

    /// Notes what a member owns in an operation; false if no member may say that now.
    pub(crate) fn announce(&mut self, operation: u32, owner: NodeId, stripe: Stripe) -> bool {
        let next = self.series.begun();
        if operation >= next {
            if operation - next > AHEAD_MAX {
                return false;
            }
            self.announced.entry((operation, owner)).or_insert(stripe);
        }
        // Of operations that have begun it is said again when a connection was made again.
        true
    }

    /// Notes what this member owns in an operation, to be said again to a member that comes back.
    pub(crate) fn tell(&mut self, operation: u32, me: NodeId, stripe: Stripe) {
        self.announced.insert((operation, me), stripe.clone());
        self.told.push_back((operation, stripe));
    }

    /// What was told of operations that are not flushed.
    pub(crate) fn told(&self) -> impl Iterator<Item = &(u32, Stripe)> {
        self.told.iter()
    }

    /// The stripes of the next operation, if all its owners have said what they are.
    pub(crate) fn complete(
        &self,
        operation: u32,
        owners: &[NodeId],
    ) -> Option<Vec<(NodeId, Stripe)>> {
        let each = owners.iter().map(|owner| {
            let stripe = self.announced.get(&(operation, *owner))?;
            Some((*owner, stripe.clone()))
        });
        each.collect()
    }

    /// An operation has begun.
    pub(crate) fn forget_announced(&mut self, operation: u32) {
        self.announced.retain(|(of, _), _| *of > operation);
    }

    /// No other member needs this one for an operation any more.
    pub(crate) fn flush(&mut self, operation: u32) {
        self.flushed = operation + 1;
        self.told.retain(|(of, _)| *of > operation);
        self.timers.retain(|timer, _| timer.operation > operation);
    }

    /// Whether no other member needs this one any more.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.flushed == self.series.begun()
    }

    pub(crate) fn set_timer(&mut self, timer: SeriesTimer, at: Time) {
        self.timers.insert(timer, at);
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.values().min().copied()
    }

    /// Takes out a timer that is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<SeriesTimer> {
        let due = self.timers.iter().find(|(_, at)| **at <= now);
        let timer = *due?.0;
        self.timers.remove(&timer);
        Some(timer)
    }
}
