//! The network at the level of flows: concurrent transfers share capacities max-min fairly.
//!
//! A flow goes from one node to another through a few resources. Each resource that cannot carry
//! what its flows would like has a *level*, the most it gives any one of them, such that they fill
//! it; a resource with room for all of them has none. A flow's rate is the least level on its way.
//! Levels that are consistent with one another are max-min fair: raising any flow would lower one
//! that is no faster.
//!
//! A change (a flow begins, ends or pauses; a capacity changes) is repaired from where it happened.
//! The resource computes its level from what its own flows get elsewhere and tells the resources
//! next to it only if its level falls, or rises by more than [`RISE_MIN`]. So no capacity is ever
//! exceeded, ripples die out after a few hops, and the cost of a change does not depend on the
//! size of the network. Changes of one instant are repaired together, by [`Flows::settle`].

mod heap;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use outpour_core::Time;

use heap::Heap;

/// How many resources a flow may pass.
pub const HOPS_MAX: usize = 5;

/// A resource of which a smaller share than this lies idle is left alone: the price of locality.
pub const RISE_MIN: f64 = 2e-3;
/// A resource of [`MANY`] flows keeps this share free, so that not every small change upsets all.
const HEADROOM: f64 = 1e-3;
const MANY: usize = 8;

/// Sums of rates are compared with capacities up to this relative error of arithmetic.
pub const TOLERANCE: f64 = 1e-9;

/// When a resource is full, but for errors of arithmetic.
const FULL: f64 = 1.0 + 1e-12;

/// How often each resource may be looked at in one [`Flows::settle`], on average, before levels
/// only fall, which ends soon. Repairs take a few looks; this bounds the worst case.
const LOOKS_MAX: usize = 64;

/// Something with a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceId(u32);

/// A flow; its index counts from zero in the order of [`Flows::add_flow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowId(pub u32);

/// All flows and the resources they share.
#[derive(Debug, Default)]
pub struct Flows {
    /// Bytes per second.
    capacities: Vec<f64>,
    /// Bytes per second; infinite where a resource limits none of its flows.
    levels: Vec<f64>,
    /// What the flows of each resource may take together, by the levels on their ways.
    used: Vec<f64>,
    /// The flows at work in each resource, and which of their hops it is.
    users: Vec<Vec<(u32, u8)>>,
    /// Whether the resource waits in `work`.
    waiting: Vec<bool>,
    work: VecDeque<u32>,
    flows: Vec<Flow>,
    /// Flows that began, ended, paused or went on since the last settlement.
    pending: Vec<u32>,
    /// Flows that may need another rate.
    touched: Vec<u32>,
    finishes: Heap,
    /// What the flows of one resource get elsewhere; kept for its memory.
    bounds: Vec<f64>,
}

#[derive(Debug)]
struct Flow {
    hops: [u32; HOPS_MAX],
    /// Where the flow is in each hop's list of users.
    slots: [u32; HOPS_MAX],
    len: u8,
    /// Something is to be sent.
    loaded: bool,
    paused: bool,
    /// In the lists of users.
    working: bool,
    is_pending: bool,
    is_touched: bool,
    /// Bytes per second.
    rate: f64,
    /// Bytes left at `since`.
    left: f64,
    since: Time,
}

impl Flow {
    fn hops(&self) -> &[u32] {
        &self.hops[..usize::from(self.len)]
    }

    fn advance(&mut self, now: Time) {
        let elapsed = now.since(self.since).as_secs_f64();
        if self.working && elapsed > 0.0 {
            self.left = (self.left - self.rate * elapsed).max(0.0);
        }
        self.since = now;
    }

    fn finish(&self) -> Time {
        let nanos = (self.left / self.rate * 1e9).ceil();
        // Saturates: what takes longer than virtual time lasts never ends.
        Time(self.since.0.saturating_add(nanos as u64))
    }
}

impl Flows {
    /// Adds a resource of `capacity` bytes per second, which may be infinite.
    pub fn add_resource(&mut self, capacity: f64) -> ResourceId {
        self.capacities.push(capacity);
        self.levels.push(f64::INFINITY);
        self.used.push(0.0);
        self.users.push(Vec::new());
        self.waiting.push(false);
        ResourceId((self.capacities.len() - 1) as u32)
    }

    /// Adds a flow without anything to send.
    ///
    /// # Panics
    /// If it passes more than [`HOPS_MAX`] resources.
    pub fn add_flow(&mut self, path: &[ResourceId]) -> FlowId {
        let mut hops = [0; HOPS_MAX];
        for (hop, resource) in hops[..path.len()].iter_mut().zip(path) {
            *hop = resource.0;
        }
        self.flows.push(Flow {
            hops,
            slots: [0; HOPS_MAX],
            len: path.len() as u8,
            loaded: false,
            paused: false,
            working: false,
            is_pending: false,
            is_touched: false,
            rate: 0.0,
            left: 0.0,
            since: Time::ZERO,
        });
        FlowId((self.flows.len() - 1) as u32)
    }

    /// Gives a flow `bytes` to send; what it was sending is forgotten.
    pub fn load(&mut self, now: Time, id: FlowId, bytes: u32) {
        let flow = &mut self.flows[id.0 as usize];
        flow.loaded = true;
        flow.left = f64::from(bytes);
        flow.since = now;
        if flow.working && flow.rate > 0.0 {
            self.finishes.set(id.0, flow.finish());
        }
        self.reconsider(id.0);
    }

    /// Stops a flow and forgets what it was sending.
    pub fn unload(&mut self, id: FlowId) {
        self.flows[id.0 as usize].loaded = false;
        self.finishes.remove(id.0);
        self.reconsider(id.0);
    }

    /// Pauses a flow, or lets it go on with what is left.
    pub fn set_paused(&mut self, now: Time, id: FlowId, paused: bool) {
        let flow = &mut self.flows[id.0 as usize];
        if flow.paused != paused {
            flow.advance(now);
            flow.paused = paused;
            if paused {
                self.finishes.remove(id.0);
            }
            self.reconsider(id.0);
        }
    }

    /// Changes what a resource carries at most, in bytes per second.
    pub fn set_capacity(&mut self, resource: ResourceId, capacity: f64) {
        self.capacities[resource.0 as usize] = capacity;
        self.look_at(resource.0);
    }

    /// A resource's capacity in bytes per second.
    pub fn capacity(&self, resource: ResourceId) -> f64 {
        self.capacities[resource.0 as usize]
    }

    /// A flow's rate since the last settlement, in bytes per second.
    pub fn rate(&self, id: FlowId) -> f64 {
        self.flows[id.0 as usize].rate
    }

    /// Whether nothing changed since the last settlement.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.work.is_empty()
    }

    /// When the next flow is through with what it has to send, as far as settled.
    pub fn next_time(&self) -> Option<Time> {
        self.finishes.first().map(|(time, _)| time)
    }

    /// The next flow that is through; it stops unless it is loaded before the next settlement.
    pub fn pop(&mut self) -> Option<(Time, FlowId)> {
        let (time, id) = self.finishes.first()?;
        self.unload(FlowId(id));
        Some((time, FlowId(id)))
    }

    /// Brings all rates up to date; to be called before time passes.
    pub fn settle(&mut self, now: Time) {
        let mut pending = std::mem::take(&mut self.pending);
        for id in pending.drain(..) {
            let flow = &mut self.flows[id as usize];
            flow.is_pending = false;
            match (flow.loaded && !flow.paused, flow.working) {
                (true, false) => self.join(now, id),
                (false, true) => self.leave(now, id),
                _ => {}
            }
        }
        self.pending = pending;
        let mut looks_left = LOOKS_MAX * (self.levels.len() + 1);
        while let Some(resource) = self.work.pop_front() {
            self.waiting[resource as usize] = false;
            looks_left = looks_left.saturating_sub(1);
            self.level(resource, looks_left > 0);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            self.update(now, id);
        }
        self.touched = touched;
    }

    /// The first resource that carries more than it can, with its load and capacity.
    pub fn overload(&self) -> Option<(ResourceId, f64, f64)> {
        let load = |users: &Vec<(u32, u8)>| -> f64 {
            users
                .iter()
                .map(|(id, _)| self.flows[*id as usize].rate)
                .sum()
        };
        (0..)
            .zip(&self.users)
            .zip(&self.capacities)
            .find_map(|((index, users), capacity)| {
                let load = load(users);
                (load > capacity * (1.0 + TOLERANCE)).then_some((
                    ResourceId(index),
                    load,
                    *capacity,
                ))
            })
    }

    fn reconsider(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        if !flow.is_pending {
            flow.is_pending = true;
            self.pending.push(id);
        }
    }

    fn look_at(&mut self, resource: u32) {
        let waiting = &mut self.waiting[resource as usize];
        if !*waiting {
            *waiting = true;
            self.work.push_back(resource);
        }
    }

    fn touch(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        if !flow.is_touched {
            flow.is_touched = true;
            self.touched.push(id);
        }
    }

    fn join(&mut self, now: Time, id: u32) {
        let flow = &mut self.flows[id as usize];
        flow.working = true;
        flow.since = now;
        flow.rate = 0.0;
        for hop in 0..flow.len {
            let flow = &mut self.flows[id as usize];
            let resource = flow.hops[usize::from(hop)];
            let users = &mut self.users[resource as usize];
            flow.slots[usize::from(hop)] = users.len() as u32;
            users.push((id, hop));
            let share = self.bound(id, HOPS_MAX, HOPS_MAX);
            self.shift(resource, share);
        }
        self.touch(id);
    }

    fn leave(&mut self, now: Time, id: u32) {
        let flow = &mut self.flows[id as usize];
        flow.advance(now);
        flow.working = false;
        flow.rate = 0.0;
        self.finishes.remove(id);
        let share = self.bound(id, HOPS_MAX, HOPS_MAX);
        for hop in 0..usize::from(self.flows[id as usize].len) {
            let flow = &self.flows[id as usize];
            let (resource, slot) = (flow.hops[hop], flow.slots[hop]);
            let users = &mut self.users[resource as usize];
            users.swap_remove(slot as usize);
            if let Some((moved, its_hop)) = users.get(slot as usize) {
                self.flows[*moved as usize].slots[usize::from(*its_hop)] = slot;
            }
            if users.is_empty() {
                self.levels[resource as usize] = f64::INFINITY;
                self.used[resource as usize] = 0.0;
            } else {
                self.shift(resource, -share);
            }
        }
    }

    /// Computes a resource's level and passes the difference on to its neighbours.
    fn level(&mut self, resource: u32, may_rise: bool) {
        let at = resource as usize;
        let (capacity, old, users) = (self.capacities[at], self.levels[at], &self.users[at]);
        self.bounds.clear();
        let (mut wanted, mut used) = (0.0, 0.0);
        for (id, hop) in users {
            let bound = self.bound(*id, usize::from(*hop), usize::from(*hop));
            wanted += bound;
            used += bound.min(old);
            self.bounds.push(bound);
        }
        let goal = if users.len() < MANY {
            capacity
        } else {
            capacity * (1.0 - HEADROOM)
        };
        let (new, load) = if wanted <= goal {
            (f64::INFINITY, wanted)
        } else {
            (fill(goal, &self.bounds), goal)
        };
        // Room for all must be told, however little: two resources that each hold a flow at the
        // other's stale level would hold it there for ever.
        if used <= capacity * FULL && (!may_rise || new <= old * (1.0 + RISE_MIN)) {
            self.used[at] = used;
            return;
        }
        self.levels[at] = new;
        self.used[at] = load;
        if new != old {
            self.tell(resource, old, new);
        }
    }

    fn tell(&mut self, resource: u32, old: f64, new: f64) {
        for index in 0..self.users[resource as usize].len() {
            let (id, hop) = self.users[resource as usize][index];
            self.touch(id);
            for other in 0..usize::from(self.flows[id as usize].len) {
                if other == usize::from(hop) {
                    continue;
                }
                let neighbour = self.flows[id as usize].hops[other];
                let rest = self.bound(id, usize::from(hop), other);
                let rest = rest.min(self.levels[neighbour as usize]);
                let (before, after) = (rest.min(old), rest.min(new));
                if before != after {
                    self.shift(neighbour, after - before);
                }
            }
        }
    }

    /// The flows of a resource want so much more, or less, of it at its present level.
    fn shift(&mut self, resource: u32, by: f64) {
        let at = resource as usize;
        let used = self.used[at] + by;
        self.used[at] = used;
        let capacity = self.capacities[at];
        let idle = self.levels[at].is_finite() && used < capacity * (1.0 - RISE_MIN);
        // Infinities may have met: then the sum is not a number and has to be made anew.
        let fits = used <= capacity * FULL && used.is_finite();
        if idle || !fits {
            self.look_at(resource);
        }
    }

    /// What a flow gets where it passes hops other than these two.
    fn bound(&self, id: u32, one: usize, two: usize) -> f64 {
        let mut bound = f64::INFINITY;
        for (hop, resource) in self.flows[id as usize].hops().iter().enumerate() {
            if hop != one && hop != two {
                bound = bound.min(self.levels[*resource as usize]);
            }
        }
        bound
    }

    fn update(&mut self, now: Time, id: u32) {
        let rate = self.bound(id, HOPS_MAX, HOPS_MAX);
        let flow = &mut self.flows[id as usize];
        flow.is_touched = false;
        if !flow.working || flow.rate == rate {
            return;
        }
        flow.advance(now);
        flow.rate = rate;
        if rate > 0.0 {
            self.finishes.set(id, flow.finish());
        } else {
            self.finishes.remove(id);
        }
    }
}

/// The level at which flows that get at most `bounds` elsewhere, and together more than
/// `capacity`, fill it.
fn fill(capacity: f64, bounds: &[f64]) -> f64 {
    let mut level = capacity / bounds.len() as f64;
    loop {
        let (mut fixed, mut free) = (0.0, 0_u32);
        for bound in bounds {
            if *bound <= level {
                fixed += bound;
            } else {
                free += 1;
            }
        }
        let next = (capacity - fixed) / f64::from(free);
        // With rounding, or if none is free (then it is not a number), this is as high as it gets.
        if next > level {
            level = next;
        } else {
            return level;
        }
    }
}
