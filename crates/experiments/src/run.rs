//! Runs what an experiment wants simulated, several simulations at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use outpour_planner::multicast::{self, PlanError, Planned};
use outpour_protocols::registry;
use outpour_sim::cast::{CastConfig, simulate_over};
use outpour_sim::transport::Transport;
use outpour_terms::Asked;

use crate::machine;
use crate::method::Method;
use crate::report::{Group, Measurement, Panel};
use crate::setting::Setting;
use crate::{ExperimentError, GridOptions};

/// Size of the pieces in which everything is sent [Burger §4.6].
pub(crate) const BLOCK: u32 = 32 << 10;

/// A plot and what it takes to draw it.
pub(crate) struct Plot {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) axis: &'static str,
    pub(crate) logarithmic: bool,
    pub(crate) places: Vec<Place>,
}

/// One group of bars: a situation and the methods tried in it.
pub(crate) struct Place {
    pub(crate) label: String,
    pub(crate) setting: Setting,
    pub(crate) methods: Vec<Method>,
    /// How often everything is repeated with another seed, of which the median counts.
    pub(crate) repeats: u64,
}

/// A simulation to be made: of which plot, place and method.
#[derive(Clone, Copy)]
struct Job {
    plot: usize,
    place: usize,
    method: Method,
}

/// What is possible at a place, bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// The most.
    pub(crate) optimum: Option<f64>,
    /// What the best plan for each stretch without a change adds up to.
    pub(crate) clairvoyant: Option<f64>,
}

/// What a simulation came to.
pub(crate) struct Done {
    pub(crate) measurement: Measurement,
    pub(crate) bounds: Bounds,
}

/// Simulates everything and puts it in order.
///
/// # Errors
/// If no method is left to be tried.
pub(crate) fn all(
    plots: Vec<Plot>,
    options: &GridOptions,
    progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
) -> Result<Vec<Panel>, ExperimentError> {
    let mut jobs = jobs(&plots, &options.only);
    if jobs.is_empty() {
        let only = options.only.join(", ");
        return Err(ExperimentError::Setup(format!(
            "nothing is measured with {only} here"
        )));
    }
    // The largest first, so that no thread is left alone with one of them at the end.
    let weight = |job: &Job| {
        let setting = &plots[job.plot].places[job.place].setting;
        setting.size.0 * u64::from(setting.network.node_count())
    };
    jobs.sort_by_key(|job| std::cmp::Reverse(weight(job)));

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 {
        cores
    } else {
        options.threads
    };
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let plot = &plots[job.plot];
            let place = &plot.places[job.place];
            let done = measure(place, job.method, options.seed);
            let Ok(mut results) = results.lock() else {
                return;
            };
            progress(format_args!(
                "{}/{} {}, {}, {}: {}",
                results.len() + 1,
                jobs.len(),
                plot.name,
                place.label,
                job.method,
                in_words(&done)
            ));
            results.insert((job.plot, job.place, job.method.name), done);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len()) {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap_or_default();
    Ok(in_order(&plots, results))
}

fn jobs(plots: &[Plot], only: &[String]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (plot, content) in plots.iter().enumerate() {
        for (place, content) in content.places.iter().enumerate() {
            let wanted =
                |method: &&Method| only.is_empty() || only.iter().any(|name| name == method.name);
            let methods = content.methods.iter().filter(wanted);
            jobs.extend(methods.map(|method| Job {
                plot,
                place,
                method: *method,
            }));
        }
    }
    jobs
}

fn in_words(done: &Done) -> String {
    let Measurement {
        bytes_per_s,
        of_optimum,
        error,
        wall_s,
        ..
    } = &done.measurement;
    match (bytes_per_s, error) {
        (Some(rate), _) => format!(
            "{:.2} MB/s, {:.2} of the optimum, in {wall_s:.1} s",
            rate / 1e6,
            of_optimum.unwrap_or(f64::NAN)
        ),
        (None, Some(error)) => error.clone(),
        (None, None) => "nothing".to_owned(),
    }
}

fn in_order(
    plots: &[Plot],
    mut results: BTreeMap<(usize, usize, &'static str), Done>,
) -> Vec<Panel> {
    let mut panels = Vec::new();
    for (plot_index, plot) in plots.iter().enumerate() {
        let mut groups = Vec::new();
        for (place_index, place) in plot.places.iter().enumerate() {
            let names = place.methods.iter().map(|method| method.name);
            let done: Vec<Done> = names
                .filter_map(|name| results.remove(&(plot_index, place_index, name)))
                .collect();
            groups.push(Group {
                label: place.label.clone(),
                size_bytes: place.setting.size.0,
                optimum_bytes_per_s: done.iter().find_map(|done| done.bounds.optimum),
                clairvoyant_bytes_per_s: done.iter().find_map(|done| done.bounds.clairvoyant),
                measurements: done.into_iter().map(|done| done.measurement).collect(),
            });
        }
        let planned = groups.iter().flat_map(|group| &group.measurements);
        let planned = planned.filter(|m| m.expected_bytes_per_s.is_some()).count();
        panels.push(Panel {
            name: plot.name.to_owned(),
            title: plot.title.clone(),
            axis: plot.axis.to_owned(),
            logarithmic: plot.logarithmic,
            expected: (planned > 0 && !plot.logarithmic).then(|| "as planned".to_owned()),
            groups,
        });
    }
    panels
}

/// Tries a method; what goes wrong is part of the result.
fn measure(place: &Place, method: Method, seed: u64) -> Done {
    let begun = machine::now();
    let mut tries: Vec<Done> = (0..place.repeats.max(1))
        .map(|round| attempt(&place.setting, method, seed + round, Transport::Ideal))
        .collect();
    let rate = |done: &Done| done.measurement.bytes_per_s.unwrap_or(0.0);
    tries.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let mut done = tries.swap_remove(tries.len() / 2);
    done.measurement.wall_s = begun.elapsed().as_secs_f64();
    done
}

pub(crate) fn attempt(setting: &Setting, method: Method, seed: u64, transport: Transport) -> Done {
    let network = match &setting.asked {
        Some(network) if !method.planned => network,
        _ => &setting.network,
    };
    let clusters = network.clusters().len();
    let planned = match plan(setting, method) {
        Ok(planned) => planned,
        Err(error) => return failed(method, &error),
    };
    let protocol = if planned.is_some() { PUSH } else { method.name };
    let expected = planned
        .as_ref()
        .map(|planned| planned.throughput.bytes_per_s());
    let protocol = match registry::by_name(protocol) {
        Ok(protocol) => protocol,
        Err(error) => return failed(method, &ExperimentError::Setup(error)),
    };
    let config = CastConfig {
        asked: Asked {
            protocol: Some(protocol),
            block_bytes: Some(BLOCK),
            plan: planned.map(|planned| planned.plan),
            seed: Some(seed),
            ..Asked::default()
        },
        script: setting.script.clone(),
        ..CastConfig::new(network.clone(), setting.root, setting.size)
    };
    let report = match simulate_over(transport, config) {
        Ok(report) => report,
        Err(error) => return failed(method, &error),
    };
    let size = setting.size.as_f64();
    let rate = size / report.finish_s;
    // What does not change is held against the throughput the network allows, delays apart; what
    // changes against the least time in which all it carries meanwhile can bring the object.
    let optimum = match setting.script {
        Some(_) => Some(size / report.limit_s),
        None => outpour_planner::limit(network, &[setting.root], setting.size)
            .ok()
            .map(|limit| limit.throughput.bytes_per_s()),
    };
    let bounds = Bounds {
        optimum: optimum.filter(|rate| rate.is_finite()),
        clairvoyant: report.clairvoyant_s.map(|seconds| size / seconds),
    };
    let copies = size * clusters.saturating_sub(1) as f64;
    Done {
        measurement: Measurement {
            method: method.name.to_owned(),
            bytes_per_s: Some(rate),
            of_optimum: bounds.optimum.map(|optimum| rate / optimum),
            of_clairvoyant: bounds.clairvoyant.map(|clairvoyant| rate / clairvoyant),
            expected_bytes_per_s: expected,
            finish_s: Some(report.finish_s),
            crossings: (clusters > 1).then(|| report.wan_bytes as f64 / copies),
            error: None,
            wall_s: 0.0,
        },
        bounds,
    }
}

/// The protocol that pushes along the trees of any plan.
const PUSH: &str = "tree";

/// The plan of a method that makes one, for the network as planners believe it to be.
fn plan(setting: &Setting, method: Method) -> Result<Option<Planned>, PlanError> {
    let Ok(asked) = method.name.parse::<multicast::Method>() else {
        return Ok(None);
    };
    let network = setting.believed.as_ref().unwrap_or(&setting.network);
    multicast::plan(network, &[setting.root], asked).map(Some)
}

fn failed(method: Method, error: &dyn std::error::Error) -> Done {
    Done {
        measurement: Measurement::failed(method.name, error.to_string()),
        bounds: Bounds::default(),
    }
}
