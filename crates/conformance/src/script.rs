//! A protocol that does what a case says, and puts everything on record.

use std::sync::Arc;
use std::time::Duration;

use outpour_core::{BatchId, BlockId, NodeId, Rate, Time};
use outpour_protocols::{Action, Actions, Event, Protocol, TimerId};

use crate::play::{Inner, Wish};
use crate::record::{Heard, What};

pub(crate) struct Scripted {
    me: NodeId,
    /// `None` if the play is over.
    play: Option<Arc<Inner>>,
    heard: Vec<Heard>,
}

impl Scripted {
    pub(crate) const fn new(me: NodeId, play: Option<Arc<Inner>>) -> Self {
        let heard = Vec::new();
        Self { me, play, heard }
    }
}

impl Protocol for Scripted {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Actions) {
        let heard = Heard::from(event);
        let Some(play) = &self.play else { return };
        if !play.note(self.me, now, What::Heard(heard.clone())) {
            return;
        }
        self.heard.push(heard.clone());
        let mut turn = Turn {
            me: self.me.0,
            now,
            heard: &self.heard,
            play,
            out,
        };
        (play.case.act)(&mut turn, &heard);
    }
}

/// One node's turn: it was told something, and may act.
pub struct Turn<'a> {
    /// Whose turn it is.
    pub me: u32,
    now: Time,
    /// All that this node was told, the last included.
    pub heard: &'a [Heard],
    play: &'a Inner,
    out: &'a mut Actions,
}

impl Turn<'_> {
    fn act(&mut self, action: Action) {
        self.play.note_action(NodeId(self.me), self.now, &action);
        self.out.push(action);
    }

    /// How often this node was told such a thing.
    pub fn count(&self, wanted: impl Fn(&Heard) -> bool) -> usize {
        self.heard.iter().filter(|heard| wanted(heard)).count()
    }

    /// How often a peer came up.
    pub fn ups(&self, peer: u32) -> usize {
        self.count(|heard| *heard == Heard::Up(NodeId(peer)))
    }

    /// Connects to a peer.
    pub fn connect(&mut self, peer: u32) {
        self.act(Action::Connect(NodeId(peer)));
    }

    /// Disconnects a peer.
    pub fn disconnect(&mut self, peer: u32) {
        self.act(Action::Disconnect(NodeId(peer)));
    }

    /// Says something to a peer.
    pub fn say(&mut self, peer: u32, body: impl AsRef<[u8]>) {
        let (to, body) = (NodeId(peer), body.as_ref().to_vec());
        self.act(Action::Send { to, body });
    }

    /// Sends a peer a block.
    pub fn give(&mut self, peer: u32, block: BlockId) {
        let to = NodeId(peer);
        self.act(Action::SendBlock { to, block });
    }

    /// Sends a peer a packet.
    pub fn code(&mut self, peer: u32, batch: BatchId, pure: bool) {
        let to = NodeId(peer);
        self.act(Action::SendPacket { to, batch, pure });
    }

    /// Sets the rate towards a peer.
    pub fn pace(&mut self, peer: u32, rate: Rate) {
        let to = NodeId(peer);
        self.act(Action::SetRate { to, rate });
    }

    /// Sets a timer to so long after now, or to a time that has passed if there is no such.
    pub fn timer(&mut self, timer: u32, after: Option<Duration>) {
        let at = after.map_or(Time::ZERO, |after| self.now + after);
        let timer = TimerId(timer);
        self.act(Action::SetTimer { timer, at });
    }

    /// Accuses a peer.
    pub fn accuse(&mut self, peer: u32) {
        let (peer, offence) = (NodeId(peer), "says what makes no sense");
        self.act(Action::Accuse { peer, offence });
    }

    /// Has all others told that a node has left.
    pub fn expel(&mut self, node: u32) {
        self.play.wish(Wish::Expel(NodeId(node)));
    }

    /// Answers a message of `peer`, which does the same, until `rounds` messages have come: whatever
    /// else was under way has happened by then. Says whether they have.
    pub fn volley(&mut self, peer: u32, rounds: usize) -> bool {
        let from = NodeId(peer);
        let heard = self.count(|heard| matches!(heard, Heard::Message(by, _) if *by == from));
        if heard < rounds {
            // Each is said once, so that a message that comes twice is seen.
            self.say(peer, (heard as u32).to_le_bytes());
        }
        heard >= rounds
    }

    /// The play is over.
    pub fn finish(&self) {
        self.play.finish();
    }
}
