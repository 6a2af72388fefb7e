//! Chunks of 65,536 blocks, each a list of runs while these are few, and else a bit for each block:
//! what a node has of a large object is mostly runs, and mostly in a few places not.

use std::ops::Range;

use super::{BlockId, WORD};

/// Blocks of a chunk.
const CHUNK: u32 = 1 << 16;
/// Words of its bits.
const WORDS: usize = (CHUNK / WORD) as usize;
/// A chunk with more runs has bits, which take as much memory as eight times so many.
const RUNS_MAX: usize = 256;

type Bits = [u64; WORDS];

/// Chunk after chunk; blocks past the last of the object are absent.
#[derive(Clone)]
pub(super) struct Chunked {
    chunks: Vec<Chunk>,
}

#[derive(Clone)]
enum Chunk {
    /// First and last block of each run, in order, with a gap between any two.
    Runs(Vec<(u16, u16)>),
    Bits {
        bits: Box<Bits>,
        count: u32,
    },
}

impl Chunked {
    pub(super) fn new(len: u32) -> Self {
        Self {
            chunks: vec![Chunk::Runs(Vec::new()); len.div_ceil(CHUNK) as usize],
        }
    }

    /// A set of these words, all there are.
    pub(super) fn from_words(words: &[u64]) -> Self {
        let chunks = words.chunks(WORDS).map(|words| {
            let mut bits = Box::new([0; WORDS]);
            bits[..words.len()].copy_from_slice(words);
            Chunk::from_bits(bits)
        });
        Self {
            chunks: chunks.collect(),
        }
    }

    pub(super) fn word(&self, index: usize) -> u64 {
        let chunk = self.chunks.get(index / WORDS);
        chunk.map_or(0, |chunk| chunk.word(index % WORDS))
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        let chunk = self.chunks.get((block / CHUNK) as usize);
        chunk.is_some_and(|chunk| chunk.contains(block as u16))
    }

    /// Adds a block or takes it out; whether that changed anything. It has to be in range.
    pub(super) fn set(&mut self, block: BlockId, present: bool) -> bool {
        let within = block as u16;
        self.chunks[(block / CHUNK) as usize].set(within, within, present) > 0
    }

    /// Adds all of a range or takes it out; how many blocks changed.
    pub(super) fn set_range(&mut self, range: Range<BlockId>, present: bool) -> u32 {
        let (mut at, mut changed) = (range.start, 0);
        while at < range.end {
            let last = (at | (CHUNK - 1)).min(range.end - 1);
            let chunk = &mut self.chunks[(at / CHUNK) as usize];
            changed += chunk.set(at as u16, last as u16, present);
            at = last.saturating_add(1);
        }
        changed
    }

    /// Combines each word with that of a set of the same object; how many blocks there are then.
    pub(super) fn combine(&mut self, other: &Self, op: impl Fn(u64, u64) -> u64) -> u32 {
        debug_assert_eq!(self.chunks.len(), other.chunks.len());
        let mut count = 0;
        for (a, b) in self.chunks.iter_mut().zip(&other.chunks) {
            let mut bits = a.to_bits();
            let theirs = b.to_bits();
            for (a, b) in bits.iter_mut().zip(theirs.iter()) {
                *a = op(*a, *b);
            }
            *a = Chunk::from_bits(bits);
            count += a.count();
        }
        count
    }

    /// The first block at or after `from` that is there, or is not; that may be past the last.
    pub(super) fn next(&self, from: BlockId, present: bool) -> Option<BlockId> {
        let mut within = from as u16;
        for (index, chunk) in self.chunks.iter().enumerate().skip((from / CHUNK) as usize) {
            if let Some(found) = chunk.next(within, present) {
                return Some(index as u32 * CHUNK + u32::from(found));
            }
            within = 0;
        }
        None
    }

    /// Bytes of memory that this takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let inner = self.chunks.iter().map(|chunk| match chunk {
            Chunk::Runs(runs) => runs.capacity() * size_of::<(u16, u16)>(),
            Chunk::Bits { .. } => size_of::<Bits>(),
        });
        self.chunks.capacity() * size_of::<Chunk>() + inner.sum::<usize>()
    }
}

impl Chunk {
    fn count(&self) -> u32 {
        match self {
            Self::Runs(runs) => runs.iter().map(|run| length(*run)).sum(),
            Self::Bits { count, .. } => *count,
        }
    }

    fn contains(&self, block: u16) -> bool {
        match self {
            Self::Runs(runs) => {
                let after = runs.partition_point(|(first, _)| *first <= block);
                after > 0 && runs[after - 1].1 >= block
            }
            Self::Bits { bits, .. } => {
                let block = u32::from(block);
                bits[(block / WORD) as usize] >> (block % WORD) & 1 == 1
            }
        }
    }

    fn word(&self, index: usize) -> u64 {
        match self {
            Self::Runs(runs) => {
                let first = index as u32 * WORD;
                let from = runs.partition_point(|(_, last)| u32::from(*last) < first);
                let mut word = 0;
                for run in &runs[from..] {
                    let (start, last) = (u32::from(run.0), u32::from(run.1));
                    if start >= first + WORD {
                        break;
                    }
                    let low = start.max(first) - first;
                    let high = last.min(first + WORD - 1) - first;
                    word |= (u64::MAX << low) & (u64::MAX >> (WORD - 1 - high));
                }
                word
            }
            Self::Bits { bits, .. } => bits[index],
        }
    }

    fn next(&self, from: u16, present: bool) -> Option<u16> {
        match self {
            Self::Runs(runs) => {
                // The first run that ends at or after that block.
                let at = runs.partition_point(|(_, last)| *last < from);
                let run = runs.get(at).copied();
                if present {
                    return run.map(|(first, _)| first.max(from));
                }
                match run {
                    Some((first, last)) if first <= from => last.checked_add(1),
                    _ => Some(from),
                }
            }
            Self::Bits { bits, .. } => {
                let flip = if present { 0 } else { u64::MAX };
                let from = u32::from(from);
                let mut mask = u64::MAX << (from % WORD);
                for (index, word) in bits.iter().enumerate().skip((from / WORD) as usize) {
                    let found = (word ^ flip) & mask;
                    if found != 0 {
                        return Some((index as u32 * WORD + found.trailing_zeros()) as u16);
                    }
                    mask = u64::MAX;
                }
                None
            }
        }
    }

    /// Adds the blocks from `first` to `last` or takes them out; how many changed.
    fn set(&mut self, first: u16, last: u16, present: bool) -> u32 {
        debug_assert!(first <= last);
        match self {
            Self::Runs(runs) => {
                let before: u32 = runs.iter().map(|run| length(*run)).sum();
                if present {
                    add(runs, first, last);
                } else {
                    cut(runs, first, last);
                }
                debug_assert!(
                    runs.windows(2)
                        .all(|two| two[0].1 < two[1].0.saturating_sub(1))
                );
                let after: u32 = runs.iter().map(|run| length(*run)).sum();
                if runs.len() > RUNS_MAX {
                    let (bits, count) = (self.to_bits(), after);
                    *self = Self::Bits { bits, count };
                }
                after.abs_diff(before)
            }
            Self::Bits { bits, count } => {
                let changed = set_bits(bits, first, last, present);
                if present {
                    *count += changed;
                } else {
                    *count -= changed;
                }
                match *count {
                    0 => *self = Self::Runs(Vec::new()),
                    CHUNK => *self = Self::Runs(vec![(0, u16::MAX)]),
                    _ => {}
                }
                changed
            }
        }
    }

    fn to_bits(&self) -> Box<Bits> {
        match self {
            Self::Runs(runs) => {
                let mut bits = Box::new([0; WORDS]);
                for (first, last) in runs {
                    set_bits(&mut bits, *first, *last, true);
                }
                bits
            }
            Self::Bits { bits, .. } => bits.clone(),
        }
    }

    /// The shorter form of these bits.
    fn from_bits(bits: Box<Bits>) -> Self {
        let count = bits.iter().map(|word| word.count_ones()).sum();
        let all = Self::Bits { bits, count };
        let (mut runs, mut at) = (Vec::new(), Some(0));
        while let Some(first) = at.and_then(|at| all.next(at, true)) {
            if runs.len() == RUNS_MAX {
                return all;
            }
            let end = all.next(first, false);
            runs.push((first, end.map_or(u16::MAX, |end| end - 1)));
            at = end;
        }
        Self::Runs(runs)
    }
}

const fn length((first, last): (u16, u16)) -> u32 {
    last as u32 - first as u32 + 1
}

/// Adds a run, in the place of all that it meets or touches.
fn add(runs: &mut Vec<(u16, u16)>, first: u16, last: u16) {
    let from = runs.partition_point(|run| u32::from(run.1) + 1 < u32::from(first));
    let to = runs.partition_point(|run| u32::from(run.0) <= u32::from(last) + 1);
    let mut merged = (first, last);
    if from < to {
        merged = (merged.0.min(runs[from].0), merged.1.max(runs[to - 1].1));
    }
    runs.splice(from..to, [merged]);
}

/// Takes out what lies between two blocks, both included.
fn cut(runs: &mut Vec<(u16, u16)>, first: u16, last: u16) {
    let from = runs.partition_point(|run| run.1 < first);
    let to = runs.partition_point(|run| run.0 <= last);
    if from >= to {
        return;
    }
    let left = (runs[from].0 < first).then(|| (runs[from].0, first - 1));
    let right = (runs[to - 1].1 > last).then(|| (last + 1, runs[to - 1].1));
    runs.splice(from..to, left.into_iter().chain(right));
}

fn set_bits(bits: &mut Bits, first: u16, last: u16, present: bool) -> u32 {
    let (mut at, end) = (u32::from(first), u32::from(last) + 1);
    let mut changed = 0;
    while at < end {
        let stop = ((at / WORD + 1) * WORD).min(end);
        let mask = (u64::MAX << (at % WORD)) & (u64::MAX >> (WORD - 1 - (stop - 1) % WORD));
        let word = &mut bits[(at / WORD) as usize];
        let after = if present { *word | mask } else { *word & !mask };
        changed += (*word ^ after).count_ones();
        *word = after;
        at = stop;
    }
    changed
}
