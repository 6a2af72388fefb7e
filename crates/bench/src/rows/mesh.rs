//! Twenty nodes on one machine, each limited in both directions: how close a cast comes to the
//! time of one copy, and what a node that stops in the middle costs the others.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use outpour_core::{Bytes, Rate};
use rustix::process::Signal;

use crate::context::Context;
use crate::data;
use crate::fleet::{Fleet, Host, Report};
use crate::plain;
use crate::result::Measured;

/// Agents beside the source.
const AGENTS: usize = 19;

/// The one that is stopped: in the middle of the line of a chain.
const STOPPED: usize = 9;

const SIZE: Bytes = Bytes(100_000_000);

/// What every node is limited to in each direction.
const RATE: &str = "15 Mbit/s";

/// How long a cast waits for a silent host once the others are done.
const PATIENCE: &str = "10 s";

/// The destination in each agent's directory.
const COPY: &str = "copy";

pub(super) fn chain(context: &Context) -> anyhow::Result<Measured> {
    all(context, "chain")
}

pub(super) fn swarm(context: &Context) -> anyhow::Result<Measured> {
    all(context, "swarm")
}

pub(super) fn chain_stopped(context: &Context) -> anyhow::Result<Measured> {
    one_stopped(context, "chain")
}

pub(super) fn swarm_stopped(context: &Context) -> anyhow::Result<Measured> {
    one_stopped(context, "swarm")
}

/// All nodes run.
fn all(context: &Context, protocol: &str) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let source = place.path().join("file");
    data::file(&source, SIZE)?;
    let plain_s = plain_s(context, &source)?;
    let fleet = Fleet::start(context, place.path(), AGENTS)?;
    let cast = fleet.cast(&source, COPY, &["--protocol", protocol, "--limit", RATE])?;
    let ended = cast.wait(patience()?)?;
    let report = Report::of_complete(&ended)?;
    check(&fleet, &source, |_| true)?;
    let detail = format!(
        "the process took {:.2} s, {:.1} s of them of processor time; the first host had all after \
         {:.2} s; {}",
        ended.wall_s,
        ended.cpu_s,
        finishes(&report.hosts).fold(f64::INFINITY, f64::min),
        received(&report.hosts),
    );
    Ok(measured(report.finish_s, plain_s, detail, ended.command))
}

/// One agent is stopped at half time, and never continued.
fn one_stopped(context: &Context, protocol: &str) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let source = place.path().join("file");
    data::file(&source, SIZE)?;
    let plain_s = plain_s(context, &source)?;
    let fleet = Fleet::start(context, place.path(), AGENTS)?;
    let args = [
        "--protocol",
        protocol,
        "--limit",
        RATE,
        "--patience",
        PATIENCE,
    ];
    let cast = fleet.cast(&source, COPY, &args)?;
    std::thread::sleep(Duration::from_secs_f64(plain_s / 2.0));
    ensure!(
        !cast.has_ended()?,
        "`{}` ended too soon: {}",
        cast.command,
        cast.complaint()
    );
    let stopped = fleet
        .agents
        .get(STOPPED)
        .context("there are too few agents")?;
    stopped.process.signal(Signal::STOP)?;
    let ended = cast.wait(patience()?)?;
    let report = Report::of(&ended)?;
    for (n, host) in report.hosts.iter().enumerate() {
        let error = host.error.as_deref().unwrap_or("no error given");
        ensure!(
            host.verified != (n == STOPPED),
            "`{}`: {} is {}verified: {error}",
            ended.command,
            host.host,
            if host.verified { "" } else { "not " }
        );
    }
    check(&fleet, &source, |n| n != STOPPED)?;
    let last = finishes(&report.hosts).fold(0.0, f64::max);
    let detail = format!(
        "stopped after {:.1} s; the command ended after {:.2} s; {}",
        plain_s / 2.0,
        ended.wall_s,
        received(&report.hosts),
    );
    Ok(measured(last, plain_s, detail, ended.command))
}

fn measured(ours_s: f64, plain_s: f64, detail: String, command: String) -> Measured {
    Measured {
        baseline: format!("{plain_s:.2} s"),
        ours: format!("{ours_s:.2} s"),
        ratio: ours_s / plain_s,
        detail,
        command,
    }
}

/// One plain copy at the same rate, measured once a run.
fn plain_s(context: &Context, source: &Path) -> anyhow::Result<f64> {
    if let Some(seconds) = context.plain_s.get() {
        return Ok(*seconds);
    }
    eprintln!("  one plain copy at {RATE} first");
    let place = context.place()?;
    let copy = place.path().join(COPY);
    let seconds = plain::copy(source, &copy, rate()?)?.seconds;
    ensure!(
        data::hash(source)? == data::hash(&copy)?,
        "the plain copy is not exact"
    );
    Ok(*context.plain_s.get_or_init(|| seconds))
}

/// Fails unless the copies of those agents hash to what the source hashes to.
fn check(fleet: &Fleet, source: &Path, which: impl Fn(usize) -> bool) -> anyhow::Result<()> {
    let expected = data::hash(source)?;
    for (n, agent) in fleet.agents.iter().enumerate().filter(|(n, _)| which(*n)) {
        let path = agent.root.join(COPY);
        let hash = data::hash(&path)?;
        ensure!(
            hash == expected,
            "agent {}: {}: wrong bytes",
            n + 1,
            path.display()
        );
    }
    Ok(())
}

fn finishes(hosts: &[Host]) -> impl Iterator<Item = f64> {
    hosts.iter().filter_map(|host| host.finish_s)
}

/// How much more than the object the hosts received that have it.
fn received(hosts: &[Host]) -> String {
    let complete = || hosts.iter().filter(|host| host.verified);
    let received: u64 = complete().map(|host| host.received_bytes).sum();
    let needed = SIZE.as_f64() * complete().count() as f64;
    format!(
        "{:.2} times the object was received per host",
        received as f64 / needed
    )
}

fn rate() -> anyhow::Result<Rate> {
    Ok(RATE.parse()?)
}

fn patience() -> anyhow::Result<Duration> {
    Ok(plain::patience(SIZE, rate()?))
}
