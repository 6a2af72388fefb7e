//! What would prevent a cast is said before it, in the same words, and nothing changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outpour_core::BlockSet;
use outpour_core::manifest::Manifest;
use outpour_store::{Destination, Error, look, preflight};

use crate::support::*;

fn foresee(path: &Path, manifest: &Manifest) -> Result<(), Error> {
    let have = look(
        path,
        None,
        manifest,
        &outpour_store::Stop::default(),
        &|_| {},
    );
    // What cannot be read is not there.
    let have = have.unwrap_or_else(|_| BlockSet::new(manifest.blocks()));
    preflight(path, None, manifest, Some(&have))
}

/// Asserts that a cast to `path` fails, and that this is foreseen.
#[track_caller]
fn assert_foreseen(path: &Path, manifest: &Arc<Manifest>) -> Error {
    let foreseen = foresee(path, manifest).unwrap_err();
    let failed = Destination::open(path, manifest.clone(), manual()).unwrap_err();
    // The directories that the cast has made take some room, too.
    let said = |error: &Error| {
        error
            .to_string()
            .split(" needed")
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(said(&foreseen), said(&failed));
    foreseen
}

#[test]
fn a_place_that_cannot_be_written_is_foreseen() {
    let (scratch, theirs) = (Scratch::new(), Scratch::new());
    let tree = scratch.path("from");
    put(&tree, "file", b"1");
    let objects = [&tree, &tree.join("file")].map(|path| build_small(path).0);
    chmod(scratch.path(""), 0o755);
    give(&theirs.path(""));
    as_user(|| {
        let closed = theirs.path("closed");
        fs::create_dir_all(closed.join("entered only")).unwrap();
        fs::create_dir(theirs.path("unreadable")).unwrap();
        put(&theirs.path(""), "a file", b"");
        symlink("nowhere", theirs.path("dangling")).unwrap();
        chmod(closed.join("entered only"), 0o111);
        chmod(&closed, 0o555);
        chmod(theirs.path("unreadable"), 0o000);
        for manifest in &objects {
            for path in [
                "closed/new/tree",
                "closed/",
                "closed/entered only/",
                "unreadable/x/",
                "a file/x",
                "dangling/x",
            ] {
                assert_foreseen(&theirs.path(path), manifest);
            }
            for fine in ["new", "new/deep/er/", "."] {
                foresee(&theirs.path(fine), manifest).unwrap();
            }
        }
        let made = fs::read_dir(theirs.path("")).unwrap().count();
        assert_eq!(made, 4, "something was made");
    });
}

/// Fills a file system so that so many bytes are left.
fn leave(mount: &Mount, bytes: usize) -> PathBuf {
    let system = rustix::fs::statvfs(&mount.0).unwrap();
    let free = (system.f_bavail * system.f_frsize) as usize;
    put(&mount.0, "ballast", &vec![1; free - bytes])
}

#[test]
fn too_little_room_is_foreseen_and_what_is_staged_counts() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "large", &bytes(1, 3 << 20));
    for small in 0..50 {
        put(&from, format!("small{small}"), &bytes(small, 1000));
    }
    let (manifest, source) = build_small(&from);
    let Some(mount) = Mount::new(scratch.path("disk"), 2 << 20) else {
        return;
    };
    let to = mount.0.join("to");
    let error = assert_foreseen(&to, &manifest);
    assert!(matches!(error, Error::Space { .. }), "{error}");
    // A relay does not know what it will hold.
    preflight(&to, None, &manifest, None).unwrap();
    mount.resize(4 << 20);
    foresee(&to, &manifest).unwrap();

    // Most of it comes, and the cast is interrupted.
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    for block in 0..manifest.blocks() - 20 {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    drop(destination);
    let ballast = leave(&mount, 400_000);
    foresee(&to, &manifest).unwrap();
    fs::remove_file(&ballast).unwrap();
    leave(&mount, 100_000);
    let error = assert_foreseen(&to, &manifest);
    assert!(matches!(error, Error::Space { .. }), "{error}");

    // What is in place needs no room, whatever else is in its block.
    fs::remove_file(&ballast).unwrap();
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    drop(destination);
    fs::remove_file(to.join("small7")).unwrap();
    leave(&mount, 8192);
    foresee(&to, &manifest).unwrap();
}
