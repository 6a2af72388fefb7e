//! One protocol on one transfer: who is up for it, whom it wants, and its timers.

use std::collections::BTreeSet;

use outpour_core::{NodeId, Time};

use crate::{Actions, Event, Protocol, TimerId};

/// See the module.
pub(super) struct Part {
    protocol: Box<dyn Protocol>,
    up: BTreeSet<NodeId>,
    /// Peers to which a connection was asked for, and was not given up.
    wanted: BTreeSet<NodeId>,
    /// Timers that are set; a protocol has few.
    timers: Vec<(TimerId, Time)>,
    /// When the first of them is due.
    next: Option<Time>,
}

impl Part {
    pub(super) const fn new(protocol: Box<dyn Protocol>) -> Self {
        Self {
            protocol,
            up: BTreeSet::new(),
            wanted: BTreeSet::new(),
            timers: Vec::new(),
            next: None,
        }
    }

    /// Gives the protocol an event.
    pub(super) fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        if let Event::Left(peer) = event {
            self.wanted.remove(&peer);
        }
        self.protocol.handle(now, event, out);
    }

    // ---- peers

    pub(super) fn is_up(&self, peer: NodeId) -> bool {
        self.up.contains(&peer)
    }

    /// A peer is up.
    pub(super) fn raise(&mut self, peer: NodeId) {
        let raised = self.up.insert(peer);
        debug_assert!(raised, "{peer} is up twice");
    }

    /// A peer is down; whether the protocol knew that it was up.
    pub(super) fn lower(&mut self, peer: NodeId) -> bool {
        self.up.remove(&peer)
    }

    pub(super) fn want(&mut self, peer: NodeId) {
        self.wanted.insert(peer);
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.wanted.remove(&peer);
    }

    pub(super) fn wants(&self, peer: NodeId) -> bool {
        self.wanted.contains(&peer)
    }

    // ---- timers

    pub(super) fn set_timer(&mut self, timer: TimerId, at: Time) {
        match self.timers.iter_mut().find(|(id, _)| *id == timer) {
            Some((_, due)) => {
                let was_next = self.next == Some(*due);
                *due = at;
                if was_next {
                    return self.find_next();
                }
            }
            None => self.timers.push((timer, at)),
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// When the next timer is due.
    pub(super) const fn next_timer(&self) -> Option<Time> {
        self.next
    }

    /// The timers that are due, first those that were due first.
    pub(super) fn due(&self, now: Time) -> Vec<TimerId> {
        let mut due: Vec<_> = (self.timers.iter())
            .filter(|(_, at)| *at <= now)
            .map(|(timer, at)| (*at, *timer))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, timer)| timer).collect()
    }

    /// Takes a timer that is due; whether it is still set to that.
    pub(super) fn take_due(&mut self, timer: TimerId, now: Time) -> bool {
        let is_due = |(id, at): &(TimerId, Time)| *id == timer && *at <= now;
        let Some(at) = self.timers.iter().position(is_due) else {
            return false;
        };
        self.timers.swap_remove(at);
        self.find_next();
        true
    }

    fn find_next(&mut self) {
        self.next = self.timers.iter().map(|(_, at)| *at).min();
        debug_assert_eq!(self.next.is_none(), self.timers.is_empty());
    }
}
