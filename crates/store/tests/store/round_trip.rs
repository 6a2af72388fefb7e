//! What was sent is what arrives.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use outpour_core::manifest::{BlockSize, Content};
use outpour_store::{BuildOptions, Destination, DestinationOptions, Error, build};

use crate::support::*;

#[test]
fn an_odd_tree_arrives_as_it_is() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to/be/made"));
    odd_tree(&from);
    let moved = cast(&from, &to).unwrap();
    assert!(moved > 30);
    assert_eq!(describe(&to), describe(&from));
    let link = |root: &std::path::Path| fs::symlink_metadata(root.join("link")).unwrap();
    assert_eq!(link(&to).mtime_nsec(), link(&from).mtime_nsec());
    assert_eq!(cast(&from, &to).unwrap(), 0, "nothing is moved twice");
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn an_empty_tree_is_a_directory() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    fs::create_dir(&from).unwrap();
    chmod(&from, 0o750);
    assert_eq!(cast(&from, &to).unwrap(), 0);
    assert!(describe(&to).is_empty());
    assert_eq!(
        fs::metadata(&to).unwrap().permissions().mode() & 0o7777,
        0o750
    );
}

#[test]
fn hashes_are_those_of_the_files() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    odd_tree(&from);
    let (manifest, _) = build_small(&from);
    let mut files = 0;
    for entry in manifest.entries() {
        let Content::File { .. } = entry.content else {
            assert_eq!(manifest.file_hash(entry.id), None);
            continue;
        };
        let path = std::ffi::OsString::from(manifest.path_shown(entry.id));
        if let Ok(content) = fs::read(from.join(path)) {
            assert_eq!(manifest.file_hash(entry.id), Some(blake3::hash(&content)));
            files += 1;
        }
    }
    assert_eq!(
        files,
        manifest.files() - 1,
        "all but the one that is not UTF-8"
    );
}

#[test]
fn the_manifest_does_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    odd_tree(&from);
    put(&from, "larger", &bytes(9, 20 << 20));
    let id = |threads| {
        let options = BuildOptions {
            block: BlockSize::Usual,
            threads: std::num::NonZero::new(threads).unwrap(),
            ..BuildOptions::default()
        };
        let progress = std::sync::atomic::AtomicU64::new(0);
        let add = |bytes| {
            progress.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let (manifest, _) = build(&from, &options, &add).unwrap();
        assert_eq!(progress.into_inner(), manifest.size().0);
        manifest.id()
    };
    assert_eq!(id(1), id(7));
}

#[test]
fn a_file_takes_the_name_it_is_given() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "image", &bytes(1, 100_000));
    fs::create_dir_all(scratch.path("there")).unwrap();
    for (to, arrives) in [
        ("new/name", "new/name"),
        ("other/", "other/image"),
        ("there", "there/image"),
        ("plain", "plain"),
    ] {
        cast(&from, &scratch.path(to)).unwrap();
        let found = fs::read(scratch.path(arrives)).unwrap();
        assert_eq!(found, fs::read(&from).unwrap(), "{to}");
        assert_eq!(cast(&from, &scratch.path(to)).unwrap(), 0, "{to}");
    }
    assert_eq!(
        describe(&scratch.path("there")).len(),
        1,
        "no state is left"
    );
}

#[test]
fn a_link_to_the_source_is_followed_and_names_it() {
    let scratch = Scratch::new();
    let file = put(&scratch.path("from"), "v17", &bytes(1, 1000));
    let link = scratch.path("latest");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let (manifest, source) = build_small(&link);
    assert_eq!(manifest.entries().next().unwrap().name, b"latest");
    let mut buf = Vec::new();
    source.read(0, &mut buf).unwrap();
    assert_eq!(buf, bytes(1, 1000));
}

#[test]
fn blocks_can_be_read_back_from_wherever_they_are() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    odd_tree(&from);
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    let mut check = |block| {
        source.read(block, &mut sent).unwrap();
        destination.read(block, &mut read).unwrap();
        assert_eq!(sent, read, "block {block}");
    };
    assert!(matches!(
        destination.read(0, &mut Vec::new()),
        Err(Error::Absent { block: 0 })
    ));
    fill(&source, &destination);
    (0..manifest.blocks()).for_each(&mut check);
    destination.sync().unwrap();
    (0..manifest.blocks()).for_each(&mut check);
    destination.finish().unwrap();
    (0..manifest.blocks()).for_each(&mut check);
    assert!(
        destination
            .read(manifest.blocks(), &mut Vec::new())
            .is_err()
    );
}

#[test]
fn many_threads_can_write_and_read_at_once() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    odd_tree(&from);
    put(&from, "larger", &bytes(9, 8 << 20));
    let (manifest, source) = build_small(&from);
    let options = DestinationOptions {
        sync_bytes: 1 << 20,
        ..DestinationOptions::default()
    };
    let destination = Destination::open(&to, manifest.clone(), options).unwrap();
    let fresh = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // All threads write all blocks.
            scope.spawn(|| {
                let (mut buf, mut back) = (Vec::new(), Vec::new());
                for block in 0..manifest.blocks() {
                    source.read(block, &mut buf).unwrap();
                    if destination.write(block, &buf).unwrap() == outpour_store::Written::Fresh {
                        fresh.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    destination.read(block, &mut back).unwrap();
                    assert_eq!(buf, back);
                }
            });
        }
    });
    assert_eq!(fresh.into_inner(), manifest.blocks());
    destination.finish().unwrap();
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn nothing_has_its_final_name_before_it_is_whole_and_synced() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "large", &bytes(1, 100_000));
    put(&from, "small", b"small");
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    let visible = || {
        let all = describe(&to);
        all.keys()
            .filter(|path| !path.starts_with(".outpour"))
            .count()
    };
    let mut buf = Vec::new();
    let last = first_block(&manifest, "large") + 6;
    for block in (0..manifest.blocks()).filter(|block| *block != last) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    assert_eq!(visible(), 0, "not before the sync");
    destination.sync().unwrap();
    assert_eq!(visible(), 1, "the small one");
    assert!(matches!(
        destination.finish(),
        Err(Error::Incomplete { missing: 1 })
    ));
    source.read(last, &mut buf).unwrap();
    destination.write(last, &buf).unwrap();
    assert_eq!(visible(), 1);
    destination.sync().unwrap();
    assert_eq!(visible(), 2);
    destination.finish().unwrap();
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn blocks_of_the_wrong_length_are_refused() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "file", &bytes(1, 100_000));
    let (manifest, _) = build_small(&from);
    let destination = Destination::open(scratch.path("to"), manifest, manual()).unwrap();
    for (block, len) in [(0, 0), (0, 1), (0, (16 << 10) + 1), (99, 0), (99, 16 << 10)] {
        assert!(
            destination.write(block, &vec![0; len]).is_err(),
            "{block} {len}"
        );
    }
}
