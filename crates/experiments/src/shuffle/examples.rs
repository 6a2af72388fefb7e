//! What the paper works out by hand, and its testbed.

use outpour_planner::shuffle::schedule::{
    Decision, Discipline, News, Placed, Placing, RpcOptions, Running, Scheduler, Scheme,
};
use outpour_planner::shuffle::{Coflow, Flow, HostId, Hosts, Share, ShuffleError, place, round};
use outpour_sim::shuffle::{Arrival, Overheads, simulate};

use super::Bench;
use crate::ExperimentError;
use crate::sweep::{Figure, Row};

/// Bytes per second of a Gbit/s, and of what a link of 1 Gbit/s carries of files in the paper.
const GBIT: f64 = 1e9 / 8.0;
const PAYLOAD: f64 = 930e6 / 8.0;
const MB: f64 = 1e6;
/// How often places are drawn.
const DRAWS: u64 = 100;
/// Numbers of hosts of `theorem6`.
const HOSTS: [usize; 5] = [2, 4, 8, 16, 32];

/// One flow for each reducer: from a host, so many bytes.
fn flows(flows: &[(HostId, f64)]) -> Result<Coflow, ShuffleError> {
    let flow = |(mapper, bytes): &(HostId, f64)| {
        vec![Flow {
            mapper: *mapper,
            bytes: *bytes,
        }]
    };
    Coflow::new(flows.iter().map(flow).collect())
}

/// Coflows that arrive together, with places that are known, or none.
#[derive(Clone)]
struct Set {
    hosts: Hosts,
    coflows: Vec<Coflow>,
}

impl Set {
    fn new(
        hosts: Hosts,
        coflows: Vec<Result<Coflow, ShuffleError>>,
    ) -> Result<Self, ExperimentError> {
        let coflows: Result<Vec<Coflow>, ShuffleError> = coflows.into_iter().collect();
        let coflows = coflows.map_err(|error| ExperimentError::Setup(error.to_string()))?;
        Ok(Self { hosts, coflows })
    }

    /// How long each coflow takes.
    fn by(&self, scheduler: &mut dyn Scheduler, places: &[&[HostId]]) -> Result<Vec<f64>, String> {
        let arrivals = self
            .coflows
            .iter()
            .enumerate()
            .map(|(index, coflow)| Arrival {
                recorded: places
                    .get(index)
                    .map_or(Vec::new(), |places| places.to_vec()),
                ..Arrival::new(0.0, coflow.clone())
            });
        let none = Overheads::default();
        let report = simulate(&self.hosts, arrivals, scheduler, &none, |_| {});
        report
            .map(|report| report.ccts_s)
            .map_err(|e| e.to_string())
    }

    fn row(&self, name: &str, scheduler: &mut dyn Scheduler, places: &[&[HostId]]) -> Row {
        match self.by(scheduler, places) {
            Ok(ccts) => row_of(name, &[ccts]),
            Err(error) => Row::failed(name, None, error),
        }
    }

    fn on(&self, name: &str, places: &[&[HostId]], discipline: Discipline) -> Row {
        self.row(
            name,
            &mut Placed::new(Placing::Recorded(1), discipline),
            places,
        )
    }

    fn scheme(&self, scheme: Scheme) -> Row {
        let mut scheduler = scheme.scheduler(RpcOptions::default());
        self.row(scheme.name(), &mut *scheduler, &[])
    }
}

/// A row of the times of coflows in some runs.
fn row_of(name: &str, runs: &[Vec<f64>]) -> Row {
    let mut row = Row::new(name, None);
    let mut figure = |name: &str, of: &dyn Fn(&Vec<f64>) -> f64| {
        let figure = Figure::of(runs.iter().map(of));
        row.figures.insert(name.to_owned(), figure);
    };
    let count = runs.first().map_or(0, Vec::len);
    figure("average_cct_s", &|run| {
        run.iter().sum::<f64>() / count.max(1) as f64
    });
    for (index, name) in ["first_s", "second_s", "third_s"]
        .iter()
        .enumerate()
        .take(count)
    {
        figure(name, &|run| run[index]);
    }
    row
}

pub(super) fn figure1(_: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let hosts = Hosts {
        out: vec![10.0 * GBIT, 0.0, 0.0, 0.0],
        into: vec![0.0, 2.0 * GBIT, GBIT, GBIT],
        slots: vec![0, 9, 9, 9],
    };
    let coflow = |sizes: [f64; 3]| flows(&sizes.map(|size| (0, size * GBIT)));
    let coflows = vec![coflow([1.0, 1.5, 2.0]), coflow([1.5, 2.0, 2.0])];
    let set = Set::new(hosts, coflows)?;
    let (bad, good): ([&[HostId]; 2], [&[HostId]; 2]) =
        ([&[1, 1, 2], &[1, 3, 2]], [&[2, 3, 1], &[2, 1, 1]]);
    Ok(vec![
        set.on(
            "best rates, other places",
            &bad,
            Discipline::SmallestBottleneck,
        ),
        set.on("equal rates, best places", &good, Discipline::Fair),
        set.scheme(Scheme::Rpc),
        set.scheme(Scheme::RpcConserving),
    ])
}

pub(super) fn figure3(_: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let hosts = Hosts {
        out: vec![GBIT, 10.0 * GBIT, 0.0],
        into: vec![0.0, 0.0, 2.0 * GBIT],
        slots: vec![0, 0, 9],
    };
    let coflows = vec![flows(&[(0, 2.0 * GBIT)]), flows(&[(1, 3.0 * GBIT)])];
    let mut set = Set::new(hosts, coflows)?;
    // The first comes first.
    let mut rows = vec![set.on("uses what is left", &[&[2], &[2]], Discipline::LeastSent)];
    let mut waits_s = 0.0;
    for coflow in std::mem::take(&mut set.coflows) {
        set.coflows = vec![coflow];
        let alone = set.by(&mut *Scheme::Rpc.scheduler(RpcOptions::default()), &[]);
        waits_s += alone.map_err(ExperimentError::Setup)?[0];
    }
    // What the first leaves while it is there, as if it were all there ever is [RPC figure 3b].
    let left = Hosts {
        into: vec![0.0, 0.0, GBIT],
        ..set.hosts
    };
    let keeps = flows(&[(1, 3.0 * GBIT)]).and_then(|coflow| place(&coflow, &left, &[]));
    let keeps = keeps.map_err(|error| ExperimentError::Setup(error.to_string()))?;
    for (name, seconds) in [
        ("keeps what is left", keeps.seconds),
        ("waits for the first", waits_s),
    ] {
        let mut row = Row::new(name, None);
        let figure = Figure::of(std::iter::once(seconds));
        row.figures.insert("second_s".to_owned(), figure);
        rows.insert(0, row);
    }
    Ok(rows)
}

pub(super) fn theorem6(_: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let mut rows = Vec::new();
    for count in HOSTS {
        let small = count * (count - 1);
        let sizes: Vec<f64> = (0..=small)
            .map(|reducer| if reducer == small { count as f64 } else { 1.0 })
            .collect();
        // The solution of the relaxed problem that the proof uses.
        let whole = (0..small).map(|reducer| Share {
            reducer,
            host: reducer % count,
            amount: 1.0,
        });
        let split = (0..count).map(|host| Share {
            reducer: small,
            host,
            amount: 1.0,
        });
        let shares: Vec<Share> = whole.chain(split).collect();
        let rounded = round(sizes.len(), &shares);
        let mut loads = vec![0.0; count];
        for (size, host) in sizes.iter().zip(&rounded) {
            loads[*host] += size;
        }
        let rounded = loads.into_iter().fold(0.0, f64::max);
        let hosts = Hosts {
            out: (0..=count)
                .map(|host| if host == 0 { 1e9 } else { 0.0 })
                .collect(),
            into: (0..=count)
                .map(|host| if host == 0 { 0.0 } else { 1.0 })
                .collect(),
            slots: (0..=count)
                .map(|host| if host == 0 { 0 } else { u32::MAX })
                .collect(),
        };
        let all: Vec<(HostId, f64)> = sizes.iter().map(|size| (0, *size)).collect();
        let placed = flows(&all).and_then(|coflow| place(&coflow, &hosts, &[]));
        let placed = placed.map_err(|error| ExperimentError::Setup(error.to_string()))?;
        for (name, seconds) in [("rounded", rounded), ("planner", placed.seconds)] {
            let mut row = Row::new(name, Some(count as f64));
            let mut figure = |name: &str, value: f64| {
                row.figures
                    .insert(name.to_owned(), Figure::of(std::iter::once(value)));
            };
            figure("over_best", seconds / count as f64);
            figure("bound", (2 * count - 1) as f64 / count as f64);
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| b.series.cmp(&a.series));
    Ok(rows)
}

/// The paper's testbed: A, B and C send, D, E and F receive.
pub(super) fn testbed() -> Hosts {
    Hosts {
        out: vec![PAYLOAD; 6],
        into: [1.0, 1.0, 1.0, 0.5, 0.5, 1.0]
            .map(|gbit| gbit * PAYLOAD)
            .to_vec(),
        slots: vec![0, 0, 0, 9, 9, 9],
    }
}

/// Places reducers where they were, after their mappers have fetched what they have not.
struct Fetching {
    placed: Placed,
    /// For each coflow: from where to where how many bytes.
    fetches: Vec<(HostId, HostId, f64)>,
    arrived: usize,
}

impl Scheduler for Fetching {
    fn arrive(&mut self, now_s: f64, hosts: &Hosts, running: &mut [Running]) -> Option<Running> {
        self.placed.arrive(now_s, hosts, running);
        self.arrived += 1;
        let (from, to, bytes) = self.fetches.get(self.arrived - 1).copied()?;
        let mut before = Running::new(0, now_s, flows(&[(from, bytes)]).ok()?);
        before.moves_mappers = true;
        before.start(0, to);
        Some(before)
    }

    fn decide(
        &mut self,
        now_s: f64,
        hosts: &Hosts,
        running: &mut [Running],
        news: News,
    ) -> Decision {
        self.placed.decide(now_s, hosts, running, news)
    }
}

/// 2D-Placement where table II prints its places: what it takes if reducers begin when their mappers have
/// their data, and what the paper says, which adds the times of both.
fn moved() -> Result<[Row; 2], ExperimentError> {
    let (a, b, c, d, e, f) = (0, 1, 2, 3, 4, 5);
    let coflows = vec![
        flows(&[(c, 200.0 * MB), (b, 500.0 * MB)]),
        flows(&[(b, 500.0 * MB), (c, 1000.0 * MB)]),
        flows(&[(a, 1000.0 * MB), (c, 1000.0 * MB)]),
    ];
    let places: [&[HostId]; 3] = [&[f, e], &[e, f], &[d, f]];
    let fetches = [(a, c, 200.0 * MB), (a, b, 500.0 * MB), (b, a, 1000.0 * MB)];
    let placed = Placed::new(Placing::Recorded(1), Discipline::SmallestBottleneck);
    let hosts = Hosts {
        slots: vec![9; 6],
        ..testbed()
    };
    let set = Set::new(hosts.clone(), coflows)?;
    let mut fetching = Fetching {
        placed,
        fetches: fetches.into(),
        arrived: 0,
    };
    let printed = set.row("2dp, as printed", &mut fetching, &places);
    // While they fetch, the first coflow is sent to E already, which half of what B sends goes to.
    let one = |(from, _, bytes): (HostId, HostId, f64)| flows(&[(from, bytes)]);
    let [first, second, third] = fetches.map(one);
    let alone = Set::new(hosts, vec![first, second, flows(&[(b, 500.0 * MB)]), third])?;
    let sum = || -> Result<Vec<f64>, String> {
        let fetched = alone.by(&mut placed.clone(), &[&[c], &[b], &[e], &[a]])?;
        let sent = set.by(&mut placed.clone(), &places)?;
        let fetched = [fetched[0], fetched[1], fetched[3]];
        Ok(sent
            .iter()
            .zip(fetched)
            .map(|(one, other)| one + other)
            .collect())
    };
    let name = "2dp, fetched before";
    let before = sum().map_or_else(
        |error| Row::failed(name, None, error),
        |ccts| row_of(name, &[ccts]),
    );
    Ok([printed, before])
}

/// How long coflows take if a flow waits until no other is at either of its ends.
fn one_behind_the_other(set: &Set, places: &[&[HostId]]) -> Vec<f64> {
    let count = set.hosts.out.len();
    let (mut out, mut into) = (vec![0.0_f64; count], vec![0.0_f64; count]);
    let coflows = set.coflows.iter().zip(places);
    let ends = coflows.map(|(coflow, places)| {
        let mut last: f64 = 0.0;
        for (reducer, host) in places.iter().enumerate() {
            for flow in coflow.flows(reducer) {
                let rate = set.hosts.out[flow.mapper].min(set.hosts.into[*host]);
                let end = out[flow.mapper].max(into[*host]) + flow.bytes / rate;
                (out[flow.mapper], into[*host]) = (end, end);
                last = last.max(end);
            }
        }
        last
    });
    ends.collect()
}

pub(super) fn tables(bench: &Bench<'_>) -> Result<Vec<Row>, ExperimentError> {
    let (a, b, c, d, e, f) = (0, 1, 2, 3, 4, 5);
    let coflows = vec![
        flows(&[(a, 200.0 * MB), (b, 500.0 * MB)]),
        flows(&[(a, 500.0 * MB), (c, 1000.0 * MB)]),
        flows(&[(b, 1000.0 * MB), (c, 1000.0 * MB)]),
    ];
    let set = Set::new(testbed(), coflows)?;
    let neat: [&[HostId]; 3] = [&[d, e], &[d, f], &[e, f]];
    let varys: [&[HostId]; 3] = [&[d, e], &[f, d], &[e, f]];
    let baseline: [&[HostId]; 3] = [&[f, d], &[e, e], &[f, d]];
    let [printed, before] = moved()?;
    let mut rows = vec![
        set.scheme(Scheme::Rpc),
        set.on("neat, as printed", &neat, Discipline::SmallestBottleneck),
        set.scheme(Scheme::Neat),
        set.scheme(Scheme::TwoD),
        printed,
        before,
        set.on("varys, as printed", &varys, Discipline::SmallestBottleneck),
        row_of(
            "varys, one behind the other",
            &[one_behind_the_other(&set, &varys)],
        ),
        set.on("fair, as printed", &baseline, Discipline::Fair),
    ];
    let draws = if bench.options.short { 2 } else { DRAWS };
    for scheme in [Scheme::Varys, Scheme::Random] {
        let runs = (0..draws).map(|draw| {
            let seed = bench.options.seed.wrapping_add(draw);
            let options = RpcOptions {
                seed,
                ..RpcOptions::default()
            };
            set.by(&mut *scheme.scheduler(options), &[])
        });
        let runs: Result<Vec<Vec<f64>>, String> = runs.collect();
        let name = format!("{}, drawn", scheme.name());
        rows.push(match runs {
            Ok(runs) => row_of(&name, &runs),
            Err(error) => Row::failed(&name, None, error),
        });
    }
    Ok(rows)
}
