//! `outpour demo`: the protocols at work on this machine, each copy compared with the source.

mod tree;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outpour::Cast;
use outpour_core::text::escape;
use outpour_core::{Bytes, Rate};
use outpour_protocols::registry;
use serde::Serialize;
use tokio::sync::watch;

use super::cast::Watchers;
use super::{block_on, cast};
use crate::args::DemoArgs;
use crate::out::{self, Failure};
use crate::reach;
use crate::report::{seconds, table};

/// What is shown: the protocols that one cluster of equal nodes can choose from.
const SHOWN: [&str; 4] = ["direct", "chain", "swarm", "robber"];

/// Agents of the full demonstration, and of the short one.
const AGENTS: (usize, usize) = (8, 4);

/// How long a silent agent is waited for; nothing on one machine is that slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the command found, as JSON has it.
#[derive(Debug, Serialize)]
struct Findings {
    size_bytes: u64,
    files: usize,
    agents: usize,
    limit_rate_bytes_per_s: f64,
    runs: Vec<Run>,
}

/// One protocol's run.
#[derive(Debug, Serialize)]
struct Run {
    protocol: &'static str,
    /// From the start of the cast to the last verdict.
    finish_s: f64,
    /// One copy at the rate every node is limited to.
    limit_s: f64,
    ratio: f64,
    /// Whether every agent verified every byte and every copy compares equal with the source.
    verified: bool,
    /// What is wrong, if something is.
    faults: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If the tree cannot be made, or a copy is not what it should be.
pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let place = tempfile::Builder::new().prefix("outpour-demo-").tempdir();
    let place = place.map_err(|error| {
        Failure::Failed(format!("cannot create a temporary directory: {error}"))
    })?;
    let findings = block_on(all(args, place.path()));
    let place_shown = place.path().display().to_string();
    if let Err(error) = place.close() {
        out::complain(format!("{}: cannot remove: {error}", escape(&place_shown)));
    }
    let findings = findings?;
    if args.output.json {
        out::json(&findings);
    } else if !args.output.quiet {
        out::result(for_people(&findings));
    }
    for fault in findings.runs.iter().flat_map(|run| &run.faults) {
        out::complain(fault);
    }
    match findings.runs.iter().all(|run| run.verified) {
        true => Ok(()),
        false => Err(Failure::Reported),
    }
}

/// Makes the tree and casts it with each protocol.
async fn all(args: &DemoArgs, place: &Path) -> Result<Findings, Failure> {
    let interrupted = cast::interrupts();
    let source = place.join("source");
    let made = tree::make(&source, args.seed, args.short);
    made.map_err(|error| Failure::Failed(format!("cannot create the tree: {error}")))?;
    let original = tree::listing(&source)
        .map_err(|error| Failure::Failed(format!("cannot read the tree: {error}")))?;
    let agents = if args.short { AGENTS.1 } else { AGENTS.0 };
    let mut findings = Findings {
        size_bytes: original.bytes(),
        files: original.files(),
        agents,
        limit_rate_bytes_per_s: args.limit.bytes_per_s(),
        runs: Vec::new(),
    };
    if !args.output.quiet {
        out::complain(format!(
            "casting {} files, {}, to {agents} agents on this machine, each limited to {}",
            findings.files,
            Bytes(findings.size_bytes),
            args.limit,
        ));
    }
    for protocol in SHOWN.iter().filter_map(|name| registry::find(name)) {
        if !args.output.quiet {
            out::complain(format!("{}: {}", protocol.name, protocol.about));
        }
        let copies = place.join(protocol.name);
        let run = one(
            args,
            protocol.name,
            agents,
            &source,
            &copies,
            &original,
            &interrupted,
        );
        findings.runs.push(run.await?);
        if *interrupted.borrow() {
            return Err(Failure::Failed("interrupted".to_owned()));
        }
        // The copies stay until the end: an ext4 without a journal passes over the inodes of files
        // removed in the last minutes one by one whenever it creates a file, so copies removed
        // here would slow down the next protocol.
    }
    Ok(findings)
}

/// Casts the tree with one protocol and compares every copy with the source.
async fn one(
    args: &DemoArgs,
    protocol: &'static str,
    agents: usize,
    source: &Path,
    copies: &Path,
    original: &tree::Listing,
    interrupted: &watch::Receiver<bool>,
) -> Result<Run, Failure> {
    std::fs::create_dir(copies)
        .map_err(|error| Failure::Failed(format!("cannot create a directory: {error}")))?;
    let hosts: Vec<(String, PathBuf)> = (1..=agents)
        .map(|n| (format!("agent{n}"), copies.join(format!("agent{n}"))))
        .collect();
    let mut cast = Cast::new(source)
        .reach(reach::local())
        .protocol(protocol)
        .limit(args.limit)
        .seed(args.seed)
        .who("the demonstration")
        .patience(PATIENCE)
        .listen(Ipv4Addr::LOCALHOST.into());
    for (name, path) in &hosts {
        let mut destination = OsString::from(format!("{name}:"));
        destination.push(path);
        cast = cast.to(destination);
    }
    let watchers = Watchers {
        quiet: args.output.quiet,
        ..Watchers::default()
    };
    let report = cast::watched(cast.start()?, interrupted.clone(), watchers).await?;
    let mut faults: Vec<String> = report
        .hosts
        .iter()
        .filter(|host| !host.verified)
        .map(|host| {
            let error = host.error.as_deref().unwrap_or("has not finished");
            format!("{protocol}: {}: {}", host.host, escape(error))
        })
        .collect();
    for (name, path) in &hosts {
        match tree::listing(path) {
            Ok(copy) => {
                let differences = original.differences(&copy);
                faults.extend(
                    differences
                        .iter()
                        .map(|line| format!("{protocol}: {name}: {line}")),
                );
            }
            Err(error) => faults.push(format!("{protocol}: {name}: cannot read the copy: {error}")),
        }
    }
    let limit_s = args.limit.seconds_for(Bytes(original.bytes()));
    Ok(Run {
        protocol,
        finish_s: report.finish_s,
        limit_s,
        ratio: report.finish_s / limit_s,
        verified: faults.is_empty(),
        faults,
    })
}

fn for_people(findings: &Findings) -> String {
    let mut rows = vec![["PROTOCOL", "TIME", "LIMIT", "RATIO", "VERIFIED"].map(str::to_owned)];
    rows.extend(findings.runs.iter().map(|run| {
        [
            run.protocol.to_owned(),
            seconds(run.finish_s),
            seconds(run.limit_s),
            format!("{:.2}", run.ratio),
            if run.verified { "yes" } else { "NO" }.to_owned(),
        ]
    }));
    let rate = Rate::from_bytes_per_s(findings.limit_rate_bytes_per_s).unwrap_or_default();
    format!(
        "{}\n\nThe limit is the time of one copy of {} at {rate}; every agent sends and receives at \
         most at that rate.",
        table(&rows),
        Bytes(findings.size_bytes),
    )
}
