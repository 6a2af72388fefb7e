//! One writer per destination, and trees inside one another count as one.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use outpour_core::manifest::{Manifest, ObjectId};
use outpour_store::{Claim, Error, Intent, Overlap, Party, Shape};

use crate::support::*;

fn intent(name: &str, shape: Shape) -> Intent {
    Intent {
        object: ObjectId::of(name.as_bytes()),
        shape,
        label: format!("{name} by ana@build1"),
        party: None,
    }
}

fn tree(path: &Path, name: &str) -> Result<Claim, Error> {
    Claim::take(path, None, intent(name, Shape::Tree))
}

fn file(path: &Path, name: &str) -> Result<Claim, Error> {
    Claim::take(path, None, intent(name, Shape::File(name.into())))
}

fn known(path: &Path, manifest: &Manifest) -> Result<Claim, Error> {
    let intent = Intent {
        object: manifest.id(),
        shape: Shape::of(manifest),
        label: "outer by bob@build2".into(),
        party: None,
    };
    Claim::take(path, None, intent)
}

/// Asserts that a claim was refused for the sake of `first`.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(claim: Result<T, Error>, first: &str) -> Overlap {
    let error = claim.unwrap_err();
    let said = error.to_string();
    let by = format!(": the cast of {first} by ana@build1 is writing ");
    assert!(said.contains(&by), "{said}");
    assert!(
        said.ends_with("; wait until it is over, or use --wait"),
        "{said}"
    );
    let by = error.locked_by().unwrap();
    assert_eq!(by.object, Some(ObjectId::of(first.as_bytes())));
    match error {
        Error::Locked { at, .. } => at,
        other => panic!("{other}"),
    }
}

#[test]
fn another_node_of_the_same_cast_is_told_from_another_cast() {
    let scratch = Scratch::new();
    let (to, from) = (scratch.path("to"), scratch.path("from"));
    fs::create_dir(&to).unwrap();
    fs::create_dir_all(from.join("in/side")).unwrap();
    std::os::unix::fs::symlink("to", scratch.path("link")).unwrap();
    let manifest = build_small(&from).0;
    let node = |path: &Path, node| {
        let party = Party {
            cast: [7; 16],
            node,
        };
        let intent = Intent {
            party: Some(party),
            object: manifest.id(),
            ..intent("one", Shape::Tree)
        };
        let mut claim = Claim::take(path, None, intent)?;
        claim.survey(&manifest).map(|()| claim)
    };
    let first = node(&to, 3).unwrap();
    for (path, expected) in [
        ("link", Overlap::Same),
        ("link/in", Overlap::Around(scratch.path("link"))),
    ] {
        match node(&scratch.path(path), 4).unwrap_err() {
            Error::Twin { at, node: 3, .. } => assert_eq!(at, expected),
            other => panic!("{path}: {other}"),
        }
    }
    // What an agent of the same node has left may be gone the next moment.
    assert!(node(&to, 3).unwrap_err().is_locked());
    assert!(tree(&to, "two").unwrap_err().is_locked());
    drop(first);
    let _inner = node(&to.join("in/side"), 3).unwrap();
    let error = node(&scratch.path("link"), 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: contains another destination of this cast; name each place once",
            scratch.path("link").display()
        )
    );
}

#[test]
fn a_second_tree_is_refused_with_the_name_of_the_first() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    let first = tree(&to, "first").unwrap();
    assert_eq!(assert_refused(tree(&to, "second"), "first"), Overlap::Same);
    assert_eq!(assert_refused(tree(&to, "first"), "first"), Overlap::Same);
    drop(first);
    tree(&to, "second").unwrap();
}

#[test]
fn files_share_a_directory_but_no_name_and_no_tree() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    fs::create_dir(&to).unwrap();
    let first = file(&to, "first").unwrap();
    let second = file(&to, "second").unwrap();
    assert_refused(file(&to, "first"), "first");
    assert_refused(file(&to.join("second"), "third"), "second");
    // What is busy is named: the file, and not its directory.
    let said = file(&to, "first").unwrap_err().to_string();
    let busy = format!("{}: the cast of first ", to.join("first").display());
    assert!(said.starts_with(&busy), "{said}");
    drop(second);
    // The tree is told of the file that is left.
    assert_refused(tree(&to, "tree"), "first");
    drop(first);
    let around = tree(&to, "tree").unwrap();
    assert_refused(file(&to, "first"), "tree");
    fs::create_dir(to.join("inner")).unwrap();
    let at = assert_refused(file(&to.join("inner"), "first"), "tree");
    assert_eq!(at, Overlap::Around(to.clone()));
    drop(around);
    fs::remove_dir(to.join("inner")).unwrap();
    assert!(describe(&to).is_empty());
}

/// The first cast may be about to use a directory of that name, and must not lose it.
#[test]
fn nothing_is_made_in_a_tree_that_another_cast_holds() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    let outer = tree(&to, "outer").unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    fs::File::open(&to).unwrap().set_modified(long_ago).unwrap();
    for place in ["new", "new/er"] {
        let at = assert_refused(tree(&to.join(place), "inner"), "outer");
        assert_eq!(at, Overlap::Around(to.clone()));
        assert_refused(file(&to.join(place).join("name"), "inner"), "outer");
    }
    // A directory that was made and removed again would show.
    assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), long_ago);
    drop(outer);
}

#[test]
fn a_tree_in_another_is_seen_from_both_sides() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a/b/file", b"1");
    let (manifest, source) = build_small(&from);
    fs::create_dir_all(to.join("a/b")).unwrap();

    let outer = tree(&to, "outer").unwrap();
    let at = assert_refused(tree(&to.join("a/b"), "inner"), "outer");
    assert_eq!(at, Overlap::Around(to.clone()));
    assert_refused(tree(&to.join("a/b/c/d"), "inner"), "outer");
    assert!(!to.join("a/b/c").exists(), "it was made in vain");
    drop(outer);

    let inner = tree(&to.join("a/b"), "inner").unwrap();
    let mut outer = known(&to, &manifest).unwrap();
    let within = Overlap::Within(to.join("a/b"));
    assert_eq!(assert_refused(outer.survey(&manifest), "inner"), within);
    drop(inner);
    let inner = file(&to.join("a/b"), "inner").unwrap_err();
    assert!(inner.to_string().contains("outer by bob@build2"), "{inner}");
    drop(outer);
    let inner = file(&to.join("a/b"), "inner").unwrap();
    let outer = known(&to, &manifest).unwrap();
    assert_refused(outer.open(manifest.clone(), manual()), "inner");
    drop(inner);

    let destination = known(&to, &manifest).unwrap();
    let destination = destination.open(manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    assert_eq!(describe(&to), describe(&from));
    // Beside one another they are none of each other's business.
    let _aside = tree(&to.join("a/b"), "one").unwrap();
    tree(&to.join("a/c"), "two").unwrap();
}

#[test]
fn what_was_claimed_and_not_used_leaves_nothing() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    drop(tree(&to.join("a/b/c"), "tree").unwrap());
    assert!(!to.exists());
    drop(file(&to.join("a/b/c/"), "file").unwrap());
    assert!(!to.exists());
    put(&to, "kept", b"1");
    let before = fs::metadata(&to).unwrap().mode();
    drop(tree(&to, "tree").unwrap());
    assert_eq!(describe(&to).len(), 1);
    assert_eq!(fs::metadata(&to).unwrap().mode(), before);
}

#[test]
fn a_root_is_ours_alone_until_it_has_the_mode_of_the_tree() {
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("parent/to"));
    put(&from, "file", b"1");
    chmod(&from, 0o555);
    let (manifest, _) = build_small(&from);
    let claim = known(&to, &manifest).unwrap();
    assert_eq!(mode(&to), 0o700);
    drop(claim.open(manifest.clone(), manual()).unwrap());
    assert!(!to.exists());

    // The agent that made it may not live to do it; then the next one does it.
    let claim = known(&to, &manifest).unwrap();
    let copy = scratch.path("killed");
    fs::create_dir(&copy).unwrap();
    chmod(&copy, fs::metadata(&to).unwrap().mode());
    drop(claim);
    let claim = known(&copy, &manifest).unwrap();
    let destination = claim.open(manifest.clone(), manual()).unwrap();
    assert_eq!(mode(&copy), 0o755);
    drop(destination);

    // Any other that is there is the user's.
    fs::create_dir_all(&to).unwrap();
    for is in [0o750, 0o700] {
        chmod(&to, is);
        let claim = known(&to, &manifest).unwrap();
        drop(claim.open(manifest.clone(), manual()).unwrap());
        assert_eq!(mode(&to), is);
    }
}

#[test]
fn an_object_is_what_it_was_claimed_for() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    let (manifest, _) = build_small(&put(&scratch.path("from"), "file", b"1"));
    let claim = tree(&to, "tree").unwrap();
    let error = claim.open(manifest, manual()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    for name in ["", ".", "..", "a/b", ".outpour", "nul\0", &"x".repeat(256)] {
        let error = Claim::take(&to, None, intent("it", Shape::File(name.into()))).unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{name:?}: {error}");
    }
    assert!(!to.exists());
}

#[test]
fn a_stranger_keeps_nobody_out() {
    if !is_root() {
        skipped("only root can leave a lock of another user");
        return;
    }
    let scratch = Scratch::new();
    let to = scratch.path("to");
    let held = put(&scratch.path(""), ".outpour/lock", b"\nstranger\n");
    let lock = fs::File::options().write(true).open(held).unwrap();
    lock.try_lock().unwrap();
    let base = scratch.path(".outpour");
    let error = tree(&to, "tree").unwrap_err();
    assert!(
        error.to_string().contains("the cast of stranger"),
        "{error}"
    );
    chown(&base, Some(12345), None).unwrap();
    drop(tree(&to, "tree").unwrap());
    // It is to say to which user the directory belongs.
    chown(scratch.path(""), Some(12345), None).unwrap();
    assert!(tree(&to, "tree").unwrap_err().is_locked());
}

/// Many at once, to places that are the same or lie in one another: never two of them hold what
/// overlaps, each gets it in the end, and no lock is left.
#[test]
fn of_many_at_once_no_two_overlap() {
    const ROUNDS: usize = 100;
    let scratch = Scratch::new();
    let to = scratch.path("to");
    let inside = AtomicUsize::new(0);
    let one_after_the_other = |path: &Path, name: &str, is_file: bool| {
        let mut got = 0;
        while got < ROUNDS {
            let claim = if is_file {
                file(path, name)
            } else {
                tree(path, name)
            };
            match claim {
                Ok(claim) => {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{name}");
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(claim);
                    got += 1;
                }
                Err(error) => assert!(error.is_locked(), "{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for (path, name, is_file) in [
            (to.clone(), "one", false),
            (to.clone(), "two", false),
            (to.join("name"), "three", true),
            (to.join("name"), "four", true),
        ] {
            let turn = &one_after_the_other;
            scope.spawn(move || turn(&path, name, is_file));
        }
    });
    // The agent that made the directory may have gone while others came.
    assert!(!to.exists() || describe(&to).is_empty());
}

#[test]
fn one_file_goes_to_two_names_at_a_time() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "file", &bytes(1, 100_000));
    let (manifest, source) = build_small(&from);
    let to = scratch.path("to");
    let open = |name: &str| {
        let claim = known(&to.join(name), &manifest).unwrap();
        claim.open(manifest.clone(), manual()).unwrap()
    };
    let (one, two) = (open("one"), open("two"));
    fill(&source, &one);
    drop(two);
    let three = open("three");
    fill(&source, &three);
    three.finish().unwrap();
    drop(one);
    // What one of them left serves the other, as the object is the same.
    let two = open("two");
    assert_eq!(two.have().missing(), 0);
    two.finish().unwrap();
    for name in ["two", "three"] {
        assert!(fs::read(to.join(name)).unwrap() == bytes(1, 100_000));
    }
    assert_eq!(describe(&to).len(), 2);
}
