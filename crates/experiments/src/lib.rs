//! The experiments of `outpour-lab bench`, measured: multicasting between clusters here, coded gossip
//! in [`gossip`], replication between sites in [`replicate`], shuffles in [`shuffle`], parallel push in [`push`],
//! what harms casts in [`trust`].
//!
//! Each experiment of `outpour-lab bench grid` repeats one of [Burger §3.2.3 and §4.6] with this
//! project's own protocols and planner: in the simulator at the scale of the thesis, or with real
//! agents in the emulator. It leaves a JSON file with what was measured and a plot of it; the page
//! that compares the findings with the thesis is written from these files. Nothing here knows a result in advance but
//! [`thesis`], which quotes.

mod catalogue;
pub mod chart;
mod claims;
mod dice;
mod draw;
mod emulated;
pub mod gossip;
mod lab;
mod machine;
mod method;
pub mod page;
pub mod push;
pub mod replicate;
pub mod report;
mod run;
mod setting;
pub mod shuffle;
mod suitability;
mod sweep;
pub mod thesis;
pub mod trust;

use std::fmt;
use std::path::{Path, PathBuf};

use outpour_core::network::NetworkError;
use outpour_core::script::ScriptError;

pub use catalogue::ENTRIES;
pub use method::names as methods;
pub use report::GridReport;

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct GridOptions {
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// Whether to make everything small, to see that it works.
    pub short: bool,
    /// Only these methods; all if empty.
    pub only: Vec<String>,
    /// Another table for `gridlab`.
    pub data: Option<PathBuf>,
    /// How many simulations run at a time; 0 for one per core.
    pub threads: usize,
    /// The program that `emulated` starts.
    pub program: PathBuf,
}

/// An experiment by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What is set up, as far as the thesis leaves it open or this differs from it.
    pub setup: &'static str,
    run: Runner,
}

#[derive(Clone, Copy, Debug)]
enum Runner {
    /// What is to be simulated.
    Simulated(fn(&GridOptions) -> Result<Vec<run::Plot>, ExperimentError>),
    /// Real agents in the emulator.
    Emulated(emulated::Which),
}

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// Runs the experiment; `progress` is told each measurement as it is made.
    ///
    /// # Errors
    /// If nothing could be measured. A method that fails in one situation is a measurement that
    /// says so.
    pub fn run(
        &self,
        options: &GridOptions,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Result<GridReport, ExperimentError> {
        let begun = machine::now();
        let panels = match self.run {
            Runner::Simulated(plots) => run::all(plots(options)?, options, progress)?,
            Runner::Emulated(which) => emulated::run(which, options, progress)?,
        };
        Ok(GridReport {
            name: self.name.to_owned(),
            title: self.about.to_owned(),
            short: options.short,
            seed: options.seed,
            date: machine::date(),
            machine: machine::describe(),
            wall_s: begun.elapsed().as_secs_f64(),
            panels,
        })
    }
}

/// Writes a report and its plots into a directory, which is made if it is missing.
///
/// # Errors
/// If they cannot be written.
pub fn save(report: &GridReport, output: &Path) -> Result<(), ExperimentError> {
    std::fs::create_dir_all(output).map_err(|e| ExperimentError::file(output, &e))?;
    let mut text =
        serde_json::to_string_pretty(report).map_err(|e| ExperimentError::file(output, &e))?;
    text.push('\n');
    let write = |name: String, text: &str| {
        let path = output.join(name);
        std::fs::write(&path, text).map_err(|e| ExperimentError::file(&path, &e))
    };
    write(format!("{}.json", report.name), &text)?;
    for panel in &report.panels {
        write(format!("{}.svg", panel.name), &chart::draw(panel))?;
    }
    Ok(())
}

/// Why an experiment did not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A network that was built for it is none.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A script that was built for it is none.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// What it needs is not there.
    #[error("{0}")]
    Setup(String),
    /// An emulation on a machine that was too slow for it.
    #[error("{0}")]
    Void(String),
    /// A file that cannot be read or written.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl ExperimentError {
    fn file(path: &Path, why: &dyn fmt::Display) -> Self {
        Self::File {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}
