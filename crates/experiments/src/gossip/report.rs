//! What an experiment found, as its JSON file holds it: plots, facts and page follow from it alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ExperimentError;

/// One experiment: what was tried, one by one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GossipReport {
    /// Its name on the command line.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Whether it was made small to be quick; such figures prove nothing.
    pub short: bool,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// What the emulator's queues acted on, where it was used.
    pub mode: String,
    /// When it was run.
    pub date: String,
    /// On what.
    pub machine: String,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// What was tried.
    pub trials: Vec<Trial>,
}

/// One thing that was tried.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// What it is compared as: a line or a bar of a plot.
    pub series: String,
    /// Where it stands on the axis, if there is one: a number of blocks, of nodes, of objects.
    pub at: Option<f64>,
    /// Seconds from the start of the transfer until all nodes that could had everything.
    pub finish_s: Option<f64>,
    /// What went wrong.
    pub error: Option<String>,
    /// Other figures by name, with their unit in the name.
    pub values: BTreeMap<String, f64>,
    /// What was seen over time: pairs of seconds and a value.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// Things worth a line.
    pub notes: Vec<String>,
}

impl Trial {
    /// A trial of that name.
    pub(crate) fn new(series: impl Into<String>, at: Option<f64>) -> Self {
        Self {
            series: series.into(),
            at,
            ..Self::default()
        }
    }

    /// The same, having failed.
    pub(crate) fn failed(mut self, error: &ExperimentError) -> Self {
        self.error = Some(error.to_string());
        self
    }

    /// A figure.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    pub(crate) fn set(&mut self, name: &str, value: f64) {
        // JSON has no others.
        if value.is_finite() {
            self.values.insert(name.to_owned(), value);
        }
    }

    /// The trial in a line, for people.
    pub(crate) fn in_words(&self) -> String {
        let at = self.at.map(|at| format!(" {at}")).unwrap_or_default();
        let rounds = self.value("mean_rounds");
        let result = match (&self.error, self.finish_s, rounds) {
            (Some(error), ..) => error.clone(),
            (None, Some(seconds), _) => format!("{seconds:.1} s"),
            (None, None, Some(rounds)) => format!("{rounds:.1} rounds"),
            (None, None, None) => "measured".to_owned(),
        };
        format!("{}{at}: {result}", self.series)
    }
}

impl GossipReport {
    /// Reads a report.
    ///
    /// # Errors
    /// If there is none, or it is not one.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(|e| ExperimentError::file(path, &e))?;
        serde_json::from_str(&text).map_err(|e| ExperimentError::file(path, &e))
    }

    /// Whether everything that was tried came to an end.
    pub fn is_complete(&self) -> bool {
        self.trials.iter().all(|trial| trial.error.is_none())
    }

    /// The trials of a series.
    pub(crate) fn of<'a>(&'a self, series: &str) -> impl Iterator<Item = &'a Trial> + use<'a> {
        let all: Vec<&Trial> = self
            .trials
            .iter()
            .filter(|it| it.series == series)
            .collect();
        all.into_iter()
    }

    /// The first trial of a series.
    pub(crate) fn one(&self, series: &str) -> Option<&Trial> {
        self.of(series).next()
    }

    /// The series in the order in which they first appear.
    pub(crate) fn series(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for trial in &self.trials {
            if !all.contains(&trial.series.as_str()) {
                all.push(&trial.series);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_cannot_say_is_left_out() {
        let mut trial = Trial::new("a", Some(2.0));
        trial.set("ratio", f64::NAN);
        trial.set("share", 0.5);
        assert_eq!(
            (trial.value("ratio"), trial.value("share")),
            (None, Some(0.5))
        );
        assert_eq!(trial.in_words(), "a 2: measured");
    }
}
