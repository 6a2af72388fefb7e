//! A heap in which each flow has at most one entry, found and moved by the flow's index.

use outpour_core::Time;

/// Children of an entry: a wide heap is shallow, and its entries share cache lines.
const WIDTH: usize = 4;
const ABSENT: u32 = u32::MAX;

/// Times by flow; the earliest comes out first, of equal ones that of the lowest flow.
#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<(Time, u32)>,
    /// Where each flow's entry is.
    places: Vec<u32>,
}

impl Heap {
    pub(super) fn first(&self) -> Option<(Time, u32)> {
        self.entries.first().copied()
    }

    /// Adds the flow or moves it to another time.
    pub(super) fn set(&mut self, flow: u32, time: Time) {
        if self.places.len() <= flow as usize {
            self.places.resize(flow as usize + 1, ABSENT);
        }
        let place = self.places[flow as usize];
        if place == ABSENT {
            self.entries.push((time, flow));
            self.rise(self.entries.len() - 1);
        } else {
            let place = place as usize;
            self.entries[place].0 = time;
            if !self.rise(place) {
                self.sink(place);
            }
        }
    }

    /// Takes the flow out, if it is there.
    pub(super) fn remove(&mut self, flow: u32) {
        let Some(place) = self.places.get_mut(flow as usize) else {
            return;
        };
        let place = std::mem::replace(place, ABSENT);
        if place == ABSENT {
            return;
        }
        let place = place as usize;
        self.entries.swap_remove(place);
        if place < self.entries.len() && !self.rise(place) {
            self.sink(place);
        }
    }

    /// Moves an entry up to where it belongs; says whether it moved.
    fn rise(&mut self, start: usize) -> bool {
        let entry = self.entries[start];
        let mut place = start;
        while place > 0 {
            let parent = (place - 1) / WIDTH;
            if self.entries[parent] <= entry {
                break;
            }
            self.write(place, self.entries[parent]);
            place = parent;
        }
        self.write(place, entry);
        place != start
    }

    fn sink(&mut self, start: usize) {
        let entry = self.entries[start];
        let mut place = start;
        loop {
            let children = (place * WIDTH + 1)..(place * WIDTH + 1 + WIDTH).min(self.entries.len());
            let Some(least) = children.min_by_key(|child| self.entries[*child]) else {
                break;
            };
            if entry <= self.entries[least] {
                break;
            }
            self.write(place, self.entries[least]);
            place = least;
        }
        self.write(place, entry);
    }

    fn write(&mut self, place: usize, entry: (Time, u32)) {
        self.entries[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dice::Dice;

    #[test]
    fn first_is_that_of_a_sorted_model() {
        let mut dice = Dice::new(3);
        let mut heap = Heap::default();
        let mut model = BTreeMap::new();
        for _ in 0..20_000 {
            let flow = dice.below(100) as u32;
            if dice.chance(0.3) {
                heap.remove(flow);
                model.remove(&flow);
            } else {
                let time = Time(dice.below(50));
                heap.set(flow, time);
                model.insert(flow, time);
            }
            let first = model.iter().map(|(flow, time)| (*time, *flow)).min();
            assert_eq!(heap.first(), first);
        }
    }
}
