//! The order of system calls: what a later one claims, an earlier one has made last.
//!
//! A process is traced while it takes an object and finishes it, and the trace is played to a model
//! of a disk on which only what was synced is there after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use outpour_core::manifest::{EntryId, Manifest};

use crate::support::*;

/// One call, with what `strace -yy` says of its descriptors.
struct Call<'a> {
    name: &'a str,
    line: &'a str,
}

impl<'a> Call<'a> {
    /// The path of the `nth` descriptor of the call.
    fn path(&self, nth: usize) -> &'a str {
        let path = self.line.split('<').nth(nth + 1);
        path.and_then(|rest| rest.split('>').next()).unwrap_or("")
    }

    /// The `nth` string among the arguments.
    fn text(&self, nth: usize) -> &'a str {
        self.line.split('"').nth(2 * nth + 1).unwrap_or("")
    }
}

/// So many small files are staged in several directories.
const SMALL: u64 = 300;

/// The change to a journal that the rename of a file of this block waits for.
fn synced_record(block: u32) -> Change {
    format!("block {block} is synced")
}

/// What a call did to a file or a directory: where it wrote, or which name it changed.
type Change = String;

/// What a disk does not have for certain.
struct Model {
    manifest: Arc<Manifest>,
    /// Whether the file system has one journal, which is written for everything at once.
    journal: bool,
    /// What was done to files and directories since they were synced last, by path.
    dirty: BTreeMap<String, BTreeSet<Change>>,
    /// What a sync that runs will have made last, by thread.
    syncing: BTreeMap<String, (String, BTreeSet<Change>)>,
    /// What the disk was given, and is to write the metadata of.
    handed: BTreeMap<String, BTreeSet<Change>>,
    /// What the journal that is being written will have made last, by thread.
    committing: BTreeMap<String, BTreeMap<String, BTreeSet<Change>>>,
    /// The directory of each staged file.
    staged: BTreeMap<String, String>,
    /// The directories: a journal has what was done to them without being handed it.
    dirs: BTreeSet<String>,
    /// The blocks of which the journal says that they are synced.
    recorded: BTreeSet<u32>,
    placed: usize,
    records: usize,
}

impl Model {
    fn begin(&mut self, thread: &str, call: &Call<'_>) {
        if self.commits(call) {
            // The journal of the file system takes with it what the disk was given before, and all
            // names.
            let dirs = self
                .dirs
                .iter()
                .filter_map(|dir| self.dirty.get_key_value(dir));
            let names = dirs.map(|(dir, names)| (dir.clone(), names.clone()));
            let all = self.handed.clone().into_iter().chain(names).collect();
            self.committing.insert(thread.to_owned(), all);
        } else if matches!(call.name, "fdatasync" | "fsync" | "sync_file_range") {
            let path = call.path(0).to_owned();
            let changes = self.dirty.get(&path).cloned().unwrap_or_default();
            self.syncing.insert(thread.to_owned(), (path, changes));
        }
    }

    fn end(&mut self, thread: &str, call: &Call<'_>) {
        let path = call.path(0);
        match call.name {
            "pwrite64" if path.ends_with("/journal.new") => {}
            "pwrite64" => {
                if path.ends_with("/journal") {
                    self.on_record(call);
                }
                let offset = call.line.rsplit([',', ')']).nth(1).unwrap();
                self.note(path, offset.trim());
            }
            "fdatasync" | "fsync" if self.commits(call) => {
                for (path, committed) in self.committing.remove(thread).unwrap() {
                    self.settle(&path, &committed);
                }
            }
            "sync_file_range" => {
                let (path, handed) = self.syncing.remove(thread).unwrap();
                if call.line.contains("SYNC_FILE_RANGE_WAIT_AFTER") {
                    self.handed.entry(path).or_default().extend(handed);
                }
            }
            "fdatasync" | "fsync" => {
                let (path, synced) = self.syncing.remove(thread).unwrap();
                self.settle(&path, &synced);
            }
            "openat" if call.line.contains("O_CREAT") && is_staging(path) => {
                self.staged.insert(call.text(0).to_owned(), path.to_owned());
                self.note_name(path, call.text(0));
            }
            "mkdirat" => self.note_name(path, call.text(0)),
            "renameat" | "renameat2" if is_staging(path) => self.on_rename(call),
            _ => {}
        }
    }

    fn commits(&self, call: &Call<'_>) -> bool {
        let synced = matches!(call.name, "fdatasync" | "fsync");
        self.journal && synced && call.path(0).ends_with("/commit")
    }

    fn settle(&mut self, path: &str, synced: &BTreeSet<Change>) {
        if let Some(dirty) = self.dirty.get_mut(path) {
            dirty.retain(|change| !synced.contains(change));
        }
    }

    fn note(&mut self, path: &str, change: &str) {
        let dirty = self.dirty.entry(path.to_owned()).or_default();
        dirty.insert(change.to_owned());
    }

    fn note_name(&mut self, dir: &str, name: &str) {
        self.dirs.insert(dir.to_owned());
        self.note(dir, name);
    }

    fn is_dirty(&self, path: &str, change: &str) -> bool {
        let dirty = self.dirty.get(path);
        dirty.is_some_and(|dirty| dirty.contains(change))
    }

    /// Whether a name on the way to a staged file is not there for certain.
    fn may_vanish(&self, path: &str) -> bool {
        let on_the_way = Path::new(path).ancestors();
        let staged =
            on_the_way.take_while(|path| is_staging(path.parent().unwrap().to_str().unwrap()));
        let mut names = staged.map(|path| (path.parent().unwrap(), path.file_name().unwrap()));
        names.any(|(dir, name)| self.is_dirty(dir.to_str().unwrap(), name.to_str().unwrap()))
    }

    /// A record has a length and a checksum, a mark, and runs of first block and count.
    fn on_record(&mut self, call: &Call<'_>) {
        let bytes = call.text(0).split("\\x").skip(1);
        let bytes: Vec<u8> = bytes
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        const SYNCED: u8 = 2;
        if bytes[8] != SYNCED {
            return;
        }
        self.records += 1;
        for run in bytes[9..].chunks_exact(8) {
            let first = number(&run[..4]);
            for block in first..first + number(&run[4..]) {
                self.note(call.path(0), &synced_record(block));
                self.recorded.insert(block);
                for extent in self.manifest.extents(block) {
                    let name = extent.file.0.to_string();
                    let dir = &self.staged[&name];
                    let path = format!("{dir}/{name}");
                    let offset = extent.offset.to_string();
                    assert!(
                        !self.is_dirty(&path, &offset),
                        "block {block} is not synced"
                    );
                    assert!(!self.may_vanish(&path), "{path} may vanish");
                }
            }
        }
    }

    fn on_rename(&mut self, call: &Call<'_>) {
        let (from, to) = (call.path(0), call.path(1));
        let staged = format!("{from}/{}", call.text(0));
        let lost = |path: &str| self.dirty.get(path).is_some_and(|dirty| !dirty.is_empty());
        assert!(!lost(&staged), "renamed before it is synced: {staged}");
        let journal = format!("{}/journal", from.split("/data").next().unwrap());
        // Empty files and symlinks have no blocks.
        let entry = EntryId(call.text(0).parse().unwrap());
        for block in self.manifest.blocks_of(entry) {
            let last = !self.is_dirty(&journal, &synced_record(block));
            let recorded = self.recorded.contains(&block);
            assert!(
                recorded && last,
                "renamed before block {block} is recorded: {staged}"
            );
        }
        self.note_name(to, call.text(1));
        self.placed += 1;
    }
}

/// Whether staged files may be there.
fn is_staging(dir: &str) -> bool {
    let mut parts = dir.rsplit('/');
    parts.any(|part| part == "data")
}

fn trace(dir: &Path, to: &Path) -> Option<String> {
    let log = dir.join("trace");
    let calls = "trace=pwrite64,fdatasync,fsync,sync_file_range,syncfs,openat,mkdirat,symlinkat,renameat,renameat2,\
                 write,unlinkat";
    let traced = Command::new("strace")
        .args(["-f", "-yy", "-x", "-s", "64", "-e", calls, "-e"])
        .args(["signal=none", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(crate::crash::CHILD, dir)
        .env(crate::crash::TO, to)
        .env(crate::crash::SYNC_BYTES, "100000")
        .output();
    let Ok(traced) = traced else {
        skipped("there is no strace; the order of system calls is not tested");
        return None;
    };
    assert!(traced.status.success(), "{traced:?}");
    Some(fs::read_to_string(log).unwrap())
}

/// Calls with their threads: each as it begins, and as it ends in success.
fn play(trace: &str, mut see: impl FnMut(&str, bool, &Call<'_>) -> bool) {
    let mut begun = BTreeMap::new();
    for line in trace.lines() {
        let (thread, text) = line.split_once(' ').unwrap();
        let text = text.trim_start();
        let (text, begins, ends) = if let Some(head) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, head.to_owned());
            (head.to_owned(), true, false)
        } else if let Some((_, tail)) = text.split_once(" resumed>") {
            (begun.remove(thread).unwrap() + tail, false, true)
        } else {
            (text.to_owned(), true, true)
        };
        let Some((name, line)) = text.split_once('(') else {
            continue;
        };
        let call = Call { name, line };
        let failed = line.contains(") = -1 ");
        if begins && !see(thread, false, &call) || ends && !failed && !see(thread, true, &call) {
            return;
        }
    }
}

#[test]
fn every_claim_comes_after_what_it_claims() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    check(&scratch, &to, true);
}

#[test]
fn without_a_journal_each_file_is_synced_for_itself() {
    let scratch = Scratch::new();
    if let Some(disk) = Disk::ext4(&scratch, &["-O", "^has_journal"]) {
        check(&scratch, &disk.at().join("to"), false);
    }
}

/// Casts to `to` and holds every call against what a disk does.
fn check(scratch: &Scratch, to: &Path, journal: bool) {
    let from = scratch.path("from");
    // More than is synced at a time.
    put(&from, "large/1", &bytes(1, 3 << 20));
    put(&from, "large/2", &bytes(2, 1 << 20));
    for index in 0..SMALL {
        put(&from, format!("small/{index}"), &bytes(index, 3000));
    }
    fs::create_dir(from.join("empty")).unwrap();
    let Some(trace) = trace(from.parent().unwrap(), to) else {
        return;
    };
    let (manifest, _) = build_small(&from);
    let mut model = Model {
        manifest,
        journal,
        dirty: BTreeMap::new(),
        syncing: BTreeMap::new(),
        handed: BTreeMap::new(),
        committing: BTreeMap::new(),
        staged: BTreeMap::new(),
        dirs: BTreeSet::new(),
        recorded: BTreeSet::new(),
        placed: 0,
        records: 0,
    };
    let dir = to.parent().unwrap().to_str().unwrap();
    let mut finished = false;
    play(&trace, |thread, ended, call| {
        assert_ne!(call.name, "syncfs", "other people's data");
        finished = call.name == "write" && call.line.contains("\"finished\\n\"");
        if call.path(0).starts_with(dir) {
            match ended {
                false => model.begin(thread, call),
                true => model.end(thread, call),
            }
        }
        !finished
    });
    assert!(finished, "the process did not say that it was done");
    assert!(model.records > 0, "else nothing is shown");
    assert_eq!(model.placed as u64, SMALL + 2);
    // Our own state is removed by then.
    let dirty = model.dirty.iter();
    let lost: Vec<_> = dirty
        .filter(|(path, changes)| !changes.is_empty() && !path.contains("/.outpour"))
        .collect();
    assert!(lost.is_empty(), "said to be complete: {lost:?}");
}
