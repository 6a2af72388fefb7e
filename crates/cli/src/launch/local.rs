//! Agents as child processes of this one, for demonstrations and tests on one machine.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;

use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use tokio::process::Command;

use super::Reaper;

/// Starts each agent as a process of this program that speaks on pipes and listens on loopback.
///
/// A child that loses its parent reads the end of its standard input and ends.
pub(crate) struct LocalLauncher {
    reaper: Reaper,
}

impl LocalLauncher {
    /// A launcher whose children `reaper` ends.
    pub(crate) fn new(reaper: Reaper) -> Self {
        Self { reaper }
    }
}

impl Launcher for LocalLauncher {
    fn launch(&self, _host: usize) -> Launching {
        let reaper = self.reaper.clone();
        Box::pin(async move { start(&reaper) })
    }
}

fn start(reaper: &Reaper) -> Result<ControlStream, LaunchError> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // The link rather than the path: it works when the file was replaced or removed.
    let mut child = Command::new("/proc/self/exe")
        .arg0("outpour")
        .args(["agent", "--stdio", "--data-listen"])
        .arg(loopback.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| LaunchError(format!("cannot start an agent: {error}")))?;
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
