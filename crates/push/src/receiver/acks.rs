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
