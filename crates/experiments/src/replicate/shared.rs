//! A link that a cast shares with latency-sensitive traffic: real agents in the emulator, under the controller
//! that they obey.
//!
//! Small packets go over one link in bursts and are answered; how long that takes is measured, alone and
//! beside the cast. What the link carries the emulator counts.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outpour_core::network::{Change, Network, Resource};
use outpour_core::{Bytes, NodeId, Rate, Separation};
use serde::Deserialize;

use super::{BenchReplicateOptions, Entry, Figure, Progress, Row, Rows};
use crate::ExperimentError;
use crate::gossip::Mode;
use crate::gossip::stage::Stage;
use crate::lab::{Lab, complete, once, read, sound};
use crate::setting::{Scenario, four_clusters};
use crate::sweep::{PlotOf, thinned};

type Outcome<T> = Result<T, ExperimentError>;

/// The share of the thesis's rates that the links have: packets are single ones, and two cores carry no more.
const SHARE: f64 = 0.25;
/// The source, and between which nodes the traffic is.
const ROOT: &str = "A0";
const SENDER: &str = "A3";
const RECEIVER: &str = "D3";
const FROM: &str = "A";
const TO: &str = "D";
const PORT: u16 = 7000;
/// Its two rates, as shares of the link, and how long each lasts: no multiple of a cycle.
const HIGH: f64 = 0.4;
const LOW: f64 = 0.05;
const TURN: Duration = Duration::from_millis(5300);
/// How long it is measured alone, and in a short run.
const ALONE: Duration = Duration::from_millis(10_600);
const ALONE_SHORT: Duration = Duration::from_millis(2000);
const SIZE: Bytes = Bytes(150_000_000);
const SIZE_SHORT: Bytes = Bytes(8_000_000);
const SEEDS: u64 = 3;
/// How long each sample of the link is.
const SAMPLE: &str = "100 ms";
/// A cycle of a led cast, seconds.
const CYCLE_S: f64 = 0.5;
/// Packets are not divided, and clocks of different processes are compared.
const TOLERANCE: f64 = 0.02;
/// The share of a link up to which it is safe [BDS §5.2].
const SAFE: f64 = 0.8;
const CAST_MAX: Duration = Duration::from_secs(600);
const END_MAX: Duration = Duration::from_secs(20);

pub(super) const SHARED: Entry = Entry {
    name: "shared",
    about: "a link that a cast by real agents shares with bursts of packets",
    setup: "emulated, packet by packet: four clusters of four nodes, links of 0.5 to 2.5 MB/s and 10 ms one way, \
            a quarter of those of the grid's experiments; 150 MB from A0 to all others. From A3 to D3 packets of \
            1,000 bytes go at 40 % and at 5 % of the link of 2 MB/s, 5.3 s each, and are answered. What is sent is \
            written to the file of `--traffic` ten times a second. `limit_s` is the least time with what the \
            rule leaves of each link, of the shared one on average; `above_80_s`: for how long it was filled \
            beyond 80 %; `longest_above_cycles`: the longest time that bulk was above its rule, in \
            cycles of half a second, by half seconds that begin 100 ms apart; `rtt_ratio`: mean time of an answer beside the cast over that \
            alone, in the same run; `rtt_p99_ratio` the same of the 99th percentile; `lost_percent`: packets \
            without an answer.",
    paper: (
        "§2.4, figure 6; §6.2, figure 10",
        "Bulk without separation drives a link above 80 % and delays online traffic 30-fold. With it, bulk \
         stays below its limit of 10 GB/s all the time.",
    ),
    why: "Here connections of TCP share the link, whose buffer holds what it carries in a round trip and 25 ms: \
          it can at most add 45 ms to 20 ms there and back.",
    columns: &[
        "transfer_s",
        "limit_s",
        "ratio",
        "above_80_s",
        "longest_above_cycles",
        "rtt_ratio",
        "rtt_p99_ratio",
        "lost_percent",
    ],
    axis: "",
    plots: &[
        PlotOf::Course(
            "use",
            "seconds",
            "percent of the link",
            Some(("traffic", "traffic alone")),
        ),
        PlotOf::Course("rtt", "seconds", "ms there and back", None),
    ],
    timed: true,
    rows: Rows::Emulated(rows),
};

/// What is compared.
struct Way {
    series: &'static str,
    protocol: &'static str,
    rule: Option<Separation>,
    options: &'static [&'static str],
}

const WAYS: [Way; 4] = [
    Way {
        series: "central, no rule",
        protocol: "central",
        rule: None,
        options: &[],
    },
    Way {
        series: "central, threshold 80 %",
        protocol: "central",
        rule: Some(Separation::Threshold { percent: 80.0 }),
        options: &["--threshold", "80"],
    },
    Way {
        series: "central, historical peak",
        protocol: "central",
        rule: Some(Separation::Peak),
        options: &["--peak"],
    },
    Way {
        series: "robber",
        protocol: "robber",
        rule: None,
        options: &[],
    },
];

fn rows(options: &BenchReplicateOptions, progress: &Progress) -> Outcome<Vec<Row>> {
    let lab = Lab::new(&options.program, "outpour-shared-")?;
    let size = if options.short { SIZE_SHORT } else { SIZE };
    let source = lab.object("object", size, options.seed)?;
    let toml = four_clusters([4; 4], 10, Scenario::Fast, SHARE);
    let bench = Bench {
        options,
        lab: &lab,
        network: Network::from_toml(&toml, "network")?,
        toml,
        source,
        size,
    };
    let seeds = if options.short { 1 } else { SEEDS };
    let mut rows = Vec::new();
    for way in &WAYS {
        let mut row = Row::new(way.series, None);
        let mut runs: Vec<Run> = Vec::new();
        for seed in options.seed..options.seed + seeds {
            match once(|| bench.run(way, seed)) {
                Ok(run) => runs.push(run),
                Err(error) => row.error = Some(error.to_string()),
            }
        }
        let names = runs.first().map(|run| run.figures.map(|(name, _)| name));
        for (index, name) in names.into_iter().flatten().enumerate() {
            let values = runs.iter().map(|run| run.figures[index].1);
            row.figures.insert(name.to_owned(), Figure::of(values));
        }
        if let Some(first) = runs.into_iter().next() {
            row.curves.extend(first.curves);
        }
        progress(format_args!("shared: {}", row.in_words()));
        rows.push(row);
    }
    Ok(rows)
}

/// What one run came to.
struct Run {
    figures: [(&'static str, f64); 8],
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

struct Bench<'a> {
    options: &'a BenchReplicateOptions,
    lab: &'a Lab,
    network: Network,
    toml: String,
    source: std::path::PathBuf,
    size: Bytes,
}

/// What the sender of packets says in the end.
#[derive(Deserialize)]
struct Log {
    since_unix_s: f64,
    packet_bytes: f64,
    sent_ms: Vec<f64>,
    answer_ms: Vec<Option<f64>>,
}

/// What the emulator says that links carried.
#[derive(Deserialize)]
struct Carried {
    since_unix_s: f64,
    every_s: f64,
    links: Vec<LinkCarried>,
}

#[derive(Deserialize)]
struct LinkCarried {
    from: String,
    to: String,
    bytes: Vec<f64>,
}

#[derive(Deserialize)]
struct Emulated {
    carried: Option<Carried>,
}

/// A time, in seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

impl Bench<'_> {
    fn link(&self) -> Outcome<(Resource, f64)> {
        let cluster = |name: &str| {
            let node = self.network.node(&format!("{name}0"));
            let node = node.ok_or_else(|| ExperimentError::Setup(format!("no cluster {name}")));
            node.map(|node| self.network.cluster_of(node))
        };
        let link = Resource::Link(cluster(FROM)?, cluster(TO)?);
        Ok((link, self.network.capacity(link).bytes_per_s()))
    }

    fn run(&self, way: &Way, seed: u64) -> Outcome<Run> {
        let (_, capacity) = self.link()?;
        let stage = Stage::open_with(
            self.lab,
            &self.toml,
            Mode::Packet,
            &["--sample", SAMPLE, "--node", ROOT],
        )?;
        let (traffic, log) = (self.lab.path("traffic"), self.lab.path("log.json"));
        for path in [&traffic, &log] {
            // What an earlier run said is not this one's.
            let _ = std::fs::remove_file(path);
        }
        std::fs::write(&traffic, "").map_err(|e| ExperimentError::file(&traffic, &e))?;
        let foreground = |node: &str| {
            let mut command = stage.command(node, self.lab.program());
            command.args(["bench", "foreground"]);
            command
        };
        let mut answering = foreground(RECEIVER);
        answering.args(["--listen", &format!("0.0.0.0:{PORT}")]);
        let answering = self.lab.start(answering, "answering")?;
        let rate = |share: f64| format!("{} kB/s", capacity * share / 1e3);
        let mut sending = foreground(SENDER);
        sending
            .stdin(Stdio::piped())
            .args(["--to", &format!("{RECEIVER}:{PORT}")])
            .args(["--high", &rate(HIGH), "--low", &rate(LOW)])
            .args(["--turn", &format!("{} ms", TURN.as_millis())])
            .args(["--link", &format!("{FROM} {TO}"), "--traffic"])
            .arg(&traffic)
            .arg("--output")
            .arg(&log);
        let mut sending = self.lab.start(sending, "sending")?;
        let input = sending.stdin();
        std::thread::sleep(match self.options.short {
            true => ALONE_SHORT,
            false => ALONE,
        });
        let cast = self.cast(&stage, way, seed);
        let end = now();
        drop(input);
        let ended = sending.wait(END_MAX, |_| Ok(()));
        drop((sending, answering));
        self.lab.clear("copies")?;
        let report = stage.close()?;
        let (began, end) = (end - cast?, end);
        ended?;
        sound(report.as_deref(), end - began)?;
        let log: Log = parsed("the sender of packets", &read(&log)?)?;
        let report: Emulated = parsed("the emulation", &report.unwrap_or_default())?;
        let carried = report.carried;
        let carried = carried.ok_or_else(|| ExperimentError::Setup("no samples".to_owned()))?;
        self.found(way, (began, end), &log, &carried)
    }

    /// Casts; how long the transfer took.
    fn cast(&self, stage: &Stage<'_>, way: &Way, seed: u64) -> Outcome<f64> {
        let network = self.lab.write("cast.toml", self.toml.as_bytes())?;
        let mut command: Command = stage.command(ROOT, self.lab.program());
        command.arg("cast").arg(&self.source);
        let root = self.network.node(ROOT).unwrap_or(NodeId(0));
        for node in self.network.nodes().filter(|node| *node != root) {
            let copy = self.lab.path("copies").join("{host}").join("object");
            command.arg(format!("{}:{}", self.network.name(node), copy.display()));
        }
        command
            .args(["--root", ROOT, "--json", "--quiet", "--network"])
            .arg(network)
            .args(["--protocol", way.protocol, "--seed", &seed.to_string()])
            .args(way.options);
        if way.rule.is_some() {
            command.arg("--traffic").arg(self.lab.path("traffic"));
        }
        let mut running = self.lab.start(command, "cast")?;
        running.wait(CAST_MAX, |_| Ok(()))?;
        let cast = complete(&running.said()?)?;
        Ok(cast.transfer_s.unwrap_or_default())
    }

    fn found(
        &self,
        way: &Way,
        (began, end): (f64, f64),
        log: &Log,
        carried: &Carried,
    ) -> Outcome<Run> {
        let (link, capacity) = self.link()?;
        let used = self.used((began, end), log, carried)?;
        let beside = answers(log, began, end);
        // The first packets look for their way.
        let alone = answers(log, log.since_unix_s + 0.5, began);
        let peak = used.iter().map(|(_, fore, _)| *fore).fold(0.0, f64::max);
        let rate = |bytes: f64| Rate::from_bytes_per_s(bytes).unwrap_or(Rate::ZERO);
        let rule = way.rule.unwrap_or(Separation::Threshold { percent: 100.0 });
        let leaves = |fore: f64| {
            let left = rule.leaves(rate(capacity), rate(fore), rate(peak));
            left.bytes_per_s()
        };
        let above =
            |(_, fore, bulk): &(f64, f64, f64)| *bulk > leaves(*fore) + capacity * TOLERANCE;
        let unsafe_now =
            |(_, fore, bulk): &(f64, f64, f64)| fore + bulk > capacity * (SAFE + TOLERANCE);
        let runs = used.split(|at| !above(at)).map(<[_]>::len);
        let longest = runs.max().unwrap_or(0) as f64 * carried.every_s;
        // Those that end or begin just within a time above are above, too.
        let longest = (longest - CYCLE_S + carried.every_s).max(0.0);
        let mean = used.iter().map(|(_, fore, _)| leaves(*fore)).sum::<f64>() / used.len() as f64;
        let limit = self.limit(link, mean, rule)?;
        let took = end - began;
        let figures = [
            ("transfer_s", took),
            ("limit_s", limit),
            ("ratio", took / limit),
            (
                "above_80_s",
                used.iter().filter(|at| unsafe_now(at)).count() as f64 * carried.every_s,
            ),
            ("longest_above_cycles", longest / CYCLE_S),
            ("rtt_ratio", beside.mean / alone.mean),
            ("rtt_p99_ratio", beside.p99 / alone.p99),
            ("lost_percent", beside.lost * 100.0),
        ];
        let percent = |bytes: f64| bytes / capacity * 100.0;
        let course = |of: &dyn Fn(&(f64, f64, f64)) -> f64| {
            let points = used.iter().map(|at| (at.0 - began, of(at)));
            thinned(&points.collect::<Vec<_>>())
        };
        let trips = used.iter().filter_map(|(at, ..)| {
            let now = answers(log, *at, at + CYCLE_S);
            now.mean.is_finite().then_some((at - began, now.mean))
        });
        let curves = vec![
            ("use".to_owned(), course(&|at| percent(at.1 + at.2))),
            ("traffic".to_owned(), course(&|at| percent(at.1))),
            ("rtt".to_owned(), thinned(&trips.collect::<Vec<_>>())),
        ];
        Ok(Run { figures, curves })
    }

    /// What latency-sensitive traffic and bulk sent over the link in the cycle that begins with each sample of a
    /// transfer, bytes per second, and when that is.
    fn used(
        &self,
        (began, end): (f64, f64),
        log: &Log,
        carried: &Carried,
    ) -> Outcome<Vec<(f64, f64, f64)>> {
        let link = carried.links.iter();
        let mut link = link.filter(|link| link.from == FROM && link.to == TO);
        let link = link
            .next()
            .ok_or_else(|| ExperimentError::Setup("the link was not sampled".to_owned()))?;
        let samples = (CYCLE_S / carried.every_s).round() as usize;
        let skip = ((began - carried.since_unix_s) / carried.every_s)
            .ceil()
            .max(0.0) as usize;
        let mut used = Vec::new();
        for (first, cycle) in link.bytes.windows(samples.max(1)).enumerate() {
            let at = carried.since_unix_s + first as f64 * carried.every_s;
            if first < skip || at + CYCLE_S > end {
                continue;
            }
            let sent = log.sent_ms.iter().filter(|ms| {
                let sent = log.since_unix_s + **ms / 1e3;
                (at..at + CYCLE_S).contains(&sent)
            });
            let fore = sent.count() as f64 * log.packet_bytes / CYCLE_S;
            let all = cycle.iter().sum::<f64>() / CYCLE_S;
            used.push((at, fore, (all - fore).max(0.0)));
        }
        match used.is_empty() {
            true => Err(ExperimentError::Setup("the cast was too short".to_owned())),
            false => Ok(used),
        }
    }

    /// The least time with what a rule leaves of links, and so much of the shared one.
    fn limit(&self, shared: Resource, left: f64, rule: Separation) -> Outcome<f64> {
        let mut network = self.network.clone();
        let clusters =
            || (0..network.clusters().len() as u32).map(outpour_core::network::ClusterId);
        let pairs: Vec<_> = clusters()
            .flat_map(|from| clusters().map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
            .collect();
        for (from, to) in pairs {
            let resource = Resource::Link(from, to);
            let all = network.capacity(resource);
            let rate = match resource == shared {
                true => Rate::from_bytes_per_s(left).unwrap_or(all),
                false => rule.leaves(all, Rate::ZERO, Rate::ZERO),
            };
            network.apply(&Change::Capacity { resource, rate });
        }
        let root = network.node(ROOT).unwrap_or(NodeId(0));
        let others: Vec<NodeId> = network.nodes().filter(|node| *node != root).collect();
        let limit = outpour_planner::limit_for(&network, &[root], &others, self.size);
        let limit = limit.map_err(|error| ExperimentError::Setup(error.to_string()))?;
        Ok(limit.seconds)
    }
}

/// How long answers took to packets that were sent in a time, ms, and the share without one.
struct Answers {
    mean: f64,
    p99: f64,
    lost: f64,
}

fn answers(log: &Log, from: f64, until: f64) -> Answers {
    let sent = log.sent_ms.iter().zip(&log.answer_ms);
    let sent = sent.filter(|(ms, _)| (from..until).contains(&(log.since_unix_s + **ms / 1e3)));
    let all: Vec<Option<f64>> = sent.map(|(_, answer)| *answer).collect();
    let mut took: Vec<f64> = all.iter().flatten().copied().collect();
    took.sort_by(f64::total_cmp);
    let count = took.len() as f64;
    Answers {
        mean: took.iter().sum::<f64>() / count,
        p99: super::quantile(&took, 0.99),
        lost: 1.0 - count / all.len() as f64,
    }
}

fn parsed<T: serde::de::DeserializeOwned>(whose: &str, text: &str) -> Outcome<T> {
    let why = |error| ExperimentError::Setup(format!("what {whose} says makes no sense: {error}"));
    serde_json::from_str(text).map_err(why)
}
