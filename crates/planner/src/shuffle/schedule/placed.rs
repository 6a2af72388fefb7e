//! Schedulers that place every reducer as soon as a host may run it, and ways to share bandwidth then.

use super::super::Hosts;
use super::place_one::{self, Placing};
use super::{Decision, News, Room, Running, Scheduler, fair, free_slots};

/// How coflows share bandwidth whose reducers have started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Every flow gets as much as every other, as far as it can use it.
    Fair,
    /// The coflow with the smallest bottleneck first, all of its flows ending together; others use what it
    /// leaves [Varys: SEBF, MADD and backfilling].
    SmallestBottleneck,
    /// As if sizes were not known: those that have sent little first [Aalo: D-CLAS].
    LeastSent,
}

/// Up to so many bytes a coflow is in the first queue of [`Discipline::LeastSent`], and up to ten times as many in
/// each next.
const QUEUE_BYTES: f64 = 10.0 * 1024.0 * 1024.0;
const QUEUE_TIMES: f64 = 10.0;
const QUEUES: i32 = 10;

/// A scheduler that places reducers when their coflow arrives, or when hosts have room for more.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    placing: Placing,
    discipline: Discipline,
}

impl Placed {
    /// A scheduler.
    pub const fn new(placing: Placing, discipline: Discipline) -> Self {
        Self {
            placing,
            discipline,
        }
    }
}

impl Placed {
    /// Starts what waits, the first that came first, as far as hosts may run more.
    fn start_waiting(&self, hosts: &Hosts, running: &mut [Running]) {
        if !running.iter().any(Running::has_waiting) {
            return;
        }
        let free = &mut free_slots(hosts, running);
        for index in 0..running.len() {
            if !running[index].has_waiting() {
                continue;
            }
            match self.placing {
                Placing::Recorded(seed) => {
                    place_one::as_recorded(seed, hosts, running, index, free);
                }
                Placing::Random(seed) => place_one::at_random(seed, hosts, running, index, free),
                Placing::Neat | Placing::TwoD => place_one::neat(hosts, running, index, free),
            }
        }
    }
}

impl Scheduler for Placed {
    fn arrive(&mut self, _now_s: f64, hosts: &Hosts, running: &mut [Running]) -> Option<Running> {
        let mut before = None;
        if self.placing == Placing::TwoD {
            let moved = place_one::moved(hosts, running);
            let (after, moving) = moved.unzip();
            if let (Some(coflow), Some(after)) = (running.last_mut(), after) {
                coflow.fetch_instead(after);
            }
            before = moving.filter(|before| !before.is_complete());
        }
        self.start_waiting(hosts, running);
        before
    }

    fn decide(
        &mut self,
        now_s: f64,
        hosts: &Hosts,
        running: &mut [Running],
        _news: News,
    ) -> Decision {
        // Where hosts run only so many reducers, others may have made room.
        self.start_waiting(hosts, running);
        match self.discipline {
            Discipline::Fair => fair::share(hosts, running),
            Discipline::SmallestBottleneck => smallest_bottleneck(hosts, running),
            Discipline::LeastSent => least_sent(now_s, hosts, running),
        }
    }
}

/// Coflows that may send, by a key, the least first.
fn ordered(running: &mut [Running], key: impl Fn(&mut Running) -> f64) -> Vec<usize> {
    let keys = running.iter_mut().enumerate();
    let keys = keys.filter(|(_, coflow)| coflow.after.is_none());
    // Keys are positive, and the order of positive numbers is that of their bits.
    let mut keys: Vec<(u64, usize)> = keys.map(|(index, it)| (key(it).to_bits(), index)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, index)| index).collect()
}

fn smallest_bottleneck(hosts: &Hosts, running: &mut [Running]) -> Decision {
    let order = ordered(running, |coflow| coflow.alone_s(hosts) / coflow.weight);
    let mut room = Room::new(hosts, running);
    let mut grants = Vec::new();
    // Where the grants of each coflow begin that got any.
    let mut begins = vec![None; running.len()];
    for index in &order {
        if room.is_used_up() {
            break;
        }
        if !room.has_room_for_all(&running[*index]) {
            continue;
        }
        let from = grants.len();
        let mut serving = room.serve(*index, &running[*index]);
        serving.give_together();
        serving.end_once(&mut grants);
        if grants.len() > from {
            begins[*index] = Some(from);
        }
    }
    for index in order {
        if room.is_used_up() {
            break;
        }
        if !room.has_room_for(&running[index]) {
            continue;
        }
        let mut serving = room.serve(index, &running[index]);
        serving.give_rest();
        match begins[index] {
            Some(from) => serving.end_more(&mut grants, from),
            None => serving.end_once(&mut grants),
        }
    }
    Decision {
        grants,
        again_s: None,
        ends: 1,
    }
}

/// The queue of a coflow that has sent so much, and how much it may send until it is in the next.
fn queue(sent: f64) -> (i32, f64) {
    let mut most = QUEUE_BYTES;
    for queue in 0..QUEUES - 1 {
        // What an error of arithmetic is short of the next queue is in it.
        if sent < most * (1.0 - 1e-9) {
            return (queue, most - sent);
        }
        most *= QUEUE_TIMES;
    }
    (QUEUES - 1, f64::INFINITY)
}

fn least_sent(now_s: f64, hosts: &Hosts, running: &mut [Running]) -> Decision {
    // Within a queue the first that came is the first.
    let order = ordered(running, |coflow| f64::from(queue(coflow.sent()).0));
    let mut room = Room::new(hosts, running);
    let mut grants = Vec::new();
    let mut again: f64 = f64::INFINITY;
    for index in order {
        if room.is_used_up() {
            break;
        }
        if !room.has_room_for(&running[index]) {
            continue;
        }
        let from = grants.len();
        let mut serving = room.serve(index, &running[index]);
        serving.give_flows();
        serving.end(&mut grants);
        let rate: f64 = grants[from..].iter().map(|grant| grant.bytes_per_s).sum();
        if rate > 0.0 {
            again = again.min(queue(running[index].sent()).1 / rate);
        }
    }
    Decision {
        grants,
        again_s: Some(now_s + again).filter(|again| again.is_finite()),
        ends: 1,
    }
}
