//! What a run comes to, in numbers.

use outpour_core::Time;
use outpour_packets::Stats;
use serde::Serialize;

use super::ends::SenderState;
use super::play::{Port, Snapshot};
use super::{Flow, Flows};
use crate::packets::WayCounts;

/// Means of a flow while it is active.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowMeans {
    /// What arrived, packets per second, none counted twice.
    pub goodput_packets_per_s: f64,
    /// The window, packets, as it was over time.
    pub mean_cwnd: f64,
    /// The running average of the share of marked packets; none without one.
    pub mean_alpha: Option<f64>,
}

/// What a flow has come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowReport {
    /// Which one, from 1.
    pub flow: usize,
    /// What is at its ends.
    pub scheme: &'static str,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// When it started, seconds.
    pub from_s: f64,
    /// When it stopped, was done, or the run ended, seconds.
    pub to_s: f64,
    /// Whether all of its packets arrived.
    pub is_done: bool,
    /// Means from its start to that.
    #[serde(flatten)]
    pub means: FlowMeans,
    /// Data packets sent, repeated ones included.
    pub sent: u64,
    /// Data packets that arrived, repeated ones included.
    pub received: u64,
    /// Data packets that arrived with a congestion mark.
    pub marked: u64,
    /// Data packets that were dropped or lost on the way.
    pub drops: u64,
    /// Data packets on the way at the end.
    pub inside: u64,
    /// Data packets that the sender took for lost.
    pub taken_for_lost: u64,
    /// How often its timer ran out.
    pub timeouts: u64,
    /// The smoothed round-trip time at the end, seconds.
    pub rtt_s: Option<f64>,
}

/// What a port has come to, from the start to the end of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortReport {
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Packets that waited, on average over time, the one that is sent left out.
    pub mean_queue_packets: f64,
    /// The most that waited.
    pub max_queue_packets: u64,
    /// The share of the time in which it sent.
    pub used: f64,
    /// Packets that passed.
    pub packets: u64,
    /// Packets that got a congestion mark.
    pub marks: u64,
    /// Packets that found no room or were lost.
    pub drops: u64,
}

/// What became of all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Those that were sent.
    pub sent: u64,
    /// Those that arrived.
    pub received: u64,
    /// Those that found no room or were lost.
    pub dropped: u64,
    /// How often one was marked.
    pub marks: u64,
    /// Those that are on their way at the end.
    pub inside: u64,
}

/// The second half of a time in which nothing was changed: then flows have settled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// When it begins, seconds.
    pub from_s: f64,
    /// When it ends, seconds.
    pub to_s: f64,
    /// The flows that are active all the time.
    pub flows: Vec<PhaseFlow>,
    /// The ports, in the order of all.
    pub ports: Vec<PhasePort>,
}

/// A flow in a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseFlow {
    /// Which one, from 1.
    pub flow: usize,
    /// Its weight, if it has one.
    pub theta: Option<f64>,
    /// Its means.
    #[serde(flatten)]
    pub means: FlowMeans,
}

/// A port in a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhasePort {
    /// Packets that waited, on average.
    pub mean_queue_packets: f64,
    /// The share of the time in which it sent.
    pub used: f64,
}

/// What is known of a flow at the end.
pub(super) struct FlowEnd {
    pub(super) state: SenderState,
    pub(super) done: Option<Time>,
    /// What had arrived when it stopped, repeated ones left out.
    pub(super) received: u64,
    pub(super) counts: WayCounts,
    pub(super) inside: u64,
}

/// From when on a phase counts.
pub(super) fn half(from: Time, to: Time) -> Time {
    Time(from.0 + (to.0 - from.0) / 2)
}

fn averages(flow: &Flow) -> bool {
    use super::Scheme::{Dctcp, Push};
    matches!(flow.scheme, Push | Dctcp)
}

fn means(flow: &Flow, received: u64, window_s: f64, alpha_s: f64, active_s: f64) -> FlowMeans {
    let per = |sum: f64| if active_s > 0.0 { sum / active_s } else { 0.0 };
    FlowMeans {
        goodput_packets_per_s: per(received as f64),
        mean_cwnd: per(window_s),
        mean_alpha: averages(flow).then(|| per(alpha_s)),
    }
}

pub(super) fn flows(setup: &Flows, end: &Snapshot, ends: &[FlowEnd]) -> Vec<FlowReport> {
    let report = |(index, flow): (usize, &Flow)| {
        let (last, sums) = (&ends[index], &end.flows[index]);
        let stop = flow.stop.into_iter().chain(last.done).chain([end.at]);
        let to = stop.min().unwrap_or(end.at);
        let active_s = to.since(flow.start).as_secs_f64();
        debug_assert!(last.counts.sent >= last.counts.received + last.inside);
        FlowReport {
            flow: index + 1,
            scheme: flow.scheme.name(),
            from: flow.from.clone(),
            to: flow.to.clone(),
            from_s: flow.start.as_secs_f64(),
            to_s: to.as_secs_f64(),
            is_done: last.done.is_some(),
            means: means(flow, last.received, sums.window_s, sums.alpha_s, active_s),
            sent: last.counts.sent,
            received: last.counts.received,
            marked: last.counts.marked,
            drops: last.counts.sent - last.counts.received - last.inside,
            inside: last.inside,
            taken_for_lost: last.state.lost,
            timeouts: last.state.timeouts,
            rtt_s: last.state.rtt.map(|it| it.as_secs_f64()),
        }
    };
    setup.flows.iter().enumerate().map(report).collect()
}

pub(super) fn ports(setup: &Flows, ports: &[Port], stats: &[Stats]) -> Vec<PortReport> {
    let nanos = setup.duration.as_nanos() as f64;
    let report = |(port, stats): (&Port, &Stats)| {
        let (_, link, is_back) = *port;
        let line = &setup.lines[link];
        let (from, to) = match is_back {
            true => (&line.to, &line.from),
            false => (&line.from, &line.to),
        };
        PortReport {
            from: from.clone(),
            to: to.clone(),
            mean_queue_packets: stats.mean_queue_packets,
            max_queue_packets: stats.max_queue_packets,
            used: stats.busy_nanos as f64 / nanos,
            packets: stats.packets,
            marks: stats.marked,
            drops: stats.dropped + stats.lost,
        }
    };
    ports.iter().zip(stats).map(report).collect()
}

/// Means of phases in which a flow is active; `snapshots` has two for each, at its half and at its end.
pub(super) fn phases(
    setup: &Flows,
    ports: &[Port],
    boundaries: &[Time],
    snapshots: &[Snapshot],
) -> Vec<Phase> {
    debug_assert_eq!(snapshots.len(), 2 * (boundaries.len() - 1));
    let pairs = boundaries.windows(2).zip(snapshots.chunks_exact(2));
    let phase = |(pair, halves): (&[Time], &[Snapshot])| {
        let (from, to) = (pair[0], pair[1]);
        let (before, after) = (&halves[0], &halves[1]);
        let passed_s = after.at.since(before.at).as_secs_f64();
        let is_active = |flow: &Flow| flow.start <= from && flow.stop.is_none_or(|stop| stop >= to);
        let active = setup.flows.iter().enumerate().filter(|it| is_active(it.1));
        let flow = |(index, flow): (usize, &Flow)| {
            let (before, after) = (&before.flows[index], &after.flows[index]);
            let theta = flow.theta.iter().rev().find(|(at, _)| *at <= from);
            PhaseFlow {
                flow: index + 1,
                theta: theta.map(|it| it.1),
                means: means(
                    flow,
                    after.received - before.received,
                    after.window_s - before.window_s,
                    after.alpha_s - before.alpha_s,
                    passed_s,
                ),
            }
        };
        let port = |index: usize| {
            let (first, last) = (&before.ports[index], &after.ports[index]);
            // Packets times nanoseconds since the start.
            let area = |stats: &Stats, at: Time| stats.mean_queue_packets * at.0 as f64;
            let waited = area(last, after.at) - area(first, before.at);
            let nanos = (passed_s * 1e9).max(1.0);
            PhasePort {
                mean_queue_packets: waited.max(0.0) / nanos,
                used: (last.busy_nanos - first.busy_nanos) as f64 / nanos,
            }
        };
        Phase {
            from_s: from.as_secs_f64(),
            to_s: to.as_secs_f64(),
            flows: active.map(flow).collect(),
            ports: (0..ports.len()).map(port).collect(),
        }
    };
    let all = pairs.map(phase);
    all.filter(|phase| !phase.flows.is_empty()).collect()
}
