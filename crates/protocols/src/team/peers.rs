//! Which nodes of several clusters are peers.
//!
//! Every node draws the peers of all nodes from the transfer's seed, with the same result, and
//! tests that blocks can reach all nodes over these connections before it makes its own. If they
//! could not, all draw again ([Burger §4.3.1, §4.4]).
//!
//! Draws that fail too often get one foreign peer more per node: with very many clusters of
//! different sizes, eq. 4.10 makes each piece's graph strongly connected with a high probability,
//! but not all of them at once. With a peer in every other cluster they are, so drawing ends.

use std::collections::BTreeSet;

use outpour_core::NodeId;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Kind;
use crate::Member;

/// How many local peers each node calls.
const LOCAL: usize = 5;
/// How many foreign peers each node calls at most, or at least if clusters differ in size.
const FOREIGN: usize = 5;
/// After so many draws in vain nodes call one foreign peer more.
const DRAWS: u32 = 16;

/// The clusters of a transfer, and each node's rank in its own.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    /// The nodes of each cluster in the order of their ids, clusters in the order of their numbers.
    pub(super) list: Vec<Vec<NodeId>>,
    /// Each node's cluster, as an index into the list, and its rank in it.
    place: Vec<(u32, u32)>,
}

/// The connections of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    /// Peers it calls.
    pub(super) calls: Vec<NodeId>,
    /// Peers that call it, as far as they are not among those it calls.
    pub(super) called_by: Vec<NodeId>,
}

impl Clusters {
    pub(super) fn new(members: &[Member]) -> Self {
        let numbers: BTreeSet<u32> = members.iter().map(|member| member.cluster).collect();
        let numbers: Vec<u32> = numbers.into_iter().collect();
        let mut list = vec![Vec::new(); numbers.len()];
        let mut place = Vec::with_capacity(members.len());
        for (member, node) in members.iter().zip(0..) {
            let index = numbers.partition_point(|number| *number < member.cluster);
            let cluster: &mut Vec<NodeId> = &mut list[index];
            place.push((index as u32, cluster.len() as u32));
            cluster.push(NodeId(node));
        }
        debug_assert!(list.iter().all(|nodes| !nodes.is_empty()));
        debug_assert_eq!(list.iter().map(Vec::len).sum::<usize>(), members.len());
        Self { list, place }
    }

    pub(super) fn cluster(&self, node: NodeId) -> usize {
        self.place[node.index()].0 as usize
    }

    pub(super) fn rank(&self, node: NodeId) -> usize {
        self.place[node.index()].1 as usize
    }

    /// The nodes in the cluster of `node`, itself among them, by rank.
    pub(super) fn mates(&self, node: NodeId) -> &[NodeId] {
        &self.list[self.cluster(node)]
    }

    pub(super) fn are_mates(&self, one: NodeId, other: NodeId) -> bool {
        self.cluster(one) == self.cluster(other)
    }

    /// The node of `cluster` that a foreign node of rank `rank` may choose (eq. 4.6).
    fn counterpart(&self, rank: usize, cluster: usize) -> NodeId {
        let nodes = &self.list[cluster];
        let node = nodes[rank % nodes.len()];
        debug_assert_eq!(self.cluster(node), cluster);
        node
    }

    fn are_equal(&self) -> bool {
        self.list
            .windows(2)
            .all(|pair| pair[0].len() == pair[1].len())
    }

    /// How many foreign peers each node calls (eq. 4.10).
    pub(super) fn foreign(&self) -> usize {
        let others = self.list.len().saturating_sub(1);
        if self.are_equal() {
            FOREIGN.min(others)
        } else {
            let log = 2.0 * (self.list.len() as f64).ln();
            FOREIGN.max(log.ceil() as usize).min(others)
        }
    }
}

/// The blocks out of `blocks` that the node of rank `rank` among `nodes` fetches for its cluster
/// (eq. 4.7).
pub(super) fn share(rank: usize, nodes: usize, blocks: u32) -> std::ops::Range<u32> {
    debug_assert!(rank < nodes);
    let bound = |rank: usize| (rank as u64 * u64::from(blocks) / nodes as u64) as u32;
    bound(rank)..bound(rank + 1)
}

/// The rank of the node that fetches `block` in a cluster of `nodes`: whose share it is in.
fn fetcher(block: u32, nodes: usize, blocks: u32) -> usize {
    debug_assert!(block < blocks);
    // The largest rank whose share begins at or before the block.
    let rank = ((u64::from(block) + 1) * nodes as u64).div_ceil(u64::from(blocks)) as usize - 1;
    debug_assert!(share(rank, nodes, blocks).contains(&block));
    rank
}

/// Draws all nodes' peers until blocks can reach all nodes, and returns those of `me`.
pub(super) fn links(kind: Kind, clusters: &Clusters, blocks: u32, seed: u64, me: NodeId) -> Links {
    let mut links = Links::default();
    // Clusters of the same size get the same graph: robbers of the same rank then find the same
    // local peers to steal from, see [`super::work`].
    let local = random_graph(clusters.mates(me), LOCAL, seed);
    links.add(&local, me);
    if kind != Kind::Mates {
        let foreign = draw_foreign(kind, clusters, blocks, seed);
        links.add(&foreign, me);
    }
    links.called_by.sort_unstable();
    links.called_by.dedup();
    debug_assert!(!links.calls.contains(&me));
    debug_assert!(
        !links
            .called_by
            .iter()
            .any(|node| links.calls.contains(node))
    );
    links
}

impl Links {
    fn add(&mut self, calls: &[(NodeId, NodeId)], me: NodeId) {
        let own = calls.iter().filter(|(from, _)| *from == me);
        self.calls.extend(own.map(|(_, to)| *to));
        let to_me = calls.iter().filter(|(_, to)| *to == me);
        let called_by = to_me.map(|(from, _)| *from);
        let called_by: Vec<NodeId> = called_by
            .filter(|node| !self.calls.contains(node))
            .collect();
        self.called_by.extend(called_by);
    }
}

/// Draws `count` different indices out of `0..len`.
fn sample(random: &mut Pcg64Mcg, len: usize, count: usize) -> Vec<usize> {
    debug_assert!(count <= len);
    let mut picked: Vec<usize> = Vec::with_capacity(count);
    // Floyd's method: each set of this size is as likely as the others.
    for top in len - count..len {
        let index = random.next_u64() as usize % (top + 1);
        picked.push(if picked.contains(&index) { top } else { index });
    }
    debug_assert!((1..picked.len()).all(|at| !picked[..at].contains(&picked[at])));
    picked
}

/// Draws graphs in which every node calls `count` others at random until one is connected:
/// which node calls which.
pub(crate) fn random_graph(nodes: &[NodeId], count: usize, seed: u64) -> Vec<(NodeId, NodeId)> {
    debug_assert!(!nodes.is_empty());
    debug_assert!(nodes.is_sorted(), "all nodes draw from the same list");
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 1 << 32);
    let others = nodes.len() - 1;
    loop {
        let mut edges = Vec::with_capacity(nodes.len() * count);
        for at in 0..nodes.len() {
            for index in sample(&mut random, others, count.min(others)) {
                edges.push((at, index + usize::from(index >= at)));
            }
        }
        if is_connected(nodes.len(), edges.iter().copied()) {
            debug_assert!(edges.iter().all(|(from, to)| from != to));
            let named = |(from, to): (usize, usize)| (nodes[from], nodes[to]);
            return edges.into_iter().map(named).collect();
        }
    }
}

fn draw_foreign(kind: Kind, clusters: &Clusters, blocks: u32, seed: u64) -> Vec<(NodeId, NodeId)> {
    let count = clusters.list.len();
    let others = count - 1;
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ u64::from(u32::MAX) << 32);
    for draw in 0_u32.. {
        let peers = (clusters.foreign() + (draw / DRAWS) as usize).min(others);
        let calls = draw_once(clusters, peers, &mut random);
        if peers == others || reaches_everybody(kind, clusters, blocks, &calls) {
            return calls;
        }
    }
    Vec::new()
}

/// Has every node call `peers` foreign ones.
fn draw_once(clusters: &Clusters, peers: usize, random: &mut Pcg64Mcg) -> Vec<(NodeId, NodeId)> {
    let others = clusters.list.len() - 1;
    let mut calls = Vec::new();
    for (home, nodes) in clusters.list.iter().enumerate() {
        for (rank, node) in nodes.iter().enumerate() {
            for index in sample(random, others, peers) {
                let cluster = index + usize::from(index >= home);
                calls.push((*node, clusters.counterpart(rank, cluster)));
            }
        }
    }
    calls
}

/// Whether blocks can get from every cluster to every other over these calls.
fn reaches_everybody(
    kind: Kind,
    clusters: &Clusters,
    blocks: u32,
    calls: &[(NodeId, NodeId)],
) -> bool {
    let count = clusters.list.len();
    let ends = |(from, to): &(NodeId, NodeId)| (clusters.cluster(*from), clusters.cluster(*to));
    match kind {
        // Any block can pass any connection: work goes to the nodes that can do it.
        Kind::Robber | Kind::Mates => is_connected(count, calls.iter().map(ends)),
        // Nodes of one rank fetch the same blocks from each other.
        Kind::Mob if clusters.are_equal() => (0..clusters.list[0].len()).all(|rank| {
            let of_rank = calls
                .iter()
                .filter(|(from, _)| clusters.rank(*from) == rank);
            is_connected(count, of_rank.map(ends))
        }),
        Kind::Mob => borders(clusters, blocks)
            .into_iter()
            .all(|block| is_piece_connected(clusters, blocks, block, calls)),
    }
}

/// The first block of each run of blocks that are fetched by the same ranks everywhere.
fn borders(clusters: &Clusters, blocks: u32) -> BTreeSet<u32> {
    let sizes: BTreeSet<usize> = clusters.list.iter().map(Vec::len).collect();
    let starts = sizes
        .into_iter()
        .flat_map(|nodes| (0..nodes).map(move |rank| share(rank, nodes, blocks).start));
    starts.filter(|block| *block < blocks).collect()
}

/// Whether a block can get from every cluster to every other: in each one node fetches it, from
/// the clusters it has a connection to.
fn is_piece_connected(
    clusters: &Clusters,
    blocks: u32,
    block: u32,
    calls: &[(NodeId, NodeId)],
) -> bool {
    let count = clusters.list.len();
    let fetchers: Vec<usize> = clusters
        .list
        .iter()
        .map(|nodes| fetcher(block, nodes.len(), blocks))
        .collect();
    let mut edges = vec![Vec::new(); count];
    for (one, other) in calls {
        for (from, to) in [(*one, *other), (*other, *one)] {
            let home = clusters.cluster(to);
            if clusters.rank(to) == fetchers[home] {
                edges[clusters.cluster(from)].push(home);
            }
        }
    }
    is_strongly_connected(&edges)
}

/// Whether an undirected graph of `count` vertices is connected.
fn is_connected(count: usize, edges: impl Iterator<Item = (usize, usize)>) -> bool {
    let mut root: Vec<usize> = (0..count).collect();
    let mut parts = count;
    for (one, other) in edges {
        let (one, other) = (find(&mut root, one), find(&mut root, other));
        if one != other {
            root[one] = other;
            parts -= 1;
        }
    }
    debug_assert!(parts > 0 || count == 0);
    parts <= 1
}

fn find(root: &mut [usize], mut vertex: usize) -> usize {
    while root[vertex] != vertex {
        root[vertex] = root[root[vertex]];
        vertex = root[vertex];
    }
    vertex
}

/// Whether a directed graph is strongly connected, by Tarjan's algorithm: whether the component
/// of the first vertex holds them all.
fn is_strongly_connected(edges: &[Vec<usize>]) -> bool {
    const UNSEEN: usize = usize::MAX;
    let mut index = vec![UNSEEN; edges.len()];
    let mut low = vec![0; edges.len()];
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut next = 0;
    if !edges.is_empty() {
        path.push((0, 0));
    }
    // Until the first component is found no vertex has been cut off, so all that were seen are on
    // Tarjan's stack, which need not be kept.
    while let Some((vertex, edge)) = path.last_mut() {
        let vertex = *vertex;
        if *edge == 0 {
            (index[vertex], low[vertex]) = (next, next);
            next += 1;
        }
        if let Some(&to) = edges[vertex].get(*edge) {
            *edge += 1;
            if index[to] == UNSEEN {
                path.push((to, 0));
            } else {
                low[vertex] = low[vertex].min(index[to]);
            }
            continue;
        }
        path.pop();
        match path.last() {
            // A component that the first vertex is not in.
            Some(_) if low[vertex] == index[vertex] => return false,
            Some(&(parent, _)) => low[parent] = low[parent].min(low[vertex]),
            None => {}
        }
    }
    debug_assert!(next <= edges.len());
    next == edges.len()
}

#[cfg(test)]
mod tests;
