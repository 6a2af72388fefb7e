//! Strangers that prove nothing: what they cost agents and a command in memory and time, and whether
//! those get in that have a right to, from afar.
//!
//! Four agents run as services on one site, a command casts to them. Four strangers call the port of
//! operators and the data port of every agent, and the data port of the command as soon as it has one: two
//! have 10,000 connections open, as far as they are let, and two open 2,000 in each second. Casts with and
//! without them take turns. Then twenty agents 50 ms away join a cast whose command and members are flooded,
//! and twenty operators call from there.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use outpour_core::Bytes;

use super::report::Row;
use super::services::{self, Services};
use super::site::{Order, Site};
use super::usage::{Memory, forget_peak, listening, memory};
use super::{Context, Found};
use crate::ExperimentError;
use crate::lab::{Lab, Running, median};

type Outcome<T> = Result<T, ExperimentError>;

const NETWORK: &str = "\
[[cluster]]
name = \"a\"
nodes = 5
node_out = \"20 Mbit/s\"
node_in = \"20 Mbit/s\"
[[cluster]]
name = \"w\"
nodes = 20
node_out = \"20 Mbit/s\"
node_in = \"20 Mbit/s\"
local_delay = \"25 ms\"
[[cluster]]
name = \"x\"
nodes = 4
[[link]]
from = \"*\"
to = \"*\"
delay = \"1 ms\"
[[link]]
from = \"w\"
to = \"*\"
delay = \"25 ms\"
both = true
";

/// The node of the command, and those of agents on its site.
const COMMAND: &str = "a0";
const AGENTS: [&str; 4] = ["a1", "a2", "a3", "a4"];
/// How many agents come from afar, and how many operators call.
const FAR: usize = 20;
const FAR_SHORT: usize = 4;
/// Connections that all strangers hold, and that all open in a second: half of them with agents, half with
/// the command.
const HELD: u64 = 10_000;
const A_SECOND: u64 = 2_000;
/// How long the last flood lasts at least.
const FLOOD: Duration = Duration::from_secs(60);
/// How long one may take to have its connections open.
const RISE_MAX: Duration = Duration::from_secs(30);
const SIZE: Bytes = Bytes(20_000_000);
const SIZE_SHORT: Bytes = Bytes(2_000_000);
const SIZE_CALL: Bytes = Bytes(100_000);
/// How long those from afar may take.
const JOIN_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What may come of it: MiB more, and how much longer.
const MEMORY_MAX: f64 = 64.0;
const LONGER_MAX: f64 = 0.2;

pub(super) fn run(context: &Context<'_>) -> Outcome<Found> {
    let options = context.options;
    let lab = Lab::new(&options.program, "outpour-trust-")?;
    let size = if options.short { SIZE_SHORT } else { SIZE };
    let source = lab.object("object", size, options.seed)?;
    let small = lab.object("small", SIZE_CALL, options.seed)?;
    let site = Site::open(&lab, NETWORK)?;
    let nodes: Vec<String> = nodes(context);
    let services = Services::start(&site, &nodes)?;
    let bench = Bench {
        context,
        site,
        sources: [source, small],
    };
    let mut found = Found::default();
    let measured = bench.measure(&mut found);
    drop(services);
    if let Some(void) = bench.site.close()? {
        found.notes.push(void);
    }
    measured?;
    Ok(found)
}

struct Bench<'a> {
    context: &'a Context<'a>,
    site: Site<'a>,
    /// What is cast, and what operators from afar cast.
    sources: [PathBuf; 2],
}

/// The nodes of all agents.
fn nodes(context: &Context<'_>) -> Vec<String> {
    let near = AGENTS.iter().map(ToString::to_string);
    near.chain(far(context)).collect()
}

fn far(context: &Context<'_>) -> impl Iterator<Item = String> {
    let count = if context.options.short {
        FAR_SHORT
    } else {
        FAR
    };
    (0..count).map(|node| format!("w{node}"))
}

/// A stranger, who calls until this is dropped.
struct Stranger {
    running: Running,
    input: Option<ChildStdin>,
}

impl Stranger {
    fn tell(&mut self, order: &str) {
        if let Some(input) = &mut self.input {
            // One that has ended is noticed by what it did.
            let _ = writeln!(input, "{order}").and_then(|()| input.flush());
        }
    }

    /// What it has opened, has open, and what the other end closed.
    fn counts(&self) -> [u64; 3] {
        let said = self.running.printed().unwrap_or_default();
        let mut words = said.lines().last().unwrap_or_default().split(' ');
        let mut after = |name: &str| {
            let found = words.find(|word| *word == name);
            let number = found.and_then(|_| words.next());
            number.and_then(|it| it.parse().ok()).unwrap_or(0)
        };
        [after("opened"), after("open"), after("closed")]
    }
}

/// All strangers.
struct Flood(Vec<Stranger>);

impl Flood {
    fn start(site: &Site<'_>) -> Outcome<Self> {
        let mut strangers = Vec::new();
        for stranger in 0..4 {
            let mut command = site.command(&format!("x{stranger}"));
            command.args(["bench", "stranger"]).stdin(Stdio::piped());
            let mut running = site.lab.start(command, &format!("stranger-{stranger}"))?;
            let input = running.stdin();
            strangers.push(Stranger { running, input });
        }
        Ok(Self(strangers))
    }

    /// Has them call these places: two hold, two call. That is half of all they do.
    fn aim(&mut self, places: &[String]) {
        let each = places.len().max(1) as u64;
        let shares = [
            ("hold", HELD),
            ("hold", HELD),
            ("call", A_SECOND),
            ("call", A_SECOND),
        ];
        for (stranger, (what, all)) in self.0.iter_mut().zip(shares) {
            for place in places {
                stranger.tell(&format!("{what} {} {place}", all / 4 / each));
            }
        }
    }

    /// Connections opened, open, and closed by the other end, of all.
    fn counts(&self) -> [u64; 3] {
        let all = self.0.iter().map(Stranger::counts);
        all.fold([0; 3], |sum, it| std::array::from_fn(|at| sum[at] + it[at]))
    }

    /// Waits until they have called as often as they want to hold.
    fn rise(&self) {
        let begun = Instant::now();
        while self.counts()[0] < HELD / 2 && begun.elapsed() < RISE_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// What a cast took.
struct Taken {
    seconds: f64,
    /// The most that any agent, and the command, had in memory, in MiB.
    agents: f64,
    command: f64,
}

impl Bench<'_> {
    fn measure(&self, found: &mut Found) -> Outcome<()> {
        let (mut quiet, mut flooded) = (Vec::new(), Vec::new());
        let mut calls = [0; 3];
        for round in 0..self.context.options.rounds() {
            quiet.push(self.cast(round, None)?);
            let mut flood = Flood::start(&self.site)?;
            flood.aim(&self.places());
            flood.rise();
            flooded.push(self.cast(round, Some(&mut flood))?);
            let counts = flood.counts();
            calls = std::array::from_fn(|at| calls[at] + counts[at]);
        }
        let of = |all: &[Taken], what: fn(&Taken) -> f64| median(all.iter().map(what).collect());
        let both = |what: fn(&Taken) -> f64| {
            let none = || ExperimentError::Setup("nothing was cast".to_owned());
            let without = of(&quiet, what).ok_or_else(none)?;
            Ok::<_, ExperimentError>((without, of(&flooded, what).ok_or_else(none)?))
        };
        let (without, with) = both(|taken| taken.seconds)?;
        found
            .rows
            .push(Row::longer("a cast's time", without, with, LONGER_MAX));
        let agents = both(|taken| taken.agents)?;
        found
            .rows
            .push(Row::more("memory of an agent", "MiB", agents, MEMORY_MAX));
        let command = both(|taken| taken.command)?;
        found.rows.push(Row::more(
            "memory of the command",
            "MiB",
            command,
            MEMORY_MAX,
        ));
        let [opened, _, closed] = calls;
        found.notes.push(format!(
            "strangers opened {opened} connections during the casts, of which {closed} were closed before they left"
        ));
        self.look_from_afar(found)
    }

    /// Those from afar, while strangers call for a minute.
    fn look_from_afar(&self, found: &mut Found) -> Outcome<()> {
        let begun = Instant::now();
        let mut flood = Flood::start(&self.site)?;
        flood.aim(&self.places());
        flood.rise();
        let far: Vec<String> = far(self.context).collect();
        let (joined, seconds) = self.agents_from_afar(&mut flood, &far)?;
        found.rows.push(Row::of(
            "new agents 50 ms away that got in",
            joined,
            far.len(),
        ));
        let called = self.operators_from_afar(&far)?;
        found.rows.push(Row::of(
            "operators 50 ms away that got in",
            called,
            far.len(),
        ));
        while begun.elapsed() < FLOOD && !self.context.options.short {
            std::thread::sleep(LOOK_EVERY);
        }
        let [opened, open, closed] = flood.counts();
        found.notes.push(format!(
            "the agents from afar had all after {seconds:.1} s; strangers opened {opened} connections in {:.0} s, \
             had {open} open at the end, and {closed} were closed before they left",
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// A cast to everybody: how many of those far away had everything, and in how many seconds.
    fn agents_from_afar(&self, flood: &mut Flood, far: &[String]) -> Outcome<(usize, f64)> {
        let hosts = AGENTS
            .iter()
            .map(ToString::to_string)
            .chain(far.iter().cloned());
        let order = self.order("far", (COMMAND, 0), hosts.collect(), 99);
        let mut casting = self.site.begin(&order)?;
        let begun = Instant::now();
        let mut aimed = false;
        let all = loop {
            let joined: Vec<&str> = casting.verified()?;
            let joined = joined.iter().filter(|host| host.starts_with('w')).count();
            if joined == far.len() || casting.has_ended()? || begun.elapsed() > JOIN_MAX {
                break joined;
            }
            aimed = aimed || self.aim_at_command(flood);
            std::thread::sleep(LOOK_EVERY);
        };
        self.site.end(COMMAND)?;
        Ok((all, begun.elapsed().as_secs_f64()))
    }

    /// How many operators far away could cast to an agent of the site.
    fn operators_from_afar(&self, far: &[String]) -> Outcome<usize> {
        let mut casts = Vec::new();
        for (index, node) in far.iter().enumerate() {
            let host = AGENTS.iter().cycle().nth(index).map(ToString::to_string);
            let name = format!("by-{node}");
            let order = self.order(&name, (node, 1), host.into_iter().collect(), 7);
            casts.push(self.site.begin(&order)?);
        }
        let begun = Instant::now();
        let mut got_in = 0;
        for mut casting in casts {
            while !casting.has_ended()? && begun.elapsed() < JOIN_MAX {
                std::thread::sleep(LOOK_EVERY);
            }
            got_in += usize::from(casting.verified()?.len() == 1);
        }
        Ok(got_in)
    }

    /// A cast from a node of one of the sources.
    fn order<'b>(
        &'b self,
        name: &str,
        (from, source): (&'b str, usize),
        hosts: Vec<String>,
        seed: u64,
    ) -> Order<'b> {
        let route = (from, self.sources[source].as_path());
        let seed = seed.to_string();
        let options = ["--protocol", "swarm", "--seed", &seed];
        services::order(&self.site, name, route, hosts, &options)
    }

    /// A cast on the site.
    fn cast(&self, round: u64, mut flood: Option<&mut Flood>) -> Outcome<Taken> {
        let agents: Vec<i32> = AGENTS
            .iter()
            .filter_map(|node| self.site.process("agent", node))
            .map(|agent| agent.pid)
            .collect();
        agents.iter().copied().for_each(forget_peak);
        let hosts = AGENTS.iter().map(ToString::to_string).collect();
        let seed = self.context.options.seed + round;
        let order = self.order("near", (COMMAND, 0), hosts, seed);
        let (mut command, mut aimed) = (Memory::default(), false);
        let mut casting = self.site.begin(&order)?;
        let seconds = casting.others_have(None, |_| {
            if let Some(process) = self.site.process("cast", COMMAND) {
                command = memory(process.pid).unwrap_or(command);
            }
            if let Some(flood) = &mut flood {
                aimed = aimed || self.aim_at_command(flood);
            }
            Ok(())
        });
        let agents = agents.iter().filter_map(|pid| memory(*pid));
        let agents = agents.map(|memory| memory.peak).fold(0.0, f64::max);
        self.site.end(COMMAND)?;
        for node in AGENTS {
            let copy: PathBuf = self.site.copy("near", node);
            let _ = std::fs::remove_file(copy);
        }
        let seconds = seconds?;
        let with = if flood.is_some() { "flooded" } else { "quiet" };
        (self.context.progress)(format_args!(
            "  {with}: {seconds:.2} s, agents {agents:.1} MiB, command {:.1} MiB",
            command.peak
        ));
        Ok(Taken {
            seconds,
            agents,
            command: command.peak,
        })
    }

    /// Has strangers call the command's data port too, once it has one.
    fn aim_at_command(&self, flood: &mut Flood) -> bool {
        let ports = self
            .site
            .process("cast", COMMAND)
            .map(|it| listening(it.pid));
        let places: Vec<String> = ports
            .unwrap_or_default()
            .iter()
            .map(|port| format!("10.1.0.1:{port}"))
            .collect();
        if places.is_empty() {
            return false;
        }
        flood.aim(&places);
        true
    }

    /// Every port on which an agent of the site listens.
    fn places(&self) -> Vec<String> {
        let ports = |(index, node): (usize, &&str)| {
            let agent = self.site.process("agent", node);
            let ports = agent.map(|agent| listening(agent.pid)).unwrap_or_default();
            ports
                .into_iter()
                .map(move |port| format!("10.1.0.{}:{port}", index + 2))
        };
        AGENTS.iter().enumerate().flat_map(ports).collect()
    }
}
