//! Experiments over time: traffic that goes first, and faults.
//!
//! Round trips of latency-sensitive traffic are modelled, not simulated. The link is a queue M/M/1/K
//! for the share of it that is used at the moment: bursts of 64 KiB arrive at random, as hosts
//! hand them to their network cards, and wait in a buffer of one bandwidth-delay product; the way back
//! is idle. Connections of TCP that fill the link would fill the buffer too, so that the model is
//! mild with bulk that leaves no room.

use std::fmt::Write;

use outpour_core::Separation;
use outpour_core::network::{ClusterId, Network};
use outpour_core::script::Script;
use outpour_sim::replicate::{LinkUse, Moment, ReplicateConfig, ReplicateReport, System};

use super::cases::{config, sites, to_all};
use super::{Case, Entry, Figure, Row, Rows};
use crate::ExperimentError;
use crate::sweep::PlotOf;

/// Bytes that arrive at a link at once.
const BURST: f64 = 65_536.0;
/// The share of a link up to which it is safe [BDS §5.2], but for rounding.
const SAFE: f64 = 0.8 + 1e-6;
/// Throughput is back when so much of it is, and stays for so many cycles: it varies by some percent
/// without any fault.
const BACK: f64 = 0.9;
const WATCHED: usize = 10;
/// Traffic on the link, in MB/s, and for how many seconds.
const STEPS: [(u32, u32); 6] = [(80, 61), (120, 62), (60, 64), (100, 65), (40, 67), (70, 60)];
/// In which cycle an agent is lost, and from which to which the controller is away.
const LOST: usize = 10;
const AWAY: std::ops::Range<usize> = 20..30;

pub(super) const SEPARATION: Entry = Entry {
    name: "figure10",
    about: "a link that bulk shares with latency-sensitive traffic",
    setup: "two sites of 20 servers at 20 MB/s, joined at 200 MB/s, 10 ms one way; traffic of 40 to 120 \
            MB/s in steps, whose peak is known, beside 48 GB of bulk. `above_80_s` is for how long bulk \
            filled the link beyond 80 %, `longest_above_cycles` for how long at a stretch beyond its rule; \
            no separation is a rule of 100 %. Round trips are those of a queue M/M/1/K at the use of each \
            moment: bursts of 64 KiB, a buffer of one bandwidth-delay product, the way back idle; \
            `rtt_ratio` is the mean over that traffic with bulk over the same without, `rtt_worst` the \
            largest ratio of a moment.",
    paper: (
        "§2.4, figure 6; §6.2, figure 10",
        "Bulk without separation drives a link above 80 % and delays online traffic 30-fold. With it, bulk \
         stays below its limit of 10 GB/s all the time.",
    ),
    why: "Bulk is above its share from a step of the traffic until the next cycle begins, as nobody knows \
          of the step before. The 30-fold delay was measured on a link with a short way, where all delay \
          is waiting; here the way itself takes 20 ms, and the modelled buffer is half full, where \
          connections that fill it would double that.",
    columns: &[
        "finish_s",
        "above_80_s",
        "longest_above_cycles",
        "rtt_ratio",
        "rtt_worst",
    ],
    axis: "",
    plots: &[
        PlotOf::Course(
            "use",
            "seconds",
            "percent of the link",
            Some(("traffic", "traffic alone")),
        ),
        PlotOf::Course(
            "rtt",
            "seconds",
            "ms there and back",
            Some(("rtt-alone", "traffic alone")),
        ),
    ],
    timed: false,
    rows: Rows::Simulated(separation),
};

pub(super) const FAULTS: Entry = Entry {
    name: "figure12a",
    about: "an agent lost in cycle 10, the controller away in cycles 20 to 30",
    setup: "80 GB from one site to 10 others of 20 servers at 20 MB/s, cycles of 3 s. `cycles_back`: until \
            90 % of the throughput is back for good after the loss, counted from its cycle on; `kept`: \
            throughput while the controller is away over that before; `at_return` and `lowest_after`: the same \
            of the cycle in which it is back, and of the least of the ten after that; `cycles_back_after`: \
            until it is back for good when the controller is.",
    paper: (
        "§6.3.2, figure 12a",
        "A lost agent matters for one cycle. Without a controller throughput falls gracefully, and it \
         recovers in the cycle in which the controller is back.",
    ),
    why: "What a lost server was to get is given to others in the next cycle. The cycle in which the controller \
          is back is full, as the paper says; those after it are not. Under the controller the origin sends \
          600 blocks a cycle, all that it can, and each is one that no other site has. While servers help \
          themselves, 300 to 400 of them are, as who asks the origin does not know what others have. So \
          they live on what sites have from before: what some site has and another lacks falls from 17,000 \
          to 8,400 copies in these 10 cycles, of which the first cycle of the next controller takes 5,900. It \
          takes 5 cycles of 600 new blocks until there are 15,000 again, below which some servers have \
          nothing that others lack; it is the same at the beginning.",
    columns: &[
        "finish_s",
        "cycles_back",
        "kept",
        "at_return",
        "lowest_after",
        "cycles_back_after",
    ],
    axis: "",
    plots: &[PlotOf::Course("blocks", "cycle", "blocks per cycle", None)],
    timed: false,
    rows: Rows::Simulated(faults),
};

fn scripted(config: ReplicateConfig, text: &str) -> Result<ReplicateConfig, ExperimentError> {
    let script = Some(Script::parse(text, "script")?);
    Ok(ReplicateConfig { script, ..config })
}

fn separation(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"200 MB/s\"\ndelay = \"10 ms\"\n";
    let network = sites(2, 20, 20) + link;
    // Its peak is known from before.
    let history = "setForeground a b 120 MB/s\nsleep 5 s\nsetForeground a b 40 MB/s\nsleep 95 s\n";
    let mut script = history.to_owned();
    // Steps at all phases of a cycle.
    for (rate, seconds) in STEPS {
        let _ = writeln!(script, "setForeground a b {rate} MB/s\nsleep {seconds} s");
    }
    let jobs = to_all(2, if short { 8.0 } else { 48.0 }, "2 MB");
    let mut cases = Vec::new();
    for (series, separation) in [
        ("no separation", Separation::Threshold { percent: 100.0 }),
        ("threshold 80 %", Separation::Threshold { percent: 80.0 }),
        ("historical peak", Separation::Peak),
    ] {
        let mut config = scripted(config(&network, &jobs, System::Central)?, &script)?;
        config.controller.separation = separation;
        cases.push(Case {
            series: series.to_owned(),
            at: None,
            config,
        });
    }
    Ok(cases)
}

fn faults(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let network = sites(11, if short { 4 } else { 20 }, 20);
    let jobs = to_all(11, if short { 16.0 } else { 80.0 }, "2 MB");
    // Cycles of 3 s.
    let script = "sleep 31 s\nlose c1\nsleep 29 s\nloseController\nsleep 30 s\nrestoreController\n";
    let case = |(series, script): (&str, &str)| {
        Ok(Case {
            series: series.to_owned(),
            at: None,
            config: scripted(config(&network, &jobs, System::Central)?, script)?,
        })
    };
    let none = "sleep 1 s\n";
    let both = [("without faults", none), ("with faults", script)];
    both.into_iter().map(case).collect()
}

/// What is to be seen of a run with a script over time.
pub(super) fn measure(row: &mut Row, config: &ReplicateConfig, report: &ReplicateReport) {
    if config.script.is_none() {
        return;
    }
    if let Some(link) = report.links.first() {
        let cycle = config.controller.cycle.as_secs_f64();
        figure(row, "longest_above_cycles", link.longest_above_s / cycle);
        round_trips(row, &config.network, &link.link, &report.moments);
    } else {
        throughput(row, config, report);
    }
}

fn figure(row: &mut Row, name: &str, value: f64) {
    let figure = Figure::of([value].into_iter());
    row.figures.insert(name.to_owned(), figure);
}

/// The use of a link, and the round trips of the traffic on it, with bulk and without.
fn round_trips(row: &mut Row, network: &Network, name: &str, moments: &[Moment]) {
    let links = network.clusters().len() as u32;
    let delay = (0..links)
        .flat_map(|a| (0..links).map(move |b| (a, b)))
        .filter(|(a, b)| a != b)
        .map(|(a, b)| network.link(ClusterId(a), ClusterId(b)).delay)
        .max();
    let way = delay.unwrap_or_default().as_secs_f64() * 2.0;
    let (mut with, mut without, mut worst) = (0.0, 0.0, 1.0_f64);
    let mut above_s = 0.0;
    let mut curves: [Vec<(f64, f64)>; 4] = Default::default();
    for moment in moments {
        let Some(used) = moment.links.get(name) else {
            continue;
        };
        let alone = LinkUse { bulk: 0.0, ..*used };
        let trips = [used, &alone].map(|used| way + wait_s(used, way));
        // Each burst counts once.
        let weight = used.foreground * moment.seconds;
        if used.bulk > 0.0 {
            with += trips[0] * weight;
            without += trips[1] * weight;
            worst = worst.max(trips[0] / trips[1]);
        }
        if used.bulk > 0.0 && used.foreground + used.bulk > SAFE * used.capacity {
            above_s += moment.seconds;
        }
        let percent = |bytes: f64| bytes / used.capacity.max(1.0) * 100.0;
        let shown = [
            percent(used.foreground + used.bulk),
            percent(used.foreground),
            trips[0] * 1e3,
            trips[1] * 1e3,
        ];
        for (curve, value) in curves.iter_mut().zip(shown) {
            // Steps, as what is shown held until then.
            curve.push((moment.at_s - moment.seconds, value));
            curve.push((moment.at_s, value));
        }
    }
    figure(
        row,
        "rtt_ratio",
        if without > 0.0 { with / without } else { 1.0 },
    );
    figure(row, "rtt_worst", worst);
    figure(row, "above_80_s", above_s);
    let names = ["use", "traffic", "rtt", "rtt-alone"];
    for (name, curve) in names.into_iter().zip(curves) {
        row.curves.insert(name.to_owned(), thinned(curve));
    }
}

/// The curve without points that lie between equal ones.
fn thinned(curve: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut thin: Vec<(f64, f64)> = Vec::with_capacity(curve.len());
    for point in curve {
        if let [.., before, last] = &thin[..]
            && before.1 == last.1
            && last.1 == point.1
        {
            thin.pop();
        }
        thin.push(point);
    }
    thin
}

/// How long a burst takes to pass a link that is used like that, waiting included, where the buffer
/// holds what is on a way of so many seconds.
fn wait_s(used: &LinkUse, way: f64) -> f64 {
    let service = BURST / used.capacity.max(1.0);
    let load = (used.foreground + used.bulk) / used.capacity.max(1.0);
    let room = (used.capacity * way / BURST).ceil().max(1.0);
    // Of a queue M/M/1/K, with the mean number in it and the share that finds room.
    if (load - 1.0).abs() < 1e-6 {
        return service * (room + 1.0) / 2.0;
    }
    let power = load.powf(room);
    let mean = load / (1.0 - load) - (room + 1.0) * power * load / (1.0 - power * load);
    let full = (1.0 - load) * power / (1.0 - power * load);
    let admitted = load * (1.0 - full);
    if admitted > 0.0 {
        mean * service / admitted
    } else {
        service
    }
}

/// Blocks in each cycle, and what faults do to them.
fn throughput(row: &mut Row, config: &ReplicateConfig, report: &ReplicateReport) {
    let cycle = config.controller.cycle.as_secs_f64();
    let mut blocks: Vec<f64> = Vec::new();
    for moment in &report.moments {
        let middle = moment.at_s - moment.seconds / 2.0;
        let place = (middle / cycle) as usize;
        blocks.resize(blocks.len().max(place + 1), 0.0);
        blocks[place] += moment.blocks as f64;
    }
    let mean = |range: std::ops::Range<usize>| {
        let part = blocks.get(range).unwrap_or_default();
        part.iter().sum::<f64>() / part.len().max(1) as f64
    };
    let before = mean(LOST / 2..LOST);
    let servers = config.network.node_count();
    let receivers = f64::from(servers - servers / config.network.clusters().len() as u32);
    let left = before * (1.0 - 1.0 / receivers);
    let back = |from: usize, level: f64| {
        let watched = blocks.iter().skip(from).take(WATCHED);
        let mut low = watched.enumerate().filter(|(_, it)| **it < level * BACK);
        low.next_back().map_or(0, |(place, _)| place + 1) as f64
    };
    figure(row, "cycles_back", back(LOST, left));
    let steady = mean(LOST + 2..AWAY.start).max(1.0);
    figure(row, "kept", mean(AWAY) / steady);
    figure(row, "at_return", mean(AWAY.end..AWAY.end + 1) / steady);
    let after = blocks.iter().skip(AWAY.end + 1).take(WATCHED);
    let lowest = after.copied().fold(f64::INFINITY, f64::min);
    if lowest.is_finite() {
        figure(row, "lowest_after", lowest / steady);
    }
    figure(row, "cycles_back_after", back(AWAY.end, left));
    let curve = blocks.iter().enumerate();
    let curve = curve
        .map(|(cycle, blocks)| (cycle as f64, *blocks))
        .collect();
    row.curves.insert("blocks".to_owned(), curve);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{BenchReplicateOptions, Entry};
    use super::*;

    fn used(share: f64) -> LinkUse {
        LinkUse {
            capacity: 65.536e6,
            foreground: share * 65.536e6,
            bulk: 0.0,
        }
    }

    #[test]
    fn waits_are_those_of_the_model() {
        // A burst takes a millisecond; far from the end of the buffer it is 1 / (1 - load) times that.
        let way = 0.1;
        for share in [0.1, 0.5, 0.8] {
            let expected = 1e-3 / (1.0 - share);
            assert!((wait_s(&used(share), way) / expected - 1.0).abs() < 1e-6);
        }
        // A link that is full has half of its buffer full, of 100 bursts, from both sides.
        for share in [1.0 - 1e-5, 1.0, 1.0 + 1e-5] {
            assert!(
                (wait_s(&used(share), way) - 50.5e-3).abs() < 1e-4,
                "{share}"
            );
        }
        assert!((wait_s(&used(0.0), way) - 1e-3).abs() < 1e-9);
    }

    #[test]
    fn equal_points_are_left_out() {
        let curve = vec![(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 3.0), (3.0, 3.0)];
        let thin = vec![(0.0, 1.0), (2.0, 1.0), (2.0, 3.0), (3.0, 3.0)];
        assert_eq!(thinned(curve), thin);
    }

    fn rows(entry: &Entry) -> Vec<Row> {
        let options = BenchReplicateOptions {
            seed: 1,
            short: true,
            threads: 1,
            program: std::path::PathBuf::new(),
        };
        entry.run(&options, &|_| ()).unwrap().rows
    }

    #[test]
    fn separation_protects_the_traffic() {
        let rows = rows(&SEPARATION);
        let of = |place: usize, name: &str| rows[place].mean(name).unwrap();
        assert!(of(0, "rtt_ratio") > 1.3, "without a rule");
        for ruled in [1, 2] {
            assert!(of(ruled, "rtt_ratio") <= 1.2, "{:?}", rows[ruled].figures);
            assert!(of(ruled, "longest_above_cycles") <= 1.0 + 1e-6);
        }
    }

    #[test]
    fn faults_cost_what_they_may() {
        let rows = rows(&FAULTS);
        let of = |name: &str| rows[1].mean(name).unwrap();
        assert!(of("cycles_back") <= 1.0, "{:?}", rows[1].curves);
        assert!(of("kept") >= 0.6, "{:?}", rows[1].curves);
        assert!(of("at_return") >= BACK, "{:?}", rows[1].curves);
        assert!(of("cycles_back_after") <= 4.0, "{:?}", rows[1].curves);
    }
}
