//! What processes have in use, as /proc says.

use std::fs;
use std::path::Path;

/// Resident memory of a process now and at most, since it was forgotten, in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    pub(super) now: f64,
    pub(super) peak: f64,
}

/// `None` if the process is gone.
pub(super) fn memory(pid: i32) -> Option<Memory> {
    parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()
    };
    Some(Memory {
        now: kib("VmRSS")? / 1024.0,
        peak: kib("VmHWM")? / 1024.0,
    })
}

/// From now on the peak is that of what comes.
pub(super) fn forget_peak(pid: i32) {
    // It may be gone, which is noticed elsewhere.
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// How many descriptors a process has open; `None` if it is gone.
pub(super) fn descriptors(pid: i32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// The ports on which a process listens, over TCP.
pub(super) fn listening(pid: i32) -> Vec<u16> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let links = links.flatten().flatten();
    let own: Vec<String> = links
        .filter_map(|link| fs::read_link(link.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let tables = ["tcp", "tcp6"]
        .map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
            // 0A is the state of a socket that listens.
            let listens = *state == "0A" && own.contains(&format!("socket:[{inode}]"));
            let port = local.rsplit_once(':')?.1;
            listens.then(|| u16::from_str_radix(port, 16).ok())?
        })
        .collect()
}

/// How many files and directories there are beneath a directory whose name begins with a dot: what agents
/// keep for themselves.
pub(super) fn hidden(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let own = entry.file_name().to_string_lossy().starts_with('.');
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let beneath = if is_dir { hidden(&entry.path()) } else { 0 };
            usize::from(own) + beneath
        })
        .sum()
}

/// How many processes wanted to run, on average of the last minute.
pub(super) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn this_process_has_something_in_use() {
        let own = std::process::id() as i32;
        let before = memory(own).unwrap();
        assert!(
            before.now > 0.5 && before.peak >= before.now * 0.9,
            "{before:?}"
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening(own).contains(&port));
        assert!(descriptors(own).unwrap() > 3);
        assert_eq!(memory(i32::MAX), None);
    }

    #[test]
    fn what_agents_keep_is_told_from_what_they_were_given() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("copy/.outpour/cast");
        fs::create_dir_all(&kept).unwrap();
        fs::write(dir.path().join("copy/file"), "x").unwrap();
        assert_eq!(hidden(dir.path()), 1);
        fs::write(dir.path().join(".outpour-root"), "x").unwrap();
        assert_eq!(hidden(dir.path()), 2);
        assert_eq!(
            parse("VmHWM:\t 2048 kB\nVmRSS:\t 1024 kB\n"),
            Some(Memory {
                now: 1.0,
                peak: 2.0
            })
        );
    }
}
