//! The machine a run was made on, as far as it explains the figures.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use outpour_core::Bytes;
use serde::Serialize;

/// Where and when.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
    /// Processes that wanted to run in the minute before.
    pub(crate) load: f64,
}

/// With more load than this beforehand, figures say little.
const LOAD_MAX: f64 = 0.5;

impl Machine {
    /// This machine, with the file system that `base` is on.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn here(base: &Path) -> anyhow::Result<Self> {
        let date = Command::new("date").args(["-u", "+%F"]).output();
        let date = date.context("date: cannot be run")?.stdout;
        let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
        let mounts = read("/proc/self/mounts")?;
        Ok(Self {
            date: String::from_utf8_lossy(&date).trim().to_owned(),
            processor: value(&read("/proc/cpuinfo")?, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory_bytes: memory(&read("/proc/meminfo")?).unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            file_system: file_system(&mounts, &fs::canonicalize(base)?).to_owned(),
            load: load(&read("/proc/loadavg")?).unwrap_or_default(),
        })
    }

    /// What about this machine makes figures doubtful.
    pub(crate) fn doubt(&self) -> Option<String> {
        (self.load > LOAD_MAX).then(|| {
            format!(
                "the machine is busy (load {:.1}): figures will be worse than they could be, and \
                 ratios less certain",
                self.load
            )
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            date,
            processor,
            cores,
            kernel,
            file_system,
            ..
        } = self;
        let memory = self.memory_bytes as f64 / f64::from(1 << 30);
        write!(
            f,
            "{processor}, {cores} cores, {memory:.0} GiB of memory, Linux {kernel}, {file_system}, \
             load {:.1} beforehand, {date}",
            self.load
        )
    }
}

/// The first value of a key in `KEY : VALUE` lines.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start().strip_prefix(':')?.trim())
}

/// The average over the last minute.
fn load(loadavg: &str) -> Option<f64> {
    loadavg.split(' ').next()?.parse().ok()
}

fn memory(meminfo: &str) -> Option<u64> {
    let kib: u64 = value(meminfo, "MemTotal")?
        .strip_suffix(" kB")?
        .trim()
        .parse()
        .ok()?;
    Some(Bytes(kib * 1024).0)
}

/// The type of the file system that holds `path`.
fn file_system<'a>(mounts: &'a str, path: &Path) -> &'a str {
    let holds = |line: &&str| {
        let point = line.split(' ').nth(1).unwrap_or_default();
        path.starts_with(point)
    };
    let depth = |line: &&str| line.split(' ').nth(1).unwrap_or_default().len();
    // Of equal ones the last is mounted over the others.
    let mount = mounts.lines().filter(holds).max_by_key(depth);
    mount
        .and_then(|line| line.split(' ').nth(2))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_system_is_asked_and_understood() {
        let machine = Machine::here(Path::new("/")).unwrap();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert_eq!(machine.date.len(), "2000-01-01".len());
        assert_eq!(load("6.34 6.67 7.07 5/104 18331"), Some(6.34));
        let mounts = "/dev/a / ext4 rw 0 0\ntmp /tmp tmpfs rw 0 0\n/dev/b /tmp/x xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/y")), "tmpfs");
        assert_eq!(file_system(mounts, Path::new("/tmp/x/y")), "xfs");
        assert_eq!(file_system(mounts, Path::new("/tmpx")), "ext4");
    }
}
