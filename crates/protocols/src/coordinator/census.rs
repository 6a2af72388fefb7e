//! Once the source is lost: what the hosts that are left hold between them.
//!
//! As long as every block is somewhere they finish on their own. If some block is nowhere any
//! more, waiting is in vain, and what is missing is the one thing worth saying.

use std::collections::BTreeSet;
use std::time::Duration;

use outpour_core::blocks::WireBlocks;
use outpour_core::{BlockSet, NodeId, Time};

/// Without the source, hosts are asked what they hold once none has got anything for so long.
pub(super) const AFTER: Duration = Duration::from_secs(2);

/// The smallest blocks there are bound how many blocks a host can claim to know of.
const BLOCK_BYTES_MIN: u64 = 1 << 10;

/// How many ranges of missing blocks a message names.
const RANGES_MAX: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Census {
    /// The progress after which it was begun.
    pub(super) since: Time,
    waiting: BTreeSet<NodeId>,
    /// What some host has, and what some host lacks; once one is heard that knows the blocks.
    found: Option<(BlockSet, BlockSet)>,
    /// A host does not know the blocks, and so lacks all of them.
    blind: bool,
}

impl Census {
    /// Begins to ask these nodes.
    pub(super) const fn new(since: Time, waiting: BTreeSet<NodeId>) -> Self {
        Self {
            since,
            waiting,
            found: None,
            blind: false,
        }
    }

    /// Takes what a node holds, and what it lacks; whether it is `to_get` the object.
    pub(super) fn answer(
        &mut self,
        node: NodeId,
        to_get: bool,
        blocks: u32,
        (held, lacks): (&WireBlocks, &WireBlocks),
        size: u64,
    ) {
        if !self.waiting.remove(&node) || u64::from(blocks) > size / BLOCK_BYTES_MIN + 1 {
            return;
        }
        self.blind |= to_get && blocks == 0;
        let read = |wire| BlockSet::from_wire(wire, blocks);
        let (Some(held), Some(lacks)) = (read(held), read(lacks)) else {
            return;
        };
        match &mut self.found {
            Some((all, lacked)) if all.len() == blocks => {
                all.union(&held);
                lacked.union(&lacks);
            }
            Some(_) => {}
            None if blocks > 0 => self.found = Some((held, lacks)),
            None => {}
        }
        self.check();
    }

    /// What holds between any two answers.
    fn check(&self) {
        let Some((held, lacked)) = &self.found else {
            return;
        };
        debug_assert_eq!(held.len(), lacked.len());
        debug_assert_ne!(
            held.len(),
            0,
            "a node that answers without blocks knows none"
        );
    }

    /// The nodes that have not answered.
    pub(super) fn waiting(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.waiting.iter().copied()
    }

    /// A node that is gone holds nothing any more.
    pub(super) fn leave(&mut self, node: NodeId) {
        self.waiting.remove(&node);
    }

    /// What is nowhere any more, in words, once all have answered; `None` while that is not known
    /// or nothing is missing.
    pub(super) fn missing(&self) -> Option<String> {
        let (held, lacked) = self.found.as_ref().filter(|_| self.waiting.is_empty())?;
        let mut lacking = match self.blind {
            true => BlockSet::full(held.len()),
            false => lacked.clone(),
        };
        lacking.subtract(held);
        debug_assert!(lacking.count() <= held.missing());
        if lacking.is_empty() {
            return None;
        }
        let ranges = lacking.ranges().take(RANGES_MAX).map(|range| {
            let last = range.end - 1;
            if range.start == last {
                last.to_string()
            } else {
                format!("{}-{last}", range.start)
            }
        });
        let ranges: Vec<String> = ranges.collect();
        let more = if lacking.ranges().nth(RANGES_MAX).is_some() {
            ", ..."
        } else {
            ""
        };
        Some(format!(
            "{} of {} blocks are on no remaining host ({}{more})",
            lacking.count(),
            held.len(),
            ranges.join(", ")
        ))
    }
}
