//! Which blocks a node still wants, from which peers it may request them, and which are its own to fetch.
//!
//! A block is *open* while it is neither here nor asked for. Of the open blocks the *golden* ones
//! are those that the node itself is to fetch from other clusters; the others are *silver*: some
//! other node of its cluster fetches them ([Burger §4.5.3]).
//!
//! For each peer a node keeps the blocks it may ask there as plain lists of indices. A random
//! block is taken by swapping it to the end, so taking, adding and turning a block from one metal
//! into the other cost the same however many blocks there are. A block that is asked for elsewhere
//! or changes its metal is not searched for in the lists: it is dropped when it is drawn, and
//! each entry is drawn once at most. That costs a bit per block and four bytes per block that a
//! peer said it has, where links from list to list would cost three times as much.

use outpour_core::{BlockId, BlockSet};

/// What a node wants.
#[derive(Debug)]
pub(crate) struct Interest {
    open: BlockSet,
    gold: BlockSet,
}

/// What a node may ask of one peer.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// Asked for before the others.
    first: Vec<BlockId>,
    rest: Vec<BlockId>,
}

/// What may be asked of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metal {
    /// Golden blocks only: the peer is in another cluster.
    Gold,
    /// Every open block.
    Any,
}

impl Interest {
    /// Everything that is not in `have` is open; none of it is golden.
    pub(crate) fn new(have: &BlockSet) -> Self {
        let mut open = BlockSet::full(have.len());
        open.subtract(have);
        Self::of(open)
    }

    /// What is lacking is open; none of it is golden.
    pub(crate) fn of(lacking: BlockSet) -> Self {
        let gold = BlockSet::new(lacking.len());
        let open = lacking;
        Self { open, gold }
    }

    /// O(1), as it is done at every change.
    fn check(&self) {
        debug_assert_eq!(self.open.len(), self.gold.len());
        debug_assert!(
            self.gold.count() <= self.open.count(),
            "only open blocks are golden"
        );
    }

    /// The open blocks.
    pub(crate) const fn open(&self) -> &BlockSet {
        &self.open
    }

    /// The golden ones among them.
    pub(crate) const fn gold(&self) -> &BlockSet {
        &self.gold
    }

    /// Whether a block of that metal may be asked for.
    pub(crate) fn wants(&self, block: BlockId, metal: Metal) -> bool {
        match metal {
            Metal::Gold => self.gold.contains(block),
            Metal::Any => self.open.contains(block),
        }
    }

    /// The block is here, or is asked for.
    pub(crate) fn close(&mut self, block: BlockId) {
        let was_open = self.open.remove(block);
        let was_golden = self.gold.remove(block);
        debug_assert!(was_open || !was_golden, "{block} is golden and not open");
        self.check();
    }

    /// A block that was asked for will not come.
    pub(crate) fn reopen(&mut self, block: BlockId, golden: bool) {
        debug_assert!(!self.gold.contains(block), "it was closed");
        let closed = self.open.insert(block);
        debug_assert!(closed, "{block} was not asked for");
        if golden {
            self.gold.insert(block);
        }
        self.check();
    }

    /// Turns a block to gold if it is open; says whether it was open and silver.
    pub(crate) fn gild(&mut self, block: BlockId) -> bool {
        let turned = self.open.contains(block) && self.gold.insert(block);
        self.check();
        turned
    }

    /// Turns a block to silver; says whether it was golden.
    pub(crate) fn devalue(&mut self, block: BlockId) -> bool {
        self.gold.remove(block)
    }

    /// Turns the first half of the golden blocks, rounded up, to silver and returns them.
    pub(crate) fn devalue_first_half(&mut self) -> BlockSet {
        let mut given = BlockSet::new(self.gold.len());
        let half = self.gold.count().div_ceil(2) as usize;
        self.gold.iter().take(half).for_each(|block| {
            given.insert(block);
        });
        self.gold.subtract(&given);
        debug_assert_eq!(given.count() as usize, half);
        debug_assert!(self.gold.count() <= given.count());
        debug_assert!(given.count() - self.gold.count() <= 1, "not a half");
        debug_assert!(given.is_subset(&self.open), "what is given away is open");
        given
    }

    /// Takes a random block that a peer offers, and closes it.
    pub(crate) fn take(
        &mut self,
        offers: &mut Offers,
        metal: Metal,
        mut random: impl FnMut() -> u32,
    ) -> Option<BlockId> {
        self.check();
        let Offers { first, rest } = offers;
        for list in [first, rest] {
            while !list.is_empty() {
                let block = list.swap_remove(random() as usize % list.len());
                if self.wants(block, metal) {
                    self.close(block);
                    return Some(block);
                }
            }
        }
        None
    }
}

impl Offers {
    /// Notes that the peer has the block; blocks that are `preferred` are asked for first.
    ///
    /// The caller says it of blocks that may be asked for. The lists are cleared of others when
    /// they have grown to more than twice all blocks.
    pub(crate) fn add(&mut self, block: BlockId, preferred: bool, interest: &Interest) {
        debug_assert!(interest.open.contains(block));
        let list = if preferred {
            &mut self.first
        } else {
            &mut self.rest
        };
        if list.len() >= 2 * interest.open.len() as usize {
            list.retain(|block| interest.open.contains(*block));
            list.sort_unstable();
            list.dedup();
        }
        list.push(block);
        debug_assert!(list.len() <= 2 * interest.open.len() as usize);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const BLOCKS: u32 = 40;

    #[derive(Clone, Debug)]
    enum Step {
        Tell(usize, BlockId),
        Take(usize, u32),
        Reopen(BlockId, bool),
        Arrive(BlockId),
        Gild(BlockId),
        Devalue(BlockId),
        GiveHalf,
    }

    fn step() -> impl Strategy<Value = Step> {
        let block = 0..BLOCKS;
        prop_oneof![
            4 => (0_usize..3, block.clone()).prop_map(|(peer, block)| Step::Tell(peer, block)),
            4 => (0_usize..3, any::<u32>()).prop_map(|(peer, random)| Step::Take(peer, random)),
            1 => (block.clone(), any::<bool>()).prop_map(|(block, gold)| Step::Reopen(block, gold)),
            1 => block.clone().prop_map(Step::Arrive),
            2 => block.clone().prop_map(Step::Gild),
            1 => block.prop_map(Step::Devalue),
            1 => Just(Step::GiveHalf),
        ]
    }

    /// The same by sets: what each peer has, what is open, what is golden, what is asked for.
    #[derive(Default)]
    struct Model {
        theirs: [BTreeSet<BlockId>; 3],
        open: BTreeSet<BlockId>,
        gold: BTreeSet<BlockId>,
        asked: BTreeSet<BlockId>,
    }

    const METALS: [Metal; 3] = [Metal::Any, Metal::Gold, Metal::Gold];

    fn offer_again(model: &Model, interest: &Interest, offers: &mut [Offers; 3], block: BlockId) {
        for peer in 0..3 {
            if model.theirs[peer].contains(&block) && interest.wants(block, METALS[peer]) {
                offers[peer].add(block, block < 10, interest);
            }
        }
    }

    proptest! {
        #[test]
        fn metals_and_offers_are_as_sets_would_have_them(steps in prop::collection::vec(step(), 1..300)) {
            let mut interest = Interest::new(&BlockSet::new(BLOCKS));
            let mut offers = [Offers::default(), Offers::default(), Offers::default()];
            let mut model = Model { open: (0..BLOCKS).collect(), ..Model::default() };
            for step in steps {
                match step {
                    Step::Tell(peer, block) => {
                        if model.theirs[peer].insert(block) && interest.wants(block, METALS[peer]) {
                            offers[peer].add(block, block < 10, &interest);
                        }
                    }
                    Step::Take(peer, random) => {
                        let golden = METALS[peer] == Metal::Gold;
                        let may: BTreeSet<BlockId> = model.theirs[peer]
                            .iter()
                            .copied()
                            .filter(|b| if golden { model.gold.contains(b) } else { model.open.contains(b) })
                            .collect();
                        let taken = interest.take(&mut offers[peer], METALS[peer], || random);
                        match taken {
                            None => prop_assert!(may.is_empty(), "{may:?} were on offer"),
                            Some(block) => {
                                prop_assert!(may.contains(&block));
                                let preferred = may.iter().any(|b| *b < 10);
                                prop_assert_eq!(preferred, block < 10);
                                model.open.remove(&block);
                                model.gold.remove(&block);
                                prop_assert!(model.asked.insert(block), "asked for twice");
                            }
                        }
                    }
                    Step::Reopen(block, golden) => {
                        if model.asked.remove(&block) {
                            interest.reopen(block, golden);
                            model.open.insert(block);
                            if golden {
                                model.gold.insert(block);
                            }
                            offer_again(&model, &interest, &mut offers, block);
                        }
                    }
                    Step::Arrive(block) => {
                        interest.close(block);
                        model.open.remove(&block);
                        model.gold.remove(&block);
                    }
                    Step::Gild(block) => {
                        let turned = interest.gild(block);
                        prop_assert_eq!(
                            turned,
                            model.open.contains(&block) && model.gold.insert(block)
                        );
                        if turned {
                            offer_again(&model, &interest, &mut offers, block);
                        }
                    }
                    Step::Devalue(block) => {
                        prop_assert_eq!(interest.devalue(block), model.gold.remove(&block));
                    }
                    Step::GiveHalf => {
                        let half = model.gold.len().div_ceil(2);
                        let first: Vec<BlockId> = model.gold.iter().copied().take(half).collect();
                        let given = interest.devalue_first_half();
                        prop_assert_eq!(given.iter().collect::<Vec<_>>(), first.clone());
                        first.iter().for_each(|block| {
                            model.gold.remove(block);
                        });
                    }
                }
                prop_assert!(interest.open().iter().eq(model.open.iter().copied()));
                prop_assert!(interest.gold().iter().eq(model.gold.iter().copied()));
                for list in offers.iter().flat_map(|o| [&o.first, &o.rest]) {
                    prop_assert!(list.len() <= 2 * BLOCKS as usize);
                }
            }
        }
    }

    #[test]
    fn every_offer_is_as_likely_as_the_others() {
        let mut counts = [0_u32; 4];
        let mut random = 12345_u32;
        for _ in 0..4000 {
            let mut interest = Interest::new(&BlockSet::new(4));
            let mut offers = Offers::default();
            (0..4).for_each(|block| offers.add(block, false, &interest));
            let block = interest
                .take(&mut offers, Metal::Any, || {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    random >> 8
                })
                .unwrap();
            counts[block as usize] += 1;
        }
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
    }
}
