//! Disks that hang: the others finish, the host is given up for what it hangs in, and the command
//! ends although agents wait in the kernel; when the disk is back the next cast goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{BYTES, Cast, Cluster, Report, system, wait_for, wait_until};
use crate::mount::Disk;
use crate::support::{outpour, same, signal, skipped};

const HOST: usize = 1;
const DISK_BYTES: u64 = 256 << 20;
const PATIENCE: &[&str] = &["--patience", "6 s"];
/// From when a disk hangs to the end of the command: the patience, what is left to do for the
/// others, and what ending takes, on a busy machine.
const END_MAX: Duration = Duration::from_secs(45);
/// Longer than any test, in microseconds.
const LONG_US: u32 = 600_000_000;

fn cluster(disk: &Disk) -> Cluster {
    Cluster::with_roots(4, |host| (host == HOST).then(|| disk.root()))
}

/// Waits for the end of a cast with a disk that has hung since `since`.
#[track_caller]
fn end(cast: Cast, since: Instant) -> Report {
    let report = Report::of(cast.end(), 1);
    assert!(since.elapsed() < END_MAX, "{:?}", since.elapsed());
    report
}

#[track_caller]
fn assert_hung(report: &Report, while_what: &str) {
    let error = report.error(HOST);
    assert!(
        error.starts_with("its disk has done nothing for "),
        "{error}"
    );
    assert!(error.contains(while_what), "{error}");
}

/// Asserts that the host was given up when all others were done: none waited for it.
#[track_caller]
fn assert_was_last(cluster: &Cluster, record: &Path) {
    let record = fs::read_to_string(record).unwrap();
    let mut lines = record
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let state = |line: &Value, host: usize| line["hosts"][host]["state"].clone();
    let line = lines.find(|line| state(line, HOST) == "failed").unwrap();
    for other in cluster.others(HOST) {
        assert_eq!(state(&line, other), "verified", "{line}");
    }
}

/// Casts again after the disk is back; returns the report.
fn again(cluster: &Cluster, protocol: &str) -> Report {
    cluster.wait_for_peace();
    let report = Report::of(cluster.begin(protocol, &[]).end(), 0);
    report.assert_verified(cluster, cluster.hosts());
    report
}

fn hangs_while_blocks_come(protocol: &str) {
    let Some(disk) = Disk::new(DISK_BYTES) else {
        return;
    };
    let cluster = cluster(&disk);
    let record = cluster.aside().join("record");
    let options = ["--progress", record.to_str().unwrap()];
    let mut cast = cluster.begin(protocol, &[PATIENCE, &options].concat());
    cluster.wait_for_share(&mut cast, HOST, 0.4);
    let frozen = disk.freeze();
    let report = end(cast, Instant::now());
    report.assert_verified(&cluster, cluster.others(HOST));
    assert_hung(&report, "while blocks are written; ");
    assert_was_last(&cluster, &record);
    assert!(cluster.held(HOST) < BYTES);
    // The agent has other disks, and serves them although part of it hangs.
    let elsewhere = disk.root().join("elsewhere");
    let other = Cast::start(&mut cluster.command_elsewhere(HOST, &elsewhere)).end();
    other.expect(0);
    same(&cluster.source, &elsewhere);

    drop(frozen);
    cluster.wait_for_peace();
    let held = cluster.held(HOST);
    again(&cluster, protocol).assert_resumed(HOST, held);
}

#[test]
fn while_blocks_come_by_a_chain() {
    hangs_while_blocks_come("chain");
}

#[test]
fn while_blocks_come_by_a_swarm() {
    hangs_while_blocks_come("swarm");
}

#[test]
fn before_anything_is_looked_at() {
    let Some(disk) = Disk::new(DISK_BYTES) else {
        return;
    };
    let mut cluster = cluster(&disk);
    let frozen = disk.freeze();
    let report = end(cluster.begin("swarm", PATIENCE), Instant::now());
    report.assert_verified(&cluster, cluster.others(HOST));
    assert_hung(&report, "while the destination is claimed");
    // The agent ends when it is asked to, as far as the kernel lets it.
    cluster.signal(HOST, "TERM");
    wait_for_exit(cluster.id(HOST));
    drop(frozen);
    cluster.kill(HOST);
    cluster.restart(HOST);
    again(&cluster, "swarm");
}

/// What stands for `ssh` becomes the agent, which the command can neither end nor kill.
#[test]
fn of_an_agent_that_is_the_commands_child() {
    let Some(disk) = Disk::new(DISK_BYTES) else {
        return;
    };
    let cluster = Cluster::new(0);
    let ssh = cluster.aside().join("ssh");
    fs::write(
        &ssh,
        "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n",
    )
    .unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let cast = |options: &[&str]| {
        let mut command = outpour();
        command.env("HOME", cluster.aside()).arg("cast");
        command.arg(&cluster.source);
        command.arg(format!("localhost:{}", disk.copy().display()));
        command.arg("--ssh").arg(&ssh).arg("--json").args(options);
        Cast::start(&mut command)
    };
    let frozen = disk.freeze();
    let report = end(cast(PATIENCE), Instant::now());
    let error = report.error(0);
    assert!(
        error.ends_with("while the destination is claimed"),
        "{error}"
    );
    drop(frozen);
    Report::of(cast(&[]).end(), 0);
    same(&cluster.source, &disk.copy());
}

/// Has calls of a process hang until it is dropped.
struct Hang(Child);

impl Hang {
    /// `None`, and a loud word, where processes cannot be traced. Without a path all such calls of
    /// the process hang.
    fn new(process: u32, calls: &str, path: Option<&Path>) -> Option<Self> {
        let mut command = Command::new("strace");
        command.args(["-f", "-qqq", "-o", "/dev/null", "-p", &process.to_string()]);
        command.args(["-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:delay_enter={LONG_US}")]);
        if let Some(path) = path {
            command.arg("-P").arg(path);
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            skipped("strace is not there; disks that hang in one call are not tested");
            return None;
        };
        let mut hang = Self(child);
        let mut refused = false;
        wait_until("every thread to be traced", || {
            refused = hang.0.try_wait().unwrap().is_some();
            refused || is_traced(process)
        });
        if refused {
            skipped("tracing a process needs root; disks that hang in one call are not tested");
            return None;
        }
        Some(hang)
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // Its end lets every thread go on.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a process has left but for the threads that hang, which only their tracer ends.
#[track_caller]
fn wait_for_exit(process: u32) {
    wait_until("the end of the command", || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        state.is_empty() || state.starts_with('Z')
    });
}

/// A tracer that is not a child of this process; it ends when dropped.
struct Tracer(u32);

impl Drop for Tracer {
    fn drop(&mut self) {
        signal(self.0, "KILL");
    }
}

/// Which process traces a process, if one does.
fn tracer(process: u32) -> Option<u32> {
    traced_by(Path::new(&format!("/proc/{process}")))
}

/// Which process traces a process or thread.
fn traced_by(dir: &Path) -> Option<u32> {
    let status = fs::read_to_string(dir.join("status")).ok()?;
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer?.trim().parse().ok().filter(|id| *id > 0)
}

/// Whether another process traces every thread of a process.
fn is_traced(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter();
    let mut threads = threads.flatten().flatten().map(|thread| thread.path());
    threads.all(|thread| traced_by(&thread).is_some() || !thread.exists())
}

#[test]
fn in_the_calls_that_sync_files() {
    let cluster = Cluster::new(4);
    let mut cast = cluster.begin("swarm", PATIENCE);
    cluster.wait_for_share(&mut cast, HOST, 0.2);
    let Some(hang) = Hang::new(cluster.id(HOST), "fsync,fdatasync", None) else {
        return;
    };
    let report = end(cast, Instant::now());
    report.assert_verified(&cluster, cluster.others(HOST));
    // What comes waits for what came two seconds ago to be synced.
    assert_hung(&report, "while blocks are written");
    drop(hang);
    again(&cluster, "swarm");
}

#[test]
fn while_an_old_copy_is_read() {
    let cluster = Cluster::new(4);
    Report::of(cluster.begin("swarm", &[]).end(), 0);
    cluster.wait_for_peace();
    // What has another time is read, whatever its size.
    let file = cluster.copy(HOST).join("large/07");
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let old = fs::File::options().write(true).open(&file).unwrap();
    old.set_modified(long_ago).unwrap();
    let Some(hang) = Hang::new(cluster.id(HOST), "pread64", Some(&file)) else {
        return;
    };
    let report = end(cluster.begin("swarm", PATIENCE), Instant::now());
    report.assert_verified(&cluster, cluster.others(HOST));
    assert_hung(&report, "while the destination is examined");
    drop(hang);
    let report = again(&cluster, "swarm");
    assert_eq!(report.number(HOST, "received_bytes"), 0);
}

#[test]
fn of_the_source() {
    let cluster = Cluster::new(2);
    let mut cast = cluster.begin("chain", PATIENCE);
    cluster.wait_for_share(&mut cast, 0, 0.4);
    // One call reads what is in memory, the other what is not.
    let Some(hang) = Hang::new(cast.id(), "pread64,preadv2", None) else {
        return;
    };
    let since = Instant::now();
    wait_for_exit(cast.id());
    drop(hang);
    let report = end(cast, since);
    for host in cluster.hosts() {
        let error = report.error(host);
        assert!(
            error.contains("; the source's disk has done nothing for "),
            "{error}"
        );
    }
    again(&cluster, "chain");
}

#[test]
fn of_the_source_while_it_is_hashed() {
    let cluster = Cluster::new(1);
    if !system("strace", &["-qqq", "-o", "/dev/null", "true"]) {
        skipped("strace does not work here; a source that hangs is not tested");
        return;
    }
    let file = cluster.source.join("large/07");
    let plain = cluster.command(PATIENCE);
    // As a grandchild, so that the command is the child whose end is awaited.
    let mut traced = Command::new("strace");
    traced.args(["-D", "-f", "-qqq", "-o", "/dev/null", "-P"]);
    traced.arg(&file).arg("-e");
    traced.arg(format!("inject=pread64:delay_enter={LONG_US}"));
    traced.arg(plain.get_program()).args(plain.get_args());
    let began = Instant::now();
    let cast = Cast::start(&mut traced);
    let tracer = Tracer(wait_for("the tracer", || tracer(cast.id())));
    wait_for_exit(cast.id());
    drop(tracer);
    let ran = cast.end().expect(1);
    assert!(began.elapsed() < END_MAX, "{:?}", began.elapsed());
    let line = format!(
        "outpour: {}: its disk has done nothing for 6 s while the source is read",
        cluster.source.display()
    );
    assert!(ran.err.lines().any(|said| said == line), "{ran:?}");
}
