//! What bulk transfers may still use of the network in the cycle that is being decided.

use std::collections::BTreeMap;

use outpour_core::network::{Cluster, ClusterId, Network, Resource};
use outpour_core::{NodeId, Rate};

use crate::config::Config;

/// Latency-sensitive traffic on a resource, as it was measured last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Foreground {
    pub(crate) rate: Rate,
    /// The most there ever was.
    pub(crate) peak: Rate,
}

/// What of a resource bulk transfers may use [BDS §5.2].
///
/// The links between sites and what joins sites to them are always protected; what belongs to a
/// host or lies inside a site, where something was measured on it.
pub(crate) fn residual(
    network: &Network,
    config: &Config,
    foreground: &BTreeMap<Resource, Foreground>,
    resource: Resource,
) -> f64 {
    let capacity = network.capacity(resource).bytes_per_s();
    let host = matches!(resource, Resource::NodeOut(_) | Resource::NodeIn(_));
    let most = if host {
        config.host_limit.bytes_per_s()
    } else {
        f64::INFINITY
    };
    let measured = foreground.get(&resource);
    let wide = matches!(
        resource,
        Resource::Link(..) | Resource::ClusterOut(_) | Resource::ClusterIn(_)
    );
    if capacity.is_infinite() || !wide && measured.is_none() {
        return capacity.min(most);
    }
    let none = Foreground {
        rate: Rate::ZERO,
        peak: Rate::ZERO,
    };
    let measured = measured.unwrap_or(&none);
    let all = network.capacity(resource);
    let left = config.separation.leaves(all, measured.rate, measured.peak);
    debug_assert!(left <= all, "nothing is gained by what others send");
    left.bytes_per_s().min(most)
}

/// Bytes that still fit through each resource in the cycle.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    cluster_of: Vec<ClusterId>,
    /// Whether the nodes of a cluster have a network of their own besides the one to others.
    interconnect: Vec<bool>,
    out: Vec<f64>,
    into: Vec<f64>,
    /// What each node of a cluster with an interconnect sends and receives over both networks.
    limit_out: Vec<f64>,
    limit_in: Vec<f64>,
    cluster_out: Vec<f64>,
    cluster_in: Vec<f64>,
    links: Vec<f64>,
    /// What passes from each cluster to each other while nothing was taken.
    speeds: Vec<f64>,
    /// Of each ordered pair of nodes of a cluster, while nothing was taken.
    local: Vec<f64>,
    pairs: BTreeMap<(NodeId, NodeId), f64>,
}

/// The resources of a path, with what fits.
type Parts<'a> = [Option<&'a mut f64>; 7];

impl Room {
    /// All that `rate` leaves in a cycle of so many seconds.
    pub(crate) fn new(network: &Network, seconds: f64, rate: impl Fn(Resource) -> f64) -> Self {
        let bytes = |resource| rate(resource) * seconds;
        let clusters = || (0..network.clusters().len() as u32).map(ClusterId);
        let pairs = clusters().flat_map(|from| clusters().map(move |to| (from, to)));
        let local = |cluster| {
            let mut nodes = network.nodes_of(cluster);
            match (nodes.next(), nodes.next()) {
                (Some(a), Some(b)) => bytes(Resource::Local(a, b)),
                _ => 0.0,
            }
        };
        let limits = |of: fn(NodeId) -> Resource| -> Vec<f64> {
            let limit = |node| match network.clusters()[network.cluster_of(node).index()] {
                Cluster {
                    interconnect: true, ..
                } => bytes(of(node)),
                _ => f64::INFINITY,
            };
            network.nodes().map(limit).collect()
        };
        let mut room = Self {
            limit_out: limits(Resource::LimitOut),
            limit_in: limits(Resource::LimitIn),
            cluster_of: network
                .nodes()
                .map(|node| network.cluster_of(node))
                .collect(),
            interconnect: network
                .clusters()
                .iter()
                .map(|cluster| cluster.interconnect)
                .collect(),
            out: network
                .nodes()
                .map(|node| bytes(Resource::NodeOut(node)))
                .collect(),
            into: network
                .nodes()
                .map(|node| bytes(Resource::NodeIn(node)))
                .collect(),
            cluster_out: clusters()
                .map(|id| bytes(Resource::ClusterOut(id)))
                .collect(),
            cluster_in: clusters()
                .map(|id| bytes(Resource::ClusterIn(id)))
                .collect(),
            links: pairs
                .map(|(from, to)| {
                    if from == to {
                        0.0
                    } else {
                        bytes(Resource::Link(from, to))
                    }
                })
                .collect(),
            speeds: Vec::new(),
            local: clusters().map(local).collect(),
            pairs: BTreeMap::new(),
        };
        let count = room.clusters();
        let way = |(pair, link): (usize, &f64)| {
            let ends = room.cluster_out[pair / count].min(room.cluster_in[pair % count]);
            link.min(ends)
        };
        room.speeds = room.links.iter().enumerate().map(way).collect();
        room
    }

    /// Room for so many bytes from nodes to nodes of other clusters, and for nothing else.
    pub(crate) fn for_more(&self, more: impl Iterator<Item = (NodeId, NodeId, f64)>) -> Self {
        let mut room = self.clone();
        for none in [
            &mut room.out,
            &mut room.into,
            &mut room.links,
            &mut room.local,
        ] {
            none.fill(0.0);
        }
        for open in [
            &mut room.cluster_out,
            &mut room.cluster_in,
            &mut room.limit_out,
            &mut room.limit_in,
        ] {
            open.fill(f64::INFINITY);
        }
        let clusters = self.clusters();
        for (from, to, bytes) in more {
            debug_assert!(bytes >= 0.0, "more is not less");
            let (a, b) = (self.cluster(from), self.cluster(to));
            if a != b {
                room.out[from.index()] += bytes;
                room.into[to.index()] += bytes;
                room.links[a * clusters + b] += bytes;
            }
        }
        room
    }

    /// How many clusters there are.
    pub(crate) fn clusters(&self) -> usize {
        self.cluster_in.len()
    }

    pub(crate) fn cluster(&self, node: NodeId) -> usize {
        self.cluster_of[node.index()].index()
    }

    /// Whether what the nodes of a cluster send each other passes their access links.
    pub(crate) fn is_shared_inside(&self, cluster: usize) -> bool {
        !self.interconnect[cluster]
    }

    /// Whether what a node sends another passes their access links.
    pub(crate) fn pass_cards(&self, from: NodeId, to: NodeId) -> bool {
        let (a, b) = (self.cluster(from), self.cluster(to));
        a != b || self.is_shared_inside(a)
    }

    pub(crate) fn out(&self, node: NodeId) -> f64 {
        self.out[node.index()]
    }

    pub(crate) fn into(&self, node: NodeId) -> f64 {
        self.into[node.index()]
    }

    pub(crate) fn cluster_out(&self, cluster: usize) -> f64 {
        self.cluster_out[cluster]
    }

    pub(crate) fn cluster_in(&self, cluster: usize) -> f64 {
        self.cluster_in[cluster]
    }

    pub(crate) fn link(&self, from: usize, to: usize) -> f64 {
        self.links[from * self.clusters() + to]
    }

    /// What passes from a cluster to another, whatever was taken of it.
    pub(crate) fn speed(&self, from: usize, to: usize) -> f64 {
        self.speeds[from * self.clusters() + to]
    }

    /// What passes from a cluster to all others, and from all others to it, whatever was taken of it.
    pub(crate) fn abroad(&self, cluster: usize) -> (f64, f64) {
        let others = || (0..self.clusters()).filter(|other| *other != cluster);
        let out = others().map(|other| self.speed(cluster, other)).sum();
        let into = others().map(|other| self.speed(other, cluster)).sum();
        (out, into)
    }

    /// Of one ordered pair of nodes of a cluster.
    pub(crate) fn local(&self, from: NodeId, to: NodeId) -> f64 {
        let all = self.local[self.cluster(from)];
        self.pairs.get(&(from, to)).copied().unwrap_or(all)
    }

    fn parts(&mut self, from: NodeId, to: NodeId) -> Parts<'_> {
        let (a, b) = (self.cluster(from), self.cluster(to));
        let apart = a == b && self.interconnect[a];
        let clusters = self.cluster_in.len();
        let (out, into) = (&mut self.out[from.index()], &mut self.into[to.index()]);
        let limit_out = Some(&mut self.limit_out[from.index()]);
        let limit_in = Some(&mut self.limit_in[to.index()]);
        if a != b {
            let link = &mut self.links[a * clusters + b];
            let (cluster_out, cluster_in) = (&mut self.cluster_out[a], &mut self.cluster_in[b]);
            return [
                Some(out),
                Some(cluster_out),
                Some(link),
                Some(cluster_in),
                Some(into),
                limit_out,
                limit_in,
            ];
        }
        let all = self.local[a];
        let local = match all.is_finite() {
            true => Some(self.pairs.entry((from, to)).or_insert(all)),
            false => None,
        };
        if apart {
            return [local, limit_out, limit_in, None, None, None, None];
        }
        [
            Some(out),
            local,
            Some(into),
            limit_out,
            limit_in,
            None,
            None,
        ]
    }

    /// How many bytes fit from a node to another.
    pub(crate) fn left(&self, from: NodeId, to: NodeId) -> f64 {
        let (a, b) = (self.cluster(from), self.cluster(to));
        let ends = self.out(from).min(self.into(to));
        let limits = self.limit_out[from.index()].min(self.limit_in[to.index()]);
        if a != b {
            let between = self.cluster_out[a].min(self.cluster_in[b]);
            return ends.min(between).min(self.link(a, b)).min(limits);
        }
        let local = self.local(from, to).min(limits);
        debug_assert!(local >= 0.0 && ends >= 0.0, "no capacity is overdrawn");
        if self.interconnect[a] {
            local
        } else {
            ends.min(local)
        }
    }

    /// Keeps a part of a node's access link from use for a while.
    pub(crate) fn keep(&mut self, node: NodeId, out: f64, into: f64) {
        let (has_out, has_in) = (&mut self.out[node.index()], &mut self.into[node.index()]);
        debug_assert!(
            (0.0..=*has_out).contains(&out) && (0.0..=*has_in).contains(&into),
            "only what is there is kept"
        );
        *has_out -= out;
        *has_in -= into;
    }

    /// Ends [`Room::keep`].
    pub(crate) fn give_back(&mut self, node: NodeId, out: f64, into: f64) {
        debug_assert!(out >= 0.0 && into >= 0.0, "a part of a link is given back");
        self.out[node.index()] += out;
        self.into[node.index()] += into;
    }

    /// Uses bytes up, which fit but for rounding.
    pub(crate) fn take(&mut self, from: NodeId, to: NodeId, bytes: f64) {
        debug_assert!(from != to, "nothing is sent to oneself");
        debug_assert!(
            bytes <= self.left(from, to) * (1.0 + 1e-9) + 1e-3,
            "no capacity is overdrawn"
        );
        for part in self.parts(from, to).into_iter().flatten() {
            *part = (*part - bytes).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use outpour_core::Separation;

    use super::*;

    fn network() -> Network {
        Network::from_toml(
            "[[cluster]]\nname = \"a\"\nnodes = 2\nnode_out = \"10 MB/s\"\nlocal = \"4 MB/s\"\n\
             [[cluster]]\nname = \"b\"\nnodes = 2\nnode_in = \"20 MB/s\"\ninterconnect = true\n\
             [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"15 MB/s\"",
            "test",
        )
        .expect("it is a network")
    }

    fn left(config: &Config, foreground: &[(Resource, f64, f64)], resource: Resource) -> f64 {
        let rate = |mb: f64| Rate::from_bytes_per_s(mb * 1e6).expect("it is a rate");
        let foreground = foreground.iter().map(|(resource, now, peak)| {
            let (rate, peak) = (rate(*now), rate(*peak));
            (*resource, Foreground { rate, peak })
        });
        residual(&network(), config, &foreground.collect(), resource) / 1e6
    }

    #[test]
    fn both_rules_leave_what_they_say() {
        let link = Resource::Link(ClusterId(0), ClusterId(1));
        let host = Resource::NodeOut(NodeId(0));
        let threshold = Config::default();
        let peak = Config {
            separation: Separation::Peak,
            ..Config::default()
        };
        assert_eq!(left(&threshold, &[], link), 12.0);
        assert_eq!(left(&threshold, &[(link, 5.0, 6.0)], link), 7.0);
        assert_eq!(left(&threshold, &[(link, 50.0, 60.0)], link), 0.0);
        assert_eq!(left(&peak, &[(link, 5.0, 6.0)], link), 9.0);
        assert_eq!(left(&peak, &[], link), 15.0);
        assert_eq!(left(&threshold, &[], host), 10.0);
        assert_eq!(left(&threshold, &[(host, 1.0, 2.0)], host), 7.0);
        let host_limit = Rate::from_bytes_per_s(3e6).expect("it is a rate");
        let capped = Config {
            host_limit,
            ..Config::default()
        };
        assert_eq!(left(&capped, &[], host), 3.0);
        assert_eq!(left(&capped, &[], link), 12.0);
    }

    #[test]
    fn what_is_taken_is_gone_along_the_whole_path() {
        let network = network();
        let all = |resource| network.capacity(resource).bytes_per_s();
        let mut room = Room::new(&network, 2.0, all);
        let [a0, a1, b0, b1] = [0, 1, 2, 3].map(NodeId);
        assert_eq!(room.left(a0, b0), 20e6);
        room.take(a0, b0, 15e6);
        assert_eq!((room.left(a0, b0), room.left(a1, b0)), (5e6, 15e6));
        assert_eq!((room.left(a0, a1), room.left(a1, a0)), (5e6, 8e6));
        room.take(a1, a0, 8e6);
        assert_eq!((room.left(a1, a0), room.left(a1, b1)), (0.0, 12e6));
        // An interconnect has no part in what comes from outside.
        assert_eq!(room.left(b0, b1), f64::INFINITY);
        assert_eq!(room.left(b0, a0), 0.0, "no link names this way");
    }

    #[test]
    fn a_limit_of_hosts_covers_an_interconnect() {
        let limit = Rate::from_bytes_per_s(8e6).expect("it is a rate");
        let network = network().limited(limit);
        let all = |resource| network.capacity(resource).bytes_per_s();
        let mut room = Room::new(&network, 2.0, all);
        let [a0, b0, b1] = [0, 2, 3].map(NodeId);
        assert_eq!((room.left(a0, b0), room.left(b0, b1)), (16e6, 16e6));
        room.take(a0, b0, 6e6);
        assert_eq!((room.left(b1, b0), room.left(b0, b1)), (10e6, 16e6));
        room.take(b1, b0, 7e6);
        assert_eq!((room.left(a0, b0), room.left(a0, b1)), (3e6, 10e6));
    }
}
