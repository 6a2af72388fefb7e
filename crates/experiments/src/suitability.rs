//! Table 4.2 of the thesis again, from measurements instead of judgement.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::method;
use crate::report::{GridReport, Group};
use crate::thesis;

/// From which mean share of the optimum on a method is good.
pub(crate) const GOOD: f64 = 0.80;
/// From which on it is mediocre.
pub(crate) const MEDIOCRE: f64 = 0.50;

/// Which measurements decide a row: of these experiments, the plots whose names begin so, and the
/// groups that pass.
struct Basis {
    what: &'static str,
    plots: &'static [&'static str],
    groups: fn(&Group) -> bool,
}

fn is_changing(group: &Group) -> bool {
    group.label.contains("->") || group.label == "mayhem"
}

/// In the order of [`thesis::SUITABILITY`]; the last row cannot be measured.
const BASES: &[Basis] = &[
    Basis {
        what: "gridlab, all roots",
        plots: &["gridlab"],
        groups: |_| true,
    },
    Basis {
        what: "case1, static",
        plots: &["case1"],
        groups: |group| !is_changing(group),
    },
    Basis {
        what: "case2, static",
        plots: &["case2"],
        groups: |group| !is_changing(group),
    },
    Basis {
        what: "case7, 4 or more nodes",
        plots: &["case7-two", "case7-four"],
        groups: |group| !["1", "2"].contains(&group.label.as_str()),
    },
    Basis {
        what: "case8, 4 or more nodes",
        plots: &["case8-two", "case8-four"],
        groups: |group| group.label != "2",
    },
    Basis {
        what: "case4, 16 clusters",
        plots: &["case4"],
        groups: |group| group.label == "16",
    },
    Basis {
        what: "cases 1-3, slow links",
        plots: &["case1", "case2", "case3-equal", "case3-unequal"],
        groups: |group| group.label == "slow links",
    },
    Basis {
        what: "cases 1-3, dynamic",
        plots: &["case1", "case2", "case3-equal", "case3-unequal"],
        groups: is_changing,
    },
];

/// The mark of a mean share of the optimum.
fn mark(share: f64) -> &'static str {
    match share {
        share if share >= GOOD => "+",
        share if share >= MEDIOCRE => "o",
        _ => "-",
    }
}

/// The mean share of the optimum that a method reached; a failure counts as nothing.
fn mean(reports: &BTreeMap<&str, GridReport>, basis: &Basis, method: &str) -> Option<f64> {
    let panels = reports.values().flat_map(|report| &report.panels);
    let panels = panels.filter(|panel| basis.plots.contains(&panel.name.as_str()));
    let groups = panels
        .flat_map(|panel| &panel.groups)
        .filter(|group| (basis.groups)(group));
    let shares: Vec<f64> = groups
        .filter_map(|group| group.of(method))
        .map(|measurement| measurement.of_optimum.unwrap_or(0.0))
        .collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

/// The table in Markdown: the thesis's mark, then ours with the mean share of the optimum.
pub(crate) fn table(reports: &BTreeMap<&str, GridReport>) -> String {
    let labels = thesis::METHODS.map(method::label);
    let mut text = format!(
        "| | {} | measured in |\n|---|---|---|---|---|---|\n",
        labels.join(" | ")
    );
    for (index, (case, theirs)) in thesis::SUITABILITY.iter().enumerate() {
        let _ = write!(text, "| {case} ");
        for (method, theirs) in thesis::METHODS.iter().zip(theirs) {
            let share = BASES
                .get(index)
                .and_then(|basis| mean(reports, basis, method));
            let _ = match share {
                Some(share) => write!(text, "| {theirs} / {} {share:.2} ", mark(share)),
                None => write!(text, "| {theirs} "),
            };
        }
        let what = BASES
            .get(index)
            .map_or("not a measurement", |basis| basis.what);
        let _ = writeln!(text, "| {what} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_but_the_last_has_a_basis_among_the_experiments() {
        assert_eq!(BASES.len() + 1, thesis::SUITABILITY.len());
        for plot in BASES.iter().flat_map(|basis| basis.plots) {
            let experiment = plot.split('-').next().unwrap_or_default();
            assert!(crate::find(experiment).is_some(), "{plot}");
        }
        assert_eq!((mark(0.8), mark(0.79), mark(0.49)), ("+", "o", "-"));
    }
}
