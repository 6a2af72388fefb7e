//! One cast by real agents in an emulated network, and everything that is seen of it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outpour_core::Bytes;
use serde::Deserialize;

use super::processor::{Sampler, find};
use super::report::Trial;
use super::stage::{Mode, Stage};
use super::{node, receivers};
use crate::ExperimentError;
use crate::lab::{CastReport, HostReport, Lab, complete, sound};

/// How long one cast may take before it is ended.
pub(crate) const CAST_MAX: Duration = Duration::from_secs(600);
/// Where the copies are, in the lab.
pub(crate) const COPIES: &str = "copies";
/// By this variable an agent in an emulation learns that it has to send wrong packets.
const WRONG_PACKETS: &str = "OUTPOUR_WRONG_PACKETS";
/// How often it is looked whether the agents have left.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How much of what a cast writes about its progress is read at a time.
const LINES_BYTES_MAX: u64 = 1 << 20;

/// What to cast, and how.
pub(crate) struct Cast<'a> {
    /// The network, as `outpour emulate --network` takes it.
    pub(crate) network: &'a str,
    pub(crate) mode: Mode,
    /// How many nodes there are, the source included.
    pub(crate) nodes: usize,
    /// The file or directory.
    pub(crate) source: &'a Path,
    pub(crate) size: Bytes,
    /// Options of `outpour cast`.
    pub(crate) options: Vec<String>,
    pub(crate) seed: u64,
    /// Whether what each receiver got over time is kept.
    pub(crate) traced: bool,
    /// Which node sends wrong packets, and how large a share of its packets they are.
    pub(crate) liar: Option<(usize, f64)>,
}

/// A line that `outpour cast --progress` writes.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Line {
    pub(crate) elapsed_s: f64,
    phase: String,
    pub(crate) hosts: Vec<HostLine>,
    #[serde(default)]
    pub(crate) notices: Vec<String>,
}

/// A host in such a line.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct HostLine {
    pub(crate) have_bytes: u64,
    pub(crate) received_bytes: u64,
    #[serde(default)]
    pub(crate) state: String,
}

/// What a cast is doing, as it writes it down.
pub(crate) struct Progress {
    path: PathBuf,
    read: u64,
    /// A line of which the end is missing.
    rest: Vec<u8>,
    /// Since the blocks move.
    lines: Vec<Line>,
    /// When the first of them was seen.
    began: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            rest: Vec::new(),
            lines: Vec::new(),
            began: None,
        }
    }

    /// Reads what is new.
    pub(crate) fn look(&mut self) -> Result<(), ExperimentError> {
        let Ok(mut file) = File::open(&self.path) else {
            // It has not begun.
            return Ok(());
        };
        let failed = |e: std::io::Error| ExperimentError::file(&self.path, &e);
        file.seek(SeekFrom::Start(self.read)).map_err(failed)?;
        let before = self.rest.len();
        let mut fresh = file.take(LINES_BYTES_MAX);
        fresh.read_to_end(&mut self.rest).map_err(failed)?;
        self.read += (self.rest.len() - before) as u64;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let rest = self.rest.split_off(end + 1);
        for line in self.rest.split(|byte| *byte == b'\n') {
            let line = serde_json::from_slice::<Line>(line);
            self.lines.extend(line.ok().filter(Line::is_moving));
        }
        self.rest = rest;
        if self.began.is_none() && !self.lines.is_empty() {
            self.began = Some(Instant::now());
        }
        Ok(())
    }

    /// The last line since the blocks move.
    pub(crate) fn now(&self) -> Option<&Line> {
        self.lines.last()
    }

    /// Every line since the blocks move.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Seconds since the command began at which the blocks began to move.
    pub(crate) fn began_s(&self) -> Option<f64> {
        self.lines.first().map(|line| line.elapsed_s)
    }
}

impl Line {
    fn is_moving(&self) -> bool {
        matches!(self.phase.as_str(), "moving" | "done")
    }

    /// How much a receiver has received, on average.
    pub(crate) fn mean_received(&self) -> f64 {
        let received = self.hosts.iter().map(|host| host.received_bytes as f64);
        received.sum::<f64>() / self.hosts.len().max(1) as f64
    }
}

impl Cast<'_> {
    pub(super) fn begin(
        &self,
        lab: &Lab,
        stage: &Stage<'_>,
    ) -> Result<(crate::lab::Running, Progress), ExperimentError> {
        let progress = lab.path("progress.jsonl");
        // What an earlier one left, one that was void perhaps, is not this one's.
        let _ = fs::remove_file(&progress);
        lab.clear(COPIES)?;
        let copies = lab.path(COPIES);
        let mut command = stage.command(&node(0), lab.program());
        command.arg("cast").arg(self.source);
        for name in receivers(self.nodes) {
            command.arg(format!("{name}:{}/{{host}}/object", copies.display()));
        }
        command
            .args(&self.options)
            .args(["--seed", &self.seed.to_string(), "--json", "--quiet"])
            .arg("--progress")
            .arg(&progress);
        if let Some((liar, share)) = self.liar {
            command.env(WRONG_PACKETS, format!("{}={share}", node(liar)));
        }
        Ok((lab.start(command, "cast")?, Progress::new(progress)))
    }

    /// Casts, and describes what was seen in the trial.
    pub(crate) fn run(&self, lab: &Lab, mut trial: Trial) -> Result<Trial, ExperimentError> {
        let stage = Stage::open(lab, self.network, self.mode)?;
        let (mut cast, mut progress) = self.begin(lab, &stage)?;
        let program = file_name(lab.program());
        let commands: [&[&str]; 2] = [&[&program, "agent"], &[&program, "cast"]];
        let mut sampler = Sampler::new(stage.name(), &commands);
        let source = node(0);
        cast.wait(CAST_MAX, |now| {
            progress.look()?;
            sampler.look(now, &source);
            Ok(())
        })?;
        progress.look()?;
        let said = cast.said();
        let emulation = stage.close()?;
        let report = complete(&said?)?;
        let finish_s = report.transfer_s.unwrap_or_default();
        sound(emulation.as_deref(), finish_s)?;
        trial.finish_s = Some(finish_s);
        trial.set("processor_s", sampler.total_s());
        let offset = report.finish_s.unwrap_or(finish_s) - finish_s;
        for (name, curve) in sampler.curves() {
            let curve = curve.into_iter().map(|(at, share)| (at - offset, share));
            let curve = curve.filter(|(at, _)| *at >= 0.0);
            trial.curves.insert(name.to_owned(), curve.collect());
        }
        self.describe(&mut trial, &report, offset);
        trace(&mut trial, &progress, self.size, self.traced);
        lab.clear(COPIES)?;
        Ok(trial)
    }

    fn describe(&self, trial: &mut Trial, report: &CastReport, offset: f64) {
        let finished = |host: &HostReport| host.finish_s.map(|at| at - offset);
        for host in &report.hosts {
            if let Some(at) = finished(host) {
                trial.set(&format!("finish_{}_s", host.host), at);
            }
        }
        trial.notes.push(report.why.clone());
        let Some(coding) = &report.coding else {
            return;
        };
        let receivers = report.hosts.len() as f64;
        let payload = self.size.as_f64() * receivers;
        let made = coding.made.max(1) as f64;
        trial.set("batch_blocks", f64::from(coding.batch_blocks));
        trial.set("encode_s_per_packet", coding.encode_s / made);
        trial.set("decode_s_per_node", coding.decode_s / receivers);
        trial.set("coding_s", coding.encode_s + coding.decode_s);
        trial.set("overhead_share", coding.overhead_bytes as f64 / payload);
        let share = coding.dependent as f64 / coding.packets.max(1) as f64;
        trial.set("dependent_share", share);
    }

    /// Casts, kills two receivers at half time and the source as soon as a node's rank is full,
    /// and waits for the others.
    pub(crate) fn survive(
        &self,
        lab: &Lab,
        victims: [usize; 2],
        mut trial: Trial,
    ) -> Result<Trial, ExperimentError> {
        let stage = Stage::open(lab, self.network, self.mode)?;
        let (mut cast, mut progress) = self.begin(lab, &stage)?;
        let lost = victims.map(node);
        let names = receivers(self.nodes).filter(|name| !lost.contains(name));
        let copies = names.map(|name| lab.path(COPIES).join(name).join("object"));
        let mut survivors = Survivors::new(copies.collect());
        let mut strikes = Strikes::default();
        cast.wait(CAST_MAX, |_| {
            progress.look()?;
            survivors.look();
            match progress.now() {
                Some(line) => self.strike(&mut strikes, line, victims, lab, &stage),
                None => Ok(()),
            }
        })?;
        let (Some(halved), Some(orphaned)) = (strikes.receivers, strikes.source) else {
            // The first node that was done was seen too late: that tells nothing.
            let why = "void, the cast was over before a node was killed";
            return Err(ExperimentError::Void(why.to_owned()));
        };
        // The agents leave when they have it all, or give up.
        let program = file_name(lab.program());
        while !find(stage.name(), &[&program, "agent"]).is_empty() && orphaned.elapsed() < CAST_MAX
        {
            survivors.look();
            std::thread::sleep(LOOK_EVERY);
        }
        survivors.look();
        let emulation = stage.close()?;
        let right = right_copies(&survivors.copies, self.source);
        lab.clear(COPIES)?;
        let began = progress.began.unwrap_or(halved);
        let since = |at: Instant| at.saturating_duration_since(began).as_secs_f64();
        let finish_s = survivors.last.map(since).unwrap_or_default();
        sound(emulation.as_deref(), finish_s)?;
        let all = survivors.copies.len();
        trial.set("killed_receivers_s", since(halved));
        trial.set("killed_source_s", since(orphaned));
        trial.set(
            "lacking_when_source_died",
            lacking(&progress, self.size) as f64,
        );
        trial.set("survivors", all as f64);
        trial.set("right_copies", right as f64);
        if right < all {
            let why = format!("{right} of {all} survivors have a right copy");
            return Ok(trial.failed(&ExperimentError::Setup(why)));
        }
        trial.finish_s = Some(finish_s);
        Ok(trial)
    }

    /// Kills whose time has come.
    fn strike(
        &self,
        strikes: &mut Strikes,
        line: &Line,
        victims: [usize; 2],
        lab: &Lab,
        stage: &Stage<'_>,
    ) -> Result<(), ExperimentError> {
        let program = file_name(lab.program());
        if strikes.receivers.is_none() {
            if line.mean_received() >= self.size.as_f64() / 2.0 {
                let lost = victims.map(node);
                let agents = find(stage.name(), &[&program, "agent"]).into_iter();
                for agent in agents.filter(|agent| lost.contains(&agent.node)) {
                    agent.kill()?;
                }
                strikes.receivers = Some(Instant::now());
            }
            return Ok(());
        }
        let mut living = (1..).zip(&line.hosts);
        let is_full =
            living.any(|(index, host)| !victims.contains(&index) && host.have_bytes >= self.size.0);
        if strikes.source.is_none() && is_full {
            for source in find(stage.name(), &[&program, "cast"]) {
                source.kill()?;
            }
            strikes.source = Some(Instant::now());
        }
        Ok(())
    }
}

/// When a node was killed.
#[derive(Default)]
struct Strikes {
    receivers: Option<Instant>,
    source: Option<Instant>,
}

/// Where the copies of those nodes will be that are not killed.
struct Survivors {
    copies: Vec<PathBuf>,
    arrived: usize,
    /// When the last of those that are there was there.
    last: Option<Instant>,
}

impl Survivors {
    const fn new(copies: Vec<PathBuf>) -> Self {
        Self {
            copies,
            arrived: 0,
            last: None,
        }
    }

    /// A file has its name only when all of it is there.
    fn look(&mut self) {
        let arrived = self.copies.iter().filter(|copy| copy.exists()).count();
        if arrived > self.arrived {
            self.arrived = arrived;
            self.last = Some(Instant::now());
        }
    }
}

/// How many copies are there and what they should be, byte by byte.
pub(crate) fn right_copies(copies: &[PathBuf], source: &Path) -> usize {
    let Ok(source) = fs::read(source) else {
        return 0;
    };
    let copies = copies.iter().filter_map(|copy| fs::read(copy).ok());
    copies.filter(|copy| *copy == source).count()
}

/// How many receivers lacked something when the last line was written.
fn lacking(progress: &Progress, size: Bytes) -> usize {
    let hosts = progress.now().map(|line| line.hosts.as_slice());
    let hosts = hosts.unwrap_or_default().iter();
    hosts.filter(|host| host.have_bytes < size.0).count()
}

fn file_name(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// How it went over time: what each receiver got, and how many had so much.
fn trace(trial: &mut Trial, progress: &Progress, size: Bytes, each: bool) {
    let began = progress.began_s().unwrap_or_default();
    for line in &progress.lines {
        let at = ((line.elapsed_s - began) * 1e3).round() / 1e3;
        for (host, seen) in line.hosts.iter().enumerate().filter(|_| each) {
            let name = format!("received by {}", node(host + 1));
            let curve = trial.curves.entry(name).or_default();
            let bytes = seen.received_bytes as f64;
            if curve.last().is_none_or(|(_, last)| *last != bytes) {
                curve.push((at, bytes));
            }
        }
        let mut count = |name: &str, least: u64| {
            let have = line.hosts.iter().filter(|host| host.have_bytes >= least);
            let count = have.count() as f64;
            let curve = trial.curves.entry(name.to_owned()).or_default();
            if curve.last().is_none_or(|(_, last)| *last != count) {
                curve.push((at, count));
            }
        };
        count("finished", size.0);
        count("finished half", size.0.div_ceil(2));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn progress_is_read_as_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        let mut progress = Progress::new(path.clone());
        progress.look().unwrap();
        let hosts =
            r#"[{"have_bytes": 0, "received_bytes": 4}, {"have_bytes": 4, "received_bytes": 6}]"#;
        let line = |at: f64, phase: &str| {
            format!("{{\"elapsed_s\": {at}, \"phase\": \"{phase}\", \"hosts\": {hosts}}}\n")
        };
        let text = [line(1.0, "hashing"), line(2.0, "moving"), line(3.0, "done")].concat();
        let (first, second) = text.split_at(text.len() - 5);
        fs::write(&path, first).unwrap();
        progress.look().unwrap();
        assert_eq!((progress.lines.len(), progress.began_s()), (1, Some(2.0)));
        fs::write(&path, [first, second].concat()).unwrap();
        progress.look().unwrap();
        assert_eq!(progress.now().unwrap().mean_received(), 5.0);
        let mut trial = Trial::new("a", None);
        trace(&mut trial, &progress, Bytes(4), true);
        assert_eq!(trial.curves["finished"], [(0.0, 1.0)]);
        assert_eq!(trial.curves["received by n2"], [(0.0, 6.0)]);
    }
}
