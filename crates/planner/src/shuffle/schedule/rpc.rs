//! Placing reducers and scheduling coflows together [RPC algorithm 1].

use super::super::greedy::{self, Wanted};
use super::super::{HostId, Hosts};
use super::monitor::Monitor;
use super::place_one;
use super::running::slowest;
use super::{Decision, Grant, News, Room, Running, Scheduler, Waves, free_slots};

/// How many coflows are planned ahead: what the others could use now is little.
const AHEAD_MAX: usize = 32;
/// Of how many that have not started, those with the least times alone, the one with the least time comes next:
/// what is sent before delays them alike. Those that have started are all compared: they cannot move, and one
/// on slow hosts, which takes long, would come after all that are to start there.
const COMPARED: usize = 4;
/// What is longer by no more than this share is as long.
const SAME: f64 = 1e-6;

/// How [`Rpc`] decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RpcOptions {
    /// A coflow that has waited for so long comes first, seconds.
    pub starvation_s: f64,
    /// Whether reducers start on hosts that would be idle otherwise [RPC §III, figure 8].
    pub work_conserving: bool,
    /// What happens to a coflow with more reducers than hosts may run at once.
    pub waves: Waves,
    /// Coflows of fewer bytes are not planned: their reducers go anywhere and come first.
    pub background_bytes: f64,
    /// Seed of where reducers of such coflows go.
    pub seed: u64,
}

impl Default for RpcOptions {
    fn default() -> Self {
        Self {
            starvation_s: 1e3,
            work_conserving: false,
            waves: Waves::Planned,
            background_bytes: 0.0,
            seed: 1,
        }
    }
}

/// A coflow and where its reducers will go.
#[derive(Clone, Debug)]
struct Planned {
    number: usize,
    places: Vec<HostId>,
}

/// A coflow that may be next.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// What it takes alone, seconds, over its weight.
    key: f64,
    index: usize,
}

/// What planned coflows have to send and receive before others, bytes for each host.
#[derive(Clone, Debug)]
struct Queued {
    out: Vec<f64>,
    into: Vec<f64>,
    /// What reducers that have started have to receive, those of coflows that come later, too.
    all_into: Vec<f64>,
}

/// A plan that is being made.
struct Planning<'a> {
    hosts: &'a Hosts,
    /// What of hosts' bandwidth can be planned.
    available: &'a Hosts,
    queued: Queued,
    plan: &'a mut Vec<Planned>,
}

impl Planning<'_> {
    /// This coflow comes next, if it takes no more than so many seconds then. Says whether it does.
    fn next(&mut self, running: &mut [Running], index: usize, seconds: f64) -> bool {
        let found = best(
            &mut running[index],
            self.hosts,
            self.available,
            &self.queued,
        );
        let in_time = found.filter(|(takes, _)| *takes <= seconds);
        let Some((_, places)) = in_time else {
            return false;
        };
        self.choose(&running[index], places);
        true
    }

    fn choose(&mut self, running: &Running, places: Vec<HostId>) {
        running.add_out(&places, &mut self.queued.out);
        running.add_into(&places, &mut self.queued.into);
        for reducer in running.waiting() {
            let host = places[reducer];
            self.queued.all_into[host] += running.coflow().fetches(reducer, host);
        }
        let number = running.number;
        self.plan.push(Planned { number, places });
    }

    /// Of those that have started and those with the least times alone the one with the least time comes next,
    /// and so on.
    fn shortest_first(&mut self, running: &mut [Running], sorted: Vec<Candidate>) {
        let has_started = |candidate: &Candidate| running[candidate.index].has_started();
        let (mut started, fresh): (Vec<_>, Vec<_>) = sorted.into_iter().partition(has_started);
        let mut fresh = fresh.into_iter();
        let mut compared: Vec<Candidate> = fresh.by_ref().take(COMPARED).collect();
        for _ in 0..AHEAD_MAX {
            match self.shortest(running, [&mut started, &mut compared]) {
                Some((index, places)) => {
                    started.retain(|candidate| candidate.index != index);
                    compared.retain(|candidate| candidate.index != index);
                    self.choose(&running[index], places);
                }
                // None of these ever ends as things are.
                None => {
                    started.clear();
                    compared.clear();
                }
            }
            compared.extend(fresh.by_ref().take(COMPARED - compared.len()));
            if started.is_empty() && compared.is_empty() {
                return;
            }
        }
    }

    /// Which of these takes the least time now, the first of several, and where its reducers go. What a coflow takes
    /// only grows while others are planned, so each keeps what it took as a bound: few are looked at again.
    fn shortest(
        &self,
        running: &mut [Running],
        compared: [&mut [Candidate]; 2],
    ) -> Option<(usize, Vec<HostId>)> {
        let mut by_bound: Vec<&mut Candidate> = compared.into_iter().flatten().collect();
        // Stable: of those with the same bound the first stays the first.
        by_bound.sort_by(|a, b| a.key.total_cmp(&b.key));
        let mut found: Option<(f64, usize, Vec<HostId>)> = None;
        for candidate in by_bound {
            if found
                .as_ref()
                .is_some_and(|(key, ..)| candidate.key >= *key)
            {
                break;
            }
            let coflow = &mut running[candidate.index];
            let best = best(coflow, self.hosts, self.available, &self.queued);
            let weight = coflow.weight;
            candidate.key = best
                .as_ref()
                .map_or(f64::INFINITY, |(seconds, _)| seconds / weight);
            if let Some((_, places)) = best
                && found
                    .as_ref()
                    .is_none_or(|(least, ..)| candidate.key < *least)
            {
                found = Some((candidate.key, candidate.index, places));
            }
        }
        found.map(|(_, index, places)| (index, places))
    }
}

/// The scheduler: the coflow with the shortest time to its end first, placed such that this time is
/// short given those before it [RPC §III, §IV-C].
#[derive(Clone, Debug, Default)]
pub struct Rpc {
    options: RpcOptions,
    plan: Vec<Planned>,
    monitor: Monitor,
    /// Coflows that have waited for too long, by number.
    starved: Vec<usize>,
}

impl Rpc {
    /// A scheduler with these options.
    pub fn new(options: RpcOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    fn is_background(&self, running: &Running) -> bool {
        running.coflow().bytes() < self.options.background_bytes
    }

    fn has_starved(&self, now_s: f64, running: &Running) -> bool {
        now_s >= running.served_s + self.options.starvation_s
    }

    /// In which order coflows come, and where their reducers will go.
    fn replan(&mut self, now_s: f64, hosts: &Hosts, running: &mut [Running]) {
        let available = match self.options.background_bytes > 0.0 {
            true => self.monitor.available(hosts),
            false => hosts.clone(),
        };
        self.plan.clear();
        let mut planning = Planning {
            hosts,
            available: &available,
            queued: Queued::before_any(hosts, running),
            plan: &mut self.plan,
        };
        let mut candidates = Vec::with_capacity(running.len());
        let (mut starved, mut urgent) = (Vec::new(), Vec::new());
        for (index, coflow) in running.iter_mut().enumerate() {
            let is_background = coflow.coflow().bytes() < self.options.background_bytes;
            if coflow.after.is_some() || is_background {
                continue;
            }
            if self.starved.contains(&coflow.number) {
                starved.push(index);
                continue;
            }
            if let Some(deadline) = coflow.deadline_s {
                urgent.push((deadline, index));
            }
            let key = coflow.alone_s(hosts) / coflow.weight;
            candidates.push(Candidate { key, index });
        }
        // Those that have waited for too long come first, then those that can meet their deadlines.
        for index in starved {
            planning.next(running, index, f64::INFINITY);
        }
        urgent.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (deadline, index) in urgent {
            if planning.next(running, index, deadline - now_s) {
                candidates.retain(|candidate| candidate.index != index);
            }
        }
        candidates.sort_by(|a, b| a.key.total_cmp(&b.key).then(a.index.cmp(&b.index)));
        planning.shortest_first(running, candidates);
    }

    /// Gives bandwidth to coflows that are not planned, before all others.
    fn serve_background(
        &mut self,
        hosts: &Hosts,
        running: &mut [Running],
        room: &mut Room,
        grants: &mut Vec<Grant>,
    ) {
        if self.options.background_bytes <= 0.0 {
            return;
        }
        for index in 0..running.len() {
            if !self.is_background(&running[index]) {
                continue;
            }
            if running[index].has_waiting() {
                // Hosts had no room for all of its reducers when it arrived.
                let free = &mut free_slots(hosts, running);
                place_one::at_random(self.options.seed, hosts, running, index, free);
            }
            let coflow = &running[index];
            let from = grants.len();
            let mut serving = room.serve(index, coflow);
            serving.give_hosts();
            serving.end(grants);
            for grant in &grants[from..] {
                if let Some(host) = coflow.places()[grant.reducer] {
                    let shares = coflow.shares(grant.reducer);
                    self.monitor.sees(host, grant.bytes_per_s, shares);
                }
            }
        }
    }

    /// Starts reducers on hosts that would be idle, the largest first.
    fn conserve(&self, running: &mut [Running], turn: &mut Turn<'_>) {
        for planned in &self.plan {
            let Ok(index) = find(running, planned.number) else {
                continue;
            };
            if turn.room.is_used_up() {
                return;
            }
            turn.start_anywhere(running, index);
        }
    }
}

/// One decision under way.
struct Turn<'a> {
    room: &'a mut Room,
    grants: &'a mut Vec<Grant>,
    /// How many reducers each host may yet start.
    slots: Vec<u32>,
    /// Whether a coflow that comes first has something to do on a host.
    taken: Vec<bool>,
    /// Whether reducers only start where there is room now.
    one_by_one: bool,
    /// Whether those of any wave but the last start wherever there is room.
    anywhere: bool,
}

impl Turn<'_> {
    /// Starts a reducer if it would get anything, and gives it all it can get. False if mappers have nothing
    /// left for it.
    fn start(
        &mut self,
        running: &mut [Running],
        index: usize,
        reducer: usize,
        host: HostId,
    ) -> bool {
        let is_local = running[index].coflow().fetches(reducer, host) <= 0.0;
        if self.slots[host] == 0 || !is_local && !self.room.has_room(host) {
            return true;
        }
        if !is_local && self.room.serve(index, &running[index]).most(reducer, host) <= 0.0 {
            return false;
        }
        running[index].start(reducer, host);
        self.slots[host] -= 1;
        if is_local {
            return true;
        }
        let mut serving = self.room.serve(index, &running[index]);
        let most = serving.most(reducer, host);
        serving.give(reducer, host, most);
        serving.end(self.grants);
        true
    }

    /// Serves the coflow that comes next. If none before it is on the hosts where it waits, all of it
    /// starts, and all of its flows end together [RPC algorithm 3]. If not, what has started gets what is
    /// left on its hosts, and what waits starts one by one where there is more.
    fn serve(&mut self, running: &mut [Running], index: usize, places: &[HostId]) {
        let starts_anywhere = self.anywhere && !running[index].is_last_wave();
        let coflow = &mut running[index];
        let waiting: Vec<usize> = coflow.waiting().collect();
        let is_first = |reducer: &usize| !self.taken[places[*reducer]];
        if !self.one_by_one && !starts_anywhere && waiting.iter().all(is_first) {
            for reducer in waiting {
                let host = places[reducer];
                if self.slots[host] > 0 {
                    self.slots[host] -= 1;
                    coflow.start(reducer, host);
                }
            }
        }
        let is_whole = !coflow.has_waiting();
        let mut serving = self.room.serve(index, coflow);
        match is_whole {
            true => serving.give_together(),
            false => serving.give_hosts(),
        }
        serving.end(self.grants);
        if starts_anywhere {
            self.start_anywhere(running, index);
        } else if !is_whole {
            self.start_planned(running, index, places);
        }
        let coflow = &running[index];
        for reducer in coflow.waiting().filter(|it| coflow.left(*it) > 0.0) {
            self.taken[places[reducer]] = true;
        }
        for (_, host) in coflow.fetching() {
            self.taken[host] = true;
        }
    }

    /// Starts waiting reducers where there is most room, the largest first.
    fn start_anywhere(&mut self, running: &mut [Running], index: usize) {
        let waiting: Vec<usize> = running[index].waiting().collect();
        for reducer in waiting {
            let free = (0..self.slots.len()).filter(|host| self.slots[*host] > 0);
            let most = free.max_by(|a, b| self.room.into[*a].total_cmp(&self.room.into[*b]));
            let starts = most.is_some_and(|host| self.start(running, index, reducer, host));
            if !starts {
                return;
            }
        }
    }

    /// Starts waiting reducers where they were planned to go.
    fn start_planned(&mut self, running: &mut [Running], index: usize, places: &[HostId]) {
        let waiting: Vec<usize> = running[index].waiting().collect();
        for reducer in waiting {
            let starts = self.start(running, index, reducer, places[reducer]);
            if !starts && running[index].alike().is_some() {
                // The others fetch from the same mappers.
                return;
            }
        }
    }
}

fn find(running: &[Running], number: usize) -> Result<usize, usize> {
    running.binary_search_by_key(&number, |running| running.number)
}

/// How long a coflow takes if others are sent before it, and where its reducers go then: where they would go
/// if it were alone, or on hosts that have nothing to do now, whichever is sooner [RPC §IV-C]. If it is not
/// later then, and would not be if it were alone, they go where reducers of others that have started are
/// disturbed least: these cannot move.
///
/// Filling each host up to what is queued there would promise less time. But slow hosts would have as much
/// to do as all others, and what comes later delays it: generated jobs take up to three times as long.
fn best(
    running: &mut Running,
    hosts: &Hosts,
    available: &Hosts,
    queued: &Queued,
) -> Option<(f64, Vec<HostId>)> {
    let alone = running.best_places(hosts)?;
    let alone_s = running.alone_s(hosts);
    let seconds = queued.seconds(running, &alone, available);
    let mut best = (seconds, alone);
    if running.waiting().next().is_some() {
        if let Some(places) = idle(running, available, queued, best.0) {
            let seconds = queued.seconds(running, &places, available);
            if seconds < best.0 {
                best = (seconds, places);
            }
        }
        if let Some(places) = sparing(running, available, queued) {
            let seconds = queued.seconds(running, &places, available);
            let own = running.seconds(&places, available);
            if seconds <= best.0 * (1.0 + SAME) && own <= alone_s * (1.0 + SAME) {
                best = (seconds, places);
            }
        }
    }
    Some(best).filter(|(seconds, _)| seconds.is_finite())
}

/// Each waiting reducer where it ends first of the hosts that have nothing to do now. `None` if they are too
/// slow for less than so many seconds, or are all.
fn idle(running: &Running, hosts: &Hosts, queued: &Queued, seconds: f64) -> Option<Vec<HostId>> {
    let is_idle = |host: HostId| queued.into[host] == 0.0;
    let (mut room, mut any_busy) = (0.0, false);
    for host in (0..hosts.slots.len()).filter(|host| hosts.slots[*host] > 0) {
        match is_idle(host) {
            true => room += hosts.into[host],
            false => any_busy = true,
        }
    }
    let left: f64 = running.waiting().map(|reducer| running.left(reducer)).sum();
    if !any_busy || left >= room * seconds {
        return None;
    }
    listed(
        running,
        hosts,
        &vec![0.0; queued.into.len()],
        queued,
        is_idle,
    )
}

/// Each waiting reducer where it ends first if all others go before it, those that come later, too.
fn sparing(running: &Running, hosts: &Hosts, queued: &Queued) -> Option<Vec<HostId>> {
    let mut others = queued.all_into.clone();
    for (reducer, host) in running.fetching() {
        others[host] = (others[host] - running.left(reducer)).max(0.0);
    }
    listed(running, hosts, &others, queued, |_| true)
}

impl Queued {
    /// What is queued before any coflow is planned.
    fn before_any(hosts: &Hosts, running: &[Running]) -> Self {
        let mut all_into = vec![0.0; hosts.into.len()];
        for coflow in running {
            for (reducer, host) in coflow.fetching() {
                all_into[host] += coflow.left(reducer);
            }
        }
        Self {
            out: vec![0.0; hosts.out.len()],
            into: vec![0.0; hosts.into.len()],
            all_into,
        }
    }

    /// How long a coflow takes on these places after what is queued, seconds. A host that has no part in it
    /// need not be waited for.
    fn seconds(&self, running: &Running, places: &[HostId], hosts: &Hosts) -> f64 {
        let (mut out, mut into) = running.loads(places, hosts);
        for (bytes, queued) in [(&mut out, &self.out), (&mut into, &self.into)] {
            for (bytes, queued) in bytes.iter_mut().zip(queued).filter(|(it, _)| **it > 0.0) {
                *bytes += queued;
            }
        }
        slowest(&out, &hosts.out).max(slowest(&into, &hosts.into))
    }
}

/// Each waiting reducer where it ends first, the largest first, on some hosts that have these loads.
fn listed(
    running: &Running,
    hosts: &Hosts,
    loads: &[f64],
    queued: &Queued,
    may: impl Fn(HostId) -> bool,
) -> Option<Vec<HostId>> {
    let mut loads = loads.to_vec();
    for (reducer, host) in running.fetching() {
        loads[host] += running.left(reducer);
    }
    let left = hosts.slots.iter().enumerate();
    // Reducers that have ended make room for others.
    let left = left.map(|(host, slots)| match *slots > 0 && may(host) {
        true => u32::MAX,
        false => 0,
    });
    let mut left: Vec<u32> = left.collect();
    // Where all fetch from the same mappers none has to wait longer than others.
    let not_before = |reducer: usize| {
        let mappers = running.shares(reducer).map(|(mapper, _)| mapper);
        let free = mappers.map(|mapper| queued.out[mapper] / hosts.out[mapper]);
        free.fold(0.0, f64::max)
    };
    let wanted = running.waiting().map(|reducer| Wanted {
        reducer,
        bytes: running.coflow().size(reducer),
        not_before_s: match running.alike() {
            Some(_) => 0.0,
            None => not_before(reducer),
        },
    });
    let mut wanted: Vec<Wanted> = wanted.collect();
    // Of those that are as large, one that has to wait can go to a host that is busy.
    wanted.sort_by(|a, b| {
        let size = b.bytes.total_cmp(&a.bytes);
        size.then(b.not_before_s.total_cmp(&a.not_before_s))
    });
    // Those of a later wave are nowhere yet, and count for nothing wherever they are said to be.
    let nowhere = (0..loads.len()).find(|host| left[*host] > 0)?;
    let places = running.places().iter().enumerate();
    let places = places.map(|(reducer, place)| match running.is_later(reducer) {
        true => Some(nowhere),
        false => *place,
    });
    let places: Vec<Option<HostId>> = places.collect();
    greedy::fill(wanted, &places, &loads, &hosts.into, &mut left)
}

impl Scheduler for Rpc {
    fn arrive(&mut self, _now_s: f64, hosts: &Hosts, running: &mut [Running]) -> Option<Running> {
        let last = running.len().checked_sub(1)?;
        if self.is_background(&running[last]) {
            let free = &mut free_slots(hosts, running);
            place_one::at_random(self.options.seed, hosts, running, last, free);
            return None;
        }
        let at_once = hosts.slots.iter().map(|slots| *slots as usize).sum();
        let coflow = &mut running[last];
        if self.options.waves != Waves::Planned && coflow.waiting().count() > at_once {
            coflow.divide(at_once);
        }
        None
    }

    fn decide(
        &mut self,
        now_s: f64,
        hosts: &Hosts,
        running: &mut [Running],
        news: News,
    ) -> Decision {
        let count = hosts.into.len();
        self.monitor.watch(count, now_s);
        self.monitor.look(now_s);
        let mut is_new = news.coflows;
        for coflow in running.iter_mut() {
            is_new |= coflow.next_wave();
        }
        let before = self.starved.len();
        self.starved.retain(|number| find(running, *number).is_ok());
        for coflow in running.iter() {
            if self.has_starved(now_s, coflow) && !self.starved.contains(&coflow.number) {
                self.starved.push(coflow.number);
            }
        }
        if is_new || self.starved.len() != before {
            self.replan(now_s, hosts, running);
        }
        let mut room = Room::new(hosts, running);
        let mut grants = Vec::new();
        self.serve_background(hosts, running, &mut room, &mut grants);
        let mut turn = Turn {
            room: &mut room,
            grants: &mut grants,
            slots: free_slots(hosts, running),
            taken: vec![false; count],
            one_by_one: self.options.work_conserving,
            anywhere: self.options.waves == Waves::Conserving,
        };
        let mut order = Vec::with_capacity(self.plan.len());
        for planned in &self.plan {
            let Ok(index) = find(running, planned.number) else {
                continue;
            };
            order.push(index);
            turn.serve(running, index, &planned.places);
        }
        if self.options.work_conserving {
            self.conserve(running, &mut turn);
        }
        for index in order {
            if turn.room.is_used_up() {
                break;
            }
            if !turn.room.has_room_for(&running[index]) {
                continue;
            }
            let mut serving = turn.room.serve(index, &running[index]);
            serving.give_rest();
            serving.end(turn.grants);
        }
        Grant::merge(&mut grants);
        let mut served = vec![false; running.len()];
        for grant in &grants {
            served[grant.coflow] = true;
        }
        let idle = running.iter().enumerate();
        let idle = idle.filter(|(index, coflow)| {
            !served[*index] && coflow.after.is_none() && !self.starved.contains(&coflow.number)
        });
        let again = idle.map(|(_, coflow)| coflow.served_s + self.options.starvation_s);
        let again_s = again.fold(f64::INFINITY, f64::min);
        Decision {
            again_s: Some(again_s).filter(|again| again.is_finite()),
            grants,
            ends: 1,
        }
    }
}
