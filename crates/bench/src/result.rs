//! What was measured and whether it is enough.

use std::fmt;

use serde::Serialize;

use crate::machine::Machine;
use crate::rows::Spec;

/// What a ratio must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Required {
    AtMost(f64),
    AtLeast(f64),
    /// That it comes to its end is enough; the ratio is for information.
    Finishes,
}

impl Required {
    fn met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
            Self::Finishes => true,
        }
    }
}

impl fmt::Display for Required {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "at most {limit:.2}"),
            Self::AtLeast(limit) => write!(f, "at least {limit:.2}"),
            Self::Finishes => write!(f, "finishes"),
        }
    }
}

/// One measurement beside its baseline.
#[derive(Debug)]
pub(crate) struct Measured {
    /// What ours is compared with, with its unit.
    pub(crate) baseline: String,
    /// What was measured, with its unit.
    pub(crate) ours: String,
    /// Ours over the baseline.
    pub(crate) ratio: f64,
    /// What else is worth knowing.
    pub(crate) detail: String,
    /// The command that was measured.
    pub(crate) command: String,
}

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) baseline: String,
    pub(crate) ours: String,
    pub(crate) ratio: Option<f64>,
    pub(crate) required: Required,
    pub(crate) pass: bool,
    pub(crate) detail: String,
    pub(crate) command: String,
    /// Why there is no measurement.
    pub(crate) error: Option<String>,
}

impl Row {
    /// A row that could be measured.
    pub(crate) fn measured(spec: &Spec, measured: Measured) -> Self {
        Self {
            name: spec.name,
            what: spec.about,
            baseline: measured.baseline,
            ours: measured.ours,
            ratio: Some(measured.ratio),
            required: spec.required,
            pass: spec.required.met_by(measured.ratio),
            detail: measured.detail,
            command: measured.command,
            error: None,
        }
    }

    /// A row that could not.
    pub(crate) fn failed(spec: &Spec, error: &anyhow::Error) -> Self {
        Self {
            name: spec.name,
            what: spec.about,
            baseline: String::new(),
            ours: String::new(),
            ratio: None,
            required: spec.required,
            pass: false,
            detail: String::new(),
            command: format!("outpour-bench --only {}", spec.name),
            error: Some(format!("{error:#}")),
        }
    }

    /// The last column.
    pub(crate) fn verdict(&self) -> &'static str {
        match (&self.error, self.pass) {
            (Some(_), _) => "**not measured**",
            (None, true) => "yes",
            (None, false) => "**no**",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return write!(f, "{}: not measured: {error}", self.name);
        }
        let (ratio, met) = (
            self.ratio.unwrap_or_default(),
            if self.pass { "met" } else { "MISSED" },
        );
        let Self {
            name,
            ours,
            baseline,
            required,
            detail,
            ..
        } = self;
        write!(
            f,
            "{name}: {ours} / {baseline} = {ratio:.3}, required {required}: {met}\n  {detail}"
        )
    }
}

/// Everything one run found.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_itself_is_enough_and_beyond_it_is_not() {
        assert!(Required::AtMost(1.03).met_by(1.03));
        assert!(!Required::AtMost(1.03).met_by(1.031));
        assert!(Required::AtLeast(0.5).met_by(0.5));
        assert!(!Required::AtLeast(0.5).met_by(0.499));
        assert!(!Required::AtMost(1.0).met_by(f64::NAN));
        assert!(Required::Finishes.met_by(7.0));
    }
}
