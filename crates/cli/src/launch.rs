//! Ways to reach the agent of a host: through `ssh`, as a child process, by calling a daemon, or by
//! entering the node of an emulated network.

pub(crate) mod bootstrap;
pub(crate) mod daemon;
pub(crate) mod emulated;
mod explain;
pub(crate) mod local;
mod resolve;
pub(crate) mod ssh;
mod tail;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outpour_agent::launch::Launcher;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::daemon::DaemonLauncher;
use self::emulated::EmulatedLauncher;
use self::ssh::{SshLauncher, SshOptions};
use crate::args::Reach;
use crate::emulation;
use crate::hosts::Destination;
use crate::out::Failure;

/// How many hosts are being reached at one time.
pub(crate) const LAUNCHES_MAX: usize = 32;

/// How long a child may take to end by itself once its standard input is closed.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long a child that was killed is waited for: one that waits for a hung disk ends with that.
const KILLED: Duration = Duration::from_secs(1);

/// How long all children together are waited for in the end.
const SETTLE: Duration = Duration::from_secs(10);

/// The way to reach these hosts: as asked for, and by `outpour exec` inside an emulation.
///
/// # Errors
/// If there is no identity to call agents with, or this program cannot be read to be copied.
pub(crate) fn to(
    hosts: &[Destination],
    reach: &Reach,
    reaper: &Reaper,
) -> Result<Arc<dyn Launcher>, Failure> {
    if reach.agents {
        let launcher = DaemonLauncher::new(hosts, reach.trust.dir.as_deref())?;
        return Ok(Arc::new(launcher));
    }
    if emulation::state().is_some() {
        return Ok(Arc::new(EmulatedLauncher::new(hosts, reaper.clone())));
    }
    let options = SshOptions {
        program: reach.ssh.clone(),
        options: reach.ssh_option.clone(),
    };
    let launcher = SshLauncher::new(hosts, options, reaper.clone());
    Ok(Arc::new(launcher.map_err(|error| {
        Failure::Failed(format!("cannot read this program to copy it: {error}"))
    })?))
}

/// Ends child processes in the background and knows when all are gone.
#[derive(Clone, Default)]
pub(crate) struct Reaper {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    alive: AtomicUsize,
    gone: Notify,
}

impl Reaper {
    /// Takes charge of a child: it is ended when the guard is dropped.
    pub(crate) fn guard(&self, child: Child) -> ChildGuard {
        self.inner.alive.fetch_add(1, Ordering::Relaxed);
        let alive = Alive(Arc::clone(&self.inner));
        ChildGuard {
            running: Some((child, alive)),
        }
    }

    /// Waits until every child is gone; their guards are dropped, or will be now.
    pub(crate) async fn settle(&self) {
        let gone = async {
            loop {
                let gone = self.inner.gone.notified();
                if self.inner.alive.load(Ordering::Acquire) == 0 {
                    return;
                }
                gone.await;
            }
        };
        if timeout(SETTLE, gone).await.is_err() {
            tracing::debug!("some child processes have not ended");
        }
    }
}

/// Counts a child while it may run.
struct Alive(Arc<Inner>);

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.gone.notify_waiters();
        }
    }
}

/// A running child process; dropping it ends the child.
pub(crate) struct ChildGuard {
    running: Option<(Child, Alive)>,
}

impl ChildGuard {
    /// The status the child ended with, if it does within `patience`.
    async fn status(&mut self, patience: Duration) -> Option<i32> {
        let (child, _) = self.running.as_mut()?;
        timeout(patience, child.wait()).await.ok()?.ok()?.code()
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Without a runtime the child is killed as it is dropped.
        let (Some((mut child, alive)), Ok(runtime)) =
            (self.running.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            drop(child.stdin.take());
            if timeout(FAREWELL, child.wait()).await.is_err() {
                let _ = timeout(KILLED, child.kill()).await;
            }
            drop(alive);
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Stdio;
    use std::time::Instant;

    use tokio::process::Command;

    use super::*;

    /// Whether a process runs; one that ended and was waited for does not.
    fn runs(id: u32) -> bool {
        std::path::Path::new(&format!("/proc/{id}")).exists()
    }

    #[tokio::test]
    async fn children_end_by_themselves_or_are_killed() {
        let reaper = Reaper::default();
        let spawn = |program: &str, argument: &str| {
            let mut command = Command::new(program);
            command
                .arg(argument)
                .stdin(Stdio::piped())
                .stdout(Stdio::null());
            command.kill_on_drop(true).spawn().unwrap()
        };
        let polite = spawn("cat", "-");
        let stubborn = spawn("sleep", "1000");
        let ids = [polite.id().unwrap(), stubborn.id().unwrap()];
        let guards = [reaper.guard(polite), reaper.guard(stubborn)];
        assert!(ids.iter().all(|id| runs(*id)));
        let start = Instant::now();
        drop(guards);
        reaper.settle().await;
        assert!(ids.iter().all(|id| !runs(*id)));
        assert!(start.elapsed() >= FAREWELL && start.elapsed() < SETTLE);
        reaper.settle().await;
    }
}
