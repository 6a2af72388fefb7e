//! Holds the simulator against the contract of drivers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use outpour_conformance::{
    Accusation, BATCH_BLOCKS, BLOCK_BYTES, BLOCKS, Driver, Part, Play, Wish,
};
use outpour_core::network::Network;
use outpour_core::{Batches, BlockSet, Bytes, NodeId, Rate, Time};
use outpour_terms::Terms;

use super::{Happening, Scenario, World};
use crate::fault::{Fault, FaultKind};
use crate::object::Object;

/// No case takes so long in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

struct Simulator;

impl Driver for Simulator {
    fn drive(&self, play: &Play) -> Result<Vec<Accusation>, String> {
        let mut world = World::new(scenario(play));
        while !play.is_over() {
            if !world.step(Time::ZERO + PATIENCE) {
                return Err(format!("no end in {PATIENCE:?}"));
            }
            while let Some(Wish::Expel(node)) = play.next_wish() {
                for at in world.ids().filter(|at| *at != node) {
                    let now = world.now;
                    world.queue.push(now, Happening::Left { at, node });
                }
            }
        }
        if let Some(violation) = world.audit().violations().first() {
            return Err(violation.to_string());
        }
        let told = world.accusations().iter();
        let told = told.map(|it| Accusation {
            by: it.by,
            peer: it.peer,
        });
        Ok(told.collect())
    }
}

fn scenario(play: &Play) -> Scenario {
    let parts = play.case().parts;
    let rate = Rate::from_bytes_per_s(10e6).unwrap();
    let nodes = parts.len() as u32;
    let delay = Duration::from_millis(2);
    let (size, block) = (u64::from(BLOCKS) * u64::from(BLOCK_BYTES), BLOCK_BYTES);
    let have = |part: &Part| match part.has_all() {
        true => BlockSet::full(BLOCKS),
        false => BlockSet::new(BLOCKS),
    };
    let liars = (0..).map(NodeId).zip(parts);
    let liars = liars.filter(|(_, part)| **part == Part::Liar);
    let lie = |(node, _)| Fault {
        at: Time::ZERO,
        lasts: None,
        kind: FaultKind::WrongBytes {
            node,
            share: 1.0,
            packets_only: false,
        },
    };
    Scenario {
        network: Network::uniform(nodes, rate, rate, delay).unwrap(),
        terms: Terms::new(play.protocol(), play.members(), 1),
        have: parts.iter().map(have).collect(),
        want: Vec::new(),
        starts: Vec::new(),
        object: Object::new(Bytes(size), Bytes(block.into()), 1).unwrap(),
        batches: Batches::new(BLOCKS, BATCH_BLOCKS).filter(|_| play.case().coded),
        faults: liars.map(lie).collect(),
        timeline: None,
        orders: Vec::new(),
        patience: None,
        checked: true,
        sink: None,
    }
}

#[test]
fn the_simulator_keeps_the_contract() {
    let broken = outpour_conformance::run(&Simulator);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
