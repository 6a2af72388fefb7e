//! Modes that close entries to a user who is not root.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use outpour_core::manifest::Manifest;
use outpour_store::{Destination, DestinationOptions};

use crate::support::*;

/// Entries that their owner cannot use, inside of each other, and more directories than are kept
/// open.
fn closed_tree(root: &Path) {
    for dir in 0..80 {
        let outer = root.join(format!("d{dir}"));
        let small = put(&outer, "in/small", &bytes(dir, 700));
        chmod(small, 0o000);
        chmod(outer.join("in"), 0o000);
        chmod(outer, [0o000, 0o444, 0o300, 0o077][dir as usize % 4]);
    }
    chmod(put(root, "large", &bytes(100, 200_000)), 0o000);
    chmod(put(root, "nothing", b""), 0o000);
    chmod(put(root, "write only", b"w"), 0o222);
}

/// Such a tree, and a place for it that belongs to a user.
fn a_users(scratch: &Scratch, theirs: &Scratch) -> (PathBuf, PathBuf) {
    let from = scratch.path("from");
    closed_tree(&from);
    give(&theirs.path(""));
    (from, theirs.path("to"))
}

/// What a source that root can read has.
fn read_all(from: &Path) -> (Arc<Manifest>, Vec<Vec<u8>>) {
    let (manifest, source) = build_small(from);
    let read = |block| {
        let mut buf = Vec::new();
        source.read(block, &mut buf).unwrap();
        buf
    };
    let blocks = (0..manifest.blocks()).map(read).collect();
    (manifest, blocks)
}

fn open(to: &Path, manifest: &Arc<Manifest>) -> Destination {
    let options = DestinationOptions {
        verify_after: true,
        ..DestinationOptions::default()
    };
    Destination::open(to, manifest.clone(), options).unwrap()
}

/// Writes what is missing; returns how many blocks that were.
fn fill_from(blocks: &[Vec<u8>], destination: &Destination) -> usize {
    let have = destination.have();
    let missing = (0..)
        .zip(blocks)
        .filter(|(block, _)| !have.contains(*block));
    let written = missing.map(|(block, data)| destination.write(block, data).unwrap());
    written.count()
}

#[test]
fn what_its_mode_closes_to_us_is_cast_and_served_again_and_again() {
    if !is_root() {
        return skipped("only root can read a source that is closed to its owner");
    }
    let (scratch, theirs) = (Scratch::new(), Scratch::new());
    let (from, to) = a_users(&scratch, &theirs);
    let (manifest, blocks) = read_all(&from);
    for expected in [blocks.len(), 0, 0] {
        as_user(|| {
            let destination = open(&to, &manifest);
            assert_eq!(fill_from(&blocks, &destination), expected);
            destination.finish().unwrap();
            // Others may still fetch all of it from here.
            let mut buf = Vec::new();
            for block in 0..manifest.blocks() {
                destination.read(block, &mut buf).unwrap();
            }
            destination.finish().unwrap();
        });
        assert_eq!(describe(&to), describe(&from));
    }
}

#[test]
fn what_was_opened_in_vain_is_closed_again() {
    if !is_root() {
        return skipped("only root can read a source that is closed to its owner");
    }
    let (scratch, theirs) = (Scratch::new(), Scratch::new());
    let (from, to) = a_users(&scratch, &theirs);
    let (manifest, blocks) = read_all(&from);
    as_user(|| {
        let destination = open(&to, &manifest);
        fill_from(&blocks, &destination);
        destination.finish().unwrap();
    });
    // A newer version of one file, which does not come whole.
    put(&from, "large", &bytes(101, 200_000));
    let (newer, _) = read_all(&from);
    let before = describe(&to);
    as_user(|| drop(open(&to, &newer)));
    let mut after = describe(&to);
    after.retain(|path, _| !path.starts_with(".outpour"));
    assert_eq!(after, before);
}

#[test]
fn to_root_entries_have_their_own_modes_as_soon_as_they_are_verified() {
    if !is_root() {
        return skipped("modes do not keep root alone out");
    }
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    closed_tree(&from);
    let (manifest, blocks) = read_all(&from);
    let destination = open(&to, &manifest);
    fill_from(&blocks, &destination);
    destination.finish().unwrap();
    // Killed from here on, it would leave them so.
    let mut now = describe(&to);
    now.retain(|path, _| !path.starts_with(".outpour"));
    assert_eq!(now, describe(&from));
    drop(destination);
}
