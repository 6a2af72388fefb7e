//! Sources that cannot be sent, and sources that change.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::time::{Duration, Instant, SystemTime};

use outpour_core::manifest::ManifestError;
use outpour_store::{BuildOptions, Destination, Error, build};

use crate::support::*;

fn refused(path: &std::path::Path) -> Error {
    build(path, &BuildOptions::default(), &|_| {}).unwrap_err()
}

#[test]
fn a_missing_source_is_named() {
    let scratch = Scratch::new();
    let error = refused(&scratch.path("nowhere"));
    assert!(
        error
            .to_string()
            .contains("nowhere: cannot read the source: No such"),
        "{error}"
    );
}

#[test]
fn special_files_are_refused_by_name() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "dir/file", b"1");
    let _socket = std::os::unix::net::UnixListener::bind(from.join("dir/socket")).unwrap();
    let error = refused(&from);
    assert!(matches!(error, Error::Special { .. }));
    assert!(
        error.to_string().contains("dir/socket: a socket"),
        "{error}"
    );
    let error = refused(std::path::Path::new("/dev/null"));
    assert!(
        error.to_string().starts_with("/dev/null: a device"),
        "{error}"
    );
}

#[test]
fn entries_that_no_object_may_have_are_refused_by_name() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    let check = |expected: &str| {
        let error = refused(&from);
        assert!(matches!(
            error,
            Error::Manifest(ManifestError::Symlink { .. } | ManifestError::Name { .. })
        ));
        assert!(error.to_string().contains(expected), "{error}");
        fs::remove_dir_all(&from).unwrap();
    };
    put(&from, "dir/file", b"1");
    symlink("/etc/passwd", from.join("dir/absolute")).unwrap();
    check("\"dir/absolute\" is a symlink to \"/etc/passwd\": an absolute target");
    put(&from, "dir/file", b"1");
    symlink("../../x", from.join("dir/out")).unwrap();
    check("\"dir/out\" is a symlink to \"../../x\": the target is outside the tree");
    put(&from, ".outpour", b"1");
    check("\".outpour\": the name \".outpour\" is reserved");
    put(&from, "new\nline", b"1");
    check("\"new\\u{a}line\": control bytes");
}

#[test]
fn setuid_and_sticky_bits_are_not_carried_over() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    chmod(put(&from, "dir/su", b"1"), 0o4755);
    chmod(from.join("dir"), 0o1777);
    cast(&from, &to).unwrap();
    chmod(from.join("dir/su"), 0o755);
    chmod(from.join("dir"), 0o777);
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn a_source_that_changes_after_hashing_is_an_error_and_never_wrong_bytes() {
    let scratch = Scratch::new();
    for change in 0..5 {
        let from = scratch.path(&format!("from{change}"));
        put(&from, "large", &bytes(1, 100_000));
        put(&from, "small", &bytes(2, 1000));
        let (manifest, source) = build_small(&from);
        let mut buf = Vec::new();
        for block in 0..manifest.blocks() {
            source.read(block, &mut buf).unwrap();
            assert!(manifest.verify(block, &buf));
        }
        let (large, small) = (
            first_block(&manifest, "large") + 2,
            first_block(&manifest, "small"),
        );
        for (name, block) in [("large", large), ("small", small)] {
            let path = from.join(name);
            let mut content = fs::read(&path).unwrap();
            match change {
                0 => {
                    content[40] ^= 1;
                    fs::write(&path, content).unwrap();
                }
                1 => fs::write(&path, &content[..content.len() - 1]).unwrap(),
                2 => fs::write(&path, [content, vec![0]].concat()).unwrap(),
                3 => {
                    fs::remove_file(&path).unwrap();
                    symlink("/dev/null", &path).unwrap();
                }
                _ => fs::remove_file(&path).unwrap(),
            }
            let read = source.read(block, &mut buf);
            if change >= 3 && name == "large" {
                // It is still open, and its bytes are still those that were hashed.
                read.unwrap();
                assert!(manifest.verify(block, &buf));
                continue;
            }
            let error = read.unwrap_err();
            assert!(
                matches!(error, Error::SourceChanged { .. }),
                "{change} {name}: {error}"
            );
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

#[test]
fn a_deep_tree_costs_no_descriptors() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let depth = 1500;
    put(&from, ["d"; 1500].join("/"), b"bottom");
    let (manifest, _) = build_small(&from);
    assert_eq!(manifest.entries().len(), depth);
    cast(&from, &to).unwrap();
    assert_eq!(fs::read(to.join(["d"; 1500].join("/"))).unwrap(), b"bottom");
}

/// Writes over a part of a file and puts its time back, as `touch -r` does.
fn overwrite(path: &std::path::Path, at: u64, with: &[u8]) {
    let before = fs::metadata(path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(with, at).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    file.set_times(times).unwrap();
    let after = fs::metadata(path).unwrap();
    assert_eq!(
        (after.len(), after.modified().unwrap()),
        (before.len(), before.modified().unwrap())
    );
}

/// Waits until nothing that was done to a file before can be taken for just now.
fn settle(path: &std::path::Path) {
    let meta = fs::metadata(path).unwrap();
    let changed = Duration::new(meta.ctime() as u64, meta.ctime_nsec() as u32);
    let start = Instant::now();
    while SystemTime::UNIX_EPOCH.elapsed().unwrap() < changed + Duration::from_millis(300) {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    }
}

#[test]
fn an_overwritten_source_is_named_though_its_size_and_time_are_the_same() {
    let scratch = Scratch::new();
    // Within one step of the clock a second write leaves no trace, so once is not enough.
    for (settled, rounds) in [(false, 20), (true, 1)] {
        for round in 0..rounds {
            let from = scratch.path(&format!("from{settled}{round}"));
            put(&from, "large", &bytes(round, 100_000));
            put(&from, "packed/first", &bytes(round + 1, 1000));
            put(&from, "packed/second", &bytes(round + 2, 1000));
            if settled {
                settle(&from.join("packed/second"));
            }
            let (manifest, source) = build_small(&from);
            overwrite(&from.join("large"), 2 * (16 << 10) + 77, b"other");
            overwrite(&from.join("packed/second"), 500, b"other");
            let mut buf = Vec::new();
            let changed = first_block(&manifest, "large") + 2;
            for block in 0..manifest.blocks() {
                let name = match block {
                    _ if block == changed => "large",
                    _ if manifest.is_pack(block) => "packed/second",
                    _ => {
                        // What is left of the file is still what was hashed.
                        source.read(block, &mut buf).unwrap();
                        assert!(manifest.verify(block, &buf));
                        continue;
                    }
                };
                let error = source.read(block, &mut buf).unwrap_err();
                assert!(matches!(error, Error::SourceChanged { .. }), "{error}");
                let expected = format!(
                    "{}: the file changed after it was hashed",
                    from.join(name).display()
                );
                assert_eq!(error.to_string(), expected);
            }
        }
    }
}

#[test]
fn what_concerns_no_byte_of_a_source_does_not_matter() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    let large = put(&from, "large", &bytes(1, 100_000));
    let small = put(&from, "small", &bytes(2, 1000));
    settle(&small);
    let (manifest, source) = build_small(&from);
    let all_right = |what: &str| {
        let mut buf = Vec::new();
        for block in 0..manifest.blocks() {
            source.read(block, &mut buf).expect(what);
            assert!(manifest.verify(block, &buf), "{what}");
        }
    };
    all_right("nothing was done");
    for path in [&large, &small] {
        chmod(path, 0o600);
        fs::hard_link(path, path.with_extension("link")).unwrap();
        overwrite(path, 0, &fs::read(path).unwrap());
    }
    all_right("modes, links, and the same bytes again");
    // Another file with the same bytes and time.
    for path in [&large, &small] {
        let copy = path.with_extension("copy");
        fs::copy(path, &copy).unwrap();
        let time = fs::metadata(path).unwrap().modified().unwrap();
        let file = fs::File::open(&copy).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(time))
            .unwrap();
        fs::rename(&copy, path).unwrap();
    }
    all_right("another file");
}

#[test]
fn an_unfinished_copy_is_no_source_and_says_of_which_object_it_is() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "large", &bytes(1, 100_000));
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(to.join("in"), manifest.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    source.read(0, &mut buf).unwrap();
    destination.write(0, &buf).unwrap();
    drop(destination);
    // One whose object is not known is refused, too.
    put(&from, ".outpour/x", b"1");
    let error = refused(&from).to_string();
    let advice = "; finish that cast first, or remove this directory";
    assert!(
        error.ends_with(&format!("unfinished cast{advice}")),
        "{error}"
    );
    for path in [to.join("in"), to.clone()] {
        let error = build(&path, &BuildOptions::default(), &|_| {}).unwrap_err();
        let expected = format!(
            "{}: the state of an unfinished cast of object {}{advice}",
            to.join("in/.outpour").display(),
            manifest.id()
        );
        assert_eq!(error.to_string(), expected);
    }
    // Once it is finished it is a source.
    let destination = Destination::open(to.join("in"), manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    build(&to, &BuildOptions::default(), &|_| {}).unwrap();
}
