//! One node's part in a cast, from the manifest to the last dismissal, as a state machine without
//! I/O.
//!
//! A [`Node`] has a protocol for each transfer and decides everything about them that is not which
//! block goes where: when they start, which connection serves which of them, which peers are cut off
//! and accused, when the destination is opened, finished, left alone or examined again, what the
//! coordinator is told, and when a node that has lost it leaves. Its driver tells it what happened
//! as an [`Input`] and carries out the [`Output`]s in order; the agent does so with sockets, files
//! and a clock, the simulator in virtual time.

mod links;
mod part;
mod stage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::{
    BatchId, Batches, BlockId, BlockSet, Holding, NodeId, Rate, Time, Traffic, Worth,
};

use crate::coordinator::{CodingCounts, Contact, Disk, Order, Report};
use crate::rates::Rates;
use crate::{Action, Event, Protocol};
use part::Part;
use stage::{Stage, Work};

/// How long a node that lost its coordinator stays after the last block that came or went.
pub const ORPHAN_PATIENCE: Duration = Duration::from_secs(3);
/// A peer to which a block was sent within this time, or within the one before it, counts on more.
const SERVED: Duration = Duration::from_secs(5);

/// One of the transfers of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The manifest's, where it is cast.
    Manifest,
    /// The object's.
    Object,
}

impl Transfer {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Manifest, Self::Object];

    /// The number by which nodes know it.
    pub const fn number(self) -> u8 {
        self as u8
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// Makes the protocol of a transfer: of the blocks that are here and those that are wanted here, the
/// bytes of a block, and how blocks are grouped if they are coded.
pub type Build = Box<dyn Fn(BlockSet, BlockSet, u32, Option<Batches>) -> Box<dyn Protocol> + Send>;

/// What a node is and has when its part begins.
pub struct Config {
    /// The node.
    pub me: NodeId,
    /// How many members the cast has.
    pub members: u32,
    /// What its transfers go by.
    pub build: Build,
    /// The blocks of the manifest that are here, and their size in bytes, if it is cast; otherwise
    /// it is here.
    pub manifest: Option<(BlockSet, u32)>,
    /// The object, if the node is a source.
    pub object: Option<Object>,
    /// Which blocks of the object the node is to get.
    pub want: Want,
}

/// An object at a node.
#[derive(Clone)]
pub struct Object {
    /// The blocks that are verified.
    pub have: BlockSet,
    /// Bytes of a full block.
    pub block_bytes: u32,
    /// Bytes of all blocks.
    pub size_bytes: u64,
    /// How its blocks are grouped, if they are coded.
    pub batches: Option<Batches>,
    /// How many bytes a block has.
    pub block_len: Arc<dyn Fn(BlockId) -> u32 + Send + Sync>,
}

/// Something that is wrong with a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What, in one line.
    pub why: String,
    /// Whether it is only that there is no room.
    pub full: bool,
    /// Whether it may be different the next time.
    pub passes: bool,
}

/// What the driver measured so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// What the disk does for the stage the node is in.
    pub disk: Disk,
    /// In a coded transfer, the bytes of blocks and packets that came, and what coding took; what
    /// the node counts itself may be left out.
    pub coding: Option<(u64, CodingCounts)>,
}

/// What came of a packet, or of a fresh block, of a coded object.
#[derive(Clone, Copy, Debug)]
pub enum BatchNews<'a> {
    /// It counts.
    Taken(Worth, Holding),
    /// It was dropped unread.
    Dropped,
    /// The batch is whole.
    Whole {
        /// The blocks that came to be here by decoding.
        fresh: &'a [BlockId],
        /// The senders of wrong pure packets of it.
        wrong: &'a [NodeId],
    },
    /// The batch was decoded to something else than the manifest says.
    Spoiled {
        /// The blocks that came to be here all the same.
        fresh: &'a [BlockId],
    },
    /// What was sent cannot be a packet, and the driver has cut its sender off.
    Impossible,
}

/// What happened.
pub enum Input<'a> {
    /// The node begins to run; first input, once.
    Start,
    /// The coordinator gives an order.
    Order(Box<Order>),
    /// The coordinator is lost.
    Orphaned,
    /// Something happened on the links: peers going up and down, messages, blocks and what was sent.
    Link(Transfer, Event<'a>),
    /// Something came of a packet, or of a fresh block, that a peer sent of a batch.
    Batch {
        /// The peer.
        from: NodeId,
        /// The batch.
        batch: BatchId,
        /// What.
        news: BatchNews<'a>,
    },
    /// What left for a peer among [`Node::limited`], as [`Event::Achieved`] says it.
    Achieved(NodeId, Rate),
    /// A peer cannot be reached, for this reason.
    Unreachable(NodeId, String),
    /// Answers [`Output::OpenDestination`], with what is there; why not, in one line.
    Opened(Result<Box<Object>, String>),
    /// Answers [`Output::Finish`].
    Finished(Result<(), Trouble>, &'a Measures),
    /// Answers [`Output::Recover`], with the blocks that are there now.
    Recovered(Result<BlockSet, Trouble>),
    /// Something broke that cannot be mended, as the line says.
    Broken(String),
    /// A block could not be stored or read: the line says which and why. What is wrong with the
    /// destination comes along if it was not told before.
    Failed(String, Option<Trouble>),
    /// The disk hangs, or does not any more.
    Hung(bool),
    /// The time of [`Node::wake_at`] has come.
    Woken,
    /// It is time for a report.
    Beat(&'a Measures),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// As [`Action::Connect`].
    Connect(NodeId),
    /// Close the link to a peer, which all transfers share, and do not ask for one any more.
    Disconnect(NodeId),
    /// Close the link to a peer and refuse it from now on.
    Remove(NodeId),
    /// A member may be reached by this.
    Meet(NodeId, Box<Contact>),
    /// Connect to a peer at once, as it cannot reach this node.
    Dial(NodeId),
    /// As [`Action::Send`].
    Send(Transfer, NodeId, Vec<u8>),
    /// As [`Action::SendBlock`].
    SendBlock(Transfer, NodeId, BlockId),
    /// As [`Action::SendPacket`], of the object.
    SendPacket {
        /// The recipient.
        to: NodeId,
        /// Of which batch.
        batch: BatchId,
        /// Whether only verified blocks go into it.
        pure: bool,
    },
    /// As [`Action::SetRate`], for the link to a peer, which all transfers share; without a limit
    /// also once the peer is down.
    SetRate(NodeId, Rate),
    /// Tell peers that this node is ready for a transfer.
    Open(Transfer),
    /// Tell peers that this node takes no part in a transfer any more, by ending the links.
    Close(Transfer),
    /// The manifest is here: open the destination and see what it holds.
    OpenDestination,
    /// All blocks that are wanted are here: put the files in place, or keep what is not all of them.
    Finish,
    /// See whether a destination can be used again; whether all that is there is to be read again.
    Recover {
        /// Whether it is.
        rereads: bool,
    },
    /// Tell the coordinator.
    Report(Box<Report>),
    /// The node's part is over.
    End(Outcome),
}

/// How a node's part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The coordinator ended the cast.
    Finished,
    /// The coordinator was lost; this is what is here of how many blocks.
    Orphaned {
        /// Verified blocks of those that are wanted.
        have: u32,
        /// Blocks that are wanted, zero if the manifest did not come.
        blocks: u32,
    },
}

/// See the module.
pub struct Node {
    config: Setting,
    now: Time,
    manifest: Option<(BlockSet, u32)>,
    object: Option<Object>,
    /// Which of its blocks this node is to get, once it is known, and how many are not here.
    want: BlockSet,
    lacks: u32,
    stage: Stage,
    /// What the driver does with the destination now.
    work: Option<Work>,
    parts: [Option<Part>; 2],
    /// What the protocols want of rates, by the numbers of their transfers.
    rates: Rates,
    left: BlockSet,
    /// Bytes of the blocks here that are wanted.
    have_bytes: u64,
    received_bytes: u64,
    /// Bytes of the protocol's messages about a coded object.
    message_bytes: u64,
    /// Packets that were dropped unread.
    dropped: u64,
    /// What packets of batches that are not whole amount to beyond the blocks, in blocks.
    pending: BTreeMap<BatchId, u16>,
    measures: Measures,
    /// The verdict of this node, repeated with every report in case it was lost.
    verdict: Option<Report>,
    /// When a block last came or went.
    moved: Time,
    /// The peers that were sent something since the time below, and in [`SERVED`] before it.
    served: [BlockSet; 2],
    served_since: Time,
    hung: bool,
    /// Whether those it served were parted from because the disk hangs.
    stepped_aside: bool,
    orphaned: bool,
    /// What the coordinator last said of latency-sensitive traffic.
    traffic: Vec<Traffic>,
    /// Whether the coordinator has given the start.
    begun: bool,
    ended: bool,
    /// How often the node took a pause.
    pauses: u32,
    /// How often the destination was recovered from more than a full disk.
    recoveries: u32,
    actions: crate::Actions,
    /// The peers that the protocols accuse, until that is carried out.
    accused: Vec<(NodeId, &'static str)>,
}

/// The parts of the configuration that stay.
struct Setting {
    me: NodeId,
    members: u32,
    build: Build,
    source: bool,
    want: Want,
}

impl Node {
    /// A node of which nothing has happened yet.
    pub fn new(config: Config) -> Self {
        let source = config.object.is_some();
        debug_assert!(config.me.0 < config.members);
        debug_assert!(
            config.object.as_ref().is_none_or(|it| it.have.is_full()),
            "a source has everything"
        );
        let have_bytes = config.object.as_ref().map_or(0, |object| object.size_bytes);
        Self {
            left: BlockSet::new(config.members),
            config: Setting {
                me: config.me,
                members: config.members,
                build: config.build,
                source,
                want: config.want,
            },
            now: Time::ZERO,
            manifest: config.manifest,
            want: BlockSet::full(config.object.as_ref().map_or(0, |it| it.have.len())),
            lacks: 0,
            object: config.object,
            stage: if source {
                Stage::Settled
            } else {
                Stage::Waiting
            },
            work: None,
            parts: [None, None],
            rates: Rates::default(),
            have_bytes,
            received_bytes: 0,
            message_bytes: 0,
            dropped: 0,
            pending: BTreeMap::new(),
            measures: Measures::default(),
            verdict: None,
            moved: Time::ZERO,
            served: [BlockSet::new(config.members), BlockSet::new(config.members)],
            served_since: Time::ZERO,
            hung: false,
            stepped_aside: false,
            orphaned: false,
            traffic: Vec::new(),
            begun: false,
            ended: false,
            pauses: 0,
            recoveries: 0,
            actions: crate::Actions::default(),
            accused: Vec::new(),
        }
    }

    /// Takes one input at time `now`, which never goes back, and appends what is to be done to
    /// `out`. After [`Output::End`] nothing more comes of anything.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Output>) {
        debug_assert!(now >= self.now, "time goes back");
        if self.ended {
            return;
        }
        self.now = now;
        match input {
            Input::Start => self.on_start(out),
            Input::Order(order) => self.on_order(*order, out),
            Input::Orphaned => {
                self.orphaned = true;
                self.moved = now;
            }
            Input::Link(transfer, event) => self.on_link(transfer, &event, out),
            Input::Batch { from, batch, news } => self.on_batch(from, batch, news, out),
            Input::Achieved(to, rate) => self.on_achieved(to, rate, out),
            Input::Unreachable(peer, error) => report(Report::Unreachable { peer, error }, out),
            Input::Opened(opened) => self.on_opened(opened, out),
            Input::Finished(finished, measures) => self.on_finished(finished, *measures, out),
            Input::Recovered(recovered) => self.on_recovered(recovered, out),
            Input::Broken(error) => {
                self.work = None;
                self.fail(error, out);
            }
            Input::Failed(error, trouble) => self.on_trouble(error, trouble, out),
            Input::Hung(hung) => self.on_hung(hung, out),
            Input::Woken => self.on_woken(out),
            Input::Beat(measures) => self.on_beat(*measures, out),
        }
        if !self.accused.is_empty() {
            self.cut_off_accused(out);
        }
        if self.orphaned && self.work.is_none() && now.since(self.moved) >= ORPHAN_PATIENCE {
            let blocks = self.want.count();
            let have = blocks - self.lacks;
            self.end(Outcome::Orphaned { have, blocks }, out);
        }
        self.check();
    }

    /// What holds between any two inputs.
    fn check(&self) {
        debug_assert!(self.accused.is_empty(), "an accusation is carried out");
        debug_assert!(self.actions.is_empty());
        debug_assert!(!self.left.contains(self.config.me.0));
        debug_assert!(self.moved <= self.now);
        debug_assert!(self.served_since <= self.now);
        debug_assert!(self.hung || !self.stepped_aside);
        let object = self.object.as_ref();
        debug_assert_eq!(self.want.len(), object.map_or(0, |it| it.have.len()));
        debug_assert!(self.lacks <= self.want.count());
        debug_assert!(self.have_bytes <= object.map_or(0, |it| it.size_bytes));
        debug_assert!(
            object.is_none_or(|it| self.lacks <= it.have.missing()),
            "what is lacking is not here"
        );
        debug_assert!(self.pending.is_empty() || self.batches().is_some());
        debug_assert!(self.parts.iter().all(Option::is_none) || self.begun);
        self.check_stage();
    }

    /// When [`Input::Woken`] is to come, unless something else happens before.
    pub fn wake_at(&self) -> Option<Time> {
        let parts = self.parts.iter().flatten().filter_map(Part::next_timer);
        // What is due waits until the disk is back.
        let timers = parts.min().filter(|_| !self.is_silent());
        let leaves = self.orphaned.then(|| self.moved + ORPHAN_PATIENCE);
        timers.into_iter().chain(leaves).min()
    }

    /// Whether a node that waits for its disk has nothing to give and can take nothing, and is
    /// silent towards its peers as if it had stopped. A node that waits for a source has no other to turn to.
    const fn is_silent(&self) -> bool {
        self.hung && matches!(self.stage, Stage::Moving)
    }

    fn end(&mut self, outcome: Outcome, out: &mut Vec<Output>) {
        debug_assert!(!self.ended);
        debug_assert!(outcome == Outcome::Finished || self.orphaned);
        self.ended = true;
        out.push(Output::End(outcome));
    }

    // ---- orders

    fn on_start(&mut self, out: &mut Vec<Output>) {
        if self.config.source {
            out.push(Output::Open(Transfer::Object));
        }
        if self.manifest.is_some() {
            out.push(Output::Open(Transfer::Manifest));
        }
        self.advance(Transfer::Manifest, out);
    }

    fn on_order(&mut self, order: Order, out: &mut Vec<Output>) {
        match order {
            Order::Begin { contacts } => {
                for (node, contact) in contacts.iter() {
                    self.meet(*node, contact.clone(), out);
                }
                self.begun = true;
                if let Some((have, block_bytes)) = self.manifest.clone() {
                    let want = BlockSet::full(have.len());
                    self.start(Transfer::Manifest, (have, want), block_bytes, None, out);
                }
                self.start_object(out);
            }
            Order::Met { node, contact } => self.meet(node, contact, out),
            Order::Left { node } => self.part_from(node, out),
            Order::Census => {
                let have = self.object.as_ref().map(|object| object.have.clone());
                let have = have.unwrap_or_else(|| BlockSet::new(0));
                let mut lacks = self.want.clone();
                lacks.subtract(&have);
                let (blocks, held, lacks) = (have.len(), have.to_wire(), lacks.to_wire());
                let held = Report::Held {
                    blocks,
                    held,
                    lacks,
                };
                report(held, out);
            }
            Order::Dial { node } => out.push(Output::Dial(node)),
            Order::Foreground { traffic } => {
                for transfer in Transfer::ALL {
                    self.pass(transfer, &Event::Foreground(&traffic), out);
                }
                self.traffic = traffic;
            }
            Order::Finish => self.end(Outcome::Finished, out),
        }
    }

    fn meet(&self, node: NodeId, contact: Contact, out: &mut Vec<Output>) {
        if node != self.config.me && node.0 < self.config.members {
            out.push(Output::Meet(node, Box::new(contact)));
        }
    }

    /// A member is out for good, for whatever reason: in every transfer, and in those yet to start.
    fn part_from(&mut self, node: NodeId, out: &mut Vec<Output>) {
        if node.0 < self.config.members && node != self.config.me && self.left.insert(node.0) {
            out.push(Output::Remove(node));
            for transfer in Transfer::ALL {
                self.pass(transfer, &Event::Left(node), out);
            }
            debug_assert!(
                self.parts.iter().flatten().all(|part| !part.wants(node)),
                "{node} has left and is called"
            );
        }
    }

    /// Starts the object's transfer once the start is given and the manifest is known.
    fn start_object(&mut self, out: &mut Vec<Output>) {
        let Some(object) = self.object.as_ref().filter(|_| self.begun) else {
            return;
        };
        let (block_bytes, batches) = (object.block_bytes, object.batches);
        let stock = (object.have.clone(), self.want.clone());
        self.start(Transfer::Object, stock, block_bytes, batches, out);
    }

    fn start(
        &mut self,
        transfer: Transfer,
        (have, want): (BlockSet, BlockSet),
        block_bytes: u32,
        batches: Option<Batches>,
        out: &mut Vec<Output>,
    ) {
        let away = transfer == Transfer::Object && matches!(self.stage, Stage::Paused(_));
        let failed = matches!(self.verdict, Some(Report::Failed { .. }));
        let slot = &mut self.parts[transfer.index()];
        if slot.is_some() || failed || away {
            return;
        }
        debug_assert!(self.begun, "the coordinator gives the start");
        debug_assert!(transfer == Transfer::Object || batches.is_none());
        let protocol = (self.config.build)(have, want, block_bytes, batches);
        *slot = Some(Part::new(protocol, self.config.members));
        self.pass(transfer, &Event::Start, out);
        let traffic = self.traffic.clone();
        if !traffic.is_empty() {
            self.pass(transfer, &Event::Foreground(&traffic), out);
        }
        let left: Vec<u32> = self.left.iter().collect();
        for node in left {
            self.pass(transfer, &Event::Left(NodeId(node)), out);
        }
    }

    // ---- protocols

    /// Gives a protocol an event, and says what it wants done.
    fn pass(&mut self, transfer: Transfer, event: &Event<'_>, out: &mut Vec<Output>) {
        let mut actions = std::mem::take(&mut self.actions);
        debug_assert!(actions.is_empty());
        if let Some(part) = &mut self.parts[transfer.index()] {
            part.handle(self.now, event, &mut actions);
        }
        // Most of what happens leads to nothing.
        if !actions.is_empty() {
            for action in actions.drain() {
                self.perform(transfer, action, out);
            }
        }
        self.actions = actions;
    }

    /// What a protocol may not ask for is found by the driver that carries it out: the simulator
    /// reports it, and so it is not asserted here.
    fn perform(&mut self, transfer: Transfer, action: Action, out: &mut Vec<Output>) {
        let Some(part) = &mut self.parts[transfer.index()] else {
            return;
        };
        match action {
            Action::Connect(peer) => {
                debug_assert!(peer != self.config.me, "a node calls itself");
                part.want(peer);
                out.push(Output::Connect(peer));
            }
            Action::Disconnect(peer) => {
                part.forget(peer);
                out.push(Output::Disconnect(peer));
                if self.parts.iter().flatten().any(|part| part.wants(peer)) {
                    out.push(Output::Connect(peer));
                }
            }
            Action::Send { to, body } => {
                debug_assert!(part.is_up(to), "a message to {to}, which is not up");
                out.push(Output::Send(transfer, to, body));
            }
            Action::SendBlock { to, block } => {
                debug_assert!(part.is_up(to), "a block to {to}, which is not up");
                out.push(Output::SendBlock(transfer, to, block));
            }
            Action::SendPacket { to, batch, pure } => {
                debug_assert!(transfer == Transfer::Object, "manifests are not coded");
                debug_assert!(part.is_up(to), "a packet to {to}, which is not up");
                debug_assert!(self.batches().is_some_and(|it| batch < it.count()));
                out.push(Output::SendPacket { to, batch, pure });
            }
            Action::SetRate { to, rate } => {
                debug_assert!(part.is_up(to), "a rate towards {to}, which is not up");
                if part.is_up(to) {
                    self.set_rate(transfer, to, rate, out);
                }
            }
            Action::SetTimer { timer, at } => part.set_timer(timer, at.max(self.now)),
            // The protocol is told once all that it wanted is done.
            Action::Accuse { peer, offence } => {
                debug_assert!(peer != self.config.me, "a node accuses itself");
                self.accused.push((peer, offence));
            }
        }
    }

    /// The peers whose achieved rates are to be told about twice a second.
    pub fn limited(&self) -> Vec<NodeId> {
        self.rates.limited()
    }

    fn set_rate(&mut self, transfer: Transfer, to: NodeId, rate: Rate, out: &mut Vec<Output>) {
        if let Some(rate) = self.rates.set(transfer.number().into(), to, rate) {
            out.push(Output::SetRate(to, rate));
        }
    }

    fn on_achieved(&mut self, to: NodeId, rate: Rate, out: &mut Vec<Output>) {
        let owners = self.rates.owners(to);
        debug_assert!(owners.len() <= Transfer::ALL.len());
        for transfer in Transfer::ALL {
            if owners.contains(&transfer.number().into()) {
                self.pass(transfer, &Event::Achieved { to, rate }, out);
            }
        }
    }

    fn cut_off_accused(&mut self, out: &mut Vec<Output>) {
        // The peer that one protocol accuses the other may accuse when it hears of it; each once.
        while let Some((peer, offence)) = self.accused.pop() {
            self.part_from(peer, out);
            let offence = offence.to_owned();
            report(Report::Accuse { peer, offence }, out);
        }
    }

    /// Fires what is due, unless the node is silent.
    fn on_woken(&mut self, out: &mut Vec<Output>) {
        if self.is_silent() {
            return;
        }
        let now = self.now;
        for transfer in Transfer::ALL {
            let slot = transfer.index();
            // What a timer sets to now is for the next time, so that others get their turn.
            let due = self.parts[slot]
                .as_ref()
                .map_or(0, |part| part.count_due(now));
            for _ in 0..due {
                let part = self.parts[slot].as_mut();
                if let Some(timer) = part.and_then(|part| part.take_due(now)) {
                    self.pass(transfer, &Event::Timer(timer), out);
                }
            }
        }
    }
}

fn report(report: Report, out: &mut Vec<Output>) {
    out.push(Output::Report(Box::new(report)));
}

#[cfg(test)]
mod tests;
