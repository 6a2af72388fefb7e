//! Which blocks a node sent last: another one is better sent next.
//!
//! Where many neighbours request the same blocks, as they do of a source once a node keeps to itself what it
//! was given, the first copies of all of them serve everybody: neighbours get the others from each other, and
//! cancel what they asked for here.

use std::collections::{BTreeMap, VecDeque};

use outpour_core::BlockId;

/// How many are known.
const RECENT_MAX: usize = 256;
/// How many of a neighbour's requests are looked at.
const LOOK: usize = 32;

/// The blocks sent last, and the order in which they were.
#[derive(Default)]
pub(super) struct Recent {
    order: VecDeque<BlockId>,
    /// When each was last sent, as a number.
    last: BTreeMap<BlockId, u64>,
    count: u64,
}

impl Recent {
    /// A block is sent.
    pub(super) fn note(&mut self, block: BlockId) {
        self.count += 1;
        if self.last.insert(block, self.count).is_some() {
            self.order.retain(|known| *known != block);
        }
        self.order.push_back(block);
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
        debug_assert_eq!(self.order.len(), self.last.len());
    }

    /// Takes the request whose block was not sent for the longest time; of equal ones the oldest.
    pub(super) fn take_next(&self, wants: &mut VecDeque<BlockId>) -> Option<BlockId> {
        let sent = |block: &BlockId| self.last.get(block).copied();
        let looked_at = wants.iter().take(LOOK).map(sent);
        let (at, _) = looked_at.enumerate().min_by_key(|(_, sent)| *sent)?;
        wants.remove(at)
    }
}
