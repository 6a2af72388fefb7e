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
//! next to it; they look at theirs only if that makes them exceed their capacity, or leaves more
//! than a small share of it idle. So no capacity is ever exceeded, ripples die out after a few
//! hops, and the cost of a change does not depend on the size of the network. Rates are those of
//! max-min fairness within 2 %, and nearly always within 1 %; few flows in small networks share
//! exactly. Changes of one instant are repaired together, by [`Flows::settle`].

mod clock;
mod heap;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use outpour_core::Time;

use outpour_core::network::PATH_MAX;

use clock::Clock;
use heap::Heap;

/// How many resources a flow may pass: those on its path, and one of its own.
pub const HOPS_MAX: usize = PATH_MAX + 1;

/// Of a resource so small a share may lie idle: the price of locality.
pub const IDLE_MAX: f64 = 1e-3;
/// The same of a resource that has [`MANY`] flows: each of them makes little difference ...
pub const IDLE_MAX_OF_MANY: f64 = 2e-2;
/// ... and this share is kept free, so that not every small change upsets all.
const HEADROOM_OF_MANY: f64 = 6e-3;
/// How many flows are many.
pub const MANY: usize = 8;

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

/// The resource of flows that nothing limits; it has no capacity and no users.
const OPEN: u32 = 0;
/// A flow that is at rest has no limiter.
const NONE: u32 = u32::MAX;

/// All flows and the resources they share.
#[derive(Debug)]
pub struct Flows {
    /// Bytes per second.
    capacities: Vec<f64>,
    /// Bytes per second; infinite where a resource limits none of its flows.
    levels: Vec<f64>,
    /// The sum of the rates of each resource's flows, by the levels on their ways.
    used: Vec<f64>,
    /// The flows at work in each resource.
    users: Vec<Vec<User>>,
    /// The flows each resource limits.
    clocks: Vec<Clock>,
    /// Whether the resource waits in `work`.
    waiting: Vec<bool>,
    work: VecDeque<u32>,
    /// Resources whose level or limited flows changed: the next finish has to be found anew.
    retimed: Vec<u32>,
    is_retimed: Vec<bool>,

    flows: Vec<Flow>,
    /// The resource that sets each flow's rate.
    limiters: Vec<u32>,
    /// Flows that began, ended, paused or went on since the last settlement.
    pending: Vec<u32>,
    /// Flows that may need another limiter.
    touched: Vec<u32>,
    /// By resource.
    finishes: Heap,
    /// What the flows of one resource get elsewhere; kept for its memory.
    bounds: Vec<f64>,
}

/// A flow in a resource.
#[derive(Clone, Copy, Debug)]
struct User {
    flow: u32,
    /// Which of its hops this is.
    hop: u8,
    /// The other hop of a flow that has two, which is the most common.
    other: u32,
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
    /// Where it is in its limiter's clock.
    place: u32,
    /// Bytes left, while it has no limiter.
    left: f64,
}

impl Flow {
    fn hops(&self) -> &[u32] {
        &self.hops[..usize::from(self.len)]
    }
}

impl Default for Flows {
    fn default() -> Self {
        let mut flows = Self {
            capacities: Vec::new(),
            levels: Vec::new(),
            used: Vec::new(),
            users: Vec::new(),
            clocks: Vec::new(),
            waiting: Vec::new(),
            work: VecDeque::new(),
            retimed: Vec::new(),
            is_retimed: Vec::new(),
            flows: Vec::new(),
            limiters: Vec::new(),
            pending: Vec::new(),
            touched: Vec::new(),
            finishes: Heap::default(),
            bounds: Vec::new(),
        };
        flows.add_resource(f64::INFINITY);
        flows
    }
}

impl Flows {
    /// Adds a resource of `capacity` bytes per second, which may be infinite.
    pub fn add_resource(&mut self, capacity: f64) -> ResourceId {
        self.capacities.push(capacity);
        self.levels.push(f64::INFINITY);
        self.used.push(0.0);
        self.users.push(Vec::new());
        self.clocks.push(Clock::default());
        self.waiting.push(false);
        self.is_retimed.push(false);
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
            place: 0,
            left: 0.0,
        });
        self.limiters.push(NONE);
        FlowId((self.flows.len() - 1) as u32)
    }

    /// Adds a flow that passes the same resources as another one.
    pub fn add_twin(&mut self, id: FlowId) -> FlowId {
        let hops = self.flows[id.0 as usize].hops().iter();
        let path: Vec<ResourceId> = hops.map(|hop| ResourceId(*hop)).collect();
        self.add_flow(&path)
    }

    /// Whether a flow has something to send.
    pub fn is_loaded(&self, id: FlowId) -> bool {
        self.flows[id.0 as usize].loaded
    }

    /// Has a flow pass one more resource.
    ///
    /// # Panics
    /// If it passes [`HOPS_MAX`] already.
    pub fn add_hop(&mut self, now: Time, id: FlowId, resource: ResourceId) {
        let limiter = self.limiters[id.0 as usize];
        if limiter != NONE {
            self.finishes.remove(limiter);
        }
        if self.flows[id.0 as usize].working {
            self.leave(now, id.0);
        }
        let flow = &mut self.flows[id.0 as usize];
        flow.hops[usize::from(flow.len)] = resource.0;
        flow.len += 1;
        self.reconsider(id.0);
    }

    /// Gives a flow `bytes` to send; what it was sending is forgotten.
    pub fn load(&mut self, now: Time, id: FlowId, bytes: u32) {
        self.flows[id.0 as usize].loaded = true;
        self.set_left(now, id.0, f64::from(bytes));
    }

    /// Stops a flow and forgets what it was sending.
    pub fn unload(&mut self, now: Time, id: FlowId) {
        self.flows[id.0 as usize].loaded = false;
        self.set_left(now, id.0, f64::INFINITY);
    }

    fn set_left(&mut self, now: Time, id: u32, left: f64) {
        let flow = &mut self.flows[id as usize];
        flow.left = left;
        let limiter = self.limiters[id as usize];
        if limiter != NONE {
            let clock = &mut self.clocks[limiter as usize];
            clock.advance(now, self.levels[limiter as usize]);
            clock.load(flow.place, left);
            self.finishes.remove(limiter);
            self.retime(limiter);
        }
        self.reconsider(id);
    }

    /// Pauses a flow, or lets it go on with what is left.
    pub fn set_paused(&mut self, now: Time, id: FlowId, paused: bool) {
        let flow = &mut self.flows[id.0 as usize];
        if flow.paused != paused {
            flow.paused = paused;
            let limiter = self.limiters[id.0 as usize];
            if limiter != NONE {
                self.release(now, id.0);
                self.finishes.remove(limiter);
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

    /// How much of what a flow is sending is left, in bytes; nothing if it is idle.
    pub fn left(&self, now: Time, id: FlowId) -> f64 {
        let flow = &self.flows[id.0 as usize];
        if !flow.loaded {
            return 0.0;
        }
        match self.limiters[id.0 as usize] {
            NONE => flow.left,
            limiter => {
                let level = self.levels[limiter as usize];
                self.clocks[limiter as usize].left(flow.place, now, level)
            }
        }
    }

    /// A flow's rate since the last settlement, in bytes per second.
    pub fn rate(&self, id: FlowId) -> f64 {
        match self.limiters[id.0 as usize] {
            NONE => 0.0,
            limiter => self.levels[limiter as usize],
        }
    }

    /// Whether nothing changed since the last settlement.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.work.is_empty() && self.retimed.is_empty()
    }

    /// When the next flow is through with what it has to send, as far as settled.
    pub fn next_time(&self) -> Option<Time> {
        self.finishes.first().map(|(time, _)| time)
    }

    /// The next flow that is through; it stops unless it is loaded before the next settlement.
    pub fn pop(&mut self) -> Option<(Time, FlowId)> {
        let (time, limiter) = self.finishes.first()?;
        let clock = &mut self.clocks[limiter as usize];
        clock.advance(time, self.levels[limiter as usize]);
        let id = clock.pop()?;
        self.finishes.remove(limiter);
        self.retime(limiter);
        let flow = &mut self.flows[id as usize];
        flow.loaded = false;
        flow.left = f64::INFINITY;
        self.reconsider(id);
        Some((time, FlowId(id)))
    }

    /// Brings all rates up to date; to be called before time passes.
    pub fn settle(&mut self, now: Time) {
        let mut pending = std::mem::take(&mut self.pending);
        for id in pending.drain(..) {
            let flow = &mut self.flows[id as usize];
            flow.is_pending = false;
            match (flow.loaded && !flow.paused, flow.working) {
                (true, false) => self.join(id),
                (true, true) => self.touch(id),
                (false, true) => self.leave(now, id),
                (false, false) => {}
            }
        }
        self.pending = pending;
        let mut looks_left = LOOKS_MAX * self.levels.len();
        while let Some(resource) = self.work.pop_front() {
            self.waiting[resource as usize] = false;
            looks_left = looks_left.saturating_sub(1);
            self.level(now, resource, looks_left > 0);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            self.find_limiter(now, id);
        }
        self.touched = touched;
        let mut retimed = std::mem::take(&mut self.retimed);
        for resource in retimed.drain(..) {
            self.is_retimed[resource as usize] = false;
            self.find_finish(resource);
        }
        self.retimed = retimed;
    }

    /// The first resource that carries more than it can, with its load and capacity.
    pub fn overload(&self) -> Option<(ResourceId, f64, f64)> {
        // Of users, who are at work, the rate is the level of their limiter.
        let rate = |user: &User| match self.limiters[user.flow as usize] {
            NONE => 0.0,
            limiter => self.levels[limiter as usize],
        };
        let load = |users: &Vec<User>| -> f64 { users.iter().map(rate).sum() };
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

    // ---- marks for the next settlement

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

    fn retime(&mut self, resource: u32) {
        let retimed = &mut self.is_retimed[resource as usize];
        if !*retimed {
            *retimed = true;
            self.retimed.push(resource);
        }
    }

    // ---- flows come and go

    fn join(&mut self, id: u32) {
        self.flows[id as usize].working = true;
        let rate = self.bound(id, HOPS_MAX);
        for hop in 0..usize::from(self.flows[id as usize].len) {
            let flow = &mut self.flows[id as usize];
            let resource = flow.hops[hop];
            let other = if flow.len == 2 {
                flow.hops[1 - hop]
            } else {
                NONE
            };
            let users = &mut self.users[resource as usize];
            flow.slots[hop] = users.len() as u32;
            users.push(User {
                flow: id,
                hop: hop as u8,
                other,
            });
            self.shift(resource, rate);
        }
        self.touch(id);
    }

    fn leave(&mut self, now: Time, id: u32) {
        self.release(now, id);
        self.flows[id as usize].working = false;
        let rate = self.bound(id, HOPS_MAX);
        for hop in 0..usize::from(self.flows[id as usize].len) {
            let flow = &self.flows[id as usize];
            let (resource, slot) = (flow.hops[hop], flow.slots[hop]);
            let users = &mut self.users[resource as usize];
            users.swap_remove(slot as usize);
            if let Some(moved) = users.get(slot as usize) {
                self.flows[moved.flow as usize].slots[usize::from(moved.hop)] = slot;
            }
            if users.is_empty() {
                self.levels[resource as usize] = f64::INFINITY;
                self.used[resource as usize] = 0.0;
            } else {
                self.shift(resource, -rate);
            }
        }
    }

    // ---- levels

    /// Computes a resource's level and passes the difference on to its neighbours.
    fn level(&mut self, now: Time, resource: u32, may_rise: bool) {
        let at = resource as usize;
        let (capacity, old) = (self.capacities[at], self.levels[at]);
        let mut bounds = std::mem::take(&mut self.bounds);
        bounds.clear();
        bounds.extend(self.users[at].iter().map(|user| self.elsewhere(*user)));
        // A loop of its own, in which nothing is called: the sums stay in registers.
        let (mut wanted, mut fixed, mut free) = (0.0, 0.0, 0.0);
        for bound in &bounds {
            let is_free = *bound > old;
            wanted += bound;
            fixed += if is_free { 0.0 } else { *bound };
            free += if is_free { 1.0 } else { 0.0 };
        }
        let used = if free == 0.0 {
            fixed
        } else {
            fixed + free * old
        };
        let (headroom, idle_max) = band(bounds.len());
        let goal = capacity * (1.0 - headroom);
        let (new, load) = if wanted <= goal {
            (f64::INFINITY, wanted)
        } else {
            (fill(goal, &bounds, (goal - fixed) / free), goal)
        };
        // Room for all must be told, however little: two resources that each hold a flow at the
        // other's stale level would hold it there for ever.
        if used <= capacity * FULL && (!may_rise || new <= old * (1.0 + idle_max)) {
            self.used[at] = used;
        } else {
            self.clocks[at].advance(now, old);
            self.levels[at] = new;
            self.used[at] = load;
            self.retime(resource);
            self.tell(resource, old, new, &bounds);
        }
        self.bounds = bounds;
    }

    /// Passes a change of level on: `bounds` is what the resource's flows get elsewhere.
    fn tell(&mut self, resource: u32, old: f64, new: f64, bounds: &[f64]) {
        for (index, bound) in bounds.iter().enumerate() {
            let user = self.users[resource as usize][index];
            let limits = self.limiters[user.flow as usize] == resource;
            if if limits { new > *bound } else { new < *bound } {
                self.touch(user.flow);
            }
            let more = bound.min(new) - bound.min(old);
            if more == 0.0 {
                continue;
            }
            if user.other != NONE {
                self.shift(user.other, more);
                continue;
            }
            for hop in 0..usize::from(self.flows[user.flow as usize].len) {
                if hop != usize::from(user.hop) {
                    self.shift(self.flows[user.flow as usize].hops[hop], more);
                }
            }
        }
    }

    /// The flows of a resource take so much more of it, or less.
    fn shift(&mut self, resource: u32, by: f64) {
        let at = resource as usize;
        let used = self.used[at] + by;
        self.used[at] = used;
        let capacity = self.capacities[at];
        let (_, idle_max) = band(self.users[at].len());
        let idle = self.levels[at].is_finite() && used < capacity * (1.0 - idle_max);
        // Infinities may have met: then the sum is not a number and has to be made anew.
        let fits = used <= capacity * FULL && used.is_finite();
        if idle || !fits {
            self.look_at(resource);
        }
    }

    /// What a flow gets where it passes other resources than this one.
    fn elsewhere(&self, user: User) -> f64 {
        match user.other {
            NONE => self.bound(user.flow, usize::from(user.hop)),
            other => self.levels[other as usize],
        }
    }

    /// What a flow gets where it passes other hops than this one.
    fn bound(&self, id: u32, but: usize) -> f64 {
        let mut bound = f64::INFINITY;
        for (hop, resource) in self.flows[id as usize].hops().iter().enumerate() {
            if hop != but {
                bound = bound.min(self.levels[*resource as usize]);
            }
        }
        bound
    }

    // ---- which flow limits which, and which is through when

    fn find_limiter(&mut self, now: Time, id: u32) {
        let flow = &mut self.flows[id as usize];
        flow.is_touched = false;
        if !flow.working {
            return;
        }
        let limiter = self.limiters[id as usize];
        let (mut best, mut rate) = (OPEN, f64::INFINITY);
        for resource in flow.hops() {
            if self.levels[*resource as usize] < rate {
                (best, rate) = (*resource, self.levels[*resource as usize]);
            }
        }
        if limiter != NONE && self.levels[limiter as usize] == rate {
            return;
        }
        self.release(now, id);
        let clock = &mut self.clocks[best as usize];
        clock.advance(now, rate);
        let flow = &mut self.flows[id as usize];
        flow.place = clock.add(id, flow.left);
        self.limiters[id as usize] = best;
        self.retime(best);
    }

    /// Takes a flow from its limiter, if it has one.
    fn release(&mut self, now: Time, id: u32) {
        let limiter = std::mem::replace(&mut self.limiters[id as usize], NONE);
        if limiter == NONE {
            return;
        }
        let clock = &mut self.clocks[limiter as usize];
        clock.advance(now, self.levels[limiter as usize]);
        let flow = &mut self.flows[id as usize];
        let (left, moved) = clock.remove(flow.place);
        flow.left = left;
        let place = flow.place;
        if let Some(moved) = moved {
            self.flows[moved as usize].place = place;
        }
        self.retime(limiter);
    }

    fn find_finish(&mut self, resource: u32) {
        match self.clocks[resource as usize].next(self.levels[resource as usize]) {
            Some(time) => self.finishes.set(resource, time),
            None => self.finishes.remove(resource),
        }
    }
}

/// Which share of a resource with so many flows is kept free, and which share may be idle.
const fn band(users: usize) -> (f64, f64) {
    if users < MANY {
        (0.0, IDLE_MAX)
    } else {
        (HEADROOM_OF_MANY, IDLE_MAX_OF_MANY)
    }
}

/// The level at which flows that get at most `bounds` elsewhere, and together more than
/// `capacity`, fill it.
///
/// What they take is a concave function of the level, so a step along its tangent never leads
/// beyond the level sought, wherever it starts. `first` is such a step; no number, or infinite, if
/// it started beyond all bounds, where the tangent is flat.
fn fill(capacity: f64, bounds: &[f64], first: f64) -> f64 {
    let mut level = if first.is_finite() {
        first
    } else {
        capacity / bounds.len() as f64
    };
    loop {
        let (mut fixed, mut free) = (0.0, 0.0);
        for bound in bounds {
            let is_free = *bound > level;
            fixed += if is_free { 0.0 } else { *bound };
            free += if is_free { 1.0 } else { 0.0 };
        }
        let next = (capacity - fixed) / free;
        // With rounding, or if none is free, this is as high as it gets.
        if next > level && next.is_finite() {
            level = next;
        } else {
            return level;
        }
    }
}
