//! One of two receivers falls behind, and the other, which alone has what it lacks, is lost: the
//! source gives it the rest at its rate.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Cast, Cluster, Report, wait_until};

const FILES: usize = 6_000;
const BYTES_MIN: usize = 10_000;
const BYTES_MORE: usize = 10_000;

/// Small files, which share blocks, in a few directories.
fn many_files(aside: &Path) -> PathBuf {
    let root = aside.join("many");
    let mut state = 7_u32;
    for n in 0..FILES {
        let dir = root.join(format!("{:02}", n / 100));
        fs::create_dir_all(&dir).unwrap();
        let len = BYTES_MIN + n * 7919 % BYTES_MORE;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let bytes: Vec<u8> = (0..len).map(|_| noise()).collect();
        fs::write(dir.join(format!("{n:04}")), bytes).unwrap();
    }
    root
}

/// How many files have their names on a host.
fn complete(copy: &Path) -> usize {
    let dirs = fs::read_dir(copy).into_iter().flatten().flatten();
    let named = dirs.filter(|dir| !dir.file_name().to_string_lossy().starts_with('.'));
    let files = |dir: fs::DirEntry| fs::read_dir(dir.path()).map_or(0, Iterator::count);
    named.map(files).sum()
}

#[track_caller]
fn wait_for_files(cluster: &Cluster, cast: &mut Cast, host: usize, files: usize) {
    wait_until("so many files of a host", || {
        cast.assert_runs();
        complete(&cluster.copy(host)) >= files
    });
}

#[test]
fn in_a_coded_gossip() {
    const LOST: usize = 0;
    const BEHIND: usize = 1;
    let mut cluster = Cluster::new(2);
    cluster.source = many_files(cluster.aside());
    let mut command = cluster.plain_command(&["--protocol", "coded-gossip", "--limit", "25 MB/s"]);
    let mut cast = Cast::start(&mut command);
    wait_for_files(&cluster, &mut cast, LOST, 1);
    cluster.signal(BEHIND, "STOP");
    wait_for_files(&cluster, &mut cast, LOST, FILES * 6 / 10);
    cluster.kill(LOST);
    assert!(complete(&cluster.copy(LOST)) < FILES);
    cluster.signal(BEHIND, "CONT");
    let report = Report::of(cast.end(), 1);
    report.error(LOST);
    report.assert_verified(&cluster, [BEHIND]);
}
