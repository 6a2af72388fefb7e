//! A full disk is told, costs nothing, and can be recovered from.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outpour_store::{Destination, Error, WriteError};

use crate::support::*;

fn visible(to: &Path) -> Vec<PathBuf> {
    let all = describe(to).into_keys();
    all.filter(|path| !path.starts_with(".outpour")).collect()
}

#[test]
fn what_cannot_fit_is_refused_before_data_moves() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "large", &bytes(1, 3 << 20));
    let Some(mount) = Mount::new(scratch.path("to"), 2 << 20) else {
        return;
    };
    let (manifest, source) = build_small(&from);
    let error = Destination::open(&mount.0, manifest.clone(), manual()).unwrap_err();
    assert!(matches!(error, Error::Space { .. }), "{error}");
    assert!(error.to_string().contains("3.15 MB needed"), "{error}");
    mount.resize(8 << 20);
    let destination = Destination::open(&mount.0, manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
}

#[test]
fn a_disk_that_fills_up_loses_nothing_and_shows_nothing_half() {
    for large in [true, false] {
        let scratch = Scratch::new();
        let from = scratch.path("from");
        if large {
            for index in 0..3 {
                put(&from, format!("large{index}"), &bytes(index, 1 << 20));
            }
        } else {
            for index in 0..600 {
                put(&from, format!("{index}"), &bytes(index, 5000));
            }
        }
        let Some(mount) = Mount::new(scratch.path("to"), 16 << 20) else {
            return;
        };
        let (manifest, source) = build_small(&from);
        let destination = Destination::open(&mount.0, manifest.clone(), manual()).unwrap();
        // Another program takes the space.
        let ballast = mount.0.join("ballast");
        fs::write(&ballast, vec![1; 14 << 20]).unwrap();
        let mut buf = Vec::new();
        let full = (0..manifest.blocks()).find_map(|block| {
            source.read(block, &mut buf).unwrap();
            destination
                .write(block, &buf)
                .err()
                .map(|error| (block, error))
        });
        let (block, error) = full.unwrap();
        assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
        let said = error.to_string();
        // How much that is depends on what the file system takes for itself.
        assert!(said.contains(": the disk is full, "), "{said}");
        assert!(said.ends_with("more are needed; make room there"), "{said}");
        assert_eq!(destination.have().count(), block);
        // Nothing new is possible, and what was written is still here.
        for block in destination.have().iter() {
            destination.read(block, &mut buf).unwrap();
            assert!(manifest.verify(block, &buf));
        }
        let _ = destination.sync();
        for path in visible(&mount.0)
            .iter()
            .filter(|path| !path.ends_with("ballast"))
        {
            let (there, expected) = (fs::read(mount.0.join(path)), fs::read(from.join(path)));
            assert_eq!(there.unwrap(), expected.unwrap(), "{}", path.display());
        }
        // There is room again: the same destination goes on.
        fs::remove_file(ballast).unwrap();
        assert_eq!(fill(&source, &destination), manifest.blocks() - block);
        destination.finish().unwrap();
        assert_eq!(describe(&mount.0), describe(&from));
    }
}

/// Takes all the space that there is; gives it back when the file is removed.
fn fill_up(ballast: &Path) {
    let mut file = fs::File::create(ballast).unwrap();
    let page = [1; 4096];
    while file.write_all(&page).is_ok() {}
}

/// What the first sync after the disk is full was about is synced and put in place later.
#[test]
fn what_a_sync_could_not_record_is_recorded_when_there_is_room() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    // Each other block makes a run of its own in the journal: more of them than a page holds.
    put(&from, "holes", &bytes(1, 1400 * (16 << 10)));
    put(&from, "entire", &bytes(2, 100_000));
    put(&from, "small", b"hello");
    let Some(mount) = Mount::new(scratch.path("to"), 32 << 20) else {
        return;
    };
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&mount.0, manifest.clone(), manual()).unwrap();
    let holes = first_block(&manifest, "holes");
    let mut buf = Vec::new();
    for block in (0..manifest.blocks()).filter(|block| *block < holes || block % 2 == 0) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    let ballast = mount.0.join("ballast");
    fill_up(&ballast);
    for _ in 0..2 {
        let error = destination.sync().unwrap_err();
        assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
        assert_eq!(visible(&mount.0), [Path::new("ballast")]);
    }
    fs::remove_file(ballast).unwrap();
    destination.sync().unwrap();
    for file in ["entire", "small"] {
        assert_eq!(
            fs::read(mount.0.join(file)).unwrap(),
            fs::read(from.join(file)).unwrap()
        );
    }
    fill(&source, &destination);
    destination.finish().unwrap();
    assert_eq!(describe(&mount.0), describe(&from));
}

#[test]
fn what_a_sync_could_not_put_in_place_gets_there_when_there_is_room() {
    // The test syncs again, or leaves it to the destination to try again.
    for asked in [true, false] {
        let scratch = Scratch::new();
        let from = scratch.path("from");
        let files = ["a/large", "a/small", "b/large", "b/small"];
        for file in files {
            let len = if file.ends_with("large") { 50_000 } else { 5 };
            put(&from, file, &bytes(1, len));
        }
        let Some(mount) = Mount::new(scratch.path("to"), 16 << 20) else {
            return;
        };
        let (manifest, source) = build_small(&from);
        let destination = Destination::open(&mount.0, manifest, manual()).unwrap();
        fill(&source, &destination);
        // There is room for bytes, and none for another directory.
        let stat = rustix::fs::statvfs(&mount.0).unwrap();
        mount.remount(&format!("nr_inodes={}", stat.f_files - stat.f_ffree));
        let error = destination.sync().unwrap_err();
        assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
        assert!(visible(&mount.0).is_empty());
        mount.remount(&format!("nr_inodes={}", stat.f_files));
        if asked {
            destination.sync().unwrap();
        }
        let is_there = |file| fs::read(mount.0.join(file)).ok() == fs::read(from.join(file)).ok();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !asked && !files.into_iter().all(is_there) {
            assert!(Instant::now() < deadline, "nobody tries again");
            std::thread::yield_now();
        }
        assert!(files.into_iter().all(is_there));
        destination.finish().unwrap();
        assert_eq!(describe(&mount.0), describe(&from));
    }
}

#[test]
fn part_of_a_tree_on_another_file_system_is_refused() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a/b/file", b"1");
    let Some(_mount) = Mount::new(to.join("a/b"), 1 << 20) else {
        return;
    };
    let (manifest, _) = build_small(&from);
    let error = Destination::open(&to, manifest, manual()).unwrap_err();
    assert!(
        matches!(&error, Error::OtherFileSystem { path } if path.ends_with("a/b")),
        "{error}"
    );
}
