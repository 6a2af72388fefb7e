//! Where flows settle: the closed forms [PPUSH §IV-A, equations 12 and 16 to 20].

use serde::Serialize;

use super::Fluid;

/// The state that flows settle in, on average.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Equilibrium {
    /// The running average of the share of marked packets (equation 18).
    pub alpha: f64,
    /// Packets in the queue (equation 12).
    pub queue_packets: f64,
    /// The sum of all windows, packets (equation 17).
    pub cwnd_sum: f64,
    /// The most that weights may add up to: with more, marks on every packet would not be enough
    /// (equation 20).
    pub theta_sum_max: f64,
    /// Whether they do not; beyond that, the rest does not hold.
    pub is_within_theta_sum_max: bool,
    /// The window of each flow, packets (equation 19).
    pub cwnds: Vec<f64>,
    /// What each flow gets, packets per second: in proportion to its window.
    pub goodputs_packets_per_s: Vec<f64>,
}

/// Where those of the flows settle that have these numbers, from 0, if only they are active.
///
/// # Panics
/// If there is no such flow.
pub fn equilibrium(fluid: &Fluid, flows: &[usize]) -> Equilibrium {
    let capacity = fluid.capacity_packets_per_s;
    let cwnd_sum = capacity * fluid.delay_s + fluid.mark_packets;
    let thetas = flows.iter().map(|flow| fluid.flows[*flow].theta);
    let theta_sum: f64 = thetas.clone().sum();
    let shares: Vec<f64> = thetas.map(|theta| theta / theta_sum).collect();
    let theta_sum_max = cwnd_sum / 2.0;
    Equilibrium {
        alpha: (theta_sum / theta_sum_max).sqrt(),
        queue_packets: fluid.mark_packets,
        cwnd_sum,
        theta_sum_max,
        is_within_theta_sum_max: theta_sum <= theta_sum_max,
        cwnds: shares.iter().map(|share| share * cwnd_sum).collect(),
        goodputs_packets_per_s: shares.iter().map(|share| share * capacity).collect(),
    }
}
