//! The coordinator of a cast in the same world: it starts the nodes, hears of their progress and
//! their end, and tells the others which nodes have left, as it does for real agents.
//!
//! In an attended transfer a node that crashes is out for good, because nothing starts its agent
//! again within the cast. The control channel takes [`CONTROL_DELAY`] each way; faults of the
//! network do not touch it, those of nodes do.

use std::time::Duration;

use outpour_core::{NodeId, Time};
use outpour_protocols::coordinator::{
    Config, Contact, Coordinator, Given, Host, Input, Obedience, Order, Output, Participant,
    Report, Stamp, TransferName,
};
use outpour_protocols::node::{self, Measures};
use outpour_protocols::{Member, Role};

use super::{Accusation, Happening, KEEP_ALIVE, State, World};

/// How long a report or an order takes.
pub const CONTROL_DELAY: Duration = Duration::from_millis(20);
/// How often a node reports its progress.
const REPORT: Duration = Duration::from_millis(500);
/// The transfer's name, and the epoch of its coordinator: it has taken over from another one.
const TRANSFER: TransferName = [0; 16];
const EPOCH: u64 = 2;
/// When orders come once more.
const AGAIN: Duration = Duration::from_secs(1);

/// Whose orders a node obeys.
pub(super) const fn obedience() -> Obedience {
    Obedience::new(TRANSFER, EPOCH)
}

/// A coordinator and what its host keeps for it.
#[derive(Debug)]
pub(super) struct Desk {
    coordinator: Coordinator,
    wake: Time,
}

impl Desk {
    pub(super) fn new(members: &[Member], size_bytes: u64, patience: Duration) -> Self {
        let participant = |(node, member): (usize, &Member)| Participant {
            name: format!("host {node}"),
            role: member.role,
        };
        let config = Config {
            epoch: EPOCH,
            nodes: members.iter().enumerate().map(participant).collect(),
            size_bytes,
            entries: 1,
            patience,
        };
        Self {
            coordinator: Coordinator::new(config),
            wake: Time::ZERO,
        }
    }
}

impl World {
    /// Whether a coordinator runs the transfer and has ended it.
    pub fn has_ended(&self) -> bool {
        self.desk
            .as_ref()
            .is_some_and(|desk| desk.coordinator.has_ended())
    }

    /// What the coordinator knows of a host, its verdict above all; nothing of sources and relays, or without one.
    pub fn verdict(&self, node: NodeId) -> Option<&Host> {
        let host = self.desk.as_ref()?.coordinator.nodes().get(node.index())?;
        (host.role == Role::Receiver).then_some(host)
    }

    fn tell_in(&mut self, wait: Duration, input: Input) {
        let input = Box::new(input);
        self.queue
            .push(self.now + wait + CONTROL_DELAY, Happening::Tell { input });
    }

    pub(super) const fn is_attended(&self) -> bool {
        self.desk.is_some()
    }

    /// Tells the coordinator something that is known where it is.
    pub(super) fn tell_desk(&mut self, input: Input) {
        let input = Box::new(input);
        self.queue.push(self.now, Happening::Tell { input });
    }

    pub(super) fn report(&mut self, node: NodeId, report: Report) {
        if self.desk.is_some() {
            self.tell_in(Duration::ZERO, Input::Report { node, report });
        }
    }

    pub(super) fn accuse(&mut self, node: NodeId, peer: NodeId, offence: &str) {
        let known = |it: &Accusation| (it.by, it.peer) == (node, peer);
        if !self.accusations.iter().any(known) {
            let (at, by) = (self.now, node);
            self.accusations.push(Accusation { at, by, peer });
        }
        let offence = offence.to_owned();
        self.report(node, Report::Accuse { peer, offence });
    }

    /// The node's agent runs; says whether it now waits for its orders.
    pub(super) fn join(&mut self, node: NodeId) -> bool {
        if self.desk.is_none() {
            return false;
        }
        let contact = Contact::default();
        self.tell_in(Duration::ZERO, Input::Joined { node, contact });
        self.launch(node);
        true
    }

    /// The node's agent is dead, and so is its control channel.
    pub(super) fn lose_control(&mut self, node: NodeId, silent: bool) {
        if self.desk.is_none() {
            return;
        }
        self.nodes[node.index()].state = State::Gone;
        self.nodes[node.index()].lost = true;
        self.count_incomplete();
        let wait = if silent { KEEP_ALIVE } else { Duration::ZERO };
        self.tell_in(
            wait,
            Input::Lost {
                node,
                error: "it crashed".to_owned(),
            },
        );
    }

    pub(super) fn on_tell(&mut self, input: Input) {
        let now = self.now;
        let Some(desk) = &mut self.desk else { return };
        for output in desk.coordinator.handle(now, input) {
            match output {
                Output::Order { to, given } => self.carry(to, given),
                Output::WakeAt(at) => {
                    if let Some(desk) = &mut self.desk {
                        desk.wake = at;
                    }
                    self.queue.push(at, Happening::Wake);
                }
                Output::Notice(_) | Output::Ended => {}
            }
        }
    }

    pub(super) fn on_wake(&mut self) {
        if self.desk.as_ref().is_some_and(|desk| desk.wake == self.now) {
            self.on_tell(Input::Woken);
        }
    }

    /// An order is on its way. Where everything is checked it comes once more, as after a channel that
    /// broke, and the coordinator of before says that all is over.
    fn carry(&mut self, at: NodeId, given: Given) {
        let now = self.now;
        if self.checked {
            let stale = Given {
                stamp: Stamp::last(EPOCH - 1),
                order: Order::Finish,
            };
            for (wait, given) in [(AGAIN / 2, stale), (AGAIN, given.clone())] {
                let given = Box::new(given);
                let order = Happening::Order { at, given };
                self.queue.push(now + CONTROL_DELAY + wait, order);
            }
        }
        let given = Box::new(given);
        self.queue
            .push(now + CONTROL_DELAY, Happening::Order { at, given });
    }

    pub(super) fn on_order(&mut self, at: NodeId, given: Box<Given>) {
        match self.nodes[at.index()].state {
            State::Stalled => {
                let inbox = &mut self.nodes[at.index()].inbox;
                return inbox.push_back(Happening::Order { at, given });
            }
            State::Gone => return,
            State::Up | State::Down => {}
        }
        let Given { stamp, order } = *given;
        if self.nodes[at.index()]
            .obedience
            .admit(TRANSFER, stamp)
            .is_err()
        {
            return;
        }
        let order = Box::new(order);
        self.report(at, Report::Acted(stamp));
        if matches!(*order, Order::Begin { .. }) {
            self.begin(at, order);
            self.beat_later(at);
        } else {
            self.tell(at, node::Input::Order(order));
        }
    }

    /// The node has verified all blocks; from now on its journal says so.
    pub(super) fn keep_all(&mut self, node: NodeId) {
        if self.desk.is_some() {
            self.nodes[node.index()].journal.clear();
        }
    }

    fn beat_later(&mut self, node: NodeId) {
        let life = self.nodes[node.index()].life;
        self.queue
            .push(self.now + REPORT, Happening::Beat { node, life });
    }

    pub(super) fn on_beat(&mut self, node: NodeId, life: u32) {
        if self.nodes[node.index()].life == life {
            self.pass_at_disk(node);
            self.tell(node, node::Input::Beat(&Measures::default()));
            self.beat_later(node);
        }
    }

    /// The node's part is over: it closes its connections and is gone.
    pub(super) fn dismiss(&mut self, node: NodeId) {
        self.crash(node, Time::MAX, false);
        self.nodes[node.index()].state = State::Gone;
        self.count_incomplete();
    }
}
