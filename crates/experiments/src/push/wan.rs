//! Two paths, long paths and a backbone.

use std::time::Duration;

use outpour_core::network::Link;
use outpour_core::topology::{Metric, Topology, Vertex, Wire};
use outpour_core::{NodeId, Time};
use outpour_sim::packets::flows::{Flow, Flows, Line};
use outpour_sim::packets::tasks::{Links, PACKET_BYTES, Scheme, Setting, Task};

use super::bottleneck::{PAPER_LINK, play, weighted};
use super::jobs::{Job, Part};
use super::{BenchPushOptions, Entry, Input, PAPER_WAN_INSTANCES, as_they_are, tasks};
use crate::ExperimentError;
use crate::dice::Dice;
use crate::sweep::PlotOf;

pub(super) const FIGURE6: Entry = Entry {
    name: "figure6",
    about: "one task from two sources with unequal links",
    setup: "an object of 5 x 10^5 packets, two sources with a link each, as that of `figure4a`, which carry 10^6 packets/s together \
            and V1/V2 one to the other. `volumes` is what the faster delivered over what the other did.",
    paper: (
        "§V-A, figure 6",
        "The task takes 0.5 s at every ratio, and volumes grow with the ratio of bandwidths.",
    ),
    why: "It does not. Without rateless symbols (push-0-1) the slower source is waited for. What is above 0.5 s are the start, and the symbols that decoding needs beyond those of the object.",
    series: "scheme",
    columns: &["time_s", "volumes", "timeouts"],
    axis: "V1 / V2",
    plots: &[
        PlotOf::Series("time_s", "seconds"),
        PlotOf::Series("volumes", "volume of the faster / of the other"),
    ],
    input: Input::Nothing,
    jobs: figure6,
    finish: as_they_are,
};

/// The schemes of push whose sources send as much as they can.
const RATELESS: Scheme = Scheme::Push {
    is_rateless: true,
    is_prioritized: true,
};
const EQUAL: Scheme = Scheme::Push {
    is_rateless: false,
    is_prioritized: true,
};
/// The scheme that the others are held against.
const EQUAL_SHARES: Scheme = Scheme::Push {
    is_rateless: false,
    is_prioritized: false,
};

fn figure6(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let (ratios, packets): (&[f64], u64) = match options.short {
        true => (&[4.0], 20_000),
        false => (
            &[1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0],
            500_000,
        ),
    };
    let mut jobs = Vec::new();
    for scheme in [RATELESS, EQUAL] {
        for &ratio in ratios {
            let name = format!("{scheme}.{ratio}");
            jobs.push(Job::new("figure6", &name, "", move || {
                two_paths(scheme, ratio, packets)
            }));
        }
    }
    Ok(jobs)
}

fn two_paths(scheme: Scheme, ratio: f64, packets: u64) -> Result<Vec<Part>, String> {
    let (all, delay, mark, queue) = PAPER_LINK;
    let links = Links {
        packets_per_s: all,
        fabric_packets_per_s: all,
        delay,
        packet_bytes: PACKET_BYTES,
    };
    let link = |share: f64| links.link(all * share).map_err(|error| error.to_string());
    let slow = 1.0 / (1.0 + ratio);
    // The one that fetches is host 0, behind a switch that holds up nobody.
    let ways = [(0, Link::OPEN), (1, link(1.0 - slow)?), (2, link(slow)?)];
    let switch = Vertex(3);
    let wires = ways.into_iter().flat_map(|(host, link)| {
        let host = Vertex(host);
        [(host, switch), (switch, host)].map(|(from, to)| Wire { from, to, link })
    });
    let names = ["receiver", "fast", "slow"].map(str::to_owned);
    let topology = Topology::new(names.to_vec(), vec!["switch".to_owned()], wires.collect());
    let setting = Setting {
        fanout: 2,
        queue_packets: queue,
        mark_packets: mark,
        ..Setting::new(topology.map_err(|error| error.to_string())?, scheme)
    };
    let task = Task {
        at: Time::ZERO,
        packets,
        device: NodeId(0),
        holders: vec![NodeId(1), NodeId(2)],
    };
    let found = setting
        .play(&[task], 1)
        .map_err(|error| error.to_string())?;
    let most = found.shares.iter().copied().fold(0.0, f64::max);
    let least = found.shares.iter().copied().fold(1.0, f64::min);
    let part = Part::new(scheme.name(), Some(ratio))
        .figure("time_s", found.average_tct_s)
        .figure("volumes", most / least)
        .figure("timeouts", found.timeouts as f64);
    Ok(vec![part])
}

pub(super) const FIGURE14A: Entry = Entry {
    name: "figure14a",
    about: "two flows of theta 4 and 1 over long paths",
    setup: "a path of 10^4 packets/s with so long a round trip, which marks from 30 packets in its queue and holds 100; flows begin \
            with one packet each, or with half of what the path holds. `sum` is what arrived in 10 s, percent of 10^5 packets.",
    paper: (
        "§V-B, figure 14a",
        "Both deliver about 10^5 packets together in 10 s; the ratio departs from 4 as round trips grow.",
    ),
    why: "From one packet each window grows by one per round trip, as equation 2 says and the paper's fluid does: two flows need half as many round trips as the path holds packets until they fill it. At 30 ms \
          that is 150 of them, 4.5 s, nearly half of the time, and at 100 ms 500, 50 s, more than there is. The paper does not say how its flows begin; those from half the path are to show whether it is the start that decides, \
          and they have what they began with for many round trips: so the ratio is to go to 1 there.",
    series: "start",
    columns: &["first_packets", "second_packets", "ratio", "sum"],
    axis: "round trip, ms",
    plots: &[
        PlotOf::Sweep("ratio", "packets of theta 4 / of theta 1"),
        PlotOf::Sweep("sum", "percent of 10^5 packets"),
    ],
    input: Input::Nothing,
    jobs: figure14a,
    finish: as_they_are,
};

fn figure14a(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let rtts_us: &[u64] = match options.short {
        true => &[1000],
        false => &[10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000],
    };
    let mut jobs = Vec::new();
    for (series, is_filled) in [("from one packet", false), ("from half the path", true)] {
        for &rtt_us in rtts_us {
            for seed in options.seeds(5) {
                let name = format!("{}.{rtt_us}.{seed}", series.replace(' ', "-"));
                jobs.push(Job::new("figure14a", &name, "", move || {
                    long_path(series, is_filled, rtt_us, seed)
                }));
            }
        }
    }
    Ok(jobs)
}

/// Two flows, which may begin with as much in flight as the path holds.
fn long_path(series: &str, is_filled: bool, rtt_us: u64, seed: u64) -> Result<Vec<Part>, String> {
    let rate = 1e4;
    let half = rate * rtt_us as f64 / 1e6 / 2.0;
    let line = Line {
        delay: Duration::from_micros(rtt_us) / 2,
        mark_packets: Some(30),
        ..Line::new("a", "b", rate, 100)
    };
    let flows = [4.0, 1.0].map(|theta| Flow {
        initial_window: is_filled.then_some(half.max(1.0)),
        ..weighted(theta)
    });
    let mut setup = Flows::new(vec![line], flows.to_vec(), Duration::from_secs(10));
    // A packet's time at the bottleneck.
    (setup.jitter, setup.seed) = (Duration::from_micros(100), seed);
    let run = play(&setup)?;
    let [first, second] = [0, 1].map(|flow| 10.0 * run.flows[flow].means.goodput_packets_per_s);
    let part = Part::new(series, Some(rtt_us as f64 / 1e3))
        .figure("first_packets", first)
        .figure("second_packets", second)
        .figure("ratio", first / second)
        .figure("sum", 100.0 * (first + second) / (10.0 * rate));
    Ok(vec![part])
}

pub(super) const FIGURE14B: Entry = Entry {
    name: "figure14b",
    about: "objects of a site that is gone, on B4",
    setup: "18 sites, links of 10^4 packets/s, queues of 100 packets that mark from 30. 300 objects on 5 sites each, drawn; one site, drawn, is gone, and a site \
            that has not got it, drawn, fetches each of its objects from 3 of the 4 others, all at once. Sizes from the websearch distribution moved to [1, 100] x 10^4 \
            packets. `table`: the 40 links of the public table with delays by distance; `paper`: those and two more, between sites with the fewest (2-3, 14-17), 1 ms \
            within a continent (sites 0-4, 5-12, 13-17) and 10 ms between. `factor` is over push-0-0, instance by instance. Packets take the way of the least delay. \
            Windows begin with 1 packet under push, 10 under DCTCP and Reno, 4 under DCCP, and under SCDP with what a round trip carries from the farthest source; `slow start`: push with 10, and doubling as DCTCP. Timers are 200 ms at least and 250 ms at most, under every scheme but SCDP; \
            TCP's usual 1 s and 60 s would make baselines worse.",
    paper: (
        "§V-B, figure 14b",
        "push is best; push-1-0, push-1-1 and SCDP are close to each other, so it is sharing tasks by symbols that helps.",
    ),
    why: "The paper does not say how flows begin, and over round trips of tens of milliseconds that decides as much as who sends what. Push begins with one packet and adds one per round trip, as equation 2 says; DCTCP, DCCP and Reno \
          double theirs until the first mark or loss. So a scheme of theirs can be faster than push with equal shares, and SCDP, which begins with all that a path holds, \
          faster than push-1-1, which neither is in the paper. Small objects (`--size-factor`) show more of that. In the rows with `slow start` push begins as DCTCP does: \
          what is then between them is not the start. Those are not the paper's. A receiver of SCDP pulls at the rate of the links into its site and knows of no other receiver, so ports between sites may cut payloads (`trimmed`), which have to be asked for again.",
    series: "links, scheme",
    columns: &[
        "average_tct_s",
        "factor",
        "timeouts",
        "drops",
        "trimmed",
        "unfinished",
    ],
    axis: "",
    plots: &[PlotOf::Bars("average_tct_s", "seconds, mean")],
    input: Input::Links,
    jobs: figure14b,
    // Each scheme against push-0-0 over the same links.
    finish: |rows, parts| {
        tasks::factors_over(rows, parts, |series| {
            let links = series.split(", ").next().unwrap_or_default();
            format!("{links}, push-0-0")
        });
    },
};

const READINGS: [&str; 2] = ["table", "paper"];
/// A table of links is not larger, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Of how many objects the site that is gone had some, and on how many sites each is.
const OBJECTS: u32 = 300;
const REPLICAS: usize = 5;
/// The window with which DCTCP begins; two schemes of push are also played as it starts.
const WINDOW: f64 = 10.0;

fn figure14b(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let table = match options.short {
        true => ring(18),
        false => tasks::text(&options.links, TEXT_BYTES_MAX)?,
    };
    let sizes = tasks::sizes(
        options,
        if options.short {
            (10.0, 100.0)
        } else {
            (1e4, 1e6)
        },
    )?;
    let file = options.links.display().to_string();
    let mut jobs = Vec::new();
    let as_usual = Scheme::ALL.map(|scheme| (scheme, false));
    let alike = [EQUAL_SHARES, RATELESS].map(|scheme| (scheme, true));
    for seed in options.instances(PAPER_WAN_INSTANCES) {
        for links in READINGS {
            let text = if links == "paper" {
                as_the_paper_says(&table)
            } else {
                table.clone()
            };
            let topology = backbone(&text, &file)?;
            for (scheme, has_slow_start) in as_usual.into_iter().chain(alike) {
                let (topology, sizes) = (topology.clone(), sizes.clone());
                let start = if has_slow_start { ", slow start" } else { "" };
                let series = format!("{links}, {scheme}{start}");
                let name = format!("{}.{seed}", series.replace(", ", "-").replace(' ', "-"));
                let settings = format!("{text}{sizes:?}");
                jobs.push(Job::new("figure14b", &name, settings, move || {
                    let setting = Setting {
                        metric: Metric::Delay,
                        control_delay: Duration::from_millis(10),
                        rto_min: Duration::from_millis(200),
                        initial_window: has_slow_start.then_some(WINDOW),
                        has_slow_start,
                        ..Setting::new(topology.clone(), scheme)
                    };
                    let tasks = moved(setting.topology.host_count(), &sizes, seed);
                    let found = setting.play(&tasks, seed);
                    let found = found.map_err(|error| error.to_string())?;
                    Ok(vec![tasks::part(&series, None, &found)])
                }));
            }
        }
    }
    Ok(jobs)
}

fn backbone(text: &str, file: &str) -> Result<Topology, ExperimentError> {
    let fail = |error: &dyn std::fmt::Display| ExperimentError::Setup(error.to_string());
    let links = Links {
        packets_per_s: 1e4,
        fabric_packets_per_s: 1e4,
        delay: Duration::ZERO,
        packet_bytes: PACKET_BYTES,
    };
    let trunk = links.link(1e4).map_err(|error| fail(&error))?;
    Topology::from_csv(text, file, Link::OPEN, trunk).map_err(|error| fail(&error))
}

/// A table of sites in a ring, for what is only to work.
fn ring(sites: u32) -> String {
    let lines = (0..sites).map(|site| {
        let (a, b) = (site.min((site + 1) % sites), site.max((site + 1) % sites));
        format!("{a},{b},1\n")
    });
    format!("site_a,site_b,delay_ms\n{}", lines.collect::<String>())
}

/// The same links with the paper's delays, and two more.
fn as_the_paper_says(table: &str) -> String {
    let continent = |site: u32| match site {
        0..=4 => 0,
        5..=12 => 1,
        _ => 2,
    };
    let mut text = "site_a,site_b,delay_ms\n".to_owned();
    let pairs = table.lines().filter_map(|line| {
        let mut cells = line.split(',').map(|cell| cell.trim().parse::<u32>());
        Some((cells.next()?.ok()?, cells.next()?.ok()?))
    });
    let mut pairs: Vec<(u32, u32)> = pairs.collect();
    let more = [(2, 3), (14, 17)];
    pairs.extend(
        more.into_iter()
            .filter(|pair| !table.contains(&format!("{},{},", pair.0, pair.1))),
    );
    for (a, b) in pairs {
        let delay = if continent(a) == continent(b) { 1 } else { 10 };
        text.push_str(&format!("{a},{b},{delay}\n"));
    }
    text
}

/// What has to be fetched when a site is gone.
fn moved(sites: u32, sizes: &outpour_sim::packets::tasks::Sizes, seed: u64) -> Vec<Task> {
    let mut dice = Dice::new(seed);
    let gone = NodeId((dice.next() % u64::from(sites)) as u32);
    let mut tasks = Vec::new();
    for _ in 0..OBJECTS {
        let mut all: Vec<NodeId> = (0..sites).map(NodeId).collect();
        for place in 0..all.len() {
            let other = place + (dice.next() % (all.len() - place) as u64) as usize;
            all.swap(place, other);
        }
        let packets = sizes.draw(&mut dice);
        let (holders, others) = all.split_at(REPLICAS.min(all.len()));
        if let (true, Some(device)) = (holders.contains(&gone), others.first()) {
            tasks.push(Task {
                at: Time::ZERO,
                packets,
                device: *device,
                holders: holders.iter().copied().filter(|it| *it != gone).collect(),
            });
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use outpour_sim::packets::tasks::Sizes;

    use super::*;

    #[test]
    fn what_is_fetched_was_at_the_site_that_is_gone() {
        let sizes = Sizes::fixed(10).unwrap();
        for seed in 0..10 {
            let tasks = moved(18, &sizes, seed);
            // 5 of 18 sites have each of 300 objects.
            assert!((50..120).contains(&tasks.len()), "{}", tasks.len());
            for task in tasks {
                assert_eq!(task.holders.len(), 4);
                assert!(!task.holders.contains(&task.device));
            }
        }
    }

    #[test]
    fn the_papers_links_are_two_more_with_its_delays() {
        let text = as_the_paper_says(&ring(18));
        // A ring has 2-3 already.
        assert_eq!(text.lines().count(), 1 + 18 + 1);
        assert!(
            text.contains("0,1,1\n") && text.contains("4,5,10\n") && text.contains("14,17,1\n")
        );
        backbone(&text, "ring").unwrap();
    }
}
