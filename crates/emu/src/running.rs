//! A command inside an emulation, with all it starts, and how to end it.

use std::io;
use std::process::ExitStatus;
use std::thread;

use rustix::process::{Pid, Signal};

use crate::process::{self, Stat};

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
    /// Asks the command to end as a terminal would: sends the signal to it, and to all inside that
    /// belong to this process's group. Returns whether there was any.
    pub fn signal(self, signal: Signal) -> bool {
        let group = rustix::process::getpgrp().as_raw_pid().unsigned_abs();
        let is_meant = |pid: &u32| {
            let asked = |stat: Stat| stat.parent == self.pid || stat.group == group;
            *pid != self.pid && Stat::of(*pid).is_some_and(asked)
        };
        let all = process::together_with(self.pid).into_iter();
        let sent = all.filter(is_meant).filter(|pid| send(*pid, signal));
        sent.count() > 0
    }

    /// Ends the command and everything it started, at once.
    pub fn kill(self) {
        // One that is gone already is as good.
        let _ = send(self.pid, Signal::KILL);
    }
}

/// Sends a signal; `false` if there is no such process any more.
fn send(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
}
