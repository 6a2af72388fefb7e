//! The signals that end a command, and one that is no reason to end.

use std::time::Duration;

use outpour_system::signals::Origin;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

use crate::out::Failure;

/// Signals closer together than this are one: `timeout` sends its own to the process and to its
/// group, and no finger is that quick.
const TWICE_MIN: Duration = Duration::from_millis(250);

/// Listens to interrupts, hangups and requests to terminate.
pub(crate) struct Ends {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    /// Nothing for a process that is to outlive its terminal, as with `nohup`.
    hangup: Option<unix::Signal>,
    origin: Origin,
    last: Option<Instant>,
}

/// A request that a command ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) signal: Signal,
    /// Sent to this process, not by a terminal to all in its foreground.
    pub(crate) by_process: bool,
}

impl Ends {
    /// Listens from now on; until then these signals end the program at once.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |error| Failure::Failed(format!("cannot listen for signals: {error}"));
        let stays = ignored(Signal::HUP);
        let mut noted = vec![Signal::INT.as_raw(), Signal::TERM.as_raw()];
        if !stays {
            noted.push(Signal::HUP.as_raw());
        }
        // Before those that wake us up, so that it is known by then.
        let origin = Origin::note(&noted).map_err(failed)?;
        let listen = |kind| unix::signal(kind).map_err(failed);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: (!stays).then(|| listen(SignalKind::hangup())).transpose()?,
            origin,
            last: None,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> End {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            let signal = tokio::select! {
                _ = self.interrupt.recv() => Signal::INT,
                _ = self.terminate.recv() => Signal::TERM,
                _ = hangup => Signal::HUP,
            };
            let by_process = self.origin.take();
            let now = Instant::now();
            if self.last.is_none_or(|last| now - last >= TWICE_MIN) {
                self.last = Some(now);
                return End { signal, by_process };
            }
        }
    }
}

/// Makes a write beyond the limit on the size of files fail like any other; by default it ends the
/// program, and with an agent every cast it serves.
///
/// The signal is caught and not ignored, so that programs we start have it as it was.
///
/// # Errors
/// If the system refuses.
pub(crate) fn survive_large_files() -> std::io::Result<()> {
    Origin::note(&[Signal::XFSZ.as_raw()]).map(drop)
}

/// Whether this process was started with the signal ignored.
fn ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}
