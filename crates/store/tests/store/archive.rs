//! What is kept of entries beside bytes, modes and times.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outpour_core::manifest::{ACCESS_ACL, Aspect, BlockSize, DEFAULT_ACL, Manifest};
use outpour_store::{
    Attributes, BuildOptions, Destination, DestinationOptions, Error, Keep, NotKept, Source, build,
    verify_tree,
};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};

use crate::support::*;

/// Who owns what in these tests.
const ANA: u32 = 4001;
const STAFF: u32 = 4002;

const SIZE: u64 = 64 << 20;

fn build_all(path: &Path) -> (Arc<Manifest>, Source) {
    let options = BuildOptions {
        block: BlockSize::Given(16 << 10),
        attributes: Attributes::Kept,
        ..BuildOptions::default()
    };
    let (manifest, source) = build(path, &options, &|_| {}).unwrap();
    (Arc::new(manifest), source)
}

/// Moves all of a tree; returns how many blocks had to be moved, and what was not kept.
fn cast_all(from: &Path, to: &Path) -> Result<(u32, Vec<NotKept>), Error> {
    let (manifest, source) = build_all(from);
    let options = DestinationOptions {
        verify_after: true,
        ..DestinationOptions::default()
    };
    let destination = Destination::open(to, manifest.clone(), options)?;
    let written = fill(&source, &destination);
    destination.finish()?;
    let lost = destination.not_kept();
    drop(destination);
    assert!(!to.join(".outpour").exists());
    let report = verify_tree(to, &manifest, None, &|_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    Ok((written, lost))
}

/// An access control list for a user more.
fn acl(user: u32, allowed: u8, mask: u8) -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    for (tag, allowed, id) in [
        (1, 6, u32::MAX),
        (2, allowed, user),
        (4, 4, u32::MAX),
        (0x10, mask, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        value.extend([tag, 0, allowed, 0]);
        value.extend(id.to_le_bytes());
    }
    value
}

fn set(path: &Path, name: &[u8], value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let len = llistxattr(path, names.as_mut_slice()).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0);
    let names = names.filter(|name| name.starts_with(b"user.") || name.starts_with(b"system."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 1 << 16];
        let len = lgetxattr(path, name, value.as_mut_slice()).unwrap();
        (
            String::from_utf8_lossy(name).into_owned(),
            value[..len].to_vec(),
        )
    };
    names.map(value).collect()
}

/// All that is to be kept of a tree: attributes, and which names are one file. Of the root, what it has
/// itself; its time is its own.
fn kept(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut paths = vec![PathBuf::new()];
    paths.extend(describe(root).into_keys());
    for path in paths {
        let full = root.join(&path);
        let meta = fs::symlink_metadata(&full).unwrap();
        let file = first
            .entry(meta.ino())
            .or_insert_with(|| path.clone())
            .clone();
        let about = format!(
            "{:o} {}:{} is {} {:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            file.display(),
            xattrs(&full)
        );
        all.insert(path, about);
    }
    all
}

/// What shows whether anything was done to entries: when, and which inodes they are. Not of the root,
/// in which the cast has its state.
fn changes(root: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let paths = describe(root).into_keys();
    let change = |path: PathBuf| {
        let meta = fs::symlink_metadata(root.join(&path)).unwrap();
        (path, (meta.ino(), meta.ctime(), meta.ctime_nsec()))
    };
    paths.map(change).collect()
}

/// A tree with everything that is kept.
fn rich_tree(root: &Path) {
    odd_tree(root);
    let small = put(root, "links/small", b"one file, three names");
    fs::hard_link(&small, root.join("links/again")).unwrap();
    fs::create_dir_all(root.join("other")).unwrap();
    fs::hard_link(&small, root.join("other/third")).unwrap();
    let large = put(root, "links/large", &bytes(77, 100_000));
    fs::hard_link(&large, root.join("z large")).unwrap();
    fs::hard_link(root.join("empty file"), root.join("empty too")).unwrap();
    set(&small, b"user.note", b"kept");
    set(&small, b"user.empty", b"");
    set(&large, ACCESS_ACL, &acl(ANA, 7, 7));
    set(&root.join("a"), ACCESS_ACL, &acl(ANA, 5, 5));
    set(&root.join("a"), DEFAULT_ACL, &acl(STAFF, 4, 4));
    set(&root.join("other"), b"user.dir", &[0, 255]);
    set(root, b"user.root", b"of the root");
    symlink("small", root.join("links/sym")).unwrap();
    let hole = put(root, "sparse", b"");
    let file = fs::File::create(hole).unwrap();
    file.set_len(SIZE).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &bytes(9, 70_000), 30 << 20).unwrap();
    let tiny = fs::File::create(root.join("sparse small")).unwrap();
    tiny.set_len(12_000).unwrap();
    std::os::unix::fs::FileExt::write_at(&tiny, b"x", 11_999).unwrap();
    // A directory's time changes with what is put into it.
    set_mtime(root.join("links"), 1_500_000_000, 7);
    set_mtime(root.join("a"), 1_500_000_001, 7);
}

/// Gives entries to others, for which it takes root.
fn give_away(root: &Path) {
    chown(root, Some(ANA), Some(STAFF)).unwrap();
    chown(root.join("a"), Some(ANA), Some(STAFF)).unwrap();
    chown(root.join("a/b/c"), Some(ANA), None).unwrap();
    chown(root.join("links/large"), None, Some(STAFF)).unwrap();
    chown(root.join("empty file"), Some(ANA), Some(STAFF)).unwrap();
    lchown(root.join("link"), Some(ANA), Some(STAFF)).unwrap();
    chmod(root.join("a"), 0o2755);
    chmod(root.join("many"), 0o3777);
    chmod(root.join("links/large"), 0o674);
    chmod(root.join("small"), 0o4755);
}

fn held(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Some directory of a disk that has all that is kept, or nothing, loudly.
fn disk(scratch: &Scratch) -> Option<Disk> {
    Disk::ext4(scratch, &[])
}

#[test]
fn all_is_kept_and_a_second_cast_changes_nothing() {
    let scratch = Scratch::new();
    let Some(disk) = disk(&scratch) else {
        return;
    };
    let (from, to) = (disk.at().join("from"), disk.at().join("to/inner"));
    rich_tree(&from);
    give_away(&from);
    // Such a file would not fit twice.
    assert!(held(&from.join("sparse")) < SIZE / 8);
    let (_, lost) = cast_all(&from, &to).unwrap();
    assert_eq!(lost, []);
    let mut expected = kept(&from);
    // Setuid is never kept.
    let small = expected.get_mut(Path::new("small")).unwrap();
    *small = small.replace("104755", "100755");
    assert_eq!(kept(&to), expected);
    let sparse = PathBuf::from("sparse");
    assert_eq!(describe(&to)[&sparse], describe(&from)[&sparse]);
    for path in ["sparse", "sparse small"] {
        // A block may describe where the others are.
        let [there, here] = [&to, &from].map(|root| held(&root.join(path)));
        assert!(there <= here + 4096, "{path}: {there}, {here}");
    }
    assert!(xattrs(&to.join("a")).contains_key("system.posix_acl_default"));

    let before = changes(&to);
    let (written, lost) = cast_all(&from, &to).unwrap();
    assert_eq!((written, lost), (0, vec![]));
    assert_eq!(changes(&to), before);
}

#[test]
fn what_the_destination_has_instead_is_put_right() {
    let scratch = Scratch::new();
    let Some(disk) = disk(&scratch) else {
        return;
    };
    let (from, to) = (disk.at().join("from"), disk.at().join("to"));
    rich_tree(&from);
    give_away(&from);
    chmod(from.join("small"), 0o755);
    fs::create_dir(&to).unwrap();
    chmod(&to, 0o755);
    // All that is made here inherits this.
    set(&to, DEFAULT_ACL, &acl(5005, 7, 7));
    cast_all(&from, &to).unwrap();
    let mut expected = kept(&from);
    // A directory that was there is the user's.
    let root = kept(&to)[Path::new("")].clone();
    expected.insert(PathBuf::new(), root.clone());
    assert_eq!(kept(&to), expected);

    // Other links, owners and attributes, and some that are not to be there.
    let at = |path: &str| to.join(path);
    fs::remove_file(at("links/again")).unwrap();
    fs::write(at("links/again"), b"another file").unwrap();
    fs::remove_file(at("other/third")).unwrap();
    fs::hard_link(at("small"), at("other/third")).unwrap();
    fs::remove_file(at("empty too")).unwrap();
    symlink("nowhere", at("empty too")).unwrap();
    fs::remove_file(at("z large")).unwrap();
    fs::copy(at("links/large"), at("z large")).unwrap();
    set(&at("small"), b"user.more", b"x");
    set(&at("small"), ACCESS_ACL, &acl(5006, 7, 7));
    set(&at("links"), DEFAULT_ACL, &acl(5007, 7, 7));
    set(&at("links/small"), b"user.note", b"other");
    lremovexattr(at("links/large"), ACCESS_ACL).unwrap();
    lremovexattr(at("other"), "user.dir").unwrap();
    chown(at("a/b/c"), Some(1), Some(1)).unwrap();
    lchown(at("link"), Some(1), Some(1)).unwrap();
    chmod(at("a"), 0o755);
    chmod(at("other"), 0o1755);
    let (_, lost) = cast_all(&from, &to).unwrap();
    assert_eq!(lost, []);
    assert_eq!(kept(&to), expected);
    assert_eq!(describe(&to), describe(&from));
    let before = changes(&to);
    let (written, _) = cast_all(&from, &to).unwrap();
    assert_eq!(written, 0);
    assert_eq!(changes(&to), before);
}

#[test]
fn names_outside_the_object_keep_what_they_have() {
    let scratch = Scratch::new();
    let Some(disk) = disk(&scratch) else {
        return;
    };
    let (from, to, outside) = ("from", "to", "outside");
    let [from, to, outside] = [from, to, outside].map(|name| disk.at().join(name));
    let files: [(&str, &[u8]); 3] = [
        ("large", &bytes(1, 100_000)),
        ("same", b"the same"),
        ("small", b"small"),
    ];
    for (name, content) in files {
        put(&from, name, content);
        put(&to, name, content);
        chmod(from.join(name), 0o640);
        chmod(to.join(name), 0o604);
    }
    fs::create_dir_all(&outside).unwrap();
    // Also two names within the object that are none of one file there.
    put(&from, "other", b"the same");
    fs::hard_link(to.join("same"), to.join("other")).unwrap();
    for name in ["large", "small"] {
        fs::hard_link(to.join(name), outside.join(name)).unwrap();
    }
    let before = describe(&outside);
    cast_all(&from, &to).unwrap();
    assert_eq!(describe(&outside), before);
    assert_eq!(describe(&to), describe(&from));
    assert_eq!(
        kept(&to)[Path::new("other")],
        kept(&from)[Path::new("other")]
    );
    for name in ["large", "same", "small", "other"] {
        assert_eq!(fs::metadata(to.join(name)).unwrap().nlink(), 1, "{name}");
    }

    // One that has all it is to have may have as many names as it likes.
    fs::hard_link(to.join("large"), outside.join("again")).unwrap();
    let before = changes(&to);
    let (written, _) = cast_all(&from, &to).unwrap();
    assert_eq!(written, 0);
    assert_eq!(changes(&to), before);
}

#[test]
fn zeros_replace_what_an_earlier_attempt_has_written() {
    let scratch = Scratch::new();
    let Some(disk) = disk(&scratch) else {
        return;
    };
    let (from, to) = (disk.at().join("from"), disk.at().join("to"));
    put(&from, "file", &bytes(1, 1 << 20));
    {
        let (manifest, source) = build_all(&from);
        let destination = Destination::open(&to, manifest, DestinationOptions::default()).unwrap();
        fill(&source, &destination);
        destination.sync().unwrap();
    }
    // The whole of another version is staged or in place.
    let file = fs::File::create(from.join("file")).unwrap();
    file.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"x", 500_000).unwrap();
    cast_all(&from, &to).unwrap();
    assert_eq!(describe(&to), describe(&from));
    {
        // Interrupted with data that is not the file's any more.
        fs::write(from.join("file"), bytes(2, 2 << 20)).unwrap();
        let (manifest, source) = build_all(&from);
        let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
        let mut buf = Vec::new();
        for block in 0..manifest.blocks() - 1 {
            source.read(block, &mut buf).unwrap();
            destination.write(block, &buf).unwrap();
        }
    }
    fs::File::create(from.join("file"))
        .unwrap()
        .set_len(2 << 20)
        .unwrap();
    cast_all(&from, &to).unwrap();
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn a_file_with_holes_needs_room_for_its_data_alone() {
    let scratch = Scratch::new();
    let Some(disk) = disk(&scratch) else {
        return;
    };
    let from = scratch.path("from");
    put(&from, "file", b"");
    let file = fs::File::create(from.join("file")).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &bytes(1, 1 << 20), 512 << 20).unwrap();
    if held(&from.join("file")) > 16 << 20 {
        return skipped("temporary files have no holes");
    }
    let (manifest, _) = build_all(&from);
    let to = disk.at().join("to");
    Destination::open(&to, manifest.clone(), DestinationOptions::default()).unwrap();
    let have = outpour_core::BlockSet::new(manifest.blocks());
    outpour_store::preflight(&to, None, &manifest, Some(&have)).unwrap();
    // Without holes it does not fit.
    let (manifest, _) = build_small(&from);
    let error = Destination::open(&to, manifest, DestinationOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Space { .. }), "{error}");
}

#[test]
fn who_is_not_root_keeps_what_is_possible_and_says_the_rest() {
    let (scratch, theirs) = (Scratch::new(), Scratch::new());
    let (from, to) = (scratch.path("from"), theirs.path("to"));
    fs::create_dir_all(&from).unwrap();
    rich_tree(&from);
    chmod(put(&from, "read only", b"r"), 0o444);
    set(&from.join("read only"), b"user.note", b"all the same");
    if !is_root() {
        return skipped("only root can make a source of other owners");
    }
    give_away(&from);
    chmod(from.join("small"), 0o755);
    chmod(scratch.path(""), 0o755);
    give(&theirs.path(""));
    let (manifest, source) = build_all(&from);
    let blocks: Vec<Vec<u8>> = (0..manifest.blocks())
        .map(|block| {
            let mut buf = Vec::new();
            source.read(block, &mut buf).unwrap();
            buf
        })
        .collect();
    let entries = manifest.entries().len() as u64;
    let cast = || {
        let destination =
            Destination::open(&to, manifest.clone(), DestinationOptions::default()).unwrap();
        let have = destination.have();
        for (block, data) in (0..).zip(&blocks) {
            if !have.contains(block) {
                destination.write(block, data).unwrap();
            }
        }
        destination.finish().unwrap();
        destination.not_kept()
    };
    as_user(|| {
        for _ in 0..2 {
            let lost = cast();
            let whats: Vec<Aspect> = lost.iter().map(|it| it.what).collect();
            assert_eq!(whats, [Aspect::Owner, Aspect::Group], "{lost:?}");
            for what in &lost {
                // The root, and all but hard links, which are entries of their own.
                assert!(
                    what.entries > 100 && what.entries <= entries + 1,
                    "{lost:?}"
                );
            }
        }
    });
    let (ours, theirs) = (kept(&from), kept(&to));
    let but_owner = |about: &String| {
        let (mode, rest) = about.split_once(' ').unwrap();
        let (_, rest) = rest.split_once(' ').unwrap();
        // Setgid goes if we are not in the group.
        (mode[mode.len() - 3..].to_owned(), rest.to_owned())
    };
    assert_eq!(ours.len(), theirs.len());
    for (path, about) in &ours {
        assert_eq!(
            but_owner(&theirs[path]),
            but_owner(about),
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_file_system_without_attributes_takes_the_rest() {
    let scratch = Scratch::new();
    let at = scratch.path("plain");
    fs::create_dir_all(&at).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "ramfs", "ramfs"])
        .arg(&at)
        .output();
    if !mounted.is_ok_and(|done| done.status.success()) {
        return skipped("a file system without attributes can only be mounted by root");
    }
    let _unmounts = Mount(at.clone());
    let from = scratch.path("from");
    put(&from, "a/file", b"file");
    put(&from, "b", b"b");
    set(&from.join("a/file"), b"user.note", b"x");
    set(&from.join("b"), b"user.note", b"x");
    set(&from.join("a"), DEFAULT_ACL, &acl(ANA, 7, 7));
    chown(from.join("b"), Some(ANA), Some(STAFF)).unwrap();
    let (_, lost) = cast_all(&from, &at.join("to")).unwrap();
    let lost: Vec<_> = lost
        .iter()
        .map(|it| (it.what, it.entries, it.example.as_str()))
        .collect();
    assert_eq!(
        lost,
        [
            (Aspect::AccessLists, 1, "a"),
            (Aspect::ExtendedAttributes, 2, "a/file")
        ]
    );
    let meta = fs::metadata(at.join("to/b")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (ANA, STAFF));
}

#[test]
fn without_archive_nothing_of_it_is_described_or_set() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a", b"one");
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    set(&from.join("a"), b"user.note", b"x");
    let (manifest, _) = build_small(&from);
    assert!(!manifest.is_archive());
    assert_eq!(manifest.files(), 2);
    put(&to, "a", b"one");
    set(&to.join("a"), b"user.other", b"y");
    cast(&from, &to).unwrap();
    assert_eq!(
        xattrs(&to.join("a")).into_keys().collect::<Vec<_>>(),
        ["user.other"]
    );
    assert_eq!(fs::metadata(to.join("b")).unwrap().nlink(), 1);
}

#[test]
fn blocks_that_are_only_held_get_no_links() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a", &bytes(1, 40_000));
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    let (manifest, source) = build_all(&from);
    let options = DestinationOptions {
        keep: Keep::Blocks,
        ..DestinationOptions::default()
    };
    let destination = Destination::open(&to, manifest.clone(), options).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    let mut buf = Vec::new();
    for block in 0..manifest.blocks() {
        destination.read(block, &mut buf).unwrap();
    }
    assert!(!to.join("a").exists() && !to.join("b").exists());
}

#[test]
fn a_card_of_a_camera_gets_a_copy_for_each_link() {
    let scratch = Scratch::new();
    let Some(card) = Card::new(&scratch) else {
        return;
    };
    let from = scratch.path("from");
    put(&from, "a/file", &bytes(1, 100_000));
    put(&from, "b", &bytes(2, 50_000));
    put(&from, "empty", b"");
    fs::create_dir_all(from.join("z")).unwrap();
    for (file, link) in [
        ("a/file", "z/link"),
        ("a/file", "z/more"),
        ("b", "a/b"),
        ("empty", "z/e"),
    ] {
        fs::hard_link(from.join(file), from.join(link)).unwrap();
    }
    let to = card.at().join("to");
    let (_, lost) = cast_all(&from, &to).unwrap();
    assert!(
        lost.iter().any(|lost| lost.what == Aspect::HardLinks),
        "{lost:?}"
    );
    for name in ["a/file", "z/link", "z/more", "b", "a/b", "empty", "z/e"] {
        assert_eq!(
            fs::read(to.join(name)).unwrap(),
            fs::read(from.join(name)).unwrap(),
            "{name}"
        );
    }
}
