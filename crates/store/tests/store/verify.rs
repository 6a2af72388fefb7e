//! Comparing what is on disk with a manifest.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use outpour_core::Bytes;
use outpour_store::{Problem, verify_tree};

use crate::support::*;

#[test]
fn a_tree_is_right_until_something_is_changed() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    odd_tree(&from);
    let (manifest, _) = build_small(&from);
    let hashed = AtomicU64::new(0);
    let verify = || {
        let progress = |bytes| {
            hashed.fetch_add(bytes, Ordering::Relaxed);
        };
        verify_tree(&from, &manifest, None, &progress).unwrap()
    };
    let report = verify();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.right, manifest.entries().len());
    assert_eq!(hashed.load(Ordering::Relaxed), manifest.size().0);

    put(&from, "extra", b"is ignored");
    let mut large = fs::read(from.join("large")).unwrap();
    large[150_000] ^= 1;
    large[20] ^= 1;
    put(&from, "large", &large);
    put(&from, "small", b"hello!");
    put(&from, "exact", b"short");
    fs::remove_file(from.join("link")).unwrap();
    std::os::unix::fs::symlink("exact", from.join("link")).unwrap();
    fs::remove_dir_all(from.join("empty")).unwrap();
    put(&from, "empty/nested", b"a file");
    fs::remove_file(from.join("program")).unwrap();
    let report = verify();
    let faults: Vec<_> = report
        .faults
        .iter()
        .map(|fault| {
            (
                std::str::from_utf8(&fault.path).unwrap(),
                fault.problem.clone(),
            )
        })
        .collect();
    let sort = Problem::Sort {
        found: "a file",
        expected: "a directory",
    };
    let size = Problem::Size {
        found: Bytes(5),
        expected: Bytes(16 << 10),
    };
    assert_eq!(
        faults,
        [
            ("empty/nested", sort),
            ("exact", size),
            ("large", Problem::Content),
            ("link", Problem::Target),
            ("program", Problem::Missing),
            ("small", Problem::Content),
        ]
    );
    assert_eq!(report.right, manifest.entries().len() - 6);
}

#[test]
fn a_file_is_verified_under_any_name() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "file", &bytes(1, 100_000));
    let (manifest, _) = build_small(&from);
    let renamed = put(&scratch.path("to"), "renamed", &bytes(1, 100_000));
    assert!(
        verify_tree(&renamed, &manifest, None, &|_| {})
            .unwrap()
            .is_clean()
    );
    assert!(
        verify_tree(scratch.path("from"), &manifest, None, &|_| {})
            .unwrap()
            .is_clean()
    );
    fs::write(&renamed, bytes(2, 100_000)).unwrap();
    let report = verify_tree(&renamed, &manifest, None, &|_| {}).unwrap();
    assert_eq!(report.faults[0].problem, Problem::Content);
    assert!(verify_tree(scratch.path("nowhere/x"), &manifest, None, &|_| {}).is_err());
}

#[test]
fn a_link_in_place_of_a_directory_is_not_followed() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "dir/file", b"1");
    let (manifest, _) = build_small(&from);
    fs::rename(from.join("dir"), scratch.path("aside")).unwrap();
    std::os::unix::fs::symlink(scratch.path("aside"), from.join("dir")).unwrap();
    let report = verify_tree(&from, &manifest, None, &|_| {}).unwrap();
    assert_eq!(report.faults.len(), 2);
    assert_eq!(report.faults[1].problem, Problem::Missing);
}
