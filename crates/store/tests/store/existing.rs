//! What is at the destination already is used, and what does not belong to the object stays.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use outpour_store::{Destination, Error};

use crate::support::*;

#[test]
fn a_changed_file_moves_only_its_changed_blocks() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    odd_tree(&from);
    cast(&from, &to).unwrap();
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    let untouched = (inode("a/large"), inode("small"));

    let mut content = bytes(3, 300_000);
    content[100_000] ^= 1;
    content[100_001] ^= 1;
    content[299_999] ^= 1;
    put(&from, "large", &content);
    assert_eq!(cast(&from, &to).unwrap(), 2);
    assert_eq!(describe(&to), describe(&from));

    content.truncate(290_000);
    put(&from, "large", &content);
    assert_eq!(cast(&from, &to).unwrap(), 0, "what is left is there");
    assert_eq!(describe(&to), describe(&from));
    content.extend(bytes(8, 20_000));
    put(&from, "large", &content);
    assert_eq!(cast(&from, &to).unwrap(), 2, "the last one and a new one");
    assert_eq!(describe(&to), describe(&from));

    put(&from, "many/50", b"changed");
    assert_eq!(cast(&from, &to).unwrap(), 1);
    assert_eq!(describe(&to), describe(&from));
    assert_eq!((inode("a/large"), inode("small")), untouched);
}

#[test]
fn small_files_are_found_even_if_they_share_other_blocks_now() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    for index in 0..200 {
        put(&from, format!("{index:03}"), &bytes(index, 1000));
    }
    cast(&from, &to).unwrap();
    // Everything after it moves to other places in other blocks.
    put(&from, "000-", &bytes(1000, 1001));
    assert_eq!(cast(&from, &to).unwrap(), 1);
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn only_modes_and_times_are_set_where_nothing_else_changed() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    odd_tree(&from);
    cast(&from, &to).unwrap();
    let inode = fs::metadata(to.join("large")).unwrap().ino();
    chmod(from.join("large"), 0o640);
    set_mtime(from.join("small"), 77, 7);
    chmod(from.join("a"), 0o711);
    assert_eq!(cast(&from, &to).unwrap(), 0);
    assert_eq!(describe(&to), describe(&from));
    assert_eq!(fs::metadata(to.join("large")).unwrap().ino(), inode);
}

#[test]
fn what_the_object_does_not_have_stays() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a/file", b"new");
    put(&to, "a/other", b"stays");
    put(&to, "b/other", b"stays too");
    put(&to, "a/file", b"goes");
    chmod(&to, 0o751);
    cast(&from, &to).unwrap();
    assert_eq!(fs::read(to.join("a/file")).unwrap(), b"new");
    assert_eq!(fs::read(to.join("a/other")).unwrap(), b"stays");
    assert_eq!(fs::read(to.join("b/other")).unwrap(), b"stays too");
    assert_eq!(
        fs::metadata(&to).unwrap().mode() & 0o7777,
        0o751,
        "the root is the user's"
    );
    assert!(!to.join(".outpour").exists());
}

#[test]
fn a_directory_in_the_way_is_named_before_anything_is_written() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a/file", b"1");
    symlink("a", from.join("link")).unwrap();
    let (manifest, _) = build_small(&from);
    let refused = || Destination::open(&to, manifest.clone(), manual()).unwrap_err();

    fs::create_dir_all(to.join("a/file")).unwrap();
    let error = refused();
    assert!(matches!(error, Error::Blocked { .. }));
    assert!(
        error
            .to_string()
            .contains("a/file: a directory where a file belongs"),
        "{error}"
    );
    fs::remove_dir_all(to.join("a")).unwrap();

    put(&to, "a", b"a file");
    let error = refused();
    assert!(
        error
            .to_string()
            .ends_with("a: a file where a directory belongs"),
        "{error}"
    );
    fs::remove_file(to.join("a")).unwrap();

    fs::create_dir(to.join("link")).unwrap();
    let error = refused();
    assert!(
        error
            .to_string()
            .ends_with("a directory where a symlink belongs"),
        "{error}"
    );
}

#[test]
fn links_and_files_replace_each_other() {
    let scratch = Scratch::new();
    let (from, to, aside) = (
        scratch.path("from"),
        scratch.path("to"),
        scratch.path("aside"),
    );
    put(&from, "file", b"from");
    symlink("file", from.join("link")).unwrap();
    put(&to, "link", b"a file");
    fs::write(&aside, b"must stay").unwrap();
    symlink(&aside, to.join("file")).unwrap();
    cast(&from, &to).unwrap();
    assert_eq!(describe(&to), describe(&from));
    assert_eq!(fs::read(aside).unwrap(), b"must stay");
    fs::remove_file(to.join("link")).unwrap();
    symlink("elsewhere", to.join("link")).unwrap();
    cast(&from, &to).unwrap();
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn an_interrupted_older_version_is_used_and_cleared_away() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "large", &bytes(1, 400_000));
    put(&from, "gone", &bytes(2, 100_000));
    put(&from, "small", &bytes(3, 5000));
    put(&from, "zz", &bytes(4, 16 << 10));
    let (old, source) = build_small(&from);
    let destination = Destination::open(&to, old.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    let missing = [first_block(&old, "gone"), first_block(&old, "large") + 18];
    for block in (0..old.blocks()).filter(|block| !missing.contains(block)) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    drop(destination);

    fs::remove_file(from.join("gone")).unwrap();
    put(&from, "aa", &bytes(5, 16 << 10));
    put(&from, "large", &[bytes(1, 400_000), bytes(6, 10)].concat());
    let (new, source) = build_small(&from);
    let destination = Destination::open(&to, new.clone(), manual()).unwrap();
    // Of `large`: the block that was missing, and the last, which is longer now; and `aa`.
    assert_eq!(destination.have().missing(), 2 + 1);
    let mut left: Vec<_> = fs::read_dir(to.join(".outpour")).unwrap().collect();
    left.retain(|entry| entry.as_ref().unwrap().file_name() != "lock");
    assert_eq!(left.len(), 1);
    drop(destination);
    assert_eq!(fs::read_dir(to.join(".outpour")).unwrap().count(), 1);
    let destination = Destination::open(&to, new, manual()).unwrap();
    assert_eq!(fill(&source, &destination), 3, "and it is not lost again");
    destination.finish().unwrap();
    assert_eq!(describe(&to), describe(&from));
}

/// Leaves no way to lock what an interrupted cast to `to` has left, as if there was no room for the file.
fn spoil_lock(to: &Path) {
    let mut states = fs::read_dir(to.join(".outpour")).unwrap();
    let state = states.next().unwrap().unwrap().path();
    fs::remove_file(state.join("lock")).unwrap();
    symlink("nowhere", state.join("lock")).unwrap();
}

#[test]
fn an_older_version_is_cleared_away_though_there_is_no_room_for_its_lock() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "large", &bytes(1, 100_000));
    let (old, source) = build_small(&from);
    let mut buf = Vec::new();
    source.read(0, &mut buf).unwrap();
    let destination = Destination::open(&to, old, manual()).unwrap();
    destination.write(0, &buf).unwrap();
    drop(destination);
    spoil_lock(&to);
    put(&from, "large", &bytes(2, 100_000));
    cast(&from, &to).unwrap();
    assert_eq!(describe(&to), describe(&from));
    assert!(!to.join(".outpour").exists());
}

#[test]
fn what_goes_to_another_name_is_left_alone_where_there_is_no_room_for_its_lock() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "large", &bytes(1, 100_000));
    let to = scratch.path("to");
    fs::create_dir(&to).unwrap();
    let (manifest, source) = build_small(&from);
    let mut buf = Vec::new();
    source.read(0, &mut buf).unwrap();
    let one = Destination::open(to.join("one"), manifest.clone(), manual()).unwrap();
    one.write(0, &buf).unwrap();
    drop(one);
    spoil_lock(&to);
    let two = Destination::open(to.join("two"), manifest, manual()).unwrap();
    assert!(two.have().is_empty());
    fill(&source, &two);
    two.finish().unwrap();
    drop(two);
    assert_eq!(fs::read_dir(to.join(".outpour")).unwrap().count(), 1);
}

#[test]
fn another_file_that_comes_to_the_same_directory_is_left_alone() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    fs::create_dir(&to).unwrap();
    let one = put(&scratch.path("from"), "a", &bytes(1, 100_000));
    let two = put(&scratch.path("from"), "b", &bytes(2, 100_000));
    let ((one, from_one), (two, from_two)) = (build_small(&one), build_small(&two));
    let first = Destination::open(&to, one, manual()).unwrap();
    fill(&from_one, &first);
    let second = Destination::open(&to, two, manual()).unwrap();
    fill(&from_two, &second);
    second.finish().unwrap();
    first.finish().unwrap();
    assert_eq!(describe(&to).len(), 2);
}

#[test]
fn what_another_version_left_is_not_taken_for_what_was_synced() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let version = |seed: u64| {
        put(&from, "large", &bytes(seed, 100_000));
        put(&from, "small", &bytes(seed + 1, 5000));
        put(&from, "zz", &bytes(99, 16 << 10));
        for name in ["large", "small", "zz"] {
            set_mtime(from.join(name), 1_000_000 + seed, 0);
        }
        build_small(&from)
    };
    let (one, source) = version(10);
    let destination = Destination::open(&to, one.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    let missing = first_block(&one, "zz");
    for block in (0..one.blocks()).filter(|block| *block != missing) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    // Synced and put in place, but one block is missing.
    destination.sync().unwrap();
    drop(destination);
    fs::remove_file(to.join("large")).unwrap();
    fs::remove_file(to.join("small")).unwrap();

    let aside = scratch.path("aside");
    fs::create_dir(&aside).unwrap();
    let state = fs::read_dir(to.join(".outpour"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    fs::rename(state.path(), aside.join(state.file_name())).unwrap();
    let (two, source) = version(20);
    let destination = Destination::open(&to, two.clone(), manual()).unwrap();
    for block in (0..two.blocks()).filter(|block| *block != missing) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    drop(destination);
    fs::rename(aside.join(state.file_name()), state.path()).unwrap();

    // The first version again: its journal says synced, but the files are of the second.
    let (again, source) = version(10);
    assert_eq!(again.id(), one.id());
    let destination = Destination::open(&to, again, manual()).unwrap();
    assert!(destination.have().is_empty(), "{:?}", destination.have());
    fill(&source, &destination);
    destination.finish().unwrap();
    for name in ["large", "small", "zz"] {
        let (there, expected) = (fs::read(to.join(name)), fs::read(from.join(name)));
        assert_eq!(there.unwrap(), expected.unwrap(), "{name}");
    }
}

#[test]
fn another_file_that_comes_to_the_same_directory_leaves_what_is_interrupted() {
    let scratch = Scratch::new();
    let to = scratch.path("to");
    fs::create_dir(&to).unwrap();
    let one = put(&scratch.path("from"), "a", &bytes(1, 100_000));
    let two = put(&scratch.path("from"), "b", &bytes(2, 100_000));
    let ((one, from_one), (two, from_two)) = (build_small(&one), build_small(&two));
    let first = Destination::open(&to, one.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    for block in 0..5 {
        from_one.read(block, &mut buf).unwrap();
        first.write(block, &buf).unwrap();
    }
    drop(first);
    let second = Destination::open(&to, two, manual()).unwrap();
    fill(&from_two, &second);
    second.finish().unwrap();
    let first = Destination::open(&to, one, manual()).unwrap();
    assert_eq!(first.have().count(), 5);
    fill(&from_one, &first);
    first.finish().unwrap();
    assert!(!to.join(".outpour").exists());
}
