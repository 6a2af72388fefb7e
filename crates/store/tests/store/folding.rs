//! Names that become one on some file systems.

use std::fs;
use std::path::Path;
use std::process::Command;

use outpour_store::Error;

use crate::support::*;

fn made(command: &str, arguments: &[&str], image: &Path) -> bool {
    let done = Command::new(command).args(arguments).arg(image).output();
    done.is_ok_and(|done| done.status.success())
}

/// Casts two files of such names to a place, and expects that they are refused before anything is there.
fn refused(at: &Path, one: &str, other: &str) {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, Path::new("dir").join(one), b"one");
    put(&from, Path::new("dir").join(other), b"other");
    put(&from, "unique", b"unique");
    let to = at.join(format!("to {one}"));
    let error = cast(&from, &to).unwrap_err();
    assert!(matches!(error, Error::Folds { .. }), "{error}");
    let said = error.to_string();
    let names = [format!("\"dir/{one}\""), format!("\"{other}\"")];
    let either = [format!("\"dir/{other}\""), format!("\"{one}\"")];
    let all = |names: &[String]| names.iter().all(|name| said.contains(name));
    assert!(all(&names) || all(&either), "{said}");
    assert!(!to.join("dir").exists() && !to.join("unique").exists());
}

#[test]
fn a_disk_that_folds_case_refuses_what_it_would_fold() {
    let scratch = Scratch::new();
    let xfs = |image: &Path| made("mkfs.xfs", &["-q", "-f", "-n", "version=ci"], image);
    match Disk::with(&scratch, 320 << 20, "loop", xfs) {
        Some(disk) => refused(disk.at(), "README", "ReadMe"),
        None => skipped("an XFS that folds case needs root, mkfs.xfs and a kernel that has it"),
    }
}

#[test]
fn a_card_of_a_camera_refuses_what_it_would_fold() {
    let scratch = Scratch::new();
    if let Some(card) = Card::new(&scratch) {
        refused(card.at(), "README", "ReadMe");
        refused(card.at(), "\u{c9}t\u{e9}", "\u{e9}t\u{e9}");
    }
}

#[test]
fn a_directory_that_folds_case_refuses_what_it_would_fold() {
    let scratch = Scratch::new();
    let options = ["-q", "-F", "-O", "casefold"];
    let ext4 = |image: &Path| made("mkfs.ext4", &options, image);
    let Some(disk) = Disk::with(&scratch, 64 << 20, "loop", ext4) else {
        return skipped("an ext4 that folds case needs root, mkfs.ext4 and a kernel that has it");
    };
    let folding = disk.at().join("folding");
    fs::create_dir(&folding).unwrap();
    assert!(made("chattr", &["+F"], &folding));
    refused(&folding, "README", "ReadMe");
    refused(&folding, "caf\u{e9}", "cafe\u{301}");
    // Its parent does not fold, but the directory in it that is there already does.
    let there = disk.at().join("to/dir");
    fs::create_dir_all(&there).unwrap();
    assert!(made("chattr", &["+F"], &there));
    let from = scratch.path("from");
    put(&from, "dir/A", b"one");
    put(&from, "dir/a", b"other");
    let error = cast(&from, &disk.at().join("to")).unwrap_err();
    assert!(matches!(error, Error::Folds { .. }), "{error}");
}

#[test]
fn a_disk_that_tells_names_apart_takes_them_all() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    for name in ["README", "ReadMe", "readme", "caf\u{e9}", "cafe\u{301}"] {
        put(&from, name, name.as_bytes());
        put(&from, format!("dir/{name}"), name.as_bytes());
    }
    cast(&from, &to).unwrap();
    assert_eq!(describe(&to), describe(&from));
    assert!(!to.join(".outpour").exists());
}
