//! One bottleneck: bandwidth that changes, weights that switch, and how many flows fill its queue.

use std::time::Duration;

use outpour_core::Time;
use outpour_sim::packets::flows::{Flow, FlowMeans, Flows, Line, Run, Sample, Scheme};

use super::{BenchPushOptions, Entry, Input, as_they_are};
use crate::ExperimentError;
use crate::sweep::{Figure, PlotOf, Row};

use super::jobs::{Job, Part};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const US: Duration = Duration::from_micros(1);

/// The link of [PPUSH §V-A]: packets per second, one way, where it marks and what it holds.
pub(super) const PAPER_LINK: (f64, Duration, u32, u32) = (1e6, Duration::from_micros(40), 30, 100);
/// Packets on their way and in the queue, when that link is used and the queue is at its threshold.
pub(super) const PAPER_PIPE: f64 = 110.0;

pub(super) fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// The link of the paper.
pub(super) fn paper_line() -> Line {
    let (rate, delay, mark, queue) = PAPER_LINK;
    Line {
        delay,
        mark_packets: Some(mark),
        ..Line::new("a", "b", rate, queue)
    }
}

pub(super) fn flow(scheme: Scheme) -> Flow {
    Flow::new("a", "b", scheme)
}

/// A flow of Parallel Push with a weight.
pub(super) fn weighted(theta: f64) -> Flow {
    Flow {
        theta: vec![(Time::ZERO, theta)],
        ..flow(Scheme::Push)
    }
}

pub(super) fn play(flows: &Flows) -> Result<Run, String> {
    flows.run().map_err(|error| error.to_string())
}

/// What is seen over time.
pub(super) fn course(run: &Run, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    run.samples.iter().map(|it| (it.at_s, value(it))).collect()
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), it| (sum + it, count + 1));
    sum / f64::from(count.max(1))
}

/// How far one is from another, percent of that.
pub(super) fn off(found: f64, expected: f64) -> f64 {
    100.0 * (found / expected - 1.0)
}

pub(super) const FIGURE5: Entry = Entry {
    name: "figure5",
    about: "bandwidth that is halved and doubled",
    setup: "one flow of theta 1 over the link of `figure4a`, whose rate is halved at 0.2 s and doubled at 0.4 s. Each \
            row is a third of the time, its means over the second half; `settled_ms` is how long it takes until the \
            mean of the window over 2 ms is within a tenth of what Cd + K is then.",
    paper: (
        "§V-A, figure 5",
        "The window follows the available bandwidth within a few round trips; the round-trip time is that of equation 4.",
    ),
    why: "It does not. Where the bandwidth doubles, the window grows by one packet per round trip, so it takes as many as \
          are missing, 40.",
    series: "time",
    columns: &[
        "goodput_packets_per_s",
        "mean_cwnd",
        "expected_cwnd",
        "mean_rtt_us",
        "mean_queue_packets",
        "settled_ms",
    ],
    axis: "",
    plots: &[
        PlotOf::Course("cwnd", "seconds", "window, packets", None),
        PlotOf::Course("rtt", "seconds", "round trip, microseconds", None),
    ],
    input: Input::Nothing,
    jobs: figure5,
    finish: as_they_are,
};

fn figure5(_: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let work = || {
        let mut line = paper_line();
        line.rates = vec![(at(0.2), 5e5), (at(0.4), 1e6)];
        let mut setup = Flows::new(vec![line], vec![weighted(1.0)], 600 * MS);
        setup.sample = MS / 5;
        let run = play(&setup)?;
        let way_s = 2.0 * PAPER_LINK.1.as_secs_f64();
        let thirds = [
            ("before", 0.0, 1e6),
            ("halved", 0.2, 5e5),
            ("doubled", 0.4, 1e6),
        ];
        let parts = thirds.into_iter().zip(&run.phases);
        let parts = parts.map(|((name, from_s, rate), phase)| {
            let expected = rate * way_s + f64::from(PAPER_LINK.2);
            let samples: Vec<&Sample> = run.samples.iter().filter(|it| it.at_s > from_s).collect();
            let settled = samples.windows(10).find(|some| {
                let window = mean(some.iter().map(|it| it.flows[0].cwnd));
                off(window, expected).abs() <= 10.0
            });
            let later = || {
                samples
                    .iter()
                    .filter(|it| (phase.from_s + 0.1..phase.to_s).contains(&it.at_s))
            };
            let rtt = mean(later().filter_map(|it| it.flows[0].rtt_s)) * 1e6;
            let means = &phase.flows[0].means;
            let part = Part::new(name, None)
                .figure("goodput_packets_per_s", means.goodput_packets_per_s)
                .figure("mean_cwnd", means.mean_cwnd)
                .figure("expected_cwnd", expected)
                .figure("mean_rtt_us", rtt)
                .figure("mean_queue_packets", phase.ports[0].mean_queue_packets);
            let until = settled
                .and_then(|some| some.last())
                .map(|it| 1e3 * (it.at_s - from_s));
            let part = match until {
                Some(until) => part.figure("settled_ms", until),
                None => part,
            };
            let within = |points: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
                let points = points.into_iter();
                points
                    .filter(|(at_s, _)| (from_s..=from_s + 0.2).contains(at_s))
                    .collect()
            };
            part.curve("cwnd", within(course(&run, |it| it.flows[0].cwnd)))
                .curve(
                    "rtt",
                    within(course(&run, |it| 1e6 * it.flows[0].rtt_s.unwrap_or(0.0))),
                )
        });
        Ok(parts.collect())
    };
    Ok(vec![Job::new("figure5", "push", "", work)])
}

pub(super) const FIGURE7: Entry = Entry {
    name: "figure7",
    about: "weights that switch between ten flows",
    setup: "the link of `figure4a`, whose theta+ is 55. Flow 1 has theta 51 beside eight of 0.5; from 0.5 s to 1 s there is \
            a tenth flow, which has 50.5, and flow 1 0.5; after that it is as before. `ratio` is the goodput of the flow \
            with the large theta over the mean of the others in the second half of each time, `cwnd_ratio` the same of \
            windows; `longest_queue` is over all of it, the switch at its start included. Senders take up to 1 us, drawn, \
            from an acknowledgement to what they send then. Over seeds.",
    paper: (
        "§V-A, figure 7",
        "Goodputs of the favoured flow over others are 102 with nine flows and 101 with ten, as are the weights; the switch \
         makes no burst, and the link is used.",
    ),
    why: "It does not.",
    series: "large theta",
    columns: &[
        "ratio",
        "cwnd_ratio",
        "theta_ratio",
        "used",
        "mean_queue_packets",
        "longest_queue",
        "drops",
    ],
    axis: "",
    plots: &[
        PlotOf::Course("goodput", "seconds", "thousand packets/s", None),
        PlotOf::Course("queue", "seconds", "packets in the queue", None),
    ],
    input: Input::Nothing,
    jobs: figure7,
    finish: as_they_are,
};

fn figure7(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let jobs = options.seeds(10).map(|seed| {
        Job::new("figure7", &seed.to_string(), "by flow", move || {
            theta_switch(seed)
        })
    });
    Ok(jobs.collect())
}

fn theta_switch(seed: u64) -> Result<Vec<Part>, String> {
    let mut first = weighted(51.0);
    first.theta.extend([(at(0.5), 0.5), (at(1.0), 51.0)]);
    let second = Flow {
        start: at(0.5),
        stop: Some(at(1.0)),
        ..weighted(50.5)
    };
    let mut flows = vec![first, second];
    flows.extend(vec![weighted(0.5); 8]);
    let mut setup = Flows::new(vec![paper_line()], flows, 1500 * MS);
    (setup.sample, setup.jitter, setup.seed) = (2 * MS, US, seed);
    let run = play(&setup)?;
    let drops = run.packets.dropped as f64;
    let times = [
        ("flow 1, until 0.5 s", 51.0 / 0.5, Some(0)),
        ("flow 2, until 1 s", 50.5 / 0.5, Some(1)),
        ("flow 1, until 1.5 s", 51.0 / 0.5, None),
    ];
    let parts = times
        .into_iter()
        .zip(&run.phases)
        .map(|((name, weights, shown), phase)| {
            let is_large = |theta: Option<f64>| theta.is_some_and(|it| it > 1.0);
            let ratio = |value: &dyn Fn(&FlowMeans) -> f64| {
                let of = |wanted: bool| {
                    let flows = phase.flows.iter();
                    mean(
                        flows
                            .filter(|it| is_large(it.theta) == wanted)
                            .map(|it| value(&it.means)),
                    )
                };
                of(true) / of(false)
            };
            let is_within = |at_s: f64| at_s > phase.from_s && at_s <= phase.to_s;
            let mut queue = course(&run, |it| it.queues[0] as f64);
            queue.retain(|(at_s, _)| is_within(*at_s));
            let longest = queue.iter().map(|it| it.1).fold(0.0, f64::max);
            let part = Part::new(name, None)
                .figure("ratio", ratio(&|it| it.goodput_packets_per_s))
                .figure("cwnd_ratio", ratio(&|it| it.mean_cwnd))
                .figure("theta_ratio", weights)
                .figure("used", phase.ports[0].used)
                .figure("mean_queue_packets", phase.ports[0].mean_queue_packets)
                .figure("longest_queue", longest)
                .figure("drops", drops)
                .curve("queue", queue);
            match shown {
                // All the time, once for each flow.
                Some(flow) => part.curve(
                    "goodput",
                    course(&run, |it: &Sample| {
                        it.flows[flow].goodput_packets_per_s / 1e3
                    }),
                ),
                None => part,
            }
        });
    Ok(parts.collect())
}

pub(super) const INCAST: Entry = Entry {
    name: "incast",
    about: "how many flows fill the queue",
    setup: "so many flows of unlimited content over the link of `figure4a`, each with a window of 1 at its start and 1 ms after the one \
            before; then 0.5 s, of which the second half counts. `algorithm 1`: one has what 55 leaves, at least 1, the others 0.5; `theta 1`: all have 1; \
            `dctcp`, as it is and with three assumptions, alone and together. Timers are at least 10 ms. `full_from` is the least number at which the mean of the queue is 98 packets or more, the one that is sent left out, and `full_to` the last of those tried up to which it stays so; `touches_from` that at which it is 99 or more at some time.",
    paper: (
        "§V-A",
        "The queue of 100 packets is full from 179 flows on under Algorithm 1, from 90 if all thetas are 1, and from 61 \
         under DCTCP.",
    ),
    why: "With thetas of 1 it does not: every packet has a mark, windows stand at 2, and 80 packets are on their way: 2 x 90. Under Algorithm 1 windows stand at 1, 179 fill the queue as in the paper, but more than those do not keep it full (`full_to`): \
          each packet that finds no place is all of a flow's window, so the flow waits for its timer of 10 ms (`timeouts`). The paper's 61 are three packets each: 60 times three are the 180 that link and queue hold. DCTCP here \
          goes down to one packet, which RFC 3168 allows, does not grow by packets with marks, and cuts parts of packets off, so under marks alone its windows stand at 1. The paper does not say what its DCTCP does. \
          Rows show three assumptions that may make up for it: a least window of 2 packets, as Linux has it (`at least 2`); a packet more per round trip also under marks, as in the analysis of DCTCP (`grows when marked`); and \
          parts of packets that count as often as they say (`by parts`). With all three packets are dropped from 56 flows on, 8 % fewer than the paper's 61, and the queue holds 96 packets on average; alone, none of them does that. \
          Flows take turns, so the queue is full at times long before it is on average. So it is under Algorithm 1: a window of one packet that gets no mark is two at once, as equation 2 adds 1 / W, until all packets have marks and none grows.",
    series: "weights",
    columns: &[
        "mean_queue_packets",
        "longest_queue",
        "mean_cwnd",
        "drops_percent",
        "timeouts",
        "full_from",
        "full_to",
        "touches_from",
    ],
    axis: "flows",
    plots: &[PlotOf::Series(
        "mean_queue_packets",
        "packets in the queue, mean",
    )],
    input: Input::Nothing,
    jobs: incast,
    finish: full_from,
};

const DCTCP_AT_LEAST_2: &str = "dctcp, at least 2";
const DCTCP_GROWS: &str = "dctcp, grows when marked";
const DCTCP_PARTS: &str = "dctcp, by parts";
const DCTCP_ALL: &str = "dctcp, all three";
const WEIGHTS: [&str; 7] = [
    "algorithm 1",
    "theta 1",
    "dctcp",
    DCTCP_AT_LEAST_2,
    DCTCP_GROWS,
    DCTCP_PARTS,
    DCTCP_ALL,
];
/// From so many packets on, on average, a queue of 100 is taken for full.
const FULL: f64 = 98.0;

fn incast(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let near: [std::ops::RangeInclusive<u32>; 7] = [
        174..=184,
        85..=95,
        56..=66,
        85..=95,
        85..=95,
        85..=95,
        56..=66,
    ];
    let mut jobs = Vec::new();
    for (weights, near) in WEIGHTS.into_iter().zip(near) {
        let mut numbers: Vec<u32> = match options.short {
            true => vec![20, 60],
            false => (1..=20).map(|it| 10 * it).chain(near).collect(),
        };
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let name = format!("{}.{number}", weights.replace([',', ' '], "-"));
            jobs.push(Job::new("incast", &name, "", move || {
                crowd(weights, number)
            }));
        }
    }
    Ok(jobs)
}

fn crowd(weights: &str, number: u32) -> Result<Vec<Part>, String> {
    let large = (PAPER_PIPE / 2.0 - 0.5 * f64::from(number - 1)).max(1.0);
    let flows = (0..number).map(|index| {
        let flow = match (weights, index) {
            ("theta 1", _) => weighted(1.0),
            ("algorithm 1", 0) => weighted(large),
            ("algorithm 1", _) => weighted(0.5),
            _ => Flow {
                window_min: matches!(weights, DCTCP_AT_LEAST_2 | DCTCP_ALL).then_some(2.0),
                grows_when_marked: matches!(weights, DCTCP_GROWS | DCTCP_ALL),
                has_parts: matches!(weights, DCTCP_PARTS | DCTCP_ALL),
                ..flow(Scheme::Dctcp)
            },
        };
        Flow {
            start: Time::ZERO + index * MS,
            initial_window: Some(1.0),
            rto_min: Some(10 * MS),
            ..flow
        }
    });
    let all = number * MS;
    let mut setup = Flows::new(vec![paper_line()], flows.collect(), all + 500 * MS);
    (setup.sample, setup.jitter) = (MS / 2, US);
    let run = play(&setup)?;
    let last = run.phases.last().ok_or("no flow was active")?;
    let late_s = all.as_secs_f64() + 0.25;
    let late = run.samples.iter().filter(|it| it.at_s > late_s);
    let windows = last.flows.iter().map(|it| it.means.mean_cwnd);
    let drops = 100.0 * run.packets.dropped as f64 / run.packets.sent as f64;
    let timeouts: u64 = run.flows.iter().map(|it| it.timeouts).sum();
    let part = Part::new(weights, Some(f64::from(number)))
        .figure("mean_queue_packets", last.ports[0].mean_queue_packets)
        .figure(
            "longest_queue",
            late.map(|it| it.queues[0]).max().unwrap_or_default() as f64,
        )
        .figure("mean_cwnd", mean(windows))
        .figure("drops_percent", drops)
        .figure("timeouts", timeouts as f64);
    Ok(vec![part])
}

/// From where on the queue is full on average and until where, and from where on it is at times.
fn full_from(rows: &mut [Row], _: &[Part]) {
    for weights in WEIGHTS {
        let is_at_least = |row: &Row, figure: &str, least: f64| {
            row.series == weights && row.mean(figure).is_some_and(|it| it >= least)
        };
        let is_full = |row: &Row| is_at_least(row, "mean_queue_packets", FULL);
        let is_touched = |row: &Row| is_at_least(row, "longest_queue", FULL + 1.0);
        let mut found = Vec::new();
        if let Some(first) = rows.iter().position(is_full) {
            let full = rows[first..].iter().take_while(|row| is_full(row));
            let last = full.last().and_then(|row| row.at);
            found.extend([
                (first, "full_from", rows[first].at),
                (first, "full_to", last),
            ]);
        }
        if let Some(first) = rows.iter().position(is_touched) {
            found.push((first, "touches_from", rows[first].at));
        }
        for (row, name, at) in found {
            let figure = Figure::of(at.into_iter());
            rows[row].figures.insert(name.to_owned(), figure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_from_a_number_of_flows_to_another() {
        let row = |weights: &str, flows: f64, queue: f64| {
            let mut row = Row::new(weights, Some(flows));
            for (name, value) in [
                ("mean_queue_packets", queue),
                ("longest_queue", 2.0 * queue),
            ] {
                let figure = Figure::of(std::iter::once(value));
                row.figures.insert(name.to_owned(), figure);
            }
            row
        };
        let queues = [40.0, 50.0, 98.5, 98.2, 95.0, 99.0];
        let numbers = (1..).map(f64::from);
        let mut rows: Vec<Row> = numbers
            .zip(queues)
            .map(|(flows, queue)| row(WEIGHTS[0], flows, queue))
            .collect();
        rows.push(row(WEIGHTS[1], 1.0, 10.0));
        full_from(&mut rows, &[]);
        assert_eq!(rows[1].mean("touches_from"), Some(2.0));
        assert_eq!(rows[2].mean("full_from"), Some(3.0));
        assert_eq!(rows[2].mean("full_to"), Some(4.0));
        let told = rows.iter().filter(|row| row.figures.len() > 2);
        assert_eq!(told.count(), 2);
    }
}
