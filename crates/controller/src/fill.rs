//! Which blocks go from which server to which, within the amounts that were routed.
//!
//! Blocks of the fewest copies come first, and within a group no block goes to a second target
//! before each has gone to one [BDS §4.3]. A run goes as a whole as far as a server's capacity
//! reaches, to the server with the same place in its site where that has room: so runs stay long,
//! servers talk with few others, and the work grows with what is moved.

mod even;
mod neighbours;
mod stock;

use std::collections::BTreeMap;
use std::ops::Range;

use outpour_core::NodeId;

use crate::blocks::shape::Signature;
use crate::blocks::{Partition, Runs, Shape};
use crate::demand::{Way, receivers};
use crate::room::Room;

use neighbours::Neighbours;
pub(crate) use stock::StockClass;

/// How many classes in a row a search passes over because no server has room, beyond two for
/// each server of the site.
const MISSES_MAX: u32 = 64;
/// What of a block has to get through in the cycle for its transfer to begin.
const BEGIN_SHARE: f64 = 1e-4;
/// Amounts are computed in floating point: so much less than a block is one, relative.
const ROUNDING: f64 = 1e-6;

/// Blocks that one member is to send another this cycle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) run: Range<u32>,
    /// What of it gets through, bytes.
    pub(crate) bytes: f64,
}

/// How far the blocks of a group were given away: rarity and class, then the block.
pub(crate) type Cursor = ((u32, u32), u32);

/// What a search is for.
#[derive(Clone, Copy)]
struct Wanted {
    group: u32,
    way: Way,
    /// Whether a block may begin that does not get through in this cycle.
    part: bool,
    /// Whether blocks are passed over that a neighbour of the site has or is about to get.
    first: bool,
}

/// See the module.
pub(crate) struct Filler<'a> {
    pub(crate) partition: &'a Partition,
    /// What is on its way to each destination, see [`destination`].
    pub(crate) coming: &'a mut [Runs],
    pub(crate) room: &'a mut Room,
    /// Bytes of a block.
    pub(crate) block: f64,
    /// What the job may still carry, bytes.
    pub(crate) job: f64,
    pub(crate) moves: Vec<Move>,
    /// Pairs of members that must not be used.
    pub(crate) severed: &'a dyn Fn(u32, u32) -> bool,
    pub(crate) cursors: BTreeMap<u32, Cursor>,
    neighbours: Neighbours,
    /// Units none of whose members can send another block, and those where none can receive one.
    spent_out: Vec<bool>,
    spent_in: Vec<bool>,
    /// Of each unit, the member that was found last to be able to send.
    able: Vec<u32>,
    /// The next member that may be able to receive another block, of each member from itself on.
    open: Vec<u32>,
}

/// Where the blocks are noted that are on their way to a member: its own place if it has to have
/// all itself, otherwise its site's.
pub(crate) fn destination(shape: &Shape, member: u32) -> usize {
    match shape.target_of[member as usize] {
        Some(target) if !shape.targets[target as usize].each => (shape.count() + target) as usize,
        _ => member as usize,
    }
}

/// How many destinations there are.
pub(crate) fn destinations(shape: &Shape) -> usize {
    shape.members.len() + shape.targets.len()
}

/// What servers were to send before and still can, by group and way: from, to and block, in order.
pub(crate) type Earlier = BTreeMap<(u32, Way), Vec<(u32, u32, u32)>>;

/// The way from one member to another, if that is to get anything.
pub(crate) fn way(shape: &Shape, from: u32, to: u32) -> Option<Way> {
    let target = shape.target_of[to as usize]?;
    Some((
        shape.unit_of[from as usize],
        shape.unit_of[to as usize],
        target,
    ))
}

/// Of what was listed that which is still to be sent.
pub(crate) fn earlier(
    partition: &Partition,
    listed: impl Iterator<Item = (NodeId, NodeId, u32)>,
    severed: &dyn Fn(u32, u32) -> bool,
) -> Earlier {
    let shape = partition.shape();
    let mut earlier = Earlier::new();
    for (from, to, block) in listed {
        let Some((from, to)) = shape.member(from).zip(shape.member(to)) else {
            continue;
        };
        let able = shape.gives[from as usize] && shape.takes[to as usize] && !severed(from, to);
        let Some(way) = way(shape, from, to).filter(|_| able) else {
            continue;
        };
        if partition.has(from, block) && !partition.has(to, block) {
            let group = partition.group_of(block);
            let blocks = earlier.entry((group, way)).or_default();
            blocks.push((from, to, block));
        }
    }
    earlier
}

impl<'a> Filler<'a> {
    pub(crate) fn new(
        partition: &'a Partition,
        coming: &'a mut [Runs],
        room: &'a mut Room,
        block: f64,
        job: f64,
        severed: &'a dyn Fn(u32, u32) -> bool,
    ) -> Self {
        let shape = partition.shape();
        let units = shape.units.len();
        debug_assert_eq!(coming.len(), destinations(shape));
        let neighbours = Neighbours::new(room);
        Self {
            partition,
            coming,
            room,
            block,
            job,
            moves: Vec::new(),
            severed,
            cursors: BTreeMap::new(),
            neighbours,
            spent_out: vec![false; units],
            spent_in: vec![false; units],
            able: shape.units.iter().map(|unit| unit.start).collect(),
            open: (0..=shape.count()).collect(),
        }
    }

    /// The same with each server of a unit at the same part of its capacity.
    pub(crate) fn routed_evenly(
        &mut self,
        groups: &[u32],
        amounts: &mut BTreeMap<Way, f64>,
        earlier: &Earlier,
    ) {
        let kept = self.keep_even(amounts);
        self.routed(groups, amounts, earlier);
        self.give_back(kept);
    }

    /// Whole blocks within the amounts of a router, first those that the same servers were to send earlier.
    pub(crate) fn routed(
        &mut self,
        groups: &[u32],
        amounts: &mut BTreeMap<Way, f64>,
        earlier: &Earlier,
    ) {
        for ((_, way), blocks) in earlier {
            // What stays in a site is no news to others, and often the most.
            if self.site(way.0) != self.site(way.1) {
                for (from, to, block) in blocks {
                    self.note(*from, *to, &(*block..*block + 1));
                }
            }
        }
        let partition = self.partition;
        for first in self.passes() {
            for group in groups {
                let key = &partition.group(*group).key;
                for target in &key.lacking {
                    for (from, to) in self.pairs(&key.units, *target) {
                        let way = (from, to, *target);
                        let Some(amount) = amounts.get_mut(&way) else {
                            continue;
                        };
                        let little = *amount < self.block * (1.0 - ROUNDING);
                        if little || first && !self.is_nearest(key, way) {
                            continue;
                        }
                        if let Some(blocks) = earlier.get(&(*group, way)) {
                            *amount -= self.stay(blocks, *amount);
                        }
                        if *amount >= self.block * (1.0 - ROUNDING) {
                            let wanted = Wanted {
                                group: *group,
                                way,
                                part: false,
                                first,
                            };
                            *amount -= self.give(wanted, *amount);
                        }
                    }
                }
            }
        }
    }

    /// Leaves blocks with those who were to send them earlier, at most `most` bytes; how many they are. If blocks
    /// changed hands for nothing, one server would lose them before another knows, or both would send them.
    fn stay(&mut self, blocks: &[(u32, u32, u32)], most: f64) -> f64 {
        let shape = self.partition.shape();
        let mut given = 0.0;
        for (from, to, block) in blocks.iter().copied() {
            let (a, b) = (shape.members[from as usize], shape.members[to as usize]);
            let place = destination(shape, to);
            let left = self.room.left(a, b).min(most - given).min(self.job);
            if left < self.least(false) || self.coming[place].contains(block) {
                continue;
            }
            debug_assert!(
                self.partition.has(from, block) && !self.partition.has(to, block),
                "from one that has it to one that has not"
            );
            let (run, bytes) = (block..block + 1, self.block.min(left));
            self.room.take(a, b, bytes);
            self.job -= bytes;
            given += bytes;
            self.coming[place].insert(run.clone());
            self.moves.push(Move {
                from,
                to,
                run,
                bytes,
            });
        }
        given
    }

    /// What still fits beyond that; `part` lets blocks begin that take longer than the cycle.
    pub(crate) fn rest(&mut self, groups: &[u32], part: bool) {
        let partition = self.partition;
        if part {
            // Less than a block may be left where a block was too much.
            self.look_anew();
        }
        for first in self.passes() {
            for group in groups {
                let key = &partition.group(*group).key;
                for target in &key.lacking {
                    for (from, to) in self.pairs(&key.units, *target) {
                        let (group, way) = (*group, (from, to, *target));
                        if first && !self.is_nearest(key, way) {
                            continue;
                        }
                        let wanted = Wanted {
                            group,
                            way,
                            part,
                            first,
                        };
                        self.give(wanted, f64::INFINITY);
                    }
                }
            }
        }
    }

    /// Servers have more room than before: all may be able again.
    fn look_anew(&mut self) {
        self.spent_out.fill(false);
        self.spent_in.fill(false);
        self.open = (0..=self.partition.shape().count()).collect();
    }

    /// Whether blocks are looked at first that no neighbour of their site has, then all.
    fn passes(&self) -> impl Iterator<Item = bool> + use<> {
        let first = self.neighbours.are_any().then_some(true);
        first.into_iter().chain([false])
    }

    /// Whether no neighbour of a way's end has the blocks of a group.
    fn is_nearest(&self, key: &Signature, (from, to, _): Way) -> bool {
        let holders = key.units.iter().map(|unit| self.site(*unit));
        let (from, to) = (self.site(from), self.site(to));
        self.neighbours.is_nearest(self.room, holders, from, to)
    }

    /// Notes that a member is about to get blocks from another.
    pub(crate) fn note(&mut self, from: u32, to: u32, run: &Range<u32>) {
        if !self.neighbours.are_any() {
            return;
        }
        let shape = self.partition.shape();
        let site = |member: u32| self.room.cluster(shape.members[member as usize]);
        self.neighbours.note(self.room, site(from), site(to), run);
    }

    /// The site of a unit.
    fn site(&self, unit: u32) -> usize {
        let shape = self.partition.shape();
        let first = shape.units[unit as usize].start;
        self.room.cluster(shape.members[first as usize])
    }

    fn pairs(&self, units: &'a [u32], target: u32) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let to = receivers(self.partition.shape(), target);
        units
            .iter()
            .flat_map(move |from| to.clone().map(move |to| (*from, to)))
    }

    /// The least that a transfer has to carry to be begun.
    fn least(&self, part: bool) -> f64 {
        if part {
            (self.block * BEGIN_SHARE).max(1.0)
        } else {
            self.block * (1.0 - ROUNDING)
        }
    }

    /// Moves blocks of a group, at most `most` bytes; how many it moved.
    fn give(&mut self, wanted: Wanted, most: f64) -> f64 {
        debug_assert!(most > 0.0, "something is to be moved");
        let (from, to, _) = wanted.way;
        if self.spent_out[from as usize] || self.spent_in[to as usize] || self.is_cut(wanted) {
            return 0.0;
        }
        let start = self
            .cursors
            .get(&wanted.group)
            .copied()
            .unwrap_or(((0, 0), 0));
        let mut given = 0.0;
        let partition = self.partition;
        let units = &partition.shape().units;
        let mut misses = MISSES_MAX + 2 * units[from as usize].len() as u32;
        // From where the last target ended to the end, then from the beginning to there.
        for wrapped in [false, true] {
            let at = if wrapped { (0, 0) } else { start.0 };
            for class in partition.classes(wanted.group, at) {
                let first = if class == start.0 && !wrapped {
                    start.1
                } else {
                    0
                };
                if wrapped && class > start.0 {
                    return given;
                }
                let end = if wrapped && class == start.0 {
                    start.1
                } else {
                    u32::MAX
                };
                let moved = match self.is_stuck(wanted, class.1) {
                    true => 0.0,
                    false => self.give_class(wanted, class, first..end, most - given),
                };
                given += moved;
                let least = self.least(wanted.part);
                let enough = most - given < least || self.job < least;
                if enough || self.spent_out[from as usize] || self.spent_in[to as usize] {
                    return given;
                }
                misses = if moved > 0.0 {
                    MISSES_MAX
                } else {
                    misses.saturating_sub(1)
                };
                if misses == 0 || self.is_cut(wanted) {
                    return given;
                }
            }
        }
        given
    }

    /// Whether none that has a class can send another block, while others of its unit can.
    fn is_stuck(&mut self, wanted: Wanted, class: u32) -> bool {
        let unit = self.partition.shape().units[wanted.way.0 as usize].clone();
        let mut holders = self.partition.holders(class).within(unit.start, unit.end);
        !holders.any(|member| self.sends(wanted, member)) && self.any_sends(wanted)
    }

    /// Whether a member of the sending unit can send another block.
    fn any_sends(&mut self, wanted: Wanted) -> bool {
        let place = wanted.way.0 as usize;
        if self.sends(wanted, self.able[place]) {
            return true;
        }
        let mut unit = self.partition.shape().units[place].clone();
        let able = unit.find(|member| self.sends(wanted, *member));
        self.able[place] = able.unwrap_or(self.able[place]);
        able.is_some()
    }

    /// Whether a member can send another block.
    fn sends(&self, wanted: Wanted, from: u32) -> bool {
        let shape = self.partition.shape();
        let node = shape.members[from as usize];
        let (unit, to, _) = wanted.way;
        let free = unit == to && !self.room.is_shared_inside(self.room.cluster(node));
        shape.gives[from as usize] && (free || self.room.out(node) >= self.least(wanted.part))
    }

    /// Whether what joins two sites is used up.
    fn is_cut(&self, wanted: Wanted) -> bool {
        let (from, to, _) = wanted.way;
        let (a, b) = (self.site(from), self.site(to));
        let between = self.room.cluster_out(a).min(self.room.cluster_in(b));
        a != b && between.min(self.room.link(a, b)) < self.least(wanted.part)
    }

    /// Moves blocks of a class between `within`'s ends.
    fn give_class(
        &mut self,
        wanted: Wanted,
        class: (u32, u32),
        within: Range<u32>,
        most: f64,
    ) -> f64 {
        debug_assert!(within.start <= within.end, "a cursor is within a class");
        let mut given = 0.0;
        let mut at = within.start;
        while let Some(run) = self.run_from(class.1, at) {
            let run = run.start.max(at)..run.end.min(within.end);
            if run.is_empty() {
                break;
            }
            at = run.end;
            let mut first = run.start;
            while first < run.end {
                match self.give_run(wanted, class.1, first..run.end, most - given) {
                    Some((end, bytes)) => {
                        debug_assert!(end > first && end <= run.end, "it goes forward");
                        self.cursors.insert(wanted.group, (class, end));
                        given += bytes;
                        first = end;
                    }
                    // No server has room for blocks of this class.
                    None => return given,
                }
                if most - given < self.least(wanted.part) {
                    return given;
                }
            }
        }
        given
    }

    /// The run of a class at a block or behind it.
    fn run_from(&self, class: u32, at: u32) -> Option<Range<u32>> {
        let partition = self.partition;
        // A cursor may point into a run.
        partition
            .run_of(class, at)
            .or_else(|| partition.next_run(class, at))
    }

    /// Moves the first blocks of a run that nobody moves yet: up to which block, how many bytes.
    fn give_run(
        &mut self,
        wanted: Wanted,
        class: u32,
        run: Range<u32>,
        most: f64,
    ) -> Option<(u32, f64)> {
        let (from, to) = self.ends(wanted, class, run.clone())?;
        let shape = self.partition.shape();
        let place = destination(shape, to);
        let Some(free) = self.coming[place].next_absent(run.start, run.end) else {
            return Some((run.end, 0.0));
        };
        let news = match wanted.first {
            true => self
                .neighbours
                .next_absent(self.site(wanted.way.1), free.clone()),
            false => Some(free.clone()),
        };
        let Some(free) = news else {
            return Some((free.end, 0.0));
        };
        let (a, b) = (shape.members[from as usize], shape.members[to as usize]);
        let left = self.room.left(a, b).min(most).min(self.job);
        let (count, bytes) = self.portion(free.end - free.start, left, wanted.part)?;
        let run = free.start..free.start + count;
        debug_assert!(
            self.partition.holders(class).contains(from) && !self.partition.has(to, run.start),
            "from one that has it to one that has not"
        );
        self.room.take(a, b, bytes);
        self.job -= bytes;
        self.coming[place].insert(run.clone());
        self.note(from, to, &run);
        let end = run.end;
        self.moves.push(Move {
            from,
            to,
            run,
            bytes,
        });
        Some((end, bytes))
    }

    /// How many of so many blocks to move where so much is left, and how many bytes of them: whole
    /// ones, or the part of one that fits.
    fn portion(&self, blocks: u32, left: f64, part: bool) -> Option<(u32, f64)> {
        let whole = (left / self.block + ROUNDING).floor();
        if whole < 1.0 {
            return (part && left >= self.least(true)).then_some((1, left));
        }
        let count = if whole >= f64::from(blocks) {
            blocks
        } else {
            whole as u32
        };
        debug_assert!(count >= 1 && count <= blocks, "some of those there are");
        Some((count, (f64::from(count) * self.block).min(left)))
    }

    /// A member that has a class and one that is to get it, both with room.
    fn ends(&mut self, wanted: Wanted, class: u32, run: Range<u32>) -> Option<(u32, u32)> {
        let partition = self.partition;
        let shape = partition.shape();
        let (unit, to_unit, target) = wanted.way;
        let least = self.least(wanted.part);
        let units = shape.units[unit as usize].clone();
        let takers = shape.units[to_unit as usize].clone();
        let holders = partition.holders(class);
        let mut sender = false;
        for from in holders.within(units.start, units.end) {
            if !self.sends(wanted, from) {
                continue;
            }
            sender = true;
            let source = shape.members[from as usize];
            // An interconnect leads around access links.
            let site = self.room.cluster(source);
            let to_site = self.room.cluster(shape.members[takers.start as usize]);
            let around = site == to_site && !self.room.is_shared_inside(site);
            // The one with the same place first.
            let begin = takers.start + (from - units.start) % takers.len() as u32;
            for part in [begin..takers.end, takers.start..begin] {
                let mut next = part.start;
                while next < part.end {
                    let to = if around {
                        next
                    } else {
                        self.next_open(next, part.end, least)
                    };
                    if to == part.end {
                        break;
                    }
                    let fits = self.room.left(source, shape.members[to as usize]) >= least;
                    let lacks = to != from && self.lacks(target, to, class, &run);
                    if lacks && fits && !(self.severed)(from, to) {
                        return Some((from, to));
                    }
                    next = to + 1;
                }
            }
        }
        if !sender && !self.any_sends(wanted) {
            self.spent_out[unit as usize] = true;
        } else if sender && self.next_open(takers.start, takers.end, least) == takers.end {
            // Not where an interconnect leads around the access link.
            self.spent_in[to_unit as usize] = unit != to_unit;
        }
        None
    }

    /// The first member from `at` up to `end` that can receive another block, or `end`. As room only
    /// shrinks, those that were passed over are not looked at again.
    fn next_open(&mut self, at: u32, end: u32, least: f64) -> u32 {
        let members = &self.partition.shape().members;
        let room = &*self.room;
        let mut open = at;
        while open < end {
            let next = self.open[open as usize];
            if next > open {
                open = next;
            } else if room.into(members[open as usize]) < least {
                self.open[open as usize] = open + 1;
            } else {
                break;
            }
        }
        // The way was looked at: it is short from now on.
        let open = open.min(end);
        let mut at = at;
        while at < open {
            let next = std::mem::replace(&mut self.open[at as usize], open);
            debug_assert!(next > at, "all before are full");
            at = next;
        }
        open
    }

    /// Whether a member is to get a class for a target, and not all of the run is on its way.
    fn lacks(&self, target: u32, to: u32, class: u32, run: &Range<u32>) -> bool {
        let shape = self.partition.shape();
        let may_get = shape.may_get(to, self.partition.spurners(class));
        if !may_get || shape.target_of[to as usize] != Some(target) {
            return false;
        }
        let each = shape.targets[target as usize].each;
        if !each {
            return true;
        }
        let coming = &self.coming[to as usize];
        let holders = self.partition.holders(class);
        !holders.contains(to) && coming.next_absent(run.start, run.end).is_some()
    }
}
