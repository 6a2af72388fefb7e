//! `outpour sim fluid`: flows under weighted fair congestion control as a fluid.

use std::time::Duration;

use outpour_core::units::format_duration;
use outpour_sim::fluid::file::Capacity;
use outpour_sim::fluid::file::{FluidFile, TEXT_BYTES_MAX};
use outpour_sim::fluid::{Fluid, FluidFlow, Phase, Sample, phases, svg};
use serde::Serialize;

use super::{plan, sim};
use crate::args::fluid::SimFluidArgs;
use crate::out::{self, Failure};
use crate::report::table;

/// When flows stop that nothing else is said of.
const STOP: Duration = Duration::from_secs(8);
/// How many flows are printed for people; the rest is in the JSON.
const FLOWS_SHOWN_MAX: usize = 40;

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    /// The time in which most flows are active at once, and its means.
    #[serde(flatten)]
    most: &'a Phase,
    phases: &'a [Phase],
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
}

/// Every step.
#[derive(Serialize)]
struct Series {
    at_s: Vec<f64>,
    queue_packets: Vec<f64>,
    flows: Vec<FlowSeries>,
}

#[derive(Serialize)]
struct FlowSeries {
    cwnd: Vec<f64>,
    alpha: Vec<f64>,
    goodput_packets_per_s: Vec<f64>,
}

/// Computes flows.
///
/// # Errors
/// If the scenario cannot be read, or something is out of range.
pub(super) fn run(args: &SimFluidArgs) -> Result<(), Failure> {
    let fluid = fluid(args)?;
    let samples = fluid.run();
    let samples = samples.map_err(|error| Failure::Usage(error.to_string()))?;
    let phases = phases(&fluid, &samples);
    // The first of those with most flows.
    let most = phases.iter().rev().max_by_key(|phase| phase.flows.len());
    let Some(most) = most else {
        let why = "no flow is active for as long as a step".to_owned();
        return Err(Failure::Failed(why));
    };
    if let Some(path) = &args.svg {
        plan::write(path, &svg::draw(&fluid, &samples, &phases))?;
    }
    if args.output.json {
        out::json(&Printed {
            most,
            phases: &phases,
            series: args.series.then(|| series(&fluid, &samples)),
        });
    } else if !args.output.quiet {
        out::result(for_people(&fluid, &phases));
    }
    Ok(())
}

/// What the arguments mean.
fn fluid(args: &SimFluidArgs) -> Result<Fluid, Failure> {
    let read = match &args.scenario {
        None => FluidFile::default(),
        Some(path) => {
            let (file, text) = sim::text(path, "scenario", TEXT_BYTES_MAX)?;
            let read = FluidFile::parse(&text, &file);
            let read = read.map_err(|error| Failure::Failed(error.to_string()))?;
            // What is wrong with the file alone is no fault of the options.
            if let Ok(Err(error)) = merged(None, read.clone()).map(|fluid| fluid.check()) {
                return Err(Failure::Failed(format!("{file}: {error}")));
            }
            read
        }
    };
    merged(Some(args), read)
}

/// What the options say, then the file, then the defaults.
fn merged(args: Option<&SimFluidArgs>, read: FluidFile) -> Result<Fluid, Failure> {
    let default = Fluid::default();
    let capacity = args.and_then(|it| it.capacity).or(read.capacity);
    let packet = args.and_then(|it| it.packet).or(read.packet);
    let capacity = capacity.unwrap_or(Capacity::Packets(default.capacity_packets_per_s));
    let capacity = capacity.packets_per_s(packet);
    let flows = match args.filter(|it| !it.theta.is_empty()) {
        Some(args) => flows(args)?,
        None if read.flows.is_empty() => default.flows,
        None => read.flows,
    };
    let delay = |it: &SimFluidArgs| Some(it.delay?.as_secs_f64());
    let first = |asked: fn(&SimFluidArgs) -> Option<f64>, read: Option<f64>, default| {
        args.and_then(asked).or(read).unwrap_or(default)
    };
    Ok(Fluid {
        capacity_packets_per_s: capacity.map_err(|why| Failure::Usage(format!("packet: {why}")))?,
        delay_s: first(delay, read.delay_s, default.delay_s),
        mark_packets: first(|it| it.ecn, read.mark_packets, default.mark_packets),
        queue_packets_max: first(
            |it| it.queue,
            read.queue_packets_max,
            default.queue_packets_max,
        ),
        g: first(|it| it.g, read.g, default.g),
        initial_window: first(
            |it| it.initial_window,
            read.initial_window,
            default.initial_window,
        ),
        steps_per_rtt: args
            .and_then(|it| it.steps_per_rtt)
            .or(read.steps_per_rtt)
            .unwrap_or(default.steps_per_rtt),
        flows,
    })
}

/// The flows of the command line.
fn flows(args: &SimFluidArgs) -> Result<Vec<FluidFlow>, Failure> {
    let count = args.theta.len();
    let each = |option: &str, times: &[Duration], otherwise: Duration| match times {
        [] => Ok(vec![otherwise; count]),
        [one] => Ok(vec![*one; count]),
        several if several.len() == count => Ok(several.to_vec()),
        several => Err(Failure::Usage(format!(
            "{option} has {} times and --theta {count} weights: expected as many, or one",
            several.len()
        ))),
    };
    let starts = each("--start", &args.start, Duration::ZERO)?;
    let stops = each("--stop", &args.stop, STOP)?;
    let times = starts.into_iter().zip(stops);
    let flows = args.theta.iter().zip(times);
    Ok(flows
        .map(|(theta, (start, stop))| {
            FluidFlow::new(*theta, start.as_secs_f64(), stop.as_secs_f64())
        })
        .collect())
}

/// A number in a few characters.
fn number(value: f64) -> String {
    match (1e-3..1e6).contains(&value) {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

fn series(fluid: &Fluid, samples: &[Sample]) -> Series {
    let flow = |flow: usize| {
        let of = |value: fn(&outpour_sim::fluid::FlowSample) -> f64| {
            samples.iter().map(|it| value(&it.flows[flow])).collect()
        };
        FlowSeries {
            cwnd: of(|it| it.window),
            alpha: of(|it| it.alpha),
            goodput_packets_per_s: of(|it| it.goodput_packets_per_s),
        }
    };
    Series {
        at_s: samples.iter().map(|it| it.at_s).collect(),
        queue_packets: samples.iter().map(|it| it.queue_packets).collect(),
        flows: (0..fluid.flows.len()).map(flow).collect(),
    }
}

fn for_people(fluid: &Fluid, phases: &[Phase]) -> String {
    let time = |seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        if time.is_zero() {
            "0 s".to_owned()
        } else {
            format_duration(time)
        }
    };
    let head = [
        "TIME", "THETA", "GOODPUT", "EXPECTED", "WINDOW", "EXPECTED", "ALPHA", "EXPECTED", "QUEUE",
        "EXPECTED",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for phase in phases {
        let expected = &phase.predicted;
        for (index, flow) in phase.flows.iter().enumerate() {
            let only_first = |text: String| if index == 0 { text } else { String::new() };
            rows.push([
                only_first(format!("{} to {}", time(phase.from_s), time(phase.to_s))),
                number(flow.theta),
                format!("{:.0} pps", flow.goodput_packets_per_s),
                format!("{:.0} pps", expected.goodputs_packets_per_s[index]),
                format!("{:.1}", flow.mean_cwnd),
                format!("{:.1}", expected.cwnds[index]),
                format!("{:.3}", flow.mean_alpha),
                match expected.is_within_theta_sum_max {
                    true => format!("{:.3}", expected.alpha),
                    false => "-".to_owned(),
                },
                only_first(format!("{:.1}", phase.mean_queue_packets)),
                only_first(format!("{:.1}", expected.queue_packets)),
            ]);
        }
    }
    let more = (rows.len() - 1).saturating_sub(FLOWS_SHOWN_MAX);
    rows.truncate(FLOWS_SHOWN_MAX + 1);
    let more = match more {
        0 => String::new(),
        more => format!("\nand {more} more; --json has all"),
    };
    let beyond = phases
        .iter()
        .find(|it| !it.predicted.is_within_theta_sum_max);
    let beyond = beyond.map_or_else(String::new, |phase| {
        format!(
            "\nweights add up to more than {:.3} from {} on: all packets are marked, and nothing is as expected",
            phase.predicted.theta_sum_max,
            time(phase.from_s)
        )
    });
    format!(
        "{}{more}\n\nmeans over the second half of each time, in {}; expected by the closed forms{beyond}",
        table(&rows),
        match fluid.steps_per_rtt {
            1 => format!("steps of a round trip of {}", time(fluid.rtt_s())),
            steps => format!("{steps} steps per round trip of {}", time(fluid.rtt_s())),
        },
    )
}
