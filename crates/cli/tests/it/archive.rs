//! Casts with `--archive`, over a real `sshd`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::sshd::Sshd;
use crate::support::{run, same, skipped, tree};

const ACL: &str = "system.posix_acl_access";
const NOTE: &str = "user.note";
const OWNER: u32 = 4001;
const GROUP: u32 = 4002;

/// Of the sparse file, and how much of it is no hole.
const SIZE: u64 = 1 << 30;
const DATA: usize = 1 << 20;

/// What user 4001 may do with a file, beside its owner and group.
fn acl() -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    let none = u32::MAX;
    for (tag, id) in [(1, none), (2, OWNER), (4, none), (0x10, none), (0x20, none)] {
        let allowed = if tag == 0x20 { 0 } else { 6 };
        value.extend([tag, 0, allowed, 0]);
        value.extend(id.to_le_bytes());
    }
    value
}

/// A tree with something of all that is kept; nothing, loudly, where the file system lacks it.
fn rich(root: &Path) -> Option<PathBuf> {
    let source = tree(root);
    let at = |path: &str| source.join(path);
    fs::hard_link(at("weights/deep/7"), at("again")).unwrap();
    fs::hard_link(at("weights/big.bin"), at("weights/deep/big")).unwrap();
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse.set_len(SIZE).unwrap();
    sparse.write_at(&vec![7; DATA], SIZE / 2).unwrap();
    let flags = XattrFlags::empty();
    let file = at("weights/deep/9");
    let noted = setxattr(&file, NOTE, b"of nine", flags);
    if noted
        .and_then(|()| setxattr(&file, ACL, &acl(), flags))
        .is_err()
    {
        skipped("temporary files have no attributes");
        return None;
    }
    chown(at("weights/deep/8"), Some(OWNER), Some(GROUP)).unwrap();
    chown(at("empty"), None, Some(GROUP)).unwrap();
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o2775)).unwrap();
    Some(source)
}

/// When entries were changed last.
fn changes(root: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                todo.push(path.clone());
            }
            all.insert(path, (meta.ino(), meta.ctime(), meta.ctime_nsec()));
        }
    }
    all
}

fn value(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 1024];
    let len = getxattr(path, name, value.as_mut_slice()).unwrap_or(0);
    value.truncate(len);
    value
}

/// That all of it is there.
fn arrived(source: &Path, copy: &Path) {
    same(source, copy);
    let meta = |path: &str| fs::metadata(copy.join(path)).unwrap();
    let owned = meta("weights/deep/8");
    assert_eq!((owned.uid(), owned.gid()), (OWNER, GROUP));
    assert_eq!(meta("empty").gid(), GROUP);
    assert_eq!(meta("empty").mode() & 0o7777, 0o2775);
    assert_eq!(meta("again").ino(), meta("weights/deep/7").ino());
    assert_eq!(
        meta("weights/deep/big").ino(),
        meta("weights/big.bin").ino()
    );
    let attributes = copy.join("weights/deep/9");
    assert_eq!(value(&attributes, NOTE), b"of nine");
    assert_eq!(value(&attributes, ACL), acl());
    assert_eq!(meta("sparse").len(), SIZE);
    assert!(meta("sparse").blocks() * 512 < SIZE / 16);
}

#[test]
fn all_of_a_tree_is_kept_and_the_second_cast_has_nothing_to_do() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can give files to others");
    }
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(source) = rich(dir.path()) else {
        return;
    };
    let copies = ["copy1", "copy2"].map(|name| dir.path().join(name));
    let cast = || {
        let mut command = sshd.cast();
        command.args(["--archive", "--json"]).arg(&source);
        for copy in &copies {
            command.arg(format!("node1:{}", copy.display()));
        }
        let report = run(&mut command).expect(0).json();
        for host in report["hosts"].as_array().unwrap() {
            assert_eq!(host["not_kept"], serde_json::json!([]));
        }
        report
    };
    cast();
    for copy in &copies {
        arrived(&source, copy);
    }
    let before = copies.each_ref().map(|copy| changes(copy));
    let report = cast();
    assert_eq!(copies.each_ref().map(|copy| changes(copy)), before);
    assert_eq!(report["hosts"][0]["resumed_bytes"], report["size_bytes"]);

    // Other links and attributes at one of them.
    let at = |path: &str| copies[0].join(path);
    fs::remove_file(at("again")).unwrap();
    fs::hard_link(at("weights/deep/8"), at("again")).unwrap();
    setxattr(at("weights/deep/9"), NOTE, b"other", XattrFlags::empty()).unwrap();
    chown(at("weights/deep/8"), Some(1), Some(1)).unwrap();
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o755)).unwrap();
    cast();
    arrived(&source, &copies[0]);
    assert_eq!(changes(&copies[1]), before[1]);
}

#[test]
fn each_host_says_what_it_could_not_keep() {
    let Some(sshd) = Sshd::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let mounted = run(Command::new("mount")
        .args(["-t", "ramfs", "ramfs"])
        .arg(&plain));
    if mounted.code != Some(0) {
        return skipped("a file system without attributes can only be mounted by root");
    }
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for name in ["a", "b"] {
        fs::write(source.join(name), name).unwrap();
        let noted = setxattr(source.join(name), NOTE, b"x", XattrFlags::empty());
        if noted.is_err() {
            run(Command::new("umount").arg(&plain));
            return skipped("temporary files have no attributes");
        }
    }
    let whole = format!("node1:{}", dir.path().join("whole").display());
    let lacking = format!("node2:{}", plain.join("copy").display());
    let cast = |more: &[&str]| {
        let mut command = sshd.cast();
        command.args(["--archive"]).args(more).arg(&source);
        run(command.args([&whole, &lacking])).expect(0)
    };
    let report = cast(&["--json"]).json();
    assert_eq!(report["hosts"][0]["not_kept"], serde_json::json!([]));
    let lost = serde_json::json!([{"what": "extended-attributes", "entries": 2, "example": "a"}]);
    assert_eq!(report["hosts"][1]["not_kept"], lost);
    let said = cast(&[]).out;
    let line = "node2 could not keep: extended attributes of 2 entries, first a\n";
    assert!(said.contains(line), "{said}");
    assert!(run(Command::new("umount").arg(&plain)).code == Some(0));
}
