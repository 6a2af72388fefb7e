//! The partition against the plain table of who has which block.
#![allow(clippy::single_range_in_vec_init)]

use outpour_core::NodeId;
use rand_core::{RngCore, SeedableRng};

use super::super::runs::Runs;
use super::super::shape::Target;
use super::*;

const BLOCKS: u32 = 60;

/// Two sites of three servers, where site 0 has the sources; the second site wants one copy, or
/// each of its servers wants all.
fn shape(each: bool) -> Shape {
    let target = Target {
        members: 3..6,
        each,
    };
    Shape {
        members: (0..6).map(NodeId).collect(),
        units: vec![0..3, 3..6],
        unit_of: vec![0, 0, 0, 1, 1, 1],
        targets: vec![target],
        target_of: vec![None, None, None, Some(0), Some(0), Some(0)],
        counts: vec![true; 6],
        gives: vec![true; 6],
        takes: vec![true; 6],
        relays: vec![false; 6],
    }
}

/// Those of whom a row of a table says yes.
fn those(row: &[bool; 6]) -> Holders {
    let listed = (0..6).filter(|member| row[*member as usize]);
    Holders::of(listed.collect(), 6)
}

/// Everything the partition says, computed from the tables of who has what and who does not want what.
fn check(partition: &Partition, table: &[[bool; 6]], spurned: &[[bool; 6]]) {
    let shape = partition.shape();
    let sums: u64 = partition.groups.iter().map(|group| group.blocks).sum();
    assert_eq!(sums, u64::from(BLOCKS));
    assert_eq!(partition.ids.len(), {
        let states: BTreeSet<_> = table.iter().zip(spurned).collect();
        states.len()
    });
    for member in 0..6 {
        let had = table.iter().filter(|row| row[member as usize]).count();
        assert_eq!(partition.held(member), had as u64);
        let rows = table.iter().zip(spurned);
        let useful = rows.filter(|(row, spurners)| {
            row[member as usize] && shape.copies(0, &those(row), &those(spurners)) > 0
        });
        assert_eq!(partition.useful(member), useful.count() as u64);
        for (block, row) in table.iter().enumerate() {
            assert_eq!(partition.has(member, block as u32), row[member as usize]);
        }
    }
    let rows = table.iter().zip(spurned);
    let lacks = rows.filter(|(row, spurners)| {
        let wants = |member: &usize| shape.takes[*member] && !spurners[*member];
        let has = |member: &usize| row[*member] && shape.gives[*member];
        match shape.targets[0].each {
            true => (3..6).any(|member| wants(&member) && !row[member]),
            false => (3..6).any(|member| wants(&member)) && !(3..6).any(|member| has(&member)),
        }
    });
    assert_eq!(partition.lacking(0), lacks.count() as u64);
    let mut before = 0;
    for group in partition.open_groups() {
        let (rarity, class) = partition.next_class(group, (0, 0)).expect("it has one");
        assert!(before <= rarity, "the rarest first");
        before = rarity;
        let run = partition.next_run(class, 0).expect("it has blocks");
        let row = table[run.start as usize];
        assert_eq!(*partition.holders(class), those(&row));
        let spurners = those(&spurned[run.start as usize]);
        assert_eq!(*partition.spurners(class), spurners);
    }
}

/// A member wants a run or does not, at random, in the partition and in the table.
fn spurn(partition: &mut Partition, spurned: &mut [[bool; 6]], draw: &mut impl FnMut(u32) -> u32) {
    let (member, first) = (draw(6), draw(BLOCKS));
    let run = first..(first + draw(9)).min(BLOCKS);
    let wants = draw(2) == 0;
    partition.want(member, run.clone(), wants);
    run.for_each(|block| spurned[block as usize][member as usize] = !wants);
}

#[test]
fn changes_in_any_order_are_what_a_table_says() {
    for each in [false, true] {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let mut partition = Partition::new(shape(each), BLOCKS);
        let mut table = vec![[false; 6]; BLOCKS as usize];
        let mut spurned = table.clone();
        for _ in 0..600 {
            let mut draw = |n: u32| random.next_u32() % n;
            let member = draw(6);
            let first = draw(BLOCKS);
            let run = first..(first + draw(9)).min(BLOCKS);
            let gained = draw(3) > 0;
            let turned = match gained {
                true => partition.gain(member, run.clone()),
                false => partition.lose(member, run.clone()),
            };
            for block in run {
                let was = &mut table[block as usize][member as usize];
                let says = turned.iter().any(|run| run.contains(&block));
                assert_eq!(says, *was != gained);
                *was = gained;
            }
            if draw(4) == 0 {
                spurn(&mut partition, &mut spurned, &mut draw);
            }
            if draw(20) == 0 {
                let down = draw(6) as usize;
                partition.reshape(|shape| {
                    shape.gives[down] = !shape.gives[down];
                    shape.takes[down] = !shape.takes[down];
                });
            }
            check(&partition, &table, &spurned);
        }
        partition.lose_all(2);
        table.iter_mut().for_each(|row| row[2] = false);
        check(&partition, &table, &spurned);
    }
}

#[test]
fn equal_neighbours_are_one_run() {
    let mut partition = Partition::new(shape(false), BLOCKS);
    partition.gain(0, 0..20);
    partition.gain(0, 40..60);
    assert_eq!(partition.run_count(), 3);
    partition.gain(0, 20..40);
    assert_eq!(partition.run_count(), 1);
    assert_eq!(partition.lacking(0), u64::from(BLOCKS));
    partition.gain(4, 0..60);
    assert_eq!(partition.lacking(0), 0);
    assert_eq!(partition.held_within(4, 3..9), [3..9]);
}

impl Partition {
    /// All that it says, without the numbers of classes and groups, which depend on what came first.
    pub(crate) fn picture(&self) -> String {
        let group = |class: u32| {
            let class = &self.classes[class as usize];
            let group = &self.groups[class.group as usize];
            let those = |set: &Holders| set.iter().collect::<Vec<u32>>();
            (
                those(&class.holders),
                those(&class.spurners),
                class.blocks,
                class.rarity,
                &group.key,
                group.blocks,
            )
        };
        let runs: Vec<_> = (self.runs.iter())
            .map(|(first, (end, class))| (first, end, group(*class)))
            .collect();
        let order: BTreeSet<_> = (self.order.iter())
            .map(|(rarity, group)| (rarity, &self.groups[*group as usize].key))
            .collect();
        let starts: BTreeSet<u32> = (self.classes.iter())
            .flat_map(|class| class.runs.iter().copied())
            .collect();
        assert!(
            starts.iter().eq(self.runs.keys()),
            "both know the same runs"
        );
        let counts = (&self.held, &self.useful, &self.lacking);
        format!("{runs:?} {order:?} {counts:?} {}", self.ids.len())
    }
}

/// What some members say that they have, at random, as runs and in the table.
fn state(table: &mut [[bool; 6]], draw: &mut impl FnMut(u32) -> u32) -> BTreeMap<u32, Runs> {
    let mut stated = BTreeMap::new();
    for member in (0..6).filter(|_| draw(2) == 0).collect::<Vec<u32>>() {
        let mut runs = Runs::default();
        for _ in 0..draw(6) {
            let first = draw(BLOCKS);
            runs.insert(first..(first + draw(20)).min(BLOCKS));
        }
        for (block, row) in table.iter_mut().enumerate() {
            row[member as usize] = runs.contains(block as u32);
        }
        stated.insert(member, runs);
    }
    stated
}

#[test]
fn what_many_say_at_once_is_what_a_table_says() {
    for each in [false, true] {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        let mut draw = |n: u32| random.next_u32() % n;
        let mut partition = Partition::new(shape(each), BLOCKS);
        let mut table = vec![[false; 6]; BLOCKS as usize];
        let mut spurned = table.clone();
        for step in 0..400 {
            spurn(&mut partition, &mut spurned, &mut draw);
            let stated = state(&mut table, &mut draw);
            let mut swept = partition.clone();
            swept.sweep(&stated);
            check(&swept, &table, &spurned);
            let mut chosen = partition.clone();
            chosen.restate(&stated);
            for (member, runs) in &stated {
                partition.restate_one(*member, runs);
            }
            check(&partition, &table, &spurned);
            for other in [&swept, &chosen] {
                assert_eq!(other.picture(), partition.picture(), "step {step}");
            }
            if draw(2) == 0 {
                partition = swept;
            }
            // What follows one by one goes on from there.
            let (member, first) = (draw(6), draw(BLOCKS));
            partition.gain(member, first..first + 1);
            table[first as usize][member as usize] = true;
            check(&partition, &table, &spurned);
        }
    }
}
