//! Power cuts: what is on the disk then is right, and what was said to be complete is there.
//!
//! A process takes an object on a file system of its own, which is cut off at a moment drawn at
//! random: what was not synced by then is lost. `OUTPOUR_CUTS=100` cuts so often on each kind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outpour_core::manifest::Manifest;
use outpour_store::{Destination, Source};

use crate::crash;
use crate::support::*;

/// How often each kind of file system is cut off unless told otherwise.
const CUTS: u64 = 4;
/// How long after what the process said the power goes, at most.
const DELAY_MAX: Duration = Duration::from_millis(150);
const FILES: u64 = 600;

#[test]
fn on_ext4() {
    cut_often(&Ext(&[]));
}

#[test]
fn on_ext4_without_a_journal() {
    cut_often(&Ext(&["-O", NO_JOURNAL]));
}

#[test]
fn on_xfs() {
    cut_often(&Xfs);
}

/// A kind of file system.
trait Kind {
    /// How much space it needs.
    fn bytes(&self) -> u64;
    fn make(&self, image: &Path) -> bool;
    /// Brings it in order after a cut, where mounting does not.
    fn repair(&self, image: &Path);
}

const NO_JOURNAL: &str = "^has_journal";

/// With options of its `mkfs`.
struct Ext(&'static [&'static str]);
struct Xfs;

impl Kind for Ext {
    fn bytes(&self) -> u64 {
        64 << 20
    }

    fn make(&self, image: &Path) -> bool {
        mkfs_ext4(image, self.0)
    }

    fn repair(&self, image: &Path) {
        if self.0.contains(&NO_JOURNAL) {
            // It says by its exit code that there was something to repair.
            run(Command::new("e2fsck").args(["-f", "-y"]).arg(image));
        }
    }
}

impl Kind for Xfs {
    fn bytes(&self) -> u64 {
        // It makes none that is smaller.
        320 << 20
    }

    fn make(&self, image: &Path) -> bool {
        run(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(image))
    }

    fn repair(&self, _image: &Path) {}
}

fn cut_often(kind: &dyn Kind) {
    let cuts = std::env::var("OUTPOUR_CUTS").map_or(CUTS, |cuts| cuts.parse().unwrap());
    let scratch = Scratch::new();
    let from = tree(&scratch);
    let (manifest, source) = build_small(&from);
    let mut finished = 0;
    for seed in 0..cuts {
        let Some(disk) = Disk::new(&scratch, kind.bytes(), |image| kind.make(image)) else {
            return;
        };
        let done = cut(&disk, &scratch, seed, &manifest);
        disk.detach();
        kind.repair(disk.image());
        disk.attach();
        check(&disk, &from, (&manifest, &source), done, seed);
        finished += u64::from(done);
    }
    // Else one of the promises is not looked at.
    assert!(finished > 0 && finished < cuts, "{finished} of {cuts}");
}

fn tree(scratch: &Scratch) -> std::path::PathBuf {
    let from = scratch.path("from");
    put(&from, "large/1", &bytes(1, 5 << 20));
    put(&from, "large/2", &bytes(2, 3 << 20));
    for index in 0..FILES {
        let len = 1 + bytes(index, 2)
            .iter()
            .map(|byte| usize::from(*byte))
            .sum::<usize>()
            * 18;
        put(
            &from,
            format!("small/{}/{index}", index % 7),
            &bytes(index, len),
        );
    }
    from
}

/// Cuts the disk off while a process takes the object, or after it was done; says which.
fn cut(disk: &Disk, scratch: &Scratch, seed: u64, manifest: &Manifest) -> bool {
    let draw = bytes(seed ^ 0x00ff_0000, 8);
    // Each fourth cut comes after the end; of the others, half while it ends.
    let line = match seed % 4 {
        3 => "finished".to_owned(),
        1 => "finish".to_owned(),
        _ => {
            let block = u32::from_le_bytes(draw[..4].try_into().unwrap()) % manifest.blocks();
            format!("wrote {block}")
        }
    };
    let delay = DELAY_MAX.mul_f64(f64::from(draw[4]) / 255.0);
    let (mut process, mut lines) = start(scratch, &disk.at().join("to"));
    let said = lines.by_ref().any(|said| said.unwrap() == line);
    assert!(said, "the process did not say {line:?}");
    let cut_at = Instant::now()
        + if line == "finished" {
            Duration::ZERO
        } else {
            delay
        };
    while Instant::now() < cut_at {
        std::hint::spin_loop();
    }
    let shut = Command::new("xfs_io")
        .args(["-x", "-c", "shutdown"])
        .arg(disk.at())
        .output();
    assert!(shut.unwrap().status.success());
    // What it has said by now it said before the cut, or just then.
    process.kill().unwrap();
    process.wait().unwrap();
    line == "finished"
}

fn start(scratch: &Scratch, to: &Path) -> (Child, std::io::Lines<BufReader<ChildStdout>>) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env(crash::CHILD, scratch.path(""))
        .env(crash::TO, to)
        .env(crash::SYNC_BYTES, "700000")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    (process, lines)
}

/// Looks at what the power cut left.
fn check(
    disk: &Disk,
    from: &Path,
    (manifest, source): (&Arc<Manifest>, &Source),
    finished: bool,
    seed: u64,
) {
    let to = disk.at().join("to");
    if finished {
        assert_same(&to, from, "complete before", seed);
    }
    for name in files(&to) {
        let (copy, right) = (
            fs::read(to.join(&name)).unwrap(),
            fs::read(from.join(&name)).unwrap(),
        );
        assert!(
            copy == right,
            "cut {seed}: {} has its name and other bytes",
            name.display()
        );
    }
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    for block in destination.have().iter() {
        destination.read(block, &mut buf).unwrap();
        assert!(manifest.verify(block, &buf), "cut {seed}: block {block}");
    }
    fill(source, &destination);
    destination.finish().unwrap();
    assert_same(&to, from, "goes on after", seed);
    assert!(!to.join(".outpour").exists(), "cut {seed}");
}

/// Our own state, which is removed after all else is there, may be back after a cut.
#[track_caller]
fn assert_same(to: &Path, from: &Path, when: &str, seed: u64) {
    let mut copy = describe(to);
    copy.retain(|name, _| !name.starts_with(".outpour"));
    let right = describe(from);
    let mut names = right.keys().chain(copy.keys());
    let other = names.find(|name| right.get(*name) != copy.get(*name));
    let about = other.map(|name| (name, right.get(name), copy.get(name)));
    assert!(about.is_none(), "{when} cut {seed}: {about:?}");
}

/// What is in its place, relative to the directory.
fn files(to: &Path) -> Vec<std::path::PathBuf> {
    if !to.exists() {
        return Vec::new();
    }
    let all = describe(to).into_iter();
    let files = all.filter(|(name, about)| {
        !name.starts_with(".outpour") && !about.contains(" directory") && !about.starts_with("->")
    });
    files.map(|(name, _)| name).collect()
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}
