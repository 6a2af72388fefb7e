//! Another user swaps a directory and a link as fast as the kernel can, on the way to a destination
//! of an agent that runs as root: nothing gets out of the agent's root.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{RenameFlags, renameat_with};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::harness::{Cast, Cluster};
use crate::support::skipped;

/// The other user: nobody.
const OTHER: u32 = 65_534;
/// How many swaps there are at least, unless OUTPOUR_SWAPS says otherwise: `OUTPOUR_SWAPS=5000000`
/// is what a release is tried with.
const SWAPS: u64 = 300_000;
/// How many casts there are at least.
const CASTS: u64 = 12;

/// Swaps two names in a directory as another user until told to stop.
fn swap(dir: &File, stop: &AtomicBool, swaps: &AtomicU64) {
    // Of this thread alone: the tests beside it stay who they are.
    let (user, group) = (
        rustix::fs::Uid::from_raw(OTHER),
        rustix::fs::Gid::from_raw(OTHER),
    );
    set_thread_res_gid(group, group, group).unwrap();
    set_thread_res_uid(user, user, user).unwrap();
    while !stop.load(Ordering::Relaxed) {
        renameat_with(dir, "dir", dir, "link", RenameFlags::EXCHANGE).unwrap();
        swaps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything outside, with whatever an agent could change of it.
fn about(outside: &Path) -> Vec<(String, u32, u32, i64, i64)> {
    let mut found = Vec::new();
    for path in [
        outside.to_path_buf(),
        outside.join("deep"),
        outside.join("copy"),
    ] {
        let stat = fs::symlink_metadata(&path).unwrap();
        let names = fs::read_dir(&path).unwrap().count();
        let name = format!("{} {names}", path.display());
        found.push((
            name,
            stat.mode(),
            stat.uid(),
            stat.mtime(),
            stat.mtime_nsec(),
        ));
    }
    found
}

#[test]
fn nothing_gets_out_while_another_user_swaps_directories_for_links() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can run an agent as root beside another user");
        return;
    }
    let cluster = Cluster::new(1);
    // Others may pass through, as in any directory that is shared.
    fs::set_permissions(cluster.aside(), fs::Permissions::from_mode(0o755)).unwrap();
    let outside = cluster.aside().join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::create_dir(outside.join("copy")).unwrap();
    let home = cluster.root(0).join("home");
    fs::create_dir_all(home.join("dir/copy")).unwrap();
    symlink(&outside, home.join("link")).unwrap();
    for path in [&home, &home.join("dir"), &home.join("dir/copy")] {
        chown(path, Some(OTHER), Some(OTHER)).unwrap();
    }
    let tree = cluster.aside().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    fs::write(tree.join("deep/er/file"), b"out").unwrap();
    fs::write(tree.join("file"), b"out").unwrap();

    let before = about(&outside);
    let wanted = std::env::var("OUTPOUR_SWAPS").ok();
    let wanted = wanted.map_or(SWAPS, |swaps| swaps.parse().unwrap());
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let dir = File::open(&home).unwrap();
    let (mut casts, mut verified) = (0, 0);
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| swap(&dir, &stop, &swaps));
        let file = tree.join("file");
        let places = [
            (&tree, "home/dir"),
            (&tree, "home/dir/copy"),
            (&tree, "home/dir/new/er"),
            (&file, "home/dir"),
            (&file, "home/dir/"),
            (&file, "home/dir/new/file"),
        ];
        for (source, place) in places.iter().cycle() {
            if casts >= CASTS && swaps.load(Ordering::Relaxed) >= wanted || swapping.is_finished() {
                break;
            }
            let ran = Cast::start(&mut cluster.command_to(source, [0], place, &[])).end();
            casts += 1;
            verified += u64::from(ran.code == Some(0));
            if about(&outside) != before {
                stop.store(true, Ordering::Relaxed);
                panic!("{} to {place} got out: {ran:?}", source.display());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let swaps = swaps.into_inner();
    eprintln!("{swaps} swaps, {casts} casts, of which {verified} met a directory and not the link");
    assert!(swaps >= wanted);
    assert!(verified < casts && verified > 0, "{verified} of {casts}");
}
