//! What a source gives that gives each block once before it gives any twice.
//!
//! First comes what no node has. What a single one says that it has comes next, as it may not be so, or not
//! for others; what two say that they have is not given at all, nor, where there are few nodes, what one
//! says: the others would get much of it from both. Last comes what was given and is still
//! nowhere else after the others would long have got it: whoever got it keeps it to itself.

use std::collections::VecDeque;
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId, Time};

use super::neighbour::{Neighbour, Wanted};

/// A block that was given is elsewhere within this time ...
const SPREADS_WITHIN: Duration = Duration::from_secs(1);
/// ... or the time in which the source sends so many blocks, if that is longer.
const SPREADS_WITHIN_BLOCKS: f64 = 32.0;
/// Among fewer nodes each is believed: what is on its way from a source when it is asked of another comes twice, a
/// window's worth for each node, and with few nodes that is much of what is left of a cast that goes on.
const DOUBTED_AMONG: u32 = 8;
/// How many blocks that were kept are looked at to find one for a neighbour.
const LOOK: usize = 64;

/// Which of several sources that seed one is.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) index: u32,
    pub(super) of: u32,
    /// Among how many nodes they share what they give.
    pub(super) among: u32,
}

/// See the module.
pub(super) struct Seeding {
    /// Blocks that no node was given or said to have.
    ungiven: BlockSet,
    /// Blocks that no node was given, and one said to have.
    claimed: BlockSet,
    /// Blocks that another source that seeds said it gave.
    taken: BlockSet,
    /// Blocks that were given and, as far as is known, got no further, oldest first.
    given: VecDeque<Given>,
    /// How long a block may take to get further, as of the last look.
    patience: Duration,
    /// Whether the oldest of them took longer, as of the last look.
    has_kept: bool,
    /// Which of how many sources this is.
    share: Share,
    cursor: BlockId,
}

/// A block that was given.
struct Given {
    at: Time,
    block: BlockId,
    to: NodeId,
}

impl Seeding {
    pub(super) fn new(blocks: u32, share: Share) -> Self {
        debug_assert!(share.index < share.of, "this source is one of them");
        Self {
            ungiven: BlockSet::full(blocks),
            claimed: BlockSet::new(blocks),
            taken: BlockSet::new(blocks),
            given: VecDeque::new(),
            patience: SPREADS_WITHIN,
            has_kept: false,
            share,
            // Of several each begins with another part.
            cursor: part(blocks, share.index, share.of),
        }
    }

    /// What holds between any two events.
    pub(super) fn check(&self, have: &BlockSet) {
        debug_assert!(self.cursor <= have.len());
        debug_assert!(self.ungiven.count() + self.claimed.count() <= have.len());
        debug_assert!(self.given.iter().is_sorted_by_key(|given| given.at));
        debug_assert!(self.patience >= SPREADS_WITHIN);
    }

    /// Whether each block was given once, or need not be.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.ungiven.is_empty() && self.claimed.is_empty()
    }

    /// Whether a block was given long ago and got no further, as of the last look.
    pub(super) const fn has_kept(&self) -> bool {
        self.has_kept
    }

    pub(super) const fn is_one_of_several(&self) -> bool {
        self.share.of > 1
    }

    /// One of so many nodes says that it has a block; whether that need not be given any more.
    pub(super) fn claim(&mut self, block: BlockId, holders: u16) -> bool {
        if holders > 1 || self.share.among < DOUBTED_AMONG {
            return self.ungiven.remove(block) | self.claimed.remove(block);
        }
        if self.ungiven.remove(block) {
            self.claimed.insert(block);
        }
        false
    }

    /// Another source has given a block; whether that was to be given.
    pub(super) fn take(&mut self, block: BlockId) -> bool {
        self.taken.insert(block);
        self.ungiven.remove(block) | self.claimed.remove(block)
    }

    /// Looks at what became of the blocks that were given. The source sends a block in so many seconds;
    /// `holders` is how many neighbours have each.
    pub(super) fn look(&mut self, now: Time, gap: f64, holders: &[u16]) {
        let several = Duration::from_secs_f64(SPREADS_WITHIN_BLOCKS * gap);
        self.patience = SPREADS_WITHIN.max(several);
        let is_elsewhere = |given: &Given| holders[given.block as usize] > 1;
        while self.given.front().is_some_and(is_elsewhere) {
            self.given.pop_front();
        }
        if self.is_exhausted() {
            // Those behind one that was kept have mostly spread.
            self.given.retain(|given| holders[given.block as usize] < 2);
        }
        let is_kept = |given: &Given| now.since(given.at) >= self.patience;
        self.has_kept = self.given.front().is_some_and(is_kept);
    }

    /// What a neighbour is to be given, if there is anything for it.
    pub(super) fn next(
        &mut self,
        now: Time,
        to: NodeId,
        peer: &Neighbour,
        wanted: &BlockSet,
    ) -> Option<BlockId> {
        let some = match &peer.want {
            Wanted::All => None,
            // A relay takes what any node wants.
            Wanted::Only(blocks) if blocks.is_empty() => Some(wanted),
            Wanted::Only(blocks) => Some(blocks),
        };
        let some = some.filter(|blocks| !blocks.is_full());
        let block = self
            .next_fresh(some)
            .or_else(|| self.next_claimed(peer, some));
        if let Some(block) = block {
            self.cursor = block + 1;
        }
        let block = block.or_else(|| self.next_kept(now, to, peer, some))?;
        let at = now;
        self.given.push_back(Given { at, block, to });
        Some(block)
    }

    /// One that no node has.
    fn next_fresh(&mut self, some: Option<&BlockSet>) -> Option<BlockId> {
        let (taken, share, at) = (&self.taken, self.share, self.cursor);
        let block = match some {
            None => next_to_give(&self.ungiven, taken, share, at)?,
            Some(blocks) => {
                let mut fit = self.ungiven.clone();
                fit.intersect(blocks);
                next_to_give(&fit, taken, share, at)?
            }
        };
        self.ungiven.remove(block);
        Some(block)
    }

    /// One that one node says that it has, which is not this one.
    fn next_claimed(&mut self, peer: &Neighbour, some: Option<&BlockSet>) -> Option<BlockId> {
        let fits = |block: BlockId| {
            !peer.theirs.contains(block) && some.is_none_or(|some| some.contains(block))
        };
        let mut after = self.cursor;
        let mut wrapped = false;
        let block = loop {
            match self.claimed.next_present(after) {
                Some(block) if fits(block) => break block,
                Some(block) => after = block + 1,
                None if wrapped => return None,
                None => (after, wrapped) = (0, true),
            }
        };
        self.claimed.remove(block);
        Some(block)
    }

    /// One that was given to another node, which kept it.
    fn next_kept(
        &mut self,
        now: Time,
        to: NodeId,
        peer: &Neighbour,
        some: Option<&BlockSet>,
    ) -> Option<BlockId> {
        let fits = |given: &Given| {
            let block = given.block;
            let lacks = !peer.theirs.contains(block) && !peer.was_given(block);
            given.to != to && lacks && some.is_none_or(|some| some.contains(block))
        };
        let is_kept = |given: &&Given| now.since(given.at) >= self.patience;
        let mut kept = self.given.iter().take(LOOK).take_while(is_kept);
        let at = kept.position(fits)?;
        self.given.remove(at).map(|given| given.block)
    }
}

/// The first block after those that came before this one of so many equal parts.
fn part(blocks: u32, index: u32, of: u32) -> BlockId {
    (u64::from(blocks) * u64::from(index) / u64::from(of)) as BlockId
}

/// The next of these blocks after `at`. One source that comes to where another was before would
/// go on right behind it, and give what that one is about to give: it goes elsewhere, the others
/// likewise elsewhere.
fn next_to_give(
    ungiven: &BlockSet,
    taken: &BlockSet,
    share: Share,
    at: BlockId,
) -> Option<BlockId> {
    let next = ungiven.next_present(at);
    let other = taken.next_present(at);
    if share.of == 1 {
        return next.or_else(|| ungiven.next_present(0));
    }
    match next {
        Some(next) if other.is_none_or(|other| other > next) => Some(next),
        _ => nth(
            ungiven,
            part(ungiven.count(), share.index + 1, share.of + 1),
        ),
    }
}

/// The block that so many of a set come before.
fn nth(blocks: &BlockSet, before: u32) -> Option<BlockId> {
    let mut left = before;
    for index in 0..blocks.words() {
        let mut word = blocks.word(index);
        let count = word.count_ones();
        if left >= count {
            left -= count;
            continue;
        }
        (0..left).for_each(|_| word &= word - 1);
        return Some(index as u32 * 64 + word.trailing_zeros());
    }
    None
}
