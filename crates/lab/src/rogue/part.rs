//! A rogue's part by the real protocol of its cast, but for what it ought to send.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use outpour_core::{NodeId, Time};
use outpour_net::{PacketNews, Session, SessionEvent};
use outpour_protocols::{Action, Actions, Coded, Event, Protocol, TimerId};

use super::OBJECT;

/// How long nothing is done while no timer runs.
const IDLE: Duration = Duration::from_secs(1);

/// The protocol of the object's transfer, and its clock.
pub(super) struct Part {
    protocol: Box<dyn Protocol>,
    timers: BTreeMap<TimerId, Time>,
    origin: Instant,
    begun: bool,
    /// Whether blocks and packets are sent at all.
    sends: bool,
}

impl Part {
    pub(super) fn new(protocol: Box<dyn Protocol>, sends: bool) -> Self {
        Self {
            protocol,
            timers: BTreeMap::new(),
            origin: Instant::now(),
            begun: false,
            sends,
        }
    }

    /// The cast has begun; these peers are up already.
    pub(super) fn begin(&mut self, session: &Session, up: &[(u8, NodeId)]) {
        if self.begun {
            return;
        }
        self.begun = true;
        self.handle(session, Event::Start);
        for (_, peer) in up.iter().filter(|(transfer, _)| *transfer == OBJECT) {
            self.handle(session, Event::PeerUp(*peer));
        }
    }

    pub(super) fn on_event(&mut self, session: &Session, event: SessionEvent) {
        let (transfer, event) = match &event {
            SessionEvent::PeerUp { transfer, peer } => (*transfer, Event::PeerUp(*peer)),
            SessionEvent::PeerDown { transfer, peer } => (*transfer, Event::PeerDown(*peer)),
            SessionEvent::Message {
                transfer,
                from,
                body,
            } => (*transfer, Event::Message { from: *from, body }),
            SessionEvent::Arrived {
                transfer,
                from,
                block,
                fresh,
            } => {
                let (from, block, fresh) = (*from, *block, *fresh);
                (*transfer, Event::Arrived { from, block, fresh })
            }
            SessionEvent::Sent {
                transfer,
                to,
                block,
            } => {
                let (to, block) = (*to, *block);
                (*transfer, Event::Sent { to, block })
            }
            SessionEvent::PacketSent {
                transfer,
                to,
                batch,
            } => {
                let (to, batch) = (*to, *batch);
                (*transfer, Event::Coded(Coded::Sent { to, batch }))
            }
            SessionEvent::Coded {
                transfer,
                from,
                batch,
                news: PacketNews::Taken { worth, holding },
            } => {
                let packet = Coded::Packet {
                    from: *from,
                    batch: *batch,
                    worth: *worth,
                    holding: *holding,
                };
                (*transfer, Event::Coded(packet))
            }
            _ => return,
        };
        if transfer == OBJECT && self.begun {
            self.handle(session, event);
        }
    }

    /// How long until a timer is due.
    pub(super) fn rest(&self) -> Duration {
        let next = self.timers.values().min();
        next.map_or(IDLE, |at| at.since(self.now()))
    }

    /// Fires the timers that are due.
    pub(super) fn fire(&mut self, session: &Session) {
        let now = self.now();
        let due = self.timers.iter().filter(|(_, at)| **at <= now);
        let due: Vec<TimerId> = due.map(|(timer, _)| *timer).collect();
        for timer in due {
            self.timers.remove(&timer);
            self.handle(session, Event::Timer(timer));
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    fn handle(&mut self, session: &Session, event: Event<'_>) {
        let mut actions = Actions::default();
        self.protocol.handle(self.now(), event, &mut actions);
        for action in actions.drain() {
            match action {
                Action::Connect(peer) => session.connect(peer),
                Action::Disconnect(peer) => session.disconnect(peer),
                Action::Send { to, body } => session.send(OBJECT, to, body),
                Action::SendBlock { to, block } if self.sends => {
                    session.send_block(OBJECT, to, block);
                }
                Action::SendPacket { to, batch, pure } if self.sends => {
                    session.send_packet(OBJECT, to, batch, pure);
                }
                Action::SetRate { to, rate } => session.set_peer_rate(to, rate),
                Action::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Action::SendBlock { .. } | Action::SendPacket { .. } | Action::Accuse { .. } => {}
            }
        }
    }
}
