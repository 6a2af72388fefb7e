//! Agents on the nodes of an emulated network, entered through `outpour exec`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use outpour_core::text::escape;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::tail::Tail;
use super::{LAUNCHES_MAX, Reaper, shown};
use crate::hosts::Destination;

/// How long `outpour exec` may take to say why it ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Starts each agent in the namespace of its node.
pub(super) struct EmulatedLauncher {
    hosts: Arc<[Destination]>,
    agent: Arc<Path>,
    permits: Arc<Semaphore>,
    reaper: Reaper,
}

impl EmulatedLauncher {
    /// A launcher for the hosts of a cast, each called like its node.
    pub(super) fn new(hosts: &[Destination], agent: PathBuf, reaper: Reaper) -> Self {
        Self {
            hosts: hosts.into(),
            agent: agent.into(),
            permits: Arc::new(Semaphore::new(LAUNCHES_MAX)),
            reaper,
        }
    }
}

impl Launcher for EmulatedLauncher {
    fn launch(&self, host: usize) -> Launching {
        let destination = self.hosts.get(host).cloned();
        let (permits, reaper) = (Arc::clone(&self.permits), self.reaper.clone());
        let agent = Arc::clone(&self.agent);
        Box::pin(async move {
            let _permit = permits.acquire().await;
            match destination {
                Some(destination) => start(&destination, &agent, &reaper).await,
                None => Err(LaunchError(format!("there is no host {host}"))),
            }
        })
    }
}

async fn start(
    host: &Destination,
    agent: &Path,
    reaper: &Reaper,
) -> Result<ControlStream, LaunchError> {
    let failed = |error| LaunchError(format!("cannot start `{} exec`: {error}", shown(agent)));
    let node = host.node.as_deref().unwrap_or(&host.host);
    let mut child = Command::new(agent)
        .args(["exec", node])
        .arg(agent)
        .args(["agent", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its own group: Ctrl-C is for this process, which then ends it in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (Some(writer), Some(reader), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(LaunchError(
            "outpour exec: started without pipes".to_owned(),
        ));
    };
    let mut tail = Tail::follow(errors);
    let mut reader = BufReader::new(reader);
    let child = reaper.guard(child);
    // An agent greets first; an end instead means that it never came to be.
    if !matches!(reader.fill_buf().await, Ok([_, ..])) {
        let said = tail.finish(LAST_WORDS).await;
        let last = said.trim().lines().last().unwrap_or_default();
        // Programs begin with their name, which says nothing here.
        let last = match last.split_once(": ") {
            Some((name, why)) if name.starts_with("outpour") => why,
            _ => last,
        };
        return Err(LaunchError(format!("no agent there: {}", escape(last))));
    }
    Ok(ControlStream {
        reader: Box::new(reader),
        writer: Box::new(writer),
        // What the agent says of itself is right here: nothing translates addresses.
        host_addrs: Vec::new(),
        seen_from: None,
        guard: Box::new((child, tail)),
    })
}
