//! A network of clusters as a topology, resource by resource.

use super::build::Draft;
use super::{Topology, TopologyError, Vertex, WIRES_MAX};
use crate::NodeId;
use crate::network::{ClusterId, Link, Network, Resource};

impl Topology {
    /// A network of clusters as a topology: each resource that data passes on its way becomes a
    /// wire, and hosts are the nodes under the same numbers. Between are switches that stand for
    /// no device and wires without limit, delay or queue, over which nothing ever waits. There is
    /// one way between any two hosts, and it leads over no third cluster.
    ///
    /// # Errors
    /// If a dead link joins two clusters, because then there are hosts that do not reach each
    /// other; if clusters with limited local links are so large that there are more than
    /// [`WIRES_MAX`] wires; and if a delay is above [`super::DELAY_MAX`].
    pub fn from_network(network: &Network) -> Result<Self, TopologyError> {
        let clusters: Vec<_> = (0..network.clusters().len() as u32)
            .map(ClusterId)
            .collect();
        check_size(network, &clusters)?;
        check_links(network, &clusters)?;
        let names = network.nodes().map(|node| network.name(node).to_owned());
        let mut draft = Draft::of(names.collect());
        let ends: Vec<_> = network
            .nodes()
            .map(|node| add_ends(&mut draft, network, node))
            .collect();
        for cluster in &clusters {
            add_local(&mut draft, network, *cluster, &ends);
        }
        if clusters.len() > 1 {
            add_links(&mut draft, network, &clusters, &ends);
        }
        // Only a dead link between clusters leaves a pair apart.
        draft.finish_connected()
    }
}

/// Refuses a dead link between clusters: hosts would not reach each other.
fn check_links(network: &Network, clusters: &[ClusterId]) -> Result<(), TopologyError> {
    for from in clusters {
        for to in clusters.iter().filter(|to| *to != from) {
            let ends = network
                .nodes_of(*from)
                .next()
                .zip(network.nodes_of(*to).next());
            let Some((one, other)) = ends.filter(|_| network.link(*from, *to).rate.is_zero())
            else {
                continue;
            };
            return Err(TopologyError::Apart {
                from: network.name(one).to_owned(),
                to: network.name(other).to_owned(),
            });
        }
    }
    Ok(())
}

/// Behind and before the access links of a node, and where its interconnect begins and ends.
struct Ends {
    out: Vertex,
    into: Vertex,
    local_out: Vertex,
    local_in: Vertex,
}

/// How many wires the local links of a cluster need: one for each ordered pair where they are
/// limited, else two for each node.
fn local_wires(network: &Network, cluster: ClusterId) -> usize {
    let nodes = network.nodes_of(cluster).count();
    if shares_hub(network, cluster) {
        2 * nodes
    } else {
        nodes * (nodes - 1)
    }
}

/// Whether local links only take time, so that all pairs can share one hub.
fn shares_hub(network: &Network, cluster: ClusterId) -> bool {
    network.link(cluster, cluster).rate.is_unlimited()
}

fn check_size(network: &Network, clusters: &[ClusterId]) -> Result<(), TopologyError> {
    let local: usize = (clusters.iter())
        .map(|cluster| local_wires(network, *cluster))
        .sum();
    // Its ends, those towards other clusters, and those of its limit.
    let each = if network.limit().is_unlimited() { 4 } else { 6 };
    let all = local + each * network.node_count() as usize + clusters.len() * (clusters.len() + 1);
    if all > WIRES_MAX {
        let (what, max) = ("wires", WIRES_MAX);
        return Err(TopologyError::TooMany { what, max });
    }
    Ok(())
}

fn add_ends(draft: &mut Draft, network: &Network, node: NodeId) -> Ends {
    let name = network.name(node);
    let out = draft.switch(format!("{name} out"));
    let into = draft.switch(format!("{name} in"));
    let cluster = &network.clusters()[network.cluster_of(node).index()];
    let (mut first, mut last): (Vertex, Vertex) = (node.into(), node.into());
    if cluster.interconnect && !network.limit().is_unlimited() {
        // What passes either network passes the limit.
        first = draft.switch(format!("{name} limit out"));
        last = draft.switch(format!("{name} limit in"));
        draft.wire(node.into(), first, network.port(Resource::LimitOut(node)));
        draft.wire(last, node.into(), network.port(Resource::LimitIn(node)));
    }
    draft.wire(first, out, network.port(Resource::NodeOut(node)));
    draft.wire(into, last, network.port(Resource::NodeIn(node)));
    let apart = cluster.interconnect;
    Ends {
        out,
        into,
        // An interconnect goes past the access links.
        local_out: if apart { first } else { out },
        local_in: if apart { last } else { into },
    }
}

fn add_local(draft: &mut Draft, network: &Network, cluster: ClusterId, ends: &[Ends]) {
    let link = network.link(cluster, cluster);
    let out = |node: NodeId| ends[node.index()].local_out;
    let into = |node: NodeId| ends[node.index()].local_in;
    if network.nodes_of(cluster).count() < 2 {
        return;
    }
    if shares_hub(network, cluster) {
        let mesh = draft.switch(format!(
            "{} local",
            network.clusters()[cluster.index()].name
        ));
        for node in network.nodes_of(cluster) {
            draft.wire(out(node), mesh, link);
            draft.wire(mesh, into(node), Link::OPEN);
        }
        return;
    }
    for from in network.nodes_of(cluster) {
        for to in network.nodes_of(cluster).filter(|to| *to != from) {
            draft.wire(out(from), into(to), link);
        }
    }
}

/// What is between clusters. What comes from another cluster has switches of its own, so that
/// nothing passes a third one.
fn add_links(draft: &mut Draft, network: &Network, clusters: &[ClusterId], ends: &[Ends]) {
    let mut doors = Vec::new();
    for cluster in clusters {
        let name = &network.clusters()[cluster.index()].name;
        let [up, door, back, down] =
            ["up", "door", "back", "down"].map(|place| draft.switch(format!("{name} {place}")));
        draft.wire(up, door, network.port(Resource::ClusterOut(*cluster)));
        draft.wire(back, down, network.port(Resource::ClusterIn(*cluster)));
        for node in network.nodes_of(*cluster) {
            draft.wire(ends[node.index()].out, up, Link::OPEN);
            draft.wire(down, ends[node.index()].into, Link::OPEN);
        }
        doors.push((door, back));
    }
    for from in clusters {
        for to in clusters.iter().filter(|to| *to != from) {
            let link = network.link(*from, *to);
            draft.wire(doors[from.index()].0, doors[to.index()].1, link);
        }
    }
}
