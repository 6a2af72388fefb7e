//! The coordinator of a cast: membership, the start, watching, and a verdict for every host.
//!
//! A sans-IO state machine like the protocols. Its host (a command, a service, a simulator) tells
//! it through [`Coordinator::handle`] what happened to the agents and carries out the [`Output`]s
//! in order. Blocks never depend on it: it says who takes part and watches; the nodes' protocols
//! move the data among themselves.
//!
//! Node 0 is the source; nodes 1 and up are the hosts in the order of the request.

mod census;
mod disk;
mod host;
mod patience;

use std::net::SocketAddr;
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{NodeId, Time};
use serde::{Deserialize, Serialize};

use census::Census;
pub use disk::Disk;
use disk::DiskWatch;
pub use host::{Host, HostState};
pub use patience::claiming;

/// How to reach a node's data plane and recognise it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Addresses to try, best first.
    pub addrs: Vec<SocketAddr>,
    /// BLAKE3 of the certificate issued to it.
    pub certificate: [u8; 32],
}

/// What the coordinator tells an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The transfer starts: contacts of the nodes known by now.
    Begin {
        /// Node and contact, the receiving agent's own included.
        contacts: Vec<(NodeId, Contact)>,
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
    /// What coding took since the start, from time to time.
    Coding(CodingCounts),
    /// The answer to a census.
    Held {
        /// Blocks of the object; zero if the manifest is not here.
        blocks: u32,
        /// Those that are verified here.
        held: WireBlocks,
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
        /// Who.
        peer: NodeId,
        /// What it did.
        offence: String,
    },
    /// A peer cannot be reached.
    Unreachable {
        /// Who.
        peer: NodeId,
        /// What the attempts met with.
        error: String,
    },
}

/// What coding took at one node. A coordinator has no use for it but to pass it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodingCounts {
    /// Packets that came.
    pub packets: u64,
    /// Those of them that were combinations of what was here.
    pub dependent: u64,
    /// Those whose coefficients were all zero.
    pub zero: u64,
    /// Those that were dropped unread: their batch was whole, or fetched as blocks.
    pub dropped: u64,
    /// Packets that were made.
    pub made: u64,
    /// Time spent making packets, over all threads.
    pub encode: Duration,
    /// Time spent decoding, verifying and storing what was decoded, over all threads.
    pub decode: Duration,
    /// Bytes of coefficients and of the protocol's messages that came.
    pub overhead_bytes: u64,
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
    /// The time set by [`Output::WakeAt`] has come.
    Woken,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Give an agent an order.
    Order {
        /// To whom.
        to: NodeId,
        /// What.
        order: Order,
    },
    /// Call [`Input::Woken`] at this time; replaces an earlier one.
    WakeAt(Time),
    /// Something a person should read, once.
    Notice(String),
    /// Every host has its verdict.
    Ended,
}

/// What a coordinator is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names of the source and the hosts, for messages; the source is first.
    pub names: Vec<String>,
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
/// as the first half took, whichever is longer. Who comes later joins in.
const START_GRACE: Duration = Duration::from_secs(2);
/// Without the source nobody can get what no host has: then so long is enough. It is longer than
/// any protocol waits for one neighbour before it asks another.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(35);
/// Notices of one kind about one node.
const NOTICES_MAX: usize = 3;

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    config: Config,
    source: Option<Contact>,
    /// Why the source is lost, if it is.
    source_lost: Option<String>,
    source_disk: DiskWatch,
    hosts: Vec<Host>,
    /// What the hosts hold between them, once the source is lost.
    census: Option<Census>,
    /// How often each node was accused.
    accusations: Vec<usize>,
    /// How often each node was said to be out of reach.
    misses: Vec<usize>,
    /// When half of the hosts had joined.
    half_at: Option<Time>,
    began_at: Option<Time>,
    last_progress: Time,
    first: Option<Time>,
    /// The host on whose account the whole cast was refused.
    refused: Option<NodeId>,
    ended: bool,
    out: Vec<Output>,
}

impl Coordinator {
    /// A coordinator of a cast to `config.names.len() - 1` hosts.
    pub fn new(config: Config) -> Self {
        let hosts = config.names.iter().skip(1).map(|_| Host::new()).collect();
        Self {
            accusations: vec![0; config.names.len()],
            misses: vec![0; config.names.len()],
            config,
            source: None,
            source_lost: None,
            source_disk: DiskWatch::new(Time::ZERO),
            census: None,
            hosts,
            half_at: None,
            began_at: None,
            last_progress: Time::ZERO,
            first: None,
            refused: None,
            ended: false,
            out: Vec::new(),
        }
    }

    /// The hosts in order; host `i` is node `i + 1`.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
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
        self.first.get_or_insert(now);
        match input {
            Input::Joined { node, contact } => self.on_joined(now, node, contact),
            Input::Claiming { node } => {
                if let Some(host) = self.host_mut(node) {
                    host.claiming = true;
                }
            }
            Input::Waiting { node } => {
                if let Some(host) = self.host_mut(node) {
                    host.waiting = true;
                }
            }
            Input::Refused { node, error } => self.on_refused(now, node, error),
            Input::Lost { node, error } => self.on_lost(now, node, error),
            Input::Report { node, report } => self.on_report(now, node, report),
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
        std::mem::take(&mut self.out)
    }

    /// Gives every host that has no verdict this one: the user interrupted the cast.
    pub fn cancel(&mut self, now: Time, error: &str) -> Vec<Output> {
        for index in 0..self.hosts.len() {
            self.fail(now, index, error.to_owned());
        }
        self.maybe_end();
        std::mem::take(&mut self.out)
    }

    fn order(&mut self, to: NodeId, order: Order) {
        self.out.push(Output::Order { to, order });
    }

    /// Every node that takes part: the source, and the hosts with an agent and no failure.
    fn present(&self) -> Vec<NodeId> {
        let source = self.source.iter().map(|_| NodeId(0));
        let hosts = self
            .hosts
            .iter()
            .zip(1..)
            .filter(|(host, _)| host.is_present());
        source.chain(hosts.map(|(_, node)| NodeId(node))).collect()
    }

    fn name(&self, node: NodeId) -> &str {
        self.config
            .names
            .get(node.index())
            .map_or("a host that is not in the cast", String::as_str)
    }

    // ---- membership and start

    fn on_joined(&mut self, now: Time, node: NodeId, contact: Contact) {
        if node == NodeId(0) {
            self.source = Some(contact);
        } else {
            let late = self.began_at.is_some();
            let Some(host) = self.host_mut(node) else {
                return;
            };
            if host.state != HostState::Starting {
                return;
            }
            host.join(now, contact.clone(), late);
            let joined = self.hosts.iter().filter(|host| host.is_present()).count();
            if 2 * joined >= self.hosts.len() {
                self.half_at.get_or_insert(now);
            }
            if self.began_at.is_some() {
                self.begin_for(node);
                for other in self.present().into_iter().filter(|other| *other != node) {
                    self.order(
                        other,
                        Order::Met {
                            node,
                            contact: contact.clone(),
                        },
                    );
                }
            }
        }
    }

    fn maybe_begin(&mut self, now: Time) {
        if self.began_at.is_some() || self.source.is_none() {
            return;
        }
        let waiting = self
            .hosts
            .iter()
            .any(|host| host.state == HostState::Starting);
        let first = self.first.unwrap_or(now);
        let out_of_patience = self
            .half_at
            .is_some_and(|half| now.since(half) >= START_GRACE.max(half.since(first)));
        let anyone = self.hosts.iter().any(Host::is_present);
        // Either all take the cast, or it is refused: its end is not far.
        let undecided = |host: &Host| host.state == HostState::Starting && host.waiting;
        let undecided = self.hosts.iter().any(undecided);
        if anyone && (!waiting || out_of_patience && !undecided) {
            self.began_at = Some(now);
            self.last_progress = now;
            self.present()
                .into_iter()
                .for_each(|node| self.begin_for(node));
        }
    }

    fn begin_for(&mut self, node: NodeId) {
        let source = self
            .source
            .iter()
            .map(|contact| (NodeId(0), contact.clone()));
        let hosts = self
            .hosts
            .iter()
            .zip(1..)
            .filter(|(host, _)| host.is_present());
        let hosts = hosts.filter_map(|(host, node)| Some((NodeId(node), host.contact.clone()?)));
        let contacts = source.chain(hosts).collect();
        self.order(node, Order::Begin { contacts });
        // Members that are out already: a late joiner need not wait for them.
        let out: Vec<NodeId> = self
            .hosts
            .iter()
            .zip(1..)
            .filter(|(host, _)| host.state == HostState::Failed)
            .map(|(_, node)| NodeId(node))
            .collect();
        for gone in out {
            self.order(node, Order::Left { node: gone });
        }
    }

    fn on_lost(&mut self, now: Time, node: NodeId, error: String) {
        if node == NodeId(0) {
            // It says so until it is dismissed.
            if self.source_lost.is_some() {
                return;
            }
            self.source = None;
            // What it sent last may still be on its way.
            self.last_progress = now;
            self.order(node, Order::Finish);
            for other in self.present() {
                self.order(other, Order::Left { node });
            }
            self.out
                .push(Output::Notice(format!("{}: {error}", self.name(node))));
            self.source_lost = Some(error);
        } else if self.host_mut(node).is_some() {
            self.fail(now, node.index() - 1, error);
        }
    }

    /// Another cast holds what this one needs. Who comes late fails alone; else nobody gets the
    /// object, as it would be there in one version on some hosts and in another on others.
    fn on_refused(&mut self, now: Time, node: NodeId, error: String) {
        let began = self.began_at.is_some();
        let Some(host) = self.host_mut(node).filter(|host| !host.state.is_final()) else {
            return;
        };
        let late = began && (host.late || host.state == HostState::Starting);
        let reason = format!("refused: {}: {error}", self.name(node));
        self.fail(now, node.index() - 1, error);
        if !late {
            self.refused = Some(node);
            for index in 0..self.hosts.len() {
                self.fail(now, index, reason.clone());
            }
        }
    }

    // ---- watching

    fn host_mut(&mut self, node: NodeId) -> Option<&mut Host> {
        self.hosts.get_mut(node.index().checked_sub(1)?)
    }

    fn on_report(&mut self, now: Time, node: NodeId, report: Report) {
        if let Some(host) = self.host_mut(node) {
            // Nothing more can become of it, but what it saw of others still counts.
            let matters = matches!(report, Report::Accuse { .. } | Report::Paused { .. });
            if host.state.is_final() && !(matters && host.is_present()) {
                return;
            }
            host.heard = now;
        }
        match report {
            Report::Accuse { peer, offence } => self.on_accusation(node, peer, &offence),
            Report::Unreachable { peer, error } => self.on_unreachable(node, peer, &error),
            Report::Held { blocks, held } => {
                if let Some(census) = &mut self.census {
                    census.answer(node, blocks, &held, self.config.size_bytes);
                }
            }
            Report::Paused { why, rereads } => self.on_pause(now, node, why, rereads),
            Report::Failed { error } if node == NodeId(0) => self.on_lost(now, node, error),
            Report::Failed { error } => self.fail(now, node.index() - 1, error),
            Report::Refused { error } => self.on_refused(now, node, error),
            Report::Progress { disk, .. } if node == NodeId(0) => {
                let budget = self.budget();
                self.source_disk
                    .note(now, disk, HostState::Receiving, &budget);
            }
            report => {
                let budget = self.budget();
                if let Some(host) = self.host_mut(node)
                    && host.progress(now, &report, &budget)
                {
                    self.last_progress = now;
                }
            }
        }
    }

    fn on_pause(&mut self, now: Time, node: NodeId, why: String, rereads: bool) {
        let verified = self
            .host_mut(node)
            .is_some_and(|host| host.state.is_final());
        let notice = match verified {
            true => format!("{} stops serving others: {why}", self.name(node)),
            false => format!("{} waits: {why}", self.name(node)),
        };
        if let Some(host) = self.host_mut(node) {
            host.pause(now, why, rereads);
            if host.pauses <= NOTICES_MAX {
                self.out.push(Output::Notice(notice));
            }
        }
    }

    fn on_accusation(&mut self, by: NodeId, peer: NodeId, offence: &str) {
        let notice = format!("{} {offence} (says {})", self.name(peer), self.name(by));
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
        if let Some(host) = self.host_mut(by) {
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
        let looking = |host: &Host| matches!(host.state, HostState::Joined | HostState::Preparing);
        let (Some(why), Some(began)) = (&self.source_lost, self.began_at) else {
            return;
        };
        let idle = now.since(self.last_progress.max(began)) >= census::AFTER;
        // Who still looks at its destination may find anything there.
        if !idle || self.hosts.iter().any(looking) {
            return;
        }
        match &self.census {
            Some(census) if census.since == self.last_progress => {
                let Some(missing) = census.missing() else {
                    return;
                };
                let error = format!("{missing}; the source is lost: {why}");
                for index in 0..self.hosts.len() {
                    self.fail(now, index, error.clone());
                }
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

    fn fail(&mut self, now: Time, index: usize, error: String) {
        let host = &mut self.hosts[index];
        if host.state.is_final() {
            return;
        }
        let was_present = host.is_present();
        host.fail(now, error);
        self.last_progress = now;
        let node = NodeId(index as u32 + 1);
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

    fn maybe_end(&mut self) {
        if !self.ended && self.hosts.iter().all(|host| host.state.is_final()) {
            self.ended = true;
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
