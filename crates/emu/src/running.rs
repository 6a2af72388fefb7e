//! A command inside an emulation, with all it starts, and how to end it.

use std::io;
use std::process::ExitStatus;
use std::thread;

use rustix::process::{Pid, Signal};

/// A command running in an emulation.
pub struct Running {
    pub(crate) thread: thread::JoinHandle<io::Result<ExitStatus>>,
    pub(crate) pid: u32,
}

impl Running {
    /// Something that ends it from elsewhere, with everything it started.
    pub fn killer(&self) -> Killer {
        Killer { pid: self.pid }
    }

    /// Waits for its end. Every other process inside has ended by then, too.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(self) -> io::Result<ExitStatus> {
        let panicked = |_| Err(io::Error::other("its thread panicked"));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Ends a running command.
#[derive(Clone, Copy, Debug)]
pub struct Killer {
    pid: u32,
}

impl Killer {
    /// Ends the command and everything it started, at once.
    pub fn kill(self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // One that is gone already is as good.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
