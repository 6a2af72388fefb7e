//! Means of a run, phase by phase.

use serde::Serialize;

use super::{Equilibrium, Fluid, Sample, equilibrium};

/// The share of a phase that is left out at its start: flows are still on the way to where they settle.
const SETTLING: f64 = 0.5;

/// A time in which the same flows are active.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// When it begins, seconds.
    pub from_s: f64,
    /// When it ends, seconds.
    pub to_s: f64,
    /// The flows that are active.
    pub flows: Vec<FlowMeans>,
    /// Packets in the queue.
    pub mean_queue_packets: f64,
    /// The closed forms for the same.
    pub predicted: Equilibrium,
}

/// Means of a flow over the second half of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowMeans {
    /// Which one, from 1.
    pub flow: usize,
    /// Its weight.
    pub theta: f64,
    /// What it gets, packets per second.
    pub goodput_packets_per_s: f64,
    /// Its window, packets.
    pub mean_cwnd: f64,
    /// Its running average of the share of marked packets.
    pub mean_alpha: f64,
}

/// Means of a run over the second half of each phase, in the order of time. Phases without a flow or too short for a
/// step are left out.
pub fn phases(fluid: &Fluid, samples: &[Sample]) -> Vec<Phase> {
    let changes = fluid.flows.iter().flat_map(|it| [it.start_s, it.stop_s]);
    let mut changes: Vec<f64> = changes.collect();
    changes.sort_by(f64::total_cmp);
    changes.dedup();
    let pairs = changes.windows(2);
    pairs
        .filter_map(|pair| phase(fluid, samples, pair[0], pair[1]))
        .collect()
}

fn phase(fluid: &Fluid, samples: &[Sample], from_s: f64, to_s: f64) -> Option<Phase> {
    let flows: Vec<usize> = (0..fluid.flows.len())
        .filter(|flow| fluid.is_active(*flow, from_s))
        .collect();
    let settled_s = from_s + SETTLING * (to_s - from_s);
    let begin = samples.partition_point(|sample| sample.at_s < settled_s);
    let end = samples.partition_point(|sample| sample.at_s < to_s);
    let settled = &samples[begin..end];
    if settled.is_empty() || flows.is_empty() {
        return None;
    }
    let mean = |value: &dyn Fn(&Sample) -> f64| {
        settled.iter().map(value).sum::<f64>() / settled.len() as f64
    };
    let of_flow = |flow: usize| FlowMeans {
        flow: flow + 1,
        theta: fluid.flows[flow].theta,
        goodput_packets_per_s: mean(&|it| it.flows[flow].goodput_packets_per_s),
        mean_cwnd: mean(&|it| it.flows[flow].window),
        mean_alpha: mean(&|it| it.flows[flow].alpha),
    };
    Some(Phase {
        from_s,
        to_s,
        flows: flows.iter().map(|flow| of_flow(*flow)).collect(),
        mean_queue_packets: mean(&|it| it.queue_packets),
        predicted: equilibrium(fluid, &flows),
    })
}
