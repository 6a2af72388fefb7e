//! Two flows of theta 1 and 4: packet by packet and as a fluid.

use outpour_core::Time;
use outpour_sim::fluid::{self, Fluid, FluidFlow, equilibrium};
use outpour_sim::packets::flows::{Flow, Flows, Line, Run, Scheme};

use super::bottleneck::{MS, at, course, mean, off, play, weighted};
use super::jobs::{Job, Part};
use super::{BenchPushOptions, Entry, Input, as_they_are};
use crate::ExperimentError;
use crate::sweep::{Figure, PlotOf, Row};

/// 20 Mbit/s in packets of 1210 bytes.
const RATE: f64 = 20e6 / 8.0 / 1210.0;
const MARK: u32 = 30;
const QUEUE: u32 = 100;
/// From when to when each flow is there, seconds.
const TIMES: [(f64, f64); 2] = [(0.0, 8.0), (2.0, 6.0)];
const THETAS: [f64; 2] = [1.0, 4.0];
/// Means, and what the curves of them are called.
const CURVES: [(&str, &str); 4] = [
    ("goodput_packets_per_s", "goodput"),
    ("mean_cwnd", "cwnd"),
    ("mean_alpha", "alpha"),
    ("mean_queue_packets", "queue"),
];
const COLUMNS: &[&str] = &[
    "goodput_packets_per_s",
    "mean_cwnd",
    "mean_alpha",
    "mean_queue_packets",
    "off_fluid",
];

const PLOTS: &[PlotOf] = &[
    PlotOf::Course("goodput", "seconds", "packets per second", None),
    PlotOf::Course("cwnd", "seconds", "window, packets", None),
    PlotOf::Course("rtt", "seconds", "round trip, ms", None),
    PlotOf::Course("queue", "seconds", "packets in the queue", None),
    PlotOf::Course("alpha", "seconds", "alpha", None),
];

pub(super) const FIGURE2: Entry = Entry {
    name: "figure2",
    about: "two flows of theta 1 and 4 over one link",
    setup: "20 Mbit/s in packets of 1210 bytes, 0.1 ms there and back, marks from 30 packets in a queue of 100; flow 1 from \
            0 to 8 s, flow 2 from 2 to 6 s, packet by packet and as the fluid of equations 5 to 7. Means are of the curves \
            in the plots, each flow while it is there; the queue is that of the link, while flow 1 is. `off_fluid` is by how much \
            the mean of a curve is off that of the fluid where that is most, percent.",
    paper: (
        "§IV-B, figures 2a to 2f",
        "Goodputs are as thetas, windows and queue settle in a sawtooth about 30 packets in sum, alpha is 0.258 with one flow \
         and 0.577 with both; Mininet, simulator and fluid agree.",
    ),
    why: "It does not. Windows of packets are a little above those of the fluid, each flow's: what a sender has in flight are whole packets, and the one that is sent counts as in flight, but not as waiting in the queue. The paper's \
          curves from Mininet have no counterpart here yet.",
    series: "flow",
    columns: COLUMNS,
    axis: "",
    plots: PLOTS,
    input: Input::Nothing,
    jobs: figure2,
    finish: against_the_fluid,
};

pub(super) const FIGURE3: Entry = Entry {
    name: "figure3",
    about: "two flows of theta 1 and 4, of which one has a narrow link before",
    setup: "as in `figure2`, but flow 2 comes over a link of 5 Mbit/s of its own, with the same marks and queue.",
    paper: (
        "§IV-B, figures 3a and 3b",
        "Flow 2 uses its own link, and flow 1 what that leaves of the shared one: shares are not by theta where that would \
         leave bandwidth idle.",
    ),
    why: "It does not. For the fluid, the flow's own link is a second queue with marks of its own, which the paper's equations leave out.",
    series: "flow",
    columns: COLUMNS,
    axis: "",
    plots: &[PlotOf::Course(
        "goodput",
        "seconds",
        "packets per second",
        None,
    )],
    input: Input::Nothing,
    jobs: figure3,
    finish: against_the_fluid,
};

fn figure2(_: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    Ok(both("figure2", None))
}

fn figure3(_: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    Ok(both("figure3", Some(RATE / 4.0)))
}

/// The same packet by packet and as a fluid; flow 2 may have a link of its own.
fn both(experiment: &'static str, own: Option<f64>) -> Vec<Job> {
    vec![
        Job::new(experiment, "packets", "", move || packets(own)),
        Job::new(experiment, "fluid", "", move || as_fluid(own)),
    ]
}

fn line(from: &str, rate: f64, mark: u32) -> Line {
    Line {
        delay: MS / 20,
        mark_packets: Some(mark),
        ..Line::new(from, "d", rate, QUEUE.max(4 * mark))
    }
}

fn packets(own: Option<f64>) -> Result<Vec<Part>, String> {
    let mut lines = vec![line("c", RATE, MARK)];
    if let Some(own) = own {
        let mut line = line("b", own, MARK);
        (line.to, line.delay) = ("c".to_owned(), std::time::Duration::ZERO);
        lines.push(line);
    }
    let flows = THETAS
        .iter()
        .zip(TIMES)
        .enumerate()
        .map(|(index, (theta, (from_s, to_s)))| {
            let from = if index == 1 && own.is_some() {
                "b"
            } else {
                "c"
            };
            Flow {
                theta: vec![(Time::ZERO, *theta)],
                start: at(from_s),
                stop: Some(at(to_s)),
                ..Flow::new(from, "d", Scheme::Push)
            }
        });
    let mut setup = Flows::new(lines, flows.collect(), 8000 * MS);
    setup.sample = 20 * MS;
    let run = play(&setup)?;
    let flow = |flow: usize| {
        let queue = course(&run, |it| it.queues[0] as f64);
        let rtt = course(&run, |it| 1e3 * it.flows[flow].rtt_s.unwrap_or(0.0));
        let part = Part::new(format!("flow {}, packets", flow + 1), None)
            .curve(
                "goodput",
                course(&run, |it| it.flows[flow].goodput_packets_per_s),
            )
            .curve("cwnd", course(&run, |it| it.flows[flow].cwnd))
            .curve("alpha", course(&run, |it| it.flows[flow].alpha));
        with_means(flow, part, (queue, rtt))
    };
    Ok(vec![flow(0), flow(1)])
}

fn as_fluid(own: Option<f64>) -> Result<Vec<Part>, String> {
    let flows = THETAS
        .iter()
        .zip(TIMES)
        .map(|(theta, (from, to))| FluidFlow::new(*theta, from, to));
    let mut fluid = Fluid {
        capacity_packets_per_s: RATE,
        mark_packets: f64::from(MARK),
        queue_packets_max: f64::from(QUEUE),
        flows: flows.collect(),
        ..Fluid::default()
    };
    fluid.flows[1].own_packets_per_s = own;
    let samples = fluid.run().map_err(|error| error.to_string())?;
    let curve = |value: &dyn Fn(&fluid::Sample) -> f64| -> Vec<(f64, f64)> {
        samples.iter().map(|it| (it.at_s, value(it))).collect()
    };
    let flow = |flow: usize| {
        let queue = curve(&|it| it.queue_packets);
        let rtt = curve(&|it| 1e3 * (fluid.delay_s + it.queue_packets / RATE));
        let part = Part::new(format!("flow {}, fluid", flow + 1), None)
            .curve("goodput", curve(&|it| it.flows[flow].goodput_packets_per_s))
            .curve("cwnd", curve(&|it| it.flows[flow].window))
            .curve("alpha", curve(&|it| it.flows[flow].alpha));
        with_means(flow, part, (queue, rtt))
    };
    Ok(vec![flow(0), flow(1)])
}

/// What is seen over time.
type Points = Vec<(f64, f64)>;

/// Means of curves while the flow is there; queue and round trip go with flow 1.
fn with_means(flow: usize, mut part: Part, (queue, rtt): (Points, Points)) -> Part {
    if flow == 0 {
        part = part.curve("queue", queue).curve("rtt", rtt);
    }
    let (from_s, to_s) = TIMES[flow];
    for (figure, curve) in CURVES {
        if let Some(points) = part.curves.get(curve) {
            let within = points
                .iter()
                .filter(|(at_s, _)| *at_s > from_s && *at_s < to_s);
            let mean = mean(within.map(|(_, value)| *value));
            part.figures.insert(figure.to_owned(), mean);
        }
    }
    part
}

/// By how much means of packets are off those of the fluid.
fn against_the_fluid(rows: &mut [Row], _: &[Part]) {
    for flow in [1, 2] {
        let named = |model: &str| format!("flow {flow}, {model}");
        let Some(fluid) = rows
            .iter()
            .find(|row| row.series == named("fluid"))
            .cloned()
        else {
            continue;
        };
        for row in rows.iter_mut().filter(|row| row.series == named("packets")) {
            let offs = CURVES
                .iter()
                .filter_map(|(name, _)| Some(off(row.mean(name)?, fluid.mean(name)?).abs()));
            let most = offs.fold(0.0, f64::max);
            row.figures
                .insert("off_fluid".to_owned(), Figure::of(std::iter::once(most)));
        }
    }
}

pub(super) const TWO_FLOWS: Entry = Entry {
    name: "two-flows",
    about: "goodputs of two flows of theta 1 and 4, by where the queue marks",
    setup: "the link of `figure2` for 200 s with both flows all the time, means over the second half; K is where the queue marks, \
            which holds four times as much. `ratio` is the goodput of flow 2 over that of flow 1, `cwnd_ratio` the same of windows. \
            `alpha_off`, `cwnd_sum_off` and `queue_off` are against equations 18, 17 and 12, percent. Senders take up to a packet's time \
            (0.5 ms), drawn, from an acknowledgement to what they send then; over seeds.",
    paper: (
        "§IV-B, figure 2",
        "Goodputs are 1 to 4, as thetas; the mean queue is 30, and alpha 0.577.",
    ),
    why: "It does not. A sender has whole packets in flight; it rounds its window up as often as the part of a packet says. To cut the part off would take half a packet from \
          either window, which is more of the smaller one. That windows add up to more than Cd + K where \
          K is small is the packet that each flow adds in the round trip until its mark is back.",
    series: "flows",
    columns: &[
        "ratio",
        "cwnd_ratio",
        "used",
        "alpha",
        "alpha_off",
        "cwnd_sum_off",
        "mean_queue_packets",
        "queue_off",
    ],
    axis: "K, packets",
    plots: &[PlotOf::Series("ratio", "goodput of flow 2 / of flow 1")],
    input: Input::Nothing,
    jobs: two_flows,
    finish: as_they_are,
};

fn two_flows(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let marks: &[u32] = if options.short {
        &[30]
    } else {
        &[20, 30, 50, 100, 200]
    };
    let duration = if options.short {
        5000 * MS
    } else {
        200_000 * MS
    };
    let mut jobs = Vec::new();
    for &mark in marks {
        for seed in options.seeds(5) {
            let name = format!("{mark}.{seed}");
            jobs.push(Job::new("two-flows", &name, "", move || {
                let flows = THETAS.iter().map(|theta| Flow {
                    from: "c".to_owned(),
                    to: "d".to_owned(),
                    ..weighted(*theta)
                });
                let mut setup = Flows::new(vec![line("c", RATE, mark)], flows.collect(), duration);
                (setup.jitter, setup.seed) = (MS / 2, seed);
                Ok(vec![settled(&play(&setup)?, mark)])
            }));
        }
    }
    Ok(jobs)
}

fn settled(run: &Run, mark: u32) -> Part {
    let phase = &run.phases[0];
    let [a, b] = [0, 1].map(|flow| phase.flows[flow].means.clone());
    let queue = phase.ports[0].mean_queue_packets;
    let fluid = Fluid {
        capacity_packets_per_s: RATE,
        mark_packets: f64::from(mark),
        flows: THETAS.map(|theta| FluidFlow::new(theta, 0.0, 1.0)).to_vec(),
        ..Fluid::default()
    };
    let expected = equilibrium(&fluid, &[0, 1]);
    let alpha = mean([&a, &b].into_iter().filter_map(|it| it.mean_alpha));
    Part::new("theta 1 and 4", Some(f64::from(mark)))
        .figure("ratio", b.goodput_packets_per_s / a.goodput_packets_per_s)
        .figure("cwnd_ratio", b.mean_cwnd / a.mean_cwnd)
        .figure("used", phase.ports[0].used)
        .figure("alpha", alpha)
        .figure("alpha_off", off(alpha, expected.alpha))
        .figure(
            "cwnd_sum_off",
            off(a.mean_cwnd + b.mean_cwnd, expected.cwnd_sum),
        )
        .figure("mean_queue_packets", queue)
        .figure("queue_off", off(queue, expected.queue_packets))
}
