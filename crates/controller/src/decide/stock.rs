//! Brings relays what they can pass on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Cycle, Part};
use crate::blocks::{Partition, Runs};
use crate::controller::Controller;
use crate::demand::GROUPS_MAX;
use crate::fill::{Filler, Move, StockClass, destination};
use crate::job::JobId;
use crate::room::Room;
use crate::task::Task;

/// What a relay has to do, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// What it sends in this cycle.
    sends: f64,
    /// What the ways to its targets have room for besides.
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

impl Controller {
    /// Brings relays what they can pass on in the next cycle, with what is left of the network: as
    /// much as they send now and as the ways to their targets still have room for.
    pub(super) fn stock_relays(&self, tasks: &mut BTreeMap<JobId, Task>, cycle: &mut Cycle) {
        for (id, part) in &mut cycle.parts {
            let task = tasks.get_mut(id).expect("parts are of tasks");
            let shape = task.partition.shape();
            let mut sites: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
            // Were all relays brought the same blocks, one could pass on no more than another.
            let mut stocked = Runs::default();
            for (place, member) in shape.members.iter().enumerate() {
                if shape.relays[place] && shape.gives[place] && shape.takes[place] {
                    let relays = sites.entry(cycle.room.cluster(*member)).or_default();
                    relays.push(place as u32);
                    let coming = &task.coming[destination(shape, place as u32)];
                    coming.iter().for_each(|run| stocked.insert(run));
                }
            }
            if sites.is_empty() {
                continue;
            }
            let classes = classes(&task.partition);
            for (site, relays) in &sites {
                let room = &mut cycle.room;
                let mut left = site_wants(task, room, &part.moves, *site, relays);
                let (_, home) = room.abroad(*site);
                let even = left.min(home) / relays.len() as f64;
                // As much to each, or the first ones would get more than they can send in time.
                for most in [even, f64::INFINITY] {
                    for relay in relays {
                        let most = most.min(left);
                        left -=
                            self.stock(task, (part, room), *relay, most, &classes, &mut stocked);
                    }
                }
            }
        }
    }

    /// Brings one relay at most so much; how much.
    fn stock(
        &self,
        task: &mut Task,
        (part, room): (&mut Part, &mut Room),
        relay: u32,
        most: f64,
        classes: &[StockClass],
        stocked: &mut Runs,
    ) -> f64 {
        let block = task.block();
        // Whole blocks, as a part of one cannot be passed on.
        let wants = load(task, room, &part.moves, relay).wants().min(most);
        let wants = (wants / block).ceil() * block;
        if wants <= 0.0 {
            return 0.0;
        }
        let severed = self.is_severed(task);
        let mut filler = Filler::new(
            &task.partition,
            &mut task.coming,
            room,
            block,
            part.left,
            &severed,
        );
        filler.stock(classes, relay, wants, stocked);
        part.left = filler.job;
        let bytes = filler.moves.iter().map(|moved| moved.bytes).sum();
        part.moves.extend(filler.moves);
        bytes
    }
}

/// The classes that relays may be brought, in order: the rarest first, and of equal ones first those that
/// most is left of, or the first sources would be through long before the last.
fn classes(partition: &Partition) -> Vec<StockClass> {
    let shape = partition.shape();
    let only = |group, class| {
        let (holders, spurners) = (partition.holders(class), partition.spurners(class));
        match partition.group(group).key.lacking[..] {
            [target] if shape.copies(target, holders, spurners) == 1 => {
                let mut members = shape.targets[target as usize].members.clone();
                let lacks =
                    |member: &u32| !holders.contains(*member) && shape.may_get(*member, spurners);
                members.find(lacks).map(|member| destination(shape, member))
            }
            _ => None,
        }
    };
    let groups = partition.open_groups().take(GROUPS_MAX);
    let classes = groups.flat_map(|group| {
        let of_group = partition.classes(group, (0, 0));
        of_group.map(move |(rarity, class)| {
            let only = only(group, class);
            (rarity, StockClass { class, only })
        })
    });
    let mut classes: Vec<(u32, StockClass)> = classes.collect();
    classes.sort_by_key(|(rarity, it)| (*rarity, Reverse(partition.blocks(it.class)), it.class));
    classes.into_iter().map(|(_, class)| class).collect()
}

/// What a relay has to do.
fn load(task: &Task, room: &Room, moves: &[Move], relay: u32) -> Load {
    let shape = task.partition.shape();
    let node = shape.members[relay as usize];
    let from_relay = moves.iter().filter(|moved| moved.from == relay);
    let sends: f64 = from_relay.clone().map(|moved| moved.bytes).sum();
    let sent: u64 = from_relay
        .map(|moved| u64::from(moved.run.end - moved.run.start))
        .sum();
    let free: f64 = shape
        .targets
        .iter()
        .filter(|target| !target.members.contains(&relay))
        .map(|target| {
            let able = target
                .members
                .clone()
                .filter(|member| shape.takes[*member as usize]);
            let ways = able.map(|member| room.left(node, shape.members[member as usize]));
            ways.fold(0.0, f64::max)
        })
        .sum();
    let has = task.partition.useful(relay).saturating_sub(sent);
    let blocks = has + task.coming[destination(shape, relay)].blocks();
    let load = Load {
        sends,
        free: free.min(room.out(node)),
        stock: blocks as f64 * task.block(),
    };
    debug_assert!(!load.wants().is_nan(), "amounts are numbers");
    load
}

/// What the relays of a site should get together: no more than the ways to other sites have room for.
fn site_wants(task: &Task, room: &Room, moves: &[Move], site: usize, relays: &[u32]) -> f64 {
    let shape = task.partition.shape();
    debug_assert!(!relays.is_empty(), "a site without relays needs none of it");
    let mut all = Load::default();
    for relay in relays {
        let load = load(task, room, moves, *relay);
        all.sends += load.sends;
        all.free += load.free;
        all.stock += load.stock;
    }
    let nodes = shape
        .targets
        .iter()
        .flat_map(|target| target.members.clone());
    let sites: BTreeSet<usize> = nodes
        .map(|member| room.cluster(shape.members[member as usize]))
        .collect();
    if !sites.contains(&site) {
        let ways = sites
            .iter()
            .map(|to| room.link(site, *to).min(room.cluster_in(*to)));
        all.free = all.free.min(ways.sum::<f64>().min(room.cluster_out(site)));
    }
    all.wants()
}
