//! One simulated cast: what a transfer would take on a given network.

mod plan;

use std::io::Write;

use outpour_core::batches::BATCH_BLOCKS_MAX;
use outpour_core::network::{Network, Resource};
use outpour_core::plan::PlanError;
use outpour_core::script::{Script, ScriptError, Timeline};
use outpour_core::{Batches, BlockSet, Bytes, NodeId, Plan, Time};
use outpour_planner::LimitError;
use outpour_planner::multicast::UnknownMethod;
use outpour_protocols::auto::{self, Situation};
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
    /// Size of its blocks but for the last, which may be shorter.
    pub block: Bytes,
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

/// How a cast codes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coding {
    /// How many blocks are coded together; a good number if nothing is said.
    pub batch_blocks: Option<u16>,
    /// How a gossip moves batches.
    pub gossip: gossip::Options,
}

/// What a simulated cast took; serializes to the JSON that `outpour sim cast` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The protocol that was run.
    pub protocol: &'static str,
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
    /// Bytes of blocks that went from one cluster to another, duplicates included.
    pub wan_bytes: u64,
    /// How often a block came into a cluster that had it already.
    pub wan_repeats: u64,
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
    let blocks = CastError::Blocks {
        size: config.size,
        block: config.block,
    };
    let object = Object::new(config.size, config.block, mix(config.seed, 1)).ok_or(blocks)?;
    let protocol = find(&config, object.blocks())?;
    let plan = plan::plan(&config, &at_start, protocol)?;
    let batches = batches(&config, object, protocol)?;
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
            self::batches(&config, manifest, protocol)?,
            Vec::new(),
        ));
        world.set_transport(transport, false);
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
    run(&mut world, &network)?;
    if let Some(violation) = world.audit().violations().first() {
        let violation = violation.clone();
        return Err(CastError::Violation {
            protocol: protocol.name,
            violation,
        });
    }
    Ok((
        report(&world, &network, root, protocol, limit_s, clairvoyant_s),
        world.trace_hash(),
    ))
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
    let block = (bytes / BLOCKS)
        .next_power_of_two()
        .clamp(16 << 10, 1 << 20);
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

fn find(config: &CastConfig, blocks: u32) -> Result<&'static Entry, CastError> {
    if config.protocol == AUTO {
        let network = &config.network;
        let own = |node| {
            let out = network.capacity(Resource::NodeOut(node));
            (out, network.capacity(Resource::NodeIn(node)))
        };
        // Limits between clusters are nobody's own.
        let same_limit = network.nodes().all(|node| own(node) == own(NodeId(0)))
            && (network.clusters().len() == 1
                || network.rules().is_empty()
                    && network.clusters().iter().all(|cluster| {
                        cluster.cluster_out.is_unlimited() && cluster.cluster_in.is_unlimited()
                    }));
        let receivers = network.node_count() as usize - 1;
        return Ok(auto::choose(Situation {
            receivers,
            blocks,
            same_limit,
            clusters: network.clusters().len(),
            network: true,
        })
        .entry);
    }
    registry::find(&config.protocol).ok_or_else(|| {
        let names: Vec<_> = registry::ENTRIES.iter().map(|entry| entry.name).collect();
        let (name, names) = (&config.protocol, names.join(", "));
        CastError::UnknownProtocol(format!(
            "no protocol `{name}`; there are {names} and {AUTO}"
        ))
    })
}

/// How blocks are coded together, if the protocol codes.
fn batches(
    config: &CastConfig,
    object: Object,
    protocol: &Entry,
) -> Result<Option<Batches>, CastError> {
    if protocol.name != gossip::CODED.name {
        return Ok(None);
    }
    let size = config
        .coding
        .batch_blocks
        .unwrap_or_else(|| gossip::batch_blocks(object.block_bytes()));
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
    Report {
        protocol: protocol.name,
        finish_s,
        limit_s,
        ratio,
        clairvoyant_s,
        nodes,
        wan_bytes: totals.wan_bytes,
        wan_repeats: totals.wan_repeats,
    }
}
