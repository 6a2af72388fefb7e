//! Brings relays what they can pass on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Cycle, Part};
use crate::blocks::{Partition, Runs, Shape};
use crate::controller::Controller;
use crate::fill::{Filler, StockClass, destination};
use crate::job::JobId;
use crate::room::Room;
use crate::task::Task;

/// What a relay has to do for a target, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// What it sends in this cycle.
    sends: f64,
    /// What the way to the target has room for besides.
    free: f64,
    /// What it could still send after this cycle.
    stock: f64,
}

impl Load {
    /// What it should get, so that it can send as much in the next cycle as there is room for.
    fn wants(self) -> f64 {
        (self.sends + self.free - self.stock).max(0.0)
    }
}

/// A relay with its load for each target.
struct Relay {
    member: u32,
    loads: Vec<Load>,
    /// What its access link has room for besides what it sends, bytes.
    out: f64,
}

impl Relay {
    /// What it should get for each target, no more than `left`, and for all of them together.
    fn wants(&self, left: &[f64]) -> (Vec<f64>, f64) {
        let each = self.loads.iter().zip(left);
        let each: Vec<f64> = each.map(|(load, left)| load.wants().min(*left)).collect();
        let sum = |of: fn(&Load) -> f64| self.loads.iter().map(of).sum::<f64>();
        let able = sum(|load| load.sends) + sum(|load| load.free).min(self.out);
        let has = sum(|load| load.stock.min(load.sends + load.free));
        debug_assert!(!able.is_nan() && has.is_finite(), "what it has is finite");
        (each, (able - has).max(0.0))
    }
}

impl Controller {
    /// Brings relays what they can pass on in the next cycle, with what is left of the network: as
    /// much as they send now and as the ways to their targets still have room for.
    pub(super) fn stock_relays(&self, tasks: &mut BTreeMap<JobId, Task>, cycle: &mut Cycle) {
        for (id, part) in &mut cycle.parts {
            let task = tasks.get_mut(id).expect("parts are of tasks");
            let mut sites = sites(task, &cycle.room, part);
            if sites.is_empty() {
                continue;
            }
            // Were all relays brought the same blocks, one could pass on no more than another.
            let mut stocked = Runs::default();
            for relay in sites.values().flatten() {
                let coming = &task.coming[destination(task.partition.shape(), relay.member)];
                coming.iter().for_each(|run| stocked.insert(run));
            }
            let classes = classes(&task.partition);
            for (site, relays) in &mut sites {
                let room = &mut cycle.room;
                let mut left = site_wants(task.partition.shape(), room, *site, relays);
                let (_, home) = room.abroad(*site);
                let count = relays.len() as f64;
                let even: Vec<f64> = left.iter().map(|left| left.min(home) / count).collect();
                // As much to each, or the first ones would get more than they can send in time.
                for first in [true, false] {
                    for relay in relays.iter_mut() {
                        if !can_get(room, *site, relay, task) {
                            continue;
                        }
                        let most = left.iter().zip(&even);
                        let most = most.map(|(left, even)| match first {
                            true => left.min(*even),
                            false => *left,
                        });
                        let most: Vec<f64> = most.collect();
                        let got =
                            self.stock(task, (part, room), (relay, &most), &classes, &mut stocked);
                        for (target, got) in got.into_iter().enumerate() {
                            relay.loads[target].stock += got;
                            left[target] = (left[target] - got).max(0.0);
                        }
                    }
                }
            }
        }
    }

    /// Brings one relay at most so much for each target; how much of what it gets each lacks.
    fn stock(
        &self,
        task: &mut Task,
        (part, room): (&mut Part, &mut Room),
        (relay, most): (&Relay, &[f64]),
        classes: &[Vec<StockClass>],
        stocked: &mut Runs,
    ) -> Vec<f64> {
        let block = task.block();
        let (mut wants, mut all) = relay.wants(most);
        let mut got = vec![0.0; wants.len()];
        let severed = self.is_severed(task);
        let mut filler = Filler::new(
            &task.partition,
            &mut task.coming,
            room,
            block,
            part.left,
            &severed,
        );
        for target in 0..wants.len() {
            // Whole blocks, as a part of one cannot be passed on.
            let most = (wants[target].min(all) / block).ceil() * block;
            if most <= 0.0 {
                continue;
            }
            for (class, bytes) in filler.stock(&classes[target], relay.member, most, stocked) {
                let group = task.partition.group_of_class(class);
                debug_assert!(bytes > 0.0, "something of it is brought");
                for lacking in &task.partition.group(group).key.lacking {
                    got[*lacking as usize] += bytes;
                    wants[*lacking as usize] -= bytes;
                }
                all -= bytes;
            }
        }
        part.left = filler.job;
        part.moves.extend(filler.moves);
        got
    }
}

/// The relays of a job that can pass something on, by site.
fn sites(task: &Task, room: &Room, part: &Part) -> BTreeMap<usize, Vec<Relay>> {
    let shape = task.partition.shape();
    let is_relay = |member: u32| {
        let place = member as usize;
        shape.relays[place] && shape.gives[place] && shape.takes[place]
    };
    let members = (0..shape.count()).filter(|member| is_relay(*member));
    let relay = |member: u32| {
        let coming = task.coming[destination(shape, member)].blocks() as f64 * task.block();
        let load = |target| Load {
            free: way(shape, room, member, target),
            stock: coming,
            ..Load::default()
        };
        Relay {
            member,
            loads: (0..shape.targets.len()).map(load).collect(),
            out: room.out(shape.members[member as usize]),
        }
    };
    let mut relays: BTreeMap<u32, Relay> = members.map(|it| (it, relay(it))).collect();
    if relays.is_empty() {
        return BTreeMap::new();
    }
    for group in task.partition.open_groups() {
        let lacking = &task.partition.group(group).key.lacking;
        for (_, class) in task.partition.classes(group, (0, 0)) {
            let bytes = f64::from(task.partition.blocks(class)) * task.block();
            for holder in task.partition.holders(class).iter() {
                let Some(relay) = relays.get_mut(&holder) else {
                    continue;
                };
                for target in lacking {
                    relay.loads[*target as usize].stock += bytes;
                }
            }
        }
    }
    for moved in &part.moves {
        let target = shape.target_of[moved.to as usize];
        let relay = relays.get_mut(&moved.from);
        if let (Some(relay), Some(target)) = (relay, target) {
            let load = &mut relay.loads[target as usize];
            let sent = f64::from(moved.run.end - moved.run.start) * task.block();
            load.sends += moved.bytes;
            debug_assert!(sent > 0.0 && moved.bytes > 0.0, "moves are of something");
            load.stock = (load.stock - sent).max(0.0);
        }
    }
    let mut sites: BTreeMap<usize, Vec<Relay>> = BTreeMap::new();
    for (member, relay) in relays {
        let site = room.cluster(shape.members[member as usize]);
        sites.entry(site).or_default().push(relay);
    }
    sites
}

/// What the best way from a relay to a target has room for; nothing if it is one of its members.
fn way(shape: &Shape, room: &Room, relay: u32, target: usize) -> f64 {
    let members = shape.targets[target].members.clone();
    if members.contains(&relay) {
        return 0.0;
    }
    let node = |member: u32| shape.members[member as usize];
    let able = members.filter(|member| shape.takes[*member as usize]);
    let ways = able.map(|member| room.left(node(relay), node(member)));
    ways.fold(0.0, f64::max)
}

/// Whether anything could reach a relay.
fn can_get(room: &Room, site: usize, relay: &Relay, task: &Task) -> bool {
    let node = task.partition.shape().members[relay.member as usize];
    let enters = |from: usize| {
        let ends = room.cluster_out(from).min(room.cluster_in(site));
        from == site || room.link(from, site).min(ends) > 0.0
    };
    room.into(node) > 0.0 && (0..room.clusters()).any(enters)
}

/// For each target the classes that it lacks, in order: the rarest first, and of equal ones first those
/// that most is left of, or the first sources would be through long before the last.
fn classes(partition: &Partition) -> Vec<Vec<StockClass>> {
    let shape = partition.shape();
    // Whose copies are on their way, if a single destination of the target lacks any.
    let only = |target: u32, class: u32| {
        let (holders, spurners) = (partition.holders(class), partition.spurners(class));
        if shape.copies(target, holders, spurners) != 1 {
            return None;
        }
        let mut members = shape.targets[target as usize].members.clone();
        let lacks = |member: &u32| !holders.contains(*member) && shape.may_get(*member, spurners);
        members.find(lacks).map(|member| destination(shape, member))
    };
    let mut lists = vec![Vec::new(); shape.targets.len()];
    let groups = partition.open_groups().take(crate::demand::GROUPS_MAX);
    for group in groups {
        let lacking = &partition.group(group).key.lacking;
        for (rarity, class) in partition.classes(group, (0, 0)) {
            let order = (rarity, Reverse(partition.blocks(class)), class);
            for target in lacking {
                let only = only(*target, class);
                let several = lacking.len() > 1 || only.is_none();
                let class = StockClass {
                    class,
                    only,
                    several,
                };
                lists[*target as usize].push((order, class));
            }
        }
    }
    let sorted = lists.into_iter().map(|mut list| {
        list.sort_by_key(|(order, _)| *order);
        list.into_iter().map(|(_, class)| class).collect()
    });
    sorted.collect()
}

/// What the relays of a site should get together for each target: no more than the way to its site has
/// room for.
fn site_wants(shape: &Shape, room: &Room, site: usize, relays: &[Relay]) -> Vec<f64> {
    debug_assert!(!relays.is_empty(), "a site without relays needs none of it");
    let wants = |(index, target): (usize, &crate::blocks::shape::Target)| {
        let mut all = Load::default();
        for load in relays.iter().map(|relay| relay.loads[index]) {
            all.sends += load.sends;
            all.free += load.free;
            all.stock += load.stock;
        }
        let to = room.cluster(shape.members[target.members.start as usize]);
        if to != site {
            let ends = room.cluster_out(site).min(room.cluster_in(to));
            all.free = all.free.min(room.link(site, to).min(ends));
        }
        debug_assert!(!all.wants().is_nan(), "amounts are numbers");
        all.wants()
    };
    shape.targets.iter().enumerate().map(wants).collect()
}
