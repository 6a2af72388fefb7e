//! Sets of blocks against plain ones, at every place where words, chunks and objects end.

use std::collections::BTreeSet;

use super::*;

/// A set of blocks, and what should be in it.
#[derive(Clone)]
struct Pair {
    set: BlockSet,
    plain: BTreeSet<BlockId>,
}

impl Pair {
    fn new(len: u32) -> Self {
        let (set, plain) = (BlockSet::new(len), BTreeSet::new());
        Self { set, plain }
    }

    fn put(&mut self, range: Range<BlockId>, present: bool) {
        if present {
            self.set.insert_range(range.clone());
            self.plain.extend(range);
        } else {
            self.set.remove_range(range.clone());
            self.plain.retain(|block| !range.contains(block));
        }
    }

    /// Whatever can be asked of the set is what the plain one says; block by block in `window`.
    #[track_caller]
    fn check(&self, window: Range<BlockId>) {
        let Self { set, plain } = self;
        let len = set.len();
        assert_eq!(set.count() as usize, plain.len());
        assert_eq!(set.missing() as usize, len as usize - plain.len());
        assert_eq!(set.is_empty(), plain.is_empty());
        assert_eq!(set.is_full(), plain.len() == len as usize);
        assert!(set.iter().eq(plain.iter().copied()));
        let mut runs: Vec<Range<BlockId>> = Vec::new();
        for block in plain {
            match runs.last_mut() {
                Some(run) if run.end == *block => run.end += 1,
                _ => runs.push(*block..block + 1),
            }
        }
        assert!(set.ranges().eq(runs));
        for block in window.clone() {
            assert_eq!(set.contains(block), plain.contains(&block), "{block}");
            let next = plain.range(block..).next().copied();
            assert_eq!(set.next_present(block), next, "from {block}");
            let absent = (block..len).find(|block| !plain.contains(block));
            assert_eq!(set.next_absent(block), absent, "from {block}");
        }
        for index in window.start / WORD..window.end.div_ceil(WORD) + 1 {
            let bits = (0..WORD).filter(|bit| plain.contains(&(index * WORD + bit)));
            let word = bits.fold(0, |word, bit| word | 1 << bit);
            assert_eq!(set.word(index as usize), word, "word {index}");
            if let Some(words) = set.as_words().filter(|words| words.len() > index as usize) {
                assert_eq!(words[index as usize], word, "word {index}");
            }
        }
    }

    /// Both forms that a set may take on the wire are read as that set.
    #[track_caller]
    fn check_wire(&self) {
        let len = self.set.len();
        let mut words = vec![0_u64; len.div_ceil(WORD) as usize];
        for block in &self.plain {
            words[(block / WORD) as usize] |= 1 << (block % WORD);
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for wire in [WireBlocks::Bitmap(bytes), self.set.to_wire()] {
            assert_eq!(BlockSet::from_wire(&wire, len), Some(self.set.clone()));
        }
    }
}

/// Places next to which something may go wrong, of an object of so many blocks.
fn edges(len: u32) -> Vec<u32> {
    let near = [0, 1, 31, 62, 63, 64, 65, 127, 128, 129, 191, 192, len - 1];
    let mut edges: Vec<u32> = near.into_iter().filter(|at| *at < len).collect();
    edges.push(len);
    edges.dedup();
    edges
}

/// Ranges from each place to each that is not before it.
fn ranges(edges: &[u32]) -> impl Iterator<Item = Range<u32>> + '_ {
    let all = edges.iter().enumerate();
    all.flat_map(|(at, start)| edges[at..].iter().map(move |end| *start..*end))
}

#[test]
fn ranges_begin_and_end_anywhere_in_words() {
    for len in [1, 63, 64, 65, 127, 128, 129, 200] {
        let (mut striped, empty) = (Pair::new(len), Pair::new(len));
        (0..len)
            .step_by(3)
            .for_each(|at| striped.put(at..at + 1, true));
        let mut full = Pair::new(len);
        full.put(0..len, true);
        assert_eq!(full.set, BlockSet::full(len));
        for range in ranges(&edges(len)) {
            for from in [&empty, &striped, &full] {
                for present in [true, false] {
                    let mut pair = from.clone();
                    pair.put(range.clone(), present);
                    pair.check(0..len + 70);
                    pair.check_wire();
                    let same = pair.plain == from.plain;
                    assert_eq!(pair.set == from.set, same, "{range:?} of {len}");
                }
            }
        }
    }
}

#[test]
fn a_range_is_there_if_each_of_its_blocks_is() {
    let len = 200;
    for hole in edges(len).into_iter().filter(|hole| *hole < len) {
        let mut set = BlockSet::full(len);
        set.remove(hole);
        for range in ranges(&edges(len)) {
            let whole = !range.contains(&hole);
            assert_eq!(
                set.contains_range(range.clone()),
                whole,
                "{range:?} without {hole}"
            );
        }
    }
    let full = BlockSet::full(len);
    assert!(!full.contains_range(190..len + 1));
    assert!(!full.contains_range(len..len + 1));
    assert!(full.contains_range(len..len));
}

/// Objects so large that sets of their blocks are kept in chunks, of runs or of bits.
#[test]
fn ranges_begin_and_end_anywhere_in_chunks() {
    const CHUNK: u32 = 1 << 16;
    let len = DENSE_MAX + CHUNK + 130;
    // Runs that are too many for a list, on both sides of the end of a chunk.
    let mut pieces = Pair::new(len);
    (CHUNK - 1800..CHUNK + 1800)
        .step_by(3)
        .for_each(|at| pieces.put(at..at + 2, true));
    let runs = Pair::new(len);
    let near = |at: u32| [at - 65, at - 64, at - 1, at, at + 1, at + 63];
    let within = [
        near(CHUNK).to_vec(),
        vec![len - 131, len - 130, len - 1, len],
    ];
    for (edges, window) in within
        .iter()
        .zip([CHUNK - 150..CHUNK + 150, len - 200..len + 70])
    {
        for range in ranges(edges) {
            for from in [&runs, &pieces] {
                for present in [true, false] {
                    let mut pair = from.clone();
                    // What is taken out was there, all of it.
                    let around = range.start.saturating_sub(2)..(range.end + 2).min(len);
                    pair.put(around, !present);
                    pair.put(range.clone(), present);
                    pair.check(window.clone());
                    assert_eq!(
                        pair.set.contains_range(range.clone()),
                        present || range.is_empty()
                    );
                }
            }
        }
    }
    pieces.check_wire();
    runs.check_wire();
}

#[test]
fn sets_are_combined_block_by_block() {
    for len in [1, 64, 65, 200, DENSE_MAX + 66] {
        let mut sets: Vec<Pair> = Vec::new();
        for (first, step, run) in [
            (0, 1, 1),
            (0, 2, 1),
            (1, 3, 2),
            (len / 2, 70, 64),
            (len - 1, 1, 1),
        ] {
            let mut pair = Pair::new(len);
            let starts = (first..len.min(first + 900)).step_by(step);
            starts.for_each(|at| pair.put(at..(at + run).min(len), true));
            sets.push(pair);
        }
        sets.push(Pair::new(len));
        for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
            let combine = |op: fn(&mut BlockSet, &BlockSet), plain: BTreeSet<BlockId>| {
                let mut set = a.set.clone();
                op(&mut set, &b.set);
                Pair { set, plain }.check(0..200.min(len));
            };
            combine(BlockSet::union, &a.plain | &b.plain);
            combine(BlockSet::subtract, &a.plain - &b.plain);
            combine(BlockSet::intersect, &a.plain & &b.plain);
            assert_eq!(a.set.is_subset(&b.set), a.plain.is_subset(&b.plain));
        }
    }
}

#[test]
fn chunks_of_bits_become_full_and_empty() {
    const CHUNK: u32 = 1 << 16;
    let len = DENSE_MAX + 2 * CHUNK;
    let mut pieces = Pair::new(len);
    (0..2000)
        .step_by(3)
        .for_each(|at| pieces.put(at..at + 2, true));
    let window = CHUNK - 100..CHUNK + 100;
    for (range, present) in [
        (0..CHUNK, true),
        (0..CHUNK, false),
        (0..1000, false),
        (1..CHUNK, true),
        (0..CHUNK - 1, true),
    ] {
        let mut pair = pieces.clone();
        pair.put(range, present);
        pair.check(0..100);
        pair.check(window.clone());
        // Counted anew.
        let mut same = pair.clone();
        same.set.union(&BlockSet::new(len));
        same.check(window.clone());
        assert_eq!(same.set, pair.set);
    }
    // One that lost two at once and got all but one is not full.
    pieces.put(0..2, false);
    pieces.put(0..CHUNK - 1, true);
    pieces.check(window);
}

#[test]
fn what_is_past_the_last_block_is_not_taken_out() {
    for len in [64, 65, 128, DENSE_MAX + (1 << 16)] {
        let mut set = BlockSet::full(len);
        assert!(!set.remove(len) && !set.remove(len + 1) && set.is_full());
        assert!(set.remove(len - 1) && !set.is_full());
    }
}
