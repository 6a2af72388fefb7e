//! Cases with two transfers at once among the same hosts.
//!
//! Each has to keep all that it promises, as if alone, only later by what the other moves.

use std::io::Write;
use std::time::Duration;

use outpour_core::Time;
use outpour_protocols::registry::ENTRIES;

use super::case::{Case, FAULT_MAX};
use crate::dice::{Dice, mix};
use crate::world::World;

/// How many cases are such ones.
const SHARE: f64 = 0.2;
/// What sessions weigh.
const WEIGHTS: [u32; 3] = [1, 4, 16];
/// How often the share of a session changes, at most.
const CHANGES_MAX: u64 = 3;

impl Case {
    /// Draws a second transfer: of another object, from other sources, perhaps by another protocol.
    pub(super) fn draw_beside(&mut self, dice: &mut Dice) {
        if self.loss.is_some() || !dice.chance(SHARE) {
            return;
        }
        let seed = mix(self.seed, 8);
        let protocol = &ENTRIES[dice.below(ENTRIES.len() as u64) as usize];
        let mut other = Self::draw_on(self.network.clone(), dice, seed, protocol);
        other.draw_wants(dice);
        other.draw_rates(dice);
        // One script changes the network of both.
        other.script = None;
        other.session = 1;
        self.draw_shares(dice);
        other.draw_shares(dice);
        let rate_min = self.rate_min.min(other.rate_min);
        (self.rate_min, other.rate_min) = (rate_min, rate_min);
        self.beside = Some(Box::new(other));
    }

    fn draw_shares(&mut self, dice: &mut Dice) {
        let drawn = |dice: &mut Dice| WEIGHTS[dice.below(WEIGHTS.len() as u64) as usize];
        self.weight = drawn(dice);
        for _ in 0..dice.below(CHANGES_MAX + 1) {
            let at = Time::ZERO + FAULT_MAX.mul_f64(dice.unit());
            self.shares.push((at, drawn(dice)));
        }
    }

    /// The same case from the other transfer's side, if there are two.
    pub fn turned(&self) -> Option<Self> {
        let mut other = self.beside.as_deref()?.clone();
        let this = Self {
            beside: None,
            ..self.clone()
        };
        other.beside = Some(Box::new(this));
        Some(other)
    }

    /// The world of the case; what happens in the first of its transfers goes to `sink`.
    pub fn world(&self, sink: Option<Box<dyn Write + Send>>) -> World {
        self.world_with(sink, self.patience())
    }

    /// Coordinators of both transfers know what both move, so either may lead.
    fn world_with(&self, sink: Option<Box<dyn Write + Send>>, patience: Duration) -> World {
        let mut scenario = self.scenario();
        scenario.sink = sink;
        scenario.patience = self.attended.then_some(patience);
        let mut world = World::new(scenario);
        world.set_coding_speed(self.coding_speed());
        world.set_session(self.session, self.weight, &self.shares);
        if let Some(other) = &self.beside {
            world.set_beside(other.world_with(None, patience));
        }
        world
    }

    /// The same world without a hash of what happens, which nobody asks for here.
    pub(super) fn unhashed(&self) -> World {
        let mut world = self.world(None);
        world.skip_hash();
        world
    }
}
