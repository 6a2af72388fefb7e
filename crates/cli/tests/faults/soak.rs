//! Casts with faults drawn at random: whatever happens, a host that is called verified has the
//! right bytes, and nothing is written outside the roots.
//!
//! `OUTPOUR_SOAK=500 cargo test -p outpour-cli --test faults soak` runs so many, two at a time;
//! `OUTPOUR_SOAK_SEED=n` repeats what is drawn, though not when it strikes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{Cast, Cluster, DEADLINE, Tracer};
use crate::tamper::{flip, staged};

/// How many casts there are unless told otherwise.
const CASTS: u64 = 4;
const HOSTS: usize = 3;

const PROTOCOLS: [&str; 6] = ["chain", "swarm", "direct", "coded-gossip", "robber", "mob"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// Bytes of files that have no name yet are flipped, now and then until the end.
    FlipStaged,
    /// Bytes of a file in its place are flipped.
    FlipPlaced,
    /// A user puts another file where one of the object's is.
    Replace,
    /// A user removes a file.
    Remove,
    /// A directory becomes a link that leads out.
    Link,
    /// Another object is cast to the same places.
    OtherCast,
    /// Another object is cast into a directory of the tree.
    CastBelow,
    /// A file of the source is overwritten; size and time stay.
    Source,
    /// Some writes, syncs or reads of a host fail.
    Writes,
    Syncs,
    Reads,
    /// A host stands still for a while.
    Stop,
    /// A host is killed.
    Kill,
    /// The command is killed.
    KillCommand,
    /// The command is interrupted.
    Interrupt,
}

const FAULTS: [Fault; 15] = [
    Fault::FlipStaged,
    Fault::FlipPlaced,
    Fault::Replace,
    Fault::Remove,
    Fault::Link,
    Fault::OtherCast,
    Fault::CastBelow,
    Fault::Source,
    Fault::Writes,
    Fault::Syncs,
    Fault::Reads,
    Fault::Stop,
    Fault::Kill,
    Fault::KillCommand,
    Fault::Interrupt,
];

/// xorshift: what is drawn can be drawn again.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// One cast with its faults.
struct Run {
    cluster: Cluster,
    draw: Draw,
    original: PathBuf,
    other: PathBuf,
    outside: PathBuf,
    faults: BTreeSet<Fault>,
    tracers: Vec<Tracer>,
    /// Another cast, and where it goes.
    second: Option<(Cast, bool)>,
    /// Hosts that had a file changed when they may have been done already.
    touched: BTreeSet<usize>,
    /// Whether the source was overwritten when the command may not have read it yet: then what it
    /// has now may be the object.
    early: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let cluster = Cluster::new(HOSTS);
        let mut draw = Draw(seed | 1);
        draw.below(2);
        let outside = cluster.aside().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("mine"), "mine").unwrap();
        // The source may be overwritten.
        let original = cluster.aside().join("original");
        copy_tree(&cluster.source, &original, |_| {});
        let other = cluster.aside().join("other");
        copy_tree(&cluster.source, &other, |bytes| {
            bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
        });
        let count = 1 + draw.below(3);
        let faults = (0..count).map(|_| FAULTS[draw.below(FAULTS.len())]);
        Self {
            faults: faults.collect(),
            cluster,
            draw,
            original,
            other,
            outside,
            tracers: Vec::new(),
            second: None,
            touched: BTreeSet::new(),
            early: false,
        }
    }

    /// Carries out a fault; false if it must be tried again.
    fn strike(&mut self, fault: Fault, cast: &Cast) -> bool {
        let host = self.draw.below(HOSTS);
        let copy = self.cluster.copy(host);
        match fault {
            Fault::FlipStaged => {
                let files = staged(&self.cluster, host);
                // Over and over.
                files.iter().any(|file| self.touch(host, || flip(file)));
                false
            }
            Fault::FlipPlaced => self.on_placed(host, flip),
            Fault::Replace => {
                let mine = self.cluster.aside().join("mine");
                self.on_placed(host, |file| {
                    let len = fs::metadata(file).map_or(0, |meta| meta.len());
                    fs::write(&mine, vec![7; len as usize]).unwrap();
                    fs::rename(&mine, file).is_ok()
                })
            }
            Fault::Remove => self.on_placed(host, |file| fs::remove_file(file).is_ok()),
            Fault::Link => {
                let outside = self.outside.clone();
                let large = copy.join("large");
                self.touch(host, || {
                    let moved = fs::rename(&large, copy.join("moved")).is_ok();
                    moved && symlink(&outside, &large).is_ok()
                })
            }
            Fault::OtherCast | Fault::CastBelow => {
                let below = fault == Fault::CastBelow;
                if self.second.is_none() {
                    self.second = Some((self.cast_other(below), below));
                }
                true
            }
            Fault::Source => {
                // Hosts are told where to put an object when it has been read.
                let told = |host| self.cluster.copy(host).join(".outpour").exists();
                self.early = !(0..HOSTS).any(told);
                overwrite(&self.cluster.source.join("large/07"))
            }
            Fault::Writes => self.inject(host, "pwrite64:error=EIO:when=3..4"),
            Fault::Syncs => self.inject(host, "fsync:error=EIO:when=2"),
            Fault::Reads => self.inject(host, "pread64:error=EIO:when=3..4"),
            Fault::Stop => {
                self.cluster.signal(host, "STOP");
                std::thread::sleep(std::time::Duration::from_secs(1));
                self.cluster.signal(host, "CONT");
                true
            }
            Fault::Kill => {
                if self.tracers.is_empty() {
                    self.cluster.kill(host);
                    self.cluster.restart(host);
                }
                true
            }
            Fault::KillCommand => {
                cast.signal("KILL");
                true
            }
            Fault::Interrupt => {
                cast.signal("INT");
                true
            }
        }
    }

    fn inject(&mut self, host: usize, what: &str) -> bool {
        // One tracer for a process.
        if self.tracers.is_empty() {
            self.tracers.extend(self.cluster.inject(host, what));
        }
        true
    }

    /// Does something to a file in its place on a host that is not done yet.
    fn on_placed(&mut self, host: usize, act: impl Fn(&Path) -> bool) -> bool {
        let large = self.cluster.copy(host).join("large");
        if large.is_symlink() {
            return true;
        }
        let files = fs::read_dir(large).into_iter().flatten().flatten();
        let files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        match files.is_empty() {
            true => false,
            false => {
                let file = &files[self.draw.below(files.len())];
                self.touch(host, || act(file))
            }
        }
    }

    /// Does something to a host's files. If it was done by then nothing was promised.
    fn touch(&mut self, host: usize, act: impl FnOnce() -> bool) -> bool {
        let state = self.cluster.copy(host).join(".outpour");
        if !state.exists() {
            return false;
        }
        let done = act();
        // The state may be that of the other cast.
        if done && (self.second.is_some() || !state.exists()) {
            self.touched.insert(host);
        }
        done
    }

    fn cast_other(&self, below: bool) -> Cast {
        let place = if below { "copy/large" } else { "copy" };
        let hosts = self.cluster.hosts();
        let options = ["--patience", "10 s"];
        Cast::start(&mut self.cluster.command_to(&self.other, hosts, place, &options))
    }

    fn run(mut self) -> String {
        let protocol = PROTOCOLS[self.draw.below(PROTOCOLS.len())];
        let mut cast = self.cluster.begin(protocol, &["--patience", "10 s"]);
        let mut todo: Vec<(Fault, u64)> = Vec::new();
        for fault in self.faults.clone() {
            todo.push((fault, 100 + self.draw.below(3000) as u64));
        }
        let begun = std::time::Instant::now();
        while cast.runs() {
            assert!(
                begun.elapsed() < DEADLINE,
                "no end: {protocol} {:?}",
                self.faults
            );
            let now = begun.elapsed().as_millis() as u64;
            let due = todo.iter().position(|(_, at)| *at <= now);
            if let Some((fault, _)) = due.map(|index| todo.swap_remove(index))
                && !self.strike(fault, &cast)
            {
                todo.push((fault, now + 150));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let ran = cast.end();
        let first = serde_json::from_str(&ran.out).ok();
        self.tracers.clear();
        let second = self.second.take();
        let second =
            second.map(|(cast, below)| (serde_json::from_str(&cast.end().out).ok(), below));
        let about = format!("{protocol} {:?}", self.faults);
        self.check(first.as_ref(), second, &about);
        self.cluster.assert_untouched(&self.outside);
        format!("{about}: exit {:?}", ran.code)
    }

    fn check(
        &self,
        first: Option<&serde_json::Value>,
        second: Option<(Option<serde_json::Value>, bool)>,
        about: &str,
    ) {
        let verified = |report: Option<&serde_json::Value>, host: usize| {
            report.is_some_and(|report| report["hosts"][host]["verified"] == true)
        };
        for host in (0..HOSTS).filter(|host| !self.touched.contains(host)) {
            let copy = self.cluster.copy(host);
            match &second {
                // It came after the first, or instead of it.
                Some((report, below)) if verified(report.as_ref(), host) => {
                    let copy = if *below { copy.join("large") } else { copy };
                    assert_has(&self.other, &copy, about);
                }
                // It got somewhere, perhaps, after the first was done.
                Some((report, _)) if !was_refused(report.as_ref()) => {}
                // All of a file is from before it was overwritten, or all from after.
                _ if verified(first, host) && self.early => {
                    let overwritten = differs(&self.original, &copy);
                    if overwritten.is_some() {
                        eprintln!("{about}: the source was overwritten before it was read");
                        assert_has(&self.cluster.source, &copy, about);
                    }
                }
                _ if verified(first, host) => assert_has(&self.original, &copy, about),
                _ => {}
            }
        }
    }
}

/// Whether a cast was refused because another one was there.
fn was_refused(report: Option<&serde_json::Value>) -> bool {
    report.is_some_and(|report| report.to_string().contains("is writing there"))
}

/// Asserts that all files of a tree are in a copy, which may have more.
#[track_caller]
fn assert_has(tree: &Path, copy: &Path, about: &str) {
    if let Some(wrong) = differs(tree, copy) {
        panic!("{about}: verified, and wrong: {}", wrong.display());
    }
}

/// A file of a tree that is not in a copy, which may have more files.
fn differs(tree: &Path, copy: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(tree).unwrap().flatten();
    entries.into_iter().find_map(|entry| {
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            return differs(&from, &to);
        }
        let wrong =
            kind.is_file() && !fs::read(&to).is_ok_and(|found| found == fs::read(&from).unwrap());
        wrong.then_some(to)
    })
}

fn copy_tree(from: &Path, to: &Path, change: fn(&mut Vec<u8>)) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy_tree(&path, &to, change);
        } else if kind.is_file() {
            let mut bytes = fs::read(path).unwrap();
            change(&mut bytes);
            fs::write(to, bytes).unwrap();
        } else {
            symlink(fs::read_link(path).unwrap(), to).unwrap();
        }
    }
}

fn overwrite(path: &Path) -> bool {
    let file = File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    for at in (0..4 << 20).step_by(64 << 10) {
        file.write_all_at(b"overwritten", at).unwrap();
    }
    file.set_modified(time).unwrap();
    true
}

#[test]
fn verified_is_right_whatever_happens() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let casts: u64 = number("OUTPOUR_SOAK").unwrap_or(CASTS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed: u64 = number("OUTPOUR_SOAK_SEED").unwrap_or(now.as_secs());
    let next = AtomicU64::new(0);
    let run = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= casts {
                return;
            }
            let seed = seed.wrapping_add(index);
            // Which one it was is printed before it may fail.
            eprintln!("cast {index}, OUTPOUR_SOAK_SEED={seed}");
            let about = Run::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).run();
            eprintln!("cast {index}: {about}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(run);
        scope.spawn(run);
    });
}
