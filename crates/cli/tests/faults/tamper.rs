//! Bytes that change under a running cast: what counts as verified is right all the same, and
//! no host is blamed for what a disk or its owner did.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::harness::{Cast, Cluster, Report, wait_until};
use crate::mount::Disk;

const HOST: usize = 1;

/// The staged files of a host that are not empty yet.
pub(crate) fn staged(cluster: &Cluster, host: usize) -> Vec<PathBuf> {
    let states = fs::read_dir(cluster.copy(host).join(".outpour"));
    let states = states.into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = states.map(|state| state.path().join("data")).collect();
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
        {
            match fs::symlink_metadata(&path) {
                // An object of many entries has several directories.
                Ok(meta) if meta.is_dir() => dirs.push(path),
                Ok(meta) if meta.is_file() && meta.blocks() > 0 => files.push(path),
                _ => {}
            }
        }
    }
    files
}

/// Flips a byte that was written already, and leaves the time of the file as it was.
pub(crate) fn flip(path: &Path) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(path) else {
        return false;
    };
    let meta = file.metadata().unwrap();
    let mut byte = [0];
    // What is still zero is not written yet.
    for offset in (0..meta.len()).step_by(4096 + 17) {
        if file.read_exact_at(&mut byte, offset).is_ok() && byte[0] != 0 {
            file.write_all_at(&[byte[0] ^ 0x55], offset).unwrap();
            let time = meta.modified().unwrap();
            file.set_modified(time).unwrap();
            return true;
        }
    }
    false
}

/// Flips bytes of so many staged files while a cast runs.
#[track_caller]
fn flip_staged(cluster: &Cluster, cast: &mut Cast, host: usize, mut times: u32) {
    wait_until("staged files to flip bytes of", || {
        cast.assert_runs();
        let flipped = staged(cluster, host).iter().any(|path| flip(path));
        times -= u32::from(flipped);
        times == 0
    });
}

#[track_caller]
fn assert_healed(cluster: &Cluster, report: &Report) {
    report.assert_verified(cluster, cluster.hosts());
    let notices: Vec<&str> = report.notices().collect();
    let name = cluster.name(HOST);
    let told = notices.iter().any(|notice| {
        notice.starts_with(&format!("{name} waits: "))
            && notice.ends_with(": another process changed the file while the cast ran")
    });
    assert!(told, "{notices:?}");
    let blamed = notices.iter().any(|notice| notice.contains("wrong bytes"));
    assert!(!blamed, "{notices:?}");
}

fn staged_bytes_flipped(protocol: &str) {
    let cluster = Cluster::new(3);
    let mut cast = cluster.begin(protocol, &[]);
    cluster.wait_for_share(&mut cast, HOST, 0.2);
    flip_staged(&cluster, &mut cast, HOST, 3);
    assert_healed(&cluster, &Report::of(cast.end(), 0));
    cluster.wait_for_peace();
}

#[test]
fn staged_bytes_are_flipped_in_a_chain() {
    staged_bytes_flipped("chain");
}

#[test]
fn staged_bytes_are_flipped_in_a_swarm() {
    staged_bytes_flipped("swarm");
}

#[test]
fn staged_bytes_are_flipped_in_a_coded_gossip() {
    staged_bytes_flipped("coded-gossip");
}

/// A file that has its name already, while others are still on their way.
#[test]
fn a_file_in_place_is_changed() {
    let cluster = Cluster::new(3);
    let mut cast = cluster.begin("chain", &[]);
    let large = cluster.copy(HOST).join("large");
    let mut changed = None;
    wait_until("a file in place", || {
        cast.assert_runs();
        let files = fs::read_dir(&large).into_iter().flatten().flatten();
        changed = files.map(|file| file.path()).find(|path| flip(path));
        changed.is_some()
    });
    assert_healed(&cluster, &Report::of(cast.end(), 0));
}

/// Flips a byte of a small file while the agent is inside `call`, which the tracer delays by a tenth
/// of a second. `choose` picks the file by its number.
fn changed_during(call: &str, choose: impl Fn(&[(u32, PathBuf)]) -> Option<&(u32, PathBuf)>) {
    let cluster = Cluster::new(2);
    let Some(tracer) = cluster.inject(HOST, &format!("{call}:delay_enter=100000")) else {
        return;
    };
    let mut cast = cluster.begin("chain", &[]);
    wait_until("a small file to write to", || {
        cast.assert_runs();
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
        let is_small = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.len() < 64 << 10);
        let files = staged(&cluster, HOST).into_iter().filter(is_small);
        let files = files.filter_map(|path| Some((number(&path)?, path)));
        let files: Vec<_> = files.collect();
        choose(&files).is_some_and(|(_, path)| flip(path))
    });
    drop(tracer);
    assert_healed(&cluster, &Report::of(cast.end(), 0));
}

/// Files are made in the order of their numbers.
#[test]
fn a_small_file_is_changed_as_it_is_made() {
    changed_during("utimensat", |files| {
        let some = files.len() > 3;
        files.iter().max().filter(|_| some)
    });
}

/// The flip comes after the agent's last look. Files get their names in the order of their numbers.
#[test]
fn a_small_file_is_changed_as_it_gets_its_name() {
    let first = std::cell::Cell::new(u32::MAX);
    changed_during("renameat", |files| {
        let next = files.iter().min()?;
        // When one has got its name the others follow.
        let begun = next.0 > first.get();
        first.set(first.get().min(next.0));
        begun.then_some(next)
    });
}

/// The flip comes after all files were looked at, while the state of the transfer is removed: then
/// nothing can be fetched again, and the host is not called verified.
#[test]
fn a_file_in_place_is_changed_at_the_very_end() {
    let cluster = Cluster::new(2);
    let Some(tracer) = cluster.inject(HOST, "unlinkat:delay_enter=200000") else {
        return;
    };
    let mut cast = cluster.begin("chain", &[]);
    let (large, states) = (
        cluster.copy(HOST).join("large"),
        cluster.copy(HOST).join(".outpour"),
    );
    let mut began = false;
    wait_until("the state to be removed", || {
        cast.assert_runs();
        let states = fs::read_dir(&states).into_iter().flatten().flatten();
        let mut states = states.map(|state| state.path());
        let Some(state) = states.find(|state| state.join("journal").exists()) else {
            return false;
        };
        let has_staging = state.join("data").exists();
        began |= has_staging;
        let mut files = fs::read_dir(&large).into_iter().flatten().flatten();
        began && !has_staging && files.any(|file| flip(&file.path()))
    });
    drop(tracer);
    let report = Report::of(cast.end(), 1);
    let error = report.error(HOST);
    assert!(
        error.contains("another process changed the file"),
        "{error}"
    );
}

/// Another program writes its own file of the same size over one in place.
#[test]
fn a_file_in_place_is_replaced() {
    let cluster = Cluster::new(2);
    let mut cast = cluster.begin("swarm", &[]);
    let large = cluster.copy(HOST).join("large");
    wait_until("a file in place", || {
        cast.assert_runs();
        let mut files = fs::read_dir(&large).into_iter().flatten().flatten();
        files.next().is_some_and(|file| {
            let other = cluster.aside().join("other");
            let len = file.metadata().unwrap().len();
            fs::write(&other, vec![7; len as usize]).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            let open = File::options().write(true).open(&other).unwrap();
            open.set_modified(time).unwrap();
            fs::rename(&other, file.path()).is_ok()
        })
    });
    assert_healed(&cluster, &Report::of(cast.end(), 0));
}

/// What the journal of an interrupted cast vouches for is not believed in the end either.
#[test]
fn staged_bytes_are_flipped_between_two_casts() {
    let cluster = Cluster::new(2);
    let mut cast = cluster.begin("chain", &[]);
    cluster.wait_for_share(&mut cast, HOST, 0.4);
    cast.signal("INT");
    Report::of(cast.end(), 1);
    cluster.wait_for_peace();
    let large = cluster.copy(HOST).join("large");
    let placed = fs::read_dir(&large).into_iter().flatten().flatten();
    let mut files = staged(&cluster, HOST);
    files.extend(placed.map(|file| file.path()));
    let flipped = files.iter().filter(|path| flip(path)).count();
    assert!(flipped > 0, "else nothing is shown");
    let report = Report::of(cluster.begin("chain", &[]).end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
}

/// A program that opens a staged file only to read it waits for a moment at most.
#[test]
fn a_reader_of_staged_files_does_not_wait() {
    let cluster = Cluster::new(2);
    let mut cast = cluster.begin("chain", &[]);
    cluster.wait_for_share(&mut cast, HOST, 0.1);
    let mut longest = Duration::ZERO;
    cluster.wait_for_share_while(&mut cast, HOST, 0.6, || {
        for path in staged(&cluster, HOST) {
            let begun = std::time::Instant::now();
            drop(File::open(path));
            longest = longest.max(begun.elapsed());
        }
    });
    eprintln!("the longest wait was {longest:?}");
    // The kernel itself ends a lease after 45 s.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
}

/// The bytes of the disk that a host's copy is on.
const DISK_BYTES: u64 = 160 << 20;

/// Drops what is in memory of a host's files, so that what is on its disk shows.
fn forget(copy: &Path) {
    for file in fs::read_dir(copy.join("large")).unwrap().flatten() {
        let open = File::open(file.path()).unwrap();
        open.sync_all().unwrap();
        fadvise(&open, 0, None, Advice::DontNeed).unwrap();
    }
}

/// A host that has a bad disk and serves others from it is not taken for a liar.
#[test]
fn a_disk_rots_beneath_a_host_that_serves() {
    let Some(disk) = Disk::new(DISK_BYTES) else {
        return;
    };
    let cluster = Cluster::with_roots(3, |host| (host == HOST).then(|| disk.root()));
    let mut alone = cluster.command_to(&cluster.source, [HOST], "copy", &[]);
    Report::of(Cast::start(&mut alone).end(), 0);
    cluster.wait_for_peace();
    let mut cast = cluster.begin("swarm", &[]);
    // By now it has looked at what it has.
    cluster.wait_for_share(&mut cast, 0, 0.05);
    let large = disk.copy().join("large");
    for file in fs::read_dir(large).unwrap().flatten() {
        disk.rot(&file.path(), 3 << 20);
    }
    forget(&disk.copy());
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, cluster.others(HOST));
    let notices: Vec<&str> = report.notices().collect();
    let told = notices.iter().any(|notice| {
        notice.starts_with(&format!("{} stops serving others: ", cluster.name(HOST)))
            && notice.ends_with(": the disk returned other bytes than before")
    });
    assert!(told, "{notices:?}");
    let blamed = notices.iter().any(|notice| notice.contains("wrong bytes"));
    assert!(!blamed, "{notices:?}");
    // The next cast mends it.
    let again = Report::of(cluster.begin("swarm", &[]).end(), 0);
    again.assert_verified(&cluster, cluster.hosts());
    forget(&disk.copy());
    cluster.assert_copy(HOST);
}

/// What is not read again shows if everything is read back.
#[test]
fn a_disk_rots_beneath_what_is_read_back() {
    let Some(disk) = Disk::new(DISK_BYTES) else {
        return;
    };
    let cluster = Cluster::with_roots(2, |host| (host == HOST).then(|| disk.root()));
    let mut cast = cluster.begin("chain", &["--verify-after"]);
    let large = disk.copy().join("large");
    wait_until("a file in place", || {
        cast.assert_runs();
        let mut files = fs::read_dir(&large).into_iter().flatten().flatten();
        files.next().is_some_and(|file| {
            disk.rot(&file.path(), 1 << 20);
            true
        })
    });
    let report = Report::of(cast.end(), 0);
    report.assert_verified(&cluster, cluster.hosts());
    forget(&disk.copy());
    cluster.assert_copy(HOST);
}
