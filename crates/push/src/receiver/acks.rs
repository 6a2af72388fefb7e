//! What to acknowledge of one flow, and when.

use outpour_core::Time;

use super::ReceiverOptions;
use crate::{ACK_SPAN, Data};

/// The part of an acknowledgement that is about packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) number: u64,
    pub(super) received: u64,
    pub(super) marked: u64,
    pub(super) block: u32,
}

/// The latest packets of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks {
    /// The largest number that came, and its block.
    largest: Option<(u64, u32)>,
    /// Bit k: whether packet `largest - k` came.
    received: u64,
    /// Bit k: whether it had a mark.
    marked: u64,
    /// How many packets wait for their acknowledgement.
    waiting: u32,
    /// The smallest number among these.
    oldest: u64,
    due: Option<Time>,
    covers: u32,
}

impl Acks {
    /// When those that wait are due.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// A packet came. Returns what is to be acknowledged now, if anything is.
    pub(super) fn note(
        &mut self,
        data: &Data,
        is_marked: bool,
        due: Time,
        options: &ReceiverOptions,
    ) -> Option<Told> {
        self.covers = options.ack_covers;
        debug_assert!((1..=ACK_SPAN).contains(&self.covers));
        debug_assert_eq!(self.due.is_some(), self.waiting > 0);
        let number = data.number;
        let is_latest = self.largest.is_none_or(|it| number > it.0);
        if !is_latest && !self.is_covered(number) {
            // Too old to go with the others: it goes alone.
            return Some(Told {
                number,
                received: 1,
                marked: is_marked.into(),
                block: data.block,
            });
        }
        let mut told = None;
        if is_latest {
            // Those that wait must not fall out of what one acknowledgement can tell.
            let span = number.wrapping_sub(self.oldest);
            if self.waiting > 0 && span >= self.covers.into() {
                told = Some(self.tell());
            }
            let forward = self.largest.map_or(u64::MAX, |it| number - it.0);
            self.received = shift(self.received, forward);
            self.marked = shift(self.marked, forward);
            self.largest = Some((number, data.block));
        }
        let back = self.largest.map_or(0, |it| it.0 - number);
        debug_assert!(back < self.covers.into());
        self.received |= 1 << back;
        self.marked |= u64::from(is_marked) << back;
        self.oldest = if self.waiting == 0 {
            number
        } else {
            self.oldest.min(number)
        };
        self.waiting += 1;
        debug_assert!(self.waiting <= options.ack_every);
        if self.waiting >= options.ack_every {
            debug_assert!(told.is_none() || options.ack_every == 1);
            return Some(self.tell());
        }
        self.due = self.due.or(Some(due));
        debug_assert!(self.waiting > 0, "due and nothing waits");
        told
    }

    /// Whether an acknowledgement of the largest number can tell of this one as well.
    fn is_covered(&self, number: u64) -> bool {
        self.largest
            .is_some_and(|it| it.0.wrapping_sub(number) < self.covers.into())
    }

    /// What is to be acknowledged; nothing waits any more.
    pub(super) fn tell(&mut self) -> Told {
        debug_assert!(self.largest.is_some(), "nothing to acknowledge");
        self.waiting = 0;
        self.due = None;
        let (number, block) = self.largest.unwrap_or_default();
        let covered = u64::MAX >> (ACK_SPAN - self.covers.clamp(1, ACK_SPAN));
        Told {
            number,
            received: self.received & covered,
            marked: self.marked & covered,
            block,
        }
    }
}

/// Shifts to the left, also by more than there are bits.
fn shift(bits: u64, by: u64) -> u64 {
    u32::try_from(by)
        .ok()
        .and_then(|it| bits.checked_shl(it))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{DeviceId, FlowId, TaskId};

    const FLOW: FlowId = FlowId {
        task: TaskId(1),
        seat: 0,
    };

    fn data(number: u64) -> Data {
        Data {
            flow: FLOW,
            number,
            block: 0,
            symbol: 0,
        }
    }

    /// Packets that came so, and what was told of them: nothing else, and all in the end.
    fn check(numbers: &[u64], options: &ReceiverOptions) {
        let mut acks = Acks::default();
        let mut came = BTreeMap::new();
        let mut told = BTreeSet::new();
        let mut hear = |it: Told, came: &BTreeMap<u64, bool>| {
            assert!(it.received & 1 == 1, "it tells of its own number");
            assert_eq!(it.marked & !it.received, 0);
            for back in (0..ACK_SPAN).filter(|back| it.received >> back & 1 == 1) {
                let number = it.number.checked_sub(back.into());
                let marked = it.marked >> back & 1 == 1;
                let really = number.and_then(|number| came.get(&number));
                // Of a packet that came twice it may tell either.
                assert!(
                    really.is_some_and(|really| *really || !marked),
                    "{numbers:?}: {it:?}"
                );
                told.extend(number);
            }
        };
        for (at, number) in numbers.iter().enumerate() {
            let is_marked = at % 2 == 0;
            *came.entry(*number).or_default() |= is_marked;
            if let Some(it) = acks.note(&data(*number), is_marked, Time::ZERO, options) {
                hear(it, &came);
            }
        }
        if acks.due().is_some() {
            hear(acks.tell(), &came);
        }
        assert!(
            told.into_iter().eq(came.into_keys()),
            "{numbers:?}, {options:?}"
        );
    }

    /// Any four packets around the span of an acknowledgement, at the first numbers and at the last that there are.
    #[test]
    fn all_that_came_is_told_and_nothing_else_at_either_end_of_numbers() {
        let near = [0, 1, 2, 31, 32, 62, 63, 64, 65, 130];
        for base in [0, 1 << 32, u64::MAX - 130] {
            for (covers, every) in [(1, 1), (2, 2), (3, 2), (32, 3), (64, 1), (64, 2), (64, 4)] {
                let options = ReceiverOptions {
                    ack_covers: covers,
                    ack_every: every,
                    ..ReceiverOptions::new("object", DeviceId(1))
                };
                for which in 0..10_usize.pow(4) {
                    let digits = [which / 1000, which / 100 % 10, which / 10 % 10, which % 10];
                    check(&digits.map(|digit| base + near[digit]), &options);
                }
            }
        }
    }
}
