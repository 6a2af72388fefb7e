//! Cases in which nodes are told again and again to send some peer no faster than so much.

use std::time::Duration;

use outpour_core::{Bytes, NodeId, Rate, Time};

use super::case::{Case, FAULT_MAX, FAULT_MIN, RATE_MIN, RATE_SPREAD, rate};
use crate::dice::Dice;
use crate::pacer::RateOrder;

/// How many cases are such ones.
const SHARE: f64 = 0.25;
/// How often a rate is set anew in such a case, at most.
const ORDERS_MAX: u64 = 12;
/// The lowest rate but none is this share of the lowest that networks have.
const LOW: f64 = 0.2;

impl Case {
    /// Draws orders about rates. Where nothing may pass that is over after a while, so that all can
    /// be asked for in the end.
    pub(super) fn draw_rates(&mut self, dice: &mut Dice) {
        if self.loss.is_some() || !dice.chance(SHARE) {
            return;
        }
        let count = u64::from(self.network.node_count());
        let size = u64::from(self.object.blocks()) * u64::from(self.object.block_bytes());
        let span = self.rate_min.time_for(Bytes(size)) * 2 + Duration::from_secs(1);
        for _ in 0..dice.between(1, ORDERS_MAX) {
            let from = dice.below(count);
            let to = (from + dice.between(1, count - 1)) % count;
            let (from, to) = (NodeId(from as u32), NodeId(to as u32));
            let at = Time::ZERO + span.mul_f64(dice.unit());
            let some = rate(RATE_MIN * LOW * dice.spread(RATE_SPREAD));
            let drawn = dice.below(4);
            let pause = dice.duration(FAULT_MIN, FAULT_MAX);
            let mut order = |at, rate| self.orders.push(RateOrder { at, from, to, rate });
            match drawn {
                0 => {
                    order(at, Rate::ZERO);
                    order(at + pause, some);
                }
                1 => order(at, Rate::UNLIMITED),
                _ => order(at, some),
            }
            self.rate_min = self.rate_min.min(some);
        }
        self.end_with_some();
    }

    /// Of two orders about one pair the later may be that nothing passes: then that is not for good.
    fn end_with_some(&mut self) {
        self.orders.sort_by_key(|order| order.at);
        let last = self.orders.last().map_or(Time::ZERO, |order| order.at);
        let mut ends: Vec<RateOrder> = Vec::new();
        for order in self.orders.iter().rev() {
            let known = |other: &RateOrder| (other.from, other.to) == (order.from, order.to);
            if !ends.iter().any(known) {
                ends.push(*order);
            }
        }
        let never = ends.into_iter().filter(|order| order.rate.is_zero());
        let at = last + FAULT_MIN;
        let open = never.map(|order| RateOrder {
            at,
            rate: Rate::UNLIMITED,
            ..order
        });
        self.orders.extend(open);
    }

    /// When the last order is given.
    pub(super) fn ordered(&self) -> Time {
        let orders = self.orders.iter().map(|order| order.at);
        orders.max().unwrap_or(Time::ZERO)
    }

    /// How long orders hold a node up altogether, at most.
    pub(super) fn held_up(&self) -> Duration {
        let none = self.orders.iter().filter(|order| order.rate.is_zero());
        FAULT_MAX * none.count() as u32
    }
}
