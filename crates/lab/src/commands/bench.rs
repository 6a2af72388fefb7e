//! `outpour-lab bench`: experiments, and the page of them.

use outpour_core::text;
use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

use outpour_cli::args::Output;
use outpour_cli::args::emulate::EmulateMode;
use outpour_cli::out::{self, Failure};
use outpour_experiments::{
    ENTRIES, ExperimentError, GridOptions, find, gossip as coded, page, push as pushes,
    replicate as sites, save, shuffle as shuffles, trust as trusts,
};
use serde::Serialize;

use crate::args::bench::{
    ALL, BenchGossipArgs, BenchGridArgs, BenchPushArgs, BenchReplicateArgs, BenchShuffleArgs,
    BenchTrustArgs, JOBS, PAGE,
};

/// What the command found, for programs.
#[derive(Serialize)]
struct Findings<R> {
    experiments: Vec<R>,
    failures: Vec<Missed>,
}

#[derive(Serialize)]
struct Missed {
    experiment: String,
    error: String,
}

/// What is done with the report of an experiment, of whichever bench.
trait Found: Serialize {
    fn name(&self) -> &str;
    fn for_people(&self) -> String;
    fn is_complete(&self) -> bool;
    fn save(&self, output: &Path) -> Result<(), ExperimentError>;
}

impl Found for outpour_experiments::GridReport {
    fn name(&self) -> &str {
        &self.name
    }

    fn for_people(&self) -> String {
        self.for_people()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        save(self, output)
    }
}

impl Found for coded::GossipReport {
    fn name(&self) -> &str {
        &self.name
    }

    fn for_people(&self) -> String {
        self.for_people()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        coded::save(self, output)
    }
}

impl Found for sites::SweepReport {
    fn name(&self) -> &str {
        &self.name
    }

    fn for_people(&self) -> String {
        sites::for_people(self)
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        sites::save(self, output)
    }
}

impl Found for pushes::Found {
    fn name(&self) -> &str {
        self.name()
    }

    fn for_people(&self) -> String {
        self.for_people()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        self.save(output)
    }
}

impl Found for shuffles::Found {
    fn name(&self) -> &str {
        self.name()
    }

    fn for_people(&self) -> String {
        self.for_people()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        self.save(output)
    }
}

impl Found for trusts::TrustReport {
    fn name(&self) -> &str {
        &self.name
    }

    fn for_people(&self) -> String {
        self.for_people()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn save(&self, output: &Path) -> Result<(), ExperimentError> {
        trusts::save(self, output)
    }
}

/// Runs experiments between clusters, each whatever became of those before.
///
/// # Errors
/// If one did not take place or a method failed in it.
pub(super) fn grid(args: &BenchGridArgs) -> Result<(), Failure> {
    let options = GridOptions {
        seed: args.seed,
        short: args.short,
        only: args.only.clone(),
        data: args.data.clone(),
        threads: args.threads,
        program: program()?,
    };
    let quiet = args.show.quiet;
    let all = ENTRIES.iter().map(|entry| entry.name);
    let names = chosen(&args.names, all).into_iter();
    let found = run(names, args.show, &args.output, |name| {
        find(name).map(|entry| entry.run(&options, &|line| tell(quiet, line)))
    })?;
    if args.names.iter().any(|name| name == PAGE) {
        let write = |plots: &str| page::write(&args.output, plots);
        write_page(&args.page, &args.output, quiet, write)?;
    }
    verdict(&found)
}

/// Runs experiments with coded gossip, each whatever became of those before.
///
/// # Errors
/// If one did not take place or something failed in it.
pub(super) fn gossip(args: &BenchGossipArgs) -> Result<(), Failure> {
    let options = coded::BenchGossipOptions {
        seed: args.seed,
        short: args.short,
        peer: args.peer.is_some(),
        mode: match args.mode {
            EmulateMode::Packet => coded::Mode::Packet,
            EmulateMode::Bulk => coded::Mode::Bulk,
        },
        program: program()?,
    };
    let quiet = args.show.quiet;
    let all = coded::ENTRIES.iter().map(|entry| entry.name);
    let names = chosen(&args.names, all).into_iter();
    let found = run(names, args.show, &args.output, |name| {
        coded::find(name).map(|entry| entry.run(&options, &|line| tell(quiet, line)))
    })?;
    if args.names.iter().any(|name| name == PAGE) {
        let write = |plots: &str| coded::page::write(&args.output, plots);
        write_page(&args.page, &args.output, quiet, write)?;
    }
    verdict(&found)
}

/// Runs experiments of replication, each whatever became of those before.
///
/// # Errors
/// If one did not take place or a system failed in it.
pub(super) fn replicate(args: &BenchReplicateArgs) -> Result<(), Failure> {
    let options = sites::BenchReplicateOptions {
        seed: args.seed,
        short: args.short,
        threads: args.threads,
        program: program()?,
    };
    let quiet = args.show.quiet;
    let all = sites::ENTRIES.iter().map(|entry| entry.name);
    let names = chosen(&args.names, all).into_iter();
    let found = run(names, args.show, &args.output, |name| {
        sites::find(name).map(|entry| entry.run(&options, &|line| tell(quiet, line)))
    })?;
    if args.names.iter().any(|name| name == PAGE) {
        let write = |plots: &str| sites::page::write(&args.output, plots);
        write_page(&args.page, &args.output, quiet, write)?;
    }
    verdict(&found)
}

/// Runs experiments with shuffles, each whatever became of those before.
///
/// # Errors
/// If one did not take place or a scheduler failed in it.
pub(super) fn shuffle(args: &BenchShuffleArgs) -> Result<(), Failure> {
    let options = shuffles::BenchShuffleOptions {
        seed: args.seed,
        short: args.short,
        threads: args.threads,
        trials: args.trials,
        count: args.count as usize,
        trace: args.trace.clone(),
    };
    let quiet = args.show.quiet;
    let all = shuffles::ENTRIES.iter().map(|entry| entry.name);
    let names = chosen(&args.names, all).into_iter();
    let found = run(names, args.show, &args.output, |name| {
        shuffles::find(name).map(|entry| entry.run(&options, &|line| tell(quiet, line)))
    })?;
    if args.names.iter().any(|name| name == PAGE) {
        let write = |plots: &str| shuffles::page::write(&args.output, plots);
        write_page(&args.page, &args.output, quiet, write)?;
    }
    verdict(&found)
}

/// Runs experiments of parallel push, each whatever became of those before; or one of their jobs; or says
/// which jobs there are.
///
/// # Errors
/// If one did not take place or a job failed in it.
pub(super) fn push(args: &BenchPushArgs) -> Result<(), Failure> {
    let options = pushes::BenchPushOptions {
        seed: args.seed,
        short: args.short,
        threads: args.threads,
        jobs: args.jobs.clone(),
        tasks: args.tasks,
        instances: args.instances,
        size_factor: args.size_factor,
        sizes: args.sizes.clone(),
        links: args.links.clone(),
    };
    let quiet = args.show.quiet;
    let tell = |line: fmt::Arguments<'_>| tell(quiet, line);
    if let Some(job) = &args.job {
        let done = pushes::run_job(job, &options, &tell);
        return done.map_err(|error| Failure::from_error(&error));
    }
    let all = || pushes::ENTRIES.iter().map(|entry| entry.name);
    let mut names = chosen(&args.names, all());
    if let Some(jobs) = names.iter().position(|name| name == JOBS) {
        names.remove(jobs);
        if names.is_empty() {
            names = all().map(str::to_owned).collect();
        }
        let jobs = pushes::jobs(names.iter().map(String::as_str), &options);
        for job in jobs.map_err(|error| Failure::from_error(&error))? {
            out::result(job.name());
        }
        return Ok(());
    }
    let found = run(names.into_iter(), args.show, &args.output, |name| {
        pushes::find(name).map(|entry| entry.run(&options, &tell))
    })?;
    if args.names.iter().any(|name| name == PAGE) {
        let write = |plots: &str| pushes::page::write(&args.output, plots);
        write_page(&args.page, &args.output, quiet, write)?;
    }
    verdict(&found)
}

/// Runs experiments of trust, each whatever became of those before.
///
/// # Errors
/// If one did not take place or something failed in it.
pub(super) fn trust(args: &BenchTrustArgs) -> Result<(), Failure> {
    let options = trusts::BenchTrustOptions {
        seed: args.seed,
        short: args.short,
        rounds: args.rounds,
        only: args.only.clone(),
        soak: args.soak,
        program: program()?,
    };
    let quiet = args.show.quiet;
    let all = trusts::ENTRIES.iter().map(|entry| entry.name);
    let names = chosen(&args.names, all).into_iter();
    let found = run(names, args.show, &args.output, |name| {
        trusts::find(name).map(|entry| entry.run(&options, &|line| tell(quiet, line)))
    })?;
    verdict(&found)
}

/// Is the tracker of a BitTorrent client, until it is ended.
///
/// # Errors
/// If its port is taken.
pub(super) fn tracker() -> Result<(), Failure> {
    let fail = |error| Failure::Failed(format!("port {}: {error}", coded::tracker::PORT));
    coded::tracker::serve().map_err(fail)
}

fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::Failed(format!("this program does not know where it is: {error}"))
    })
}

fn tell(quiet: bool, line: fmt::Arguments<'_>) {
    if !quiet {
        out::complain(line);
    }
}

/// Runs the experiments of those names, saves what they find and prints it.
///
/// # Errors
/// If nothing could be saved: an experiment may take an hour.
fn run<R: Found>(
    names: impl Iterator<Item = String>,
    show: Output,
    output: &Path,
    experiment: impl Fn(&str) -> Option<Result<R, ExperimentError>>,
) -> Result<Findings<R>, Failure> {
    let mut findings = Findings {
        experiments: Vec::new(),
        failures: Vec::new(),
    };
    let mut names = names.peekable();
    if names.peek().is_some() {
        let fail = |error| Failure::Failed(format!("{}: {error}", output.display()));
        fs::create_dir_all(output).map_err(fail)?;
        tempfile::tempfile_in(output).map_err(fail)?;
    }
    for name in names {
        let Some(done) = experiment(&name) else {
            continue;
        };
        match done.and_then(|report| report.save(output).map(|()| report)) {
            Ok(report) => {
                if !show.json && !show.quiet {
                    out::result(format!("{}\n", report.for_people()));
                }
                findings.experiments.push(report);
            }
            Err(error) => {
                let error = text::chain(&error);
                out::complain(format!("{name}: {error}"));
                let experiment = name;
                findings.failures.push(Missed { experiment, error });
            }
        }
    }
    if show.json {
        out::json(&findings);
    }
    Ok(findings)
}

/// The experiments of those names, each once.
fn chosen(names: &[String], all: impl Iterator<Item = &'static str>) -> Vec<String> {
    if names.iter().any(|name| name == ALL) {
        return all.map(str::to_owned).collect();
    }
    let mut chosen: Vec<String> = Vec::new();
    for name in names.iter().filter(|name| *name != PAGE) {
        if !chosen.contains(name) {
            chosen.push(name.clone());
        }
    }
    chosen
}

fn write_page(
    page: &Path,
    output: &Path,
    quiet: bool,
    write: impl Fn(&str) -> Result<String, ExperimentError>,
) -> Result<(), Failure> {
    let directory = page.parent().unwrap_or_else(|| Path::new(""));
    let text = write(&relative(directory, output));
    let text = text.map_err(|error| Failure::from_error(&error))?;
    let fail = |error: std::io::Error| Failure::Failed(format!("{}: {error}", page.display()));
    if !directory.as_os_str().is_empty() {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    fs::write(page, text).map_err(fail)?;
    tell(quiet, format_args!("{} is up to date", page.display()));
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

fn verdict<R: Found>(findings: &Findings<R>) -> Result<(), Failure> {
    let incomplete = findings.experiments.iter().filter(|it| !it.is_complete());
    let mut missed: Vec<&str> = incomplete.map(Found::name).collect();
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
        let all = || ENTRIES.iter().map(|entry| entry.name);
        assert_eq!(chosen(&names, all()), ["case2", "case1"]);
        assert_eq!(chosen(&[ALL.to_owned()], all()).len(), ENTRIES.len());
    }
}
