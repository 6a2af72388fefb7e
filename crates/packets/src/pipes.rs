//! A network of clusters as ports: which there are, which of them a packet passes, and what the
//! network makes of each.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::{Backlog, Change, ClusterId, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Time};

use crate::engine::{Engine, Load, PortId, RouteId};
use crate::loss::Loss;
use crate::setting::{Discipline, Setting};

/// How many bytes a queue without a stated limit holds at most.
const LIMIT_BYTES_MAX: u64 = 64 << 20;

/// What is moved at once.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The largest unit, bytes: an unstated limit is at least a few of them.
    pub largest: u32,
}

/// The resources of a network of clusters [Burger §2.5, figure 2.9] as ports, each resource one.
#[derive(Clone, Debug)]
pub struct Pipes {
    network: Network,
    sizes: Sizes,
    resources: Vec<Resource>,
    numbers: BTreeMap<Resource, u32>,
}

impl Pipes {
    /// The ports that lie between any two nodes.
    pub fn new(network: Network, sizes: Sizes) -> Self {
        let mut resources = Vec::new();
        let mut numbers = BTreeMap::new();
        for from in network.nodes() {
            for to in network.nodes() {
                for resource in network.path(from, to).resources() {
                    numbers.entry(*resource).or_insert_with(|| {
                        resources.push(*resource);
                        resources.len() as u32 - 1
                    });
                }
            }
        }
        Self {
            network,
            sizes,
            resources,
            numbers,
        }
    }

    /// An engine with these ports and a route for each ordered pair of nodes; see
    /// [`Pipes::route`].
    pub fn engine<P: Load>(&self, seed: u64) -> Engine<P> {
        let settings = (self.resources.iter()).map(|resource| self.setting(*resource));
        let mut engine = Engine::new(settings, seed);
        for from in self.network.nodes() {
            for to in self.network.nodes() {
                let path = self.network.path(from, to);
                let ports = path.resources().iter().filter_map(|r| self.port(*r));
                engine.add_route(&ports.collect::<Vec<_>>());
            }
        }
        engine
    }

    /// The network as it is now.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The port of a resource, if anything passes it.
    pub fn port(&self, resource: Resource) -> Option<PortId> {
        self.numbers.get(&resource).copied().map(PortId)
    }

    /// The way from one node to another.
    pub fn route(&self, from: NodeId, to: NodeId) -> RouteId {
        RouteId(from.0 * self.network.node_count() + to.0)
    }

    /// Where a route begins and where it ends.
    pub fn ends(&self, route: RouteId) -> (NodeId, NodeId) {
        let nodes = self.network.node_count();
        (NodeId(route.0 / nodes), NodeId(route.0 % nodes))
    }

    /// Changes the network, and the ports of an engine of this with it.
    pub fn change<P: Load>(&mut self, change: &Change, engine: &mut Engine<P>, now: Time) {
        for (port, setting) in self.changed(change) {
            engine.set(port, &setting, now);
        }
    }

    /// Changes the network and says what becomes of which ports.
    fn changed(&mut self, change: &Change) -> Vec<(PortId, Setting)> {
        self.network.apply(change);
        let pair = |from: ClusterId, to| (from != to).then_some(Resource::Link(from, to));
        let local = |cluster: ClusterId| {
            let locals = self.numbers.range(Resource::Local(NodeId(0), NodeId(0))..);
            let of = move |network: &Network, resource: &Resource| match resource {
                Resource::Local(from, _) => network.cluster_of(*from) == cluster,
                _ => false,
            };
            locals
                .filter(|(resource, _)| of(&self.network, resource))
                .map(|(resource, _)| *resource)
                .collect::<Vec<_>>()
        };
        let links = |from, to| match pair(from, to) {
            Some(link) => vec![link],
            None => local(from),
        };
        let touched = match *change {
            Change::Capacity { resource, .. } => match resource {
                Resource::Link(from, to) => links(from, to),
                Resource::Local(from, _) => local(self.network.cluster_of(from)),
                other => vec![other],
            },
            // The queues of access links cover the round trips there are.
            Change::Delay { from, to, .. } => {
                let mut touched = links(from, to);
                touched.extend(links(to, from));
                touched
            }
            Change::Queue { from, to, .. }
            | Change::Ecn { from, to, .. }
            | Change::Loss { from, to, .. } => links(from, to),
            _ => Vec::new(),
        };
        let known = touched.into_iter().filter_map(|resource| {
            let port = self.port(resource)?;
            Some((port, self.setting(resource)))
        });
        known.collect()
    }

    fn setting(&self, resource: Resource) -> Setting {
        let link = self.network.port(resource);
        let rate = link.rate;
        let limit = (link.queue).unwrap_or_else(|| self.usual_limit(resource, rate));
        // A network is checked when it is read, and scripts are when they are.
        let loss = Loss::new(link.loss, link.burst).unwrap_or(Loss::NONE);
        Setting {
            rate,
            delay: link.delay,
            discipline: Discipline::drop_tail(limit, link.ecn),
            loss,
        }
    }

    /// What waits at most where the description says nothing: what the rate carries in a round
    /// trip and some, so that one TCP connection can keep the pipe full.
    fn usual_limit(&self, resource: Resource, rate: Rate) -> Backlog {
        let time = self
            .round_trip(resource)
            .saturating_add(Backlog::USUAL_SLACK);
        let least = u64::from(self.sizes.largest) * u64::from(Backlog::USUAL_PACKETS_MIN);
        Backlog::Bytes(Bytes(rate.amount_in(time).0.clamp(least, LIMIT_BYTES_MAX)))
    }

    /// The longest round trip of data that passes a resource.
    fn round_trip(&self, resource: Resource) -> Duration {
        let network = &self.network;
        let between = |a, b| {
            network
                .link(a, b)
                .delay
                .saturating_add(network.link(b, a).delay)
        };
        let farthest = |from: ClusterId| {
            let clusters = (0..network.clusters().len() as u32).map(ClusterId);
            let alive = |to: &ClusterId| !network.link(from, *to).rate.is_zero();
            let trips = clusters.filter(alive).map(|to| between(from, to));
            trips.max().unwrap_or(Duration::ZERO)
        };
        match resource {
            Resource::Link(from, to) => between(from, to),
            Resource::Local(node, _) => {
                let cluster = network.cluster_of(node);
                between(cluster, cluster)
            }
            Resource::NodeOut(node)
            | Resource::NodeIn(node)
            | Resource::LimitOut(node)
            | Resource::LimitIn(node) => farthest(network.cluster_of(node)),
            Resource::ClusterOut(cluster) | Resource::ClusterIn(cluster) => farthest(cluster),
        }
    }
}
