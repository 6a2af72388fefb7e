//! What can change about a network while it is in use.

use std::time::Duration;

use super::backlog::Backlog;
use super::rules::{Link, LinkRule, NodeRule};
use super::{ClusterId, Network, Resource};
use crate::{NodeId, Rate};

/// One change. A pair of clusters that are one and the same means the cluster's local links.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// What a resource carries at most. Local links of a cluster change together.
    Capacity {
        /// The resource.
        resource: Resource,
        /// Its capacity from now on.
        rate: Rate,
    },
    /// How long data takes from one cluster to another, one way.
    Delay {
        /// The cluster that sends.
        from: ClusterId,
        /// The cluster that receives.
        to: ClusterId,
        /// The delay from now on.
        delay: Duration,
    },
    /// How much waits for a link before more is dropped. A higher marking threshold sinks to it.
    Queue {
        /// The cluster that sends.
        from: ClusterId,
        /// The cluster that receives.
        to: ClusterId,
        /// The limit from now on.
        limit: Backlog,
    },
    /// From how much waiting on a link marks congestion; at most its limit.
    Ecn {
        /// The cluster that sends.
        from: ClusterId,
        /// The cluster that receives.
        to: ClusterId,
        /// The threshold from now on.
        above: Backlog,
    },
    /// What a link loses.
    Loss {
        /// The cluster that sends.
        from: ClusterId,
        /// The cluster that receives.
        to: ClusterId,
        /// Which share of packets; below one.
        share: f64,
        /// How many in a row on average; 1 if each is lost for itself.
        burst: f64,
    },
    /// How much latency-sensitive traffic there is on a link. What the link can carry stays the same.
    Foreground {
        /// The cluster that sends.
        from: ClusterId,
        /// The cluster that receives.
        to: ClusterId,
        /// How much from now on.
        rate: Rate,
    },
    /// A server is lost, or is back with what it had. What the network can carry stays the same.
    Server {
        /// Which.
        node: NodeId,
        /// Whether it is there from now on.
        there: bool,
    },
    /// The controller is away, or is back. What the network can carry stays the same.
    Controller {
        /// Whether it is there from now on.
        there: bool,
    },
}

impl Network {
    /// The same network where no host sends more than `limit`, or receives more, over all its networks.
    #[must_use]
    pub fn limited(mut self, limit: Rate) -> Self {
        self.limit = limit.min(self.limit);
        self
    }

    /// The same network without interconnects of clusters that are not apart, see [`Network::is_apart`].
    #[must_use]
    pub fn joined(mut self) -> Self {
        for index in 0..self.clusters.len() {
            if !self.is_apart(ClusterId(index as u32)) {
                self.clusters[index].interconnect = false;
            }
        }
        self
    }
}

/// What a change is written down for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Amended {
    Node(NodeId),
    Pair(ClusterId, ClusterId),
}

/// Changes the network and its description, such that the description stays true.
pub(super) fn apply(network: &mut Network, change: &Change) {
    match *change {
        Change::Capacity { resource, rate } => set_capacity(network, resource, rate),
        Change::Delay { from, to, delay } if from == to => {
            network.clusters[from.index()].local_delay = delay;
        }
        Change::Delay { from, to, delay } => set_link(network, from, to, |link, rule| {
            link.delay = delay;
            rule.delay = Some(delay);
        }),
        Change::Queue { from, to, limit } => set_link(network, from, to, |link, rule| {
            link.queue = Some(limit);
            rule.queue = link.queue;
            if link.ecn.is_some_and(|ecn| ecn.exceeds(limit)) {
                link.ecn = Some(limit);
                rule.ecn = link.ecn;
            }
        }),
        Change::Ecn { from, to, above } => set_link(network, from, to, |link, rule| {
            let limit = link.queue.filter(|limit| above.exceeds(*limit));
            link.ecn = limit.or(Some(above));
            rule.ecn = link.ecn;
        }),
        Change::Loss {
            from,
            to,
            share,
            burst,
        } => set_link(network, from, to, |link, rule| {
            (link.loss, link.burst) = (share, burst);
            (rule.loss, rule.burst) = (Some(share), Some(burst));
        }),
        // Who uses the network, and who is there, is not what it is.
        Change::Foreground { .. } | Change::Server { .. } | Change::Controller { .. } => {}
    }
}

fn set_capacity(network: &mut Network, resource: Resource, rate: Rate) {
    match resource {
        Resource::NodeOut(node) => {
            network.node_out[node.index()] = rate;
            node_rule(network, node).out = Some(rate);
        }
        Resource::NodeIn(node) => {
            network.node_in[node.index()] = rate;
            node_rule(network, node).into = Some(rate);
        }
        // A limit of hosts is one for all of them, and stays.
        Resource::LimitOut(_) | Resource::LimitIn(_) => {}
        Resource::ClusterOut(cluster) => network.clusters[cluster.index()].cluster_out = rate,
        Resource::ClusterIn(cluster) => network.clusters[cluster.index()].cluster_in = rate,
        Resource::Local(node, _) => {
            let cluster = network.cluster_of(node);
            network.clusters[cluster.index()].local = rate;
        }
        Resource::Link(from, to) if from == to => network.clusters[from.index()].local = rate,
        Resource::Link(from, to) => set_link(network, from, to, |link, rule| {
            link.rate = rate;
            rule.rate = Some(rate);
        }),
    }
}

/// The rule that says what changed about a node: the last one about it.
fn node_rule(network: &mut Network, node: NodeId) -> &mut NodeRule {
    let rules = &mut network.node_rules;
    let index = *network
        .amended
        .entry(Amended::Node(node))
        .or_insert_with(|| {
            rules.push(NodeRule {
                name: network.names[node.index()].clone(),
                ..NodeRule::default()
            });
            rules.len() - 1
        });
    &mut rules[index]
}

/// Changes the link of a pair and the rule that says so; nothing for a cluster and itself.
fn set_link(
    network: &mut Network,
    from: ClusterId,
    to: ClusterId,
    change: impl FnOnce(&mut Link, &mut LinkRule),
) {
    if from == to {
        return;
    }
    give_each_pair_its_own_link(network);
    let pair = from.index() * network.clusters.len() + to.index();
    let rules = &mut network.rules;
    let clusters = &network.clusters;
    let index = *network
        .amended
        .entry(Amended::Pair(from, to))
        .or_insert_with(|| {
            rules.push(LinkRule {
                from: clusters[from.index()].name.clone(),
                to: clusters[to.index()].name.clone(),
                // A dead pair that no rule names would come to life by being named.
                rate: Some(network.links[pair].rate),
                ..LinkRule::default()
            });
            rules.len() - 1
        });
    change(&mut network.links[pair], &mut rules[index]);
}

/// Equal links are shared until the first of them changes.
fn give_each_pair_its_own_link(network: &mut Network) {
    let pairs = network.clusters.len() * network.clusters.len();
    if network.own_links {
        return;
    }
    network.own_links = true;
    if network.rules.is_empty() {
        // All pairs are open, which has to be said before something is said about one of them.
        network.rules.push(LinkRule {
            from: "*".to_owned(),
            to: "*".to_owned(),
            ..LinkRule::default()
        });
        network.links = vec![Link::OPEN; pairs];
    } else {
        let own = |link: &u32| network.links[*link as usize];
        network.links = network.link_of.iter().map(own).collect();
    }
    network.link_of = (0..pairs as u32).collect();
}
