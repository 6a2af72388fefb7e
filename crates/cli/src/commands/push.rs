//! `outpour sim push`: tasks that fetch objects from several sources, packet by packet.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use outpour_core::network::{self, Link, Network};
use outpour_core::topology::{Metric, Topology};
use outpour_sim::packets::tasks::{
    Instance, Links, PACKET_BYTES, Scheme, Setting, Shape, Sizes, Sources, Workload, sizes, svg,
};
use outpour_sim::parallel::in_parallel;
use outpour_sim::shuffle::confidence;
use serde::Serialize;

use super::{plan, sim};
use crate::args::push::{Scale, SimPushArgs, SizesArg, SourcesArg, TopologyArg};
use crate::out::{self, Failure};
use crate::report::{seconds, table};

/// How often the display changes.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// Hosts of a shape have links of so many packets per second if nothing else is said [PPUSH §V-B].
const LINK_RATE: f64 = 2e5;
/// A link between leaf and spine carries so many times as much as one of a host [PPUSH §V-B].
const FABRIC: f64 = 4.0;
/// A table of links is not larger, in bytes.
const CSV_BYTES_MAX: usize = 16 << 20;

/// What one scheme reached, as JSON.
#[derive(Serialize)]
struct Simulated {
    scheme: &'static str,
    /// Mean over all instances.
    average_tct_s: f64,
    /// How far the mean of so many instances may be from that of all, with a probability of 95 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_ci95_s: Option<f64>,
    normalized_average_tct: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    normalized_ci95: Option<f64>,
    /// The time of the first scheme over that of this one: mean over all instances, each with its own tasks. None
    /// if one of the tasks was never complete, under either.
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor_ci95: Option<f64>,
    /// Mean over all instances, as the next two.
    timeouts: f64,
    drops: f64,
    trimmed: f64,
    unfinished: usize,
    packet_hops: u64,
    /// In a second of one processor.
    packet_hops_per_s: f64,
    instances: Vec<Instance>,
}

#[derive(Serialize)]
struct Compared {
    schemes: Vec<Simulated>,
}

/// An instance, and how long a processor was busy with it, seconds.
type Timed = (Instance, f64);

/// Plays tasks.
///
/// # Errors
/// If a file cannot be read or makes no sense, or something is out of range.
pub(super) fn run(args: &SimPushArgs) -> Result<(), Failure> {
    let (topology, metric, shape) = topology(args)?;
    let workload = workload(args, shape)?;
    let setting = |scheme| Setting {
        metric,
        fanout: args.fanout,
        queue_packets: args.queue,
        mark_packets: args.mark,
        rto_min: args.rto_min,
        rto_initial: args.rto_initial,
        rto_max: args.rto_max,
        has_slow_start: args.slow_start,
        initial_window: args.initial_window,
        control_delay: args.control_delay,
        block_symbols: args.block,
        ..Setting::new(topology.clone(), scheme)
    };
    if args.load >= 1.0 && !args.output.quiet {
        let arrives = match args.load > 1.0 {
            true => "more arrives than is carried",
            false => "as much arrives as is carried",
        };
        out::complain(format!(
            "the load is {}: {arrives}, so times grow with the number of tasks",
            args.load
        ));
    }
    let settings: Vec<Setting> = args.scheme.iter().map(|it| setting(*it)).collect();
    let results = all(args, &settings, &workload)?;
    if let Some(path) = &args.svg {
        let normalized = |it: &Instance| it.normalized_average_tct;
        let rows: Vec<svg::Row<'_>> = results
            .iter()
            .map(|it| (it.scheme, it.instances.iter().map(normalized).collect()))
            .collect();
        plan::write(path, &svg::draw(&rows))?;
    }
    if args.output.json {
        out_json(results);
    } else if !args.output.quiet {
        out::result(for_people(args, &results));
    }
    Ok(())
}

fn out_json(mut results: Vec<Simulated>) {
    match results.len() {
        1 => out::json(&results.remove(0)),
        _ => out::json(&Compared { schemes: results }),
    }
}

/// Hosts and switches, which ways are short, and the shape if it has one.
fn topology(args: &SimPushArgs) -> Result<(Topology, Metric, Option<Shape>), Failure> {
    let failed = |error: &dyn std::error::Error| Failure::Failed(error.to_string());
    let packets_per_s = args.link_rate.unwrap_or(LINK_RATE);
    let fabric = match args.topology {
        TopologyArg::Shape(Shape::LeafSpine { .. }) => packets_per_s * FABRIC,
        _ => packets_per_s,
    };
    let links = Links {
        packets_per_s,
        fabric_packets_per_s: args.fabric_rate.unwrap_or(fabric),
        delay: args.delay,
        packet_bytes: PACKET_BYTES,
    };
    match &args.topology {
        TopologyArg::Shape(shape) => {
            let topology = shape.topology(&links).map_err(|error| failed(&error))?;
            Ok((topology, Metric::Hops, Some(*shape)))
        }
        TopologyArg::Csv(path) => {
            let (file, text) = sim::text(path, "table of links", CSV_BYTES_MAX)?;
            let trunk = links.link(packets_per_s).map_err(|error| failed(&error))?;
            let topology = Topology::from_csv(&text, &file, Link::OPEN, trunk);
            Ok((
                topology.map_err(|error| failed(&error))?,
                Metric::Delay,
                None,
            ))
        }
        TopologyArg::Toml(path) => {
            if args.link_rate.is_some() {
                let fault = "--link-rate: a network says the rates of its links itself";
                return Err(Failure::Usage(fault.to_owned()));
            }
            let (file, text) = sim::text(path, "network", network::TEXT_BYTES_MAX)?;
            let network = Network::from_toml(&text, &file).map_err(|error| failed(&error))?;
            let topology = Topology::from_network(&network);
            let topology = topology.map_err(|error| Failure::Failed(format!("{file}: {error}")))?;
            Ok((topology, Metric::Delay, None))
        }
    }
}

fn workload(args: &SimPushArgs, shape: Option<Shape>) -> Result<Workload, Failure> {
    let pods = match shape {
        Some(shape @ Shape::FatTree { .. }) => Some(Sources::OnePer(shape.group())),
        _ => None,
    };
    let sources = match args.sources {
        None => pods.unwrap_or(Sources::Pool(10)),
        Some(SourcesArg::Known(sources)) => sources,
        Some(SourcesArg::PerPod) => pods.ok_or_else(|| {
            Failure::Usage("--sources per-pod: only a fat tree has pods".to_owned())
        })?,
    };
    let sizes = match &args.sizes {
        SizesArg::Fixed(sizes) => sizes.clone(),
        SizesArg::Table(path) => {
            let (file, text) = sim::text(path, "table of sizes", sizes::TEXT_BYTES_MAX)?;
            let parsed = Sizes::parse(&text, &file);
            let parsed = parsed.map_err(|error| Failure::Failed(error.to_string()))?;
            match args.scale {
                Scale::None => parsed,
                Scale::To(low, high) => parsed.scaled((low, high)),
            }
        }
    };
    Ok(Workload {
        sources,
        load: args.load,
        sizes: sizes.times(args.size_factor),
        tasks: args.tasks,
    })
}

/// Tells people how far it is.
struct Display {
    begun: Instant,
    shown: Mutex<Instant>,
    done: AtomicUsize,
    all: usize,
    is_on: bool,
}

impl Display {
    fn one_more(&self) {
        let done = 1 + self.done.fetch_add(1, Ordering::Relaxed);
        if !self.is_on {
            return;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = done >= self.all;
        if !is_last && shown.elapsed() < SHOW_EVERY {
            return;
        }
        *shown = Instant::now();
        let passed = self.begun.elapsed().as_secs_f64();
        let left = passed / done as f64 * self.all.saturating_sub(done) as f64;
        let line = format!(
            "\r{done} of {} instances are done, {} left   ",
            self.all,
            seconds(left)
        );
        // If nobody can read it, nobody misses it.
        let _ = std::io::stderr().write_all(if is_last {
            b"\r\x1b[K"
        } else {
            line.as_bytes()
        });
    }
}

fn all(
    args: &SimPushArgs,
    settings: &[Setting],
    workload: &Workload,
) -> Result<Vec<Simulated>, Failure> {
    let instances = u64::from(args.instances);
    // All schemes of an instance one after the other, so that the estimate is of all.
    let jobs = (0..instances).flat_map(|it| settings.iter().map(move |setting| (setting, it)));
    let jobs: Vec<(&Setting, u64)> = jobs.collect();
    let display = Display {
        begun: Instant::now(),
        shown: Mutex::new(Instant::now()),
        done: AtomicUsize::new(0),
        all: jobs.len(),
        is_on: !args.output.quiet && !args.output.json && std::io::stderr().is_terminal(),
    };
    let timed = in_parallel(&jobs, args.threads, |(setting, instance)| {
        let begun = busy_s();
        let played = setting.instance(workload, args.seed.wrapping_add(*instance));
        display.one_more();
        played.map(|it| (it, busy_s() - begun))
    });
    let timed: Result<Vec<Timed>, _> = timed.into_iter().collect();
    let timed = timed.map_err(|error| Failure::Failed(error.to_string()))?;
    let mut of_schemes: Vec<Vec<Timed>> = settings.iter().map(|_| Vec::new()).collect();
    for (index, timed) in timed.into_iter().enumerate() {
        of_schemes[index % settings.len()].push(timed);
    }
    let schemes = settings.iter().map(|it| it.scheme).zip(of_schemes);
    let mut simulated: Vec<_> = schemes
        .map(|(scheme, timed)| simulated(scheme, timed))
        .collect();
    let base: Vec<(f64, bool)> = simulated
        .first()
        .map_or_else(Vec::new, |it| it.instances.iter().map(average).collect());
    for it in &mut simulated {
        it.compare(&base);
    }
    Ok(simulated)
}

/// How long tasks took on average, and whether all were completed.
fn average(instance: &Instance) -> (f64, bool) {
    (instance.average_tct_s, instance.failures.is_empty())
}

impl Simulated {
    /// Its factor over the first scheme: of every instance, as both play the same tasks.
    fn compare(&mut self, base: &[(f64, bool)]) {
        let pairs = self.instances.iter().map(average).zip(base);
        let factors: Option<Vec<f64>> = pairs
            .map(|((own_s, is_whole), (base_s, is_base_whole))| {
                (is_whole && *is_base_whole).then(|| base_s / own_s)
            })
            .collect();
        let Some(factors) = factors.filter(|it| !it.is_empty()) else {
            return;
        };
        self.factor = Some(mean(&factors));
        self.factor_ci95 = confidence(&factors);
    }
}

/// How long a processor has been busy with this thread, seconds.
fn busy_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn simulated(scheme: Scheme, timed: Vec<Timed>) -> Simulated {
    let busy_s: f64 = timed.iter().map(|(_, busy_s)| busy_s).sum();
    let instances: Vec<Instance> = timed.into_iter().map(|(instance, _)| instance).collect();
    let of = |value: fn(&Instance) -> f64| instances.iter().map(value).collect::<Vec<f64>>();
    let averages = of(|it| it.average_tct_s);
    let normalized = of(|it| it.normalized_average_tct);
    let packet_hops = instances.iter().map(|it| it.packet_hops).sum();
    Simulated {
        scheme: scheme.name(),
        average_tct_s: mean(&averages),
        average_ci95_s: confidence(&averages),
        normalized_average_tct: mean(&normalized),
        normalized_ci95: confidence(&normalized),
        factor: None,
        factor_ci95: None,
        timeouts: mean(&of(|it| it.timeouts as f64)),
        drops: mean(&of(|it| it.drops as f64)),
        trimmed: mean(&of(|it| it.trimmed as f64)),
        unfinished: instances.iter().map(|it| it.failures.len()).sum(),
        packet_hops,
        packet_hops_per_s: packet_hops as f64 / busy_s,
        instances,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn for_people(args: &SimPushArgs, results: &[Simulated]) -> String {
    let head = [
        "SCHEME",
        "AVERAGE",
        "+-",
        "NORMALIZED",
        "FACTOR",
        "+-",
        "TIMEOUTS",
        "DROPS",
        "TRIMMED",
        "UNFINISHED",
        "HOPS/S",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let or_dash = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
    for result in results {
        rows.push([
            result.scheme.to_owned(),
            seconds(result.average_tct_s),
            result
                .average_ci95_s
                .map_or_else(|| "-".to_owned(), seconds),
            format!("{:.3}", result.normalized_average_tct),
            or_dash(result.factor),
            or_dash(result.factor_ci95),
            format!("{:.1}", result.timeouts),
            format!("{:.0}", result.drops),
            format!("{:.0}", result.trimmed),
            result.unfinished.to_string(),
            format!("{:.2} M", result.packet_hops_per_s / 1e6),
        ]);
    }
    let mut text = table(&rows);
    for result in results {
        for instance in &result.instances {
            if let Some(failure) = instance.failures.first() {
                text.push_str(&format!(
                    "\n{}, seed {}, task {}: {}",
                    result.scheme,
                    instance.seed,
                    failure.task + 1,
                    failure.why
                ));
            }
        }
    }
    if results.iter().any(|it| it.unfinished > 0) {
        text.push_str(
            "\nTasks that were not completed are in no mean, and such schemes have no factor.",
        );
    }
    format!(
        "{text}\n\n{} tasks, {}; factors are over {}, instance by instance",
        args.tasks,
        if args.instances == 1 {
            "1 instance".to_owned()
        } else {
            format!("{} instances", args.instances)
        },
        results.first().map_or("", |it| it.scheme)
    )
}
