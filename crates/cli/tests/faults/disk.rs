//! Disks that are full, or cannot be written to, or not so much: their host says so, and the others do not care.

use std::fs::{self, File};
use std::io::Write;

use crate::harness::{AGAIN_MAX, BYTES, Cluster, Report, wait_until};
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
        "{}: 50.4 MB needed, 21 MB free; make room there",
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
    let mut cast = cluster.begin("chain", &["--patience", "10 s"]);
    cluster.wait_for_share(&mut cast, HOST, 0.4);
    let filler = mount.path().join("filler");
    fill(&filler);
    let first = Report::of(cast.end(), 1);
    first.assert_verified(&cluster, cluster.others(HOST));
    let error = first.error(HOST);
    assert!(error.contains(": the disk is full"), "{error}");
    cluster.wait_for_peace();
    cluster.assert_nothing_half(HOST, &cluster.source);
    let held = cluster.held(HOST);

    fs::remove_file(filler).unwrap();
    let second = Report::of(cluster.begin("chain", &[]).end(), 0);
    second.assert_verified(&cluster, cluster.hosts());
    second.assert_resumed(HOST, held);
}

/// When the disk was full and has room again, the host goes on where it was.
fn room_comes_back(protocol: &str) {
    let Some(mount) = Mount::new("64M") else {
        return;
    };
    let cluster = cluster(&mount);
    let progress = cluster.aside().join("progress");
    let mut cast = cluster.begin(protocol, &["--progress", progress.to_str().unwrap()]);
    cluster.wait_for_share(&mut cast, HOST, 0.4);
    let filler = mount.path().join("filler");
    fill(&filler);
    let waits = format!("{} waits: ", cluster.name(HOST));
    wait_until("the host that waits", || {
        cast.assert_runs();
        let said = fs::read_to_string(&progress).unwrap_or_default();
        said.contains(&waits) && said.contains(": the disk is full")
    });
    fs::remove_file(filler).unwrap();
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
    // What it had was of use.
    assert!(report.number(HOST, "received_bytes") < BYTES + AGAIN_MAX);
    cluster.wait_for_peace();
}

#[test]
fn a_disk_that_has_room_again_in_a_chain() {
    room_comes_back("chain");
}

#[test]
fn a_disk_that_has_room_again_in_a_swarm() {
    room_comes_back("swarm");
}

#[test]
fn a_disk_that_has_room_again_in_a_coded_gossip() {
    room_comes_back("coded-gossip");
}

/// Calls that fail for a while cost time and nothing else.
fn some_calls_fail(call: &str) {
    let cluster = Cluster::new(3);
    let progress = cluster.aside().join("progress");
    let mut cast = cluster.begin("swarm", &["--progress", progress.to_str().unwrap()]);
    cluster.wait_for_share(&mut cast, HOST, 0.2);
    let Some(tracer) = cluster.inject(HOST, &format!("{call}:error=EIO:when=2+2")) else {
        return;
    };
    let waits = format!("{} waits: ", cluster.name(HOST));
    wait_until("the host that waits", || {
        cast.assert_runs();
        let said = fs::read_to_string(&progress).unwrap_or_default();
        said.contains(&waits)
    });
    assert!(tracer.end() > 0, "no call failed");
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
}

#[test]
fn some_writes_fail() {
    some_calls_fail("pwrite64");
}

#[test]
fn some_syncs_fail() {
    some_calls_fail("fdatasync");
}

#[test]
fn some_reads_fail() {
    some_calls_fail("pread64");
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
