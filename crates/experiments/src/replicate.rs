//! The experiments of `outpour-lab bench replicate`: replication between sites, simulated.
//!
//! Each repeats one of [BDS §2 and §6] with the controller that agents obey and the baselines of the
//! simulator. What is random is repeated with several seeds. An experiment leaves a JSON file and its
//! plots; the page that holds them against the paper is written from these files.

mod cases;
mod daily;
mod day;
mod drawn;
mod loops;
pub mod page;
mod shared;
pub mod workload;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use outpour_sim::replicate::{ReplicateConfig, ReplicateReport, System, replicate};

use crate::sweep::{self, Form, PlotOf, distribution, quantile, sorted};
use crate::{ExperimentError, machine};

pub use crate::sweep::{Figure, Row, SweepReport};

/// With how many seeds what is random is repeated.
const SEEDS: u64 = 20;
/// The same in experiments that only have to work.
const SEEDS_SHORT: u64 = 2;

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct BenchReplicateOptions {
    /// The first seed of what is random.
    pub seed: u64,
    /// Whether to make everything small, to see that it works.
    pub short: bool,
    /// How many simulations run at a time; 0 for one per core. Times of decisions are true only if
    /// it is 1.
    pub threads: usize,
    /// The program whose agents are tried.
    pub program: PathBuf,
}

/// An experiment by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What is set up.
    pub setup: &'static str,
    /// Where the paper has it, and what it finds there, in our words.
    pub paper: (&'static str, &'static str),
    /// Why ours is another, where it is.
    pub why: &'static str,
    /// The figures that the table shows, and what the axis is.
    columns: &'static [&'static str],
    axis: &'static str,
    plots: &'static [PlotOf],
    /// Whether times of decisions are measured, so that nothing may run beside it.
    timed: bool,
    rows: Rows,
}

/// Where the rows of an experiment come from.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// Each case is simulated; the argument says whether all is small.
    Simulated(fn(bool) -> Result<Vec<Case>, ExperimentError>),
    /// The same, and what follows from all rows together.
    Summed(
        fn(bool) -> Result<Vec<Case>, ExperimentError>,
        fn(&mut Vec<Row>),
    ),
    /// Rows are computed from what is drawn or put together.
    Drawn(fn(&BenchReplicateOptions) -> Result<Vec<Row>, ExperimentError>),
    /// Rows are measured with real agents in the emulator.
    Emulated(fn(&BenchReplicateOptions, &Progress<'_>) -> Result<Vec<Row>, ExperimentError>),
}

/// Says how far it is.
type Progress<'a> = dyn Fn(fmt::Arguments<'_>) + Sync + 'a;

/// One situation under one system.
pub(crate) struct Case {
    /// What it is compared as.
    pub(crate) series: String,
    /// Where it stands on the axis.
    pub(crate) at: Option<f64>,
    pub(crate) config: ReplicateConfig,
}

pub use cases::ENTRIES;

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// Runs the experiment; `progress` is told each row as it is measured.
    ///
    /// # Errors
    /// If it cannot be set up. A system that fails in one situation is a row that says so.
    pub fn run(
        &self,
        options: &BenchReplicateOptions,
        progress: &Progress<'_>,
    ) -> Result<SweepReport, ExperimentError> {
        let begun = machine::now();
        let rows = match self.rows {
            Rows::Simulated(cases) => self.simulate(cases(options.short)?, options, progress),
            Rows::Summed(cases, sum) => {
                let mut rows = self.simulate(cases(options.short)?, options, progress);
                sum(&mut rows);
                rows
            }
            Rows::Drawn(rows) => rows(options)?,
            Rows::Emulated(rows) => rows(options, progress)?,
        };
        Ok(SweepReport {
            name: self.name.to_owned(),
            title: self.about.to_owned(),
            short: options.short,
            seed: options.seed,
            options: String::new(),
            date: machine::date(),
            machine: machine::describe(),
            wall_s: begun.elapsed().as_secs_f64(),
            rows,
        })
    }

    fn simulate(
        &self,
        cases: Vec<Case>,
        options: &BenchReplicateOptions,
        progress: &Progress<'_>,
    ) -> Vec<Row> {
        let rows: Mutex<Vec<Option<Row>>> = Mutex::new(vec![None; cases.len()]);
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(place) else { break };
                let row = measure(case, options);
                progress(format_args!("{}: {}", self.name, row.in_words()));
                if let Ok(mut rows) = rows.lock() {
                    rows[place] = Some(row);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads(options) {
                scope.spawn(work);
            }
        });
        let rows = rows.into_inner().unwrap_or_default();
        rows.into_iter().flatten().collect()
    }

    const fn form(&self) -> Form {
        Form {
            bench: "replicate",
            name: self.name,
            about: self.about,
            setup: self.setup,
            paper: self.paper,
            why: self.why,
            series: match self.rows {
                Rows::Simulated(_) | Rows::Summed(..) | Rows::Emulated(_) => "system",
                Rows::Drawn(_) => "what",
            },
            columns: self.columns,
            axis: self.axis,
            plots: self.plots,
        }
    }

    fn threads(&self, options: &BenchReplicateOptions) -> usize {
        match (self.timed, options.threads) {
            (true, _) => 1,
            (false, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (false, threads) => threads,
        }
    }
}

/// Whether the seed makes a difference.
const fn is_random(system: System) -> bool {
    matches!(system, System::Gingko | System::Bullet | System::Robber)
}

fn measure(case: &Case, options: &BenchReplicateOptions) -> Row {
    let seeds = match (is_random(case.config.system), options.short) {
        (false, _) => 1,
        (true, true) => SEEDS_SHORT,
        (true, false) => SEEDS,
    };
    let mut row = Row::new(&case.series, case.at);
    let mut reports: Vec<ReplicateReport> = Vec::new();
    for seed in options.seed..options.seed + seeds {
        let config = ReplicateConfig {
            seed,
            ..case.config.clone()
        };
        let begun = machine::now();
        match replicate(config, &mut || begun.elapsed()) {
            Ok(report) => reports.push(report),
            Err(error) => {
                row.error = Some(error.to_string());
                return row;
            }
        }
    }
    let mut figure = |name: &str, of: &dyn Fn(&ReplicateReport) -> f64| {
        row.figures
            .insert(name.to_owned(), Figure::of(reports.iter().map(of)));
    };
    figure("finish_s", &|it| it.finish_s);
    figure("limit_s", &|it| it.limit_s);
    figure("ratio", &|it| it.ratio);
    let finishes = |it: &ReplicateReport| sorted(it.servers.iter().map(|server| server.finish_s));
    figure("server_median_s", &|it| quantile(&finishes(it), 0.5));
    figure("server_mean_s", &|it| {
        let all = finishes(it);
        all.iter().sum::<f64>() / all.len().max(1) as f64
    });
    figure("server_deviation_s", &|it| {
        let all = finishes(it);
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        let squares = all.iter().map(|at| (at - mean).powi(2)).sum::<f64>();
        (squares / all.len().max(1) as f64).sqrt()
    });
    let origins = |it: &ReplicateReport| sorted(it.servers.iter().map(|server| server.origin));
    figure("origin_median", &|it| quantile(&origins(it), 0.5));
    figure("origin_p90", &|it| quantile(&origins(it), 0.9));
    if case.config.system == System::Central {
        figure("decision_median_s", &|it| it.decision_s.median);
        figure("decision_max_s", &|it| it.decision_s.max);
        figure("decision_median_ms", &|it| it.decision_s.median * 1e3);
        figure("decision_max_ms", &|it| it.decision_s.max * 1e3);
    }
    // Distributions of the first seed: those of others look alike.
    if let Some(first) = reports.first() {
        day::measure(&mut row, &case.config, first);
        for (name, of) in [("servers", finishes(first)), ("origins", origins(first))] {
            row.curves.insert(name.to_owned(), distribution(&of));
        }
    }
    row
}

/// The table of a report, for a terminal.
pub fn for_people(report: &SweepReport) -> String {
    find(&report.name).map_or_else(String::new, |entry| report.for_people(&entry.form()))
}

/// Writes a report and its plots into a directory, which is made if it is missing.
///
/// # Errors
/// If they cannot be written.
pub fn save(report: &SweepReport, output: &Path) -> Result<(), ExperimentError> {
    match find(&report.name) {
        Some(entry) => sweep::save(report, &entry.form(), output),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_list() {
        let all = sorted([3.0, 1.0, 2.0].into_iter());
        assert_eq!(
            [0.0, 0.5, 1.0].map(|share| quantile(&all, share)),
            [1.0, 2.0, 3.0]
        );
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn every_experiment_is_set_up_in_both_forms() {
        for entry in ENTRIES {
            for short in [true, false] {
                let cases = match entry.rows {
                    Rows::Simulated(cases) | Rows::Summed(cases, _) => cases,
                    Rows::Drawn(_) | Rows::Emulated(_) => continue,
                };
                let cases = cases(short);
                assert!(cases.is_ok_and(|cases| !cases.is_empty()), "{}", entry.name);
            }
        }
    }
}
