//! Nothing is written outside of the destination, whoever tries.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use outpour_store::{Destination, Error, WriteError};

use crate::support::*;

#[test]
fn a_link_where_a_directory_belongs_is_refused_at_once() {
    let scratch = Scratch::new();
    let (from, to, outside) = (
        scratch.path("from"),
        scratch.path("to"),
        scratch.path("outside"),
    );
    put(&from, "a/b/file", b"1");
    fs::create_dir_all(to.join("a")).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, to.join("a/b")).unwrap();
    let (manifest, _) = build_small(&from);
    let error = Destination::open(&to, manifest, manual()).unwrap_err();
    assert!(
        matches!(&error, Error::UnsafePath { path } if path.ends_with("a/b")),
        "{error}"
    );
    assert!(describe(&outside).is_empty());
    // Inside or outside makes no difference: links are not followed.
    fs::remove_file(to.join("a/b")).unwrap();
    symlink(".", to.join("a/b")).unwrap();
    let (manifest, _) = build_small(&from);
    assert!(Destination::open(&to, manifest, manual()).is_err());
}

/// Swaps a directory for a link at different moments and checks that nothing gets through it.
#[test]
fn a_parent_swapped_for_a_link_while_writing_is_refused() {
    for (synced_before, keep_open) in [(false, false), (false, true), (true, false), (true, true)] {
        let scratch = Scratch::new();
        let (from, to) = (scratch.path("from"), scratch.path("to"));
        let (outside, aside) = (scratch.path("outside"), scratch.path("aside"));
        put(&from, "dir/sub/first", b"1");
        put(&from, "dir/sub/large", &bytes(1, 100_000));
        put(&from, "dir/sub/zero", b"");
        symlink("first", from.join("dir/sub/link")).unwrap();
        fs::create_dir_all(outside.join("sub")).unwrap();
        chmod(outside.join("sub"), 0o705);
        let before = describe(&outside);
        fs::create_dir_all(to.join("dir/sub")).unwrap();

        let (manifest, source) = build_small(&from);
        let mut destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
        let mut buf = Vec::new();
        let small = first_block(&manifest, "dir/sub/first");
        if synced_before {
            // The small file is put in place, which opens the directory.
            source.read(small, &mut buf).unwrap();
            destination.write(small, &buf).unwrap();
            destination.sync().unwrap();
        }
        fs::rename(to.join("dir"), &aside).unwrap();
        symlink(&outside, to.join("dir")).unwrap();
        if !keep_open && synced_before {
            drop(destination);
            let error = Destination::open(&to, manifest, manual()).unwrap_err();
            assert!(matches!(error, Error::UnsafePath { .. }), "{error}");
            assert_eq!(describe(&outside), before);
            continue;
        }
        if !keep_open {
            drop(destination);
            fs::remove_file(to.join("dir")).unwrap();
            destination = Destination::open(&to, manifest, manual()).unwrap();
            symlink(&outside, to.join("dir")).unwrap();
        }
        fill(&source, &destination);
        let error = destination.finish().unwrap_err();
        assert!(matches!(error, Error::UnsafePath { .. }), "{error}");
        assert_eq!(describe(&outside), before);
    }
}

#[test]
fn a_failed_placement_is_told_to_who_writes_next() {
    let scratch = Scratch::new();
    let (from, to, outside) = (
        scratch.path("from"),
        scratch.path("to"),
        scratch.path("outside"),
    );
    put(&from, "dir/small", b"1");
    put(&from, "large", &bytes(1, 100_000));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(to.join("dir")).unwrap();
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    fs::remove_dir(to.join("dir")).unwrap();
    symlink(&outside, to.join("dir")).unwrap();
    let mut buf = Vec::new();
    let small = first_block(&manifest, "dir/small");
    source.read(small, &mut buf).unwrap();
    destination.write(small, &buf).unwrap();
    assert!(destination.sync().is_err());
    let large = first_block(&manifest, "large");
    source.read(large, &mut buf).unwrap();
    let error = destination.write(large, &buf).unwrap_err();
    assert!(
        matches!(error, WriteError::Failed(Error::UnsafePath { .. })),
        "{error}"
    );
    assert!(describe(&outside).is_empty());
}

#[test]
fn the_state_directory_must_be_ours() {
    let scratch = Scratch::new();
    let (from, to, outside) = (
        scratch.path("from"),
        scratch.path("to"),
        scratch.path("outside"),
    );
    put(&from, "file", &bytes(1, 100_000));
    let (manifest, source) = build_small(&from);
    fs::create_dir_all(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, to.join(".outpour")).unwrap();
    let error = Destination::open(&to, manifest.clone(), manual()).unwrap_err();
    assert!(matches!(error, Error::UnsafePath { .. }), "{error}");
    assert!(describe(&outside).is_empty());
    fs::remove_file(to.join(".outpour")).unwrap();

    fs::create_dir(to.join(".outpour")).unwrap();
    chmod(to.join(".outpour"), 0o777);
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    assert_eq!(
        fs::metadata(to.join(".outpour")).unwrap().mode() & 0o777,
        0o700
    );
    fill(&source, &destination);
    drop(destination);
    if !is_root() {
        skipped("a state directory of another user can only be made by root");
        return;
    }
    std::os::unix::fs::chown(to.join(".outpour"), Some(12345), None).unwrap();
    let error = Destination::open(&to, manifest, manual()).unwrap_err();
    assert!(matches!(error, Error::Permission { .. }), "{error}");
}

#[test]
fn a_destination_that_is_no_directory_is_named() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "file", b"1");
    let (manifest, _) = build_small(&from);
    let file = put(&scratch.path("to"), "file", b"");
    for path in [file.clone(), file.join("beneath")] {
        let error = Destination::open(&path, manifest.clone(), manual()).unwrap_err();
        assert!(matches!(error, Error::Blocked { .. }), "{error}");
        assert!(error.to_string().contains("to/file"), "{error}");
    }
}

#[test]
fn an_unwritable_destination_is_named() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "file", b"1");
    let (manifest, _) = build_small(&from);
    fs::create_dir(&to).unwrap();
    let _mount = if is_root() {
        // Permissions mean nothing to root.
        let Some(mount) = Mount::new(to.clone(), 1 << 20) else {
            return;
        };
        mount.remount("ro");
        Some(mount)
    } else {
        chmod(&to, 0o555);
        None
    };
    for path in [to.clone(), to.join("beneath/it")] {
        let error = Destination::open(&path, manifest.clone(), manual()).unwrap_err();
        assert!(matches!(error, Error::Permission { .. }), "{error:?}");
        assert!(error.to_string().contains("/to"), "{error}");
    }
}
