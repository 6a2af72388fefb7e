//! The blocks of a job, parted into runs of equal state.
//!
//! A *class* is the blocks that the same members hold and the same do not want; a *group* is the
//! classes that the same units can send and the same targets lack. A change touches the runs it is
//! about and nothing else, and the groups are kept in order of rarity, so a decision looks only at
//! what it may move. In the worst case every block is a run and a class of its own: some 60 bytes,
//! and the set of its holders.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::holders::Holders;
use super::runs;
use super::shape::{Shape, Signature};

/// Blocks that the same members hold, and that the same do not want.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) holders: Holders,
    pub(super) spurners: Holders,
    /// Where its runs begin.
    pub(super) runs: BTreeSet<u32>,
    pub(super) blocks: u32,
    group: u32,
    rarity: u32,
}

impl Class {
    /// Without blocks, in no group yet.
    pub(super) const fn of(holders: Holders, spurners: Holders) -> Self {
        Self {
            holders,
            spurners,
            runs: BTreeSet::new(),
            blocks: 0,
            group: 0,
            rarity: 0,
        }
    }

    /// Under what it is found: a hash first.
    pub(super) fn key(holders: Holders, spurners: Holders) -> (u64, Holders, Holders) {
        // As a rule nobody spurns anything, or few sets do.
        let hash = holders.hash() ^ spurners.hash().rotate_left(32);
        (hash, holders, spurners)
    }

    const fn set(&self, side: Side) -> &Holders {
        match side {
            Side::Holds => &self.holders,
            Side::Spurns => &self.spurners,
        }
    }
}

/// Classes that the same units can send and the same targets lack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) key: Signature,
    /// Rarity and class, the rarest first.
    classes: BTreeSet<(u32, u32)>,
    pub(crate) blocks: u64,
}

impl Group {
    /// Whether a decision could move any of it.
    fn is_open(&self) -> bool {
        !self.key.units.is_empty() && !self.key.lacking.is_empty()
    }
}

/// What of a member turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Whether it has blocks.
    Holds,
    /// Whether it does not want them.
    Spurns,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(super) shape: Shape,
    pub(super) blocks: u32,
    /// The end and the class of the run that begins at the key.
    pub(super) runs: BTreeMap<u32, (u32, u32)>,
    pub(super) classes: Vec<Class>,
    free_classes: Vec<u32>,
    /// By a hash first, as sets take long to compare; those that hold them, those that spurn them.
    pub(super) ids: BTreeMap<(u64, Holders, Holders), u32>,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    group_ids: BTreeMap<Signature, u32>,
    /// Rarity of its rarest class, and group, of those that are open.
    order: BTreeSet<(u32, u32)>,
    /// How many blocks each member has.
    pub(super) held: Vec<u64>,
    /// How many blocks each member has that some target lacks.
    useful: Vec<u64>,
    /// How many blocks each target lacks at least one copy of.
    lacking: Vec<u64>,
}

impl Partition {
    /// All of `blocks` blocks, which nobody has.
    pub(crate) fn new(shape: Shape, blocks: u32) -> Self {
        let members = shape.members.len();
        let targets = shape.targets.len();
        let mut partition = Self {
            shape,
            blocks,
            runs: BTreeMap::new(),
            classes: Vec::new(),
            free_classes: Vec::new(),
            ids: BTreeMap::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            group_ids: BTreeMap::new(),
            order: BTreeSet::new(),
            held: vec![0; members],
            useful: vec![0; members],
            lacking: vec![0; targets],
        };
        if blocks > 0 {
            let class = partition.class_of(Holders::none(), Holders::none());
            partition.runs.insert(0, (blocks, class));
            partition.classes[class as usize].runs.insert(0);
            partition.count(class, blocks, true);
        }
        partition
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How many blocks a member has.
    pub(crate) fn held(&self, member: u32) -> u64 {
        self.held[member as usize]
    }

    /// How many blocks a member has that some target lacks.
    pub(crate) fn useful(&self, member: u32) -> u64 {
        self.useful[member as usize]
    }

    /// How many blocks a target lacks.
    pub(crate) fn lacking(&self, target: u32) -> u64 {
        self.lacking[target as usize]
    }

    /// How many runs there are, a measure of memory and of work.
    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Whether a member has a block.
    pub(crate) fn has(&self, member: u32, block: u32) -> bool {
        let Some((_, (end, class))) = self.runs.range(..=block).next_back() else {
            return false;
        };
        debug_assert!(block < *end, "runs cover all blocks");
        self.classes[*class as usize].holders.contains(member)
    }

    /// The runs of a member's blocks within a run.
    pub(crate) fn held_within(&self, member: u32, run: Range<u32>) -> Vec<Range<u32>> {
        let mut found = Vec::new();
        let first = self.runs.range(..=run.start).next_back();
        let first = first.map_or(run.start, |(first, _)| *first);
        for (first, (end, class)) in self.runs.range(first..run.end) {
            if self.classes[*class as usize].holders.contains(member) {
                runs::append(&mut found, (*first).max(run.start)..(*end).min(run.end));
            }
        }
        found
    }

    /// The group of a block.
    pub(crate) fn group_of(&self, block: u32) -> u32 {
        let (_, (_, class)) = (self.runs.range(..=block).next_back())
            .expect("runs cover all blocks from the first on");
        self.classes[*class as usize].group
    }

    /// How many copies of a block a target still has to get.
    pub(crate) fn copies(&self, target: u32, block: u32) -> u32 {
        let (_, (_, class)) = (self.runs.range(..=block).next_back())
            .expect("runs cover all blocks from the first on");
        let class = &self.classes[*class as usize];
        self.shape.copies(target, &class.holders, &class.spurners)
    }

    /// Whether a relay may be brought a block for the sake of others.
    pub(crate) fn may_relay(&self, member: u32, block: u32) -> bool {
        let (_, (_, class)) = (self.runs.range(..=block).next_back())
            .expect("runs cover all blocks from the first on");
        self.shape.may_relay(member, self.holders(*class))
    }

    /// How many blocks some target lacks and nobody can send.
    pub(crate) fn orphaned(&self) -> u64 {
        let groups = self.group_ids.range(..Signature::some_unit());
        let blocks = groups.map(|(key, group)| match key.lacking.is_empty() {
            true => 0,
            false => self.groups[*group as usize].blocks,
        });
        blocks.sum()
    }

    /// The open groups, the rarest first.
    pub(crate) fn open_groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().map(|(_, group)| *group)
    }

    pub(crate) fn group(&self, group: u32) -> &Group {
        &self.groups[group as usize]
    }

    /// The first class of a group from `from` on, as rarity and class.
    pub(crate) fn next_class(&self, group: u32, from: (u32, u32)) -> Option<(u32, u32)> {
        let classes = &self.groups[group as usize].classes;
        classes.range(from..).next().copied()
    }

    /// The classes of a group from `from` on, as rarity and class.
    pub(crate) fn classes(&self, group: u32, from: (u32, u32)) -> impl Iterator<Item = (u32, u32)> {
        let classes = &self.groups[group as usize].classes;
        classes.range(from..).copied()
    }

    /// The holders of a class.
    pub(crate) fn holders(&self, class: u32) -> &Holders {
        &self.classes[class as usize].holders
    }

    /// The group of a class.
    pub(crate) fn group_of_class(&self, class: u32) -> u32 {
        self.classes[class as usize].group
    }

    /// How many blocks a class has.
    pub(crate) fn blocks(&self, class: u32) -> u32 {
        self.classes[class as usize].blocks
    }

    /// Those that do not want a class.
    pub(crate) fn spurners(&self, class: u32) -> &Holders {
        &self.classes[class as usize].spurners
    }

    /// What is left from a block on of the run it is in, if that is of a class.
    pub(crate) fn run_of(&self, class: u32, block: u32) -> Option<Range<u32>> {
        let (_, (end, found)) = self.runs.range(..=block).next_back()?;
        (*found == class && block < *end).then_some(block..*end)
    }

    /// The first run of a class that begins at `from` or later.
    pub(crate) fn next_run(&self, class: u32, from: u32) -> Option<Range<u32>> {
        let first = self.classes[class as usize].runs.range(from..).next()?;
        Some(*first..self.runs[first].0)
    }

    /// A member has got a run of blocks. What of it it did not have before.
    pub(crate) fn gain(&mut self, member: u32, run: Range<u32>) -> Vec<Range<u32>> {
        self.turn(Side::Holds, member, run, true)
    }

    /// A member has lost a run of blocks. What of it it had before.
    pub(crate) fn lose(&mut self, member: u32, run: Range<u32>) -> Vec<Range<u32>> {
        self.turn(Side::Holds, member, run, false)
    }

    /// A member wants a run of blocks, or does not.
    pub(crate) fn want(&mut self, member: u32, run: Range<u32>, wants: bool) {
        self.turn(Side::Spurns, member, run, !wants);
    }

    /// A member has lost everything.
    pub(crate) fn lose_all(&mut self, member: u32) {
        if self.held[member as usize] > 0 {
            self.lose(member, 0..self.blocks);
        }
        debug_assert_eq!(self.held[member as usize], 0, "nothing is left");
    }

    /// The first part of a run, and its class, that is so at a member or, unless `on`, is not.
    fn next_on(
        &self,
        side: Side,
        member: u32,
        run: Range<u32>,
        on: bool,
    ) -> Option<(Range<u32>, u32)> {
        if run.is_empty() {
            return None;
        }
        let (first, _) = (self.runs.range(..=run.start).next_back())
            .expect("runs cover all blocks from the first on");
        let mut parts = self.runs.range(*first..run.end);
        let (first, (end, class)) = parts.find(|(_, (_, class))| {
            self.classes[*class as usize].set(side).contains(member) == on
        })?;
        Some(((*first).max(run.start)..(*end).min(run.end), *class))
    }

    /// Lets something be so of a run at a member, or be so no more; where it was not yet.
    fn turn(&mut self, side: Side, member: u32, run: Range<u32>, on: bool) -> Vec<Range<u32>> {
        assert!(run.end <= self.blocks, "runs were checked where they came");
        let mut turned = Vec::new();
        let mut to = (u32::MAX, u32::MAX);
        let mut at = run.start;
        while let Some((part, class)) = self.next_on(side, member, at..run.end, !on) {
            // Runs of a few classes take turns, so the last step is often the next as well.
            if to.0 != class {
                let Class {
                    holders, spurners, ..
                } = &self.classes[class as usize];
                let (mut holders, mut spurners) = (holders.clone(), spurners.clone());
                let set = match side {
                    Side::Holds => &mut holders,
                    Side::Spurns => &mut spurners,
                };
                let count = self.shape.count();
                *set = match on {
                    true => set.with(member, count),
                    false => set.without(member, count),
                };
                to = (class, self.class_of(holders, spurners));
            }
            at = part.end;
            let holds = (side == Side::Holds).then_some((member, on));
            self.move_run(part.clone(), class, to.1, holds);
            if self.classes[class as usize].blocks == 0 {
                self.drop_class(class);
                to = (u32::MAX, u32::MAX);
            }
            runs::append(&mut turned, part);
        }
        turned
    }

    /// Moves a run, which lies within one of `from`'s, to another class, which differs by a member. If it
    /// is in who holds it, `holds` says who that is and whether it got the run.
    fn move_run(&mut self, run: Range<u32>, from: u32, to: u32, holds: Option<(u32, bool)>) {
        debug_assert_ne!(from, to, "classes differ by a member");
        let (first, (end, _)) = (self.runs.range(..=run.start).next_back())
            .map(|(first, run)| (*first, *run))
            .expect("the run is within one that is there");
        debug_assert!(first <= run.start && run.end <= end, "within one run");
        let mut joined = run.clone();
        // What is left before and behind keeps its class; otherwise the neighbour may be joined.
        let before = match first < run.start {
            true => Some((first, from)),
            false => self
                .runs
                .range(..first)
                .next_back()
                .map(|(at, (_, class))| (*at, *class)),
        };
        if first == run.start {
            self.forget_run(first, from);
        }
        if run.end < end {
            self.classes[from as usize].runs.insert(run.end);
            self.runs.insert(run.end, (end, from));
        } else if let Some((end, class)) = self.runs.get(&end).copied()
            && class == to
        {
            joined.end = end;
            self.forget_run(run.end, to);
            self.runs.remove(&run.end);
        }
        match before {
            Some((at, class)) if class == to => {
                if first == run.start {
                    self.runs.remove(&first);
                }
                joined.start = at;
            }
            Some((at, _)) if first < run.start => {
                debug_assert_eq!(at, first, "the run itself is before");
                self.runs.insert(first, (run.start, from));
                self.classes[to as usize].runs.insert(run.start);
            }
            _ => {
                self.classes[to as usize].runs.insert(run.start);
            }
        }
        self.runs.insert(joined.start, (joined.end, to));
        let blocks = run.end - run.start;
        match holds {
            Some((member, gained)) => self.recount(from, to, blocks, member, gained),
            None => {
                self.count(from, blocks, false);
                self.count(to, blocks, true);
            }
        }
    }

    fn forget_run(&mut self, first: u32, class: u32) {
        let was = self.classes[class as usize].runs.remove(&first);
        debug_assert!(was, "both indices know the same runs");
    }

    /// Keeps the counters true while blocks go from one class to another.
    fn recount(&mut self, from: u32, to: u32, blocks: u32, member: u32, gained: bool) {
        let amount = u64::from(blocks);
        let held = &mut self.held[member as usize];
        *held = if gained {
            *held + amount
        } else {
            *held - amount
        };
        let open = |partition: &Self, class: u32| {
            let group = partition.classes[class as usize].group;
            !partition.groups[group as usize].key.lacking.is_empty()
        };
        let (before, after) = (open(self, from), open(self, to));
        if before && after {
            // Both have the same holders but one.
            let useful = &mut self.useful[member as usize];
            *useful = if gained {
                *useful + amount
            } else {
                *useful - amount
            };
            self.count_blocks(from, blocks, false);
            self.count_blocks(to, blocks, true);
        } else {
            self.count(from, blocks, false);
            self.count(to, blocks, true);
        }
    }

    /// Adds blocks to a class, or takes them from it, in all counters but those of what is held.
    fn count(&mut self, class: u32, blocks: u32, more: bool) {
        let (holders, group) = {
            let class = &self.classes[class as usize];
            (class.holders.clone(), class.group)
        };
        if !self.groups[group as usize].key.lacking.is_empty() {
            for member in holders.iter() {
                let useful = &mut self.useful[member as usize];
                *useful = match more {
                    true => *useful + u64::from(blocks),
                    false => *useful - u64::from(blocks),
                };
            }
        }
        self.count_blocks(class, blocks, more);
    }

    fn count_blocks(&mut self, class: u32, blocks: u32, more: bool) {
        let class = &mut self.classes[class as usize];
        let group = &mut self.groups[class.group as usize];
        let amount = u64::from(blocks);
        if more {
            class.blocks += blocks;
            group.blocks += amount;
        } else {
            debug_assert!(class.blocks >= blocks, "no class has less than nothing");
            class.blocks -= blocks;
            group.blocks -= amount;
        }
        for target in &group.key.lacking {
            let lacking = &mut self.lacking[*target as usize];
            *lacking = if more {
                *lacking + amount
            } else {
                *lacking - amount
            };
        }
    }

    /// The class of these holders and spurners; made, and put into its group, if it is not there.
    fn class_of(&mut self, holders: Holders, spurners: Holders) -> u32 {
        let key = Class::key(holders.clone(), spurners.clone());
        if let Some(class) = self.ids.get(&key) {
            return *class;
        }
        let class = Class::of(holders, spurners);
        let id = match self.free_classes.pop() {
            Some(id) => {
                self.classes[id as usize] = class;
                id
            }
            None => {
                self.classes.push(class);
                self.classes.len() as u32 - 1
            }
        };
        self.ids.insert(key, id);
        self.enter_group(id);
        id
    }

    fn drop_class(&mut self, id: u32) {
        debug_assert_eq!(self.classes[id as usize].blocks, 0, "it has no blocks");
        self.leave_group(id);
        let class = &mut self.classes[id as usize];
        let take = |set: &mut Holders| std::mem::replace(set, Holders::none());
        let key = Class::key(take(&mut class.holders), take(&mut class.spurners));
        self.ids.remove(&key);
        self.free_classes.push(id);
    }

    fn enter_group(&mut self, id: u32) {
        let Class {
            holders, spurners, ..
        } = &self.classes[id as usize];
        let key = self.shape.signature(holders, spurners);
        let rarity = self.shape.rarity(holders);
        let group = match self.group_ids.get(&key) {
            Some(group) => *group,
            None => {
                let group = self.free_groups.pop().unwrap_or_else(|| {
                    self.groups.push(Group::default());
                    self.groups.len() as u32 - 1
                });
                self.group_ids.insert(key.clone(), group);
                self.groups[group as usize].key = key;
                group
            }
        };
        let class = &mut self.classes[id as usize];
        (class.group, class.rarity) = (group, rarity);
        self.reorder(group, |classes| {
            classes.insert((rarity, id));
        });
    }

    fn leave_group(&mut self, id: u32) {
        let Class { group, rarity, .. } = self.classes[id as usize];
        self.reorder(group, |classes| {
            classes.remove(&(rarity, id));
        });
        let emptied = &mut self.groups[group as usize];
        if emptied.classes.is_empty() {
            debug_assert_eq!(emptied.blocks, 0, "no blocks without a class");
            let emptied = std::mem::take(emptied);
            self.group_ids.remove(&emptied.key);
            self.free_groups.push(group);
        }
    }

    /// Changes the classes of a group and its place in the order.
    fn reorder(&mut self, group: u32, change: impl FnOnce(&mut BTreeSet<(u32, u32)>)) {
        let known = &mut self.groups[group as usize];
        let before = known.classes.first().map(|(rarity, _)| *rarity);
        change(&mut known.classes);
        let after = known.classes.first().map(|(rarity, _)| *rarity);
        if !known.is_open() || before == after {
            return;
        }
        if let Some(rarity) = before {
            self.order.remove(&(rarity, group));
        }
        if let Some(rarity) = after {
            self.order.insert((rarity, group));
        }
    }

    /// Changes what is known about the members; groups follow. Looks at every class.
    pub(crate) fn reshape(&mut self, change: impl FnOnce(&mut Shape)) {
        change(&mut self.shape);
        self.lacking = vec![0; self.shape.targets.len()];
        self.regroup();
    }

    /// Forgets all classes; whoever does has them made anew.
    pub(super) fn forget_classes(&mut self) {
        self.classes.clear();
        self.free_classes.clear();
        self.ids.clear();
    }

    /// Has all classes enter their groups anew.
    pub(super) fn regroup(&mut self) {
        self.groups.clear();
        self.free_groups.clear();
        self.group_ids.clear();
        self.order.clear();
        self.useful.fill(0);
        self.lacking.fill(0);
        let used = |id: &u32| self.classes[*id as usize].blocks > 0;
        let ids: Vec<u32> = (0..self.classes.len() as u32).filter(used).collect();
        debug_assert_eq!(ids.len(), self.ids.len(), "no class is empty");
        for id in ids {
            let blocks = std::mem::take(&mut self.classes[id as usize].blocks);
            self.enter_group(id);
            self.count(id, blocks, true);
        }
    }
}

#[cfg(test)]
mod tests;
