//! Hosts whose agents run as a service, for many rounds one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::objects::BLOCK;
use crate::harness::Cast;
use crate::service::{Service, trust};
use crate::support::{Ran, outpour};

/// A host.
struct Host {
    root: PathBuf,
    port: u16,
    service: Option<Service>,
}

/// Hosts, and who may cast to them.
pub(crate) struct Site {
    // Before the directory in which they work.
    hosts: Vec<Host>,
    trust: PathBuf,
    identity: PathBuf,
    dir: tempfile::TempDir,
}

impl Site {
    /// Without hosts yet, in a directory of its own in `dir`.
    pub(crate) fn new(dir: &Path) -> Self {
        let dir = tempfile::tempdir_in(dir).unwrap();
        let (trust, identity) = trust(dir.path(), "trust");
        Self {
            hosts: Vec::new(),
            trust,
            identity,
            dir,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts an agent for a directory; the first that is started is host 0.
    pub(crate) fn add(&mut self, root: PathBuf) {
        let service = Service::start(&self.identity, &root);
        self.hosts.push(Host {
            root,
            port: service.port,
            service: Some(service),
        });
    }

    /// Starts agents for directories in the site's own, until there are so many.
    pub(crate) fn fill(&mut self, hosts: usize) {
        for host in self.hosts.len()..hosts {
            self.add(self.path().join(format!("host{host}")));
        }
    }

    pub(crate) fn hosts(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }

    /// Where the object of a host goes.
    pub(crate) fn copy(&self, host: usize) -> PathBuf {
        self.hosts[host].root.join("copy")
    }

    pub(crate) fn id(&self, host: usize) -> u32 {
        self.hosts[host].service.as_ref().unwrap().id()
    }

    /// Ends an agent as a crash does.
    pub(crate) fn kill(&mut self, host: usize) {
        drop(self.hosts[host].service.take());
    }

    /// Starts an agent again that was killed.
    pub(crate) fn restart(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.service = Some(Service::start_on(host.port, &self.identity, &host.root));
    }

    /// Whether an agent still runs.
    pub(crate) fn runs(&self, host: usize) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id(host))).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        !state.is_empty() && !state.starts_with('Z')
    }

    /// Ends all agents in order, of which none may have panicked.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        for service in self.hosts.drain(..).filter_map(|host| host.service) {
            let said = service.stop_all();
            assert!(!said.contains("panicked"), "{said}");
        }
    }

    /// Removes what the hosts have got.
    pub(crate) fn clear(&self) {
        for host in self.hosts() {
            let _ = fs::remove_dir_all(self.copy(host));
        }
    }

    /// Keeps everything for inspection.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.hosts.clear();
        self.dir.keep()
    }

    /// The arguments of a cast to all hosts.
    pub(crate) fn arguments(&self, source: &Path, options: &[&str]) -> Vec<String> {
        let mut arguments = vec!["cast".to_owned(), source.display().to_string()];
        for host in &self.hosts {
            let copy = host.root.join("copy");
            arguments.push(format!("127.0.0.1:{}:{}", host.port, copy.display()));
        }
        let block = format!("{} KiB", BLOCK >> 10);
        arguments.extend(["--agents", "--json", "--block", &block].map(str::to_owned));
        arguments.extend(["--trust".to_owned(), self.trust.display().to_string()]);
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        arguments
    }

    pub(crate) fn begin(&self, source: &Path, options: &[&str]) -> Cast {
        Cast::start(outpour().args(self.arguments(source, options)))
    }

    /// The same as the child of another program.
    pub(crate) fn begin_by(&self, program: &mut Command, source: &Path, options: &[&str]) -> Cast {
        Cast::start(
            program
                .arg(outpour().get_program())
                .args(self.arguments(source, options)),
        )
    }
}

/// What a cast said in the end. A command that was killed says nothing.
pub(crate) struct Said {
    json: Value,
    ran: Ran,
}

impl Said {
    pub(crate) fn of(ran: Ran) -> Self {
        let json = serde_json::from_str(&ran.out).unwrap_or(Value::Null);
        Self { json, ran }
    }

    /// Asserts that the command ended by itself and that each error is one line that a terminal can bear.
    #[track_caller]
    pub(crate) fn assert_clear(&self) {
        let Ran { code, out, err } = &self.ran;
        assert!(matches!(code, Some(0 | 1)), "exit {code:?}: {err}");
        assert!(!self.json.is_null(), "no document: {out:?} {err}");
        let is_clear = |error: &str| {
            let clear = !error.chars().any(char::is_control) && !error.contains("panicked");
            clear && (8..400).contains(&error.len())
        };
        assert!(self.json["error"].as_str().is_none_or(is_clear), "{out}");
        for host in self.json["hosts"].as_array().into_iter().flatten() {
            let error = host["error"].as_str();
            assert_eq!(host["verified"] == true, error.is_none(), "{host}");
            assert!(error.is_none_or(is_clear), "{host}");
        }
        let foreign = err
            .lines()
            .find(|line| !line.starts_with("outpour: ") || line.len() > 600);
        assert!(foreign.is_none(), "{foreign:?} in {err}");
    }

    /// Asserts that every host was verified.
    #[track_caller]
    pub(crate) fn assert_success(&self) {
        assert_eq!(self.ran.code, Some(0), "{:?}", self.ran);
    }

    pub(crate) fn is_verified(&self, host: usize) -> bool {
        self.json["hosts"][host]["verified"] == true
    }

    #[track_caller]
    pub(crate) fn number(&self, host: usize, key: &str) -> u64 {
        let number = self.json["hosts"][host][key].as_u64();
        number.unwrap_or_else(|| panic!("no {key}: {:?}", self.ran))
    }

    /// Why hosts failed.
    pub(crate) fn errors(&self) -> String {
        let hosts = self.json["hosts"].as_array().into_iter().flatten();
        let all = hosts.chain([&self.json]);
        let errors = all.filter_map(|part| part["error"].as_str());
        errors.collect::<Vec<_>>().join("; ")
    }
}

/// What the journal and logs get at most while no block is written, in bytes.
const RECORDS: u64 = 64 << 10;

/// What a process has written into files, over time.
pub(crate) struct Meter {
    id: u32,
    samples: Vec<(Instant, u64)>,
}

impl Meter {
    pub(crate) fn new(id: u32) -> Self {
        let mut meter = Self {
            id,
            samples: Vec::new(),
        };
        meter.look();
        meter
    }

    /// Takes a sample; bytes since the first one.
    pub(crate) fn look(&mut self) -> u64 {
        // Files alone: what goes to the network is not written but sent.
        let io = fs::read_to_string(format!("/proc/{}/io", self.id)).unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        if let Some(written) = written.and_then(|bytes| bytes.parse().ok()) {
            self.samples.push((Instant::now(), written));
        }
        self.last()
    }

    /// What was written by the last sample.
    pub(crate) fn last(&self) -> u64 {
        self.since_first(self.samples.last())
    }

    /// When the last of the object was written. What holds writers up while a sync takes long does not hold the
    /// journal up, nor logs, which are written to after that.
    fn end(&self) -> Option<Instant> {
        let most = self.last().saturating_sub(RECORDS);
        let had = |sample: &&(Instant, u64)| self.since_first(Some(*sample)) >= most;
        self.samples.iter().find(had).map(|(at, _)| *at)
    }

    /// What had been written so long before the end.
    pub(crate) fn before(&self, time: Duration) -> u64 {
        let Some(end) = self.end() else { return 0 };
        let mut samples = self.samples.iter().rev();
        self.since_first(samples.find(|(at, _)| *at + time <= end))
    }

    /// How long before the end no more than this had been written.
    pub(crate) fn age_of(&self, written: u64) -> Duration {
        let had = |sample: &&(Instant, u64)| self.since_first(Some(*sample)) <= written;
        let sample = self.samples.iter().rev().find(had);
        match (self.end(), sample) {
            (Some(end), Some((at, _))) => end.saturating_duration_since(*at),
            _ => Duration::ZERO,
        }
    }

    fn since_first(&self, sample: Option<&(Instant, u64)>) -> u64 {
        match (self.samples.first(), sample) {
            (Some((_, first)), Some((_, written))) => written - first,
            _ => 0,
        }
    }
}
