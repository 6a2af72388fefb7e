//! What a job could send between which units this cycle, as a problem for the router.

use std::collections::{BTreeMap, BTreeSet};

use outpour_planner::flows::Flow;

use crate::blocks::shape::Signature;
use crate::blocks::{Partition, Shape};
use crate::room::Room;
use crate::route::{Problem, Row};

/// How many groups of blocks a decision looks at, the rarest first.
pub(crate) const GROUPS_MAX: usize = 1024;
/// Up to so many flows tell groups apart; beyond, the blocks between two units are merged.
const FINE_FLOWS_MAX: usize = 2000;
/// How much rarer blocks are preferred where routes are equal: a block of one copy is worth so much
/// more. It costs the throughput of a cycle at most as much [BDS §4.3].
const RARE_WORTH: f64 = 0.01;
/// Blocks that no target has yet are spread over those that can pass them on, as far as that costs
/// less of the throughput of a cycle than this: else most of them might go to one node, and the
/// others would have nothing to send in the next.
const SPREAD_WORTH: f64 = 0.1;
/// How much less a block is worth that comes from another site, if the target's own site has it and can
/// pass it on: links between sites are for what is new behind them.
const AGAIN_WORTH: f64 = 0.1;
/// How much more a block is worth to a target that is this many cycles behind the first, or more.
const LAG_WORTH: f64 = 0.2;
const LAG_CYCLES: f64 = 4.0;
/// How much less a block is worth from a unit that is through with all it has to send this many cycles
/// before the last of its site, or more: links that are full leave the choice, and who was left out would
/// be left to send alone.
const LEAD_WORTH: f64 = 0.05;
const LEAD_CYCLES: f64 = 4.0;
/// No more blocks are looked at than so many times what targets can receive and units can send.
const CHOICE: f64 = 4.0;

/// From which unit to which, and for which target.
pub(crate) type Way = (u32, u32, u32);

/// The problem of a job, and the way of each flow.
pub(crate) struct Demand {
    pub(crate) problem: Problem,
    pub(crate) ways: Vec<Way>,
}

impl Demand {
    /// Whether some amounts are about all that the targets lack.
    pub(crate) fn is_all(&self, amounts: &[f64]) -> bool {
        let lacks = self.problem.rows.iter().zip(&self.problem.capacities);
        let lacks = lacks.filter(|(row, _)| matches!(row, Row::Lack(..)));
        let all: f64 = lacks.map(|(_, most)| most).sum();
        all > 0.0 && amounts.iter().sum::<f64>() >= all * 0.99
    }
}

/// What bounds a job besides the network.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// The share of every capacity it may use.
    pub(crate) share: f64,
    /// What all its flows may carry together, bytes.
    pub(crate) job: f64,
    /// What each target may get, bytes, if that is bounded.
    pub(crate) needs: Option<&'a [f64]>,
}

/// Blocks that are alike for the router.
struct Bundle {
    worth: f64,
    /// Whether no target has any of them.
    fresh: bool,
    /// The only site that has any of them.
    alone: Option<usize>,
    /// What each target lacks of them, bytes.
    lacks: BTreeMap<u32, f64>,
    /// What each unit has of that.
    stock: BTreeMap<(u32, u32), f64>,
}

/// The units that may receive for a target.
pub(crate) fn receivers(shape: &Shape, target: u32) -> std::ops::RangeInclusive<u32> {
    let members = &shape.targets[target as usize].members;
    debug_assert!(!members.is_empty(), "a target has members");
    let unit = |member: u32| shape.unit_of[member as usize];
    unit(members.start)..=unit(members.end - 1)
}

/// The groups that a decision looks at: the rarest, until every target has enough to choose from
/// and every unit enough to send.
pub(crate) fn groups(partition: &Partition, room: &Room, block: f64) -> Vec<u32> {
    let shape = partition.shape();
    let sum = |members: std::ops::Range<u32>, of: &dyn Fn(u32) -> f64| {
        CHOICE * members.map(of).sum::<f64>()
    };
    let node = |member: u32| shape.members[member as usize];
    let into = |member: u32| room.into(node(member));
    // Who has nothing that is lacking need not be waited for.
    let out = |member: u32| match partition.useful(member) {
        0 => 0.0,
        _ => room.out(node(member)),
    };
    let targets = shape.targets.iter();
    let mut takes: Vec<f64> = targets
        .map(|target| sum(target.members.clone(), &into))
        .collect();
    let units = shape.units.iter();
    let mut gives: Vec<f64> = units.map(|unit| sum(unit.clone(), &out)).collect();
    let open = |amount: &&f64| **amount > 0.0;
    let mut left = takes.iter().filter(open).count() + gives.iter().filter(open).count();
    let mut groups = Vec::new();
    for id in partition.open_groups().take(GROUPS_MAX) {
        if left == 0 {
            break;
        }
        let group = partition.group(id);
        let amount = group.blocks as f64 * block;
        let mut serve = |open: &mut f64| {
            if *open > 0.0 {
                *open -= amount;
                left -= usize::from(*open <= 0.0);
            }
        };
        group
            .key
            .lacking
            .iter()
            .for_each(|target| serve(&mut takes[*target as usize]));
        group
            .key
            .units
            .iter()
            .for_each(|unit| serve(&mut gives[*unit as usize]));
        groups.push(id);
    }
    debug_assert!(groups.len() <= GROUPS_MAX, "the work is bounded");
    groups
}

/// See the module.
pub(crate) fn demand(
    partition: &Partition,
    groups: &[u32],
    room: &Room,
    block: f64,
    bounds: Bounds<'_>,
    severed: &dyn Fn(u32, u32) -> bool,
) -> Demand {
    let shape = partition.shape();
    let pairs = |group: &u32| {
        let key = &partition.group(*group).key;
        let to = key
            .lacking
            .iter()
            .map(|target| receivers(shape, *target).count());
        key.units.len() * to.sum::<usize>()
    };
    let merged = groups.iter().map(pairs).sum::<usize>() > FINE_FLOWS_MAX;
    let mut builder = Builder::new(partition, room, block, bounds, severed);
    let mut all = Bundle {
        worth: 1.0,
        fresh: false,
        alone: None,
        lacks: BTreeMap::new(),
        stock: BTreeMap::new(),
    };
    for id in groups {
        let key = &partition.group(*id).key;
        let (rarity, class) = partition
            .next_class(*id, (0, 0))
            .expect("open groups have blocks");
        let amount = partition.group(*id).blocks as f64 * block;
        if !merged {
            all = Bundle {
                worth: 1.0 + RARE_WORTH / f64::from(rarity.max(1)),
                fresh: key.lacking.len() == shape.targets.len(),
                alone: builder.only_site(key),
                lacks: BTreeMap::new(),
                stock: BTreeMap::new(),
            };
        }
        for target in &key.lacking {
            let (holders, spurners) = (partition.holders(class), partition.spurners(class));
            let copies = f64::from(shape.copies(*target, holders, spurners).max(1));
            *all.lacks.entry(*target).or_insert(0.0) += amount * copies;
            for unit in &key.units {
                *all.stock.entry((*unit, *target)).or_insert(0.0) += amount * copies;
            }
        }
        if !merged {
            builder.add(&all);
        }
    }
    if merged {
        builder.add(&all);
    }
    debug_assert_eq!(builder.problem.flows.len(), builder.ways.len());
    Demand {
        problem: builder.problem,
        ways: builder.ways,
    }
}

struct Builder<'a> {
    partition: &'a Partition,
    room: &'a Room,
    block: f64,
    bounds: Bounds<'a>,
    /// Pairs of members that must not be used.
    severed: &'a dyn Fn(u32, u32) -> bool,
    problem: Problem,
    ways: Vec<Way>,
    index: BTreeMap<Row, u32>,
    bundles: u32,
    /// How far each target is behind the one that lacks least, from 0 to 1.
    lags: Vec<f64>,
    /// How far each unit is ahead of the last of its site with what it has to send, from 0 to 1.
    leads: Vec<f64>,
}

/// How far each unit is ahead of the last of its site with what it has to send, from 0 to 1: in cycles that
/// its stock lasts if it sends all the time, over [`LEAD_CYCLES`].
fn leads(partition: &Partition, room: &Room, block: f64) -> Vec<f64> {
    let shape = partition.shape();
    let site = |unit: &std::ops::Range<u32>| room.cluster(shape.members[unit.start as usize]);
    let cycles = |unit: &std::ops::Range<u32>| {
        let able = || unit.clone().filter(|it| shape.gives[*it as usize]);
        let stock: u64 = able().map(|it| partition.useful(it)).sum();
        let out = able().map(|it| room.out(shape.members[it as usize]));
        let out = out.sum::<f64>();
        match out > 0.0 {
            true => stock as f64 * block / out,
            false => 0.0,
        }
    };
    let all: Vec<f64> = shape.units.iter().map(cycles).collect();
    let mut last = vec![0.0_f64; room.clusters()];
    for (unit, cycles) in shape.units.iter().zip(&all) {
        debug_assert!(cycles.is_finite(), "stocks have an end");
        let last = &mut last[site(unit)];
        *last = last.max(*cycles);
    }
    let lead = |(unit, cycles): (&std::ops::Range<u32>, &f64)| {
        ((last[site(unit)] - cycles) / LEAD_CYCLES).min(1.0)
    };
    shape.units.iter().zip(&all).map(lead).collect()
}

fn lags(partition: &Partition, room: &Room, block: f64) -> Vec<f64> {
    let shape = partition.shape();
    let targets = || 0..shape.targets.len() as u32;
    let least = targets().map(|target| partition.lacking(target)).min();
    let least = least.unwrap_or(0);
    let lag = |target: u32| {
        debug_assert!(partition.lacking(target) >= least, "one lacks least");
        let behind = partition.lacking(target) - least;
        let members = shape.targets[target as usize].members.clone();
        let into = members.map(|member| room.into(shape.members[member as usize]));
        let much = into.sum::<f64>() * LAG_CYCLES;
        match much > 0.0 {
            true => (behind as f64 * block / much).min(1.0),
            false => 0.0,
        }
    };
    targets().map(lag).collect()
}

impl<'a> Builder<'a> {
    fn new(
        partition: &'a Partition,
        room: &'a Room,
        block: f64,
        bounds: Bounds<'a>,
        severed: &'a dyn Fn(u32, u32) -> bool,
    ) -> Self {
        Self {
            partition,
            room,
            block,
            bounds,
            severed,
            problem: Problem::default(),
            ways: Vec::new(),
            index: BTreeMap::new(),
            bundles: 0,
            lags: lags(partition, room, block),
            leads: leads(partition, room, block),
        }
    }

    /// The site that has all there is of a group, if it is one.
    fn only_site(&self, key: &Signature) -> Option<usize> {
        let mut sites = key.units.iter().map(|unit| self.site(*unit));
        let first = sites.next()?;
        sites.all(|site| site == first).then_some(first)
    }

    /// What a site can send to others, bytes of this cycle.
    fn abroad(&self, site: usize) -> f64 {
        let shape = self.partition.shape();
        let units = (0..shape.units.len() as u32).filter(|unit| self.site(*unit) == site);
        let cards: f64 = units.map(|unit| self.sends(unit)).sum();
        let links = (0..self.room.clusters()).filter(|to| *to != site);
        let links: f64 = links.map(|to| self.room.link(site, to)).sum();
        cards.min(links.min(self.room.cluster_out(site)) * self.bounds.share)
    }

    /// The site of a unit.
    fn site(&self, unit: u32) -> usize {
        let shape = self.partition.shape();
        let first = shape.units[unit as usize].start;
        self.room.cluster(shape.members[first as usize])
    }

    fn add(&mut self, bundle: &Bundle) {
        let shape = self.partition.shape();
        let shares = self.shares(bundle);
        let at: BTreeSet<usize> = bundle
            .stock
            .keys()
            .map(|(unit, _)| self.site(*unit))
            .collect();
        for ((from, target), stock) in &bundle.stock {
            for to in receivers(shape, *target) {
                let (a, b) = (&shape.units[*from as usize], &shape.units[to as usize]);
                let alone = a.len() == 1 && b.len() == 1;
                if alone && (*from == to || (self.severed)(a.start, b.start)) {
                    continue;
                }
                let mut rows = Vec::with_capacity(8);
                self.path(*from, to, &mut rows);
                let lacks = bundle.lacks[target];
                debug_assert!(lacks > 0.0 && *stock > 0.0, "a group is not empty");
                self.row(Row::Lack(self.bundles, *target), lacks, &mut rows);
                if let Some(needs) = self.bounds.needs {
                    self.row(Row::Need(*target), needs[*target as usize], &mut rows);
                }
                self.row(Row::Job, self.bounds.job, &mut rows);
                let mut worth = bundle.worth * (1.0 + LAG_WORTH * self.lags[*target as usize]);
                worth *= 1.0 - LEAD_WORTH * self.leads[*from as usize];
                if self.site(*from) != self.site(to) && at.contains(&self.site(to)) {
                    worth *= 1.0 - AGAIN_WORTH;
                }
                let way = (*from, to, *target);
                if let Some(share) = shares.get(&to) {
                    // What is beyond its share is worth less, but better than nothing.
                    self.flow(worth * (1.0 - SPREAD_WORTH), *stock, rows.clone(), way);
                    self.row(Row::Spread(self.bundles, to), *share, &mut rows);
                }
                self.flow(worth, *stock, rows, way);
            }
        }
        self.bundles += 1;
    }

    fn flow(&mut self, worth: f64, most: f64, rows: Vec<u32>, way: Way) {
        debug_assert!(worth > 0.0, "what is worth nothing is not sent");
        self.problem.flows.push(Flow { worth, most, rows });
        self.ways.push(way);
        debug_assert_eq!(self.problem.flows.len(), self.ways.len());
    }

    /// What each unit should get of blocks that none has which needs them, or of those that only one site has:
    /// of what can be sent of them this cycle a part that goes by what it can send on. Nothing if there is
    /// nothing to share.
    fn shares(&self, bundle: &Bundle) -> BTreeMap<u32, f64> {
        let shape = self.partition.shape();
        let each = bundle
            .lacks
            .keys()
            .all(|target| shape.targets[*target as usize].each);
        let mut shares = BTreeMap::new();
        let spread = match each {
            true => bundle.fresh,
            false => bundle.alone.is_some(),
        };
        if !spread || bundle.lacks.len() < 2 {
            return shares;
        }
        let mut from: BTreeMap<u32, f64> = BTreeMap::new();
        for ((unit, _), stock) in &bundle.stock {
            let most = from.entry(*unit).or_insert(0.0);
            *most = most.max(*stock);
        }
        let supply: f64 = from
            .iter()
            .map(|(unit, stock)| self.sends(*unit).min(*stock))
            .sum();
        for target in bundle.lacks.keys() {
            for unit in receivers(shape, *target).filter(|unit| !from.contains_key(unit)) {
                // A site's own part is no matter of what others can pass on.
                if each || bundle.alone != Some(self.site(unit)) {
                    shares.insert(unit, self.passes_on(unit, each));
                }
            }
        }
        let all: f64 = shares.values().sum();
        if !all.is_finite() || all <= 0.0 || !supply.is_finite() {
            return BTreeMap::new();
        }
        debug_assert!(supply >= 0.0, "nothing is less than nothing");
        shares.values_mut().for_each(|share| *share *= supply / all);
        shares
    }

    /// What a unit can send on of what it gets: to all, or to other sites.
    fn passes_on(&self, unit: u32, all: bool) -> f64 {
        match all {
            true => self.sends(unit),
            false => self.sends(unit).min(self.abroad(self.site(unit))),
        }
    }

    /// What the members of a unit can send, whatever they have.
    fn sends(&self, unit: u32) -> f64 {
        let shape = self.partition.shape();
        let able = shape.units[unit as usize].clone();
        let able = able.filter(|member| shape.gives[*member as usize]);
        let out = able.map(|member| self.room.out(shape.members[member as usize]));
        out.sum::<f64>() * self.bounds.share
    }

    /// Adds a row that limits anything.
    fn row(&mut self, row: Row, most: f64, rows: &mut Vec<u32>) {
        debug_assert!(most >= 0.0, "capacities are not negative");
        if most.is_infinite() {
            return;
        }
        let index = *self.index.entry(row).or_insert_with(|| {
            self.problem.rows.push(row);
            self.problem.capacities.push(most);
            self.problem.rows.len() as u32 - 1
        });
        debug_assert!(!rows.contains(&index), "a flow uses a row once");
        rows.push(index);
    }

    /// The rows of the network from a unit to another.
    fn path(&mut self, from: u32, to: u32, rows: &mut Vec<u32>) {
        let room = self.room;
        let share = self.bounds.share;
        let (a, b) = (self.site(from), self.site(to));
        if a != b || room.is_shared_inside(a) {
            let out = self.out(from);
            self.row(Row::Out(from), out, rows);
            let into = self.intake(to);
            self.row(Row::In(to), into * share, rows);
        }
        if a == b {
            let local = self.local(from, to);
            self.row(Row::Local(from, to), local * share, rows);
            return;
        }
        let (a_id, b_id) = (a as u32, b as u32);
        self.row(Row::SiteOut(a_id), room.cluster_out(a) * share, rows);
        self.row(Row::Link(a_id, b_id), room.link(a, b) * share, rows);
        self.row(Row::SiteIn(b_id), room.cluster_in(b) * share, rows);
    }

    /// What the members of a unit can send of what they have, with the job's share of their capacity.
    fn out(&self, unit: u32) -> f64 {
        if let Some(index) = self.index.get(&Row::Out(unit)) {
            return self.problem.capacities[*index as usize];
        }
        let shape = self.partition.shape();
        let targets = shape.targets.iter().map(|target| match target.each {
            true => target.members.len(),
            false => 1,
        });
        let targets = targets.sum::<usize>() as f64;
        let members = shape.units[unit as usize].clone();
        let able = members.filter(|member| shape.gives[*member as usize]);
        let out = able.map(|member| {
            let stock = self.partition.useful(member) as f64 * self.block * targets;
            let most = self.room.out(shape.members[member as usize]);
            (most * self.bounds.share).min(stock)
        });
        out.sum()
    }

    /// What the members of a unit can receive.
    fn intake(&self, unit: u32) -> f64 {
        if let Some(index) = self.index.get(&Row::In(unit)) {
            return self.problem.capacities[*index as usize];
        }
        let shape = self.partition.shape();
        let members = shape.units[unit as usize].clone();
        let able = members.filter(|member| {
            shape.takes[*member as usize] && shape.target_of[*member as usize].is_some()
        });
        able.map(|member| self.room.into(shape.members[member as usize]))
            .sum()
    }

    /// What passes between members of the same site.
    fn local(&self, from: u32, to: u32) -> f64 {
        let shape = self.partition.shape();
        let node = |unit: u32, place: usize| {
            let members = shape.units[unit as usize].clone();
            shape.members[members.clone().nth(place).unwrap_or(members.start) as usize]
        };
        if from != to {
            return self.room.local(node(from, 0), node(to, 0));
        }
        let count = shape.units[from as usize].len();
        let pairs = count * count.saturating_sub(1);
        self.room.local(node(from, 0), node(from, 1)) * pairs as f64
    }
}
