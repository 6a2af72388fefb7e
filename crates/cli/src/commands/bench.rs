//! `outpour bench`: experiments, and the page of them.

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

use outpour_experiments::{ENTRIES, Entry, Options, Report, find, page, save};
use serde::Serialize;

use crate::args::bench::{ALL, BenchGridArgs, PAGE};
use crate::out::{self, Failure};

/// What the command found, for programs.
#[derive(Serialize)]
struct Findings {
    experiments: Vec<Report>,
    failures: Vec<Missed>,
}

#[derive(Serialize)]
struct Missed {
    experiment: String,
    error: String,
}

/// Runs experiments, each whatever became of those before.
///
/// # Errors
/// If one did not take place or a method failed in it.
pub(super) fn grid(args: &BenchGridArgs) -> Result<(), Failure> {
    let options = options(args)?;
    let quiet = args.show.quiet;
    let progress = |line: fmt::Arguments<'_>| {
        if !quiet {
            out::complain(line);
        }
    };
    let mut findings = Findings {
        experiments: Vec::new(),
        failures: Vec::new(),
    };
    for entry in chosen(&args.names) {
        let done = entry.run(&options, &progress);
        match done.and_then(|report| save(&report, &args.output).map(|()| report)) {
            Ok(report) => {
                if !args.show.json && !quiet {
                    out::result(format!("{}\n", report.for_people()));
                }
                findings.experiments.push(report);
            }
            Err(error) => {
                let error = out::chain(&error);
                out::complain(format!("{}: {error}", entry.name));
                let experiment = entry.name.to_owned();
                findings.failures.push(Missed { experiment, error });
            }
        }
    }
    if args.show.json {
        out::json(&findings);
    }
    if args.names.iter().any(|name| name == PAGE) {
        write_page(args)?;
    }
    verdict(&findings)
}

fn options(args: &BenchGridArgs) -> Result<Options, Failure> {
    let program = std::env::current_exe();
    Ok(Options {
        seed: args.seed,
        short: args.short,
        only: args.only.clone(),
        data: args.data.clone(),
        threads: args.threads,
        program: program.map_err(|error| {
            Failure::Failed(format!("this program does not know where it is: {error}"))
        })?,
    })
}

/// The experiments of those names, each once.
fn chosen(names: &[String]) -> Vec<&'static Entry> {
    if names.iter().any(|name| name == ALL) {
        return ENTRIES.iter().collect();
    }
    let mut chosen: Vec<&Entry> = Vec::new();
    for entry in names.iter().filter_map(|name| find(name)) {
        if !chosen.iter().any(|other| other.name == entry.name) {
            chosen.push(entry);
        }
    }
    chosen
}

fn write_page(args: &BenchGridArgs) -> Result<(), Failure> {
    let directory = args.page.parent().unwrap_or_else(|| Path::new(""));
    let text = page::write(&args.output, &relative(directory, &args.output));
    let text = text.map_err(|error| Failure::from_error(&error))?;
    let fail = |error: std::io::Error| Failure::Failed(format!("{}: {error}", args.page.display()));
    if !directory.as_os_str().is_empty() {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    fs::write(&args.page, text).map_err(fail)?;
    if !args.show.quiet {
        out::complain(format!("{} is up to date", args.page.display()));
    }
    Ok(())
}

/// The way from one directory to another, for links in a page.
fn relative(from: &Path, to: &Path) -> String {
    let plain = |path: &Path| -> Option<Vec<_>> {
        let parts = path.components().filter(|part| *part != Component::CurDir);
        let parts = parts.map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        });
        parts.collect()
    };
    let (Some(from), Some(to)) = (plain(from), plain(to)) else {
        return to.display().to_string();
    };
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..".into(), from.len() - common);
    let way: PathBuf = up.chain(to.into_iter().skip(common)).collect();
    way.display().to_string()
}

fn verdict(findings: &Findings) -> Result<(), Failure> {
    let incomplete = findings
        .experiments
        .iter()
        .filter(|report| !report.is_complete());
    let mut missed: Vec<&str> = incomplete.map(|report| report.name.as_str()).collect();
    missed.extend(
        findings
            .failures
            .iter()
            .map(|missed| missed.experiment.as_str()),
    );
    if missed.is_empty() {
        return Ok(());
    }
    out::complain(format!(
        "not everything could be measured: {}",
        missed.join(", ")
    ));
    Err(Failure::Reported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_the_page_to_the_plots() {
        let way = |from, to| relative(Path::new(from), Path::new(to));
        assert_eq!(way("docs/experiments", "experiments"), "../../experiments");
        assert_eq!(way("a/b", "./a/c"), "../c");
        assert_eq!(way("", "x"), "x");
        assert_eq!(way("a", "/x"), "/x");
    }

    #[test]
    fn names_are_run_once_in_their_order() {
        let names = ["case2", "page", "case1", "case2"].map(str::to_owned);
        let names: Vec<_> = chosen(&names).iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["case2", "case1"]);
        assert_eq!(chosen(&[ALL.to_owned()]).len(), ENTRIES.len());
    }
}
