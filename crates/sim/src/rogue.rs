//! A member that deceives the others: what the cast's own protocol would send is kept back.
//!
//! To everybody else it looks like any other: it connects, says what the protocol says, and takes what it
//! is given. What becomes of the others is what is of interest; that it never has the object is no fault.

use outpour_core::{BlockSet, NodeId, Time};
use outpour_protocols::{Action, Actions, Coded, Event, Protocol, Setup};

/// What a rogue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deceit {
    /// It says that it has all of the object, and sends nothing of it.
    Claim,
    /// It takes part, asks and takes work as the others do, and sends nothing on.
    Hoard,
    /// It is up and never says a word.
    Mute,
}

impl Deceit {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Claim, Self::Hoard, Self::Mute];

    /// What such a rogue's protocol is told that it has.
    pub(crate) fn boast(self, setup: &mut Setup) {
        if self == Self::Claim {
            setup.have = BlockSet::full(setup.have.len());
        }
    }
}

/// A rogue's protocol.
pub(crate) struct Rogue {
    protocol: Box<dyn Protocol>,
    deceit: Deceit,
}

impl Rogue {
    pub(crate) const fn new(protocol: Box<dyn Protocol>, deceit: Deceit) -> Self {
        Self { protocol, deceit }
    }
}

impl Protocol for Rogue {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        let event = match (self.deceit, event) {
            (Deceit::Mute, Event::Start) => event,
            // It calls nobody else, and answers nobody.
            (Deceit::Mute, _) => return,
            // What it said that it has is new to nobody.
            (Deceit::Claim, Event::Arrived { from, block, .. }) => {
                let fresh = false;
                Event::Arrived { from, block, fresh }
            }
            (Deceit::Claim, Event::Coded(Coded::Packet { .. } | Coded::Decoded { .. })) => return,
            _ => event,
        };
        let mut wanted = Actions::default();
        self.protocol.handle(now, event, &mut wanted);
        for action in wanted.drain() {
            let kept = match action {
                Action::SendBlock { .. } | Action::SendPacket { .. } => true,
                Action::Send { .. } | Action::SetTimer { .. } => self.deceit == Deceit::Mute,
                _ => false,
            };
            if !kept {
                out.push(action);
            }
        }
    }
}

/// Which member is a rogue, and what it does.
pub type RogueAt = (NodeId, Deceit);
