//! Where real programs are tried: a directory in memory, objects to cast, and commands that are
//! waited for and judged.
//!
//! A measurement counts only if all hosts got everything in a network that was what it should be;
//! one that the machine was too slow for is made again.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use outpour_core::Bytes;
use serde::Deserialize;
use tempfile::TempDir;

use crate::ExperimentError;
use crate::dice::Dice;

/// How often each measurement is made again because the machine was too slow for the network.
const VOID_MAX: usize = 2;
/// How often it is looked whether a command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How much of what a command prints is read.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Memory as a file system: many copies are written, and disks are not what is measured.
const MEMORY: &str = "/dev/shm";

/// A file in such a directory by which it is known whether it is in use.
const LOCK: &str = "lock";

/// A directory to work in, gone when this is, and the program that is tried. What an experiment
/// that was killed left behind is removed by the next.
pub(crate) struct Lab {
    program: PathBuf,
    directory: TempDir,
    /// Locked as long as a process works here.
    _lock: File,
}

/// What `outpour cast --json` says, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(crate) struct CastReport {
    pub(crate) transfer_s: Option<f64>,
    #[serde(default)]
    pub(crate) why: String,
    #[serde(default)]
    pub(crate) hosts: Vec<HostReport>,
    pub(crate) finish_s: Option<f64>,
    pub(crate) coding: Option<CodingReport>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HostReport {
    pub(crate) host: String,
    pub(crate) verified: bool,
    pub(crate) finish_s: Option<f64>,
    pub(crate) error: Option<String>,
}

/// What coding took, over all nodes.
#[derive(Debug, Deserialize)]
pub(crate) struct CodingReport {
    pub(crate) batch_blocks: u16,
    pub(crate) packets: u64,
    pub(crate) made: u64,
    pub(crate) dependent: u64,
    pub(crate) encode_s: f64,
    pub(crate) decode_s: f64,
    pub(crate) overhead_bytes: u64,
}

/// What `outpour emulate --report` says, as far as it matters here.
#[derive(Debug, Deserialize)]
struct EmulationReport {
    void: bool,
    reasons: Vec<String>,
}

impl Lab {
    /// A directory whose name begins so.
    pub(crate) fn new(program: &Path, prefix: &str) -> Result<Self, ExperimentError> {
        let base = Path::new(MEMORY);
        let base = if base.is_dir() {
            base.to_owned()
        } else {
            std::env::temp_dir()
        };
        remove_abandoned(&base, prefix);
        let failed = |e: std::io::Error| ExperimentError::file(&base, &e);
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(&base);
        let directory = directory.map_err(failed)?;
        let lock = File::create(directory.path().join(LOCK)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Self {
            program: program.to_owned(),
            directory,
            _lock: lock,
        })
    }

    /// The program that is tried.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// A place in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, ExperimentError> {
        let path = self.path(name);
        fs::write(&path, content).map_err(|e| ExperimentError::file(&path, &e))?;
        Ok(path)
    }

    /// Writes a file that cannot be compressed.
    pub(crate) fn object(
        &self,
        name: &str,
        size: Bytes,
        seed: u64,
    ) -> Result<PathBuf, ExperimentError> {
        let path = self.path(name);
        let failed = |e: std::io::Error| ExperimentError::file(&path, &e);
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        let mut dice = Dice::new(seed);
        for _ in 0..size.0 / 8 {
            file.write_all(&dice.next().to_le_bytes()).map_err(failed)?;
        }
        let rest = dice.next().to_le_bytes();
        let rest = rest.get(..(size.0 % 8) as usize).unwrap_or_default();
        file.write_all(rest).map_err(failed)?;
        file.flush().map_err(failed)?;
        Ok(path)
    }

    /// Removes a directory in the directory, if it is there.
    pub(crate) fn clear(&self, name: &str) -> Result<(), ExperimentError> {
        let path = self.path(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ExperimentError::file(&path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Starts a command whose output goes to files of that name.
    pub(crate) fn start(
        &self,
        mut command: Command,
        name: &str,
    ) -> Result<Running, ExperimentError> {
        let (out, err) = (
            self.path(&format!("{name}.out")),
            self.path(&format!("{name}.err")),
        );
        let create = |path: &Path| File::create(path).map_err(|e| ExperimentError::file(path, &e));
        command.stdout(create(&out)?).stderr(create(&err)?);
        let program = PathBuf::from(command.get_program());
        let child = command.spawn();
        Ok(Running {
            child: child.map_err(|e| ExperimentError::file(&program, &e))?,
            program,
            out,
            err,
        })
    }

    /// Runs a command and returns what it printed, its errors if it printed nothing else.
    pub(crate) fn output(
        &self,
        command: Command,
        max: Duration,
    ) -> Result<String, ExperimentError> {
        let mut command = command;
        command.stdin(Stdio::null());
        let mut running = self.start(command, "command")?;
        running.wait(max, |_| Ok(()))?;
        running.said()
    }
}

/// Removes directories of that kind in which no process works any more, as far as that is allowed.
fn remove_abandoned(base: &Path, prefix: &str) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries {
        let is_lab = entry.file_name().to_string_lossy().starts_with(prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        let lock = is_lab.then(|| File::open(entry.path().join(LOCK)));
        if let Some(Ok(lock)) = lock
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A command that was started; killed if it is forgotten.
pub(crate) struct Running {
    child: Child,
    program: PathBuf,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Where to write what it reads, if that is a pipe; it reads no more once that is dropped.
    pub(crate) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, ExperimentError> {
        let ended = self.child.try_wait();
        ended.map_err(|e| ExperimentError::file(&self.program, &e))
    }

    /// Waits for its end, and calls `look` again and again meanwhile with the time that passed.
    pub(crate) fn wait(
        &mut self,
        max: Duration,
        mut look: impl FnMut(Duration) -> Result<(), ExperimentError>,
    ) -> Result<ExitStatus, ExperimentError> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if begun.elapsed() >= max {
                let seconds = max.as_secs();
                return Err(ExperimentError::Setup(format!("no end after {seconds} s")));
            }
            look(begun.elapsed())?;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What it printed so far.
    pub(crate) fn printed(&self) -> Result<String, ExperimentError> {
        read(&self.out)
    }

    /// What it printed, or as an error the last line of its complaints if it printed nothing.
    pub(crate) fn said(&self) -> Result<String, ExperimentError> {
        let said = self.printed()?;
        if said.trim().is_empty() {
            let last = read(&self.err)?;
            let last = last.lines().last().unwrap_or("it says nothing").to_owned();
            return Err(ExperimentError::Setup(last));
        }
        Ok(said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended and been waited for, which is as well.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Reads a file, as much of it as anything here prints.
pub(crate) fn read(path: &Path) -> Result<String, ExperimentError> {
    let failed = |e: std::io::Error| ExperimentError::file(path, &e);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(OUTPUT_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

/// Measures with each seed, and again where the machine was too slow.
pub(crate) fn repeat<T>(
    seeds: impl Iterator<Item = u64>,
    mut measure: impl FnMut(u64) -> Result<T, ExperimentError>,
) -> Result<Vec<T>, ExperimentError> {
    seeds.map(|seed| once(|| measure(seed))).collect()
}

/// Measures once, and again where the machine was too slow.
pub(crate) fn once<T>(
    mut measure: impl FnMut() -> Result<T, ExperimentError>,
) -> Result<T, ExperimentError> {
    let mut voids = 0;
    loop {
        match measure() {
            Err(ExperimentError::Void(_)) if voids < VOID_MAX => voids += 1,
            measured => return measured,
        }
    }
}

/// The middle one; the higher of the two in the middle of an even number.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// What a cast says of itself, if it reached all hosts.
pub(crate) fn complete(said: &str) -> Result<CastReport, ExperimentError> {
    complete_but(said, "")
}

/// The same, if it reached all hosts but perhaps one.
pub(crate) fn complete_but(said: &str, one: &str) -> Result<CastReport, ExperimentError> {
    let setup = |why: String| ExperimentError::Setup(why);
    let cast: CastReport = serde_json::from_str(said)
        .map_err(|error| setup(format!("the cast's report is none: {error}")))?;
    if let Some(error) = cast.error {
        return Err(setup(error));
    }
    let lacks = |host: &&HostReport| !host.verified && host.host != one;
    if let Some(host) = cast.hosts.iter().find(lacks) {
        let why = host.error.as_deref().unwrap_or("no reason given");
        return Err(setup(format!("{}: {why}", host.host)));
    }
    if cast.transfer_s.is_none() {
        return Err(setup("no transfer began".to_owned()));
    }
    Ok(cast)
}

/// Whether a network was what it should be; else what it is worth that something took so long.
pub(crate) fn sound(emulation: Option<&str>, took_s: f64) -> Result<(), ExperimentError> {
    let report = emulation.and_then(|text| serde_json::from_str::<EmulationReport>(text).ok());
    match report {
        None => Err(ExperimentError::Setup(
            "the emulation leaves no report".to_owned(),
        )),
        Some(report) if report.void => Err(ExperimentError::Void(format!(
            "void, the machine was too slow ({}); it took {took_s:.1} s",
            report.reasons.join("; ")
        ))),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_a_killed_experiment_left_is_removed_and_what_is_in_use_is_not() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            let lock = File::create(path.join(LOCK)).unwrap();
            (path, lock)
        };
        let (left, _) = make("lab-left");
        let (used, lock) = make("lab-used");
        lock.lock().unwrap();
        let (other, _) = make("other-left");
        let bare = base.path().join("lab-bare");
        fs::create_dir(&bare).unwrap();
        remove_abandoned(base.path(), "lab-");
        let there = [&left, &used, &other, &bare].map(|path| path.exists());
        assert_eq!(there, [false, true, true, true]);
    }

    #[test]
    fn only_a_complete_cast_in_a_true_network_counts() {
        let cast = |verified: bool| {
            format!(
                r#"{{"transfer_s": 2.5, "hosts": [{{"host": "b0", "verified": {verified},
                     "error": null}}]}}"#
            )
        };
        let emulated = r#"{"void": false, "reasons": []}"#;
        assert_eq!(complete(&cast(true)).unwrap().transfer_s, Some(2.5));
        assert!(sound(Some(emulated), 2.5).is_ok());
        let error = |said: &str| complete(said).unwrap_err().to_string();
        assert_eq!(error(&cast(false)), "b0: no reason given");
        assert_eq!(error(r#"{"error": "no root"}"#), "no root");
        assert!(complete_but(&cast(false), "b0").is_ok());
        assert!(complete_but(&cast(false), "b1").is_err());
        assert!(error("nonsense").contains("none"));
        assert!(error(r#"{"hosts": []}"#).contains("no transfer"));
        let unsound = |said| sound(said, 2.5).unwrap_err().to_string();
        assert!(unsound(None).contains("no report"));
        let void = r#"{"void": true, "reasons": ["9 ms late"]}"#;
        assert!(unsound(Some(void)).contains("9 ms late"));
    }

    #[test]
    fn what_is_void_is_measured_again_but_not_for_ever() {
        let void = || ExperimentError::Void("late".to_owned());
        let mut tries = 0;
        let measured = repeat(1..=2, |seed| {
            tries += 1;
            if tries % (VOID_MAX + 1) != 0 {
                Err(void())
            } else {
                Ok(seed)
            }
        });
        assert_eq!(measured.unwrap(), [1, 2]);
        assert_eq!(tries, 2 * (VOID_MAX + 1));
        assert!(repeat(1..=1, |_| Err::<(), _>(void())).is_err());
    }
}
