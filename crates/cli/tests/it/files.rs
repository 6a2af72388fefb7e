//! `hash` and `verify` on real files.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::support::{call, run, tree};

#[test]
fn a_file_hashes_as_public_tools_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("abc");
    fs::write(&file, "abc").unwrap();
    let ran = call(["hash", file.to_str().unwrap()]).expect(0);
    // The BLAKE3 test vector of these three bytes, in the form `b3sum` prints.
    let hash = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    assert_eq!(
        ran.out.lines().next().unwrap(),
        format!("{hash}  {}", file.display())
    );
    let document = call(["hash", file.to_str().unwrap(), "--json"])
        .expect(0)
        .json();
    assert_eq!(document["files"][0]["hash"], hash);
    assert_eq!(document["size_bytes"], 3);
    assert!(ran.out.contains(document["object"].as_str().unwrap()));
}

#[test]
fn a_tree_names_every_file_and_its_own_id() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let ran = call(["hash", source.to_str().unwrap()]).expect(0);
    let (files, object) = ran.out.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(files.lines().count(), 42);
    assert!(files.contains(&format!("  {}/weights/deep/39\n", source.display())));
    assert!(
        object.starts_with("object ") && object.ends_with(": 42 files, 3.08 MB"),
        "{object}"
    );
    for line in files.lines() {
        let (hash, path) = line.split_once("  ").unwrap();
        assert_eq!(
            hash,
            blake3::hash(&fs::read(path).unwrap()).to_string(),
            "{path}"
        );
    }
    assert_eq!(
        call(["hash", "--quiet", source.to_str().unwrap()])
            .expect(0)
            .out,
        ""
    );
}

#[test]
fn a_changed_tree_is_told_from_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let manifest = dir.path().join("model.outpour");
    let (tree, file) = (source.to_str().unwrap(), manifest.to_str().unwrap());
    call(["hash", tree, "--output", file]).expect(0);
    let clean = call(["verify", tree, "--manifest", file]).expect(0);
    assert_eq!(clean.out, "verified: 42 files, 3.08 MB\n");

    let mut bytes = fs::read(source.join("weights/big.bin")).unwrap();
    bytes[2_000_000] ^= 1;
    fs::write(source.join("weights/big.bin"), bytes).unwrap();
    fs::remove_file(source.join("weights/deep/7")).unwrap();
    fs::write(source.join("weights/deep/8"), "short").unwrap();
    fs::write(source.join("not mine"), "").unwrap();
    let ran = call(["verify", tree, "--manifest", file]).expect(1);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines.len(), 4, "{ran:?}");
    assert_eq!(lines[0], "weights/big.bin: the content differs");
    assert_eq!(lines[1], "weights/deep/7: missing");
    assert!(lines[2].starts_with("weights/deep/8: 5 bytes, not "));
    assert!(lines[3].starts_with("not verified: 3 entries differ, "));
    let document = call(["verify", tree, "--manifest", file, "--json"])
        .expect(1)
        .json();
    assert_eq!(document["verified"], false);
    assert_eq!(document["faults"].as_array().unwrap().len(), 3);
    assert_eq!(document["faults"][1]["path"], "weights/deep/7");
    assert_eq!(
        call(["verify", tree, "--manifest", file, "--quiet"])
            .expect(1)
            .out,
        ""
    );
}

#[test]
fn what_cannot_be_read_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let garbage = dir.path().join("garbage");
    fs::write(&garbage, [7; 1000]).unwrap();
    let (tree, garbage) = (source.to_str().unwrap(), garbage.to_str().unwrap());
    for arguments in [
        vec!["hash", "/nonexistent"],
        vec!["hash", tree, "--output", "/nonexistent/m"],
        vec!["verify", tree, "--manifest", "/nonexistent"],
        vec!["verify", tree, "--manifest", garbage],
        vec!["verify", tree, "--manifest", tree],
    ] {
        let ran = call(&arguments).expect(1);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        let line = ran.err.strip_prefix("outpour: ").unwrap();
        assert!(
            line.contains("/nonexistent") || line.starts_with("/"),
            "{ran:?}"
        );
        let document = call(arguments.iter().chain(&["--json"])).expect(1).json();
        assert_eq!(document["error"].as_str().unwrap(), line.trim_end());
    }
}

#[test]
fn names_of_files_cannot_write_to_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"evil\x1b[2J\nline");
    fs::write(dir.path().join(name), "x").unwrap();
    let ran = run(Command::new(env!("CARGO_BIN_EXE_outpour"))
        .arg("hash")
        .arg(dir.path()));
    // Such a name is either refused or escaped, as the manifest's rules have it.
    assert!(
        !ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'),
        "{ran:?}"
    );
    assert!(
        ran.out.lines().count() + ran.err.lines().count() <= 2,
        "{ran:?}"
    );
}
