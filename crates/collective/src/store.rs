//! What operations move, in memory: blocks that are verified as they come.
//!
//! All operations share one transfer of the session, whose block numbers they divide: each track has a
//! span of them, and each operation on it the next ones there, all around and from the beginning
//! again. Members begin the same operations in the same order, so they agree on the numbers. No
//! number is used again for so long that neither a block under way nor the session's cache of blocks
//! can be of another operation than it seems.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use outpour_core::{BlockId, BlockSet, NodeId};
use outpour_net::{Accept, BlockIo};

use crate::BYTES_MAX;
use crate::wire::Stripe;

/// How many tracks there may be.
pub(crate) const TRACKS_MAX: usize = 512;
/// How many blocks an operation may have: an eighth of the span of the narrowest track.
const BLOCKS_MAX: usize = 1 << 20;
/// How many operations of a track are known, so that a latecomer is known for what it is.
const RECENT_MAX: usize = 32;

/// Least and most bytes of a block.
const BLOCK_MIN: usize = 16 << 10;
const BLOCK_MAX: usize = 1 << 20;
/// About how many blocks a stripe has while their size can be chosen freely.
const BLOCKS_AIM: usize = 64;

/// The blocks of what a member gives, and what it tells the others of them.
pub(crate) fn cut(data: &[u8]) -> (Stripe, Vec<Box<[u8]>>) {
    let block_bytes = (data.len() / BLOCKS_AIM)
        .next_power_of_two()
        .clamp(BLOCK_MIN, BLOCK_MAX);
    let blocks: Vec<Box<[u8]>> = data.chunks(block_bytes).map(Box::from).collect();
    let stripe = Stripe {
        bytes: data.len() as u64,
        block_bytes: block_bytes as u32,
        hashes: blocks
            .iter()
            .map(|block| *blake3::hash(block).as_bytes())
            .collect(),
    };
    (stripe, blocks)
}

/// Whether a stripe that a member announced is one at all.
pub(crate) fn is_sound(stripe: &Stripe) -> bool {
    let block_bytes = stripe.block_bytes as usize;
    (BLOCK_MIN..=BLOCK_MAX).contains(&block_bytes)
        && block_bytes.is_power_of_two()
        && stripe.bytes <= BYTES_MAX as u64
        && stripe.hashes.len() as u64 == stripe.bytes.div_ceil(u64::from(stripe.block_bytes))
}

/// Where the blocks of an operation belong: the stripes of its owners, one after the other.
struct Layout {
    owners: Vec<(NodeId, Stripe)>,
    /// The first block of each stripe, and the number of blocks at the end.
    first: Vec<u32>,
}

impl Layout {
    /// How many blocks there are.
    fn blocks(&self) -> u32 {
        self.first.last().copied().unwrap_or_default()
    }

    /// The stripe that a block is of, and its number there.
    fn stripe_of(&self, block: BlockId) -> Option<(&Stripe, u32)> {
        if block >= self.blocks() {
            return None;
        }
        let index = self.first.partition_point(|first| *first <= block) - 1;
        Some((&self.owners[index].1, block - self.first[index]))
    }

    fn block_len(&self, block: BlockId) -> Option<u32> {
        let (stripe, number) = self.stripe_of(block)?;
        let before = u64::from(number) * u64::from(stripe.block_bytes);
        Some((stripe.bytes - before).min(u64::from(stripe.block_bytes)) as u32)
    }
}

/// One operation's blocks.
pub(crate) struct Store {
    layout: Arc<Layout>,
    blocks: Vec<OnceLock<Box<[u8]>>>,
}

impl Store {
    /// A store of these stripes; `None` if they have too many blocks together.
    pub(crate) fn new(owners: Vec<(NodeId, Stripe)>) -> Option<Self> {
        let mut first = vec![0];
        let mut count = 0_usize;
        for (_, stripe) in &owners {
            count += stripe.hashes.len();
            first.push(u32::try_from(count).ok()?);
        }
        (count <= BLOCKS_MAX).then(|| Self {
            layout: Arc::new(Layout { owners, first }),
            blocks: (0..count).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Puts in what this member owns.
    pub(crate) fn fill(&self, owner: NodeId, data: Vec<Box<[u8]>>) {
        let owners = &self.layout.owners;
        if let Some(index) = owners.iter().position(|(node, _)| *node == owner) {
            let blocks = self.blocks.iter().skip(self.layout.first[index] as usize);
            for (block, data) in blocks.zip(data) {
                let _ = block.set(data);
            }
        }
    }

    /// The blocks that are here.
    pub(crate) fn have(&self) -> BlockSet {
        let mut have = BlockSet::new(self.layout.blocks());
        for block in (0..self.layout.blocks()).filter(|block| self.has(*block)) {
            have.insert(block);
        }
        have
    }

    /// The length of the largest full block.
    pub(crate) fn block_bytes(&self) -> u32 {
        let sizes = self
            .layout
            .owners
            .iter()
            .map(|(_, stripe)| stripe.block_bytes);
        sizes.max().unwrap_or(BLOCK_MIN as u32)
    }

    /// What each owner gave, if all of it is here.
    pub(crate) fn collect(&self) -> Option<Vec<(NodeId, Vec<u8>)>> {
        let Layout { owners, first } = &*self.layout;
        let each = owners
            .iter()
            .zip(first.windows(2))
            .map(|((node, stripe), range)| {
                let mut data = Vec::with_capacity(stripe.bytes as usize);
                for block in range[0]..range[1] {
                    data.extend_from_slice(self.blocks[block as usize].get()?);
                }
                Some((*node, data))
            });
        each.collect()
    }

    fn has(&self, block: BlockId) -> bool {
        self.blocks
            .get(block as usize)
            .is_some_and(|block| block.get().is_some())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        let Some((stripe, number)) = self.layout.stripe_of(block) else {
            return Accept::Wrong;
        };
        if *blake3::hash(data).as_bytes() != stripe.hashes[number as usize] {
            return Accept::Wrong;
        }
        match self.blocks[block as usize].set(data.into()) {
            Ok(()) => Accept::Stored,
            Err(_) => Accept::Duplicate,
        }
    }
}

/// An operation that may be spoken of.
struct Held {
    operation: u32,
    /// The number on the session of its first block, within the track's span.
    base: u32,
    layout: Arc<Layout>,
    /// Its blocks; `None` when no member needs them any more.
    store: Option<Arc<Store>>,
}

/// The recent operations of one track.
#[derive(Default)]
struct Track {
    held: VecDeque<Held>,
    /// Where the next operation's numbers begin.
    next: u32,
}

/// The stores of all tracks, as the session sees them.
pub(crate) struct Stores {
    /// A track has two to the power of so many numbers.
    span_bits: u32,
    tracks: RwLock<Vec<Track>>,
}

impl Stores {
    /// For so many tracks.
    pub(crate) fn new(tracks: usize) -> Self {
        let tracks = tracks.clamp(1, TRACKS_MAX);
        Self {
            span_bits: 32 - tracks.next_power_of_two().trailing_zeros().max(1),
            tracks: RwLock::new((0..tracks).map(|_| Track::default()).collect()),
        }
    }

    const fn mask(&self) -> u32 {
        (1 << self.span_bits) - 1
    }

    /// Adds the next operation of a track.
    pub(crate) fn put(&self, track: u16, operation: u32, store: Arc<Store>) {
        let mut tracks = self.tracks.write().unwrap_or_else(PoisonError::into_inner);
        let Some(track) = tracks.get_mut(usize::from(track)) else {
            return;
        };
        let layout = store.layout.clone();
        let (base, blocks) = (track.next, layout.blocks());
        track.next = base.wrapping_add(blocks) & self.mask();
        track.held.push_back(Held {
            operation,
            base,
            layout,
            store: Some(store),
        });
        if track.held.len() > RECENT_MAX {
            track.held.pop_front();
        }
    }

    /// Lets go of the blocks of an operation and of those before it.
    pub(crate) fn drop_until(&self, track: u16, operation: u32) {
        let mut tracks = self.tracks.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(track) = tracks.get_mut(usize::from(track)) {
            let old = track
                .held
                .iter_mut()
                .filter(|held| held.operation <= operation);
            old.for_each(|held| held.store = None);
        }
    }

    /// The store of an operation.
    pub(crate) fn store(&self, track: u16, operation: u32) -> Option<Arc<Store>> {
        let tracks = self.tracks.read().unwrap_or_else(PoisonError::into_inner);
        let track = tracks.get(usize::from(track))?;
        track
            .held
            .iter()
            .find(|held| held.operation == operation)?
            .store
            .clone()
    }

    /// The number on the session of an operation's block.
    pub(crate) fn on_session(&self, track: u16, operation: u32, block: BlockId) -> Option<BlockId> {
        let tracks = self.tracks.read().unwrap_or_else(PoisonError::into_inner);
        let held = &tracks.get(usize::from(track))?.held;
        let held = held.iter().find(|held| held.operation == operation)?;
        let number = held.base.wrapping_add(block) & self.mask();
        Some(u32::from(track) << self.span_bits | number)
    }

    /// Track, operation and block of a number on the session, if it is of a recent operation.
    pub(crate) fn place_of(&self, number: BlockId) -> Option<(u16, u32, BlockId)> {
        let track = (number >> self.span_bits) as u16;
        self.look(number, |held, block| (track, held.operation, block))
    }

    fn look<T>(&self, number: BlockId, look: impl FnOnce(&Held, BlockId) -> T) -> Option<T> {
        let tracks = self.tracks.read().unwrap_or_else(PoisonError::into_inner);
        let track = tracks.get((number >> self.span_bits) as usize)?;
        let place = |held: &Held| number.wrapping_sub(held.base) & self.mask();
        let held = track
            .held
            .iter()
            .rev()
            .find(|held| place(held) < held.layout.blocks())?;
        Some(look(held, place(held)))
    }

    fn live(&self, number: BlockId) -> Option<(Arc<Store>, BlockId)> {
        self.look(number, |held, block| Some((held.store.clone()?, block)))
            .flatten()
    }
}

impl BlockIo for Stores {
    fn block_len(&self, block: BlockId) -> Option<u32> {
        self.look(block, |held, block| held.layout.block_len(block))
            .flatten()
    }

    fn has(&self, block: BlockId) -> bool {
        // What no member needs any more counts as here.
        let has = |held: &Held, block| held.store.as_ref().is_none_or(|store| store.has(block));
        self.look(block, has).unwrap_or(false)
    }

    fn read(&self, block: BlockId, buf: &mut Vec<u8>) -> io::Result<()> {
        let gone = || io::Error::other("a block that is not here");
        let (store, block) = self.live(block).ok_or_else(gone)?;
        let data = store
            .blocks
            .get(block as usize)
            .and_then(OnceLock::get)
            .ok_or_else(gone)?;
        buf.clear();
        buf.extend_from_slice(data);
        Ok(())
    }

    fn accept(&self, block: BlockId, data: &[u8]) -> Accept {
        match self.live(block) {
            Some((store, block)) => store.accept(block, data),
            None => Accept::Duplicate,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn store(owners: &[(u32, &[u8])]) -> Arc<Store> {
        let stripes = owners
            .iter()
            .map(|(node, data)| (NodeId(*node), cut(data).0));
        Arc::new(Store::new(stripes.collect()).unwrap())
    }

    #[test]
    fn blocks_come_together_in_any_order_and_only_if_they_are_right() {
        let (a, b) = (vec![1; 100_000], vec![2; 20_000]);
        let stores = Stores::new(3);
        stores.put(1, 0, store(&[(4, &a), (7, &b), (9, &[])]));
        let blocks: Vec<Box<[u8]>> = cut(&a).1.into_iter().chain(cut(&b).1).collect();
        assert_eq!(blocks.len(), 9);
        for (block, data) in blocks.iter().enumerate().rev() {
            let number = stores.on_session(1, 0, block as u32).unwrap();
            assert_eq!(stores.place_of(number), Some((1, 0, block as u32)));
            assert_eq!(stores.block_len(number), Some(data.len() as u32));
            assert!(!stores.has(number));
            assert_eq!(stores.accept(number, &vec![3; data.len()]), Accept::Wrong);
            assert_eq!(stores.accept(number, data), Accept::Stored);
            assert_eq!(stores.accept(number, data), Accept::Duplicate);
            let mut read = Vec::new();
            stores.read(number, &mut read).unwrap();
            assert_eq!(read, data.to_vec());
        }
        let whole = stores.store(1, 0).unwrap().collect().unwrap();
        assert_eq!(
            whole,
            [(NodeId(4), a), (NodeId(7), b), (NodeId(9), Vec::new())]
        );
    }

    #[test]
    fn numbers_go_around_and_old_operations_are_forgotten() {
        let stores = Stores::new(2);
        let data = vec![5; 40_000];
        stores.tracks.write().unwrap()[1].next = stores.mask() - 1;
        for operation in 0..40 {
            stores.put(1, operation, store(&[(0, &data)]));
            for block in 0..3 {
                let number = stores.on_session(1, operation, block).unwrap();
                assert_eq!(stores.place_of(number), Some((1, operation, block)));
            }
        }
        assert_eq!(stores.on_session(1, 7, 0), None);
        assert!(stores.on_session(1, 8, 0).is_some());
        assert_eq!(stores.on_session(0, 0, 0), None);
        let old = stores.on_session(1, 9, 0).unwrap();
        stores.drop_until(1, 9);
        assert!(stores.has(old) && stores.block_len(old).is_some());
        assert_eq!(stores.accept(old, &[]), Accept::Duplicate);
        assert!(stores.read(old, &mut Vec::new()).is_err());
        assert!(stores.store(1, 10).is_some() && stores.store(1, 9).is_none());
    }

    #[test]
    fn a_stripe_that_contradicts_itself_is_none() {
        let (stripe, _) = cut(&[0; 50_000]);
        assert!(is_sound(&stripe));
        let change = |change: fn(&mut Stripe)| {
            let mut stripe = stripe.clone();
            change(&mut stripe);
            is_sound(&stripe)
        };
        assert!(!change(|stripe| stripe.hashes.truncate(1)));
        assert!(!change(|stripe| stripe.bytes = u64::MAX));
        assert!(!change(|stripe| stripe.block_bytes = 0));
        assert!(!change(|stripe| stripe.block_bytes += 1));
    }
}
