//! What must hold in every run: small checkers, each for one property.

use std::fmt;
use std::time::Duration;

use outpour_core::network::ClusterId;
use outpour_core::{BlockSet, NodeId, Time};
use outpour_protocols::coordinator::HostState;
use outpour_protocols::promise::Supply;

use crate::world::World;

/// How many violations are kept; the first is what matters.
const VIOLATIONS_MAX: usize = 16;

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// By which node, if by a single one.
    pub node: Option<NodeId>,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "at {}, node {}: {}", self.at, node.0, self.what),
            None => write!(f, "at {}: {}", self.at, self.what),
        }
    }
}

/// What was found wrong while a run went on: contracts broken, capacities exceeded.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    violations: Vec<Violation>,
}

impl Audit {
    pub(crate) fn violation(&mut self, at: Time, node: Option<NodeId>, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at, node, what });
        }
    }

    /// What was found wrong, in order; only the first few are kept.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

/// No contract was broken and no capacity exceeded.
///
/// # Errors
/// Says what happened first.
pub fn contracts(world: &World) -> Result<(), String> {
    world
        .audit()
        .violations()
        .first()
        .map_or(Ok(()), |violation| Err(violation.to_string()))
}

/// No capacity was exceeded, whatever else was wrong.
///
/// # Errors
/// Says what happened first.
pub fn capacities(world: &World) -> Result<(), String> {
    let mut violations = world.audit().violations().iter();
    violations
        .find(|violation| violation.node.is_none())
        .map_or(Ok(()), |violation| Err(violation.to_string()))
}

/// Every block that a node says it has holds the right bytes.
///
/// # Errors
/// Names the node.
pub fn contents(world: &World, nodes: u32) -> Result<(), String> {
    let wrong = (0..nodes).map(NodeId).find(|node| !world.is_intact(*node));
    wrong.map_or(Ok(()), |node| {
        Err(format!("node {} holds wrong bytes", node.0))
    })
}

/// No node got more blocks twice than `most` says of it.
///
/// # Errors
/// Names the node and the bound.
pub fn duplicates(world: &World, nodes: u32, most: impl Fn(NodeId) -> u32) -> Result<(), String> {
    for node in (0..nodes).map(NodeId) {
        let (count, most) = (world.duplicates(node), most(node));
        if count > most {
            return Err(format!(
                "node {} got {count} blocks twice, more than {most}",
                node.0
            ));
        }
    }
    Ok(())
}

/// No block came from other clusters into one of these more than `most` times.
///
/// # Errors
/// Names the cluster, a block and the bound.
pub fn entries(
    world: &World,
    clusters: impl IntoIterator<Item = ClusterId>,
    most: u32,
) -> Result<(), String> {
    for cluster in clusters {
        let entries = world.entries(cluster);
        if let Some(block) = entries.iter().position(|count| u32::from(*count) > most) {
            return Err(format!(
                "block {block} entered cluster {} {} times, more than {most}",
                cluster.0, entries[block]
            ));
        }
    }
    Ok(())
}

/// What each live node must get in the end: what any node has among those it can get it from,
/// directly or through others. Nodes that are gone give nothing, and a node that refuses another
/// gets nothing from it.
///
/// A protocol that only moves what a source has promises nothing to those that have no way to a
/// source, and if it does not relay the way is one hop.
pub fn due(world: &World, sources: &[bool], supply: Supply) -> Vec<BlockSet> {
    let from_sources = supply != Supply::Anybody;
    let nodes: Vec<NodeId> = (0..sources.len() as u32).map(NodeId).collect();
    let mut due: Vec<BlockSet> = nodes.iter().map(|node| world.have(*node).clone()).collect();
    let mut served: Vec<bool> = nodes
        .iter()
        .map(|node| world.is_live(*node) && (!from_sources || sources[node.index()]))
        .collect();
    let hops = match supply {
        Supply::Source => 1,
        Supply::Relayed | Supply::Anybody => nodes.len(),
    };
    for _ in 0..hops {
        let (before, served_before) = (due.clone(), served.clone());
        for to in nodes.iter().filter(|node| world.is_live(**node)) {
            for from in nodes
                .iter()
                .filter(|from| *from != to && served_before[from.index()])
            {
                if !world.is_banned(*from, *to) {
                    let from = (*from, &before[from.index()]);
                    pass(world, supply, from, (*to, &mut due[to.index()]));
                    served[to.index()] = true;
                }
            }
        }
        // Nothing new means nothing more.
        if (&due, &served) == (&before, &served_before) {
            break;
        }
    }
    for (due, node) in due.iter_mut().zip(&nodes) {
        due.intersect(world.wanted(*node));
    }
    due
}

/// No node got blocks that it did not have at the start and that it does not want itself; with
/// `relayed`, and of a relay, that no node wants.
///
/// # Errors
/// Names the node and a block.
pub fn selection(world: &World, have: &[BlockSet], relayed: bool) -> Result<(), String> {
    let nodes = || (0..).map(NodeId).zip(have);
    let mut all = BlockSet::new(world.object().blocks());
    nodes().for_each(|(node, _)| all.union(world.wanted(node)));
    for (node, have) in nodes() {
        let want = world.wanted(node);
        let mut got = world.have(node).clone();
        got.subtract(have);
        got.subtract(if relayed || want.is_empty() {
            &all
        } else {
            want
        });
        if let Some(block) = got.next_present(0) {
            return Err(format!(
                "node {} got block {block}, which is not wanted there",
                node.0
            ));
        }
    }
    Ok(())
}

/// Adds to what one node can have what another passes on to it in the end, of what that can have.
///
/// Where nodes ask for blocks they ask for what they want, and a relay for what those want that it
/// can talk to: not for what another relay would have to get first.
fn pass(
    world: &World,
    supply: Supply,
    (from, passed): (NodeId, &BlockSet),
    (to, due): (NodeId, &mut BlockSet),
) {
    let relays = |node: NodeId| world.wanted(node).is_empty();
    if supply == Supply::Anybody && (!relays(from) || relays(to)) {
        let mut kept = world.wanted(from).clone();
        kept.union(world.have(from));
        kept.intersect(passed);
        due.union(&kept);
    } else {
        due.union(passed);
    }
}

/// The live nodes that lack something they are due.
pub fn unserved(world: &World, due: &[BlockSet]) -> Vec<(NodeId, u32)> {
    let missing = |(node, due): (NodeId, &BlockSet)| {
        let mut missing = due.clone();
        missing.subtract(world.have(node));
        (world.is_live(node) && !missing.is_empty()).then(|| (node, missing.count()))
    };
    (0..).map(NodeId).zip(due).filter_map(missing).collect()
}

/// A coordinator calls a host verified only if it has everything, and failed only if it crashed,
/// did not answer, or could not get everything: if it was not `live` when the faults were over, or
/// was not `due` everything then.
///
/// # Errors
/// Names the host and its verdict.
pub fn verdicts(
    world: &World,
    sources: &[bool],
    due: &[BlockSet],
    live: &[bool],
) -> Result<(), String> {
    let mut roots = (0..).zip(sources).filter(|(_, source)| **source);
    let orphaned = roots.all(|(node, _)| world.is_lost(NodeId(node)));
    for index in (0..sources.len()).filter(|index| !sources[*index]) {
        let node = NodeId(index as u32);
        let full = world.has_all(node);
        let owed = due[index] == *world.wanted(node);
        let excused = orphaned || world.is_lost(node) || !live[index] || !owed;
        let Some(host) = world.verdict(node) else {
            continue;
        };
        match host.state {
            HostState::Verified if full => {}
            HostState::Failed if excused => {}
            state => {
                let why = host.error.as_deref().unwrap_or("no error");
                return Err(format!(
                    "node {index} is {state:?} ({why}); all there: {full}"
                ));
            }
        }
    }
    Ok(())
}

/// Protocols said and did nothing after `complete` but within `grace`.
///
/// # Errors
/// Says when something happened.
pub fn silence(world: &World, complete: Time, grace: Duration) -> Result<(), String> {
    let last = world.totals().last_action;
    if last > complete + grace {
        return Err(format!(
            "all was done at {complete}, but a message was sent at {last}"
        ));
    }
    Ok(())
}
