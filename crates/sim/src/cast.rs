//! One simulated cast: what a transfer would take on a given network.

mod plan;

use std::io::Write;

use outpour_core::batches::BATCH_BLOCKS_MAX;
use outpour_core::network::Network;
use outpour_core::plan::PlanError;
use outpour_core::script::{Script, ScriptError, Timeline};
use outpour_core::{Batches, BlockSet, Bytes, NodeId, Plan, Rate, Time};
use outpour_planner::LimitError;
use outpour_planner::multicast::UnknownMethod;
use outpour_protocols::auto::{self, Paths, Situation};
use outpour_protocols::batching::Batching;
use outpour_protocols::gossip;
use outpour_protocols::registry::{self, Entry};
use serde::Serialize;

use crate::check::Violation;
use crate::dice::mix;
use crate::fault::Fault;
use crate::object::Object;
use crate::transport::Transport;
use crate::world::{NODES_MAX, Scenario, World};

/// How long nothing may move before a cast counts as stuck, in virtual time.
const STUCK_AFTER: std::time::Duration = std::time::Duration::from_secs(600);
/// How often that is looked at, in events.
const LOOK_EVERY: u64 = 1024;
/// The protocol that stands for a choice among the others.
const AUTO: &str = "auto";

/// What to simulate.
#[derive(Clone, Debug)]
pub struct CastConfig {
    /// The network; all its nodes take part.
    pub network: Network,
    /// The node that has the object.
    pub root: NodeId,
    /// Size of the object.
    pub size: Bytes,
    /// Size of its blocks but for the last, which may be shorter; what `outpour cast` would choose
    /// if nothing is said.
    pub block: Option<Bytes>,
    /// Name of the protocol, or `auto`.
    pub protocol: String,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The plan for a protocol that executes one the user made.
    pub plan: Option<Plan>,
    /// What a planner believes the network to be, if that is not what it is; its nodes and
    /// clusters have to be the same.
    pub believed: Option<Network>,
    /// How it codes, if the protocol does.
    pub coding: Coding,
    /// What changes about the network while the cast runs; `network` is what it is applied to.
    pub script: Option<Script>,
}

/// Bytes of blocks that a core multiplies and adds in a second, if nothing else is said. It is a
/// fixed number, so that a simulation says the same everywhere: about half of what a core with AVX2
/// does when nothing else uses its memory.
const CODING_SPEED_BYTES_PER_S: f64 = 10e9;

/// How a cast codes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coding {
    /// How many blocks are coded together; a good number if nothing is said.
    pub batch_blocks: Option<u16>,
    /// How a gossip moves batches.
    pub gossip: gossip::Options,
    /// Bytes of blocks that a node's core multiplies and adds in a second; 10 GB if nothing is
    /// said. Unlimited means that coding takes no time.
    pub speed: Option<Rate>,
}

impl Coding {
    fn speed(&self) -> Rate {
        let usual = || Rate::from_bytes_per_s(CODING_SPEED_BYTES_PER_S);
        self.speed.or_else(usual).unwrap_or(Rate::UNLIMITED)
    }
}

/// What a simulated cast took; serializes to the JSON that `outpour sim cast` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The protocol that was run.
    pub protocol: &'static str,
    /// Why it was chosen, if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the last node had every block, in seconds.
    pub finish_s: f64,
    /// The least time that the network allows, with all that changes about it, in seconds.
    pub limit_s: f64,
    /// How many times the limit it took; infinite (null in JSON) if the network sets no limit.
    pub ratio: f64,
    /// What a planner that foresees every change of the script would take, in seconds, if each
    /// stretch of time without a change were used at its own best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clairvoyant_s: Option<f64>,
    /// Every node but the root, in the order of the network.
    pub nodes: Vec<NodeReport>,
    /// What coding took, if the protocol codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coding: Option<CodingReport>,
    /// Who was found to send wrong bytes, in the order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accusations: Vec<AccusationReport>,
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
    /// How long a core made packets and decoded, on the node with most of that, in seconds.
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
    /// The registry has no such protocol.
    #[error("{0}")]
    UnknownProtocol(String),
    /// Blocks cannot be coded in such batches.
    #[error("batches of {0} blocks: a batch has 1 to {BATCH_BLOCKS_MAX} blocks")]
    Batch(u16),
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
    /// The protocol executes a plan of the user's, and there is none.
    #[error("protocol `{protocol}` executes a plan, and none is given")]
    NoPlan {
        /// The protocol.
        protocol: &'static str,
    },
    /// A plan for a protocol that does not ask for one.
    #[error("protocol `{protocol}` does not take a plan; `tree` does")]
    UnwantedPlan {
        /// The protocol.
        protocol: &'static str,
    },
    /// The plan is none for this network.
    #[error("the plan does not fit the network: {0}")]
    Plan(#[from] PlanError),
    /// The planner has no method of that name.
    #[error(transparent)]
    Method(UnknownMethod),
    /// There is no plan by the protocol's method.
    #[error(transparent)]
    Planner(#[from] outpour_planner::multicast::PlanError),
    /// The plan begins elsewhere.
    #[error("the plan begins at `{planned}`, the cast at `{root}`")]
    OtherRoot {
        /// The name of the plan's root.
        planned: String,
        /// The name of the cast's root.
        root: String,
    },
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
pub fn simulate(config: CastConfig) -> Result<Report, CastError> {
    simulate_over(Transport::Ideal, config)
}

/// Simulates a cast over a transport. Over TCP a manifest that does not go by the control channels
/// is cast first, as it is in the world, and the object follows on the same connections.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_over(transport: Transport, config: CastConfig) -> Result<Report, CastError> {
    trace_over(transport, config, None).map(|(report, _)| report)
}

/// Simulates a cast, prints what happens to `sink`, and also returns the hash of all that happened.
///
/// # Errors
/// As [`simulate`].
pub fn trace(
    config: CastConfig,
    sink: Option<Box<dyn Write + Send>>,
) -> Result<(Report, blake3::Hash), CastError> {
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
) -> Result<(Report, blake3::Hash), CastError> {
    let nodes = config.network.node_count();
    if nodes as usize > NODES_MAX {
        return Err(CastError::TooManyNodes { nodes });
    }
    let mut timeline = None;
    let mut at_start = config.network.clone();
    if let Some(script) = &config.script {
        let all = script.timeline(&config.network)?;
        if let Some((Time::ZERO, changes)) = all.clone().next() {
            changes.iter().for_each(|change| at_start.apply(change));
        }
        timeline = Some(all);
    }
    let (limit_s, clairvoyant_s) = limits(&config, timeline.as_ref())?;
    check_both_ways(&at_start)?;
    let block = block(&config, &at_start)?;
    let size = config.size;
    let blocks = CastError::Blocks { size, block };
    let object = Object::new(size, block, mix(config.seed, 1)).ok_or(blocks)?;
    let batching = batching(&config, object.block_bytes(), &at_start);
    let (protocol, why) = find(&config, object.blocks(), batching)?;
    let plan = plan::plan(&config, &at_start, protocol)?;
    let batches = batches(batching, object, protocol)?;
    let (network, root) = (config.network.clone(), config.root);
    let scene = |object: Object, batches, starts: Vec<Time>| {
        let blocks = object.blocks();
        let have = |node: NodeId| {
            if node == root {
                BlockSet::full(blocks)
            } else {
                BlockSet::new(blocks)
            }
        };
        Scenario {
            sources: network.nodes().map(|node| node == root).collect(),
            have: network.nodes().map(have).collect(),
            starts,
            network: network.clone(),
            object,
            protocol,
            plan: plan.clone(),
            batches,
            gossip: config.coding.gossip,
            timeline: timeline.clone(),
            seed: config.seed,
            faults: config.faults.clone(),
            patience: None,
            checked: false,
            sink: None,
        }
    };
    let mut starts = Vec::new();
    if transport != Transport::Ideal
        && let Some(manifest) = manifest(&object, nodes.saturating_sub(1))
    {
        let mut world = World::new(scene(
            manifest,
            self::batches(batching, manifest, protocol)?,
            Vec::new(),
        ));
        world.set_transport(transport, false);
        world.set_coding_speed(config.coding.speed());
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
        ..scene(object, batches, starts)
    });
    world.set_transport(transport, warm);
    world.set_coding_speed(config.coding.speed());
    run(&mut world, &network)?;
    if let Some(violation) = world.audit().violations().first() {
        let violation = violation.clone();
        return Err(CastError::Violation {
            protocol: protocol.name,
            violation,
        });
    }
    let mut report = report(&world, &network, root, protocol, limit_s, clairvoyant_s);
    report.why = why;
    report.coding = batches.map(|_| coding_report(&world, &config.coding, batching, &report));
    Ok((report, world.trace_hash()))
}

/// The manifest of an object as it is cast before it, unless it is so small that the command sends
/// it to all receivers.
fn manifest(object: &Object, receivers: u32) -> Option<Object> {
    // As agents do.
    const INLINE_BYTES_MAX: u64 = 1 << 20;
    const HASH_BYTES: u64 = 32;
    const BLOCKS: u64 = 64;
    let bytes = u64::from(object.blocks()) * HASH_BYTES;
    if bytes * u64::from(receivers) <= INLINE_BYTES_MAX {
        return None;
    }
    let block = (bytes / BLOCKS).next_power_of_two().clamp(4 << 10, 1 << 20);
    Object::new(Bytes(bytes), Bytes(block), 0)
}

/// The least time for the cast, and the time of one who foresees the script, if there is one.
fn limits(
    config: &CastConfig,
    timeline: Option<&Timeline>,
) -> Result<(f64, Option<f64>), LimitError> {
    let (network, root, size) = (&config.network, config.root, config.size);
    let Some(timeline) = timeline else {
        return Ok((outpour_planner::limit(network, root, size)?.seconds, None));
    };
    let least = outpour_planner::limit_over(network, root, size, timeline.clone())?;
    let clairvoyant = outpour_planner::clairvoyant(network, root, size, timeline.clone())?;
    Ok((least.seconds, Some(clairvoyant.seconds)))
}

/// The protocol, and why it is that one if it was for us to choose.
fn find(
    config: &CastConfig,
    blocks: u32,
    batching: Batching,
) -> Result<(&'static Entry, Option<String>), CastError> {
    if config.protocol == AUTO {
        let network = &config.network;
        let choice = auto::choose(Situation {
            receivers: network.node_count() as usize - 1,
            blocks,
            clusters: network.clusters().len(),
            network: true,
            paths: Paths::of(network),
            unreliable: !config.faults.is_empty(),
            batching,
        });
        return Ok((choice.entry, Some(choice.why)));
    }
    let found = registry::find(&config.protocol).map(|entry| (entry, None));
    found.ok_or_else(|| {
        let names: Vec<_> = registry::ENTRIES.iter().map(|entry| entry.name).collect();
        let (name, names) = (&config.protocol, names.join(", "));
        CastError::UnknownProtocol(format!(
            "no protocol `{name}`; there are {names} and {AUTO}"
        ))
    })
}

/// How large the blocks are: as the user says, or as suits the protocol.
fn block(config: &CastConfig, network: &Network) -> Result<Bytes, CastError> {
    if let Some(block) = config.block {
        return Ok(block);
    }
    let receivers = network.node_count() as usize - 1;
    let small = gossip::block_size(&gossip::CODED, receivers).bytes(config.size);
    let blocks = config.size.0.div_ceil(small.into());
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let (protocol, _) = find(config, blocks, batching(config, small, network))?;
    let bytes = gossip::block_size(protocol, receivers).bytes(config.size);
    Ok(Bytes(bytes.into()))
}

/// How many blocks to code together: as the user says, or as many as processors keep up with.
fn batching(config: &CastConfig, block_bytes: u32, network: &Network) -> Batching {
    let speed = config.coding.speed();
    let mut batching = Batching::new(block_bytes, speed, auto::fastest(network));
    if let Some(blocks) = config.coding.batch_blocks {
        batching.blocks = blocks;
    }
    batching
}

/// How blocks are coded together, if the protocol codes.
fn batches(
    batching: Batching,
    object: Object,
    protocol: &Entry,
) -> Result<Option<Batches>, CastError> {
    if protocol.name != gossip::CODED.name {
        return Ok(None);
    }
    let size = batching.blocks;
    let batches = Batches::new(object.blocks(), size);
    batches.ok_or(CastError::Batch(size)).map(Some)
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
        if totals.blocks_sent != sent || world.is_sending() {
            (moved, sent) = (world.now(), totals.blocks_sent);
        }
        if !more || world.now().since(moved) >= STUCK_AFTER {
            let lacking = |node: &NodeId| !world.is_gone(*node) && !world.have(*node).is_full();
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
    root: NodeId,
    protocol: &'static Entry,
    limit_s: f64,
    clairvoyant_s: Option<f64>,
) -> Report {
    let nodes: Vec<NodeReport> = network
        .nodes()
        .filter(|node| *node != root)
        .map(|node| NodeReport {
            node: network.name(node).to_owned(),
            finish_s: world.finished(node).map(Time::as_secs_f64),
        })
        .collect();
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
    let name = |node: NodeId| network.name(node).to_owned();
    let accusations = world.accusations().iter();
    let accusations = accusations.map(|accusation| AccusationReport {
        at_s: accusation.at.as_secs_f64(),
        by: name(accusation.by),
        peer: name(accusation.peer),
    });
    Report {
        protocol: protocol.name,
        why: None,
        finish_s,
        limit_s,
        ratio,
        clairvoyant_s,
        nodes,
        coding: None,
        accusations: accusations.collect(),
        wan_bytes: totals.wan_bytes,
        wan_repeats: totals.wan_repeats,
    }
}

fn coding_report(
    world: &World,
    coding: &Coding,
    batching: Batching,
    report: &Report,
) -> CodingReport {
    let nodes = (0..=report.nodes.len() as u32).map(NodeId);
    let times = nodes.map(|node| world.coding_time(node).as_secs_f64());
    let busy_s = times.fold(0.0, f64::max);
    let speed = coding.speed();
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
