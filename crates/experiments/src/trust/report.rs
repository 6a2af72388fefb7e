//! What an experiment of trust found, as its JSON file holds it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::draw::Plot;

/// One experiment.
#[derive(Serialize)]
pub struct TrustReport {
    /// Its name on the command line.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Whether it was made small to be quick; such figures prove nothing.
    pub short: bool,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// How often each cast was made.
    pub rounds: u64,
    /// When it was run.
    pub date: String,
    /// On what.
    pub machine: String,
    /// How many processes wanted to run on average in the minute before it began, and before it ended.
    pub load: [f64; 2],
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Things worth a line.
    pub notes: Vec<String>,
    /// What was seen over time: pairs of seconds and a value.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// Drawn beside the file.
    #[serde(skip)]
    pub(crate) plots: Vec<Plot>,
}

/// A figure and what it may be.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The same without what disturbs, if there is something to compare with.
    pub without: Option<f64>,
    /// What was measured with it.
    pub with: Option<f64>,
    /// The unit of both.
    pub unit: String,
    /// What counts: a ratio less one, a difference, or the value itself.
    pub figure: Option<f64>,
    /// The most, or the least, that it may be.
    pub bound: Option<f64>,
    /// How the figure reads.
    pub shown: String,
    /// Whether it keeps within the bound.
    pub held: Option<bool>,
    /// Why there is no figure.
    pub error: Option<String>,
}

impl Row {
    /// How much longer something took, as a share that may be `most`.
    pub(crate) fn longer(what: impl Into<String>, without: f64, with: f64, most: f64) -> Self {
        let share = with / without - 1.0;
        Self {
            what: what.into(),
            without: Some(without),
            with: Some(with),
            unit: "s".to_owned(),
            figure: Some(share),
            bound: Some(most),
            shown: format!("{:+.1} %", share * 100.0),
            held: Some(share <= most),
            error: None,
        }
    }

    /// How much more of something there was, of which there may be `most` more.
    pub(crate) fn more(
        what: impl Into<String>,
        unit: &str,
        (without, with): (f64, f64),
        most: f64,
    ) -> Self {
        let more = with - without;
        Self {
            what: what.into(),
            without: Some(without),
            with: Some(with),
            unit: unit.to_owned(),
            figure: Some(more),
            bound: Some(most),
            shown: format!("{more:+.1} {unit}"),
            held: Some(more <= most),
            error: None,
        }
    }

    /// How many of so many.
    pub(crate) fn of(what: impl Into<String>, count: usize, all: usize) -> Self {
        Self {
            what: what.into(),
            without: Some(all as f64),
            with: Some(count as f64),
            unit: String::new(),
            figure: Some(count as f64),
            bound: Some(all as f64),
            shown: format!("{count} of {all}"),
            held: Some(count >= all),
            error: None,
        }
    }

    /// A value that may be `most`.
    pub(crate) fn at_most(what: impl Into<String>, unit: &str, value: f64, most: f64) -> Self {
        Self {
            what: what.into(),
            without: None,
            with: Some(value),
            unit: unit.to_owned(),
            figure: Some(value),
            bound: Some(most),
            shown: format!("{value:.2} {unit}").trim_end().to_owned(),
            held: Some(value <= most),
            error: None,
        }
    }

    /// What could not be measured.
    pub(crate) fn failed(what: impl Into<String>, error: &dyn std::fmt::Display) -> Self {
        Self {
            what: what.into(),
            without: None,
            with: None,
            unit: String::new(),
            figure: None,
            bound: None,
            shown: String::new(),
            held: None,
            error: Some(error.to_string()),
        }
    }

    /// The row in a line, for people.
    pub(crate) fn in_words(&self) -> String {
        if let Some(error) = &self.error {
            return format!("{}: {error}", self.what);
        }
        let held = match self.held {
            Some(true) => ", reached",
            Some(false) => ", missed",
            None => "",
        };
        let values = match (self.without, self.with) {
            (Some(without), Some(with)) if !self.unit.is_empty() => {
                format!(" ({without:.2} and {with:.2} {})", self.unit)
            }
            _ => String::new(),
        };
        format!("{}: {}{values}{held}", self.what, self.shown)
    }
}

impl TrustReport {
    /// The rows as people read them in a terminal.
    pub fn for_people(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.title);
        for row in &self.rows {
            text.push_str(&format!("  {}\n", row.in_words()));
        }
        for note in &self.notes {
            text.push_str(&format!("  {note}\n"));
        }
        let [before, after] = self.load;
        text + &format!(
            "{:.0} s; load {before:.1} before, {after:.1} at the end",
            self.wall_s
        )
    }

    /// Whether everything could be measured.
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.error.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_it_keeps_its_promise() {
        let longer = Row::longer("chain", 10.0, 12.5, 0.2);
        assert_eq!(
            longer.in_words(),
            "chain: +25.0 % (10.00 and 12.50 s), missed"
        );
        assert_eq!(Row::longer("chain", 10.0, 12.0, 0.2).held, Some(true));
        let more = Row::more("memory", "MiB", (20.0, 30.5), 64.0);
        assert_eq!((more.shown.as_str(), more.held), ("+10.5 MiB", Some(true)));
        assert_eq!(Row::of("agents", 19, 20).held, Some(false));
        assert_eq!(Row::at_most("slope", "MiB/h", 1.01, 1.0).held, Some(false));
        let failed = Row::failed("a", &"no root");
        assert_eq!(
            (failed.held, failed.in_words().as_str()),
            (None, "a: no root")
        );
    }
}
