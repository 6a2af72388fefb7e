//! Disks that are full, or cannot be written to, or not so much: their host says so, and the others do not care.

use std::fs::{self, File};
use std::io::Write;

use crate::harness::{Cluster, Report};
use crate::mount::Mount;

const HOST: usize = 1;

fn cluster(mount: &Mount) -> Cluster {
    Cluster::with_roots(3, |host| (host == HOST).then(|| mount.root()))
}

#[test]
fn a_disk_too_small_is_said_before_anything_is_written() {
    let Some(mount) = Mount::new("20M") else {
        return;
    };
    let cluster = cluster(&mount);
    let first = Report::of(cluster.begin("chain", &[]).end(), 1);
    first.assert_verified(&cluster, cluster.others(HOST));
    let error = first.error(HOST);
    let copy = cluster.copy(HOST);
    let expected = format!(
        "{}: 50.4 MB are needed, 21 MB are free; make room there",
        copy.display()
    );
    assert_eq!(error, expected);
    assert_eq!(cluster.held(HOST), 0);

    mount.change("size=100M");
    let second = Report::of(cluster.begin("chain", &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
}

#[test]
fn a_disk_that_becomes_full_keeps_what_it_has() {
    let Some(mount) = Mount::new("64M") else {
        return;
    };
    let cluster = cluster(&mount);
    let mut cast = cluster.begin("chain", &[]);
    cluster.wait_for_share(&mut cast, HOST, 0.4);
    let filler = mount.path().join("filler");
    fill(&filler);
    let first = Report::of(cast.end(), 1);
    first.assert_verified(&cluster, cluster.others(HOST));
    let error = first.error(HOST);
    assert!(error.ends_with(": the disk is full"), "{error}");
    cluster.wait_for_peace();
    cluster.assert_nothing_half(HOST, &cluster.source);
    let held = cluster.held(HOST);

    fs::remove_file(filler).unwrap();
    let second = Report::of(cluster.begin("chain", &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    second.assert_resumed(HOST, held);
}

/// Takes all the room there is.
fn fill(path: &std::path::Path) {
    let mut file = File::create(path).unwrap();
    for bytes in [1 << 20, 4 << 10] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

#[test]
fn a_disk_that_is_read_only_is_named() {
    let Some(mount) = Mount::new("100M") else {
        return;
    };
    let cluster = cluster(&mount);
    mount.change("ro");
    let report = Report::of(cluster.begin("swarm", &[]).end(), 1);
    report.assert_verified(&cluster, cluster.others(HOST));
    let expected = format!(
        "{}: cannot create the directory: Read-only file system (os error 30)",
        cluster.copy(HOST).display()
    );
    assert_eq!(report.error(HOST), expected);
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_agent() {
    let cluster = Cluster::new(3);
    cluster.limit_files(HOST, Some(1 << 20));
    let first = Report::of(cluster.begin("chain", &[]).end(), 1);
    first.assert_verified(&cluster, cluster.others(HOST));
    let error = first.error(HOST);
    let large = cluster.copy(HOST).join("large/").display().to_string();
    assert!(error.starts_with(&large), "{error}");
    assert!(error.ends_with(": File too large (os error 27)"), "{error}");
    // It is the same agent that takes part in the next cast.
    cluster.wait_for_peace();
    cluster.assert_nothing_half(HOST, &cluster.source);
    cluster.limit_files(HOST, None);
    let second = Report::of(cluster.begin("chain", &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    assert_eq!(cluster.stop(), ["", "", ""]);
}
