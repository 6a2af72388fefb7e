//! Nodes on one machine, each limited in both directions: how close a cast comes to the time of one
//! copy, and what a node that stops in the middle costs the others.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use outpour_core::{Bytes, Rate};
use rustix::process::Signal;

use crate::context::Context;
use crate::data;
use crate::fleet::{Agent, Fleet, Host, Report};
use crate::plain;
use crate::process::Ended;
use crate::result::Measured;

/// The nodes of these rows.
const MESH: Mesh = Mesh {
    agents: 19,
    size: Bytes(100_000_000),
    rate: "15 Mbit/s",
    patience: "10 s",
};

/// The destination in each agent's directory.
const COPY: &str = "copy";

/// A source and agents, all limited alike, and what is cast to them.
#[derive(Debug)]
pub(super) struct Mesh {
    /// Agents beside the source.
    pub(super) agents: usize,
    pub(super) size: Bytes,
    /// What every node is limited to in each direction.
    pub(super) rate: &'static str,
    /// How long a cast waits for a silent host once the others are done.
    pub(super) patience: &'static str,
}

/// A cast on the way of which one agent failed, and that all others have.
#[derive(Debug)]
pub(super) struct Survived {
    /// When the last of the others had it.
    pub(super) last_s: f64,
    /// From the failure to the end of the command.
    pub(super) after_s: f64,
    pub(super) hosts: Vec<Host>,
    pub(super) ended: Ended,
}

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
    data::file(&source, MESH.size)?;
    let plain_s = plain_s(context, &source)?;
    let fleet = Fleet::start(context, place.path(), MESH.agents)?;
    let (report, ended) = MESH.cast(&fleet, &source, &MESH.limited(protocol))?;
    let detail = format!(
        "the process took {:.2} s, {:.1} s of them of processor time; the first host had all after \
         {:.2} s; {}",
        ended.wall_s,
        ended.cpu_s,
        report
            .hosts
            .iter()
            .filter_map(|host| host.finish_s)
            .fold(f64::INFINITY, f64::min),
        MESH.received(&report.hosts),
    );
    Ok(measured(report.finish_s, plain_s, detail, ended.command))
}

/// One agent is stopped at half time, and never continued.
fn one_stopped(context: &Context, protocol: &str) -> anyhow::Result<Measured> {
    let place = context.place()?;
    let source = place.path().join("file");
    data::file(&source, MESH.size)?;
    let plain_s = plain_s(context, &source)?;
    let fleet = Fleet::start(context, place.path(), MESH.agents)?;
    let half_s = plain_s / 2.0;
    let stop = |agent: &Agent| agent.process.signal(Signal::STOP);
    let cast = MESH.cast_losing_one(&fleet, &source, protocol, half_s, stop)?;
    let detail = format!(
        "stopped after {half_s:.1} s; the command ended after {:.2} s; {}",
        cast.ended.wall_s,
        MESH.received(&cast.hosts),
    );
    Ok(measured(cast.last_s, plain_s, detail, cast.ended.command))
}

impl Mesh {
    /// The agent that fails if one does: in the middle of the line of a chain.
    pub(super) fn middle(&self) -> usize {
        self.agents / 2
    }

    /// The arguments of a cast at the rate of the nodes.
    fn limited<'a>(&self, protocol: &'a str) -> [&'a str; 4] {
        ["--protocol", protocol, "--limit", self.rate]
    }

    /// The same for a cast with patience for a host that fails.
    pub(super) fn patient<'a>(&self, protocol: &'a str) -> Vec<&'a str> {
        [&self.limited(protocol)[..], &["--patience", self.patience]].concat()
    }

    /// Casts `source` to all agents, and compares all copies with it.
    pub(super) fn cast(
        &self,
        fleet: &Fleet,
        source: &Path,
        args: &[&str],
    ) -> anyhow::Result<(Report, Ended)> {
        let ended = fleet.cast(source, COPY, args)?.wait(self.longest()?)?;
        let report = Report::of_complete(&ended)?;
        check(fleet, source, |_| true)?;
        Ok((report, ended))
    }

    /// Casts `source`, has `fail` make the agent in the middle fail after `half_s`, for as long as
    /// what it returns is held, which is to the end of the command, and compares the other copies.
    pub(super) fn cast_losing_one<T>(
        &self,
        fleet: &Fleet,
        source: &Path,
        protocol: &str,
        half_s: f64,
        fail: impl FnOnce(&Agent) -> anyhow::Result<T>,
    ) -> anyhow::Result<Survived> {
        let cast = fleet.cast(source, COPY, &self.patient(protocol))?;
        std::thread::sleep(Duration::from_secs_f64(half_s));
        ensure!(
            !cast.has_ended()?,
            "`{}` ended too soon: {}",
            cast.command,
            cast.complaint()
        );
        let agent = fleet
            .agents
            .get(self.middle())
            .context("there are too few agents")?;
        let since = Instant::now();
        let failed = fail(agent)?;
        let ended = cast.wait(self.longest()?)?;
        let after_s = since.elapsed().as_secs_f64();
        drop(failed);
        let hosts = Report::of(&ended)?.hosts;
        for (n, host) in hosts.iter().enumerate() {
            let error = host.error.as_deref().unwrap_or("no error given");
            ensure!(
                host.verified != (n == self.middle()),
                "`{}`: {} is {}verified: {error}",
                ended.command,
                host.host,
                if host.verified { "" } else { "not " }
            );
        }
        check(fleet, source, |n| n != self.middle())?;
        Ok(Survived {
            last_s: self.last_s(&hosts),
            after_s,
            hosts,
            ended,
        })
    }

    /// When the last of the hosts beside the one in the middle had all.
    pub(super) fn last_s(&self, hosts: &[Host]) -> f64 {
        let others = hosts
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != self.middle());
        others
            .filter_map(|(_, host)| host.finish_s)
            .fold(0.0, f64::max)
    }

    /// How much more than the object the hosts received that have it.
    pub(super) fn received(&self, hosts: &[Host]) -> String {
        let complete = || hosts.iter().filter(|host| host.verified);
        let received: u64 = complete().map(|host| host.received_bytes).sum();
        let needed = self.size.as_f64() * complete().count() as f64;
        format!(
            "{:.2} times the object was received per host",
            received as f64 / needed
        )
    }

    /// How long a cast may take before something is wrong.
    fn longest(&self) -> anyhow::Result<Duration> {
        Ok(plain::patience(self.size, self.rate.parse()?))
    }
}

/// A row whose figures are seconds.
pub(super) fn measured(ours_s: f64, baseline_s: f64, detail: String, command: String) -> Measured {
    Measured {
        baseline: format!("{baseline_s:.2} s"),
        ours: format!("{ours_s:.2} s"),
        ratio: ours_s / baseline_s,
        detail,
        command,
    }
}

/// One plain copy at the same rate, measured once a run.
fn plain_s(context: &Context, source: &Path) -> anyhow::Result<f64> {
    if let Some(seconds) = context.plain_s.get() {
        return Ok(*seconds);
    }
    eprintln!("  one plain copy at {} first", MESH.rate);
    let place = context.place()?;
    let copy = place.path().join(COPY);
    let seconds = plain::copy(source, &copy, MESH.rate.parse::<Rate>()?)?.seconds;
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
