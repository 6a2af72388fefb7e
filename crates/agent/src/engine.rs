//! Runs one sans-IO protocol on the data plane: events in, actions out, timers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use outpour_core::{NodeId, Time};
use outpour_net::Mesh;
use outpour_protocols::{Action, Actions, Event, Protocol, TimerId};

/// The process's monotonic clock as protocols see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Takes a time out that the process spent standing still, so that nobody is blamed for it.
    pub(crate) fn skip(&mut self, pause: Duration) {
        self.origin += pause;
    }

    pub(crate) fn now(self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    pub(crate) fn instant(self, time: Time) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.origin + time.since(Time::ZERO))
    }
}

/// One protocol on one transfer of the mesh.
pub(crate) struct Engine {
    transfer: u8,
    protocol: Box<dyn Protocol>,
    clock: Clock,
    timers: BTreeMap<TimerId, Time>,
    up: BTreeSet<NodeId>,
    /// Peers to which a connection was asked for.
    wanted: BTreeSet<NodeId>,
    /// Peers whose links were closed since that was last asked.
    closed: Vec<NodeId>,
    actions: Actions,
    accusations: Vec<(NodeId, &'static str)>,
}

impl Engine {
    pub(crate) fn new(transfer: u8, protocol: Box<dyn Protocol>, clock: Clock) -> Self {
        Self {
            transfer,
            protocol,
            clock,
            timers: BTreeMap::new(),
            up: BTreeSet::new(),
            wanted: BTreeSet::new(),
            closed: Vec::new(),
            actions: Actions::default(),
            accusations: Vec::new(),
        }
    }

    /// Gives the protocol one event and carries out what it wants.
    pub(crate) fn handle(&mut self, mesh: &Mesh, event: Event<'_>) {
        match event {
            Event::PeerUp(peer) => {
                self.up.insert(peer);
            }
            // A peer that the protocol does not know to be up cannot go down.
            Event::PeerDown(peer) if !self.up.remove(&peer) => return,
            Event::Left(peer) => {
                self.wanted.remove(&peer);
            }
            _ => {}
        }
        self.step(mesh, event);
    }

    /// Whether this protocol asked for a connection to a peer.
    pub(crate) fn wants(&self, peer: NodeId) -> bool {
        self.wanted.contains(&peer)
    }

    /// Peers whose links this protocol closed since the last call. Links serve all transfers.
    pub(crate) fn closed(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.closed)
    }

    fn step(&mut self, mesh: &Mesh, event: Event<'_>) {
        self.protocol
            .handle(self.clock.now(), event, &mut self.actions);
        for action in self.actions.drain() {
            match action {
                Action::Connect(peer) => {
                    self.wanted.insert(peer);
                    mesh.connect(peer);
                }
                Action::Disconnect(peer) => {
                    self.wanted.remove(&peer);
                    self.closed.push(peer);
                    mesh.disconnect(peer);
                }
                Action::Send { to, body } => mesh.send(self.transfer, to, body),
                Action::SendBlock { to, block } => mesh.send_block(self.transfer, to, block),
                Action::SendPacket { to, batch, pure } => {
                    mesh.send_packet(self.transfer, to, batch, pure);
                }
                Action::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Action::Accuse { peer, offence } => self.accusations.push((peer, offence)),
            }
        }
    }

    /// Peers the protocol accused since the last call, to be parted from.
    pub(crate) fn accusations(&mut self) -> Vec<(NodeId, &'static str)> {
        std::mem::take(&mut self.accusations)
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.values().min().copied()
    }

    /// Fires the timers that are due.
    pub(crate) fn fire(&mut self, mesh: &Mesh) {
        let now = self.clock.now();
        let due: Vec<TimerId> = self
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(timer, _)| *timer)
            .collect();
        for timer in due {
            self.timers.remove(&timer);
            self.handle(mesh, Event::Timer(timer));
        }
    }
}
