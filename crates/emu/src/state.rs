//! Where a running emulation can be found, and how one that was killed is cleaned up after.
//!
//! Each emulation has a directory of its own with a lock that the system drops with the process.
//! A directory whose lock is free has no owner: the processes it names are ended and it is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};

use crate::EmuError;
use crate::process::Stat;

/// The environment variable that names the directory of the emulation one is in.
pub const VARIABLE: &str = "OUTPOUR_EMULATION";

/// The environment variable that names the node one is on.
pub const NODE_VARIABLE: &str = "OUTPOUR_NODE";

/// Where the directories of all emulations are.
const HOME: &str = "/run/outpour/emulation";

const LOCK: &str = "lock";
/// Held while directories are made, looked through or removed, so that no process sees half of it.
const ALL: &str = ".all";
const INIT: &str = "init";

/// The directory of a running emulation, removed with it.
pub(crate) struct State {
    dir: PathBuf,
    /// Held for as long as the emulation lives.
    _lock: File,
}

impl State {
    /// Removes what emulations left that were killed, and makes a directory for a new one.
    pub(crate) fn make() -> Result<Self, EmuError> {
        let what = || EmuError::system(format!("make a directory under {HOME}"));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(HOME)
            .map_err(what())?;
        let all = lock_all().map_err(what())?;
        clean();
        let mut number = u64::from(std::process::id());
        loop {
            let dir = Path::new(HOME).join(number.to_string());
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {
                    let lock = take_lock(&dir).map_err(what())?;
                    drop(all);
                    return Ok(Self { dir, _lock: lock });
                }
                // A process of another namespace may have this one's number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1 << 32,
                Err(error) => return Err(what()(error)),
            }
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file into the directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, EmuError> {
        let path = self.dir.join(name);
        let mut options = OpenOptions::new();
        let written = (options.write(true).create(true).truncate(true).mode(0o644))
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(EmuError::system(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// Remembers the process with which all others inside end.
    pub(crate) fn remember_init(&self, pid: u32) -> Result<(), EmuError> {
        let born = Stat::of(pid).map(|stat| stat.born).unwrap_or_default();
        self.write(INIT, &format!("{pid} {born}")).map(drop)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The emulation that is meant: the one of the environment, else the only one there is.
pub(crate) fn find() -> Result<PathBuf, EmuError> {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        return Ok(dir.into());
    }
    let path = PathBuf::from(HOME);
    let all = lock_all().map_err(|source| EmuError::NotRunning { path, source })?;
    let mut dirs = dirs();
    dirs.retain(|dir| matches!(try_lock(dir), Ok(None)));
    drop(all);
    match (dirs.pop(), dirs.len()) {
        (Some(dir), 0) => Ok(dir),
        (None, _) => Err(EmuError::NotRunning {
            path: HOME.into(),
            source: io::ErrorKind::NotFound.into(),
        }),
        (Some(_), others) => Err(EmuError::Which {
            found: others + 1,
            variable: VARIABLE,
        }),
    }
}

fn dirs() -> Vec<PathBuf> {
    let entries = fs::read_dir(HOME).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

/// Ends and removes what belongs to no living emulator. What fails is tried again next time.
fn clean() {
    for dir in dirs() {
        if let Ok(Some(_lock)) = try_lock(&dir) {
            end_init(&dir);
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

/// Kills the first process of a dead emulation, if it still is that process: all others inside
/// end with it.
fn end_init(dir: &Path) {
    let text = fs::read_to_string(dir.join(INIT)).unwrap_or_default();
    let mut words = text.split(' ');
    let pid = words.next().and_then(|word| word.parse::<u32>().ok());
    let (Some(pid), Some(then)) = (pid, words.next()) else {
        return;
    };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(raw) = raw
        && Stat::of(pid).is_some_and(|stat| stat.born == then)
    {
        // One that is gone already is as good.
        let _ = rustix::process::kill_process(raw, Signal::KILL);
    }
}

fn lock_all() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let all = options.open(Path::new(HOME).join(ALL))?;
    flock(&all, FlockOperation::LockExclusive)?;
    Ok(all)
}

fn take_lock(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let lock = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join(LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

/// The lock, if it is free.
fn try_lock(dir: &Path) -> io::Result<Option<File>> {
    match take_lock(dir) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
