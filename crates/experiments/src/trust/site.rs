//! An emulated network with casts in it, of which each can be watched, disturbed and ended.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::ExperimentError;
use crate::gossip::Mode;
use crate::gossip::cast::{Line, Progress, right_copies};
use crate::gossip::processor::{Process, find};
use crate::gossip::stage::Stage;
use crate::lab::{Lab, Running, complete_but, read, sound};

type Outcome<T> = Result<T, ExperimentError>;

/// How long one cast may take before it is ended.
const CAST_MAX: Duration = Duration::from_secs(120);
/// How long processes may take to end that were told to.
const END_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is cast to whom.
pub(super) struct Order<'a> {
    /// The file or directory.
    pub(super) source: &'a Path,
    /// The node of the command, which has the source.
    pub(super) from: &'a str,
    pub(super) hosts: Vec<String>,
    /// Options of `outpour cast`.
    pub(super) options: Vec<String>,
    /// Variables of the environment of the command and of the agents that it starts.
    pub(super) environment: Vec<(&'static str, String)>,
    /// A name for its files and copies, so that several casts can run at a time.
    pub(super) name: String,
}

/// A cast that runs.
pub(super) struct Casting {
    running: Running,
    progress: Progress,
    hosts: Vec<String>,
    begun: Instant,
}

/// See the module.
pub(super) struct Site<'a> {
    pub(super) lab: &'a Lab,
    stage: Stage<'a>,
    program: String,
}

impl<'a> Site<'a> {
    /// Builds a network.
    pub(super) fn open(lab: &'a Lab, network: &str) -> Outcome<Self> {
        let program = lab.program().file_name().unwrap_or_default();
        Ok(Self {
            stage: Stage::open(lab, network, Mode::Bulk)?,
            program: program.to_string_lossy().into_owned(),
            lab,
        })
    }

    /// A command that runs on a node.
    pub(super) fn command(&self, node: &str) -> Command {
        self.stage.command(node, self.lab.program())
    }

    /// Another program on a node.
    pub(super) fn run(&self, node: &str, program: &str) -> Command {
        self.stage.command(node, program)
    }

    /// The processes here that run this command of the program that is tried.
    pub(super) fn processes(&self, command: &str) -> Vec<Process> {
        find(self.stage.name(), &[self.program.as_str(), command])
    }

    /// That of a node.
    pub(super) fn process(&self, command: &str, node: &str) -> Option<Process> {
        let all = self.processes(command).into_iter();
        all.rev().find(|process| process.node == node)
    }

    /// Begins a cast.
    pub(super) fn begin(&self, order: &Order<'_>) -> Outcome<Casting> {
        let progress = self.lab.path(&format!("{}.jsonl", order.name));
        // What an earlier one left is not this one's.
        let _ = std::fs::remove_file(&progress);
        let mut command = self.command(order.from);
        command.arg("cast").arg(order.source);
        for host in &order.hosts {
            let copy = self.copy(&order.name, "{host}");
            command.arg(format!("{host}:{}", copy.display()));
        }
        command
            .args(&order.options)
            .args(["--json", "--quiet", "--progress"])
            .arg(&progress);
        for (name, value) in &order.environment {
            command.env(name, value);
        }
        Ok(Casting {
            running: self.lab.start(command, &order.name)?,
            progress: Progress::new(progress),
            hosts: order.hosts.clone(),
            begun: Instant::now(),
        })
    }

    /// Where a host's copy is.
    pub(super) fn copy(&self, name: &str, host: &str) -> PathBuf {
        self.lab.path("hosts").join(host).join(name).join("object")
    }

    /// Begins a cast and waits until all but one host have everything; returns in how many seconds they
    /// had, from when the transfer began, and ends it.
    pub(super) fn cast(&self, order: &Order<'_>, but: Option<&str>) -> Outcome<f64> {
        self.watch(order, but, |_| Ok(()))
    }

    /// The same, and calls `look` again and again meanwhile.
    pub(super) fn watch(
        &self,
        order: &Order<'_>,
        but: Option<&str>,
        look: impl FnMut(&mut Casting) -> Outcome<()>,
    ) -> Outcome<f64> {
        let mut casting = self.begin(order)?;
        let seconds = casting.others_have(but, look);
        let ended = self.end(order.from);
        drop(casting);
        let seconds = seconds?;
        ended?;
        let others = order.hosts.iter().filter(|host| Some(host.as_str()) != but);
        let copies: Vec<PathBuf> = others.map(|host| self.copy(&order.name, host)).collect();
        let right = right_copies(&copies, order.source);
        self.lab.clear("hosts")?;
        if right < copies.len() {
            let why = format!("{right} of {} have a right copy", copies.len());
            return Err(ExperimentError::Setup(why));
        }
        Ok(seconds)
    }

    /// Ends every cast that a node runs, and the agents that these have started.
    pub(super) fn end(&self, node: &str) -> Outcome<()> {
        let own = |command: &'static str| {
            let all = self.processes(command).into_iter();
            all.filter(move |process| command != "cast" || process.node == node)
        };
        let started = |process: &Process| process_args(process).iter().any(|arg| arg == "--stdio");
        for signal in [Signal::INT, Signal::KILL] {
            // What is gone meanwhile cannot be sent a signal.
            own("cast").for_each(|process| _ = process.signal(signal));
            let begun = Instant::now();
            while begun.elapsed() < END_MAX {
                if own("cast").next().is_none() && !own("agent").any(|it| started(&it)) {
                    return Ok(());
                }
                std::thread::sleep(LOOK_EVERY);
            }
            let left = own("agent").filter(started);
            left.for_each(|process| _ = process.kill());
        }
        Err(ExperimentError::Setup("a cast does not end".to_owned()))
    }

    /// Takes the network away; why it was not what it should be, if it was not.
    pub(super) fn close(self) -> Outcome<Option<String>> {
        let emulation = self.stage.close()?;
        match sound(emulation.as_deref(), 0.0) {
            Err(ExperimentError::Void(why)) => Ok(Some(why)),
            other => other.map(|()| None),
        }
    }
}

fn process_args(process: &Process) -> Vec<String> {
    let line = read(Path::new(&format!("/proc/{}/cmdline", process.pid)));
    let line = line.unwrap_or_default();
    line.split('\0').map(str::to_owned).collect()
}

impl Casting {
    /// Waits until all but one host have everything, and calls `look` again and again meanwhile; in how
    /// many seconds they had, from when the transfer began.
    pub(super) fn others_have(
        &mut self,
        but: Option<&str>,
        mut look: impl FnMut(&mut Self) -> Outcome<()>,
    ) -> Outcome<f64> {
        loop {
            let ended = self.running.ended()?.is_some();
            self.progress.look()?;
            if let Some(seconds) = self.when_others_had(but) {
                return Ok(seconds);
            }
            if ended {
                let said = self.running.said()?;
                complete_but(&said, but.unwrap_or_default())?;
                let why = "the cast says that all is there, and its progress does not";
                return Err(ExperimentError::Setup(why.to_owned()));
            }
            if self.begun.elapsed() > CAST_MAX {
                let seconds = CAST_MAX.as_secs();
                let why = format!("the others did not have it within {seconds} s");
                return Err(ExperimentError::Setup(why));
            }
            look(self)?;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The hosts that have everything by now.
    pub(super) fn verified(&mut self) -> Outcome<Vec<&str>> {
        self.progress.look()?;
        let line = self.progress.now();
        let states = line.map(|line| line.hosts.as_slice()).unwrap_or_default();
        let hosts = self.hosts.iter().zip(states);
        let have = hosts.filter(|(_, host)| host.state == VERIFIED);
        Ok(have.map(|(name, _)| name.as_str()).collect())
    }

    /// How it ended, if it has.
    pub(super) fn has_ended(&mut self) -> Outcome<bool> {
        Ok(self.running.ended()?.is_some())
    }

    fn when_others_had(&self, but: Option<&str>) -> Option<f64> {
        let had = |line: &&Line| {
            let hosts = self.hosts.iter().zip(&line.hosts);
            let mut others = hosts.filter(|(name, _)| Some(name.as_str()) != but);
            line.hosts.len() == self.hosts.len() && others.all(|(_, host)| host.state == VERIFIED)
        };
        let line = self.progress.lines().iter().find(had)?;
        Some(line.elapsed_s - self.progress.began_s().unwrap_or_default())
    }
}

/// The state of a host that has everything.
const VERIFIED: &str = "verified";
