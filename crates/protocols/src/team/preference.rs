//! Which of the blocks that a peer has a node asks for before the others.
//!
//! Blocks are drawn at random ([Burger §4.5.3]), each node's own order being as likely as any
//! other. What nodes that ask the same peer draw is not left to chance, though: they begin in
//! different parts of the object, so that the peer gives them different blocks, which they can
//! exchange. Drawn independently, the last blocks of each piece of work would leave the peer once
//! for every cluster.
//!
//! - At home a node begins with its share, because all nodes of a source's cluster begin at the
//!   source.
//! - Abroad it begins with the part of its cluster: each block is in the part of one of the
//!   clusters that fetch, at random.

use std::ops::Range;

use outpour_core::BlockId;

/// What one node asks for first.
#[derive(Debug)]
pub(super) struct Preference {
    pub(super) share: Range<BlockId>,
    /// The place of the node's cluster among those that fetch.
    pub(super) part: u64,
    /// How many clusters fetch.
    pub(super) parts: u64,
    pub(super) seed: u64,
}

impl Preference {
    /// Whether a block is asked for before others, of a peer of the same cluster or of another.
    pub(super) fn prefers(&self, block: BlockId, local: bool) -> bool {
        debug_assert!(self.part <= self.parts);
        if local {
            self.share.contains(&block)
        } else {
            lot(self.seed, block) % self.parts.max(1) == self.part
        }
    }
}

/// A number that every node draws alike for a block (the finalizer of splitmix64).
const fn lot(seed: u64, block: BlockId) -> u64 {
    let mut lot = (seed ^ block as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    lot = (lot ^ lot >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    lot = (lot ^ lot >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    lot ^ lot >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 3000;
    const PARTS: u64 = 3;

    fn of_cluster(part: u64, seed: u64) -> Preference {
        Preference {
            share: 100..200,
            part,
            parts: PARTS,
            seed,
        }
    }

    #[test]
    fn each_block_is_in_one_part_and_parts_are_alike() {
        for seed in [0, 1, u64::MAX] {
            let clusters = [0, 1, 2].map(|part| of_cluster(part, seed));
            let mut sizes = [0_u32; 3];
            for block in 0..BLOCKS {
                let of = clusters.each_ref().map(|c| c.prefers(block, false));
                assert_eq!(of.iter().filter(|mine| **mine).count(), 1);
                for (size, mine) in sizes.iter_mut().zip(of) {
                    *size += u32::from(mine);
                }
            }
            assert!(sizes.iter().all(|n| (900..1100).contains(n)), "{sizes:?}");
        }
    }

    #[test]
    fn other_seeds_draw_other_parts() {
        let (one, other) = (of_cluster(0, 1), of_cluster(0, 2));
        let both = |block: &u32| one.prefers(*block, false) && other.prefers(*block, false);
        let alike = (0..BLOCKS).filter(both).count();
        assert!((270..400).contains(&alike), "{alike}");
    }

    #[test]
    fn at_home_the_share_comes_first() {
        let node = of_cluster(0, 1);
        let first: Vec<u32> = (0..BLOCKS)
            .filter(|block| node.prefers(*block, true))
            .collect();
        assert!(first.into_iter().eq(100..200));
    }
}
