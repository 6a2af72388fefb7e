//! Symlinks where directories of the tree belong: nothing is written through them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::harness::{Cluster, Report, wait_until};

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
