//! Opens what lies beneath a directory, and follows no symlink on the way.
//!
//! `openat2` does it in one call. Kernels before 5.6 and some sandboxes do not have it; there each
//! directory on the way is opened by its name in the one before, which leads to the same places.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::fs::{self, AsFd, OwnedFd};
use crate::sys;

const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// What it takes to pass through a directory: not even the permission to read it.
const PASSING: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Whether this process was told that there is no `openat2`.
static STEPS: AtomicBool = AtomicBool::new(false);

/// Opens what lies at `path` beneath `root`, following no symlink anywhere on the way. That the
/// path itself leads to a symlink is an error, too, unless `flags` ask for the link.
pub(crate) fn confined(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    debug_assert!(!flags.contains(OFlags::CREATE), "it would have no mode");
    debug_assert!(
        flags.contains(OFlags::CLOEXEC),
        "children must not get what lies in a destination"
    );
    if !STEPS.load(Ordering::Relaxed) {
        match at_once(&root, path, flags) {
            Err(errno @ (Errno::NOSYS | Errno::PERM)) if is_missing(&root, errno) => {
                STEPS.store(true, Ordering::Relaxed);
            }
            result => return result,
        }
    }
    step_by_step(&root, path, flags)
}

fn at_once(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    loop {
        match fs::openat2(&root, path, flags, Mode::empty(), CONFINED) {
            // The kernel could not rule out a race with a rename; it says to try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whether `errno` means that there is no such call. A sandbox may say that it is not permitted,
/// but then it says so of calls that cannot be forbidden, too.
fn is_missing(root: impl AsFd, errno: Errno) -> bool {
    let harmless = || at_once(root, b".", PASSING).err();
    errno == Errno::NOSYS || harmless() == Some(errno)
}

fn step_by_step(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let mut parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
        .peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        if part == b".." {
            return Err(Errno::XDEV);
        }
        let here = at.as_ref().map_or_else(|| root.as_fd(), AsFd::as_fd);
        if parts.peek().is_some() {
            at = Some(step(here, part, PASSING)?);
        } else {
            return step(here, part, flags | OFlags::NOFOLLOW);
        }
    }
    let here = at.as_ref().map_or_else(|| root.as_fd(), AsFd::as_fd);
    fs::openat(here, ".", flags, Mode::empty())
}

/// Opens what has a name in a directory. Whether a link is in the way shows in another way than
/// with `openat2` where a directory was asked for.
fn step(dir: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    debug_assert!(!name.contains(&b'/'), "that is more than a step");
    debug_assert_ne!(name, b"..");
    debug_assert!(
        flags.contains(OFlags::NOFOLLOW),
        "a link would lead elsewhere"
    );
    match fs::openat(&dir, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR) => {
            let found = sys::lstat(&dir, name)?.map(|stat| sys::type_of(&stat));
            Err(match found {
                Some(FileType::Symlink) => Errno::LOOP,
                _ => Errno::NOTDIR,
            })
        }
        result => result,
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use super::*;

    const DIR: OFlags = OFlags::RDONLY
        .union(OFlags::DIRECTORY)
        .union(OFlags::CLOEXEC);
    const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
    const LINK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    /// A directory with files and links of every sort, beside one that must not be reached.
    fn scene() -> tempfile::TempDir {
        let scene = tempfile::tempdir().unwrap();
        let root = scene.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(scene.path().join("outside")).unwrap();
        std::fs::write(scene.path().join("outside/file"), b"secret").unwrap();
        std::fs::write(root.join("a/b/file"), b"inner").unwrap();
        symlink("../../outside", root.join("a/out")).unwrap();
        symlink(scene.path().join("outside"), root.join("absolute")).unwrap();
        symlink("a", root.join("inside")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink("a/b/file", root.join("to-file")).unwrap();
        scene
    }

    fn inode(path: &Path) -> u64 {
        std::fs::symlink_metadata(path).unwrap().ino()
    }

    /// What each way of walking must say, whatever it goes through.
    const CASES: [(&str, OFlags, Result<(), Errno>); 19] = [
        ("a", DIR, Ok(())),
        ("a/b", DIR, Ok(())),
        ("a//b/.", DIR, Ok(())),
        (".", DIR, Ok(())),
        ("a/b/file", FILE, Ok(())),
        ("inside", LINK, Ok(())),
        ("missing", DIR, Err(Errno::NOENT)),
        ("missing/b", DIR, Err(Errno::NOENT)),
        ("a/b/file", DIR, Err(Errno::NOTDIR)),
        ("a/b/file/more", FILE, Err(Errno::NOTDIR)),
        ("a/out", DIR, Err(Errno::LOOP)),
        ("a/out/file", FILE, Err(Errno::LOOP)),
        ("absolute", DIR, Err(Errno::LOOP)),
        ("absolute/file", FILE, Err(Errno::LOOP)),
        ("inside", DIR, Err(Errno::LOOP)),
        ("inside/b", DIR, Err(Errno::LOOP)),
        ("inside/b/file", LINK, Err(Errno::LOOP)),
        ("dangling", FILE, Err(Errno::LOOP)),
        ("to-file", FILE, Err(Errno::LOOP)),
    ];

    #[test]
    fn both_ways_lead_to_the_same_places_and_out_of_none() {
        let scene = scene();
        let path = scene.path().join("root");
        let root = std::fs::File::open(&path).unwrap();
        let has_openat2 = at_once(&root, b".", PASSING).is_ok();
        assert!(has_openat2 || is_missing(&root, Errno::NOSYS));
        type Way = fn(&std::fs::File, &[u8], OFlags) -> Result<OwnedFd, Errno>;
        let ways: [(&str, Way); 2] = [
            ("openat2", |root, path, flags| at_once(root, path, flags)),
            ("steps", |root, path, flags| step_by_step(root, path, flags)),
        ];
        for (way, open) in &ways[usize::from(!has_openat2)..] {
            let open = |path: &[u8], flags| open(&root, path, flags);
            for (name, flags, expected) in CASES {
                let opened = open(name.as_bytes(), flags);
                if let Ok(fd) = &opened {
                    let found = fs::fstat(fd).unwrap().st_ino;
                    assert_eq!(found, inode(&path.join(name)), "{way}: {name}");
                }
                assert_eq!(opened.map(drop), expected, "{way}: {name}");
            }
            for out in ["..", "a/../..", "/etc", "a/../../outside/file"] {
                assert_eq!(
                    open(out.as_bytes(), FILE).map(drop),
                    Err(Errno::XDEV),
                    "{way}: {out}"
                );
            }
        }
    }

    #[test]
    fn a_permission_that_a_file_lacks_is_no_missing_call() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(root.path()).unwrap();
        if at_once(&root, b".", PASSING).is_ok() {
            assert!(!is_missing(&root, Errno::PERM));
        }
        assert!(is_missing(&root, Errno::NOSYS));
    }
}
