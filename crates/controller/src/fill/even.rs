//! Spreads what a unit sends and receives evenly over its servers.
//!
//! Amounts are of units, and runs fill one server after the other. Were the first ones filled to the brim while
//! others are idle, all that a site got in a cycle would lie with few servers, and it could pass it on only as fast
//! as these can send; and the last blocks would queue there.

use std::collections::BTreeMap;

use super::{Filler, ROUNDING};
use crate::demand::Way;

/// Where the access links of a site's servers together carry more than so many times what joins the site to others,
/// few servers are enough: over more, lanes would only be thin, and one with few blocks has nothing to go on with when
/// its link becomes faster.
const OVER_LINKS: f64 = 2.0;

/// What is kept from the access links of members meanwhile, bytes: what they send and what they receive.
pub(super) struct Kept(Vec<(u32, f64, f64)>);

impl Filler<'_> {
    /// Leaves each member of a unit the same part of its access link, in whole blocks, as much as the unit's
    /// amounts need. [`Filler::give_back`] undoes it.
    pub(super) fn keep_even(&mut self, amounts: &BTreeMap<Way, f64>) -> Kept {
        let shape = self.partition.shape();
        let mut needs = vec![(0.0, 0.0); shape.units.len()];
        for ((from, to, _), amount) in amounts {
            let inside = self.site(*from) == self.site(*to);
            if !inside || self.room.is_shared_inside(self.site(*from)) {
                needs[*from as usize].0 += amount;
                needs[*to as usize].1 += amount;
            }
        }
        let mut kept = Vec::new();
        for (unit, (sends, receives)) in shape.units.iter().zip(needs) {
            if unit.len() == 1 {
                continue;
            }
            let room = &*self.room;
            let node = |member: u32| shape.members[member as usize];
            let out = |member: u32| match shape.gives[member as usize] {
                true => room.out(node(member)),
                false => 0.0,
            };
            let into = |member: u32| match shape.takes[member as usize] {
                true => room.into(node(member)),
                false => 0.0,
            };
            let (abroad, home) = room.abroad(room.cluster(node(unit.start)));
            let level = |amount: f64, cards: f64, links: f64| match cards <= OVER_LINKS * links {
                true => amount / cards,
                false => 1.0,
            };
            let sends = level(sends, unit.clone().map(out).sum(), abroad);
            let receives = level(receives, unit.clone().map(into).sum(), home);
            for member in unit.clone() {
                let out = self.beyond_even(out(member), sends);
                let into = self.beyond_even(into(member), receives);
                if out > 0.0 || into > 0.0 {
                    kept.push((member, out, into));
                }
            }
        }
        for (member, out, into) in &kept {
            self.room.keep(shape.members[*member as usize], *out, *into);
        }
        Kept(kept)
    }

    /// What of an access link is beyond an even part of it.
    fn beyond_even(&self, left: f64, level: f64) -> f64 {
        // Units without an end, those of a site that is alone, and those that have nothing to send keep what they have.
        if !left.is_finite() || !(0.0..1.0).contains(&level) {
            return 0.0;
        }
        let even = (left * level / self.block - ROUNDING).ceil() * self.block;
        (left - even).max(0.0)
    }

    /// Members have their whole access links again.
    pub(super) fn give_back(&mut self, Kept(kept): Kept) {
        if kept.is_empty() {
            return;
        }
        let shape = self.partition.shape();
        for (member, out, into) in kept {
            self.room
                .give_back(shape.members[member as usize], out, into);
        }
        self.look_anew();
    }
}
