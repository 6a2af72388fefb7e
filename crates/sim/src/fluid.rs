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
        let flow = |theta, start_s, stop_s| FluidFlow {
            theta,
            start_s,
            stop_s,
        };
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
        Ok(())
    }
}

/// Where the equations have got to.
struct State {
    queue: f64,
    windows: Vec<f64>,
    alphas: Vec<f64>,
    /// Whether packets got marks in each step of the last round trip; the oldest is next to be replaced.
    marks: Vec<bool>,
}

impl State {
    fn new(fluid: &Fluid) -> Self {
        Self {
            queue: 0.0,
            windows: vec![fluid.initial_window; fluid.flows.len()],
            alphas: vec![0.0; fluid.flows.len()],
            marks: vec![false; fluid.steps_per_rtt as usize],
        }
    }

    /// Tells how everything is at that step, and takes it.
    fn step(&mut self, fluid: &Fluid, step: usize) -> Sample {
        let (at_s, step_s) = (step as f64 * fluid.step_s(), fluid.step_s());
        let capacity = fluid.capacity_packets_per_s;
        let rtt_s = (fluid.delay_s + self.queue / capacity).max(RTT_MIN_S);
        let active: Vec<bool> = (0..fluid.flows.len())
            .map(|flow| fluid.is_active(flow, at_s))
            .collect();
        let all = active.iter().zip(&self.windows);
        let sum: f64 = all.filter(|(is_on, _)| **is_on).map(|(_, it)| it).sum();
        // What comes in, and what goes out of it and the queue.
        let rate = sum / rtt_s;
        let served = (rate + self.queue / step_s).min(capacity);
        let of_flow = |(flow, is_on): (usize, &bool)| match is_on {
            false => FlowSample::default(),
            true => FlowSample {
                window: self.windows[flow],
                alpha: self.alphas[flow],
                goodput_packets_per_s: served * self.windows[flow] / sum,
            },
        };
        let sample = Sample {
            at_s,
            queue_packets: self.queue,
            flows: active.iter().enumerate().map(of_flow).collect(),
        };
        let is_marked = std::mem::replace(
            &mut self.marks[step % fluid.steps_per_rtt as usize],
            self.queue > fluid.mark_packets,
        );
        let p = f64::from(u8::from(is_marked));
        let rtts = step_s / rtt_s;
        let growth_max = 2.0 * capacity * step_s;
        for (flow, is_on) in active.into_iter().enumerate() {
            if !is_on {
                continue;
            }
            let (window, alpha) = (&mut self.windows[flow], &mut self.alphas[flow]);
            let less = *window * *alpha * p / (2.0 * fluid.flows[flow].theta);
            *window = (*window + (rtts * (1.0 - less)).min(growth_max)).max(1.0);
            *alpha = (*alpha + (fluid.g * rtts).min(1.0) * (p - *alpha)).max(0.0);
            debug_assert!(window.is_finite() && *alpha <= 1.0, "{window}, {alpha}");
        }
        let queue = self.queue + (rate - capacity) * step_s;
        self.queue = queue.clamp(0.0, fluid.queue_packets_max);
        debug_assert!(served <= capacity, "more leaves than the link carries");
        sample
    }
}
