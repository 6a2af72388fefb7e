//! What a case allows of blocks that travel more often than they have to: what its protocol
//! promises, for as often as its nodes have a reason to turn to others.

use std::time::Duration;

use outpour_core::network::ClusterId;
use outpour_core::{Bytes, NodeId, Rate};

use super::case::Case;
use crate::check;
use crate::fault::{Fault, FaultKind};
use crate::world::World;

/// A node that begins so much later than the first was called in vain.
const LATE: Duration = Duration::from_secs(2);
/// While a fault lasts, or all is slow, a node may turn to another and back so often.
const TURN: Duration = Duration::from_secs(5);
/// Where a block takes so long on its way to every node, one after the other, at the lowest rate,
/// nodes may lose their patience without any fault: they ask for several, and wait a second.
const SLOW: Duration = Duration::from_millis(250);

impl Case {
    /// How many things upset the nodes.
    fn disturbances(&self) -> u32 {
        let first = self.starts.iter().min().copied().unwrap_or_default();
        let late = self.starts.iter().filter(|at| at.since(first) > LATE);
        let others = u32::from(self.loss.is_some()) + u32::from(self.script.is_some());
        let orders = self.orders.len();
        let beside = self.beside.as_ref().map_or(0, |other| other.disturbances());
        (self.faults.len() + orders + self.shares.len() + late.count()) as u32 + others + beside
    }

    /// How often a node may have a reason to turn to others.
    fn turns(&self) -> u32 {
        let often = |time: Duration| time.as_secs() as u32 / TURN.as_secs() as u32;
        let lasts = |fault: &Fault| fault.lasts.map_or(0, often);
        let beside = self.beside.iter().flat_map(|other| &other.faults);
        let long: u32 = self.faults.iter().chain(beside).map(lasts).sum();
        let block = Bytes(self.object.block_bytes().into());
        let slow = self.rate_min.time_for(block) * self.network.node_count() >= SLOW;
        // The transfer with the smaller share waits for the other.
        let slow = slow || self.beside.is_some();
        let patience = if slow { 1 + often(self.serial()) } else { 0 };
        self.disturbances() + long + often(self.held_up()) + patience
    }

    /// How many blocks may be on a wire to a node before a word gets back: all of them where a path
    /// has no limit, since no queue of its sender ever fills.
    fn on_the_wire(&self, to: NodeId) -> u32 {
        let is_open = |from: NodeId| {
            let path = self.network.path(from, to);
            let mut rates = path.resources().iter();
            from != to && rates.all(|it| self.network.capacity(*it) == Rate::UNLIMITED)
        };
        match self.network.nodes().any(is_open) {
            true => self.object.blocks(),
            false => 0,
        }
    }

    /// How often a fetcher may be lost to some of its cluster while it lives or after: a liar is
    /// refused by one after the other.
    fn estrangements(&self) -> u32 {
        let refused = |fault: &Fault| match fault.kind {
            FaultKind::WrongBytes { node, .. } => {
                let cluster = self.network.cluster_of(node);
                (self.network.nodes_of(cluster).count() as u32).saturating_sub(2)
            }
            _ => 0,
        };
        self.disturbances() + self.faults.iter().map(refused).sum::<u32>()
    }

    /// The clusters in which no node holds the object from the start.
    fn orphans(&self) -> impl Iterator<Item = ClusterId> {
        let clusters = (0..self.network.clusters().len() as u32).map(ClusterId);
        clusters.filter(|cluster| {
            let mut nodes = self.network.nodes_of(*cluster);
            !nodes.any(|node: NodeId| self.sources[node.index()])
        })
    }
}

/// No more blocks came again than the protocol promises.
pub(super) fn kept(world: &World, case: &Case) -> Result<(), String> {
    let promise = case.protocol.promise;
    let (nodes, blocks) = (case.network.node_count(), case.object.blocks());
    let (peers, turns) = (nodes - 1, case.turns());
    let copies = promise.copies * blocks;
    let pulled = match turns {
        0 => 0,
        _ => blocks.min(promise.pulled * peers),
    };
    let turn = |node| match promise.turn {
        0 => 0,
        queued => queued + case.on_the_wire(node),
    };
    let most = |node| copies + promise.ahead * peers + pulled + turn(node) * turns;
    check::duplicates(world, nodes, most)?;
    if promise.once_per_cluster {
        check::entries(world, case.orphans(), 1 + case.estrangements())?;
    }
    Ok(())
}
