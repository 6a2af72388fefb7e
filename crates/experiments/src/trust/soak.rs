//! Long days: agents that run as services take part in casts that are disturbed one after the other, and
//! what they have in use is looked at every minute.
//!
//! Each cast has a fault drawn for it: its command or an agent is killed, an agent stands still, its link is
//! cut, its disk is full, or nothing. Then the same is cast without a fault, which has to complete, and has
//! to leave nothing behind; the copies are compared and removed. Four agents are never killed: what they
//! have in use may not grow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use outpour_core::Bytes;
use rustix::process::Signal;

use super::report::Row;
use super::services::{self, Services, root};
use super::site::{Order, Site};
use super::slope::slope;
use super::usage::{descriptors, hidden, memory};
use super::{Context, Found};
use crate::ExperimentError;
use crate::dice::Dice;
use crate::draw::{Line, Plot, Ratios, Shape, Style};
use crate::gossip::need;
use crate::lab::Lab;

type Outcome<T> = Result<T, ExperimentError>;

const NETWORK: &str = "\
[[cluster]]
name = \"a\"
nodes = 7
node_out = \"100 Mbit/s\"
node_in = \"100 Mbit/s\"
local_delay = \"1 ms\"
";
const COMMAND: &str = "a0";
/// The network device of every node.
const DEVICE: &str = "out0";
/// Agents that run from the beginning to the end, and those that are killed and have disks of their own.
const LASTING: [&str; 4] = ["a1", "a2", "a3", "a4"];
const KILLED: [&str; 2] = ["a5", "a6"];
/// Room on the disk of an agent that is killed, and what fills it.
const DISK: &str = "size=48m";
const FILLING: Bytes = Bytes(44 << 20);
const SIZES: [Bytes; 3] = [Bytes(200_000), Bytes(3_000_000), Bytes(12_000_000)];
const PROTOCOLS: [&str; 5] = ["auto", "chain", "swarm", "coded-gossip", "push"];
/// How long a fault lasts that ends.
const FAULT: Duration = Duration::from_secs(2);
/// How long a cast with a fault may take.
const CAST_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Which part of all samples is not looked at: buffers fill.
const WARM: usize = 10;

/// What may come of it.
const SLOPE_MAX: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    KillAgent,
    KillCommand,
    Interrupt,
    Stop,
    CutOff,
    FillDisk,
}

const FAULTS: [Fault; 7] = [
    Fault::Nothing,
    Fault::KillAgent,
    Fault::KillCommand,
    Fault::Interrupt,
    Fault::Stop,
    Fault::CutOff,
    Fault::FillDisk,
];

/// What the lasting agents have in use at one time, all in all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    hours: f64,
    /// Of each.
    memory: [f64; LASTING.len()],
    descriptors: usize,
    files: usize,
}

pub(super) fn run(context: &Context<'_>) -> Outcome<Found> {
    let options = context.options;
    need("tc", "iproute2")?;
    let lab = Lab::new(&options.program, "outpour-trust-")?;
    let mut sources = Vec::new();
    for (index, size) in SIZES.iter().enumerate() {
        sources.push(lab.object(&format!("object-{index}"), *size, options.seed)?);
    }
    let site = Site::open(&lab, NETWORK)?;
    let disks = Disks::mount(&site)?;
    let nodes: Vec<String> = nodes().map(str::to_owned).collect();
    let mut day = Day {
        context,
        services: Services::start(&site, &nodes)?,
        site: &site,
        sources,
        dice: Dice::new(options.seed),
        begun: Instant::now(),
        samples: Vec::new(),
        faults: BTreeMap::new(),
        failures: Vec::new(),
    };
    let passed = day.pass();
    let found = day.found();
    drop(day);
    let void = site.close();
    drop(disks);
    let mut found = passed.map(|()| found)?;
    if let Some(void) = void? {
        found.notes.push(void);
    }
    Ok(found)
}

fn nodes() -> impl Iterator<Item = &'static str> {
    LASTING.into_iter().chain(KILLED)
}

/// Small file systems in memory for the agents that are killed; taken away when dropped.
struct Disks(Vec<PathBuf>);

impl Disks {
    fn mount(site: &Site<'_>) -> Outcome<Self> {
        let mut disks = Self(Vec::new());
        for node in KILLED {
            let at = root(site, node);
            std::fs::create_dir_all(&at).map_err(|e| ExperimentError::file(&at, &e))?;
            let mut command = Command::new("mount");
            command.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(&at);
            run_quietly(command)?;
            disks.0.push(at);
        }
        Ok(disks)
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for at in &self.0 {
            let mut command = Command::new("umount");
            // An agent may have it open for a moment still.
            command.arg("--lazy").arg(at);
            let _ = run_quietly(command);
        }
    }
}

fn run_quietly(mut command: Command) -> Outcome<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command.output();
    let ran = ran.map_err(|e| ExperimentError::file(Path::new(&name), &e))?;
    if ran.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ran.stderr);
    let why = why.lines().last().unwrap_or("it says nothing");
    Err(ExperimentError::Setup(format!("{name}: {why}")))
}

/// One long day.
struct Day<'a> {
    context: &'a Context<'a>,
    site: &'a Site<'a>,
    services: Services,
    sources: Vec<PathBuf>,
    dice: Dice,
    begun: Instant,
    samples: Vec<Sample>,
    /// How often each was there.
    faults: BTreeMap<Fault, u64>,
    /// Casts without a fault that did not complete, or left something.
    failures: Vec<String>,
}

impl Day<'_> {
    fn pass(&mut self) -> Outcome<()> {
        let options = self.context.options;
        let every = Duration::from_secs(if options.short { 2 } else { 60 });
        let mut next = every;
        while self.begun.elapsed() < options.soak {
            self.turn()?;
            if self.begun.elapsed() >= next {
                next = self.begun.elapsed() + every;
                self.sample();
            }
        }
        self.sample();
        Ok(())
    }

    /// A cast with a fault, and the same without.
    fn turn(&mut self) -> Outcome<()> {
        let fault = FAULTS[self.below(FAULTS.len())];
        let source = self.below(SIZES.len());
        let source = self.sources[source].clone();
        let protocol = PROTOCOLS[self.below(PROTOCOLS.len())];
        *self.faults.entry(fault).or_default() += 1;
        let after = Duration::from_millis(100 + self.dice.next() % 1500);
        self.disturbed(&source, protocol, fault, after)?;
        let order = self.order(&source, protocol);
        let mut casting = self.site.begin(&order)?;
        let had = casting.others_have(None, |_| Ok(()));
        let begun = Instant::now();
        while had.is_ok() && !casting.has_ended()? && begun.elapsed() < CAST_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        self.site.end(COMMAND)?;
        if let Err(error) = had {
            self.fail(format!("{protocol} after {fault:?}: {error}"));
        }
        self.look_at_copies(&source, protocol, fault)
    }

    /// Casts, lets the fault strike after a while, and waits for the end.
    fn disturbed(
        &mut self,
        source: &Path,
        protocol: &str,
        fault: Fault,
        after: Duration,
    ) -> Outcome<()> {
        let order = self.order(source, protocol);
        let mut casting = self.site.begin(&order)?;
        let begun = Instant::now();
        let mut struck = false;
        while !casting.has_ended()? && begun.elapsed() < CAST_MAX {
            if !struck && begun.elapsed() >= after {
                struck = true;
                self.strike(fault)?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.site.end(COMMAND)
    }

    fn strike(&mut self, fault: Fault) -> Outcome<()> {
        let killed = KILLED[self.below(KILLED.len())];
        let nodes: Vec<&str> = nodes().collect();
        let node = nodes[self.below(nodes.len())];
        let command = || self.site.process("cast", COMMAND);
        let signal = |signal| {
            if let Some(command) = command() {
                // The cast may be over.
                let _ = command.signal(signal);
            }
        };
        match fault {
            Fault::Nothing => {}
            Fault::KillAgent => self.services.crash(self.site, killed)?,
            Fault::KillCommand => signal(Signal::KILL),
            Fault::Interrupt => signal(Signal::INT),
            Fault::Stop => {
                if let Some(agent) = self.site.process("agent", node) {
                    agent.signal(Signal::STOP)?;
                    std::thread::sleep(FAULT);
                    agent.signal(Signal::CONT)?;
                }
            }
            Fault::CutOff => {
                self.cut(node, true)?;
                std::thread::sleep(FAULT);
                self.cut(node, false)?;
            }
            Fault::FillDisk => {
                let filling = root(self.site, killed).join("filling");
                // As much as there is room for.
                let _ = std::fs::write(&filling, vec![1; FILLING.0 as usize]);
                std::thread::sleep(FAULT);
                let _ = std::fs::remove_file(&filling);
            }
        }
        Ok(())
    }

    /// Lets nothing leave a node, or everything again.
    fn cut(&self, node: &str, off: bool) -> Outcome<()> {
        let mut command = self.site.run(node, "tc");
        match off {
            true => command.args(["qdisc", "replace", "dev", DEVICE, "root", "blackhole"]),
            false => command.args(["qdisc", "del", "dev", DEVICE, "root"]),
        };
        run_quietly(command)
    }

    fn order<'b>(&self, source: &'b Path, protocol: &str) -> Order<'b> {
        let hosts = nodes().map(str::to_owned).collect();
        let options = ["--protocol", protocol, "--patience", "8 s"];
        services::order(self.site, "day", (COMMAND, source), hosts, &options)
    }

    /// Compares the copies, looks for what is there besides, and removes all of it.
    fn look_at_copies(&mut self, source: &Path, protocol: &str, fault: Fault) -> Outcome<()> {
        let source = std::fs::read(source).unwrap_or_default();
        for node in nodes() {
            let copy = self.site.copy("day", node);
            if std::fs::read(&copy).is_ok_and(|copy| copy != source) {
                self.fail(format!("{protocol} after {fault:?}: wrong bytes on {node}"));
            }
            let left = hidden(&root(self.site, node));
            if left > 0 {
                self.fail(format!(
                    "{protocol} after {fault:?}: {left} files left on {node}"
                ));
            }
            let day = root(self.site, node).join("day");
            let _ = std::fs::remove_dir_all(day);
        }
        Ok(())
    }

    fn fail(&mut self, what: String) {
        (self.context.progress)(format_args!("  {what}"));
        self.failures.push(what);
    }

    fn sample(&mut self) {
        let pids = LASTING.map(|node| self.site.process("agent", node).map_or(0, |it| it.pid));
        let sample = Sample {
            hours: self.begun.elapsed().as_secs_f64() / 3600.0,
            memory: pids.map(|pid| memory(pid).unwrap_or_default().now),
            descriptors: pids.iter().filter_map(|pid| descriptors(*pid)).sum(),
            files: LASTING
                .iter()
                .map(|node| hidden(&root(self.site, node)))
                .sum(),
        };
        let Sample {
            memory,
            descriptors,
            files,
            ..
        } = sample;
        let turns: u64 = self.faults.values().sum();
        (self.context.progress)(format_args!(
            "  {:.0} min, {turns} turns: {memory:.1?} MiB, {descriptors} descriptors, {files} files",
            sample.hours * 60.0
        ));
        self.samples.push(sample);
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.dice.next() % bound as u64) as usize
    }

    fn found(&self) -> Found {
        let mut found = Found::default();
        let warm = self
            .samples
            .get(self.samples.len() / WARM..)
            .unwrap_or_default();
        let curve = |of: &dyn Fn(&Sample) -> f64| -> Vec<(f64, f64)> {
            self.samples.iter().map(|it| (it.hours, of(it))).collect()
        };
        let grows = |of: &dyn Fn(&Sample) -> f64| {
            let points: Vec<_> = warm.iter().map(|it| (it.hours, of(it))).collect();
            slope(&points)
        };
        for (index, node) in LASTING.iter().enumerate() {
            let of = |it: &Sample| it.memory[index];
            let what = format!("memory of the agent on {node}");
            found.rows.push(match grows(&of) {
                Some(slope) => Row::at_most(what, "MiB/h", slope, SLOPE_MAX),
                None => Row::failed(what, &"too few samples"),
            });
            found
                .curves
                .push((format!("memory_mib_{node}"), curve(&of)));
        }
        let least = |samples: &[Sample]| samples.iter().map(|it| it.descriptors).min();
        let (first, last) = warm.split_at(warm.len() / 2);
        found.rows.push(match (least(first), least(last)) {
            (Some(first), Some(last)) => Row::more(
                "descriptors of these four, least of each half",
                "",
                (first as f64, last as f64),
                0.0,
            ),
            _ => Row::failed("descriptors", &"too few samples"),
        });
        let left = self.samples.last().map_or(0, |it| it.files);
        found
            .rows
            .push(Row::at_most("files left over", "", left as f64, 0.0));
        let failures = self.failures.len();
        found.rows.push(Row::at_most(
            "casts without a fault that went wrong",
            "",
            failures as f64,
            0.0,
        ));
        found
            .curves
            .push(("descriptors".to_owned(), curve(&|it| it.descriptors as f64)));
        found
            .curves
            .push(("files".to_owned(), curve(&|it| it.files as f64)));
        let turns: u64 = self.faults.values().sum();
        found.notes.push(format!(
            "{turns} casts with a fault, {turns} without: {:?}",
            self.faults
        ));
        found.notes.extend(self.failures.iter().take(20).cloned());
        found.plots.push(self.plot());
        found
    }

    fn plot(&self) -> Plot {
        let line = |(index, node): (usize, &&str)| Line {
            label: format!("agent on {node}"),
            points: self
                .samples
                .iter()
                .map(|it| (it.hours, it.memory[index]))
                .collect(),
            style: Style::Plain,
        };
        Plot {
            name: "trust-soak".to_owned(),
            title: "Resident memory of agents through casts and faults".to_owned(),
            x: "hours",
            y: "MiB",
            shape: Shape::Lines {
                lines: LASTING.iter().enumerate().map(line).collect(),
                ratios: Ratios::Neither,
            },
        }
    }
}
