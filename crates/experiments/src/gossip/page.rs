//! The page that shows the paper's findings beside ours, written from the reports alone.

use std::fmt::Write;
use std::path::Path;

use super::paper::READINGS;
use super::report::GossipReport;
use super::{ENTRIES, facts, file_name, find, plots};
use crate::ExperimentError;
use crate::draw::{Line, Plot, Shape};

/// What stands above the results.
const HEAD: &str = "\
# Coded gossip

What [Cooper] found and what this project measures, experiment by experiment. Real agents run in \
the emulator, with encryption and verification on and files in memory, unless it says that a \
simulation was run, which drives the same state machines. Time counts from the start of the \
transfer until the last file is in place, verified. A cast in a network for which the machine was \
too slow, by the emulator's own account, is void and made again.

This page is written by `outpour-lab bench gossip page` from the JSON files that `outpour-lab bench gossip \
all` leaves; nothing in it is written by hand but what is quoted from the paper.
";

/// Reads the reports in `input` and writes the page, whose plots are linked relative to it as
/// `plots`.
///
/// # Errors
/// If there is no report at all, or one cannot be read.
pub fn write(input: &Path, plots: &str) -> Result<String, ExperimentError> {
    let mut reports = Vec::new();
    for entry in ENTRIES {
        let path = input.join(format!("{}.json", file_name(entry.name)));
        if path.exists() {
            reports.push(GossipReport::read(&path)?);
        }
    }
    if reports.is_empty() {
        let why = "no report here; make them with `outpour-lab bench gossip all`";
        return Err(ExperimentError::file(input, &why));
    }
    let mut page = format!("{HEAD}\n{}## Required and reached\n\n", made_on(&reports));
    page.push_str("| what | required | reached | |\n|---|---|---|---|\n");
    for fact in reports.iter().flat_map(facts::of) {
        if let Some(held) = fact.held {
            let mark = if held { "yes" } else { "**no**" };
            let (what, theirs, ours) = (fact.what, fact.theirs, fact.ours);
            let _ = writeln!(page, "| {what} | {theirs} | {ours} | {mark} |");
        }
    }
    page.push('\n');
    for entry in ENTRIES {
        match reports.iter().find(|report| report.name == entry.name) {
            Some(report) => page.push_str(&section(report, plots)),
            None => {
                let _ = writeln!(
                    page,
                    "## {}: {}\n\nNot measured.\n",
                    entry.name, entry.about
                );
            }
        }
    }
    while page.ends_with("\n\n") {
        page.pop();
    }
    Ok(page)
}

fn made_on(reports: &[GossipReport]) -> String {
    let mut text = String::new();
    let mut machines: Vec<&str> = Vec::new();
    for report in reports {
        if !machines.contains(&report.machine.as_str()) {
            machines.push(&report.machine);
        }
    }
    let _ = writeln!(text, "Machine: {}.\n", machines.join("; "));
    let short: Vec<&str> = reports
        .iter()
        .filter(|report| report.short)
        .map(|report| report.name.as_str())
        .collect();
    if !short.is_empty() {
        let names = short.join("`, `");
        let _ = writeln!(
            text,
            "**Made short, so that its figures prove nothing: `{names}`.**\n"
        );
    }
    text
}

fn section(report: &GossipReport, plots_at: &str) -> String {
    let short = if report.short { " --short" } else { "" };
    let mut text = format!("## {}: {}\n\n", report.name, report.title);
    for reading in READINGS
        .iter()
        .filter(|reading| reading.name == report.name)
    {
        let _ = writeln!(text, "Paper ({}): {}\n", reading.place, reading.says);
    }
    if let Some(entry) = find(&report.name) {
        let _ = writeln!(text, "Here: {}\n", entry.setup);
    }
    let facts = facts::of(report);
    if !facts.is_empty() {
        text.push_str("| | required, or the paper's | here |\n|---|---|---|\n");
        for fact in facts {
            let _ = writeln!(text, "| {} | {} | {} |", fact.what, fact.theirs, fact.ours);
        }
        text.push('\n');
    }
    for plot in plots::of(report) {
        let _ = writeln!(text, "![{}]({plots_at}/{}.svg)\n", plot.title, plot.name);
        text.push_str(&table(&plot));
    }
    for reason in &report.left_out {
        let _ = writeln!(text, "- left out: {reason}.");
    }
    for trial in report.trials.iter().filter(|trial| trial.error.is_some()) {
        let words = trial.in_words();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "- failed: {words}.");
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "`outpour-lab bench gossip {} --seed {} --mode {}{short}`, {}, {:.0} s.\n",
        report.name, report.seed, report.mode, report.date, report.wall_s
    );
    text
}

/// What was measured point by point, as a table; what was sampled over time is left to the plot.
fn table(plot: &Plot) -> String {
    let Shape::Lines { lines, .. } = &plot.shape else {
        return String::new();
    };
    if !lines.iter().all(Line::has_points) {
        return String::new();
    }
    let mut places: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|(x, _)| *x))
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut text = format!("| {} ({}) |", plot.x, plot.y);
    for line in lines {
        let _ = write!(text, " {} |", line.label);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(lines.len()));
    for place in places {
        let _ = write!(text, "| {place} |");
        for line in lines {
            let value = line.points.iter().find(|(x, _)| *x == place);
            let value = value.map_or_else(|| "-".to_owned(), |(_, y)| format!("{y:.1}"));
            let _ = write!(text, " {value} |");
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::report::Trial;
    use super::*;
    use crate::gossip::emulated::{DEFAULT, PLAIN};

    #[test]
    fn the_page_says_what_was_reached_and_what_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let trial = |series: &str, seconds| Trial {
            finish_s: Some(seconds),
            ..Trial::new(series, None)
        };
        let report = GossipReport {
            name: "compare".to_owned(),
            title: "t".to_owned(),
            short: false,
            seed: 1,
            mode: "packet".to_owned(),
            date: "2026-01-01".to_owned(),
            machine: "m".to_owned(),
            wall_s: 1.0,
            left_out: vec!["something".to_owned()],
            trials: vec![trial(PLAIN, 50.0), trial(DEFAULT, 55.0)],
        };
        crate::gossip::save(&report, dir.path()).unwrap();
        assert!(dir.path().join("gossip-compare.svg").exists());
        let page = write(dir.path(), "plots").unwrap();
        assert!(
            page.contains("default settings | at most 1.09 | 1.100 | **no** |"),
            "{page}"
        );
        assert!(page.contains("(plots/gossip-compare.svg)"), "{page}");
        assert!(page.contains("55.0 s, 1.100 x the plain copy"), "{page}");
        assert!(
            page.contains("left out: something") && page.contains("Not measured"),
            "{page}"
        );
        assert!(page.contains("60 s"), "what the paper found is quoted");
    }

    #[test]
    fn every_reading_is_of_an_experiment() {
        for reading in READINGS {
            assert!(find(reading.name).is_some(), "{}", reading.place);
        }
    }
}
