//! A full disk is told, costs nothing, and can be recovered from.

use std::fs;
use std::path::{Path, PathBuf};

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
