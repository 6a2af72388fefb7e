//! A job: one object that is to get from some servers to others.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use outpour_core::blocks::BlockId;
use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Priority, Rate, Time};
use serde::{Deserialize, Serialize};

use crate::blocks::{Shape, Target};

/// How many jobs a controller has at a time.
pub const JOBS_MAX: usize = 1024;
/// How many blocks a job may have.
pub const BLOCKS_MAX: u32 = 1 << 30;
/// Up to so many members are routed one by one; beyond, the servers of a site are taken together.
pub const FINE_MEMBERS_MAX: usize = 64;

/// A job of one controller; numbers are not used again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// A server that has blocks from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Which server.
    pub node: NodeId,
    /// The runs of blocks it has.
    pub blocks: Vec<Range<BlockId>>,
}

impl Source {
    /// Servers that have equal parts of an object of so many blocks, in order.
    pub fn striped(servers: Vec<NodeId>, blocks: u32) -> Vec<Self> {
        let count = servers.len() as u64;
        let until = |part: u64| (u64::from(blocks) * part / count) as BlockId;
        let part = |(part, node): (u64, NodeId)| {
            let run = until(part)..until(part + 1);
            let blocks = vec![run];
            Self { node, blocks }
        };
        (0..).zip(servers).map(part).collect()
    }
}

/// Who is to get the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destinations {
    /// Each of these nodes gets all of it.
    Nodes(Vec<NodeId>),
    /// Each of these sites gets one copy, striped over all of its servers [BDS §4.1].
    Sites(Vec<ClusterId>),
}

/// What is to be moved, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The size of the object in bytes.
    pub size: Bytes,
    /// The size of its blocks; only the last may be shorter, and is planned as a whole one.
    pub block: Bytes,
    /// Who has what of it.
    pub sources: Vec<Source>,
    /// Who is to get it.
    pub destinations: Destinations,
    /// Whether the sources' own sites get a copy as well, striped over their other servers.
    pub beside_sources: bool,
    /// Nodes that may hold and pass on blocks but need none.
    pub relays: Vec<NodeId>,
    /// Nothing is moved before this time.
    pub start: Time,
    /// Its share where it competes with other jobs.
    pub priority: Priority,
    /// When it has to be complete, if it has to.
    pub deadline: Option<Time>,
    /// What all its transfers together carry at most.
    pub limit: Rate,
}

impl Job {
    /// A job from nodes that have the whole object, at once, of normal priority, without deadline,
    /// relays or limit.
    pub fn new(
        size: Bytes,
        block: Bytes,
        sources: impl IntoIterator<Item = NodeId>,
        destinations: Destinations,
    ) -> Self {
        let mut job = Self {
            size,
            block,
            sources: Vec::new(),
            destinations,
            beside_sources: false,
            relays: Vec::new(),
            start: Time::ZERO,
            priority: Priority::Normal,
            deadline: None,
            limit: Rate::UNLIMITED,
        };
        let all = 0..job.block_count().unwrap_or(0);
        let whole = |node| Source {
            node,
            blocks: vec![all.clone()],
        };
        job.sources = sources.into_iter().map(whole).collect();
        job
    }

    /// How many blocks the object has; `None` if that cannot be or is more than [`BLOCKS_MAX`].
    pub fn block_count(&self) -> Option<u32> {
        let count = self.size.0.checked_add(self.block.0.checked_sub(1)?)? / self.block.0;
        u32::try_from(count)
            .ok()
            .filter(|count| *count <= BLOCKS_MAX)
    }
}

/// Why a job is refused. Others go on as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There are as many as there may be.
    #[error("there are {JOBS_MAX} jobs already; submit it again when one is complete")]
    TooMany,
    /// Sizes that give no number of blocks.
    #[error("an object of {size} in blocks of {block} does not have 1 to {BLOCKS_MAX} blocks")]
    Blocks {
        /// The size of the object.
        size: Bytes,
        /// The size of its blocks.
        block: Bytes,
    },
    /// A node that is not in the network.
    #[error("node {node} is not in the network, which has {count} nodes")]
    UnknownNode {
        /// The node.
        node: NodeId,
        /// How many there are.
        count: u32,
    },
    /// A site that is not in the network.
    #[error("site {} is not in the network, which has {count} sites", .site.0)]
    UnknownSite {
        /// The site.
        site: ClusterId,
        /// How many there are.
        count: usize,
    },
    /// Blocks that the object does not have.
    #[error("node {node} has blocks {first} to {end} of an object of {blocks} blocks")]
    UnknownBlocks {
        /// Who was said to have them.
        node: NodeId,
        /// The first of them.
        first: BlockId,
        /// The one after the last.
        end: BlockId,
        /// How many there are.
        blocks: u32,
    },
    /// Blocks that no source has.
    #[error("no source has block {block}")]
    NoSource {
        /// The first of them.
        block: BlockId,
    },
    /// Nobody is to get it.
    #[error("the job has no destinations")]
    NoDestination,
    /// A limit at which nothing moves.
    #[error("the job's limit is 0")]
    NoRate,
    /// A destination that nothing reaches.
    #[error("no path from the sources to {to}: every path has a link or a node of rate 0")]
    NoPath {
        /// The name of the node or site.
        to: String,
    },
}

/// Checks a job against the network; how many blocks it has, and its shape, where nobody is
/// present.
pub(crate) fn resolve(job: &Job, network: &Network) -> Result<(u32, Shape), JobError> {
    let (size, block) = (job.size, job.block);
    let blocks = job.block_count().filter(|count| *count > 0);
    let blocks = blocks.ok_or(JobError::Blocks { size, block })?;
    if job.limit.is_zero() {
        return Err(JobError::NoRate);
    }
    check_nodes(job, network)?;
    check_sources(job, blocks)?;
    let shape = shape(job, network);
    debug_assert!(
        shape.gives.iter().all(|gives| !gives),
        "who is there is told later"
    );
    if shape.targets.is_empty() {
        return Err(JobError::NoDestination);
    }
    check_paths(job, network, &shape)?;
    Ok((blocks, shape))
}

fn check_nodes(job: &Job, network: &Network) -> Result<(), JobError> {
    let count = network.node_count();
    let sources = job.sources.iter().map(|source| &source.node);
    let (nodes, sites): (&[NodeId], &[ClusterId]) = match &job.destinations {
        Destinations::Nodes(nodes) => (nodes, &[]),
        Destinations::Sites(sites) => (&[], sites),
    };
    let mut named = sources.chain(nodes).chain(&job.relays);
    if let Some(node) = named.find(|node| node.0 >= count) {
        return Err(JobError::UnknownNode { node: *node, count });
    }
    let count = network.clusters().len();
    match sites.iter().find(|site| site.index() >= count) {
        Some(site) => Err(JobError::UnknownSite { site: *site, count }),
        None => Ok(()),
    }
}

/// Every block has to be somewhere.
fn check_sources(job: &Job, blocks: u32) -> Result<(), JobError> {
    let mut all = crate::blocks::Runs::default();
    for source in &job.sources {
        for run in &source.blocks {
            let (first, end) = (run.start, run.end);
            if first > end || end > blocks {
                let node = source.node;
                return Err(JobError::UnknownBlocks {
                    node,
                    first,
                    end,
                    blocks,
                });
            }
            all.insert(run.clone());
        }
    }
    match all.next_absent(0, blocks) {
        Some(run) => Err(JobError::NoSource { block: run.start }),
        None => Ok(()),
    }
}

/// The members in the order of their nodes, their units and the targets.
fn shape(job: &Job, network: &Network) -> Shape {
    let mut wanting: BTreeSet<NodeId> = BTreeSet::new();
    let each = match &job.destinations {
        Destinations::Nodes(nodes) => {
            wanting.extend(nodes);
            true
        }
        Destinations::Sites(sites) => {
            wanting.extend(sites.iter().flat_map(|site| network.nodes_of(*site)));
            if job.beside_sources {
                job.sources.iter().for_each(|source| {
                    wanting.remove(&source.node);
                });
            }
            false
        }
    };
    let mut members = wanting.clone();
    members.extend(job.sources.iter().map(|source| source.node));
    members.extend(&job.relays);
    let members: Vec<NodeId> = members.into_iter().collect();
    let fine = members.len() <= FINE_MEMBERS_MAX && !job.beside_sources;

    let count = members.len() as u32;
    let mut sites: Vec<Range<u32>> = Vec::new();
    let mut unit_of = Vec::with_capacity(members.len());
    let mut target_of = vec![None; members.len()];
    let mut targets = Vec::new();
    let mut first = 0;
    while first < count {
        let site = network.cluster_of(members[first as usize]);
        let same = |node: &NodeId| network.cluster_of(*node) == site;
        let end = first
            + members[first as usize..]
                .iter()
                .take_while(|node| same(node))
                .count() as u32;
        let mut add = |range: Range<u32>| {
            let mut wants = range
                .clone()
                .filter(|m| wanting.contains(&members[*m as usize]))
                .peekable();
            if wants.peek().is_none() {
                return;
            }
            for member in wants {
                target_of[member as usize] = Some(targets.len() as u32);
            }
            targets.push(Target {
                members: range,
                each,
            });
        };
        if fine && each {
            (first..end).for_each(|member| add(member..member + 1));
        } else {
            add(first..end);
        }
        if fine {
            unit_of.extend(first..end);
        } else {
            unit_of.extend(std::iter::repeat_n(
                sites.len() as u32,
                (end - first) as usize,
            ));
        }
        debug_assert!(end > first, "a site has a member");
        sites.push(first..end);
        first = end;
    }
    debug_assert_eq!(unit_of.len(), members.len(), "each is in a unit");
    debug_assert!(members.is_sorted(), "sites are runs of members");
    let has = |node: &NodeId| job.sources.iter().any(|source| source.node == *node);
    let mut relays = vec![false; members.len()];
    for node in job.relays.iter().filter(|node| !has(node)) {
        let place = members.binary_search(node).expect("relays are members");
        relays[place] = target_of[place].is_none();
    }
    Shape {
        units: if fine {
            (0..count).map(|m| m..m + 1).collect()
        } else {
            sites
        },
        gives: vec![false; members.len()],
        counts: members
            .iter()
            .map(|node| !job.beside_sources || !has(node))
            .collect(),
        takes: vec![false; members.len()],
        unit_of,
        targets,
        target_of,
        relays,
        members,
    }
}

/// Each destination must be reached from a source over members, be it through several.
fn check_paths(job: &Job, network: &Network, shape: &Shape) -> Result<(), JobError> {
    let able = |resource| !network.capacity(resource).is_zero();
    let passes = |from: NodeId, to: NodeId| {
        network
            .path(from, to)
            .resources()
            .iter()
            .all(|resource| able(*resource))
    };
    let mut reached = vec![false; shape.members.len()];
    let mut open: Vec<u32> = Vec::new();
    for source in &job.sources {
        let member = shape.member(source.node).expect("sources are members");
        reached[member as usize] = true;
        open.push(member);
    }
    // A site's servers are reached as soon as one is, if its servers are all alike; members number
    // in the ten thousands, so equal ways are looked at once.
    let mut tried: BTreeSet<(ClusterId, ClusterId, bool)> = BTreeSet::new();
    while let Some(from) = open.pop() {
        let node = shape.members[from as usize];
        let site = network.cluster_of(node);
        let sends = able(Resource::NodeOut(node));
        for unit in sites_of(network, shape) {
            let other = network.cluster_of(shape.members[unit.start as usize]);
            if !tried.insert((site, other, sends)) {
                continue;
            }
            for to in unit {
                if !reached[to as usize] && passes(node, shape.members[to as usize]) {
                    reached[to as usize] = true;
                    open.push(to);
                }
            }
        }
    }
    for target in &shape.targets {
        let mut members = target.members.clone();
        let wants = |member: &u32| shape.target_of[*member as usize].is_some();
        let lost = match target.each {
            true => members.find(|member| wants(member) && !reached[*member as usize]),
            false if members.clone().any(|member| reached[member as usize]) => None,
            false => members.next(),
        };
        if let Some(member) = lost {
            let node = shape.members[member as usize];
            let site = &network.clusters()[network.cluster_of(node).index()];
            let to = if target.each {
                format!("node `{}`", network.name(node))
            } else {
                format!("site `{}`", site.name)
            };
            return Err(JobError::NoPath { to });
        }
    }
    Ok(())
}

/// The members of each site.
fn sites_of<'a>(network: &'a Network, shape: &'a Shape) -> impl Iterator<Item = Range<u32>> + 'a {
    let mut first = 0;
    std::iter::from_fn(move || {
        let site = network.cluster_of(*shape.members.get(first as usize)?);
        let rest = &shape.members[first as usize..];
        let same = rest
            .iter()
            .take_while(|node| network.cluster_of(**node) == site);
        let run = first..first + same.count() as u32;
        first = run.end;
        Some(run)
    })
}
