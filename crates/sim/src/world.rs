//! A transfer in virtual time: the nodes, the connections between them, the network and what goes
//! wrong.
//!
//! # Assumptions
//!
//! - Blocks share the network max-min fairly, see [`crate::flow`]; messages take the one-way delay
//!   and no bandwidth. Their bytes are counted (`message_bytes` of the totals).
//! - A node sends the blocks for one peer in the order they were queued, one at a time. Verifying
//!   and storing a block takes no time.
//! - A connection takes [`HANDSHAKE`] and two round trips, one for TCP and one for TLS, and needs
//!   a live path both ways. An attempt that fails is made again after [`RETRY`].
//! - The kernel's keep-alive and the data plane's own find a dead or unreachable peer after
//!   [`KEEP_ALIVE`]; a process that died on a live host is found by the reset of its connection.
//! - Flows have their share at once. What TCP needs to get there, a few round trips for each
//!   connection, and its headers, 3 to 4 % of a link, are left out of the simulation as they are
//!   left out of the limit, unless [`crate::transport`] says otherwise. So are the queues in the
//!   network: a flow that was held up by its sender for a moment does not find its link's queue
//!   filled to live on.
//! - A script changes capacities and delays while the transfer runs. Flows share what there is at
//!   once; a new delay holds for what is sent from then on. What a script says about queues, marks
//!   and loss has no meaning at this level.
//! - Packets carry the coefficients they would; instead of a payload there is a mark whether it is
//!   right. A combination into which anything wrong went is wrong.
//! - Each node has one core for coding, which makes packets in the order in which they were asked
//!   for, and decodes, at a speed that has to be given; if none is, that takes no time.
//! - What limits a host is the capacity of its node, which faults and scripts change while blocks
//!   move. A rate towards a peer limits the flow to it.
//! - A node is the state machine that an agent is, too. Its manifest is here, and its disk takes no
//!   time and never fails, unless each has a [`NodeDisk`].

pub mod attended;
mod beside;
#[cfg(test)]
mod conformance;
mod disks;
mod ends;
mod faults;
mod hosting;
mod links;
mod packets;
mod processor;
mod rates;
mod script;
mod tcp;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::network::{Change, ClusterId, Network};
use outpour_core::script::Timeline;
use outpour_core::{BatchId, Batches, BlockId, BlockSet, NodeId, Rate, Time, Traffic};
use outpour_protocols::Role;
use outpour_protocols::coordinator::{Given, Input, Obedience};
use outpour_protocols::node::{Node as Machine, Output, Trouble};
use outpour_terms::Terms;

use crate::check::Audit;
use crate::dice::{Dice, mix};
use crate::fault::{Fault, FaultKind};
use crate::object::Object;
use crate::pacer::RateOrder;
use crate::queue::Queue;
use crate::rogue::{Deceit, RogueAt};
use crate::trace::Trace;
use crate::transport::Transport;
use crate::wires::Wires;
use attended::Desk;
use beside::Session;
pub use disks::NodeDisk;
use ends::Ends;
use packets::{Collected, Packet};
use processor::Processor;
use rates::Pace;

/// What both sides compute while they connect.
pub const HANDSHAKE: Duration = Duration::from_millis(1);
/// How long after a failed attempt to connect the next one is made.
pub const RETRY: Duration = Duration::from_secs(1);
/// How long a peer may be silent before its connections are given up.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long after its connections broke a node that is gone for good is declared to have left.
pub const LEFT_AFTER: Duration = Duration::from_secs(2);
/// How many nodes a simulation may have: pairs of nodes are kept in a table.
pub const NODES_MAX: usize = 4096;

/// What is to be simulated.
pub struct Scenario {
    /// The network, whose nodes are the members.
    pub network: Network,
    /// What the nodes have agreed on; it has a member for each of them.
    pub terms: Terms,
    /// What each node holds when the transfer begins, indexed by node.
    pub have: Vec<BlockSet>,
    /// What each node is to get, indexed by node; what goes with its role if empty.
    pub want: Vec<Want>,
    /// When each node's part begins, indexed by node; all at once if empty.
    pub starts: Vec<Time>,
    /// What is moved.
    pub object: Object,
    /// How blocks are grouped for coding, if there is any.
    pub batches: Option<Batches>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What changes about the network, besides.
    pub timeline: Option<Timeline>,
    /// Rates that nodes are told to keep towards their peers.
    pub orders: Vec<RateOrder>,
    /// If given, a coordinator with so much patience runs the transfer, as it does a cast.
    pub patience: Option<Duration>,
    /// Whether rates are checked at each change and contents kept, which costs time.
    pub checked: bool,
    /// Where to print what happens.
    pub sink: Option<Box<dyn Write + Send>>,
}

/// A transfer under way.
pub struct World {
    now: Time,
    queue: Queue<Happening>,
    /// In a box, so that lending it moves a pointer.
    wires: Box<Wires>,
    nodes: Vec<Node>,
    /// What each node is to get.
    wants: Vec<Want>,
    terms: Arc<Terms>,
    /// How many bytes each block has.
    block_len: Arc<dyn Fn(BlockId) -> u32 + Send + Sync>,
    ends: Ends,
    /// Another transfer on the same network.
    beside: Option<Box<Self>>,
    session: Session,
    /// From and to of each flow.
    routes: Vec<(NodeId, NodeId)>,
    object: Object,
    batches: Option<Batches>,
    faults: Vec<Fault>,
    /// What the script will change, the changes of the next moment apart.
    timeline: Option<Timeline>,
    changes: Vec<Change>,
    /// Latency-sensitive traffic by the script.
    traffic: Vec<Traffic>,
    orders: Vec<RateOrder>,
    /// The coordinator, if there is one.
    desk: Option<Desk>,
    /// What each node has the object on, if that may fail.
    disks: Vec<Box<dyn NodeDisk>>,
    /// Pairs that cannot talk to each other, and until when.
    partitions: Vec<(NodeId, NodeId, Time)>,
    /// The rates that nodes have set, from and to.
    paces: BTreeMap<(NodeId, NodeId), Pace>,
    /// Nodes declared to have left.
    left: Vec<NodeId>,
    accusations: Vec<Accusation>,
    dice: Dice,
    /// For coefficients.
    coder: Dice,
    /// Bytes that a core multiplies and adds in a second.
    coding_speed: Rate,
    outputs: Vec<Output>,
    connections: u32,
    incomplete: usize,
    /// The blocks that are in each cluster or came into it.
    entered: Vec<BlockSet>,
    /// How often each block came into each cluster from another one, if that is checked.
    entries: Vec<Vec<u16>>,
    checked: bool,
    transport: Transport,
    /// Connections are there already, from an earlier transfer, and only have to be told of.
    warm: bool,
    audit: Audit,
    trace: Trace,
    totals: Totals,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events processed.
    pub events: u64,
    /// Blocks and packets whose last byte was sent.
    pub blocks_sent: u64,
    /// Packets among them.
    pub packets_sent: u64,
    /// Packets that came and added nothing.
    pub packets_wasted: u64,
    /// Bytes of blocks that went from one cluster to another.
    pub wan_bytes: u64,
    /// How often a block came into a cluster from another one that had come into it before, or had
    /// been there from the start.
    pub wan_repeats: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// When a protocol last sent a message, queued a block or asked for a connection.
    pub last_action: Time,
    /// Faults that struck before everything was done, by kind as in [`FaultKind::NAMES`].
    pub faults: [u32; FaultKind::NAMES.len()],
}

/// A node was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// When.
    pub at: Time,
    /// Which node found out.
    pub by: NodeId,
    /// Which node was found out.
    pub peer: NodeId,
}

/// One node of the transfer.
pub(crate) struct Node {
    machine: Option<Machine>,
    obedience: Obedience,
    /// When it is to be woken next.
    armed: Time,
    /// All times at which the queue has something to wake it: that one and a few passed over.
    queued: Vec<Time>,
    state: State,
    /// Counts its starts; what was meant for an earlier life is dropped.
    life: u32,
    /// Happenings that wait while it is stalled.
    inbox: VecDeque<Happening>,
    have: BlockSet,
    /// What it is to get, and how much of that it lacks.
    want: BlockSet,
    lacks: u32,
    /// What its blocks hold, if that is checked.
    content: Vec<u64>,
    /// What it has of batches that are not whole, in a coded transfer.
    collected: Option<Collected>,
    processor: Processor,
    /// Blocks in the order they came, if faults may lose them.
    journal: Vec<(Time, BlockId)>,
    /// Which share of what it sends is wrong, and whether that goes for packets only.
    lies: Option<(f64, bool)>,
    /// Whether it ever did.
    lied: bool,
    message_delay: Duration,
    /// It is going to be told what its peers achieve.
    measures: bool,
    finished: Option<Time>,
    duplicates: u32,
    /// It crashed while a coordinator watched.
    lost: bool,
    /// It takes no part, as it is not ready, or something is wrong with its disk.
    closed: bool,
    /// What it does instead of its part, if anything.
    deceit: Option<Deceit>,
}

/// What a node is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    Stalled,
    Down,
    /// Down for good, or stalled for good and given up.
    Gone,
}

/// What waits in the queue.
#[derive(Debug)]
enum Happening {
    Start {
        node: NodeId,
    },
    Connect {
        from: NodeId,
        to: NodeId,
        life: u32,
    },
    Accept {
        at: NodeId,
        from: NodeId,
        connection: u32,
        life: u32,
    },
    Down {
        at: NodeId,
        peer: NodeId,
        connection: u32,
    },
    Message {
        to: NodeId,
        from: NodeId,
        connection: u32,
        body: Vec<u8>,
    },
    Block {
        to: NodeId,
        from: NodeId,
        connection: u32,
        block: BlockId,
        content: u64,
    },
    Packet {
        to: NodeId,
        from: NodeId,
        connection: u32,
        batch: BatchId,
        packet: Packet,
    },
    /// The packet at the head of a queue is made.
    Made {
        from: NodeId,
        to: NodeId,
        connection: u32,
    },
    /// What came last made a batch whole, and it is decoded now.
    Decoded {
        at: NodeId,
        from: NodeId,
        batch: BatchId,
        life: u32,
    },
    /// A node wants to be woken.
    Woken {
        node: NodeId,
        life: u32,
        at: Time,
    },
    Left {
        at: NodeId,
        node: NodeId,
    },
    Fault {
        index: u32,
    },
    FaultOver {
        index: u32,
    },
    KeepAlive {
        index: u32,
    },
    /// The script changes the network.
    Script,
    /// To the coordinator.
    Tell {
        input: Box<Input>,
    },
    Wake,
    /// A round trip is over for a connection with a window.
    Turn {
        from: NodeId,
        to: NodeId,
    },
    /// From the coordinator.
    Order {
        at: NodeId,
        given: Box<Given>,
    },
    Beat {
        node: NodeId,
        life: u32,
    },
    /// The session's share changes.
    Share {
        weight: u32,
    },
    /// A node hears what its peers achieve.
    Achieved {
        node: NodeId,
        life: u32,
    },
    /// A node's machine has stopped; peers are not told if it is silent.
    Stopped {
        node: NodeId,
        life: u32,
        silent: bool,
    },
    /// What was to be sent to a peer could not be read.
    ReadFailed {
        node: NodeId,
        life: u32,
        peer: NodeId,
        why: String,
        trouble: Option<Trouble>,
    },
}

impl Happening {
    /// The node that has to do something for this to happen.
    const fn actor(&self) -> Option<NodeId> {
        match self {
            Self::Connect { from: node, .. }
            | Self::Accept { at: node, .. }
            | Self::Down { at: node, .. }
            | Self::Message { to: node, .. }
            | Self::Block { to: node, .. }
            | Self::Packet { to: node, .. }
            | Self::Made { from: node, .. }
            | Self::Decoded { at: node, .. }
            | Self::Woken { node, .. }
            | Self::Beat { node, .. }
            | Self::Achieved { node, .. }
            | Self::ReadFailed { node, .. }
            | Self::Left { at: node, .. } => Some(*node),
            Self::Start { .. }
            | Self::Stopped { .. }
            | Self::Fault { .. }
            | Self::FaultOver { .. }
            | Self::Tell { .. }
            | Self::Wake
            | Self::Script
            | Self::Turn { .. }
            | Self::Share { .. }
            | Self::Order { .. }
            | Self::KeepAlive { .. } => None,
        }
    }
}

impl World {
    /// Sets the scene; nothing has happened yet.
    ///
    /// # Panics
    /// If there are more than [`NODES_MAX`] nodes, or the lists of the scenario do not have an
    /// entry for each.
    pub fn new(scenario: Scenario) -> Self {
        let Scenario {
            network,
            terms,
            have,
            mut want,
            starts,
            object,
            batches,
            faults,
            timeline,
            orders,
            patience,
            ..
        } = scenario;
        let count = network.node_count() as usize;
        assert!(count <= NODES_MAX && terms.members.len() == count && have.len() == count);
        if want.is_empty() {
            want = terms
                .members
                .iter()
                .map(|member| by_role(member.role))
                .collect();
        }
        let of_object = |want: &Want| want.of(object.blocks()).expect("blocks of the object");
        let seed = terms.seed;
        let encoders = terms.coding.map_or(1, |coding| coding.encoders);
        let size_bytes = object.bytes_in(&BlockSet::full(object.blocks()));
        let desk = patience.map(|patience| Desk::new(&terms.members, size_bytes, patience));
        let mut entered = vec![BlockSet::new(object.blocks()); network.clusters().len()];
        for (node, have) in network.nodes().zip(&have) {
            entered[network.cluster_of(node).index()].union(have);
        }
        let fickle: BTreeSet<_> = faults
            .iter()
            .flat_map(|fault| fault.kind.capacities())
            .map(|(r, _)| r)
            .collect();
        let mut world = Self {
            now: Time::ZERO,
            queue: Queue::default(),
            wires: Box::new(Wires::new(network, fickle, timeline.is_some(), terms.limit)),
            nodes: have
                .into_iter()
                .zip(want.iter().map(of_object))
                .map(|(have, want)| Node::new(have, want, object, scenario.checked, encoders))
                .collect(),
            wants: want,
            terms: Arc::new(terms),
            block_len: Arc::new(move |block| object.bytes_of(block)),
            ends: Ends::new(count),
            beside: None,
            session: Session::ALONE,
            routes: Vec::new(),
            object,
            batches,
            faults,
            timeline,
            orders,
            changes: Vec::new(),
            traffic: Vec::new(),
            desk,
            disks: Vec::new(),
            partitions: Vec::new(),
            paces: BTreeMap::new(),
            left: Vec::new(),
            accusations: Vec::new(),
            dice: Dice::new(seed),
            coder: Dice::new(mix(seed, 0x636f_6465)),
            coding_speed: Rate::UNLIMITED,
            outputs: Vec::new(),
            connections: 0,
            incomplete: 0,
            entries: match scenario.checked {
                true => vec![vec![0; object.blocks() as usize]; entered.len()],
                false => Vec::new(),
            },
            entered,
            checked: scenario.checked,
            transport: Transport::Ideal,
            warm: false,
            audit: Audit::default(),
            trace: Trace::new(scenario.sink),
            totals: Totals::default(),
        };
        world.count_incomplete();
        world.follow_script();
        for node in world.ids() {
            let at = starts.get(node.index()).copied().unwrap_or(Time::ZERO);
            world.queue.push(at, Happening::Start { node });
        }
        for (fault, index) in world.faults.iter().zip(0..) {
            world.queue.push(fault.at, Happening::Fault { index });
        }
        world
    }

    /// Has everything carried by a transport other than the ideal one; to be said at the start.
    /// With `warm` connections there are connections from an earlier transfer.
    pub const fn set_transport(&mut self, transport: Transport, warm: bool) {
        self.transport = transport;
        self.warm = warm;
    }

    /// Makes a member a rogue, for which nobody waits; to be said at the start.
    pub fn set_rogue(&mut self, (node, deceit): RogueAt) {
        self.nodes[node.index()].deceit = Some(deceit);
        self.nodes[node.index()].lied = true;
        self.count_incomplete();
    }

    /// Has no hash made of what happens, which takes time; to be said at the start.
    pub fn skip_hash(&mut self) {
        self.trace.stop_hashing();
        if let Some(other) = &mut self.beside {
            other.skip_hash();
        }
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The present.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Lets the next thing happen, here or in the transfer [beside](Self::set_beside), unless that would be after `until`; says whether it did. If it
    /// did not, it is `until` now.
    pub fn step(&mut self, until: Time) -> bool {
        let next = loop {
            let next = earlier(self.wires.flows.next_time(), self.queue.next_time());
            let next = match self.beside {
                None => next,
                Some(_) => earlier(next, self.time_beside()),
            };
            if self.wires.flows.is_settled() || next == Some(self.now) {
                break next;
            }
            self.wires.flows.settle(self.now);
            if self.checked
                && let Some(what) = self.wires.overload()
            {
                self.audit.violation(self.now, None, what);
            }
        };
        let Some(next) = next.filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = next;
        self.totals.events += 1;
        if self.beside.is_some() {
            self.step_both();
        } else if self.wires.flows.next_time() == Some(next) {
            if let Some((_, flow)) = self.wires.flows.pop() {
                self.on_transmitted(flow);
            }
        } else if let Some((_, happening)) = self.queue.pop() {
            self.happen(happening);
        }
        true
    }

    /// Whether every node that is not gone for good has all that it wants.
    pub const fn is_complete(&self) -> bool {
        self.incomplete == 0
    }

    /// When a node had all that it wants, if it has.
    pub fn finished(&self, node: NodeId) -> Option<Time> {
        self.nodes[node.index()].finished
    }

    /// The blocks a node has.
    pub fn have(&self, node: NodeId) -> &BlockSet {
        &self.nodes[node.index()].have
    }

    /// The blocks a node is to get.
    pub fn wanted(&self, node: NodeId) -> &BlockSet {
        &self.nodes[node.index()].want
    }

    /// Whether a node has all that it wants.
    pub fn has_all(&self, node: NodeId) -> bool {
        self.nodes[node.index()].lacks == 0
    }

    /// How many blocks came to a node that it had.
    pub fn duplicates(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].duplicates
    }

    /// How often each block came into a cluster from another one, if the scenario is checked.
    pub fn entries(&self, cluster: ClusterId) -> &[u16] {
        self.entries.get(cluster.index()).map_or(&[], Vec::as_slice)
    }

    /// What was counted so far.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Which node was found out by which so far, in order, each pair once.
    pub fn accusations(&self) -> &[Accusation] {
        &self.accusations
    }

    /// The hash of everything that happened so far, unless it is [skipped](Self::skip_hash).
    pub fn trace_hash(&self) -> blake3::Hash {
        self.trace.hash()
    }

    /// What was found wrong so far.
    pub const fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Whether the node takes part: it is not down or stalled, now or for good.
    pub fn is_live(&self, node: NodeId) -> bool {
        self.nodes[node.index()].state == State::Up
    }

    /// Whether the node is out of the transfer for good.
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.nodes[node.index()].state == State::Gone
    }

    /// Whether any block is under way, however slowly, or may be for all that is settled.
    pub fn is_sending(&self) -> bool {
        !self.wires.flows.is_settled() || self.wires.flows.next_time().is_some()
    }

    /// Whether the node crashed in an attended transfer, which is for good.
    pub fn is_lost(&self, node: NodeId) -> bool {
        self.nodes[node.index()].lost
    }

    /// Whether either of two nodes refuses the other.
    pub fn is_banned(&self, one: NodeId, other: NodeId) -> bool {
        self.ends.banned(one, other) || self.ends.banned(other, one)
    }

    /// The object being moved.
    pub const fn object(&self) -> &Object {
        &self.object
    }

    /// Whether the node's blocks hold what they should, if the scenario is checked.
    pub fn is_intact(&self, node: NodeId) -> bool {
        let node = &self.nodes[node.index()];
        let right =
            |block: BlockId| node.content.get(block as usize) == Some(&self.object.content(block));
        !self.checked || node.have.iter().all(right)
    }

    fn count_incomplete(&mut self) {
        let takes_part = |node: &Node| node.state != State::Gone && node.deceit.is_none();
        let lacks = |node: &&Node| takes_part(node) && node.lacks > 0;
        self.incomplete = self.nodes.iter().filter(lacks).count();
    }
}

/// What a node is to get, unless something else is said.
const fn by_role(role: Role) -> Want {
    match role {
        Role::Relay => Want::Nothing,
        Role::Source | Role::Receiver => Want::All,
    }
}

impl Node {
    fn new(have: BlockSet, want: BlockSet, object: Object, checked: bool, encoders: u8) -> Self {
        let mut lacking = want.clone();
        lacking.subtract(&have);
        let lacks = lacking.count();
        let mut content = Vec::new();
        if checked {
            content = vec![0; object.blocks() as usize];
            have.iter()
                .for_each(|block| content[block as usize] = object.content(block));
        }
        Self {
            machine: None,
            obedience: attended::obedience(),
            armed: Time::MAX,
            queued: Vec::new(),
            state: State::Down,
            life: 0,
            inbox: VecDeque::new(),
            finished: (lacks == 0).then_some(Time::ZERO),
            have,
            want,
            lacks,
            content,
            collected: None,
            processor: Processor::new(encoders),
            journal: Vec::new(),
            lies: None,
            lied: false,
            message_delay: Duration::ZERO,
            measures: false,
            duplicates: 0,
            lost: false,
            closed: false,
            deceit: None,
        }
    }
}

/// The earlier of two times, if there are any.
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
