//! Cases in which a node falls behind and another one is lost when it has so much.
//!
//! What a lost node held no other may have had, so it has to be moved again; but the others and
//! the source go on at the rates they have. These cases have few nodes and many blocks, so that a
//! node may be behind by more than a protocol keeps in view, and they give little time beyond that
//! of moving what is missing: a rate that decays shows.

use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::network::{Cluster, LinkRule, Members, Network};
use outpour_core::{BlockSet, Bytes, NodeId, Rate, Time};

use super::case::{Case, rate};
use crate::dice::{Dice, mix};
use crate::fault::{Fault, FaultKind};
use crate::object::Object;
use crate::world::{KEEP_ALIVE, LEFT_AFTER, World};

/// How many of all cases are of this kind.
const SHARE: f64 = 0.04;
/// How many blocks their objects have.
const BLOCKS_MIN: u64 = 100;
const BLOCKS_MAX: u64 = 400;
const BATCH_MIN: u64 = 4;
const BATCH_MAX: u64 = 16;
/// How long a copy of the object takes to leave the source, in seconds.
const COPY_S_MIN: u64 = 10;
const COPY_S_MAX: u64 = 40;

/// What is missing may take this many times what the source takes to send it to all that lack it,
/// one after the other ...
pub const RATE_FACTOR: u32 = 2;
/// ... and this long besides, for protocols to find out which nodes are lost and to turn to others.
pub const TURN_SLACK: Duration = Duration::from_secs(45);

/// A node that is lost for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Which.
    pub node: NodeId,
    /// When it has so many blocks.
    pub blocks: u32,
    /// How.
    pub kind: FaultKind,
}

impl Case {
    /// Makes a few cases such ones.
    pub(super) fn draw_loss(&mut self) {
        let mut dice = Dice::new(mix(self.seed, 5));
        if !dice.chance(SHARE) {
            return;
        }
        let block = Bytes(1 << dice.between(14, 18));
        let blocks = dice.between(BLOCKS_MIN, BLOCKS_MAX);
        let size = Bytes(blocks * block.0 - dice.below(block.0));
        let copy = dice.between(COPY_S_MIN, COPY_S_MAX) as f64;
        self.object = Object::new(size, block, mix(self.seed, 3)).expect("few small blocks");
        self.rate_min = rate(size.as_f64() / copy);
        self.network = network(&mut dice, self.rate_min);
        let count = u64::from(self.network.node_count());
        self.sources = (0..count).map(|node| node == 0).collect();
        let have = |source: &bool| match source {
            true => BlockSet::full(self.object.blocks()),
            false => BlockSet::new(self.object.blocks()),
        };
        self.have = self.sources.iter().map(have).collect();
        self.want = vec![Want::All; count as usize];
        let starts = (0..count).map(|_| Duration::from_millis(10).mul_f64(dice.unit()));
        self.starts = starts.map(|start| Time::ZERO + start).collect();
        self.script = None;
        self.attended = dice.chance(0.3);

        let behind = NodeId(dice.between(1, count - 1) as u32);
        let lost = 1 + (u64::from(behind.0) - 1 + dice.between(1, count - 2)) % (count - 1);
        self.faults = vec![falls_behind(&mut dice, behind, self.rate_min, copy)];
        self.loss = Some(Loss {
            node: NodeId(lost as u32),
            blocks: (blocks as f64 * (0.3 + 0.65 * dice.unit())) as u32,
            kind: is_lost(&mut dice, NodeId(lost as u32)),
        });
        let planned = self.begins_with_plan(&mut dice);
        self.plan = planned.then(|| self.true_plan(&mut dice).into());
        self.describe(&self.network.clone());
        self.draw_batches(&mut dice, BATCH_MIN, BATCH_MAX);
    }

    /// How long the nodes that are left may take from when they go on and know which are lost, if
    /// they lack so many bytes together.
    pub(super) fn survivors_need(&self, missing: Bytes) -> Duration {
        let size = Bytes(u64::from(self.object.blocks()) * u64::from(self.object.block_bytes()));
        let planned = self.plan.as_ref();
        let planned = planned.map_or(Duration::ZERO, |plan| plan.throughput().time_for(size));
        let moved = self.rate_min.time_for(missing) + planned + self.coding_time();
        moved * RATE_FACTOR + TURN_SLACK
    }
}

/// The bytes that the nodes that take part lack.
pub(super) fn missing(world: &World, nodes: u32) -> Bytes {
    let live = (0..nodes).map(NodeId).filter(|node| world.is_live(*node));
    let lacks = |node| {
        let mut missing = world.wanted(node).clone();
        missing.subtract(world.have(node));
        world.object().bytes_in(&missing)
    };
    Bytes(live.map(lacks).sum())
}

/// When the loss is noticed, and the node that fell behind goes on.
pub(super) fn noticed(case: &Case, lost: Time) -> Time {
    let back = case.faults.iter().filter_map(Fault::end).max();
    back.map_or(lost, |back| back.max(lost)) + KEEP_ALIVE + LEFT_AFTER
}

/// A source and two to four receivers with equal rates, in one cluster or apart.
fn network(dice: &mut Dice, rate: Rate) -> Network {
    let receivers = dice.between(2, 4) as u32;
    let delay = dice.duration(Duration::from_micros(100), Duration::from_millis(20));
    let cluster = |name: &str, nodes| Cluster {
        node_out: rate,
        node_in: rate,
        local_delay: delay,
        ..Cluster::new(name, Members::Count(nodes))
    };
    if dice.chance(0.5) {
        return Network::new(vec![cluster("c0", 1 + receivers)], Vec::new())
            .expect("drawn networks are sound");
    }
    let rule = |from: &str, to: &str| LinkRule {
        from: from.to_owned(),
        to: to.to_owned(),
        rate: Some(Rate::UNLIMITED),
        delay: Some(delay),
        ..LinkRule::default()
    };
    let rules = vec![rule("c0", "c1"), rule("c1", "c0")];
    Network::new(vec![cluster("c0", 1), cluster("c1", receivers)], rules)
        .expect("drawn networks are sound")
}

/// The node stands still for a while, or its disk or link is slow.
fn falls_behind(dice: &mut Dice, node: NodeId, rate: Rate, copy: f64) -> Fault {
    let at = Time::ZERO + Duration::from_secs_f64(0.3 * copy * dice.unit());
    let lasts = Duration::from_secs_f64(copy * (0.1 + 0.9 * dice.unit()));
    let slow = self::rate(rate.bytes_per_s() / dice.between(5, 50) as f64);
    let kind = if dice.chance(0.5) {
        FaultKind::Stall { node }
    } else {
        let (out, into) = (rate, slow);
        FaultKind::NodeRate { node, out, into }
    };
    Fault {
        at,
        lasts: Some(lasts),
        kind,
    }
}

fn is_lost(dice: &mut Dice, node: NodeId) -> FaultKind {
    if dice.chance(0.2) {
        return FaultKind::Stall { node };
    }
    FaultKind::Crash {
        node,
        unjournaled: Duration::from_millis(dice.below(2000)),
        silent: dice.chance(0.2),
    }
}
