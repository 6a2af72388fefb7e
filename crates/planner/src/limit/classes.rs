//! Classes of equal nodes: what can be swapped without changing the network is counted, not listed.

use outpour_core::network::{ClusterId, Network, Resource};
use outpour_core::{NodeId, Rate};

/// How many groups or classes are compared with a further one before it becomes one of its own.
const GROUPS_COMPARED_MAX: usize = 128;

/// A cluster, or several clusters of one node each that are equal in all they have.
pub(super) struct Group {
    /// The first of the clusters.
    pub(super) cluster: ClusterId,
    /// The second of them, if there are several.
    pub(super) second: Option<ClusterId>,
    /// How many clusters it stands for.
    pub(super) clusters: u32,
    /// Whether its clusters have one node each: then a cluster's access link is its node's, and
    /// data between two nodes of the group passes a link, not a local network.
    pub(super) single: bool,
    /// Whether its nodes have a network among themselves besides their access links.
    pub(super) interconnect: bool,
}

/// Nodes of one group that are equal in all they have and do.
pub(super) struct Class {
    /// The group they are in.
    pub(super) group: usize,
    /// How many they are.
    pub(super) nodes: u32,
    /// The first of them.
    pub(super) first: NodeId,
    /// Whether they are sources.
    pub(super) root: bool,
    /// Whether the object has to reach them.
    pub(super) receives: bool,
    /// What each of them sends at most.
    pub(super) out: Rate,
    /// What each of them receives at most.
    pub(super) into: Rate,
}

/// Sorts the nodes of `network` into groups and classes.
pub(super) fn classify(
    network: &Network,
    sources: &[NodeId],
    wanted: &[bool],
) -> (Vec<Group>, Vec<Class>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut classes: Vec<Class> = Vec::new();
    for (index, cluster) in network.clusters().iter().enumerate() {
        let id = ClusterId(index as u32);
        let single = cluster.members.len() == 1;
        let members: Vec<NodeId> = network.nodes_of(id).collect();
        if single && !sources.contains(&members[0]) {
            let receives = wanted[members[0].index()];
            let equal = classes.iter_mut().take(GROUPS_COMPARED_MAX).find(|class| {
                let group = &groups[class.group];
                let alike = group.single && !class.root && class.receives == receives;
                alike && swappable(network, group.cluster, id)
            });
            if let Some(class) = equal {
                class.nodes += 1;
                let group = &mut groups[class.group];
                group.clusters += 1;
                group.second = group.second.or(Some(id));
                continue;
            }
        }
        let group = groups.len();
        groups.push(Group {
            cluster: id,
            second: None,
            clusters: 1,
            single,
            interconnect: cluster.interconnect && !single,
        });
        for (is_root, receives) in [(true, false), (false, true), (false, false)] {
            let is_in = |node: &&NodeId| {
                sources.contains(node) == is_root && wanted[node.index()] == receives
            };
            let first_of_group = classes.len();
            for node in members.iter().filter(is_in) {
                let (out, into) = capacities(network, *node);
                let mut alike = classes[first_of_group..]
                    .iter_mut()
                    .take(GROUPS_COMPARED_MAX);
                match alike.find(|class| (class.out, class.into) == (out, into)) {
                    Some(class) => class.nodes += 1,
                    None => classes.push(Class {
                        group,
                        nodes: 1,
                        first: *node,
                        root: is_root,
                        receives,
                        out,
                        into,
                    }),
                }
            }
        }
    }
    (groups, classes)
}

/// What a node sends and receives; alone in a cluster, it has its access link.
fn capacities(network: &Network, node: NodeId) -> (Rate, Rate) {
    let out = network.capacity(Resource::NodeOut(node));
    let into = network.capacity(Resource::NodeIn(node));
    let cluster = &network.clusters()[network.cluster_of(node).index()];
    if cluster.members.len() == 1 {
        (out.min(cluster.cluster_out), into.min(cluster.cluster_in))
    } else {
        (out, into)
    }
}

/// Whether two clusters of one node each could change places without any effect.
fn swappable(network: &Network, a: ClusterId, b: ClusterId) -> bool {
    let clusters = network.clusters();
    let same_link = |from: (ClusterId, ClusterId), to: (ClusterId, ClusterId)| {
        let (one, other) = (network.link(from.0, from.1), network.link(to.0, to.1));
        (one.rate, one.delay) == (other.rate, other.delay)
    };
    let only = |cluster| network.nodes_of(cluster).next();
    only(a).map(|node| capacities(network, node)) == only(b).map(|node| capacities(network, node))
        && same_link((a, b), (b, a))
        && (0..clusters.len() as u32)
            .map(ClusterId)
            .filter(|other| *other != a && *other != b)
            .all(|other| same_link((a, other), (b, other)) && same_link((other, a), (other, b)))
}
