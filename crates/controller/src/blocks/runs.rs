//! A set of blocks as runs, for a few of many.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks as disjoint runs that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The end of the run that begins at the key.
    ends: BTreeMap<u32, u32>,
    blocks: u64,
}

impl Runs {
    /// How many blocks there are.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many runs they are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Whether a block is among them.
    pub fn contains(&self, block: u32) -> bool {
        self.run_at(block).is_some()
    }

    /// The run that a block is in.
    pub fn run_at(&self, block: u32) -> Option<Range<u32>> {
        let (first, end) = self.ends.range(..=block).next_back()?;
        (*end > block).then_some(*first..*end)
    }

    /// The runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.ends.iter().map(|(first, end)| *first..*end)
    }

    /// The first run of blocks from `from` up to `end` that are among them.
    pub fn next_present(&self, from: u32, end: u32) -> Option<Range<u32>> {
        let next = || {
            let (first, end) = self.ends.range(from..).next()?;
            Some(*first..*end)
        };
        let run = self.run_at(from).or_else(next)?;
        let run = run.start.max(from)..run.end.min(end);
        (run.start < run.end).then_some(run)
    }

    /// The runs within a range.
    pub(crate) fn within(&self, range: Range<u32>) -> Vec<Range<u32>> {
        let mut found = Vec::new();
        let mut at = range.start;
        while let Some(run) = self.next_present(at, range.end) {
            at = run.end;
            found.push(run);
        }
        found
    }

    /// The first run of blocks from `from` up to `end` that are not among them.
    pub fn next_absent(&self, from: u32, end: u32) -> Option<Range<u32>> {
        let from = self.run_at(from).map_or(from, |run| run.end);
        let until = self.ends.range(from..).next();
        let until = until.map_or(end, |(first, _)| end.min(*first));
        debug_assert!(self.run_at(from).is_none(), "runs do not touch");
        (from < until).then_some(from..until)
    }

    /// Adds a run.
    pub fn insert(&mut self, run: Range<u32>) {
        if run.is_empty() {
            return;
        }
        let mut near = self.ends.range_mut(..=run.end);
        match near.next_back() {
            // Most runs follow one that is there, or lie within one, or apart from all.
            Some((first, end)) if *first <= run.start && *end >= run.start => {
                self.blocks += u64::from(run.end.saturating_sub(*end));
                *end = run.end.max(*end);
                return;
            }
            Some((_, end)) if *end >= run.start => {}
            _ => {
                self.blocks += u64::from(run.end - run.start);
                self.ends.insert(run.start, run.end);
                return;
            }
        }
        let mut joined = run;
        // Those that overlap or touch become part of it.
        while let Some((first, end)) = self.ends.range(..=joined.end).next_back() {
            let (first, end) = (*first, *end);
            if end < joined.start {
                break;
            }
            self.ends.remove(&first);
            self.blocks -= u64::from(end - first);
            joined = joined.start.min(first)..joined.end.max(end);
        }
        self.blocks += u64::from(joined.end - joined.start);
        let before = self.ends.insert(joined.start, joined.end);
        debug_assert!(before.is_none(), "runs are disjoint");
    }

    /// Takes a run away; what of it was there, in order.
    pub fn remove(&mut self, run: Range<u32>) -> Vec<Range<u32>> {
        let mut removed = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let there = self.run_at(at).or_else(|| {
                let (first, end) = self.ends.range(at..run.end).next()?;
                Some(*first..*end)
            });
            let Some(there) = there else { break };
            let cut = there.start.max(run.start)..there.end.min(run.end);
            self.ends.remove(&there.start);
            self.blocks -= u64::from(there.end - there.start);
            self.insert(there.start..cut.start);
            self.insert(cut.end..there.end);
            debug_assert!(!cut.is_empty(), "it overlaps what was asked for");
            at = there.end;
            removed.push(cut);
        }
        removed
    }
}

/// Takes the blocks of `run` off a list of runs, whose order stays; whether there was any.
pub(crate) fn strike(list: &mut Vec<Range<u32>>, run: &Range<u32>) -> bool {
    let apart = |other: &Range<u32>| other.end <= run.start || run.end <= other.start;
    if list.iter().all(apart) {
        return false;
    }
    let parts = list.iter().flat_map(|other| {
        let before = other.start..other.end.min(run.start);
        let after = other.start.max(run.end)..other.end;
        [before, after].into_iter().filter(|part| !part.is_empty())
    });
    *list = parts.collect();
    true
}

/// Adds a run to a list, joined to the last if it follows it.
pub(crate) fn append(list: &mut Vec<Range<u32>>, run: Range<u32>) {
    debug_assert!(!run.is_empty(), "no run is empty");
    match list.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => list.push(run),
    }
}

/// How many blocks a list has.
pub(crate) fn count(list: &[Range<u32>]) -> u64 {
    list.iter().map(|run| u64::from(run.end - run.start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_a_plain_set_is() {
        let mut runs = Runs::default();
        let mut plain = std::collections::BTreeSet::new();
        let mut state = 7_u32;
        for step in 0..3000 {
            let mut draw = |n: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % n
            };
            let first = draw(200);
            let run = first..first + draw(20);
            if draw(3) == 0 {
                let removed = runs.remove(run.clone());
                for block in run.clone() {
                    let was = removed.iter().any(|part| part.contains(&block));
                    assert_eq!(was, plain.remove(&block), "step {step}");
                }
            } else {
                runs.insert(run.clone());
                plain.extend(run);
            }
            assert_eq!(runs.blocks(), plain.len() as u64);
            let block = draw(220);
            assert_eq!(runs.contains(block), plain.contains(&block));
            let absent = (block..220).find(|block| !plain.contains(block));
            let found = runs.next_absent(block, 220);
            assert_eq!(found.clone().map(|run| run.start), absent, "step {step}");
            if let Some(found) = found {
                assert!(found.clone().all(|block| !plain.contains(&block)));
                assert!(found.end == 220 || plain.contains(&found.end));
            }
        }
    }

    #[test]
    fn striking_keeps_the_order() {
        let mut list = vec![10..20, 0..5];
        assert!(!strike(&mut list, &(5..10)));
        assert!(strike(&mut list, &(3..12)));
        assert_eq!(list, [12..20, 0..3]);
        append(&mut list, 3..4);
        append(&mut list, 9..10);
        assert_eq!(list, [12..20, 0..4, 9..10]);
        assert_eq!(count(&list), 13);
    }
}
