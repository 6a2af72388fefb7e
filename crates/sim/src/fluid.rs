//! Flows under weighted fair congestion control as a fluid: windows, marks and a queue as equations
//! [PPUSH §IV-A], stepped in time as in [PPUSH §IV-B].
//!
//! N flows share a bottleneck of capacity C with round-trip propagation d, which marks packets that find more
//! than K in its queue. With windows `W_i`, running averages `alpha_i` and a queue q, equations 3 to 7 and 13:
//!
//! ```text
//! p(t)        = 1 if q(t) > K, else 0                   R(t) = d + q(t)/C,  R = d + K/C
//! dW_i/dt     = 1/R(t) - W_i(t) alpha_i(t) p(t - R) / (2 theta_i R(t))
//! dalpha_i/dt = g/R(t) (p(t - R) - alpha_i(t))
//! dq/dt       = sum of W_i(t)/R(t) - C
//! ```
//!
//! A step is the average round trip R, or an equal part of it. After each, as in the paper, windows are at
//! least 1, the queue is from 0 to its bound, and `alpha` not below 0; a window grows by at most 2 BDP per
//! round trip. Two things the paper leaves open are decided here. A BDP is C times R: with a propagation next to
//! nothing, C times d would stop all growth. And `alpha`, being a share, approaches p by at most the difference,
//! so it is never above 1. Each flow has an `alpha` of its own, which begins with 0 when the flow does;
//! those of flows that start together are equal, as in the paper.
//!
//! **How near steps are to the closed forms** ([`equilibrium`], equations 16 to 19). Marks arrive a round trip
//! late, and until then N windows go on growing by 1 per round trip. So where many flows share few packets, means
//! are above the closed forms: with eight flows of theta 1 on Cd + K = 30 the queue by 6.5 packets in steps of
//! a round trip, by 3.2 in sixteenths. Where theta is small, `alpha / (2 theta)` takes much of a window at
//! once, and means are below them: with two flows by 1.3 packets and 0.9. Within 10 % are windows, goodputs and
//! `alpha` where Cd + K is 20 packets per flow or more and weights add up to a tenth of the bound of
//! equation 20 or more. The queue is off by as many packets as the sum of windows, which is a larger share of K
//! the larger Cd is.

mod closed;
pub mod file;
mod summary;
pub mod svg;

pub use closed::{Equilibrium, equilibrium};
pub use summary::{FlowMeans, Phase, phases};

use serde::Serialize;

/// Flows at most.
pub const FLOWS_MAX: usize = 1000;
/// Steps times flows at most, so that a run ends and its series fit into memory.
pub const SAMPLES_MAX: f64 = 5e6;
/// The packets that a queue, or a window at the start, may have.
const PACKETS_MAX: f64 = 1e9;
/// Packets per second at most.
const CAPACITY_MAX: f64 = 1e12;
/// The shortest round trip, seconds: over an empty queue and without propagation there is none to divide by.
const RTT_MIN_S: f64 = 1e-9;
/// How many steps the marks of a flow's own link may be on their way.
const OWN_STEPS_MAX: f64 = 1e5;
/// Seconds at most.
const SECONDS_MAX: f64 = 1e9;

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FluidFlow {
    /// Its weight.
    pub theta: f64,
    /// When it begins, seconds.
    pub start_s: f64,
    /// When it ends, seconds.
    pub stop_s: f64,
    /// What a link of its own before the bottleneck carries, packets per second, if it may hold it up. That
    /// link marks and drops as the bottleneck does, and has no propagation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_packets_per_s: Option<f64>,
}

/// A bottleneck and flows through it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluid {
    /// What the bottleneck carries, packets per second.
    pub capacity_packets_per_s: f64,
    /// Round-trip propagation, seconds.
    pub delay_s: f64,
    /// Packets get a mark while more than so many are in the queue (K).
    pub mark_packets: f64,
    /// How many packets fit into the queue.
    pub queue_packets_max: f64,
    /// The weight of a new window of data in the running averages of marks.
    pub g: f64,
    /// The window of each flow at its start, packets.
    pub initial_window: f64,
    /// Steps per average round trip; the paper has one.
    pub steps_per_rtt: u32,
    /// The flows.
    pub flows: Vec<FluidFlow>,
}

impl Default for Fluid {
    /// The two flows of [PPUSH §IV-B], on 20 Mbit/s in packets of 1210 bytes.
    fn default() -> Self {
        let flow = FluidFlow::new;
        Self {
            capacity_packets_per_s: 2066.0,
            delay_s: 1e-4,
            mark_packets: 30.0,
            queue_packets_max: 100.0,
            g: 1.0 / 16.0,
            initial_window: 1.0,
            steps_per_rtt: 1,
            flows: vec![flow(1.0, 0.0, 8.0), flow(4.0, 2.0, 6.0)],
        }
    }
}

/// Why a fluid cannot be computed; names the field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FluidError {
    /// A number that the model is not defined for.
    #[error("`{field}` is {value}: expected {expected}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What it has to be.
        expected: String,
    },
    /// The same of a flow.
    #[error("flow {flow}: `{field}` is {value}: expected {expected}")]
    Flow {
        /// Which one, from 1.
        flow: usize,
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What it has to be.
        expected: String,
    },
    /// There are none, or too many.
    #[error("there are {0} flows: expected 1 to {FLOWS_MAX}")]
    Flows(usize),
    /// It would take too long.
    #[error(
        "{steps:.0} steps of {step_s:.3e} s for {flows} flows are too many: flows times steps are at most \
         {SAMPLES_MAX:.0}; end earlier"
    )]
    Steps {
        /// How many steps it would be.
        steps: f64,
        /// How long one is, seconds.
        step_s: f64,
        /// How many flows there are.
        flows: usize,
    },
}

/// What a flow does at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowSample {
    /// Its window, packets; 0 while it is not active.
    pub window: f64,
    /// Its running average of the share of marked packets.
    pub alpha: f64,
    /// What leaves the bottleneck of it, packets per second.
    pub goodput_packets_per_s: f64,
}

/// All flows and the queue at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds.
    pub at_s: f64,
    /// Packets in the queue.
    pub queue_packets: f64,
    /// The flows, in their order.
    pub flows: Vec<FlowSample>,
}

impl Fluid {
    /// The average round trip, seconds (equation 13).
    pub fn rtt_s(&self) -> f64 {
        self.delay_s + self.mark_packets / self.capacity_packets_per_s
    }

    /// How long a step is, seconds.
    pub fn step_s(&self) -> f64 {
        self.rtt_s() / f64::from(self.steps_per_rtt)
    }

    /// When the last flow ends, seconds.
    pub fn end_s(&self) -> f64 {
        self.flows
            .iter()
            .map(|flow| flow.stop_s)
            .fold(0.0, f64::max)
    }

    /// Whether that flow is active at some time.
    fn is_active(&self, flow: usize, at_s: f64) -> bool {
        let FluidFlow {
            start_s, stop_s, ..
        } = self.flows[flow];
        (start_s..stop_s).contains(&at_s)
    }

    /// Makes sure that it can be computed.
    ///
    /// # Errors
    /// If a field is out of range, a flow ends before it begins, or it would be too many steps.
    pub fn check(&self) -> Result<(), FluidError> {
        let above_0 = |max: f64| {
            (
                f64::MIN_POSITIVE,
                max,
                format!("a number above 0, at most {max}"),
            )
        };
        let from = |min: f64, max: f64| (min, max, format!("a number from {min} to {max}"));
        let fields = [
            (
                "capacity",
                self.capacity_packets_per_s,
                above_0(CAPACITY_MAX),
            ),
            ("delay", self.delay_s, from(0.0, SECONDS_MAX)),
            ("ecn", self.mark_packets, from(1.0, PACKETS_MAX)),
            ("queue", self.queue_packets_max, from(1.0, PACKETS_MAX)),
            ("g", self.g, above_0(1.0)),
            (
                "initial-window",
                self.initial_window,
                from(1.0, PACKETS_MAX),
            ),
            (
                "steps-per-rtt",
                f64::from(self.steps_per_rtt),
                from(1.0, 1e4),
            ),
        ];
        for (field, value, (min, max, expected)) in fields {
            if !(min..=max).contains(&value) {
                return Err(FluidError::OutOfRange {
                    field,
                    value,
                    expected,
                });
            }
        }
        if self.queue_packets_max <= self.mark_packets {
            return Err(FluidError::OutOfRange {
                field: "queue",
                value: self.queue_packets_max,
                expected: format!("more than the {} above which it marks", self.mark_packets),
            });
        }
        if !(1..=FLOWS_MAX).contains(&self.flows.len()) {
            return Err(FluidError::Flows(self.flows.len()));
        }
        for (index, flow) in self.flows.iter().enumerate() {
            flow.check(index + 1)?;
        }
        let steps = self.end_s() / self.step_s();
        if steps * self.flows.len() as f64 > SAMPLES_MAX {
            return Err(FluidError::Steps {
                steps,
                step_s: self.step_s(),
                flows: self.flows.len(),
            });
        }
        Ok(())
    }

    /// Computes it step by step until the last flow ends.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn run(&self) -> Result<Vec<Sample>, FluidError> {
        self.check()?;
        let mut state = State::new(self);
        let (end_s, step_s) = (self.end_s(), self.step_s());
        let steps = (0..).take_while(|step| *step as f64 * step_s < end_s);
        Ok(steps.map(|step| state.step(self, step)).collect())
    }
}

impl FluidFlow {
    /// A flow that only the bottleneck holds up.
    pub fn new(theta: f64, start_s: f64, stop_s: f64) -> Self {
        Self {
            theta,
            start_s,
            stop_s,
            own_packets_per_s: None,
        }
    }

    /// How many packets per second come out of its own link, if `offered` come to it and so many wait there.
    fn leaves(&self, offered: f64, waiting: f64, step_s: f64) -> f64 {
        let all = offered + waiting / step_s;
        all.min(self.own_packets_per_s.unwrap_or(f64::INFINITY))
    }

    /// How long `waiting` packets wait at its own link, seconds.
    fn waits_s(&self, waiting: f64) -> f64 {
        self.own_packets_per_s.map_or(0.0, |own| waiting / own)
    }

    fn check(&self, number: usize) -> Result<(), FluidError> {
        let fail = |field, value, expected: String| {
            Err(FluidError::Flow {
                flow: number,
                field,
                value,
                expected,
            })
        };
        if !(self.theta > 0.0 && self.theta <= PACKETS_MAX) {
            let expected = format!("a number above 0, at most {PACKETS_MAX}");
            return fail("theta", self.theta, expected);
        }
        if !(0.0..=SECONDS_MAX).contains(&self.start_s) {
            let expected = format!("a time from 0 s to {SECONDS_MAX} s");
            return fail("start", self.start_s, expected);
        }
        if !(self.stop_s > self.start_s && self.stop_s <= SECONDS_MAX) {
            let expected = format!("a time after {} s, when it starts", self.start_s);
            return fail("stop", self.stop_s, expected);
        }
        match self.own_packets_per_s {
            Some(own) if !(own > 0.0 && own <= CAPACITY_MAX) => {
                let expected = format!("a number above 0, at most {CAPACITY_MAX}");
                fail("own", own, expected)
            }
            _ => Ok(()),
        }
    }
}

/// Where the equations have got to.
struct State {
    queue: f64,
    windows: Vec<f64>,
    alphas: Vec<f64>,
    /// Packets at the link that a flow has for itself.
    own_queues: Vec<f64>,
    /// Whether packets got marks at the bottleneck in each step of the last round trip.
    marks: Marks,
    /// The same of each flow's own link, whose round trip is another.
    own_marks: Vec<Marks>,
}

/// Whether packets got marks, in each step of a round trip; the oldest is next to be replaced.
struct Marks {
    steps: Vec<bool>,
    next: usize,
}

impl Marks {
    fn new(steps: usize) -> Self {
        Self {
            steps: vec![false; steps],
            next: 0,
        }
    }

    /// Notes whether they get some now, and says whether they did a round trip ago.
    fn pass(&mut self, is_marked: bool) -> bool {
        let before = std::mem::replace(&mut self.steps[self.next], is_marked);
        self.next = (self.next + 1) % self.steps.len();
        before
    }
}

impl State {
    fn new(fluid: &Fluid) -> Self {
        let own_marks = fluid.flows.iter().map(|flow| {
            let own = flow.own_packets_per_s.unwrap_or(f64::INFINITY);
            let rtt_s = fluid.delay_s + fluid.mark_packets / own;
            let steps = (rtt_s / fluid.step_s()).round().clamp(1.0, OWN_STEPS_MAX);
            Marks::new(steps as usize)
        });
        Self {
            queue: 0.0,
            windows: vec![fluid.initial_window; fluid.flows.len()],
            alphas: vec![0.0; fluid.flows.len()],
            own_queues: vec![0.0; fluid.flows.len()],
            marks: Marks::new(fluid.steps_per_rtt as usize),
            own_marks: own_marks.collect(),
        }
    }

    /// The round trip of a flow, seconds (equation 4).
    fn rtt_s(&self, fluid: &Fluid, flow: usize) -> f64 {
        let own_s = fluid.flows[flow].waits_s(self.own_queues[flow]);
        let rtt_s = fluid.delay_s + self.queue / fluid.capacity_packets_per_s + own_s;
        rtt_s.max(RTT_MIN_S)
    }

    /// What each flow sends, and what of it comes to the bottleneck, packets per second.
    fn rates(&self, fluid: &Fluid, at_s: f64) -> Vec<(f64, f64)> {
        let rates = fluid.flows.iter().enumerate().map(|(index, flow)| {
            let sent = match fluid.is_active(index, at_s) {
                true => self.windows[index] / self.rtt_s(fluid, index),
                false => 0.0,
            };
            let leaves = flow.leaves(sent, self.own_queues[index], fluid.step_s());
            (sent, leaves)
        });
        rates.collect()
    }

    /// Tells how everything is at that step, and takes it.
    fn step(&mut self, fluid: &Fluid, step: usize) -> Sample {
        let (at_s, step_s) = (step as f64 * fluid.step_s(), fluid.step_s());
        let capacity = fluid.capacity_packets_per_s;
        let rates = self.rates(fluid, at_s);
        // What comes in, and what goes out of it and the queue.
        let rate: f64 = rates.iter().map(|it| it.1).sum();
        let served = (rate + self.queue / step_s).min(capacity);
        let sample = self.sample(fluid, at_s, &rates, served);
        let is_marked = self.marks.pass(self.queue > fluid.mark_packets);
        for (flow, (sent, leaves)) in rates.into_iter().enumerate() {
            if fluid.is_active(flow, at_s) {
                let own = self.own_queues[flow] > fluid.mark_packets;
                let is_marked = self.own_marks[flow].pass(own) || is_marked;
                self.turn(fluid, flow, is_marked);
            }
            let own = self.own_queues[flow] + (sent - leaves) * step_s;
            self.own_queues[flow] = own.clamp(0.0, fluid.queue_packets_max);
        }
        let queue = self.queue + (rate - capacity) * step_s;
        self.queue = queue.clamp(0.0, fluid.queue_packets_max);
        debug_assert!(served <= capacity, "more leaves than the link carries");
        sample
    }

    fn sample(&self, fluid: &Fluid, at_s: f64, rates: &[(f64, f64)], served: f64) -> Sample {
        let all: f64 = rates.iter().map(|it| it.1).sum();
        let of_flow = |(flow, rate): (usize, &(f64, f64))| match fluid.is_active(flow, at_s) {
            false => FlowSample::default(),
            true => FlowSample {
                window: self.windows[flow],
                alpha: self.alphas[flow],
                goodput_packets_per_s: served * rate.1 / all,
            },
        };
        Sample {
            at_s,
            queue_packets: self.queue,
            flows: rates.iter().enumerate().map(of_flow).collect(),
        }
    }

    /// Window and average of marks of a flow after a step (equations 5 and 6).
    fn turn(&mut self, fluid: &Fluid, flow: usize, is_marked: bool) {
        let step_s = fluid.step_s();
        let p = f64::from(u8::from(is_marked));
        let rtts = step_s / self.rtt_s(fluid, flow);
        let growth_max = 2.0 * fluid.capacity_packets_per_s * step_s;
        let (window, alpha) = (&mut self.windows[flow], &mut self.alphas[flow]);
        let less = *window * *alpha * p / (2.0 * fluid.flows[flow].theta);
        *window = (*window + (rtts * (1.0 - less)).min(growth_max)).max(1.0);
        *alpha = (*alpha + (fluid.g * rtts).min(1.0) * (p - *alpha)).max(0.0);
        debug_assert!(window.is_finite() && *alpha <= 1.0, "{window}, {alpha}");
    }
}
