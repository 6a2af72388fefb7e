//! The coordinator of a cast: membership, the start, watching, and a verdict for every host.
//!
//! A sans-IO state machine like the protocols. Its host (a command, a service, a simulator) tells
//! it through [`Coordinator::handle`] what happened to the agents and carries out the [`Output`]s
//! in order. Blocks never depend on it: it decides membership and watches; the nodes' protocols
//! move the data among themselves.
//!
//! A node is a source, which has the object, a host that is to get it, or a relay, which passes it
//! on. Sources and relays may be lost; hosts have a verdict in the end.

pub mod backlog;
mod census;
mod check;
mod counts;
mod disk;
mod given;
mod host;
mod patience;
mod traffic;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::manifest::Aspect;
use outpour_core::{NodeId, Time, Traffic};
use serde::{Deserialize, Serialize};

use crate::Role;
use census::Census;
pub use counts::CodingCounts;
pub use disk::Disk;
pub use given::{Given, Obedience, Refusal, Stamp, TransferName};
pub use host::{Host, HostState};
pub use patience::claiming;

/// How to reach a node's data plane and recognise it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Addresses to try, best first.
    pub addrs: Vec<SocketAddr>,
    /// BLAKE3 of its endpoint's public key.
    pub key: [u8; 32],
}

/// How to reach each of some nodes. All hosts of a cast are told the same, and share it until it is
/// written to their channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contacts(Arc<[(NodeId, Contact)]>);

impl Contacts {
    /// Node and contact.
    pub fn iter(&self) -> impl Iterator<Item = &(NodeId, Contact)> {
        self.0.iter()
    }
}

impl FromIterator<(NodeId, Contact)> for Contacts {
    fn from_iter<I: IntoIterator<Item = (NodeId, Contact)>>(contacts: I) -> Self {
        Self(contacts.into_iter().collect())
    }
}

impl Serialize for Contacts {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0[..].serialize(to)
    }
}

impl<'de> Deserialize<'de> for Contacts {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(|contacts| Self(contacts.into()))
    }
}

/// What the coordinator tells an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// The transfer starts: contacts of the nodes known by now.
    Begin {
        /// Node and contact, the receiving agent's own included.
        contacts: Contacts,
    },
    /// A node joined after the start.
    Met {
        /// The node.
        node: NodeId,
        /// Its contact.
        contact: Contact,
    },
    /// A node is out for good.
    Left {
        /// The node.
        node: NodeId,
    },
    /// A node cannot reach this one: try it the other way round.
    Dial {
        /// The node to dial.
        node: NodeId,
    },
    /// Say which blocks are there: the source is lost.
    Census,
    /// What was measured of latency-sensitive traffic; replaces what was said of it before.
    Foreground {
        /// The links that have any.
        traffic: Vec<Traffic>,
    },
    /// The cast is over: leave at once, and leave nothing behind.
    Finish,
}

/// What an agent tells the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The manifest is here; now looking at what the destination holds.
    Preparing,
    /// Ready to receive what the destination lacks.
    Prepared {
        /// Bytes it holds already.
        have_bytes: u64,
    },
    /// Sent every half second or so as a sign of life.
    Progress {
        /// Bytes of verified blocks; in a coded transfer also those that the packets here amount to.
        have_bytes: u64,
        /// Bytes of blocks and packets that came over the network, duplicates included.
        received_bytes: u64,
        /// What its disk does.
        disk: Disk,
    },
    /// The last order that was carried out.
    Acted(Stamp),
    /// What coding took since the start, from time to time.
    Coding(CodingCounts),
    /// The answer to a census.
    Held {
        /// Blocks of the object; zero if the manifest is not here.
        blocks: u32,
        /// Those that are verified here.
        held: WireBlocks,
        /// Those that are wanted here and are not.
        lacks: WireBlocks,
    },
    /// Something is wrong with the destination that may pass: until it has, this node takes no part
    /// in the transfer.
    Paused {
        /// What, in one line.
        why: String,
        /// Whether it reads again what is there meanwhile.
        rereads: bool,
    },
    /// What a pause was for has passed.
    Resumed {
        /// Bytes of verified blocks, fewer than before if some were damaged.
        have_bytes: u64,
    },
    /// All blocks are verified; files are being put in place.
    Finishing,
    /// What the destination could not keep of the object's attributes, one aspect at a time, before it
    /// says that it is complete.
    NotKept {
        /// What.
        what: Aspect,
        /// Of how many entries.
        entries: u64,
        /// The path of one of them.
        example: String,
    },
    /// Every byte is verified, in place and durable.
    Complete {
        /// As in [`Report::Progress`].
        received_bytes: u64,
    },
    /// This node cannot go on.
    Failed {
        /// Why, in one line.
        error: String,
    },
    /// Another cast writes to a part of the destination: known only now that the manifest is.
    Refused {
        /// Which one, in one line.
        error: String,
    },
    /// A peer broke the protocol or sent wrong bytes.
    Accuse {
        /// The node.
        peer: NodeId,
        /// What it did.
        offence: String,
    },
    /// A peer cannot be reached.
    Unreachable {
        /// The node.
        peer: NodeId,
        /// What the attempts met with.
        error: String,
    },
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A node's agent runs and can be reached at this contact.
    Joined {
        /// The node.
        node: NodeId,
        /// Its data plane.
        contact: Contact,
    },
    /// A node's agent runs, and its disk lets it wait while it claims the destination.
    Claiming {
        /// The node.
        node: NodeId,
    },
    /// Another cast holds the destination of a node; its agent waits a while for the end of that.
    Waiting {
        /// The node.
        node: NodeId,
    },
    /// A node's agent cannot have its destination: another cast holds it.
    Refused {
        /// The node.
        node: NodeId,
        /// Which one, in one line.
        error: String,
    },
    /// A node's agent could not be started, or its control channel broke.
    Lost {
        /// The node.
        node: NodeId,
        /// Why, in one line.
        error: String,
    },
    /// An agent reports.
    Report {
        /// Whose.
        node: NodeId,
        /// What.
        report: Report,
    },
    /// Latency-sensitive traffic was measured, for the sources to know.
    Foreground(Vec<Traffic>),
    /// The time set by [`Output::WakeAt`] has come.
    Woken,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Give an agent an order.
    Order {
        /// The recipient.
        to: NodeId,
        /// What, and when.
        given: Given,
    },
    /// Call [`Input::Woken`] at this time; replaces an earlier one.
    WakeAt(Time),
    /// Something a person should read, once.
    Notice(String),
    /// Every host has its verdict.
    Ended,
}

/// A node as the request has it.
#[derive(Clone, Debug)]
pub struct Participant {
    /// Its name, for messages.
    pub name: String,
    /// What it takes part for.
    pub role: Role,
}

/// What a coordinator is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which of the transfer's coordinators this is, from 1 on.
    pub epoch: u64,
    /// The participants, indexed by node.
    pub nodes: Vec<Participant>,
    /// Size of the object in bytes.
    pub size_bytes: u64,
    /// Files, directories and links of the object.
    pub entries: u64,
    /// How long a host may be silent, or get nothing, when no other host gets anything either, and
    /// how long its disk may do nothing.
    pub patience: Duration,
}

/// How often the coordinator looks at its clocks.
const WAKE: Duration = Duration::from_millis(500);
/// Once half the hosts have joined, the others get this long before the start, or as long again
/// as the first half took, whichever is longer. Later hosts join in.
const START_GRACE: Duration = Duration::from_secs(2);
/// Without the source no host can get what none has: then so long is enough. It is longer than
/// any protocol waits for one neighbour before it asks another.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(35);
/// Notices of one kind about one node.
const NOTICES_MAX: usize = 3;
/// What to do once all sources are lost.
const AGAIN: &str = "run the command again";
// Hosts are asked what they hold before they are given up.
const _: () = assert!(census::AFTER.as_nanos() < ORPHAN_PATIENCE.as_nanos());
const _: () = assert!(WAKE.as_nanos() < census::AFTER.as_nanos());

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    config: Config,
    /// Sources and hosts, indexed by node.
    nodes: Vec<Host>,
    /// Why the last source is lost, if all are.
    source_lost: Option<String>,
    /// What the hosts hold between them, once all sources are lost.
    census: Option<Census>,
    /// How often each node was accused.
    accusations: Vec<usize>,
    /// How often each node was said to be out of reach.
    misses: Vec<usize>,
    /// How to reach those that are present, until one comes or goes.
    contacts: Option<Contacts>,
    /// When half of the hosts had joined.
    half_at: Option<Time>,
    began_at: Option<Time>,
    last_progress: Time,
    first: Option<Time>,
    /// The host on whose account the whole cast was refused.
    refused: Option<NodeId>,
    /// What was last measured of latency-sensitive traffic, and whether anybody was told of any.
    traffic: Vec<Traffic>,
    traffic_told: bool,
    ended: bool,
    out: Vec<Output>,
}

impl Coordinator {
    /// A coordinator of a cast among these nodes.
    pub fn new(config: Config) -> Self {
        let nodes = config.nodes.iter().map(|node| Host::new(node.role));
        Self {
            accusations: vec![0; config.nodes.len()],
            misses: vec![0; config.nodes.len()],
            nodes: nodes.collect(),
            config,
            source_lost: None,
            census: None,
            contacts: None,
            half_at: None,
            began_at: None,
            last_progress: Time::ZERO,
            first: None,
            refused: None,
            traffic: Vec::new(),
            traffic_told: false,
            ended: false,
            out: Vec::new(),
        }
    }

    /// What is known of each node.
    pub fn nodes(&self) -> &[Host] {
        &self.nodes
    }

    /// The hosts that are to get the object.
    fn hosts(&self) -> impl Iterator<Item = (NodeId, &Host)> + Clone {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        nodes.filter(|(_, host)| host.role == Role::Receiver)
    }

    /// The nodes that have it from the start.
    fn sources(&self) -> impl Iterator<Item = &Host> {
        self.nodes.iter().filter(|host| host.role == Role::Source)
    }

    /// Whether every host has its verdict.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The host on whose account the whole cast was refused, if it was: another cast writes there.
    pub const fn refused(&self) -> Option<NodeId> {
        self.refused
    }

    /// When the transfer started, if it has.
    pub const fn began_at(&self) -> Option<Time> {
        self.began_at
    }

    /// Takes one input at time `now`; returns what is to be done, in order.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Output> {
        debug_assert!(self.out.is_empty(), "an output was not passed on");
        self.first.get_or_insert(now);
        match input {
            Input::Joined { node, contact } => self.on_joined(now, node, contact),
            Input::Claiming { node } => {
                if let Some(host) = self.node_mut(node) {
                    host.claiming = true;
                }
            }
            Input::Waiting { node } => {
                let host = self.node_mut(node);
                if let Some(host) = host.filter(|host| host.state == HostState::Starting) {
                    host.state = HostState::Waiting;
                }
            }
            Input::Refused { node, error } => self.on_refused(now, node, error),
            Input::Lost { node, error } => self.fail(now, node, error),
            Input::Report { node, report } => self.on_report(now, node, report),
            Input::Foreground(traffic) => self.on_traffic(traffic),
            Input::Woken => {}
        }
        if !self.ended {
            self.maybe_begin(now);
            self.count(now);
            self.watch(now);
            self.maybe_end();
        }
        if !self.ended {
            self.out.push(Output::WakeAt(now + WAKE));
        }
        self.check();
        std::mem::take(&mut self.out)
    }

    /// Gives every host that has no verdict this one: the user interrupted the cast.
    pub fn cancel(&mut self, now: Time, error: &str) -> Vec<Output> {
        self.fail_all(now, error);
        self.maybe_end();
        debug_assert!(self.ended, "a host outlives the cast");
        std::mem::take(&mut self.out)
    }

    fn order(&mut self, to: NodeId, order: Order) {
        let epoch = self.config.epoch;
        let Some(host) = self.node_mut(to) else {
            return;
        };
        debug_assert!(
            host.is_present() || order == Order::Finish,
            "{order:?} for {to}, which is out"
        );
        host.given += 1;
        let seq = host.given;
        let stamp = Stamp { epoch, seq };
        let given = Given { stamp, order };
        self.out.push(Output::Order { to, given });
    }

    /// Every node that takes part: those with an agent and no failure.
    fn present(&self) -> Vec<NodeId> {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        let present = nodes.filter(|(_, host)| host.is_present());
        present.map(|(node, _)| node).collect()
    }

    fn name(&self, node: NodeId) -> &str {
        let node = self.config.nodes.get(node.index());
        node.map_or("a host that is not in the cast", |node| &node.name)
    }

    // ---- membership and start

    fn on_joined(&mut self, now: Time, node: NodeId, contact: Contact) {
        let late = self.began_at.is_some();
        let Some(host) = self.node_mut(node) else {
            return;
        };
        if !host.state.is_outside() {
            return;
        }
        host.join(now, contact.clone(), late);
        self.contacts = None;
        // It comes when all is over, as a source or relay may.
        if self.ended {
            return self.order(node, Order::Finish);
        }
        let joined = self.hosts().filter(|(_, host)| host.is_present()).count();
        if 2 * joined >= self.hosts().count() {
            self.half_at.get_or_insert(now);
        }
        if late {
            self.begin_for(node);
            for other in self.present().into_iter().filter(|other| *other != node) {
                let contact = contact.clone();
                self.order(other, Order::Met { node, contact });
            }
        }
    }

    fn maybe_begin(&mut self, now: Time) {
        // A host that had everything at once stays verified when another refuses.
        if self.began_at.is_some() || self.refused.is_some() {
            return;
        }
        if let Some(why) = self.source_lost.clone() {
            return self.fail_all(now, &format!("there is no source: {why}"));
        }
        // A source that is late joins in, as long as there is one.
        if !self.sources().any(Host::is_present) {
            return;
        }
        let outside = self.hosts().any(|(_, host)| host.state.is_outside());
        let first = self.first.unwrap_or(now);
        let out_of_patience = self
            .half_at
            .is_some_and(|half| now.since(half) >= START_GRACE.max(half.since(first)));
        let anyone = self.hosts().any(|(_, host)| host.is_present());
        // Either all take the cast, or it is refused: its end is not far.
        let undecided = self
            .hosts()
            .any(|(_, host)| host.state == HostState::Waiting);
        if anyone && (!outside || out_of_patience && !undecided) {
            self.began_at = Some(now);
            self.last_progress = now;
            self.present()
                .into_iter()
                .for_each(|node| self.begin_for(node));
        }
    }

    fn begin_for(&mut self, node: NodeId) {
        debug_assert!(self.began_at.is_some());
        debug_assert!(self.refused.is_none(), "what was refused begins");
        let nodes = || (0..).map(NodeId).zip(&self.nodes);
        let contacts = self.contacts.clone().unwrap_or_else(|| {
            let present = nodes().filter(|(_, host)| host.is_present());
            let contacts = present.filter_map(|(node, host)| Some((node, host.contact.clone()?)));
            contacts.collect()
        });
        debug_assert_eq!(
            contacts.iter().count(),
            nodes().filter(|(_, host)| host.is_present()).count(),
            "contacts of before a host came or went"
        );
        self.contacts = Some(contacts.clone());
        // Members that are out already: a late joiner need not wait for them.
        let out = nodes().filter(|(_, host)| host.state == HostState::Failed);
        let out: Vec<NodeId> = out.map(|(node, _)| node).collect();
        debug_assert!(!out.contains(&node));
        self.order(node, Order::Begin { contacts });
        for gone in out {
            self.order(node, Order::Left { node: gone });
        }
        self.tell_traffic(node);
    }

    /// Another cast holds what this one needs. A late host fails alone; else no host gets the
    /// object, as it would be there in one version on some hosts and in another on others.
    fn on_refused(&mut self, now: Time, node: NodeId, error: String) {
        let began = self.began_at.is_some();
        let Some(host) = self.node_mut(node).filter(|host| !host.state.is_final()) else {
            return;
        };
        let alone = host.role != Role::Receiver || began && (host.late || host.state.is_outside());
        let reason = format!("refused: {}: {error}", self.name(node));
        self.fail(now, node, error);
        if !alone {
            debug_assert!(self.refused.is_none(), "the cast is refused twice");
            self.refused = Some(node);
            self.fail_all(now, &reason);
        }
    }

    // ---- watching

    fn node_mut(&mut self, node: NodeId) -> Option<&mut Host> {
        self.nodes.get_mut(node.index())
    }

    fn on_report(&mut self, now: Time, node: NodeId, report: Report) {
        if let Some(host) = self.node_mut(node) {
            // Nothing more can become of it, but what it saw of others still counts.
            let matters = matches!(report, Report::Accuse { .. } | Report::Paused { .. });
            let over = host.state.is_final() && !(matters && host.is_present());
            // Who has not joined takes no part that there could be anything to report of.
            if over || host.state.is_outside() {
                return;
            }
            host.heard = now;
        }
        match report {
            Report::Accuse { peer, offence } => self.on_accusation(node, peer, &offence),
            Report::Unreachable { peer, error } => self.on_unreachable(node, peer, &error),
            Report::Held {
                blocks,
                held,
                lacks,
            } => {
                let (size, host) = (self.config.size_bytes, self.nodes.get(node.index()));
                let to_get = host.is_some_and(|host| host.role == Role::Receiver);
                if let Some(census) = &mut self.census {
                    census.answer(node, to_get, blocks, (&held, &lacks), size);
                }
            }
            Report::Acted(stamp) => self.on_acted(node, stamp),
            Report::Paused { why, rereads } => self.on_pause(now, node, why, rereads),
            Report::Failed { error } => self.fail(now, node, error),
            Report::Refused { error } => self.on_refused(now, node, error),
            report => {
                let budget = self.budget();
                if let Some(host) = self.node_mut(node)
                    && host.progress(now, &report, &budget)
                {
                    self.last_progress = now;
                }
            }
        }
    }

    /// A host has carried out an order; one that was not given changes nothing.
    fn on_acted(&mut self, node: NodeId, stamp: Stamp) {
        let epoch = self.config.epoch;
        if let Some(host) = self.node_mut(node)
            && stamp.epoch == epoch
            && stamp.seq <= host.given
        {
            host.acted = host.acted.max(stamp.seq);
        }
    }

    fn on_pause(&mut self, now: Time, node: NodeId, why: String, rereads: bool) {
        let verified = self
            .node_mut(node)
            .is_some_and(|host| host.state.is_final());
        let notice = match verified {
            true => format!("{} stops serving others: {why}", self.name(node)),
            false => format!("{} waits: {why}", self.name(node)),
        };
        if let Some(host) = self.node_mut(node) {
            host.pause(now, why, rereads);
            if host.pauses <= NOTICES_MAX {
                self.out.push(Output::Notice(notice));
            }
        }
    }

    fn on_accusation(&mut self, by: NodeId, peer: NodeId, offence: &str) {
        let notice = format!(
            "{} {offence} (reported by {})",
            self.name(peer),
            self.name(by)
        );
        if let Some(accusations) = self.accusations.get_mut(peer.index())
            && *accusations < NOTICES_MAX
        {
            *accusations += 1;
            self.out.push(Output::Notice(notice));
        }
    }

    fn on_unreachable(&mut self, by: NodeId, peer: NodeId, error: &str) {
        let present = self.present();
        if present.contains(&peer) {
            self.order(peer, Order::Dial { node: by });
        }
        let notice = format!(
            "{} cannot reach {}: {error}",
            self.name(by),
            self.name(peer)
        );
        if let Some(host) = self.node_mut(by) {
            host.unreachables += 1;
            if host.unreachables > NOTICES_MAX {
                return;
            }
        }
        if let Some(misses) = self.misses.get_mut(peer.index())
            && *misses < NOTICES_MAX
        {
            *misses += 1;
            self.out.push(Output::Notice(notice));
        }
    }

    /// Finds out what the hosts hold without the source, and gives up if it is not everything.
    fn count(&mut self, now: Time) {
        let looking = |(_, host): (NodeId, &Host)| {
            matches!(host.state, HostState::Joined | HostState::Preparing)
        };
        let (Some(why), Some(began)) = (&self.source_lost, self.began_at) else {
            return;
        };
        let idle = now.since(self.last_progress.max(began)) >= census::AFTER;
        // A host that still examines its destination may find anything there.
        if !idle || self.hosts().any(looking) {
            return;
        }
        match &self.census {
            Some(census) if census.since == self.last_progress => {
                let Some(missing) = census.missing() else {
                    return;
                };
                let error = format!("{missing}; the source is lost: {why}; {AGAIN}");
                self.fail_all(now, &error);
            }
            _ => {
                let present = self.present();
                self.census = Some(Census::new(
                    self.last_progress,
                    present.iter().copied().collect(),
                ));
                for node in present {
                    self.order(node, Order::Census);
                }
            }
        }
    }

    /// Fails every host that has no verdict yet.
    fn fail_all(&mut self, now: Time, error: &str) {
        let hosts: Vec<NodeId> = self.hosts().map(|(node, _)| node).collect();
        for node in hosts {
            self.fail(now, node, error.to_owned());
        }
        debug_assert!(self.hosts().all(|(_, host)| host.state.is_final()));
    }

    /// A node is out for good. Of a source this is said; a host has its verdict with it.
    fn fail(&mut self, now: Time, node: NodeId, error: String) {
        let Some(host) = self.node_mut(node).filter(|host| !host.state.is_final()) else {
            return;
        };
        let (was_present, role) = (host.is_present(), host.role);
        host.fail(now, error.clone());
        self.contacts = None;
        // What it sent last may still be on its way.
        self.last_progress = now;
        if role != Role::Receiver {
            let last = self.sources().all(|source| source.state.is_final());
            let rest = match (was_present, role == Role::Source && last) {
                (true, false) => "; the cast continues without this host",
                (true, true) if self.began_at.is_some() => {
                    "; no source is left, so hosts finish only if together they have every block"
                }
                _ => "",
            };
            let notice = format!("{}: {error}{rest}", self.name(node));
            self.out.push(Output::Notice(notice));
            if role == Role::Source && last {
                debug_assert!(self.source_lost.is_none(), "the last source is lost twice");
                self.source_lost = Some(error);
            }
        }
        if let Some(census) = &mut self.census {
            census.leave(node);
        }
        if was_present {
            self.order(node, Order::Finish);
        }
        if self.began_at.is_some() {
            for other in self.present() {
                self.order(other, Order::Left { node });
            }
        }
    }

    /// Says which sources and relays the cast was over without.
    fn tell_of_sources(&mut self) {
        let nodes = self.config.nodes.iter().zip(&self.nodes);
        let absent = |host: &Host| host.role != Role::Receiver && host.state.is_outside();
        let late = nodes.filter(|(_, host)| absent(host));
        let line = |name: &str| format!("{name}: the cast was over before it could serve");
        let notices = late.map(|(node, _)| Output::Notice(line(&node.name)));
        self.out.extend(notices);
    }

    fn maybe_end(&mut self) {
        if !self.ended && self.hosts().all(|(_, host)| host.state.is_final()) {
            self.ended = true;
            self.tell_of_sources();
            self.present()
                .into_iter()
                .for_each(|node| self.order(node, Order::Finish));
            self.out.push(Output::Ended);
        }
    }
}

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod tests;
