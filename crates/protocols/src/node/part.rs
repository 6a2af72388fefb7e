//! One protocol on one transfer: the peers that are up for it, those that it wants, and its timers.

use outpour_core::{BlockSet, NodeId, Time};

use crate::{Actions, Event, Protocol, TimerId};

/// See the module.
pub(super) struct Part {
    protocol: Box<dyn Protocol>,
    /// Peers that are up.
    up: BlockSet,
    /// Peers to which a connection was asked for, and was not given up.
    wanted: BlockSet,
    /// Timers that are set; a protocol has few.
    timers: Vec<(TimerId, Time)>,
    /// When the first of them is due.
    next: Option<Time>,
}

impl Part {
    /// A protocol among so many members.
    pub(super) fn new(protocol: Box<dyn Protocol>, members: u32) -> Self {
        Self {
            protocol,
            up: BlockSet::new(members),
            wanted: BlockSet::new(members),
            timers: Vec::new(),
            next: None,
        }
    }

    /// Gives the protocol an event.
    pub(super) fn handle(&mut self, now: Time, event: &Event<'_>, out: &mut Actions) {
        if let Event::Left(peer) = *event {
            self.forget(peer);
        }
        match *event {
            Event::PeerUp(peer)
            | Event::Message { from: peer, .. }
            | Event::Sent { to: peer, .. } => {
                debug_assert!(self.is_up(peer), "{event:?} of a peer that is down");
            }
            Event::PeerDown(peer) => debug_assert!(!self.is_up(peer)),
            Event::Timer(timer) => {
                debug_assert!(self.timers.iter().all(|(id, _)| *id != timer));
            }
            _ => {}
        }
        self.protocol.handle(now, *event, out);
    }

    // ---- peers

    /// The peers that are up and count on what this node is about to pass on.
    pub(super) fn dependents(&self) -> impl Iterator<Item = NodeId> + '_ {
        let up = self.up.iter().map(NodeId);
        up.filter(|peer| self.protocol.is_depended_on_by(*peer))
    }

    #[inline]
    pub(super) fn is_up(&self, peer: NodeId) -> bool {
        self.up.contains(peer.0)
    }

    /// A peer is up.
    pub(super) fn raise(&mut self, peer: NodeId) {
        let raised = self.up.insert(peer.0);
        debug_assert!(raised, "{peer} is up twice");
    }

    /// A peer is down; whether the protocol knew that it was up.
    pub(super) fn lower(&mut self, peer: NodeId) -> bool {
        self.up.remove(peer.0)
    }

    pub(super) fn want(&mut self, peer: NodeId) {
        if peer.0 < self.wanted.len() {
            self.wanted.insert(peer.0);
        }
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.wanted.remove(peer.0);
    }

    pub(super) fn wants(&self, peer: NodeId) -> bool {
        self.wanted.contains(peer.0)
    }

    fn check_timers(&self) {
        debug_assert_eq!(
            self.next,
            self.timers.iter().map(|(_, at)| *at).min(),
            "the next timer is the first"
        );
        debug_assert!(
            (self.timers.iter().zip(1..)).all(|((timer, _), rest)| {
                self.timers[rest..].iter().all(|(other, _)| other != timer)
            }),
            "a timer is set once"
        );
    }

    // ---- timers

    pub(super) fn set_timer(&mut self, timer: TimerId, at: Time) {
        match self.timers.iter_mut().find(|(id, _)| *id == timer) {
            Some((_, due)) => {
                let was_next = self.next == Some(*due);
                *due = at;
                if was_next {
                    self.find_next();
                    return self.check_timers();
                }
            }
            None => self.timers.push((timer, at)),
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        self.check_timers();
    }

    /// When the next timer is due.
    pub(super) const fn next_timer(&self) -> Option<Time> {
        self.next
    }

    /// How many timers are due.
    pub(super) fn count_due(&self, now: Time) -> usize {
        let due = self.timers.iter().filter(|(_, at)| *at <= now).count();
        debug_assert_eq!(due > 0, self.next.is_some_and(|next| next <= now));
        due
    }

    /// Takes the timer that was due first, if any is.
    pub(super) fn take_due(&mut self, now: Time) -> Option<TimerId> {
        self.next.filter(|next| *next <= now)?;
        let timers = self.timers.iter().enumerate();
        let (at, _) = timers.min_by_key(|(_, (timer, at))| (*at, *timer))?;
        let (timer, due) = self.timers.swap_remove(at);
        debug_assert!(due <= now);
        debug_assert_eq!(Some(due), self.next, "the first is the next");
        self.find_next();
        Some(timer)
    }

    fn find_next(&mut self) {
        self.next = self.timers.iter().map(|(_, at)| *at).min();
        debug_assert_eq!(self.next.is_none(), self.timers.is_empty());
    }
}
