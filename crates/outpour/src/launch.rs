//! Ways to reach the agent of a host: through `ssh`, as a child process, by calling a service, or by
//! entering the node of an emulated network.

mod bootstrap;
mod emulated;
mod explain;
mod keep;
mod local;
mod resolve;
mod service;
mod ssh;
mod tail;

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use outpour_agent::launch::Launcher;
use outpour_core::text::escape;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::bootstrap::Program;
use self::emulated::EmulatedLauncher;
pub use self::keep::{Keep, keep};
use self::local::LocalLauncher;
use self::service::ServiceLauncher;
pub use self::service::{AGENT_PORT, trust_dir, unusable};
use self::ssh::SshLauncher;
use crate::hosts::Destination;

/// How many hosts are being reached at one time.
const LAUNCHES_MAX: usize = 32;

/// How long a child may take to end by itself once its standard input is closed.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long a child that was killed is waited for: one that waits for a hung disk ends with that.
const KILLED: Duration = Duration::from_secs(1);

/// How long all children together are waited for in the end.
const SETTLE: Duration = Duration::from_secs(10);

/// How the agents of hosts are reached.
///
/// An agent's program is one that takes part in a cast when it is called as `PROGRAM agent --stdio`,
/// and ends well as `PROGRAM agent --version`: `outpour`, or a program that asks
/// [`crate::agent::invoked`]. A name without a slash is looked for as shells do. Nothing is assumed
/// about the program that is running.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reach {
    /// As child processes on this machine, which listen on loopback; destinations are paths here,
    /// whatever their hosts are called.
    Local {
        /// The agent's program.
        agent: PathBuf,
    },
    /// Through the system's `ssh`.
    Ssh(Ssh),
    /// By calling services: agents that serve the casts of operators as long as they run.
    Services {
        /// Directory of the operator's identity; [`trust_dir`] without one.
        trust: Option<PathBuf>,
    },
    /// By entering nodes of the emulated network around this process, which are called like the
    /// hosts.
    Emulated {
        /// The agent's program, which enters a node as `outpour exec` does.
        agent: PathBuf,
    },
}

/// How `ssh` is called.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The agent's program, which is copied to hosts that lack it: a self-contained binary for
    /// Linux on this machine's architecture.
    pub agent: PathBuf,
    /// The program that is `ssh`.
    pub program: OsString,
    /// Values for its option `-o`, as ssh_config(5) has them.
    pub options: Vec<OsString>,
}

impl Ssh {
    /// `ssh` as it is found and set up, with this agent's program.
    pub fn new(agent: impl Into<PathBuf>) -> Self {
        Self {
            agent: agent.into(),
            program: "ssh".into(),
            options: Vec::new(),
        }
    }
}

impl Default for Reach {
    /// Through `ssh`, with the agent's program `outpour`.
    fn default() -> Self {
        Self::Ssh(Ssh::new("outpour"))
    }
}

/// Why hosts cannot be reached in this way at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// A destination names a user, and services have their own.
    #[error("{host}: a user applies to ssh only; an agent runs as its own user")]
    User {
        /// The destination.
        host: String,
    },
    /// There is no directory of identities.
    #[error("HOME is not set; name the directory of the operator's identity")]
    NoHome,
    /// There is no identity in it.
    #[error("{file}: no such file; `outpour trust init` makes it")]
    NoTrust {
        /// What is missing.
        file: String,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Trust(outpour_net::Error),
    /// There is no such program.
    #[error("{program}: no such program on the path")]
    NoProgram {
        /// What was looked for.
        program: String,
    },
    /// The agent's program cannot be read, to be copied to hosts.
    #[error("{program}: cannot read the agent's program to copy it: {error}")]
    Program {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
}

impl Reach {
    /// What starts the agents of these hosts; `reaper` ends the processes that it takes.
    ///
    /// # Errors
    /// If there is no identity to call services with, or no program for the agents.
    pub fn launcher(
        &self,
        hosts: &[Destination],
        reaper: &Reaper,
    ) -> Result<Arc<dyn Launcher>, ReachError> {
        let reaper = reaper.clone();
        Ok(match self {
            Self::Local { agent } => Arc::new(LocalLauncher::new(find(agent)?, reaper)),
            Self::Emulated { agent } => {
                Arc::new(EmulatedLauncher::new(hosts, find(agent)?, reaper))
            }
            Self::Services { trust } => Arc::new(ServiceLauncher::new(hosts, trust.as_deref())?),
            Self::Ssh(ssh) => {
                let agent = find(&ssh.agent)?;
                let program = Program::read(&agent).map_err(|error| ReachError::Program {
                    program: shown(&agent),
                    error,
                })?;
                Arc::new(SshLauncher::new(hosts, ssh.clone(), program, reaper))
            }
        })
    }
}

/// Finds a program as shells do.
fn find(program: &Path) -> Result<PathBuf, ReachError> {
    if program.components().count() != 1 || program.is_absolute() {
        return Ok(program.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&path).map(|directory| directory.join(program));
    let found = found.find(|program| program.is_file());
    found.ok_or_else(|| ReachError::NoProgram {
        program: shown(program),
    })
}

fn shown(path: &Path) -> String {
    escape(&path.display().to_string()).into_owned()
}

/// Ends child processes in the background and knows when all are gone.
#[derive(Clone, Debug, Default)]
pub struct Reaper {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    alive: AtomicUsize,
    gone: Notify,
}

impl Reaper {
    /// Takes charge of a child: it is ended when the guard is dropped.
    fn guard(&self, child: Child) -> ChildGuard {
        self.inner.alive.fetch_add(1, Ordering::Relaxed);
        let alive = Alive(Arc::clone(&self.inner));
        ChildGuard {
            running: Some((child, alive)),
        }
    }

    /// Waits until every child is gone; their guards are dropped, or will be now.
    pub async fn settle(&self) {
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
struct ChildGuard {
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
        Path::new(&format!("/proc/{id}")).exists()
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
