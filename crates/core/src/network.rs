//! The network model: what a transfer may use, and how far apart the nodes are.
//!
//! Nodes live in clusters. Data between two nodes of different clusters passes five shared
//! resources: the sending node's access link, its cluster's access link, the link between the two
//! clusters, and the receiving cluster's and node's access links [Burger §2.5, figure 2.9]. Inside
//! a cluster it passes the two nodes' access links and the local link of the pair; the local link
//! alone if the cluster has an interconnect, as machines built for computing do. A limit of hosts
//! covers what they send, or receive, over all their networks together. The same model serves
//! planning, simulation and emulation, and one TOML file describes it:
//!
//! ```
//! use outpour_core::network::Network;
//! let network = Network::from_toml(
//!     r#"
//!     limit = "150 MB/s"      # what every host sends, and receives, over all its networks
//!
//!     [[cluster]]
//!     name = "A"
//!     nodes = 16              # or: members = ["fs0", "n0"]
//!     node_out = "100 MB/s"   # capacity of every node; unlimited if left out
//!     node_in = "100 MB/s"
//!     node_queue = "250 packets"  # drop-tail limit where a node receives, in packets or bytes
//!     node_ecn = "65 packets" # marking threshold there
//!     out = "1 Gbit/s"        # access link of the cluster; unlimited if left out
//!     in = "1 Gbit/s"
//!     local = "50 MB/s"       # each ordered pair of nodes in the cluster; unlimited if left out
//!     local_delay = "0.1 ms"  # one way, between nodes of the cluster; zero if left out
//!     interconnect = true     # node_out and node_in are for other clusters only
//!
//!     [[cluster]]
//!     name = "B"
//!     nodes = 1
//!
//!     [[link]]
//!     from = "*"              # names or globs
//!     to = "B"
//!     rate = "10 MB/s"        # shared by all traffic of the ordered pair of clusters
//!     delay = "10 ms"         # one way
//!     both = true             # the way back as well
//!     queue = "100 packets"   # drop-tail limit, in packets or bytes
//!     ecn = "30 packets"      # marking threshold
//!     loss = 0.01             # share of packets lost at random
//!     burst = 4               # so many of them in a row on average; one by one if left out
//!
//!     [[node]]
//!     name = "A3"             # name or glob: what differs from the cluster's node_out, node_in
//!     out = "20 MB/s"
//!     "#,
//!     "net.toml",
//! )?;
//! assert_eq!(network.node_count(), 17);
//! assert_eq!(network.name(network.node("A").unwrap()), "A0");
//! # Ok::<(), outpour_core::network::NetworkError>(())
//! ```
//!
//! # Links
//!
//! A network without any `[[link]]` joins all clusters without limit or delay. Once there is one,
//! pairs that no link names are dead: nothing passes. Links apply in order. A later link changes
//! what it says (its rate, its delay, ...) for the pairs it matches and leaves the rest as an
//! earlier link set it; so one line can give all links a delay and the lines after it each pair
//! its rate. A pair named for the first time starts without limit, delay, queue or loss. A rate of
//! zero is a dead link. Globs never match a cluster with itself.

mod backlog;
mod change;
mod error;
pub mod glob;
mod read;
mod rules;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{NodeId, Rate};

pub use backlog::{Backlog, BacklogError};
pub use change::Change;
pub use error::{NetworkError, Place, Problem};
pub use rules::{Cluster, Link, LinkRule, Members, NodeRule};
pub(crate) use rules::{burst_fits, link_fault};

/// How many nodes a network may have.
pub const NODES_MAX: usize = 100_000;

/// How many clusters a network may have; links are kept per ordered pair of clusters.
pub const CLUSTERS_MAX: usize = 1_000;

/// How many links a description may list.
pub const LINK_RULES_MAX: usize = 100_000;

/// How many nodes a description may list by themselves.
pub const NODE_RULES_MAX: usize = 100_000;

/// How many names all globs of nodes together may be compared with.
pub const NODE_MATCHES_MAX: usize = 20_000_000;

/// How many ordered pairs of clusters all links together may match, as globs multiply.
pub const LINK_MATCHES_MAX: usize = 20_000_000;

/// How long a description in TOML may be.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// How long a cluster's or node's name may be.
pub const NAME_BYTES_MAX: usize = 255;

/// A cluster of a [`Network`]: its index in the list of clusters.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ClusterId(pub u32);

impl ClusterId {
    /// The index of the cluster in the list of clusters.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something with a capacity that data passes on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// What a node sends.
    NodeOut(NodeId),
    /// What the nodes of a cluster send to other clusters.
    ClusterOut(ClusterId),
    /// What passes from one cluster to another.
    Link(ClusterId, ClusterId),
    /// What the nodes of a cluster receive from other clusters.
    ClusterIn(ClusterId),
    /// What a node receives.
    NodeIn(NodeId),
    /// What passes from one node to another of the same cluster.
    Local(NodeId, NodeId),
    /// What a node sends over its access link and an interconnect together, if hosts are limited.
    LimitOut(NodeId),
    /// What a node receives over both together, if hosts are limited.
    LimitIn(NodeId),
}

/// How many resources data passes at most.
pub const PATH_MAX: usize = 7;

/// The way from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    resources: [Resource; PATH_MAX],
    len: usize,
    /// How long data takes at the speed of light: one way, without any queue.
    pub delay: Duration,
}

impl Path {
    fn new(delay: Duration, resources: impl IntoIterator<Item = Resource>) -> Self {
        let mut path = Self {
            resources: [Resource::NodeOut(NodeId(0)); PATH_MAX],
            len: 0,
            delay,
        };
        for (place, resource) in path.resources.iter_mut().zip(resources) {
            *place = resource;
            path.len += 1;
        }
        path
    }

    /// What data passes, in order; nothing on the way from a node to itself.
    pub fn resources(&self) -> &[Resource] {
        &self.resources[..self.len]
    }
}

/// A network: clusters of nodes and the links between them, checked and with names resolved.
///
/// Ids come from the network itself; handing it the id of another one may panic.
#[derive(Clone)]
pub struct Network {
    clusters: Vec<Cluster>,
    node_rules: Vec<NodeRule>,
    rules: Vec<LinkRule>,
    /// The first node of each cluster, and the number of nodes at the end.
    first: Vec<u32>,
    cluster_of: Vec<ClusterId>,
    names: Vec<String>,
    ids: BTreeMap<String, NodeId>,
    /// The distinct links there are, and which of them joins each ordered pair of clusters.
    links: Vec<Link>,
    link_of: Vec<u32>,
    /// Whether each pair has a link of its own, as it must before one of them changes.
    own_links: bool,
    /// What each host sends, and receives, at most over all its networks.
    limit: Rate,
    /// What each node sends and receives at most over its access link.
    node_out: Vec<Rate>,
    node_in: Vec<Rate>,
    /// Which rule holds what was changed about a node or an ordered pair of clusters.
    amended: BTreeMap<change::Amended, usize>,
}

/// Everything else follows from the description.
impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        self.limit == other.limit
            && self.clusters == other.clusters
            && self.node_rules == other.node_rules
            && self.rules == other.rules
    }
}

impl Network {
    /// Checks a description and resolves its names and globs.
    ///
    /// # Errors
    /// Names the cluster or link, its key and what is wrong with it.
    pub fn new(clusters: Vec<Cluster>, rules: Vec<LinkRule>) -> Result<Self, NetworkError> {
        Self::with_nodes(clusters, Vec::new(), rules)
    }

    /// As [`Network::new`], with nodes whose capacity differs from that of their cluster's others.
    /// Rules apply in order.
    ///
    /// # Errors
    /// Names the cluster, node or link, its key and what is wrong with it.
    pub fn with_nodes(
        clusters: Vec<Cluster>,
        nodes: Vec<NodeRule>,
        rules: Vec<LinkRule>,
    ) -> Result<Self, NetworkError> {
        rules::resolve(clusters, nodes, rules)
    }

    /// One cluster `n` of equal nodes n0, n1, ... with `delay` between any two, one way.
    ///
    /// # Errors
    /// If there are no nodes or more than [`NODES_MAX`].
    pub fn uniform(
        nodes: u32,
        node_in: Rate,
        node_out: Rate,
        delay: Duration,
    ) -> Result<Self, NetworkError> {
        let cluster = Cluster {
            node_in,
            node_out,
            local_delay: delay,
            ..Cluster::new("n", Members::Count(nodes))
        };
        Self::new(vec![cluster], Vec::new())
    }

    /// Reads a description in TOML; `file` is its name in messages.
    ///
    /// # Errors
    /// Names the line, the key, what was found there and what was expected.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, NetworkError> {
        read::read(text, file)
    }

    /// The description in TOML, such that [`Network::from_toml`] gives the same network.
    pub fn to_toml(&self) -> String {
        write::write(self.limit, &self.clusters, &self.node_rules, &self.rules)
    }

    /// The clusters, indexed by [`ClusterId`].
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The links as they were described, in order.
    pub fn rules(&self) -> &[LinkRule] {
        &self.rules
    }

    /// The nodes that were described by themselves, in order.
    pub fn node_rules(&self) -> &[NodeRule] {
        &self.node_rules
    }

    /// What each host sends at most, and what it receives at most, over all its networks.
    pub const fn limit(&self) -> Rate {
        self.limit
    }

    /// Whether traffic inside a cluster takes nothing from traffic to others, as planners see it: the cluster
    /// has an interconnect, and some access link is below the limit of hosts, if there is one.
    pub fn is_apart(&self, cluster: ClusterId) -> bool {
        let below = |node: u32| {
            let node = node as usize;
            self.node_out[node] < self.limit || self.node_in[node] < self.limit
        };
        self.clusters[cluster.index()].interconnect
            && (self.limit.is_unlimited() || self.range_of(cluster).any(below))
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// All nodes, cluster by cluster.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.node_count()).map(NodeId)
    }

    /// The nodes of a cluster, in the order of its members.
    pub fn nodes_of(&self, cluster: ClusterId) -> impl Iterator<Item = NodeId> + use<> {
        self.range_of(cluster).map(NodeId)
    }

    fn range_of(&self, cluster: ClusterId) -> Range<u32> {
        self.first[cluster.index()]..self.first[cluster.index() + 1]
    }

    /// The cluster a node is in.
    pub fn cluster_of(&self, node: NodeId) -> ClusterId {
        self.cluster_of[node.index()]
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.names[node.index()]
    }

    /// The node of that name; a cluster's name means its first node.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied().or_else(|| {
            let index = self.clusters.iter().position(|c| c.name == name)?;
            Some(NodeId(self.first[index]))
        })
    }

    /// The link from one cluster to another; between a cluster and itself, its local link.
    pub fn link(&self, from: ClusterId, to: ClusterId) -> Link {
        if from == to {
            let cluster = &self.clusters[from.index()];
            return Link {
                rate: cluster.local,
                delay: cluster.local_delay,
                ..Link::OPEN
            };
        }
        match self
            .link_of
            .get(from.index() * self.clusters.len() + to.index())
        {
            Some(link) => self.links[*link as usize],
            None => Link::OPEN,
        }
    }

    /// What data from one node to another passes, and how long it takes on the way.
    pub fn path(&self, from: NodeId, to: NodeId) -> Path {
        let (a, b) = (self.cluster_of(from), self.cluster_of(to));
        if from == to {
            return Path::new(Duration::ZERO, []);
        }
        let delay = self.link(a, b).delay;
        let (out, into) = (Resource::NodeOut(from), Resource::NodeIn(to));
        let has_interconnect = |cluster: ClusterId| self.clusters[cluster.index()].interconnect;
        // Without an interconnect, an access link carries all that a limit of hosts counts.
        let limits = |cluster| has_interconnect(cluster) && !self.limit.is_unlimited();
        let limit_out = limits(a).then_some(Resource::LimitOut(from));
        let limit_in = limits(b).then_some(Resource::LimitIn(to));
        let between = |resources: &[Resource]| {
            let all = limit_out.into_iter().chain(resources.iter().copied());
            Path::new(delay, all.chain(limit_in))
        };
        let local = Resource::Local(from, to);
        if a == b && has_interconnect(a) {
            return between(&[local]);
        }
        if a == b {
            return between(&[out, local, into]);
        }
        let (cluster_out, cluster_in) = (Resource::ClusterOut(a), Resource::ClusterIn(b));
        between(&[out, cluster_out, Resource::Link(a, b), cluster_in, into])
    }

    /// What a resource carries at most.
    pub fn capacity(&self, resource: Resource) -> Rate {
        match resource {
            Resource::NodeOut(node) => self.limit.min(self.node_out[node.index()]),
            Resource::NodeIn(node) => self.limit.min(self.node_in[node.index()]),
            Resource::LimitOut(_) | Resource::LimitIn(_) => self.limit,
            Resource::Local(from, _) => self.clusters[self.cluster_of(from).index()].local,
            Resource::ClusterOut(cluster) => self.clusters[cluster.index()].cluster_out,
            Resource::ClusterIn(cluster) => self.clusters[cluster.index()].cluster_in,
            Resource::Link(from, to) => self.link(from, to).rate,
        }
    }

    /// What a resource does to packets that pass it: its capacity, and its delay, queue, marks and
    /// losses if it has such.
    pub fn port(&self, resource: Resource) -> Link {
        let rate = self.capacity(resource);
        match resource {
            Resource::Link(from, to) => self.link(from, to),
            Resource::Local(from, _) => {
                let cluster = self.cluster_of(from);
                self.link(cluster, cluster)
            }
            Resource::NodeIn(node) => {
                let cluster = &self.clusters[self.cluster_of(node).index()];
                Link {
                    rate,
                    queue: cluster.node_queue,
                    ecn: cluster.node_ecn,
                    ..Link::OPEN
                }
            }
            _ => Link { rate, ..Link::OPEN },
        }
    }

    /// Changes what the network is from now on; its description follows.
    pub fn apply(&mut self, change: &Change) {
        change::apply(self, change);
    }

    /// A resource in words, for people.
    pub fn describe(&self, resource: Resource) -> String {
        let cluster = |id: ClusterId| &self.clusters[id.index()].name;
        match resource {
            Resource::NodeOut(node) => format!("outgoing capacity of node `{}`", self.name(node)),
            Resource::NodeIn(node) => format!("incoming capacity of node `{}`", self.name(node)),
            Resource::LimitOut(node) => format!("limit of what `{}` sends", self.name(node)),
            Resource::LimitIn(node) => format!("limit of what `{}` receives", self.name(node)),
            Resource::ClusterOut(id) => format!("outgoing capacity of cluster `{}`", cluster(id)),
            Resource::ClusterIn(id) => format!("incoming capacity of cluster `{}`", cluster(id)),
            Resource::Link(a, b) => format!("link `{}` -> `{}`", cluster(a), cluster(b)),
            Resource::Local(a, b) => {
                format!("local link `{}` -> `{}`", self.name(a), self.name(b))
            }
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("clusters", &self.clusters)
            .field("node_rules", &self.node_rules)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
