//! Several files and trees that are cast as one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use outpour_core::manifest::{BlockSize, Manifest};
use outpour_store::{Attributes, BuildOptions, Destination, Error, Source, Survey};

use crate::support::*;

fn build(paths: &[PathBuf]) -> Result<(Arc<Manifest>, Source), Error> {
    let options = BuildOptions {
        block: BlockSize::Given(16 << 10),
        ..BuildOptions::default()
    };
    let (manifest, source) =
        Survey::of_several(paths, Attributes::Left)?.hash(&options, &|_| {})?;
    Ok((Arc::new(manifest), source))
}

#[test]
fn each_arrives_under_its_own_name_beside_what_is_there() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    let file = put(&one, "a.bin", &bytes(1, 100_000));
    let tree = two.join("logs");
    odd_tree(&tree);
    // A link is followed, and gives its own name.
    let link = scratch.path("current");
    symlink(put(&two, "v2.bin", &bytes(2, 70_000)), &link).unwrap();
    let (manifest, source) = build(&[tree.clone(), link, file.clone()]).unwrap();

    let to = scratch.path("to");
    put(&to, "mine", b"stays");
    chmod(&to, 0o700);
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    drop(destination);
    assert_eq!(
        fs::read(to.join("a.bin")).unwrap(),
        fs::read(&file).unwrap()
    );
    assert_eq!(fs::read(to.join("current")).unwrap(), bytes(2, 70_000));
    assert_eq!(describe(&to.join("logs")), describe(&tree));
    assert_eq!(fs::read(to.join("mine")).unwrap(), b"stays");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&to).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700, "the directory is the user's");
}

#[test]
fn the_order_in_which_they_are_named_makes_no_difference() {
    let scratch = Scratch::new();
    let paths = ["b", "a", "c"].map(|name| put(&scratch.path("from"), name, name.as_bytes()));
    let (first, _) = build(&paths).unwrap();
    let mut turned = paths.to_vec();
    turned.reverse();
    let (second, _) = build(&turned).unwrap();
    assert_eq!(first.id(), second.id());
}

#[test]
fn two_of_the_same_name_are_refused() {
    let scratch = Scratch::new();
    let paths = ["one", "two"].map(|dir| put(&scratch.path(dir), "x", b"1"));
    let error = build(&paths).unwrap_err();
    assert!(matches!(error, Error::SameName { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("two/x: another source has the same name, `x`"),
        "{error}"
    );
}

#[test]
fn one_that_changes_is_named_by_its_path() {
    let scratch = Scratch::new();
    let file = put(&scratch.path("one"), "a", &bytes(1, 50_000));
    let tree = scratch.path("logs");
    put(&tree, "day/large", &bytes(2, 50_000));
    let (manifest, source) = build(&[file, tree.clone()]).unwrap();
    put(&tree, "day/large", &bytes(3, 50_000));
    let mut buf = Vec::new();
    let errors = (0..manifest.blocks()).filter_map(|block| source.read(block, &mut buf).err());
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert!(!errors.is_empty());
    let path = tree.join("day/large").display().to_string();
    assert!(
        errors.iter().all(|error| error.starts_with(&path)),
        "{errors:?}"
    );
}
