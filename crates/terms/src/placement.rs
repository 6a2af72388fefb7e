//! Where the members of a cast are in a described network: their clusters, what the network allows
//! them at most, and plans for them.
//!
//! A description may hold more nodes than take part. Those that do not have no agent that could
//! hand anything on, so limits and plans are made for the members alone.

use std::collections::BTreeMap;

use outpour_core::network::{
    Change, Cluster, ClusterId, LinkRule, Members, Network, NetworkError, Resource,
};
use outpour_core::plan::Tree;
use outpour_core::separation::left;
use outpour_core::{Bytes, NodeId, Plan, Rate, Separation, Traffic};
use outpour_planner::LimitError;
use outpour_protocols::{Member, Role};

/// The members of a cast in a network that has no other nodes.
#[derive(Clone, Debug)]
pub struct Placement {
    network: Network,
    /// The node of each member.
    nodes: Vec<NodeId>,
    /// The member at each node.
    members: Vec<NodeId>,
    /// Which cluster of the description each cluster is.
    described: Vec<ClusterId>,
}

impl Placement {
    /// Places members at nodes of `whole`, no two at the same.
    ///
    /// `limit` is what each of them may send and receive at most, whatever the network allows.
    ///
    /// # Errors
    /// If what is left is no network; it is one where `whole` is and the nodes are distinct nodes
    /// of it.
    pub fn new(whole: &Network, at: &[NodeId], limit: Rate) -> Result<Self, NetworkError> {
        let mut by_cluster: BTreeMap<ClusterId, Vec<NodeId>> = BTreeMap::new();
        for node in at {
            by_cluster
                .entry(whole.cluster_of(*node))
                .or_default()
                .push(*node);
        }
        let clusters = by_cluster
            .iter()
            .map(|(id, nodes)| cluster(whole, *id, nodes))
            .collect();
        let ids: Vec<ClusterId> = by_cluster.keys().copied().collect();
        let network = Network::new(clusters, links(whole, &ids))?;
        // The same limit first, or all nodes would differ from their clusters.
        let mut network = network.limited(whole.limit());
        let order: Vec<NodeId> = by_cluster.into_values().flatten().collect();
        let place = |node: &NodeId| order.iter().position(|other| other == node);
        for (old, new) in order.iter().zip(0..) {
            own_capacities(whole, *old, &mut network, NodeId(new));
        }
        let nodes: Vec<NodeId> = at
            .iter()
            .filter_map(place)
            .map(|index| NodeId(index as u32))
            .collect();
        let mut members = vec![NodeId(0); nodes.len()];
        for (member, node) in (0..).zip(&nodes) {
            members[node.index()] = NodeId(member);
        }
        Ok(Self {
            network: network.limited(limit),
            nodes,
            members,
            described: ids,
        })
    }

    /// All nodes of a network, each as the member of the same number. Every link is by name, as where some
    /// nodes are left out, unless these are more than a description holds.
    pub fn whole(network: Network) -> Self {
        let nodes: Vec<NodeId> = network.nodes().collect();
        Self::new(&network, &nodes, Rate::UNLIMITED).unwrap_or_else(|_| Self {
            described: (0..network.clusters().len() as u32)
                .map(ClusterId)
                .collect(),
            network,
            members: nodes.clone(),
            nodes,
        })
    }

    /// The members' network.
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// The node of each member.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The same with no more of its links than a rule leaves to bulk while there is no other traffic.
    #[must_use]
    pub fn leaving_room(mut self, rule: Option<Separation>) -> Self {
        self.network = left(&self.network, rule, std::iter::empty()).0;
        self
    }

    /// What of the traffic in the described network is between the members' clusters.
    pub fn traffic(&self, described: &[Traffic]) -> Vec<Traffic> {
        let place = |id: ClusterId| {
            let at = self.described.iter().position(|other| *other == id)?;
            Some(ClusterId(at as u32))
        };
        let here = described.iter().filter_map(|traffic| {
            Some(Traffic {
                from: place(traffic.from)?,
                to: place(traffic.to)?,
                ..*traffic
            })
        });
        here.collect()
    }

    /// How many members there are.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none, which no placement has.
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The cluster of each member.
    pub fn clusters(&self) -> Vec<u32> {
        let cluster = |node: &NodeId| self.network.cluster_of(*node).0;
        self.nodes.iter().map(cluster).collect()
    }

    /// The least time in which those of `members` that are sources can bring `size` to all that are
    /// to get it, in seconds.
    ///
    /// # Errors
    /// If some member cannot be reached, or none is a source.
    pub fn least_time(&self, members: &[Member], size: Bytes) -> Result<f64, LimitError> {
        let sources = self.sources(members);
        let receivers = self.with_role(members, Role::Receiver);
        let limit = outpour_planner::limit_for(&self.network, &sources, &receivers, size)?;
        Ok(limit.seconds)
    }

    /// The nodes of those of `members` that are sources.
    pub fn sources(&self, members: &[Member]) -> Vec<NodeId> {
        self.with_role(members, Role::Source)
    }

    fn with_role(&self, members: &[Member], role: Role) -> Vec<NodeId> {
        let placed = self.nodes.iter().zip(members);
        let those = placed.filter(|(_, member)| member.role == role);
        those.map(|(node, _)| *node).collect()
    }

    /// A plan for this network as members understand it.
    pub fn to_members(&self, plan: &Plan) -> Plan {
        let member = |node: NodeId| self.members[node.index()];
        let tree = |tree: &Tree| Tree {
            rate: tree.rate,
            edges: tree
                .edges
                .iter()
                .map(|(from, to)| (member(*from), member(*to)))
                .collect(),
        };
        Plan {
            roots: plan.roots.iter().map(|root| member(*root)).collect(),
            trees: plan.trees.iter().map(tree).collect(),
        }
    }
}

/// What a node has of its own, where that differs from the other nodes of its cluster.
fn own_capacities(whole: &Network, old: NodeId, network: &mut Network, new: NodeId) {
    let pairs = [
        (Resource::NodeOut(old), Resource::NodeOut(new)),
        (Resource::NodeIn(old), Resource::NodeIn(new)),
    ];
    for (old, resource) in pairs {
        let rate = whole.capacity(old);
        if rate != network.capacity(resource) {
            network.apply(&Change::Capacity { resource, rate });
        }
    }
}

/// What is left of a cluster.
fn cluster(whole: &Network, id: ClusterId, nodes: &[NodeId]) -> Cluster {
    let old = &whole.clusters()[id.index()];
    let names = nodes.iter().map(|node| whole.name(*node).to_owned());
    Cluster {
        members: Members::Names(names.collect()),
        ..old.clone()
    }
}

/// Every link between the clusters that are left, by name, for globs may have lost what they meant.
fn links(whole: &Network, ids: &[ClusterId]) -> Vec<LinkRule> {
    let mut rules = Vec::new();
    for from in ids {
        for to in ids.iter().filter(|to| *to != from) {
            let link = whole.link(*from, *to);
            let name = |id: &ClusterId| whole.clusters()[id.index()].name.clone();
            rules.push(LinkRule {
                from: name(from),
                to: name(to),
                both: false,
                rate: Some(link.rate),
                delay: Some(link.delay),
                loss: (link.loss > 0.0).then_some(link.loss),
                // Neither limits nor plans go by what else a link does to packets.
                ..LinkRule::default()
            });
        }
    }
    rules
}
