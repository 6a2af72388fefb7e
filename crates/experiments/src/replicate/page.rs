//! The page that shows the paper's findings beside ours, written from the reports alone.

use std::path::Path;

use super::{ENTRIES, SEEDS};
use crate::ExperimentError;
use crate::sweep::{SweepReport, section, unmeasured};

/// What stands above the results.
const HEAD: &str = "\
# Replication between sites

What [BDS] found and what this project measures, experiment by experiment. All of it but `shared` is simulated: \
the controller is the one that agents obey, its servers carry out orders at the rates that the network \
allows, and the baselines follow what is written about them. `ratio` is the time over the least time \
in which the network can bring the data everywhere, which no method beats; limits and systems get the \
same share of links. Where a system chooses at random, a figure is the mean over";

const REST: &str = "\
Parameters of the baselines, tuned for these set-ups: Gingko knows of 4 random servers besides the \
source, learns of others every 30 s and asks 3 at a time; Bullet has a tree of at most 4 children and up \
to 10 further senders and receivers each, hears of 10 random servers every 5 s and gives up the worst \
sender every 20 s; Akamai has as many reflectors as let the slowest receive the fastest; Robber asks 5 \
servers at a time.

This page is written by `outpour-lab bench replicate page` from the JSON files that the commands below \
leave; nothing in it is written by hand but what is quoted from the paper, and why ours differs.
";

/// A figure of the paper that cannot be had here yet.
struct Missing {
    /// Behind which experiment it stands in the paper.
    after: &'static str,
    name: &'static str,
    about: &'static str,
    /// Where the paper has it, and what it finds there.
    paper: (&'static str, &'static str),
    /// Why there is nothing to measure.
    why: &'static str,
}

const MISSING: [Missing; 1] = [Missing {
    after: "decisions",
    name: "figure11b",
    about: "delays between the controller and its agents",
    paper: (
        "§6.3.1, figure 11b",
        "Of 5,000 requests between sites, 90 % take less than 50 ms and the average 25 ms, less than 1 % of a \
         cycle.",
    ),
    why: "These are delays of a network in use, between a controller and agents that run as a service. Here \
          reports and orders are simulated, and their delays are those of the network's description; \
          `figure11c` says what follows from one.",
}];

/// Reads the reports in `input` and writes the page, whose plots are linked relative to it as
/// `plots`.
///
/// # Errors
/// If there is no report at all, or one cannot be read.
pub fn write(input: &Path, plots: &str) -> Result<String, ExperimentError> {
    let mut sections = String::new();
    let mut machines: Vec<String> = Vec::new();
    for entry in ENTRIES {
        let path = input.join(format!("{}.json", entry.form().file()));
        if path.exists() {
            let report = SweepReport::read(&path)?;
            sections.push_str(&section(&entry.form(), &report, plots));
            if !machines.contains(&report.machine) {
                machines.push(report.machine);
            }
        } else {
            sections.push_str(&unmeasured(entry.name, entry.about, entry.paper, ""));
        }
        for it in MISSING.iter().filter(|it| it.after == entry.name) {
            sections.push_str(&unmeasured(it.name, it.about, it.paper, it.why));
        }
    }
    if machines.is_empty() {
        let why = "no report here; make them with `outpour-lab bench replicate all`";
        return Err(ExperimentError::file(input, &why));
    }
    let machines = machines.join("; ");
    let page = format!(
        "{HEAD} {SEEDS} seeds, with the least and the most.\n\n{REST}\nMachine: {machines}.\n\n{sections}"
    );
    Ok(page.trim_end().to_owned() + "\n")
}
