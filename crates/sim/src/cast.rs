//! One simulated cast: what a transfer would take on a given network.

mod believed;

use std::io::Write;

use outpour_core::blocks::Want;
use outpour_core::network::Network;
use outpour_core::script::{Script, ScriptError, Timeline};
use outpour_core::separation::left;
use outpour_core::{BlockSet, Bytes, NodeId, Rate, Time};
use outpour_planner::LimitError;
use outpour_protocols::registry::Entry;
use outpour_protocols::{Member, Role};
use outpour_terms::batching::Batching;
use outpour_terms::placement::Placement;
use outpour_terms::{ASKED_FOR, Asked, DecideError, Facts, ManifestShape, TermsError};
use serde::Serialize;

use crate::check::Violation;
use crate::dice::mix;
use crate::fault::Fault;
use crate::object::Object;
use crate::rogue::RogueAt;
use crate::transport::Transport;
use crate::world::{NODES_MAX, Scenario, World};

/// How long nothing may move before a cast counts as stuck, in virtual time.
const STUCK_AFTER: std::time::Duration = std::time::Duration::from_secs(600);
/// How often that is looked at, in events.
const LOOK_EVERY: u64 = 1024;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct CastConfig {
    /// The network; all its nodes take part.
    pub network: Network,
    /// The nodes that have the object.
    pub sources: Vec<NodeId>,
    /// The nodes that want nothing of the object, and pass it on.
    pub relays: Vec<NodeId>,
    /// Size of the object.
    pub size: Bytes,
    /// What the user of such a cast asks for. Without a seed it is always the same one.
    pub asked: Asked,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What a planner believes the network to be, if that is not what it is; its nodes and
    /// clusters have to be the same.
    pub believed: Option<Network>,
    /// Bytes of blocks that a node's core multiplies and adds in a second; 10 GB if nothing is
    /// said. Unlimited means that coding takes no time.
    pub coding_speed: Option<Rate>,
    /// What changes about the network while the cast runs; `network` is what it is applied to.
    pub script: Option<Script>,
    /// A receiver that deceives the others; it is in the report, and not waited for.
    pub rogue: Option<RogueAt>,
}

/// Bytes of blocks that a core multiplies and adds in a second, if nothing else is said. It is a
/// fixed number, so that a simulation says the same everywhere: about half of what a core with AVX2
/// does when nothing else uses its memory.
const CODING_SPEED_BYTES_PER_S: f64 = 10e9;

/// The seed if no other is asked for.
const SEED: u64 = 1;

impl CastConfig {
    /// A cast from `source` in which nothing goes wrong and nothing is asked for.
    pub fn new(network: Network, source: NodeId, size: Bytes) -> Self {
        Self {
            network,
            sources: vec![source],
            relays: Vec::new(),
            size,
            asked: Asked::default(),
            faults: Vec::new(),
            believed: None,
            coding_speed: None,
            script: None,
            rogue: None,
        }
    }

    /// What a node takes part for.
    fn role(&self, node: NodeId) -> Role {
        if self.sources.contains(&node) {
            Role::Source
        } else if self.relays.contains(&node) {
            Role::Relay
        } else {
            Role::Receiver
        }
    }

    /// The nodes that are to get the object.
    fn receivers(&self) -> Vec<NodeId> {
        let nodes = self.network.nodes();
        nodes
            .filter(|node| self.role(*node) == Role::Receiver)
            .collect()
    }

    fn coding_speed(&self) -> Rate {
        let usual = || Rate::from_bytes_per_s(CODING_SPEED_BYTES_PER_S);
        self.coding_speed.or_else(usual).unwrap_or(Rate::UNLIMITED)
    }
}

/// What a simulated cast took; serializes to the JSON that `outpour sim cast` prints.
#[derive(Clone, Debug, Serialize)]
pub struct SimReport {
    /// The protocol that was run.
    pub protocol: &'static str,
    /// Why it was chosen, if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the last node that is to get the object had every block, in seconds.
    pub finish_s: f64,
    /// The least time that the network allows, with all that changes about it, in seconds.
    pub limit_s: f64,
    /// How many times the limit it took; infinite (null in JSON) if the network sets no limit.
    pub ratio: f64,
    /// What a planner that foresees every change of the script would take, in seconds, if each
    /// stretch of time without a change were used at its own best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clairvoyant_s: Option<f64>,
    /// Every node that is to get the object, in the order of the network.
    pub nodes: Vec<NodeReport>,
    /// What coding took, if the protocol codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coding: Option<CodingReport>,
    /// The nodes that were found to send wrong bytes, in the order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accusations: Vec<AccusationReport>,
    /// How many blocks came to a node that had them.
    pub repeats: u64,
    /// Bytes of blocks that went from one cluster to another, duplicates included.
    pub wan_bytes: u64,
    /// How often a block came into a cluster that had it already.
    pub wan_repeats: u64,
}

/// What coding took in a simulated cast.
#[derive(Clone, Debug, Serialize)]
pub struct CodingReport {
    /// How many blocks were coded together.
    pub batch_blocks: u16,
    /// How many a core would code as fast as the fastest node sends: the k* of Proposition 1.
    pub best_batch_blocks: Option<u64>,
    /// Bytes of blocks that a core multiplied and added in a second; nothing if coding took no
    /// time.
    pub speed_bytes_per_s: Option<f64>,
    /// How long the cores of the busiest node made packets and decoded, summed, in seconds.
    pub busy_s: f64,
    /// The same as a share of the time until the last node had every block.
    pub busy_share: f64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that came and added nothing.
    pub wasted: u64,
}

/// A node that another one found to send wrong bytes.
#[derive(Clone, Debug, Serialize)]
pub struct AccusationReport {
    /// When, in seconds.
    pub at_s: f64,
    /// The name of the node that found out.
    pub by: String,
    /// The name of the one that sent them.
    pub peer: String,
}

/// One receiver of a simulated cast.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// When it had every block, in seconds; nothing (null) if a fault took it away for good.
    pub finish_s: Option<f64>,
}

/// Why a cast cannot be simulated, or what went wrong in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// There are no terms for it.
    #[error(transparent)]
    Decide(#[from] DecideError),
    /// Its blocks cannot be coded.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The network has no limit for this.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Too many nodes for one simulation.
    #[error("the network has {nodes} nodes; a simulation takes at most {NODES_MAX}")]
    TooManyNodes {
        /// How many there are.
        nodes: u32,
    },
    /// The size cannot be cut into such blocks.
    #[error(
        "{size} cannot be cut into blocks of {block}: a block has 1 byte to 4 GiB, an object at \
         most 2^32 - 1 blocks"
    )]
    Blocks {
        /// The object's size.
        size: Bytes,
        /// The blocks' size.
        block: Bytes,
    },
    /// A connection needs both directions.
    #[error(
        "`{one}` and `{other}` can send one way only: connections need a live link in both \
         directions (`both = true`)"
    )]
    OneWay {
        /// A node.
        one: String,
        /// A node.
        other: String,
    },
    /// The script does not fit the network.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The planner was told of another network than the one that is simulated.
    #[error("the network to plan on differs in its nodes or clusters: {0}")]
    OtherNetwork(String),
    /// Nothing moves any more.
    #[error("stuck after {after}: {missing} nodes incomplete, `{first}` among them")]
    Stuck {
        /// When it was noticed.
        after: Time,
        /// How many nodes lack something.
        missing: usize,
        /// The name of one.
        first: String,
    },
    /// The protocol broke its contract.
    #[error("protocol `{protocol}` breaks the rules: {violation}")]
    Violation {
        /// The protocol.
        protocol: &'static str,
        /// What it did first.
        violation: Violation,
    },
}

/// Simulates a cast over an ideal transport.
///
/// # Errors
/// If the configuration makes no sense or the cast does not come to an end.
pub fn simulate(config: CastConfig) -> Result<SimReport, CastError> {
    simulate_over(Transport::Ideal, config)
}

/// Simulates a cast over a transport. Over TCP a manifest that does not go by the control channels
/// is cast first, as it is in the world, and the object follows on the same connections.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_over(transport: Transport, config: CastConfig) -> Result<SimReport, CastError> {
    play(transport, config, None, false).map(|(report, _)| report)
}

/// Simulates a cast, prints what happens to `sink`, and also returns the hash of all that happened.
///
/// # Errors
/// As [`simulate`].
pub fn trace(
    config: CastConfig,
    sink: Option<Box<dyn Write + Send>>,
) -> Result<(SimReport, blake3::Hash), CastError> {
    trace_over(Transport::Ideal, config, sink)
}

/// As [`simulate_over`], and as [`trace`].
///
/// # Errors
/// As [`simulate`].
pub fn trace_over(
    transport: Transport,
    config: CastConfig,
    sink: Option<Box<dyn Write + Send>>,
) -> Result<(SimReport, blake3::Hash), CastError> {
    play(transport, config, sink, true)
}

/// Simulates a cast; what happened is hashed if the hash is wanted.
fn play(
    transport: Transport,
    config: CastConfig,
    sink: Option<Box<dyn Write + Send>>,
    hashed: bool,
) -> Result<(SimReport, blake3::Hash), CastError> {
    let nodes = config.network.node_count();
    if nodes as usize > NODES_MAX {
        return Err(CastError::TooManyNodes { nodes });
    }
    let mut timeline = None;
    let limit = config.asked.limit;
    let mut at_start = config.network.clone();
    if let Some(script) = &config.script {
        let all = script.timeline(&config.network)?;
        if let Some((Time::ZERO, changes)) = all.clone().next() {
            changes.iter().for_each(|change| at_start.apply(change));
        }
        timeline = Some(all);
    }
    let at_start = at_start.limited(limit);
    let (limit_s, clairvoyant_s) = limits(&config, timeline.as_ref())?;
    check_both_ways(&at_start)?;
    let facts = facts(&config, &at_start)?;
    let decision = outpour_terms::decide(&facts)?;
    let terms = decision.terms;
    let (size, block) = (config.size, Bytes(terms.block_bytes.into()));
    let blocks = CastError::Blocks { size, block };
    let object = Object::new(size, block, mix(terms.seed, 1)).ok_or(blocks)?;
    let batches = terms.batches(object.blocks(), object.block_bytes())?;
    let (network, sources) = (config.network.clone(), &config.sources);
    let receivers = config.receivers();
    let scene = |object: Object, batches, want: Vec<Want>, starts: Vec<Time>| {
        let blocks = object.blocks();
        let have = |node: NodeId| {
            if sources.contains(&node) {
                BlockSet::full(blocks)
            } else {
                BlockSet::new(blocks)
            }
        };
        Scenario {
            terms: terms.clone(),
            have: network.nodes().map(have).collect(),
            want,
            starts,
            network: network.clone(),
            object,
            batches,
            timeline: timeline.clone(),
            orders: Vec::new(),
            faults: config.faults.clone(),
            patience: None,
            checked: false,
            sink: None,
        }
    };
    let mut starts = Vec::new();
    if transport != Transport::Ideal
        && let Some(manifest) = manifest(&object, terms.receivers())
    {
        // Relays need it, too.
        let want = vec![Want::All; nodes as usize];
        let mut world = World::new(scene(manifest, None, want, Vec::new()));
        world.set_transport(transport, false);
        world.skip_hash();
        run(&mut world, &network)?;
        // A node that a fault took away before it had the manifest begins when it would have.
        let end = world.now();
        starts = network
            .nodes()
            .map(|node| world.finished(node).unwrap_or(end))
            .collect();
    }
    let warm = !starts.is_empty();
    let mut world = World::new(Scenario {
        sink,
        ..scene(object, batches, Vec::new(), starts)
    });
    world.set_transport(transport, warm);
    if let Some(rogue) = config.rogue {
        world.set_rogue(rogue);
    }
    world.set_coding_speed(facts.coding_speed);
    if !hashed {
        world.skip_hash();
    }
    run(&mut world, &network)?;
    let protocol = terms.protocol.entry();
    if let Some(violation) = world.audit().violations().first() {
        let violation = violation.clone();
        return Err(CastError::Violation {
            protocol: protocol.name,
            violation,
        });
    }
    let mut report = report(
        &world,
        &network,
        &receivers,
        protocol,
        limit_s,
        clairvoyant_s,
    );
    report.why = (terms.why != ASKED_FOR).then(|| terms.why.clone());
    let batching = decision.batching.filter(|_| batches.is_some());
    let coding = batching.map(|it| coding_report(&world, facts.coding_speed, it, &report));
    report.coding = coding;
    Ok((report, world.trace_hash()))
}

/// The manifest of an object as it is cast before it, unless it is so small that the command sends
/// it to all receivers.
fn manifest(object: &Object, receivers: usize) -> Option<Object> {
    const HASH_BYTES: u64 = 32;
    let bytes = u64::from(object.blocks()) * HASH_BYTES;
    let shape = ManifestShape::of(bytes, receivers);
    if shape.inline {
        return None;
    }
    Object::new(Bytes(bytes), Bytes(shape.block_bytes.into()), 0)
}

/// The least time for the cast, and the time of a planner that foresees the script, if there is
/// one.
fn limits(
    config: &CastConfig,
    timeline: Option<&Timeline>,
) -> Result<(f64, Option<f64>), LimitError> {
    let (sources, size, rate) = (&config.sources, config.size, config.asked.limit);
    let receivers = &config.receivers();
    let rule = config.asked.separation;
    let changes = timeline.into_iter().flat_map(Timeline::clone);
    let (network, changes) = left(&config.network, rule, changes);
    let network = &network.limited(rate);
    let Some(_) = timeline else {
        return Ok((
            outpour_planner::limit_for(network, sources, receivers, size)?.seconds,
            None,
        ));
    };
    let again = changes.clone();
    let least = outpour_planner::limit_over_for(network, sources, receivers, size, again)?;
    let clairvoyant = outpour_planner::clairvoyant_for(network, sources, receivers, size, changes)?;
    Ok((least.seconds, Some(clairvoyant.seconds)))
}

/// What is known before the cast begins, on a network that is this at the start.
///
/// # Errors
/// If the planner was told of other nodes.
pub fn facts(config: &CastConfig, at_start: &Network) -> Result<Facts, CastError> {
    let known = config.believed.as_ref().unwrap_or(at_start);
    believed::check(at_start, known)?;
    let known = known.clone().limited(config.asked.limit);
    let member = |node| Member {
        cluster: at_start.cluster_of(node).0,
        role: config.role(node),
    };
    Ok(Facts {
        size: config.size,
        members: at_start.nodes().map(member).collect(),
        placement: Some(Placement::whole(known)),
        coding_speed: config.coding_speed(),
        seed: SEED,
        asked: config.asked.clone(),
    })
}

/// Refuses links that carry data one way only.
fn check_both_ways(network: &Network) -> Result<(), CastError> {
    let first = |cluster: usize| {
        let id = outpour_core::network::ClusterId(cluster as u32);
        network.nodes_of(id).next().map(|node| (id, node))
    };
    let firsts: Vec<_> = (0..network.clusters().len()).filter_map(first).collect();
    for (a, one) in &firsts {
        for (b, other) in &firsts {
            let open = |from, to| network.link(from, to).rate.bytes_per_s() > 0.0;
            if open(*a, *b) && !open(*b, *a) {
                let (one, other) = (
                    network.name(*one).to_owned(),
                    network.name(*other).to_owned(),
                );
                return Err(CastError::OneWay { one, other });
            }
        }
    }
    Ok(())
}

fn run(world: &mut World, network: &Network) -> Result<(), CastError> {
    let (mut moved, mut sent) = (Time::ZERO, 0);
    while !world.is_complete() {
        let more = world.step(Time::MAX);
        let totals = world.totals();
        if !totals.events.is_multiple_of(LOOK_EVERY) && more {
            continue;
        }
        if more && (totals.blocks_sent != sent || world.is_sending()) {
            (moved, sent) = (world.now(), totals.blocks_sent);
        }
        if !more || world.now().since(moved) >= STUCK_AFTER {
            let lacking = |node: &NodeId| !world.is_gone(*node) && !world.has_all(*node);
            let missing: Vec<_> = network.nodes().filter(lacking).collect();
            let first = missing
                .first()
                .map_or("", |node| network.name(*node))
                .to_owned();
            return Err(CastError::Stuck {
                after: moved,
                missing: missing.len(),
                first,
            });
        }
    }
    Ok(())
}

fn report(
    world: &World,
    network: &Network,
    receivers: &[NodeId],
    protocol: &'static Entry,
    limit_s: f64,
    clairvoyant_s: Option<f64>,
) -> SimReport {
    let nodes = receivers.iter().map(|node| NodeReport {
        node: network.name(*node).to_owned(),
        finish_s: world.finished(*node).map(Time::as_secs_f64),
    });
    let nodes: Vec<NodeReport> = nodes.collect();
    let finish_s = nodes
        .iter()
        .filter_map(|node| node.finish_s)
        .fold(0.0, f64::max);
    let ratio = if finish_s == limit_s {
        1.0
    } else {
        finish_s / limit_s
    };
    let totals = world.totals();
    let repeats = network
        .nodes()
        .map(|node| u64::from(world.duplicates(node)));
    let name = |node: NodeId| network.name(node).to_owned();
    let accusations = world.accusations().iter();
    let accusations = accusations.map(|accusation| AccusationReport {
        at_s: accusation.at.as_secs_f64(),
        by: name(accusation.by),
        peer: name(accusation.peer),
    });
    SimReport {
        protocol: protocol.name,
        why: None,
        finish_s,
        limit_s,
        ratio,
        clairvoyant_s,
        nodes,
        coding: None,
        accusations: accusations.collect(),
        repeats: repeats.sum(),
        wan_bytes: totals.wan_bytes,
        wan_repeats: totals.wan_repeats,
    }
}

fn coding_report(
    world: &World,
    speed: Rate,
    batching: Batching,
    report: &SimReport,
) -> CodingReport {
    let nodes = (0..world.node_count()).map(NodeId);
    let times = nodes.map(|node| world.coding_time(node).as_secs_f64());
    let busy_s = times.fold(0.0, f64::max);
    CodingReport {
        batch_blocks: batching.blocks,
        best_batch_blocks: batching.best.map(|best| best.blocks),
        speed_bytes_per_s: (!speed.is_unlimited()).then(|| speed.bytes_per_s()),
        busy_s,
        busy_share: if busy_s > 0.0 {
            busy_s / report.finish_s
        } else {
            0.0
        },
        packets: world.totals().packets_sent,
        wasted: world.totals().packets_wasted,
    }
}
