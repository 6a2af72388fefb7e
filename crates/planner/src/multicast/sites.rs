//! The network between sites, as the searches for trees see it.

use std::collections::{BTreeMap, BTreeSet};

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{NodeId, Rate};

use super::Place;
use super::packing::Column;

/// Up to how many nodes of a single cluster are sites of their own. Beyond that their local
/// distribution is laid by rule.
const HOSTS_MAX: usize = 64;

/// Up to how many nodes are tried as sites where clusters as sites miss the optimum, which they do
/// by a few per cent.
const HOSTS_INSTEAD_MAX: usize = 32;

/// A tree between sites: indices of parent and child, such that a parent's own edge comes first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SiteTree {
    /// Bytes per second, or only in proportion to other trees.
    pub(super) rate: f64,
    pub(super) edges: Vec<(usize, usize)>,
}

/// What several flows between sites share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Bytes per second; finite. Zero for what no tree uses.
    pub(super) capacity: f64,
    /// What every tree uses of it whatever its edges: the copies handed on inside a site.
    pub(super) constant: f64,
}

/// Sites and what joins them. Arcs are indexed `from * count + to`.
pub(super) struct Sites<'a> {
    pub(super) network: &'a Network,
    /// The nodes that hold the object, each once.
    pub(super) sources: Vec<NodeId>,
    /// The sites they are in, each once; no tree enters them.
    pub(super) roots: Vec<usize>,
    /// The nodes of each site.
    pub(super) members: Vec<Vec<NodeId>>,
    /// Whether sites are single nodes though the network is clusters of several.
    split: bool,
    pub(super) rows: Vec<Row>,
    /// The rows each arc is in, by index.
    pub(super) rows_of: Vec<Vec<usize>>,
    /// What one connection would measure from site to site, with nothing else going on: zero where
    /// there is no way, perhaps infinite.
    pub(super) achievable: Vec<f64>,
}

impl<'a> Sites<'a> {
    /// Clusters as sites, or nodes where there is one cluster of not too many.
    pub(super) fn new(network: &'a Network, sources: &[NodeId]) -> Self {
        let one = network.clusters().len() == 1 && network.node_count() as usize <= HOSTS_MAX;
        // Members that cannot talk to each other are no site.
        let sends = |node| !network.capacity(Resource::NodeOut(node)).is_zero();
        let apart = network
            .clusters()
            .iter()
            .enumerate()
            .any(|(index, cluster)| {
                let mute = || !network.nodes_of(ClusterId(index as u32)).any(sends);
                cluster.members.len() > 1
                    && (cluster.local.is_zero()
                        || (!network.is_apart(ClusterId(index as u32)) && mute()))
            });
        if one || apart {
            Self::of_nodes(network, sources)
        } else {
            Self::of_clusters(network, sources)
        }
    }

    /// Every node as a site, if they are few.
    pub(super) fn of_few_nodes(network: &'a Network, sources: &[NodeId]) -> Option<Self> {
        let few = network.node_count() as usize <= HOSTS_INSTEAD_MAX;
        few.then(|| Self::of_nodes(network, sources))
    }

    /// Every node as a site.
    fn of_nodes(network: &'a Network, sources: &[NodeId]) -> Self {
        let members = network.nodes().map(|node| vec![node]).collect();
        let mut sites = Self::without_rows(network, sources, members, true);
        let mut known = BTreeMap::new();
        let count = sites.count();
        for arc in sites.arcs().collect::<Vec<_>>() {
            let (from, to) = (sites.members[arc / count][0], sites.members[arc % count][0]);
            for resource in network.path(from, to).resources() {
                let capacity = network.capacity(*resource);
                if !capacity.is_unlimited() {
                    let row = *known
                        .entry(*resource)
                        .or_insert_with(|| sites.push(capacity, 0.0));
                    sites.rows_of[arc].push(row);
                }
            }
        }
        sites.measure();
        sites
    }

    fn of_clusters(network: &'a Network, sources: &[NodeId]) -> Self {
        let ids = (0..network.clusters().len() as u32).map(ClusterId);
        let members = ids.map(|id| network.nodes_of(id).collect()).collect();
        let mut sites = Self::without_rows(network, sources, members, false);
        let count = sites.count();
        for site in 0..count {
            sites.add_sender(site);
            sites.add_receivers(site);
        }
        for arc in sites.arcs().collect::<Vec<_>>() {
            let pair = (arc / count, arc % count);
            let link = network.link(ClusterId(pair.0 as u32), ClusterId(pair.1 as u32));
            if !link.rate.is_unlimited() {
                let row = sites.push(link.rate, 0.0);
                sites.rows_of[arc].push(row);
            }
        }
        sites.measure();
        sites
    }

    fn without_rows(
        network: &'a Network,
        sources: &[NodeId],
        members: Vec<Vec<NodeId>>,
        split: bool,
    ) -> Self {
        let count = members.len();
        let holds = |site: &usize| members[*site].iter().any(|node| sources.contains(node));
        let roots: Vec<usize> = (0..count).filter(holds).collect();
        Self {
            network,
            sources: sources.to_vec(),
            roots,
            members,
            split,
            rows: Vec::new(),
            rows_of: vec![Vec::new(); count * count],
            achievable: vec![0.0; count * count],
        }
    }

    /// How many sites there are.
    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// The members of a site that hold the object, by index.
    pub(super) fn holders(&self, site: usize) -> impl Iterator<Item = usize> + '_ {
        let members = self.members[site].iter().enumerate();
        members
            .filter(|(_, node)| self.sources.contains(node))
            .map(|(member, _)| member)
    }

    /// Whether a site holds the object.
    pub(super) fn is_root(&self, site: usize) -> bool {
        self.roots.contains(&site)
    }

    /// The site for people.
    pub(super) fn place(&self, site: usize) -> Place {
        match self.members[site].as_slice() {
            [node] => Place::Node(*node),
            nodes if self.split => Place::Node(nodes[0]),
            _ => Place::Cluster(ClusterId(site as u32)),
        }
    }

    /// Whether what holds for sites holds for nodes. Copies handed on inside a site count there
    /// as if every tree entered the site once, which trees between nodes need not.
    pub(super) fn bounds_nodes(&self) -> bool {
        let alone = |site: usize| self.members[site].len() == 1 || self.interconnect(site);
        (0..self.count()).all(alone)
    }

    /// What one connection from site to site would measure.
    pub(super) fn achievable(&self, from: usize, to: usize) -> f64 {
        self.achievable[from * self.count() + to]
    }

    /// What a tree of these edges carries by itself; infinite if nothing limits it.
    pub(super) fn throughput(&self, edges: &[(usize, usize)]) -> f64 {
        let column = self.column(edges);
        let rates = column
            .iter()
            .map(|(row, uses)| self.rows[*row].capacity / uses);
        rates.fold(f64::INFINITY, f64::min)
    }

    /// More than this no trees carry together: what enters any one site, what leaves the roots, and
    /// what all trees use alike. With it the prices of rows, by index, at which no tree costs less
    /// than one and all capacities cost the bound.
    pub(super) fn bound(&self) -> (f64, Vec<(usize, f64)>) {
        let count = self.count();
        let alike = (0..self.rows.len()).filter(|row| self.rows[*row].constant > 0.0);
        let mut bounds: Vec<_> = alike
            .map(|row| {
                let Row { capacity, constant } = self.rows[row];
                (capacity / constant, vec![(row, 1.0 / constant)])
            })
            .collect();
        let others = || (0..count).filter(|site| !self.is_root(*site));
        if count > self.roots.len() {
            let roots = self.roots.iter();
            bounds.extend(
                self.across(roots.flat_map(|root| others().map(move |to| root * count + to))),
            );
        }
        bounds.extend(
            others().filter_map(|to| self.across((0..count).map(|from| from * count + to))),
        );
        let least = bounds.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        least.unwrap_or((f64::INFINITY, Vec::new()))
    }

    /// What passes arcs of which every tree has one, at the narrowest row of each.
    fn across(&self, arcs: impl Iterator<Item = usize>) -> Option<(f64, Vec<(usize, f64)>)> {
        let mut narrowest = BTreeSet::new();
        for arc in arcs.filter(|arc| self.achievable[*arc] > 0.0) {
            let capacity = |row: &usize| self.rows[*row].capacity;
            let rows = self.rows_of[arc].iter().copied();
            narrowest.insert(rows.min_by(|a, b| capacity(a).total_cmp(&capacity(b)))?);
        }
        let sum = narrowest.iter().map(|row| self.rows[*row].capacity).sum();
        Some((sum, narrowest.into_iter().map(|row| (row, 1.0)).collect()))
    }

    /// What a tree of these edges uses of each row.
    pub(super) fn column(&self, edges: &[(usize, usize)]) -> Column {
        let mut uses: Vec<f64> = self.rows.iter().map(|row| row.constant).collect();
        for (from, to) in edges {
            for row in &self.rows_of[from * self.count() + to] {
                uses[*row] += 1.0;
            }
        }
        let used = uses.into_iter().enumerate().filter(|(_, uses)| *uses > 0.0);
        used.collect()
    }

    /// By which factor the rates of `trees` fit best.
    pub(super) fn fit(&self, trees: &[SiteTree]) -> f64 {
        let total: f64 = trees.iter().map(|tree| tree.rate).sum();
        let mut loads: Vec<f64> = self.rows.iter().map(|row| row.constant * total).collect();
        for tree in trees {
            for (from, to) in &tree.edges {
                for row in &self.rows_of[from * self.count() + to] {
                    loads[*row] += tree.rate;
                }
            }
        }
        let factors = self
            .rows
            .iter()
            .zip(&loads)
            .filter(|(_, load)| **load > 0.0);
        let least = factors.fold(f64::INFINITY, |least, (row, load)| {
            least.min(row.capacity / load)
        });
        if least.is_finite() { least } else { 1.0 }
    }

    /// Whether the nodes of a site talk to each other without using their access links.
    pub(super) fn interconnect(&self, site: usize) -> bool {
        let cluster = self.network.cluster_of(self.members[site][0]);
        self.network.is_apart(cluster)
    }

    /// The arcs that are of any use.
    fn arcs(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, roots) = (self.count(), self.roots.clone());
        (0..count * count)
            .filter(move |arc| arc / count != arc % count && !roots.contains(&(arc % count)))
    }

    fn push(&mut self, capacity: Rate, constant: f64) -> usize {
        self.rows.push(Row {
            capacity: capacity.bytes_per_s(),
            constant,
        });
        self.rows.len() - 1
    }

    /// What a cluster sends: its access link, and the sum of its nodes' access links, from which
    /// their local distribution is taken.
    fn add_sender(&mut self, site: usize) {
        let network = self.network;
        let cluster = &network.clusters()[site];
        let nodes = &self.members[site];
        let out: Rate = (nodes.iter())
            .map(|node| network.capacity(Resource::NodeOut(*node)))
            .sum();
        let copies = match self.interconnect(site) {
            true => 0.0,
            false => nodes.len() as f64 - self.holders(site).count().max(1) as f64,
        };
        let mut rows = Vec::new();
        for (capacity, constant) in [(cluster.cluster_out, 0.0), (out, copies)] {
            if !capacity.is_unlimited() {
                rows.push(self.push(capacity, constant));
            }
        }
        let count = self.count();
        for to in (0..count).filter(|to| *to != site) {
            self.rows_of[site * count + to].extend(&rows);
        }
    }

    /// What limits every tree alike: each enters each site once and each node once.
    fn add_receivers(&mut self, site: usize) {
        let network = self.network;
        let cluster = &network.clusters()[site];
        let nodes = self.members[site].clone();
        let apart = self.interconnect(site);
        let local = match apart {
            true => cluster.local * (nodes.len() as u32 - 1),
            false => Rate::ZERO,
        };
        let mut bounds = Vec::new();
        if !self.is_root(site) {
            bounds.push(cluster.cluster_in);
        }
        let holds = |node: &&NodeId| self.sources.contains(node);
        for node in nodes.iter().filter(|node| !holds(node)) {
            bounds.push(network.capacity(Resource::NodeIn(*node)) + local);
        }
        // The others get what the sources among them send.
        let sources = nodes.iter().filter(holds).count();
        if (1..nodes.len()).contains(&sources) {
            let out = |node: &NodeId| network.capacity(Resource::NodeOut(*node)) + local;
            bounds.push(nodes.iter().filter(holds).map(out).sum());
        }
        if !self.is_root(site) && apart {
            let into = nodes.iter().map(|n| network.capacity(Resource::NodeIn(*n)));
            bounds.push(into.sum());
        }
        let least = bounds.into_iter().fold(Rate::UNLIMITED, Rate::min);
        if !least.is_unlimited() {
            self.push(least, 1.0);
        }
    }

    /// Fills `achievable`. A link that was measured says it all; otherwise it is the least of what
    /// is on the way.
    fn measure(&mut self) {
        let (count, network) = (self.count(), self.network);
        for arc in self.arcs().collect::<Vec<_>>() {
            let (from, to) = (self.members[arc / count][0], self.members[arc % count][0]);
            let link = network
                .link(network.cluster_of(from), network.cluster_of(to))
                .rate;
            let least = if self.split {
                let path = network.path(from, to);
                let on_the_way = path.resources().iter();
                on_the_way
                    .map(|resource| network.capacity(*resource))
                    .fold(Rate::UNLIMITED, Rate::min)
            } else {
                let rows = self.rows_of[arc].iter().map(|row| self.rows[*row].capacity);
                let least = rows.fold(self.most_into(arc % count), f64::min);
                Rate::from_bytes_per_s(least).unwrap_or(Rate::ZERO)
            };
            let measured = !link.is_unlimited() && !least.is_zero();
            self.achievable[arc] = if measured { link } else { least }.bytes_per_s();
        }
    }

    /// What a site receives at most.
    fn most_into(&self, site: usize) -> f64 {
        let network = self.network;
        let nodes = self.members[site].iter();
        let sum: Rate = nodes
            .map(|node| network.capacity(Resource::NodeIn(*node)))
            .sum();
        let cluster = network.cluster_of(self.members[site][0]);
        sum.min(network.capacity(Resource::ClusterIn(cluster)))
            .bytes_per_s()
    }
}
