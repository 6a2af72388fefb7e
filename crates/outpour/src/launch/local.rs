//! Agents as child processes of this one, for demonstrations and tests on one machine.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use tokio::process::Command;

use super::{Reaper, shown};

/// Starts each agent as a process that speaks on pipes and listens on loopback.
///
/// A child that loses its parent reads the end of its standard input and ends.
pub(super) struct LocalLauncher {
    agent: Arc<Path>,
    reaper: Reaper,
}

impl LocalLauncher {
    /// A launcher whose children `reaper` ends.
    pub(super) fn new(agent: PathBuf, reaper: Reaper) -> Self {
        let agent = agent.into();
        Self { agent, reaper }
    }
}

impl Launcher for LocalLauncher {
    fn launch(&self, _host: usize) -> Launching {
        let (agent, reaper) = (Arc::clone(&self.agent), self.reaper.clone());
        Box::pin(async move { start(&agent, &reaper) })
    }
}

fn start(agent: &Path, reaper: &Reaper) -> Result<ControlStream, LaunchError> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut child = Command::new(agent)
        .arg0("outpour")
        .args(["agent", "--stdio", "--data-listen"])
        .arg(loopback.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            LaunchError(format!("{}: cannot start an agent: {error}", shown(agent)))
        })?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(writer), Some(reader)) => Ok(ControlStream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            host_addrs: vec![loopback],
            seen_from: Some(loopback),
            guard: Box::new(reaper.guard(child)),
        }),
        _ => Err(LaunchError(
            "the agent was started without pipes".to_owned(),
        )),
    }
}
