//! Many members say at once what they have: a controller that takes over hears everything from
//! everybody.
//!
//! Heeding one member after the other makes and drops a class with nearly every run. One pass over
//! all blocks, in order, makes each class once, with all its holders. Who does not want a block stays so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use super::holders::Holders;
use super::partition::{Class, Partition};
use super::runs::Runs;

/// What it costs to heed a run of one member, if members are heeded one after the other, as a multiple
/// of what passing over a run costs.
const STEP_COST: usize = 8;
/// How many runs are only looked at in the time in which one is passed over.
const LOOKS: usize = 16;

/// Who has the blocks at one place, on the way from the first block to the last.
struct Sweep {
    /// The runs of all members, the last to begin first.
    begins: Vec<(u32, u32, u32)>,
    /// Those that have blocks here, in order, and where their runs end.
    active: Vec<u32>,
    ends: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Sweep {
    fn new(stated: &BTreeMap<u32, Runs>) -> Self {
        let runs = |(member, runs): (&u32, &Runs)| {
            let member = *member;
            let runs: Vec<_> = runs.iter().collect();
            let begin = move |run: Range<u32>| (run.start, member, run.end);
            runs.into_iter().map(begin)
        };
        let mut begins: Vec<(u32, u32, u32)> = stated.iter().flat_map(runs).collect();
        begins.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            begins,
            active: Vec::new(),
            ends: BinaryHeap::new(),
        }
    }

    /// Goes to a block; the next one, before `end`, at which somebody's run begins or ends, or `end`.
    fn step(&mut self, at: u32, end: u32) -> u32 {
        while let Some(Reverse((ended, member))) = self.ends.peek().copied() {
            if ended > at {
                break;
            }
            self.ends.pop();
            let place = self.active.binary_search(&member);
            self.active.remove(place.expect("who ends has begun"));
        }
        while let Some((_, member, ended)) = self.begins.pop_if(|(begin, ..)| *begin <= at) {
            debug_assert!(ended > at, "no run is passed over");
            let place = self.active.binary_search(&member);
            let place = place.expect_err("the runs of a member do not touch");
            self.active.insert(place, member);
            self.ends.push(Reverse((ended, member)));
        }
        let ended = self.ends.peek().map_or(end, |Reverse((ended, _))| *ended);
        let begin = self.begins.last().map_or(end, |(begin, ..)| *begin);
        let next = ended.min(begin).min(end);
        debug_assert!(next > at, "it goes forward");
        next
    }
}

impl Partition {
    /// These members have exactly these blocks from now on. Whether all classes and groups are new.
    pub(crate) fn restate(&mut self, stated: &BTreeMap<u32, Runs>) -> bool {
        debug_assert!(
            stated.keys().all(|member| *member < self.shape.count()),
            "members say what they have"
        );
        let anew = self.is_worth_a_sweep(stated);
        if anew {
            self.sweep(stated);
        } else {
            for (member, runs) in stated {
                self.restate_one(*member, runs);
            }
        }
        debug_assert!(
            stated
                .iter()
                .all(|(member, runs)| self.held(*member) == runs.blocks()),
            "each has what it says"
        );
        anew
    }

    /// Whether to pass over all blocks takes less time than to heed one member after the other.
    fn is_worth_a_sweep(&self, stated: &BTreeMap<u32, Runs>) -> bool {
        let runs: usize = stated.values().map(Runs::count).sum();
        let losers = stated.keys().filter(|member| self.held(**member) > 0);
        // What whoever has something could lose is looked for among all runs.
        let looks = losers.count() * self.runs.len();
        runs * STEP_COST + looks / LOOKS >= self.runs.len() + runs
    }

    /// A member has exactly these blocks from now on.
    pub(super) fn restate_one(&mut self, member: u32, runs: &Runs) {
        let mut at = 0;
        while let Some(absent) = runs.next_absent(at, self.blocks) {
            at = absent.end;
            // A new member has nothing to lose, and looking for it would take a look at all runs.
            if self.held(member) == 0 {
                break;
            }
            self.lose(member, absent);
        }
        for run in runs.iter() {
            self.gain(member, run);
        }
    }

    /// Parts all blocks anew.
    pub(super) fn sweep(&mut self, stated: &BTreeMap<u32, Runs>) {
        let count = self.shape.count();
        let old_runs = std::mem::take(&mut self.runs);
        let mut old = std::mem::take(&mut self.classes);
        self.forget_classes();
        let mut says = vec![false; count as usize];
        for (member, runs) in stated {
            says[*member as usize] = true;
            self.held[*member as usize] = runs.blocks();
        }
        let mut silents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut sweep = Sweep::new(stated);
        let mut runs: Vec<(u32, (u32, u32))> = Vec::with_capacity(old_runs.len());
        for (first, (end, class)) in old_runs {
            let was = &mut old[class as usize];
            // Those of its holders that say nothing keep what they have.
            let silent = silents.entry(class).or_insert_with(|| {
                let holders = was.holders.iter();
                holders.filter(|member| !says[*member as usize]).collect()
            });
            let mut at = first;
            while at < end {
                let next = sweep.step(at, end);
                let holders = Holders::of(merged(silent, &sweep.active), count);
                let class = self.class_with(holders, was.spurners.clone());
                self.classes[class as usize].blocks += next - at;
                match runs.last_mut() {
                    Some((_, (last, same))) if *same == class => *last = next,
                    _ => {
                        runs.push((at, (next, class)));
                        self.classes[class as usize].runs.insert(at);
                    }
                }
                at = next;
            }
            debug_assert!(was.blocks >= end - first, "its runs are all of its blocks");
            was.blocks -= end - first;
            if was.blocks == 0 {
                // Or both the old classes and the new ones would be there in the end.
                *was = Class::of(Holders::none(), Holders::none());
                silents.remove(&class);
            }
        }
        debug_assert!(sweep.begins.is_empty(), "all runs are of blocks");
        self.runs = runs.into_iter().collect();
        self.regroup();
    }

    /// The class of these holders and spurners; made, in no group yet, if it is not there.
    fn class_with(&mut self, holders: Holders, spurners: Holders) -> u32 {
        let next = self.classes.len() as u32;
        let key = Class::key(holders.clone(), spurners.clone());
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.classes.push(Class::of(holders, spurners));
        }
        id
    }
}

/// Two sorted lists as one.
fn merged(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let mut rest = b.iter().copied().peekable();
    for member in a {
        while let Some(before) = rest.next_if(|other| other < member) {
            all.push(before);
        }
        all.push(*member);
    }
    all.extend(rest);
    all
}
