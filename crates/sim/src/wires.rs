//! The network model's resources as the flow level knows them, made when a flow first needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_core::network::{Backlog, Change, Network, Resource};
use outpour_core::{NodeId, Rate};

use crate::flow::{FlowId, Flows, ResourceId};

/// A network, its flows and the capacities that faults have changed.
#[derive(Debug)]
pub(crate) struct Wires {
    pub(crate) network: Network,
    pub(crate) flows: Flows,
    ids: BTreeMap<Resource, ResourceId>,
    /// Capacities that a fault may change: never left out for being unlimited.
    fickle: BTreeSet<Resource>,
    /// Any capacity may change.
    all_fickle: bool,
    /// Capacities as they are now, where they differ from the network's.
    changed: BTreeMap<Resource, f64>,
    /// What goes first, bytes per second.
    taken: BTreeMap<Resource, f64>,
}

impl Wires {
    pub(crate) fn new(
        network: Network,
        fickle: BTreeSet<Resource>,
        all_fickle: bool,
        limit: Rate,
    ) -> Self {
        Self {
            network: network.limited(limit),
            flows: Flows::default(),
            ids: BTreeMap::new(),
            fickle,
            all_fickle,
            changed: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// Any capacity may change that may change in another's network; to be said at the start.
    pub(crate) fn expect_changes_of(&mut self, other: &Self) {
        self.fickle.extend(other.fickle.iter().copied());
        self.all_fickle |= other.all_fickle;
    }

    pub(crate) fn delay(&self, from: NodeId, to: NodeId) -> Duration {
        self.network.path(from, to).delay
    }

    fn capacity(&self, resource: Resource) -> f64 {
        let original = || self.network.capacity(resource).bytes_per_s();
        let changed = self.changed.get(&resource).copied();
        let taken = self.taken.get(&resource).copied().unwrap_or_default();
        let capacity = (changed.unwrap_or_else(original) - taken).max(0.0);
        match resource {
            Resource::NodeOut(_) | Resource::NodeIn(_) => {
                capacity.min(self.network.limit().bytes_per_s())
            }
            _ => capacity,
        }
    }

    /// Whether anything passes from one node to the other.
    pub(crate) fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        let path = self.network.path(from, to);
        path.resources()
            .iter()
            .all(|resource| self.capacity(*resource) > 0.0)
    }

    /// Adds a flow; one with a `window`, its most in bytes per second, gets a resource of its own
    /// for that.
    pub(crate) fn add_flow(
        &mut self,
        from: NodeId,
        to: NodeId,
        window: Option<f64>,
    ) -> (FlowId, Option<ResourceId>) {
        let path = self.network.path(from, to);
        let window = window.map(|rate| self.flows.add_resource(rate));
        let mut hops: Vec<ResourceId> = window.into_iter().collect();
        for resource in path.resources() {
            let capacity = self.capacity(*resource);
            if capacity.is_finite() || self.all_fickle || self.fickle.contains(resource) {
                let flows = &mut self.flows;
                let id = self
                    .ids
                    .entry(*resource)
                    .or_insert_with(|| flows.add_resource(capacity));
                hops.push(*id);
            }
        }
        (self.flows.add_flow(&hops), window)
    }

    /// How long what waits in the queues between two nodes takes to leave them, at most, in
    /// packets of so many bytes.
    pub(crate) fn queue_time(&self, from: NodeId, to: NodeId, packet: u32) -> Duration {
        let network = &self.network;
        let (here, there) = (network.cluster_of(from), network.cluster_of(to));
        let link = network.link(here, there);
        let rate = link.rate.bytes_per_s();
        let drained = |bytes| Duration::try_from_secs_f64(bytes / rate).unwrap_or(Duration::ZERO);
        let packet = f64::from(packet);
        match link.queue {
            Some(Backlog::Bytes(bytes)) => drained(bytes.as_f64()),
            Some(Backlog::Packets(packets)) => drained(f64::from(packets) * packet),
            // As usual: one connection can keep the link full, see `outpour emulate`.
            None => {
                let trip = self.delay(from, to) + self.delay(to, from) + Backlog::USUAL_SLACK;
                trip.max(drained(f64::from(Backlog::USUAL_PACKETS_MIN) * packet))
            }
        }
    }

    /// Changes a capacity to so many bytes per second, or back to what the network says.
    pub(crate) fn set_capacity(&mut self, resource: Resource, capacity: Option<f64>) {
        match capacity {
            Some(capacity) => self.changed.insert(resource, capacity),
            None => self.changed.remove(&resource),
        };
        if let Some(id) = self.ids.get(&resource) {
            self.flows.set_capacity(*id, self.capacity(resource));
        }
    }

    /// From now on so much other traffic goes first.
    pub(crate) fn take_up(&mut self, resource: Resource, rate: Rate) {
        self.taken.insert(resource, rate.bytes_per_s());
        if let Some(id) = self.ids.get(&resource) {
            self.flows.set_capacity(*id, self.capacity(resource));
        }
    }

    /// Changes the network itself; what a fault has changed stays so until the fault is over.
    pub(crate) fn apply(&mut self, change: &Change) {
        self.network.apply(change);
        let Change::Capacity { resource, .. } = *change else {
            return;
        };
        if let Some(id) = self.ids.get(&resource) {
            self.flows.set_capacity(*id, self.capacity(resource));
        }
        // The links inside a cluster change together.
        if let Resource::Link(from, to) = resource
            && from == to
        {
            let network = &self.network;
            let inside = |resource: &&Resource| matches!(resource, Resource::Local(node, _) if network.cluster_of(*node) == from);
            let local: Vec<Resource> = self.ids.keys().filter(inside).copied().collect();
            for resource in local {
                self.flows
                    .set_capacity(self.ids[&resource], self.capacity(resource));
            }
        }
    }

    /// Says which resource carries more than it can, if one does.
    pub(crate) fn overload(&self) -> Option<String> {
        let (id, load, capacity) = self.flows.overload()?;
        let (resource, _) = self.ids.iter().find(|(_, other)| **other == id)?;
        let name = self.network.describe(*resource);
        Some(format!("{name}: {load} bytes/s of {capacity}"))
    }
}
