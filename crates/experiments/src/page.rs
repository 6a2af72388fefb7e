//! The page that shows the thesis's findings beside ours, written from the reports alone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::claims::{CLAIMS, Found};
use crate::report::{GridReport, Panel};
use crate::suitability::{self, GOOD, MEDIOCRE};
use crate::{ENTRIES, ExperimentError, find, method, thesis};

/// What stands above the results.
const HEAD: &str = "\
# Multicasting between clusters

What [Burger] found and what this project measures, experiment by experiment. The protocols and \
planners are the project's own; the simulator drives the same state machines as real agents, and \
the emulator runs real agents. Throughput is the size over the time at which the last node has \
everything, in MB/s (10^6 bytes per second); in brackets stands its share of the optimum. The \
optimum of a static network is the throughput that no plan can exceed; of a changing one, the size \
over the least time in which all that the network carries meanwhile can bring the object \
everywhere. `clairvoyant` is the thesis's notion: the optima of the stretches without a change, each \
for as long as it lasts. It is no bound, because what one stretch leaves half done another can \
finish. `failed` stands for a run that did not end, with \
the reason below the table.

This page is written by `outpour-lab bench grid page` from the JSON files that the commands below \
leave; nothing in it is written by hand but what is quoted from the thesis. Why Robber stays \
below the optimum where it does is shown from traces in [what holds Robber back](robber-limits.md).
";

/// Reads the reports in `input` and writes the page, whose plots are linked relative to it as
/// `plots`.
///
/// # Errors
/// If there is no report at all, or one cannot be read.
pub fn write(input: &Path, plots: &str) -> Result<String, ExperimentError> {
    let mut reports = BTreeMap::new();
    for entry in ENTRIES {
        let path = input.join(format!("{}.json", entry.name));
        if path.exists() {
            reports.insert(entry.name, GridReport::read(&path)?);
        }
    }
    if reports.is_empty() {
        let why = "no report here; make them with `outpour-lab bench grid all`";
        return Err(ExperimentError::file(input, &why));
    }
    let mut page = format!("{HEAD}\n{}\n", made_on(&reports));
    let _ = write!(
        page,
        "## Which method suits what\n\nTable 4.2 of the thesis and the same from these \
         measurements: the thesis's mark, a slash, and ours with the mean share of the optimum it \
         follows from: `+` from {GOOD}, `o` from {MEDIOCRE}, `-` below.\n\n{}\n",
        suitability::table(&reports)
    );
    for entry in ENTRIES {
        match reports.get(entry.name) {
            Some(report) => page.push_str(&section(report, &reports, plots)),
            None => {
                let _ = writeln!(
                    page,
                    "## {}: {}\n\nNot measured.\n",
                    entry.name, entry.about
                );
            }
        }
    }
    Ok(page.trim_end().to_owned() + "\n")
}

fn made_on(reports: &BTreeMap<&str, GridReport>) -> String {
    let mut machines: Vec<(&str, Vec<&str>)> = Vec::new();
    for report in reports.values() {
        match machines
            .iter_mut()
            .find(|(machine, _)| *machine == report.machine)
        {
            Some((_, names)) => names.push(&report.name),
            None => machines.push((&report.machine, vec![&report.name])),
        }
    }
    let mut text = String::new();
    for (machine, names) in &machines {
        let of = if machines.len() > 1 {
            format!(" ({})", names.join(", "))
        } else {
            String::new()
        };
        let _ = writeln!(text, "Machine: {machine}{of}.");
    }
    if let Some(short) = reports.values().find(|report| report.short) {
        let _ = writeln!(
            text,
            "\n**`{}` was made short: its figures prove nothing.**",
            short.name
        );
    }
    text
}

fn section(report: &GridReport, reports: &BTreeMap<&str, GridReport>, plots: &str) -> String {
    let short = if report.short { " --short" } else { "" };
    let mut text = format!("## {}: {}\n\n", report.name, report.title);
    if let Some(finding) = thesis::finding(&report.name) {
        let _ = writeln!(text, "Thesis ({}): {}\n", finding.place, finding.says);
    }
    if let Some(entry) = find(&report.name) {
        let _ = writeln!(text, "Here: {}\n", entry.setup);
    }
    text.push_str(&claims(&report.name, reports));
    for panel in &report.panels {
        let _ = writeln!(
            text,
            "![{}]({plots}/{}.svg)\n\n{}\n{}",
            panel.title,
            panel.name,
            table(panel),
            remarks(panel)
        );
    }
    let _ = writeln!(
        text,
        "`outpour-lab bench grid {} --seed {}{short}`, {}, {:.0} s.\n",
        report.name, report.seed, report.date, report.wall_s
    );
    text
}

/// What the thesis claims beside what was measured.
fn claims(name: &str, reports: &BTreeMap<&str, GridReport>) -> String {
    let mut text = String::new();
    for claim in CLAIMS.iter().filter(|claim| claim.name == name) {
        if text.is_empty() {
            text.push_str("| thesis | here |\n|---|---|\n");
        }
        let ours = (claim.ours)(&Found(reports));
        let ours = ours.as_deref().unwrap_or("not measured");
        let _ = writeln!(text, "| {} | {ours} |", claim.theirs);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn table(panel: &Panel) -> String {
    let mut text = format!("**{}** (MB/s)\n\n", panel.title);
    for (index, row) in panel.rows().iter().enumerate() {
        let cells: Vec<&str> = row
            .iter()
            .map(|cell| match index {
                0 => method::label(cell),
                _ => cell,
            })
            .collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(cells.len()));
        }
    }
    text
}

/// What the table leaves out: the mean share per method, copies between clusters, how near what
/// was promised came, and what failed.
fn remarks(panel: &Panel) -> String {
    let mut text = String::new();
    let mut list = |what: &str, each: &dyn Fn(&str) -> Option<String>| {
        let all = panel
            .methods()
            .into_iter()
            .filter_map(|name| each(name).map(|value| format!("{} {value}", method::label(name))));
        let all: Vec<String> = all.collect();
        if !all.is_empty() {
            let _ = writeln!(text, "- {what}: {}.", all.join(", "));
        }
    };
    let range = |name: &str, of: fn(&crate::report::Measurement) -> Option<f64>| {
        let values: Vec<f64> = panel
            .groups
            .iter()
            .filter_map(|group| of(group.of(name)?))
            .collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        (!values.is_empty()).then_some((low, mean, high))
    };
    let spread = |(low, mean, high): (f64, f64, f64)| match high - low < 0.005 {
        true => format!("{mean:.2}"),
        false => format!("{mean:.2} ({low:.2} to {high:.2})"),
    };
    list("share of the optimum, mean and range", &|name| {
        range(name, |m| m.of_optimum).map(spread)
    });
    list("share of the clairvoyant throughput", &|name| {
        range(name, |m| m.of_clairvoyant).map(spread)
    });
    list("copies of each byte into each cluster", &|name| {
        range(name, |m| m.crossings).map(spread)
    });
    if let Some(expected) = &panel.expected {
        list(&format!("throughput over that {expected}"), &|name| {
            range(name, |m| Some(m.bytes_per_s? / m.expected_bytes_per_s?)).map(spread)
        });
    }
    for (group, measurement) in panel.failures() {
        let why = measurement.error.as_deref().unwrap_or_default();
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            text,
            "- failed: {}, {}: {why}.",
            group.label, measurement.method
        );
    }
    text
}
