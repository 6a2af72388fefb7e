//! The closed forms of windows, marks and queues, against flows packet by packet.

use std::time::Duration;

use outpour_sim::fluid::{Fluid, FluidFlow, equilibrium};
use outpour_sim::packets::flows::{Flow, Flows, Line, Scheme};

use super::bottleneck::{MS, flow, mean, off, play, weighted};
use super::jobs::{Job, Part};
use super::{BenchPushOptions, Entry, Input, as_they_are};
use crate::ExperimentError;
use crate::dice::Dice;
use crate::sweep::PlotOf;

const DRAWS: u64 = 20;

pub(super) const EQUATIONS: Entry = Entry {
    name: "equations",
    about: "windows, marks and queue against equations 12 and 17 to 19",
    setup: "20 draws of 2 to 6 flows with thetas from 0.5 to 8, rate from 10^4 to 10^6 packets/s, Cd from 0 to 100 packets and K from 40 to 200, \
            such that Cd + K is at least 20 packets per flow and thetas add up to 0.05 to 0.5 of the bound of equation 20. Each for \
            3000 round trips, means over the second half. Figures are how far these are from the equations, percent: \
            `alpha` (18), `cwnd_sum` (17), `cwnds` the largest of the flows (19), `goodputs` the same of their shares of the link, `queue` (12).",
    paper: (
        "§IV-A, equations 12 and 17 to 19",
        "Means of the windows are in proportion to theta and add up to Cd + K, the mean queue is K, and alpha is the root of \
         twice the sum of thetas over Cd + K.",
    ),
    why: "It does not. Farthest off are flows with small thetas, whose windows are a few packets, and from above: a window grows by 1 / W at once.",
    series: "model",
    columns: &[
        "alpha_off",
        "cwnd_sum_off",
        "cwnds_off",
        "goodputs_off",
        "queue_off",
        "used",
    ],
    axis: "",
    plots: &[],
    input: Input::Nothing,
    jobs: equations,
    finish: as_they_are,
};

/// A bottleneck with flows within the bound of equation 20, or so far beyond it.
fn drawn(draw: u64, beyond: Option<f64>) -> Fluid {
    let mut dice = Dice::new(draw.wrapping_mul(0x51ed));
    let mut between = |low: f64, high: f64| (high - low).mul_add(dice.share(), low);
    loop {
        let count = between(2.0, 7.0).floor();
        let capacity = 10_f64.powf(between(4.0, 6.0));
        let (way, mark) = (between(0.0, 100.0), between(40.0, 200.0).floor());
        let mut thetas: Vec<f64> = (0..count as u32).map(|_| between(0.5, 8.0)).collect();
        let sum: f64 = thetas.iter().sum();
        let bound = (way + mark) / 2.0;
        if let Some(beyond) = beyond {
            for theta in &mut thetas {
                *theta *= beyond * bound / sum;
            }
        }
        let is_within = (0.05..0.5).contains(&(sum / bound));
        if way + mark < 20.0 * count || !(is_within || beyond.is_some()) {
            continue;
        }
        let delay_s = way / capacity;
        let stop_s = 3000.0 * (delay_s + mark / capacity);
        let flow = |theta| FluidFlow::new(theta, 0.0, stop_s);
        return Fluid {
            capacity_packets_per_s: capacity,
            delay_s,
            mark_packets: mark,
            queue_packets_max: 4.0 * (way + mark),
            steps_per_rtt: 16,
            flows: thetas.into_iter().map(flow).collect(),
            ..Fluid::default()
        };
    }
}

/// The same flows packet by packet.
fn packets(fluid: &Fluid) -> Flows {
    let line = Line {
        delay: Duration::from_secs_f64(fluid.delay_s / 2.0),
        mark_packets: Some(fluid.mark_packets as u32),
        ..Line::new(
            "a",
            "b",
            fluid.capacity_packets_per_s,
            fluid.queue_packets_max as u32,
        )
    };
    let flows = fluid.flows.iter().map(|it| weighted(it.theta)).collect();
    let mut setup = Flows::new(vec![line], flows, Duration::from_secs_f64(fluid.end_s()));
    setup.jitter = Duration::from_secs_f64(1.0 / fluid.capacity_packets_per_s);
    setup
}

fn draws(options: &BenchPushOptions) -> std::ops::Range<u64> {
    let count = if options.short { 2 } else { DRAWS };
    options.seed..options.seed + count
}

fn equations(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let jobs = draws(options).map(|draw| {
        Job::new("equations", &draw.to_string(), "", move || {
            let fluid = drawn(draw, None);
            let run = play(&packets(&fluid))?;
            let phase = &run.phases[0];
            let means: Vec<_> = phase.flows.iter().map(|it| it.means.clone()).collect();
            let of_packets = Means {
                windows: means.iter().map(|it| it.mean_cwnd).collect(),
                goodputs: means.iter().map(|it| it.goodput_packets_per_s).collect(),
                alpha: mean(means.iter().filter_map(|it| it.mean_alpha)),
                queue: phase.ports[0].mean_queue_packets,
            };
            let samples = fluid.run().map_err(|error| error.to_string())?;
            let phases = outpour_sim::fluid::phases(&fluid, &samples);
            let settled = phases.first().ok_or("the fluid does not settle")?;
            let of_fluid = Means {
                windows: settled.flows.iter().map(|it| it.mean_cwnd).collect(),
                goodputs: settled
                    .flows
                    .iter()
                    .map(|it| it.goodput_packets_per_s)
                    .collect(),
                alpha: mean(settled.flows.iter().map(|it| it.mean_alpha)),
                queue: settled.mean_queue_packets,
            };
            Ok(vec![
                of_packets
                    .against(&fluid, "packets")
                    .figure("used", phase.ports[0].used),
                of_fluid.against(&fluid, "fluid"),
            ])
        })
    });
    Ok(jobs.collect())
}

struct Means {
    windows: Vec<f64>,
    goodputs: Vec<f64>,
    alpha: f64,
    queue: f64,
}

impl Means {
    fn against(&self, fluid: &Fluid, series: &str) -> Part {
        let all: Vec<usize> = (0..fluid.flows.len()).collect();
        let expected = equilibrium(fluid, &all);
        let most = |found: &[f64], expected: &[f64]| {
            let pairs = found.iter().zip(expected);
            pairs
                .map(|(it, other)| off(*it, *other).abs())
                .fold(0.0, f64::max)
        };
        Part::new(series, None)
            .figure("alpha_off", off(self.alpha, expected.alpha))
            .figure(
                "cwnd_sum_off",
                off(self.windows.iter().sum(), expected.cwnd_sum),
            )
            .figure("cwnds_off", most(&self.windows, &expected.cwnds))
            .figure(
                "goodputs_off",
                most(&self.goodputs, &expected.goodputs_packets_per_s),
            )
            .figure("queue_off", off(self.queue, expected.queue_packets))
    }
}

pub(super) const BOUND: Entry = Entry {
    name: "bound",
    about: "thetas beyond the bound of equation 20",
    setup: "the draws of `equations`, with thetas scaled to 0.8, 1.2 and 2 times the bound (Cd + K) / 2. Beyond it every packet has a mark \
            then, windows stay where 1 per round trip is gained and lost, at 2 theta, and so the bound shows in the queue: \
            it should be twice the sum of thetas less Cd. `queue_off` is how far it is from that, percent; `over_mark` how many times K it is.",
    paper: (
        "§IV-A, equation 20",
        "Thetas that add up to more than (Cd + K) / 2 would need an alpha above 1.",
    ),
    why: "It does not: every packet has a mark beyond the bound and not before, and the queue is as long as windows of twice the thetas make it.",
    series: "beyond",
    columns: &["alpha", "queue_off", "over_mark"],
    axis: "sum of thetas / bound",
    plots: &[PlotOf::Series("over_mark", "queue / K")],
    input: Input::Nothing,
    jobs: bound,
    finish: as_they_are,
};

fn bound(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let mut jobs = Vec::new();
    for beyond in [0.8, 1.2, 2.0] {
        for draw in draws(options) {
            jobs.push(Job::new(
                "bound",
                &format!("{beyond}.{draw}"),
                "",
                move || {
                    let fluid = drawn(draw, Some(beyond));
                    let run = play(&packets(&fluid))?;
                    let phase = &run.phases[0];
                    let queue = phase.ports[0].mean_queue_packets;
                    let sum: f64 = fluid.flows.iter().map(|it| it.theta).sum();
                    let way = fluid.capacity_packets_per_s * fluid.delay_s;
                    let expected = (2.0 * sum - way).max(fluid.mark_packets);
                    let part = Part::new("packets", Some(beyond))
                        .figure(
                            "alpha",
                            mean(phase.flows.iter().filter_map(|it| it.means.mean_alpha)),
                        )
                        .figure("queue_off", off(queue, expected))
                        .figure("over_mark", queue / fluid.mark_packets);
                    Ok(vec![part])
                },
            ));
        }
    }
    Ok(jobs)
}

pub(super) const DCTCP: Entry = Entry {
    name: "dctcp",
    about: "DCTCP against the analysis of its own paper",
    setup: "so many flows of DCTCP over a link of 10^6 packets/s and 1 ms there and back, which marks from 200 packets in the \
            queue: more than a seventh of C x RTT, where the analysis holds. For 2 s, means over the second half. `alpha_off` is against \
            the root of 2 / W with W = (C x RTT + K) / N, `queue_off` against the mean of a sawtooth that reaches K + N \
            and swings by the root of N (C x RTT + K) / 2, `swing_off` against that swing, percent. The rows `alpha decays` are the \
            same analysis without its assumption that alpha is constant between two reductions: alpha is the share of marked round \
            trips, 1 / T, T being how many lie from one reduction to the next; `kept` is what alpha keeps over the T of the \
            published analysis, (1 - g)^T, which that asks to be above a half.",
    paper: (
        "Alizadeh et al. 2010, §3.3, equations 6 to 11",
        "Queue and alpha of N synchronised flows in closed form.",
    ),
    why: "The analysis takes alpha for constant between two reductions, and so asks that g is small enough for the average to span \
          them. Two flows have large windows and reduce rarely; with g = 1/16, as RFC 8257 has it, alpha keeps only a third until the next reduction (`kept`), so \
          reductions are smaller and more frequent, and more of the round trips have marks. Without the assumption the same analysis has an alpha a quarter \
          larger (rows `alpha decays`), which is what is measured within 5 %. With g = 1/64 it keeps three quarters. Many flows have small windows, reduce by few packets and get out of step, which the analysis excludes.",
    series: "scheme",
    columns: &[
        "alpha",
        "alpha_off",
        "kept",
        "mean_queue_packets",
        "queue_off",
        "longest_queue",
        "swing_off",
        "used",
    ],
    axis: "flows",
    plots: &[
        PlotOf::Series("mean_queue_packets", "packets in the queue, mean"),
        PlotOf::Series("alpha", "alpha"),
    ],
    input: Input::Nothing,
    jobs: dctcp,
    finish: as_they_are,
};

/// The weight of a new window in the running average: that of RFC 8257, and one that is small enough.
const GAINS: [(&str, f64); 2] = [("g = 1/16", 1.0 / 16.0), ("g = 1/64", 1.0 / 64.0)];

fn dctcp(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let counts: &[u32] = match options.short {
        true => &[5],
        false => &[2, 5, 10, 20, 30, 40],
    };
    let duration = if options.short { 200 * MS } else { 2000 * MS };
    let mut jobs = Vec::new();
    for (series, g) in GAINS {
        for &count in counts {
            let name = format!("{}.{count}", 1.0 / g);
            jobs.push(Job::new("dctcp", &name, "", move || {
                sawtooth(series, g, count, duration)
            }));
        }
    }
    Ok(jobs)
}

/// DCTCP over one link, and what its paper says of that.
fn sawtooth(series: &str, g: f64, count: u32, duration: Duration) -> Result<Vec<Part>, String> {
    let (rate, rtt, mark) = (1e6, MS, 200_u32);
    let line = Line {
        delay: rtt / 2,
        mark_packets: Some(mark),
        ..Line::new("a", "b", rate, 4000)
    };
    let flow = Flow {
        g: Some(g),
        ..flow(Scheme::Dctcp)
    };
    let mut setup = Flows::new(vec![line], vec![flow; count as usize], duration);
    setup.sample = MS / 10;
    let run = play(&setup)?;
    let (n, phase) = (f64::from(count), &run.phases[0]);
    let full = rate * rtt.as_secs_f64() + f64::from(mark);
    let swing = (2.0 * n * full).sqrt() / 2.0;
    let half_s = duration.as_secs_f64() / 2.0;
    let late = run.samples.iter().filter(|it| it.at_s > half_s);
    let late: Vec<f64> = late.map(|it| it.queues[0] as f64).collect();
    let least = late.iter().copied().fold(f64::INFINITY, f64::min);
    let most = late.iter().copied().fold(0.0, f64::max);
    let alpha = mean(phase.flows.iter().filter_map(|it| it.means.mean_alpha));
    let expected = [(2.0 * n / full).sqrt(), f64::from(mark) + n - swing / 2.0];
    let queue = phase.ports[0].mean_queue_packets;
    let found = Part::new(series, Some(n))
        .figure("alpha", alpha)
        .figure("alpha_off", off(alpha, expected[0]))
        .figure("mean_queue_packets", queue)
        .figure("queue_off", off(queue, expected[1]))
        .figure("longest_queue", most)
        .figure("swing_off", off(most - least, swing))
        .figure("used", phase.ports[0].used);
    let analysis = Part::new("analysis", Some(n))
        .figure("alpha", expected[0])
        .figure("mean_queue_packets", expected[1])
        .figure("longest_queue", f64::from(mark) + n);
    let decayed = 1.0 / period(g, full / n);
    let decays = Part::new(format!("{series}, alpha decays"), Some(n))
        .figure("alpha", decayed)
        .figure("alpha_off", off(decayed, expected[0]))
        .figure("kept", (1.0 - g).powf(full / n * expected[0] / 2.0));
    // What it says does not depend on g, and is shown once.
    let is_first = series == GAINS[0].0;
    Ok([found, decays]
        .into_iter()
        .chain(is_first.then_some(analysis))
        .collect())
}

/// How many round trips lie between two reductions of synchronised flows with windows of up to `window` packets, if
/// alpha is not taken for constant meanwhile. A reduction takes `window / 2` times the alpha that is left of the one
/// before, and the window grows by one packet per round trip; then a round trip of marks brings alpha up by `g`.
fn period(g: f64, window: f64) -> f64 {
    let grown = |trips: f64| {
        // The fixed point of alpha <- ((1 - g) alpha + g) (1 - g)^(trips - 1).
        let kept = (1.0 - g).powf(trips);
        let alpha = g * kept / (1.0 - g) / (1.0 - kept);
        window * alpha / 2.0
    };
    // Longer periods leave less alpha, and so have less to grow: they cross once.
    let (mut low, mut high) = (1e-3, window);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match grown(middle) > middle {
            true => low = middle,
            false => high = middle,
        }
    }
    debug_assert!((grown(low) - low).abs() < 1e-6 * window, "{low}");
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_that_of_a_sawtooth_played_by_round_trips() {
        for (g, top) in [
            (1.0 / 16.0, 600.0),
            (1.0 / 16.0, 120.0),
            (1.0 / 64.0, 600.0),
        ] {
            let (mut window, mut alpha, mut marked) = (top, 0.5, 0_u32);
            let trips = 100_000;
            for trip in 0..2 * trips {
                let is_marked = window >= top;
                if is_marked {
                    window -= window * alpha / 2.0;
                    marked += u32::from(trip >= trips);
                }
                alpha += g * (f64::from(u8::from(is_marked)) - alpha);
                window += 1.0;
            }
            let played = f64::from(trips) / f64::from(marked);
            let expected = period(g, top);
            assert!(
                off(played, expected).abs() < 1.0,
                "{played} {expected} of {g}, {top}"
            );
            let constant = (top / 2.0).sqrt();
            assert!(expected < constant, "alpha that decays makes it shorter");
        }
    }
}
