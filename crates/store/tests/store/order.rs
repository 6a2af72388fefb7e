//! The order of system calls: what a later one claims, an earlier one has made last.
//!
//! A process is traced while it takes an object and finishes it, and the trace is played to a model
//! of a disk on which only what was synced is there after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

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

/// What a disk has for certain.
#[derive(Default)]
struct Disk {
    /// Files that were written to, and directories that were changed, since they were synced last.
    dirty: BTreeSet<String>,
    /// Staged files, and what they were called then.
    placed: BTreeMap<String, String>,
    synced_records: usize,
    journal_dirty: bool,
}

impl Disk {
    fn play(&mut self, call: &Call<'_>) {
        let path = call.path(0);
        match call.name {
            "pwrite64" if path.ends_with("/journal.new") => {}
            "pwrite64" if path.ends_with("/journal") => self.on_record(call),
            "pwrite64" => {
                self.dirty.insert(path.to_owned());
            }
            "fdatasync" | "fsync" if path.ends_with("/journal") => self.journal_dirty = false,
            "fdatasync" | "fsync" => {
                self.dirty.remove(path);
            }
            "openat" if call.line.contains("O_CREAT") && path.ends_with("/data") => {
                self.dirty.insert(path.to_owned());
            }
            "mkdirat" | "symlinkat" => {
                self.dirty.insert(path.to_owned());
            }
            "renameat" | "renameat2" if path.ends_with("/data") => self.on_rename(call),
            _ => {}
        }
    }

    /// A record that says *synced* has the mark after length and checksum.
    fn on_record(&mut self, call: &Call<'_>) {
        let bytes: Vec<&str> = call.text(0).split("\\x").skip(1).collect();
        if bytes.get(8) != Some(&"02") {
            return;
        }
        self.synced_records += 1;
        self.journal_dirty = true;
        let staged: Vec<_> = self.staged().collect();
        assert!(staged.is_empty(), "said to be synced: {staged:?}");
    }

    fn on_rename(&mut self, call: &Call<'_>) {
        let (from, to) = (call.path(0), call.path(1));
        let staged = format!("{from}/{}", call.text(0));
        assert!(!self.dirty.contains(&staged), "renamed unsynced: {staged}");
        assert!(!self.journal_dirty, "renamed before its record: {staged}");
        self.dirty.insert(to.to_owned());
        self.placed.insert(staged, to.to_owned());
    }

    fn staged(&self) -> impl Iterator<Item = &String> {
        let beneath = |path: &&String| path.contains("/data") && path.contains("/.outpour/");
        self.dirty.iter().filter(beneath)
    }
}

fn trace(dir: &Path) -> Option<String> {
    let log = dir.join("trace");
    let calls = "trace=pwrite64,fdatasync,fsync,syncfs,openat,mkdirat,symlinkat,renameat,renameat2,\
                 write,unlinkat";
    let traced = Command::new("strace")
        .args(["-f", "-yy", "-x", "-s", "64", "-e", calls, "-e"])
        .args(["signal=none", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(crate::crash::CHILD, dir)
        .env(crate::crash::SYNC_BYTES, "500000")
        .output();
    let Ok(traced) = traced else {
        skipped("there is no strace; the order of system calls is not tested");
        return None;
    };
    assert!(traced.status.success(), "{traced:?}");
    Some(fs::read_to_string(log).unwrap())
}

/// Puts together again what other threads' calls cut in two.
fn whole(trace: &str) -> Vec<String> {
    let mut begun = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(head) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, head.to_owned());
        } else if let Some((_, tail)) = call.split_once(" resumed>") {
            let head = begun.remove(thread).unwrap();
            calls.push(format!("{head}{tail}"));
        } else {
            calls.push(call.to_owned());
        }
    }
    calls
}

#[test]
fn every_claim_comes_after_what_it_claims() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    let dir = from.parent().unwrap().to_path_buf();
    // More than is synced at a time.
    put(&from, "large/1", &bytes(1, 3 << 20));
    put(&from, "large/2", &bytes(2, 1 << 20));
    for index in 0..50 {
        put(&from, format!("small/{index}"), &bytes(index, 3000));
    }
    fs::create_dir(from.join("empty")).unwrap();
    let Some(trace) = trace(&dir) else { return };
    let to = dir.join("to");
    let mut disk = Disk::default();
    let mut finished = false;
    for line in whole(&trace) {
        let Some((name, rest)) = line.split_once('(') else {
            continue;
        };
        if rest.contains(") = -1 ") {
            continue;
        }
        if name == "write" && rest.contains("\"finished\\n\"") {
            finished = true;
            break;
        }
        assert_ne!(name, "syncfs", "other people's data");
        let call = Call { name, line: rest };
        if call.path(0).starts_with(to.to_str().unwrap()) {
            disk.play(&call);
        }
    }
    assert!(finished, "the process did not say that it was done");
    assert!(disk.synced_records > 0, "else nothing is shown");
    assert_eq!(disk.placed.len(), 52);
    // Our own state is removed by then.
    let lost = disk.dirty.iter().filter(|path| !path.contains("/.outpour"));
    let lost: Vec<_> = lost.collect();
    assert!(lost.is_empty(), "said to be complete: {lost:?}");
}
