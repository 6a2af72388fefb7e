//! Leaves nothing behind: no process, no data, however the run ends short of SIGKILL.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program ended by Ctrl-C, as shells have it.
const EXIT_INTERRUPTED: i32 = 130;

/// What must go when the run ends.
#[derive(Debug)]
struct Mess {
    processes: Vec<Pid>,
    places: Vec<PathBuf>,
}

static MESS: Mutex<Mess> = Mutex::new(Mess {
    processes: Vec::new(),
    places: Vec::new(),
});

fn mess() -> MutexGuard<'static, Mess> {
    // A panic elsewhere must not keep the rest from being cleaned up.
    MESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cleans up when a signal asks this program to end.
///
/// # Errors
/// If no thread or no signal handler can be had.
pub(crate) fn install() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot wait for signals")?;
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [interrupt, terminate, hangup] = {
        let _inside = runtime.enter();
        kinds.map(signal)
    };
    let (mut interrupt, mut terminate, mut hangup) = (interrupt?, terminate?, hangup?);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        // Held to the end, so that nothing new is started.
        let mess = mess();
        eprintln!("outpour-bench: interrupted; cleaning up");
        sweep(&mess);
        std::process::exit(EXIT_INTERRUPTED);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}

fn sweep(mess: &Mess) {
    for pid in &mess.processes {
        let _ = kill_process(*pid, Signal::KILL);
    }
    for place in &mess.places {
        // A process that is just dying may still create a file; a second look finds it.
        for _ in 0..2 {
            let _ = std::fs::remove_dir_all(place);
        }
    }
}

/// Starts a process that ends with this program.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<(Child, Pid)> {
    let mut mess = mess();
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    mess.processes.push(pid);
    Ok((child, pid))
}

/// Notes that a process has ended; before it is reaped, while its number is surely its own.
pub(crate) fn ended(pid: Pid) {
    mess().processes.retain(|known| *known != pid);
}

/// A directory that is removed with this program.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
}

impl Place {
    /// A new directory beneath `base`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn new(base: &Path) -> anyhow::Result<Self> {
        let mut mess = mess();
        let path = tempfile::Builder::new()
            .prefix("outpour-bench-")
            .tempdir_in(base)
            .with_context(|| format!("{}: no directory can be made here", base.display()))?
            .keep();
        mess.places.push(path.clone());
        Ok(Self { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{}: cannot remove: {error}", self.path.display());
        }
        mess().places.retain(|known| *known != self.path);
    }
}
