//! The experiments of `outpour-lab bench push`: parallel push from many sources, simulated packet by packet.
//!
//! Each repeats one of [PPUSH §IV-B and §V] with the senders, receivers and congestion control that real
//! hosts run, and with the protocols that they are compared with. An experiment consists of independent
//! [`Job`]s, each with a name and a file for what it found: so it can be stopped and taken up
//! again, and spread over machines. What is drawn is the same for every scheme.

mod bottleneck;
mod equations;
mod jobs;
mod loss;
pub mod page;
mod tasks;
mod wan;
mod weights;

use std::fmt;
use std::path::{Path, PathBuf};

use outpour_sim::parallel::in_parallel;

use crate::sweep::{self, Form, PlotOf, Row, SweepReport};
use crate::{ExperimentError, machine};

pub use jobs::Job;
use jobs::{Part, Store};

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct BenchPushOptions {
    /// The first seed of what is random.
    pub seed: u64,
    /// Whether to make everything small, to see that it works.
    pub short: bool,
    /// How many jobs run at a time; 0 for one per core.
    pub threads: usize,
    /// Where jobs leave what they find.
    pub jobs: PathBuf,
    /// How many tasks an instance has.
    pub tasks: u32,
    /// How many instances there are; as many as in the paper if not said.
    pub instances: Option<u64>,
    /// What sizes of objects are multiplied by.
    pub size_factor: f64,
    /// The distribution of sizes.
    pub sizes: PathBuf,
    /// The links of the backbone.
    pub links: PathBuf,
}

/// Tasks of an instance in the paper.
pub const PAPER_TASKS: u32 = 200;
/// Instances in the paper: of everything within a data center, and of what is moved between them.
pub const PAPER_INSTANCES: u64 = 20;
/// See [`PAPER_INSTANCES`].
pub const PAPER_WAN_INSTANCES: u64 = 50;

impl BenchPushOptions {
    /// A seed for each instance, of which the paper has so many.
    fn instances(&self, paper: u64) -> impl Iterator<Item = u64> + use<> {
        self.seeds(self.instances.unwrap_or(paper))
    }

    /// So many seeds, or a few if all is to be small.
    fn seeds(&self, usual: u64) -> impl Iterator<Item = u64> + use<> {
        let count = if self.short { usual.min(2) } else { usual };
        let first = self.seed;
        (0..count).map(move |it| first.wrapping_add(it))
    }
}

/// An experiment by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    setup: &'static str,
    paper: (&'static str, &'static str),
    why: &'static str,
    series: &'static str,
    columns: &'static [&'static str],
    axis: &'static str,
    plots: &'static [PlotOf],
    input: Input,
    jobs: fn(&BenchPushOptions) -> Result<Vec<Job>, ExperimentError>,
    /// What follows from all rows together.
    finish: fn(&mut [Row], &[Part]),
}

/// What the jobs of an experiment follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Nothing but itself.
    Nothing,
    /// Tasks with sizes from a table.
    Tasks,
    /// The same over links from a table.
    Links,
}

/// Rows that need nothing from each other.
fn as_they_are(_: &mut [Row], _: &[Part]) {}

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// The jobs of those experiments, in their order.
///
/// # Errors
/// If one cannot be set up.
pub fn jobs<'a>(
    names: impl Iterator<Item = &'a str>,
    options: &BenchPushOptions,
) -> Result<Vec<Job>, ExperimentError> {
    let mut all = Vec::new();
    for entry in names.filter_map(find) {
        all.extend((entry.jobs)(options)?);
    }
    Ok(all)
}

/// Runs the job of that name, unless it was run before with the same settings.
///
/// # Errors
/// If there is no such job, it fails, or its file cannot be written.
pub fn run_job(
    name: &str,
    options: &BenchPushOptions,
    progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
) -> Result<(), ExperimentError> {
    let experiment = name.split('.').next().unwrap_or_default();
    let jobs = match find(experiment) {
        Some(entry) => (entry.jobs)(options)?,
        None => Vec::new(),
    };
    let Some(job) = jobs.iter().find(|job| job.name() == name) else {
        let name = outpour_core::text::excerpt(name);
        let why = format!("there is no job `{name}`; `outpour-lab bench push jobs` lists them");
        return Err(ExperimentError::Setup(why));
    };
    let store = Store::new(options)?;
    if store.read(job, progress).is_some() {
        progress(format_args!(
            "{name}: was done before with the same settings"
        ));
        return Ok(());
    }
    let found = store.run(job, progress)?;
    match found.error {
        Some(error) => Err(ExperimentError::Setup(format!("{name}: {error}"))),
        None => Ok(()),
    }
}

impl Entry {
    /// Runs the jobs of the experiment that were not run before; `progress` is told of each.
    ///
    /// # Errors
    /// If it cannot be set up, or what jobs leave cannot be written.
    pub fn run(
        &self,
        options: &BenchPushOptions,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Result<Found, ExperimentError> {
        let jobs = (self.jobs)(options)?;
        let store = Store::new(options)?;
        let mut all: Vec<_> = jobs.iter().map(|job| store.read(job, progress)).collect();
        let left: Vec<usize> = (0..jobs.len()).filter(|at| all[*at].is_none()).collect();
        if left.len() < jobs.len() {
            progress(format_args!(
                "{}: {} of {} jobs were done before with the same settings",
                self.name,
                jobs.len() - left.len(),
                jobs.len()
            ));
        }
        let done = in_parallel(&left, options.threads, |at| store.run(&jobs[*at], progress));
        for (at, found) in left.iter().zip(done) {
            all[*at] = Some(found?);
        }
        let all: Vec<_> = all.into_iter().flatten().collect();
        let parts: Vec<Part> = all.iter().flat_map(|it| it.parts.clone()).collect();
        let mut rows = jobs::rows(&parts);
        let failed = jobs.iter().zip(&all);
        rows.extend(failed.filter_map(|(job, it)| {
            let error = it.error.clone()?;
            Some(Row::failed(job.name(), None, error))
        }));
        (self.finish)(&mut rows, &parts);
        self.keep_what_is_shown(&mut rows);
        Ok(Found(SweepReport {
            name: self.name.to_owned(),
            title: self.about.to_owned(),
            short: options.short,
            seed: options.seed,
            options: self.options(options),
            date: machine::date(),
            machine: machine::describe(),
            wall_s: all.iter().map(|it| it.wall_s).sum(),
            rows,
        }))
    }

    /// Leaves of curves what a plot can show: the files are kept, and jobs still have the rest.
    fn keep_what_is_shown(&self, rows: &mut [Row]) {
        for row in rows {
            let is_shown = |name: &String| self.plots.iter().any(|plot| plot.shows(name));
            row.curves.retain(|name, _| is_shown(name));
            for points in row.curves.values_mut() {
                *points = sweep::thinned(points);
            }
        }
    }

    /// Options of the command that make a difference here.
    fn options(&self, options: &BenchPushOptions) -> String {
        match self.input {
            Input::Nothing => String::new(),
            Input::Tasks => tasks::in_words(options, PAPER_INSTANCES) + " --sizes FILE",
            Input::Links => {
                tasks::in_words(options, PAPER_WAN_INSTANCES) + " --sizes FILE --links FILE"
            }
        }
    }

    const fn form(&self) -> Form {
        Form {
            bench: "push",
            name: self.name,
            about: self.about,
            setup: self.setup,
            paper: self.paper,
            why: self.why,
            series: self.series,
            columns: self.columns,
            axis: self.axis,
            plots: self.plots,
        }
    }
}

/// What an experiment found.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct Found(SweepReport);

impl Found {
    /// The name of the experiment.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether every job came to an end.
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// The table, for a terminal.
    pub fn for_people(&self) -> String {
        let form = find(self.name()).map(Entry::form);
        form.map_or_else(String::new, |form| self.0.for_people(&form))
    }

    /// Writes it and its plots into a directory, which is made if it is missing.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        match find(self.name()) {
            Some(entry) => sweep::save(&self.0, &entry.form(), output),
            None => Ok(()),
        }
    }
}

/// Every experiment, in the order of the paper.
pub const ENTRIES: &[Entry] = &[
    weights::FIGURE2,
    weights::FIGURE3,
    weights::TWO_FLOWS,
    equations::EQUATIONS,
    equations::BOUND,
    equations::DCTCP,
    loss::FIGURE4A,
    loss::FIGURE4B,
    bottleneck::FIGURE5,
    wan::FIGURE6,
    bottleneck::FIGURE7,
    bottleneck::INCAST,
    tasks::FIGURE8_OBS,
    tasks::FIGURE8_LEAF_SPINE,
    tasks::FIGURE8_FAT_TREE,
    tasks::FIGURE10,
    tasks::FIGURE11A,
    tasks::FIGURE11B,
    tasks::FIGURE11C,
    tasks::FIGURE11D,
    tasks::FIGURE12,
    tasks::FIGURE13,
    wan::FIGURE14A,
    wan::FIGURE14B,
];
