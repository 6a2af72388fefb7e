//! Symlinks where directories of the tree belong, or on the way to it: nothing is written through
//! them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::harness::{Cast, Cluster, Report, system, wait_until};
use crate::support::skipped;

const HOST: usize = 1;

/// An empty directory outside every root.
fn outside(cluster: &Cluster) -> PathBuf {
    let outside = cluster.aside().join("outside");
    fs::create_dir(&outside).unwrap();
    outside
}

#[track_caller]
fn assert_refused(cluster: &Cluster, report: &Report, outside: &Path) {
    report.assert_verified(cluster, cluster.others(HOST));
    let expected = format!(
        "{}: a symlink leads elsewhere where a directory of the tree belongs",
        cluster.copy(HOST).join("large").display()
    );
    assert_eq!(report.error(HOST), expected);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn a_link_that_was_there_is_not_followed() {
    let cluster = Cluster::new(3);
    let outside = outside(&cluster);
    fs::create_dir(cluster.copy(HOST)).unwrap();
    symlink(&outside, cluster.copy(HOST).join("large")).unwrap();
    let report = Report::of(cluster.begin("chain", &[]).end(), 1);
    assert_refused(&cluster, &report, &outside);
}

#[test]
fn a_directory_swapped_for_a_link_meanwhile_is_not_missed() {
    let cluster = Cluster::new(3);
    let outside = outside(&cluster);
    let large = cluster.copy(HOST).join("large");
    let mut cast = cluster.begin("swarm", &[]);
    wait_until("the first files in place", || {
        cast.assert_runs();
        fs::read_dir(&large).is_ok_and(|files| files.count() > 0)
    });
    fs::rename(&large, cluster.copy(HOST).join("moved")).unwrap();
    symlink(&outside, &large).unwrap();
    let report = Report::of(cast.end(), 1);
    assert_refused(&cluster, &report, &outside);
}

/// Casts a tree and a file to places beyond a link on one host: they are refused there, nothing
/// outside changes, and the other host gets them.
#[track_caller]
fn nothing_passes_a_link_on_the_way(cluster: &Cluster) {
    let outside = outside(cluster);
    fs::create_dir(outside.join("inner")).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o705)).unwrap();
    let about = || {
        let mode = |path: &Path| fs::metadata(path).unwrap().mode();
        let inner = outside.join("inner");
        let names = [&outside, &inner].map(|dir| fs::read_dir(dir).unwrap().count());
        (names, mode(&outside), mode(&inner))
    };
    let before = about();
    let file = cluster.aside().join("file");
    fs::write(&file, vec![1; 300_000]).unwrap();
    for source in [&cluster.source, &file] {
        for (nth, beyond) in ["", "/inner", "/new", "/"].iter().enumerate() {
            let name = format!("{}{nth}", source.file_name().unwrap().display());
            let link = cluster.root(HOST).join(&name);
            symlink(&outside, &link).unwrap();
            let place = format!("{name}{beyond}");
            let cast = Cast::start(&mut cluster.command_to(source, 0..2, &place, &[]));
            let report = Report::of(cast.end(), 1);
            let expected = format!(
                "{}: a symlink; this agent follows none beneath {}",
                link.display(),
                cluster.root(HOST).display()
            );
            assert_eq!(report.error(HOST), expected);
            assert_eq!(report.host(0)["verified"], true, "{place}");
            assert_eq!(about(), before, "{place}");
            assert!(link.is_symlink());
        }
    }
}

#[test]
fn no_link_leads_out_of_a_root() {
    nothing_passes_a_link_on_the_way(&Cluster::new(2));
}

#[test]
fn nor_does_one_where_the_kernel_lacks_openat2() {
    // The traced agent is the child of the process that starts it; its tracer ends with it.
    let strace = "strace -D -f -qq -o /dev/null -e trace=openat2 -e inject=openat2:error=ENOSYS";
    let strace: Vec<&str> = strace.split(' ').collect();
    let (program, arguments) = strace.split_first().unwrap();
    if !Path::new("/usr/bin/strace").exists() || !system(program, &[arguments, &["true"]].concat())
    {
        skipped("without strace no kernel can be played that has no openat2");
        return;
    }
    let cluster = Cluster::run_by(2, &strace);
    let report = Report::of(cluster.begin("swarm", &[]).end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
    nothing_passes_a_link_on_the_way(&cluster);
}
