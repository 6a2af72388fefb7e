//! System calls that fail or lie on a receiver, on a host in the middle of a chain, on the source: the
//! seed draws which, how, and from which one on.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit};

use super::draw::Draw;
use super::objects::{Before, Object};
use super::report::Row;
use super::site::{Meter, Said, Site};
use crate::harness::{Cast, wait_until};
use crate::support::{signal, skipped};

const HOSTS: usize = 3;
const LIMIT: &str = "12 MB/s";

pub(crate) fn object(dir: &Path) -> Object {
    Object::update(dir, 3, 2 << 20)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Receiver,
    /// It passes on to others what it gets.
    Relay,
    Source,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// As `strace --inject` says it, and whether bytes are lost that were said to be written.
    Call { spec: String, lies: bool },
    /// Files may not become larger: a write across that limit is a short one, those behind it fail.
    Limit(u64),
}

/// Calls that change files, how many of each there may be before one goes wrong, and how that may be.
const WRITES: [(&str, usize); 14] = [
    ("pwrite64", 20),
    ("openat", 20),
    ("openat2", 20),
    ("mkdirat", 4),
    ("renameat", 10),
    ("renameat2", 10),
    ("unlinkat", 6),
    ("fallocate", 3),
    ("ftruncate", 3),
    ("fchmod", 20),
    ("utimensat", 20),
    ("fdatasync", 4),
    ("fsync", 4),
    ("syncfs", 1),
];
const READS: [(&str, usize); 10] = [
    ("pread64", 20),
    ("openat", 20),
    ("openat2", 20),
    ("newfstatat", 20),
    ("fstat", 20),
    ("statx", 20),
    ("getdents64", 8),
    ("fcntl", 10),
    ("flock", 3),
    ("sync_file_range", 10),
];
const NET: [(&str, usize); 7] = [
    ("sendto", 30),
    ("sendmsg", 30),
    ("recvfrom", 30),
    ("connect", 3),
    ("accept4", 3),
    ("socket", 3),
    ("setsockopt", 5),
];
const WRITE_ERRORS: [&str; 4] = ["EIO", "EIO", "ENOSPC", "EDQUOT"];
const READ_ERRORS: [&str; 3] = ["EIO", "ENOMEM", "EMFILE"];
const NET_ERRORS: [&str; 4] = ["ECONNRESET", "ETIMEDOUT", "ENOBUFS", "EIO"];
/// Calls that say they did what they did not.
const LIES: [(&str, &str); 9] = [
    ("fdatasync", "0"),
    ("fsync", "0"),
    ("syncfs", "0"),
    ("sync_file_range", "0"),
    // Nothing was written, and that is what it says.
    ("pwrite64", "0"),
    ("pwrite64", "1"),
    ("pread64", "0"),
    ("pread64", "1"),
    ("sendto", "1"),
];

impl Fault {
    fn draw(draw: &mut Draw, role: Role) -> Self {
        match (role, draw.below(10)) {
            (Role::Receiver | Role::Relay, 0) => Self::Limit(draw.below(2 << 20) as u64 | 1),
            (_, 0..=2) => Self::lie(draw),
            (_, 3) => Self::failure(draw, &NET, &NET_ERRORS),
            (Role::Source, _) | (_, 4) => Self::failure(draw, &READS, &READ_ERRORS),
            _ => Self::failure(draw, &WRITES, &WRITE_ERRORS),
        }
    }

    fn failure(draw: &mut Draw, calls: &[(&str, usize)], errors: &[&str]) -> Self {
        let (call, most) = *draw.one(calls);
        let error = *draw.one(errors);
        let when = Self::when(draw, most);
        Self::Call {
            spec: format!("{call}:error={error}:when={when}"),
            lies: false,
        }
    }

    fn lie(draw: &mut Draw) -> Self {
        let (call, says) = *draw.one(&LIES);
        let when = match call.contains("sync") {
            true => "1+".to_owned(),
            false => Self::when(draw, 20),
        };
        Self::Call {
            spec: format!("{call}:retval={says}:when={when}"),
            lies: call == "pwrite64" && says != "0",
        }
    }

    /// Which calls of each thread are meant.
    fn when(draw: &mut Draw, most: usize) -> String {
        let first = 1 + draw.below(most);
        match draw.below(10) {
            0..=5 => format!("{first}"),
            6 | 7 => format!("{first}..{}", first + 1 + draw.below(4)),
            8 => format!("{first}+{}", 2 + draw.below(20)),
            _ => format!("{first}+"),
        }
    }

    fn lies(&self) -> bool {
        matches!(self, Self::Call { lies: true, .. })
    }

    /// As the table names it.
    fn kind(&self) -> &str {
        match self {
            Self::Limit(_) => "short writes",
            Self::Call { spec, .. } => {
                let how = spec.split(':').nth(1).unwrap_or_default();
                how.strip_prefix("error=").unwrap_or("lies")
            }
        }
    }
}

/// One cast with a fault; `None` where there is no strace.
pub(crate) fn inject(site: &mut Site, object: &Object, seed: u64, round: u64) -> Option<Row> {
    let mut draw = Draw::new(seed, round);
    site.fill(HOSTS);
    let role = *draw.one(&[Role::Receiver, Role::Receiver, Role::Relay, Role::Source]);
    let (protocol, victim) = match role {
        Role::Relay => ("chain", 1),
        _ => (
            *draw.one(&["direct", "chain", "swarm", "coded-gossip"]),
            draw.below(HOSTS),
        ),
    };
    let victim = (role != Role::Source).then_some(victim);
    let fault = Fault::draw(&mut draw, role);
    let mut before = Before::Nothing;
    if draw.below(2) == 0 {
        for host in site.hosts() {
            before = object.put_old(&site.copy(host));
        }
    }
    let mut options = vec![
        "--protocol",
        protocol,
        "--limit",
        LIMIT,
        "--patience",
        "8 s",
    ];
    if fault.lies() {
        options.push("--verify-after");
    }
    let (ran, struck) = disturbed(site, object, &options, victim, &fault)?;
    let first = Said::of(ran);
    let about = format!(
        "{role:?} {victim:?} {protocol} {before:?} {fault:?}: {}",
        first.errors()
    );
    first.assert_clear();
    for host in site.hosts() {
        check(site, object, before, host, (&first, &fault, victim), &about);
    }

    let again = Said::of(site.begin(&object.new, &["--protocol", protocol]).end());
    again.assert_clear();
    again.assert_success();
    for host in site.hosts() {
        object.assert_whole(&site.copy(host), &about);
        assert!(
            !site.copy(host).join(".outpour").exists(),
            "{about}: state is left behind"
        );
    }
    let verified = site.hosts().all(|host| first.is_verified(host));
    site.clear();
    site.stop();
    let kind = if struck {
        fault.kind()
    } else {
        "did not strike"
    };
    Some(Row {
        sort: format!("{role:?}, {kind}"),
        object: object.name,
        about,
        verified,
        ..Row::default()
    })
}

/// Asserts what has to hold of a host after the disturbed cast.
#[track_caller]
fn check(
    site: &Site,
    object: &Object,
    before: Before,
    host: usize,
    (first, fault, victim): (&Said, &Fault, Option<usize>),
    about: &str,
) {
    assert!(
        site.runs(host),
        "{about}: the agent of host {host} has ended"
    );
    let copy = site.copy(host);
    if first.is_verified(host) {
        object.assert_whole(&copy, about);
    } else if !(fault.lies() && victim == Some(host)) {
        // Without being told, only reading back finds what a disk does not write.
        object.assert_nothing_half(&copy, before, about);
    }
    let harmed = victim.is_some_and(|victim| victim != host) && !first.is_verified(host);
    assert!(!harmed, "{about}: host {host} was harmed");
}

/// Runs a cast with its fault; says whether that struck.
fn disturbed(
    site: &Site,
    object: &Object,
    options: &[&str],
    victim: Option<usize>,
    fault: &Fault,
) -> Option<(crate::support::Ran, bool)> {
    let log = site.path().join("trace");
    match (fault, victim) {
        (Fault::Limit(bytes), Some(host)) => {
            let mut meter = Meter::new(site.id(host));
            let mut cast = site.begin(&object.new, options);
            wait_until("the host to have written", || {
                meter.look() > *bytes || !cast.runs()
            });
            limit_files(site.id(host), Some(*bytes));
            let ran = cast.end();
            limit_files(site.id(host), None);
            Some((ran, true))
        }
        (Fault::Limit(_), None) => None,
        (Fault::Call { spec, .. }, Some(host)) => {
            let tracer = Tracer::attach(site.id(host), spec, &log)?;
            let ran = site.begin(&object.new, options).end();
            drop(tracer);
            Some((ran, has_struck(&log)))
        }
        (Fault::Call { spec, .. }, None) => {
            let mut strace = Command::new("strace");
            strace.args(arguments(spec)).arg("-o").arg(&log);
            let cast: Cast = site.begin_by(&mut strace, &object.new, options);
            Some((cast.end(), has_struck(&log)))
        }
    }
}

fn limit_files(id: u32, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    let id = Pid::from_raw(id.cast_signed());
    rustix::process::prlimit(id, Resource::Fsize, limit).unwrap();
}

fn arguments(spec: &str) -> [String; 5] {
    let call = spec.split(':').next().unwrap_or_default();
    let (trace, inject) = (format!("trace={call}"), format!("inject={spec}"));
    ["-f", "-e", &trace, "-e", &inject].map(str::to_owned)
}

fn has_struck(log: &Path) -> bool {
    let log = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&log).contains("(INJECTED)")
}

/// Makes system calls of a process fail until it is dropped.
pub(super) struct Tracer(Child);

impl Tracer {
    /// `None`, and a loud word, where that is not possible.
    pub(super) fn attach(id: u32, spec: &str, log: &Path) -> Option<Self> {
        let child = Command::new("strace")
            .args(arguments(spec))
            .args(["-p", &id.to_string(), "-o"])
            .arg(log)
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            skipped("there is no strace; system calls that fail are not tested");
            return None;
        };
        let tracer = Self(child);
        // All of its threads have to be.
        wait_until("the tracer", || {
            let tasks = fs::read_dir(format!("/proc/{id}/task"))
                .into_iter()
                .flatten()
                .flatten();
            tasks.into_iter().all(|task| {
                let status = fs::read_to_string(task.path().join("status"));
                status.map_or(true, |status| !status.contains("TracerPid:\t0\n"))
            })
        });
        Some(tracer)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}
