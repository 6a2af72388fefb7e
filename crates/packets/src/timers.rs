//! What happens next, if there is one timer for each thing that may.
//!
//! There are as many timers as there will ever be, so they are the leaves of a tree in which each
//! inner place holds the earlier of the two below it. Setting a timer is a walk to the root over a
//! few cache lines without a branch that is hard to foresee, and a timer that is set again needs no
//! search and leaves nothing obsolete behind, as it would in a heap.

use outpour_core::Time;

/// What a timer that is not set has in its place.
const NEVER: u128 = u128::MAX;

/// Timers by number, each set to a time or not: an engine has two for each port, and a simulator may
/// have some for each of its senders.
///
/// A place holds the time, the order in which timers were set, and the number of the timer, from
/// the highest bits to the lowest: the least is the next. The order wraps around after 2^32
/// settings. Then two timers of the very same time may change places, in every run alike.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The root is at 1, and the places below `at` are `2 at` and `2 at + 1`.
    places: Vec<u128>,
    first_leaf: usize,
    order: u32,
}

impl Timers {
    /// So many timers, none of which is set.
    pub fn new(timers: usize) -> Self {
        let first_leaf = timers.max(2).next_power_of_two();
        Self {
            places: vec![NEVER; 2 * first_leaf],
            first_leaf,
            order: 0,
        }
    }

    /// The timer that is due first, behind those of the same time that were set before it.
    pub fn first(&self) -> Option<(Time, u32)> {
        let first = self.places[1];
        (first != NEVER).then_some((Time((first >> 64) as u64), first as u32))
    }

    /// Sets a timer to a time, whether it was set or not.
    pub fn set(&mut self, timer: u32, time: Time) {
        self.order = self.order.wrapping_add(1);
        let place = u128::from(time.0) << 64 | u128::from(self.order) << 32 | u128::from(timer);
        self.put(timer, place);
    }

    /// Sets a timer to no time.
    pub fn clear(&mut self, timer: u32) {
        self.put(timer, NEVER);
    }

    fn put(&mut self, timer: u32, place: u128) {
        let mut at = self.first_leaf + timer as usize;
        let mut least = place;
        self.places[at] = place;
        while at > 1 {
            least = least.min(self.places[at ^ 1]);
            at >>= 1;
            if self.places[at] == least {
                return;
            }
            self.places[at] = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand_core::{RngCore, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    #[test]
    fn the_first_is_the_earliest_and_the_one_set_first_among_equals() {
        for count in [1, 2, 3, 7, 64, 65] {
            let (mut timers, mut dice) = (Timers::new(count), Pcg64::seed_from_u64(count as u64));
            let mut model: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            for round in 0..4000 {
                let timer = (dice.next_u64() % count as u64) as u32;
                if dice.next_u64().is_multiple_of(3) {
                    timers.clear(timer);
                    model.remove(&timer);
                } else {
                    let time = dice.next_u64() % 5;
                    timers.set(timer, Time(time));
                    model.insert(timer, (time, round));
                }
                let first = model.iter().min_by_key(|(_, key)| **key);
                let first = first.map(|(timer, (time, _))| (Time(*time), *timer));
                assert_eq!(timers.first(), first, "{count}: round {round}");
            }
        }
    }
}
