//! Packets on their way, by number.

use std::collections::VecDeque;

use outpour_congestion::REORDERING_MAX;
use outpour_core::Time;

use super::work::Place;

/// No flow has more packets in flight.
pub const FLIGHT_MAX: u32 = 1 << 16;

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) sent: Time,
    pub(super) place: Place,
    is_in_flight: bool,
}

/// What is known of a packet number that was acknowledged.
pub(super) enum Found {
    /// It is the first that is heard of this packet.
    InFlight(Slot),
    /// It was acknowledged, taken for lost, or skipped.
    Past,
}

/// Packets from the oldest in flight to the latest sent.
#[derive(Debug, Default)]
pub(super) struct Flight {
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    base: u64,
    /// How many slots are in flight.
    len: u32,
    /// The largest numbers acknowledged, the largest first: who is before all of them is lost.
    largest: [Option<u64>; REORDERING_MAX as usize],
    /// Who is below is not in flight any more for having been overtaken.
    judged: u64,
}

impl Flight {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number that the next packet will have.
    pub(super) fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    pub(super) fn send(&mut self, sent: Time, place: Place) -> u64 {
        debug_assert!(self.len < FLIGHT_MAX, "more in flight than there may be");
        let number = self.next();
        self.slots.push_back(Slot {
            sent,
            place,
            is_in_flight: true,
        });
        self.len += 1;
        number
    }

    /// Leaves a number out.
    pub(super) fn skip(&mut self) -> u64 {
        let number = self.next();
        self.slots.push_back(Slot {
            sent: Time::ZERO,
            place: Place::default(),
            is_in_flight: false,
        });
        self.trim();
        number
    }

    /// A packet was acknowledged.
    pub(super) fn ack(&mut self, number: u64) -> Found {
        let slot = number
            .checked_sub(self.base)
            .and_then(|it| self.slots.get_mut(it as usize));
        let Some(slot) = slot.filter(|it| it.is_in_flight) else {
            return Found::Past;
        };
        slot.is_in_flight = false;
        let found = *slot;
        self.len -= 1;
        self.rank(number);
        self.trim();
        Found::InFlight(found)
    }

    /// The next packet that so many later ones overtook that it is taken for lost.
    pub(super) fn next_lost(&mut self) -> Option<(u64, Place)> {
        let end = self.largest[REORDERING_MAX as usize - 1]?;
        loop {
            // What is before the oldest slot was dealt with.
            let number = self.judged.max(self.base);
            if number >= end {
                return None;
            }
            debug_assert!(number >= self.judged && number < self.next());
            self.judged = number + 1;
            if let Found::InFlight(slot) = self.take(number) {
                return Some((number, slot.place));
            }
        }
    }

    /// The oldest packet in flight, taken for lost as the timer ran out.
    pub(super) fn give_up(&mut self) -> Option<Place> {
        loop {
            match self.slots.pop_front() {
                Some(slot) => {
                    self.base += 1;
                    if slot.is_in_flight {
                        self.len -= 1;
                        return Some(slot.place);
                    }
                }
                None => {
                    debug_assert_eq!(self.len, 0, "lost count of packets in flight");
                    return None;
                }
            }
        }
    }

    /// Takes a packet out of flight without counting it as acknowledged.
    fn take(&mut self, number: u64) -> Found {
        debug_assert!(number >= self.base && number < self.next());
        match self.slots.get_mut((number - self.base) as usize) {
            Some(slot) if slot.is_in_flight => {
                slot.is_in_flight = false;
                let found = *slot;
                self.len -= 1;
                self.trim();
                Found::InFlight(found)
            }
            _ => Found::Past,
        }
    }

    /// Keeps the largest numbers acknowledged.
    fn rank(&mut self, number: u64) {
        let mut number = Some(number);
        for slot in &mut self.largest {
            if number > *slot {
                std::mem::swap(slot, &mut number);
            }
        }
        debug_assert!(self.largest.is_sorted_by(|a, b| a >= b));
    }

    /// Lets go of the oldest that are not in flight.
    fn trim(&mut self) {
        while self.slots.front().is_some_and(|it| !it.is_in_flight) {
            self.slots.pop_front();
            self.base += 1;
        }
        debug_assert!(self.len as usize <= self.slots.len());
        debug_assert_eq!(self.len == 0, self.slots.is_empty(), "slots of nobody");
    }
}
