//! Orders as they travel: from which coordinator of a transfer, and which of its orders.
//!
//! A transfer has one coordinator at a time. One that takes over from another, be it a later
//! attempt of the same command or another replica of a service, does so in a higher *epoch*. What
//! the earlier one still says must not be obeyed then, however late it comes. Within an epoch
//! orders are numbered; one that waits may be replaced by a later one, so numbers may be missing.

use serde::{Deserialize, Serialize};

use super::Order;
use super::backlog::{Message, Topic};

/// The name of a transfer that coordinators and agents share.
pub type TransferName = [u8; 16];

/// When an order was given; later is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// The coordinator's epoch; the first has 1.
    pub epoch: u64,
    /// Which of its orders to this node it is; the first has 1.
    pub seq: u64,
}

impl Stamp {
    /// Of the last order that a coordinator ever gives.
    pub const fn last(epoch: u64) -> Self {
        let seq = u64::MAX;
        Self { epoch, seq }
    }
}

/// An order, and when it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// When.
    pub stamp: Stamp,
    /// What.
    pub order: Order,
}

impl Message for Given {
    fn topic(&self) -> Topic {
        self.order.topic()
    }

    fn is_last(&self) -> bool {
        self.order.is_last()
    }
}

/// Why an order is not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is of another transfer.
    #[error("the order is of another transfer")]
    Transfer,
    /// Another coordinator has taken over.
    #[error("the order is of epoch {epoch}; a coordinator of epoch {highest} has taken over")]
    Epoch {
        /// The epoch of the coordinator that gave it.
        epoch: u64,
        /// The highest that was heard of.
        highest: u64,
    },
    /// It was carried out, or a later one was.
    #[error("the order has number {seq}, and number {last} was carried out")]
    Repeated {
        /// Its number.
        seq: u64,
        /// That of the last that was obeyed.
        last: u64,
    },
}

/// Whose orders a node obeys in one transfer.
#[derive(Clone, Copy, Debug)]
pub struct Obedience {
    transfer: TransferName,
    /// Of the last order that was obeyed.
    last: Stamp,
}

impl Obedience {
    /// Obeys the coordinator of this epoch, and those after it.
    pub const fn new(transfer: TransferName, epoch: u64) -> Self {
        let last = Stamp { epoch, seq: 0 };
        Self { transfer, last }
    }

    /// Whether an order is to be carried out; if so, no order before it ever is again.
    ///
    /// # Errors
    /// Why it is not.
    pub fn admit(&mut self, transfer: TransferName, stamp: Stamp) -> Result<(), Refusal> {
        if transfer != self.transfer {
            return Err(Refusal::Transfer);
        }
        let Stamp { epoch, seq } = stamp;
        if epoch < self.last.epoch {
            let highest = self.last.epoch;
            return Err(Refusal::Epoch { epoch, highest });
        }
        if stamp <= self.last {
            let last = self.last.seq;
            return Err(Refusal::Repeated { seq, last });
        }
        debug_assert!(stamp > self.last, "orders go forward");
        self.last = stamp;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: TransferName = [7; 16];

    const fn stamp(epoch: u64, seq: u64) -> Stamp {
        Stamp { epoch, seq }
    }

    #[test]
    fn orders_are_obeyed_once_and_never_backwards() {
        let mut obedience = Obedience::new(OURS, 2);
        assert_eq!(obedience.admit(OURS, stamp(2, 1)), Ok(()));
        // Some were replaced before they were said.
        assert_eq!(obedience.admit(OURS, stamp(2, 5)), Ok(()));
        for seq in [1, 4, 5] {
            let refused = obedience.admit(OURS, stamp(2, seq));
            assert_eq!(refused, Err(Refusal::Repeated { seq, last: 5 }));
        }
        assert_eq!(
            obedience.admit([8; 16], stamp(2, 6)),
            Err(Refusal::Transfer)
        );
        assert_eq!(obedience.admit(OURS, Stamp::last(2)), Ok(()));
    }

    #[test]
    fn who_was_deposed_is_not_obeyed() {
        let mut obedience = Obedience::new(OURS, 2);
        let refused = |epoch, highest| Err(Refusal::Epoch { epoch, highest });
        assert_eq!(obedience.admit(OURS, stamp(1, 9)), refused(1, 2));
        assert_eq!(obedience.admit(OURS, stamp(2, 9)), Ok(()));
        // The next begins to count anew.
        assert_eq!(obedience.admit(OURS, stamp(3, 1)), Ok(()));
        assert_eq!(obedience.admit(OURS, stamp(2, 10)), refused(2, 3));
        assert_eq!(obedience.admit(OURS, Stamp::last(2)), refused(2, 3));
    }
}
