//! What an experiment found, as its JSON file holds it.
//!
//! The plots and the page are drawn from these values and from nothing else.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ExperimentError;

/// One experiment: some panels of measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GridReport {
    /// Its name on the command line.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Whether it was made small to be quick; such figures prove nothing.
    pub short: bool,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// When it was run.
    pub date: String,
    /// On what.
    pub machine: String,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// What was measured.
    pub panels: Vec<Panel>,
}

/// Measurements that belong into one plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// Name of the plot's file, without its ending.
    pub name: String,
    /// Heading of the plot.
    pub title: String,
    /// What tells the groups apart.
    pub axis: String,
    /// Whether groups are sizes that double, to be drawn as lines on logarithmic axes.
    pub logarithmic: bool,
    /// What [`Measurement::expected_bytes_per_s`] is, if there is such.
    pub expected: Option<String>,
    /// The groups, in the order of the axis.
    pub groups: Vec<Group>,
}

/// The methods in one situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// What the situation is called on the axis.
    pub label: String,
    /// How much was multicast.
    pub size_bytes: u64,
    /// The most that is possible, if it could be computed.
    pub optimum_bytes_per_s: Option<f64>,
    /// In a network that changes, what the best plan for each stretch of time without a change
    /// adds up to, begun at its start and left at its end.
    pub clairvoyant_bytes_per_s: Option<f64>,
    /// Each method's result.
    pub measurements: Vec<Measurement>,
}

/// One method in one situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// The method.
    pub method: String,
    /// The size over the time at which the last node had everything.
    pub bytes_per_s: Option<f64>,
    /// That over the optimum.
    pub of_optimum: Option<f64>,
    /// The throughput over the group's clairvoyant one.
    pub of_clairvoyant: Option<f64>,
    /// What a plan or a simulation promised.
    pub expected_bytes_per_s: Option<f64>,
    /// When the last node had everything.
    pub finish_s: Option<f64>,
    /// How often each byte came into each cluster but the root's, on average.
    pub crossings: Option<f64>,
    /// What went wrong.
    pub error: Option<String>,
    /// How long the measurement took.
    pub wall_s: f64,
}

impl Measurement {
    /// A method that failed.
    pub(crate) fn failed(method: &str, error: String) -> Self {
        Self {
            method: method.to_owned(),
            bytes_per_s: None,
            of_optimum: None,
            of_clairvoyant: None,
            expected_bytes_per_s: None,
            finish_s: None,
            crossings: None,
            error: Some(error),
            wall_s: 0.0,
        }
    }
}

impl Group {
    /// What a method did here.
    pub fn of(&self, method: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.method == method)
    }
}

impl Panel {
    /// The methods in the order in which they first appear.
    pub fn methods(&self) -> Vec<&str> {
        let mut methods: Vec<&str> = Vec::new();
        for measurement in self.groups.iter().flat_map(|group| &group.measurements) {
            if !methods.contains(&measurement.method.as_str()) {
                methods.push(&measurement.method);
            }
        }
        methods
    }

    /// The panel as a table: a row per group, a column per method, each cell the throughput and
    /// its ratio to the optimum.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let methods = self.methods();
        let changes = self
            .groups
            .iter()
            .any(|group| group.clairvoyant_bytes_per_s.is_some());
        let mut head = vec![self.axis.clone(), "optimum".to_owned()];
        head.extend(changes.then(|| "clairvoyant".to_owned()));
        head.extend(methods.iter().map(|method| (*method).to_owned()));
        let mut rows = vec![head];
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), megabytes);
        for group in &self.groups {
            let mut row = vec![group.label.clone(), rate(group.optimum_bytes_per_s)];
            row.extend(changes.then(|| rate(group.clairvoyant_bytes_per_s)));
            row.extend(methods.iter().map(|method| cell(group.of(method))));
            rows.push(row);
        }
        rows
    }
}

impl GridReport {
    /// The tables as people read them in a terminal.
    pub fn for_people(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.title);
        for panel in &self.panels {
            let _ = write!(
                text,
                "\n{} (MB/s, in brackets the share of the optimum)\n{}\n",
                panel.title,
                aligned(&panel.rows())
            );
            for (group, measurement) in panel.failures() {
                let error = measurement.error.as_deref().unwrap_or_default();
                let _ = writeln!(text, "{}, {}: {error}", group.label, measurement.method);
            }
        }
        let _ = write!(text, "\n{:.0} s", self.wall_s);
        text
    }

    /// Reads a report.
    ///
    /// # Errors
    /// If there is none, or it is not one.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(|e| ExperimentError::file(path, &e))?;
        serde_json::from_str(&text).map_err(|e| ExperimentError::file(path, &e))
    }

    /// Whether every measurement came to an end.
    pub fn is_complete(&self) -> bool {
        self.panels
            .iter()
            .all(|panel| panel.failures().next().is_none())
    }
}

impl Panel {
    /// The measurements that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Group, &Measurement)> {
        let all = |group| Group::measurements_of(group);
        self.groups
            .iter()
            .flat_map(all)
            .filter(|(_, m)| m.error.is_some())
    }
}

impl Group {
    fn measurements_of(group: &Self) -> impl Iterator<Item = (&Self, &Measurement)> {
        group.measurements.iter().map(move |m| (group, m))
    }
}

/// A rate in MB/s with three digits that count.
pub(crate) fn megabytes(bytes_per_s: f64) -> String {
    let mb = bytes_per_s / 1e6;
    match mb {
        mb if mb >= 100.0 => format!("{mb:.0}"),
        mb if mb >= 10.0 => format!("{mb:.1}"),
        mb if mb >= 0.1 => format!("{mb:.2}"),
        mb => format!("{mb:.4}"),
    }
}

fn cell(measurement: Option<&Measurement>) -> String {
    let Some(measurement) = measurement else {
        return "-".to_owned();
    };
    match (measurement.bytes_per_s, measurement.of_optimum) {
        (Some(rate), Some(share)) => format!("{} ({share:.2})", megabytes(rate)),
        (Some(rate), None) => megabytes(rate),
        _ => "failed".to_owned(),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
