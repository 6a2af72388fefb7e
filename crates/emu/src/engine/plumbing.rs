//! Which pipes there are, which of them a packet passes, and what the network makes of each.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::network::{Backlog, Change, ClusterId, Link, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate};

use super::loss::Loss;
use super::pipe::Setting;

/// How many bytes a queue without a stated limit holds at most.
const LIMIT_BYTES_MAX: u64 = 64 << 20;

/// A place in a route where there is no pipe.
const NONE: u32 = u32::MAX;

/// How many resources a path has at most.
const STAGES_MAX: usize = 5;

/// What is moved at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The largest unit, bytes.
    pub(crate) largest: u32,
}

/// The pipes of a network, by number.
pub(super) struct Plumbing {
    network: Network,
    sizes: Sizes,
    resources: Vec<Resource>,
    numbers: BTreeMap<Resource, u32>,
    /// For each ordered pair of nodes the pipes on the way.
    routes: Vec<[u32; STAGES_MAX]>,
}

impl Plumbing {
    pub(super) fn new(network: Network, sizes: Sizes) -> Self {
        let mut resources = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut routes = Vec::new();
        for from in network.nodes() {
            for to in network.nodes() {
                let mut route = [NONE; STAGES_MAX];
                let path = network.path(from, to);
                for (stage, resource) in route.iter_mut().zip(path.resources()) {
                    *stage = *numbers.entry(*resource).or_insert_with(|| {
                        resources.push(*resource);
                        resources.len() as u32 - 1
                    });
                }
                routes.push(route);
            }
        }
        Self {
            network,
            sizes,
            resources,
            numbers,
            routes,
        }
    }

    /// The settings of all pipes, in order.
    pub(super) fn settings(&self) -> impl Iterator<Item = Setting> {
        self.resources
            .iter()
            .map(|resource| self.setting(*resource))
    }

    /// The pipe a packet enters after `stage` others.
    pub(super) fn pipe(&self, from: u16, to: u16, stage: u8) -> Option<u32> {
        let nodes = self.network.node_count() as usize;
        let route = self
            .routes
            .get(usize::from(from) * nodes + usize::from(to))?;
        let pipe = route.get(usize::from(stage)).copied();
        pipe.filter(|pipe| *pipe != NONE)
    }

    /// Changes the network and says what becomes of which pipes.
    pub(super) fn change(&mut self, change: &Change) -> Vec<(u32, Setting)> {
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
            let number = *self.numbers.get(&resource)?;
            Some((number, self.setting(resource)))
        });
        known.collect()
    }

    fn setting(&self, resource: Resource) -> Setting {
        let rate = self.network.capacity(resource);
        let link = match resource {
            Resource::Link(from, to) => self.network.link(from, to),
            Resource::Local(from, _) => {
                let cluster = self.network.cluster_of(from);
                self.network.link(cluster, cluster)
            }
            _ => Link::OPEN,
        };
        Setting {
            nanos_per_byte: 1e9 / rate.bytes_per_s(),
            delay_nanos: u64::try_from(link.delay.as_nanos()).unwrap_or(u64::MAX),
            limit: link
                .queue
                .unwrap_or_else(|| self.usual_limit(resource, rate)),
            mark_from: link.ecn,
            loss: if link.loss > 0.0 {
                Loss::new(link.loss, link.burst)
            } else {
                Loss::NONE
            },
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
            Resource::NodeOut(node) | Resource::NodeIn(node) => farthest(network.cluster_of(node)),
            Resource::ClusterOut(cluster) | Resource::ClusterIn(cluster) => farthest(cluster),
        }
    }
}
