//! The rules of the public coflow simulator, in its own steps, to compare with what it finds.
//!
//! It counts 1,024 ms to a second and moves bytes in steps of 8 ms over ports of 128 MiB/s. Every 10,240 ms
//! it admits the coflows that arrive within the next 10,240, and counts their times from then. A reducer
//! fetches whole mebibytes from each mapper, rounded up. [`Rule::SmallestBottleneck`] orders coflows by
//! what their bottleneck was at the beginning. Each gives all of its flows what brings them to their end
//! together, of what those before it left, unless it needs a port that is full. Those that got nothing share
//! what is left, each flow the lesser of its ports' equal shares. Then every flow takes what its ports still
//! have, in the order of deadlines: a deadline is one to two times as far off as the coflow would take alone, by
//! a generator with a fixed seed, even where deadlines are not asked for. Rates change when coflows are
//! admitted or complete. By [`Rule::Fair`] each flow gets the lesser of its ports' equal shares.
//!
//! Its errors of arithmetic are part of the rule: a port that is full but for a thousandth of a bit per
//! second is not full, and a coflow that needs it gets next to nothing. So sums are made in the same order,
//! step by step. Then 522 of 526 coflows of the public trace end in the same step, and all by fair sharing.

use super::ShuffleReport;
use super::benchmark::{MEGABYTE, Trace, TraceCoflow};

/// How coflows share ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The smallest bottleneck first.
    SmallestBottleneck,
    /// Every flow for itself.
    Fair,
}

/// Bits per second of a port unless another is asked for: 1 Gbit/s of 2^30 bits.
pub const PORT_BITS_PER_S: f64 = 1_073_741_824.0;
/// Milliseconds of a second, of a step, and between admissions.
const SECOND_MS: f64 = 1024.0;
const STEP_MS: u64 = 8;
const ADMISSION_MS: u64 = 10_240;
/// Bytes, and bits per second, that are taken for none.
const NONE: f64 = 1e-3;
/// Milliseconds of a second where deadlines are made.
const DEADLINE_MS: f64 = 1000.0;
/// Seed of the generator of deadlines.
const DEADLINE_SEED: u64 = 17;

/// A linear congruential generator of 48 bits, of which the upper count.
struct Congruential(u64);

impl Congruential {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;

    const fn new(seed: u64) -> Self {
        Self((seed ^ Self::MULTIPLIER) & Self::MASK)
    }

    const fn bits(&mut self, count: u32) -> u64 {
        self.0 = self.0.wrapping_mul(Self::MULTIPLIER).wrapping_add(0xB) & Self::MASK;
        self.0 >> (48 - count)
    }

    /// From 0 to 1, of 53 bits.
    const fn unit(&mut self) -> f64 {
        let high = self.bits(26) << 27;
        (high + self.bits(27)) as f64 / (1_u64 << 53) as f64
    }
}

struct Flow {
    mapper: usize,
    left: f64,
    bits_per_s: f64,
    /// Bytes in a step.
    step: f64,
}

struct Reducer {
    rack: usize,
    left: f64,
    flows: Vec<Flow>,
    is_moving: bool,
}

struct Job {
    /// Where it is among all.
    index: usize,
    arrival_ms: u64,
    admitted_ms: u64,
    /// Bytes at its bottleneck.
    bottleneck: f64,
    /// Milliseconds after its admission.
    deadline_ms: f64,
    reducers: Vec<Reducer>,
}

impl Job {
    fn new(index: usize, coflow: &TraceCoflow) -> Self {
        let mappers = coflow.mappers.len() as f64;
        let (mut all, mut largest): (f64, f64) = (0.0, 0.0);
        let mut reducers = Vec::with_capacity(coflow.reducers.len());
        for (rack, megabytes) in &coflow.reducers {
            // One that fetches nothing ends with the first step.
            let bytes = (megabytes.ceil() / mappers).ceil() * mappers * MEGABYTE;
            all += bytes;
            largest = largest.max(bytes);
            let flow = |mapper: &usize| Flow {
                mapper: *mapper,
                left: (bytes / mappers).max(MEGABYTE),
                bits_per_s: 0.0,
                step: 0.0,
            };
            reducers.push(Reducer {
                rack: *rack,
                left: bytes,
                flows: coflow.mappers.iter().map(flow).collect(),
                is_moving: false,
            });
        }
        Self {
            index,
            arrival_ms: coflow.arrival_ms,
            admitted_ms: 0,
            bottleneck: largest.max(all / mappers),
            deadline_ms: 0.0,
            reducers,
        }
    }

    /// Moves what so many steps move. Flows and reducers that are at their end go; says whether any did.
    fn step(&mut self, steps: u64) -> bool {
        let (mut any_end, mut any_flow_end) = (false, false);
        let steps = steps as f64;
        for reducer in self.reducers.iter_mut().filter(|reducer| reducer.is_moving) {
            let mut left = reducer.left;
            let mut flow_end = false;
            for flow in &mut reducer.flows {
                let bytes = (flow.step * steps).min(flow.left);
                flow.left -= bytes;
                left -= bytes;
                flow_end |= flow.left <= NONE;
            }
            reducer.left = left;
            any_flow_end |= flow_end;
            if flow_end {
                reducer.flows.retain(|flow| flow.left > NONE);
            }
            any_end |= left <= NONE || reducer.flows.is_empty();
        }
        if any_end {
            let is_open = |it: &Reducer| it.left > NONE && !it.flows.is_empty();
            self.reducers.retain(is_open);
        }
        any_flow_end || any_end
    }
}

/// What ports have to give, bits per second.
struct Ports {
    out: Vec<f64>,
    into: Vec<f64>,
}

/// A trace that cannot be played in steps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    /// It would take more steps than anybody waits for.
    #[error("in steps of 8 ms that takes some {0} steps; the most is {STEPS_MAX}")]
    Steps(u64),
    /// It has more flows than fit into memory.
    #[error("it has {0} flows; the most is {FLOWS_MAX}")]
    Flows(u64),
}

/// How many steps and flows there may be.
const STEPS_MAX: u64 = 1 << 26;
const FLOWS_MAX: u64 = 1 << 26;

fn check(trace: &Trace, port_bits_per_s: f64) -> Result<(), Unplayable> {
    let flows = trace.coflows.iter();
    let flows = flows.map(|it| it.mappers.len() as u64 * it.reducers.len() as u64);
    let flows: u64 = flows.sum();
    if flows > FLOWS_MAX {
        return Err(Unplayable::Flows(flows));
    }
    // All of it one after the other, over one port.
    let bytes: f64 = trace.coflows.iter().map(TraceCoflow::bytes).sum();
    let largest = trace.coflows.iter().flat_map(|it| &it.reducers);
    let largest = largest.map(|(_, megabytes)| megabytes * MEGABYTE);
    let least = largest.fold(bytes / trace.racks as f64, f64::max);
    let steps = least / step_bytes(port_bits_per_s);
    if steps > STEPS_MAX as f64 {
        return Err(Unplayable::Steps(steps as u64));
    }
    Ok(())
}

/// Simulates a trace. Its times are those of the rule, in seconds; `watch` is told how many coflows are
/// complete.
///
/// # Errors
/// If it has too many flows, or takes too many steps.
pub fn simulate(
    trace: &Trace,
    rule: Rule,
    port_bits_per_s: f64,
    mut watch: impl FnMut(usize),
) -> Result<ShuffleReport, Unplayable> {
    check(trace, port_bits_per_s)?;
    let mut waiting: Vec<Job> = trace
        .coflows
        .iter()
        .enumerate()
        .map(|(index, coflow)| Job::new(index, coflow))
        .collect();
    waiting.sort_by_key(|job| job.arrival_ms);
    let mut random = Congruential::new(DEADLINE_SEED);
    for job in &mut waiting {
        let times = 1.0 + random.unit();
        job.deadline_ms = job.bottleneck / (port_bits_per_s / 8.0) * times * DEADLINE_MS;
    }
    let mut waiting = waiting.into_iter().peekable();
    let mut active: Vec<Job> = Vec::new();
    let mut ccts = vec![0.0; trace.coflows.len()];
    let (mut epoch, mut end, mut done, mut decisions) = (0, 0, 0, 0);
    while waiting.peek().is_some() || !active.is_empty() {
        // When rates were last to be found anew, if they are.
        let mut news = None;
        while let Some(mut job) = waiting.next_if(|job| job.arrival_ms <= epoch + ADMISSION_MS) {
            job.admitted_ms = epoch;
            let larger = |other: &Job| job.bottleneck < other.bottleneck;
            let at = active.iter().position(larger).unwrap_or(active.len());
            active.insert(at, job);
            news = Some(epoch);
        }
        let mut now = epoch;
        while now < epoch + ADMISSION_MS && !active.is_empty() {
            if let Some(at) = news.take() {
                decisions += 1;
                match rule {
                    Rule::SmallestBottleneck => {
                        smallest_bottleneck(&mut active, trace.racks, port_bits_per_s, at);
                    }
                    Rule::Fair => fair(&mut active, trace.racks, port_bits_per_s),
                }
            }
            let most = (epoch + ADMISSION_MS - now) / STEP_MS;
            let steps = match rule {
                Rule::SmallestBottleneck => 1,
                Rule::Fair => until_end(&active).clamp(1, most),
            };
            let last = now + (steps - 1) * STEP_MS;
            now = last + STEP_MS;
            let before = active.len();
            let mut flow_end = false;
            for job in &mut active {
                flow_end |= job.step(steps);
            }
            for job in active.iter().filter(|job| job.reducers.is_empty()) {
                ccts[job.index] = (now - job.admitted_ms) as f64 / SECOND_MS;
                done += 1;
                end = now;
                watch(done);
            }
            active.retain(|job| !job.reducers.is_empty());
            if active.len() < before || rule == Rule::Fair && flow_end {
                news = Some(last);
            }
        }
        epoch += ADMISSION_MS;
    }
    let first = trace.coflows.iter().map(|it| it.arrival_ms).min();
    let makespan = end.saturating_sub(first.unwrap_or_default());
    let makespan_s = makespan as f64 / SECOND_MS;
    Ok(ShuffleReport::new(ccts, makespan_s, decisions))
}

/// How many steps there are until a flow ends.
fn until_end(active: &[Job]) -> u64 {
    let reducers = active.iter().flat_map(|job| &job.reducers);
    let flows = reducers.flat_map(|reducer| &reducer.flows);
    let steps = flows.map(|flow| (flow.left - NONE) / flow.step);
    steps.fold(f64::INFINITY, f64::min).ceil() as u64
}

/// Every flow gets the lesser of its ports' equal shares.
fn fair(active: &mut [Job], racks: usize, port_bits_per_s: f64) {
    let (mut out, mut into) = (vec![0_u32; racks], vec![0_u32; racks]);
    for reducer in active.iter().flat_map(|job| &job.reducers) {
        into[reducer.rack] += reducer.flows.len() as u32;
        for flow in &reducer.flows {
            out[flow.mapper] += 1;
        }
    }
    let share = |count: u32| port_bits_per_s / f64::from(count);
    let out: Vec<f64> = out.into_iter().map(share).collect();
    for reducer in active.iter_mut().flat_map(|job| &mut job.reducers) {
        let into = share(into[reducer.rack]);
        reducer.is_moving = true;
        for flow in &mut reducer.flows {
            flow.bits_per_s = into.min(out[flow.mapper]);
            flow.step = step_bytes(flow.bits_per_s);
        }
    }
}

fn step_bytes(bits_per_s: f64) -> f64 {
    (bits_per_s / 8.0) * (STEP_MS as f64 / SECOND_MS)
}

/// The smallest bottleneck first; jobs are in that order.
fn smallest_bottleneck(active: &mut [Job], racks: usize, port_bits_per_s: f64, now_ms: u64) {
    let mut free = Ports {
        out: vec![port_bits_per_s; racks],
        into: vec![port_bits_per_s; racks],
    };
    let mut skipped = Vec::new();
    for (index, job) in active.iter_mut().enumerate() {
        for flow in job
            .reducers
            .iter_mut()
            .flat_map(|reducer| &mut reducer.flows)
        {
            flow.bits_per_s = 0.0;
        }
        if !free.give_together(job) {
            skipped.push(index);
        }
    }
    free.give_equal_shares(active, &skipped);
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|index| {
        let job = &active[*index];
        (job.admitted_ms as f64 + job.deadline_ms - now_ms as f64) as i32
    });
    for index in order {
        free.give_rest(&mut active[index]);
    }
    for reducer in active.iter_mut().flat_map(|job| &mut job.reducers) {
        reducer.is_moving = false;
        for flow in &mut reducer.flows {
            flow.step = step_bytes(flow.bits_per_s);
            reducer.is_moving |= flow.step > 0.0;
        }
    }
}

impl Ports {
    /// Gives a job what brings all of its flows to their end together. False if it needs a port that is full.
    fn give_together(&mut self, job: &mut Job) -> bool {
        let racks = self.out.len();
        let (mut sent, mut received) = (vec![0.0; racks], vec![0.0; racks]);
        for reducer in &job.reducers {
            received[reducer.rack] = reducer.left;
            for flow in &reducer.flows {
                sent[flow.mapper] += flow.left;
            }
        }
        let mut seconds: f64 = 0.0;
        for rack in 0..racks {
            for (bytes, free) in [
                (sent[rack], self.out[rack]),
                (received[rack], self.into[rack]),
            ] {
                if bytes > 0.0 && free <= NONE {
                    return false;
                }
                seconds = seconds.max(bytes * 8.0 / free);
            }
        }
        let (mut out, mut into) = (vec![0.0; racks], vec![0.0; racks]);
        for reducer in &mut job.reducers {
            let free_into = self.into[reducer.rack];
            for flow in &mut reducer.flows {
                let free_out = self.out[flow.mapper];
                let wanted = flow.left * 8.0 / seconds;
                flow.bits_per_s = match wanted > free_out || wanted > free_into {
                    true => free_out.min(free_into),
                    false => wanted,
                };
                out[flow.mapper] += flow.bits_per_s;
                into[reducer.rack] += flow.bits_per_s;
            }
        }
        self.take(&out, &into);
        true
    }

    fn take(&mut self, out: &[f64], into: &[f64]) {
        for (free, used) in self.out.iter_mut().zip(out) {
            *free -= used;
        }
        for (free, used) in self.into.iter_mut().zip(into) {
            *free -= used;
        }
    }

    /// Gives each flow of some jobs the lesser of its ports' equal shares.
    fn give_equal_shares(&mut self, active: &mut [Job], jobs: &[usize]) {
        let racks = self.out.len();
        let (mut count_out, mut count_into) = (vec![0_u32; racks], vec![0_u32; racks]);
        for job in jobs {
            for reducer in &active[*job].reducers {
                let may = |flow: &&Flow| self.out[flow.mapper] > NONE;
                if self.into[reducer.rack] <= NONE {
                    continue;
                }
                for flow in reducer.flows.iter().filter(may) {
                    count_out[flow.mapper] += 1;
                    count_into[reducer.rack] += 1;
                }
            }
        }
        let (mut out, mut into) = (vec![0.0; racks], vec![0.0; racks]);
        for job in jobs {
            for reducer in &mut active[*job].reducers {
                let count = count_into[reducer.rack];
                if count == 0 {
                    continue;
                }
                let share = self.into[reducer.rack] / f64::from(count);
                for flow in &mut reducer.flows {
                    let free = self.out[flow.mapper];
                    if free <= NONE {
                        continue;
                    }
                    let rate = share.min(free / f64::from(count_out[flow.mapper]));
                    flow.bits_per_s = if rate > NONE { rate } else { 0.0 };
                    out[flow.mapper] += flow.bits_per_s;
                    into[reducer.rack] += flow.bits_per_s;
                }
            }
        }
        self.take(&out, &into);
    }

    /// Gives each flow of a job what its ports still have.
    fn give_rest(&mut self, job: &mut Job) {
        for reducer in &mut job.reducers {
            let rack = reducer.rack;
            if self.into[rack] <= NONE {
                continue;
            }
            for flow in &mut reducer.flows {
                let rate = self.out[flow.mapper].min(self.into[rack]);
                if rate > NONE {
                    flow.bits_per_s += rate;
                    self.out[flow.mapper] -= rate;
                    self.into[rack] -= rate;
                }
            }
        }
    }
}
