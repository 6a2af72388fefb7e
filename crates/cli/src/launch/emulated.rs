//! Agents on the nodes of an emulated network, entered through `outpour exec`.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::launch::{ControlStream, LaunchError, Launcher, Launching};
use outpour_core::text::escape;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::tail::Tail;
use super::{LAUNCHES_MAX, Reaper};
use crate::hosts::Destination;
use crate::out;

/// How long `outpour exec` may take to say why it ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Starts each agent in the namespace of its node.
pub(crate) struct EmulatedLauncher {
    hosts: Arc<[Destination]>,
    permits: Arc<Semaphore>,
    reaper: Reaper,
}

impl EmulatedLauncher {
    /// A launcher for the hosts of a cast, each called like its node.
    pub(crate) fn new(hosts: &[Destination], reaper: Reaper) -> Self {
        Self {
            hosts: hosts.into(),
            permits: Arc::new(Semaphore::new(LAUNCHES_MAX)),
            reaper,
        }
    }
}

impl Launcher for EmulatedLauncher {
    fn launch(&self, host: usize) -> Launching {
        let destination = self.hosts.get(host).cloned();
        let (permits, reaper) = (Arc::clone(&self.permits), self.reaper.clone());
        Box::pin(async move {
            let _permit = permits.acquire().await;
            match destination {
                Some(destination) => start(&destination, &reaper).await,
                None => Err(LaunchError(format!("there is no host {host}"))),
            }
        })
    }
}

async fn start(host: &Destination, reaper: &Reaper) -> Result<ControlStream, LaunchError> {
    let failed = |error| LaunchError(format!("cannot start `outpour exec`: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let node = host.node.as_deref().unwrap_or(&host.host);
    let mut child = Command::new(&program)
        .args(["exec", node])
        .arg(&program)
        .args(["agent", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its own group: Ctrl-C is for us, who then end it in order.
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
        let said_by = format!("{}: ", out::program());
        let last = said.trim().lines().last().unwrap_or_default();
        let last = last.strip_prefix(&said_by).unwrap_or(last);
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
