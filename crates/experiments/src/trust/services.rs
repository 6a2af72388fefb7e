//! Agents that run as services on nodes of an emulated network.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::site::{Order, Site};
use super::usage::listening;
use crate::ExperimentError;
use crate::lab::Running;

type Outcome<T> = Result<T, ExperimentError>;

/// The port of operators.
const PORT: u16 = 7741;
const READY_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Agents that run as long as this is kept, by node.
pub(super) struct Services(Vec<(String, Running)>);

impl Services {
    /// Starts an agent on each node, and waits until all take calls. Operators use the directory `trust`
    /// of the lab.
    pub(super) fn start(site: &Site<'_>, nodes: &[String]) -> Outcome<Self> {
        trust(site, &["init"])?;
        let mut services = Self(Vec::new());
        for node in nodes {
            let identity = identity(site, node).display().to_string();
            trust(site, &["issue", node, "--output", &identity])?;
            let root = root(site, node);
            std::fs::create_dir_all(&root).map_err(|e| ExperimentError::file(&root, &e))?;
            services.run(site, node)?;
        }
        nodes.iter().try_for_each(|node| await_calls(site, node))?;
        Ok(services)
    }

    fn run(&mut self, site: &Site<'_>, node: &str) -> Outcome<()> {
        let mut command = site.command(node);
        command
            .args(["agent", "--identity"])
            .arg(identity(site, node));
        command.arg("--root").arg(root(site, node));
        let running = site.lab.start(command, &format!("agent-{node}"))?;
        self.0.push((node.to_owned(), running));
        Ok(())
    }

    /// Kills the agent of a node as a crash does, and starts it again.
    pub(super) fn crash(&mut self, site: &Site<'_>, node: &str) -> Outcome<()> {
        if let Some(agent) = site.process("agent", node) {
            agent.kill()?;
        }
        self.0.retain(|(known, _)| known != node);
        let begun = Instant::now();
        while site.process("agent", node).is_some() && begun.elapsed() < READY_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        self.run(site, node)?;
        await_calls(site, node)
    }
}

/// A cast from a node to the agents on others, with these options besides.
pub(super) fn order<'a>(
    site: &Site<'_>,
    name: &str,
    (from, source): (&'a str, &'a Path),
    hosts: Vec<String>,
    options: &[&str],
) -> Order<'a> {
    let trust = site.lab.path("trust").display().to_string();
    let own = ["--agents", "--trust", &trust];
    let options = own.iter().chain(options);
    Order {
        source,
        from,
        hosts,
        options: options.map(ToString::to_string).collect(),
        environment: Vec::new(),
        name: name.to_owned(),
    }
}

/// Beneath which directory the agent of a node writes.
pub(super) fn root(site: &Site<'_>, node: &str) -> PathBuf {
    site.lab.path("hosts").join(node)
}

fn identity(site: &Site<'_>, node: &str) -> PathBuf {
    site.lab.path(&format!("identity-{node}"))
}

fn trust(site: &Site<'_>, args: &[&str]) -> Outcome<String> {
    let mut command = Command::new(site.lab.program());
    command
        .arg("trust")
        .args(args)
        .arg("--trust")
        .arg(site.lab.path("trust"));
    site.lab.output(command, READY_MAX)
}

fn await_calls(site: &Site<'_>, node: &str) -> Outcome<()> {
    let begun = Instant::now();
    loop {
        let agent = site.process("agent", node);
        if agent.is_some_and(|agent| listening(agent.pid).contains(&PORT)) {
            return Ok(());
        }
        if begun.elapsed() > READY_MAX {
            let why = format!("the agent on {node} takes no calls");
            return Err(ExperimentError::Setup(why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
