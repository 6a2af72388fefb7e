//! What the system says of processes.

use std::fs;

/// The fields of `/proc/PID/stat` that are of use here.
pub(crate) struct Stat {
    /// The number of its parent.
    pub(crate) parent: u32,
    /// The number of its group.
    pub(crate) group: u32,
    /// When it started, in the system's own count: with its number it names it for good.
    pub(crate) born: String,
}

impl Stat {
    /// Nothing if there is no such process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may hold anything; after it the fields are plain.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            born: (*fields.get(19)?).to_owned(),
        })
    }
}

/// The processes in the same namespace of processes as `first`, which is one of them.
pub(crate) fn together_with(first: u32) -> Vec<u32> {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(meant) = namespace(first) else {
        return Vec::new();
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|pid| namespace(*pid).as_ref() == Some(&meant))
        .collect()
}
