//! A source, hosts with a running agent each, and casts that can be disturbed.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Resource, Rlimit};
use serde_json::Value;

use crate::service::{Service, trust};
use crate::support::{Ran, outpour, run, same, signal, skipped};

/// How long something that has to happen may take on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// The large files of the source, and what each holds.
const FILES: usize = 12;
const FILE_BYTES: usize = 4 << 20;
/// What all of them hold; the small files add next to nothing.
pub(crate) const BYTES: u64 = (FILES * FILE_BYTES) as u64;

/// So much at most is sent again after a crash, besides what was on its way.
pub(crate) const AGAIN_MAX: u64 = 16 << 20;

/// Blocks lie at multiples of this in their files; it is the block size of every cast here.
const CHUNK: usize = 128 << 10;
/// By so many bytes at both ends a chunk is recognised.
const MARK: usize = 16;
type Mark = [u8; 2 * MARK];

/// Looks for what `find` finds until it is there.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Hosts whose agents run, and a source.
pub(crate) struct Cluster {
    // Before the directory in which they work.
    services: Vec<Option<Service>>,
    ports: Vec<u16>,
    roots: Vec<PathBuf>,
    trust: PathBuf,
    identity: PathBuf,
    pub(crate) source: PathBuf,
    marks: HashSet<Mark>,
    dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn new(hosts: usize) -> Self {
        Self::with_roots(hosts, |_| None)
    }

    /// With the roots of some agents elsewhere.
    pub(crate) fn with_roots(hosts: usize, elsewhere: impl Fn(usize) -> Option<PathBuf>) -> Self {
        Self::made_of(hosts, elsewhere, &[])
    }

    /// With agents that another program runs, such as one that plays a strange kernel.
    pub(crate) fn run_by(hosts: usize, program: &[&str]) -> Self {
        Self::made_of(hosts, |_| None, program)
    }

    fn made_of(
        hosts: usize,
        elsewhere: impl Fn(usize) -> Option<PathBuf>,
        program: &[&str],
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (trust, identity) = trust(dir.path(), "trust");
        let source = dir.path().join("source");
        make_tree(&source);
        let root = |host| elsewhere(host).unwrap_or_else(|| dir.path().join(format!("host{host}")));
        let roots: Vec<PathBuf> = (0..hosts).map(root).collect();
        let start = |root: &PathBuf| match program {
            [] => Service::start(&identity, root),
            program => Service::run_by(program, 0, &identity, root),
        };
        let services: Vec<Service> = roots.iter().map(start).collect();
        Self {
            ports: services.iter().map(|service| service.port).collect(),
            services: services.into_iter().map(Some).collect(),
            roots,
            trust,
            identity,
            marks: marks(&source),
            source,
            dir,
        }
    }

    pub(crate) fn hosts(&self) -> std::ops::Range<usize> {
        0..self.ports.len()
    }

    /// Every host but this one.
    pub(crate) fn others(&self, host: usize) -> impl Iterator<Item = usize> {
        self.hosts().filter(move |other| *other != host)
    }

    /// A place for files that belong to no host.
    pub(crate) fn aside(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of the operator's identity.
    pub(crate) fn trust(&self) -> &Path {
        &self.trust
    }

    /// As reports name it.
    pub(crate) fn name(&self, host: usize) -> String {
        format!("127.0.0.1:{}", self.ports[host])
    }

    /// Where a host puts the object.
    pub(crate) fn copy(&self, host: usize) -> PathBuf {
        self.roots[host].join("copy")
    }

    /// Beneath which directory a host's agent writes.
    pub(crate) fn root(&self, host: usize) -> &Path {
        &self.roots[host]
    }

    fn service(&self, host: usize) -> &Service {
        self.services[host].as_ref().expect("it runs")
    }

    /// Sends an agent a signal.
    pub(crate) fn signal(&self, host: usize, name: &str) {
        signal(self.service(host).id(), name);
    }

    /// Makes system calls of an agent fail, as `strace --inject` says; `None`, and a loud word, where
    /// that is not possible.
    pub(crate) fn inject(&self, host: usize, what: &str) -> Option<Tracer> {
        let id = self.service(host).id();
        let call = what.split(':').next().unwrap_or_default();
        let log = self.aside().join(format!("trace-{host}"));
        let child = Command::new("strace")
            .args(["-f", "-e", &format!("trace={call}"), "-e"])
            .args([&format!("inject={what}"), "-p", &id.to_string(), "-o"])
            .arg(&log)
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            skipped("there is no strace; system calls that fail are not tested");
            return None;
        };
        let status = format!("/proc/{id}/status");
        wait_until("the tracer", || {
            let status = fs::read_to_string(&status).unwrap();
            !status.contains("TracerPid:\t0\n")
        });
        Some(Tracer { child, log })
    }

    /// Limits how large the files may be that an agent writes, as `prlimit --fsize` does; it can
    /// be lifted again.
    pub(crate) fn limit_files(&self, host: usize, bytes: Option<u64>) {
        let id = i32::try_from(self.service(host).id()).unwrap();
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        rustix::process::prlimit(Pid::from_raw(id), Resource::Fsize, limit).unwrap();
    }

    /// Ends an agent as a crash does.
    pub(crate) fn kill(&mut self, host: usize) {
        drop(self.services[host].take());
    }

    /// Starts the agent of a host again, on the port it had.
    pub(crate) fn restart(&mut self, host: usize) {
        let service = Service::start_on(self.ports[host], &self.identity, &self.roots[host]);
        self.services[host] = Some(service);
    }

    /// Ends every agent in order; returns what each said.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let services = self.services.drain(..);
        services.flatten().map(Service::stop).collect()
    }

    /// The process of an agent.
    pub(crate) fn id(&self, host: usize) -> u32 {
        self.service(host).id()
    }

    /// The command that casts the source to another place on a host.
    pub(crate) fn command_elsewhere(&self, host: usize, place: &Path) -> Command {
        let mut command = outpour();
        command.arg("cast").arg(&self.source);
        command.arg(format!("{}:{}", self.name(host), place.display()));
        command.args(["--agents", "--json", "--trust"]);
        command.arg(&self.trust);
        command
    }

    /// The command that casts the source to every host.
    pub(crate) fn command(&self, options: &[&str]) -> Command {
        self.command_to(&self.source, self.hosts(), "copy", options)
    }

    /// The command that casts something to a place beneath the roots of some hosts.
    pub(crate) fn command_to(
        &self,
        source: &Path,
        hosts: impl IntoIterator<Item = usize>,
        place: &str,
        options: &[&str],
    ) -> Command {
        let mut command = self.command_with(source, hosts, place);
        command.args(["--block", "128 KiB"]).args(options);
        command
    }

    /// The command that casts the source to every host, in blocks of the usual size.
    pub(crate) fn plain_command(&self, options: &[&str]) -> Command {
        let mut command = self.command_with(&self.source, self.hosts(), "copy");
        command.args(options);
        command
    }

    fn command_with(
        &self,
        source: &Path,
        hosts: impl IntoIterator<Item = usize>,
        place: &str,
    ) -> Command {
        let mut command = outpour();
        command.arg("cast").arg(source);
        for host in hosts {
            let place = format!("{}/{place}", self.roots[host].display());
            command.arg(format!("{}:{place}", self.name(host)));
        }
        command.args(["--agents", "--json", "--trust"]);
        command.arg(&self.trust);
        command
    }

    /// Begins a cast of which the disturbed part takes a few seconds.
    pub(crate) fn begin(&self, protocol: &str, options: &[&str]) -> Cast {
        let mut command = self.command(&["--protocol", protocol, "--limit", "14 MB/s"]);
        Cast::start(command.args(options))
    }

    /// How many bytes of the large files a host has on its disk, wherever they are.
    pub(crate) fn held(&self, host: usize) -> u64 {
        let mut found = HashSet::new();
        each_mark(&self.copy(host), &mut |mark| {
            if self.marks.contains(mark) {
                found.insert(*mark);
            }
        });
        (found.len() * CHUNK) as u64
    }

    /// Waits until a host has a share of the object, while the cast goes on.
    #[track_caller]
    pub(crate) fn wait_for_share(&self, cast: &mut Cast, host: usize, share: f64) {
        self.wait_for_share_while(cast, host, share, || {});
    }

    /// The same, doing something meanwhile.
    #[track_caller]
    pub(crate) fn wait_for_share_while(
        &self,
        cast: &mut Cast,
        host: usize,
        share: f64,
        mut meanwhile: impl FnMut(),
    ) {
        let wanted = (share * BYTES as f64) as u64;
        wait_until("the share of a host", || {
            cast.assert_runs();
            meanwhile();
            self.held(host) >= wanted
        });
    }

    /// Asserts that a host's copy is the source, and nothing is there besides.
    #[track_caller]
    pub(crate) fn assert_copy(&self, host: usize) {
        same(&self.source, &self.copy(host));
    }

    /// Asserts that whatever has its final name on a host is whole.
    #[track_caller]
    pub(crate) fn assert_nothing_half(&self, host: usize, source: &Path) {
        let copy = self.copy(host);
        for file in files(&copy) {
            let name = file.strip_prefix(&copy).unwrap();
            if !name.starts_with(".outpour") {
                let right = fs::read(source.join(name)).unwrap();
                assert!(fs::read(&file).unwrap() == right, "{}", file.display());
            }
        }
    }

    /// Asserts that a directory outside of all roots has one file as before, and nothing else.
    #[track_caller]
    pub(crate) fn assert_untouched(&self, outside: &Path) {
        let names: Vec<_> = fs::read_dir(outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["mine"]);
        assert_eq!(fs::read(outside.join("mine")).unwrap(), b"mine");
    }

    /// Waits until no agent does anything for a cast: no process is connected to it, no place is
    /// locked.
    #[track_caller]
    pub(crate) fn wait_for_peace(&self) {
        for host in self.hosts() {
            let id = self.service(host).id();
            wait_until("the end of the agent's part", || {
                !is_connected(id) && is_unlocked(&self.copy(host))
            });
        }
    }
}

/// A cast that runs.
pub(crate) struct Cast {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Cast {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = lines.clone();
        Self {
            child,
            out: Some(std::thread::spawn(move || {
                let mut text = String::new();
                stdout.read_to_string(&mut text).unwrap();
                text
            })),
            err: Some(std::thread::spawn(move || {
                let lines = stderr.lines().map_while(Result::ok);
                lines.for_each(|line| said.lock().unwrap().push(line));
            })),
            lines,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    #[track_caller]
    pub(crate) fn assert_runs(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "ended too soon: {:?}", self.lines);
    }

    /// Whether it goes on.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// What it has said on standard error so far.
    pub(crate) fn said(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ran {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < DEADLINE, "no end: {:?}", self.lines);
            std::thread::sleep(Duration::from_millis(10));
        };
        let out = self.out.take().map(JoinHandle::join);
        if let Some(err) = self.err.take() {
            err.join().unwrap();
        }
        Ran {
            code: status.code(),
            out: out.unwrap().unwrap(),
            err: self.lines.lock().unwrap().join("\n"),
        }
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes system calls fail until it is dropped.
pub(crate) struct Tracer {
    child: Child,
    log: PathBuf,
}

impl Tracer {
    /// Lets go; says how many calls were made to fail.
    pub(crate) fn end(self) -> usize {
        let log = self.log.clone();
        drop(self);
        let log = fs::read_to_string(log).unwrap();
        log.lines()
            .filter(|line| line.ends_with("(INJECTED)"))
            .count()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

/// The report of a cast.
pub(crate) struct Report {
    json: Value,
    err: String,
}

impl Report {
    /// Of a cast that ended with this exit code.
    #[track_caller]
    pub(crate) fn of(ran: Ran, code: i32) -> Self {
        let ran = ran.expect(code);
        Self {
            json: ran.json(),
            err: ran.err,
        }
    }

    /// Why hosts failed, in their order.
    pub(crate) fn errors(&self) -> Vec<&str> {
        let hosts = self.json["hosts"].as_array().unwrap().iter();
        hosts.filter_map(|host| host["error"].as_str()).collect()
    }

    /// What it says about a host.
    pub(crate) fn host(&self, host: usize) -> &Value {
        &self.json["hosts"][host]
    }

    /// How long the cast took, as it says.
    pub(crate) fn took(&self) -> Duration {
        Duration::from_secs_f64(self.json["finish_s"].as_f64().unwrap())
    }

    pub(crate) fn number(&self, host: usize, key: &str) -> u64 {
        self.host(host)[key].as_u64().unwrap()
    }

    /// Why a host failed; the one line about it on standard error says the same.
    #[track_caller]
    pub(crate) fn error(&self, host: usize) -> &str {
        let entry = self.host(host);
        assert_eq!(entry["state"], "failed", "{entry}");
        let error = entry["error"].as_str().unwrap();
        let name = entry["host"].as_str().unwrap();
        let line = format!("outpour: {name}: {error}");
        let said = self.err.lines().filter(|said| *said == line).count();
        assert_eq!(said, 1, "{line:?} in {}", self.err);
        error
    }

    /// Asserts that hosts were verified, and that their copies are true.
    #[track_caller]
    pub(crate) fn assert_verified(
        &self,
        cluster: &Cluster,
        hosts: impl IntoIterator<Item = usize>,
    ) {
        for host in hosts {
            let entry = self.host(host);
            assert_eq!(entry["verified"], true, "{entry} {}", self.err);
            cluster.assert_copy(host);
        }
    }

    /// Asserts that a host that held so many bytes got little of that again.
    #[track_caller]
    pub(crate) fn assert_resumed(&self, host: usize, held: u64) {
        let resumed = self.number(host, "resumed_bytes");
        eprintln!("host {host}: of {held} bytes {resumed} were of use");
        assert!(
            resumed > 0 && resumed + AGAIN_MAX >= held,
            "of {held} bytes {resumed} were of use"
        );
        let size = self.json["size_bytes"].as_u64().unwrap();
        let received = self.number(host, "received_bytes");
        // In the end game of a swarm a few blocks come twice.
        assert!(
            received <= size - resumed + (4 << 20),
            "{received} bytes came although {resumed} of {size} were there"
        );
    }

    pub(crate) fn notices(&self) -> impl Iterator<Item = &str> {
        let notices = self.json["notices"].as_array().unwrap().iter();
        notices.map(|notice| notice.as_str().unwrap())
    }
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("small")).unwrap();
    fs::create_dir(root.join("large")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let mut state = 1_u64;
    let mut noise = |len: usize| {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    };
    for n in 0..FILES {
        fs::write(root.join(format!("large/{n:02}")), noise(FILE_BYTES)).unwrap();
    }
    for n in 0..40 {
        fs::write(root.join(format!("small/{n}")), noise(1 + n * 97)).unwrap();
    }
    std::os::unix::fs::symlink("small/7", root.join("link")).unwrap();
}

/// The regular files beneath a directory, which may change meanwhile.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

fn marks(source: &Path) -> HashSet<Mark> {
    let mut marks = HashSet::new();
    each_mark(source, &mut |mark| {
        marks.insert(*mark);
    });
    assert_eq!(marks.len(), FILES * FILE_BYTES / CHUNK);
    marks
}

/// Goes through the chunks of the files beneath a directory.
fn each_mark(dir: &Path, see: &mut dyn FnMut(&Mark)) {
    for file in files(dir) {
        let Ok(file) = File::open(file) else { continue };
        let mut mark = [0; 2 * MARK];
        for start in (0..).step_by(CHUNK) {
            let (head, tail) = mark.split_at_mut(MARK);
            let read = file.read_exact_at(head, start);
            let end = start + (CHUNK - MARK) as u64;
            if read.and_then(|()| file.read_exact_at(tail, end)).is_err() {
                break;
            }
            see(&mark);
        }
    }
}

/// Whether a process has a TCP connection, to a command or to another agent.
fn is_connected(id: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).into_iter();
    let targets = descriptors
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    let own: HashSet<String> = targets
        .filter_map(|target| Some(target.to_str()?.to_owned()))
        .collect();
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // 0A is the state of a socket that listens.
            words[3] != "0A" && own.contains(&format!("socket:[{}]", words[9]))
        })
    })
}

/// Whether no process works on what is staged beneath a copy.
fn is_unlocked(copy: &Path) -> bool {
    let states = fs::read_dir(copy.join(".outpour")).into_iter().flatten();
    let paths = states.flatten().flat_map(|state| {
        let path = state.path();
        [path.join("lock"), path]
    });
    let files = paths.filter(|path| path.is_file());
    let mut locks = files.filter_map(|path| File::open(path).ok());
    locks.all(|lock| {
        let taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        // Closing does not do while a child that another test forks has the file open too.
        taken && rustix::fs::flock(&lock, FlockOperation::Unlock).is_ok()
    })
}

/// Runs a helper program of the system.
pub(crate) fn system(program: &str, arguments: &[&str]) -> bool {
    run(Command::new(program).args(arguments)).code == Some(0)
}
