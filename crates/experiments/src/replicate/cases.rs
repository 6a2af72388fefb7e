//! Every experiment: what the paper finds, and what is set up to see it here.

use std::fmt::Write;
use std::time::Duration;

use outpour_controller::{Config, Method, read_jobs};
use outpour_core::Separation;
use outpour_core::network::Network;
use outpour_sim::replicate::{ReplicateConfig, System};

use super::{Case, Entry, Rows, daily, day, drawn, loops, shared};
use crate::ExperimentError;
use crate::sweep::PlotOf;

const TIMES: &[&str] = &["finish_s", "limit_s", "ratio"];
const RATIO: &str = "time / least time";

/// Every experiment, in the order of the paper.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "figure1",
        about: "one file to two other sites, by direct copies and over both ways",
        setup: "three sites with one server each, every link 1 GB/s, 3 GB in blocks of 1 GB from one \
                to the two others; cycles of half a second.",
        paper: (
            "§1, figure 1",
            "3 s by direct copies, 2 s with blocks of 1 GB over both ways. The limit is 1.5 s.",
        ),
        why: "The link between the destinations is idle until the first block is there, so whole \
              blocks take 2 s; the controller is told of it at the end of a cycle.",
        columns: TIMES,
        axis: "",
        plots: &[PlotOf::Bars("finish_s", "seconds")],
        timed: false,
        rows: Rows::Simulated(figure1),
    },
    Entry {
        name: "figure2a",
        about: "to how many sites transfers go",
        setup: "1,265 transfers as `outpour-lab jobs` draws them, between 30 sites.",
        paper: (
            "§2.1, figure 2a",
            "90 % of the transfers go to at least 60 % of the sites, 70 % to over 80 %.",
        ),
        why: "It is drawn from these two points, with straight lines between them, from 2 sites up to \
              all but the source.",
        columns: &["at_least_60_percent", "over_80_percent"],
        axis: "",
        plots: &[PlotOf::Values {
            curve: "sites",
            of: "percent of the transfers",
            x: "percent of the sites, at most",
            ratios: false,
        }],
        timed: false,
        rows: Rows::Drawn(drawn::destinations),
    },
    Entry {
        name: "figure2b",
        about: "how large transfers are",
        setup: "the same transfers.",
        paper: (
            "§2.1, figure 2b",
            "Over 60 % of the transfers have more than 1 TB, 90 % more than 50 GB.",
        ),
        why: "It is drawn from these two points, log-linearly; the ends, 10 GB and 100 TB, are ours.",
        columns: &["over_50_gb_percent", "over_1_tb_percent"],
        axis: "",
        plots: &[PlotOf::Values {
            curve: "sizes",
            of: "percent of the transfers",
            x: "GB, at most",
            ratios: true,
        }],
        timed: false,
        rows: Rows::Drawn(drawn::sizes),
    },
    Entry {
        name: "figure3",
        about: "a direct way and one over a server of another site, at the same time",
        setup: "A to C 2 MB/s, A to b 6 MB/s, b to C 3 MB/s; 36 MB in blocks of 6 MB to B and C: the \
                paper's figures in MB instead of GB, with cycles of half a second.",
        paper: (
            "§2.2, figure 3",
            "18 s by direct copies, 13 s by a chain, 9 s over both ways.",
        ),
        why: "The limit, 7.2 s, would need blocks as small as one likes.",
        columns: TIMES,
        axis: "",
        plots: &[PlotOf::Bars("finish_s", "seconds")],
        timed: false,
        rows: Rows::Simulated(figure3),
    },
    Entry {
        name: "figure4",
        about: "bandwidth of the direct way over that of a way over another site",
        setup: "all A, C and servers b of other sites where both ways carry anything: GridLab as \
                measured; the links of a backbone of 18 sites (B4, 2018), all alike; and 30 sites at \
                random places, each joined to its 3 nearest or more by links of 10, 40 or 100 Gbit/s. \
                Of the links of the two others, other traffic leaves from a tenth to all, drawn evenly; \
                routes have the least delay.",
        paper: (
            "§2.2, figure 4",
            "The two differ for more than 95 % of the pairs, which are thus bottleneck-disjoint.",
        ),
        why: "The paper measured its own network. GridLab's is measured, too, with few sites. In the \
              two others nothing but links holds traffic up, so that ways that share the narrowest \
              link are exactly alike; servers that differ would make them differ.",
        columns: &["different_percent", "faster_over_b_percent"],
        axis: "",
        plots: &[PlotOf::Values {
            curve: "ratios",
            of: "percent of the pairs",
            x: "BW(A to C) / BW(A to b to C), at most",
            ratios: true,
        }],
        timed: false,
        rows: Rows::Drawn(drawn::paths),
    },
    Entry {
        name: "servers",
        about: "when each server has its share, and which part came from the origin",
        setup: "10 sites of 100 servers at 20 MB/s, 7 TB from an eleventh of the same kind, blocks of \
                2 MB: a tenth of the paper's 70 TB, as it does not say how many servers there are.",
        paper: (
            "§2.3, figure 5; §6.1.2, figure 9a; §6.3.4, figure 13c",
            "Gingko takes 4.75 times the ideal over 640 servers, and 5 times the median of the \
             controller between ten sites. Nine of ten servers get less than a fifth from the origin.",
        ),
        why: "The paper measured Gingko in use. Here its receivers ask for pieces in random order and \
              share links without loss, as its authors would want it; what is left is what partial \
              views cost. A tenth has to come from the origin on average, as it serves ten sites.",
        columns: &["ratio", "server_median_s", "origin_median", "origin_p90"],
        axis: "",
        plots: &[
            PlotOf::Distribution("servers", "seconds until a server has its share"),
            PlotOf::Distribution("origins", "part of a share that came from the origin"),
        ],
        timed: false,
        rows: Rows::Simulated(servers),
    },
    Entry {
        name: "sizes",
        about: "mean time of a server, and its deviation, for three sizes",
        setup: "the same sites with 20 servers each; 50 GB, 500 GB and 2 TB.",
        paper: (
            "§6.1.2, figure 9b",
            "The controller is faster than Gingko and varies less; the more so, the larger the data.",
        ),
        why: "Small data are over within few cycles, of which the first and the last are not full.",
        columns: &["ratio", "server_mean_s", "server_deviation_s"],
        axis: "GB",
        plots: &[PlotOf::Sweep("server_mean_s", "seconds, mean over servers")],
        timed: false,
        rows: Rows::Simulated(sizes),
    },
    daily::DAILY,
    Entry {
        name: "table3",
        about: "10 TB from one site to 11 of 100 servers at 20 MB/s",
        setup: "blocks of 2 MB, servers of one site share a copy. Each server sends and receives at \
                most 20 MB/s, so one copy takes 83 minutes to leave the source.",
        paper: (
            "§6.1.3, table 3, baseline",
            "Bullet takes 28, Akamai 25, the controller 9.41 minutes: 3.0 and 2.7 times as long. \
             9.41 minutes are below what the set-up allows.",
        ),
        why: "Three layers of equal sites can not do better than 3 times the limit, which is what the \
              paper has for Akamai. Bullet is better here: its pieces are disjoint and all that \
              servers have is known to their peers within seconds.",
        columns: TIMES,
        axis: "",
        plots: &[PlotOf::Bars("ratio", RATIO)],
        timed: false,
        rows: Rows::Simulated(|short| table3(short, 100, 10.0, 20)),
    },
    Entry {
        name: "shards",
        about: "one shard of the servers in place of all",
        setup: "6 TB from one site to 11 of 60 servers at 20 MB/s, in blocks of 2 MB: all servers, and one of 3 equal \
                shards of them, as `outpour sim replicate --shards 3` simulates it.",
        paper: (
            "of no figure",
            "None. This says how far one shard can stand for all.",
        ),
        why: "Servers of one shard cannot help those of another, but each has so many others that it makes little \
              difference. A shard with 10 servers a site takes up to 7 % less time than all.",
        columns: TIMES,
        axis: "shards",
        plots: &[PlotOf::Sweep("ratio", RATIO)],
        timed: false,
        rows: Rows::Simulated(shards),
    },
    Entry {
        name: "table3-large",
        about: "100 TB from one site to 11 of 1,000 servers at 20 MB/s",
        setup: "as the first, ten times as large in all. The controller has all 11,000 servers and 5 x 10^7 blocks; of the \
                others, and of the controller once more, one of 10 equal shards is simulated, see `shards`.",
        paper: (
            "§6.1.3, table 3, large scale",
            "Bullet 82, Akamai 87, the controller 20.33 minutes: 4.0 and 4.3 times as long.",
        ),
        why: "Nothing but the numbers of servers and blocks is larger, so ratios stay. All servers under the controller take \
              the simulator 40 minutes on one core and 7.1 GB (`outpour sim replicate` with the same network and job); of the \
              decisions half take up to 0.38 s, and the longest takes 4.9 s, more than a cycle of 3 s. Simulated time does not count them.",
        columns: TIMES,
        axis: "",
        plots: &[PlotOf::Bars("ratio", RATIO)],
        timed: false,
        rows: Rows::Simulated(table3_large),
    },
    Entry {
        name: "table3-slow",
        about: "10 TB from one site to 11 of 100 servers at 5 MB/s",
        setup: "as the first, with servers a quarter as fast.",
        paper: (
            "§6.1.3, table 3, rate limit",
            "Bullet 171, Akamai 138, the controller 38.25 minutes: 4.5 and 3.6 times as long.",
        ),
        why: "As in the first set-up; cycles are shorter against the whole.",
        columns: TIMES,
        axis: "",
        plots: &[PlotOf::Bars("ratio", RATIO)],
        timed: false,
        rows: Rows::Simulated(|short| table3(short, 100, 10.0, 5)),
    },
    Entry {
        name: "decisions",
        about: "how long a decision takes, over the number of blocks",
        setup: "one job from one site to 9 others, 100 servers each at 20 MB/s, until it is complete; \
                on one core, nothing beside it.",
        paper: (
            "§6.3.1, figure 11a",
            "800 ms with 10^6 blocks, 300 ms with 3 x 10^5.",
        ),
        why: "The work of most cycles grows with what is moved in them and little with what is pending, so that \
              the median stays far below the paper's. That of the longest grows with what is pending.",
        columns: &["decision_median_s", "decision_max_s", "ratio"],
        axis: "blocks",
        plots: &[PlotOf::Sweep("decision_median_s", "seconds, median")],
        timed: true,
        rows: Rows::Simulated(decisions),
    },
    loops::LOOPS,
    day::SEPARATION,
    shared::SHARED,
    day::FAULTS,
    Entry {
        name: "blocks",
        about: "blocks of 2 and of 64 MB",
        setup: "the controller, from one site to 10 others, 20 servers each at 20 MB/s.",
        paper: (
            "§6.3.3, figure 12b",
            "With blocks of 2 MB completion is 1.5 to 2 times as fast as with 64 MB.",
        ),
        why: "A block of 64 MB takes longer than a cycle, so less can be passed on; the larger the \
              data, the less that counts.",
        columns: &["finish_s", "ratio"],
        axis: "GB",
        plots: &[PlotOf::Sweep("ratio", RATIO)],
        timed: false,
        rows: Rows::Simulated(blocks),
    },
    Entry {
        name: "cycles",
        about: "the length of a cycle",
        setup: "the controller, 200 GB from one site to 10 others, 20 servers each at 20 MB/s.",
        paper: (
            "§6.3.3, figure 12c",
            "The shorter, the faster, from 95 s down to 3 s; below there is little to gain.",
        ),
        why: "A simulated cycle costs neither reports nor connections, so that nothing is lost by \
              short ones.",
        columns: &["finish_s", "ratio"],
        axis: "seconds",
        plots: &[PlotOf::Sweep("ratio", RATIO)],
        timed: false,
        rows: Rows::Simulated(cycles),
    },
    Entry {
        name: "routing",
        about: "prices against the linear program, over the number of blocks",
        setup: "two sites of 4 servers at 20 MB/s, blocks of 2 MB from one to the other; on one core, \
                nothing beside it.",
        paper: (
            "§6.3.4, figures 13a and 13b",
            "Decisions stay below 25 ms, where a linear program of all blocks takes 4 s with 4,000; \
             completion is near that of the program.",
        ),
        why: "Our program has a variable for each pair of servers and not for each block, so that it \
              stays small. With so few it takes no longer than the prices; most of a decision of a \
              tenth of a millisecond is neither.",
        columns: &["ratio", "decision_median_ms", "decision_max_ms"],
        axis: "blocks",
        plots: &[
            PlotOf::Sweep("decision_median_ms", "ms, median"),
            PlotOf::Sweep("ratio", RATIO),
        ],
        timed: true,
        rows: Rows::Simulated(routing),
    },
    Entry {
        name: "relays",
        about: "sites that only pass on what another gets",
        setup: "40 GB from one site to another, directly and by way of none to four others, of 20 servers at 20 MB/s each, in \
                blocks of 2 MB; links carry 100 MB/s. What the servers of a site send together is four times that, so no more \
                than four ways can be filled.",
        paper: (
            "of no figure",
            "None. Sites that get a copy pass blocks on in the paper (type II); here also those that get none.",
        ),
        why: "What a relay gets first is passed on a cycle later, so that up to two cycles, 6 s, come to the least time.",
        columns: TIMES,
        axis: "ways",
        plots: &[
            PlotOf::Sweep("finish_s", "seconds"),
            PlotOf::Sweep("ratio", RATIO),
        ],
        timed: false,
        rows: Rows::Simulated(relays),
    },
];

/// Sites `a`, `b` and so on, all alike.
pub(super) fn sites(count: usize, servers: u32, mb_per_s: u32) -> String {
    let mut text = String::new();
    for site in names(count) {
        let _ = write!(
            text,
            "[[cluster]]\nname = \"{site}\"\nnodes = {servers}\nnode_out = \"{mb_per_s} MB/s\"\n\
             node_in = \"{mb_per_s} MB/s\"\n"
        );
    }
    text
}

pub(super) fn names(count: usize) -> impl Iterator<Item = char> {
    ('a'..='z').take(count)
}

/// One object from the first site to all others.
pub(super) fn to_all(count: usize, gb: f64, block: &str) -> String {
    let to: Vec<String> = names(count)
        .skip(1)
        .map(|site| format!("\"{site}\""))
        .collect();
    format!(
        "[[job]]\nname = \"data\"\nsize = \"{gb} GB\"\nblock = \"{block}\"\nfrom = [\"a\"]\n\
         sites = [{}]\n",
        to.join(", ")
    )
}

pub(super) fn config(
    network: &str,
    jobs: &str,
    system: System,
) -> Result<ReplicateConfig, ExperimentError> {
    let network = Network::from_toml(network, "network")?;
    let read = read_jobs(jobs, "jobs", &network);
    let read = read.map_err(|error| ExperimentError::Setup(error.to_string()))?;
    if let Some(refused) = read.refused.first() {
        return Err(ExperimentError::Setup(refused.to_string()));
    }
    Ok(ReplicateConfig {
        jobs: read.jobs,
        network,
        controller: Config {
            separation: Separation::Threshold { percent: 100.0 },
            ..Config::default()
        },
        system,
        seed: 1,
        script: None,
        shards: 1,
    })
}

/// A case for each of some systems.
pub(super) fn each(
    network: &str,
    jobs: &str,
    at: Option<f64>,
    systems: &[System],
) -> Result<Vec<Case>, ExperimentError> {
    let case = |system: &System| {
        Ok(Case {
            series: system.name().to_owned(),
            at,
            config: config(network, jobs, *system)?,
        })
    };
    systems.iter().map(case).collect()
}

fn figure1(_: bool) -> Result<Vec<Case>, ExperimentError> {
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"1 GB/s\"\n";
    let network = sites(3, 1, 10_000) + link;
    let jobs = to_all(3, 3.0, "1 GB");
    let mut cases = each(&network, &jobs, None, &[System::Direct, System::Central])?;
    hasten(&mut cases);
    Ok(cases)
}

fn figure3(_: bool) -> Result<Vec<Case>, ExperimentError> {
    let link = |from, to, rate| {
        format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate} MB/s\"\n")
    };
    let links = [("a", "c", 2), ("a", "b", 6), ("b", "c", 3)];
    let links = links.map(|(from, to, rate)| link(from, to, rate)).concat();
    let network = sites(3, 1, 1_000) + &links;
    let jobs = to_all(3, 0.036, "6 MB");
    let systems = [System::Direct, System::Chain, System::Central];
    let mut cases = each(&network, &jobs, None, &systems)?;
    hasten(&mut cases);
    Ok(cases)
}

/// Examples of a few seconds need short cycles.
fn hasten(cases: &mut [Case]) {
    for case in cases {
        case.config.controller.cycle = Duration::from_millis(500);
    }
}

fn servers(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let (count, gb) = if short { (10, 40.0) } else { (100, 7_000.0) };
    let network = sites(11, count, 20);
    let jobs = to_all(11, gb, "2 MB");
    each(&network, &jobs, None, &[System::Central, System::Gingko])
}

fn sizes(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let network = sites(11, if short { 4 } else { 20 }, 20);
    let all: &[f64] = if short {
        &[8.0]
    } else {
        &[50.0, 500.0, 2_000.0]
    };
    let mut cases = Vec::new();
    for gb in all {
        let jobs = to_all(11, *gb, "2 MB");
        let systems = [System::Central, System::Gingko];
        cases.extend(each(&network, &jobs, Some(*gb), &systems)?);
    }
    Ok(cases)
}

fn table3(short: bool, servers: u32, tb: f64, mb_per_s: u32) -> Result<Vec<Case>, ExperimentError> {
    let scale = if short { 20 } else { 1 };
    let gb = tb * 1e3 / f64::from(scale) / if short { 20.0 } else { 1.0 };
    let network = sites(12, servers / scale, mb_per_s);
    let jobs = to_all(12, gb, "2 MB");
    each(&network, &jobs, None, &System::ALL)
}

fn table3_large(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let mut cases = table3(short, 1000, 100.0, 20)?;
    let whole = cases
        .iter()
        .find(|case| case.config.system == System::Central);
    let whole = whole.map(|case| Case {
        series: "central, all servers".to_owned(),
        at: None,
        config: case.config.clone(),
    });
    for case in &mut cases {
        case.config = one_of(&case.config, 10)?;
    }
    cases.splice(0..0, whole);
    Ok(cases)
}

fn shards(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let (servers, gb) = if short { (6, 60.0) } else { (60, 6_000.0) };
    let network = sites(12, servers, 20);
    let whole = each(&network, &to_all(12, gb, "2 MB"), None, &System::ALL)?;
    let mut cases = Vec::new();
    for case in whole {
        for shards in [1, 3] {
            cases.push(Case {
                series: case.series.clone(),
                at: Some(f64::from(shards)),
                config: one_of(&case.config, shards)?,
            });
        }
    }
    Ok(cases)
}

fn one_of(config: &ReplicateConfig, shards: u32) -> Result<ReplicateConfig, ExperimentError> {
    let one = config.clone().shard(shards);
    one.map_err(|error| ExperimentError::Setup(error.to_string()))
}

fn decisions(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let network = sites(10, 100, 20);
    let all: &[f64] = if short {
        &[1e4]
    } else {
        &[1e4, 1e5, 3e5, 1e6, 1e7]
    };
    let mut cases = Vec::new();
    for blocks in all {
        let jobs = to_all(10, blocks * 2e-3, "2 MB");
        cases.extend(each(&network, &jobs, Some(*blocks), &[System::Central])?);
    }
    Ok(cases)
}

fn blocks(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let network = sites(11, if short { 4 } else { 20 }, 20);
    let all: &[f64] = if short {
        &[16.0]
    } else {
        &[50.0, 200.0, 800.0]
    };
    let mut cases = Vec::new();
    for gb in all {
        for block in ["2 MB", "64 MB"] {
            let jobs = to_all(11, *gb, block);
            cases.push(Case {
                series: format!("blocks of {block}"),
                at: Some(*gb),
                config: config(&network, &jobs, System::Central)?,
            });
        }
    }
    Ok(cases)
}

fn cycles(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let network = sites(11, if short { 4 } else { 20 }, 20);
    let jobs = to_all(11, if short { 16.0 } else { 200.0 }, "2 MB");
    let all: &[f64] = if short {
        &[3.0, 30.0]
    } else {
        &[0.5, 1.0, 3.0, 10.0, 30.0, 95.0]
    };
    let case = |seconds: &f64| {
        let mut config = config(&network, &jobs, System::Central)?;
        config.controller.cycle = Duration::from_secs_f64(*seconds);
        Ok(Case {
            series: System::Central.name().to_owned(),
            at: Some(*seconds),
            config,
        })
    };
    all.iter().map(case).collect()
}

fn routing(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let network = sites(2, 4, 20);
    let all: &[f64] = if short {
        &[40.0]
    } else {
        &[4.0, 40.0, 400.0, 1_000.0, 2_000.0, 4_000.0]
    };
    let mut cases = Vec::new();
    for blocks in all {
        for (series, method) in [
            ("prices", Method::Prices),
            ("linear program", Method::Program),
        ] {
            let jobs = to_all(2, blocks * 2e-3, "2 MB");
            let mut config = config(&network, &jobs, System::Central)?;
            config.controller.method = method;
            cases.push(Case {
                series: series.to_owned(),
                at: Some(*blocks),
                config,
            });
        }
    }
    Ok(cases)
}

fn relays(short: bool) -> Result<Vec<Case>, ExperimentError> {
    let gb = if short { 4.0 } else { 40.0 };
    let link = "[[link]]\nfrom = \"*\"\nto = \"*\"\nrate = \"100 MB/s\"\n";
    let network = sites(6, 20, 20) + link;
    let names = ["c", "d", "e", "f"].map(|name| format!("\"{name}\""));
    let case = |count: usize| {
        let by = names[..count].join(", ");
        let jobs = to_all(2, gb, "2 MB") + &format!("relays = [{by}]\n");
        Ok(Case {
            series: System::Central.name().to_owned(),
            at: Some(1.0 + count as f64),
            config: config(&network, &jobs, System::Central)?,
        })
    };
    (0..=names.len()).map(case).collect()
}
