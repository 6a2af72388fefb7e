//! What processes on the nodes of an emulation take of the processor, over time.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::stage::{EMULATION, NODE};
use crate::ExperimentError;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);
/// In what /proc counts processor time: a hundredth of a second on every Linux of today.
const TICK_S: f64 = 0.01;
/// An environment longer than this is of no process that we started.
const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;

/// A process of a program on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) node: String,
    pub(crate) pid: i32,
}

impl Process {
    /// Ends it at once.
    pub(crate) fn kill(&self) -> Result<(), ExperimentError> {
        self.signal(Signal::KILL)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), ExperimentError> {
        let pid = Pid::from_raw(self.pid);
        match pid.map(|pid| kill_process(pid, signal)) {
            Some(Ok(())) => Ok(()),
            _ => Err(ExperimentError::Setup(format!(
                "the process on {} cannot be sent a signal",
                self.node
            ))),
        }
    }

    /// The processor time it took, in seconds.
    fn time_s(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        ticks(&stat).map(|ticks| ticks as f64 * TICK_S)
    }
}

/// User and system time of a process, as /proc/PID/stat has it.
fn ticks(stat: &str) -> Option<u64> {
    // The name in brackets may hold anything.
    let fields = stat.rsplit_once(')')?.1;
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(user + system)
}

/// The processes in an emulation whose command line begins like this: the program by its file name,
/// then words.
pub(crate) fn find(emulation: &str, command: &[impl AsRef<str>]) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let node = |pid: i32| {
        let read = |what| fs::read(format!("/proc/{pid}/{what}")).ok();
        let line = read("cmdline")?;
        let mut words = line.split(|byte| *byte == 0);
        let first = words.next()?.rsplit(|byte| *byte == b'/').next()?;
        let begins = std::iter::once(first).chain(words);
        let (mut same, mut count) = (true, 0);
        for (word, expected) in begins.zip(command) {
            same &= word == expected.as_ref().as_bytes();
            count += 1;
        }
        if !same || count < command.len() {
            return None;
        }
        let environment = read("environ")?;
        if environment.len() > ENVIRONMENT_BYTES_MAX {
            return None;
        }
        let variable = |name: &str| {
            let mut all = environment.split(|byte| *byte == 0);
            let value = all.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            value.and_then(|value| std::str::from_utf8(value).ok())
        };
        (variable(EMULATION)? == emulation).then_some(())?;
        Some(variable(NODE)?.to_owned())
    };
    pids.filter_map(|pid| node(pid).map(|node| Process { node, pid }))
        .collect()
}

/// Samples of the processes of one command.
pub(crate) struct Sampler {
    emulation: String,
    commands: Vec<Vec<String>>,
    processes: Vec<Process>,
    /// By process: when it was looked at last, and what it had taken.
    last: BTreeMap<i32, (f64, f64)>,
    looked: Option<Duration>,
    /// The share of a core that the busiest of the others took, and that of the first node.
    busiest: Vec<(f64, f64)>,
    first: Vec<(f64, f64)>,
    total_s: BTreeMap<i32, f64>,
}

impl Sampler {
    /// Looks at the processes of these commands.
    pub(crate) fn new(emulation: &str, commands: &[&[&str]]) -> Self {
        Self {
            emulation: emulation.to_owned(),
            commands: commands
                .iter()
                .map(|it| it.iter().map(ToString::to_string).collect())
                .collect(),
            processes: Vec::new(),
            last: BTreeMap::new(),
            looked: None,
            busiest: Vec::new(),
            first: Vec::new(),
            total_s: BTreeMap::new(),
        }
    }

    /// Looks, if it is time to.
    pub(crate) fn look(&mut self, now: Duration, source: &str) {
        if self.looked.is_some_and(|looked| now < looked + EVERY) {
            return;
        }
        self.looked = Some(now);
        // They are searched for as long as there are new ones.
        let all = self.commands.iter();
        let all = all.flat_map(|command| find(&self.emulation, command));
        self.processes = all.collect();
        let at = now.as_secs_f64();
        let (mut busiest, mut first) = (None, None);
        for process in &self.processes {
            let Some(time_s) = process.time_s() else {
                continue;
            };
            self.total_s.insert(process.pid, time_s);
            let Some((before, had)) = self.last.insert(process.pid, (at, time_s)) else {
                continue;
            };
            let share = (time_s - had) / (at - before);
            let which = if process.node == source {
                &mut first
            } else {
                &mut busiest
            };
            *which = Some(which.unwrap_or(0.0_f64).max(share));
        }
        self.busiest.extend(busiest.map(|share| (at, share)));
        self.first.extend(first.map(|share| (at, share)));
    }

    /// The share of a core over time: of the busiest node but the source, and of the source.
    pub(crate) fn curves(&self) -> [(&'static str, Vec<(f64, f64)>); 2] {
        [
            ("busiest receiver", self.busiest.clone()),
            ("source", self.first.clone()),
        ]
    }

    /// Processor time of all, in seconds, as far as it was seen.
    pub(crate) fn total_s(&self) -> f64 {
        self.total_s.values().fold(0.0, |sum, time_s| sum + time_s)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn times_are_read_whatever_a_process_is_called() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 12 30 0 0 20 0 1 0 5 1 1";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7"), None);
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(ticks(&own).is_some());
    }
}
