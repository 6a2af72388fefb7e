//! Shuffles in virtual time: coflows arrive, a scheduler places their reducers and shares bandwidth, and
//! reducers fetch [RPC §VI-B].
//!
//! Hosts limit what they send and receive, the network between them carries everything. Rates change
//! only when the scheduler decides, so time goes from event to event: an arrival, a reducer that has
//! all its data, a time the scheduler named. The flows of a reducer end together, so there are as many
//! events as reducers at most, however many flows there are.

pub mod benchmark;
pub mod jobs;
pub mod stepped;

use std::fmt;

use outpour_planner::shuffle::schedule::{Decision, News, Running, Scheduler};
use outpour_planner::shuffle::{Coflow, HostId, Hosts};
use serde::Serialize;

/// A coflow that will arrive.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When, seconds; not before those that are listed before it.
    pub at_s: f64,
    /// What it is.
    pub coflow: Coflow,
    /// How much sooner than others it should be complete; 1 as a rule, positive.
    pub weight: f64,
    /// When it should be complete, seconds after it arrived.
    pub deadline_s: Option<f64>,
    /// Where its reducers were, if that is known.
    pub recorded: Vec<HostId>,
    /// Where reducers have started before; empty if none has.
    pub started: Vec<Option<HostId>>,
}

impl Arrival {
    /// A coflow like any other that arrives at a time, seconds.
    pub const fn new(at_s: f64, coflow: Coflow) -> Self {
        Self {
            at_s,
            coflow,
            weight: 1.0,
            deadline_s: None,
            recorded: Vec::new(),
            started: Vec::new(),
        }
    }
}

/// What it takes beside sending, seconds [RPC §IV-D].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overheads {
    /// Waiting for the last mapper.
    pub mappers_s: f64,
    /// Collecting how much flows have to carry.
    pub collect_s: f64,
    /// Deciding.
    pub solve_s: f64,
    /// Starting reducers.
    pub place_s: f64,
    /// Changing rates.
    pub rates_s: f64,
}

impl Overheads {
    /// What a coflow waits before its first byte.
    fn sum(&self) -> f64 {
        self.mappers_s + self.collect_s + self.solve_s + self.place_s + self.rates_s
    }
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShuffleReport {
    /// Mean of `ccts_s`.
    pub average_cct_s: f64,
    /// How long each coflow took from its arrival, seconds, in the order of arrivals.
    pub ccts_s: Vec<f64>,
    /// From the first arrival until the last coflow is complete, seconds.
    pub makespan_s: f64,
    /// How often the scheduler decided.
    pub decisions: u64,
}

impl ShuffleReport {
    pub(crate) fn new(ccts_s: Vec<f64>, makespan_s: f64, decisions: u64) -> Self {
        Self {
            average_cct_s: ccts_s.iter().sum::<f64>() / ccts_s.len().max(1) as f64,
            ccts_s,
            makespan_s,
            decisions,
        }
    }
}

/// How far the mean of these may be from that of all, with a probability of 95 %, by Student's t.
/// `None` if there are fewer than two.
pub fn confidence(values: &[f64]) -> Option<f64> {
    // Of 1 to 29 degrees of freedom; with more it is nearly that of the normal distribution.
    const T: [f64; 29] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045,
    ];
    let free = values.len().checked_sub(2)?;
    let t = T.get(free).copied().unwrap_or(1.96);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(t * (squares / (count - 1.0) / count).sqrt())
}

/// Coflows that never end, though nothing else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which, counted from 0 in the order of arrivals; the first few.
    pub coflows: Vec<usize>,
    /// How many in all.
    pub count: usize,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.coflows.iter().map(|it| (it + 1).to_string()).collect();
        let why =
            "no host that may run its reducers receives anything, or a mapper of it sends nothing";
        match &names[..] {
            [one] if self.count == 1 => write!(f, "shuffle {one} never ends: {why}"),
            all => write!(
                f,
                "{} shuffles never end, among them {}: of each, {why}",
                self.count,
                all.join(", ")
            ),
        }
    }
}

impl std::error::Error for Stuck {}

/// How many coflows a message names.
const NAMED_MAX: usize = 5;
/// Ends that are so near to each other are one, seconds.
const SAME_S: f64 = 1e-9;

/// Lets coflows arrive and end. `watch` is told of each that ends: how many have.
///
/// # Errors
/// If some never end.
///
/// # Panics
/// In debug builds, if the scheduler gives away more than there is.
pub fn simulate(
    hosts: &Hosts,
    arrivals: impl IntoIterator<Item = Arrival>,
    scheduler: &mut dyn Scheduler,
    overheads: &Overheads,
    mut watch: impl FnMut(usize),
) -> Result<ShuffleReport, Stuck> {
    let mut arrivals = arrivals.into_iter().peekable();
    let begun = arrivals.peek().map_or(0.0, |first| first.at_s);
    let mut world = World {
        now: begun,
        ..World::default()
    };
    loop {
        let mut news = News::default();
        while let Some(arrival) = arrivals.next_if(|next| next.at_s + overheads.sum() <= world.now)
        {
            world.arrive(arrival, hosts, scheduler);
            news.coflows = true;
        }
        world.remove_complete(&mut watch);
        news.coflows |= std::mem::take(&mut world.ended);
        if world.running.is_empty() {
            let Some(next) = arrivals.peek() else {
                break;
            };
            world.now = next.at_s + overheads.sum();
            continue;
        }
        let (decision, any_ended) = world.decide(hosts, scheduler, news);
        if world.remove_complete(&mut watch) || any_ended {
            // Reducers that found all their data where they started: others may have more now.
            continue;
        }
        debug_check(hosts, &world.running, &decision);
        let next = arrivals.peek().map(|next| next.at_s + overheads.sum());
        if !world.advance(&decision, next) {
            return Err(world.stuck());
        }
        world.remove_complete(&mut watch);
    }
    let makespan = world.now - begun;
    Ok(ShuffleReport::new(world.ccts, makespan, world.decisions))
}

#[derive(Default)]
struct World {
    now: f64,
    running: Vec<Running>,
    /// Which of the arrivals each is, in the same order; none if it only goes before another.
    numbers: Vec<Option<usize>>,
    /// When the last reducer of each ended.
    last_end: Vec<f64>,
    next_number: usize,
    ccts: Vec<f64>,
    complete: usize,
    ended: bool,
    decisions: u64,
}

impl World {
    fn arrive(&mut self, arrival: Arrival, hosts: &Hosts, scheduler: &mut dyn Scheduler) {
        let mut coflow = Running::new(self.next_number, arrival.at_s, arrival.coflow);
        self.next_number += 1;
        coflow.weight = arrival.weight;
        coflow.recorded = arrival.recorded;
        coflow.deadline_s = arrival.deadline_s.map(|after| arrival.at_s + after);
        coflow.served_s = self.now;
        for (reducer, place) in arrival.started.into_iter().enumerate() {
            if let Some(host) = place {
                coflow.start(reducer, host);
            }
        }
        self.running.push(coflow);
        self.numbers.push(Some(self.ccts.len()));
        self.last_end.push(self.now);
        self.ccts.push(f64::NAN);
        if let Some(mut before) = scheduler.arrive(self.now, hosts, &mut self.running) {
            before.number = self.next_number;
            self.next_number += 1;
            if let Some(last) = self.running.last_mut() {
                last.after = Some(before.number);
            }
            self.running.push(before);
            self.numbers.push(None);
            self.last_end.push(self.now);
        }
    }

    /// Asks the scheduler; says also whether any reducer ended as it started.
    fn decide(
        &mut self,
        hosts: &Hosts,
        scheduler: &mut dyn Scheduler,
        news: News,
    ) -> (Decision, bool) {
        let open: Vec<usize> = self.running.iter().map(Running::open).collect();
        let decision = scheduler.decide(self.now, hosts, &mut self.running, news);
        self.decisions += 1;
        // A reducer that finds all its data where it starts ends as it starts.
        let each = self.running.iter().zip(&mut self.last_end).zip(open);
        let mut any_ended = false;
        for ((coflow, last), open) in each {
            if coflow.open() < open {
                *last = last.max(self.now);
                any_ended = true;
            }
        }
        (decision, any_ended)
    }

    /// Lets time pass until the next event. False if there is none.
    fn advance(&mut self, decision: &Decision, arrival: Option<f64>) -> bool {
        let mut ends: Vec<f64> = Vec::with_capacity(decision.grants.len());
        for grant in &decision.grants {
            let left = self.running[grant.coflow].left(grant.reducer);
            ends.push(self.now + left / grant.bytes_per_s);
        }
        let mut next = arrival.unwrap_or(f64::INFINITY);
        if let Some(again) = decision.again_s.filter(|again| *again > self.now) {
            next = next.min(again);
        }
        if !ends.is_empty() {
            next = next.min(nth_end(&ends, decision.ends));
        }
        if !next.is_finite() {
            return false;
        }
        let next = next.max(self.now);
        for (grant, end) in decision.grants.iter().zip(ends) {
            let coflow = &mut self.running[grant.coflow];
            let is_end = end <= next + SAME_S;
            let bytes = match is_end {
                true => coflow.left(grant.reducer),
                false => grant.bytes_per_s * (next - self.now),
            };
            coflow.fetched(grant.reducer, bytes);
            coflow.served_s = next;
            if coflow.left(grant.reducer) <= 0.0 {
                let last = &mut self.last_end[grant.coflow];
                *last = last.max(end.min(next));
            }
        }
        self.now = next;
        true
    }

    /// Takes coflows away that are complete. Says whether there were any.
    fn remove_complete(&mut self, watch: &mut impl FnMut(usize)) -> bool {
        let before = self.running.len();
        let mut index = 0;
        while index < self.running.len() {
            let coflow = &self.running[index];
            if !coflow.is_complete() || coflow.after.is_some() {
                index += 1;
                continue;
            }
            let coflow = self.running.remove(index);
            let end = self.last_end.remove(index).max(coflow.arrived_s);
            self.ended = true;
            match self.numbers.remove(index) {
                Some(number) => {
                    self.ccts[number] = end - coflow.arrived_s;
                    self.complete += 1;
                    watch(self.complete);
                }
                None => {
                    let number = Some(coflow.number);
                    let waiting = self.running.iter_mut().zip(&mut self.last_end);
                    for (other, last) in waiting.filter(|(it, _)| it.after == number) {
                        other.after = None;
                        *last = last.max(end);
                    }
                }
            }
            // One that waited for this one may be complete already.
            index = 0;
        }
        self.running.len() < before
    }

    fn stuck(&self) -> Stuck {
        let all: Vec<usize> = self.numbers.iter().copied().flatten().collect();
        Stuck {
            count: all.len(),
            coflows: all.into_iter().take(NAMED_MAX).collect(),
        }
    }
}

/// When the `nth` of these ends, counted from 1, or the last if there are fewer.
fn nth_end(ends: &[f64], nth: usize) -> f64 {
    if nth <= 1 {
        return ends.iter().copied().fold(f64::INFINITY, f64::min);
    }
    let mut sorted = ends.to_vec();
    let nth = nth.min(sorted.len()) - 1;
    *sorted.select_nth_unstable_by(nth, f64::total_cmp).1
}

/// No host sends or receives more than it can, and nothing is given to a reducer that has not started.
fn debug_check(hosts: &Hosts, running: &[Running], decision: &Decision) {
    if !cfg!(debug_assertions) {
        return;
    }
    let count = hosts.out.len();
    let (mut out, mut into) = (vec![0.0; count], vec![0.0; count]);
    for grant in &decision.grants {
        let coflow = &running[grant.coflow];
        let place = coflow.places()[grant.reducer];
        assert!(place.is_some(), "only reducers that have started fetch");
        assert!(
            coflow.after.is_none(),
            "what waits for another has not begun"
        );
        assert!(grant.bytes_per_s > 0.0 && grant.bytes_per_s.is_finite());
        let Some(host) = place else {
            continue;
        };
        let flows = coflow.coflow().flows(grant.reducer);
        let remote = flows.filter(|flow| flow.mapper != host);
        let size: f64 = remote.map(|flow| flow.bytes).sum();
        for flow in coflow.coflow().flows(grant.reducer) {
            if flow.mapper != host {
                out[flow.mapper] += grant.bytes_per_s * flow.bytes / size;
            }
        }
        into[host] += grant.bytes_per_s;
    }
    let mut run = vec![0; count];
    let reducers = running.iter().filter(|it| !it.moves_mappers);
    for (_, host) in reducers.flat_map(Running::fetching) {
        run[host] += 1;
    }
    for host in 0..count {
        assert!(
            run[host] <= hosts.slots[host],
            "host {host} runs {} reducers of {}",
            run[host],
            hosts.slots[host]
        );
        assert!(
            out[host] <= hosts.out[host] * (1.0 + 1e-6),
            "host {host} sends {} of {}",
            out[host],
            hosts.out[host]
        );
        assert!(
            into[host] <= hosts.into[host] * (1.0 + 1e-6),
            "host {host} receives {} of {}",
            into[host],
            hosts.into[host]
        );
    }
}
