//! Destinations beneath directories of the host's owner, and links that would lead out of them.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use outpour_core::manifest::ObjectId;
use outpour_store::{Claim, Error, Intent, Roots, Shape};

use crate::support::*;

struct Scene {
    scratch: Scratch,
    roots: Roots,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("root")).unwrap();
        fs::create_dir(scratch.path("outside")).unwrap();
        chmod(scratch.path("outside"), 0o705);
        put(&scratch.path("outside"), "inner/file", b"1");
        let roots = Roots::open(&[scratch.path("root")]).unwrap();
        Self { scratch, roots }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    fn take(&self, path: &Path, shape: Shape) -> Result<Claim, Error> {
        let intent = Intent {
            object: ObjectId::of(b"it"),
            shape,
            label: "it".into(),
            party: None,
        };
        Claim::take(path, Some(&self.roots), intent)
    }

    /// Asserts that nothing goes to `path`, and nothing happens outside.
    #[track_caller]
    fn assert_refused(&self, path: &Path, link: &Path) {
        let about = || {
            let outside = self.path("outside");
            (describe(&outside), fs::metadata(&outside).unwrap().mode())
        };
        let before = about();
        for shape in [Shape::Tree, Shape::File(b"file".to_vec())] {
            let error = self.take(path, shape).unwrap_err();
            let Error::Linked { path, root } = &error else {
                panic!("{error}")
            };
            assert_eq!((path.as_path(), root), (link, &self.path("root")));
        }
        assert_eq!(about(), before);
    }
}

#[test]
fn no_link_is_followed_wherever_it_is() {
    let scene = Scene::new();
    let root = scene.path("root");
    fs::create_dir(root.join("dir")).unwrap();
    for target in [scene.path("outside"), "../../outside".into(), ".".into()] {
        let link = root.join("dir/link");
        symlink(&target, &link).unwrap();
        scene.assert_refused(&link, &link);
        scene.assert_refused(&link.join("inner"), &link);
        scene.assert_refused(&link.join("new/newer"), &link);
        fs::remove_file(&link).unwrap();
    }
    let link = root.join("dangling");
    symlink(scene.path("nowhere"), &link).unwrap();
    scene.assert_refused(&link, &link);
    scene.assert_refused(&link.join("new"), &link);
    assert!(!scene.path("nowhere").exists());
}

#[test]
fn a_destination_lies_beneath_a_root_as_it_was_when_opened() {
    let scene = Scene::new();
    let root = scene.path("root");
    for outside in [
        scene.path("outside"),
        scene.path("root/../outside"),
        scene.path("rooted"),
        PathBuf::from("relative"),
        PathBuf::from("/"),
    ] {
        let error = scene.take(&outside, Shape::Tree).unwrap_err();
        assert!(matches!(error, Error::Outside { .. }), "{error}");
    }
    drop(scene.take(&root, Shape::Tree).unwrap());
    drop(scene.take(&root.join("a/b"), Shape::Tree).unwrap());
    assert!(describe(&root).is_empty());

    fs::rename(&root, scene.path("moved")).unwrap();
    symlink(scene.path("outside"), &root).unwrap();
    let before = describe(&scene.path("outside"));
    let claim = scene.take(&root.join("inner/new"), Shape::Tree).unwrap();
    assert_eq!(describe(&scene.path("outside")), before);
    assert!(scene.path("moved/inner/new").is_dir());
    drop(claim);
    assert!(describe(&scene.path("moved")).is_empty());
}

#[test]
fn the_longest_root_counts() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("root/inner")).unwrap();
    fs::create_dir(scratch.path("other")).unwrap();
    let roots = Roots::open(&[scratch.path("root"), scratch.path("root/inner")]).unwrap();
    // Beneath the outer root this would be a link on the way.
    fs::rename(scratch.path("root/inner"), scratch.path("moved")).unwrap();
    symlink(scratch.path("other"), scratch.path("root/inner")).unwrap();
    let intent = Intent {
        object: ObjectId::of(b"it"),
        shape: Shape::Tree,
        label: String::new(),
        party: None,
    };
    let claim = Claim::take(scratch.path("root/inner/x"), Some(&roots), intent).unwrap();
    assert!(scratch.path("moved/x").is_dir());
    drop(claim);
}

#[test]
fn a_file_goes_inside_a_directory_beneath_the_root_too() {
    let scene = Scene::new();
    let root = scene.path("root");
    let from = put(&scene.path("from"), "own", &bytes(1, 50_000));
    let (manifest, source) = build_small(&from);
    fs::create_dir(root.join("dir")).unwrap();
    for (path, expected) in [
        ("dir", "dir/own"),
        ("new", "new"),
        ("slash/", "slash/own"),
        ("deep/er/name", "deep/er/name"),
    ] {
        let intent = Intent {
            object: manifest.id(),
            shape: Shape::of(&manifest),
            label: String::new(),
            party: None,
        };
        let claim = Claim::take(root.join(path), Some(&scene.roots), intent).unwrap();
        let destination = claim.open(manifest.clone(), manual()).unwrap();
        fill(&source, &destination);
        destination.finish().unwrap();
        let copy = fs::read(root.join(expected)).unwrap();
        assert!(copy == bytes(1, 50_000), "{path}");
    }
}

#[test]
fn without_roots_links_lead_where_they_lead() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "file", b"1");
    fs::create_dir_all(scratch.path("real")).unwrap();
    symlink("real", scratch.path("link")).unwrap();
    cast(&from, &scratch.path("link/new/tree")).unwrap();
    assert_eq!(describe(&scratch.path("real/new/tree")), describe(&from));
    cast(&from, &scratch.path("link")).unwrap();
    assert!(scratch.path("real/file").exists());
    symlink("nowhere", scratch.path("dangling")).unwrap();
    let error = cast(&from, &scratch.path("dangling/x")).unwrap_err();
    assert!(matches!(error, Error::Blocked { .. }), "{error}");
    assert!(!scratch.path("nowhere").exists());
}

/// The way is gone again from the directory of the host's owner, not from its path.
#[test]
fn a_destination_is_confirmed_from_its_open_root() {
    for moved in [false, true] {
        let scene = Scene::new();
        let root = scene.path("root");
        let from = scene.path("from");
        put(&from, "file", b"1");
        let (manifest, source) = build_small(&from);
        let intent = Intent {
            object: manifest.id(),
            shape: Shape::Tree,
            label: "it".into(),
            party: None,
        };
        let claim = Claim::take(root.join("x/to"), Some(&scene.roots), intent).unwrap();
        let destination = claim.open(manifest, manual()).unwrap();
        fill(&source, &destination);
        // What takes the place of the root does not count.
        fs::rename(&root, scene.path("aside")).unwrap();
        let result = if moved {
            fs::rename(scene.path("aside/x"), scene.path("aside/y")).unwrap();
            symlink("y", scene.path("aside/x")).unwrap();
            destination.finish()
        } else {
            destination.finish()
        };
        match result {
            Ok(()) => assert!(!moved),
            Err(error) => assert!(moved && matches!(error, Error::Moved { .. }), "{error}"),
        }
    }
}

#[test]
fn whom_a_part_of_the_roots_is_granted_reaches_no_other() {
    let scene = Scene::new();
    let root = scene.path("root");
    let (ana, other) = (root.join("ana"), root.join("other"));
    let roots = scene
        .roots
        .granted_to("operator ana", std::slice::from_ref(&ana));
    let take = |path: &Path| {
        let intent = Intent {
            object: ObjectId::of(b"it"),
            shape: Shape::Tree,
            label: String::new(),
            party: None,
        };
        Claim::take(path, Some(&roots), intent)
    };
    drop(take(&ana.join("model")).unwrap());
    for outside in [
        other.clone(),
        root.clone(),
        root.join("anarchy"),
        root.join("./other"),
    ] {
        let error = take(&outside).unwrap_err();
        let says = error.to_string();
        assert!(
            says.contains("operator ana may read and write only beneath")
                && says.contains("/root/ana here"),
            "{says}"
        );
        let error =
            outpour_store::Survey::beneath(&outside, &roots, outpour_store::Attributes::Left)
                .unwrap_err();
        assert!(matches!(error, Error::NotGranted { .. }), "{error}");
    }
    // What no root of the host contains is not granted by anyone.
    let beyond = scene
        .roots
        .granted_to("operator ana", &[PathBuf::from("/")]);
    let error = outpour_store::Survey::beneath(
        &scene.path("outside"),
        &beyond,
        outpour_store::Attributes::Left,
    )
    .unwrap_err();
    assert!(matches!(error, Error::Outside { .. }), "{error}");
    assert!(matches!(
        take(&ana.join("../other")),
        Err(Error::Outside { .. })
    ));
    // Nothing was made on the way.
    assert!(!other.exists());
    // A link beneath what is granted leads nowhere else.
    fs::create_dir_all(&ana).unwrap();
    fs::create_dir(&other).unwrap();
    symlink(&other, ana.join("link")).unwrap();
    let error = take(&ana.join("link/x")).unwrap_err();
    assert!(matches!(error, Error::Linked { .. }), "{error}");
}

#[test]
fn what_casts_keep_for_themselves_is_neither_written_nor_read() {
    let scratch = Scratch::new();
    let root = scratch.path("root");
    fs::create_dir_all(root.join(".outpour")).unwrap();
    fs::write(root.join(".outpour/epochs"), "x").unwrap();
    fs::create_dir_all(root.join("model/.outpour")).unwrap();
    let before = describe(&root);
    let roots = Roots::open(std::slice::from_ref(&root)).unwrap();
    for path in [
        ".outpour",
        ".outpour/epochs",
        "./.outpour/new/x",
        "model/.outpour/x",
    ] {
        let path = root.join(path);
        let intent = |shape| Intent {
            object: ObjectId([1; 32]),
            shape,
            label: "it".to_owned(),
            party: None,
        };
        for shape in [Shape::Tree, Shape::File(b"f".to_vec())] {
            let taken = Claim::take(&path, Some(&roots), intent(shape));
            assert!(matches!(taken, Err(Error::Reserved { .. })), "{path:?}");
        }
        let read = outpour_store::Survey::beneath(&path, &roots, outpour_store::Attributes::Left);
        assert!(matches!(read, Err(Error::Reserved { .. })), "{path:?}");
    }
    assert_eq!(describe(&root), before);
    // Where the owner has put a root does not matter.
    let inner = Roots::open(&[root.join("model/.outpour")]).unwrap();
    assert!(
        outpour_store::Survey::beneath(
            &root.join("model/.outpour"),
            &inner,
            outpour_store::Attributes::Left
        )
        .is_ok()
    );
}
