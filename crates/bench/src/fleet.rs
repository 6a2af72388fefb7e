//! Agents as services on loopback, each a process with its own port and directory, and casts to
//! them: the product as a user would run it, nothing of it linked into this program.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use crate::context::Context;
use crate::process::{Ended, Process, typed};

/// How the host is called that all agents are on.
const HOST: &str = "127.0.0.1";

/// For commands that only write a file or two.
const SOON: Duration = Duration::from_secs(30);

/// Running agents, and what it takes to call them.
#[derive(Debug)]
pub(crate) struct Fleet {
    outpour: PathBuf,
    place: PathBuf,
    pub(crate) agents: Vec<Agent>,
}

/// One agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) process: Process,
    /// It writes only beneath this.
    pub(crate) root: PathBuf,
    port: u16,
}

/// The JSON document of a cast, what of it is needed here.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) size_bytes: u64,
    pub(crate) finish_s: f64,
    pub(crate) hosts: Vec<Host>,
}

/// One host in it.
#[derive(Debug, Deserialize)]
pub(crate) struct Host {
    pub(crate) host: String,
    pub(crate) finish_s: Option<f64>,
    pub(crate) verified: bool,
    pub(crate) received_bytes: u64,
    pub(crate) error: Option<String>,
}

impl Fleet {
    /// Starts `count` agents with directories beneath `place`, and waits until all can be called.
    ///
    /// # Errors
    /// If one does not start.
    pub(crate) fn start(context: &Context, place: &Path, count: usize) -> anyhow::Result<Self> {
        Self::start_with(context, place, count, &[])
    }

    /// As [`Self::start`], with these arguments for each agent.
    ///
    /// # Errors
    /// If one does not start.
    pub(crate) fn start_with(
        context: &Context,
        place: &Path,
        count: usize,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let mut fleet = Self {
            outpour: context.outpour.clone(),
            place: place.to_owned(),
            agents: Vec::with_capacity(count),
        };
        let trust = fleet.trust().display().to_string();
        fleet.command(&["trust", "init", "--trust", &trust])?;
        for n in 0..count {
            fleet.add(n, &trust, args)?;
        }
        fleet.agents.iter().try_for_each(Agent::ready)?;
        Ok(fleet)
    }

    fn add(&mut self, n: usize, trust: &str, more: &[&str]) -> anyhow::Result<()> {
        let root = root(&self.place, n);
        std::fs::create_dir_all(&root)?;
        let identity = self.place.join(format!("identity{:02}", n + 1));
        let identity = identity.display().to_string();
        self.command(&[
            "trust", "issue", HOST, "--output", &identity, "--trust", trust,
        ])?;
        let port = free_port()?;
        let listen = format!("{HOST}:{port}");
        let shown = root.display().to_string();
        let mut args = vec![
            "agent",
            "--listen",
            &listen,
            "--identity",
            &identity,
            "--root",
            &shown,
        ];
        args.extend(more);
        let name = format!("agent{:02}", n + 1);
        let process = Process::start(&self.outpour, &args, &self.place, &name)?;
        self.agents.push(Agent {
            process,
            root,
            port,
        });
        Ok(())
    }

    /// Begins a cast of `source` to every agent, where it will be `leaf` in the agent's directory.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub(crate) fn cast(&self, source: &Path, leaf: &str, args: &[&str]) -> anyhow::Result<Process> {
        let destinations: Vec<String> = self
            .agents
            .iter()
            .map(|agent| format!("{HOST}:{}:{}", agent.port, agent.root.join(leaf).display()))
            .collect();
        let (source, trust) = (
            source.display().to_string(),
            self.trust().display().to_string(),
        );
        let mut words: Vec<&str> = vec!["cast", &source];
        words.extend(destinations.iter().map(String::as_str));
        words.extend(["--agents", "--trust", &trust, "--json"]);
        words.extend(args);
        // Several may run at a time, each with its own output.
        let name = format!("cast-{leaf}");
        let mut process = Process::start(&self.outpour, &words, &self.place, &name)?;
        process.command = self.shown(&source, leaf, args);
        Ok(process)
    }

    /// Processor time of all agents until now.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        self.agents.iter().map(|agent| agent.process.cpu_s()).sum()
    }

    /// The command line without directories that are gone when it is read.
    fn shown(&self, source: &str, leaf: &str, args: &[&str]) -> String {
        let name = Path::new(source)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let destination = match self.agents.len() {
            1 => format!("{HOST}:PORT:/DIR/{leaf}"),
            many => format!("{HOST}:PORT[01-{many}]:/DIR[01-{many}]/{leaf}"),
        };
        let mut words = vec!["cast", &name, &destination, "--agents", "--json"];
        words.extend(args);
        typed(&self.outpour, &words)
    }

    fn trust(&self) -> PathBuf {
        self.place.join("trust")
    }

    fn command(&self, args: &[&str]) -> anyhow::Result<()> {
        let process = Process::start(&self.outpour, args, &self.place, "command")?;
        process.wait(SOON)?.success()?;
        Ok(())
    }
}

impl Agent {
    /// Waits until it takes calls.
    fn ready(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let ended = self.process.has_ended()?;
            if ended || started.elapsed() > SOON {
                let command = &self.process.command;
                bail!("`{command}` takes no calls: {}", self.process.complaint());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Report {
    /// Reads it from the standard output of a cast that ended, well or not.
    ///
    /// # Errors
    /// If there is no such document.
    pub(crate) fn of(ended: &Ended) -> anyhow::Result<Self> {
        serde_json::from_str(&ended.stdout).with_context(|| {
            let Ended {
                command,
                status,
                stdout,
                stderr,
                ..
            } = ended;
            format!("`{command}`: {status}, printed no report: {stdout}{stderr}")
        })
    }

    /// Reads it, and fails unless every host has verified every byte and received it in this cast.
    ///
    /// # Errors
    /// If there is none, or some host failed.
    pub(crate) fn of_complete(ended: &Ended) -> anyhow::Result<Self> {
        let report = Self::of(ended)?;
        for host in &report.hosts {
            let error = host.error.as_deref().unwrap_or("not verified");
            ensure!(host.verified, "`{}`: {}: {error}", ended.command, host.host);
            ensure!(
                host.received_bytes >= report.size_bytes,
                "`{}`: {}: received {} of {} bytes",
                ended.command,
                host.host,
                host.received_bytes,
                report.size_bytes
            );
        }
        ensure!(
            ended.status.success(),
            "`{}`: {}",
            ended.command,
            ended.status
        );
        Ok(report)
    }
}

/// The directory of the `n`-th agent of a fleet in `place`; a disk may be mounted there before.
pub(crate) fn root(place: &Path, n: usize) -> PathBuf {
    place.join(format!("node{:02}", n + 1))
}

/// A port on which no process listens at the moment.
///
/// # Errors
/// If there is none.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
