//! Ways to reach the agent of a host: through `ssh`, as a child process, or by calling a daemon.

pub(crate) mod bootstrap;
pub(crate) mod daemon;
mod explain;
pub(crate) mod local;
mod resolve;
pub(crate) mod ssh;
mod tail;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::Child;
use tokio::task::JoinHandle;

/// How many hosts are being reached at one time.
pub(crate) const LAUNCHES_MAX: usize = 32;

/// How long a child may take to end by itself once its standard input is closed.
const FAREWELL: Duration = Duration::from_secs(3);

/// Ends child processes in the background and remembers which are not gone yet.
#[derive(Clone, Default)]
pub(crate) struct Reaper {
    ending: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Reaper {
    /// Takes charge of a child: it is ended when the guard is dropped.
    pub(crate) fn guard(&self, child: Child) -> ChildGuard {
        ChildGuard {
            child: Some(child),
            reaper: self.clone(),
        }
    }

    /// Waits until every child whose guard was dropped is gone.
    pub(crate) async fn settle(&self) {
        loop {
            let ending = {
                let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *ending)
            };
            if ending.is_empty() {
                return;
            }
            for child in ending {
                // A reaping task neither panics nor is aborted; either would leave no child.
                let _ = child.await;
            }
        }
    }
}

/// A running child process; dropping it ends the child.
pub(crate) struct ChildGuard {
    child: Option<Child>,
    reaper: Reaper,
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // Without a runtime the child is killed as it is dropped.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let task = runtime.spawn(async move {
            drop(child.stdin.take());
            if tokio::time::timeout(FAREWELL, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        });
        let mut ending = self
            .reaper
            .ending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ending.retain(|task| !task.is_finished());
        ending.push(task);
    }
}
