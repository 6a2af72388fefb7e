//! Trees to move, and ways to look at them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use outpour_core::BlockId;
use outpour_core::manifest::{BlockSize, Manifest};
use outpour_store::{BuildOptions, Destination, DestinationOptions, Error, Source, Written, build};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// Bytes that differ from seed to seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

pub(crate) fn put(root: &Path, path: impl AsRef<Path>, content: &[u8]) -> PathBuf {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

pub(crate) fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn set_mtime(path: impl AsRef<Path>, seconds: u64, nanos: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
    let file = fs::File::open(path).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(time))
        .unwrap();
}

/// A tree with something of every sort, for blocks of 16 KiB.
pub(crate) fn odd_tree(root: &Path) {
    fs::create_dir_all(root.join("empty/nested")).unwrap();
    put(root, "empty file", b"");
    put(root, "small", b"hello\n");
    put(root, "exact", &bytes(1, 16 << 10));
    put(root, "one more", &bytes(2, (16 << 10) + 1));
    put(root, "large", &bytes(3, 300_000));
    put(root, "a/large", &bytes(4, 8 * (16 << 10)));
    put(
        root,
        "a/b-file",
        b"sorts between a directory and what is in it",
    );
    put(root, "a/b/c", b"x");
    put(root, ["deep"; 40].join("/"), b"at the bottom");
    put(
        root,
        OsStr::from_bytes(b"not \xff utf-8/\xc3\x28"),
        b"bytes",
    );
    for index in 0..100 {
        put(
            root,
            format!("many/{index}"),
            &bytes(100 + index, 500 + index as usize),
        );
    }
    std::os::unix::fs::symlink("small", root.join("link")).unwrap();
    std::os::unix::fs::symlink("../../small", root.join("a/b/up")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
    set_mtime(root.join("small"), 1_000_000_000, 123_456_789);
    set_mtime(root.join("large"), 1, 1);
    chmod(put(root, "secret", b"0400"), 0o400);
    chmod(put(root, "secret large", &bytes(5, 50_000)), 0o400);
    chmod(put(root, "program", b"#!/bin/sh\n"), 0o777);
    chmod(root.join("a/b"), 0o555);
    set_mtime(root.join("a/b"), 2_000_000_000, 5);
}

/// Options under which nothing is synced unless a test asks for it.
pub(crate) fn manual() -> DestinationOptions {
    DestinationOptions {
        threads: NonZero::new(2).unwrap(),
        sync_bytes: u64::MAX,
        sync_files: usize::MAX,
        sync_after: Duration::from_secs(1 << 30),
        ..DestinationOptions::default()
    }
}

/// The first block in which a file of the object lies.
pub(crate) fn first_block(manifest: &Manifest, path: &str) -> BlockId {
    let mut entries = manifest.entries();
    let entry = entries.find(|entry| manifest.path(entry.id) == path.as_bytes());
    let blocks = manifest.blocks_of(entry.unwrap().id);
    assert!(!blocks.is_empty(), "{path} has no block");
    blocks.start
}

pub(crate) fn build_small(path: &Path) -> (Arc<Manifest>, Source) {
    let options = BuildOptions {
        block: BlockSize::Given(16 << 10),
        ..BuildOptions::default()
    };
    let (manifest, source) = build(path, &options, &|_| {}).unwrap();
    (Arc::new(manifest), source)
}

/// Writes every block that is missing, in no particular order; returns how many there were.
pub(crate) fn fill(source: &Source, destination: &Destination) -> u32 {
    let manifest = destination.manifest().clone();
    let have = destination.have();
    let mut buf = Vec::new();
    let mut written = 0;
    for block in (0..manifest.blocks()).rev() {
        if !have.contains(block) {
            source.read(block, &mut buf).unwrap();
            assert_eq!(destination.write(block, &buf).unwrap(), Written::Fresh);
            assert_eq!(destination.write(block, &buf).unwrap(), Written::Had);
            written += 1;
        }
    }
    written
}

/// Moves all of a tree and returns how many blocks had to be moved.
pub(crate) fn cast(from: &Path, to: &Path) -> Result<u32, Error> {
    let (manifest, source) = build_small(from);
    let destination = Destination::open(to, manifest, DestinationOptions::default())?;
    let written = fill(&source, &destination);
    destination.finish()?;
    Ok(written)
}

/// All there is to know about a tree but the times of symlinks and of the root.
pub(crate) fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let about = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                let content = if meta.is_dir() {
                    todo.push(path.clone());
                    "directory".to_owned()
                } else {
                    blake3::hash(&fs::read(&path).unwrap()).to_string()
                };
                let (mode, time) = (meta.mode(), (meta.mtime(), meta.mtime_nsec()));
                format!("{mode:o} {time:?} {} {content}", meta.len())
            };
            // The length of a directory depends on its history.
            let about = if meta.is_dir() {
                about.replace(&format!(" {} directory", meta.len()), " directory")
            } else {
                about
            };
            all.insert(path.strip_prefix(root).unwrap().to_path_buf(), about);
        }
    }
    all
}

/// A directory for one test.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Directories without write permission cannot be emptied by ordinary users.
        let mut todo = vec![self.0.path().to_path_buf()];
        while let Some(dir) = todo.pop() {
            let _ = fs::set_permissions(&dir, Permissions::from_mode(0o700));
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|sort| sort.is_dir()) {
                    todo.push(entry.path());
                }
            }
        }
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An ordinary user: nobody.
pub(crate) const USER: u32 = 65_534;

/// Runs a test as a user whom modes bind: a thread, and those that it starts.
pub(crate) fn as_user(test: impl FnOnce() + Send) {
    let bound = || {
        if is_root() {
            let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
        }
        test();
    };
    std::thread::scope(|scope| scope.spawn(bound).join().unwrap());
}

/// Makes that user the owner of a directory.
pub(crate) fn give(path: &Path) {
    if is_root() {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
}

/// A small file system of its own.
pub(crate) struct Mount(pub(crate) PathBuf);

/// Says that a test is skipped, past what the test runner keeps to itself.
pub(crate) fn skipped(why: &str) {
    let line = format!("\n*** SKIPPED: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

impl Mount {
    /// `None`, loudly, where this is not allowed.
    pub(crate) fn new(at: PathBuf, bytes: u64) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&at)
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(at));
        }
        skipped("a small file system can only be mounted by root");
        None
    }

    pub(crate) fn resize(&self, bytes: u64) {
        self.remount(&format!("size={bytes}"));
    }

    pub(crate) fn remount(&self, options: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.0)
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Makes an ext4 in an image.
pub(crate) fn mkfs_ext4(image: &Path, options: &[&str]) -> bool {
    let mut command = Command::new("mkfs.ext4");
    let made = command.args(["-q", "-F"]).args(options).arg(image).output();
    made.is_ok_and(|made| made.status.success())
}

/// A disk of a test's own: an image with a file system in it, which is mounted.
pub(crate) struct Disk {
    image: PathBuf,
    at: PathBuf,
    options: &'static str,
}

impl Disk {
    /// With an ext4; `None`, loudly, where this is not allowed.
    pub(crate) fn ext4(scratch: &Scratch, options: &[&str]) -> Option<Self> {
        Self::new(scratch, 64 << 20, |image| mkfs_ext4(image, options))
    }

    /// With the file system that `make` makes.
    pub(crate) fn new(
        scratch: &Scratch,
        bytes: u64,
        make: impl FnOnce(&Path) -> bool,
    ) -> Option<Self> {
        let disk = Self::with(scratch, bytes, "loop", make);
        if disk.is_none() {
            skipped("a disk of a test's own needs root, mkfs and loop devices");
        }
        disk
    }

    /// The same with options for `mount`; that it cannot be had is for the caller to say.
    pub(crate) fn with(
        scratch: &Scratch,
        bytes: u64,
        options: &'static str,
        make: impl FnOnce(&Path) -> bool,
    ) -> Option<Self> {
        let (image, at) = (scratch.path("image"), scratch.path("disk"));
        fs::create_dir_all(&at).unwrap();
        let _ = fs::remove_file(&image);
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let disk = Self { image, at, options };
        (make(&disk.image) && disk.mount()).then_some(disk)
    }

    fn mount(&self) -> bool {
        let mount = Command::new("mount")
            .args(["-o", self.options])
            .args([&self.image, &self.at])
            .output();
        mount.is_ok_and(|done| done.status.success())
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// Where it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// No user may use it.
    pub(crate) fn detach(&self) {
        let status = Command::new("umount").arg(&self.at).status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn attach(&self) {
        assert!(self.mount());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// An exFAT, as on the cards of cameras: it folds case and knows neither links nor owners.
pub(crate) struct Card {
    at: PathBuf,
    device: String,
}

impl Card {
    /// `None`, loudly, where this is not allowed.
    pub(crate) fn new(scratch: &Scratch) -> Option<Self> {
        let card = Self::mounted(scratch);
        if card.is_none() {
            skipped("an exFAT needs root, mkfs.exfat, mount.exfat-fuse, FUSE and loop devices");
        }
        card
    }

    fn mounted(scratch: &Scratch) -> Option<Self> {
        let (image, at) = (scratch.path("card"), scratch.path("mounted"));
        fs::create_dir_all(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let run = |program: &str, arguments: &[&OsStr]| {
            let done = Command::new(program).args(arguments).output().ok()?;
            let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
            done.status.success().then_some(said)
        };
        run("mkfs.exfat", &[image.as_os_str()])?;
        let (first, show) = (OsStr::new("-f"), OsStr::new("--show"));
        let device = run("losetup", &[first, show, image.as_os_str()])?;
        let card = Self { at, device };
        // Only with these modes can a state directory be private.
        let options = ["-o", "umask=077", &card.device].map(OsStr::new);
        run(
            "mount.exfat-fuse",
            &[&options[..], &[card.at.as_os_str()]].concat(),
        )?;
        // It comes about a little later.
        let start = std::time::Instant::now();
        let device_of = |path: &Path| fs::metadata(path).unwrap().dev();
        while device_of(&card.at) == device_of(&scratch.path("")) {
            if start.elapsed() > Duration::from_secs(10) {
                return None;
            }
            std::thread::yield_now();
        }
        Some(card)
    }

    /// Where it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}
