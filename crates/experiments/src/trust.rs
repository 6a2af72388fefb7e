//! The experiments of `outpour-lab bench trust`: what strangers, rogues, bad disks and long days cost the
//! others.
//!
//! Real agents in the emulator, with and without what disturbs them, in turn and in one run: what counts
//! is the ratio, and it stands beside the bound that [docs/testing.md] promises. Each experiment leaves a
//! JSON file and, where something was seen over time, a plot.

mod crowd;
mod disk;
mod flood;
mod members;
mod report;
mod rogue;
mod services;
mod site;
mod slope;
mod soak;
mod usage;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{ExperimentError, draw, machine};

pub use report::{Row, TrustReport};

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct BenchTrustOptions {
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// Whether to make everything small, to see that it works.
    pub short: bool,
    /// How often each cast is made; medians count.
    pub rounds: u64,
    /// Only these protocols or attacks; all if empty.
    pub only: Vec<String>,
    /// How long a soak takes.
    pub soak: Duration,
    /// The program that is tried.
    pub program: PathBuf,
}

impl BenchTrustOptions {
    /// How often each cast is made.
    fn rounds(&self) -> u64 {
        if self.short { 1 } else { self.rounds }
    }

    /// Which of these are tried; all if none of them was asked for.
    fn chosen<'a>(&self, all: &[&'a str]) -> Vec<&'a str> {
        let asked = |name: &&&str| self.only.iter().any(|only| only == **name);
        let chosen: Vec<&str> = all.iter().filter(asked).copied().collect();
        if chosen.is_empty() {
            return all.to_vec();
        }
        chosen
    }
}

/// An experiment by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    run: fn(&Context<'_>) -> Result<Found, ExperimentError>,
}

/// What an experiment needs to run.
struct Context<'a> {
    options: &'a BenchTrustOptions,
    progress: &'a (dyn Fn(fmt::Arguments<'_>) + Sync),
}

/// What an experiment found.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    notes: Vec<String>,
    plots: Vec<draw::Plot>,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// Every experiment.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "flood",
        about: "strangers hold 10,000 half-open connections and open 2,000 a second: memory, a cast's time, and \
                who gets in",
        run: flood::run,
    },
    Entry {
        name: "rogue",
        about: "one of ten members floods, drips, is silent, chatters, claims or hoards: the others' time",
        run: rogue::run,
    },
    Entry {
        name: "disk",
        about: "the disk of one of ten hosts writes a hundred times slower than its network brings: the others' time",
        run: disk::run,
    },
    Entry {
        name: "crowd",
        about: "32 casts of many sizes at once to one agent: its memory, and whether all arrive",
        run: crowd::run,
    },
    Entry {
        name: "soak",
        about: "casts, kills, stops, partitions and full disks for hours: memory, descriptors and files of agents",
        run: soak::run,
    },
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// What `--only` may name.
pub fn selectable() -> impl Iterator<Item = &'static str> {
    members::PROTOCOLS.iter().chain(&rogue::ATTACKS).copied()
}

impl Entry {
    /// Runs the experiment; `progress` is told each measurement as it is made.
    ///
    /// # Errors
    /// If nothing could be measured.
    pub fn run(
        &self,
        options: &BenchTrustOptions,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Result<TrustReport, ExperimentError> {
        let begun = machine::now();
        let before = usage::load();
        let found = (self.run)(&Context { options, progress })?;
        Ok(TrustReport {
            name: self.name.to_owned(),
            title: self.about.to_owned(),
            short: options.short,
            seed: options.seed,
            rounds: options.rounds(),
            date: machine::date(),
            machine: machine::describe(),
            load: [before, usage::load()],
            wall_s: begun.elapsed().as_secs_f64(),
            rows: found.rows,
            notes: found.notes,
            curves: found.curves.into_iter().collect(),
            plots: found.plots,
        })
    }
}

/// Writes a report and its plots into a directory, which is made if it is missing.
///
/// # Errors
/// If they cannot be written.
pub fn save(report: &TrustReport, output: &Path) -> Result<(), ExperimentError> {
    std::fs::create_dir_all(output).map_err(|e| ExperimentError::file(output, &e))?;
    let text = serde_json::to_string_pretty(report);
    let mut text = text.map_err(|e| ExperimentError::file(output, &e))?;
    text.push('\n');
    let write = |name: String, text: &str| {
        let path = output.join(name);
        std::fs::write(&path, text).map_err(|e| ExperimentError::file(&path, &e))
    };
    write(format!("trust-{}.json", report.name), &text)?;
    for plot in &report.plots {
        write(format!("{}.svg", plot.name), &draw::draw(plot))?;
    }
    Ok(())
}
