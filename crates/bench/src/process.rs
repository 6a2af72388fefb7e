//! Processes under measurement: time, processor time and peak memory, and an end to each.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use outpour_core::Bytes;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::cleanup;

/// How often a process is looked at: the error of its time.
const LOOK: Duration = Duration::from_millis(2);

/// Between looks at its memory.
const LOOK_MEMORY: Duration = Duration::from_millis(50);

/// How much of what a process complained about is repeated.
const COMPLAINT_MAX: usize = 1500;

/// A process, killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    started: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
    /// The command line, as a user would type it.
    pub(crate) command: String,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) wall_s: f64,
    /// User and system time of all its threads.
    pub(crate) cpu_s: f64,
    /// The most memory it had resident, as last seen.
    pub(crate) peak: Bytes,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) command: String,
}

impl Process {
    /// Starts `program`; what it prints goes to files in `place`, named by `name`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start<A: AsRef<OsStr>>(
        program: &Path,
        args: &[A],
        place: &Path,
        name: &str,
    ) -> anyhow::Result<Self> {
        let stdout = place.join(format!("{name}.out"));
        let stderr = place.join(format!("{name}.err"));
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        let started = Instant::now();
        let (child, pid) = cleanup::spawn(&mut command)
            .with_context(|| format!("{}: cannot be started", program.display()))?;
        Ok(Self {
            child,
            pid,
            started,
            stdout,
            stderr,
            command: typed(program, args),
        })
    }

    /// Waits until it ends, whatever its exit code.
    ///
    /// # Errors
    /// If it runs longer than `patience`.
    pub(crate) fn wait(mut self, patience: Duration) -> anyhow::Result<Ended> {
        let (mut peak, mut looked) = (Bytes::ZERO, None::<Instant>);
        while !self.has_ended()? {
            if looked.is_none_or(|at| at.elapsed() >= LOOK_MEMORY) {
                peak = self.peak().unwrap_or(peak);
                looked = Some(Instant::now());
            }
            let waited = self.started.elapsed();
            ensure!(
                waited < patience,
                "`{}` has not ended after {:.0} s: {}",
                self.command,
                waited.as_secs_f64(),
                self.complaint()
            );
            std::thread::sleep(LOOK);
        }
        let wall_s = self.started.elapsed().as_secs_f64();
        // Its accounts are there until it is reaped.
        let cpu_s = self.cpu_s()?;
        cleanup::ended(self.pid);
        let status = self.child.wait()?;
        Ok(Ended {
            status,
            wall_s,
            cpu_s,
            peak,
            stdout: std::fs::read_to_string(&self.stdout)?,
            stderr: self.complaint(),
            command: self.command.clone(),
        })
    }

    /// Whether it has ended; it is not reaped.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn has_ended(&self) -> anyhow::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Seconds of processor time it has had until now.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        let stat = std::fs::read_to_string(&path)?;
        let ticks = ticks(&stat).with_context(|| format!("{path}: unexpected content"))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The most memory it has had resident until now.
    ///
    /// # Errors
    /// If the system does not say, as of a process that has ended.
    pub(crate) fn peak(&self) -> anyhow::Result<Bytes> {
        let path = format!("/proc/{}/status", self.pid.as_raw_nonzero());
        let status = std::fs::read_to_string(&path)?;
        peak(&status).with_context(|| format!("{path}: there is no VmHWM"))
    }

    /// What it said on standard error, the end of it.
    pub(crate) fn complaint(&self) -> String {
        let text = std::fs::read(&self.stderr).unwrap_or_default();
        let tail = text.get(text.len().saturating_sub(COMPLAINT_MAX)..);
        let text = String::from_utf8_lossy(tail.unwrap_or_default());
        text.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        cleanup::ended(self.pid);
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Itself, if the exit code says success.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn success(self) -> anyhow::Result<Self> {
        if !self.status.success() {
            bail!("`{}`: {}: {}", self.command, self.status, self.stderr);
        }
        Ok(self)
    }
}

/// User and system time out of `/proc/PID/stat`.
fn ticks(stat: &str) -> Option<u64> {
    // The second field is a name in parentheses that may hold anything; the third follows it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Peak resident memory out of `/proc/PID/status`.
fn peak(status: &str) -> Option<Bytes> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}

/// A command line as one would type it into a shell.
pub(crate) fn typed<A: AsRef<OsStr>>(program: &Path, args: &[A]) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(args.iter().map(AsRef::as_ref));
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        match word.contains(|letter: char| letter.is_whitespace() || "\"'$&;*".contains(letter)) {
            true => format!("'{word}'"),
            false => word.into_owned(),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn accounts_are_read_whatever_the_process_is_called() {
        let stat = "17 (a) (b c) S 1 17 17 0 -1 4194560 100 0 0 0 250 50 7 9 20 0 1 0 42 1 2";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("17"), None);
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t    1024 kB\nVmRSS:\t 512 kB\n";
        assert_eq!(peak(status), Some(Bytes(1 << 20)));
        assert_eq!(peak("Name:\tx\n"), None);
    }

    #[test]
    fn a_process_is_timed_and_its_words_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo out; echo err >&2";
        let args = ["-c", script];
        let process = Process::start(Path::new("/bin/sh"), &args, place.path(), "sh").unwrap();
        let ended = process.wait(Duration::from_secs(60)).unwrap();
        let ended = ended.success().unwrap();
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("out\n", "err")
        );
        assert!(ended.cpu_s > 0.0 && ended.wall_s > 0.0 && ended.peak > Bytes::ZERO);
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let place = tempfile::tempdir().unwrap();
        let process =
            Process::start(Path::new("/bin/sleep"), &["600"], place.path(), "sleep").unwrap();
        let pid = process.pid;
        let error = process.wait(Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains("sleep 600"), "{error}");
        assert!(!Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
    }
}
