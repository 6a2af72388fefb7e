//! What a place has of an object, without changing it.

use std::fs;

use outpour_store::{Error, Roots, Stop, look};

use crate::support::*;

#[test]
fn what_is_in_place_counts_and_nothing_changes() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    odd_tree(&from);
    let (manifest, _) = build_small(&from);
    let have =
        |path: &std::path::Path| look(path, None, &manifest, &Stop::default(), &|_| {}).unwrap();
    assert_eq!(have(&to).count(), 0);
    assert!(!to.exists());
    cast(&from, &to).unwrap();
    let before = describe(&to);
    assert!(have(&to).is_full());
    // One wrong byte of a large file costs its block, one of a small file its pack.
    let mut large = fs::read(to.join("large")).unwrap();
    large[20_000] ^= 1;
    fs::write(to.join("large"), &large).unwrap();
    assert_eq!(have(&to).missing(), 1);
    fs::write(to.join("many/7"), b"short").unwrap();
    assert_eq!(have(&to).missing(), 2);
    fs::remove_file(to.join("a/large")).unwrap();
    assert_eq!(have(&to).missing(), 10);
    let after = describe(&to);
    assert!(after.len() + 1 == before.len() && !to.join(".outpour").exists());
}

#[test]
fn a_longer_file_has_the_blocks_that_it_has() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "x", &bytes(1, 100_000));
    let (manifest, _) = build_small(&from);
    let to = put(&scratch.path("to"), "x", &bytes(1, 100_000));
    let mut longer = fs::read(&to).unwrap();
    longer.extend_from_slice(b"more");
    fs::write(&to, longer).unwrap();
    for path in [to.clone(), scratch.path("to")] {
        assert!(
            look(&path, None, &manifest, &Stop::default(), &|_| {})
                .unwrap()
                .is_full()
        );
    }
}

#[test]
fn nobody_looks_outside_of_the_roots() {
    let scratch = Scratch::new();
    let (from, inside) = (scratch.path("from"), scratch.path("inside"));
    put(&from, "x", b"1");
    cast(&from, &inside.join("copy")).unwrap();
    let (manifest, _) = build_small(&from);
    let roots = Roots::open(std::slice::from_ref(&inside)).unwrap();
    let have =
        |path: &std::path::Path| look(path, Some(&roots), &manifest, &Stop::default(), &|_| {});
    assert!(have(&inside.join("copy")).unwrap().is_full());
    assert_eq!(have(&inside.join("nothing/here")).unwrap().count(), 0);
    assert!(matches!(have(&from), Err(Error::Outside { .. })));
    std::os::unix::fs::symlink(&from, inside.join("link")).unwrap();
    assert!(matches!(
        have(&inside.join("link")),
        Err(Error::Linked { .. })
    ));
}
