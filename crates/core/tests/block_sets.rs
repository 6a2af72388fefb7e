//! Sets of blocks at the borders of words and chunks, all ranges there are, against lists of flags.

use std::ops::Range;

use outpour_core::BlockSet;

/// All that can be asked of a set, against a list.
fn check(set: &BlockSet, plain: &[bool], what: &str) {
    let len = plain.len() as u32;
    let members: Vec<u32> = (0..len).filter(|at| plain[*at as usize]).collect();
    assert_eq!(set.count() as usize, members.len(), "{what}");
    assert!(set.iter().eq(members.iter().copied()), "{what}: {set:?}");
    let mut runs: Vec<Range<u32>> = Vec::new();
    for block in members {
        match runs.last_mut().filter(|run| run.end == block) {
            Some(run) => run.end += 1,
            None => runs.push(block..block + 1),
        }
    }
    assert!(set.ranges().eq(runs), "{what}: {set:?}");
    // From behind, so that each answer follows from the one before.
    let (mut present, mut absent) = (None, None);
    for at in (0..len).rev() {
        match plain[at as usize] {
            true => present = Some(at),
            false => absent = Some(at),
        }
        assert_eq!(set.contains(at), plain[at as usize], "{what}: {at}");
        assert_eq!(set.next_present(at), present, "{what}: from {at}");
        assert_eq!(set.next_absent(at), absent, "{what}: from {at}");
    }
    for at in [len, len + 1, u32::MAX] {
        assert!(!set.contains(at), "{what}");
        assert_eq!((set.next_present(at), set.next_absent(at)), (None, None));
    }
}

#[test]
fn every_range_of_one_or_two_words_is_put_in_and_taken_out() {
    for len in [1, 63, 64, 65, 127, 128, 129] {
        for start in 0..=len {
            for end in start..=len {
                let what = format!("{start}..{end} of {len}");
                let inside = |at: u32| (start..end).contains(&at);
                let plain: Vec<bool> = (0..len).map(inside).collect();
                let mut set = BlockSet::new(len);
                set.insert_range(start..end);
                check(&set, &plain, &what);
                assert_eq!(BlockSet::from_wire(&set.to_wire(), len), Some(set.clone()));
                assert!(set.contains_range(start..end), "{what}");
                assert!(start == 0 || !set.contains_range(start - 1..end));
                assert!(!set.contains_range(start..end + 1), "{what}");
                let mut rest = BlockSet::full(len);
                rest.remove_range(start..end);
                let turned: Vec<bool> = plain.iter().map(|there| !there).collect();
                check(&rest, &turned, &what);
                // One is what the other lacks.
                let mut all = set.clone();
                all.union(&rest);
                assert!(all.is_full(), "{what}");
                all.subtract(&rest);
                assert_eq!(all, set, "{what}");
                all.intersect(&rest);
                assert!(all.is_empty(), "{what}");
            }
        }
    }
}

#[test]
fn two_ranges_that_meet_at_borders_count_once() {
    let borders = [0, 1, 62, 63, 64, 65, 66, 126, 127, 128, 129];
    let len = 130;
    let ranges = || {
        let ends = borders.iter().flat_map(|a| borders.iter().map(|b| *a..*b));
        ends.filter(|range: &Range<u32>| range.start < range.end)
    };
    for first in ranges() {
        for second in ranges() {
            let what = format!("{first:?}, {second:?}");
            let mut plain = vec![false; len as usize];
            let mut set = BlockSet::new(len);
            set.insert_range(first.clone());
            set.insert_range(second.clone());
            for range in [&first, &second] {
                plain[range.start as usize..range.end as usize].fill(true);
            }
            check(&set, &plain, &what);
            let mut set = BlockSet::full(len);
            set.remove_range(first.clone());
            set.insert_range(second.clone());
            let mut plain = vec![true; len as usize];
            plain[first.start as usize..first.end as usize].fill(false);
            plain[second.start as usize..second.end as usize].fill(true);
            check(&set, &plain, &what);
        }
    }
}

/// Beyond 2^20 blocks a set is chunks of 2^16.
#[test]
fn ranges_at_the_borders_of_chunks_are_exact() {
    let len = (1 << 20) + 65;
    let chunk = 1 << 16;
    let near = |border: u32| border.saturating_sub(2)..=(border + 2).min(len);
    let borders: Vec<u32> = [0, chunk, 2 * chunk, 1 << 20, len]
        .into_iter()
        .flat_map(near)
        .collect();
    for start in &borders {
        for end in borders.iter().filter(|end| *end > start) {
            let (start, end) = (*start, *end);
            let what = format!("{start}..{end}");
            let mut set = BlockSet::new(len);
            set.insert_range(start..end);
            assert_eq!(set.count(), end - start, "{what}");
            assert!(
                set.ranges().eq(std::iter::once(start..end)),
                "{what}: {set:?}"
            );
            assert_eq!(set.next_present(0), Some(start), "{what}");
            let absent = (end < len).then_some(end);
            assert_eq!(set.next_absent(start), absent, "{what}");
            assert!(!set.contains(end) && set.contains(end - 1), "{what}");
            assert_eq!(BlockSet::from_wire(&set.to_wire(), len), Some(set.clone()));
            // With the middle taken out of it there are two.
            let middle = start + (end - start) / 2;
            assert!(set.remove(middle) && !set.remove(middle), "{what}");
            let halves = [start..middle, middle + 1..end];
            let halves = halves.into_iter().filter(|half| !half.is_empty());
            assert!(set.ranges().eq(halves), "{what}: {set:?}");
            assert!(set.insert(middle) && !set.insert(middle), "{what}");
            set.remove_range(start..end);
            assert!(set.is_empty() && set.next_present(0).is_none(), "{what}");
        }
    }
}
