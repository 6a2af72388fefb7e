//! Tasks that fetch objects from several sources, under every scheme [PPUSH §V-B].

use std::path::Path;
use std::time::Duration;

use outpour_sim::packets::scdp::THRESHOLDS;
use outpour_sim::packets::tasks::{
    Instance, Links, PACKET_BYTES, Scheme, Setting, Shape, Sizes, Sources, Workload, sizes as table,
};

use super::jobs::{Job, Part};
use super::{BenchPushOptions, Entry, Input, PAPER_INSTANCES, PAPER_TASKS};
use crate::ExperimentError;
use crate::sweep::{Figure, PlotOf, Row, distribution, sorted};

/// What a link of a host carries, and between leaf and spine, packets per second.
const LINK: f64 = 2e5;
const FABRIC: f64 = 4.0;
/// How long a packet is on a link, which the paper does not say.
const DELAY: Duration = Duration::from_micros(20);
/// A hundred hosts as the paper has them; it does not say how many leaves and spines there are.
const OBS: Shape = Shape::OneBigSwitch { hosts: 100 };
const LEAF_SPINE: Shape = Shape::LeafSpine {
    leaves: 10,
    hosts: 10,
    spines: 4,
};
const FAT_TREE: Shape = Shape::FatTree { ports: 8 };
const PUSH_0_0: &str = "push-0-0";

/// One point of a sweep under one scheme.
#[derive(Clone, Debug)]
struct Case {
    /// What it is compared as.
    series: String,
    at: Option<f64>,
    scheme: Scheme,
    shape: Shape,
    sources: Sources,
    fanout: u32,
    load: f64,
    link: f64,
    delay: Duration,
    sizes: Sizes,
    tasks: u32,
    initial_window: Option<f64>,
    /// What the paper's thresholds of SCDP are multiplied by.
    thresholds_times: u64,
    /// With how many packets push probes before it takes a window for lost, if not as usual.
    probes: Option<u32>,
}

impl Case {
    /// The paper's setting, in what nothing else is said.
    fn usual(options: &BenchPushOptions, range: (f64, f64)) -> Result<Self, ExperimentError> {
        let scheme = Scheme::ALL[0];
        Ok(Self {
            series: scheme.name().to_owned(),
            at: None,
            scheme,
            shape: OBS,
            sources: Sources::Pool(10),
            fanout: 3,
            load: 0.9,
            link: LINK,
            delay: DELAY,
            sizes: sizes(options, range)?,
            tasks: options.tasks,
            initial_window: None,
            thresholds_times: 1,
            probes: None,
        })
    }

    fn play(&self, seed: u64) -> Result<Instance, String> {
        let fabric = match self.shape {
            Shape::LeafSpine { .. } => FABRIC,
            _ => 1.0,
        };
        let links = Links {
            packets_per_s: self.link,
            fabric_packets_per_s: self.link * fabric,
            delay: self.delay,
            packet_bytes: PACKET_BYTES,
        };
        let topology = self.shape.topology(&links).map_err(|it| it.to_string())?;
        let usual = Setting::new(topology, self.scheme);
        let setting = Setting {
            fanout: self.fanout,
            initial_window: self.initial_window,
            scdp_thresholds: THRESHOLDS.map(|it| it * self.thresholds_times),
            probes: self.probes.unwrap_or(usual.probes),
            ..usual
        };
        let workload = Workload {
            sources: self.sources,
            load: self.load,
            sizes: self.sizes.clone(),
            tasks: self.tasks,
        };
        let played = setting.instance(&workload, seed);
        played.map_err(|error| error.to_string())
    }
}

/// The sizes of the options, moved to a range.
pub(super) fn sizes(
    options: &BenchPushOptions,
    range: (f64, f64),
) -> Result<Sizes, ExperimentError> {
    Ok(read(options)?.scaled(range).times(options.size_factor))
}

/// The table of sizes; a short one of its own if all is to be small.
fn read(options: &BenchPushOptions) -> Result<Sizes, ExperimentError> {
    let path = &options.sizes;
    let parsed = match options.short {
        true => Sizes::parse("1 0.0\n10 0.9\n100 1.0\n", "short"),
        false => Sizes::parse(
            &text(path, table::TEXT_BYTES_MAX)?,
            &path.display().to_string(),
        ),
    };
    parsed.map_err(|error| ExperimentError::Setup(error.to_string()))
}

/// A file of at most so many bytes.
pub(super) fn text(path: &Path, bytes_max: usize) -> Result<String, ExperimentError> {
    let fail = |why: &dyn std::fmt::Display| ExperimentError::file(path, why);
    let size = std::fs::metadata(path).map_err(|e| fail(&e))?.len();
    if size > bytes_max as u64 {
        return Err(fail(&"it is too large"));
    }
    std::fs::read_to_string(path).map_err(|e| fail(&e))
}

fn range(options: &BenchPushOptions) -> (f64, f64) {
    match options.short {
        true => (20.0, 200.0),
        false => table::PAPER_RANGE,
    }
}

/// Each case with every seed.
fn jobs(experiment: &str, options: &BenchPushOptions, cases: Vec<Case>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for seed in options.instances(PAPER_INSTANCES) {
        for case in &cases {
            let at = case.at.map(|at| format!(".{at}")).unwrap_or_default();
            let name = format!(
                "{}{at}.{seed}",
                case.series.replace(", ", "-").replace(' ', "-")
            );
            let owned = case.clone();
            jobs.push(Job::new(
                experiment,
                &name,
                format!("{case:?}"),
                move || {
                    let instance = owned.play(seed)?;
                    Ok(vec![part(&owned.series, owned.at, &instance)])
                },
            ));
        }
    }
    jobs
}

pub(super) fn part(series: &str, at: Option<f64>, instance: &Instance) -> Part {
    let shares = sorted(instance.shares.iter().map(|it| 100.0 * it));
    let large = |least: f64| {
        let above = shares.iter().filter(|it| **it >= least).count();
        100.0 * above as f64 / shares.len().max(1) as f64
    };
    Part::new(series, at)
        .seed(instance.seed)
        .figure("average_tct_s", instance.average_tct_s)
        .figure("normalized", instance.normalized_average_tct)
        .figure("timeouts", instance.timeouts as f64)
        .figure("drops", instance.drops as f64)
        .figure("trimmed", instance.trimmed as f64)
        .figure("unfinished", instance.failures.len() as f64)
        .figure("shares_from_40", large(40.0))
        .figure("shares_from_60", large(60.0))
        .curve("shares", distribution(&shares))
}

/// How much shorter means are than those of equal shares with equal weights, at the same place.
pub(super) fn factors(rows: &mut [Row], parts: &[Part]) {
    factors_over(rows, parts, |_| PUSH_0_0.to_owned());
}

/// How much shorter the mean of each instance is than that of another scheme with the same tasks: so what an
/// instance does to both is not in the interval. None where a task did not end under one of the two, as the mean
/// of the others would make it look better.
pub(super) fn factors_over(rows: &mut [Row], parts: &[Part], base: impl Fn(&str) -> String) {
    for row in rows {
        let base = base(&row.series);
        let of = |series: &str| -> Vec<&Part> {
            let is_of = |part: &&Part| part.series == series && part.at == row.at;
            parts.iter().filter(is_of).collect()
        };
        let (these, others) = (of(&row.series), of(&base));
        let figure = |part: &Part, name: &str| part.figures.get(name).copied();
        let is_complete = |part: &&Part| figure(part, "unfinished") == Some(0.0);
        if !these.iter().chain(&others).all(is_complete) {
            continue;
        }
        let pairs = these.iter().filter_map(|part| {
            let other = others.iter().find(|other| other.seed == part.seed)?;
            Some(figure(other, "average_tct_s")? / figure(part, "average_tct_s")?)
        });
        let factor = Figure::of(pairs.filter(|it| it.is_finite()));
        if factor.runs > 0 {
            row.figures.insert("factor".to_owned(), factor);
        }
    }
}

/// The same, and beside it what the paper says it is.
fn factors_beside(rows: &mut [Row], parts: &[Part], paper: &[(&str, f64)]) {
    factors(rows, parts);
    for row in rows {
        let said = paper.iter().filter(|(scheme, _)| row.series == *scheme);
        let said = Figure::of(said.map(|(_, factor)| *factor));
        if said.runs > 0 {
            row.figures.insert("paper_factor".to_owned(), said);
        }
    }
}

/// The schemes at each point, where each is a change of the usual.
fn sweep(
    experiment: &str,
    options: &BenchPushOptions,
    schemes: &[Scheme],
    points: &[f64],
    change: impl Fn(&mut Case, f64),
) -> Result<Vec<Job>, ExperimentError> {
    let usual = Case::usual(options, range(options))?;
    let points = if options.short { &points[..1] } else { points };
    let mut cases = Vec::new();
    for scheme in schemes {
        for &at in points {
            let mut case = Case {
                series: scheme.name().to_owned(),
                scheme: *scheme,
                at: Some(at),
                ..usual.clone()
            };
            change(&mut case, at);
            cases.push(case);
        }
    }
    Ok(jobs(experiment, options, cases))
}

/// Without those whose times are far above all others.
const MAIN: [Scheme; 5] = [
    Scheme::ALL[0],
    Scheme::ALL[1],
    Scheme::ALL[2],
    Scheme::ALL[3],
    Scheme::ALL[4],
];

const SETUP: &str = "the paper's setting: 10 of 100 hosts, drawn, have all objects, links carry 2 x 10^5 packets/s, queues 100 packets and \
    marks from 30, tasks arrive at random at a load of 0.9 of the sources' links, sizes from the websearch distribution moved to [2, 200] x 1024 \
    packets, 3 sources. The paper does not say how long links are, here 20 us each, nor how flows begin: windows begin with 1 packet under push, and grow by one per round trip; with 10 under DCTCP and Reno and 4 under DCCP, and double until the first mark or loss; \
    under SCDP with what a round trip carries from the farthest source, which stays on its way. Timers are 10 ms at least, 100 ms before there is a sample and 250 ms at most, under every scheme but SCDP, where ports tell what they cut and a receiver asks again after a silence of ten times the least. Push rounds a window up as often as its part of a packet says, TCP and DCCP cut that off. Means over instances; `factor` is the time of push-0-0 over that of the scheme, instance by instance.";
const COLUMNS: &[&str] = &[
    "normalized",
    "average_tct_s",
    "factor",
    "timeouts",
    "drops",
    "trimmed",
    "unfinished",
];

/// What the three networks of figure 8 share.
const fn figure8(
    name: &'static str,
    about: &'static str,
    says: &'static str,
    why: &'static str,
    jobs: fn(&BenchPushOptions) -> Result<Vec<Job>, ExperimentError>,
    finish: fn(&mut [Row], &[Part]),
) -> Entry {
    Entry {
        name,
        about,
        setup: SETUP,
        paper: ("§V-B, figures 8 and 9", says),
        why,
        series: "scheme",
        columns: &[
            "normalized",
            "average_tct_s",
            "factor",
            "paper_factor",
            "timeouts",
            "drops",
            "trimmed",
            "unfinished",
            "shares_from_40",
            "shares_from_60",
        ],
        axis: "",
        plots: &[
            PlotOf::Bars("normalized", "mean time / that of the mean size alone"),
            PlotOf::Values {
                curve: "shares",
                of: "percent of the flows",
                x: "percent of their task, at most",
                ratios: false,
            },
        ],
        input: Input::Tasks,
        jobs,
        finish,
    }
}

pub(super) const FIGURE8_OBS: Entry = figure8(
    "figure8-obs",
    "every scheme on One Big Switch of 100 hosts",
    "Over push-0-0 push-1-1 is 1.586 times as fast, push-1-0 1.495 and push-0-1 1.329; push-0-0 is like DCTCP, DCCP and Reno are far \
     worse. Under push-1-0 20 % of the flows carry 40 % of their task and 3 % carry 60 %, under push-1-1 8 % carry 60 %.",
    "`paper_factor` is the paper's. The factor grows with how much tasks overlap (`figure11a`), which differs between instances; its interval says by how much. A receiver asks sources for parts in proportion to what they delivered before, block by block. \
     SCDP has rateless symbols and no weights, as push-1-0. DCCP and Reno are not far worse, because all schemes have the timers of push here; \
     with a first timer of 1 s that doubles up to 60 s, as TCP's, they are (`outpour sim push --rto-initial 1s --rto-max 60s`).",
    |options| networks("figure8-obs", OBS, options),
    |rows, parts| {
        let paper = [
            ("push-0-1", 1.329),
            ("push-1-0", 1.495),
            ("push-1-1", 1.586),
        ];
        factors_beside(rows, parts, &paper);
    },
);

pub(super) const FIGURE8_LEAF_SPINE: Entry = figure8(
    "figure8-leaf-spine",
    "every scheme on a leaf-spine of 100 hosts (10 leaves, 4 spines, fabric 8 x 10^5)",
    "push-1-1 is 1.581 times as fast as push-0-0.",
    "`paper_factor` is the paper's, which does not say how many leaves and spines it has.",
    |options| networks("figure8-leaf-spine", LEAF_SPINE, options),
    |rows, parts| factors_beside(rows, parts, &[("push-1-1", 1.581)]),
);

pub(super) const FIGURE8_FAT_TREE: Entry = figure8(
    "figure8-fat-tree",
    "every scheme on a fat tree of 128 hosts, one source in each pod",
    "push-1-1 is 1.453 times as fast as push-0-0.",
    "`paper_factor` is the paper's. Eight sources, one in each pod, serve 120 hosts.",
    |options| networks("figure8-fat-tree", FAT_TREE, options),
    |rows, parts| factors_beside(rows, parts, &[("push-1-1", 1.453)]),
);

fn networks(
    experiment: &str,
    shape: Shape,
    options: &BenchPushOptions,
) -> Result<Vec<Job>, ExperimentError> {
    let usual = Case::usual(options, range(options))?;
    let sources = match shape {
        Shape::FatTree { .. } => Sources::OnePer(shape.group()),
        _ => usual.sources,
    };
    let cases = Scheme::ALL.map(|scheme| Case {
        series: scheme.name().to_owned(),
        scheme,
        shape,
        sources,
        ..usual.clone()
    });
    Ok(jobs(experiment, options, cases.to_vec()))
}

const fn swept(
    name: &'static str,
    about: &'static str,
    paper: (&'static str, &'static str),
    why: &'static str,
    axis: &'static str,
    jobs: fn(&BenchPushOptions) -> Result<Vec<Job>, ExperimentError>,
) -> Entry {
    Entry {
        name,
        about,
        setup: SETUP,
        paper,
        why,
        series: "scheme",
        columns: COLUMNS,
        axis,
        plots: &[PlotOf::Series(
            "normalized",
            "mean time / that of the mean size alone",
        )],
        input: Input::Tasks,
        jobs,
        finish: factors,
    }
}

pub(super) const FIGURE10: Entry = swept(
    "figure10",
    "how many sources a task has",
    (
        "§V-B, figure 10",
        "Times shrink with the fan-out, from 5 on hardly; push-1-1 is better than DCTCP with one source as well.",
    ),
    "It does not. Tasks, sizes and devices are the same at every fan-out, and the sources of a smaller one are some of those of a larger one.",
    "sources",
    |options| {
        let points: Vec<f64> = (1..=9).map(f64::from).collect();
        sweep("figure10", options, &MAIN, &points, |case, at| {
            case.fanout = at as u32
        })
    },
);

pub(super) const FIGURE11A: Entry = swept(
    "figure11a",
    "the load",
    (
        "§V-B, figure 11a",
        "Times grow with the load under every scheme, least under those with weights or rateless symbols; the gain of push-1-1 exceeds 1.6.",
    ),
    "It does not: the factor of push-1-1 is 1.61 +- 0.24 at 0.9 and 1.68 +- 0.21 at 0.99. Draws are the same at every load, and only closer to each other.",
    "load",
    |options| {
        sweep(
            "figure11a",
            options,
            &Scheme::ALL,
            &[0.5, 0.6, 0.7, 0.8, 0.9, 0.99],
            |case, at| case.load = at,
        )
    },
);

pub(super) const FIGURE11B: Entry = swept(
    "figure11b",
    "the size of objects",
    (
        "§V-B, figure 11b",
        "Normalized times under push-1-1 and push-1-0 stay; schemes with equal shares get slightly better.",
    ),
    "It does not: from once to six times the size the means of push-1-1 and push-1-0 fall by 2 % and 1 %, that of push-0-1 by 5 %.",
    "times the size",
    |options| {
        sweep(
            "figure11b",
            options,
            &MAIN,
            &[1.0, 2.0, 4.0, 6.0],
            |case, at| {
                case.sizes = case.sizes.clone().times(at);
            },
        )
    },
);

pub(super) const FIGURE11C: Entry = swept(
    "figure11c",
    "the number of hosts, of which a tenth are sources",
    (
        "§V-B, figure 11c",
        "Normalized times shrink with the scale, those of push-1-1 least, as they are near 1 already.",
    ),
    "It does not.",
    "hosts",
    |options| {
        sweep(
            "figure11c",
            options,
            &MAIN,
            &[50.0, 100.0, 200.0, 400.0],
            |case, at| {
                case.shape = Shape::OneBigSwitch { hosts: at as u32 };
                case.sources = Sources::Pool(at as u32 / 10);
            },
        )
    },
);

pub(super) const FIGURE11D: Entry = swept(
    "figure11d",
    "the rate of links",
    (
        "§V-B, figure 11d",
        "Normalized times under push-1-1 stay with faster links, those of the others grow.",
    ),
    "Normalized times grow under push-1-1 as well, to 1.53 from 1.19 at eight times the rate: the round trip stays, so there a window of one packet has eight times as far to grow. \
     Under DCTCP, whose tasks wait longer for each other, that weighs less: 2.06 from 1.83.",
    "times the rate",
    |options| {
        sweep(
            "figure11d",
            options,
            &MAIN,
            &[1.0, 2.0, 4.0, 8.0],
            |case, at| case.link = LINK * at,
        )
    },
);

pub(super) const FIGURE12: Entry = Entry {
    setup: "as in `figure8-obs`, but each task has sources of its own, drawn from all hosts, and there are 3.5 times as many tasks, 700 in the paper. \
            `no probes`: when the timer runs out, all in flight is taken for lost at once, as under DCTCP; otherwise two packets probe first. The `factor` of these rows is over push-0-0 without probes. All timers are the same.",
    finish: |rows, parts| {
        factors_over(rows, parts, |series| {
            let suffix = match series.ends_with(WITHOUT_PROBES) {
                true => WITHOUT_PROBES,
                false => "",
            };
            format!("{PUSH_0_0}{suffix}")
        });
    },
    plots: &[
        PlotOf::Series("normalized", "mean time / that of the mean size alone"),
        PlotOf::Series("timeouts", "timeouts in an instance"),
    ],
    ..swept(
        "figure12",
        "sources drawn for each task",
        (
            "§V-B, figures 12a to 12c",
            "push-1-1 is best, and push-0-1 better than push-1-0; above 3 sources timeouts increase and times with them.",
        ),
        "The more sources send to one receiver, the more often a window of a packet or two is lost whole. Under DCTCP such a loss waits for the timer; push probes before it takes a window for lost. That is not why its times grow less: without probes it has with nine sources seven to a hundred times the timeouts, and push-1-1 92 where it has none, but as all timers are short it takes as long (rows `no probes`). (0, 1) is ahead of (1, 0) here with one source only; with nine it is 1.43 over (0, 0), and (1, 0) 1.66.",
        "sources",
        figure12,
    )
};

/// What is behind the name of a scheme whose sources do not probe.
const WITHOUT_PROBES: &str = ", no probes";

fn figure12(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let fanouts: &[f64] = match options.short {
        true => &[1.0],
        false => &[1.0, 3.0, 5.0, 7.0, 9.0],
    };
    let usual = Case::usual(options, range(options))?;
    let mut cases = Vec::new();
    for scheme in MAIN {
        let is_push = matches!(scheme, Scheme::Push { .. });
        for probes in [None, Some(0)] {
            let suffix = match probes {
                None => "",
                Some(_) if is_push => WITHOUT_PROBES,
                Some(_) => continue,
            };
            cases.extend(fanouts.iter().map(|&at| Case {
                series: format!("{scheme}{suffix}"),
                scheme,
                at: Some(at),
                fanout: at as u32,
                sources: Sources::Any,
                tasks: usual.tasks * 7 / 2,
                probes,
                ..usual.clone()
            }));
        }
    }
    Ok(jobs("figure12", options, cases))
}

pub(super) const FIGURE13: Entry = Entry {
    setup: "as in `figure8-obs` with sizes moved to [20, 2000] x L packets. `window 4` and `window 16`: flows start with so many packets, 16 being \
            what a link carries in 80 us, a round trip of empty queues; the paper's flows start with one. Where there are rows `thresholds x L`, those of SCDP grow as the \
            objects do, which the paper tried as well; where there are rows `5 us`, links are a quarter as long, so a round trip carries 4 packets. `factor` is the time of SCDP over that \
            of the scheme, instance by instance and over links of the same length: above 1 the scheme is faster.",
    finish: |rows, parts| {
        factors_over(rows, parts, |series| {
            let suffix = match series.ends_with(SHORT) {
                true => SHORT,
                false => "",
            };
            format!("{}{suffix}", Scheme::Scdp)
        });
    },
    plots: &[
        PlotOf::Sweep("normalized", "mean time / that of the mean size alone"),
        PlotOf::Sweep("factor", "time of SCDP / time"),
    ],
    ..swept(
        "figure13",
        "the size of objects over two orders of magnitude, and windows at the start",
        (
            "§V-B, figure 13",
            "SCDP is better for small objects, push-1-0 and push-1-1 from L = 10 on; all get better with L, as start-up weighs less.",
        ),
        "Push-1-1 crosses earlier: SCDP takes 0.92 +- 0.02 of the time of push-1-0 and 0.93 +- 0.02 of that of push-1-1 at L = 1, 0.96 and 0.97 at 3, 0.99 and 1.01 at 5 (+- 0.03), 0.99 and 1.02 at 10 and 1.03 and 1.09 at 100 (+- 0.01 to 0.02). \
         SCDP begins with a bandwidth-delay product in flight and push with one packet, which small objects show most. \
         That start is why curves cross: with a window of 16 at the start SCDP takes 1.13 of the time of push-1-1 at L = 1 and 1.08 at 300; with 4 it is 1.08 at both. \
         Over links of a quarter of the length push-1-1 is behind at L = 1 (0.92 +- 0.02), level at 5 (1.01 +- 0.02) and at 30 ahead with 1.07 +- 0.01.",
        "L",
        figure13,
    )
};

/// What is behind the name of a scheme over links of a quarter of the length.
const SHORT: &str = ", 5 us";

fn figure13(options: &BenchPushOptions) -> Result<Vec<Job>, ExperimentError> {
    let scales: &[f64] = match options.short {
        true => &[1.0],
        false => &[1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 100.0, 300.0],
    };
    let mut cases = Vec::new();
    for &at in scales {
        let usual = Case::usual(options, (20.0 * at, 2000.0 * at))?;
        cases.extend(figure13_at(&usual, at));
    }
    Ok(jobs("figure13", options, cases))
}

/// The cases at one L. What only tells why curves cross is left out far above the crossing, where an instance takes longest.
fn figure13_at(usual: &Case, at: f64) -> Vec<Case> {
    const EQUAL: Scheme = Scheme::ALL[2];
    const FIRST: Scheme = Scheme::ALL[3];
    let case = |scheme: Scheme, suffix: &str| Case {
        series: format!("{scheme}{suffix}"),
        at: Some(at),
        scheme,
        ..usual.clone()
    };
    let from = |scheme: Scheme, window: f64| Case {
        initial_window: Some(window),
        ..case(scheme, &format!(", window {window}"))
    };
    let mut cases = vec![
        case(EQUAL, ""),
        case(FIRST, ""),
        from(FIRST, 4.0),
        from(FIRST, 16.0),
        case(Scheme::Scdp, ""),
        Case {
            thresholds_times: at as u64,
            ..case(Scheme::Scdp, ", thresholds x L")
        },
    ];
    if at <= 30.0 {
        cases.push(from(EQUAL, 16.0));
        cases.extend([EQUAL, FIRST, Scheme::Scdp].map(|scheme| Case {
            delay: DELAY / 4,
            ..case(scheme, SHORT)
        }));
    }
    cases
}

/// What the command says about tasks, where that is not as in the paper, which has so many instances.
pub(super) fn in_words(options: &BenchPushOptions, instances: u64) -> String {
    let mut text = String::new();
    if options.tasks != PAPER_TASKS {
        text = format!("{text} --tasks {}", options.tasks);
    }
    if let Some(fewer) = options.instances.filter(|it| *it != instances) {
        text = format!("{text} --instances {fewer}");
    }
    if options.size_factor != 1.0 {
        text = format!("{text} --size-factor {}", options.size_factor);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::jobs::rows;
    use super::*;

    fn played(series: &str, seed: u64, seconds: f64, unfinished: u32) -> Part {
        Part::new(series, Some(1.0))
            .seed(seed)
            .figure("average_tct_s", seconds)
            .figure("unfinished", f64::from(unfinished))
    }

    #[test]
    fn factors_are_of_instances_with_the_same_tasks() {
        // Twice as fast in each, however much instances differ; in another order, and one without its like.
        let parts = [
            played(PUSH_0_0, 1, 2.0, 0),
            played(PUSH_0_0, 2, 40.0, 0),
            played("scdp", 2, 20.0, 0),
            played("scdp", 1, 1.0, 0),
            played("scdp", 3, 1.0, 0),
        ];
        let mut rows = rows(&parts);
        factors_beside(&mut rows, &parts, &[("scdp", 1.5)]);
        let factor = rows[1].figures["factor"];
        assert_eq!((factor.mean, factor.runs), (2.0, 2));
        assert!(factor.ci95.unwrap() < 1e-9, "{factor:?}");
        assert_eq!(rows[1].mean("paper_factor"), Some(1.5));
        assert_eq!(rows[0].mean("factor"), Some(1.0));
        assert_eq!(rows[0].mean("paper_factor"), None);
    }

    #[test]
    fn what_did_not_end_is_not_compared() {
        let parts = [
            played(PUSH_0_0, 1, 2.0, 0),
            played(PUSH_0_0, 2, 2.0, 0),
            played("scdp", 1, 1.0, 0),
            played("scdp", 2, 1.0, 1),
        ];
        let mut rows = rows(&parts);
        factors(&mut rows, &parts);
        assert_eq!(rows[1].mean("factor"), None);
        assert_eq!(rows[0].mean("factor"), Some(1.0));
    }
}
